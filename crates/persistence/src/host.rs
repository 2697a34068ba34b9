//! The server around what is kept: the port through which this room tells it what has changed.

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

    /// Why no checkpoint of this server's own may be made now, if so: what is in the log is of another one.
    fn refuses_checkpoints(&self) -> Option<String> {
        None
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
