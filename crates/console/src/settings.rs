//! The configuration of the management port.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::otlp::Export;

/// The clients that must authenticate to read metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsAuth {
    /// Clients on other machines.
    Auto,
    /// No client.
    No,
    /// Every client.
    Yes,
}

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The addresses to listen on.
    pub addresses: Vec<SocketAddr>,
    /// The clients that must authenticate to read metrics.
    pub metrics_auth: MetricsAuth,
    /// The file of the token that permits reading metrics.
    pub metrics_token_file: Option<PathBuf>,
    /// Names that a request's `Host` may have, besides addresses and this machine.
    pub allowed_hosts: Vec<String>,
    /// Whether the page and its API are served.
    pub has_console: bool,
    /// Whether commands over HTTP for programs are served.
    pub has_commands: bool,
    /// Lifetime of a login.
    pub session_ttl: Duration,
    /// The settings of the export to a collector.
    pub export: Export,
    /// Whether connections are encrypted. If so, browsers send the cookie only over encrypted
    /// connections.
    pub is_encrypted: bool,
    /// Whether other machines are refused while there is no password.
    pub protected_mode: bool,
}
