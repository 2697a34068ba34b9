//! A mutex whose order the thread sanitizer sees.
//!
//! The toolchain's standard library is not built for that sanitizer. What of a mutex is compiled into
//! the caller is watched, the way of a thread that had to wait is not: then nothing tells the sanitizer
//! that the last owner came before the next, and it reports what the mutex guards. So this one says it a
//! second time, with an atomic of its own that is written before the lock is given up and read when
//! it is had.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// As [`std::sync::Mutex`].
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized> {
    released: AtomicBool,
    inner: std::sync::Mutex<T>,
}

/// As [`std::sync::MutexGuard`].
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized> {
    /// Goes first, for fields are dropped in their order.
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
    /// A mutex around `value`.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self {
            released: AtomicBool::new(false),
            inner: std::sync::Mutex::new(value),
        }
    }

    /// What it guards.
    ///
    /// # Errors
    /// When an owner panicked, with the same inside.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until it is free, and takes it.
    ///
    /// # Errors
    /// When an owner panicked, with the guard inside.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match self.inner.lock() {
            Ok(inner) => Ok(self.guard(inner)),
            Err(poisoned) => Err(PoisonError::new(self.guard(poisoned.into_inner()))),
        }
    }

    /// Takes it if it is free.
    ///
    /// # Errors
    /// When it is not, or an owner panicked, with the guard inside.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Ok(self.guard(inner)),
            Err(TryLockError::Poisoned(poisoned)) => {
                Err(PoisonError::new(self.guard(poisoned.into_inner())).into())
            }
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    /// What it guards, for who has it alone.
    ///
    /// # Errors
    /// When an owner panicked, with the same inside.
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
