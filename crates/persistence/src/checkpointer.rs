//! Checkpoints on request: a thread that makes one at a time, while all others work on.
//!
//! ```text
//!   SAVE, BGSAVE, save points, …        checkpointer (thread)
//!        request ──► ticket ──────────►   cut, parts, manifest ──► what is older goes
//!        wait(ticket) ◄── outcome ◄────        │
//!   INFO: figures ◄────────────────────────────┘
//! ```
//!
//! No thread is stopped for it: the store's snapshot is taken while it is written to, and there is
//! no second process. Its memory has a limit ([`Checkpointer::set_buffer_limit`]): at half of it
//! the walk through the store waits for the files, at the full limit writers are slowed down, and
//! at four times the limit the checkpoint is given up. In addition, an object that is written takes
//! its length in memory for a moment, on each of the writing threads.
//!
//! Rules
//!  1. A failed attempt leaves the previous checkpoint in force, and removes what it wrote. Only if
//!     a save fails after its checkpoint, with a file that it leaves beside, does its own
//!     checkpoint stay in force.
//!  2. Older files are removed once the new manifest is durable, and every part that it names was
//!     read again from its first to its last byte.
//!  3. The position in the log is read before the cut: so there is no gap between the checkpoint
//!     and what is replayed behind it. The log is durable up to its end at the time of the last
//!     saved record before the manifest is durable: so the checkpoint holds nothing that a shorter
//!     log would take back.

mod attempt;
mod pace;

pub use pace::share_of_copy;
mod parts;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use base::background::Scheduler;
use base::clock::Clock;
use durability::checkpoint::{
    CheckpointFault, History, Lineage, Manifest, read_manifest, remove_replaced_but,
};
use durability::disk::Disk;
use store::{Handle, SnapshotLimits, Store};
use tier::Tier;

use crate::key_delay::KeyDelay;
use crate::lines::Level;
use attempt::Made;
use parts::Attempt;

/// Default limit of the memory that a checkpoint may hold (`checkpoint-buffer-limit`).
pub const BUFFER_BYTES_DEFAULT: u64 = 64 << 20;

/// Multiple of the limit at which the checkpoint is given up.
const HARD_TIMES: u64 = 4;

/// Number of outcomes that are kept for late callers.
const OUTCOMES_KEPT: usize = 16;

/// Maximum number of writing threads.
const WRITERS_MAX: usize = 64;

/// Why a checkpoint is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A client asked for it (SAVE, BGSAVE, BGREWRITEAOF).
    Asked,
    /// Everything was deleted (FLUSHALL), and only save points decide when data is saved. Redis
    /// saves before it answers, so this save does not make another request fail.
    Flushed,
    /// A client asked for a short log (BGREWRITEAOF).
    Rewrite,
    /// A save point was reached.
    SavePoint,
    /// The log has become long.
    LongLog,
    /// Much of the tier is kept only for the previous checkpoint.
    LongTier,
    /// Files of another format were imported.
    Imported,
    /// All data is to be loaded again (DEBUG RELOAD).
    Reload,
    /// The server goes down.
    Shutdown,
}

impl Why {
    /// Whether it is a save in the sense of Redis, which can leave more files beside the checkpoint
    /// ([`Surroundings::save_beside`]).
    fn is_save(self) -> bool {
        match self {
            Self::Asked | Self::Flushed | Self::SavePoint | Self::Shutdown => true,
            Self::Rewrite | Self::LongLog | Self::LongTier | Self::Imported | Self::Reload => false,
        }
    }
}

/// Identifies a requested checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A checkpoint is being made.
    InProgress,
    /// The server goes down.
    Stopping,
}

