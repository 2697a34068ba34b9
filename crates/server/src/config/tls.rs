//! What the directives say about encrypted connections.

use std::path::PathBuf;

/// Where encrypted connections come in, and by which rules. Every field but the places is what the
/// handshakes read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// TCP port, on the addresses of `bind`; 0 means none.
    pub port: u16,
    /// TCP port for clients that speak the memcached protocol; 0 means none.
    pub memcached_port: u16,
    /// Path of the Unix socket for encrypted connections, when there is one.
    pub unix_socket: Option<PathBuf>,
    /// Seconds between looks at the files; 0 means that they are read when a directive changes only.
    pub reload_interval_s: u32,
    /// Which name in a client's certificate is its user's.
    pub user_field: UserField,
    /// What handshakes read.
    pub rules: TlsRules,
}

/// What new connections show and ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsRules {
    /// The server's certificate, followed by those of who signed it.
    pub certificate_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
    /// What protects the key.
    pub key_password: Option<Vec<u8>>,
    /// Who signs certificates of clients.
    pub authorities_file: Option<PathBuf>,
    /// A directory with more of them.
    pub authorities_directory: Option<PathBuf>,
    /// What is asked of clients.
    pub client_certificate: ClientCertificate,
    /// Versions of the protocol; empty for all.
    pub protocols: String,
    /// Ciphers of TLS 1.2; empty for all.
    pub ciphers: String,
    /// Ciphers of TLS 1.3; empty for all.
    pub cipher_suites: String,
    /// Whether the server's order of ciphers counts.
    pub prefers_own_order: bool,
    /// Whether sessions go on.
    pub caches_sessions: bool,
    /// How many sessions are kept; 0 for the usual number.
    pub sessions_max: u32,
    /// For how many seconds.
    pub sessions_lifetime_s: u32,
}

/// Whether clients have to show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificate {
    /// None is asked for.
    No,
    /// A good one is.
    Required,
    /// If there is one, it is good.
    Optional,
}

/// Which name in a client's certificate is its user's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserField {
    /// None.
    Off,
    /// The common name of its subject.
    CommonName,
    /// The first address among its alternative names that is a user's name.
    Uri,
}

impl Tls {
    /// Whether encrypted connections come in anywhere.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.port != 0 || self.memcached_port != 0 || self.unix_socket.is_some()
    }
}
