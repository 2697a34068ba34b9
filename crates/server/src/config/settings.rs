//! The value of every directive, as set or by default.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use base::words;
use engine::cluster::EndpointKind;
use engine::observer::{self, AuditFilter};
use engine::{ShutdownRequest, Threshold};

use replication::transcode::Peer;

use super::cluster::Cluster;
use super::directive::Directive;
use super::directives;
use super::durability::{Durability, DurabilityLevel, SavePoint};
use super::fields::{
    AuditConfig, BindAddress, ClientsMemory, Config, Defragmentation, OutputLimits, client_port,
};
use super::group::{Group, Shares, place_of};
use super::http::Http;
use super::memcached::Memcached;
use super::replication::{LinkEncryption, LoadsDirectly, Replication};
use super::table::{
    AT_SHUTDOWN, CHANNEL_DEFAULTS, CHECKPOINT_FORMATS, CLIENT_CERTIFICATES, COMPRESSIONS,
    DURABILITY_LEVELS, EVICTION_POLICIES, FACILITIES, LEVELS, LOG_LEVELS, METRICS_AUTH, OOM_SCORES,
    PERMISSIONS, PROMOTIONS, QUORUM_READS, SAVE_POINTS, SUPERVISORS, TIER_IOS, USER_FIELDS,
};
use super::tier::TierConfig;
use super::tls::{Tls, TlsRules};
use super::value::{Gathering, Kind, Value};
use crate::notifications::Notifications;
use crate::syslog::Tag;

/// Default pid file of a server that leaves the terminal.
const PID_FILE_OF_DAEMONS: &str = "/var/run/iolite.pid";

/// A value for every directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Values in the order of the table.
    values: Vec<Value>,
    /// Contents of `user` lines: name and rules.
    users: Vec<Vec<Vec<u8>>>,
    /// Contents of `rename-command` lines.
    renamed_commands: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Default for Settings {
    fn default() -> Self {
        let values = directives::all()
            .iter()
            .map(|row| default_of(row))
            .collect();
        Self {
            values,
            users: Vec::new(),
            renamed_commands: Vec::new(),
        }
    }
}

impl Settings {
    /// Returns the typed view.
    pub fn config(&self) -> Config {
        Config {
            bind: self.bind(),
            port: self.number("port"),
            unix_socket: self.path("unixsocket"),
            unix_socket_mode: self.number("unixsocketperm"),
            tcp_backlog: self.number("tcp-backlog"),
            tcp_keepalive_s: self.number("tcp-keepalive"),
            idle_timeout_s: self.number("timeout"),
            clients_max: self.number("maxclients"),
            protected_mode: self.switch("protected-mode"),
            password: self.text("requirepass").map(<[u8]>::to_vec),
            debug_command: self.choice("enable-debug-command", &PERMISSIONS),
            audit: self.audit(),
            acl_file: self.path("aclfile"),
            opens_channels: self.choice("acl-pubsub-default", &CHANNEL_DEFAULTS),
            denials_max: self.number("acllog-max-len"),
            users: self.users.clone(),
            renamed_commands: self.renamed_commands.clone(),
            protected_configs: self.choice("enable-protected-configs", &PERMISSIONS),
            databases_count: self.number("databases"),
            threads_count: self.number("threads"),
            busy_poll_us: self.number("busy-poll-us"),
            hz: self.number("hz"),
            key_load_delay: self.number("key-load-delay"),
            key_save_delay: self.number("rdb-key-save-delay"),
            dir: self.path("dir").unwrap_or_else(|| PathBuf::from(".")),
            log_level: self.choice("loglevel", &LEVELS),
            log_file: self.path("logfile"),
            syslog: self.switch("syslog-enabled").then(|| Tag {
                ident: self.string("syslog-ident"),
                facility: self.choice("syslog-facility", &FACILITIES),
            }),
            daemonize: self.switch("daemonize"),
            supervised: self.choice("supervised", &SUPERVISORS),
            pid_file: self.pid_file(),
            always_show_logo: self.switch("always-show-logo"),
            availability_zone: self.string("availability-zone"),
            redis_version: self.string("redis-version"),
            oom_score: self.choice("oom-score-adj", &OOM_SCORES),
            oom_adjustment: self.oom_adjustment(),
            memory_bytes_max: self.number("maxmemory"),
            eviction_policy: self.choice("maxmemory-policy", &EVICTION_POLICIES),
            eviction_samples_count: self.number("maxmemory-samples"),
            eviction_tenacity: self.number("maxmemory-eviction-tenacity"),
            lfu_log_factor: self.number("lfu-log-factor"),
            lfu_decay_minutes: self.number("lfu-decay-time"),
            defragmentation: self.defragmentation(),
            clients_memory: self.clients_memory(),
            query_buffer_bytes_max: self.number("client-query-buffer-limit"),
            tracked_keys_max: self.number("tracking-table-max-keys"),
            busy_reply_ms: self.number("busy-reply-threshold"),
            busy_refuses_all: self.switch("busy-refuses-all"),
            bulk_bytes_max: self.number("proto-max-bulk-len"),
            compresses_dumps: self.switch("rdbcompression"),
            thresholds: Threshold::ALL.map(|(_, directive, _)| self.number(directive)),
            output_limits: self.output_limits(),
            noticed: self.noticed(),
            percentiles: self.percentiles(),
            notifications: self.notifications(),
            durability: self.durability(),
            replication: self.replication(),
            group: self.group(),
            tls: self.tls(),
            http: self.http(),
            memcached: self.memcached(),
            cluster: self.cluster(),
            tier: self.tier(),
        }
    }

