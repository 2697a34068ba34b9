//! One worker: a thread's sessions, its engine, and what it does between batches.
//!
//! A worker owns the sessions of its connections and nothing of other workers'. What others want of
//! it comes as messages; what it wants of others it leaves with them as messages.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::random::Prng;
use commands::{ClientRecord, Engine, Next, Session, Share};
use protocol::ReplyBuffer;
use reactor::{
    CloseReason, ConnectionId, Endpoint, Io, OutputArena, PeerInfo, Received, Service, Then,
    Verdict,
};

use crate::config::ConfigReader;
use crate::limits::{
    self, OutputState, UNAUTHENTICATED_INPUT_BYTES_MAX, UNAUTHENTICATED_OUTPUT_BYTES_MAX,
};
use crate::node::{Message, Node, WorkerLink};
use crate::port::Port;
use crate::process;

/// What one client may do before the others have their turn.
const SHARE: Share = Share {
    requests_max: 1024,
    reply_bytes_max: reactor::FLUSH_BYTES,
};
/// How often idle clients, limits and rates are looked at.
const UPKEEP_INTERVAL_MS: u64 = 100;

/// The service of one thread.
pub struct Worker {
    node: Arc<Node>,
    index: usize,
    engine: Engine,
    sessions: Vec<Option<Connected>>,
    by_client: HashMap<u64, ConnectionId>,
    paused: Vec<ConnectionId>,
    now_unix_ms: u64,
    upkeep_due_ms: u64,
    config: ConfigReader,
    machine_bytes: u64,
    more_housekeeping: bool,
}

/// A connection and its session.
struct Connected {
    id: ConnectionId,
    session: Session,
    peer_is_local: bool,
    output: OutputState,
}

impl Worker {
    /// The worker with this number.
    #[must_use]
    pub fn new(node: Arc<Node>, index: usize) -> Self {
        let engine = Engine::new(
            node.store.handle(),
            Arc::clone(&node.settings),
            Arc::clone(&node.clock),
            Prng::from_os(),
        );
        if let Some(link) = node.workers().get(index) {
            // A worker is made once.
            let _already_set = link.engine.set(engine.counters());
        }
        let now_unix_ms = node.clock.now_unix_ms();
        Self {
            config: ConfigReader::new(Arc::clone(&node.config)),
            node,
            index,
            engine,
            sessions: Vec::new(),
            by_client: HashMap::new(),
            paused: Vec::new(),
            now_unix_ms,
            upkeep_due_ms: now_unix_ms + UPKEEP_INTERVAL_MS,
            machine_bytes: process::machine_bytes(),
            more_housekeeping: false,
        }
    }

    fn link(&self) -> &WorkerLink {
        &self.node.workers()[self.index]
    }

    fn on_message(&mut self, io: &mut Io<'_>, message: &Message) {
        match message {
            Message::Kill { client } => {
                if let Some(id) = self.by_client.get(client) {
                    io.close_after_flush(*id);
                }
            }
            Message::Evict { client } => {
                if let Some(id) = self.by_client.get(client) {
                    self.link().counters.evicted_clients.add(1);
                    io.close(*id);
                }
            }
            Message::Resume => self.resume_paused(io),
            Message::Stop => io.stop(),
        }
    }

    fn resume_paused(&mut self, io: &mut Io<'_>) {
        for id in std::mem::take(&mut self.paused) {
            io.resume(id);
        }
    }

