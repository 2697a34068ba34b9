//! The control log of a group with Raft: openraft, with our own files.
//!
//! ```text
//!   Raft ──► DiskLog      journal: entries, votes, what is committed ──► durability::Disk, synced before every answer
//!        ──► Machine      ControlState::apply; snapshots
//!        ──► Network      requests as bytes ──► whoever carries them
//!   bytes of a peer ──► serve ──► Raft
//! ```
//!
//! No other room names openraft. It is generic over the runtime: tests run a whole group on its
//! simulated one, in one thread under one seed.
//!
//! Invariants
//!  1. A vote or an entry is on disk before any node learns of it.
//!  2. A record that a crash tore off the end of the journal was never acknowledged. Damage before
//!     the end is refused, with its position.
//!  3. Bytes of a peer never cause a panic.
//!  4. While the files cannot be written, no request is answered. Raft continues when they can be
//!     written again.

#![forbid(unsafe_code)]

mod codec;
mod disk_fault;
mod disk_log;
mod machine;
mod network;
pub mod planted;
#[cfg(feature = "tokio")]
mod raft_log;
mod recover;
#[cfg(test)]
mod simulation;
mod standing;

use std::fmt;

use cluster::Applied;
use openraft::impls::leader_id_adv::LeaderId;
use openraft::{EmptyNode, EntryPayload, RaftTypeConfig};

pub use disk_fault::DiskFault;
pub use disk_log::{DiskLog, forget};
pub use machine::{Machine, Published};
pub use network::{Carrier, Network, Peer, Unreached, leader_of, serve};
#[cfg(feature = "tokio")]
pub use raft_log::{Change, Options, RaftLog, Runtime, Told, answer_channel, within};
pub use recover::{Known, begin_anew, read_known};
pub use standing::Standing;

/// The bytes of a proposal, as Raft's entries hold them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data(pub Vec<u8>);

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// The result of an entry, or `None` for Raft's own entries.
pub type Outcome = Option<Applied>;

/// The leader of a term.
pub type Leader = LeaderId<u64, u64>;
/// A vote.
pub type Vote = openraft::Vote<Leader>;
/// The position of an entry.
pub type LogId = openraft::LogId<Leader>;
/// The content of an entry.
pub type Payload = EntryPayload<Data, u64, EmptyNode>;
/// An entry.
pub type Entry = openraft::Entry<Leader, Payload>;

/// Raft's types on any runtime.
pub trait Types:
    RaftTypeConfig<
        D = Data,
        R = Outcome,
        NodeId = u64,
        Node = EmptyNode,
        Term = u64,
        LeaderId = Leader,
        Vote = Vote,
        Payload = Payload,
        Entry = Entry,
    >
{
}

impl<C> Types for C where
    C: RaftTypeConfig<
            D = Data,
            R = Outcome,
            NodeId = u64,
            Node = EmptyNode,
            Term = u64,
            LeaderId = Leader,
            Vote = Vote,
            Payload = Payload,
            Entry = Entry,
        >
{
}

/// Returns Raft's configuration for the times of a group.
///
/// # Errors
/// If openraft refuses the times.
pub fn raft_config(times: &cluster::Times) -> Result<openraft::Config, String> {
    openraft::Config {
        cluster_name: "iolite".to_owned(),
        heartbeat_interval: times.heartbeat_ms,
        election_timeout_min: times.election_ms_min,
        election_timeout_max: times.election_ms_max,
        enable_pre_vote: Some(true),
        // A node whose files were restored from an earlier backup gets again what it lacks. It
        // broke its promises, but no other node may stop for that.
        allow_log_reversion: Some(true),
        ..openraft::Config::default()
    }
    .validate()
    .map_err(|error| error.to_string())
}