    fn cluster(&self) -> Cluster {
        Cluster {
            is_on: self.switch("cluster-enabled"),
            port: self.number("cluster-port"),
            announce_ip: self.string("cluster-announce-ip"),
            announce_hostname: self.string("cluster-announce-hostname"),
            announce_name: self.string("cluster-announce-human-nodename"),
            announce_port: self.number("cluster-announce-port"),
            announce_tls_port: self.number("cluster-announce-tls-port"),
            announce_bus_port: self.number("cluster-announce-bus-port"),
            endpoint: self.choice(
                "cluster-preferred-endpoint-type",
                &[
                    ("ip", EndpointKind::Ip),
                    ("hostname", EndpointKind::Hostname),
                    ("unknown-endpoint", EndpointKind::Unknown),
                ],
            ),
            requires_full_coverage: self.switch("cluster-require-full-coverage"),
            reads_when_down: self.switch("cluster-allow-reads-when-down"),
            channels_when_down: self.switch("cluster-allow-pubsubshard-when-down"),
            crosses_slots: self.choice("cluster-cross-slot", &[("no", false), ("node", true)]),
            splits_writes: self.choice("forward-multi", &[("refuse", false), ("split", true)]),
            forward_port: self.number("forward-port"),
            forward_timeout_ms: self.number("forward-timeout"),
            pause_ms_max: self.number("cluster-migration-pause-max"),
            migration_barrier: self.number("cluster-migration-barrier"),
            moves_as_replica: self.switch("cluster-allow-replica-migration"),
            declines: self.switch("cluster-replica-no-failover"),
            counts_usage: self.switch("cluster-slot-stats-enabled"),
            databases_count: self.number("cluster-databases"),
        }
    }

    fn tier(&self) -> Option<TierConfig> {
        Some(TierConfig {
            path: self.path("tier-path")?,
            bytes_max: self.number("tier-max-size"),
            value_bytes_min: self.number("tier-min-value"),
            value_bytes_max: self.number("tier-max-value"),
            demote_at_percent: self.number("tier-demote-at"),
            promotion: self.choice("tier-promotion", &PROMOTIONS),
            compact_below_percent: self.number("tier-compact-below"),
            read_buffer_bytes: self.number("tier-read-buffer"),
            read_timeout_ms: self.number("tier-read-timeout"),
            io: self.choice("tier-io", &TIER_IOS),
            read_depth: self.number("tier-read-depth"),
            compression: self.choice("tier-compression", &COMPRESSIONS),
            segment_bytes: self.number("tier-segment-size"),
            scrub_bytes_per_second: self.number("tier-scrub"),
        })
    }

