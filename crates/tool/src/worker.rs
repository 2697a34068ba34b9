//! One thread of the generator: its connections, and an event loop over them.
//!
//! ```text
//!             ┌────────────── batch due ───────────────┐
//!    idle ────┤ next batch of the pool, one send       ├───► waiting for `pipeline` replies
//!      ▲      └────────────────────────────────────────┘          │
//!      └───────────── all answered: record the time ◄─────────────┘
//! ```
//!
//! Closed pace: a batch is due as soon as its connection is idle. Open pace: batches are due at
//! times drawn in advance; a due batch takes the connection that has been idle longest, and waits
//! if there is none. Its latency counts from when it was due, not from when it was sent. This
//! corrects for coordinated omission: a server that stalls delays all batches due meanwhile.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use base::clock::{Clock, SystemClock};
use base::random::Prng;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::endpoint::{Endpoint, Socket};
use crate::error::BenchError;
use crate::histogram::Histogram;
use crate::keys::{KeyChooser, Keys};
use crate::pool::RequestPool;
use crate::process::own_thread_waited_ns;
use crate::replies::{ReplyScanner, Tally};
use crate::workload::{Pace, Workload};

/// Maximum number of events taken at once.
const EVENTS_MAX: usize = 256;
/// Maximum number of bytes read at once.
const INPUT_BYTES: usize = 256 * 1024;
/// Maximum time between two checks of the phase, and between two publications.
const PUBLISH_NS: u64 = 50_000_000;
/// The wait for a batch that is due sooner than this spins: sleeping takes about as long.
const SPIN_NS: u64 = 60_000;
/// How long to wait for replies after the end.
const DRAIN_NS: u64 = 2_000_000_000;

/// The phases that all threads of a run go through together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Requests are sent, but not counted.
    WarmUp = 0,
    /// All requests are counted.
    Measure = 1,
    /// No more requests are sent.
    Stop = 2,
}

/// State that the threads of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    phase: AtomicU8,
    /// Requests sent while measuring.
    claimed: AtomicU64,
    requests_max: u64,
}

/// What one thread publishes while it runs.
#[derive(Debug, Default)]
pub(crate) struct Board {
    /// Replies so far, in all phases.
    pub(crate) replies: AtomicU64,
    /// Latencies since they were last taken.
    pub(crate) recent: Mutex<Histogram>,
}

/// The measurements of one thread.
#[derive(Debug, Default)]
pub(crate) struct Harvest {
    /// Times from when a batch was due to each reply.
    pub(crate) latency: Histogram,
    /// Times from when a batch was sent to each reply; empty in a closed run, in which both are the
    /// same.
    pub(crate) service: Histogram,
    pub(crate) tally: Tally,
    /// How long the thread waited for a processor while measuring.
    pub(crate) waited_ns: u64,
    /// When its last reply was received.
    pub(crate) ended_ns: u64,
}

impl Shared {
    pub(crate) fn new(requests_max: u64) -> Self {
        Self {
            phase: AtomicU8::new(Phase::WarmUp as u8),
            claimed: AtomicU64::new(0),
            requests_max,
        }
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::WarmUp,
            1 => Phase::Measure,
            _ => Phase::Stop,
        }
    }

    /// Claims up to `wanted` requests. Returns the first one's number and their count, or `None` at
    /// the end.
    fn claim(&self, wanted: u64) -> Option<(u64, u64)> {
        match self.phase() {
            Phase::WarmUp => Some((0, wanted)),
            Phase::Stop => None,
            Phase::Measure => {
                let first = self.claimed.fetch_add(wanted, Ordering::Relaxed);
                let left = self.requests_max.saturating_sub(first);
                (left > 0).then(|| (first, wanted.min(left)))
            }
        }
    }
}

/// One connection.
#[derive(Debug)]
struct Connection {
    socket: Socket,
    scanner: ReplyScanner,
    /// Number of missing replies.
    awaited: u64,
    due_ns: u64,
    sent_ns: u64,
    /// Bytes of the batch that the socket did not accept yet.
    unsent: Vec<u8>,
}

/// The times at which batches are due.
#[derive(Debug)]
struct Schedule {
    /// Nanoseconds between two batches.
    interval_ns: f64,
    is_random: bool,
    next_ns: f64,
    prng: Prng,
}

