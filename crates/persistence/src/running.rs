//! The data that a running server keeps: the data directory, its recovery at the start, checkpoints
//! and the log.
//!
//! ```text
//!   start ── load ──► recovery, or what another server left ──► store
//!   save points, SAVE, … ──► Checkpointer ──► in force ──► LogOwner: what is replaced goes
//!   CONFIG SET, the server's end ──► LogOwner
//! ```
//!
//! The directory is taken if there is data in it, or when the first checkpoint is made: a server
//! that keeps nothing leaves no trace, and several of them may run in one place.
//!
//! Invariant: no checkpoint replaces data that was not loaded. Data that came into the directory
//! meanwhile belongs to another server.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use base::background::Scheduler;
use base::os_error::system_reason;
use base::random::Prng;
use durability::checkpoint::{
    CheckpointFault, History, Lineage, Manifest, TermEntry, remove_replaced,
};
use durability::log::{Control, Level as LogLevel, SourceFrame};
use store::SnapshotLimits;
use tier::{Tier, TierFault};

use crate::aof::{self, AofFault, Source};
use crate::branch;
use crate::checkpointer::{
    self, CheckpointThread, Checkpointer, Failure, Outcome, Surroundings, Why, writers_for,
};
use crate::directory::{DataDirectory, DirectoryError};
use crate::environment::Environment;
use crate::host::Host;
use crate::import::{ImportError, import_rdb};
use crate::lines::Level;
use crate::log_in_use::LogInUse;
use crate::log_owner::{self, LogOwner, LogWish};
use crate::rdb_beside;
use crate::recovery::{self, Effects, Place, Recovered, RecoveryError, Target};
use crate::replacement;

/// The parameters from the server.
pub struct Setup {
    /// Environment of loading and writing data.
    pub env: Arc<Environment>,
    /// The receiver of reports.
    pub host: Arc<dyn Host>,
    /// The log to which effects go.
    pub in_use: Arc<LogInUse>,
    /// Scheduler by which a checkpoint's threads yield to others.
    pub background: Arc<Scheduler>,
    /// The working directory.
    pub dir: PathBuf,
    /// Number of cores.
    pub cores_count: usize,
    /// Memory that the process may use, in bytes.
    pub usable_bytes: u64,
    /// What happens to the log's effects when it is loaded.
    pub effects: Effects,
}

/// The settings at a start.
pub struct Wanted {
    /// The wanted log.
    pub log: LogWish,
    /// Names of the files that another server may have left in the working directory.
    pub names: ForeignNames,
}

/// Names of another server's files in the working directory.
pub struct ForeignNames {
    /// The RDB file.
    pub rdb_file: PathBuf,
    /// The directory with append-only files.
    pub aof_directory: PathBuf,
    /// Prefix of the names of append-only files, and the whole name of a single one.
    pub aof_file: PathBuf,
    /// Whether a start accepts such a file whose end was cut off.
    pub accepts_torn: bool,
}

/// Keeps the data of one server.
pub struct Persistence {
    /// Makes checkpoints.
    pub checkpointer: Arc<Checkpointer>,
    thread: Mutex<Option<CheckpointThread>>,
    around: Arc<Around>,
    cores_count: usize,
    /// The checkpoint to load.
    found: Option<Manifest>,
    /// The point up to which it is loaded.
    target: Target,
    effects: Effects,
    /// See [`Persistence::terms`].
    terms: OnceLock<Vec<TermEntry>>,
}