    fn http(&self) -> Http {
        let texts = |name| {
            let words = self.words(name).iter();
            let texts = words.map(|word| String::from_utf8_lossy(word).into_owned());
            texts.collect()
        };
        Http {
            port: self.number("http-port"),
            bind: texts("http-bind"),
            is_encrypted: self.switch("http-tls"),
            metrics_auth: self.choice("http-metrics-auth", &METRICS_AUTH),
            metrics_token_file: self.path("http-metrics-token-file"),
            allowed_hosts: texts("http-allowed-hosts"),
            has_console: self.switch("http-console"),
            has_commands: self.switch("http-commands"),
            session_ttl_s: self.number("http-session-ttl"),
            otlp_endpoint: self
                .text("otlp-endpoint")
                .map(|text| String::from_utf8_lossy(text).into_owned())
                .unwrap_or_default(),
            otlp_interval_s: self.number("otlp-interval"),
            otlp_headers_file: self.path("otlp-headers-file"),
            otlp_authorities_file: self.path("otlp-ca-cert-file"),
        }
    }

    fn memcached(&self) -> Memcached {
        Memcached {
            port: self.number("memcached-port"),
            user: self
                .text("memcached-user")
                .map_or_else(Vec::new, <[u8]>::to_vec),
            item_bytes_max: self.number("memcached-item-size-max"),
        }
    }

    fn group(&self) -> Group {
        let port = client_port(self.number("port"), self.number("tls-port"));
        let place = |text: &[u8]| place_of(&String::from_utf8_lossy(text), port);
        let join = self.text("join").and_then(place);
        let seeds = self.words("cluster-seeds").iter();
        Group {
            begins: self.switch("cluster-group"),
            seeds: seeds
                .filter_map(|word| place(word))
                .chain(join.clone())
                .collect(),
            join,
            is_witness: self.switch("witness"),
            witness_log: self.switch("witness-log"),
            node_timeout_ms: self.number("cluster-node-timeout"),
            recovery_ms: self.number("cluster-recovery-wait"),
            voter_lost_ms: self.number("cluster-voter-replace-after"),
            feature_level: match self.number("cluster-feature-level") {
                0 => cluster::state::FEATURE_LEVEL,
                level => level,
            },
            sentinel_port: self.number("sentinel-port"),
            sentinel_name: self
                .text("sentinel-master-name")
                .map_or_else(String::new, |name| {
                    String::from_utf8_lossy(name).into_owned()
                }),
            shares: Shares::of(self.text("cluster-sync").unwrap_or_default())
                .unwrap_or(Shares::NONE),
            adopts: self.switch("adopt"),
        }
    }

    /// Whether the options make this a node of a control group or of a cluster.
    fn is_wanted_in_group(&self) -> bool {
        self.group().is_wanted() || self.switch("cluster-enabled")
    }

    /// Turns the log on for a node of a control group or of a cluster, because other nodes follow
    /// the log. `is_member` says that the node's files make it a member, whatever the options say.
    pub(crate) fn keep_log_in_group(&mut self, is_member: bool) {
        let level = self.choice("durability", &DURABILITY_LEVELS);
        let group = self.group();
        let has_others = is_member || self.is_wanted_in_group();
        if has_others && group.keeps_log() && !level.has_log() {
            let is_os = |(name, _): &(&str, _)| *name == "os";
            let at = DURABILITY_LEVELS.iter().position(is_os);
            self.put("durability", Value::Choice(at.unwrap_or_default()));
            self.spread_level();
        }
    }

