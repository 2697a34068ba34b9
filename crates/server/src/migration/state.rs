//! State of a node that gives and takes slots. The operations are in the parent module, which works
//! on whole nodes; the node itself knows only this about moves.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::directory::Directory;
use super::job::Job;

/// See the module documentation.
#[derive(Default)]
pub struct Migrations {
    pub(super) jobs: Mutex<Jobs>,
    pub(super) changed: Condvar,
    pub(super) is_staging: AtomicBool,
    pub(super) is_cleaning: AtomicBool,
    /// Time of the next check for keys to remove, on the monotonic clock.
    pub(super) clean_due_ms: AtomicU64,
    /// The keys of each slot, while slots with few keys move one after the other. Locked by the
    /// thread of such a move.
    pub(super) directory: Mutex<Option<Directory>>,
}

#[derive(Default)]
pub(super) struct Jobs {
    pub(super) exports: VecDeque<Arc<Job>>,
    pub(super) imports: VecDeque<Arc<Job>>,
    /// Whether a thread processes the exports.
    pub(super) is_worked_on: bool,
}

/// The right to take slots in, or to remove the keys of failed or finished moves.
pub(super) struct Claim<'m>(pub(super) &'m AtomicBool);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl fmt::Debug for Migrations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Migrations").finish_non_exhaustive()
    }
}
