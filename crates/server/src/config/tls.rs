//! Settings of encrypted connections.

use std::path::PathBuf;

/// The listeners for encrypted connections, and the rules of their handshakes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// TCP port, on the addresses of `bind`; 0 means none.
    pub port: u16,
    /// TCP port for clients that speak the memcached protocol; 0 means none.
    pub memcached_port: u16,
    /// Path of the Unix socket for encrypted connections, or `None` without one.
    pub unix_socket: Option<PathBuf>,
    /// Seconds between checks of the files; 0 means that they are read only when a directive
    /// changes.
    pub reload_interval_s: u32,
    /// Field of a client's certificate that names its user.
    pub user_field: UserField,
    /// What handshakes use.
    pub rules: TlsRules,
}

/// What the server presents to new connections and requires from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsRules {
    /// The server's certificate, followed by those of its signers.
    pub certificate_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
    /// Password of the key.
    pub key_password: Option<Vec<u8>>,
    /// Authorities that sign certificates of clients.
    pub authorities_file: Option<PathBuf>,
    /// A directory with more authorities.
    pub authorities_directory: Option<PathBuf>,
    /// Whether clients have to show a certificate.
    pub client_certificate: ClientCertificate,
    /// Versions of the protocol; empty for all.
    pub protocols: String,
    /// Ciphers of TLS 1.2; empty for all.
    pub ciphers: String,
    /// Ciphers of TLS 1.3; empty for all.
    pub cipher_suites: String,
    /// Whether the server's order of ciphers takes precedence.
    pub prefers_own_order: bool,
    /// Whether sessions can be resumed.
    pub caches_sessions: bool,
    /// Maximum number of cached sessions; 0 means the default.
    pub sessions_max: u32,
    /// Lifetime of a cached session, in seconds.
    pub sessions_lifetime_s: u32,
}

/// Whether clients have to show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificate {
    /// None is requested.
    No,
    /// A valid one is required.
    Required,
    /// None is required, but one that is shown must be valid.
    Optional,
}

/// Field of a client's certificate that names its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserField {
    /// None.
    Off,
    /// The common name of its subject.
    CommonName,
    /// The first URI among its alternative names that is the name of a user.
    Uri,
}

impl Tls {
    /// Whether any listener accepts encrypted connections.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.port != 0 || self.memcached_port != 0 || self.unix_socket.is_some()
    }
}
