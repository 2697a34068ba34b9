//! The state of a shutdown that waits: who requested it, until when it waits, and whether it was
//! cancelled.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::CommandError;

/// Called when a stop was carried out, or was not.
pub(crate) type WhenOver = Box<dyn FnOnce(Result<(), CommandError>) + Send>;

/// The stop that waits, if there is one, and all its requesters. Each change is one step under the
/// lock.
#[derive(Default)]
pub(crate) struct StopWait {
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) current: Option<Stop>,
    /// Number of stops that began to wait.
    pub(super) begun: u64,
    /// Number of stops that were cancelled.
    pub(super) aborted: u64,
}

/// A stop in progress.
pub(super) struct Stop {
    pub(super) number: u64,
    /// Until when the stop waits, in milliseconds since 1970, or `None` if it no longer waits, and
    /// saves.
    pub(super) until_unix_ms: Option<u64>,
    pub(super) asked: Vec<WhenOver>,
}

impl fmt::Debug for StopWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopWait").finish_non_exhaustive()
    }
}

impl StopWait {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the stop of this number, or `None` if it was cancelled.
    pub(super) fn of(&mut self, number: u64) -> Option<&mut Stop> {
        self.current.as_mut().filter(|stop| stop.number == number)
    }
}
