//! How many keys each hash slot has, in cluster mode. Every handle counts in its own cells, as with
//! all counters. If one handle adds keys and another removes them, a count is below zero; the sum
//! is right.

use std::sync::OnceLock;

use base::hash_slot::{self, HASH_SLOTS};
use base::sync::atomic::{AtomicI64, Ordering};

use crate::hidden::HiddenSlots;
use crate::key::DatabaseId;

/// The counts of one handle, or of all handles that are gone.
#[derive(Debug)]
pub(crate) struct SlotCounts(Box<[OnceLock<Box<[AtomicI64]>>]>);

impl SlotCounts {
    pub(crate) fn new(databases: usize) -> Self {
        Self((0..databases).map(|_| OnceLock::new()).collect())
    }

    /// Counts a key that came (1) or went (-1). Only the owner calls this.
    pub(crate) fn count(&self, database: DatabaseId, key: &[u8], change: i64) {
        self.add(database, usize::from(hash_slot::of(key)), change);
    }

    fn add(&self, database: DatabaseId, slot: usize, change: i64) {
        let counts = self.0.get(usize::from(database));
        let none = || (0..HASH_SLOTS).map(|_| AtomicI64::new(0)).collect();
        let count = counts.and_then(|counts| counts.get_or_init(none).get(slot));
        if let Some(count) = count {
            count.store(count.load(Ordering::Relaxed) + change, Ordering::Relaxed);
        }
    }

    /// Clears the counts of a database whose keys are all gone. The caller has the store for
    /// itself.
    pub(crate) fn forget(&self, database: DatabaseId) {
        let counts = self.0.get(usize::from(database)).and_then(OnceLock::get);
        for count in counts.into_iter().flatten() {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Number of keys of a slot in all databases.
    pub(crate) fn of(&self, slot: u16) -> i64 {
        let databases = self.0.iter().filter_map(OnceLock::get);
        let counts = databases.filter_map(|counts| counts.get(usize::from(slot)));
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Number of keys of a database in the hidden slots, or in all others.
    pub(crate) fn sum(&self, database: DatabaseId, hidden: &HiddenSlots, are_hidden: bool) -> i64 {
        let counts = self.0.get(usize::from(database)).and_then(OnceLock::get);
        let counts = (0..).zip(counts.into_iter().flatten());
        let meant = counts.filter(|(slot, _)| hidden.has(*slot) == are_hidden);
        meant.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }

    /// Adds the counts of another handle.
    pub(crate) fn add_all(&self, other: &Self) {
        for (database, counts) in (0..).zip(&other.0) {
            for (slot, count) in counts.get().into_iter().flatten().enumerate() {
                let count = count.load(Ordering::Relaxed);
                if count != 0 {
                    self.add(database, slot, count);
                }
            }
        }
    }
}
