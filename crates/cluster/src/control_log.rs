//! The control log as the rest of the server sees it: entries in one order, agreed on by a majority
//! of voters.
//!
//! The room `consensus` implements it with Raft, and the simulation has its own implementation.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::entry::Proposal;
use crate::state::{Applied, ControlState};

/// The identity of a node in Raft: the index of the entry by which it joined. Never reused.
pub type RaftId = u64;

/// Why the log cannot accept a proposal or a read at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// Another voter is the leader, as far as this node knows.
    NotLeader(Option<RaftId>),
    /// No majority answers. The proposal may still be applied.
    NoMajority,
    /// A node of the group does not know entries of this level yet.
    Level(u16),
    /// This node cannot write the files of its log.
    CannotWrite,
    /// The log has ended: the server stops, or it met an unknown entry.
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

/// The nodes that take part in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The nodes whose majority decides.
    pub voters: BTreeSet<RaftId>,
    /// The nodes that only receive the log.
    pub learners: BTreeSet<RaftId>,
    /// Whether a change of voters is in progress.
    pub is_changing: bool,
}

/// See the module.
pub trait ControlLog {
    /// Proposes an entry, and waits until it is applied here.
    ///
    /// # Errors
    /// If it was not applied, or the result is unknown. The caller may propose it again with the
    /// same request id.
    fn propose(&self, proposal: &Proposal) -> Result<Applied, Unavailable>;

    /// Returns a state that includes every entry committed before this call.
    ///
    /// # Errors
    /// If no majority confirms it.
    fn read_barrier(&self) -> Result<Arc<ControlState>, Unavailable>;

    /// Returns the newest state known here, which may be old.
    fn watch(&self) -> Arc<ControlState>;

    /// Returns the membership as known here.
    fn membership(&self) -> Membership;

    /// Changes the voters, one change at a time. All named nodes must have joined.
    ///
    /// # Errors
    /// If the change failed, or another change is in progress.
    fn change_voters(&self, voters: &BTreeSet<RaftId>) -> Result<(), Unavailable>;

    /// Whether this node leads, and a quorum confirmed that within one election timeout.
    fn has_quorum_lease(&self) -> bool;
}
