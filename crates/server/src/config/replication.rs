//! What the directives say about replication.

use replication::transcode::Peer;

/// Whom to follow, and how replicas are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replication {
    /// The primary to follow: host and port.
    pub primary: Option<(String, u16)>,
    /// The user to log in as at the primary; otherwise its default user.
    pub user: Option<Vec<u8>>,
    /// The password for that.
    pub password: Option<Vec<u8>>,
    /// Whether a replica that has lost its primary shows what it has.
    pub serves_stale: bool,
    /// Which replica Sentinel prefers; 0 means that it is none to be promoted.
    pub priority: u32,
    /// Whether Sentinel is to know of it.
    pub is_announced: bool,
    /// The address that the primary is told; otherwise the one that it sees.
    pub announce_host: Option<String>,
    /// The port that the primary is told; 0 means the one that clients are served at.
    pub announce_port: u16,
    /// Bytes of the log in memory of a server that keeps none on disk.
    pub backlog_bytes: u64,
    /// Seconds for which that is kept after the last replica; 0 means for ever.
    pub backlog_ttl_s: u64,
    /// The port of the own link; 0 means the one of clients and 10,000 more.
    pub link_port: u16,
    /// What both ends of an own link have to know; otherwise the password of clients.
    pub link_secret: Option<Vec<u8>>,
    /// Which own links are encrypted.
    pub link_encryption: LinkEncryption,
    /// Whether both ends of a link show certificates (`tls-replication`; `tls-cluster` in a cluster).
    pub links_by_certificate: bool,
    /// Bytes of the log that are kept for replicas alone; none means as many as the data has.
    pub log_keep_bytes: Option<u64>,
    /// Seconds between two comparisons with replicas; 0 means that only commands ask for them.
    pub verify_interval_s: u32,
    /// Seconds between two pings of replicas.
    pub ping_period_s: u32,
    /// Seconds of silence after which a link is lost.
    pub timeout_s: u32,
    /// Writes are refused with fewer replicas; 0 means never.
    pub replicas_min: u32,
    /// Seconds for which a replica counts that has said nothing; 0 means that none is needed.
    pub replicas_lag_s_max: u32,
    /// Writes wait while the furthest replica lacks more bytes of the log than this.
    pub lag_bytes_max: Option<u64>,
    /// Whether an older or empty primary may take the place of what is here, as with Redis.
    pub accepts_older: bool,
    /// What a PSYNC replica is taken for that does not say, and the form that offsets are counted in.
    pub peer: Peer,
    /// Whether a replica that cannot be told something is served all the same.
    pub allows_loss: bool,
    /// Whether a full sync from Redis is loaded as it comes.
    pub loads_directly: LoadsDirectly,
    /// Seconds for which a stop waits for replicas.
    pub shutdown_timeout_s: u32,
    /// Whether a command of a Redis primary that fails here is passed over.
    pub skips_unknown: bool,
}

/// Which own links are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEncryption {
    /// Those to other machines.
    Remote,
    /// All.
    All,
    /// None, unless the other end wants it.
    Nothing,
}

/// When a full sync from a Redis primary is loaded as it comes, and not kept in a file before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadsDirectly {
    /// Never.
    #[default]
    No,
    /// Where there is nothing to be lost.
    OnEmpty,
    /// Always.
    Yes,
}