    fn tls(&self) -> Tls {
        Tls {
            port: self.number("tls-port"),
            memcached_port: self.number("tls-memcached-port"),
            unix_socket: self.path("tls-unixsocket"),
            reload_interval_s: self.number("tls-auto-reload-interval"),
            user_field: self.choice("tls-auth-clients-user", &USER_FIELDS),
            rules: TlsRules {
                certificate_file: self.path("tls-cert-file"),
                key_file: self.path("tls-key-file"),
                key_password: self.text("tls-key-file-pass").map(<[u8]>::to_vec),
                authorities_file: self.path("tls-ca-cert-file"),
                authorities_directory: self.path("tls-ca-cert-dir"),
                client_certificate: self.choice("tls-auth-clients", &CLIENT_CERTIFICATES),
                protocols: self.string("tls-protocols"),
                ciphers: self.string("tls-ciphers"),
                cipher_suites: self.string("tls-ciphersuites"),
                prefers_own_order: self.switch("tls-prefer-server-ciphers"),
                caches_sessions: self.switch("tls-session-caching"),
                sessions_max: self.number("tls-session-cache-size"),
                sessions_lifetime_s: self.number("tls-session-cache-timeout"),
            },
        }
    }

    fn audit(&self) -> Option<AuditConfig> {
        let categories = self.words("audit-log-categories").iter();
        let categories = categories.map(|word| {
            let name = String::from_utf8_lossy(word).to_lowercase();
            name.trim_start_matches('@').to_owned()
        });
        let filter = AuditFilter {
            users: self.words("audit-log-users").to_vec(),
            categories: categories.collect(),
            keys: self.words("audit-log-keys").to_vec(),
            lines_per_second_max: self.number("audit-log-rate"),
        };
        let file = self.path("audit-log-file");
        file.map(|file| AuditConfig { file, filter })
    }

    fn words(&self, name: &'static str) -> &[Vec<u8>] {
        match self.named(name) {
            Value::Words(words) => words,
            _ => &[],
        }
    }

    fn durability(&self) -> Durability {
        let name = |name| self.path(name).unwrap_or_default();
        Durability {
            level: self.choice("durability", &DURABILITY_LEVELS),
            sync: self.choice("appendfsync", &LOG_LEVELS),
            quorum_fsync: self.switch("quorum-fsync"),
            quorum_reads: self.choice("quorum-reads", &QUORUM_READS),
            save_points: self.save_points(),
            refuses_writes_after_failed_save: self.switch("stop-writes-on-bgsave-error"),
            checkpoint_buffer_bytes_max: self.number("checkpoint-buffer-limit"),
            also_saves_rdb: self.choice("checkpoint-format", &CHECKPOINT_FORMATS),
            log_growth_percent: self.number("auto-aof-rewrite-percentage"),
            log_growth_bytes_min: self.number("auto-aof-rewrite-min-size"),
            log_segment_bytes: self.number("log-segment-size"),
            accepts_torn_log: self.switch("aof-load-truncated"),
            at_terminate: self.shutdown_request("shutdown-on-sigterm"),
            at_interrupt: self.shutdown_request("shutdown-on-sigint"),
            rdb_file_name: name("dbfilename"),
            aof_directory_name: name("appenddirname"),
            aof_file_name: name("appendfilename"),
        }
    }

