//! The value of every directive, as set or by default.

use std::fmt;
use std::path::PathBuf;

use super::{
    BindAddress, ClientsMemory, Config, EvictionPolicy, OutputLimit, OutputLimits, Permission,
    Supervised,
};
use crate::log::Level;

/// A value for every directive.
#[derive(Debug, Clone, Default)]
pub struct Settings {}

impl Settings {
    /// The typed view.
    pub fn config(&self) -> Config {
        let host = |host: &str| BindAddress {
            host: host.to_owned(),
            optional: true,
        };
        Config {
            bind: vec![host("127.0.0.1"), host("::1")],
            port: 6379,
            unix_socket: None,
            unix_socket_mode: 0,
            tcp_backlog: 511,
            tcp_keepalive_s: 300,
            idle_timeout_s: 0,
            clients_max: 10_000,
            protected_mode: true,
            bind_was_given: false,
            password: None,
            debug_command: Permission::No,
            protected_configs: Permission::No,
            databases_count: 16,
            threads_count: 2,
            hz: 10,
            dir: PathBuf::from("."),
            log_level: Level::Notice,
            log_file: None,
            daemonize: false,
            supervised: Supervised::No,
            pid_file: None,
            always_show_logo: false,
            availability_zone: String::new(),
            memory_bytes_max: 0,
            eviction_policy: EvictionPolicy::NoEviction,
            eviction_samples_count: 5,
            eviction_tenacity: 10,
            lfu_log_factor: 10,
            lfu_decay_minutes: 1,
            active_expire_effort: 1,
            clients_memory: ClientsMemory::Unlimited,
            query_buffer_bytes_max: 1 << 30,
            bulk_bytes_max: 512 << 20,
            output_limits: OutputLimits {
                normal: OutputLimit::default(),
                replica: OutputLimit::default(),
                pubsub: OutputLimit::default(),
            },
        }
    }
}

/// Why CONFIG SET or CONFIG REWRITE refused; the text is the error reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(Vec<u8>);

impl ConfigError {
    /// The error reply, from its first word on, without the `-`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::error::Error for ConfigError {}