/// Why a server cannot start with the data that it finds.
#[derive(Debug)]
pub enum OpenError {
    /// The directory cannot be taken.
    Directory(DirectoryError),
    /// The manifest, or a file that it names, differs from what was written.
    Checkpoint(CheckpointFault),
    /// Recovery to a point in time was requested, but there is no data for it.
    NothingToRecover(PathBuf),
    /// The data after the requested point could not be set aside.
    Aside(io::Error),
    /// The data was not loaded.
    Recovery(RecoveryError),
    /// The RDB file of another server was not loaded.
    Rdb(ImportError),
    /// The append-only files of another server were not loaded.
    Aof(AofFault),
    /// No thread could be started.
    Thread(io::Error),
    /// The directory has a log and no checkpoint, and a server with data is to use it.
    LogAlone(PathBuf),
    /// The log could not be begun.
    Log(String),
    /// The loaded data could not be kept.
    Kept(Failure),
    /// The segments in the directory of the tier belong to another server.
    TierTaken {
        /// The directory.
        path: PathBuf,
        /// Their owner.
        owner: PathBuf,
    },
    /// The directory of the tier cannot be used.
    Tier(TierFault),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(error) => error.fmt(f),
            Self::Checkpoint(fault) => fault.fmt(f),
            Self::NothingToRecover(path) => {
                let path = path.display();
                write!(f, "--recover-to: there is no data in {path}")
            }
            Self::Aside(error) => write!(
                f,
                "cannot set aside what is behind the point of --recover-to: {}",
                system_reason(error)
            ),
            Self::Recovery(error) => error.fmt(f),
            Self::Rdb(error) => error.fmt(f),
            Self::Aof(fault) => fault.fmt(f),
            Self::Thread(error) => error.fmt(f),
            Self::LogAlone(path) => write!(
                f,
                "{} has the log of a shard and none of its data (witness-log): this takes an empty directory",
                path.display()
            ),
            Self::Log(reason) => write!(f, "cannot begin the log: {reason}"),
            Self::TierTaken { path, owner } => write!(
                f,
                "the segments in {} have values of the data in {}, which is not what is loaded. Remove them if that is \
                 not wanted any more",
                path.display(),
                owner.display()
            ),
            Self::Tier(fault) => fault.fmt(f),
            Self::Kept(failure) => write!(f, "cannot keep what was loaded: {failure}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl Persistence {
    /// Starts for a server that loads nothing. Data that is already in its directory is never
    /// overwritten.
    ///
    /// # Errors
    /// If the process may have no more threads.
    pub fn start(setup: Setup) -> Result<Self, OpenError> {
        Self::with(setup, None, Target::End)
    }

    /// Opens for a server with an empty store. Takes the directory if there is data in it; the data
    /// must then be [loaded](Persistence::load), up to `target`.
    ///
    /// # Errors
    /// [`OpenError`]: then the server must not start.
    pub fn open(setup: Setup, target: Target) -> Result<Self, OpenError> {
        let place = Place::within(&setup.dir);
        let there_is = place.manifest().map_err(OpenError::Checkpoint)?;
        if there_is.is_none() && !replacement::is_decided(&place) {
            return match target {
                Target::End => Self::start(setup),
                _ => Err(OpenError::NothingToRecover(place.directory)),
            };
        }
        let taken = DataDirectory::take(&setup.dir).map_err(OpenError::Directory)?;
        replacement::finish(&place, &setup.env.clock).map_err(OpenError::Checkpoint)?;
        // Its previous owner may have replaced it until now.
        let manifest = place.manifest().map_err(OpenError::Checkpoint)?;
        Self::with(setup, Some((taken, manifest.unwrap_or_default())), target)
    }

    fn with(
        setup: Setup,
        found: Option<(DataDirectory, Manifest)>,
        target: Target,
    ) -> Result<Self, OpenError> {
        let (env, host) = (&setup.env, &setup.host);
        let (taken, found) = found.unzip();
        // Data that continues from an earlier point is another history.
        let goes_on = found.as_ref().filter(|_| target == Target::End);
        let lineage = goes_on.map_or_else(new_lineage, |manifest| manifest.lineage);
        let place = Place::within(&setup.dir);
        check_tier(env, found.as_ref(), &place)?;
        let log = LogOwner::new(log_owner::Setup {
            env: Arc::clone(env),
            host: Arc::clone(host),
            in_use: setup.in_use,
            place: place.clone(),
            usable_bytes: Some(setup.usable_bytes),
            has_threads: true,
        });
        let around = Arc::new(Around {
            env: Arc::clone(env),
            host: Arc::clone(host),
            dir: Mutex::new(setup.dir),
            taken: Mutex::new(taken),
            log: Arc::new(log),
        });
        let surroundings: Arc<dyn Surroundings> = Arc::<Around>::clone(&around);
        let checkpointer = Arc::new(Checkpointer::new(checkpointer::Setup {
            store: Arc::clone(&env.store),
            disk: place.disk,
            directory: place.directory,
            clock: Arc::clone(&env.clock),
            lineage,
            background: setup.background,
            writers: writers_for(setup.cores_count),
            surroundings,
        }));
        let bases = Arc::downgrade(&checkpointer);
        around.log.set_bases(Box::new(bases));
        let thread = CheckpointThread::start(&checkpointer).map_err(OpenError::Thread)?;
        Ok(Self {
            checkpointer,
            thread: Mutex::new(Some(thread)),
            around,
            cores_count: setup.cores_count,
            found,
            target,
            effects: setup.effects,
            terms: OnceLock::new(),
        })
    }

    /// Whether clients have to wait until [`Persistence::load`] has ended.
    #[must_use]
    pub fn has_to_load(&self, wanted: &Wanted) -> bool {
        self.found.is_some()
            || wanted.log.level.logs()
            || Foreign::find(&self.around.dir(), wanted).is_ok_and(|found| found.is_some())
    }

    /// Loads the kept data into the store, or else the files of another server, and begins the log
    /// if one is wanted. Data that was not kept in our own format, together with the log's starting
    /// point, is kept before this returns. Clients get a loading error until then.
    ///
    /// # Errors
    /// [`OpenError`]: then the server must not go on.
    pub fn load(&self, wanted: &Wanted) -> Result<(), OpenError> {
        let around = &self.around;
        let has_log = wanted.log.level.logs();
        let place = around.log.place();
        let (mut is_kept, mut loaded) = (!has_log, None);
        if let Some(manifest) = &self.found {
            let recovered = self.recover(&place, manifest.clone())?;
            is_kept |= recovered.manifest.log_sequence.is_some();
            if self.target != Target::End {
                self.leave(&place, &recovered).map_err(OpenError::Aside)?;
                is_kept = false;
            } else {
                around.remove_replaced(&recovered.manifest);
                loaded = Some(recovered.manifest);
            }
        } else if let Some(foreign) =
            Foreign::find(&around.dir(), wanted).map_err(OpenError::Aof)?
        {
            foreign.load(&around.env, wanted)?;
            is_kept = wanted.log.level < LogLevel::Checkpoint;
        }
        self.remove_leftovers(&place)?;
        if has_log {
            around.prepare().map_err(OpenError::Log)?;
            let begun = around.log.load(&wanted.log);
            begun.map_err(|error| OpenError::Log(system_reason(&error)))?;
            if let Some(loaded) = &loaded {
                // The previous process may have ended right after its checkpoint, and left the old
                // files.
                around.in_force(loaded);
            }
        }
        if !is_kept {
            self.keep_now().map_err(OpenError::Kept)?;
        }
        around.host.loaded();
        around.env.end_loading();
        Ok(())
    }

    /// Removes the segments that an earlier process left and that the loaded data does not name.
    fn remove_leftovers(&self, place: &Place) -> Result<(), OpenError> {
        let Some(tier) = self.around.env.tier.get() else {
            return Ok(());
        };
        // A manifest that is there but was not loaded may name some of them.
        let is_known = self.found.is_some() || matches!(place.manifest(), Ok(None));
        if is_known {
            tier.remove_leftovers().map_err(OpenError::Tier)?;
        }
        Ok(())
    }

    fn recover(&self, place: &Place, manifest: Manifest) -> Result<Recovered, OpenError> {
        let env = &self.around.env;
        let started_ns = env.clock.monotonic_ns();
        let what = (self.target, self.effects);
        let recovered = recovery::recover(env, place, manifest, what, self.cores_count)
            .map_err(OpenError::Recovery)?;
        // No snapshot is in progress in a store that no thread has used yet.
        let _raised = env.store.raise_generation(recovered.generation());
        self.around.log.set_end(recovered.next_sequence());
        self.around.log.set_base(&recovered.manifest);
        self.checkpointer
            .note_clean(recovered.manifest.created_unix_ms);
        recovered.tell(env, started_ns);
        let _loaded_twice = self.terms.set(recovered.terms());
        Ok(recovered)
    }

    /// Sets the data after the recovered point aside, and lets the log continue at another
    /// sequence: no sequence ever identifies two frames. The next checkpoint, which is made before
    /// any client is served, takes the rest out of force.
    fn leave(&self, place: &Place, recovered: &Recovered) -> io::Result<()> {
        let tier = self.around.env.tier.get();
        let segments = tier.map(|tier| tier.directory());
        let aside = branch::set_aside(&place.directory, &recovered.manifest, segments)?;
        let end = recovered.next_sequence();
        let next = place.give_up_behind(recovered)?;
        self.around.log.set_end(next);
        self.around.env.log.warning(format_args!(
            "What was kept is set aside in {}; the server goes on from sequence {end}, as {next}",
            aside.display()
        ));
        Ok(())
    }

    /// Makes a checkpoint, and waits until it is in force.
    fn keep_now(&self) -> Result<(), Failure> {
        let ticket = self.checkpointer.schedule(Why::Imported);
        // A stopping server keeps nothing more.
        ticket.map_or(Ok(()), |ticket| {
            self.checkpointer.wait(ticket).result.map(drop)
        })
    }

    /// Changes what is logged from now on. A log that is begun counts only once a checkpoint that
    /// continues with it is in force, which is made next; until then the previously kept data
    /// counts.
    ///
    /// # Errors
    /// Why there can be no log; then everything is as before.
    pub fn change_log(&self, wish: &LogWish) -> Result<(), String> {
        let log = &self.around.log;
        let state = log.state();
        if wish.level.logs() && !state.has_log() && !state.is_changing() {
            if let Some(reason) = self.around.refuses() {
                return Err(reason);
            }
            self.around.prepare()?;
        }
        log.change(wish)
    }

    /// Sets the directory of the data. Only while none has been kept yet.
    pub fn set_dir(&self, dir: &Path) {
        let place = Place::within(dir);
        dir.clone_into(&mut lock(&self.around.dir));
        self.checkpointer.set_directory(&place.directory);
        self.around.log.set_place(place);
    }

    /// Whether there is data of this server in the directory.
    #[must_use]
    pub fn has_directory(&self) -> bool {
        lock(&self.around.taken).is_some()
    }

    /// Keeps a directory that was taken for another purpose before there was data in it.
    ///
    /// # Errors
    /// If it has data that this server has not loaded.
    pub fn keep_directory(&self, directory: DataDirectory) -> Result<(), String> {
        self.around.keep(&mut lock(&self.around.taken), directory)
    }

    /// Returns the terms that the log had when it was loaded, oldest first.
    #[must_use]
    pub fn terms(&self) -> &[TermEntry] {
        self.terms.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the owner of the log.
    #[must_use]
    pub fn log(&self) -> &LogOwner {
        &self.around.log
    }

    /// Cancels the running checkpoint, and ends the thread.
    pub fn stop(&self) {
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            thread.stop();
        }
    }
}

impl fmt::Debug for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Persistence")
            .field("log", self.log())
            .finish_non_exhaustive()
    }
}

