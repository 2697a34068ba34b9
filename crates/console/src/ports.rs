//! What the server gives the console: figures to tell, and sessions to run commands in.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use base::metrics::Metric;
use base::spans::Span;

/// One value of INFO.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// As INFO shows it.
    pub text: String,
    /// As a number, where it is one.
    pub number: Option<f64>,
}

/// A section of INFO.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub fields: Vec<Field>,
}

/// Why a server that runs serves nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unready {
    /// The first word of the error that clients get.
    pub word: &'static str,
    /// For people.
    pub reason: String,
}

/// What the server tells of itself. Takes no lock that a worker takes.
pub trait Figures: Send + Sync {
    /// All metrics.
    fn metrics(&self) -> Vec<Metric>;

    /// The sections asked for, in lower case; none means those of INFO without arguments.
    fn info(&self, asked: &[String]) -> Vec<Section>;

    /// Has every worker show that it turns.
    fn nudge(&self);

    /// Workers that have not turned since the last nudge.
    fn stuck(&self) -> Vec<usize>;

    /// Whether it serves clients.
    ///
    /// # Errors
    /// Why it does not.
    fn ready(&self) -> Result<(), Unready>;

    /// Lines of the server log that were written since the one of this number, with their numbers.
    fn log_lines(&self, after: u64) -> Vec<(u64, String)>;

    /// Writes a warning into the server log.
    fn warn(&self, _text: &str) {}

    /// Takes away what is to be told of what took how long.
    fn take_spans(&self) -> Vec<Span> {
        Vec::new()
    }

    /// How many of these were not kept.
    fn dropped_spans(&self) -> u64 {
        0
    }
}

/// What became of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The user may come in.
    Admitted,
    /// There is no such user, or the password is another one.
    Refused,
    /// The address failed too often.
    TooOften,
}

/// A connection inside the process, in the protocol of clients. Neither end waits.
pub trait Link: Send {
    /// Takes bytes that the server sent; nothing was sent where that would block.
    ///
    /// # Errors
    /// When the server has closed it.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends bytes, or as many as there is room for.
    ///
    /// # Errors
    /// When the server has closed it, or there is no room.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize>;
}

/// Where commands run.
pub trait Sessions: Send + Sync {
    /// Opens a connection for who is at this address; `notify` is called when bytes are there.
    ///
    /// # Errors
    /// When there are too many clients.
    fn open(
        &self,
        from: SocketAddr,
        notify: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<Box<dyn Link>>;

    /// Whether a user with this password may run the command of this name.
    fn may(&self, user: &[u8], password: &[u8], command: &str, from: SocketAddr) -> Admission;

    /// Whether a user may run the command of this name.
    fn allows(&self, user: &[u8], command: &str) -> bool;

    /// Whether who connects needs no password.
    fn is_open(&self) -> bool;

    /// What changes when the user does: another rule, another password; nothing for who is none.
    fn mark(&self, user: &[u8]) -> Option<u64>;
}

/// Bytes both ways.
pub trait Duplex: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection once its handshake is made.
pub type Encrypted = Pin<Box<dyn Future<Output = io::Result<Box<dyn Duplex>>> + Send>>;

/// What makes encrypted connections of those that come.
pub trait Encryption: Send + Sync {
    /// Makes the handshake, with the certificate of this moment.
    fn accept(&self, stream: tokio::net::TcpStream) -> Encrypted;
}

/// Why a server was not reached.
#[derive(Debug)]
pub enum Unreached {
    /// Its certificate is not trusted, or there is nothing to judge it by; for the log.
    Untrusted(String),
    /// The connection failed.
    Failed(io::Error),
}

impl From<io::Error> for Unreached {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// A connection to a server, once its handshake is made.
pub type Reached = Pin<Box<dyn Future<Output = Result<Box<dyn Duplex>, Unreached>> + Send>>;

/// What makes encrypted connections to servers.
pub trait Outgoing: Send + Sync {
    /// Makes the handshake with the server of this name, whose certificate one of the authorities in a file has signed;
    /// the system's without.
    fn connect(
        &self,
        stream: tokio::net::TcpStream,
        host: &str,
        authorities: Option<&Path>,
    ) -> Reached;
}

/// What encrypts.
#[derive(Clone, Default)]
pub struct Encrypting {
    /// Connections that come; with it all are encrypted.
    pub incoming: Option<Arc<dyn Encryption>>,
    /// Connections to a collector, where that was built in.
    pub outgoing: Option<Arc<dyn Outgoing>>,
}
