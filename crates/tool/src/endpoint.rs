//! A server: its address, its credentials, and a connection for requests.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use protocol::{Value, decode_value, encode_request};
use rustix::net::{RecvFlags, SendFlags};

use crate::error::BenchError;
use crate::framing::ReplyEnd;
use crate::tls::{TlsClient, TlsStream};

/// Timeout for connecting, and for a reply.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than any wait.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// A host name or IP address, and a port.
    Tcp(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

/// A server and its credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its name in a comparison, for people.
    pub name: String,
    /// Its address.
    pub address: Address,
    /// User and password; a password alone is that of the default user.
    pub credentials: Option<(Option<String>, String)>,
    /// The number of the database.
    pub database: u32,
    /// Whether connections speak RESP3.
    pub is_resp3: bool,
    /// The server's process, if the user named it.
    pub pid: Option<u32>,
    /// How connections are encrypted, or `None` if they are not.
    pub tls: Option<TlsClient>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Endpoint {
    /// Creates a server without a password, at `address`.
    #[must_use]
    pub fn new(name: &str, address: Address) -> Self {
        Self {
            name: name.to_owned(),
            address,
            credentials: None,
            database: 0,
            is_resp3: false,
            pid: None,
            tls: None,
        }
    }

    /// Opens a connection, authenticates, and sets RESP3 and the database as requested.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub fn connect(&self) -> Result<Session, BenchError> {
        let link = match &self.address {
            Address::Tcp(host, port) => {
                connect_tcp(host, *port).and_then(|stream| match &self.tls {
                    None => Ok(Link::Tcp(stream)),
                    Some(tls) => {
                        let is_local = is_local(&stream);
                        let stream = tls.connect(stream.into(), host, ANSWER_TIMEOUT)?;
                        Ok(Link::Tls(Box::new(stream), is_local))
                    }
                })
            }
            Address::Unix(path) => connect_unix(path).and_then(|stream| match &self.tls {
                None => Ok(Link::Unix(stream)),
                Some(tls) => {
                    let stream = tls.connect(stream.into(), "localhost", ANSWER_TIMEOUT)?;
                    Ok(Link::Tls(Box::new(stream), true))
                }
            }),
        };
        let mut session = Session {
            address: self.address.clone(),
            link: link.map_err(|error| BenchError::Connection(self.address.clone(), error))?,
            input: Vec::new(),
            end: ReplyEnd::default(),
        };
        session.enter(self)?;
        Ok(session)
    }

    /// Returns the error for a connection that failed with `error`.
    pub(crate) fn lost(&self, error: io::Error) -> BenchError {
        BenchError::Connection(self.address.clone(), error)
    }

    /// Returns the server's process: the one that the user named, or the one the server reports, if
    /// it runs here.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn find_pid(&self) -> Result<Option<u32>, BenchError> {
        if self.pid.is_some() {
            return Ok(self.pid);
        }
        let mut session = self.connect()?;
        if !session.is_local() {
            return Ok(None);
        }
        let info = session.info("server")?;
        Ok(info_field(&info, "process_id").and_then(|text| text.parse().ok()))
    }
}

/// Returns a field of INFO's reply.
#[must_use]
pub(crate) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .filter_map(|line| line.split_once(':'))
        .find_map(|(key, value)| (key == name).then(|| value.trim_end()))
}

/// Returns the databases in INFO's reply, with their numbers of keys.
pub(crate) fn databases(info: &str) -> impl Iterator<Item = (u32, u64)> {
    info.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        let keys = value.strip_prefix("keys=")?.split(',').next()?;
        Some((name.strip_prefix("db")?.parse().ok()?, keys.parse().ok()?))
    })
}

fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, ANSWER_TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_unix(path: &PathBuf) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(stream)
}

#[derive(Debug)]
enum Link {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// With whether the server runs on this machine.
    Tls(Box<TlsStream>, bool),
}

/// A non-blocking connection.
#[derive(Debug)]
pub(crate) enum Socket {
    Plain(OwnedFd),
    Tls(Box<TlsStream>),
}

