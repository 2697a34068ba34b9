//! What a write looks at before its first lock.

use base::sync::atomic::{AtomicU64, Ordering};

/// What has to be looked at before a write takes its first lock: nothing most often, which one load
/// tells.
#[derive(Debug, Default)]
pub(crate) struct BeforeWrites(AtomicU64);

impl BeforeWrites {
    /// There is a limit on memory.
    pub(crate) const LIMIT: u64 = 1;
    /// There is a snapshot, which may hold too much.
    pub(crate) const SNAPSHOT: u64 = 2;

    /// What there is.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes that there is such a thing, or no longer.
    pub(crate) fn set(&self, what: u64, on: bool) {
        if on {
            self.0.fetch_or(what, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!what, Ordering::Relaxed);
        }
    }
}
