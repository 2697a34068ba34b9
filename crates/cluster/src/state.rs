//! The control state, and the one function that changes it.
//!
//! Every node applies every entry in the same order. An entry whose expectation fails changes
//! nothing and reports so. An entry whose request was applied before returns the earlier result.

mod apply;
mod codec;
mod copies;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use crate::bytes::{Malformed, Reader, Writer};
use crate::control_log::RaftId;
use crate::entry::RequestId;

pub use slots::Slots;

/// Maximum length of names, hosts and zones.
pub const TEXT_BYTES_MAX: usize = 255;
/// Maximum number of remembered requests.
pub const REQUESTS_MAX: usize = 1_024;
/// The Raft id of the node that founds a group. No entry by which another node joins has such a low
/// index.
pub const FIRST_RAFT_ID: RaftId = 1;
/// The level of this server: the entries and the messages between nodes that it knows.
///
/// | Level | What it adds |
/// |---|---|
/// | 1 | nodes, shards, documents, secrets, incarnations |
/// | 2 | entries `slots`, `move`, `end of moves` and `drain`; heartbeats with the time, and replies that judge it |
/// | 3 | questions between members name who began their group; clusters that have just begun become one |
/// | 4 | where writes wait for a majority, one more copy of an even number is a member at once |
/// | 5 | a replica that its shard spares goes by itself to one that lacks it |
/// | 6 | copies of the log alone: where theirs begins, and that they hand on what they have more |
/// | 7 | replies to heartbeats say how long a lease counts |
/// | 8 | the node timeout may be set for all nodes while they run |
pub const FEATURE_LEVEL: u16 = 8;
/// From this level on, heartbeats carry the time at which they were sent.
pub const LEVEL_OF_TIMES: u16 = 2;
/// From this level on, requests between members name the founder of their group.
pub const LEVEL_OF_FOUNDERS: u16 = 3;
/// From this level on, adding a copy to an even number in a shard whose writes wait for a majority
/// takes one step, not two.
pub const LEVEL_OF_GROWING: u16 = 4;
/// From this level on, a replica that was taken from its shard looks by itself for a shard without
/// one.
pub const LEVEL_OF_SPARES: u16 = 5;
/// From this level on, a shard may have log-only copies.
pub const LEVEL_OF_LOG_COPIES: u16 = 6;
/// From this level on, the leader states how long its leases count.
pub const LEVEL_OF_LEASE_TIMES: u16 = 7;
/// From this level on, the directives of a group may set the node timeout.
pub const LEVEL_OF_NODE_TIMEOUTS: u16 = 8;

/// The permanent name of a node: 40 digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub [u8; 20]);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base::hex::text(&self.0))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Identifies a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u32);

/// The roles of a node, as bits.
pub mod roles {
    /// It keeps data.
    pub const DATA: u8 = 1;
    /// It votes, and keeps no data.
    pub const WITNESS: u8 = 2;
    /// If it is the primary, writes wait for a majority.
    pub const QUORUM: u8 = 4;
    /// It is in cluster mode: it begins a shard of its own, and shards own hash slots.
    pub const CLUSTER: u8 = 8;
    /// As a replica it stays in its shard until an operator orders otherwise.
    pub const STAYS: u8 = 16;
    /// As a replica it is promoted only by order.
    pub const DECLINES: u8 = 32;
    /// It keeps a log-only copy if that makes the number of copies odd.
    pub const LOG: u8 = 64;
}

/// A node's record about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRecord {
    /// Its name for people.
    pub name: String,
    /// Its address for clients and nodes.
    pub host: String,
    /// The port for clients.
    pub client_port: u16,
    /// The port for nodes.
    pub link_port: u16,
    /// `availability-zone`.
    pub zone: String,
    /// The name that clients may get instead of `host`; empty if there is none.
    pub hostname: String,
    /// The port for encrypted client connections; 0 if there is none.
    pub tls_port: u16,
    /// See [`roles`].
    pub roles: u8,
    /// How often it was started: a lower count comes from an older copy of its files.
    pub start_count: u64,
    /// The highest level that it knows.
    pub feature_level: u16,
}

impl NodeRecord {
    /// Whether the node, as a replica, is promoted only by order.
    #[must_use]
    pub fn declines(&self) -> bool {
        self.roles & roles::DECLINES != 0
    }
}

/// A node of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its Raft id.
    pub raft_id: RaftId,
    /// Whether it is not heard any more.
    pub is_failed: bool,
    /// Whether it may lead and be promoted.
    pub drain: Drain,
    /// Its record about itself.
    pub record: NodeRecord,
}

/// What a node does less of by an operator's order, before it is stopped for long or removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Drain {
    /// Not drained.
    #[default]
    No = 0,
    /// It leads nothing and is not promoted.
    Drained = 1,
    /// The same, and it leaves the group as soon as no shard needs it.
    Leaving = 2,
}

impl Drain {
    pub(crate) fn of(byte: u8) -> Result<Self, Malformed> {
        match byte {
            0 => Ok(Self::No),
            1 => Ok(Self::Drained),
            2 => Ok(Self::Leaving),
            _ => Err(Malformed::Value),
        }
    }
}

/// What a member of a shard keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum CopyKind {
    /// Log and data.
    Data = 1,
    /// The log alone: it counts for a quorum and is never promoted.
    LogOnly = 2,
}

impl CopyKind {
    pub(crate) fn of(byte: u8) -> Result<Self, Malformed> {
        match byte {
            1 => Ok(Self::Data),
            2 => Ok(Self::LogOnly),
            _ => Err(Malformed::Value),
        }
    }
}