/// The files of another server in the working directory.
enum Foreign {
    Rdb(PathBuf),
    Aof(Source),
}

impl Foreign {
    /// Looks for them, as that server would at its start.
    fn find(dir: &Path, wanted: &Wanted) -> Result<Option<Self>, AofFault> {
        let names = &wanted.names;
        if wanted.log.level.logs()
            && let Some(source) = Source::find(dir, &names.aof_directory, &names.aof_file)?
        {
            return Ok(Some(Self::Aof(source)));
        }
        let path = dir.join(&names.rdb_file);
        Ok(path.is_file().then_some(Self::Rdb(path)))
    }

    fn load(&self, env: &Environment, wanted: &Wanted) -> Result<(), OpenError> {
        match self {
            Self::Rdb(path) => import_rdb(env, path).map(drop).map_err(OpenError::Rdb),
            Self::Aof(source) => {
                let loaded = aof::load(env, source, wanted.names.accepts_torn);
                loaded.map(drop).map_err(OpenError::Aof)
            }
        }
    }
}

/// Checks whether the segments that an earlier process left belong to this data.
fn check_tier(env: &Environment, found: Option<&Manifest>, place: &Place) -> Result<(), OpenError> {
    let Some(tier) = env.tier.get() else {
        return Ok(());
    };
    let owner = tier.owner().map_err(OpenError::Tier)?;
    let is_named = found.is_some_and(|manifest| !manifest.segments.is_empty());
    match owner {
        // Data that was moved names the segments that it finds there, or is refused for missing
        // ones.
        Some(owner) if tier.has_leftovers() && !is_named && !same(&owner, &place.directory) => {
            let path = tier.directory().to_owned();
            Err(OpenError::TierTaken { path, owner })
        }
        _ => Ok(()),
    }
}