    /// What is done ten times a second rather than at every turn.
    fn upkeep(&mut self, io: &mut Io<'_>) {
        self.upkeep_due_ms = self.now_unix_ms + UPKEEP_INTERVAL_MS;
        self.close_idle(io);
        let paused_until = self
            .node
            .settings
            .paused_until_unix_ms
            .load(Ordering::Acquire);
        if paused_until != 0 && paused_until <= self.now_unix_ms {
            let expired = self.node.settings.paused_until_unix_ms.compare_exchange(
                paused_until,
                0,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if expired.is_ok() {
                self.node.broadcast(&Message::Resume);
            }
        }
        if self.index == 0 {
            let sums = self.node.sums();
            let sample = [sums.requests, sums.input_bytes, sums.output_bytes];
            self.node.rates.sample(self.now_unix_ms, sample);
            let bytes_max = limits::clients_bytes_max(self.config.config(), self.machine_bytes);
            limits::enforce_client_memory(&self.node, bytes_max);
        }
        self.config.refresh();
    }

    /// Closes clients that said nothing for `timeout` seconds.
    fn close_idle(&self, io: &mut Io<'_>) {
        let timeout_ms = u64::from(self.config.config().idle_timeout_s) * 1000;
        for connected in self.sessions.iter().flatten() {
            let client = &connected.session.client;
            client
                .query_bytes
                .store(io.input_bytes(connected.id) as u64, Ordering::Relaxed);
            client.output_bytes.store(
                io.pending_output_bytes(connected.id) as u64,
                Ordering::Relaxed,
            );
            let idle_ms = self
                .now_unix_ms
                .saturating_sub(client.active_unix_ms.load(Ordering::Relaxed));
            if timeout_ms != 0 && idle_ms > timeout_ms {
                io.close(connected.id);
            }
        }
    }
}

/// The thread's reply buffer, as the loop knows it.
pub struct Arena(ReplyBuffer);

impl Arena {
    /// An arena over `buffer`.
    #[must_use]
    pub fn new(buffer: ReplyBuffer) -> Self {
        Self(buffer)
    }
}

impl Deref for Arena {
    type Target = ReplyBuffer;

    fn deref(&self) -> &ReplyBuffer {
        &self.0
    }
}

impl DerefMut for Arena {
    fn deref_mut(&mut self) -> &mut ReplyBuffer {
        &mut self.0
    }
}

impl OutputArena for Arena {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn as_slice(&self) -> &[u8] {
        self.0.as_slice()
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn shrink_to(&mut self, capacity_bytes: usize) {
        self.0.shrink_to(capacity_bytes);
    }
}

const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";

const PROTECTED: &[u8] = b"-DENIED Iolite is running in protected mode because no password is set \
    for the default user. In this mode connections are only accepted from the loopback interface. \
    To connect from another host either set a password (directive requirepass, or CONFIG SET \
    requirepass from this host), or, if no stranger can reach the port, turn protected mode off \
    (directive protected-mode no, or CONFIG SET protected-mode no from this host).\r\n";

impl Service for Worker {
    type Output = Arena;

    fn admit(&mut self, peer: &PeerInfo) -> Result<(), &'static [u8]> {
        let config = self.node.config.current();
        if config.protected_mode && config.password.is_none() && !is_local(peer) {
            self.node
                .rejected_connections
                .fetch_add(1, Ordering::Relaxed);
            return Err(PROTECTED);
        }
        if !self.node.clients.admit(config.clients_max) {
            self.node
                .rejected_connections
                .fetch_add(1, Ordering::Relaxed);
            return Err(TOO_MANY_CLIENTS);
        }
        Ok(())
    }

    fn keepalive_s(&self) -> u32 {
        self.config.config().tcp_keepalive_s
    }

    fn opened(&mut self, _io: &mut Io<'_>, id: ConnectionId, peer: &PeerInfo) {
        let node = &self.node;
        let client = Arc::new(ClientRecord::new(
            node.clients.next_id(),
            address(&peer.peer),
            address(&peer.local),
            self.index,
            peer.fd,
            node.clock.now_unix_ms(),
        ));
        node.clients.add(Arc::clone(&client));
        self.link().counters.connections.add(1);
        self.by_client.insert(client.id, id);
        let session = Session::new(client, !node.password_required());
        let at = slot(id);
        if self.sessions.len() <= at {
            self.sessions.resize_with(at + 1, || None);
        }
        let peer_is_local = is_local(peer);
        self.sessions[at] = Some(Connected {
            id,
            session,
            peer_is_local,
            output: OutputState::default(),
        });
    }

