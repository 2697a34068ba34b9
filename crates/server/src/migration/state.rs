//! What a node has that gives and takes slots. What is done with it stands in the module above, which works on whole nodes;
//! the node itself knows no more of moves than this.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::directory::Directory;
use super::job::Job;

/// See the module.
#[derive(Default)]
pub struct Migrations {
    pub(super) jobs: Mutex<Jobs>,
    pub(super) changed: Condvar,
    pub(super) is_staging: AtomicBool,
    pub(super) is_cleaning: AtomicBool,
    /// When it is looked next whether there is anything to remove, by the monotonic clock.
    pub(super) clean_due_ms: AtomicU64,
    /// The keys of slots, while slots with few keys move one after the other. Held by the thread of such a move.
    pub(super) directory: Mutex<Option<Directory>>,
}

#[derive(Default)]
pub(super) struct Jobs {
    pub(super) exports: VecDeque<Arc<Job>>,
    pub(super) imports: VecDeque<Arc<Job>>,
    /// A thread works on exports.
    pub(super) is_worked_on: bool,
}

/// The right to take slots in, or to remove what came in vain.
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
