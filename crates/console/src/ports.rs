//! The ports that the server provides: figures to show, and sessions to run commands in.

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
    /// The field's name.
    pub name: String,
    /// The value as INFO shows it.
    pub text: String,
    /// The value as a number, or `None` if it is not one.
    pub number: Option<f64>,
}

/// A section of INFO.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The section's name.
    pub name: &'static str,
    /// The section's values.
    pub fields: Vec<Field>,
}

/// The reason why a running server serves no clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unready {
    /// The first word of the error that clients get.
    pub word: &'static str,
    /// The reason as text for people.
    pub reason: String,
}

/// The server's figures. Its methods take no lock that a worker takes.
pub trait Figures: Send + Sync {
    /// Returns all metrics.
    fn metrics(&self) -> Vec<Metric>;

    /// Returns the requested sections; names are in lower case. An empty list means the sections of
    /// INFO without arguments.
    fn info(&self, asked: &[String]) -> Vec<Section>;

    /// Asks every worker to show that its event loop runs.
    fn nudge(&self);

    /// Returns the workers that have not run a turn since the last nudge.
    fn stuck(&self) -> Vec<usize>;

    /// Checks whether the server serves clients.
    ///
    /// # Errors
    /// The reason why it does not.
    fn ready(&self) -> Result<(), Unready>;

    /// Returns the lines of the server log after the line with this number, with their numbers.
    fn log_lines(&self, after: u64) -> Vec<(u64, String)>;

    /// Writes a warning to the server log.
    fn warn(&self, _text: &str) {}

    /// Takes the recorded spans.
    fn take_spans(&self) -> Vec<Span> {
        Vec::new()
    }

    /// Returns the number of spans that were dropped.
    fn dropped_spans(&self) -> u64 {
        0
    }
}

/// The result of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The user is admitted.
    Admitted,
    /// The user does not exist, or the password is wrong.
    Refused,
    /// Too many logins from the address failed.
    TooOften,
}

/// A connection inside the process that uses the client protocol. Neither end blocks.
pub trait Link: Send {
    /// Receives bytes that the server sent. Fails with `WouldBlock` if there are none.
    ///
    /// # Errors
    /// If the server has closed the connection.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends as many bytes as fit.
    ///
    /// # Errors
    /// If the server has closed the connection, or nothing fits.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize>;
}

/// The sessions in which commands run.
pub trait Sessions: Send + Sync {
    /// Opens a connection for the client at this address. `notify` is called when there are bytes
    /// to receive.
    ///
    /// # Errors
    /// If there are too many clients.
    fn open(
        &self,
        from: SocketAddr,
        notify: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<Box<dyn Link>>;

    /// Checks whether a user with this password may run the command of this name.
    fn may(&self, user: &[u8], password: &[u8], command: &str, from: SocketAddr) -> Admission;

    /// Returns whether a user may run the command of this name.
    fn allows(&self, user: &[u8], command: &str) -> bool;

    /// Returns whether a new connection needs no password.
    fn is_open(&self) -> bool;

    /// Returns a mark that changes when the user's rules or password change, or `None` if there is
    /// no such user.
    fn mark(&self, user: &[u8]) -> Option<u64>;
}

/// A stream of bytes in both directions.
pub trait Duplex: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Duplex for T {}

/// A future of an accepted connection after its handshake.
pub type Encrypted = Pin<Box<dyn Future<Output = io::Result<Box<dyn Duplex>>> + Send>>;

/// The encryption of accepted connections.
pub trait Encryption: Send + Sync {
    /// Makes the handshake, with the current certificate.
    fn accept(&self, stream: tokio::net::TcpStream) -> Encrypted;
}

/// The reason why a server was not reached.
#[derive(Debug)]
pub enum Unreached {
    /// The server's certificate is not trusted, or there are no authorities to check it. The text
    /// is for the log.
    Untrusted(String),
    /// The connection failed.
    Failed(io::Error),
}

impl From<io::Error> for Unreached {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// A future of a connection to a server after its handshake.
pub type Reached = Pin<Box<dyn Future<Output = Result<Box<dyn Duplex>, Unreached>> + Send>>;

/// The encryption of connections to servers.
pub trait Outgoing: Send + Sync {
    /// Makes the handshake with the server of this name. One of the authorities in a file must have
    /// signed its certificate, or one of the system's authorities if there is no file.
    fn connect(
        &self,
        stream: tokio::net::TcpStream,
        host: &str,
        authorities: Option<&Path>,
    ) -> Reached;
}

/// The encryption of the port.
#[derive(Clone, Default)]
pub struct Encrypting {
    /// The encryption of accepted connections. If present, all are encrypted.
    pub incoming: Option<Arc<dyn Encryption>>,
    /// The encryption of connections to a collector, if it was built in.
    pub outgoing: Option<Arc<dyn Outgoing>>,
}
