//! Errors of the setup and of handshakes.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why certificates, keys or rules cannot be used.
#[derive(Debug)]
pub enum SetupError {
    /// A file cannot be read.
    File(PathBuf, io::Error),
    /// A file does not hold what it should.
    Content(PathBuf, String),
    /// The options contradict each other, or name something that does not exist.
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

/// The reason why a peer was refused.
#[derive(Debug)]
pub enum HandshakeError {
    /// The peer does not speak TLS.
    Plaintext,
    /// The peer closed the connection.
    Departed,
    /// The peer did not finish in time.
    TimedOut,
    /// The unfinished handshakes exceed their limit of memory or of number.
    TooMuch,
    /// The two sides do not agree, or the certificate is not valid.
    Tls(rustls::Error),
    /// The socket failed.
    Socket(io::ErrorKind),
    /// The server is stopping.
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
