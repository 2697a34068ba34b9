//! One worker: a thread's sessions, its engine, and what it does between batches.
//!
//! A worker owns the sessions of its connections and nothing of other workers'. What others want of
//! it comes as messages; what it wants of others it leaves with them as messages.
//!
//! Two clocks: the wall clock says when keys expire and what CLIENT LIST shows; everything that is
//! a time span here (idle clients, limits in time, the next upkeep) is measured on the monotonic
//! one, so that setting the machine's clock closes nobody.

mod arena;
mod buffers;
mod cold_reads;
pub(crate) mod deliveries;
mod forwarding;
mod keeping;
mod memcached;
mod memcached_client;
mod reads;
mod sessions;
mod shard_channels;
mod stopping;
mod upstreams;
mod waits;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use access::User;
use base::background::WorkerTurns;
use base::random::Prng;
use engine::{ClientRecord, Engine, Next, Outcome, Session, Share, Wait};
use protocol::{Reply, ReplyBuffer};
use reactor::{
    CloseReason, ConnectionId, Departure, Detached, Endpoint, Filled, Io, PeerInfo, Received,
    Service, Then, Ticket, Verdict,
};

use crate::allocator::Settled;
use crate::announcer;
use crate::config::{Config, ConfigReader};
use crate::counters::{Count, WorkerCounters, bump};
use crate::job::{Answer, Job, Piece};
use crate::limits::{self, UNAUTHENTICATED_MS_MAX};
use crate::link::Message;
use crate::node::Node;
use crate::port::Port;
use crate::process;
use crate::replication::{self, Watermarks};
use crate::tier::RingReads;
use crate::tls;
use persistence::held_replies::{HeldReplies, LogView, Release, Wrote};
use persistence::log_in_use::LogUser;

pub use arena::Arena;
use buffers::{Buffers, Holding};
use deliveries::{Deliveries, RoundMark};
use forwarding::{ForwardingLoop, forwards};
use memcached_client::MemcachedClient;
use sessions::{Connected, ReadWait, Sessions};
use stopping::Stopping;
use waits::Waits;

/// What one client may do before the others have their turn.
const SHARE: Share = Share {
    requests_max: 1024,
    reply_bytes_max: reactor::FLUSH_BYTES,
};
/// How often all clients are looked at, for those that are idle.
const ROUND_INTERVAL_MS: u64 = 1_000;
/// How often a piece of the keyspace is gone through for large keys. A piece is small while clients are
/// served: one that takes a tenth of a millisecond ten times a second is all that one request in a
/// thousand waits for.
const SURVEY_INTERVAL_MS: u64 = 5;
/// Records of such a piece.
const SURVEY_RECORDS: usize = 32;
/// The same while nobody is served; then the worker wakes up more seldom.
const SURVEY_RECORDS_IDLE: usize = 512;
/// A worker without requests wakes for expired keys at most so often.
const EXPIRY_INTERVAL_MS: u64 = 5;
/// How often a stopping worker looks whether it is done.
const STOP_INTERVAL: Duration = Duration::from_millis(1);