/// Whether two paths lead to the same place.
fn same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path));
    real(one)
        .ok()
        .zip(real(other).ok())
        .is_some_and(|(one, other)| one == other)
}

/// Returns a new, unique lineage.
fn new_lineage() -> Lineage {
    let mut lineage = Lineage::default();
    Prng::from_os().fill(&mut lineage.0);
    lineage
}

/// The surroundings of a server's checkpointer.
struct Around {
    env: Arc<Environment>,
    host: Arc<dyn Host>,
    /// The working directory. Not read from the configuration, which may be changing.
    dir: Mutex<PathBuf>,
    /// The directory of the data, once it is used.
    taken: Mutex<Option<DataDirectory>>,
    log: Arc<LogOwner>,
}

impl Around {
    fn dir(&self) -> PathBuf {
        lock(&self.dir).clone()
    }

    /// Removes other checkpoints than the loaded one: the remains of an interrupted checkpoint may
    /// be as large, and the device full.
    fn remove_replaced(&self, loaded: &Manifest) {
        let place = self.log.place();
        if !loaded.directory.is_empty()
            && let Err(error) = remove_replaced(&*place.disk, &place.directory, loaded)
        {
            let error = system_reason(&error);
            self.env
                .log
                .warning(format_args!("Cannot remove an older checkpoint: {error}"));
        }
    }
}

