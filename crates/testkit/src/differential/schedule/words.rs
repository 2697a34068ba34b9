//! Words of schedules. There are so few keys, channels and sessions that they often coincide.

use super::super::draw::{Draw, Kind};
use super::session::ID_OF;

/// Number of sessions that requests may name. Some schedules have fewer.
const SESSIONS: u64 = 4;

impl Draw {
    /// Returns a word of a kind that only schedules use.
    pub(in super::super) fn schedule_word(&mut self, kind: Kind) -> Vec<u8> {
        let text = match kind {
            Kind::SharedKey => match self.below(12) {
                0 => "e0".to_owned(),
                _ => format!("k{}", self.below(3)),
            },
            Kind::BriefKey => format!("e{}", self.below(2)),
            Kind::Queue => format!("l{}", self.below(3)),
            Kind::Ranked => format!("z{}", self.below(2)),
            Kind::Log => format!("x{}", self.below(2)),
            Kind::Channel => format!("c{}", self.below(3)),
            Kind::ChannelPattern => {
                let patterns = ["c*", "c?", "*", "c0", "[ab]*", ""];
                patterns[self.index(patterns.len())].to_owned()
            }
            Kind::Item => format!("v{}", self.below(40)),
            Kind::SmallScore => self.below(5).to_string(),
            _ => format!("{ID_OF}{}", self.below(SESSIONS)),
        };
        text.into_bytes()
    }
}
