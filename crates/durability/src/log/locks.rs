//! Locks of the log, which guard what stays right whatever a thread dies of.

use base::sync::{Mutex, MutexGuard};

/// What a mutex guards; that somebody panicked with it changes nothing here.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
