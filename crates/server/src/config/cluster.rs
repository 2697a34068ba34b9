//! Settings of cluster mode.

use engine::cluster::EndpointKind;

/// Settings of cluster mode, and the addresses of this node that clients get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Whether cluster mode is on.
    pub is_on: bool,
    /// Port for other nodes; 0 means the client port plus 10,000.
    pub port: u16,
    /// Address that other nodes are given; if empty, they use the address that they see.
    pub announce_ip: String,
    /// Host name that other nodes are given.
    pub announce_hostname: String,
    /// Name of this node for people.
    pub announce_name: String,
    /// Client port that other nodes are given; 0 means the real one.
    pub announce_port: u16,
    /// TLS port that other nodes are given; 0 means the real one.
    pub announce_tls_port: u16,
    /// Node port that other nodes are given; 0 means the real one.
    pub announce_bus_port: u16,
    /// Kind of endpoint that redirections name.
    pub endpoint: EndpointKind,
    /// Whether keys are served only while all hash slots are served.
    pub requires_full_coverage: bool,
    /// Whether keys can be read while the cluster is down.
    pub reads_when_down: bool,
    /// Whether shard channels work while the cluster is down.
    pub channels_when_down: bool,
    /// Whether a request may name keys of several hash slots of this node.
    pub crosses_slots: bool,
    /// Whether a write to keys of several hash slots is forwarded in parts.
    pub splits_writes: bool,
    /// Port for clients whose requests are forwarded; 0 means none.
    pub forward_port: u16,
    /// Maximum time to wait for another node's answer, in milliseconds.
    pub forward_timeout_ms: u64,
    /// Maximum time that writes wait while their hash slot is handed over, in milliseconds.
    pub pause_ms_max: u64,
    /// Number of replicas that a shard must keep when it gives one to a shard without replicas.
    pub migration_barrier: usize,
    /// Whether this node may be moved to another shard as its replica.
    pub moves_as_replica: bool,
    /// Whether the group never promotes this node by itself.
    pub declines: bool,
    /// Whether the resources that requests use are counted per hash slot.
    pub counts_usage: bool,
    /// Number of databases.
    pub databases_count: u32,
}
