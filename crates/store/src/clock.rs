//! The clock word of a record: when, or how often, it was used.
//!
//! A record has one only if it was written under a policy that needs it. The word is updated at
//! most once a second, by a reader that then takes the bucket's lock.
//!
//! ```text
//!   last use    0 in bit 63, then the second since 1970 UTC
//!   frequency   1 in bit 63, bits 32..63 the minute of the last use, bits 8..32 the turnover then,
//!               bits 0..8 the counter
//! ```
//!
//! A counter goes down with the minutes without use (as in Redis), and with the turnover, which is
//! how often all records were replaced meanwhile. Minutes say little about a cache that is replaced
//! every few seconds: without the turnover, what was popular once would stay until they have
//! passed.

use base::random::Prng;

#[cfg(test)]
use crate::policy::Policy;
use crate::policy::{ClockKind, InForce, LfuTuning, TURNOVER_PARTS};
use crate::value::Use;

/// Counter of a new record, so that it is not evicted first (as in Redis).
const NEW_COUNT: u8 = 5;

/// Number of turnovers without use, in parts, after which the counter drops by one. Measured on the
/// traces of `tests/hit_ratio.rs`: half as many cost up to two points of misses during scans; twice
/// as many are of no use when what is popular drifts.
const DECAY_TURNOVER: u32 = 10 * TURNOVER_PARTS;

const FREQUENCY: u64 = 1 << 63;
const MINUTE_SHIFT: u32 = 32;
const TURNOVER_SHIFT: u32 = 8;
const TURNOVER_BITS: u32 = 24;
const TURNOVER_MASK: u32 = (1 << TURNOVER_BITS) - 1;
const MS_PER_SECOND: u64 = 1000;
const SECONDS_PER_MINUTE: u64 = 60;

/// The present time, as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    kind: ClockKind,
    lfu: LfuTuning,
    turnover: u32,
    now_unix_ms: u64,
}

impl Clock {
    #[inline]
    pub(crate) fn new(in_force: InForce, now_unix_ms: u64) -> Self {
        Self {
            kind: in_force.policy.clock_kind(),
            lfu: in_force.lfu,
            turnover: in_force.turnover,
            now_unix_ms,
        }
    }

    /// Returns a clock for reading words under the tuning in force.
    #[cfg(test)]
    pub(crate) fn reading(policy: Policy, lfu: LfuTuning, now_unix_ms: u64) -> Self {
        Self {
            kind: policy.clock_kind(),
            lfu,
            turnover: 0,
            now_unix_ms,
        }
    }

    /// Whether records written now get a clock word.
    #[inline]
    pub(crate) fn is_kept(self) -> bool {
        self.kind != ClockKind::None
    }

    /// Returns the word of a new record.
    pub(crate) fn fresh(self) -> u64 {
        match self.kind {
            ClockKind::Frequency => self.frequency_word(NEW_COUNT),
            ClockKind::None | ClockKind::LastUse => self.second(),
        }
    }

    /// Returns the word for an earlier use, or `None` under a policy that keeps something else.
    pub(crate) fn of_use(self, before: Use) -> Option<u64> {
        match (self.kind, before) {
            (ClockKind::LastUse, Use::IdleSeconds(seconds)) => {
                Some(self.second().saturating_sub(seconds))
            }
            (ClockKind::Frequency, Use::Frequency(count)) => Some(self.frequency_word(count)),
            _ => None,
        }
    }

    /// Returns the word after a use, or `None` if the old word is still good enough.
    pub(crate) fn used(self, word: u64) -> Option<u64> {
        match self.kind {
            ClockKind::None => None,
            ClockKind::LastUse => (word != self.second()).then(|| self.second()),
            ClockKind::Frequency => {
                let before = self.frequency(word);
                let after = self.counted(before, word);
                let next = self.frequency_word(after);
                (next != word).then_some(next)
            }
        }
    }

    /// Seconds since the last use; 0 if unknown.
    pub(crate) fn idle_seconds(self, word: u64) -> u64 {
        if word & FREQUENCY == 0 {
            self.second().saturating_sub(word)
        } else {
            0
        }
    }

    /// The use counter, decayed up to now; if unknown, that of a new record.
    pub(crate) fn frequency(self, word: u64) -> u8 {
        if word & FREQUENCY == 0 {
            return NEW_COUNT;
        }
        let [count, ..] = word.to_le_bytes();
        if self.lfu.decay_minutes == 0 {
            return count;
        }
        let minute = (word & !FREQUENCY) >> MINUTE_SHIFT;
        let idle_minutes = self.minute().saturating_sub(minute);
        let steps = idle_minutes / u64::from(self.lfu.decay_minutes)
            + u64::from(self.idle_turnover(word) / DECAY_TURNOVER);
        count.saturating_sub(u8::try_from(steps).unwrap_or(u8::MAX))
    }

    /// Rank of a record in the order of eviction: the lower, the sooner. Among equal counters, the
    /// longest unused record is first.
    pub(crate) fn rank(self, word: u64) -> u64 {
        let recency = TURNOVER_MASK - self.idle_turnover(word);
        u64::from(self.frequency(word)) << TURNOVER_BITS | u64::from(recency)
    }

