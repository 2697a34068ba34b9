//! What clients see of a cluster, and the changes they order. The server decides; the commands turn
//! its answers into replies.

use crate::error::CommandError;

/// The error of a server that is not in a cluster.
pub const DISABLED: CommandError =
    CommandError::fixed("ERR This instance has cluster support disabled");

/// A node as this node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSeen {
    /// Its permanent name: 40 digits.
    pub id: String,
    /// The name of its shard: 40 digits.
    pub shard_id: String,
    /// Its address; empty if unknown.
    pub ip: String,
    /// `cluster-announce-hostname`.
    pub hostname: String,
    /// `cluster-announce-human-nodename`.
    pub name: String,
    /// `availability-zone`.
    pub zone: String,
    /// The port for clients without encryption; 0 if there is none.
    pub port: u16,
    /// The port for clients with encryption; 0 if there is none.
    pub tls_port: u16,
    /// The port for nodes.
    pub bus_port: u16,
    /// Whether it is this node.
    pub is_me: bool,
    /// The primary of a replica.
    pub primary: Option<String>,
    /// The first and last hash slots of each range of its shard, if it is a primary.
    pub ranges: Vec<(u16, u16)>,
    /// The index of the last entry about its shard.
    pub epoch: u64,
    /// Whether it is no longer heard.
    pub is_failed: bool,
    /// Whether it is not promoted unless an operator orders it.
    pub declines: bool,
    /// Whether it is being asked to join.
    pub is_in_handshake: bool,
    /// Since when this node waits for its answer; 0 if this node waits for none.
    pub ping_unix_ms: u64,
    /// When this node last heard it; 0 if never.
    pub pong_unix_ms: u64,
    /// Whether it does not answer this node.
    pub is_lost: bool,
    /// Its offset in its shard's stream.
    pub replication_offset: u64,
    /// Whether it is loading its data.
    pub is_loading: bool,
}

/// A link between this node and another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkSeen {
    /// The node at its other end.
    pub node: String,
    /// Whether this node opened it.
    pub is_to: bool,
    /// When it was opened.
    pub created_unix_ms: u64,
    /// Bytes that wait to be sent.
    pub waiting_bytes: usize,
}

/// How clients learn to reach nodes (`cluster-preferred-endpoint-type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndpointKind {
    /// By address.
    #[default]
    Ip,
    /// By name.
    Hostname,
    /// By the address that the client used.
    Unknown,
}

/// The cluster as this node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSeen {
    /// All nodes.
    pub nodes: Vec<NodeSeen>,
    /// The index of this node in `nodes`.
    pub own: usize,
    /// Whether keys are served.
    pub is_ok: bool,
    /// The index of the last entry.
    pub epoch: u64,
    /// How clients learn to reach nodes.
    pub endpoint: EndpointKind,
    /// The control leader; empty if there is none.
    pub leader: String,
    /// The term of the control log.
    pub control_term: u64,
    /// How many voters the cluster may lose.
    pub fault_tolerance: usize,
    /// Whether this node is alone and was a replica: its data is about to be deleted.
    pub is_emptied: bool,
    /// The links of this node, oldest first.
    pub links: Vec<LinkSeen>,
    /// Messages that this node sent over links and received since its start.
    pub messages: (u64, u64),
    /// Published messages that were not sent to another node because it did not take earlier ones.
    pub dropped_messages: u64,
}

impl ClusterSeen {
    /// Returns this node.
    #[must_use]
    pub fn me(&self) -> Option<&NodeSeen> {
        self.nodes.get(self.own)
    }

    /// Returns the node with this id.
    #[must_use]
    pub fn node(&self, id: &[u8]) -> Option<&NodeSeen> {
        self.nodes.iter().find(|node| node.id.as_bytes() == id)
    }

    /// Returns the number of hash slots that have an owner.
    #[must_use]
    pub fn slots_assigned(&self) -> usize {
        let ranges = self.nodes.iter().flat_map(|node| &node.ranges);
        ranges
            .map(|(first, last)| usize::from(last - first) + 1)
            .sum()
    }
}

/// A change of one slot (CLUSTER SETSLOT).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotOrder {
    /// The slot is to come from this node.
    Importing(String),
    /// The slot is to go to this node.
    Migrating(String),
    /// The slot stays where it is.
    Stable,
    /// The slot belongs to this node.
    Node(String),
}

/// What CLUSTER FAILOVER does not wait for.
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
    /// Assigns slots to this node: first and last of each range.
    AddSlots(Vec<(u16, u16)>),
    /// Removes the owner of slots.
    DelSlots(Vec<(u16, u16)>),
    /// Removes the owner of all slots of this node.
    FlushSlots,
    /// Changes one slot.
    SetSlot(u16, SlotOrder),
    /// Makes another node a member: address, port, and the port for nodes if given.
    Meet(String, u16, Option<u16>),
    /// Removes a node.
    Forget(String),
    /// Makes this node a replica of another.
    Replicate(String),
    /// Makes this replica the primary.
    Failover(FailoverKind),
    /// Makes this node leave and forget everything.
    Reset {
        /// Whether the node also gets a new name.
        is_hard: bool,
    },
    /// Makes the epoch of this node the highest.
    BumpEpoch,
    /// Sets the epoch of a node that knows no other node.
    SetConfigEpoch(u64),
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// It is done.
    Done,
    /// It is done, and the reply says this.
    Said(String),
}
