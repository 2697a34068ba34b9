//! The rest of a thread between two pieces of work, which ends early if the thread must end.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Rest {
    /// Sleeps for `time`; less if the thread must end or is woken.
    pub(crate) fn sleep(&self, time: Duration) {
        let is_over = self.lock();
        if !*is_over {
            // A thread that wakes up early checks once more, which does no harm.
            let _woken = self.changed.wait_timeout(is_over, time);
        }
    }

    /// Wakes the thread, if it sleeps.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Requests the end of the thread.
    pub(crate) fn end(&self) {
        *self.lock() = true;
        self.changed.notify_all();
    }

    /// Whether the thread must end.
    pub(crate) fn is_over(&self) -> bool {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
