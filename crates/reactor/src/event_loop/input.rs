//! Input: from sockets to the service.
//!
//! ```text
//!   thread's buffer:   | kept input, copied here | bytes just received |  room  |
//! ```
//!
//! The connection keeps what the service does not consume, in a buffer of that size or in a spare
//! one. The loop copies it back to the front of the thread's buffer before it receives more. If the
//! kept input is half of the thread's buffer, or more is needed than fits there, the loop receives
//! into the connection's own buffer instead. That buffer at most doubles with the received bytes,
//! whatever length a peer claims. A service that knows where long input will be stored lends its
//! own memory for it ([`Then::Receive`]).

use std::io;
use std::mem;

use super::{EventLoop, READ_BUFFER_BYTES};
use crate::connections::{Connection, ConnectionId, Phase};
use crate::io::Io;
use crate::service::{CloseReason, Filled, OutputArena as _, Service, Then, Verdict};

/// Maximum number of consecutive receives from one connection before other connections are served.
const ROUNDS_MAX: usize = 16;
/// Rounds after the first begin within this time after the delivery of the first. A buffer of long
/// requests that take long may contain too few for the service to check the time itself.
const ROUNDS_NS_MAX: u64 = 500_000;
/// From this size on, the loop receives directly behind kept input.
const OWN_BUFFER_BYTES: usize = READ_BUFFER_BYTES / 2;

/// Whether another receive may find more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    Again,
    Over,
}

impl<S: Service> EventLoop<S> {
    /// Receives and serves until the socket is empty, the service wants no more, or other
    /// connections should be served.
    #[inline]
    pub(super) fn receive(&mut self, id: ConnectionId) {
        let mut buffer = mem::take(&mut self.buffer);
        if self.receive_once(id, &mut buffer) == Round::Again {
            self.receive_more(id, &mut buffer);
        }
        self.buffer = buffer;
    }

    /// Runs the rounds after the first. Most connections have only the first.
    #[cold]
    fn receive_more(&mut self, id: ConnectionId, buffer: &mut [u8]) {
        let began_ns = self.rounds_began_ns.take().unwrap_or_default();
        for _ in 1..ROUNDS_MAX {
            let took_ns = self.clock.monotonic_ns().saturating_sub(began_ns);
            if took_ns >= ROUNDS_NS_MAX || self.receive_once(id, buffer) == Round::Over {
                break;
            }
        }
        self.rounds_began_ns = None;
        self.state.enqueue_held(id);
    }

    /// Receives what the transport holds, which no event reports.
    #[inline]
    pub(super) fn receive_held(&mut self, id: ConnectionId) {
        if let Some(connection) = self.state.connections.get_mut(id)
            && connection.carrier.holds_input()
        {
            self.receive(id);
        }
    }

    /// Records the time if a buffer was full and there may be more. Called before the buffer is
    /// delivered.
    #[cold]
    fn begin_rounds(&mut self) {
        if self.rounds_began_ns.is_none() {
            self.rounds_began_ns = Some(self.clock.monotonic_ns());
        }
    }

    #[inline(always)]
    fn receive_once(&mut self, id: ConnectionId, buffer: &mut [u8]) -> Round {
        match self.state.connections.get_mut(id) {
            Some(connection) if connection.may_receive() && !connection.queued => {
                if connection.has_nothing_kept() {
                    self.receive_fresh(id, buffer)
                } else if connection.lent_room {
                    self.receive_lent(id, buffer)
                } else if connection.receives_into_its_own() {
                    self.receive_own(id)
                } else {
                    self.receive_shared(id, buffer)
                }
            }
            _ => Round::Over,
        }
    }

    /// Receives into the thread's buffer for a connection without kept input, which is nearly
    /// always the case.
    #[inline(always)]
    fn receive_fresh(&mut self, id: ConnectionId, buffer: &mut [u8]) -> Round {
        let Some(connection) = self.state.connections.get_mut(id) else {
            return Round::Over;
        };
        let received = connection.carrier.recv(buffer);
        let holds_more = connection.carrier.holds_input();
        let Some(filled) = self.check_received(id, &received) else {
            return after_nothing(&received);
        };
        let is_full = filled == buffer.len() || holds_more;
        if is_full {
            self.begin_rounds();
        }
        let consumed = self.deliver(id, &buffer[..filled]);
        if consumed < filled {
            self.keep(id, &buffer[consumed..filled], consumed);
        }
        if is_full { Round::Again } else { Round::Over }
    }

