//! The interface between a server and the loop. This room defines it, and the server's worker
//! implements it.
//!
//! Guarantees for a service
//!  1. `opened` is the first call, `closed` (or `handed_over`) the last, each exactly once per
//!     connection. No call uses an id after its `closed`.
//!  2. `received` is never called for a connection that is paused, is closing, has much held
//!     output, or has output that did not fit into its socket: a peer that does not read is not
//!     read from.
//!  3. No call is made from within another call: requests to [`Io`] are performed after the call
//!     returns.
//!  4. Replies of one connection are sent in the order in which they were written.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use base::shared_bytes::Attachment;

use crate::connections::ConnectionId;
use crate::detached::Detached;
use crate::io::Io;

/// Maximum output of one connection that is sent without asking [`Service::replies_limit`].
pub const REPLIES_BYTES_UNASKED: usize = 16 * 1024;

/// Processes the bytes of a worker's connections. One per thread, never shared.
pub trait Service {
    /// The arena that replies are written to: one per thread.
    type Output: OutputArena;

    /// Decides about a peer that just connected, on the worker that accepted it (not necessarily
    /// the one that serves it). Every admitted peer is `opened` and `closed` exactly once, unless
    /// the loop stops in between. The default admits every peer.
    ///
    /// # Errors
    /// The bytes to send before the connection is closed. Such a peer is never `opened`.
    fn admit(&mut self, peer: &PeerInfo) -> Result<(), &'static [u8]> {
        let _ = peer;
        Ok(())
    }

    /// Returns the seconds of silence after which the kernel probes an accepted TCP peer; 0 for
    /// never. Called for each connection, so that it may change while the server runs.
    fn keepalive_s(&self) -> u32 {
        300
    }

    /// Reports that accepting failed for lack of a resource, usually descriptors, and will be
    /// retried after a pause. For the server's log. The default ignores it.
    fn accept_failed(&mut self, error: &std::io::Error) {
        let _ = error;
    }

    /// Called after the loop woke up and before it serves events: the moment to read the clock,
    /// once per turn. The default does nothing.
    fn turn_started(&mut self) {}

    /// Called at the end of the turn: output was sent, ended connections are gone, and the loop is
    /// about to sleep. The default does nothing.
    #[inline]
    fn turn_ended(&mut self) {}

    /// Called when a connection was opened.
    fn opened(&mut self, io: &mut Io<'_>, id: ConnectionId, peer: &PeerInfo);

    /// Called when bytes were received. `input` starts with the bytes that were not consumed last
    /// time. Output written to `output` goes to this connection. After a pause, a [`Then::Yield`]
    /// or a time in which output had to wait, `input` may contain nothing new.
    ///
    /// A service that writes much for little input returns [`Then::Yield`] after it wrote
    /// [`FLUSH_BYTES`](crate::FLUSH_BYTES) in one call: the arena grows to what one call writes.
    fn received(
        &mut self,
        io: &mut Io<'_>,
        id: ConnectionId,
        input: &[u8],
        output: &mut Self::Output,
    ) -> Received;

    /// Returns where the next bytes of a connection that returned [`Then::Receive`] go: memory of
    /// the service, never empty. Returns `None` if there is none left, which ends the connection.
    fn room(&mut self, id: ConnectionId) -> Option<&[AtomicU8]> {
        let _ = id;
        None
    }

    /// Called when the first `count` bytes of the last [`room`](Self::room) were received.
    fn filled(&mut self, id: ConnectionId, count: usize) -> Filled {
        let _ = (id, count);
        Filled::Close
    }

    /// Called when a connection is gone. Its id is stale from now on.
    fn closed(&mut self, id: ConnectionId, reason: CloseReason);

    /// Called when a connection has left the loop ([`Then::HandOver`]) and all its output was sent.
    /// `closed` is not called for it, and its id is stale from now on. The default ends it.
    fn handed_over(&mut self, id: ConnectionId, connection: Detached) {
        drop(connection);
        self.closed(id, CloseReason::Requested);
    }

    /// Called after the [`Waker`](crate::Waker) of this loop rang, and possibly without cause.
    /// [`Io::address`] addresses what is written to `output`.
    fn woken(&mut self, io: &mut Io<'_>, output: &mut Self::Output);

    /// Called once per turn, after all events and before the flush: for timers, paused sessions, a
    /// cached clock. [`Io::address`] addresses what is written to `output`.
    fn turn(&mut self, io: &mut Io<'_>, output: &mut Self::Output);

    /// Called before output is sent. The output collected since the last call is sent now unless it
    /// has to wait. Output that waits for a ticket is sent in order after [`Io::release`] permits
    /// it. Later output of its connection waits behind it. Meanwhile the connection is still
    /// served, within bounds. The default sends everything.
    ///
    /// Tickets of one watermark do not descend from one answer to the next. A lower ticket counts
    /// as the one before.
    #[inline]
    fn before_flush(&mut self) -> Departure {
        Departure::Now
    }

    /// Returns what the output of one connection waits for, after [`Departure::Each`], or `None`
    /// for nothing. Called at least once for every connection with collected output.
    fn ticket(&mut self, id: ConnectionId) -> Option<Ticket> {
        let _ = id;
        None
    }

    /// Returns the maximum time that the loop may sleep, or `None` if there is no limit.
    fn next_deadline(&self) -> Option<Duration>;

    /// Called when output that its socket did not accept, or that must not be sent yet, grows to
    /// `pending_bytes`. Not called for a small amount that only waits for its ticket. The default
    /// keeps it.
    fn output_limit(&mut self, id: ConnectionId, pending_bytes: usize) -> Verdict {
        let _ = (id, pending_bytes);
        Verdict::Keep
    }

    /// Called before a connection is sent more than [`REPLIES_BYTES_UNASKED`] at once. `bytes` is
    /// everything that then waits for its socket, however much of it the socket would accept. If it
    /// must not be sent, it is dropped with the connection. The default sends it.
    fn replies_limit(&mut self, id: ConnectionId, bytes: usize) -> Verdict {
        let _ = (id, bytes);
        Verdict::Keep
    }

    /// Called when the input kept for an incomplete request grows to `buffered_bytes`. The default
    /// keeps it.
    fn input_limit(&mut self, id: ConnectionId, buffered_bytes: usize) -> Verdict {
        let _ = (id, buffered_bytes);
        Verdict::Keep
    }
}

/// A growing buffer of replies that keeps its memory between turns.
pub trait OutputArena {
    /// Returns the number of its bytes, without attachments.
    fn len(&self) -> usize;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes to send, including attachments.
    fn len_with_attachments(&self) -> usize {
        self.len()
    }

    /// Takes the attachments, which are sent without being copied, in the order of their places
    /// (which count bytes of [`as_slice`](Self::as_slice)). None is at the very start or at the end
    /// of what a call wrote.
    fn take_attachments(&mut self) -> Vec<Attachment> {
        Vec::new()
    }

    /// Returns its bytes, oldest first, without attachments.
    fn as_slice(&self) -> &[u8];

    /// Removes all bytes and keeps the memory.
    fn clear(&mut self);

    /// Frees memory beyond about `capacity_bytes`.
    fn shrink_to(&mut self, capacity_bytes: usize);
}

impl OutputArena for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }

    fn as_slice(&self) -> &[u8] {
        self
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn shrink_to(&mut self, capacity_bytes: usize) {
        self.shrink_to(capacity_bytes);
    }
}

/// A service's answer to received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Number of bytes at the front of the input that are consumed (at most all).
    pub consumed: usize,
    /// Length that the unconsumed input must have before the service can process more of it, or 0
    /// if that is unknown. `received` is not called again before that.
    pub needed: usize,
    /// What happens to the connection next.
    pub then: Then,
}