/// Why there is no checkpoint, or why files beside it are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It was cancelled, or the server goes down.
    Cancelled,
    /// The present content of the store is not to be kept, with the reason: a replica is in the
    /// middle of a full sync.
    NotWhole(String),
    /// More was changed meanwhile than could be written, up to the limit of memory.
    OverLimit,
    /// The system reported an error.
    System(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "it was cancelled",
            Self::OverLimit => "more was changed meanwhile than memory for it allows",
            Self::NotWhole(what) | Self::System(what) => what,
        })
    }
}

impl std::error::Error for Failure {}

/// The outcome of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why it was made.
    pub why: Why,
    /// The manifest that is now in force, or the failure.
    pub result: Result<Arc<Manifest>, Failure>,
    /// Its duration.
    pub duration_ms: u64,
    /// Maximum memory that was held for it at any time.
    pub held_bytes_max: u64,
}

/// The present figures of checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The checkpoint that is being made, from its request on, even before the thread has begun it.
    pub current: Option<Progress>,
    /// Why another one is to be made right after it, if so.
    pub scheduled: Option<Why>,
    /// The failure of the last one, if it failed.
    pub last_failure: Option<Failure>,
    /// Duration of the last one, whether or not it failed; `None` if there was none.
    pub last_duration_ms: Option<u64>,
    /// Approximate duration of the last one without its yields to workers.
    pub last_work_ms: u64,
    /// Maximum memory that was held for the last one at any time.
    pub last_held_bytes_max: u64,
    /// Records of the last one that did not fail.
    pub last_records: u64,
    /// Its bytes.
    pub last_bytes: u64,
    /// Time of the cut of the last one that did not fail, in milliseconds since 1970 UTC. At first
    /// the time given to [`Checkpointer::note_clean`].
    pub last_save_unix_ms: u64,
    /// Changes of the store since then.
    pub changes_since_save: u64,
    /// Number of checkpoints made.
    pub saves: u64,
    /// Number of failures.
    pub failures: u64,
    /// Limit of the memory that a checkpoint may hold.
    pub buffer_limit_bytes: u64,
}

/// The progress of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Why it is made.
    pub why: Why,
    /// When it began, in milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// Time since then.
    pub elapsed_ms: u64,
    /// Number of records written.
    pub records: u64,
    /// Number of bytes written.
    pub bytes: u64,
    /// Share of the buckets that were walked, in thousandths.
    pub walked_per_mille: u64,
    /// Memory that is held for it.
    pub held_bytes: u64,
    /// Whether it was given up.
    pub is_given_up: bool,
}

impl Progress {
    /// Returns the bytes written per second so far.
    #[must_use]
    pub fn bytes_per_second(&self) -> u64 {
        self.bytes.saturating_mul(1_000) / self.elapsed_ms.max(1)
    }
}

/// The surroundings of a checkpointer besides the store: the operation log, and the receiver of
/// messages.
pub trait Surroundings: Send + Sync {
    /// Prepares for a checkpoint: the directory must exist, and belong to this server alone.
    ///
    /// # Errors
    /// Why no checkpoint can be made, for the operator.
    fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    /// Reports that a checkpoint was made or failed. Called before the outcome is visible to
    /// others.
    fn ended(&self, outcome: &Outcome) {
        let _ = outcome;
    }

    /// Returns the next sequence of the log. All effects of writes that see a cut made after this
    /// call are behind it.
    fn log_sequence(&self) -> Option<u64> {
        None
    }

    /// Returns the tier whose values parts may refer to. Without a tier, parts contain all values.
    fn tier(&self) -> Option<Arc<Tier>> {
        None
    }

