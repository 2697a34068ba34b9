//! A database that is to be emptied later. A command sets the time; the thread that finds it due
//! empties the database.

use std::sync::atomic::{AtomicU64, Ordering};

/// When database 0 is to be emptied. A later setting replaces the previous one. It is not
/// persistent.
#[derive(Debug, Default)]
pub struct DelayedFlush(AtomicU64);

impl DelayedFlush {
    /// Sets the time in milliseconds since 1970; 0 for never.
    pub fn set(&self, unix_ms: u64) {
        self.0.store(unix_ms, Ordering::Relaxed);
    }

    /// Whether that time has come. Only one caller gets `true`.
    #[must_use]
    pub fn take_due(&self, now_unix_ms: u64) -> bool {
        let due_unix_ms = self.0.load(Ordering::Relaxed);
        let is_due = due_unix_ms != 0 && due_unix_ms <= now_unix_ms;
        // A time that another thread set meanwhile is kept.
        is_due
            && self
                .0
                .compare_exchange(due_unix_ms, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_once() {
        let flush = DelayedFlush::default();
        assert!(!flush.take_due(5));
        flush.set(7);
        assert!(!flush.take_due(6));
        flush.set(9);
        assert!(!flush.take_due(8));
        assert!(flush.take_due(10) && !flush.take_due(10));
        flush.set(3);
        flush.set(0);
        assert!(!flush.take_due(10));
    }
}
