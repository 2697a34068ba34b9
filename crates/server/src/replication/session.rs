//! One link as bytes: messages over a blocking socket, and the proof of both ends that they know
//! the secret.
//!
//! ```text
//!   replica                                 primary
//!      │ ── hello (nonce) ───────────────────► │   at most 512 bytes each, until both have proved themselves:
//!      │ ◄─────────────── hello (nonce) ────── │   nothing else is parsed
//!      │ ── proof over both hellos ──────────► │
//!      │ ◄────────────── proof likewise ────── │   only for a replica whose proof was right
//! ```
//!
//! A proof is an HMAC-SHA-256 with the key derived from the secret, over the prover's role and both
//! complete hellos. So what one end sent cannot be replayed for the other role, another pair of
//! nonces or other versions.
//!
//! If one of the hellos asks for it, a TLS handshake follows the hellos, and the proofs also cover
//! its exporter. A man in the middle has two handshakes, and a valid proof for neither. It cannot
//! hide that a hello asked for TLS, because proofs cover the hellos.
//!
//! A link has a reader thread and a writer thread. Each blocks in the socket with a timeout: the
//! reader can then do what is due, and the writer gives up if the peer accepts nothing for too
//! long.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use access::ProofKey;
use base::random::fill_from_os;
use durability::checkpoint::PART_VERSION;
use replication::TermId;
use replication::link::{
    self, BODY_BYTES_MAX, HEADER_BYTES, HELLO_BYTES_MAX, Header, Hello, LinkError, Message,
};

#[cfg(feature = "tls")]
use super::link_tls::LinkStream;
use super::link_tls::LinkTls;
use crate::config::system_reason;

/// Usage string for deriving the keys of links.
const USAGE: &[u8] = b"iolite link";
const OF_REPLICA: &[u8] = b"iolite link 1 replica";
const OF_PRIMARY: &[u8] = b"iolite link 1 primary";

/// Number of bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Maximum number of pieces in which a hello and a proof are received.
const GREETING_RECEIVES_MAX: u32 = 16;
/// How long to wait for the first bytes of a peer.
pub(crate) const HELLO_TIME: Duration = Duration::from_secs(10);
/// Maximum time that a call of the socket blocks, so that its thread can check other conditions.
const LOOK: Duration = Duration::from_secs(1);

/// A socket or a substitute, shared by both threads of a link.
pub(crate) trait Conduit: Send + Sync {
    /// Reads some bytes; returns 0 at the end. `WouldBlock` or `TimedOut` if none came in time.
    ///
    /// # Errors
    /// Errors of the system.
    fn receive(&self, bytes: &mut [u8]) -> io::Result<usize>;

    /// Writes some bytes, with the same errors as [`Conduit::receive`].
    ///
    /// # Errors
    /// Errors of the system.
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Sets how long a read may take.
    ///
    /// # Errors
    /// Errors of the system.
    fn set_receive_time(&self, time: Duration) -> io::Result<()>;

    /// Ends the connection. Threads that wait in it return.
    fn end(&self);

    /// Returns the same connection after a TLS handshake, with the handshake's exporter.
    ///
    /// # Errors
    /// Why encryption failed.
    fn encrypt(&self, by: &LinkTls, side: Side) -> io::Result<Encrypted> {
        let _ = (by, side);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// An encrypted connection, and the exporter of its handshake.
pub(crate) type Encrypted = (Arc<dyn Conduit>, [u8; 32]);

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Replica,
    Primary,
}

impl Conduit for TcpStream {
    fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut stream = self;
        stream.read(bytes)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = self;
        stream.write(bytes)
    }

    fn set_receive_time(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }

    fn end(&self) {
        let _gone = self.shutdown(Shutdown::Both);
    }

    #[cfg(feature = "tls")]
    fn encrypt(&self, by: &LinkTls, side: Side) -> io::Result<Encrypted> {
        let socket = self.try_clone()?;
        let stream = match side {
            Side::Replica => by.connect(socket, HELLO_TIME),
            Side::Primary => by.accept(socket, HELLO_TIME),
        };
        let stream = stream.map_err(|error| io::Error::other(format!("TLS: {error}")))?;
        let exporter = stream.exporter();
        Ok((Arc::new(stream), exporter))
    }
}

#[cfg(feature = "tls")]
impl Conduit for LinkStream {
    fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        Self::receive(self, bytes)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Self::send(self, bytes)
    }

    fn set_receive_time(&self, time: Duration) -> io::Result<()> {
        self.socket().set_read_timeout(Some(time))
    }

    fn end(&self) {
        Self::end(self);
    }
}

/// Prepares a socket for use as a link.
///
/// # Errors
/// Errors of the system.
pub(crate) fn conduit(stream: TcpStream) -> io::Result<Arc<dyn Conduit>> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(LOOK))?;
    Ok(Arc::new(stream))
}