    fn replication(&self) -> Replication {
        let text = |name| self.text(name).map(<[u8]>::to_vec);
        let host = self.text("replica-announce-ip");
        Replication {
            primary: self.primary(),
            user: text("masteruser"),
            password: text("masterauth"),
            serves_stale: self.switch("replica-serve-stale-data"),
            priority: self.number("replica-priority"),
            is_announced: self.switch("replica-announced"),
            announce_host: host.map(|host| String::from_utf8_lossy(host).into_owned()),
            announce_port: self.number("replica-announce-port"),
            backlog_bytes: self.number("repl-backlog-size"),
            backlog_ttl_s: self.number("repl-backlog-ttl"),
            link_port: self.number("repl-port"),
            link_secret: text("cluster-secret"),
            link_encryption: if self.switch("repl-link-plaintext") {
                LinkEncryption::Nothing
            } else {
                self.choice(
                    "repl-tls",
                    &[
                        ("auto", LinkEncryption::Remote),
                        ("yes", LinkEncryption::All),
                        ("no", LinkEncryption::Nothing),
                    ],
                )
            },
            // One link of a cluster carries both of Redis' connections: cluster bus and replication.
            links_by_certificate: self.switch("tls-replication")
                || self.switch("tls-cluster") && self.is_wanted_in_group(),
            log_keep_bytes: Some(self.number("repl-log-keep")).filter(|&bytes| bytes > 0),
            verify_interval_s: self.number("repl-verify-interval"),
            ping_period_s: self.number("repl-ping-replica-period"),
            timeout_s: self.number("repl-timeout"),
            replicas_min: self.number("min-replicas-to-write"),
            replicas_lag_s_max: self.number("min-replicas-max-lag"),
            lag_bytes_max: Some(self.number("repl-max-lag-bytes")).filter(|&bytes| bytes > 0),
            accepts_older: self.switch("replica-accept-older-primary"),
            peer: self.choice(
                "repl-peer",
                &[
                    ("redis-7", Peer::Redis70),
                    ("redis-6.2", Peer::Redis62),
                    ("redis-7.2", Peer::Redis72),
                    ("redis-7.4", Peer::Redis74),
                    ("redis-8", Peer::Redis80),
                    ("valkey-8", Peer::Valkey72),
                    ("valkey-9", Peer::Valkey90),
                ],
            ),
            allows_loss: self.choice("repl-peer-loss", &[("refuse", false), ("allow", true)]),
            shutdown_timeout_s: self.number("shutdown-timeout"),
            loads_directly: self.choice(
                "repl-diskless-load",
                &[
                    ("disabled", LoadsDirectly::No),
                    ("on-empty-db", LoadsDirectly::OnEmpty),
                    // It promises to serve the old data until the new is complete; a file does too.
                    ("swapdb", LoadsDirectly::No),
                    ("flush-before-load", LoadsDirectly::Yes),
                ],
            ),
            skips_unknown: self.choice(
                "replica-unknown-command",
                &[("stop", false), ("skip", true)],
            ),
        }
    }

    fn primary(&self) -> Option<(String, u16)> {
        let [host, port] = self.words("replicaof") else {
            return None;
        };
        let port = std::str::from_utf8(port).ok()?.parse().ok()?;
        Some((String::from_utf8_lossy(host).into_owned(), port))
    }

    /// Sets `replicaof` to this primary, or to none.
    pub(super) fn set_primary(&mut self, primary: Option<&(String, u16)>) {
        let words = primary.map(|(host, port)| {
            let port = port.to_string();
            vec![host.clone().into_bytes(), port.into_bytes()]
        });
        self.put("replicaof", Value::Words(words.unwrap_or_default()));
    }

    fn shutdown_request(&self, name: &'static str) -> ShutdownRequest {
        let Value::Choices(chosen) = self.named(name) else {
            return ShutdownRequest::default();
        };
        let has = |word: &str| chosen.iter().any(|&at| AT_SHUTDOWN[at] == word);
        let save = has("save");
        ShutdownRequest {
            save: (save || has("nosave")).then_some(save),
            now: has("now"),
            force: has("force"),
            abort: false,
        }
    }

    fn save_points(&self) -> Vec<SavePoint> {
        match self.named("save") {
            Value::SavePoints(points) => points
                .iter()
                .map(|&(seconds, changes)| SavePoint { seconds, changes })
                .collect(),
            _ => Vec::new(),
        }
    }

    fn noticed(&self) -> observer::Thresholds {
        observer::Thresholds {
            least: [
                self.number("slowlog-log-slower-than"),
                self.number("commandlog-request-larger-than"),
                self.number("commandlog-reply-larger-than"),
            ],
            entries_max: [
                self.number("slowlog-max-len"),
                self.number("commandlog-large-request-max-len"),
                self.number("commandlog-large-reply-max-len"),
            ],
            event_ms: self.number("latency-monitor-threshold"),
            tracks_latency: self.switch("latency-tracking"),
        }
    }

    fn notifications(&self) -> Notifications {
        match self.named("notify-keyspace-events") {
            Value::Notifications(asked) => *asked,
            _ => Notifications::default(),
        }
    }

