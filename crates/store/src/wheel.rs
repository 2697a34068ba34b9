//! Deadlines of keys, in the order in which they come.

use std::collections::BTreeMap;

/// How many low bits of a hash a wheel keeps: enough to find the bucket of a key.
pub(crate) const POSITION_BITS: u32 = 40;

/// Deadlines by time. One per thread and database, not shared.
#[derive(Debug)]
pub(crate) struct Wheel {
    by_deadline: BTreeMap<u64, Vec<u64>>,
    len: usize,
}

impl Wheel {
    /// Nothing armed; time starts at `now_unix_ms`.
    pub(crate) fn new(now_unix_ms: u64) -> Self {
        let _ = now_unix_ms;
        Self {
            by_deadline: BTreeMap::new(),
            len: 0,
        }
    }

    /// Asks for a visit at `deadline_unix_ms` to the keys whose hash ends in the low
    /// [`POSITION_BITS`] bits of `hash`.
    pub(crate) fn arm(&mut self, hash: u64, deadline_unix_ms: u64) {
        self.by_deadline
            .entry(deadline_unix_ms)
            .or_default()
            .push(hash & ((1 << POSITION_BITS) - 1));
        self.len += 1;
    }

    /// Visits what is due at `now_unix_ms`, at most `work_max` entries; whether some are left.
    ///
    /// `visit` gets the low [`POSITION_BITS`] bits of a hash, looks whether the record is due, and
    /// gives the time of the next visit if it is not (`None`: forget it). Visits never come late;
    /// early ones come only to deadlines that were more than 49 days ahead when armed.
    pub(crate) fn advance(
        &mut self,
        now_unix_ms: u64,
        work_max: usize,
        visit: &mut impl FnMut(u64) -> Option<u64>,
    ) -> bool {
        for _ in 0..work_max {
            let Some(mut first) = self.by_deadline.first_entry() else {
                return false;
            };
            if *first.key() > now_unix_ms {
                return false;
            }
            let hash = first.get_mut().pop();
            if first.get().is_empty() {
                first.remove();
            }
            if let Some(hash) = hash {
                self.len -= 1;
                if let Some(again) = visit(hash) {
                    self.arm(hash, again.max(now_unix_ms + 1));
                }
            }
        }
        self.by_deadline
            .first_key_value()
            .is_some_and(|(&at, _)| at <= now_unix_ms)
    }

    /// Entries armed, stale ones included.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Forgets everything (then arm all deadlines again).
    pub(crate) fn clear(&mut self) {
        self.by_deadline.clear();
        self.len = 0;
    }
}
