//! What to evict when memory is short, and what is recorded about use for that.

use std::fmt;
use std::str::FromStr;

use base::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Which records may be evicted, and in which order (`maxmemory-policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// No record: writes are refused.
    #[default]
    NoEviction,
    /// Any record, the longest unused first.
    AllKeysLru,
    /// Any record, the least frequently used first.
    AllKeysLfu,
    /// Any record, in no order.
    AllKeysRandom,
    /// Records with a deadline, the longest unused first.
    VolatileLru,
    /// Records with a deadline, the least frequently used first.
    VolatileLfu,
    /// Records with a deadline, in no order.
    VolatileRandom,
    /// Records with a deadline, the earliest deadline first.
    VolatileTtl,
}

/// Names as in the configuration.
const NAMES: [(Policy, &str); 8] = [
    (Policy::NoEviction, "noeviction"),
    (Policy::AllKeysLru, "allkeys-lru"),
    (Policy::AllKeysLfu, "allkeys-lfu"),
    (Policy::AllKeysRandom, "allkeys-random"),
    (Policy::VolatileLru, "volatile-lru"),
    (Policy::VolatileLfu, "volatile-lfu"),
    (Policy::VolatileRandom, "volatile-random"),
    (Policy::VolatileTtl, "volatile-ttl"),
];

impl Policy {
    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(policy, _)| *policy == self);
        found.map_or("noeviction", |(_, name)| name)
    }

    /// Whether only records with a deadline are evicted.
    #[must_use]
    pub fn is_volatile(self) -> bool {
        matches!(
            self,
            Self::VolatileLru | Self::VolatileLfu | Self::VolatileRandom | Self::VolatileTtl
        )
    }

    fn number(self) -> u8 {
        let at = NAMES.iter().position(|(policy, _)| *policy == self);
        at.and_then(|at| u8::try_from(at).ok()).unwrap_or(0)
    }

    fn from_number(number: u8) -> Self {
        NAMES
            .get(usize::from(number))
            .map_or(Self::NoEviction, |(policy, _)| *policy)
    }

    pub(crate) fn clock_kind(self) -> ClockKind {
        match self {
            Self::AllKeysLru | Self::VolatileLru => ClockKind::LastUse,
            Self::AllKeysLfu | Self::VolatileLfu => ClockKind::Frequency,
            _ => ClockKind::None,
        }
    }

    /// Whether the use of records is recorded in any way.
    #[inline]
    pub(crate) fn notes_use(self) -> bool {
        self.uses_marks() || self.clock_kind() != ClockKind::None
    }

    /// Whether the marks that readers leave in the index are used.
    pub(crate) fn uses_marks(self) -> bool {
        matches!(self, Self::AllKeysLru | Self::VolatileLru)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error that no policy has that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl FromStr for Policy {
    type Err = UnknownPolicy;

    /// Returns the policy with a name, in any case.
    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let found = NAMES.iter().find(|(_, own)| own.eq_ignore_ascii_case(name));
        found.map(|(policy, _)| *policy).ok_or(UnknownPolicy)
    }
}

/// How the use counter of the LFU policies moves (`lfu-log-factor`, `lfu-decay-time`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LfuTuning {
    /// The larger the factor, the more uses a step of the counter takes.
    pub log_factor: u16,
    /// Minutes without use after which the counter drops by one; 0: never.
    pub decay_minutes: u16,
}

impl Default for LfuTuning {
    fn default() -> Self {
        Self {
            log_factor: 10,
            decay_minutes: 1,
        }
    }
}

/// What the clock word of a record holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ClockKind {
    /// Records written now get no clock word.
    #[default]
    None,
    /// The second of the last use.
    LastUse,
    /// A logarithmic counter of uses, and the minute of its last update.
    Frequency,
}

/// The policy in force; handles look it up once per batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InForce {
    pub(crate) policy: Policy,
    pub(crate) samples: u8,
    pub(crate) lfu: LfuTuning,
    /// How far the records held have been replaced, in parts of [`TURNOVER_PARTS`]; it wraps.
    /// Counted by policies that record use.
    pub(crate) turnover: u32,
    /// Whether there is a tier. The hand of demotions then uses the marks that readers leave in the
    /// index, whatever the policy.
    pub(crate) has_tier: bool,
}

impl InForce {
    /// Whether the marks that readers leave in the index are used.
    #[inline]
    pub(crate) fn uses_marks(self) -> bool {
        self.has_tier || self.policy.uses_marks()
    }

    /// Whether the use of records is recorded in any way.
    #[inline]
    pub(crate) fn notes_use(self) -> bool {
        self.has_tier || self.policy.notes_use()
    }
}

/// The turnover goes up by this much each time that as many records were evicted as there are.
pub(crate) const TURNOVER_PARTS: u32 = 16;

/// The policy in force, which may change at any time.
#[derive(Debug, Default)]
pub(crate) struct PolicyCell {
    word: AtomicU64,
    turnover: AtomicU32,
}

impl PolicyCell {
    /// Loads what is in force.
    #[inline]
    pub(crate) fn load(&self) -> InForce {
        let [policy, samples, has_tier, _, f0, f1, d0, d1] =
            self.word.load(Ordering::Relaxed).to_le_bytes();
        let policy = Policy::from_number(policy);
        let turnover = match policy.clock_kind() {
            ClockKind::Frequency => self.turnover.load(Ordering::Relaxed),
            ClockKind::None | ClockKind::LastUse => 0,
        };
        InForce {
            policy,
            samples,
            lfu: LfuTuning {
                log_factor: u16::from_le_bytes([f0, f1]),
                decay_minutes: u16::from_le_bytes([d0, d1]),
            },
            turnover,
            has_tier: has_tier != 0,
        }
    }

    /// Counts that one more part of the records was replaced.
    pub(crate) fn turn(&self) {
        self.turnover.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts new settings in force; the turnover continues.
    pub(crate) fn store(&self, in_force: InForce) {
        let [f0, f1] = in_force.lfu.log_factor.to_le_bytes();
        let [d0, d1] = in_force.lfu.decay_minutes.to_le_bytes();
        let bytes = [
            in_force.policy.number(),
            in_force.samples,
            u8::from(in_force.has_tier),
            0,
            f0,
            f1,
            d0,
            d1,
        ];
        self.word
            .store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
}

/// Maximum number of records that one call evicts beyond its own need, for when the limit was
/// lowered a lot: the next calls evict the others. At the usual [tenacity](victims_max).
pub(crate) const VICTIMS_MAX: u32 = 64;

/// The default tenacity.
const TENACITY_USUAL: u8 = 10;

/// Returns the maximum number of records that one call evicts beyond its need, at this tenacity. Up
/// to the usual tenacity in proportion, beyond it 15 hundredths more with each step (as the time
/// that Redis allows grows), and any number at 100.
pub(crate) fn victims_max(tenacity: u8) -> u32 {
    match tenacity {
        0..TENACITY_USUAL => {
            let part = VICTIMS_MAX * u32::from(tenacity) / u32::from(TENACITY_USUAL);
            part.max(1)
        }
        TENACITY_USUAL..100 => (TENACITY_USUAL..tenacity).fold(VICTIMS_MAX, |victims, _| {
            victims.saturating_add(victims / 20 * 3)
        }),
        100.. => u32::MAX,
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_one_name() {
        for (policy, name) in NAMES {
            assert_eq!(policy.name().parse(), Ok(policy));
            assert_eq!(name.to_uppercase().parse(), Ok(policy));
            assert_eq!(Policy::from_number(policy.number()), policy);
        }
        assert_eq!("lru".parse::<Policy>(), Err(UnknownPolicy));
    }

    #[test]
    fn what_is_put_in_force_is_in_force() {
        let cell = PolicyCell::default();
        let in_force = InForce {
            policy: Policy::VolatileTtl,
            samples: 5,
            lfu: LfuTuning {
                log_factor: 300,
                decay_minutes: u16::MAX,
            },
            turnover: 0,
            has_tier: true,
        };
        cell.store(in_force);
        assert_eq!(cell.load(), in_force);
    }
}