impl Socket {
    /// Moves received bytes into `out`.
    #[inline]
    pub(crate) fn recv(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => Ok(rustix::net::recv(&*socket, out, RecvFlags::empty())?.0),
            Self::Tls(stream) => stream.recv(out),
        }
    }

    /// Sends bytes from the front of `bytes`.
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => Ok(rustix::net::send(&*socket, bytes, SendFlags::NOSIGNAL)?),
            Self::Tls(stream) => stream.send(bytes),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            Self::Tls(stream) => stream.as_fd(),
        }
    }
}

/// A connection that is ready for requests, each of which waits for its reply.
#[derive(Debug)]
pub struct Session {
    address: Address,
    link: Link,
    input: Vec<u8>,
    /// How far the reply at the front of `input` was scanned.
    end: ReplyEnd,
}

impl Session {
    fn enter(&mut self, endpoint: &Endpoint) -> Result<(), BenchError> {
        if let Some((user, password)) = &endpoint.credentials {
            match user {
                Some(user) => self.demand("AUTH", &["AUTH", user, password])?,
                None => self.demand("AUTH", &["AUTH", password])?,
            };
        }
        if endpoint.is_resp3 {
            self.demand("HELLO 3", &["HELLO", "3"])?;
        }
        if endpoint.database != 0 {
            self.demand("SELECT", &["SELECT", &endpoint.database.to_string()])?;
        }
        Ok(())
    }