    fn percentiles(&self) -> Vec<String> {
        match self.named("latency-tracking-info-percentiles") {
            Value::Words(words) => words
                .iter()
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect(),
            _ => Vec::new(),
        }
    }

    fn defragmentation(&self) -> Option<Defragmentation> {
        self.switch("activedefrag").then(|| Defragmentation {
            idle_bytes_min: self.number("active-defrag-ignore-bytes"),
            idle_percent_min: self.number("active-defrag-threshold-lower"),
        })
    }

    /// Adds a user: name and rules.
    pub(super) fn add_user(&mut self, words: &[Vec<u8>]) {
        self.users.push(words.to_vec());
    }

    /// Renames a command, or hides it if `new` is empty.
    pub(super) fn rename_command(&mut self, name: &[u8], new: &[u8]) {
        self.renamed_commands.push((name.to_vec(), new.to_vec()));
    }

    /// Makes `dir` the working directory, and its absolute path the value of `dir`.
    ///
    /// # Errors
    /// The system refused; nothing has changed.
    pub fn enter_dir(&mut self) -> io::Result<()> {
        if let Some(dir) = self.path("dir") {
            std::env::set_current_dir(dir)?;
        }
        let absolute = std::env::current_dir()?.into_os_string().into_vec();
        self.put("dir", Value::Text(absolute));
        Ok(())
    }

    /// Lowers `maxclients` to what the system allows.
    pub fn lower_clients_max(&mut self, clients_max: u32) {
        self.put("maxclients", Value::Integer(i128::from(clients_max.max(1))));
    }

    /// Returns the value of the directive at position `at` of the table.
    pub(super) fn value(&self, at: usize) -> &Value {
        &self.values[at]
    }

    /// Sets the directive at position `at` of the table to the value that `words` spell.
    ///
    /// # Errors
    /// The reason, in Redis' words if Redis has them; nothing has changed.
    pub(super) fn assign(
        &mut self,
        at: usize,
        words: &[Vec<u8>],
        gathering: Gathering,
    ) -> Result<(), String> {
        let row = directives::all()[at];
        let value = row.kind.parse(words, &self.values[at], gathering)?;
        self.values[at] = (row.admit)(value)?;
        match row.name {
            "durability" => self.spread_level(),
            "appendonly" | "appendfsync" | "save" => self.gather_level(),
            _ => {}
        }
        Ok(())
    }

    /// Sets Redis' directives to the level of `durability`.
    fn spread_level(&mut self) {
        let level = self.choice("durability", &DURABILITY_LEVELS);
        self.put("appendonly", Value::Switch(level.has_log()));
        if let Some(at) = LOG_LEVELS.iter().position(|(_, one)| *one == level) {
            self.put("appendfsync", Value::Choice(at));
        }
        match level {
            DurabilityLevel::None => self.put("save", Value::SavePoints(Vec::new())),
            DurabilityLevel::Checkpoint if self.save_points().is_empty() => {
                self.put("save", Value::SavePoints(SAVE_POINTS.to_vec()));
            }
            _ => {}
        }
    }

    /// Sets `durability` to the level that Redis' directives make together.
    fn gather_level(&mut self) {
        let is_quorum = self.choice("durability", &DURABILITY_LEVELS) == DurabilityLevel::Quorum;
        let level = if self.switch("appendonly") && is_quorum {
            // The level quorum has a log at any `appendfsync`.
            DurabilityLevel::Quorum
        } else if self.switch("appendonly") {
            self.choice("appendfsync", &LOG_LEVELS)
        } else if self.save_points().is_empty() {
            DurabilityLevel::None
        } else {
            DurabilityLevel::Checkpoint
        };
        let at = DURABILITY_LEVELS.iter().position(|(_, one)| *one == level);
        self.put("durability", Value::Choice(at.unwrap_or_default()));
    }

    fn put(&mut self, name: &'static str, value: Value) {
        self.values[position(name)] = value;
    }

