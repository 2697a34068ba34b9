//! Clients of the memcached port. Their input becomes commands, which run as those of any client,
//! and the replies become memcached text.
//!
//! Input is consumed once all its replies are written. Until then the loop keeps it, and passes it
//! again when a client that waited continues.

use std::sync::Arc;

use access::User;
use engine::{Next, Outcome};
use reactor::{ConnectionId, Received, Then};

use super::memcached_client::MemcachedClient;
use super::running::Runs;
use super::{Arena, Worker};
use crate::counters::bump;

pub(super) const TOO_MANY_CLIENTS: &[u8] = b"SERVER_ERROR max number of clients reached\r\n";
pub(super) const PROTECTED: &[u8] =
    b"SERVER_ERROR protected mode: the default user has no password (see protected-mode)\r\n";

impl Worker {
    /// Returns the user of clients of the memcached port that have not logged in, if one is
    /// configured.
    pub(super) fn memcached_user(&self) -> Option<Arc<User>> {
        let name = &self.config.config().memcached.user;
        let users = &self.node.core.shared.access.users;
        let user = users.find(name).filter(|_| !name.is_empty())?;
        user.rules().is_on().then_some(user)
    }

    /// As [`received`](reactor::Service::received), for a client of the memcached port.
    #[cold]
    pub(super) fn received_memcached(
        &mut self,
        id: ConnectionId,
        input: &[u8],
        output: &mut Arena,
    ) -> Received {
        let gone = Received::consumed(input.len()).then(Then::CloseNow);
        let Some(connected) = self.sessions.get_mut(id) else {
            return gone;
        };
        let Some(mut client) = connected.memcached.take() else {
            return gone;
        };
        let mut done = 0;
        if !client.front.is_owed() {
            // The replies to this repeated input were written meanwhile.
            done = std::mem::take(&mut client.read).consumed.min(input.len());
            let is_in = connected.session.authenticated;
            let now_unix_ms = self.node.core.clock.now_unix_ms();
            client.read = client.front.read(&input[done..], is_in, now_unix_ms);
        }
        let before = output.len_with_attachments();
        let Some(outcome) = self.run_memcached(id, &mut client, output) else {
            return gone;
        };
        let Some(connected) = self.sessions.get_mut(id) else {
            return gone;
        };
        let session = &connected.session.client;
        bump(&session.requests, outcome.executed);
        self.turn_requests += outcome.executed;
        let is_owed = client.front.is_owed();
        let mut received = Received::consumed(done);
        let mut is_over = false;
        if !is_owed {
            let read = std::mem::take(&mut client.read);
            received.consumed += read.consumed;
            received.needed = read.needed;
            is_over = read.is_over;
        }
        bump(&session.input_bytes_total, received.consumed);
        let written = output.len_with_attachments() - before;
        bump(&session.output_bytes_total, written);
        let held_bytes = if is_owed {
            client.front.held_bytes()
        } else {
            0
        };
        connected.memcached = Some(client);
        self.buffers.memcached_holds(connected, held_bytes);
        if received.consumed == input.len() {
            self.buffers.input_gone(connected);
        }
        let config = self.config.config();
        let verdict = self.buffers.requests_ran(connected, config);
        let then = self.go_on(id, &outcome, verdict);
        received.then(match then {
            Then::Continue if is_over => Then::CloseAfterFlush,
            // One call may not have read all lines that are there.
            Then::Continue if is_owed || (received.consumed > 0 && received.needed == 0) => {
                if received.consumed < input.len() {
                    Then::Yield
                } else {
                    Then::Continue
                }
            }
            then => then,
        })
    }

    /// Runs the requests of a client of the memcached port, and writes the replies. Returns `None`
    /// if these are not replies to its requests.
    fn run_memcached(
        &mut self,
        id: ConnectionId,
        client: &mut MemcachedClient,
        output: &mut Arena,
    ) -> Option<Outcome> {
        let mut outcome = Outcome {
            consumed: 0,
            needed: 0,
            executed: 0,
            next: Next::Read,
        };
        let mut replies = std::mem::take(&mut self.memcached_replies);
        if !client.front.requests().is_empty() {
            let connected = self.sessions.get_mut(id)?;
            let mut runs = Runs {
                node: &self.node,
                engine: &mut self.engine,
                deliveries: &mut self.deliveries,
                held_replies: &mut self.held_replies,
                log_user: &self.log_user,
                turn_started_ns: self.turn_started_ns,
            };
            outcome = runs.run(connected, client.front.requests(), &mut replies);
            client.front.note_run(outcome.consumed);
        }
        let written = client.write(&replies, output);
        replies.clear();
        replies.shrink_to(memcached::limits::KEPT_BYTES_MAX);
        self.memcached_replies = replies;
        written.then_some(outcome)
    }
}
