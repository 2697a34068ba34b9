//! The only owner of the log's life: begins, changes and ends it while the server writes to it.
//!
//! ```text
//!   CONFIG SET, start, end ──► Event ──► table::step ──► State, Actions ──► LogInUse, Checkpointer, files
//!                                ▲                          │
//!                                └─── what came of it ◄─── Work, one thread at a time
//! ```
//!
//! The state transitions are in [`table`], and nowhere else. This module does what the table says.
//! Turning the log on: every thread that changes the store takes it up, and only then a checkpoint
//! is cut; so whatever is not in the checkpoint is in the log. Turning it off: all threads let go
//! of it, and what was appended becomes durable.
//!
//! A caller at runtime waits for files to be created, and for nothing else. A thread that lives for
//! one change does the rest, because it has to wait for all workers.

pub mod table;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use base::os_error::system_reason;
use durability::checkpoint::Manifest;
use durability::log::{Level, Log, Options};

use crate::checkpointer::{Checkpointer, Why};
use crate::environment::Environment;
use crate::host::Host;
use crate::log_in_use::LogInUse;
use crate::log_tail::LogTail;
use crate::recovery::Place;
use crate::replacement;
use table::{Action, Event, From, Next, Phase, State, Work};

/// Interval of the checks whether the log is durable.
const LOOK: Duration = Duration::from_millis(1);

/// Distance between the end of a log and the start of the next log that does not continue it.
/// Writes between the two are in neither: a replica that has the first one to its end finds that
/// the second begins later, and requests a full sync.
const UNLOGGED_BYTES: u64 = 8;

const CHANGING: &str = "the log is just being begun or ended";
const STOPS: &str = "the server stops";

/// The wanted log.
#[derive(Clone, Debug)]
pub struct LogWish {
    /// Durability of appended frames. There is a log if the level [logs](Level::logs).
    pub level: Level,
    /// Length of its files, and its memory.
    pub options: Options,
}

/// The parameters of a log's owner.
pub struct Setup {
    /// The settings, the clock and the operator's messages.
    pub env: Arc<Environment>,
    /// The receiver of reports.
    pub host: Arc<dyn Host>,
    /// The log to which effects go. Only the owner changes it.
    pub in_use: Arc<LogInUse>,
    /// Place of the files, until it is [changed](LogOwner::set_place).
    pub place: Place,
    /// Memory that the process may use, in bytes: a log holds no more than a share of it. If
    /// `None`, the log's options decide.
    pub usable_bytes: Option<u64>,
    /// Whether there are threads: one that syncs a log, one that changes it. Otherwise a thread
    /// that waits for the disk syncs, and the caller that requests a change calls
    /// [`LogOwner::advance`].
    pub has_threads: bool,
}

/// Makes the checkpoints with which a log continues.
pub trait Bases: Send + Sync {
    /// Makes a checkpoint now, which continues with no log, and returns when it is in force.
    ///
    /// # Errors
    /// Why it failed, for the operator.
    fn make(&self) -> Result<(), String>;

    /// Requests a checkpoint soon. Does not wait.
    fn ask(&self);
}

impl Bases for Weak<Checkpointer> {
    fn make(&self) -> Result<(), String> {
        let checkpointer = self.upgrade().ok_or_else(|| STOPS.to_owned())?;
        let ticket = checkpointer.schedule(Why::Imported);
        let outcome = checkpointer.wait(ticket.map_err(|_| STOPS.to_owned())?);
        let made = outcome.result.map(drop);
        made.map_err(|failure| failure.to_string())
    }

    fn ask(&self) {
        // Only a stopping checkpointer refuses.
        let _scheduled = self.upgrade().map(|it| it.schedule(Why::Rewrite));
    }
}

