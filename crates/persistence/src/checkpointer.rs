//! Checkpoints on request: a thread that makes one at a time, while everybody else goes on.
//!
//! ```text
//!   SAVE, BGSAVE, save points, …        checkpointer (thread)
//!        request ──► ticket ──────────►   cut, parts, manifest ──► what is older goes
//!        wait(ticket) ◄── outcome ◄────        │
//!   INFO: figures ◄────────────────────────────┘
//! ```
//!
//! Nobody is stopped for it: the store's snapshot is taken while it is written to, and there is no second
//! process. What it costs in memory has a limit ([`Checkpointer::set_buffer_limit`]): at half of it the
//! walk through the store waits for the files, at it writers are slowed down, and at four times as much the
//! checkpoint is given up. An object that is written takes its length for a moment on top, on each of the
//! writing threads.
//!
//! Rules
//!  1. An attempt that fails leaves the checkpoint before it in force, and removes what it wrote. Only a save
//!     that fails behind its checkpoint, with what it leaves beside, leaves that one in force.
//!  2. What is older is removed when the new manifest is durable, and every part that it names was read
//!     again from its first to its last byte.
//!  3. The position in the log is read before the cut: so there is no gap between the checkpoint and what
//!     is replayed behind it. The log is durable as far as it was when the last record was saved before
//!     the manifest is: so the checkpoint holds nothing that a shorter log would take back.

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

/// The memory that a checkpoint may hold when nobody says otherwise (`checkpoint-buffer-limit`).
pub const BUFFER_BYTES_DEFAULT: u64 = 64 << 20;

/// The checkpoint is given up at so many times the limit.
const HARD_TIMES: u64 = 4;

/// So many outcomes are kept for those who ask late.
const OUTCOMES_KEPT: usize = 16;

/// The most writing threads.
const WRITERS_MAX: usize = 64;

/// Why a checkpoint is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Somebody asked for it (SAVE, BGSAVE, BGREWRITEAOF).
    Asked,
    /// Everything was deleted (FLUSHALL), and save points alone say when something is saved. Redis does this before
    /// it answers, so nobody else's save is refused for it.
    Flushed,
    /// Somebody asked for a short log (BGREWRITEAOF).
    Rewrite,
    /// A save point was reached.
    SavePoint,
    /// The log has become long.
    LongLog,
    /// Much of the tier is kept for the checkpoint before alone.
    LongTier,
    /// Files of another format were read in.
    Imported,
    /// Everything is to be loaded again (DEBUG RELOAD).
    Reload,
    /// The server goes down.
    Shutdown,
}

impl Why {
    /// Whether it is a save as Redis has them, which leaves more behind than the checkpoint if that is asked
    /// for ([`Surroundings::save_beside`]).
    fn is_save(self) -> bool {
        match self {
            Self::Asked | Self::Flushed | Self::SavePoint | Self::Shutdown => true,
            Self::Rewrite | Self::LongLog | Self::LongTier | Self::Imported | Self::Reload => false,
        }
    }
}

/// Which checkpoint somebody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// One is being made.
    InProgress,
    /// The server goes down.
    Stopping,
}

/// Why there is no checkpoint, or not all that a save leaves with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Somebody cancelled it, or the server goes down.
    Cancelled,
    /// What is in the store is not what is to be kept just now, and why: a replica is in the middle of a full sync.
    NotWhole(String),
    /// More was changed meanwhile than could be written, up to the limit of memory.
    OverLimit,
    /// The system failed.
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

/// What a checkpoint came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why it was made.
    pub why: Why,
    /// The manifest that is in force now, or what was in the way.
    pub result: Result<Arc<Manifest>, Failure>,
    /// How long it took.
    pub duration_ms: u64,
    /// The most memory that was held for it at a time.
    pub held_bytes_max: u64,
}

/// What is known of checkpoints now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The one that is being made, from the moment when it was asked for: also before the thread has begun with it.
    pub current: Option<Progress>,
    /// Why another one is to be made right after it, if one is.
    pub scheduled: Option<Why>,
    /// Whether the last one failed, and why.
    pub last_failure: Option<Failure>,
    /// How long the last one took, which may have failed; none when there was none.
    pub last_duration_ms: Option<u64>,
    /// How long it would have taken, about, if it had given way to nobody.
    pub last_work_ms: u64,
    /// The most memory that was held for the last one at a time.
    pub last_held_bytes_max: u64,
    /// Records and bytes of the last one that did not fail.
    pub last_records: u64,
    /// See there.
    pub last_bytes: u64,
    /// When the last one was made that did not fail: its cut, in milliseconds since 1970 UTC. At first what
    /// [`Checkpointer::note_clean`] was told.
    pub last_save_unix_ms: u64,
    /// Changes of the store since then.
    pub changes_since_save: u64,
    /// How many were made.
    pub saves: u64,
    /// How many failed.
    pub failures: u64,
    /// How much memory one may hold.
    pub buffer_limit_bytes: u64,
}