    /// Copies the kept input to the thread's buffer and receives behind it.
    fn receive_shared(&mut self, id: ConnectionId, buffer: &mut [u8]) -> Round {
        let Some(connection) = self.state.connections.get_mut(id) else {
            return Round::Over;
        };
        let kept = connection.input.len();
        buffer[..kept].copy_from_slice(&connection.input);
        let received = connection.carrier.recv(&mut buffer[kept..]);
        let holds_more = connection.carrier.holds_input();
        let Some(count) = self.check_received(id, &received) else {
            return after_nothing(&received);
        };
        let filled = kept + count;
        let is_full = filled == buffer.len() || holds_more;
        if is_full {
            self.begin_rounds();
        }
        let consumed = if self.is_enough(id, filled) {
            self.deliver(id, &buffer[..filled])
        } else {
            0
        };
        self.keep(id, &buffer[consumed..filled], consumed);
        if is_full { Round::Again } else { Round::Over }
    }

    /// Receives behind the kept input in the connection's own buffer.
    fn receive_own(&mut self, id: ConnectionId) -> Round {
        let Some(connection) = self.state.connections.get_mut(id) else {
            return Round::Over;
        };
        connection.make_room();
        let received = connection.carrier.recv_spare(&mut connection.input);
        let filled = connection.input.len() == connection.input.capacity()
            || connection.carrier.holds_input();
        if self.check_received(id, &received).is_none() {
            return after_nothing(&received);
        }
        if filled {
            self.begin_rounds();
        }
        self.receive_kept(id);
        if filled { Round::Again } else { Round::Over }
    }

    /// Receives into the service's memory.
    fn receive_lent(&mut self, id: ConnectionId, buffer: &mut [u8]) -> Round {
        let Some(connection) = self.state.connections.get_mut(id) else {
            return Round::Over;
        };
        let Some(room) = self.service.room(id) else {
            self.state.doom(id, CloseReason::InputLimit);
            return Round::Over;
        };
        let room_bytes = room.len();
        let received = connection.carrier.recv_shared(room, buffer);
        let holds_more = connection.carrier.holds_input();
        let Some(count) = self.check_received(id, &received) else {
            return after_nothing(&received);
        };
        match self.service.filled(id, count) {
            Filled::More if count < room_bytes && !holds_more => return Round::Over,
            Filled::More => self.begin_rounds(),
            Filled::Input(input) => {
                if let Some(connection) = self.state.connections.get_mut(id) {
                    connection.lent_room = false;
                    connection.needed = input.len() + 1;
                    connection.input = input;
                }
                self.begin_rounds();
            }
            Filled::Close => {
                self.state.doom(id, CloseReason::InputLimit);
                return Round::Over;
            }
        }
        Round::Again
    }

    /// Serves the kept input of the connection, if that is allowed and the input is long enough.
    pub(super) fn receive_kept(&mut self, id: ConnectionId) {
        let input = match self.state.connections.get_mut(id) {
            Some(connection) if connection.may_receive() && !connection.input.is_empty() => {
                mem::take(&mut connection.input)
            }
            _ => return,
        };
        let consumed = if self.is_enough(id, input.len()) {
            self.deliver(id, &input)
        } else {
            0
        };
        if consumed < input.len() {
            self.put_back(id, input, consumed);
        } else {
            self.spares.give(input);
            if let Some(connection) = self.state.connections.get_mut(id) {
                connection.needed = 0;
            }
        }
    }

