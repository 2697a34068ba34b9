//! The configuration as the server reads it: one plain field per setting that does something.
//!
//! A [`Config`] never changes; a change makes a new one (see [`super::SharedConfig`]). Units stand
//! in the field names. Directives that are accepted without effect have no field.

use std::ffi::OsString;
use std::path::PathBuf;

use engine::observer::AuditFilter;

use engine::Threshold;
use engine::observer;

use super::cluster::Cluster;
use super::durability::Durability;
use super::group::Group;
use super::http::Http;
use super::memcached::Memcached;
use super::replication::Replication;
use super::tier::TierConfig;
use super::tls::Tls;
use crate::log::Level;
use crate::notifications::Notifications;
use crate::syslog::Tag;

/// The settings of a running server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Addresses to listen on; empty means none.
    pub bind: Vec<BindAddress>,
    /// TCP port; 0 means no TCP.
    pub port: u16,
    /// Path of the Unix socket, or `None` without one.
    pub unix_socket: Option<PathBuf>,
    /// Mode bits of the Unix socket's file; 0 leaves them to the umask.
    pub unix_socket_mode: u32,
    /// Length of the kernel's queue of connections not yet accepted.
    pub tcp_backlog: u32,
    /// Seconds between keep-alive probes; 0 means none.
    pub tcp_keepalive_s: u32,
    /// Seconds after which an idle client is closed; 0 means never.
    pub idle_timeout_s: u32,
    /// Maximum number of connections at a time.
    pub clients_max: u32,
    /// Whether clients on other machines are refused while there is no password.
    pub protected_mode: bool,
    /// The default user's password.
    pub password: Option<Vec<u8>>,
    /// Who may use DEBUG.
    pub debug_command: Permission,
    /// Where the audit log goes and what it contains, or `None` without one.
    pub audit: Option<AuditConfig>,
    /// File with the users, or `None` without one.
    pub acl_file: Option<PathBuf>,
    /// Whether new users may use all channels.
    pub opens_channels: bool,
    /// Maximum number of entries of ACL LOG.
    pub denials_max: usize,
    /// Users that `user` lines define: name and rules.
    pub users: Vec<Vec<Vec<u8>>>,
    /// Commands that `rename-command` lines rename; an empty name hides the command.
    pub renamed_commands: Vec<(Vec<u8>, Vec<u8>)>,
    /// Who may set protected directives with CONFIG SET.
    pub protected_configs: Permission,

    /// Number of databases.
    pub databases_count: u32,
    /// Number of worker threads.
    pub threads_count: u16,
    /// Microseconds that a worker looks for events before it blocks, if there are more cores than
    /// workers; 0 means that it blocks at once.
    pub busy_poll_us: u32,
    /// Housekeeping turns a second, 1 to 500.
    pub hz: u32,
    /// Delay per loaded key in microseconds; if negative, the number of keys per microsecond of
    /// delay.
    pub key_load_delay: i64,
    /// Delay per saved key, in the same form.
    pub key_save_delay: i64,
    /// Working directory.
    pub dir: PathBuf,
    /// Lowest level that is written to the log.
    pub log_level: Level,
    /// Log file; standard output if absent.
    pub log_file: Option<PathBuf>,
    /// Tag of lines that are also sent to the machine's log, or `None` if it gets none.
    pub(crate) syslog: Option<Tag>,
    /// Whether to leave the terminal at start.
    pub daemonize: bool,
    /// Process manager that waits until the server is ready.
    pub supervised: Supervised,
    /// File that holds the process number while the server runs.
    pub pid_file: Option<PathBuf>,
    /// Whether the banner is shown even when output is not a terminal.
    pub always_show_logo: bool,
    /// Name of the availability zone, as INFO shows it.
    pub availability_zone: String,
    /// Version of Redis that the server reports to clients.
    pub redis_version: String,
    /// Whether the server sets the score by which the kernel chooses a process to kill when memory
    /// runs out.
    pub oom_score: OomScore,
    /// That score, or the amount added to the present one.
    pub oom_adjustment: i32,

    /// Bytes that the process may hold before it evicts or refuses; 0 means no limit.
    pub memory_bytes_max: u64,
    /// Which keys are evicted when memory is short.
    pub eviction_policy: EvictionPolicy,
    /// Keys looked at per victim under the sampling policies.
    pub eviction_samples_count: u32,
    /// How much one call evicts beyond what it needs: from 0 (little) to 100 (all).
    pub eviction_tenacity: u8,
    /// Logarithmic factor of the LFU counter.
    pub lfu_log_factor: u32,
    /// Minutes after which the LFU counter falls by one.
    pub lfu_decay_minutes: u32,
    /// When records are compacted automatically; the store's own choice if absent.
    pub defragmentation: Option<Defragmentation>,
    /// Limit of the memory of all clients together.
    pub clients_memory: ClientsMemory,
    /// Maximum number of bytes of unanswered input of one client.
    pub query_buffer_bytes_max: u64,
    /// `tracking-table-max-keys`: maximum number of keys that are tracked for client caches; 0
    /// means no limit.
    pub tracked_keys_max: u64,
    /// Milliseconds after which clients that wait for a script get an error; 0 means never.
    pub busy_reply_ms: u64,
    /// Whether clients that do not wait for the script are refused too, as in Redis.
    pub busy_refuses_all: bool,
    /// Maximum length of one argument.
    pub bulk_bytes_max: u64,
    /// Whether DUMP compresses long texts.
    pub compresses_dumps: bool,
    /// Sizes at which collections change their encoding, in the order of [`Threshold::ALL`].
    pub thresholds: [i64; Threshold::ALL.len()],
    /// Limits of unread output, per client class.
    pub output_limits: OutputLimits,
    /// Thresholds above which commands are recorded.
    pub noticed: observer::Thresholds,
    /// Percentiles of command times that INFO shows, in percent.
    pub percentiles: Vec<String>,
    /// Classes of keyspace events that are published.
    pub notifications: Notifications,

    /// The primary to follow, and how replicas are served.
    pub replication: Replication,
    /// The control group.
    pub group: Group,
    /// What is kept on disk, and how.
    pub durability: Durability,
    /// Encrypted connections.
    pub tls: Tls,
    /// The management port.
    pub http: Http,
    /// The memcached port.
    pub memcached: Memcached,
    /// Cluster mode.
    pub cluster: Cluster,
    /// Where values go that do not fit into memory, or `None` without a tier.
    pub tier: Option<TierConfig>,
}