/// How far a checkpoint has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Why it is made.
    pub why: Why,
    /// When it began, in milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// How long that is ago.
    pub elapsed_ms: u64,
    /// Records that were written.
    pub records: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Of a thousand buckets, how many were walked through.
    pub walked_per_mille: u64,
    /// Memory that is held for it.
    pub held_bytes: u64,
    /// Whether it will not come to anything.
    pub is_given_up: bool,
}

impl Progress {
    /// Bytes written in a second, so far.
    #[must_use]
    pub fn bytes_per_second(&self) -> u64 {
        self.bytes.saturating_mul(1_000) / self.elapsed_ms.max(1)
    }
}

/// What is around a checkpointer besides the store: the log of operations, and who reads messages.
pub trait Surroundings: Send + Sync {
    /// A checkpoint is to be made: the directory is to be there, and nobody else's.
    ///
    /// # Errors
    /// Why none can be made, for the operator.
    fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    /// A checkpoint was made, or was not. Called before anybody else hears of it.
    fn ended(&self, outcome: &Outcome) {
        let _ = outcome;
    }

    /// The sequence of the log that comes next. All effects of writes that see a cut made after this call
    /// are behind it.
    fn log_sequence(&self) -> Option<u64> {
        None
    }

    /// The tier that parts may name values in. Without one they have all values.
    fn tier(&self) -> Option<Arc<Tier>> {
        None
    }

    /// The libraries of functions that there are. Asked right after a cut.
    fn libraries(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Why no checkpoint may be made now, if so: what is in the store is not what is to be kept.
    fn refuses(&self) -> Option<String> {
        None
    }

    /// What the manifest is to say about the history of the log, of which [`Surroundings::log_sequence`] was the given
    /// one. Asked right after a cut, with the turn of it ([`Store::batch_turn`]). With a
    /// [sequence of the cut](History::cut_sequence) the log goes on from there.
    ///
    /// # Errors
    /// Why nothing is to come of this cut.
    fn history(&self, log_sequence: Option<u64>) -> Result<History, String> {
        let _ = log_sequence;
        Ok(History::default())
    }

    /// Where the log ends that the effects of this server's own writes go to. Asked when the snapshot is over: all
    /// effects of older generations are below.
    fn log_end(&self) -> Option<u64> {
        None
    }

    /// Makes everything durable that the log has now: nothing is in a checkpoint that is in force and not
    /// in the log before it.
    ///
    /// # Errors
    /// Those of the system: then the checkpoint is not put in force.
    fn make_log_durable(&self) -> io::Result<()> {
        Ok(())
    }

    /// A checkpoint is in force: the log before [`Manifest::log_sequence`] may go.
    fn in_force(&self, manifest: &Manifest) {
        let _ = manifest;
    }

    /// The checkpoint of a save is in force: writes what else a save is to leave; the most memory that was held
    /// for it at a time. It is not wanted any more once `is_given_up` says so.
    ///
    /// # Errors
    /// Why it is not there. The save has failed then, though its checkpoint counts.
    fn save_beside(
        &self,
        limits: SnapshotLimits,
        is_given_up: &dyn Fn() -> bool,
    ) -> Result<u64, Failure> {
        let _ = (limits, is_given_up);
        Ok(0)
    }

    /// A message for the operator.
    fn tell(&self, level: Level, message: fmt::Arguments<'_>) {
        let _ = (level, message);
    }
}

/// There is no log of operations, and nobody reads messages.
impl Surroundings for () {}

/// What a checkpointer works with.
pub struct Setup {
    /// Whose records. Its [generation](Store::raise_generation) goes on from that of the checkpoint that was
    /// loaded, and of the log behind it.
    pub store: Arc<Store>,
    /// Where files are.
    pub disk: Arc<dyn Disk>,
    /// The directory of the manifest, until [somebody says otherwise](Checkpointer::set_directory).
    pub directory: PathBuf,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Whose history of writes it is.
    pub lineage: Lineage,
    /// How threads that work on a checkpoint give way to workers. No others are its background threads.
    pub background: Arc<Scheduler>,
    /// How many threads write; see [`writers_for`].
    pub writers: usize,
    /// The log of operations, and who reads messages.
    pub surroundings: Arc<dyn Surroundings>,
}

/// How many threads should write on a machine with so many cores: at least two, for one waits for the
/// device now and then.
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
    /// Directories of checkpoints that somebody reads. Locked while one of them is removed.
    pins: Mutex<Vec<Weak<str>>>,
}

/// Keeps the files of a checkpoint while it lives.
#[derive(Clone, Debug)]
pub struct CheckpointPin {
    _directory: Arc<str>,
}

/// While it lives no checkpoint is cut or put in force; see [`Checkpointer::suspend`].
pub struct Suspended<'c>(&'c Checkpointer);

impl Drop for Suspended<'_> {
    fn drop(&mut self) {
        self.0.state().suspended -= 1;
        self.0.changed.notify_all();
    }
}

#[derive(Default)]
struct State {
    /// So many want no checkpoint to be made now.
    suspended: usize,
    /// Tickets that were given out.
    tickets: u64,
    running: Option<Running>,
    /// How many wait for the end of one.
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
    /// Whether it is to have all values, and name none.
    has_values: bool,
}