    /// Returns the libraries of functions. Called right after a cut.
    fn libraries(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Returns why no checkpoint may be made now, if so: the content of the store is not to be
    /// kept.
    fn refuses(&self) -> Option<String> {
        None
    }

    /// Returns the manifest's statement about the history of the log, for which
    /// [`Surroundings::log_sequence`] returned the given sequence. Called right after a cut, while
    /// its turn is held ([`Store::batch_turn`]). If the result has a [sequence of the
    /// cut](History::cut_sequence), the log continues from there.
    ///
    /// # Errors
    /// Why this cut must not become a checkpoint.
    fn history(&self, log_sequence: Option<u64>) -> Result<History, String> {
        let _ = log_sequence;
        Ok(History::default())
    }

    /// Returns the end of the log that takes the effects of this server's own writes. Called when
    /// the snapshot is over: all effects of older generations are below.
    fn log_end(&self) -> Option<u64> {
        None
    }

    /// Makes everything durable that the log has now, so that a checkpoint in force holds nothing
    /// that is missing in the log before it.
    ///
    /// # Errors
    /// Those of the system: then the checkpoint is not put in force.
    fn make_log_durable(&self) -> io::Result<()> {
        Ok(())
    }

    /// Reports that a checkpoint is in force: the log before [`Manifest::log_sequence`] may be
    /// removed.
    fn in_force(&self, manifest: &Manifest) {
        let _ = manifest;
    }

    /// Writes what else a save is to leave, once its checkpoint is in force. Returns the maximum
    /// memory held for it at any time. Stops when `is_given_up` returns `true`.
    ///
    /// # Errors
    /// Why it is missing. Then the save has failed, although its checkpoint counts.
    fn save_beside(
        &self,
        limits: SnapshotLimits,
        is_given_up: &dyn Fn() -> bool,
    ) -> Result<u64, Failure> {
        let _ = (limits, is_given_up);
        Ok(0)
    }

    /// Sends a message to the operator.
    fn tell(&self, level: Level, message: fmt::Arguments<'_>) {
        let _ = (level, message);
    }
}

/// There is no operation log, and no receiver of messages.
impl Surroundings for () {}

/// The parameters of a checkpointer.
pub struct Setup {
    /// The store whose records are kept. Its [generation](Store::raise_generation) continues from
    /// that of the loaded checkpoint and of the log behind it.
    pub store: Arc<Store>,
    /// The disk with the files.
    pub disk: Arc<dyn Disk>,
    /// Directory of the manifest, until it is [changed](Checkpointer::set_directory).
    pub directory: PathBuf,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Lineage of the data.
    pub lineage: Lineage,
    /// Scheduler by which the checkpoint's threads yield to workers. It has no other background
    /// threads.
    pub background: Arc<Scheduler>,
    /// Number of writing threads; see [`writers_for`].
    pub writers: usize,
    /// The operation log, and the receiver of messages.
    pub surroundings: Arc<dyn Surroundings>,
}

/// Returns the number of writing threads for a machine with `cores_count` cores: at least two,
/// because one sometimes waits for the device.
#[must_use]
pub fn writers_for(cores_count: usize) -> usize {
    cores_count.clamp(2, WRITERS_MAX)
}

/// Makes checkpoints on request.
pub struct Checkpointer {
    setup: Setup,
    buffer_limit_bytes: AtomicU64,
    key_delay: KeyDelay,
    directory: Mutex<Arc<Path>>,
    state: Mutex<State>,
    changed: Condvar,
    /// Directories of checkpoints that are being read. Locked while one of them is removed.
    pins: Mutex<Vec<Weak<str>>>,
}

/// Keeps the files of a checkpoint while it lives.
#[derive(Clone, Debug)]
pub struct CheckpointPin {
    _directory: Arc<str>,
}

/// While it lives, no checkpoint is cut or put in force; see [`Checkpointer::suspend`].
pub struct Suspended<'c>(&'c Checkpointer);

impl Drop for Suspended<'_> {
    fn drop(&mut self) {
        self.0.state().suspended -= 1;
        self.0.changed.notify_all();
    }
}

#[derive(Default)]
struct State {
    /// Number of callers that suspend checkpoints.
    suspended: usize,
    /// Number of tickets issued.
    tickets: u64,
    running: Option<Running>,
    /// Number of threads that wait for the end of a checkpoint.
    waiters: usize,
    waiting: Option<Waiting>,
    is_stopping: bool,
    outcomes: VecDeque<(Ticket, Outcome)>,
    figures: Figures,
    /// The store's count of changes at the last cut that was kept.
    clean_changes: u64,
}

