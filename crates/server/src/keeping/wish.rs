//! Conversion of the log's configuration to the types of the room `persistence`.

use durability::log::{Level, Options};
use persistence::log_owner::LogWish;

use crate::config::{Durability, DurabilityLevel};

/// See the module documentation.
#[must_use]
pub(crate) fn log_wish(durability: &Durability) -> LogWish {
    let level = match durability.level {
        DurabilityLevel::Quorum => durability.sync,
        level => level,
    };
    let level = match level {
        DurabilityLevel::None => Level::None,
        DurabilityLevel::Checkpoint => Level::Checkpoint,
        DurabilityLevel::Os => Level::Os,
        DurabilityLevel::EverySecond => Level::EverySecond,
        DurabilityLevel::Always | DurabilityLevel::Quorum => Level::Always,
    };
    let options = Options {
        segment_bytes: durability.log_segment_bytes,
        ..Options::default()
    };
    LogWish { level, options }
}