/// The service of one thread.
pub struct Worker {
    node: Arc<Node>,
    index: usize,
    engine: Engine,
    /// Set while more events wait to be delivered than should.
    makes_too_many_events: Arc<AtomicBool>,
    counters: Arc<WorkerCounters>,
    config: ConfigReader,
    sessions: Sessions,
    buffers: Buffers,
    paused_count: usize,
    /// Connections that wait for keys.
    waiting: Vec<ConnectionId>,
    /// Connections that published more than can be delivered.
    throttled: Vec<ConnectionId>,
    /// Connections that wait until what they read here is what the primary has.
    reading: Vec<ConnectionId>,
    deliveries: Deliveries,
    /// The reads of values out of memory for its clients, where it reads them by itself.
    ring_reads: Option<Box<RingReads>>,
    /// Memory for the connections whose values were read.
    have_values: Vec<ConnectionId>,
    /// When those have waited long enough who wait for keys to be changed.
    waits: Waits,
    /// Which replies wait, while there is a log.
    held_replies: Option<Box<HeldReplies<ConnectionId>>>,
    /// Replies to a client of the memcached port, while they become text.
    memcached_replies: ReplyBuffer,
    log_user: LogUser,
    stopping: Option<Stopping>,
    /// For clients whose requests other nodes answer.
    forwarding: ForwardingLoop,
    /// The turn's time on the monotonic clock.
    now_ms: u64,
    turn_started_ns: u64,
    /// Processor time of the thread when the turn began, while the latency monitor is on.
    turn_cpu_ns: Option<u64>,
    turns: WorkerTurns,
    /// Requests that ran in the turn.
    turn_requests: usize,
    ticked_ms: u64,
    upkeep_due_ms: u64,
    round_due_ms: u64,
    survey_due_ms: u64,
    usable_bytes: u64,
    more_housekeeping: bool,
    settled: Settled,
}

impl Worker {
    /// The worker with this number.
    #[must_use]
    pub fn new(node: Arc<Node>, index: usize) -> Self {
        let makes_too_many_events = Arc::default();
        let engine = Engine::new(
            node.core.env.table,
            node.handle(&makes_too_many_events),
            Arc::clone(&node.core.shared),
            Arc::clone(&node.core.clock),
            Prng::from_os(),
        )
        .among(Arc::clone(&node.sessions.waiters));
        let engine = if node.has_aside() {
            engine.of_worker()
        } else {
            engine
        };
        let link = &node.workers()[index];
        link.own();
        // A worker is made once.
        let _already_set = link.engine.set(engine.counters());
        let ring_reads = node.tier().and_then(|tier| {
            let requests = Arc::clone(&node);
            tier.ring_reads(index, link.waker(), requests)
        });
        let mut worker = Self {
            counters: Arc::clone(&link.counters),
            ring_reads: ring_reads.map(Box::new),
            have_values: Vec::new(),
            config: ConfigReader::new(Arc::clone(&node.core.config)),
            buffers: Buffers::new(node.workers().len()),
            index,
            engine,
            makes_too_many_events,
            sessions: Sessions::default(),
            paused_count: 0,
            waiting: Vec::new(),
            throttled: Vec::new(),
            reading: Vec::new(),
            deliveries: Deliveries::new(Arc::clone(&node), index),
            waits: Waits::default(),
            held_replies: None,
            memcached_replies: ReplyBuffer::new(),
            log_user: node.keeping.log_in_use.join(),
            stopping: None,
            forwarding: ForwardingLoop::default(),
            now_ms: node.uptime_ms(),
            turn_started_ns: node.core.clock.monotonic_ns(),
            turn_cpu_ns: None,
            turns: WorkerTurns::new(Arc::clone(&node.work.background)),
            turn_requests: 0,
            ticked_ms: 0,
            upkeep_due_ms: 0,
            round_due_ms: 0,
            survey_due_ms: if index == 0 { 0 } else { u64::MAX },
            usable_bytes: process::usable_bytes(),
            more_housekeeping: false,
            settled: Settled::default(),
            node,
        };
        worker.take_up_log();
        worker
    }

