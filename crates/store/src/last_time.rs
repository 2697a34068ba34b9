//! The last time of a task that one thread does for all.

use base::sync::atomic::{AtomicU64, Ordering};

/// The last time of a task that one thread does for all.
#[derive(Debug, Default)]
pub(crate) struct LastTime(AtomicU64);

impl LastTime {
    /// Whether the task is due, and the caller is the thread to do it.
    pub(crate) fn is_due(&self, now_unix_ms: u64, every_ms: u64) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        now_unix_ms.abs_diff(last) >= every_ms
            && self
                .0
                .compare_exchange(last, now_unix_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}