impl Received {
    /// Creates an answer: everything complete was processed; the rest, if any, waits for more
    /// bytes.
    #[must_use]
    pub const fn consumed(consumed: usize) -> Self {
        Self {
            consumed,
            needed: 0,
            then: Then::Continue,
        }
    }

    /// Sets what happens next.
    #[must_use]
    pub const fn then(self, then: Then) -> Self {
        Self { then, ..self }
    }

    /// Sets the length that the unconsumed input must have.
    #[must_use]
    pub const fn needing(self, needed: usize) -> Self {
        Self { needed, ..self }
    }
}

/// What happens to a connection after a call of [`Service::received`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The loop reads from it when bytes come.
    Continue,
    /// More complete input is left: `received` is called with it again, after other connections
    /// were served and the output so far was sent.
    Yield,
    /// The next bytes are received into the service's own memory ([`Service::room`]) until the
    /// service says that it has all ([`Service::filled`]). All input must have been consumed.
    Receive,
    /// Unread input is kept and nothing is read until [`Io::resume`], after which `received` is
    /// called with the input that is left, if any. If the peer disconnects meanwhile, the
    /// connection is closed.
    Pause,
    /// The connection is closed after all its output was sent. Unconsumed input is dropped.
    CloseAfterFlush,
    /// The connection is closed without waiting for a slow reader. What its socket accepts at once
    /// is sent.
    CloseNow,
    /// The connection leaves the loop after all its output was sent ([`Service::handed_over`]),
    /// with its unconsumed input.
    HandOver,
}

