//! What is known of checkpoints besides the checkpointer's own figures.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::SaveKind;

/// What is known of checkpoints besides the checkpointer's own figures.
#[derive(Default)]
pub struct Saving {
    pub(super) known: Mutex<Known>,
    /// A shutdown saves, and may still be aborted.
    pub(super) is_shutting_down: AtomicBool,
}

#[derive(Default)]
pub(super) struct Known {
    pub(super) snapshots: Record,
    pub(super) rewrites: Record,
    /// What a transaction asked for, to be begun after it.
    pub(super) deferred: Option<SaveKind>,
    /// When a save point was reached last.
    pub(super) tried_unix_ms: u64,
    /// The store's count of changes at the last FLUSHALL, until the save after it has ended.
    pub(super) changes_at_flush: Option<u64>,
}

/// What is known of the checkpoints that were made for one purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// How many were made since the last CONFIG RESETSTAT.
    pub count: u64,
    /// How many failed since the last that did not.
    pub failures_in_a_row: u64,
    /// How long the last one took.
    pub last_duration_ms: Option<u64>,
}

impl Saving {
    /// Checkpoints that were made to have everything saved, and those to have the log become short.
    #[must_use]
    pub fn records(&self) -> [Record; 2] {
        let known = self.known();
        [known.snapshots, known.rewrites]
    }

    /// Forgets what was counted (CONFIG RESETSTAT).
    pub(crate) fn reset_counters(&self) {
        let mut known = self.known();
        known.snapshots.count = 0;
        known.rewrites.count = 0;
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
