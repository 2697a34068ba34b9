//! Requests that wait for other nodes, each on a short-lived thread, so that long commands of other
//! clients continue.
//!
//! ```text
//!   worker ── Job ──► the command, offloaded ──► its order, and whom to answer ──► a thread of its own ── Answer ──► worker
//! ```
//!
//! Such a thread does not enter the store, so it appends nothing to the log, and a thread that
//! starts a log does not wait for it. The server ends once all of them have ended.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Maximum number of requests that wait at once. Further ones wait on the thread for long commands.
const THREADS_MAX: usize = 64;

/// The threads on which requests wait.
#[derive(Default)]
pub(crate) struct WaitingThreads {
    threads: Mutex<Vec<JoinHandle<()>>>,
    order: Mutex<()>,
    documents: Mutex<()>,
}

impl WaitingThreads {
    /// Runs `wait` on a thread of its own. Returns whether there is one.
    #[allow(
        clippy::disallowed_methods,
        reason = "it waits for other nodes, and works on nothing"
    )]
    pub(crate) fn run(&self, name: &str, wait: impl FnOnce() + Send + 'static) -> bool {
        let mut threads = self.lock();
        threads.retain(|thread| !thread.is_finished());
        if threads.len() >= THREADS_MAX {
            return false;
        }
        let builder = std::thread::Builder::new().name(name.into());
        let Ok(thread) = builder.spawn(wait) else {
            return false;
        };
        threads.push(thread);
        true
    }

    /// Locks the execution of cluster orders: only one runs at a time.
    pub(crate) fn order(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks changes of the control group's documents (directives, users, libraries): only one runs
    /// at a time.
    pub(crate) fn documents(&self) -> MutexGuard<'_, ()> {
        self.documents
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all threads have ended.
    pub(crate) fn join(&self) {
        loop {
            let Some(thread) = self.lock().pop() else {
                return;
            };
            let _panicked = thread.join();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
