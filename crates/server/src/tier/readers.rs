//! Reads of values that requests wait for: one read for all requests that want the same value.
//!
//! ```text
//!   want ─┬► queue of the worker ──► its ring ─┬► done       wakes the workers whose requests wait, and the threads that do
//!         │                                    └► not right ─┐
//!         └► queue ──────────────────────────────────────────┴► thread ──► done
//!                 └── overdue ──► given up                   the same, with nothing; who reads is back when the device is
//! ```
//!
//! A worker with a ring ([`super::ring_reads`]) reads for its own requests. Threads do all other
//! reads: for workers without a ring, for threads that wait with a key locked, and those that a
//! ring got wrong. Only the worker itself gives up reads of its ring, so that no read is given up
//! because that worker was busy.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::clock::Clock;
use reactor::ConnectionId;
use store::{ColdValue, Locator};

use super::values::{Name, Values};
use super::{Requester, Wakes};

/// Number of reader threads if workers have no rings.
const THREADS: usize = 16;
/// Number of reader threads if all workers have rings: they are rarely needed.
const THREADS_BESIDE_RINGS: usize = 4;

/// A wanted value.
#[derive(Clone, Debug)]
pub(super) struct WantedValue {
    pub(super) key: Vec<u8>,
    pub(super) locator: Locator,
    /// Name of its entry when it was wanted.
    pub(super) name: Name,
}

/// Result for a waiting thread.
#[derive(Default)]
struct Answer {
    value: Mutex<Option<Option<Arc<ColdValue>>>>,
    given: Condvar,
}

impl Answer {
    fn give(&self, value: Option<Arc<ColdValue>>) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        self.given.notify_one();
    }

    /// Waits for the result; `None` if there is none within `time`.
    fn wait(&self, time: Duration) -> Option<Option<Arc<ColdValue>>> {
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .given
            .wait_timeout_while(value, time, |value| value.is_none());
        let (mut value, _) = waited.unwrap_or_else(PoisonError::into_inner);
        value.take()
    }
}

/// A request that waits for values.
struct Group {
    requester: Requester,
    /// Number of values that are still missing.
    left: AtomicUsize,
}

/// The requests and threads that wait for a value; none if it is read ahead.
struct Waiting {
    since_ns: u64,
    /// The worker whose ring reads it, or `None` if a thread does.
    ring: Option<usize>,
    requests: Vec<Arc<Group>>,
    threads: Vec<Arc<Answer>>,
}

/// See the module documentation.
pub(super) struct Readers {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    changed: Condvar,
    coalesced: AtomicU64,
    /// One per worker.
    rings: Vec<RingState>,
}

/// Shared state of a worker's ring.
#[derive(Debug, Default)]
struct RingState {
    /// Whether it is in use.
    is_on: AtomicBool,
    /// Whether its queue may contain something.
    is_wanted: AtomicBool,
    /// Age of the oldest read under way at the worker's last check; 0 if there was none.
    oldest_ns: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Wanted values that threads have not begun to read.
    queue: VecDeque<WantedValue>,
    /// The same, per worker with a ring.
    ring_queues: Vec<VecDeque<WantedValue>>,
    /// Waiters per entry, whether or not its read has begun.
    waiting: HashMap<Name, Waiting>,
    /// Start times of the reads that threads have begun.
    begun_ns: Vec<u64>,
    is_over: bool,
}

impl State {
    /// Registers a wanted value for a ring or for threads. Returns its waiters, and whether it was
    /// already wanted.
    fn want(
        &mut self,
        value: WantedValue,
        ring: Option<usize>,
        now_ns: u64,
    ) -> (&mut Waiting, bool) {
        let mut is_known = true;
        let waiting = self.waiting.entry(value.name).or_insert_with(|| {
            is_known = false;
            Waiting {
                since_ns: now_ns,
                ring,
                requests: Vec::new(),
                threads: Vec::new(),
            }
        });
        if !is_known {
            match ring.and_then(|worker| self.ring_queues.get_mut(worker)) {
                Some(queue) => queue.push_back(value),
                None => self.queue.push_back(value),
            }
        }
        (waiting, is_known)
    }
}

impl Readers {
    /// Makes readers for `workers` workers, none of which has a ring yet.
    pub(super) fn new(clock: &Arc<dyn Clock>, workers: usize) -> Self {
        let state = State {
            ring_queues: (0..workers).map(|_| VecDeque::new()).collect(),
            ..State::default()
        };
        Self {
            clock: Arc::clone(clock),
            state: Mutex::new(state),
            changed: Condvar::new(),
            coalesced: AtomicU64::new(0),
            rings: (0..workers).map(|_| RingState::default()).collect(),
        }
    }

