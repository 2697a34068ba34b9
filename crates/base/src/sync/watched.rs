//! A mutex whose order the thread sanitizer sees.
//!
//! The toolchain's standard library is not built for that sanitizer. The part of a mutex that is
//! compiled into the caller is watched, but the path of a thread that had to wait is not: then the
//! sanitizer does not see that the last owner came before the next, and it reports accesses to the
//! guarded value. So this mutex shows the order a second time, with its own atomic, which is
//! written before the lock is released and read after it is taken.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// Like [`std::sync::Mutex`].
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized> {
    released: AtomicBool,
    inner: std::sync::Mutex<T>,
}

/// Like [`std::sync::MutexGuard`].
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    /// First, because fields are dropped in their order.
    _release: Release<'a>,
    inner: std::sync::MutexGuard<'a, T>,
}

#[derive(Debug)]
struct Release<'a>(&'a AtomicBool);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl<T> Mutex<T> {
    /// Creates a mutex around `value`.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self {
            released: AtomicBool::new(false),
            inner: std::sync::Mutex::new(value),
        }
    }

    /// Returns the guarded value.
    ///
    /// # Errors
    /// If an owner panicked; the error contains the value.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the mutex is free, and takes it.
    ///
    /// # Errors
    /// If an owner panicked; the error contains the guard.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match self.inner.lock() {
            Ok(inner) => Ok(self.guard(inner)),
            Err(poisoned) => Err(PoisonError::new(self.guard(poisoned.into_inner()))),
        }
    }

    /// Takes the mutex if it is free.
    ///
    /// # Errors
    /// If it is not, or if an owner panicked; the error contains the guard then.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Ok(self.guard(inner)),
            Err(TryLockError::Poisoned(poisoned)) => {
                Err(PoisonError::new(self.guard(poisoned.into_inner())).into())
            }
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    /// Returns the guarded value to the caller, which has exclusive access.
    ///
    /// # Errors
    /// If an owner panicked; the error contains the reference.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }

    fn guard<'a>(&'a self, inner: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let _the_last_owner_came_before = self.released.load(Ordering::Acquire);
        MutexGuard {
            _release: Release(&self.released),
            inner,
        }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
