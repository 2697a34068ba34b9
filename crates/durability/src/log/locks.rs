//! Locks of the log. The guarded data stays valid even if a thread panics while it holds a lock.

use base::sync::{Mutex, MutexGuard};

/// Locks a mutex. A panic of an earlier holder does not matter here.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
