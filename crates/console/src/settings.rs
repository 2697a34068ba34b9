//! What the configuration says about the management port.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::otlp::Export;

/// Who has to say who he is to read metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsAuth {
    /// Who is on another machine.
    Auto,
    /// Nobody.
    No,
    /// Everybody.
    Yes,
}

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where to listen.
    pub addresses: Vec<SocketAddr>,
    /// Who has to say who he is to read metrics.
    pub metrics_auth: MetricsAuth,
    /// The file of the word that lets one read metrics.
    pub metrics_token_file: Option<PathBuf>,
    /// Names that requests may be sent to, besides addresses and this machine.
    pub allowed_hosts: Vec<String>,
    /// Whether there is the page and its API.
    pub has_console: bool,
    /// Whether there are commands over HTTP for programs.
    pub has_commands: bool,
    /// How long who is logged in stays so.
    pub session_ttl: Duration,
    /// What is sent to a collector of metrics.
    pub export: Export,
    /// Whether connections are encrypted: browsers then send the cookie over such alone.
    pub is_encrypted: bool,
    /// Whether others than this machine are refused while there is no password.
    pub protected_mode: bool,
}