    fn received(
        &mut self,
        _io: &mut Io<'_>,
        id: ConnectionId,
        input: &[u8],
        output: &mut Arena,
    ) -> Received {
        let Some(connected) = self.sessions.get_mut(slot(id)).and_then(Option::as_mut) else {
            return Received {
                consumed: input.len(),
                needed: 0,
                then: Then::CloseNow,
            };
        };
        let before = output.len();
        let mut port = Port::new(&self.node, connected.peer_is_local);
        let outcome = self
            .engine
            .run(&mut connected.session, &mut port, input, output, SHARE);
        let client = &connected.session.client;
        let replied = output.len() - before;
        bump(&client.requests, outcome.executed);
        bump(&client.input_bytes_total, outcome.consumed);
        bump(&client.output_bytes_total, replied);
        let counters = &self.node.workers()[self.index].counters;
        counters.requests.add(outcome.executed as u64);
        counters.input_bytes.add(outcome.consumed as u64);
        counters.output_bytes.add(replied as u64);
        counters.reads.add(1);
        let then = match outcome.next {
            Next::Read => Then::Continue,
            Next::Yield => Then::Yield,
            Next::Close => Then::CloseAfterFlush,
            Next::Paused => {
                self.paused.push(id);
                Then::Pause
            }
        };
        Received {
            consumed: outcome.consumed,
            needed: outcome.needed,
            then,
        }
    }

    fn closed(&mut self, id: ConnectionId, reason: CloseReason) {
        let counters = &self.node.workers()[self.index].counters;
        match reason {
            CloseReason::OutputLimit => counters.output_limit_closes.add(1),
            CloseReason::InputLimit => counters.query_limit_closes.add(1),
            _ => {}
        }
        if let Some(connected) = self.sessions.get_mut(slot(id)).and_then(Option::take) {
            let client = connected.session.client.id;
            self.by_client.remove(&client);
            self.node.clients.remove(client);
            self.paused.retain(|paused| *paused != id);
        }
    }

    fn woken(&mut self, io: &mut Io<'_>, _output: &mut Arena) {
        for message in self.link().take_messages() {
            self.on_message(io, &message);
        }
    }

    fn turn(&mut self, io: &mut Io<'_>, _output: &mut Arena) {
        self.now_unix_ms = self.node.clock.now_unix_ms();
        self.link().counters.turns.add(1);
        let store = self.engine.store();
        store.enter();
        self.more_housekeeping = store.tick(self.now_unix_ms);
        store.leave();
        if self.now_unix_ms >= self.upkeep_due_ms {
            self.upkeep(io);
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        if self.more_housekeeping {
            return Some(Duration::ZERO);
        }
        Some(Duration::from_millis(
            self.upkeep_due_ms.saturating_sub(self.now_unix_ms).max(1),
        ))
    }

    fn output_limit(&mut self, id: ConnectionId, pending_bytes: usize) -> Verdict {
        let Some(connected) = self.sessions.get_mut(slot(id)).and_then(Option::as_mut) else {
            return Verdict::Close;
        };
        let pending_bytes = pending_bytes as u64;
        if !connected.session.authenticated && pending_bytes > UNAUTHENTICATED_OUTPUT_BYTES_MAX {
            return Verdict::Close;
        }
        let limit = &self.config.config().output_limits.normal;
        connected
            .output
            .judge(limit, pending_bytes, self.now_unix_ms)
    }

    fn input_limit(&mut self, id: ConnectionId, buffered_bytes: usize) -> Verdict {
        let Some(connected) = self.sessions.get(slot(id)).and_then(Option::as_ref) else {
            return Verdict::Close;
        };
        let limit = if connected.session.authenticated {
            self.config.config().query_buffer_bytes_max
        } else {
            UNAUTHENTICATED_INPUT_BYTES_MAX as u64
        };
        if buffered_bytes as u64 > limit {
            Verdict::Close
        } else {
            Verdict::Keep
        }
    }
}

/// Place of a connection's session in the worker's table.
fn slot(id: ConnectionId) -> usize {
    usize::try_from(id.index()).unwrap_or(usize::MAX)
}

/// Adds to a number that only this thread writes.
fn bump(cell: &std::sync::atomic::AtomicU64, amount: usize) {
    let sum = cell.load(Ordering::Relaxed).wrapping_add(amount as u64);
    cell.store(sum, Ordering::Relaxed);
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
        Endpoint::InProcess => "in-process:0".to_owned(),
    }
}
