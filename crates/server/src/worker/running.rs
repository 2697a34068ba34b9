//! Running of a client's requests; the outcome decides how the client continues.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::{ClientRecord, Engine, Next, Outcome, Share};
use persistence::held_replies::{HeldReplies, LogView};
use persistence::log_in_use::LogUser;
use protocol::{Reply, ReplyBuffer};
use reactor::{ConnectionId, Io, Received, Then, Verdict};

use super::buffers::Buffers;
use super::deliveries::Deliveries;
use super::keeping;
use super::sessions::Connected;
use super::{Arena, Worker};
use crate::announcer;
use crate::config::Config;
use crate::counters::{Count, bump};
use crate::job::Job;
use crate::limits;
use crate::node::Node;
use crate::port::Port;

/// Maximum work for one client before other clients have their turn.
pub(super) const SHARE: Share = Share {
    requests_max: 1024,
    reply_bytes_max: reactor::FLUSH_BYTES,
};

/// Length below which incomplete requests do not count against `maxmemory-clients`.
const LARGE_REQUEST_BYTES: u64 = 64 * 1024;

impl Worker {
    /// Runs input of a client, which may be a forwarding one.
    #[inline]
    pub(super) fn received_now(
        &mut self,
        io: &mut Io<'_>,
        (id, forwards): (ConnectionId, bool),
        input: &[u8],
        output: &mut Arena,
    ) -> Received {
        if forwards && !self.ends_forwarding(id) {
            return self.received_forwarding(io, id, input, output);
        }
        let Some((outcome, verdict)) = self.run_engine(id, input, output) else {
            return Received::consumed(input.len()).then(Then::CloseNow);
        };
        let then = self.go_on(id, &outcome, verdict);
        Received {
            consumed: outcome.consumed,
            needed: outcome.needed,
            then,
        }
    }

    /// Makes the engine run a client's input. Returns the outcome, and whether the client holds too
    /// much.
    #[inline(always)]
    pub(super) fn run_engine(
        &mut self,
        id: ConnectionId,
        input: &[u8],
        output: &mut ReplyBuffer,
    ) -> Option<(Outcome, Verdict)> {
        let connected = self.sessions.get_mut(id)?;
        if connected.session.authenticated {
            connected.since_ms = self.now_ms;
        }
        let before = output.len_with_attachments();
        if connected.session.hears_pushes() && self.deliveries.wait() {
            // Events from before its requests are sent before their replies.
            let session = &mut connected.session;
            let reply = &mut Reply::new(&mut *output, session.resp);
            self.deliveries.catch_up(session, reply);
        }
        let mut runs = Runs {
            node: &self.node,
            engine: &mut self.engine,
            deliveries: &mut self.deliveries,
            held_replies: &mut self.held_replies,
            log_user: &self.log_user,
            turn_started_ns: self.turn_started_ns,
        };
        let outcome = runs.run(connected, input, output);
        if outcome.consumed == input.len() {
            self.buffers.input_gone(connected);
        } else {
            Buffers::awaits(connected, &input[outcome.consumed..], outcome.needed);
        }
        let config = self.config.config();
        let verdict = self.buffers.requests_ran(connected, config);
        let client = &connected.session.client;
        bump(&client.requests, outcome.executed);
        self.turn_requests += outcome.executed;
        bump(&client.input_bytes_total, outcome.consumed);
        bump(
            &client.output_bytes_total,
            output.len_with_attachments() - before,
        );
        Some((outcome, verdict))
    }

