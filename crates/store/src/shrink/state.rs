//! Whether and how an index is shrinking.

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether and how a table is shrinking.
#[derive(Debug)]
pub(crate) struct Shrinking {
    pub(super) is_on: AtomicBool,
    /// How often memory of buckets went back to the system.
    pub(super) discards: AtomicU64,
    /// Number of records that are expected.
    pub(super) expected: AtomicU64,
    pub(super) level_min: u32,
}

impl Shrinking {
    /// Creates the state of a table that begins with `2^level_min` buckets, and does not become
    /// smaller.
    pub(crate) fn new(level_min: u32) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            discards: AtomicU64::new(0),
            expected: AtomicU64::new(0),
            level_min,
        }
    }

    /// Notes how many records are expected, for which the table should keep its size.
    pub(crate) fn expect(&self, records: u64) {
        self.expected.store(records, Ordering::Relaxed);
    }

    /// A number that changes each time that memory of buckets goes back to the system.
    pub(crate) fn era(&self) -> u64 {
        self.discards.load(Ordering::Relaxed)
    }
}