/// Why a link ended.
#[derive(Debug)]
pub(crate) enum LinkFault {
    /// The peer closed it.
    Closed,
    /// An error of the system.
    Io(io::Error),
    /// The received bytes are no message.
    Malformed(LinkError),
    /// The peer speaks another version.
    Version {
        /// The versioned item.
        what: &'static str,
        /// The peer's version, and this server's.
        theirs: u16,
        ours: u16,
    },
    /// The peer does not know the secret, or no hello came.
    Secret,
    /// One end wants certificates, and the other does not.
    Certificates,
    /// The peer is this node itself.
    Own,
    /// Nothing was accepted or received for too long.
    Silent,
}

impl fmt::Display for LinkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the peer closed the link"),
            Self::Io(error) => f.write_str(&system_reason(error)),
            Self::Malformed(error) => error.fmt(f),
            Self::Version { what, theirs, ours } => {
                write!(f, "the peer speaks version {theirs} of the {what}, and this server {ours}")
            }
            Self::Secret => f.write_str(
                "the peer does not know the secret of links (cluster-secret, or masterauth there and requirepass here)",
            ),
            Self::Certificates => f.write_str(
                "one end shows certificates (tls-replication yes) and the other does not",
            ),
            Self::Own => f.write_str("the peer is this server itself"),
            Self::Silent => f.write_str("nothing was heard of the peer for repl-timeout"),
        }
    }
}

impl From<io::Error> for LinkFault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

impl From<LinkError> for LinkFault {
    fn from(error: LinkError) -> Self {
        Self::Malformed(error)
    }
}

/// Result of a read from the link.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<'b> {
    Message(Message<'b>),
    /// An unknown message that may be ignored.
    Unknown,
    /// No whole message came in time.
    Nothing,
}

/// The reading end.
pub(crate) struct Reader {
    conduit: Arc<dyn Conduit>,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    body_bytes_max: usize,
    /// Remaining number of receives before both ends are authenticated: a peer that sends a hello
    /// byte by byte must not occupy a thread.
    receives_left: u32,
}

impl Reader {
    fn new(conduit: Arc<dyn Conduit>) -> Self {
        Self {
            conduit,
            bytes: vec![0; HEADER_BYTES + HELLO_BYTES_MAX],
            start: 0,
            end: 0,
            body_bytes_max: HELLO_BYTES_MAX,
            receives_left: GREETING_RECEIVES_MAX,
        }
    }

    /// Sets how long [`Reader::next`] waits.
    pub(crate) fn set_time(&self, time: Duration) -> Result<(), LinkFault> {
        Ok(self.conduit.set_receive_time(time)?)
    }