/// One address of `bind`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindAddress {
    /// Address as written, without the `-`; `*` and `::*` mean every address of their family.
    pub host: String,
    /// Whether it has a leading `-`: the server starts even if the machine does not have the
    /// address.
    pub optional: bool,
}

/// Values of `enable-debug-command` and similar directives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// No client.
    No,
    /// Every client.
    Yes,
    /// Clients on this machine.
    Local,
}

impl Permission {
    /// Whether a client is permitted. `is_local` says whether it is on this machine.
    pub fn includes(self, is_local: bool) -> bool {
        match self {
            Self::No => false,
            Self::Yes => true,
            Self::Local => is_local,
        }
    }
}

/// Values of `supervised`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supervised {
    /// No process manager.
    No,
    /// systemd, notified through its socket.
    Systemd,
    /// Upstart, notified by a stop signal of the process to itself.
    Upstart,
    /// The one that the environment shows.
    Auto,
}

/// Values of `oom-score-adj`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OomScore {
    /// The process keeps the score that it has.
    Left,
    /// The configured score is added to it.
    Relative,
    /// The configured score replaces it.
    Absolute,
}

/// Thresholds above which records are compacted (`activedefrag`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defragmentation {
    /// Minimum number of idle bytes.
    pub idle_bytes_min: u64,
    /// Minimum number of idle bytes, in percent of the used ones.
    pub idle_percent_min: u32,
}

/// Values of `maxmemory-policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the policies' own")]
pub enum EvictionPolicy {
    NoEviction,
    AllKeysLru,
    AllKeysLfu,
    AllKeysRandom,
    VolatileLru,
    VolatileLfu,
    VolatileRandom,
    VolatileTtl,
}

/// Value of `maxmemory-clients`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientsMemory {
    /// No limit.
    Unlimited,
    /// A number of bytes.
    Bytes(u64),
    /// Hundredths of `maxmemory`.
    Percent(u8),
}

/// Value of `client-output-buffer-limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimits {
    /// Ordinary clients.
    pub normal: OutputLimit,
    /// Replicas.
    pub replica: OutputLimit,
    /// Clients with a subscription.
    pub pubsub: OutputLimit,
}

/// Limit of unread output of one client class; 0 means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputLimit {
    /// Bytes at which the client is closed at once.
    pub hard_bytes: u64,
    /// Bytes at which the client is closed if it stays above for `soft_s`.
    pub soft_bytes: u64,
    /// Seconds the client may stay above `soft_bytes`.
    pub soft_s: u64,
}

/// What the server found at start besides the settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// Absolute path of the configuration file.
    pub file: Option<PathBuf>,
    /// `argv` as given.
    pub arguments: Vec<OsString>,
}

/// Where the audit log goes and what it contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditConfig {
    /// A file; the word `syslog` means the machine's log.
    pub file: PathBuf,
    /// Which requests it contains.
    pub filter: AuditFilter,
}

impl Config {
    /// Returns the port that other nodes are given: the configured one, or the one that they can
    /// reach.
    #[must_use]
    pub fn port_for_peers(&self) -> u16 {
        let is_encrypted = self.replication.links_by_certificate || self.port == 0;
        match self.replication.announce_port {
            0 if is_encrypted && self.tls.port != 0 => self.tls.port,
            0 => self.port,
            port => port,
        }
    }

    /// Returns the port for clients: the TLS port if there is no plain one.
    #[must_use]
    pub fn client_port(&self) -> u16 {
        client_port(self.port, self.tls.port)
    }

    /// Returns the port for links of other nodes: the configured one, or the client port plus a
    /// fixed distance.
    #[must_use]
    pub fn link_port(&self) -> u16 {
        match (self.replication.link_port, self.cluster.port) {
            (0, port) if port != 0 && self.cluster.is_on => port,
            (0, _) => self
                .client_port()
                .saturating_add(super::group::LINK_PORT_DISTANCE),
            (port, _) => port,
        }
    }
}

/// Returns the port that identifies a server to clients and other nodes, given its plain and its
/// TLS port; 0 means none.
pub(super) const fn client_port(port: u16, tls_port: u16) -> u16 {
    match port {
        0 => tls_port,
        port => port,
    }
}