/// See the module.
pub struct LogOwner {
    setup: Setup,
    bases: OnceLock<Box<dyn Bases>>,
    place: Mutex<Place>,
    /// Held while files of a log are created or removed. Locked before the others.
    files: Mutex<()>,
    /// Workers lock it, so no thread waits for the disk while it holds it.
    life: Mutex<Life>,
    /// Notified when no thread does the work of the states any more.
    released: Condvar,
}

/// The rest of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The next state has work to do.
    More,
    /// Nothing: the state stays.
    Rest,
    /// Nothing more is done: the server stops.
    GivenUp,
}

/// The state, and its data.
struct Life {
    state: State,
    /// Whether a thread does the work of the states.
    is_driven: bool,
    wish: LogWish,
    /// The log to which effects go, or that is being ended.
    open: Option<Open>,
    /// End of the last log, and start of the next one.
    end: u64,
    /// Bytes of the checkpoint in force.
    base_bytes: u64,
    /// Sequence from which the log continues after that checkpoint, if it does:
    /// [`State::names_log`].
    base_sequence: Option<u64>,
    /// Why the log was not begun.
    reason: String,
    /// End of this server's own effects in the log, while the log is [lent](LogOwner::lend).
    lent_from: Option<u64>,
}

/// A log, and the thread that syncs it.
struct Open {
    log: Arc<Log>,
    /// Whether its content is kept.
    counts: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    syncer: Option<JoinHandle<()>>,
}

impl Life {
    fn log(&self) -> Option<Arc<Log>> {
        let open = self.open.as_ref().filter(|_| self.state.has_log())?;
        Some(Arc::clone(&open.log))
    }

    fn set_base(&mut self, manifest: &Manifest) {
        self.base_bytes = manifest.bytes();
        self.base_sequence = manifest.log_sequence;
    }
}

