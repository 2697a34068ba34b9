//! The one owner of the log's life: begun, changed and ended while the server writes to it.
//!
//! ```text
//!   CONFIG SET, start, end ──► Event ──► table::step ──► State, Actions ──► LogInUse, Checkpointer, files
//!                                ▲                          │
//!                                └─── what came of it ◄─── Work, one thread at a time
//! ```
//!
//! Which state follows which is in [`table`], and nowhere else. This does what the table says. Turning the log on:
//! every thread that changes the store takes it up, and only then a checkpoint is cut; so what is not in the
//! checkpoint is in the log. Turning it off: everybody lets go of it, and what was appended becomes durable.
//!
//! Whoever asks at runtime waits for files to be made, and for nothing else: the rest is done by a thread that
//! lives for one change, since it has to wait for all workers.

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

/// How often it is looked whether the log is durable.
const LOOK: Duration = Duration::from_millis(1);

/// How much after the end of the log before it a log begins that does not go on from it. What was written between the two is
/// in neither: a replica that has the first one to its end finds that the second begins later, and asks for everything.
const UNLOGGED_BYTES: u64 = 8;

const CHANGING: &str = "the log is just being begun or ended";
const STOPS: &str = "the server stops";

/// What is wanted of the log.
#[derive(Clone, Debug)]
pub struct LogWish {
    /// What is done with what is appended. There is a log where it [logs](Level::logs).
    pub level: Level,
    /// How long its files are, and what it holds in memory.
    pub options: Options,
}

/// What a log's owner works with.
pub struct Setup {
    /// The settings, time and the operator's lines.
    pub env: Arc<Environment>,
    /// Who is told.
    pub host: Arc<dyn Host>,
    /// The log that effects go to. Nobody else changes it.
    pub in_use: Arc<LogInUse>,
    /// Where the files are, until [somebody says otherwise](LogOwner::set_place).
    pub place: Place,
    /// Bytes of memory that the process may have: a log holds no more than a share of it. Without, what its options
    /// say.
    pub usable_bytes: Option<u64>,
    /// Whether there are threads: one that syncs a log, one that changes it. Without, whoever waits for the disk syncs,
    /// and whoever asks for a change calls [`LogOwner::advance`].
    pub has_threads: bool,
}

/// Who makes the checkpoints that a log goes on from.
pub trait Bases: Send + Sync {
    /// Makes one now, which goes on to no log, and comes back when it is in force.
    ///
    /// # Errors
    /// Why it is not, for the operator.
    fn make(&self) -> Result<(), String>;

    /// Has one made soon. Waits for nothing.
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
        // Only who stops refuses.
        let _scheduled = self.upgrade().map(|it| it.schedule(Why::Rewrite));
    }
}

/// See the module.
pub struct LogOwner {
    setup: Setup,
    bases: OnceLock<Box<dyn Bases>>,
    place: Mutex<Place>,
    /// Held while files of a log are made or removed. Before the others.
    files: Mutex<()>,
    /// Workers look at it, so nobody waits for the disk with it.
    life: Mutex<Life>,
    /// Nobody does the work of the states any more.
    released: Condvar,
}

/// What is left to be done of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The next state has work to be done.
    More,
    /// Nothing: the state stays.
    Rest,
    /// Nothing is done any more: the server stops.
    GivenUp,
}

/// The state, and what it is about.
struct Life {
    state: State,
    /// A thread does the work of the states.
    is_driven: bool,
    wish: LogWish,
    /// The log that effects go to, or that is being ended.
    open: Option<Open>,
    /// Where the last one ended, and the next one begins.
    end: u64,
    /// Bytes of the checkpoint in force.
    base_bytes: u64,
    /// From where on the log goes on from it, if it does: [`State::names_log`].
    base_sequence: Option<u64>,
    /// Why the log was not begun.
    reason: String,
    /// Where what this server's own writes say ends in the log, while it is [lent](LogOwner::lend).
    lent_from: Option<u64>,
}