    /// Returns the next message.
    pub(crate) fn next(&mut self) -> Result<Received<'_>, LinkFault> {
        let Some((header, body)) = self.whole()? else {
            return Ok(Received::Nothing);
        };
        let message = header.message(&self.bytes[body])?;
        Ok(message.map_or(Received::Unknown, Received::Message))
    }

    /// Returns the kind of the next message without consuming it, or `None` if it did not come in
    /// time.
    pub(crate) fn peek_kind(&mut self) -> Result<Option<u8>, LinkFault> {
        loop {
            let there = &self.bytes[self.start..self.end];
            if let Some(head) = there.first_chunk::<HEADER_BYTES>() {
                return Ok(Some(Header::decode(head, self.body_bytes_max)?.kind));
            }
            if !self.receive(HEADER_BYTES)? {
                return Ok(None);
            }
        }
    }

    /// Returns the next message's header and the range of its body in the buffer, or `None` if it
    /// did not come in time.
    fn whole(&mut self) -> Result<Option<(Header, Range<usize>)>, LinkFault> {
        loop {
            let there = &self.bytes[self.start..self.end];
            let mut needed = HEADER_BYTES;
            if let Some(head) = there.first_chunk::<HEADER_BYTES>() {
                let header = Header::decode(head, self.body_bytes_max)?;
                needed += header.length;
                if there.len() >= needed {
                    let body = self.start + HEADER_BYTES..self.start + needed;
                    self.start += needed;
                    return Ok(Some((header, body)));
                }
            }
            if !self.receive(needed)? {
                return Ok(None);
            }
        }
    }

    /// Receives more of a message of `needed` bytes. Returns whether anything came.
    fn receive(&mut self, needed: usize) -> Result<bool, LinkFault> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.start + needed > self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            // The length was checked against the present maximum.
            if needed > self.bytes.len() {
                self.bytes.resize(needed, 0);
            }
        }
        let left = self.receives_left.checked_sub(1);
        self.receives_left = left.ok_or(LinkFault::Silent)?;
        match self.conduit.receive(&mut self.bytes[self.end..]) {
            Ok(0) => Err(LinkFault::Closed),
            Ok(count) => {
                self.end += count;
                if self.body_bytes_max == BODY_BYTES_MAX {
                    self.receives_left = u32::MAX;
                }
                Ok(true)
            }
            Err(error) if is_time(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Accepts messages of all lengths from now on.
    fn open_up(&mut self) {
        self.body_bytes_max = BODY_BYTES_MAX;
        self.receives_left = u32::MAX;
        self.bytes.resize(READ_BYTES, 0);
    }
}

fn is_time(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// The writing end.
pub(crate) struct Writer {
    conduit: Arc<dyn Conduit>,
    bytes: Vec<u8>,
}

impl Writer {
    /// Sends a message, and returns when the system has it. `goes_on` is asked each second in which
    /// the peer accepts nothing.
    pub(crate) fn send(
        &mut self,
        message: &Message<'_>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), LinkFault> {
        self.bytes.clear();
        link::encode(message, 0, &mut self.bytes);
        let mut rest = self.bytes.as_slice();
        while !rest.is_empty() {
            match self.conduit.send(rest) {
                Ok(0) => return Err(LinkFault::Closed),
                Ok(count) => rest = &rest[count..],
                Err(error) if is_time(&error) && goes_on() => {}
                Err(error) if is_time(&error) => return Err(LinkFault::Silent),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// A link whose ends have both authenticated themselves.
pub(crate) struct Session {
    pub(crate) conduit: Arc<dyn Conduit>,
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    /// The peer's hello.
    pub(crate) peer: Hello,
    pub(crate) is_encrypted: bool,
}

/// How a node encrypts a link.
#[derive(Clone, Debug)]
pub(crate) struct Encryption {
    /// The keys or certificates.
    pub(crate) tls: Arc<LinkTls>,
    /// Whether this end requires encryption.
    pub(crate) is_wanted: bool,
    /// Whether both ends show certificates.
    pub(crate) by_certificate: bool,
}

/// How this node identifies itself, and the key of its links.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// `None` if TLS is not available, as in tests.
    pub(crate) encryption: Option<Encryption>,
    pub(crate) node: TermId,
    pub(crate) name: Vec<u8>,
    pub(crate) key: ProofKey,
    /// Whether this node, as a replica, is a log-only copy.
    pub(crate) is_log_only: bool,
}

impl Identity {
    /// `secret` is known to both ends; an empty one means none.
    pub(crate) fn new(node: TermId, name: &[u8], secret: &[u8]) -> Self {
        Self {
            node,
            name: name[..name.len().min(link::NODE_NAME_BYTES_MAX)].to_owned(),
            key: ProofKey::derive(secret, USAGE),
            encryption: None,
            is_log_only: false,
        }
    }

    fn features(&self) -> u32 {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let encryption = self.encryption.as_ref();
        let (is_wanted, by_certificate) =
            encryption.map_or((false, false), |it| (it.is_wanted, it.by_certificate));
        bit(is_wanted, link::ENCRYPTS)
            | bit(by_certificate, link::CERTIFIES)
            | bit(self.is_log_only, link::LOG_ONLY)
    }

    fn hello(&self) -> Hello {
        let mut nonce = [0; 32];
        fill_from_os(&mut nonce);
        Hello {
            link_version: link::VERSION,
            log_version: log_version(),
            part_version: PART_VERSION,
            features: self.features(),
            node: self.node,
            nonce,
            name: self.name.clone(),
        }
    }
}

/// Begins a link as its replica, on a connection that the peer accepted.
pub(crate) fn greet(conduit: Arc<dyn Conduit>, own: &Identity) -> Result<Session, LinkFault> {
    let mut link = Greeting::new(conduit);
    let ours = link.say_hello(own)?;
    let (peer, theirs) = link.hear_hello(own)?;
    let channel = link.encrypt(own, &peer, Side::Replica)?;
    link.send(&Message::Proof(
        own.key.prove(&[OF_REPLICA, &ours, &theirs, &channel]),
    ))?;
    let proof = link.hear_proof()?;
    if !own
        .key
        .is_proof(&proof, &[OF_PRIMARY, &ours, &theirs, &channel])
    {
        return Err(LinkFault::Secret);
    }
    link.finish(peer)
}

/// Begins a link as its primary.
pub(crate) fn welcome(conduit: Arc<dyn Conduit>, own: &Identity) -> Result<Session, LinkFault> {
    let mut link = Greeting::new(conduit);
    let (peer, theirs) = link.hear_hello(own)?;
    let ours = link.say_hello(own)?;
    let channel = link.encrypt(own, &peer, Side::Primary)?;
    let proof = link.hear_proof()?;
    if !own
        .key
        .is_proof(&proof, &[OF_REPLICA, &theirs, &ours, &channel])
    {
        return Err(LinkFault::Secret);
    }
    link.send(&Message::Proof(
        own.key.prove(&[OF_PRIMARY, &theirs, &ours, &channel]),
    ))?;
    link.finish(peer)
}

/// A link before both ends are authenticated.
struct Greeting {
    conduit: Arc<dyn Conduit>,
    reader: Reader,
    writer: Writer,
    is_encrypted: bool,
}

impl Greeting {
    fn new(conduit: Arc<dyn Conduit>) -> Self {
        Self {
            reader: Reader::new(Arc::clone(&conduit)),
            writer: Writer {
                conduit: Arc::clone(&conduit),
                bytes: Vec::new(),
            },
            conduit,
            is_encrypted: false,
        }
    }

    fn send(&mut self, message: &Message<'_>) -> Result<(), LinkFault> {
        self.writer.send(message, &|| false)
    }

    /// Sends this node's hello, and returns its bytes.
    fn say_hello(&mut self, own: &Identity) -> Result<Vec<u8>, LinkFault> {
        self.send(&Message::Hello(own.hello()))?;
        Ok(self.writer.bytes.clone())
    }

    /// Receives the peer's hello, and returns it with its bytes.
    fn hear_hello(&mut self, own: &Identity) -> Result<(Hello, Vec<u8>), LinkFault> {
        self.reader.set_time(HELLO_TIME)?;
        let (header, body) = self.reader.whole()?.ok_or(LinkFault::Silent)?;
        let said = self.reader.bytes[body.start - HEADER_BYTES..body.end].to_vec();
        let Some(Message::Hello(peer)) = header.message(&said[HEADER_BYTES..])? else {
            return Err(LinkFault::Secret);
        };
        check_link_version(&peer)?;
        if peer.node == own.node {
            return Err(LinkFault::Own);
        }
        Ok((peer, said))
    }

    /// Encrypts what follows, if one end wants that. Returns the exporter, or nothing.
    fn encrypt(&mut self, own: &Identity, peer: &Hello, side: Side) -> Result<Vec<u8>, LinkFault> {
        let both = own.features() | peer.features;
        if (own.features() ^ peer.features) & link::CERTIFIES != 0 {
            return Err(LinkFault::Certificates);
        }
        if both & link::ENCRYPTS == 0 {
            return Ok(Vec::new());
        }
        // Bytes after the hello would be taken for encrypted ones.
        if self.reader.start != self.reader.end {
            return Err(LinkFault::Secret);
        }
        let tls = own.encryption.as_ref().map(|encryption| &encryption.tls);
        let tls = tls.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        let (conduit, exporter) = self.conduit.encrypt(tls, side)?;
        self.conduit = Arc::clone(&conduit);
        self.reader.conduit = Arc::clone(&conduit);
        self.writer.conduit = conduit;
        self.is_encrypted = true;
        Ok(exporter.to_vec())
    }

    fn hear_proof(&mut self) -> Result<[u8; 32], LinkFault> {
        match self.reader.next() {
            Ok(Received::Message(Message::Proof(proof))) => Ok(proof),
            Ok(Received::Nothing) => Err(LinkFault::Silent),
            // A peer that rejects this node's proof closes without an answer.
            Ok(_) | Err(LinkFault::Closed) => Err(LinkFault::Secret),
            Err(fault) => Err(fault),
        }
    }

    fn finish(mut self, peer: Hello) -> Result<Session, LinkFault> {
        self.reader.open_up();
        self.reader.set_time(LOOK)?;
        Ok(Session {
            conduit: self.conduit,
            reader: self.reader,
            writer: self.writer,
            is_encrypted: self.is_encrypted,
            peer,
        })
    }
}

/// The version of the log that this build writes.
fn log_version() -> u16 {
    u16::try_from(durability::log::VERSION).unwrap_or(u16::MAX)
}

/// Checks the version of the link. Both ends speak the older end's version, so a newer peer need
/// not be refused.
fn check_link_version(peer: &Hello) -> Result<(), LinkFault> {
    let (theirs, ours) = (peer.link_version, link::VERSION);
    if theirs >= link::VERSION_MIN {
        return Ok(());
    }
    let what = "link";
    Err(LinkFault::Version { what, theirs, ours })
}

/// Checks the versions of the log and checkpoints. The receiver must be able to read what the
/// sender writes: a replica is as new as its primary, or newer.
pub(crate) fn check_data_versions(peer: &Hello, side: Side) -> Result<(), LinkFault> {
    for (what, theirs, ours) in [
        ("log", peer.log_version, log_version()),
        ("parts of checkpoints", peer.part_version, PART_VERSION),
    ] {
        let (reads, writes) = match side {
            Side::Replica => (ours, theirs),
            Side::Primary => (theirs, ours),
        };
        if reads < writes {
            return Err(LinkFault::Version { what, theirs, ours });
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
#[path = "session/tests.rs"]
mod tests;
