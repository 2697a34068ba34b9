//! From the arena to sockets.
//!
//! Each range of the turn's output is sent with one call. What a socket does not take is copied to
//! the connection's pending buffer; from then on the connection is not read from, and everything
//! written to it goes behind the pending bytes, until the socket took them all.

use std::io;
use std::mem;

use super::{EventLoop, FLUSH_BYTES};
use crate::connections::{ConnectionId, Phase};
use crate::loop_state::LoopState;
use crate::outbox::Place;
use crate::service::{CloseReason, OutputArena as _, Service, Verdict};

/// The arena keeps at most this much memory between turns, give or take.
const ARENA_KEPT_BYTES: usize = 2 * FLUSH_BYTES;

impl<S: Service> EventLoop<S> {
    /// Flushes when enough has gathered.
    #[inline]
    pub(super) fn flush_if_full(&mut self) {
        if self.output.len() + self.state.outbox.aside.len() >= FLUSH_BYTES {
            self.flush();
        }
    }

    /// Sends the output of all connections.
    pub(super) fn flush(&mut self) {
        if self.state.outbox.ranges.is_empty() {
            return;
        }
        let mut outbox = mem::take(&mut self.state.outbox);
        let (mut arena, mut aside) = (self.output.as_slice(), outbox.aside.as_slice());
        let (mut arena_sent, mut aside_sent) = (0, 0);
        for range in &outbox.ranges {
            let (rest, sent) = match range.place {
                Place::Arena => (&mut arena, &mut arena_sent),
                Place::Aside => (&mut aside, &mut aside_sent),
            };
            let bytes;
            (bytes, *rest) = rest.split_at(range.end - *sent);
            *sent = range.end;
            if let Some(id) = range.id {
                send(&mut self.state, &mut self.service, id, bytes);
            }
        }
        let arena_bytes = self.output.len();
        self.output.clear();
        if arena_bytes > ARENA_KEPT_BYTES {
            self.output.shrink_to(ARENA_KEPT_BYTES);
        }
        outbox.clear(ARENA_KEPT_BYTES);
        self.state.outbox = outbox;
    }

    /// Sends what waited for a socket that has room now; once all is sent, the connection goes on.
    pub(super) fn send_pending(&mut self, id: ConnectionId) {
        let Some(connection) = self.state.connections.get_mut(id) else {
            return;
        };
        let Some(pending) = &mut connection.pending else {
            return;
        };
        match connection.carrier.send(pending.as_slice()) {
            Ok(sent) => {
                self.state.traffic.count_send(sent);
                pending.consume(sent);
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => {
                let reason = CloseReason::Failed(error.kind());
                return self.state.doom(id, reason);
            }
        }
        if connection.pending_bytes() > 0 {
            return;
        }
        connection.pending = None;
        if connection.phase == Phase::Open {
            self.state.watch(id);
            self.state.enqueue(id);
        } else {
            self.state.ending.push(id);
        }
    }
}

/// Sends a range or as much as the socket takes, and keeps the rest.
#[inline]
fn send<S: Service>(state: &mut LoopState, service: &mut S, id: ConnectionId, bytes: &[u8]) {
    let Some(connection) = state.connections.get_mut(id) else {
        return;
    };
    if connection.phase == Phase::Lingering {
        return;
    }
    let mut sent = 0;
    if connection.pending.is_none() {
        match connection.carrier.send(bytes) {
            Ok(count) => {
                state.traffic.count_send(count);
                if count == bytes.len() {
                    return;
                }
                sent = count;
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => return state.doom(id, CloseReason::Failed(error.kind())),
        }
    }
    if matches!(connection.phase, Phase::Doomed(_)) {
        return;
    }
    let pending = connection.pending.get_or_insert_default();
    pending.append(&bytes[sent..]);
    let pending_bytes = pending.len();
    state.watch(id);
    if service.output_limit(id, pending_bytes) == Verdict::Close {
        state.doom(id, CloseReason::OutputLimit);
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