/// Where a log ends: the term of its last frame, and its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogEnd {
    /// The term of the last frame.
    pub term: u64,
    /// The sequence after it.
    pub sequence: u64,
}

impl LogEnd {
    pub(crate) fn encode(self, writer: &mut Writer) {
        writer.u64(self.term).u64(self.sequence);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            term: reader.u64()?,
            sequence: reader.u64()?,
        })
    }
}

/// A primary and its replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shard {
    /// The present term.
    pub term: u64,
    /// The index of the last entry about it.
    pub epoch: u64,
    /// The primary of the present term.
    pub primary: NodeId,
    /// Where its log ended when it was promoted.
    pub promised: LogEnd,
    /// The members and what they keep.
    pub members: BTreeMap<NodeId, CopyKind>,
    /// The members before the change in progress: both sets have to agree.
    pub old_members: Option<BTreeMap<NodeId, CopyKind>>,
    /// Whether writes wait for a majority.
    pub is_quorum: bool,
}

/// Returns how many members of a set must have a frame before it is committed.
#[must_use]
pub fn quorum_of(members: usize) -> usize {
    members / 2 + 1
}

impl Shard {
    /// Whether enough members have answered a seal: in every set so many that each quorum contains
    /// one of them.
    #[must_use]
    pub fn suffices(&self, answered: &BTreeSet<NodeId>) -> bool {
        self.sets().all(|set| {
            let count = set.keys().filter(|node| answered.contains(*node)).count();
            count > set.len() - quorum_of(set.len())
        })
    }

    /// Returns the end that a quorum of every set has.
    #[must_use]
    pub fn committed(&self, ends: &BTreeMap<NodeId, u64>) -> u64 {
        let of_set = |set: &BTreeMap<NodeId, CopyKind>| {
            let of = |node| ends.get(node).copied().unwrap_or(0);
            let mut ends: Vec<u64> = set.keys().map(of).collect();
            ends.sort_unstable_by(|a, b| b.cmp(a));
            ends.get(quorum_of(set.len()) - 1).copied().unwrap_or(0)
        };
        self.sets().map(of_set).min().unwrap_or(0)
    }

    /// Returns all members that have to be sealed.
    #[must_use]
    pub fn everybody(&self) -> BTreeSet<NodeId> {
        self.sets().flat_map(|set| set.keys().copied()).collect()
    }

    fn sets(&self) -> impl Iterator<Item = &BTreeMap<NodeId, CopyKind>> {
        std::iter::once(&self.members).chain(&self.old_members)
    }
}

/// The kind of a document, which is stored as a whole by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DocumentKind {
    /// The rules of an ACL user.
    User = 1,
    /// A library of functions.
    Library = 2,
    /// A shared directive.
    Config = 3,
}

impl DocumentKind {
    pub(crate) fn of(byte: u8) -> Result<Self, Malformed> {
        match byte {
            1 => Ok(Self::User),
            2 => Ok(Self::Library),
            3 => Ok(Self::Config),
            _ => Err(Malformed::Value),
        }
    }
}

/// Bytes with a version that rises with each change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versioned {
    /// The index of the entry that wrote them.
    pub version: u64,
    /// What it wrote.
    pub body: Vec<u8>,
}

/// The result of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Applied {
    /// It was applied.
    Done = 1,
    /// It expected another state: nothing changed.
    Stale = 2,
    /// It is invalid: no such node, a primary that leaves, an older copy of a node.
    Refused = 3,
}

impl Applied {
    /// Converts from its byte.
    ///
    /// # Errors
    /// If the byte is invalid.
    pub fn of(byte: u8) -> Result<Self, Malformed> {
        match byte {
            1 => Ok(Self::Done),
            2 => Ok(Self::Stale),
            3 => Ok(Self::Refused),
            _ => Err(Malformed::Value),
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlState {
    /// The index of the last entry.
    pub index: u64,
    /// Entries up to this level may be written.
    pub feature_level: u16,
    /// Rises with each forced recovery.
    pub incarnation: u64,
    /// The nodes.
    pub nodes: BTreeMap<NodeId, Node>,
    /// The shards.
    pub shards: BTreeMap<ShardId, Shard>,
    /// Users, libraries and shared directives.
    pub documents: BTreeMap<(DocumentKind, Vec<u8>), Versioned>,
    /// The secret of links.
    pub secret: Versioned,
    /// Owners of hash slots.
    pub slots: Slots,
    requests: VecDeque<(RequestId, Applied)>,
}

impl ControlState {
    /// Returns the node with a Raft id.
    #[must_use]
    pub fn node_of(&self, raft_id: RaftId) -> Option<(&NodeId, &Node)> {
        self.nodes.iter().find(|(_, node)| node.raft_id == raft_id)
    }

    /// Returns the shard of which a node has a copy; there is at most one.
    #[must_use]
    pub fn shard_of(&self, node: NodeId) -> Option<ShardId> {
        let mut shards = self.shards.iter();
        let found = shards.find(|(_, shard)| shard.members.contains_key(&node));
        found.map(|(id, _)| *id)
    }

    /// Whether a shard may still need a node's data: it is a member, or was one before a change in
    /// progress.
    #[must_use]
    pub fn is_needed(&self, node: NodeId) -> bool {
        let mut shards = self.shards.values();
        shards.any(|shard| shard.everybody().contains(&node))
    }

    /// Whether the nodes of this group are in cluster mode, or `None` if no node keeps data.
    #[must_use]
    pub fn is_cluster(&self) -> Option<bool> {
        let mut roles = self.nodes.values().map(|node| node.record.roles);
        let with_data = roles.find(|bits| bits & roles::DATA != 0);
        with_data.map(|bits| bits & roles::CLUSTER != 0)
    }
}
