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
    /// Path of the Unix socket, when there is one.
    pub unix_socket: Option<PathBuf>,
    /// Mode bits of the Unix socket's file; 0 leaves them to the umask.
    pub unix_socket_mode: u32,
    /// Length of the kernel's queue of connections not yet accepted.
    pub tcp_backlog: u32,
    /// Seconds between keep-alive probes; 0 means none.
    pub tcp_keepalive_s: u32,
    /// Seconds after which an idle client is closed; 0 means never.
    pub idle_timeout_s: u32,
    /// Connections served at a time.
    pub clients_max: u32,
    /// Whether clients of other machines are refused while there is no password.
    pub protected_mode: bool,
    /// The default user's password.
    pub password: Option<Vec<u8>>,
    /// Who may use DEBUG.
    pub debug_command: Permission,
    /// Where the audit log goes, and what is in it, if there is one.
    pub audit: Option<AuditConfig>,
    /// File of the users, when they have one.
    pub acl_file: Option<PathBuf>,
    /// Whether new users may use all channels.
    pub opens_channels: bool,
    /// Entries of ACL LOG.
    pub denials_max: usize,
    /// Users that lines `user` define: name and rules.
    pub users: Vec<Vec<Vec<u8>>>,
    /// Commands that lines `rename-command` rename; an empty name hides one.
    pub renamed_commands: Vec<(Vec<u8>, Vec<u8>)>,
    /// Who may set protected directives with CONFIG SET.
    pub protected_configs: Permission,

    /// Numbered databases.
    pub databases_count: u32,
    /// Worker threads.
    pub threads_count: u16,
    /// Microseconds that a worker at most looks for events before it blocks, where there are more
    /// cores than workers; 0 means never.
    pub busy_poll_us: u32,
    /// Housekeeping turns a second, 1 to 500.
    pub hz: u32,
    /// Microseconds that a key takes that is loaded; below 0 how many keys take one.
    pub key_load_delay: i64,
    /// The same of a key that is saved.
    pub key_save_delay: i64,
    /// Working directory.
    pub dir: PathBuf,
    /// Lowest level that is logged.
    pub log_level: Level,
    /// Log file; standard output when absent.
    pub log_file: Option<PathBuf>,
    /// As whom the machine's log is told the same, if it is.
    pub(crate) syslog: Option<Tag>,
    /// Whether to leave the terminal at start.
    pub daemonize: bool,
    /// Who waits to hear that the server is ready.
    pub supervised: Supervised,
    /// File that holds the process number while the server runs.
    pub pid_file: Option<PathBuf>,
    /// Whether the banner is shown even when output is not a terminal.
    pub always_show_logo: bool,
    /// Name of the availability zone, as INFO shows it.
    pub availability_zone: String,
    /// The version of Redis that clients are told.
    pub redis_version: String,
    /// Whether the kernel ranks the process by a score of ours when memory runs out.
    pub oom_score: OomScore,
    /// That score, or what is added to the one it has.
    pub oom_adjustment: i32,

    /// Bytes the process may hold before it evicts or refuses; 0 means no limit.
    pub memory_bytes_max: u64,
    /// What goes when memory is short.
    pub eviction_policy: EvictionPolicy,
    /// Keys looked at per victim under the sampling policies.
    pub eviction_samples_count: u32,
    /// How much one call evicts at most beyond what it needs: 0 little, 100 all.
    pub eviction_tenacity: u8,
    /// Logarithmic factor of the LFU counter.
    pub lfu_log_factor: u32,
    /// Minutes after which the LFU counter falls by one.
    pub lfu_decay_minutes: u32,
    /// When records are moved together without being asked; the store's own choice when absent.
    pub defragmentation: Option<Defragmentation>,
    /// Memory of all clients together.
    pub clients_memory: ClientsMemory,
    /// Bytes of unanswered input a client may pile up.
    pub query_buffer_bytes_max: u64,
    /// `tracking-table-max-keys`: keys of which changes are told to clients that cache them; 0 for no
    /// limit.
    pub tracked_keys_max: u64,
    /// After how many milliseconds those who wait for a script are told so; 0 means never.
    pub busy_reply_ms: u64,
    /// Whether those who do not wait for it are refused, too, as in Redis.
    pub busy_refuses_all: bool,
    /// Length of one argument.
    pub bulk_bytes_max: u64,
    /// Whether DUMP compresses long texts.
    pub compresses_dumps: bool,
    /// Sizes at which collections change their form, in the order of [`Threshold::ALL`].
    pub thresholds: [i64; Threshold::ALL.len()],
    /// Limits of unread output, per client class.
    pub output_limits: OutputLimits,
    /// From when on something is noticed about commands.
    pub noticed: observer::Thresholds,
    /// Which percentiles of commands' times INFO shows, as hundredths.
    pub percentiles: Vec<String>,
    /// Which events of keys clients may hear of.
    pub notifications: Notifications,

    /// Whom to follow, and how replicas are served.
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
    /// Where values go that do not fit into memory, if anywhere.
    pub tier: Option<TierConfig>,
}

/// One address of `bind`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindAddress {
    /// Address as written, without the `-`; `*` and `::*` mean every address of their family.
    pub host: String,
    /// Written with a leading `-`: not a fault when the machine does not have the address.
    pub optional: bool,
}

/// Values of `enable-debug-command` and its like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Nobody.
    No,
    /// Every client.
    Yes,
    /// Clients of this machine.
    Local,
}

impl Permission {
    /// Whether a client is permitted, which `is_local` or not.
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
    /// Nobody waits.
    No,
    /// systemd, told through its notification socket.
    Systemd,
    /// Upstart, told by stopping.
    Upstart,
    /// Whichever the environment shows.
    Auto,
}

/// Values of `oom-score-adj`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OomScore {
    /// The process keeps the score that it has.
    Left,
    /// Ours is added to it.
    Relative,
    /// Ours is it.
    Absolute,
}

/// From when on records are moved together (`activedefrag`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defragmentation {
    /// Bytes that must lie idle.
    pub idle_bytes_min: u64,
    /// Hundredths of what is in use that must lie idle.
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
    /// Bytes at which the client is closed when it stays above for `soft_s`.
    pub soft_bytes: u64,
    /// Seconds the client may stay above `soft_bytes`.
    pub soft_s: u64,
}

/// What start-up found besides the settings themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// Absolute path of the configuration file.
    pub file: Option<PathBuf>,
    /// `argv` as given.
    pub arguments: Vec<OsString>,
}

/// Where the audit log goes, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditConfig {
    /// A file; the word `syslog` means the machine's.
    pub file: PathBuf,
    /// Which requests.
    pub filter: AuditFilter,
}

impl Config {
    /// The port that other nodes are told of: as configured, or the one that they can come to.
    #[must_use]
    pub fn port_for_peers(&self) -> u16 {
        let is_encrypted = self.replication.links_by_certificate || self.port == 0;
        match self.replication.announce_port {
            0 if is_encrypted && self.tls.port != 0 => self.tls.port,
            0 => self.port,
            port => port,
        }
    }

    /// Where clients are served: at the port of encrypted connections, where there is no other.
    #[must_use]
    pub fn client_port(&self) -> u16 {
        client_port(self.port, self.tls.port)
    }

    /// Where links of other nodes are served: as configured, or so far above the port of clients.
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

/// The port that clients and other nodes know a server by, where these serve plain and encrypted connections; 0: none.
pub(super) const fn client_port(port: u16, tls_port: u16) -> u16 {
    match port {
        0 => tls_port,
        port => port,
    }
}
