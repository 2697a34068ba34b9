//! How many keys each hash slot has, in cluster mode: counted by every handle in cells of its own, as all that is counted
//! is. Keys that one handle added and another removed make counts below zero; their sum is right.

use std::sync::OnceLock;

use base::hash_slot::{self, HASH_SLOTS};
use base::sync::atomic::{AtomicI64, Ordering};

use crate::hidden::HiddenSlots;
use crate::key::DatabaseId;

/// The counts of one handle, or of those that are gone.
#[derive(Debug)]
pub(crate) struct SlotCounts(Box<[OnceLock<Box<[AtomicI64]>>]>);

impl SlotCounts {
    pub(crate) fn new(databases: usize) -> Self {
        Self((0..databases).map(|_| OnceLock::new()).collect())
    }

    /// Counts a key that came (1) or went (-1); for the owner.
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

    /// Forgets a database, whose keys are all gone; for who has the store for itself.
    pub(crate) fn forget(&self, database: DatabaseId) {
        let counts = self.0.get(usize::from(database)).and_then(OnceLock::get);
        for count in counts.into_iter().flatten() {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// The keys of a slot in all databases.
    pub(crate) fn of(&self, slot: u16) -> i64 {
        let databases = self.0.iter().filter_map(OnceLock::get);
        let counts = databases.filter_map(|counts| counts.get(usize::from(slot)));
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The keys of the hidden slots in a database, or of all others.
    pub(crate) fn sum(&self, database: DatabaseId, hidden: &HiddenSlots, are_hidden: bool) -> i64 {
        let counts = self.0.get(usize::from(database)).and_then(OnceLock::get);
        let counts = (0..).zip(counts.into_iter().flatten());
        let meant = counts.filter(|(slot, _)| hidden.has(*slot) == are_hidden);
        meant.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }

    /// Adds what another counted.
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