    /// Returns the number of threads to [run](Self::run).
    pub(super) fn threads(has_rings: bool) -> usize {
        match has_rings {
            true => THREADS_BESIDE_RINGS,
            false => THREADS,
        }
    }

    /// Starts reading values for a worker, for one request that waits for all of them or for none.
    /// Returns how many were not wanted before.
    pub(super) fn want(
        &self,
        values: Vec<WantedValue>,
        worker: usize,
        requester: Option<Requester>,
    ) -> usize {
        let group = requester.map(|requester| {
            let left = AtomicUsize::new(values.len());
            Arc::new(Group { requester, left })
        });
        let ring = self.rings.get(worker);
        let ring = ring.filter(|ring| ring.is_on.load(Ordering::Relaxed));
        let place = ring.map(|_| worker);
        let now_ns = self.clock.monotonic_ns();
        let (mut new, mut known) = (0, 0);
        let mut state = self.lock();
        for value in values {
            let (waiting, is_known) = state.want(value, place, now_ns);
            waiting.requests.extend(group.clone());
            if is_known {
                known += 1;
            } else {
                new += 1;
            }
        }
        drop(state);
        self.coalesced.fetch_add(known, Ordering::Relaxed);
        match ring {
            Some(ring) => ring.is_wanted.store(true, Ordering::Relaxed),
            None => (0..new).for_each(|_| self.changed.notify_one()),
        }
        new
    }

    /// Makes a thread read a value and waits for it. Returns `None` if there is no answer within
    /// `time`, or if the readers have stopped.
    pub(super) fn read_now(
        &self,
        value: WantedValue,
        time: Duration,
    ) -> Option<Option<Arc<ColdValue>>> {
        let answer = Arc::new(Answer::default());
        let now_ns = self.clock.monotonic_ns();
        let mut state = self.lock();
        if state.is_over {
            return None;
        }
        let again = value.clone();
        let (waiting, is_known) = state.want(value, None, now_ns);
        waiting.threads.push(Arc::clone(&answer));
        if is_known && waiting.ring.take().is_some() {
            // The ring may belong to the very thread that waits here, so a thread reads the value,
            // too: the first result serves all.
            state.queue.push_back(again);
            self.changed.notify_one();
        } else if is_known {
            self.coalesced.fetch_add(1, Ordering::Relaxed);
        } else {
            self.changed.notify_one();
        }
        drop(state);
        answer.wait(time)
    }

