//! What an index knows of its way to a smaller size.

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether a table is on the way to a smaller size.
#[derive(Debug)]
pub(crate) struct Shrinking {
    pub(super) is_on: AtomicBool,
    /// How often memory of buckets went back to the system.
    pub(super) discards: AtomicU64,
    /// So many records are on the way.
    pub(super) expected: AtomicU64,
    pub(super) level_min: u32,
}

impl Shrinking {
    /// Of a table that begins with `2^level_min` buckets, and does not become smaller.
    pub(crate) fn new(level_min: u32) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            discards: AtomicU64::new(0),
            expected: AtomicU64::new(0),
            level_min,
        }
    }

    /// Says how many records are on the way, for which the table is to stay as it is.
    pub(crate) fn expect(&self, records: u64) {
        self.expected.store(records, Ordering::Relaxed);
    }

    /// Another number after each time that memory of buckets went back to the system.
    pub(crate) fn era(&self) -> u64 {
        self.discards.load(Ordering::Relaxed)
    }
}
