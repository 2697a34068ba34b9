//! The conditions that a write checks before its first lock.

use base::sync::atomic::{AtomicU64, Ordering};

/// The conditions that a write must check before it takes its first lock. Usually there are none,
/// and one load shows that.
#[derive(Debug, Default)]
pub(crate) struct BeforeWrites(AtomicU64);

impl BeforeWrites {
    /// There is a memory limit.
    pub(crate) const LIMIT: u64 = 1;
    /// There is a snapshot, which may hold too much.
    pub(crate) const SNAPSHOT: u64 = 2;

    /// The conditions that hold.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets or clears a condition.
    pub(crate) fn set(&self, what: u64, on: bool) {
        if on {
            self.0.fetch_or(what, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!what, Ordering::Relaxed);
        }
    }
}
