//! Memory that is reused. The allocator returns freed memory to the system at once, and new memory
//! comes page by page: per received byte that costs more than putting it into the store.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) struct Spares {
    all: Mutex<Vec<Vec<u8>>>,
    /// Limits of what is kept: the number of buffers, and the size of each.
    count_max: usize,
    bytes_max: usize,
}

impl Spares {
    pub(super) fn new(count_max: usize, bytes_max: usize) -> Self {
        Self {
            all: Mutex::default(),
            count_max,
            bytes_max,
        }
    }

    /// Returns memory whose content does not matter; empty if none is spare.
    pub(super) fn take(&self) -> Vec<u8> {
        self.lock().pop().unwrap_or_default()
    }

    pub(super) fn give(&self, memory: Vec<u8>) {
        let mut all = self.lock();
        if all.len() < self.count_max && memory.capacity() <= self.bytes_max {
            all.push(memory);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