    /// Sends a request, and waits for the reply.
    ///
    /// # Errors
    /// The connection ended, or the reply is malformed.
    pub fn ask(&mut self, words: &[&str]) -> Result<Value, BenchError> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.request(&words)
    }

    /// Like [`ask`](Self::ask), with arbitrary bytes.
    ///
    /// # Errors
    /// The connection ended, or the reply is malformed.
    pub fn request(&mut self, words: &[&[u8]]) -> Result<Value, BenchError> {
        let mut request = Vec::new();
        encode_request(&mut request, words);
        self.send(&request)?;
        self.reply()
    }

    /// Sends requests.
    ///
    /// # Errors
    /// The connection ended.
    pub fn send(&mut self, requests: &[u8]) -> Result<(), BenchError> {
        let sent = self.link.write_all(requests);
        sent.map_err(|error| BenchError::Connection(self.address.clone(), error))
    }

    /// Waits for the next reply or message.
    ///
    /// # Errors
    /// The connection ended, or the bytes are malformed.
    pub fn reply(&mut self) -> Result<Value, BenchError> {
        let received = self.receive();
        received.map_err(|error| BenchError::Connection(self.address.clone(), error))
    }

    /// Waits for bytes that are not a reply, and reads those available; 0 at the end of the
    /// connection.
    ///
    /// # Errors
    /// The connection failed.
    pub(crate) fn read_bytes(&mut self, out: &mut [u8]) -> Result<usize, BenchError> {
        if !self.input.is_empty() {
            let count = self.input.len().min(out.len());
            out[..count].copy_from_slice(&self.input[..count]);
            self.input.drain(..count);
            self.end = ReplyEnd::default();
            return Ok(count);
        }
        loop {
            match self.link.read(out) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(BenchError::Connection(self.address.clone(), error)),
                Ok(count) => return Ok(count),
            }
        }
    }

    /// Sets how long to wait for a reply; `None` waits for ever.
    ///
    /// # Errors
    /// The system refused.
    pub fn set_patience(&mut self, patience: Option<Duration>) -> Result<(), BenchError> {
        let set = match &mut self.link {
            Link::Tcp(stream) => stream.set_read_timeout(patience),
            Link::Unix(stream) => stream.set_read_timeout(patience),
            Link::Tls(stream, _) => {
                stream.set_patience(patience.unwrap_or(FOR_EVER));
                Ok(())
            }
        };
        set.map_err(|error| BenchError::Connection(self.address.clone(), error))
    }

    /// Sends a request that must not get an error; `request` names it in the message.
    ///
    /// # Errors
    /// As [`ask`](Self::ask), or the reply is an error.
    pub fn demand(&mut self, request: &'static str, words: &[&str]) -> Result<Value, BenchError> {
        match self.ask(words)? {
            Value::Error(text) => Err(BenchError::Refused {
                request: request.to_owned(),
                reply: String::from_utf8_lossy(&text).into_owned(),
            }),
            value => Ok(value),
        }
    }

    /// Returns a section of INFO; empty if the server does not have it.
    ///
    /// # Errors
    /// The connection ended.
    pub fn info(&mut self, section: &str) -> Result<String, BenchError> {
        Ok(match self.ask(&["INFO", section])? {
            Value::Bulk(text) | Value::Verbatim { text, .. } => {
                String::from_utf8_lossy(&text).into_owned()
            }
            _ => String::new(),
        })
    }

    /// Returns the databases that have keys, with their numbers of keys. A missing permission is an
    /// error, not an empty result.
    ///
    /// # Errors
    /// The connection ended, or the server refused.
    pub(crate) fn keyspace(&mut self) -> Result<Vec<(u32, u64)>, BenchError> {
        let info = match self.demand("INFO keyspace", &["INFO", "keyspace"])? {
            Value::Bulk(text) | Value::Verbatim { text, .. } => text,
            _ => Vec::new(),
        };
        Ok(databases(&String::from_utf8_lossy(&info)).collect())
    }

    /// Returns the number of keys in the database.
    ///
    /// # Errors
    /// The connection ended, or the server refused.
    pub fn keys_count(&mut self) -> Result<i64, BenchError> {
        match self.demand("DBSIZE", &["DBSIZE"])? {
            Value::Integer(count) => Ok(count),
            _ => Ok(0),
        }
    }

    /// Whether the server runs on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match &self.link {
            Link::Unix(_) => true,
            Link::Tcp(stream) => is_local(stream),
            Link::Tls(_, is_local) => *is_local,
        }
    }

    /// Returns the bare connection in non-blocking mode.
    ///
    /// # Errors
    /// The system refused.
    pub(crate) fn into_nonblocking(self) -> io::Result<Socket> {
        match self.link {
            Link::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                Ok(Socket::Plain(stream.into()))
            }
            Link::Unix(stream) => {
                stream.set_nonblocking(true)?;
                Ok(Socket::Plain(stream.into()))
            }
            Link::Tls(stream, _) => Ok(Socket::Tls(stream)),
        }
    }

    fn receive(&mut self) -> io::Result<Value> {
        let mut piece = [0; 64 * 1024];
        loop {
            // Only complete replies are decoded, and every byte is scanned once: replies may be
            // long.
            if self.end.find(&self.input).is_some() {
                let decoded = decode_value(&self.input);
                let decoded = decoded.map_err(|error| io::Error::other(error.to_string()))?;
                self.end = ReplyEnd::default();
                if let Some((value, used)) = decoded {
                    self.input.drain(..used);
                    return Ok(value);
                }
            }
            match self.link.read(&mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.input.extend_from_slice(&piece[..count]),
                // A process that is stopped and continued gets this from a wait with a timeout.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether the peer is on this machine.
fn is_local(stream: &TcpStream) -> bool {
    let ends = stream.peer_addr().ok().zip(stream.local_addr().ok());
    ends.is_some_and(|(peer, own)| is_loopback(peer.ip()) || peer.ip() == own.ip())
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

impl Link {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(out),
            Self::Unix(stream) => stream.read(out),
            Self::Tls(stream, _) => stream.read(out),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Unix(stream) => stream.write_all(bytes),
            Self::Tls(stream, _) => stream.write_all(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_info_are_found_by_whole_name() {
        let info = "# Server\r\nredis_version:7.2.4\r\nprocess_id:42\r\ntcp_port:1\r\n";
        assert_eq!(info_field(info, "process_id"), Some("42"));
        assert_eq!(info_field(info, "process"), None);
    }

    #[test]
    fn addresses_show_as_they_are_written() {
        assert_eq!(Address::Tcp("::1".to_owned(), 7).to_string(), "::1:7");
        assert_eq!(Address::Unix("/tmp/s".into()).to_string(), "/tmp/s");
    }
}
