//! How long leases that others may hold still count, as a voter knows it. After its election the
//! voter waits that long.
//!
//! ```text
//!   replies of a leader:   15,000 … 15,000   1,500 … 1,500 ───────────────── 1,500   elected
//!   longest:               15,000 ─────────────────────── one lease of it ─► 1,500   waits for 1,500
//! ```
//!
//! Invariants
//!  1. The last value that a leader stated counts permanently: a leader that is not heard keeps
//!     granting.
//!  2. An earlier value counts for one more lease and an election. After that no such lease stands.

use std::collections::BTreeMap;

use crate::planted::{Bug, is_on};
use crate::times::Times;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownLeases {
    told_ms: Option<u64>,
    /// By lease length: until when a lease of that length may stand.
    older: BTreeMap<u64, u64>,
}

impl KnownLeases {
    /// Notes that a leader states the length of its leases.
    pub(crate) fn note(&mut self, lease_ms: u64, now_ms: u64) {
        match self.told_ms.replace(lease_ms) {
            Some(told_ms) if told_ms != lease_ms => self.note_last(told_ms, now_ms),
            _ => {}
        }
    }

    /// Notes that leases of this length are not granted any more.
    pub(crate) fn note_last(&mut self, lease_ms: u64, now_ms: u64) {
        let until_ms = now_ms + Times::of(lease_ms).may_stand_ms();
        let known_ms = self.older.entry(lease_ms).or_insert(until_ms);
        *known_ms = until_ms.max(*known_ms);
        self.older.retain(|_, until_ms| now_ms < *until_ms);
    }

    /// Returns the longest lease that may stand, as far as known.
    #[must_use]
    pub(crate) fn longest_ms(&self, now_ms: u64) -> Option<u64> {
        let may_stand = |until_ms| now_ms < until_ms && !is_on(Bug::ShorterLeaseOnly);
        let mut older = self.older.iter().rev();
        let older = older.find(|(_, until_ms)| may_stand(**until_ms));
        self.told_ms.max(older.map(|(lease_ms, _)| *lease_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_leases_are_known_until_none_of_them_stands() {
        let mut known = KnownLeases::default();
        assert_eq!(known.longest_ms(0), None);
        known.note(15_000, 0);
        // A leader that is not heard keeps granting.
        assert_eq!(known.longest_ms(1_000_000), Some(15_000));
        known.note(9_000, 1_000_000);
        known.note(1_500, 1_001_000);
        let lasts_ms = |lease_ms| Times::of(lease_ms).predecessor_ms();
        assert_eq!(known.longest_ms(1_000_000 + lasts_ms(15_000)), Some(15_000));
        assert_eq!(known.longest_ms(1_020_500), Some(1_500));
        known.note_last(20_000, 1_020_500);
        assert_eq!(known.longest_ms(1_020_501), Some(20_000));
        assert_eq!(known.older.len(), 1);
    }

    #[test]
    fn what_was_told_between_is_known_as_long() {
        let mut known = KnownLeases::default();
        known.note(10_000, 0);
        known.note(9_000, 10);
        known.note(9_000, 9_000);
        known.note(1_500, 9_010);
        assert_eq!(known.longest_ms(10 + 10_100), Some(10_000));
        assert_eq!(known.longest_ms(9_000 + 9_100 + 1_000), Some(9_000));
        assert_eq!(known.longest_ms(30_000), Some(1_500));
    }
}
