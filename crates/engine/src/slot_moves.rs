//! Moves of hash slots between nodes, as clients order and see them. The server moves; the commands make replies of it.

/// What a client orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveOrder {
    /// Slots of this node go to others: first and last of each range, and the other's id.
    Export(Vec<(Vec<(u16, u16)>, String)>),
    /// Slots of another node come here.
    Import(Vec<(u16, u16)>),
    /// All moves from here that are not over are given up.
    CancelExports,
    /// The move of this id is given up; all, where none is named.
    Cancel(Option<String>),
    /// It is waited until a slot does not leave any more, for some seconds at most.
    AwaitLeaving(u16),
}

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveAnswer {
    /// It is done, or begun.
    Done,
    /// The moves that are begun, by their ids.
    Begun(Vec<String>),
    /// So many moves were given up.
    Cancelled(usize),
}

/// How far a move is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MoveStage {
    /// Others are before it.
    #[default]
    Waiting,
    /// The other end is asked.
    Preparing,
    /// What was there at the cut is copied.
    Copying,
    /// What was written since is sent.
    CatchingUp,
    /// Writes wait.
    HandingOver,
    /// The other node has the slots; their keys are removed.
    Trimming,
    /// It is done.
    Done,
    /// It was given up.
    Failed,
    /// Somebody wanted it no more.
    Cancelled,
}

impl MoveStage {
    /// Whether it ended, one way or the other.
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
    /// Whether the slots come here.
    pub is_import: bool,
    /// The slots: first and last of each range.
    pub ranges: Vec<(u16, u16)>,
    /// The node that has them.
    pub source: String,
    /// The node that gets them.
    pub target: String,
    /// How far it is.
    pub stage: MoveStage,
    /// Why it failed, or had to be begun anew.
    pub error: String,
    /// How often it was begun anew.
    pub retries: u32,
    /// Times, in milliseconds since 1970 UTC; 0 where there is none yet.
    pub created_ms: u64,
    /// When it was begun.
    pub started_ms: u64,
    /// When anything of it changed last.
    pub updated_ms: u64,
    /// When the other end answered last.
    pub acked_ms: u64,
    /// When it was over.
    pub ended_ms: u64,
    /// How long writes waited, in microseconds.
    pub pause_us: u64,
    /// Bytes of the log that were not sent yet.
    pub left_bytes: u64,
}
