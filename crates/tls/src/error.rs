//! Why something could not be set up, and why a handshake failed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why certificates, keys or rules cannot be used.
#[derive(Debug)]
pub enum SetupError {
    /// A file cannot be read.
    File(PathBuf, io::Error),
    /// A file does not hold what it should.
    Content(PathBuf, String),
    /// The options contradict each other, or ask for what there is not.
    Options(String),
}

impl SetupError {
    pub(crate) fn content(path: &Path, what: impl Into<String>) -> Self {
        Self::Content(path.to_path_buf(), what.into())
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "Failed to load {}: {error}", path.display()),
            Self::Content(path, what) => write!(f, "Failed to load {}: {what}", path.display()),
            Self::Options(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for SetupError {}

/// Why a peer was not let in.
#[derive(Debug)]
pub enum HandshakeError {
    /// It speaks, but not TLS.
    Plaintext,
    /// It went away.
    Departed,
    /// It did not finish in time.
    TimedOut,
    /// What it sent of the handshake is more than is kept for those who are not in yet.
    TooMuch,
    /// The two do not agree, or the certificate is not good.
    Tls(rustls::Error),
    /// The socket failed.
    Socket(io::ErrorKind),
    /// The server stops.
    Stopped,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plaintext => f.write_str("it does not speak TLS"),
            Self::Departed => f.write_str("it left during the handshake"),
            Self::TimedOut => f.write_str("the handshake took too long"),
            Self::TooMuch => f.write_str("the handshakes that are not complete hold too much"),
            Self::Tls(error) => write!(f, "{error}"),
            Self::Socket(kind) => write!(f, "{kind}"),
            Self::Stopped => f.write_str("the server stops"),
        }
    }
}

impl std::error::Error for HandshakeError {}

impl From<rustls::Error> for HandshakeError {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error)
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Departed,
            kind => Self::Socket(kind),
        }
    }
}