impl Around {
    /// States again from which stream the data comes, if it follows one: the log's last statement
    /// of it may be before the cut, and be removed.
    fn restate_stream(&self) {
        let _between_batches = self.env.store.batch_turn();
        if self.log.is_lent() {
            // The log has that statement already, because its primary's log has it.
            return;
        }
        let followed = &self.env.followed;
        if let Some((source, log)) = followed.logged().zip(self.log.log()) {
            let mut appender = log.appender();
            appender.control(&Control::Source(SourceFrame {
                replid: source.id,
                offset: source.offset,
                database: source.database,
            }));
            // It is made durable next, or the checkpoint is not put in force.
            let _seen_there = log.write_out(appender.end());
        }
    }
}

impl Around {
    fn keep(
        &self,
        taken: &mut Option<DataDirectory>,
        directory: DataDirectory,
    ) -> Result<(), String> {
        let found = self.log.place().manifest();
        if found.map_err(|fault| fault.to_string())?.is_some() {
            let path = directory.path().display();
            return Err(format!("{path} holds data that this server has not loaded"));
        }
        *taken = Some(directory);
        Ok(())
    }
}

impl Surroundings for Around {
    fn refuses(&self) -> Option<String> {
        self.host.refuses_checkpoints()
    }

    fn prepare(&self) -> Result<(), String> {
        self.log.finish_replacement()?;
        let mut taken = lock(&self.taken);
        if taken.is_some() {
            return Ok(());
        }
        let directory = DataDirectory::take(&self.dir()).map_err(|error| error.to_string())?;
        self.keep(&mut taken, directory)
    }

    fn log_sequence(&self) -> Option<u64> {
        self.log.sequence()
    }