/// A log, and the thread that syncs it.
struct Open {
    log: Arc<Log>,
    /// What is in it is kept.
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

/// Nobody else changes the log until this goes.
struct Claimed<'o>(&'o LogOwner);

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl LogOwner {
    /// The owner of no log yet.
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

    /// Says who makes checkpoints; once.
    pub fn set_bases(&self, bases: Box<dyn Bases>) {
        let _already_set = self.bases.set(bases);
    }

    /// Says where files are made from now on. For who has no log.
    pub fn set_place(&self, place: Place) {
        *lock(&self.place) = place;
    }

    /// Where the files are.
    #[must_use]
    pub fn place(&self) -> Place {
        lock(&self.place).clone()
    }

    /// Where the life of the log stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.life().state
    }

    /// The log, if effects go to it or are about to.
    #[must_use]
    pub fn log(&self) -> Option<Arc<Log>> {
        self.life().log()
    }

    /// The sequence from which on the log has the effects of all writes that begin now; none before everybody
    /// states them to it.
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        let life = self.life();
        let is_taken_up = life.state.phase == Phase::On;
        let open = life.open.as_ref().filter(|_| is_taken_up)?;
        Some(open.log.tail())
    }

    /// Says where the next log begins. For who has none.
    pub fn set_end(&self, sequence: u64) {
        self.life().end = sequence;
    }

    /// Notes which checkpoint is in force, at a start.
    pub fn set_base(&self, manifest: &Manifest) {
        let mut life = self.life();
        life.set_base(manifest);
        life.state.names_log = manifest.log_sequence.is_some();
    }

    /// Where the log goes on from the checkpoint in force.
    #[must_use]
    pub fn base_sequence(&self) -> Option<u64> {
        self.life().base_sequence
    }

    /// Bytes of the checkpoint in force.
    #[must_use]
    pub fn base_bytes(&self) -> u64 {
        self.life().base_bytes
    }

    /// Bytes of the log after the checkpoint in force; none without a log.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        let life = self.life();
        let log = life.log()?;
        Some(log.tail().saturating_sub(life.base_sequence.unwrap_or(0)))
    }

    /// Begins the log at a start, to go on from what was loaded; comes back when all effects go to it.
    ///
    /// # Errors
    /// Those of the system; there is no log then. That there is no room is none where the log goes on from a
    /// checkpoint: all that is kept can be read, and writes are refused until there is.
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

    /// Has what is wanted done from now on, or after the change that goes on. Comes back when it is known whether
    /// there are files; that a checkpoint has to be made before, and what comes of that, is for the operator.
    ///
    /// # Errors
    /// Why there can be no log, or no thread that begins or ends it; everything is as it was then.
    pub fn change(self: &Arc<Self>, wish: &LogWish) -> Result<(), String> {
        let event = match wish.level.logs() {
            true => Event::WantOn,
            false => Event::WantOff,
        };
        let life = self.life();
        let (after, _) = table::step(life.state, event);
        if life.state.is_changing() || !after.is_changing() {
            // Whoever does the work of the states sees to it, or it is done at once.
            self.ask(life, wish, event);
            return Ok(());
        }
        drop(life);
        // The thread comes first: without it the change would be begun, and nothing else.
        let go = self.spawn_driver()?;
        self.ask(self.life(), wish, event);
        if self.state().work() == Some(Work::Open)
            && let Err(error) = self.open(Event::OpenRefused)
        {
            return Err(system_reason(&error));
        }
        // It waits for that, and for nothing else.
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

    /// A thread that does the work of the states once it is told to, where there are threads.
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

    /// Ends the log, with everything in it durable, for good. For the end of the server, when nobody writes any more.
    pub fn end(&self) {
        {
            // One that is just being begun ends as well.
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

    /// Has everybody let go of the log, so that another may append what a primary sends; the log, when they have. It stays
    /// this owner's.
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

    /// Whether the log is [lent](LogOwner::lend): nobody here states anything to it.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.life().lent_from.is_some()
    }

    /// Where what this server's own writes say ends in the log; none without one.
    #[must_use]
    pub fn own_end(&self) -> Option<u64> {
        let life = self.life();
        let log = life.log()?;
        Some(life.lent_from.unwrap_or_else(|| log.tail()))
    }

    /// Has all effects go to the log again that was [lent](LogOwner::lend), which nobody else appends to any more; comes
    /// back when they do.
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

    /// Puts a checkpoint of another history in force, whose parts are durable, and begins the log anew after it, in place
    /// of one that was [lent](LogOwner::lend). For a replica that was given everything.
    ///
    /// # Errors
    /// Why not. The log that there was goes on, unless what was decided could not be done: then there is none until this is
    /// done again, or [the rest of it](LogOwner::begin_missing).
    pub fn replace(&self, manifest: &Manifest) -> Result<Arc<Log>, String> {
        let _alone = lock(&self.files);
        let _claimed = self.claim_while_on()?;
        let place = self.place();
        if let Err(error) = replacement::decide(&place, manifest) {
            // Where that can be taken back all is as it was: the log that there is goes on.
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
            // What it has is given up.
            let _fault = open.log.close();
        }
        self.begin_replacement(manifest)
    }

    /// Does what is left of a replacement by this checkpoint, and begins the log after it. With [`LogOwner::files`] held.
    fn begin_replacement(&self, manifest: &Manifest) -> Result<Arc<Log>, String> {
        let start = self.put_replacement_in_force(manifest)?;
        let wish = self.life().wish.clone();
        let open = self.open_at(&wish, start, true);
        let open = open.map_err(|error| system_reason(&error))?;
        open.counts.store(true, Ordering::Release);
        let log = Arc::clone(&open.log);
        let mut life = self.life();
        // It may have been changed meanwhile.
        open.log.set_level(life.wish.level);
        life.open = Some(open);
        life.lent_from = life.lent_from.map(|_| start);
        Ok(log)
    }

    /// Puts the checkpoint in force that a replacement was decided with; where the log after it begins. With [`LogOwner::files`]
    /// held, and no log open.
    fn put_replacement_in_force(&self, manifest: &Manifest) -> Result<u64, String> {
        let finished = replacement::finish(&self.place(), &self.setup.env.clock);
        finished.map_err(|fault| fault.to_string())?;
        let start = manifest.log_sequence.unwrap_or(0);
        let mut life = self.life();
        life.set_base(manifest);
        life.end = start;
        Ok(start)
    }

    /// Does what is left of a [replacement](LogOwner::replace) that could not be finished, before a checkpoint is made: a start
    /// would finish it, and what came after it would be out of force.
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
            // It could not be taken back when it could not be decided, and that log went on.
            true => replacement::take_back(&place).map_err(|error| system_reason(&error)),
            false => self.put_replacement_in_force(&manifest).map(drop),
        }
    }

    /// Begins the log that a [replacement](LogOwner::replace) could not begin; the checkpoint that it goes on from, if that
    /// was done now.
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

    /// Goes on without the log that cannot be begun: writes are refused until an operator has one begun.
    pub fn give_up_missing(&self, reason: String) {
        let mut life = self.life();
        if life.open.is_none() {
            life.reason = reason;
            let _nothing_removed = self.step(life, Event::Lost);
        }
    }

    /// The checkpoint that a replacement put in force, or is to.
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
    /// What the device says.
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
    /// Those of the system; what is left is removed the next time.
    pub fn in_force(&self, manifest: &Manifest) -> io::Result<()> {
        let names_log = manifest.log_sequence.is_some();
        let removed = {
            // Without a log the whole directory goes: not while there are files of the next one in it.
            let _alone = lock(&self.files);
            let mut life = self.life();
            life.set_base(manifest);
            if let Some(open) = &life.open {
                let keep_bytes = self.setup.host.log_keep_bytes(manifest.bytes());
                open.log.set_keep_bytes(keep_bytes);
            }
            self.step(life, Event::InForce { names_log })
        };
        // What is in the log may count from now on.
        self.moved();
        removed
    }

    /// The log is durable further than before, or a fault has begun or ended.
    fn moved(&self) {
        moved(&self.setup.in_use, &self.setup.env, &*self.setup.host);
    }

    /// Has nobody else do the work of the states.
    fn claim(&self) -> Result<(), String> {
        let mut life = self.life();
        if life.is_driven || life.state.is_changing() {
            return Err(CHANGING.to_owned());
        }
        life.is_driven = true;
        Ok(())
    }

    /// Keeps the log from being ended while another one takes its place.
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

    /// Does the work of the states up to one that stays. For who has [claimed](LogOwner::claim) it.
    fn drive(&self) {
        loop {
            let is_given_up = match self.advance() {
                Progress::Rest => return,
                Progress::GivenUp => true,
                // Whoever ends the server goes on.
                Progress::More => self.state().next == Next::End,
            };
            if is_given_up {
                return self.release();
            }
        }
    }

    /// Does the work of the state. For one thread at a time.
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
                    // The operator was told.
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

    /// Makes the files of a log, and has all effects go to it, if that is what the state is about.
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
        // It may have begun with a fault, which is to be known before anybody is served.
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

    /// Makes durable what is in the log that nobody states effects to any more, and closes its files.
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

    /// There are none where a log that was to take the place of another one could not be begun.
    fn close_files(&self) {
        let mut life = self.life();
        let Some(open) = &mut life.open else { return };
        let (log, stop, syncer) = (
            Arc::clone(&open.log),
            Arc::clone(&open.stop),
            open.syncer.take(),
        );
        // No checkpoint will make it count that does not by now, and who waits for that is not to wait for ever.
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

    /// Goes on to the next state, and does what is to be done on the way. With [`LogOwner::files`] held, where files may
    /// be removed by that.
    fn step(&self, life: MutexGuard<'_, Life>, event: Event) -> io::Result<()> {
        self.step_on(life, event).1
    }

    /// The same, for who does the work of the states: whether there is more of it, and whether files could be removed.
    fn step_on(&self, mut life: MutexGuard<'_, Life>, event: Event) -> (Progress, io::Result<()>) {
        let (state, actions) = table::step(life.state, event);
        self.setup.host.log_stepped(life.state, event);
        if life.state.is_changing() && !state.is_changing() {
            // At once: who asks for a change from here on has another thread do it.
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

    /// The part of an action that waits for nothing.
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

/// A log is durable further than before, or a fault has begun or ended.
fn moved(in_use: &LogInUse, env: &Environment, host: &dyn Host) {
    in_use.look_for_fault(env);
    host.log_moved();
}

/// What is held of the log in memory, where that is a file's: a fifth of a second and more of SETs at full speed on one
/// core. Devices answer nothing for a tenth of one now and then, and who writes more meanwhile waits.
const RING_BYTES_MAX: u64 = 128 << 20;
/// Less than this is no help. What a longer one would need may be refused: room, of which there is a quota, or addresses.
const RING_BYTES_MIN: u64 = 32 << 20;
/// More than the least is no greater part of the memory that the process may have, ...
const RING_MEMORY_SHARE: u64 = 64;
/// ... nor of the device's room, of which as much is kept once more for what a start takes from it.
const RING_ROOM_SHARE: u64 = 16;

/// How long a ring is, in bytes, a number of MiB: as two of the files that it is taken to, for who makes these short has little
/// room, and no more than in proportion to what there is of memory and room, where that is known.
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
