//! Atomics, locks and cells, from std or from a model checker.
//!
//! Rooms whose correctness depends on the order of memory operations import these types from here.
//! With `--cfg loom` every interleaving of a small test is explored, with `--cfg shuttle` a random
//! choice of interleavings of a larger one; without either, all of this is std at no cost. With
//! `--cfg thread_sanitizer`, for code that this sanitizer watches, a mutex shows the sanitizer the
//! order that it establishes.

#[cfg(all(thread_sanitizer, not(any(loom, shuttle))))]
mod watched;

pub use imp::*;

#[cfg(not(any(loom, shuttle, thread_sanitizer)))]
mod imp {
    pub use std::hint;
    pub use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, atomic};
    pub use std::thread;
}

#[cfg(all(thread_sanitizer, not(any(loom, shuttle))))]
mod imp {
    pub use super::watched::{Mutex, MutexGuard};
    pub use std::hint;
    pub use std::sync::{Arc, RwLock, atomic};
    pub use std::thread;
}

#[cfg(loom)]
mod imp {
    pub use loom::hint;
    pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, atomic};
    pub use loom::thread;
}

#[cfg(all(shuttle, not(loom)))]
mod imp {
    pub use shuttle::hint;
    pub use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, atomic};
    pub use shuttle::thread;
}

#[cfg(loom)]
pub use loom::cell::UnsafeCell;

pub use atomic::fence;

/// A cell whose contents are reached through a pointer that is valid for one call.
///
/// The interface is that of loom's cell of the same name, which checks that no two threads are
/// inside at once; this one checks nothing and costs as little as std's.
#[cfg(not(loom))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T: ?Sized>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// Creates a cell that holds `value`.
    #[inline]
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Returns the contents.
    #[inline]
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

#[cfg(not(loom))]
impl<T: ?Sized> UnsafeCell<T> {
    /// Calls `read` with a pointer for reading. A caller that dereferences it ensures that no
    /// thread writes.
    #[inline]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Calls `change` with a pointer for writing. A caller that dereferences it ensures that no
    /// other thread is inside.
    #[inline]
    pub fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        change(self.0.get())
    }
}

/// A value alone on its cache lines, so that writing it does not slow down its neighbours.
///
/// 128 bytes: x86-64 fetches lines of 64 in pairs, and some arm64 cores have lines of 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(128))]
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    /// Pads `value`.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the value without its padding.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> std::ops::DerefMut for CachePadded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn padded_values_share_no_line() {
        let pair = [CachePadded::new(1_u8), CachePadded::new(2)];
        assert_eq!(size_of_val(&pair), 256);
        assert_eq!(std::ptr::from_ref(&pair).addr() % 128, 0);
        assert_eq!(*pair[0] + pair[1].into_inner(), 3);
    }

    #[test]
    fn a_cell_gives_what_was_put_in() {
        let cell = UnsafeCell::new(1);
        // SAFETY: the cell is local to this thread, and there is no other pointer into it.
        cell.with_mut(|value| unsafe { *value += 1 });
        // SAFETY: as above.
        assert_eq!(cell.with(|value| unsafe { *value }), 2);
        assert_eq!(cell.into_inner(), 2);
    }
}

/// Also run under the thread sanitizer, which has to see the order of a mutex after a wait.
#[cfg(all(test, not(any(loom, shuttle))))]
mod stress {
    use super::*;

    #[test]
    fn what_a_mutex_guards_is_changed_by_one_after_the_other() {
        let (threads, rounds) = if cfg!(miri) { (2, 20) } else { (4, 20_000) };
        let sum = Mutex::new(0_u64);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for round in 0..rounds {
                        let mut sum = sum.lock().expect("nobody panics in here");
                        *sum += 1;
                        // Sometimes so long that the other threads go to sleep.
                        if round % 64 == 0 {
                            thread::yield_now();
                        }
                    }
                });
            }
        });
        assert_eq!(sum.into_inner().ok(), Some(threads * rounds));
    }
}
