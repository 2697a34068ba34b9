//! What a server says to the loop and hears from it: the port that this room defines and the
//! server's worker implements.
//!
//! What a service may rely on
//!  1. `opened` comes first, `closed` (or `handed_over`) comes last, each exactly once per connection, and nothing is
//!     called with an id after its `closed`.
//!  2. `received` is never called for a connection that is paused, closing, of which much is held, or
//!     whose output did not fit into its socket: a peer that does not read is not read from.
//!  3. No call is made from within another call: what [`Io`] is asked for happens after return.
//!  4. Replies of one connection leave in the order in which they were written.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use base::shared_bytes::Attachment;

use crate::connections::ConnectionId;
use crate::detached::Detached;
use crate::io::Io;

/// Output of one connection that is sent without asking [`Service::replies_limit`].
pub const REPLIES_BYTES_UNASKED: usize = 16 * 1024;

/// What a worker does with the bytes of its connections; one per thread, never shared.
pub trait Service {
    /// Where replies are written: one arena per thread.
    type Output: OutputArena;

    /// Decides about a peer that just connected, on the worker that accepted it (which need not be
    /// the one that serves it). Everyone admitted is `opened` and `closed` exactly once, unless the
    /// loop stops in between. Admits everyone unless implemented.
    ///
    /// # Errors
    /// The bytes to send before the connection is closed; such a peer is never `opened`.
    fn admit(&mut self, peer: &PeerInfo) -> Result<(), &'static [u8]> {
        let _ = peer;
        Ok(())
    }

    /// Seconds of silence after which the kernel probes an accepted TCP peer; 0 for never. Asked
    /// for each connection, so that it may change while the server runs.
    fn keepalive_s(&self) -> u32 {
        300
    }

    /// Accepting failed for lack of a resource, descriptors mostly, and is tried again after a
    /// pause: something for the log. Ignored unless implemented.
    fn accept_failed(&mut self, error: &std::io::Error) {
        let _ = error;
    }

    /// The loop woke up and is about to serve what came: the moment to read the clock, once per
    /// turn. Does nothing unless implemented.
    fn turn_started(&mut self) {}

    /// The turn is over: output was sent, connections that ended are gone, and the loop is about to
    /// sleep. Does nothing unless implemented.
    #[inline]
    fn turn_ended(&mut self) {}

    /// A connection was made.
    fn opened(&mut self, io: &mut Io<'_>, id: ConnectionId, peer: &PeerInfo);

    /// Bytes came. `input` starts with whatever was not consumed last time; what is written to
    /// `output` goes to this connection. After a pause, a [`Then::Yield`] or a time in which output
    /// had to wait, `input` may hold nothing new.
    ///
    /// A service that writes much for little input returns [`Then::Yield`] once it wrote
    /// [`FLUSH_BYTES`](crate::FLUSH_BYTES) in one call: the arena grows to what one call writes.
    fn received(
        &mut self,
        io: &mut Io<'_>,
        id: ConnectionId,
        input: &[u8],
        output: &mut Self::Output,
    ) -> Received;

    /// Where the next bytes of a connection go that was told to [`Then::Receive`]: some memory of
    /// the service, never empty. `None` when there is none left, which ends the connection.
    fn room(&mut self, id: ConnectionId) -> Option<&[AtomicU8]> {
        let _ = id;
        None
    }

    /// The first `count` bytes of the last [`room`](Self::room) were received.
    fn filled(&mut self, id: ConnectionId, count: usize) -> Filled {
        let _ = (id, count);
        Filled::Close
    }

    /// A connection is gone; its id is stale from now on.
    fn closed(&mut self, id: ConnectionId, reason: CloseReason);

    /// A connection has left the loop ([`Then::HandOver`]), with all its output sent: `closed` is not called for
    /// it, and its id is stale from now on. Ends it unless implemented.
    fn handed_over(&mut self, id: ConnectionId, connection: Detached) {
        drop(connection);
        self.closed(id, CloseReason::Requested);
    }

    /// The [`Waker`](crate::Waker) of this loop rang since the last turn; may also be called
    /// without cause. What is written to `output` is addressed by [`Io::address`].
    fn woken(&mut self, io: &mut Io<'_>, output: &mut Self::Output);

    /// Called once per turn, after all events and before the flush: for timers, paused sessions,
    /// a cached clock. What is written to `output` is addressed by [`Io::address`].
    fn turn(&mut self, io: &mut Io<'_>, output: &mut Self::Output);

    /// Asked before output is sent: what was gathered since the last time leaves now unless it has to
    /// wait for something. What waits for a ticket leaves in its order once [`Io::release`] lets it, and
    /// whatever is written to its connection later waits behind it; meanwhile the connection is served
    /// on, within bounds. Lets everything leave unless implemented.
    ///
    /// Tickets of one watermark do not fall from one answer to the next; one that does counts as the one before.
    #[inline]
    fn before_flush(&mut self) -> Departure {
        Departure::Now
    }

    /// What the output of one connection waits for, after [`Departure::Each`]; `None` for nothing.
    /// Asked at least once for every connection that output was gathered for.
    fn ticket(&mut self, id: ConnectionId) -> Option<Ticket> {
        let _ = id;
        None
    }

    /// The longest time the loop may sleep; `None` for as long as nothing happens.
    fn next_deadline(&self) -> Option<Duration>;

    /// Asked when output that its socket did not take, or that may not leave yet, grows to
    /// `pending_bytes`; not about a little that only waits for its ticket. Keeps it unless implemented.
    fn output_limit(&mut self, id: ConnectionId, pending_bytes: usize) -> Verdict {
        let _ = (id, pending_bytes);
        Verdict::Keep
    }

    /// Asked before a connection is sent more than [`REPLIES_BYTES_UNASKED`] at once: `bytes` are all that
    /// then waits for its socket, however much of it the socket would take. What may not be sent is
    /// dropped with the connection. Sends it unless implemented.
    fn replies_limit(&mut self, id: ConnectionId, bytes: usize) -> Verdict {
        let _ = (id, bytes);
        Verdict::Keep
    }

    /// Asked when the input kept for an incomplete request grows to `buffered_bytes`. Keeps it
    /// unless implemented.
    fn input_limit(&mut self, id: ConnectionId, buffered_bytes: usize) -> Verdict {
        let _ = (id, buffered_bytes);
        Verdict::Keep
    }
}

/// A growing buffer of replies that keeps its memory between turns.
pub trait OutputArena {
    /// How many bytes it holds, attachments aside.
    fn len(&self) -> usize;

    /// Whether it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes there are to send, attachments included.
    fn len_with_attachments(&self) -> usize {
        self.len()
    }

    /// Takes out what is sent from where it lies, in the order of places (which count bytes of
    /// [`as_slice`](Self::as_slice)). None is at the very start of what a call wrote, nor at its
    /// end.
    fn take_attachments(&mut self) -> Vec<Attachment> {
        Vec::new()
    }

    /// The bytes it holds, oldest first, attachments aside.
    fn as_slice(&self) -> &[u8];

    /// Forgets all bytes and keeps the memory.
    fn clear(&mut self);

    /// Gives back memory beyond about `capacity_bytes`.
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

/// What a service did with the bytes it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// How many bytes from the front of the input are done with (at most all).
    pub consumed: usize,
    /// How many bytes the unconsumed input must have before anything more can be done with it, or
    /// 0 when that is unknown. `received` is not called again before so many are there.
    pub needed: usize,
    /// What happens to the connection now.
    pub then: Then,
}

impl Received {
    /// Everything complete was done; the rest, if any, waits for more bytes.
    #[must_use]
    pub const fn consumed(consumed: usize) -> Self {
        Self {
            consumed,
            needed: 0,
            then: Then::Continue,
        }
    }

    /// The same with what happens next.
    #[must_use]
    pub const fn then(self, then: Then) -> Self {
        Self { then, ..self }
    }

    /// The same with the number of bytes that the unconsumed input must have.
    #[must_use]
    pub const fn needing(self, needed: usize) -> Self {
        Self { needed, ..self }
    }
}

/// What happens to a connection after a call of [`Service::received`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is read from as bytes come.
    Continue,
    /// More complete input is left: `received` is called with it again, after other connections
    /// had their turn and once the output so far was taken.
    Yield,
    /// What comes next is received into the service's own memory ([`Service::room`]) until it says
    /// that it has all ([`Service::filled`]). All input must have been consumed.
    Receive,
    /// Unread input is kept and nothing is read until [`Io::resume`], which makes `received` be
    /// called with the input that is left, if any. A peer that goes away meanwhile is closed.
    Pause,
    /// It is closed once all its output was taken; unconsumed input is dropped.
    CloseAfterFlush,
    /// It is closed without waiting for a slow reader; what its socket takes at once is sent.
    CloseNow,
    /// It leaves the loop once all its output was taken ([`Service::handed_over`]), with unconsumed input.
    HandOver,
}

/// What follows bytes that the service received into its own memory.
#[derive(Debug, PartialEq, Eq)]
pub enum Filled {
    /// More of them.
    More,
    /// Ordinary input, which begins with these bytes as if they had come from the peer. `received`
    /// is called when at least one more is there.
    Input(Vec<u8>),
    /// Nothing: the connection holds too much, and ends.
    Close,
}

/// An answer to the question whether a connection may hold so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Keep,
    /// It may not: it is closed at once.
    Close,
}

