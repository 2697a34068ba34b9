//! One worker: a thread's sessions, its engine, and what it does between batches.
//!
//! A worker owns the sessions of its connections and nothing of other workers. Other threads send
//! it messages, and it sends messages to them.
//!
//! There are two clocks. The wall clock is for the expiry of keys and for CLIENT LIST. All time
//! spans here (idle clients, time limits, the next upkeep) are measured on the monotonic clock, so
//! that setting the machine's clock closes no client.
//!
//! `service` implements the loop's interface. From there input goes to `running`, and a client that
//! cannot continue goes to `waiting`. Messages of other threads come through `messages`.
//! `housekeeping` is done besides all that.

mod arena;
mod buffers;
mod cold_reads;
mod connections;
pub(crate) mod deliveries;
mod forwarding;
mod housekeeping;
mod keeping;
mod memcached;
mod memcached_client;
mod messages;
mod reads;
mod running;
mod service;
mod sessions;
mod shard_channels;
mod stopping;
mod upstreams;
mod waiting;
mod waits;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base::background::WorkerTurns;
use base::random::Prng;
use engine::Engine;
use persistence::held_replies::HeldReplies;
use persistence::log_in_use::LogUser;
use protocol::ReplyBuffer;
use reactor::ConnectionId;

use crate::allocator::Settled;
use crate::config::ConfigReader;
use crate::counters::WorkerCounters;
use crate::node::Node;
use crate::process;
use crate::tier::RingReads;

pub use arena::Arena;
use buffers::Buffers;
use deliveries::Deliveries;
use forwarding::ForwardingLoop;
use sessions::Sessions;
use stopping::Stopping;
use waits::Waits;

/// The service of one thread.
pub struct Worker {
    node: Arc<Node>,
    index: usize,
    engine: Engine,
    /// Set while too many events wait to be delivered.
    makes_too_many_events: Arc<AtomicBool>,
    counters: Arc<WorkerCounters>,
    config: ConfigReader,
    sessions: Sessions,
    buffers: Buffers,
    paused_count: usize,
    /// Connections that wait for keys.
    waiting: Vec<ConnectionId>,
    /// Connections that published more than can be delivered at present.
    throttled: Vec<ConnectionId>,
    /// Connections whose reads wait until this replica has what its primary has committed.
    reading: Vec<ConnectionId>,
    deliveries: Deliveries,
    /// Reads of cold values by the worker itself, if it has a ring.
    ring_reads: Option<Box<RingReads>>,
    /// Scratch memory: the connections whose values were read.
    have_values: Vec<ConnectionId>,
    /// Deadlines of the waits for keys.
    waits: Waits,
    /// The held replies, while there is a log.
    held_replies: Option<Box<HeldReplies<ConnectionId>>>,
    /// Replies to a client of the memcached port, before their conversion to text.
    memcached_replies: ReplyBuffer,
    log_user: LogUser,
    stopping: Option<Stopping>,
    /// State for clients whose requests other nodes answer.
    forwarding: ForwardingLoop,
    /// The turn's time on the monotonic clock.
    now_ms: u64,
    turn_started_ns: u64,
    /// Processor time of the thread when the turn began, while the latency monitor is on.
    turn_cpu_ns: Option<u64>,
    turns: WorkerTurns,
    /// Number of requests that ran in the turn.
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
    /// Makes the worker with number `index`.
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
        // Each worker is made only once.
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
}
