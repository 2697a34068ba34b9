//! Records of checkpoints in addition to the checkpointer's own figures.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::SaveKind;

/// Records of checkpoints in addition to the checkpointer's own figures.
#[derive(Default)]
pub struct Saving {
    pub(super) known: Mutex<Known>,
    /// Whether a shutdown is saving, which may still be aborted.
    pub(super) is_shutting_down: AtomicBool,
}

#[derive(Default)]
pub(super) struct Known {
    pub(super) snapshots: Record,
    pub(super) rewrites: Record,
    /// Save that a transaction asked for, to begin after it.
    pub(super) deferred: Option<SaveKind>,
    /// Time at which a save point was last reached.
    pub(super) tried_unix_ms: u64,
    /// The store's count of changes at the last FLUSHALL, until the save after it has ended.
    pub(super) changes_at_flush: Option<u64>,
}

/// Record of the checkpoints for one purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Number of checkpoints since the last CONFIG RESETSTAT.
    pub count: u64,
    /// Number of failures since the last success.
    pub failures_in_a_row: u64,
    /// Duration of the last one.
    pub last_duration_ms: Option<u64>,
}

impl Saving {
    /// Returns the records of checkpoints that were made to save everything, and of those made to
    /// shorten the log.
    #[must_use]
    pub fn records(&self) -> [Record; 2] {
        let known = self.known();
        [known.snapshots, known.rewrites]
    }

    /// Resets the counters (CONFIG RESETSTAT).
    pub(crate) fn reset_counters(&self) {
        let mut known = self.known();
        known.snapshots.count = 0;
        known.rewrites.count = 0;
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
