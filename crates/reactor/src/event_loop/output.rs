//! Output: from the arena to sockets.
//!
//! Each range of the turn's output is sent with one call. What a socket does not accept is copied
//! to the connection's pending buffer. From then on the connection is not read from (for an
//! exception see `insistent`), and everything written to it is added behind the pending bytes,
//! until the socket accepted them all. A range with attachments always goes through the pending
//! buffer: its own bytes are few compared to theirs.
//!
//! Before anything is sent, the loop asks the service what the output has to wait for. A connection
//! that has to wait gets a pending buffer with a held part, so that later output is added there
//! instead of sent.

use std::io;
use std::mem;
use std::sync::Arc;

use base::shared_bytes::Attachment;

use super::{EventLoop, FLUSH_BYTES};
use crate::connections::{ConnectionId, Phase};
use crate::loop_state::LoopState;
use crate::outbox::RangeBuffer;
use crate::pending::Pending;
use crate::service::{
    CloseReason, Departure, OutputArena as _, REPLIES_BYTES_UNASKED, Service, Verdict,
};

/// Minimum size at which the rest of shared bytes is referenced rather than copied.
const ATTACHED_BYTES_MIN: usize = 1024;

/// The service is asked about output that only waits for its ticket if there is more than this:
/// such replies are as frequent as their requests.
const HELD_BYTES_UNTOLD: usize = 4 * 1024;

/// Approximate maximum memory that the arena keeps between turns.
const ARENA_KEPT_BYTES: usize = 2 * FLUSH_BYTES;

impl<S: Service> EventLoop<S> {
    /// Flushes if enough output has accumulated.
    #[inline]
    pub(super) fn flush_if_full(&mut self) {
        let output_bytes = self.output.len_with_attachments() + self.state.outbox.aside.len();
        if output_bytes >= FLUSH_BYTES {
            self.flush();
        }
    }

    /// Sends the output of all connections.
    pub(super) fn flush(&mut self) {
        if self.state.outbox.ranges.is_empty() {
            return;
        }
        let departure = self.service.before_flush();
        if departure != Departure::Now {
            self.hold(departure);
        }
        let mut outbox = mem::take(&mut self.state.outbox);
        let mut attachments = self.output.take_attachments().into_iter().peekable();
        let (mut arena, mut aside) = (self.output.as_slice(), outbox.aside.as_slice());
        let (mut arena_sent, mut aside_sent) = (0, 0);
        for range in &outbox.ranges {
            let (rest, sent) = match range.place {
                RangeBuffer::Arena => (&mut arena, &mut arena_sent),
                RangeBuffer::Other => (&mut aside, &mut aside_sent),
                RangeBuffer::Shared => {
                    if let (Some(id), Some(bytes)) = (range.id, outbox.shared.get(range.end)) {
                        send_shared(&mut self.state, &mut self.service, id, bytes);
                    }
                    continue;
                }
            };
            let (start, bytes);
            (bytes, *rest) = rest.split_at(range.end - *sent);
            (start, *sent) = (*sent, range.end);
            let attached =
                |one: &Attachment| range.place == RangeBuffer::Arena && one.place < range.end;
            if attachments.peek().is_some_and(attached) {
                let attached = std::iter::from_fn(|| {
                    let attachment = attachments.next_if(attached)?;
                    let place = attachment.place - start;
                    Some(Attachment {
                        place,
                        ..attachment
                    })
                });
                send_attached(
                    &mut self.state,
                    &mut self.service,
                    range.id,
                    bytes,
                    attached,
                );
            } else if let Some(id) = range.id {
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

    /// Makes the output that is about to be flushed wait behind the held output of its connections.
    #[cold]
    fn hold(&mut self, departure: Departure) {
        let outbox = mem::take(&mut self.state.outbox);
        for range in &outbox.ranges {
            let Some(id) = range.id else {
                continue;
            };
            let ticket = match departure {
                Departure::Now => None,
                Departure::At(ticket) => Some(ticket),
                Departure::Each => self.service.ticket(id),
            };
            if let Some(ticket) = ticket {
                self.state.hold(id, ticket);
            }
        }
        self.state.outbox = outbox;
    }
}

/// Sends a range, as far as the socket accepts it, and keeps the rest.
#[inline]
fn send<S: Service>(state: &mut LoopState, service: &mut S, id: ConnectionId, bytes: &[u8]) {
    send_or_keep(state, service, id, bytes, |pending, sent| {
        pending.append(&bytes[sent..]);
    });
}

/// Sends bytes that other connections get, too, as far as the socket accepts them. Does not copy
/// the rest if it is long.
fn send_shared<S: Service>(
    state: &mut LoopState,
    service: &mut S,
    id: ConnectionId,
    bytes: &Arc<[u8]>,
) {
    send_or_keep(state, service, id, bytes, |pending, sent| {
        if bytes.len() - sent < ATTACHED_BYTES_MIN {
            pending.append(&bytes[sent..]);
        } else {
            pending.attach(Box::new(Arc::clone(bytes)), sent);
        }
    });
}

/// Sends bytes as far as the socket accepts them. `keep` adds the rest, from the given position on,
/// to the pending output.
#[inline]
fn send_or_keep<S: Service>(
    state: &mut LoopState,
    service: &mut S,
    id: ConnectionId,
    bytes: &[u8],
    keep: impl FnOnce(&mut Pending, usize),
) {
    let Some(connection) = state.connections.get_mut(id) else {
        return;
    };
    if connection.is_silent() {
        return;
    }
    if bytes.len() > REPLIES_BYTES_UNASKED {
        let all_bytes = connection.pending_bytes() + bytes.len();
        if service.replies_limit(id, all_bytes) == Verdict::Close {
            return state.doom(id, CloseReason::OutputLimit);
        }
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
    keep(pending, sent);
    let pending_bytes = pending.len();
    let is_little = pending.sendable_bytes() == 0 && pending_bytes <= HELD_BYTES_UNTOLD;
    state.watch(id);
    if !is_little && service.output_limit(id, pending_bytes) == Verdict::Close {
        state.doom(id, CloseReason::OutputLimit);
    }
}

/// Sends a range with attachments, as far as the socket accepts it, and keeps the rest.
#[cold]
fn send_attached<S: Service>(
    state: &mut LoopState,
    service: &mut S,
    id: Option<ConnectionId>,
    bytes: &[u8],
    attachments: impl Iterator<Item = Attachment>,
) {
    let connection = id.and_then(|id| Some((id, state.connections.get_mut(id)?)));
    let Some((id, connection)) = connection else {
        // There is no connection to send them to; the attachments of the next range follow.
        return attachments.for_each(drop);
    };
    if connection.is_silent() {
        return attachments.for_each(drop);
    }
    let waited = connection.pending.is_some();
    let pending = connection.pending.get_or_insert_default();
    pending.append_with(bytes, attachments);
    let all_bytes = pending.len();
    if all_bytes > REPLIES_BYTES_UNASKED && service.replies_limit(id, all_bytes) == Verdict::Close {
        return state.doom(id, CloseReason::OutputLimit);
    }
    if !waited {
        state.send_from_pending(id);
    }
    let Some(connection) = state.connections.get_mut(id) else {
        return;
    };
    let pending_bytes = connection.pending_bytes();
    if pending_bytes == 0 {
        connection.pending = None;
    } else if !matches!(connection.phase, Phase::Doomed(_)) {
        state.watch(id);
        if service.output_limit(id, pending_bytes) == Verdict::Close {
            state.doom(id, CloseReason::OutputLimit);
        }
    }
}

pub(crate) fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
