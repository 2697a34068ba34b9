//! When something was done last that one thread does for all.

use base::sync::atomic::{AtomicU64, Ordering};

/// When something was done last that one thread does for all.
#[derive(Debug, Default)]
pub(crate) struct LastTime(AtomicU64);

impl LastTime {
    /// Whether it is time again, and the caller is the one to do it.
    pub(crate) fn is_due(&self, now_unix_ms: u64, every_ms: u64) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        now_unix_ms.abs_diff(last) >= every_ms
            && self
                .0
                .compare_exchange(last, now_unix_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}
