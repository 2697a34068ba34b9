//! Moves of hash slots between nodes, as clients order and see them. The server moves the slots;
//! the commands turn its answers into replies.

/// A client's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveOrder {
    /// Moves slots of this node to other nodes: first and last of each range, and the other node's
    /// id.
    Export(Vec<(Vec<(u16, u16)>, String)>),
    /// Moves slots of another node to this one.
    Import(Vec<(u16, u16)>),
    /// Cancels all unfinished moves from this node.
    CancelExports,
    /// Cancels the move with this id, or all if none is given.
    Cancel(Option<String>),
    /// Waits until the slot's move has ended, for a few seconds at most.
    AwaitLeaving(u16),
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveAnswer {
    /// It is done, or begun.
    Done,
    /// The moves have begun, with these ids.
    Begun(Vec<String>),
    /// This many moves were cancelled.
    Cancelled(usize),
}

/// The stage of a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MoveStage {
    /// Other moves come first.
    #[default]
    Waiting,
    /// The other node is being asked.
    Preparing,
    /// The data at the cut is being copied.
    Copying,
    /// Later writes are being sent.
    CatchingUp,
    /// Writes wait.
    HandingOver,
    /// The other node has the slots; their keys are being removed here.
    Trimming,
    /// It is done.
    Done,
    /// It failed.
    Failed,
    /// A client cancelled it.
    Cancelled,
}

impl MoveStage {
    /// Whether the move has ended in any way.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    /// Whether the other node has the slots.
    #[must_use]
    pub fn is_moved(self) -> bool {
        matches!(self, Self::Trimming | Self::Done)
    }
}

/// One move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotMove {
    /// Its name: 40 digits.
    pub id: String,
    /// Whether the slots move to this node.
    pub is_import: bool,
    /// First and last slot of each range.
    pub ranges: Vec<(u16, u16)>,
    /// The node that gives the slots away.
    pub source: String,
    /// The node that gets them.
    pub target: String,
    /// Its stage.
    pub stage: MoveStage,
    /// Why it failed, or had to be restarted.
    pub error: String,
    /// Number of restarts.
    pub retries: u32,
    /// When it was created. Times are in milliseconds since 1970 UTC; 0 if not yet known.
    pub created_ms: u64,
    /// When it was begun.
    pub started_ms: u64,
    /// When it last changed.
    pub updated_ms: u64,
    /// When the other node last answered.
    pub acked_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// How long writes waited, in microseconds.
    pub pause_us: u64,
    /// Bytes of the log that are not sent yet.
    pub left_bytes: u64,
}
