//! The state of a stop that waits: who asked for it, until when it waits, and whether it was given up.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::CommandError;

/// What is done when a stop was carried out, or was not.
pub(crate) type WhenOver = Box<dyn FnOnce(Result<(), CommandError>) + Send>;

/// The stop that waits, if one does, and all who asked for it. Each change of it is one step under its lock.
#[derive(Default)]
pub(crate) struct StopWait {
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) current: Option<Stop>,
    /// How many stops began to wait.
    pub(super) begun: u64,
    /// How many were given up.
    pub(super) aborted: u64,
}

/// A stop under way.
pub(super) struct Stop {
    pub(super) number: u64,
    /// Until when it waits, in milliseconds since 1970; none when it waits no more, and saves.
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
    /// The stop of this number, unless it was given up.
    pub(super) fn of(&mut self, number: u64) -> Option<&mut Stop> {
        self.current.as_mut().filter(|stop| stop.number == number)
    }
}