/// So many watermarks output may wait for.
pub const WATERMARKS: usize = 5;

/// What output waits for: that one of the service's watermarks reaches a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Which watermark, below [`WATERMARKS`].
    pub watermark: u8,
    /// Which place.
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
    /// A place of the first watermark.
    fn from(at: u64) -> Self {
        Self { watermark: 0, at }
    }
}

/// When gathered output leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Now.
    Now,
    /// All of it once this ticket is [released](Io::release).
    At(Ticket),
    /// As [`Service::ticket`] says for each connection.
    Each,
}

/// What went through the connections of a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Receives that gave something.
    pub receives: u64,
    /// Bytes they gave.
    pub received_bytes: u64,
    /// Sends that took something.
    pub sends: u64,
    /// Bytes they took.
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
    /// The service asked for it.
    Requested,
    /// [`Service::output_limit`] or [`Service::replies_limit`] said so.
    OutputLimit,
    /// [`Service::input_limit`] said so.
    InputLimit,
    /// The loop ended.
    Stopped,
    /// The service takes it out of the loop.
    HandedOver,
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// The peer's address.
    pub peer: Endpoint,
    /// The address it connected to.
    pub local: Endpoint,
    /// Descriptor number, for listings; -1 when there is none.
    pub fd: i32,
    /// Which listener accepted it: index into the listeners of the loop.
    pub listener: Option<usize>,
    /// What was found out while the connection was secured; `None` for one in plain.
    pub security: Option<Arc<Security>>,
}

/// What is known of a secured connection and its peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// The version of the protocol, as `TLSv1.3`.
    pub protocol: &'static str,
    /// The names that the peer proved to have.
    pub names: PeerNames,
}

/// The names in the certificate of a peer; none without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerNames {
    /// The common name.
    pub common_name: Option<String>,
    /// The addresses by which it goes, in their order.
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
