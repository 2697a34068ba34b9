//! Output that waits for a ticket before it may be sent, for example until a log is durable.
//!
//! ```text
//!   before_flush: At(7) ──► hold: a part of Pending, and (7, connection) in LoopState::held
//!                                        │
//!   any thread ── Waker ──► Service::woken ── Io::release(8) ──► sent, as far as the socket takes it
//! ```
//!
//! There are several watermarks, and each has its own tickets: some replies wait for the disk,
//! others for a majority.
//!
//! Nothing here waits, and nothing here calls the service, so the service may release from within
//! its own calls.

use crate::connections::{ConnectionId, Phase};
use crate::event_loop::is_passing;
use crate::loop_state::LoopState;
use crate::service::{CloseReason, Ticket, WATERMARKS};

impl LoopState {
    /// Makes everything that is written to a connection from now on wait for a ticket.
    pub(crate) fn hold(&mut self, id: ConnectionId, ticket: Ticket) {
        let Some(held) = self.held.get_mut(usize::from(ticket.watermark)) else {
            return;
        };
        let last = held.back().map_or(0, |&(last, _)| last);
        let at = ticket.at.max(last);
        let ticket = Ticket { at, ..ticket };
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if connection.phase == Phase::Lingering {
            return;
        }
        if connection.pending.get_or_insert_default().hold(ticket) {
            held.push_back((at, id));
        }
    }

    /// Sends the output whose tickets the watermarks have reached.
    pub(crate) fn release(&mut self, up_to: &[u64; WATERMARKS]) {
        for (watermark, mark) in up_to.iter().enumerate() {
            while let Some((_, id)) = self.held[watermark].pop_front_if(|(at, _)| *at <= *mark) {
                self.release_one(id, up_to);
            }
        }
    }

    /// Sends the output of one connection whose tickets the watermarks have reached.
    pub(crate) fn release_one(&mut self, id: ConnectionId, up_to: &[u64; WATERMARKS]) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let may_receive = connection.may_receive();
        let released = connection
            .pending
            .as_mut()
            .is_some_and(|pending| pending.release(up_to));
        if released {
            self.send_pending_of(id, may_receive);
        }
    }

    /// Returns the connections with held output, each once, in the order of tickets.
    pub(crate) fn held_ids(&self) -> Vec<ConnectionId> {
        let mut ids = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for &(_, id) in self.held.iter().flatten() {
            let connection = self.connections.get(id);
            let pending = connection.and_then(|connection| connection.pending.as_ref());
            if pending.is_some_and(|pending| pending.is_held()) && seen.insert(id) {
                ids.push(id);
            }
        }
        ids
    }

    /// Replaces the held output of a connection by `line`, and ends the connection.
    pub(crate) fn refuse_held(&mut self, id: ConnectionId, line: &[u8]) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let Some(pending) = connection.pending.as_mut().filter(|one| one.is_held()) else {
            return;
        };
        pending.drop_held();
        pending.append(line);
        self.close(id, Phase::Draining(CloseReason::Requested));
        self.send_pending(id);
    }

    /// Sends what waits for a socket that has space now. After everything is sent, the connection
    /// resumes.
    pub(crate) fn send_pending(&mut self, id: ConnectionId) {
        self.send_pending_of(id, false);
    }

    /// Sends what waits only for the socket. The connection resumes with its kept input if it could
    /// not be served before, and now can.
    fn send_pending_of(&mut self, id: ConnectionId, could_receive: bool) {
        self.send_from_pending(id);
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if connection.pending_bytes() == 0 {
            connection.pending = None;
        }
        let is_done = connection.pending.is_none();
        let is_open = connection.phase == Phase::Open;
        let goes_on = connection.may_receive() && !could_receive;
        if is_open {
            self.watch(id);
            if goes_on {
                self.enqueue_kept(id);
            }
        } else if is_done {
            self.ending.push(id);
        } else {
            self.watch(id);
        }
    }

    /// Sends once from the front of what waits only for the socket.
    pub(crate) fn send_from_pending(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let Some(pending) = &mut connection.pending else {
            return;
        };
        if pending.sendable_bytes() == 0 {
            return;
        }
        let carrier = &mut connection.carrier;
        match pending.with_pieces(|pieces| carrier.send_pieces(pieces)) {
            Ok(sent) => {
                self.traffic.count_send(sent);
                pending.consume(sent);
                connection.has_taken |= sent > 0;
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => self.doom(id, CloseReason::Failed(error.kind())),
        }
    }
}