/// One thread.
pub(crate) struct Worker<'a> {
    clock: SystemClock,
    shared: &'a Shared,
    board: &'a Board,
    endpoint: &'a Endpoint,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Connections without a batch, the longest idle first.
    idle: VecDeque<usize>,
    pool: RequestPool,
    keys: KeyChooser,
    pipeline: usize,
    /// `None` in a closed run.
    schedule: Option<Schedule>,
    phase: Phase,
    harvest: Harvest,
    replies: u64,
    recent: Histogram,
    published_ns: u64,
    /// How long the thread had waited for a processor before measuring.
    waited_before_ns: u64,
    input: Vec<u8>,
}

/// The parameters of a thread.
pub(crate) struct Setup<'a> {
    pub(crate) clock: SystemClock,
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) workload: &'a Workload,
    pub(crate) keys: &'a Keys,
    pub(crate) shared: &'a Shared,
    pub(crate) board: &'a Board,
    /// The thread's index.
    pub(crate) index: usize,
    pub(crate) connections: usize,
}

impl<'a> Worker<'a> {
    /// Pins the calling thread, builds the requests and opens the connections.
    pub(crate) fn new(setup: &Setup<'a>) -> Result<Self, BenchError> {
        let workload = setup.workload;
        pin(&workload.cpus, setup.index)?;
        // Each thread draws different numbers, the same ones in each run.
        let mut prng = Prng::seeded(workload.seed.wrapping_add(setup.index as u64 + 1));
        let keys = setup.keys.chooser(prng.next_u64());
        let pool = RequestPool::new(workload, &mut prng);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
        let mut worker = Self {
            clock: setup.clock,
            shared: setup.shared,
            board: setup.board,
            endpoint: setup.endpoint,
            epoll: epoll.map_err(|error| system("epoll_create", error))?,
            connections: Vec::with_capacity(setup.connections),
            idle: (0..setup.connections).collect(),
            pool,
            keys,
            pipeline: workload.pipeline.max(1),
            schedule: Schedule::new(workload, prng),
            phase: Phase::WarmUp,
            harvest: Harvest::default(),
            replies: 0,
            recent: Histogram::default(),
            published_ns: 0,
            waited_before_ns: 0,
            input: vec![0; INPUT_BYTES],
        };
        for _ in 0..setup.connections {
            worker.connect()?;
        }
        Ok(worker)
    }

