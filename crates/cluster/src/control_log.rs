//! The control log, as the rest of the server sees it: entries in one order, agreed on by a majority of voters.
//!
//! The room `consensus` has one of Raft, and the simulation one of its own.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::entry::Proposal;
use crate::state::{Applied, ControlState};

/// A node in the eyes of Raft: the index of the entry by which it joined. Never used twice.
pub type RaftId = u64;

/// Why nothing can be proposed or read just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// Another voter is the leader, as far as is known.
    NotLeader(Option<RaftId>),
    /// No majority answers. What was proposed may still be applied.
    NoMajority,
    /// A node of the group does not know entries of this level yet.
    Level(u16),
    /// The files of this node's log cannot be written.
    CannotWrite,
    /// The log has ended: the server stops, or there was an entry that it does not know.
    Ended,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeader(Some(leader)) => write!(f, "the control leader is node {leader}"),
            Self::NotLeader(None) => f.write_str("there is no control leader"),
            Self::NoMajority => f.write_str("no majority of the control group answers"),
            Self::Level(level) => write!(
                f,
                "a node of the control group does not know entries of level {level} yet: all of them run this version first"
            ),
            Self::CannotWrite => f.write_str("the control log of this node cannot be written"),
            Self::Ended => f.write_str("the control log has ended"),
        }
    }
}

impl std::error::Error for Unavailable {}

/// Who takes part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Those whose majority decides.
    pub voters: BTreeSet<RaftId>,
    /// Those that are only told.
    pub learners: BTreeSet<RaftId>,
    /// A change of voters goes on.
    pub is_changing: bool,
}

/// See the module.
pub trait ControlLog {
    /// Proposes an entry, and waits until it was applied here.
    ///
    /// # Errors
    /// Where it was not, or nobody knows: it may be proposed again with the same request id.
    fn propose(&self, proposal: &Proposal) -> Result<Applied, Unavailable>;

    /// The state, as of an index that no entry committed before this call is above.
    ///
    /// # Errors
    /// Where no majority confirms it.
    fn read_barrier(&self) -> Result<Arc<ControlState>, Unavailable>;

    /// The newest state that is known here; it may be old.
    fn watch(&self) -> Arc<ControlState>;

    /// Who takes part, as far as is known here.
    fn membership(&self) -> Membership;

    /// Changes who votes, one change at a time. Everybody named must have joined.
    ///
    /// # Errors
    /// Where it was not done, or a change goes on.
    fn change_voters(&self, voters: &BTreeSet<RaftId>) -> Result<(), Unavailable>;

    /// Whether this node leads, and a quorum has confirmed so within one election.
    fn has_quorum_lease(&self) -> bool;
}
