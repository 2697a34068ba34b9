//! The server around the data: the port through which this room reports changes to it.

use durability::checkpoint::History;

use crate::checkpointer::Outcome;
use crate::log_owner::table::{Event, State};
use crate::rdb_beside::RdbBeside;

/// See the module.
pub trait Host: Send + Sync {
    /// Reports that another log is in use, or none: every thread that changes the store must check.
    /// Does not wait.
    fn log_changed(&self) {}

    /// Reports that the log in use is durable further than before, or that a fault has begun or
    /// ended: threads that wait for that must check. Called on any thread; does not wait.
    fn log_moved(&self) {}

    /// Reports an event in the life of the log, which was in this state. For observers; it must not
    /// wait, and must not call the owner of the log.
    fn log_stepped(&self, state: State, event: Event) {
        let _ = (state, event);
    }

    /// Whether the server is going down.
    fn is_stopping(&self) -> bool {
        false
    }

    /// Returns why no checkpoint may be made now, if so: the content of the store differs from the
    /// log.
    fn refuses_checkpoints(&self) -> Option<String> {
        None
    }

    /// Returns the manifest's statement about the history of its log, see
    /// [`Surroundings::history`](crate::checkpointer::Surroundings::history).
    ///
    /// # Errors
    /// Why this cut must not become a checkpoint.
    fn history(&self, log_sequence: Option<u64>) -> Result<History, String> {
        let _ = log_sequence;
        Ok(History::default())
    }

    /// Returns how many bytes of the log are kept only for its readers, if the checkpoint in force
    /// has `base_bytes`.
    fn log_keep_bytes(&self, base_bytes: u64) -> u64 {
        let _ = base_bytes;
        u64::MAX
    }

    /// Reports that all data is loaded: clients are served next.
    fn loaded(&self) {}

    /// Reports that a checkpoint is in force, and the log before it may be removed: readers that
    /// need it must read it now.
    fn log_is_cut(&self) {}

    /// Reports that a checkpoint was made or failed. Called before the outcome is visible to
    /// others.
    fn checkpoint_ended(&self, outcome: &Outcome) {
        let _ = outcome;
    }

    /// Returns what a save leaves beside its checkpoint, if anything.
    fn beside(&self) -> Option<RdbBeside> {
        None
    }
}

/// Ignores all reports.
impl Host for () {}
