//! Threads that read values for requests which wait for them: one read for all who want the same.
//!
//! ```text
//!   want ──► queue ──► thread ──► done      wakes the workers whose requests wait, and the threads that do
//!                 └── overdue ──► given up  the same, with nothing; the thread is back when the device is
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::clock::Clock;
use store::{ColdValue, Locator};

use super::values::{Name, Values};
use super::{Requester, Wakes};

/// How many reads are under way at most.
pub(super) const THREADS: usize = 16;

/// A value that is wanted.
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
    requests: Vec<Arc<Group>>,
    threads: Vec<Arc<Answer>>,
}

/// See the module.
pub(super) struct Readers {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    changed: Condvar,
    coalesced: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Not begun yet.
    queue: VecDeque<WantedValue>,
    /// Who waits for what, begun or not.
    waiting: HashMap<Name, Waiting>,
    /// When the reads that threads are at began.
    begun_ns: Vec<u64>,
    is_over: bool,
}

impl State {
    /// Notes that a value is wanted, and who waits for it; whether that is known already.
    fn want(&mut self, value: WantedValue, now_ns: u64) -> (&mut Waiting, bool) {
        let is_known = self.waiting.contains_key(&value.name);
        let waiting = self.waiting.entry(value.name).or_insert(Waiting {
            since_ns: now_ns,
            requests: Vec::new(),
            threads: Vec::new(),
        });
        if !is_known {
            self.queue.push_back(value);
        }
        (waiting, is_known)
    }
}

impl Readers {
    pub(super) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            state: Mutex::default(),
            changed: Condvar::new(),
            coalesced: AtomicU64::new(0),
        }
    }

    /// Has values read; whose request waits for all of them, if one does. How many were not wanted before.
    pub(super) fn want(&self, values: Vec<WantedValue>, requester: Option<Requester>) -> usize {
        let group = requester.map(|requester| {
            let left = AtomicUsize::new(values.len());
            Arc::new(Group { requester, left })
        });
        let now_ns = self.clock.monotonic_ns();
        let mut new = 0;
        let mut state = self.lock();
        for value in values {
            let (waiting, is_known) = state.want(value, now_ns);
            waiting.requests.extend(group.clone());
            new += usize::from(!is_known);
            self.note_wanted(is_known);
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
        let (waiting, is_known) = state.want(value, now_ns);
        waiting.threads.push(Arc::clone(&answer));
        self.note_wanted(is_known);
        drop(state);
        answer.wait(time)
    }

    fn note_wanted(&self, is_known: bool) {
        if is_known {
            self.coalesced.fetch_add(1, Ordering::Relaxed);
        } else {
            self.changed.notify_one();
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
                serve(waiting, read.as_ref(), requests);
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

    /// Gives up what has been wanted for so long.
    pub(super) fn give_up_after(&self, time: Duration, values: &Values, requests: &dyn Wakes) {
        let now_ns = self.clock.monotonic_ns();
        let mut state = self.lock();
        let is_overdue = |waiting: &Waiting| is_older(waiting.since_ns, now_ns, time);
        let overdue: Vec<_> = state
            .waiting
            .extract_if(|_, waiting| is_overdue(waiting))
            .collect();
        if overdue.is_empty() {
            return;
        }
        let State { queue, waiting, .. } = &mut *state;
        queue.retain(|value| waiting.contains_key(&value.name));
        drop(state);
        for (name, waiting) in overdue {
            if waiting.threads.is_empty() || !waiting.requests.is_empty() {
                values.give_up(name, time);
            }
            serve(waiting, None, requests);
        }
    }

    /// Whether a read that was begun has had no answer for so long.
    pub(super) fn is_stalled(&self, time: Duration) -> bool {
        let now_ns = self.clock.monotonic_ns();
        let state = self.lock();
        state
            .begun_ns
            .iter()
            .any(|begun_ns| is_older(*begun_ns, now_ns, time))
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

fn serve(waiting: Waiting, value: Option<&Arc<ColdValue>>, requests: &dyn Wakes) {
    for thread in waiting.threads {
        thread.give(value.map(Arc::clone));
    }
    for group in waiting.requests {
        if group.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            requests.wake(group.requester);
        }
    }
}
