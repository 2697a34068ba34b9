//! What the directives say about the management port.

use std::path::PathBuf;

/// The management port; nothing of it is there while the port is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// TCP port; 0 means none.
    pub port: u16,
    /// Addresses to listen on.
    pub bind: Vec<String>,
    /// Whether connections are encrypted, with the certificate of `tls-cert-file`.
    pub is_encrypted: bool,
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
    /// Seconds for which who is logged in stays so.
    pub session_ttl_s: u64,
    /// Where metrics are sent; empty for nowhere.
    pub otlp_endpoint: String,
    /// Seconds between two times.
    pub otlp_interval_s: u64,
    /// The file of headers that they are sent with.
    pub otlp_headers_file: Option<PathBuf>,
    /// The file of who signs the collector's certificate; the system's authorities without.
    pub otlp_authorities_file: Option<PathBuf>,
}

/// Values of `http-metrics-auth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsAuth {
    /// Who is on another machine says who he is.
    Auto,
    /// Nobody.
    No,
    /// Everybody.
    Yes,
}