    fn tier(&self) -> Option<Arc<Tier>> {
        self.env.tier.get().map(Arc::clone)
    }

    fn libraries(&self) -> Vec<Vec<u8>> {
        self.env.shared.scripts.sources()
    }

    fn history(&self, log_sequence: Option<u64>) -> Result<History, String> {
        self.host.history(log_sequence)
    }

    fn log_end(&self) -> Option<u64> {
        self.log.own_end()
    }

    fn make_log_durable(&self) -> io::Result<()> {
        self.restate_stream();
        self.log.make_durable()
    }

    fn in_force(&self, manifest: &Manifest) {
        self.host.log_is_cut();
        if let Err(error) = self.log.in_force(manifest) {
            let error = system_reason(&error);
            self.env
                .log
                .warning(format_args!("Cannot remove old files of the log: {error}"));
        }
    }

    fn save_beside(
        &self,
        limits: SnapshotLimits,
        is_given_up: &dyn Fn() -> bool,
    ) -> Result<u64, Failure> {
        let Some(beside) = self.host.beside() else {
            return Ok(0);
        };
        let disk = self.log.place().disk;
        rdb_beside::save(&self.env, &*disk, &self.dir(), &beside, limits, is_given_up)
    }

    fn ended(&self, outcome: &Outcome) {
        let env = &self.env;
        let (spans, clock) = (&env.shared.observer.spans, &*env.clock);
        let begun_unix_us = clock
            .now_unix_us()
            .saturating_sub(outcome.duration_ms * 1_000);
        match &outcome.result {
            Ok(made) => spans.note(
                "checkpoint",
                begun_unix_us,
                clock,
                Ok(()),
                &[
                    ("iolite.records", &made.records()),
                    ("iolite.bytes", &made.bytes()),
                ],
            ),
            Err(failure) => spans.note("checkpoint", begun_unix_us, clock, Err(failure), &[]),
        }
        self.host.checkpoint_ended(outcome);
    }

