//! Values that are read for requests which wait for them: one read for all who want the same.
//!
//! ```text
//!   want ─┬► queue of the worker ──► its ring ─┬► done       wakes the workers whose requests wait, and the threads that do
//!         │                                    └► not right ─┐
//!         └► queue ──────────────────────────────────────────┴► thread ──► done
//!                 └── overdue ──► given up                   the same, with nothing; who reads is back when the device is
//! ```
//!
//! A worker that has a ring ([`super::ring_reads`]) reads what its own requests want by itself. All else is read by threads: for
//! workers without a ring, for who waits with a key held, and what a ring got wrong. Only a worker gives up what its ring has,
//! so that nothing is given up because that worker was busy.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::clock::Clock;
use reactor::ConnectionId;
use store::{ColdValue, Locator};

use super::values::{Name, Values};
use super::{Requester, Wakes};

/// How many threads read where no worker has a ring.
const THREADS: usize = 16;
/// And where all have: what is left to them is seldom.
const THREADS_BESIDE_RINGS: usize = 4;

/// A value that is wanted.
#[derive(Clone, Debug)]
pub(super) struct WantedValue {
    pub(super) key: Vec<u8>,
    pub(super) locator: Locator,
    /// Of its entry, when it was wanted.
    pub(super) name: Name,
}

/// What a thread that waits is given.
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

    /// What was given; none where nothing was within that time.
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
    /// How many of them are not there yet.
    left: AtomicUsize,
}

/// Who waits for a value; nobody, where it is read ahead.
struct Waiting {
    since_ns: u64,
    /// The worker whose ring it is left to; none where that is a thread.
    ring: Option<usize>,
    requests: Vec<Arc<Group>>,
    threads: Vec<Arc<Answer>>,
}

/// See the module.
pub(super) struct Readers {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    changed: Condvar,
    coalesced: AtomicU64,
    /// Of each worker.
    rings: Vec<RingState>,
}

/// What others see of the ring of a worker.
#[derive(Debug, Default)]
struct RingState {
    /// It is in use.
    is_on: AtomicBool,
    /// Something may be in its queue.
    is_wanted: AtomicBool,
    /// When the worker looked last, and found a read under way, how long that had taken by then; 0: none was.
    oldest_ns: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Not begun yet, and left to threads.
    queue: VecDeque<WantedValue>,
    /// The same, of each worker with a ring.
    ring_queues: Vec<VecDeque<WantedValue>>,
    /// Who waits for what, begun or not.
    waiting: HashMap<Name, Waiting>,
    /// When the reads that threads are at began.
    begun_ns: Vec<u64>,
    is_over: bool,
}

impl State {
    /// Notes that a value is wanted, by somebody with this ring, and who waits for it; whether that is known already.
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
    /// For so many workers, of which none has a ring yet.
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

    /// How many threads are to [run](Self::run), where workers have rings or have none.
    pub(super) fn threads(has_rings: bool) -> usize {
        match has_rings {
            true => THREADS_BESIDE_RINGS,
            false => THREADS,
        }
    }

    /// Has values read for requests of a worker; for one that waits for all of them, or for none. How many were not wanted
    /// before.
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

    /// Has a value read, and waits for it so long; none where there is no answer by then, or nobody reads any more.
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
            // That ring may be of the very thread that waits here: whoever is first serves all.
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

    /// The ring of a worker is in use from now on.
    pub(super) fn use_ring(&self, worker: usize) {
        if let Some(ring) = self.rings.get(worker) {
            ring.is_on.store(true, Ordering::Relaxed);
        }
    }

    /// It is so no more: threads read what it was to begin.
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

    /// Whether something is wanted of the ring of a worker.
    pub(super) fn wants_ring(&self, worker: usize) -> bool {
        let ring = self.rings.get(worker);
        ring.is_some_and(|ring| ring.is_wanted.load(Ordering::Relaxed))
    }

    /// What is wanted of the ring of a worker, up to so many, oldest first.
    pub(super) fn take_for_ring(&self, worker: usize, most: usize, into: &mut Vec<WantedValue>) {
        let mut state = self.lock();
        let (Some(ring), Some(queue)) = (self.rings.get(worker), state.ring_queues.get_mut(worker))
        else {
            return;
        };
        into.extend(queue.drain(..most.min(queue.len())));
        // Nobody but the worker puts something there, by its own requests.
        ring.is_wanted.store(!queue.is_empty(), Ordering::Relaxed);
    }

    /// Values were read by the ring of a worker: who waits goes on. Of that worker's own requests, `own` is told.
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

    /// Leaves to threads what a ring could not read, or not right, as far as somebody still waits for it.
    pub(super) fn leave_to_threads(&self, value: WantedValue) {
        let mut state = self.lock();
        if let Some(waiting) = state.waiting.get_mut(&value.name) {
            waiting.ring = None;
            state.queue.push_back(value);
            self.changed.notify_one();
        }
    }

    /// Of the ring of a worker, how long the oldest read has taken that it found under way just now; 0: there is none.
    pub(super) fn note_oldest(&self, worker: usize, oldest_ns: u64) {
        if let Some(ring) = self.rings.get(worker) {
            ring.oldest_ns.store(oldest_ns, Ordering::Relaxed);
        }
    }

    /// Reads what is wanted, until it is over.
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

    /// Gives up what threads, or the ring of a worker, have been wanted to read for so long.
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

    /// Whether a read that was begun has had no answer for so long.
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

    /// Whether nobody reads any more.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Ends the threads.
    pub(super) fn stop(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Reads that are wanted or under way.
    pub(super) fn pending(&self) -> u64 {
        self.lock().waiting.len() as u64
    }

    /// How often a read served one more.
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