    /// Returns the number of bytes received, if there are any. Otherwise handles the reason.
    #[inline(always)]
    fn check_received(&mut self, id: ConnectionId, received: &io::Result<usize>) -> Option<usize> {
        match received {
            Ok(0) => {
                // A peer that closed only its sending side still gets its replies.
                let phase = Phase::Draining(CloseReason::PeerClosed);
                self.state.close(id, phase);
                None
            }
            Ok(count) => {
                self.state.traffic.count_receive(*count);
                Some(*count)
            }
            Err(error) => {
                let kind = error.kind();
                if !matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
                    self.state.doom(id, CloseReason::Failed(kind));
                }
                None
            }
        }
    }

    /// Whether this much input is enough for the service.
    #[inline]
    fn is_enough(&self, id: ConnectionId, input_bytes: usize) -> bool {
        let connection = self.state.connections.get(id);
        connection.is_some_and(|connection| connection.needed <= input_bytes)
    }

    /// Passes input to the service and follows its answer. Returns the number of consumed bytes.
    #[inline]
    fn deliver(&mut self, id: ConnectionId, input: &[u8]) -> usize {
        let mut io = Io::new(&mut self.state);
        let received = self.service.received(&mut io, id, input, &mut self.output);
        self.state.outbox.address(Some(id), self.output.len());
        if received.consumed < input.len()
            && let Some(connection) = self.state.connections.get_mut(id)
        {
            connection.needed = received.needed;
        }
        match received.then {
            Then::Continue => {}
            Then::Yield => self.state.enqueue(id),
            Then::Receive => self.lend_room(id, received.consumed == input.len()),
            Then::Pause => self.state.pause(id),
            Then::CloseAfterFlush => {
                let phase = Phase::Draining(CloseReason::Requested);
                self.state.close(id, phase);
            }
            Then::CloseNow => self.state.doom(id, CloseReason::Requested),
            Then::HandOver => {
                let phase = Phase::Draining(CloseReason::HandedOver);
                self.state.close(id, phase);
            }
        }
        self.flush_if_full();
        received.consumed.min(input.len())
    }

    #[cold]
    fn lend_room(&mut self, id: ConnectionId, consumed_all: bool) {
        debug_assert!(
            consumed_all,
            "input is left that comes before what is received apart"
        );
        if let Some(connection) = self.state.connections.get_mut(id) {
            connection.lent_room = true;
        }
    }

    /// Keeps `rest`, which is in the thread's buffer, of an input of which `consumed` bytes are
    /// consumed.
    #[cold]
    fn keep(&mut self, id: ConnectionId, rest: &[u8], consumed: usize) {
        let Some(connection) = self.state.connections.get_mut(id) else {
            return;
        };
        if rest.is_empty() {
            self.spares.give(mem::take(&mut connection.input));
            connection.needed = 0;
            return;
        }
        if consumed == 0 {
            // The front of the rest is already kept.
            let new = &rest[connection.input.len()..];
            connection.input.reserve_exact(new.len());
            connection.input.extend_from_slice(new);
        } else {
            self.spares.give(mem::take(&mut connection.input));
            connection.input = self.spares.copy_of(rest);
        }
        self.check_kept(id);
    }

    /// Keeps all but the first `consumed` bytes of what was the connection's own buffer.
    fn put_back(&mut self, id: ConnectionId, mut input: Vec<u8>, consumed: usize) {
        let Some(connection) = self.state.connections.get_mut(id) else {
            return;
        };
        let rest = input.len() - consumed;
        if consumed > 0 && rest <= input.capacity() / 2 {
            let shorter = self.spares.copy_of(&input[consumed..]);
            self.spares.give(mem::replace(&mut input, shorter));
        } else {
            input.drain(..consumed);
        }
        connection.input = input;
        self.check_kept(id);
    }

    fn check_kept(&mut self, id: ConnectionId) {
        let kept = self.state.connections.get(id);
        let kept = kept.map_or(0, |connection| connection.input.len());
        if self.service.input_limit(id, kept) == Verdict::Close {
            self.state.doom(id, CloseReason::InputLimit);
        }
    }
}

/// Returns whether to retry after a receive that returned no bytes.
fn after_nothing(received: &io::Result<usize>) -> Round {
    match received {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Round::Again,
        _ => Round::Over,
    }
}

impl Connection {
    /// Whether input can be served from where it is received. Then `needed` is not set either: it
    /// is a length of which some bytes are kept.
    #[inline]
    fn has_nothing_kept(&self) -> bool {
        self.input.is_empty() && !self.lent_room
    }

    fn receives_into_its_own(&self) -> bool {
        let kept = self.input.len();
        kept >= OWN_BUFFER_BYTES || (kept > 0 && self.needed > READ_BUFFER_BYTES)
    }

    /// Makes space behind the kept input: as much as is needed, but at most as much as was already
    /// received (or one thread's buffer).
    fn make_room(&mut self) {
        let kept = self.input.len();
        if kept < self.input.capacity() {
            return;
        }
        let wanted = match self.needed.checked_sub(kept) {
            None | Some(0) => READ_BUFFER_BYTES,
            Some(missing) => missing,
        };
        self.input
            .reserve_exact(wanted.min(kept.max(READ_BUFFER_BYTES)));
    }
}
