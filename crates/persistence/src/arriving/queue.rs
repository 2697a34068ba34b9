//! A short queue between threads.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval at which a thread that waits for room calls `goes_on`.
const LOOK: Duration = Duration::from_millis(100);

pub(super) struct Queue<T> {
    room: usize,
    inner: Mutex<Inner<T>>,
    pushed: Condvar,
    popped: Condvar,
}

struct Inner<T> {
    all: VecDeque<T>,
    /// Whether nothing more is pushed.
    is_ended: bool,
    /// Whether nothing more is wanted.
    is_closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new(room: usize) -> Self {
        let inner = Inner {
            all: VecDeque::with_capacity(room),
            is_ended: false,
            is_closed: false,
        };
        Self {
            room,
            inner: Mutex::new(inner),
            pushed: Condvar::new(),
            popped: Condvar::new(),
        }
    }

    /// Waits for room, while `goes_on` returns `true`; returns whether the item was pushed.
    pub(super) fn push(&self, one: T, goes_on: &dyn Fn() -> bool) -> bool {
        let mut inner = self.lock();
        while inner.all.len() >= self.room && !inner.is_closed {
            if !goes_on() {
                return false;
            }
            let waited = self.popped.wait_timeout(inner, LOOK);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if inner.is_closed {
            return false;
        }
        inner.all.push_back(one);
        drop(inner);
        self.pushed.notify_one();
        true
    }

    /// Returns the next item, or `None` at the end.
    pub(super) fn pop(&self) -> Option<T> {
        let mut inner = self.lock();
        loop {
            if inner.is_closed {
                return None;
            }
            if let Some(one) = inner.all.pop_front() {
                drop(inner);
                self.popped.notify_one();
                return Some(one);
            }
            if inner.is_ended {
                return None;
            }
            let waited = self.pushed.wait(inner);
            inner = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the input; items already in the queue can still be popped.
    pub(super) fn end(&self) {
        self.lock().is_ended = true;
        self.pushed.notify_all();
    }

    /// Declares that nothing more is wanted.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        inner.all.clear();
        drop(inner);
        self.pushed.notify_all();
        self.popped.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