    /// The increase of the turnover since the last use.
    fn idle_turnover(self, word: u64) -> u32 {
        let [_, t0, t1, t2, ..] = word.to_le_bytes();
        let then = u32::from_le_bytes([t0, t1, t2, 0]);
        self.turnover.wrapping_sub(then) & TURNOVER_MASK
    }

    /// Returns the counter after one more use, which counts with a probability that falls as the
    /// counter rises.
    fn counted(self, count: u8, word: u64) -> u8 {
        if count == u8::MAX {
            return count;
        }
        let above_new = f64::from(count.saturating_sub(NEW_COUNT));
        let odds = 1.0 / (above_new * f64::from(self.lfu.log_factor) + 1.0);
        let mut random = Prng::seeded(word ^ self.now_unix_ms.rotate_left(32));
        count + u8::from(random.unit_f64() < odds)
    }

    fn frequency_word(self, count: u8) -> u64 {
        let turnover = u64::from(self.turnover & TURNOVER_MASK);
        let minute = self.minute() << MINUTE_SHIFT & !FREQUENCY;
        FREQUENCY | minute | turnover << TURNOVER_SHIFT | u64::from(count)
    }

    fn second(self) -> u64 {
        self.now_unix_ms / MS_PER_SECOND
    }

    fn minute(self) -> u64 {
        self.second() / SECONDS_PER_MINUTE
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    fn clock(policy: Policy, now_unix_ms: u64) -> Clock {
        Clock::reading(policy, LfuTuning::default(), now_unix_ms)
    }

    #[test]
    fn idle_time_counts_from_the_last_use() {
        let word = clock(Policy::AllKeysLru, 5_000).fresh();
        let later = clock(Policy::AllKeysLru, 9_999);
        assert_eq!(later.idle_seconds(word), 4);
        assert_eq!(later.used(word), Some(9));
        assert_eq!(later.used(9), None, "at most once a second");
    }

    #[test]
    fn use_raises_the_counter_and_time_lowers_it() {
        let mut word = clock(Policy::AllKeysLfu, 0).fresh();
        assert_eq!(clock(Policy::AllKeysLfu, 0).frequency(word), NEW_COUNT);
        for now in 0..1000 {
            word = clock(Policy::AllKeysLfu, now).used(word).unwrap_or(word);
        }
        let count = clock(Policy::AllKeysLfu, 1000).frequency(word);
        assert!((10..60).contains(&count), "{count} after 1000 uses");
        let later = clock(Policy::AllKeysLfu, 3 * 60_000);
        assert_eq!(later.frequency(word), count - 3);
        let much_later = clock(Policy::AllKeysLfu, 1 << 40);
        assert_eq!(much_later.frequency(word), 0);
    }

    #[test]
    fn turnover_lowers_the_counter_and_tells_equal_ones_apart() {
        let at = |turnover| Clock {
            turnover,
            ..clock(Policy::AllKeysLfu, 0)
        };
        let start = u32::MAX - 20;
        let (old, new) = (at(start).fresh(), at(start.wrapping_add(30)).fresh());
        let now = at(start.wrapping_add(40));
        assert_eq!(
            (now.frequency(old), now.frequency(new)),
            (NEW_COUNT, NEW_COUNT)
        );
        assert!(now.rank(old) < now.rank(new));
        let later = at(start.wrapping_add(DECAY_TURNOVER));
        assert_eq!(later.frequency(old), NEW_COUNT - 1);
        assert_eq!(later.frequency(new), NEW_COUNT);
        let kept = Clock {
            lfu: LfuTuning {
                decay_minutes: 0,
                ..LfuTuning::default()
            },
            ..later
        };
        assert_eq!(kept.frequency(old), NEW_COUNT, "no decay is asked for");
    }

    #[test]
    fn what_is_said_of_former_use_counts_for_its_own_policy() {
        let lru = clock(Policy::AllKeysLru, 77_000);
        let word = lru.of_use(Use::IdleSeconds(7)).unwrap();
        assert_eq!(lru.idle_seconds(word), 7);
        let word = lru.of_use(Use::IdleSeconds(u64::MAX)).unwrap();
        assert_eq!(lru.idle_seconds(word), 77, "since 1970 at most");
        assert_eq!(lru.of_use(Use::Frequency(9)), None);
        let lfu = clock(Policy::VolatileLfu, 77_000);
        let word = lfu.of_use(Use::Frequency(200)).unwrap();
        assert_eq!(lfu.frequency(word), 200);
        assert_eq!(lfu.of_use(Use::IdleSeconds(7)), None);
        assert_eq!(clock(Policy::NoEviction, 1).of_use(Use::Frequency(1)), None);
    }

    #[test]
    fn a_word_of_the_other_kind_says_nothing() {
        let lru = clock(Policy::AllKeysLru, 77_000).fresh();
        let lfu = clock(Policy::AllKeysLfu, 77_000).fresh();
        assert_eq!(clock(Policy::AllKeysLru, 99_000).idle_seconds(lfu), 0);
        assert_eq!(clock(Policy::AllKeysLfu, 99_000).frequency(lru), NEW_COUNT);
    }
}
