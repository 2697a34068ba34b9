//! What clients are told of a cluster, and what they order. The server decides; the commands make replies of it.

use crate::error::CommandError;

/// What a server answers that is in no cluster.
pub const DISABLED: CommandError =
    CommandError::fixed("ERR This instance has cluster support disabled");

/// A node as this one knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSeen {
    /// Its name for good: 40 digits.
    pub id: String,
    /// Its shard's: 40 digits.
    pub shard_id: String,
    /// Its address; empty where it is not known.
    pub ip: String,
    /// `cluster-announce-hostname`.
    pub hostname: String,
    /// `cluster-announce-human-nodename`.
    pub name: String,
    /// `availability-zone`.
    pub zone: String,
    /// The port for clients without encryption; 0 where there is none.
    pub port: u16,
    /// The one with; 0 where there is none.
    pub tls_port: u16,
    /// The port for nodes.
    pub bus_port: u16,
    /// Whether it is the node that is asked.
    pub is_me: bool,
    /// Of a replica, its primary.
    pub primary: Option<String>,
    /// The hash slots of its shard, if it is a primary: first and last.
    pub ranges: Vec<(u16, u16)>,
    /// The index of the last entry about its shard.
    pub epoch: u64,
    /// It was not heard any more.
    pub is_failed: bool,
    /// It is not promoted, unless it is ordered to be.
    pub declines: bool,
    /// It is being asked whether it joins.
    pub is_in_handshake: bool,
    /// Since when this node waits for an answer of it; 0 where it waits for none.
    pub ping_unix_ms: u64,
    /// When this node last heard it; 0 where it has not.
    pub pong_unix_ms: u64,
    /// It does not answer this node.
    pub is_lost: bool,
    /// What it has of its shard's stream.
    pub replication_offset: u64,
    /// It loads its data.
    pub is_loading: bool,
}

/// A link between this node and another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkSeen {
    /// The node at its other end.
    pub node: String,
    /// This node made it.
    pub is_to: bool,
    /// When.
    pub created_unix_ms: u64,
    /// How much waits to be sent.
    pub waiting_bytes: usize,
}

/// How clients are told to find nodes (`cluster-preferred-endpoint-type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndpointKind {
    /// By address.
    #[default]
    Ip,
    /// By name.
    Hostname,
    /// By the one that they used.
    Unknown,
}

/// The cluster as this node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSeen {
    /// All nodes.
    pub nodes: Vec<NodeSeen>,
    /// Which of them is this one.
    pub own: usize,
    /// Whether keys are served.
    pub is_ok: bool,
    /// The index of the last entry.
    pub epoch: u64,
    /// How clients are told to find nodes.
    pub endpoint: EndpointKind,
    /// The control leader; empty where there is none.
    pub leader: String,
    /// The term of the control log.
    pub control_term: u64,
    /// How many voters may be lost.
    pub fault_tolerance: usize,
    /// This node is by itself and was a replica: what it has is about to go.
    pub is_emptied: bool,
    /// The links of this node, oldest first.
    pub links: Vec<LinkSeen>,
    /// Messages that it sent over links and received since it was started.
    pub messages: (u64, u64),
    /// Published messages that were not sent to another node, which did not take those before.
    pub dropped_messages: u64,
}

impl ClusterSeen {
    /// The node that is asked.
    #[must_use]
    pub fn me(&self) -> Option<&NodeSeen> {
        self.nodes.get(self.own)
    }

    /// The node with this id.
    #[must_use]
    pub fn node(&self, id: &[u8]) -> Option<&NodeSeen> {
        self.nodes.iter().find(|node| node.id.as_bytes() == id)
    }

    /// How many hash slots have an owner.
    #[must_use]
    pub fn slots_assigned(&self) -> usize {
        let ranges = self.nodes.iter().flat_map(|node| &node.ranges);
        ranges
            .map(|(first, last)| usize::from(last - first) + 1)
            .sum()
    }
}

/// What is done with one slot (CLUSTER SETSLOT).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotOrder {
    /// It is to come from this node.
    Importing(String),
    /// It is to go to this node.
    Migrating(String),
    /// It stays where it is.
    Stable,
    /// It belongs to this node.
    Node(String),
}

/// What CLUSTER FAILOVER does without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailoverKind {
    /// Nothing: the primary hands over.
    Agreed,
    /// The primary.
    Forced,
    /// A majority.
    Takeover,
}

/// A change that a client orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterOrder {
    /// Slots become this node's: first and last of each range.
    AddSlots(Vec<(u16, u16)>),
    /// Slots become nobody's.
    DelSlots(Vec<(u16, u16)>),
    /// This node's slots become nobody's.
    FlushSlots,
    /// One slot.
    SetSlot(u16, SlotOrder),
    /// Another node becomes a member: host, port, port for nodes where it is told.
    Meet(String, u16, Option<u16>),
    /// A node leaves.
    Forget(String),
    /// This node becomes a replica of that one.
    Replicate(String),
    /// This replica becomes the primary.
    Failover(FailoverKind),
    /// This node leaves and forgets everything; with a new name, if it is hard.
    Reset {
        /// Whether.
        is_hard: bool,
    },
    /// The epoch of this node is to be the highest.
    BumpEpoch,
    /// The epoch of a node that knows no other.
    SetConfigEpoch(u64),
}

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// It is done.
    Done,
    /// It is done, and this is to be said of it.
    Said(String),
}
