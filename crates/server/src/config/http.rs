//! Settings of the management port.

use std::path::PathBuf;

/// The management port. All of it is off while the port is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// TCP port; 0 means none.
    pub port: u16,
    /// Addresses to listen on.
    pub bind: Vec<String>,
    /// Whether connections are encrypted, with the certificate of `tls-cert-file`.
    pub is_encrypted: bool,
    /// Which readers of metrics have to authenticate.
    pub metrics_auth: MetricsAuth,
    /// File with the token that permits reading metrics.
    pub metrics_token_file: Option<PathBuf>,
    /// Host names that requests may be sent to, besides addresses and this machine's name.
    pub allowed_hosts: Vec<String>,
    /// Whether the page and its API are served.
    pub has_console: bool,
    /// Whether programs can run commands over HTTP.
    pub has_commands: bool,
    /// Seconds that a login lasts.
    pub session_ttl_s: u64,
    /// Where metrics are sent; empty for nowhere.
    pub otlp_endpoint: String,
    /// Seconds between two exports of metrics.
    pub otlp_interval_s: u64,
    /// File with the headers of these exports.
    pub otlp_headers_file: Option<PathBuf>,
    /// File with the authorities that sign the collector's certificate; the system's authorities if
    /// absent.
    pub otlp_authorities_file: Option<PathBuf>,
}

/// Values of `http-metrics-auth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsAuth {
    /// Readers on other machines.
    Auto,
    /// No reader.
    No,
    /// Every reader.
    Yes,
}