    /// Runs input of a client, which may be one that forwards its requests.
    #[inline]
    fn received_now(
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

    fn on_message(&mut self, io: &mut Io<'_>, output: &mut Arena, message: Message) {
        match message {
            Message::Kill { client, place } => {
                if let Some(id) = self.sessions.connection_of(client, place) {
                    io.close_after_flush(id);
                }
            }
            Message::Evict {
                client,
                place,
                held_bytes,
            } => {
                if let Some(id) = self.sessions.connection_of(client, place) {
                    self.evict(io, id, held_bytes);
                }
            }
            Message::MailDelivered => self.resume_throttled(io),
            Message::Resume => self.resume_paused(io),
            Message::Answer {
                connection,
                reply,
                log_end,
            } => {
                self.note_answer(connection, log_end);
                self.answer(io, output, connection, reply);
            }
            Message::Waits {
                connection,
                timeout_ms,
            } => self.begin_wait_from_aside(connection, timeout_ms),
            Message::Served {
                client,
                place,
                reply,
            } => {
                if let Some(id) = self.sessions.connection_of(client, place)
                    && !self.forward_waiter(id, &reply)
                {
                    self.end_wait(id, &reply);
                    let log_end = self.held_replies.as_ref().map(|it| it.log.tail());
                    self.note_answer(id, log_end);
                    self.answer(io, output, id, reply);
                }
            }
            Message::SlotsChanged => self.end_shard_subscriptions(io, output),
            Message::NotForwarded {
                client,
                serial,
                reason,
            } => self.not_forwarded(client, serial, &reason),
            Message::RulesChanged { user } => self.end_subscribers(io, &user),
            Message::KeysFree => {
                self.serve();
                self.resume_waiting(io);
            }
            Message::ValuesRead { connection } => self.resume_one(io, connection),
            Message::LogChanged => self.log_changed(io, output),
            Message::LookAtLog(_looked) => self.log_moved(io, output),
            Message::Stop => {
                self.stopping = Some(Stopping::begin(&self.sessions, io, self.now_ms));
            }
        }
    }

    /// Closes those clients of a user that are subscribed to what it may hear no more.
    fn end_subscribers(&mut self, io: &mut Io<'_>, user: &[u8]) {
        for connected in self.sessions.iter_mut() {
            let session = &mut connected.session;
            let is_its = session.permit.user().name() == user;
            if let (true, Some(own)) = (is_its, &session.subscriptions)
                && !own.are_allowed(session.permit.rules())
            {
                session.client.set_flag(ClientRecord::KILLED, true);
                io.close_after_flush(connected.id);
            }
        }
    }

    /// The user whom the peer's certificate names, where certificates name users.
    fn certified_user(&self, peer: &PeerInfo) -> Option<Arc<User>> {
        let security = peer.security.as_ref()?;
        let names = tls::user_names(self.config.config(), security);
        let users = &self.node.core.shared.access.users;
        let mut known = names.iter().filter_map(|name| users.find(name.as_bytes()));
        known.find(|user| user.rules().is_on())
    }

    /// Closes a client that held so much when it was chosen, unless it has given most of it back
    /// since.
    fn evict(&mut self, io: &mut Io<'_>, id: ConnectionId, held_bytes: u64) {
        let Some(connected) = self.sessions.get_mut(id) else {
            return;
        };
        if self.buffers.refresh(connected, io) < held_bytes / 2 {
            let client = &connected.session.client;
            client.set_flag(ClientRecord::EVICTED, false);
        } else if io.close(id) {
            self.counters.bump(Count::EvictedClients);
        }
    }

    /// Leaves a request that takes long to the thread for these; what becomes of its client.
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

    /// Sends the reply of a request that was offloaded, and lets its client go on.
    fn answer(&mut self, io: &mut Io<'_>, output: &mut Arena, id: ConnectionId, reply: Answer) {
        let Some(connected) = self.sessions.get_mut(id) else {
            return;
        };
        let before = output.len_with_attachments();
        if let Some(client) = &mut connected.memcached {
            if !client.answer(&reply, output) {
                io.close(id);
            }
        } else {
            for piece in reply {
                match piece {
                    Piece::Short(bytes) => output.push_slice(&bytes),
                    Piece::Long(bytes) => output.attach(Box::new(bytes)),
                }
            }
        }
        let session = &mut connected.session;
        for push in std::mem::take(&mut session.held_pushes) {
            push.write(&mut Reply::new(&mut *output, session.resp));
        }
        let bytes = output.len_with_attachments() - before;
        bump(&session.client.output_bytes_total, bytes);
        io.address(id, output.len());
        let now_unix_ms = self.node.core.clock.now_unix_ms();
        let active_unix_ms = &connected.session.client.active_unix_ms;
        active_unix_ms.store(now_unix_ms, Ordering::Relaxed);
        connected.end_to_wait();
        self.buffers.runs_aside(connected, 0);
        io.resume(id);
    }

    /// Notes up to where others appended for a client that is answered now.
    fn note_answer(&mut self, id: ConnectionId, log_end: Option<u64>) {
        if let Some(log_end) = log_end
            && let Some(replies) = &mut self.held_replies
            && let Some(connected) = self.sessions.get_mut(id)
        {
            replies.answered(&mut connected.wrote, log_end);
        }
    }

    /// What becomes of a client after its requests ran.
    fn go_on(&mut self, id: ConnectionId, outcome: &Outcome, verdict: Verdict) -> Then {
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
            // Who serves the slot has changed just now: it is looked at anew.
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

    /// Lets a client wait for keys.
    #[cold]
    fn begin_wait(&mut self, id: ConnectionId) -> Then {
        let Some(connected) = self.sessions.get_mut(id) else {
            return Then::CloseNow;
        };
        if let Some(wait) = &connected.session.wait
            && let Some(timeout_ms) = wait.timeout_ms
        {
            let ticket = wait.waiter.ticket();
            let end = self
                .waits
                .add(&*self.node.core.clock, timeout_ms, ticket, id);
            connected.wait_end = Some(end);
        }
        let requests = &connected.session.client.requests;
        let counted = requests.load(Ordering::Relaxed);
        requests.store(counted.saturating_sub(1), Ordering::Relaxed);
        connected.owes_request = counted > 0;
        connected.begin_to_be_blocked();
        // It may have been answered since, by who has said then that it waits no more.
        if let Some(wait) = &connected.session.wait
            && !wait.waiter.waits()
        {
            let client = &connected.session.client;
            client.set_flag(ClientRecord::BLOCKED, false);
        }
        self.begin_disk_wait(id);
        Then::Pause
    }

    /// Lets a client wait for keys whose request ran aside, unless it was answered meanwhile.
    fn begin_wait_from_aside(&mut self, id: ConnectionId, timeout_ms: Option<u64>) {
        let Some(connected) = self.sessions.get_mut(id) else {
            return;
        };
        let session = &mut connected.session;
        let waiter = session.client.waiter().filter(|waiter| waiter.waits());
        if session.wait.is_none()
            && let Some(waiter) = waiter
        {
            session.wait = Some(Box::new(Wait {
                waiter,
                timeout_ms,
                log_end: None,
            }));
            self.begin_wait(id);
        }
    }

    /// Forgets what a client waited for that is answered with `reply`.
    fn end_wait(&mut self, id: ConnectionId, reply: &Answer) {
        if let Some(connected) = self.sessions.get_mut(id) {
            let head = reply.first().map_or(&[][..], Piece::as_slice);
            self.engine.end_answered_wait(&mut connected.session, head);
            self.forget_wait_end(id);
        }
    }

    /// Takes back all that was noted of a connection, which is gone from this worker.
    fn forget(&mut self, id: ConnectionId) -> Option<Connected> {
        let mut connected = self.sessions.remove(id)?;
        self.buffers.forget(&mut connected);
        if let Some(end) = connected.wait_end {
            self.waits.remove(end);
        }
        if let Some(replies) = &mut self.held_replies {
            replies.forget(id, &mut connected.wrote, connected.disk_wait);
        }
        // In this order: what a thread aside begins for a client that is known is ended here.
        self.node
            .sessions
            .clients
            .remove(connected.session.client.id);
        self.engine.close(&mut connected.session);
        self.deliveries.forget(&connected.session, id);
        if let Some(tracking) = connected.session.tracking.take() {
            self.node.unfollow(self.engine.store(), &tracking.follower);
        }
        self.forget_forwarding(id, Some(&connected));
        self.paused_count -= usize::from(connected.is_paused);
        Some(connected)
    }

    /// Lets publishers go on that wait until what they published is delivered.
    fn resume_throttled(&mut self, io: &mut Io<'_>) {
        for id in std::mem::take(&mut self.throttled) {
            if let Some(connected) = self.sessions.get_mut(id) {
                connected.end_to_wait();
                io.resume(id);
            }
        }
    }

    /// Answers those who have waited long enough for keys.
    fn end_overdue_waits(&mut self, io: &mut Io<'_>, output: &mut Arena) {
        let node = Arc::clone(&self.node);
        let progress = Watermarks(&node);
        while let Some(id) = self.waits.take_over(&*self.node.core.clock) {
            let Some(connected) = self.sessions.get_mut(id) else {
                continue;
            };
            connected.wait_end = None;
            // Somebody else may just have answered.
            if let Some(reply) = self.engine.give_up(&mut connected.session, &progress) {
                self.forget_wait_end(id);
                self.answer(io, output, id, vec![Piece::Short(reply)]);
            }
        }
        let count = self.waits.len();
        self.counters.timeouts.set(count as u64);
    }

    /// Gives those who wait for keys another try, if keys changed otherwise than by a command.
    fn serve(&mut self) {
        self.engine.serve(&mut Port::new(&self.node, false));
    }

    /// Delivers pushes, and closes clients that missed one because too many waited.
    fn deliver(&mut self, io: &mut Io<'_>, output: &mut Arena) {
        if !self.deliveries.wait() {
            return;
        }
        self.deliveries.deliver(&mut self.sessions, io, output);
        for id in self.deliveries.take_missed(&self.sessions) {
            if io.close(id) {
                self.counters.bump(Count::OutputLimitCloses);
            }
        }
    }

    /// Lets clients go on that wait for keys. Those that wait for a request of their own have no
    /// input that could be looked at before the reply is written.
    fn resume_waiting(&mut self, io: &mut Io<'_>) {
        for id in std::mem::take(&mut self.waiting) {
            if let Some(connected) = self.sessions.get_mut(id) {
                connected.end_to_wait();
                io.resume(id);
            }
        }
    }

    /// Lets a client go on, if it waits.
    fn resume_one(&mut self, io: &mut Io<'_>, id: ConnectionId) {
        let Some(at) = self.waiting.iter().position(|one| *one == id) else {
            return;
        };
        self.waiting.swap_remove(at);
        if let Some(connected) = self.sessions.get_mut(id) {
            connected.end_to_wait();
            io.resume(id);
        }
    }

    /// Lets clients go on that wait for the end of CLIENT PAUSE.
    fn resume_paused(&mut self, io: &mut Io<'_>) {
        if self.paused_count == 0 {
            return;
        }
        self.paused_count = 0;
        for connected in self.sessions.iter_mut() {
            if std::mem::take(&mut connected.is_paused) {
                let client = &connected.session.client;
                client.set_flag(ClientRecord::BLOCKED, false);
                io.resume(connected.id);
            }
        }
    }

    /// How long the pause of clients still lasts; `None` when nobody waits here.
    fn pause_left(&self) -> Option<Duration> {
        if self.paused_count == 0 {
            return None;
        }
        let gate = &self.node.core.shared.gate;
        let until_unix_ms = gate.paused_until_unix_ms();
        if until_unix_ms == 0 && (gate.changes_role() || gate.has_no_office()) {
            // Who ends that says so.
            return None;
        }
        let left_ms = until_unix_ms.saturating_sub(self.node.core.clock.now_unix_ms());
        Some(Duration::from_millis(left_ms))
    }

    /// How long until a key expires that has its deadline from this thread. Keys that expire one shortly after the other
    /// are removed together.
    fn expiry_left(&self) -> Option<Duration> {
        let next_unix_ms = self.engine.next_expiry_unix_ms()?;
        let left_ms = next_unix_ms.saturating_sub(self.node.core.clock.now_unix_ms());
        Some(Duration::from_millis(left_ms.max(EXPIRY_INTERVAL_MS)))
    }

    /// One bounded step of the store's housekeeping, at most once a millisecond unless more waits.
    fn tick(&mut self) {
        if self.ticked_ms == self.now_ms && !self.more_housekeeping {
            return;
        }
        self.ticked_ms = self.now_ms;
        let now_unix_ms = self.node.core.clock.now_unix_ms();
        let store = self.engine.store();
        let next_unix_ms = store.next_expiry_unix_ms();
        let expires_since_ns = next_unix_ms
            .is_some_and(|next_unix_ms| next_unix_ms <= now_unix_ms)
            .then(|| self.node.core.clock.monotonic_ns());
        store.enter();
        self.more_housekeeping = store.tick(now_unix_ms);
        store.leave();
        if let Some(since_ns) = expires_since_ns {
            let ns = self.node.core.clock.monotonic_ns().saturating_sub(since_ns);
            self.counters.cell(Count::ExpireNs).add(ns);
        }
        self.serve();
    }

    /// What is done `hz` times a second rather than at every turn.
    fn upkeep(&mut self, io: &mut Io<'_>) {
        let hz = u64::from(self.config.config().hz.max(1));
        self.upkeep_due_ms = self.now_ms + (1000 / hz).max(1);
        let now_unix_ms = self.node.core.clock.now_unix_ms();
        let now = (self.now_ms, now_unix_ms);
        let config = self.config.config();
        self.buffers
            .look(&mut self.sessions, io, config, &self.counters, now);
        self.limit_clients_memory();
        self.settled.look();
        if let Some(replies) = &self.held_replies {
            replies.write_out_rest();
        }
        if self.now_ms >= self.round_due_ms {
            self.round_due_ms = self.now_ms + ROUND_INTERVAL_MS;
            self.close_overdue(io, now_unix_ms);
        }
        if self.index == 0 {
            self.node.upkeep(now_unix_ms);
            let store = self.engine.store();
            store.enter();
            store.begin(now_unix_ms);
            let listener = self.node.tracking_listener();
            self.node
                .sessions
                .client_cache
                .keep_limits(store, &listener);
            store.leave();
        }
    }

    #[cold]
    fn enforce_tracking_limit(&mut self) {
        let now_unix_ms = self.node.core.clock.now_unix_ms();
        let store = self.engine.store();
        store.enter();
        store.begin(now_unix_ms);
        let listener = self.node.tracking_listener();
        self.node
            .sessions
            .client_cache
            .enforce_new_limit(store, &listener);
        store.leave();
    }

    /// Goes through a piece of the keyspace for large keys; the first worker does.
    fn survey(&mut self) {
        self.survey_due_ms = self.now_ms + SURVEY_INTERVAL_MS;
        let records = if self.turn_requests == 0 {
            SURVEY_RECORDS_IDLE
        } else {
            SURVEY_RECORDS
        };
        let store = self.engine.store();
        store.enter();
        store.begin(self.node.core.clock.now_unix_ms());
        let big_keys = &self.node.core.shared.observer.big_keys;
        big_keys.step(store, records);
        store.leave();
    }

    /// Closes clients that said nothing for `timeout` seconds, and those that connected long ago
    /// and still have not authenticated.
    fn close_overdue(&self, io: &mut Io<'_>, now_unix_ms: u64) {
        let timeout_ms = u64::from(self.config.config().idle_timeout_s) * 1000;
        for connected in self.sessions.iter() {
            let active_unix_ms = &connected.session.client.active_unix_ms;
            let idle_ms = now_unix_ms.saturating_sub(active_unix_ms.load(Ordering::Relaxed));
            let is_idle = timeout_ms != 0
                && idle_ms > timeout_ms
                && !connected.is_paused
                && !connected.is_waiting;
            let is_late = !connected.session.authenticated
                && self.now_ms.saturating_sub(connected.since_ms) > UNAUTHENTICATED_MS_MAX;
            if is_idle || is_late {
                io.close(connected.id);
            }
        }
    }

    fn limit_clients_memory(&self) {
        self.counters.client_bytes.set(self.buffers.held_bytes());
        let bytes_max = limits::clients_bytes_max(self.config.config(), self.usable_bytes);
        self.node.enforce_client_memory(bytes_max);
    }

    fn since_turn_started_ns(&self) -> u64 {
        let now_ns = self.node.core.clock.monotonic_ns();
        now_ns.saturating_sub(self.turn_started_ns)
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

    /// Looks whether this node may write and answer in this turn.
    fn begin_turn_under_group(&mut self) {
        self.node.replication.look_at_lease(&self.node);
        if let Some(replies) = &mut self.held_replies {
            replies.begin_turn();
        }
    }

    /// Has the engine run what has come from a client; what came of it, and whether the client holds too much.
    #[inline(always)]
    fn run_engine(
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
            // What happened before its requests came is told before their replies.
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

    fn record(&self, id: ConnectionId, peer: &PeerInfo) -> ClientRecord {
        let mut record = ClientRecord::new(
            self.node.sessions.clients.next_id(),
            address(&peer.peer),
            address(&peer.local),
            self.index,
            peer.fd,
            self.node.core.clock.now_unix_ms(),
        );
        record.place = id.index();
        record
    }
}

/// Shorter requests are not held against `maxmemory-clients` before they have come.
const LARGE_REQUEST_BYTES: u64 = 64 * 1024;

const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";

const PROTECTED: &[u8] = b"-DENIED Iolite is running in protected mode because no password is set \
    for the default user. In this mode connections are only accepted from the loopback interface. \
    To connect from another host either set a password (directive requirepass, or CONFIG SET \
    requirepass from this host), or, if no stranger can reach the port, turn protected mode off \
    (directive protected-mode no, or CONFIG SET protected-mode no from this host).\r\n";

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

    // Here and where input comes: since this turn began another worker may have told a client that a
    // setting is changed, and what that client does next counts on it.
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
        // What a connection was to be given that ends with its loop, nobody gives it.
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

/// What of a worker requests run with.
struct Runs<'a> {
    node: &'a Arc<Node>,
    engine: &'a mut Engine,
    deliveries: &'a mut Deliveries,
    held_replies: &'a mut Option<Box<HeldReplies<ConnectionId>>>,
    log_user: &'a LogUser,
    turn_started_ns: u64,
}

impl Runs<'_> {
    /// Runs the complete requests at the front of `input`.
    #[inline(always)]
    fn run(
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
            // A look at a connection that ran nothing leaves what was noted in this turn.
            if replies.tells_what_is_shown() && outcome.executed > 0 {
                let session = &connected.session;
                let may_show_data = self.engine.may_show_data(session, outcome.executed);
                replies.note_shown(&mut connected.wrote, may_show_data);
            }
        }
        outcome
    }
}

/// Whether the request that a client has begun is longer than all clients together may hold: there is
/// no use in waiting for the rest of it.
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

/// Whether a peer came to a port.
fn is_at_port(peer: &PeerInfo, port: u16) -> bool {
    matches!(&peer.local, Endpoint::Tcp(address) if address.port() == port)
}

/// Whether a peer is on this machine.
fn is_local(peer: &PeerInfo) -> bool {
    match &peer.peer {
        Endpoint::Tcp(address) => address.ip().to_canonical().is_loopback(),
        Endpoint::Unix(_) | Endpoint::InProcess => true,
    }
}

/// An address as CLIENT LIST shows it.
fn address(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Tcp(address) => address.to_string(),
        Endpoint::Unix(path) => format!("{}:0", path.display()),
        Endpoint::InProcess => ClientRecord::IN_PROCESS.to_owned(),
    }
}