/// Keeps other threads from changing the log until it is dropped.
struct Claimed<'o>(&'o LogOwner);

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl LogOwner {
    /// Returns an owner without a log.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            place: Mutex::new(setup.place.clone()),
            setup,
            bases: OnceLock::new(),
            files: Mutex::default(),
            life: Mutex::new(Life {
                state: State::OFF,
                is_driven: false,
                wish: LogWish {
                    level: Level::None,
                    options: Options::default(),
                },
                open: None,
                end: 0,
                base_bytes: 0,
                base_sequence: None,
                reason: String::new(),
                lent_from: None,
            }),
            released: Condvar::new(),
        }
    }

    /// Sets what makes checkpoints; once.
    pub fn set_bases(&self, bases: Box<dyn Bases>) {
        let _already_set = self.bases.set(bases);
    }

    /// Sets where files are created from now on. Only while there is no log.
    pub fn set_place(&self, place: Place) {
        *lock(&self.place) = place;
    }

    /// Returns the place of the files.
    #[must_use]
    pub fn place(&self) -> Place {
        lock(&self.place).clone()
    }

    /// Returns the state of the log's life.
    #[must_use]
    pub fn state(&self) -> State {
        self.life().state
    }

    /// Returns the log, if effects go to it or are about to.
    #[must_use]
    pub fn log(&self) -> Option<Arc<Log>> {
        self.life().log()
    }

    /// Returns the sequence from which on the log has the effects of all writes that begin now, or
    /// `None` before all threads append to it.
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        let life = self.life();
        let is_taken_up = life.state.phase == Phase::On;
        let open = life.open.as_ref().filter(|_| is_taken_up)?;
        Some(open.log.tail())
    }

    /// Sets where the next log begins. Only while there is none.
    pub fn set_end(&self, sequence: u64) {
        self.life().end = sequence;
    }

    /// Notes which checkpoint is in force, at a start.
    pub fn set_base(&self, manifest: &Manifest) {
        let mut life = self.life();
        life.set_base(manifest);
        life.state.names_log = manifest.log_sequence.is_some();
    }

    /// Returns where the log continues after the checkpoint in force.
    #[must_use]
    pub fn base_sequence(&self) -> Option<u64> {
        self.life().base_sequence
    }

    /// Returns the bytes of the checkpoint in force.
    #[must_use]
    pub fn base_bytes(&self) -> u64 {
        self.life().base_bytes
    }

    /// Returns the bytes of the log after the checkpoint in force, or `None` without a log.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        let life = self.life();
        let log = life.log()?;
        Some(log.tail().saturating_sub(life.base_sequence.unwrap_or(0)))
    }

    /// Begins the log at a start, to continue after the loaded data; returns when all effects go to
    /// it.
    ///
    /// # Errors
    /// Those of the system; then there is no log. A full device is no error if the log continues
    /// after a checkpoint: all kept data can be read, and writes are refused until there is space.
    pub fn load(&self, wish: &LogWish) -> io::Result<()> {
        self.claim().map_err(io::Error::other)?;
        let mut life = self.life();
        life.wish = wish.clone();
        let _nothing_removed = self.step(life, Event::Load);
        let opened = self.open(Event::OpenRefused);
        if opened.is_ok() {
            self.drive();
        }
        opened
    }

    /// Applies what is wanted now, or after the change in progress. Returns when it is known
    /// whether there are files. A checkpoint that must be made before, and its outcome, are
    /// reported to the operator.
    ///
    /// # Errors
    /// Why there can be no log, or no thread that begins or ends it; then everything is as before.
    pub fn change(self: &Arc<Self>, wish: &LogWish) -> Result<(), String> {
        let event = match wish.level.logs() {
            true => Event::WantOn,
            false => Event::WantOff,
        };
        let life = self.life();
        let (after, _) = table::step(life.state, event);
        if life.state.is_changing() || !after.is_changing() {
            // The thread that does the work of the states handles it, or it is done at once.
            self.ask(life, wish, event);
            return Ok(());
        }
        drop(life);
        // The thread comes first: without it the change would begin and not continue.
        let go = self.spawn_driver()?;
        self.ask(self.life(), wish, event);
        if self.state().work() == Some(Work::Open)
            && let Err(error) = self.open(Event::OpenRefused)
        {
            return Err(system_reason(&error));
        }
        // The thread waits only for this message.
        match go {
            Some(go) => go.send(()).map_err(|_| CHANGING.to_owned()),
            None => {
                self.release();
                Ok(())
            }
        }
    }

    fn ask(&self, mut life: MutexGuard<'_, Life>, wish: &LogWish, event: Event) {
        if wish.level.logs() {
            life.wish = wish.clone();
        }
        let _nothing_removed = self.step(life, event);
    }

    /// Starts a thread that does the work of the states once it gets a message, if there are
    /// threads.
    #[allow(clippy::disallowed_methods, reason = "a thread that ends soon")]
    fn spawn_driver(self: &Arc<Self>) -> Result<Option<SyncSender<()>>, String> {
        self.claim()?;
        if !self.setup.has_threads {
            return Ok(None);
        }
        let (go, may_go) = sync_channel(1);
        let own = Arc::clone(self);
        let thread = std::thread::Builder::new().name("log-change".into());
        let spawned = thread.spawn(move || {
            if may_go.recv().is_ok() {
                own.drive();
            }
        });
        match spawned {
            Ok(_) => Ok(Some(go)),
            Err(error) => {
                self.release();
                Err(system_reason(&error))
            }
        }
    }

    /// Ends the log for good, with everything in it durable. For the end of the server, when no
    /// thread writes any more.
    pub fn end(&self) {
        {
            // A log that is being begun ends as well.
            let _alone = lock(&self.files);
            let _nothing_removed = self.step(self.life(), Event::End);
        }
        let mut life = self.life();
        while life.is_driven {
            let waited = self.released.wait(life);
            life = waited.unwrap_or_else(PoisonError::into_inner);
        }
        drop(life);
        while self.advance() == Progress::More {}
    }

    /// Lets all threads let go of the log, so that a follower can append what a primary sends.
    /// Returns the log when they have. It still belongs to this owner.
    pub fn lend(&self) -> Option<Arc<Log>> {
        let log = self.log()?;
        let Setup {
            env, host, in_use, ..
        } = &self.setup;
        in_use.set(None, env);
        host.log_changed();
        in_use.wait_until_taken_up(&|| host.is_stopping());
        let mut life = self.life();
        life.lent_from = life.lent_from.or_else(|| Some(log.tail()));
        drop(life);
        Some(log)
    }

    /// Whether the log is [lent](LogOwner::lend): no thread here appends to it.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.life().lent_from.is_some()
    }

    /// Returns where this server's own effects end in the log, or `None` without one.
    #[must_use]
    pub fn own_end(&self) -> Option<u64> {
        let life = self.life();
        let log = life.log()?;
        Some(life.lent_from.unwrap_or_else(|| log.tail()))
    }

    /// Takes back the log that was [lent](LogOwner::lend), to which the follower no longer appends.
    /// Returns when all effects go to it again.
    pub fn take_back(&self) {
        let Setup {
            env, host, in_use, ..
        } = &self.setup;
        {
            let mut life = self.life();
            life.lent_from = None;
            let Some(open) = &life.open else { return };
            let tail = LogTail::new(Arc::clone(&open.log), Arc::clone(&open.counts));
            in_use.set(Some(Arc::new(tail)), env);
        }
        host.log_changed();
        in_use.wait_until_taken_up(&|| host.is_stopping());
    }

    /// Puts a checkpoint of another history in force, whose parts are durable, and begins a new log
    /// after it, in place of one that was [lent](LogOwner::lend). For a replica that received a
    /// full sync.
    ///
    /// # Errors
    /// Why it failed. The previous log continues, unless the decided replacement could not be
    /// completed: then there is no log until this is repeated, or [the rest of
    /// it](LogOwner::begin_missing).
    pub fn replace(&self, manifest: &Manifest) -> Result<Arc<Log>, String> {
        let _alone = lock(&self.files);
        let _claimed = self.claim_while_on()?;
        let place = self.place();
        if let Err(error) = replacement::decide(&place, manifest) {
            // If the decision can be withdrawn, everything is as before: the present log continues.
            replacement::take_back(&place).map_err(|error| system_reason(&error))?;
            return Err(system_reason(&error));
        }
        let taken = self.life().open.take();
        if let Some(open) = taken {
            open.stop.store(true, Ordering::Release);
            open.log.wake_syncer();
            if let Some(syncer) = open.syncer {
                let _panicked = syncer.join();
            }
            // Its content is discarded.
            let _fault = open.log.close();
        }
        self.begin_replacement(manifest)
    }

    /// Completes a replacement by this checkpoint, and begins the log after it. The caller holds
    /// [`LogOwner::files`].
    fn begin_replacement(&self, manifest: &Manifest) -> Result<Arc<Log>, String> {
        let start = self.put_replacement_in_force(manifest)?;
        let wish = self.life().wish.clone();
        let open = self.open_at(&wish, start, true);
        let open = open.map_err(|error| system_reason(&error))?;
        open.counts.store(true, Ordering::Release);
        let log = Arc::clone(&open.log);
        let mut life = self.life();
        // The level may have been changed meanwhile.
        open.log.set_level(life.wish.level);
        life.open = Some(open);
        life.lent_from = life.lent_from.map(|_| start);
        Ok(log)
    }

    /// Puts the checkpoint of a decided replacement in force; returns where the log after it
    /// begins. The caller holds [`LogOwner::files`], and no log is open.
    fn put_replacement_in_force(&self, manifest: &Manifest) -> Result<u64, String> {
        let finished = replacement::finish(&self.place(), &self.setup.env.clock);
        finished.map_err(|fault| fault.to_string())?;
        let start = manifest.log_sequence.unwrap_or(0);
        let mut life = self.life();
        life.set_base(manifest);
        life.end = start;
        Ok(start)
    }

    /// Completes an unfinished [replacement](LogOwner::replace), before a checkpoint is made:
    /// otherwise a start would complete it, and take the later checkpoint out of force.
    ///
    /// # Errors
    /// Why it cannot be done now either.
    pub fn finish_replacement(&self) -> Result<(), String> {
        let _alone = lock(&self.files);
        let place = self.place();
        let Some(manifest) = replacement::decided(&place).map_err(|fault| fault.to_string())?
        else {
            return Ok(());
        };
        let has_log = self.life().open.is_some();
        match has_log {
            // The decision failed and could not be withdrawn, and that log continued.
            true => replacement::take_back(&place).map_err(|error| system_reason(&error)),
            false => self.put_replacement_in_force(&manifest).map(drop),
        }
    }

    /// Begins the log that a [replacement](LogOwner::replace) could not begin. Returns the
    /// checkpoint with which it continues, if that was done now.
    ///
    /// # Errors
    /// Why it cannot be begun now either.
    pub fn begin_missing(&self) -> Result<Option<Manifest>, String> {
        let _alone = lock(&self.files);
        let life = self.life();
        if life.open.is_some() || life.state.phase != Phase::On {
            return Ok(None);
        }
        drop(life);
        let _claimed = self.claim_while_on()?;
        let manifest = self.replacing_manifest()?;
        self.begin_replacement(&manifest)?;
        Ok(Some(manifest))
    }

    /// Goes on without the log that cannot be begun: writes are refused until an operator has one
    /// begun.
    pub fn give_up_missing(&self, reason: String) {
        let mut life = self.life();
        if life.open.is_none() {
            life.reason = reason;
            let _nothing_removed = self.step(life, Event::Lost);
        }
    }

    /// Returns the checkpoint that a replacement put in force, or is to.
    fn replacing_manifest(&self) -> Result<Manifest, String> {
        let place = self.place();
        let decided = replacement::decided(&place).map_err(|fault| fault.to_string())?;
        if let Some(manifest) = decided {
            return Ok(manifest);
        }
        let in_force = place.manifest().map_err(|fault| fault.to_string())?;
        in_force.ok_or_else(|| "no checkpoint is in force".to_owned())
    }

    /// Makes everything durable that was appended.
    ///
    /// # Errors
    /// The error of the device.
    pub fn make_durable(&self) -> io::Result<()> {
        let Some(log) = self.life().open.as_ref().map(|open| Arc::clone(&open.log)) else {
            return Ok(());
        };
        let up_to = log.tail();
        while log.durable() < up_to {
            if let Some(fault) = log.fault() {
                return Err(io::Error::new(fault.kind, fault.text));
            }
            log.request_sync(up_to);
            if self.setup.has_threads {
                std::thread::sleep(LOOK);
            } else {
                log.sync_step();
            }
        }
        Ok(())
    }

    /// Notes that a checkpoint is in force, and removes what it has replaced.
    ///
    /// # Errors
    /// Those of the system; the next call removes the rest.
    pub fn in_force(&self, manifest: &Manifest) -> io::Result<()> {
        let names_log = manifest.log_sequence.is_some();
        let removed = {
            // Without a log the whole directory is removed: not while files of the next log are in
            // it.
            let _alone = lock(&self.files);
            let mut life = self.life();
            life.set_base(manifest);
            if let Some(open) = &life.open {
                let keep_bytes = self.setup.host.log_keep_bytes(manifest.bytes());
                open.log.set_keep_bytes(keep_bytes);
            }
            self.step(life, Event::InForce { names_log })
        };
        // The content of the log may count from now on.
        self.moved();
        removed
    }

    /// Reports that the log is durable further than before, or that a fault has begun or ended.
    fn moved(&self) {
        moved(&self.setup.in_use, &self.setup.env, &*self.setup.host);
    }

    /// Reserves the work of the states for this thread.
    fn claim(&self) -> Result<(), String> {
        let mut life = self.life();
        if life.is_driven || life.state.is_changing() {
            return Err(CHANGING.to_owned());
        }
        life.is_driven = true;
        Ok(())
    }

    /// Keeps the log from being ended while another one replaces it.
    fn claim_while_on(&self) -> Result<Claimed<'_>, String> {
        self.claim()?;
        let claimed = Claimed(self);
        match self.state().phase {
            Phase::On => Ok(claimed),
            _ => Err(CHANGING.to_owned()),
        }
    }

    fn release(&self) {
        self.life().is_driven = false;
        self.released.notify_all();
    }

    /// Does the work of the states until one is stable. The caller has [claimed](LogOwner::claim)
    /// it.
    fn drive(&self) {
        loop {
            let is_given_up = match self.advance() {
                Progress::Rest => return,
                Progress::GivenUp => true,
                // The thread that ends the server continues.
                Progress::More => self.state().next == Next::End,
            };
            if is_given_up {
                return self.release();
            }
        }
    }

    /// Does the work of the present state. Only one thread at a time may call it.
    pub fn advance(&self) -> Progress {
        let Some(work) = self.state().work() else {
            return Progress::Rest;
        };
        let host = &self.setup.host;
        let event = match work {
            Work::MakeBase => match self.bases.get().map_or(Ok(()), |bases| bases.make()) {
                Ok(()) => Event::BaseMade,
                Err(reason) => {
                    self.life().reason = reason;
                    Event::BaseFailed
                }
            },
            Work::Open => {
                return match self.open(Event::OpenFailed) {
                    Ok(()) => Progress::More,
                    // The operator was notified.
                    Err(_) => Progress::Rest,
                };
            }
            Work::AwaitTakenUp => {
                let is_given_up = || host.is_stopping() || self.state().next == Next::End;
                if !self.setup.in_use.wait_until_taken_up(&is_given_up) {
                    return Progress::GivenUp;
                }
                Event::TakenUp
            }
            Work::AwaitLetGo => {
                let is_given_up = || host.is_stopping();
                self.setup.in_use.wait_until_taken_up(&is_given_up);
                Event::LetGo
            }
            Work::Close => return self.close(),
        };
        let (progress, _nothing_removed) = self.step_on(self.life(), event);
        progress
    }

    /// Creates the files of a log, and sends all effects to it, if the state requires that.
    fn open(&self, failed: Event) -> io::Result<()> {
        {
            let _alone = lock(&self.files);
            let life = self.life();
            if life.state.work() != Some(Work::Open) {
                return Ok(());
            }
            let (wish, goes_on) = (life.wish.clone(), life.state.names_log);
            let begin = match life.state.phase {
                Phase::Starting {
                    from: From::Load, ..
                } => life.end,
                _ => life.end + UNLOGGED_BYTES,
            };
            drop(life);
            let opened = self.open_at(&wish, begin, goes_on);
            let mut life = self.life();
            match opened {
                Ok(open) => {
                    life.open = Some(open);
                    self.step(life, Event::Opened)?;
                }
                Err(error) => {
                    life.reason = system_reason(&error);
                    self.step(life, failed)?;
                    return Err(error);
                }
            }
        }
        // The log may have begun with a fault, which must be known before any client is served.
        self.moved();
        Ok(())
    }

    #[allow(clippy::disallowed_methods, reason = "the one thread that syncs")]
    fn open_at(&self, wish: &LogWish, end: u64, goes_on: bool) -> io::Result<Open> {
        let Setup {
            env, host, in_use, ..
        } = &self.setup;
        let place = self.place();
        let mut options = wish.options.clone();
        if let Some(usable_bytes) = self.setup.usable_bytes {
            let room_bytes = place.disk.room_bytes(&place.directory);
            options.ring_bytes = ring_bytes(options.segment_bytes, usable_bytes, room_bytes);
            options.ring_bytes_min = RING_BYTES_MIN;
        }
        let (disk, clock) = (Arc::clone(&place.disk), Arc::clone(&env.clock));
        let log = Log::open(disk, clock, &place.log_directory, end, options)?;
        if let Some(fault) = log.fault().filter(|_| !goes_on) {
            return Err(io::Error::new(fault.kind, fault.text));
        }
        log.set_level(wish.level);
        let (told, env, host) = (Arc::downgrade(in_use), Arc::clone(env), Arc::clone(host));
        log.on_durable(Box::new(move |_| {
            if let Some(in_use) = told.upgrade() {
                moved(&in_use, &env, &*host);
            }
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let syncer = if self.setup.has_threads {
            let (own_log, own_stop) = (Arc::clone(&log), Arc::clone(&stop));
            let thread = std::thread::Builder::new().name("log".into());
            Some(thread.spawn(move || own_log.run_syncer(&own_stop))?)
        } else {
            None
        };
        Ok(Open {
            log,
            counts: Arc::default(),
            stop,
            syncer,
        })
    }

    /// Makes the content of a log durable to which no thread appends any more, and closes its
    /// files.
    fn close(&self) -> Progress {
        self.close_files();
        let _alone = lock(&self.files);
        let mut life = self.life();
        life.open = None;
        let (progress, removed) = self.step_on(life, Event::Closed);
        if let Err(error) = removed {
            let (lines, error) = (&self.setup.env.log, system_reason(&error));
            lines.warning(format_args!("Cannot remove old files of the log: {error}"));
        }
        progress
    }

    /// Closes the files. There are none if a replacement log could not be begun.
    fn close_files(&self) {
        let mut life = self.life();
        let Some(open) = &mut life.open else { return };
        let (log, stop, syncer) = (
            Arc::clone(&open.log),
            Arc::clone(&open.stop),
            open.syncer.take(),
        );
        // If no checkpoint makes it count by now, none will; clients that wait for that must not
        // wait for ever.
        open.counts.store(true, Ordering::Release);
        life.end = log.tail();
        drop(life);
        stop.store(true, Ordering::Release);
        log.wake_syncer();
        if let Some(syncer) = syncer {
            let _panicked = syncer.join();
        }
        if let Err(fault) = log.close() {
            let lines = &self.setup.env.log;
            lines.warning(format_args!("The end of the log is not on disk: {fault}"));
        }
    }

    /// Changes to the next state, and does its actions. The caller holds [`LogOwner::files`] if
    /// they may remove files.
    fn step(&self, life: MutexGuard<'_, Life>, event: Event) -> io::Result<()> {
        self.step_on(life, event).1
    }

    /// The same, for the thread that does the work of the states: also returns whether there is
    /// more work. The result says whether files could be removed.
    fn step_on(&self, mut life: MutexGuard<'_, Life>, event: Event) -> (Progress, io::Result<()>) {
        let (state, actions) = table::step(life.state, event);
        self.setup.host.log_stepped(life.state, event);
        if life.state.is_changing() && !state.is_changing() {
            // At once: a change requested from here on gets another thread.
            life.is_driven = false;
            self.released.notify_all();
        }
        life.state = state;
        for action in actions {
            self.do_at_once(&mut life, *action);
        }
        let progress = match state.is_changing() {
            true => Progress::More,
            false => Progress::Rest,
        };
        let (log, sequence) = (life.log(), life.base_sequence);
        let reason = life.reason.clone();
        drop(life);
        let mut done = actions.iter();
        let removed = done.try_for_each(|action| match (action, &log, sequence) {
            (Action::AskForBase, ..) => {
                if let Some(bases) = self.bases.get() {
                    bases.ask();
                }
                Ok(())
            }
            (Action::Miss, ..) => {
                let lines = &self.setup.env.log;
                lines.warning(format_args!("The log was not begun: {reason}"));
                Ok(())
            }
            (Action::Cut, Some(log), Some(sequence)) => log.cut(sequence),
            (Action::Remove, ..) => self.place().remove_log(),
            _ => Ok(()),
        });
        (progress, removed)
    }

    /// Does the part of an action that does not wait.
    fn do_at_once(&self, life: &mut Life, action: Action) {
        let Setup {
            env, host, in_use, ..
        } = &self.setup;
        match (action, &life.open) {
            (Action::Use, Some(open)) => {
                let tail = LogTail::new(Arc::clone(&open.log), Arc::clone(&open.counts));
                in_use.set(Some(Arc::new(tail)), env);
                host.log_changed();
            }
            (Action::Drop, open) => {
                let end = open.as_ref().map(|open| open.log.tail());
                life.base_sequence = life.base_sequence.or(end);
                in_use.set(None, env);
                host.log_changed();
            }
            (Action::Count, Some(open)) => {
                open.counts.store(life.state.names_log, Ordering::Release);
            }
            (Action::SetLevel, Some(open)) => open.log.set_level(life.wish.level),
            (Action::Miss, _) => in_use.set_missing(Some(&life.reason), env),
            (Action::MissNoMore, _) => in_use.set_missing(None, env),
            _ => {}
        }
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        lock(&self.life)
    }
}

impl fmt::Debug for LogOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogOwner")
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Reports that a log is durable further than before, or that a fault has begun or ended.
fn moved(in_use: &LogInUse, env: &Environment, host: &dyn Host) {
    in_use.look_for_fault(env);
    host.log_moved();
}

/// Maximum size of the ring in the log's mapped file: at least a fifth of a second of SETs at full
/// speed on one core. Devices sometimes do not answer for a tenth of a second, and writes beyond
/// the ring wait meanwhile.
const RING_BYTES_MAX: u64 = 128 << 20;
/// Minimum size of the ring: less is no help. A larger one may be refused for lack of disk quota or
/// address space.
const RING_BYTES_MIN: u64 = 32 << 20;
/// Divisor: a ring above the minimum takes at most this share of the memory that the process may
/// use, ...
const RING_MEMORY_SHARE: u64 = 64;
/// ... and at most this share of the device's free space. The same amount again is reserved for
/// what a start takes from the ring.
const RING_ROOM_SHARE: u64 = 16;

/// Returns the length of a ring in bytes, a multiple of a MiB: that of two of the segments to which
/// it is written, because short segments mean little space; and at most in proportion to memory and
/// free space, where known.
fn ring_bytes(segment_bytes: u64, usable_bytes: u64, room_bytes: Option<u64>) -> u64 {
    const MIB: u64 = 1 << 20;
    let of_memory = usable_bytes / RING_MEMORY_SHARE;
    let of_room = room_bytes.map_or(u64::MAX, |bytes| bytes / RING_ROOM_SHARE);
    let wanted = segment_bytes.saturating_mul(2).min(of_memory).min(of_room);
    wanted.clamp(RING_BYTES_MIN, RING_BYTES_MAX) / MIB * MIB
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_in_proportion_to_what_there_is() {
        const MIB: u64 = 1 << 20;
        const GIB: u64 = 1 << 30;
        assert_eq!(ring_bytes(64 * MIB, 64 * GIB, None), 128 * MIB);
        assert_eq!(ring_bytes(u64::MAX, 64 * GIB, Some(100 * GIB)), 128 * MIB);
        assert_eq!(ring_bytes(24 * MIB, 64 * GIB, None), 48 * MIB, "segments");
        assert_eq!(ring_bytes(GIB, 3 * GIB + 1, None), 48 * MIB, "memory");
        assert_eq!(ring_bytes(GIB, 64 * GIB, Some(700 * MIB)), 43 * MIB, "room");
        assert_eq!(ring_bytes(1, 0, Some(0)), 32 * MIB);
    }
}
