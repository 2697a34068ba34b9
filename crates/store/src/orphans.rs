//! The wheels of threads that ended, until another thread takes them over.

use std::sync::{Mutex, MutexGuard, PoisonError};

use base::sync::atomic::{AtomicBool, Ordering};

use crate::deadlines::Armed;

/// Wheels of threads that ended.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    some: AtomicBool,
    wheels: Mutex<Vec<Armed>>,
}

impl Orphans {
    pub(crate) fn leave(&self, mut wheels: Vec<Armed>) {
        self.lock().append(&mut wheels);
        self.some.store(true, Ordering::Release);
    }

    pub(crate) fn has_some(&self) -> bool {
        self.some.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self) -> Vec<Armed> {
        let wheels = std::mem::take(&mut *self.lock());
        self.some.store(false, Ordering::Release);
        wheels
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Armed>> {
        self.wheels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