    /// Decides how a client continues after its requests ran.
    pub(super) fn go_on(&mut self, id: ConnectionId, outcome: &Outcome, verdict: Verdict) -> Then {
        let Some(connected) = self.sessions.get_mut(id) else {
            return Then::CloseNow;
        };
        let config = self.config.config();
        let client = &connected.session.client;
        match outcome.next {
            _ if verdict == Verdict::Close => {
                self.counters.bump(Count::QueryLimitCloses);
                Then::CloseNow
            }
            Next::Read if is_beyond_all(client, outcome.needed, config, self.usable_bytes) => {
                self.counters.bump(Count::EvictedClients);
                Then::CloseNow
            }
            Next::Read | Next::Yield if self.makes_too_many_events.load(Ordering::Relaxed) => {
                self.makes_too_many_events.store(false, Ordering::Relaxed);
                connected.begin_to_wait();
                self.throttled.push(id);
                Then::Pause
            }
            Next::Read => Then::Continue,
            Next::Yield => Then::Yield,
            Next::Receive => Then::Receive,
            Next::Close => Then::CloseAfterFlush,
            Next::HandOver => Then::HandOver,
            Next::LogFull => self.wait_for_room(id),
            Next::Busy => {
                connected.begin_to_wait();
                self.waiting.push(id);
                Then::Pause
            }
            // The owner of the hash slot has just changed: the request is routed anew.
            Next::Elsewhere => Then::Yield,
            Next::Throttled => {
                connected.begin_to_wait();
                self.throttled.push(id);
                Then::Pause
            }
            Next::Aside => self.leave_aside(id),
            Next::Blocks => self.begin_wait(id),
            Next::Paused => {
                client.set_flag(ClientRecord::BLOCKED, true);
                connected.is_paused = true;
                self.paused_count += 1;
                Then::Pause
            }
        }
    }

    /// Offloads a client's long request. Returns how the client continues.
    #[cold]
    fn leave_aside(&mut self, id: ConnectionId) -> Then {
        let Some(connected) = self.sessions.get_mut(id) else {
            return Then::CloseNow;
        };
        let session = &mut connected.session;
        let job = Job {
            request: session.aside.take().unwrap_or_default(),
            client: Arc::clone(&session.client),
            database: session.database,
            resp: session.resp,
            transaction: session.transaction.take(),
            watches: session.watches.take(),
            peer_is_local: connected.peer_is_local,
            is_of_server: false,
            aborted_stops: self.node.replication.aborted_stops(),
            connection: id,
        };
        let transaction = job.transaction.as_ref();
        let held_bytes = job.request.len() + transaction.map_or(0, |it| it.held_bytes());
        if !self.node.run_aside(job) {
            return Then::CloseNow;
        }
        self.buffers.runs_aside(connected, held_bytes);
        connected.begin_to_wait();
        Then::Pause
    }
}

/// The parts of a worker that requests run with.
pub(super) struct Runs<'a> {
    pub(super) node: &'a Arc<Node>,
    pub(super) engine: &'a mut Engine,
    pub(super) deliveries: &'a mut Deliveries,
    pub(super) held_replies: &'a mut Option<Box<HeldReplies<ConnectionId>>>,
    pub(super) log_user: &'a LogUser,
    pub(super) turn_started_ns: u64,
}

impl Runs<'_> {
    /// Runs the complete requests at the front of `input`.
    #[inline(always)]
    pub(super) fn run(
        &mut self,
        connected: &mut Connected,
        input: &[u8],
        output: &mut ReplyBuffer,
    ) -> Outcome {
        let log = self.held_replies.as_deref().filter(|log| !log.is_ended());
        let log = log.map(|log| {
            let gate = &self.node.core.shared.gate;
            LogView::new(log, gate, self.turn_started_ns, &connected.wrote)
        });
        let appended_before = self.log_user.appended().end();
        let mut port = Port::of_worker(
            self.node,
            connected.peer_is_local,
            (self.deliveries, connected.id),
            log,
        );
        announcer::work_for(connected.session.client.id);
        let outcome = self
            .engine
            .run(&mut connected.session, &mut port, input, output, SHARE);
        announcer::work_for(0);
        if let Some(replies) = self.held_replies {
            let asks = keeping::waits_of(&connected.session);
            replies.requests_ran(&mut connected.wrote, appended_before, asks);
            // A call that ran nothing keeps what this turn has noted.
            if replies.tells_what_is_shown() && outcome.executed > 0 {
                let session = &connected.session;
                let may_show_data = self.engine.may_show_data(session, outcome.executed);
                replies.note_shown(&mut connected.wrote, may_show_data);
            }
        }
        outcome
    }
}

/// Whether the request that a client has begun is longer than the limit of all clients together:
/// waiting for the rest is useless.
fn is_beyond_all(
    client: &ClientRecord,
    needed_bytes: usize,
    config: &Config,
    usable_bytes: u64,
) -> bool {
    needed_bytes as u64 >= LARGE_REQUEST_BYTES
        && !client.has_flag(ClientRecord::NO_EVICT)
        && needed_bytes as u64 > limits::clients_bytes_max(config, usable_bytes)
}
