//! A worker's implementation of the loop's interface: accepting connections, handling input, the
//! other work of a turn, how long the thread may sleep, and when replies leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use engine::Session;
use persistence::held_replies::{Release, Wrote};
use reactor::{
    CloseReason, ConnectionId, Departure, Detached, Filled, Io, PeerInfo, Received, Service,
    Ticket, Verdict,
};

use super::buffers::{self, Holding};
use super::connections::{PROTECTED, TOO_MANY_CLIENTS, is_at_port, is_local};
use super::deliveries::RoundMark;
use super::forwarding::forwards;
use super::memcached;
use super::memcached_client::{self, MemcachedClient};
use super::sessions::{Connected, ReadWait};
use super::{Arena, Worker};
use crate::counters::{Count, bump};
use crate::replication;

/// Interval at which a stopping worker checks whether it is done.
const STOP_INTERVAL: Duration = Duration::from_millis(1);

impl Service for Worker {
    type Output = Arena;

    fn admit(&mut self, peer: &PeerInfo) -> Result<(), &'static [u8]> {
        let config = self.node.core.config.current();
        let by_memcached = memcached_client::came_by(peer, &config);
        let refusal = if self.stopping.is_some() {
            Some(&b""[..])
        } else if config.protected_mode && self.node.is_open() && !is_local(peer) {
            Some(if by_memcached {
                memcached::PROTECTED
            } else {
                PROTECTED
            })
        } else if !self.node.sessions.clients.admit(config.clients_max) {
            Some(if by_memcached {
                memcached::TOO_MANY_CLIENTS
            } else {
                TOO_MANY_CLIENTS
            })
        } else {
            None
        };
        refusal.map_or(Ok(()), |refusal| {
            self.counters.bump(Count::Rejections);
            Err(refusal)
        })
    }

    fn keepalive_s(&self) -> u32 {
        self.config.config().tcp_keepalive_s
    }

    fn accept_failed(&mut self, error: &std::io::Error) {
        self.node
            .core
            .log
            .warning(format_args!("Accepting client connection: {error}"));
    }

    fn turn_started(&mut self) {
        let now_ns = self.node.core.clock.monotonic_ns();
        self.now_ms = self.node.uptime_ms_at(now_ns);
        self.turn_started_ns = now_ns;
        let watches_turns = self.node.core.shared.observer.event_ms() > 0;
        self.turn_cpu_ns = watches_turns.then(|| self.node.core.clock.thread_cpu_ns());
        self.engine.begin_turn(now_ns);
        self.config.refresh();
        self.turns.started();
        if self.node.replication.fence.is_grouped() {
            self.begin_turn_under_group();
        }
    }

    #[inline]
    fn turn_ended(&mut self) {
        if let Some(began_ns) = self.turn_cpu_ns {
            let now_ns = self.node.core.clock.thread_cpu_ns();
            self.counters.note_turn_cpu(now_ns.saturating_sub(began_ns));
        }
        self.turns.ended();
    }

    // The settings are refreshed here and at each input: since this turn began, another worker may
    // have acknowledged a change of a setting to a client, and that client relies on it.
    fn opened(&mut self, io: &mut Io<'_>, id: ConnectionId, peer: &PeerInfo) {
        self.config.refresh();
        if peer.listener.is_none()
            && let Some(newcomer) = self.node.forward.take_newcomer(peer.fd)
        {
            return self.upstream_opened(io, id, newcomer);
        }
        let client = Arc::new(self.record(id, peer));
        let users = &self.node.core.shared.access.users;
        let by_memcached = memcached_client::came_by(peer, self.config.config());
        let certified = self.certified_user(peer);
        let certified = match by_memcached {
            true => certified.or_else(|| self.memcached_user()),
            false => certified,
        };
        let is_in = certified.is_some() || !users.must_log_in();
        client.set_user(certified.unwrap_or_else(|| Arc::clone(users.default_user())));
        self.node.sessions.clients.add(Arc::clone(&client));
        self.counters.bump(Count::Connections);
        let mut session = Session::new(client, is_in);
        let forward_port = self.config.config().cluster.forward_port;
        if forward_port != 0 {
            let is_on = self.node.core.shared.hash_slots.is_on();
            session.forwards = is_on && is_at_port(peer, forward_port);
        }
        self.sessions.insert(Connected {
            id,
            session,
            forward: None,
            peer_is_local: is_local(peer),
            is_paused: false,
            is_waiting: false,
            owes_request: false,
            wait_end: None,
            disk_wait: None,
            wrote: Wrote::default(),
            read: ReadWait::default(),
            since_ms: self.now_ms,
            holding: Holding::default(),
            round: RoundMark::default(),
            memcached: by_memcached.then(|| MemcachedClient::new(&self.config.config().memcached)),
        });
        if self.stopping.is_some() {
            io.close(id);
        }
    }

    fn received(
        &mut self,
        io: &mut Io<'_>,
        id: ConnectionId,
        input: &[u8],
        output: &mut Arena,
    ) -> Received {
        let Some(connected) = self.sessions.get_mut(id) else {
            return self.received_upstream(io, id, input);
        };
        self.config.refresh();
        if connected.memcached.is_some() {
            return self.received_memcached(id, input, output);
        }
        let forwards = forwards(connected);
        if connected.reads_at_quorum() {
            return self.received_at_quorum(io, (id, forwards), input, output);
        }
        self.received_now(io, (id, forwards), input, output)
    }

    fn room(&mut self, id: ConnectionId) -> Option<&[AtomicU8]> {
        let session = &mut self.sessions.get_mut(id)?.session;
        session.arrival.as_mut()?.room().ok()
    }

    fn filled(&mut self, id: ConnectionId, count: usize) -> Filled {
        let Some(connected) = self.sessions.get_mut(id) else {
            return Filled::Close;
        };
        let client = &connected.session.client;
        bump(&client.input_bytes_total, count);
        let now_unix_ms = self.node.core.clock.now_unix_ms();
        client.active_unix_ms.store(now_unix_ms, Ordering::Relaxed);
        let Some(arrival) = &mut connected.session.arrival else {
            return Filled::Close;
        };
        arrival.advance(count);
        if let Some(head) = arrival.take_head() {
            return Filled::Input(head);
        }
        let config = self.config.config();
        let buffers = &mut self.buffers;
        match buffers.input_grew(connected, 0, config, self.now_ms) {
            Verdict::Keep => Filled::More,
            Verdict::Close => Filled::Close,
        }
    }

    fn closed(&mut self, id: ConnectionId, reason: CloseReason) {
        match reason {
            CloseReason::OutputLimit => self.counters.bump(Count::OutputLimitCloses),
            CloseReason::InputLimit => self.counters.bump(Count::QueryLimitCloses),
            _ => {}
        }
        // A connection that ends with its loop gets nothing more.
        if self.forget(id).is_none() {
            self.forget_forwarding(id, None);
        }
    }

    fn handed_over(&mut self, id: ConnectionId, connection: Detached) {
        let Some(mut connected) = self.forget(id) else {
            return;
        };
        if let Some(request) = connected.session.sync.take() {
            let client = Arc::clone(&connected.session.client);
            replication::serve(&self.node, client, *request, connection);
        }
    }

    fn woken(&mut self, io: &mut Io<'_>, output: &mut Arena) {
        for message in self.node.workers()[self.index].take_messages() {
            self.on_message(io, output, message);
        }
        self.log_moved(io, output);
        self.look_after_reads(io);
    }

    fn turn(&mut self, io: &mut Io<'_>, output: &mut Arena) {
        self.read_values(io);
        self.publish_traffic(io);
        self.tick();
        if self.pause_left().is_some_and(|left| left.is_zero()) {
            self.node.end_pause(self.node.core.clock.now_unix_ms());
            self.resume_paused(io);
        }
        if self.buffers.take_change() {
            self.limit_clients_memory();
            if self.config.config().memory_bytes_max > 0 {
                self.node.tell_held_bytes();
                self.more_housekeeping = true;
            }
        }
        if self.now_ms >= self.upkeep_due_ms {
            let before_ns = self.since_turn_started_ns();
            self.find_room(io);
            self.upkeep(io);
            let upkeep_ns = self.since_turn_started_ns().saturating_sub(before_ns);
            self.counters.cell(Count::UpkeepNs).add(upkeep_ns);
        }
        if self.now_ms >= self.survey_due_ms {
            self.survey();
        }
        self.end_overdue_waits(io, output);
        self.look_after_log(io);
        self.look_after_reads(io);
        self.node.sessions.client_cache.tell_changes();
        if self.node.sessions.client_cache.has_new_limit() {
            self.enforce_tracking_limit();
        }
        self.look_after_forwarding(io);
        self.deliver(io, output);
        if let Some(stopping) = &mut self.stopping
            && stopping.is_over(&self.sessions, io, self.now_ms)
        {
            io.stop();
        }
        let busy_ns = self.since_turn_started_ns();
        let requests = std::mem::take(&mut self.turn_requests);
        self.counters.count_turn(busy_ns, requests as u64);
    }

    fn next_deadline(&self) -> Option<Duration> {
        let reads = self.ring_reads.as_ref();
        if reads.is_some_and(|reads| reads.has_more()) {
            return Some(Duration::ZERO);
        }
        if self.more_housekeeping || self.buffers.has_changed() || self.deliveries.wait() {
            return Some(Duration::ZERO);
        }
        let upkeep_ms = self.upkeep_due_ms.saturating_sub(self.now_ms).max(1);
        let upkeep = Some(Duration::from_millis(upkeep_ms));
        let stop = self.stopping.as_ref().map(|_| STOP_INTERVAL);
        let wait = self.waits.left(&*self.node.core.clock);
        let expiry = self.expiry_left();
        let forwarding = self.forwarding.left_ms(self.now_ms);
        [
            forwarding.map(Duration::from_millis),
            upkeep,
            expiry,
            self.pause_left(),
            wait,
            stop,
            self.grace_left(),
            self.reading_left(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    #[inline]
    fn before_flush(&mut self) -> Departure {
        match &mut self.held_replies {
            None => Departure::Now,
            Some(replies) => match replies.before_flush() {
                Release::Now => Departure::Now,
                Release::UpTo(ticket) => Departure::At(Ticket {
                    watermark: ticket.watermark,
                    at: ticket.at,
                }),
                Release::Each => Departure::Each,
            },
        }
    }

    fn ticket(&mut self, id: ConnectionId) -> Option<Ticket> {
        let replies = self.held_replies.as_mut()?;
        let ticket = replies.ticket(&self.sessions.get_mut(id)?.wrote, self.now_ms)?;
        Some(Ticket {
            watermark: ticket.watermark,
            at: ticket.at,
        })
    }

    fn output_limit(&mut self, id: ConnectionId, pending_bytes: usize) -> Verdict {
        let Some(connected) = self.sessions.get_mut(id) else {
            return self.upstream_limit(id);
        };
        let config = self.config.config();
        self.buffers
            .output_grew(connected, pending_bytes, config, self.now_ms)
    }

    fn replies_limit(&mut self, id: ConnectionId, bytes: usize) -> Verdict {
        let Some(connected) = self.sessions.get_mut(id) else {
            return self.upstream_limit(id);
        };
        buffers::judge_replies(connected, bytes, self.config.config())
    }

    fn input_limit(&mut self, id: ConnectionId, buffered_bytes: usize) -> Verdict {
        let Some(connected) = self.sessions.get_mut(id) else {
            return self.upstream_limit(id);
        };
        let config = self.config.config();
        self.buffers
            .input_grew(connected, buffered_bytes, config, self.now_ms)
    }
}

impl Worker {
    /// Checks whether this node may write and answer in this turn.
    fn begin_turn_under_group(&mut self) {
        self.node.replication.look_at_lease(&self.node);
        if let Some(replies) = &mut self.held_replies {
            replies.begin_turn();
        }
    }

    fn publish_traffic(&self, io: &Io<'_>) {
        let traffic = io.traffic();
        for (count, value) in [
            (Count::InputBytes, traffic.received_bytes),
            (Count::OutputBytes, traffic.sent_bytes),
            (Count::Reads, traffic.receives),
            (Count::Writes, traffic.sends),
        ] {
            self.counters.cell(count).set(value);
        }
        if self.index > 0 {
            let counters = &self.counters;
            counters.cell(Count::ReadsBeside).set(traffic.receives);
            counters.cell(Count::WritesBeside).set(traffic.sends);
        }
    }

    fn since_turn_started_ns(&self) -> u64 {
        let now_ns = self.node.core.clock.monotonic_ns();
        now_ns.saturating_sub(self.turn_started_ns)
    }
}