/// A checkpoint that is to be made next.
#[derive(Clone, Copy)]
struct Waiting {
    ticket: Ticket,
    why: Why,
    /// Whether it must contain all values instead of references.
    has_values: bool,
}

struct Running {
    ticket: Ticket,
    why: Why,
    started_unix_ms: u64,
    started_ns: u64,
    /// Processor time of background threads when it began.
    worked_before_ns: u64,
    attempt: Arc<Attempt>,
}

/// The thread of a checkpointer.
pub struct CheckpointThread {
    checkpointer: Arc<Checkpointer>,
    thread: JoinHandle<()>,
}

impl CheckpointThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the process may have no more threads.
    pub fn start(checkpointer: &Arc<Checkpointer>) -> io::Result<Self> {
        let own = Arc::clone(checkpointer);
        let thread = std::thread::Builder::new()
            .name("checkpointer".into())
            .spawn(move || own.work())?;
        Ok(Self {
            checkpointer: Arc::clone(checkpointer),
            thread,
        })
    }

    /// Cancels the running checkpoint, refuses further requests, and waits for the end of the
    /// thread.
    pub fn stop(self) {
        self.checkpointer.stop();
        let _panicked = self.thread.join();
    }
}

impl Checkpointer {
    /// Returns a checkpointer that has made none yet. Requests are served once it has a
    /// [thread](CheckpointThread).
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let state = State {
            figures: Figures {
                last_save_unix_ms: setup.clock.now_unix_ms(),
                ..Figures::default()
            },
            ..State::default()
        };
        Self {
            directory: Mutex::new(Arc::from(setup.directory.as_path())),
            setup,
            buffer_limit_bytes: AtomicU64::new(BUFFER_BYTES_DEFAULT),
            key_delay: KeyDelay::default(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            pins: Mutex::default(),
        }
    }