    fn connect(&mut self) -> Result<(), BenchError> {
        let session = self.endpoint.connect()?;
        let socket = session
            .into_nonblocking()
            .map_err(|error| self.endpoint.lost(error))?;
        let data = epoll::EventData::new_u64(self.connections.len() as u64);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)
            .map_err(|error| system("epoll_ctl", error))?;
        self.connections.push(Connection {
            socket,
            scanner: ReplyScanner::default(),
            awaited: 0,
            due_ns: 0,
            sent_ns: 0,
            unsent: Vec::new(),
        });
        Ok(())
    }

    /// Sends and receives until the run ends.
    pub(crate) fn run(mut self) -> Result<Harvest, BenchError> {
        let mut now_ns = self.clock.monotonic_ns();
        if let Some(schedule) = &mut self.schedule {
            schedule.next_ns = now_ns as f64;
        }
        let mut drain_until_ns = u64::MAX;
        let mut events = [MaybeUninit::uninit(); EVENTS_MAX];
        loop {
            self.follow_phase(now_ns);
            let is_over = !self.start_batches(now_ns)?;
            if is_over {
                drain_until_ns = drain_until_ns.min(now_ns + DRAIN_NS);
                let all_answered = self.connections.iter().all(|peer| peer.awaited == 0);
                if all_answered || now_ns >= drain_until_ns {
                    break;
                }
            }
            let timeout = self.patience(now_ns, is_over);
            let ready = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
                Ok((ready, _)) => ready,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(system("epoll_wait", error)),
            };
            for event in ready {
                let index = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
                self.on_event(index, event.flags)?;
            }
            now_ns = self.clock.monotonic_ns();
            if now_ns >= self.published_ns + PUBLISH_NS {
                self.publish(now_ns);
            }
        }
        self.publish(now_ns);
        self.harvest.waited_ns = own_thread_waited_ns().saturating_sub(self.waited_before_ns);
        Ok(self.harvest)
    }

    /// Discards the warm-up's measurements at its end, and completes the measurements at the end of
    /// the run.
    fn follow_phase(&mut self, now_ns: u64) {
        let phase = self.shared.phase();
        if phase != self.phase {
            match phase {
                Phase::Measure => {
                    self.harvest = Harvest::default();
                    self.waited_before_ns = own_thread_waited_ns();
                }
                Phase::Stop => self.count_unsent(now_ns),
                Phase::WarmUp => {}
            }
        }
        self.phase = phase;
    }

    /// Counts the batches that should have been sent before the end but found no idle connection:
    /// they have waited this long, and would otherwise be missing from the latencies.
    fn count_unsent(&mut self, now_ns: u64) {
        let Some(schedule) = &mut self.schedule else {
            return;
        };
        while schedule.next_ns < now_ns as f64 {
            let waited_ns = now_ns.saturating_sub(crate::units::whole(schedule.next_ns));
            self.harvest.latency.record(waited_ns, self.pipeline as u64);
            schedule.advance();
        }
    }

    /// Sends due batches on idle connections. Returns `false` if there is nothing left to send.
    fn start_batches(&mut self, now_ns: u64) -> Result<bool, BenchError> {
        while let Some(&index) = self.idle.front() {
            let due_ns = match &self.schedule {
                None => now_ns,
                Some(schedule) => crate::units::whole(schedule.next_ns),
            };
            if due_ns > now_ns {
                break;
            }
            if !self.start_batch(index, due_ns)? {
                return Ok(false);
            }
            self.idle.pop_front();
            if let Some(schedule) = &mut self.schedule {
                schedule.advance();
            }
        }
        Ok(self.phase != Phase::Stop)
    }

    /// Sends a batch. Returns `false` if none is left.
    fn start_batch(&mut self, index: usize, due_ns: u64) -> Result<bool, BenchError> {
        let Some((first, count)) = self.shared.claim(self.pipeline as u64) else {
            return Ok(false);
        };
        let requests = usize::try_from(count).unwrap_or(self.pipeline);
        let batch = self.pool.next_batch(requests, first, &mut self.keys);
        let connection = &mut self.connections[index];
        connection.awaited = count;
        connection.due_ns = due_ns;
        if self.schedule.is_some() {
            connection.sent_ns = self.clock.monotonic_ns();
        }
        let sent = connection
            .send(batch)
            .map_err(|error| self.endpoint.lost(error))?;
        if sent < batch.len() {
            let connection = &mut self.connections[index];
            connection.unsent.extend_from_slice(&batch[sent..]);
            self.watch(index, epoll::EventFlags::IN | epoll::EventFlags::OUT)?;
        }
        Ok(true)
    }

    fn on_event(&mut self, index: usize, flags: epoll::EventFlags) -> Result<(), BenchError> {
        if flags.contains(epoll::EventFlags::OUT) {
            self.send_rest(index)?;
        }
        if !flags
            .intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR)
        {
            return Ok(());
        }
        let connection = &mut self.connections[index];
        let count = match connection.socket.recv(&mut self.input[..]) {
            Ok(0) => return Err(self.endpoint.lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => count,
            Err(error) if is_passing(&error) => return Ok(()),
            Err(error) => return Err(self.endpoint.lost(error)),
        };
        let scanned = connection
            .scanner
            .scan(&self.input[..count], &mut self.harvest.tally);
        let replies =
            scanned.map_err(|error| BenchError::Reply(self.endpoint.address.clone(), error))?;
        self.on_replies(index, replies)
    }

    fn on_replies(&mut self, index: usize, replies: u64) -> Result<(), BenchError> {
        if replies == 0 {
            return Ok(());
        }
        let now_ns = self.clock.monotonic_ns();
        let connection = &mut self.connections[index];
        let Some(awaited) = connection.awaited.checked_sub(replies) else {
            return Err(self
                .endpoint
                .lost(io::Error::other("more replies than requests")));
        };
        connection.awaited = awaited;
        let latency_ns = now_ns.saturating_sub(connection.due_ns);
        self.recent.record(latency_ns, replies);
        if self.schedule.is_some() {
            let service_ns = now_ns.saturating_sub(connection.sent_ns);
            self.harvest.service.record(service_ns, replies);
        }
        self.harvest.latency.record(latency_ns, replies);
        self.harvest.ended_ns = now_ns;
        self.replies += replies;
        self.board.replies.store(self.replies, Ordering::Release);
        if awaited > 0 {
            return Ok(());
        }
        // In a closed run the next batch is sent at once, so that the server sees it in this turn.
        if self.schedule.is_some() || !self.start_batch(index, now_ns)? {
            self.idle.push_back(index);
        }
        Ok(())
    }

    fn send_rest(&mut self, index: usize) -> Result<(), BenchError> {
        let connection = &mut self.connections[index];
        let unsent = std::mem::take(&mut connection.unsent);
        let sent = connection
            .send(&unsent)
            .map_err(|error| self.endpoint.lost(error))?;
        let connection = &mut self.connections[index];
        connection.unsent = unsent;
        connection.unsent.drain(..sent);
        if connection.unsent.is_empty() {
            self.watch(index, epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    fn watch(&self, index: usize, flags: epoll::EventFlags) -> Result<(), BenchError> {
        let data = epoll::EventData::new_u64(index as u64);
        epoll::modify(&self.epoll, &self.connections[index].socket, data, flags)
            .map_err(|error| system("epoll_ctl", error))
    }

    /// Returns how long to wait for events: until the next batch is due, or until the next check of
    /// the phase.
    fn patience(&self, now_ns: u64, is_over: bool) -> Timespec {
        let until_due_ns = match &self.schedule {
            Some(schedule) if !self.idle.is_empty() && !is_over => {
                crate::units::whole(schedule.next_ns).saturating_sub(now_ns)
            }
            _ => PUBLISH_NS,
        };
        let wait_ns = match until_due_ns {
            0..SPIN_NS => 0,
            ns => (ns - SPIN_NS / 2).min(PUBLISH_NS),
        };
        Timespec {
            tv_sec: 0,
            tv_nsec: i64::try_from(wait_ns).unwrap_or(0),
        }
    }

    fn publish(&mut self, now_ns: u64) {
        self.published_ns = now_ns;
        let mut recent = self
            .board
            .recent
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        recent.merge(&self.recent);
        self.recent.clear();
    }
}

impl Connection {
    /// Sends what the socket accepts at once.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.socket.send(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

impl Schedule {
    /// Creates the schedule of one thread.
    fn new(workload: &Workload, prng: Prng) -> Option<Self> {
        let Pace::Open {
            requests_per_second,
            is_random,
        } = workload.pace
        else {
            return None;
        };
        let batches = requests_per_second / workload.pipeline.max(1) as f64;
        Some(Self {
            interval_ns: 1e9 * workload.threads.max(1) as f64 / batches,
            is_random,
            next_ns: 0.0,
            prng,
        })
    }

    /// Advances to the next batch.
    fn advance(&mut self) {
        // Pauses between independent events are exponentially distributed.
        let pause = match self.is_random {
            true => -(1.0 - self.prng.unit_f64()).ln(),
            false => 1.0,
        };
        self.next_ns += pause * self.interval_ns;
    }
}

/// Pins the calling thread to its processor.
fn pin(cpus: &[usize], index: usize) -> Result<(), BenchError> {
    let Some(&cpu) = cpus.get(index % cpus.len().max(1)) else {
        return Ok(());
    };
    if cpu >= CpuSet::MAX_CPU {
        return Err(BenchError::Usage(format!("There is no processor {cpu}")));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|error| system("pinning a thread", error))
}

fn system(what: &'static str, error: Errno) -> BenchError {
    BenchError::System(what, error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_end_exactly_at_the_limit() {
        let shared = Shared::new(25);
        assert_eq!(shared.claim(10), Some((0, 10)));
        shared.set_phase(Phase::Measure);
        let claims: Vec<_> = (0..4).map(|_| shared.claim(10)).collect();
        assert_eq!(claims, [Some((0, 10)), Some((10, 10)), Some((20, 5)), None]);
        shared.set_phase(Phase::Stop);
        assert_eq!(Shared::new(0).claim(1), Some((0, 1)));
        assert_eq!(shared.claim(10), None);
    }

    #[test]
    fn random_pauses_keep_the_rate() {
        let workload = Workload {
            pace: Pace::Open {
                requests_per_second: 2e6,
                is_random: true,
            },
            pipeline: 10,
            threads: 2,
            ..Workload::default()
        };
        let mut schedule = Schedule::new(&workload, Prng::seeded(1)).unwrap();
        assert!((schedule.interval_ns - 10_000.0).abs() < 1e-6);
        (0..100_000).for_each(|_| schedule.advance());
        assert!(
            (0.98e9..1.02e9).contains(&schedule.next_ns),
            "{}",
            schedule.next_ns
        );
    }
}