struct Running {
    ticket: Ticket,
    why: Why,
    started_unix_ms: u64,
    started_ns: u64,
    /// Processor time of background threads by then.
    worked_before_ns: u64,
    attempt: Arc<Attempt>,
}

/// The thread of a checkpointer.
pub struct CheckpointThread {
    checkpointer: Arc<Checkpointer>,
    thread: JoinHandle<()>,
}

impl CheckpointThread {
    /// Starts it.
    ///
    /// # Errors
    /// When the process may have no more threads.
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

    /// Cancels what is being made, takes no more requests, and waits for the end of the thread.
    pub fn stop(self) {
        self.checkpointer.stop();
        let _panicked = self.thread.join();
    }
}

impl Checkpointer {
    /// One that has made none yet. Requests are served once it has a [thread](CheckpointThread).
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

    /// Asks for a checkpoint, which begins at once, or after the one that FLUSHALL asked for. O(1), waits for
    /// nothing.
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

    /// Asks for a checkpoint that is cut after this call: at once, or behind the one that is being made.
    ///
    /// # Errors
    /// [`Refused::Stopping`].
    pub fn schedule(&self, why: Why) -> Result<Ticket, Refused> {
        self.enqueue(&mut self.state(), why, false)
    }

    /// As [`Checkpointer::schedule`], of one that has all values, and names none that are in a tier: what another server is
    /// given.
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
            // One is made for both, and is what leaves more.
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

    /// The checkpoint in force, with what keeps its files from being removed.
    ///
    /// # Errors
    /// When the manifest is not to be had, or is not what was written.
    pub fn pin(&self) -> Result<Option<(Manifest, CheckpointPin)>, CheckpointFault> {
        // One that is put in force meanwhile removes nothing before this is let go.
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

    /// Keeps a directory, which nothing names yet, from being removed by the next checkpoint.
    pub fn pin_directory(&self, name: &str) -> CheckpointPin {
        let directory: Arc<str> = Arc::from(name);
        lock(&self.pins).push(Arc::downgrade(&directory));
        CheckpointPin {
            _directory: directory,
        }
    }

    /// Removes what a checkpoint has replaced, but for what is read.
    pub(crate) fn remove_replaced(&self, directory: &Path, manifest: &Manifest) -> io::Result<()> {
        let mut pins = lock(&self.pins);
        pins.retain(|pin| pin.strong_count() > 0);
        let keeps = |name: &str| {
            pins.iter()
                .any(|pin| pin.upgrade().is_some_and(|it| *it == *name))
        };
        remove_replaced_but(&*self.setup.disk, directory, manifest, &keeps)
    }

    /// Cancels the checkpoint that is being made, and has none made until what this gives is dropped: the data and the log
    /// are replaced, or a part of them is given up. What was asked for is made afterwards. Not for the thread that makes
    /// them.
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

    /// Waits for the end of a checkpoint. Not for a thread that others wait for.
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

    /// Somebody waits: nothing is made politely, neither his checkpoint nor the one before it.
    fn add_waiter(&self, state: &mut State) {
        state.waiters += 1;
        self.setup.background.set_urgent(true);
    }

    fn remove_waiter(&self, state: &mut State) {
        state.waiters -= 1;
        self.setup.background.set_urgent(state.waiters > 0);
    }

    /// What a checkpoint came to; none while it is to be made.
    #[must_use]
    pub fn outcome(&self, ticket: Ticket) -> Option<Outcome> {
        self.state().outcome(ticket)
    }

    /// Cancels what is being made, and what was to be made behind it; whether there was any.
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

    /// What is known of checkpoints now.
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

    /// What is shown of a checkpoint that was asked for when none is made, until the thread takes it up.
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
            // Without a walk it is over, or about to begin.
            walked_per_mille: match per_mille {
                Some(per_mille) => per_mille.min(1_000),
                None if attempt.ending().is_some() => 1_000,
                None => 0,
            },
            held_bytes: walk.map_or(0, |walk| walk.held_bytes),
            is_given_up: attempt.is_given_up(),
        }
    }

    /// Says that all there is now is kept, since `unix_ms`: what was loaded at the start.
    pub fn note_clean(&self, unix_ms: u64) {
        let changes = self.setup.store.statistics().changes;
        let mut state = self.state();
        state.clean_changes = changes;
        state.figures.last_save_unix_ms = unix_ms;
    }

    /// Says how much memory a checkpoint may hold, from the next one on.
    pub fn set_buffer_limit(&self, bytes: u64) {
        self.buffer_limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What a key takes that is saved, for tests; checkpoints take it up when they begin.
    #[must_use]
    pub fn key_delay(&self) -> &KeyDelay {
        &self.key_delay
    }

    /// Says where checkpoints are to be, from the next one on. For who has made none yet: an older one
    /// stays where it is.
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

    /// Waits for the next request and begins with it; none when it is to stop.
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

    /// Makes a checkpoint on the calling thread: for who has no [thread](CheckpointThread) for it yet.
    /// `handle` is one of the same store, with no keys locked.
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

    /// Notes what the running attempt came to.
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
            // Nobody counts it.
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

    /// That of the ticket; who asks too late is given the oldest that is known.
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