    /// Requests a checkpoint, which begins at once, or after one that FLUSHALL requested. O(1),
    /// does not wait.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn request(&self, why: Why) -> Result<Ticket, Refused> {
        let mut state = self.state();
        let running = state.running.as_ref().map(|running| running.why);
        let waiting = state.waiting.map(|waiting| waiting.why);
        if [running, waiting]
            .into_iter()
            .flatten()
            .any(|why| why != Why::Flushed)
        {
            return Err(Refused::InProgress);
        }
        self.enqueue(&mut state, why, false)
    }

    /// Requests a checkpoint that is cut after this call: at once, or after the running one.
    ///
    /// # Errors
    /// [`Refused::Stopping`].
    pub fn schedule(&self, why: Why) -> Result<Ticket, Refused> {
        self.enqueue(&mut self.state(), why, false)
    }

    /// Like [`Checkpointer::schedule`], for a checkpoint that contains all values instead of
    /// references to a tier, for another server.
    ///
    /// # Errors
    /// [`Refused::Stopping`].
    pub fn schedule_with_values(&self, why: Why) -> Result<Ticket, Refused> {
        self.enqueue(&mut self.state(), why, true)
    }

    fn enqueue(&self, state: &mut State, why: Why, has_values: bool) -> Result<Ticket, Refused> {
        if state.is_stopping {
            return Err(Refused::Stopping);
        }
        if let Some(waiting) = &mut state.waiting {
            // One checkpoint serves both requests, and leaves what either of them leaves.
            if why.is_save() && !(why == Why::Flushed && waiting.why.is_save()) {
                waiting.why = why;
            }
            waiting.has_values |= has_values;
            return Ok(waiting.ticket);
        }
        let ticket = state.ticket();
        state.waiting = Some(Waiting {
            ticket,
            why,
            has_values,
        });
        self.changed.notify_all();
        Ok(ticket)
    }

    /// Returns the checkpoint in force, with a pin that keeps its files.
    ///
    /// # Errors
    /// If the manifest cannot be read, or differs from what was written.
    pub fn pin(&self) -> Result<Option<(Manifest, CheckpointPin)>, CheckpointFault> {
        // A checkpoint that is put in force meanwhile removes nothing before this lock is released.
        let mut pins = lock(&self.pins);
        let found = read_manifest(&*self.setup.disk, &self.directory())?;
        Ok(found.map(|manifest| {
            let directory: Arc<str> = Arc::from(manifest.directory.as_str());
            pins.push(Arc::downgrade(&directory));
            let pin = CheckpointPin {
                _directory: directory,
            };
            (manifest, pin)
        }))
    }

    /// Keeps the next checkpoint from removing a directory that no manifest names yet.
    pub fn pin_directory(&self, name: &str) -> CheckpointPin {
        let directory: Arc<str> = Arc::from(name);
        lock(&self.pins).push(Arc::downgrade(&directory));
        CheckpointPin {
            _directory: directory,
        }
    }

    /// Removes what a checkpoint has replaced, except pinned directories.
    pub(crate) fn remove_replaced(&self, directory: &Path, manifest: &Manifest) -> io::Result<()> {
        let mut pins = lock(&self.pins);
        pins.retain(|pin| pin.strong_count() > 0);
        let keeps = |name: &str| {
            pins.iter()
                .any(|pin| pin.upgrade().is_some_and(|it| *it == *name))
        };
        remove_replaced_but(&*self.setup.disk, directory, manifest, &keeps)
    }

    /// Cancels the running checkpoint, and lets none begin until the returned value is dropped,
    /// because the data and the log are replaced, or a part of them is discarded. Pending requests
    /// are served afterwards. Must not be called by the thread that makes checkpoints.
    pub fn suspend(&self) -> Suspended<'_> {
        let mut state = self.state();
        state.suspended += 1;
        if let Some(running) = &state.running {
            running.attempt.is_cancelled.store(true, Ordering::Relaxed);
        }
        while state.running.is_some() {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        Suspended(self)
    }

    /// Waits for the end of a checkpoint. Must not be called by a thread that others wait for.
    #[must_use]
    pub fn wait(&self, ticket: Ticket) -> Outcome {
        let mut state = self.state();
        self.add_waiter(&mut state);
        loop {
            if let Some(outcome) = state.outcome(ticket) {
                self.remove_waiter(&mut state);
                return outcome;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Counts a waiting thread. While one waits, neither its checkpoint nor the one before it
    /// yields to workers.
    fn add_waiter(&self, state: &mut State) {
        state.waiters += 1;
        self.setup.background.set_urgent(true);
    }

    fn remove_waiter(&self, state: &mut State) {
        state.waiters -= 1;
        self.setup.background.set_urgent(state.waiters > 0);
    }

    /// Returns the outcome of a checkpoint, or `None` until it has ended.
    #[must_use]
    pub fn outcome(&self, ticket: Ticket) -> Option<Outcome> {
        self.state().outcome(ticket)
    }

    /// Cancels the running checkpoint and the one scheduled behind it; returns whether there was
    /// any.
    pub fn cancel(&self) -> bool {
        let mut state = self.state();
        if let Some(running) = &state.running {
            running.attempt.is_cancelled.store(true, Ordering::Relaxed);
        }
        let waiting = state.waiting.take();
        if let Some(Waiting { ticket, why, .. }) = waiting {
            state.keep(
                ticket,
                Outcome {
                    why,
                    result: Err(Failure::Cancelled),
                    duration_ms: 0,
                    held_bytes_max: 0,
                },
            );
            self.changed.notify_all();
        }
        waiting.is_some() || state.running.is_some()
    }

    fn stop(&self) {
        self.state().is_stopping = true;
        self.cancel();
        self.changed.notify_all();
    }

    /// Returns the present figures of checkpoints.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let changes = self.setup.store.statistics().changes;
        let state = self.state();
        let waiting = state.waiting.map(|waiting| waiting.why);
        let (current, scheduled) = match (&state.running, waiting) {
            (Some(running), waiting) => (Some(self.progress(running)), waiting),
            (None, Some(why)) => (Some(self.not_begun(why)), None),
            (None, None) => (None, None),
        };
        Figures {
            current,
            scheduled,
            changes_since_save: changes.saturating_sub(state.clean_changes),
            buffer_limit_bytes: self.buffer_limit_bytes.load(Ordering::Relaxed),
            ..state.figures.clone()
        }
    }

    /// Returns the progress of a requested checkpoint that the thread has not begun yet.
    fn not_begun(&self, why: Why) -> Progress {
        Progress {
            why,
            started_unix_ms: self.setup.clock.now_unix_ms(),
            elapsed_ms: 0,
            records: 0,
            bytes: 0,
            walked_per_mille: 0,
            held_bytes: 0,
            is_given_up: false,
        }
    }

    fn progress(&self, running: &Running) -> Progress {
        let attempt = &running.attempt;
        let elapsed_ns = self.setup.clock.monotonic_ns() - running.started_ns;
        let walk = self.setup.store.snapshot_progress();
        let per_mille =
            walk.map(|walk| walk.buckets_done.saturating_mul(1_000) / walk.buckets.max(1));
        Progress {
            why: running.why,
            started_unix_ms: running.started_unix_ms,
            elapsed_ms: elapsed_ns / 1_000_000,
            records: attempt.written_records.load(Ordering::Relaxed),
            bytes: attempt.written_bytes.load(Ordering::Relaxed),
            // Without a walk, the walk is over or about to begin.
            walked_per_mille: match per_mille {
                Some(per_mille) => per_mille.min(1_000),
                None if attempt.ending().is_some() => 1_000,
                None => 0,
            },
            held_bytes: walk.map_or(0, |walk| walk.held_bytes),
            is_given_up: attempt.is_given_up(),
        }
    }

    /// Notes that all present data has been kept since `unix_ms`: the data loaded at the start.
    pub fn note_clean(&self, unix_ms: u64) {
        let changes = self.setup.store.statistics().changes;
        let mut state = self.state();
        state.clean_changes = changes;
        state.figures.last_save_unix_ms = unix_ms;
    }

    /// Sets how much memory a checkpoint may hold, from the next one on.
    pub fn set_buffer_limit(&self, bytes: u64) {
        self.buffer_limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the delay for each saved key, for tests; checkpoints read it when they begin.
    #[must_use]
    pub fn key_delay(&self) -> &KeyDelay {
        &self.key_delay
    }

    /// Sets the directory of checkpoints, from the next one on. Only before the first one is made:
    /// an older one stays where it is.
    pub fn set_directory(&self, directory: &Path) {
        *self.locked_directory() = Arc::from(directory);
    }

    fn directory(&self) -> Arc<Path> {
        Arc::clone(&self.locked_directory())
    }

    fn locked_directory(&self) -> MutexGuard<'_, Arc<Path>> {
        self.directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn snapshot_limits(&self) -> SnapshotLimits {
        let soft_bytes = self.buffer_limit_bytes.load(Ordering::Relaxed);
        SnapshotLimits {
            soft_bytes,
            hard_bytes: soft_bytes.saturating_mul(HARD_TIMES),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves requests until it is stopped.
    fn work(&self) {
        let mut handle = self.setup.store.handle();
        while let Some(attempt) = self.next() {
            let made = self.make(&mut handle, &attempt);
            self.end(made);
        }
    }

    /// Waits for the next request and begins it; returns `None` if it is to stop.
    fn next(&self) -> Option<Arc<Attempt>> {
        let mut state = self.state();
        loop {
            if state.is_stopping {
                return None;
            }
            if state.suspended == 0
                && let Some(waiting) = state.waiting.take()
            {
                return Some(self.begin(&mut state, waiting));
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes a checkpoint on the calling thread, if there is no [thread](CheckpointThread) for it
    /// yet. `handle` belongs to the same store and holds no keys locked.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn make_now(&self, handle: &mut Handle, why: Why) -> Result<Outcome, Refused> {
        let attempt = {
            let mut state = self.state();
            if state.is_stopping {
                return Err(Refused::Stopping);
            }
            if state.running.is_some() || state.waiting.is_some() || state.suspended > 0 {
                return Err(Refused::InProgress);
            }
            let waiting = Waiting {
                ticket: state.ticket(),
                why,
                has_values: false,
            };
            self.add_waiter(&mut state);
            self.begin(&mut state, waiting)
        };
        let made = self.make(handle, &attempt);
        self.remove_waiter(&mut self.state());
        self.end(made).ok_or(Refused::Stopping)
    }

    fn begin(&self, state: &mut State, asked: Waiting) -> Arc<Attempt> {
        let Waiting {
            ticket,
            why,
            has_values,
        } = asked;
        let delay = self.key_delay.setting();
        let attempt = Arc::new(Attempt::new(why.is_save(), has_values, delay));
        state.running = Some(Running {
            ticket,
            why,
            started_unix_ms: self.setup.clock.now_unix_ms(),
            started_ns: self.setup.clock.monotonic_ns(),
            worked_before_ns: self.setup.background.worked_ns(),
            attempt: Arc::clone(&attempt),
        });
        attempt
    }

    /// Notes the outcome of the running attempt.
    fn end(&self, made: Made) -> Option<Outcome> {
        let mut state = self.state();
        let running = state.running.take()?;
        let ended_ns = self.setup.clock.monotonic_ns();
        let worked_ns = self.setup.background.worked_ns() - running.worked_before_ns;
        let outcome = Outcome {
            why: running.why,
            result: made.result,
            duration_ms: ended_ns.saturating_sub(running.started_ns) / 1_000_000,
            held_bytes_max: made.held_bytes_max,
        };
        if outcome.result.is_ok() {
            state.clean_changes = made.changes_at_cut;
        }
        self.setup.surroundings.ended(&outcome);
        state.note(&outcome);
        state.figures.last_work_ms = match worked_ns / 1_000_000 {
            // Processor time is not measured.
            0 => outcome.duration_ms,
            ms => ms.min(outcome.duration_ms),
        };
        state.keep(running.ticket, outcome.clone());
        self.changed.notify_all();
        Some(outcome)
    }
}

impl State {
    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    fn keep(&mut self, ticket: Ticket, outcome: Outcome) {
        self.outcomes.truncate(OUTCOMES_KEPT - 1);
        self.outcomes.push_front((ticket, outcome));
    }

    /// Returns the outcome of the ticket, or the oldest known one if it is no longer kept.
    fn outcome(&self, ticket: Ticket) -> Option<Outcome> {
        let (oldest, _) = self.outcomes.back()?;
        let wanted = ticket.max(*oldest);
        let found = self.outcomes.iter().find(|(kept, _)| *kept == wanted);
        found.map(|(_, outcome)| outcome.clone())
    }

    fn note(&mut self, outcome: &Outcome) {
        let figures = &mut self.figures;
        figures.last_duration_ms = Some(outcome.duration_ms);
        figures.last_held_bytes_max = outcome.held_bytes_max;
        match &outcome.result {
            Ok(manifest) => {
                figures.last_failure = None;
                figures.last_records = manifest.records();
                figures.last_bytes = manifest.bytes();
                figures.last_save_unix_ms = manifest.created_unix_ms;
                figures.saves += 1;
            }
            Err(failure) => {
                figures.last_failure = Some(failure.clone());
                figures.failures += 1;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