    /// Starts the use of a worker's ring.
    pub(super) fn use_ring(&self, worker: usize) {
        if let Some(ring) = self.rings.get(worker) {
            ring.is_on.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the use of a worker's ring: threads do its remaining reads.
    pub(super) fn end_ring(&self, worker: usize) {
        let mut state = self.lock();
        if let Some(ring) = self.rings.get(worker) {
            ring.is_on.store(false, Ordering::Relaxed);
            ring.is_wanted.store(false, Ordering::Relaxed);
            ring.oldest_ns.store(0, Ordering::Relaxed);
        }
        let queue = state.ring_queues.get_mut(worker).map(std::mem::take);
        for value in queue.unwrap_or_default() {
            if let Some(waiting) = state.waiting.get_mut(&value.name) {
                waiting.ring = None;
                state.queue.push_back(value);
            }
        }
        self.changed.notify_all();
    }

    /// Whether a worker's ring may have queued reads.
    pub(super) fn wants_ring(&self, worker: usize) -> bool {
        let ring = self.rings.get(worker);
        ring.is_some_and(|ring| ring.is_wanted.load(Ordering::Relaxed))
    }

    /// Takes up to `most` wanted values for a worker's ring, oldest first.
    pub(super) fn take_for_ring(&self, worker: usize, most: usize, into: &mut Vec<WantedValue>) {
        let mut state = self.lock();
        let (Some(ring), Some(queue)) = (self.rings.get(worker), state.ring_queues.get_mut(worker))
        else {
            return;
        };
        into.extend(queue.drain(..most.min(queue.len())));
        // Only the worker itself adds values to this queue, for its own requests.
        ring.is_wanted.store(!queue.is_empty(), Ordering::Relaxed);
    }

    /// Serves the waiters of values that a worker's ring has read. Appends that worker's own
    /// connections to `own`.
    pub(super) fn done(
        &self,
        worker: usize,
        read: &mut Vec<(Name, Arc<ColdValue>)>,
        requests: &dyn Wakes,
        own: &mut Vec<ConnectionId>,
    ) {
        if read.is_empty() {
            return;
        }
        let mut served = Vec::with_capacity(read.len());
        let mut state = self.lock();
        for (name, value) in read.drain(..) {
            if let Some(waiting) = state.waiting.remove(&name) {
                served.push((waiting, value));
            }
        }
        drop(state);
        for (waiting, value) in served {
            serve(waiting, Some(&value), &mut |requester| match requester {
                Requester {
                    worker: its,
                    connection: Some(connection),
                } if its == worker => own.push(connection),
                other => requests.wake(other),
            });
        }
    }

    /// Leaves a value to threads that a ring could not read correctly, if it still has waiters.
    pub(super) fn leave_to_threads(&self, value: WantedValue) {
        let mut state = self.lock();
        if let Some(waiting) = state.waiting.get_mut(&value.name) {
            waiting.ring = None;
            state.queue.push_back(value);
            self.changed.notify_one();
        }
    }

    /// Records the age of the oldest read under way in a worker's ring; 0 means none.
    pub(super) fn note_oldest(&self, worker: usize, oldest_ns: u64) {
        if let Some(ring) = self.rings.get(worker) {
            ring.oldest_ns.store(oldest_ns, Ordering::Relaxed);
        }
    }

    /// Reads wanted values, until it is stopped.
    pub(super) fn run(&self, values: &Arc<Values>, requests: &dyn Wakes) {
        while let Some((value, begun_ns)) = self.next() {
            let WantedValue { key, locator, name } = value;
            let read = values.preload(&key, locator, name);
            let mut state = self.lock();
            if let Some(at) = state.begun_ns.iter().position(|one| *one == begun_ns) {
                state.begun_ns.swap_remove(at);
            }
            let waiting = state.waiting.remove(&name);
            drop(state);
            if let Some(waiting) = waiting {
                serve(waiting, read.as_ref(), &mut |requester| {
                    requests.wake(requester);
                });
            }
        }
    }

    fn next(&self) -> Option<(WantedValue, u64)> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(wanted) = state.queue.pop_front() {
                let now_ns = self.clock.monotonic_ns();
                state.begun_ns.push(now_ns);
                return Some((wanted, now_ns));
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives up reads by threads, or by a worker's ring, that were wanted for at least `time`.
    pub(super) fn give_up_after(
        &self,
        time: Duration,
        ring: Option<usize>,
        values: &Values,
        requests: &dyn Wakes,
    ) {
        let now_ns = self.clock.monotonic_ns();
        let mut state = self.lock();
        let is_overdue =
            |waiting: &Waiting| waiting.ring == ring && is_older(waiting.since_ns, now_ns, time);
        let overdue: Vec<_> = state
            .waiting
            .extract_if(|_, waiting| is_overdue(waiting))
            .collect();
        if overdue.is_empty() {
            return;
        }
        let State {
            queue,
            ring_queues,
            waiting,
            ..
        } = &mut *state;
        let queue = ring
            .and_then(|worker| ring_queues.get_mut(worker))
            .unwrap_or(queue);
        queue.retain(|value| waiting.contains_key(&value.name));
        drop(state);
        for (name, waiting) in overdue {
            if waiting.threads.is_empty() || !waiting.requests.is_empty() {
                values.give_up(name, time);
            }
            serve(waiting, None, &mut |requester| requests.wake(requester));
        }
    }

    /// Whether a read that has begun is without an answer for at least `time`.
    pub(super) fn is_stalled(&self, time: Duration) -> bool {
        let of_rings = self.rings.iter().any(|ring| {
            let oldest_ns = ring.oldest_ns.load(Ordering::Relaxed);
            oldest_ns > 0 && is_older(0, oldest_ns, time)
        });
        let now_ns = self.clock.monotonic_ns();
        let state = self.lock();
        let mut begun_ns = state.begun_ns.iter();
        of_rings || begun_ns.any(|begun_ns| is_older(*begun_ns, now_ns, time))
    }

    /// Whether the readers have stopped.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Stops the threads.
    pub(super) fn stop(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Returns the number of reads that are wanted or under way.
    pub(super) fn pending(&self) -> u64 {
        self.lock().waiting.len() as u64
    }

    /// Returns how often a read served one more waiter.
    pub(super) fn coalesced(&self) -> u64 {
        self.coalesced.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_older(since_ns: u64, now_ns: u64, time: Duration) -> bool {
    u128::from(now_ns.saturating_sub(since_ns)) >= time.as_nanos()
}

fn serve(waiting: Waiting, value: Option<&Arc<ColdValue>>, wake: &mut dyn FnMut(Requester)) {
    for thread in waiting.threads {
        thread.give(value.map(Arc::clone));
    }
    for group in waiting.requests {
        if group.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            wake(group.requester);
        }
    }
}
