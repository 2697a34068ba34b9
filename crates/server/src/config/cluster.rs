//! What the directives say about cluster mode.

use engine::cluster::EndpointKind;

/// Cluster mode, and how clients are told to find this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Whether there is a cluster.
    pub is_on: bool,
    /// The port for nodes; 0 means the one of clients and 10,000 more.
    pub port: u16,
    /// The address that others are told; otherwise the one that they see.
    pub announce_ip: String,
    /// The name that they are told.
    pub announce_hostname: String,
    /// What people call this node.
    pub announce_name: String,
    /// The port for clients that others are told; 0 means the real one.
    pub announce_port: u16,
    /// The one with encryption; 0 means the real one.
    pub announce_tls_port: u16,
    /// The one for nodes; 0 means the real one.
    pub announce_bus_port: u16,
    /// How clients are told to find nodes.
    pub endpoint: EndpointKind,
    /// Keys are served only while all hash slots are.
    pub requires_full_coverage: bool,
    /// Keys can be read while the cluster is down.
    pub reads_when_down: bool,
    /// Shard channels work while the cluster is down.
    pub channels_when_down: bool,
    /// Requests may be about keys of several hash slots of this node.
    pub crosses_slots: bool,
    /// Writes about keys of several slots are forwarded in parts.
    pub splits_writes: bool,
    /// The port for clients whose requests are forwarded; 0 where there is none.
    pub forward_port: u16,
    /// What other nodes answer may take so long, in milliseconds.
    pub forward_timeout_ms: u64,
    /// Writes to slots that are handed over wait no longer, in milliseconds.
    pub pause_ms_max: u64,
    /// A shard gives a replica away to one that has none left where it keeps more than so many.
    pub migration_barrier: usize,
    /// This node may be given to another shard as its replica, where it is one of many.
    pub moves_as_replica: bool,
    /// Whether it is never promoted by the group alone.
    pub declines: bool,
    /// Whether what requests take is counted by hash slots.
    pub counts_usage: bool,
    /// So many databases there are.
    pub databases_count: u32,
}