/// What follows the bytes that the service received into its own memory.
#[derive(Debug, PartialEq, Eq)]
pub enum Filled {
    /// More bytes into the service's memory.
    More,
    /// Ordinary input, which begins with these bytes as if the peer had sent them. `received` is
    /// called when at least one more byte is there.
    Input(Vec<u8>),
    /// Nothing: the connection exceeds a limit, and ends.
    Close,
}

/// Whether a connection may keep this many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The connection may keep them.
    Keep,
    /// The connection may not, and is closed at once.
    Close,
}

/// Number of watermarks that output can wait for.
pub const WATERMARKS: usize = 5;

/// The condition that output waits for: one of the service's watermarks reaches a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Index of the watermark, below [`WATERMARKS`].
    pub watermark: u8,
    /// The position.
    pub at: u64,
}

impl Ticket {
    /// Whether the watermarks have reached it.
    pub(crate) fn is_released(self, up_to: &[u64; WATERMARKS]) -> bool {
        let mark = up_to.get(usize::from(self.watermark));
        mark.is_some_and(|mark| self.at <= *mark)
    }
}

impl From<u64> for Ticket {
    /// Converts a position of the first watermark.
    fn from(at: u64) -> Self {
        Self { watermark: 0, at }
    }
}

/// When collected output is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Now.
    Now,
    /// All of it after this ticket is [released](Io::release).
    At(Ticket),
    /// As [`Service::ticket`] returns for each connection.
    Each,
}

/// Counters of the traffic of a loop's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of receives that returned bytes.
    pub receives: u64,
    /// Number of received bytes.
    pub received_bytes: u64,
    /// Number of sends that accepted bytes.
    pub sends: u64,
    /// Number of sent bytes.
    pub sent_bytes: u64,
}

impl Traffic {
    #[inline]
    pub(crate) fn count_receive(&mut self, bytes: usize) {
        self.receives += 1;
        self.received_bytes += bytes as u64;
    }

    #[inline]
    pub(crate) fn count_send(&mut self, bytes: usize) {
        self.sends += 1;
        self.sent_bytes += bytes as u64;
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer closed its side, and everything it had sent was served.
    PeerClosed,
    /// The transport failed.
    Failed(std::io::ErrorKind),
    /// The service requested it.
    Requested,
    /// [`Service::output_limit`] or [`Service::replies_limit`] requested it.
    OutputLimit,
    /// [`Service::input_limit`] requested it.
    InputLimit,
    /// The loop ended.
    Stopped,
    /// The service took it out of the loop.
    HandedOver,
}

/// Information about the two ends of a connection.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// The peer's address.
    pub peer: Endpoint,
    /// The address it connected to.
    pub local: Endpoint,
    /// Descriptor number, for listings; -1 if there is none.
    pub fd: i32,
    /// Index of the listener that accepted it, among the listeners of the loop.
    pub listener: Option<usize>,
    /// Result of the TLS handshake, or `None` for a plain connection.
    pub security: Option<Arc<Security>>,
}

/// Properties of an encrypted connection and its peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// Version of the protocol, for example `TLSv1.3`.
    pub protocol: &'static str,
    /// The names that the peer's certificate proves.
    pub names: PeerNames,
}

/// The names in the certificate of a peer; empty without a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerNames {
    /// The common name.
    pub common_name: Option<String>,
    /// The URIs of the certificate, in their order.
    pub uris: Vec<String>,
}

/// An end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// An IPv4 or IPv6 address with a port.
    Tcp(SocketAddr),
    /// A Unix socket: the path that the listener is bound to.
    Unix(Arc<PathBuf>),
    /// The same process.
    InProcess,
}
