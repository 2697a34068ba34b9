//! Memory that is used again. The allocator gives back to the system at once what is freed, and what is taken anew comes
//! page by page: for each byte that arrives that cost more than putting it into the store.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) struct Spares {
    all: Mutex<Vec<Vec<u8>>>,
    /// What is kept: so many, none of them larger than that.
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

    /// Memory whose contents do not matter, with none where none is spare.
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