    /// Returns the names of the directives whose values differ between `self` and `other`.
    pub(super) fn differences(&self, other: &Self) -> Vec<&'static str> {
        let pairs = self.values.iter().zip(&other.values);
        let rows = directives::all().iter().zip(pairs);
        rows.filter(|(_, (ours, theirs))| ours != theirs)
            .map(|(row, _)| row.name)
            .collect()
    }

    fn named(&self, name: &'static str) -> &Value {
        &self.values[position(name)]
    }

    fn switch(&self, name: &'static str) -> bool {
        *self.named(name) == Value::Switch(true)
    }

    /// Returns the number called `name`, in the type of its field. The range of its row fits that
    /// type.
    fn number<N: TryFrom<i128> + Default>(&self, name: &'static str) -> N {
        match self.named(name) {
            Value::Integer(number) => N::try_from(*number).unwrap_or_default(),
            _ => N::default(),
        }
    }

    fn choice<C: Copy, const N: usize>(
        &self,
        name: &'static str,
        choices: &[(&'static str, C); N],
    ) -> C {
        match self.named(name) {
            Value::Choice(at) => choices[*at].1,
            _ => choices[0].1,
        }
    }

    /// Returns the text called `name`, or `None` if it is empty.
    fn text(&self, name: &'static str) -> Option<&[u8]> {
        match self.named(name) {
            Value::Text(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    fn string(&self, name: &'static str) -> String {
        String::from_utf8_lossy(self.text(name).unwrap_or_default()).into_owned()
    }

    fn path(&self, name: &'static str) -> Option<PathBuf> {
        let path = Path::new(OsStr::from_bytes(self.text(name)?));
        Some(path.to_owned())
    }

    fn pid_file(&self) -> Option<PathBuf> {
        let default = self.switch("daemonize").then(|| PID_FILE_OF_DAEMONS.into());
        self.path("pidfile").or(default)
    }

    fn bind(&self) -> Vec<BindAddress> {
        let Value::Words(words) = self.named("bind") else {
            return Vec::new();
        };
        words.iter().map(|word| bind_address(word)).collect()
    }

    fn clients_memory(&self) -> ClientsMemory {
        match self.named("maxmemory-clients") {
            Value::Percent(percent) if *percent > 0 => ClientsMemory::Percent(*percent),
            Value::Integer(bytes) if *bytes > 0 => {
                ClientsMemory::Bytes(u64::try_from(*bytes).unwrap_or(u64::MAX))
            }
            _ => ClientsMemory::Unlimited,
        }
    }

    /// Returns the first score, which is that of a primary: every server counts as one.
    fn oom_adjustment(&self) -> i32 {
        let first = self.words("oom-score-adj-values").first();
        let first = first.and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
        first.unwrap_or_default()
    }

    fn output_limits(&self) -> OutputLimits {
        match self.named("client-output-buffer-limit") {
            Value::OutputLimits(limits) => *limits,
            _ => OutputLimits::default(),
        }
    }
}

/// Returns the default value of `row`.
pub(super) fn default_of(row: &Directive) -> Value {
    let text = row.default.as_bytes();
    let words = if row.kind.takes_words() {
        words::split(text).unwrap_or_default()
    } else {
        vec![text.to_vec()]
    };
    let nothing = match row.kind {
        Kind::OutputLimits => Value::OutputLimits(OutputLimits::default()),
        _ => Value::Words(Vec::new()),
    };
    row.kind
        .parse(&words, &nothing, Gathering::Anew)
        .and_then(row.admit)
        .unwrap_or(nothing)
}

/// Returns the position of the row called `name`. A name without a row is a bug of this file, which
/// the tests of [`Settings::config`] find.
fn position(name: &'static str) -> usize {
    let found = directives::find(name.as_bytes());
    found.expect("every name used here has a row").0
}

fn bind_address(word: &[u8]) -> BindAddress {
    let (optional, host) = match word.strip_prefix(b"-") {
        Some(host) => (true, host),
        None => (false, word),
    };
    BindAddress {
        host: String::from_utf8_lossy(host).into_owned(),
        optional,
    }
}
