//! Settings of replication.

use replication::transcode::Peer;

/// The primary to follow, and how replicas are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replication {
    /// The primary to follow: host and port.
    pub primary: Option<(String, u16)>,
    /// User for the login at the primary; the primary's default user if absent.
    pub user: Option<Vec<u8>>,
    /// Password of that user.
    pub password: Option<Vec<u8>>,
    /// Whether a replica serves its data after it lost its primary.
    pub serves_stale: bool,
    /// Sentinel's preference for this replica; 0 means that Sentinel never promotes it.
    pub priority: u32,
    /// Whether Sentinel sees this replica.
    pub is_announced: bool,
    /// Address that is announced to the primary; if absent, the primary uses the address that it
    /// sees.
    pub announce_host: Option<String>,
    /// Port that is announced to the primary; 0 means the client port.
    pub announce_port: u16,
    /// Bytes of the log that a server without a log on disk keeps in memory.
    pub backlog_bytes: u64,
    /// Seconds that this backlog is kept after the last replica left; 0 means for ever.
    pub backlog_ttl_s: u64,
    /// Port of the own link; 0 means the client port plus 10,000.
    pub link_port: u16,
    /// Shared secret of both ends of an own link; the clients' password if absent.
    pub link_secret: Option<Vec<u8>>,
    /// Which own links are encrypted.
    pub link_encryption: LinkEncryption,
    /// Whether both ends of a link authenticate by certificates (`tls-replication`; `tls-cluster`
    /// in a cluster).
    pub links_by_certificate: bool,
    /// Bytes of the log that are kept for replicas only; `None` means as many as the data has.
    pub log_keep_bytes: Option<u64>,
    /// Seconds between two comparisons with replicas; 0 means only on command.
    pub verify_interval_s: u32,
    /// Seconds between two pings of replicas.
    pub ping_period_s: u32,
    /// Seconds of silence after which a link counts as lost.
    pub timeout_s: u32,
    /// Number of replicas below which writes are refused; 0 means never.
    pub replicas_min: u32,
    /// Seconds of silence after which a replica no longer counts; 0 means that no replica is
    /// needed.
    pub replicas_lag_s_max: u32,
    /// Writes wait while the replica that is furthest ahead lags by more bytes of the log than
    /// this.
    pub lag_bytes_max: Option<u64>,
    /// Whether data of an older or empty primary may replace the data here, as in Redis.
    pub accepts_older: bool,
    /// Assumed kind of a PSYNC replica that does not state it, and the form in which offsets are
    /// counted.
    pub peer: Peer,
    /// Whether a replica is served although some effects cannot be expressed for it.
    pub allows_loss: bool,
    /// Whether a full sync from Redis is loaded while it is received.
    pub loads_directly: LoadsDirectly,
    /// Seconds that a shutdown waits for replicas.
    pub shutdown_timeout_s: u32,
    /// Whether a command of a Redis primary that fails here is skipped.
    pub skips_unknown: bool,
}

/// Which own links are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEncryption {
    /// Those to other machines.
    Remote,
    /// All.
    All,
    /// None, unless the other end requires it.
    Nothing,
}

/// When a full sync from a Redis primary is loaded while it is received, instead of from a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadsDirectly {
    /// Never.
    #[default]
    No,
    /// If there is no data to lose.
    OnEmpty,
    /// Always.
    Yes,
}
