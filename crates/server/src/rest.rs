//! The rest of a thread between two pieces of work, which ends early when the thread is to end.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Rest {
    /// Sleeps for so long; less where the thread is to end, or is woken.
    pub(crate) fn sleep(&self, time: Duration) {
        let is_over = self.lock();
        if !*is_over {
            // Who wakes early looks once more, no harm done.
            let _woken = self.changed.wait_timeout(is_over, time);
        }
    }

    /// Wakes the thread, if it sleeps.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Says that the thread is to end.
    pub(crate) fn end(&self) {
        *self.lock() = true;
        self.changed.notify_all();
    }

    /// Whether the thread is to end.
    pub(crate) fn is_over(&self) -> bool {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