    fn tell(&self, level: Level, message: fmt::Arguments<'_>) {
        self.env.log.line(level, message);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use std::time::Duration;

    use base::clock::SystemClock;
    use durability::log::Options;
    use store::Store;
    use testkit::patience::Patience;
    use testkit::process::TemporaryDirectory;

    use super::*;
    use crate::log_owner::table::Phase;

    struct Kept {
        _dir: TemporaryDirectory,
        in_use: Arc<LogInUse>,
        env: Arc<Environment>,
        persistence: Persistence,
    }

    fn kept() -> Kept {
        let dir = TemporaryDirectory::new("running").unwrap();
        let store = Store::new(&store::Options { databases: 4 }).unwrap();
        let env = Arc::new(Environment::new(
            testkit::table(),
            store,
            Arc::new(SystemClock::new()),
        ));
        let in_use = Arc::<LogInUse>::default();
        let clock = Arc::clone(&env.clock);
        let setup = Setup {
            env: Arc::clone(&env),
            host: Arc::new(()),
            in_use: Arc::clone(&in_use),
            background: Arc::new(Scheduler::of_machine(clock)),
            dir: dir.join(""),
            cores_count: 2,
            effects: Effects::Applied,
            usable_bytes: 1 << 30,
        };
        Kept {
            _dir: dir,
            in_use,
            env,
            persistence: Persistence::start(setup).unwrap(),
        }
    }

    fn wish(level: LogLevel) -> LogWish {
        LogWish {
            level,
            options: Options {
                segment_bytes: 64 << 10,
                ..Options::default()
            },
        }
    }

    impl Kept {
        #[track_caller]
        fn wait_for(&self, what: &str, is_so: impl Fn(&LogOwner) -> bool) {
            let patience = Patience::of(Duration::from_secs(60));
            while !is_so(self.persistence.log()) {
                assert!(patience.lasts(), "never {what}: {:?}", self.persistence);
                std::thread::sleep(Duration::from_millis(1));
            }
        }

        /// Returns what the checkpoint in force says about the log.
        fn named(&self) -> Option<Option<u64>> {
            let manifest = self.persistence.log().place().manifest().unwrap();
            manifest.map(|manifest| manifest.log_sequence)
        }

        fn end(&self) {
            self.persistence.stop();
            self.persistence.log().end();
        }
    }

    /// No client waits any longer for a checkpoint that would make the log count.
    #[test]
    fn a_log_that_ends_before_it_counts_holds_no_reply() {
        let kept = kept();
        let persistence = &kept.persistence;
        persistence.around.prepare().unwrap();
        persistence.log().set_end(64);
        persistence.log().load(&wish(LogLevel::Always)).unwrap();
        let tail = kept.in_use.get().unwrap();
        assert_eq!((tail.tail(), tail.durable()), (64, 0));
        kept.end();
        assert_eq!((tail.tail(), tail.durable()), (64, 64));
    }

    /// A checkpoint may have been cut while the first log ran, and come into force only now: a
    /// start would read the first log after it and then the second one, without the writes between
    /// them.
    #[test]
    fn a_log_is_begun_again_after_a_checkpoint_of_what_no_log_has() {
        let kept = kept();
        let user = kept.in_use.join();
        user.set_idle(true);
        let (persistence, log) = (&kept.persistence, kept.persistence.log());
        persistence
            .change_log(&wish(LogLevel::EverySecond))
            .unwrap();
        kept.wait_for("on", |log| log.sequence().is_some());
        persistence.change_log(&wish(LogLevel::None)).unwrap();
        kept.wait_for("off", |log| log.state().phase == Phase::Off);

        // No further checkpoint is requested before the thread has taken up the next log.
        user.set_idle(false);
        persistence
            .change_log(&wish(LogLevel::EverySecond))
            .unwrap();
        kept.wait_for("open", |log| log.log().is_some());
        assert_eq!(kept.named(), Some(None));
        assert_eq!(log.sequence(), None, "not all effects go to it");
        user.set_idle(true);
        kept.end();
    }

    /// Returns a server whose log has ended, which a start would still read, and which makes no
    /// further checkpoint.
    fn log_that_ended_in_force() -> Option<Kept> {
        let kept = kept();
        let persistence = &kept.persistence;
        persistence.change_log(&wish(LogLevel::Os)).unwrap();
        kept.wait_for("on", |log| log.sequence().is_some());
        persistence.change_log(&wish(LogLevel::None)).unwrap();
        kept.wait_for("off", |log| log.state().phase == Phase::Off);
        persistence.stop();
        let is_in_force = persistence.log().state().names_log;
        is_in_force.then_some(kept)
    }

    /// Writes would be answered as if there were a log.
    #[test]
    fn a_log_that_was_not_begun_is_missed_until_nobody_wants_it() {
        // The checkpoint that takes the log out of force may be made before it can be stopped.
        let mut tries = std::iter::repeat_with(log_that_ended_in_force).take(100);
        let kept = tries.find_map(|kept| kept).unwrap();
        let (persistence, refusals) = (&kept.persistence, &kept.env.shared.refusals);
        let change = |level| persistence.change_log(&wish(level)).unwrap();
        change(LogLevel::Os);
        kept.wait_for("failed", |log| log.state().phase == Phase::Failed);
        kept.in_use.look_for_fault(&kept.env);
        assert!(refusals.is_log_faulty());
        change(LogLevel::None);
        assert!(!refusals.is_log_faulty());
        assert_eq!(persistence.log().state().phase, Phase::Off);
    }

    /// Otherwise a start would continue with a log that lacks writes after the cut.
    #[test]
    fn checkpoints_go_on_to_a_log_that_all_effects_go_to() {
        let kept = kept();
        let late = kept.in_use.join();
        let persistence = &kept.persistence;
        persistence
            .change_log(&wish(LogLevel::EverySecond))
            .unwrap();
        persistence.keep_now().unwrap();
        assert_eq!(kept.named(), Some(None), "a thread has not taken it up");
        late.set_idle(true);
        kept.wait_for("named", |log| log.state().names_log);
        assert!(kept.named().flatten().is_some());
        kept.end();
    }
}
