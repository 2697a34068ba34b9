//! The server around what is kept: the port through which this room tells it what has changed.

use durability::checkpoint::History;

use crate::checkpointer::Outcome;
use crate::log_owner::table::{Event, State};
use crate::rdb_beside::RdbBeside;

/// See the module.
pub trait Host: Send + Sync {
    /// Another log is in use, or none: every thread that changes the store is to look. Waits for nothing.
    fn log_changed(&self) {}

    /// The log in use is durable further than before, or a fault has begun or ended: whoever waits for that is to look.
    /// Called on any thread; waits for nothing.
    fn log_moved(&self) {}

    /// Something happened in the life of the log that was in this state. For who watches; waits for nothing, and asks
    /// the owner of the log nothing.
    fn log_stepped(&self, state: State, event: Event) {
        let _ = (state, event);
    }

    /// Whether the server is going down.
    fn is_stopping(&self) -> bool {
        false
    }

    /// Why no checkpoint may be made now, if so: what is in the store is not what the log says.
    fn refuses_checkpoints(&self) -> Option<String> {
        None
    }

    /// What the manifest of a checkpoint is to say about the history of its log, see
    /// [`Surroundings::history`](crate::checkpointer::Surroundings::history).
    ///
    /// # Errors
    /// Why nothing is to come of this cut.
    fn history(&self, log_sequence: Option<u64>) -> Result<History, String> {
        let _ = log_sequence;
        Ok(History::default())
    }

    /// How much of the log is kept for those alone who still read it, where the checkpoint in force has so many bytes.
    fn log_keep_bytes(&self, base_bytes: u64) -> u64 {
        let _ = base_bytes;
        u64::MAX
    }

    /// All that is kept is loaded: clients are served next.
    fn loaded(&self) {}

    /// A checkpoint is in force, and what the log has from before it may go: whoever reads it reads it now.
    fn log_is_cut(&self) {}

    /// A checkpoint was made, or was not. Called before anybody else hears of it.
    fn checkpoint_ended(&self, outcome: &Outcome) {
        let _ = outcome;
    }

    /// What a save leaves beside its checkpoint, if anything.
    fn beside(&self) -> Option<RdbBeside> {
        None
    }
}

/// Nobody is told.
impl Host for () {}
