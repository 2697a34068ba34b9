//! Threads that read values for requests which wait for them: one read for all who want the same.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use store::Locator;

use super::Wakes;
use super::values::{Name, Values};

/// How many reads are under way at most.
pub(super) const THREADS: usize = 16;

/// A value that is wanted.
pub(super) struct WantedValue {
    pub(super) key: Vec<u8>,
    pub(super) locator: Locator,
    /// Of its entry, when it was wanted.
    pub(super) name: Name,
}

/// See the module.
#[derive(Default)]
pub(super) struct Readers {
    state: Mutex<State>,
    changed: Condvar,
    coalesced: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Not begun yet.
    queue: VecDeque<WantedValue>,
    /// Who waits for what, begun or not.
    waiting: HashMap<Name, Vec<usize>>,
    is_over: bool,
}

impl Readers {
    /// Has values read for requests of a worker.
    pub(super) fn want(&self, values: Vec<WantedValue>, worker: usize) {
        let mut state = self.lock();
        for value in values {
            match state.waiting.get_mut(&value.name) {
                Some(workers) => {
                    self.coalesced.fetch_add(1, Ordering::Relaxed);
                    if !workers.contains(&worker) {
                        workers.push(worker);
                    }
                }
                None => {
                    state.waiting.insert(value.name, vec![worker]);
                    state.queue.push_back(value);
                    self.changed.notify_one();
                }
            }
        }
    }

    /// Reads what is wanted, until it is over.
    pub(super) fn run(&self, values: &Arc<Values>, requests: &dyn Wakes) {
        while let Some(WantedValue { key, locator, name }) = self.next() {
            values.preload(&key, locator, name);
            let workers = self.lock().waiting.remove(&name);
            for worker in workers.unwrap_or_default() {
                requests.wake(worker);
            }
        }
    }

    fn next(&self) -> Option<WantedValue> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(wanted) = state.queue.pop_front() {
                return Some(wanted);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the threads.
    pub(super) fn stop(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Reads that are wanted or under way.
    pub(super) fn pending(&self) -> u64 {
        self.lock().waiting.len() as u64
    }

    /// How often a read served one more.
    pub(super) fn coalesced(&self) -> u64 {
        self.coalesced.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
