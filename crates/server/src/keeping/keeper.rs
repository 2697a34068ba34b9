//! The data directory of a running server: what comes back from it at the start, and who makes
//! checkpoints in it.
//!
//! The directory is taken when there is something in it, or when the first checkpoint is made: a server
//! that keeps nothing leaves no trace, and several of them may run in one place.
//!
//! Invariant: no checkpoint is made over data that was not loaded. What came into the directory
//! meanwhile belongs to somebody else.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use base::random::Prng;
use durability::checkpoint::{CheckpointFault, Lineage, Manifest, remove_replaced};
use reactor::workers::available_cores;
use store::SnapshotLimits;

use super::logging::Logging;
use crate::config::{Config, Durability, DurabilityLevel, system_reason};
use crate::node::Node;
use persistence::aof::{self, AofFault, Source};
use persistence::branch;
use persistence::checkpointer::{
    CheckpointThread, Checkpointer, Failure, Outcome, Setup, Surroundings, Why, writers_for,
};
use persistence::directory::{DataDirectory, DirectoryError};
use persistence::import::{ImportError, import_rdb};
use persistence::lines::Level;
use persistence::rdb_beside::{self, RdbBeside};
use persistence::replacement;
use persistence::recovery::{self, Place, Recovered, RecoveryError, Target};

/// What keeps the data of one server.
pub struct Keeper {
    /// Who makes checkpoints.
    pub checkpointer: Arc<Checkpointer>,
    thread: Mutex<Option<CheckpointThread>>,
    around: Arc<Around>,
    /// What is to be loaded.
    found: Option<Manifest>,
    /// Up to where.
    target: Target,
}

/// Why a server cannot start with the data that it finds.
#[derive(Debug)]
pub enum OpenError {
    /// The directory is not to be had.
    Directory(DirectoryError),
    /// The manifest, or what it names, is not what was written.
    Checkpoint(CheckpointFault),
    /// A point in time is asked for, and there is nothing of that kind.
    NothingToRecover(PathBuf),
    /// What is behind the point asked for could not be set aside.
    Aside(io::Error),
    /// It was not loaded.
    Recovery(RecoveryError),
    /// The RDB file of another server was not loaded.
    Rdb(ImportError),
    /// The append-only files of another server were not loaded.
    Aof(AofFault),
    /// There is no thread to be had.
    Thread(io::Error),
    /// The log could not be begun.
    Log(String),
    /// What was loaded could not be kept.
    Kept(Failure),
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
            Self::Log(reason) => write!(f, "cannot begin the log: {reason}"),
            Self::Kept(failure) => write!(f, "cannot keep what was loaded: {failure}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl Keeper {
    /// For a node that loads nothing: what is in its directory already is never overwritten.
    ///
    /// # Errors
    /// When the process may have no more threads.
    pub fn start(node: &Arc<Node>) -> Result<Self, OpenError> {
        Self::with(node, None, Target::End)
    }

    /// For a node with an empty store: takes the directory if there is data in it, which is to be
    /// [loaded](Keeper::load) then, up to `target`.
    ///
    /// # Errors
    /// [`OpenError`]: the server must not start then.
    pub fn open(node: &Arc<Node>, target: Target) -> Result<Self, OpenError> {
        let dir = node.config.current().dir.clone();
        let place = Place::within(&dir);
        let there_is = place.manifest().map_err(OpenError::Checkpoint)?;
        if there_is.is_none() && !replacement::is_decided(&place) {
            return match target {
                Target::End => Self::start(node),
                _ => Err(OpenError::NothingToRecover(place.directory)),
            };
        }
        let taken = DataDirectory::take(&dir).map_err(OpenError::Directory)?;
        replacement::finish(&place, &node.clock).map_err(OpenError::Checkpoint)?;
        // Who had it before may have replaced it until now.
        let manifest = place.manifest().map_err(OpenError::Checkpoint)?;
        Self::with(node, Some((taken, manifest.unwrap_or_default())), target)
    }

    fn with(
        node: &Arc<Node>,
        found: Option<(DataDirectory, Manifest)>,
        target: Target,
    ) -> Result<Self, OpenError> {
        let config = node.config.current();
        let (taken, found) = found.unzip();
        // What goes on from an earlier point is another history.
        let goes_on = found.as_ref().filter(|_| target == Target::End);
        let lineage = goes_on.map_or_else(new_lineage, |manifest| manifest.lineage);
        let around = Arc::new(Around {
            node: Arc::downgrade(node),
            dir: Mutex::new(config.dir.clone()),
            taken: Mutex::new(taken),
            logging: Logging::default(),
        });
        let surroundings: Arc<dyn Surroundings> = Arc::<Around>::clone(&around);
        let place = Place::within(&config.dir);
        let checkpointer = Arc::new(Checkpointer::new(Setup {
            store: Arc::clone(&node.store),
            disk: place.disk,
            directory: place.directory,
            clock: Arc::clone(&node.clock),
            lineage,
            courtesy: Arc::clone(&node.courtesy),
            writers: writers_for(available_cores()),
            surroundings,
        }));
        checkpointer.set_buffer_limit(config.durability.checkpoint_buffer_bytes_max);
        checkpointer.key_delay().set(config.key_save_delay);
        node.env.load_delay.set(config.key_load_delay);
        let thread = CheckpointThread::start(&checkpointer).map_err(OpenError::Thread)?;
        Ok(Self {
            checkpointer,
            thread: Mutex::new(Some(thread)),
            around,
            found,
            target,
        })
    }

    /// Whether clients have to wait until [`Keeper::load`] is done.
    #[must_use]
    pub fn has_to_load(&self, config: &Config) -> bool {
        self.found.is_some()
            || config.durability.level.has_log()
            || Foreign::find(config).is_ok_and(|found| found.is_some())
    }

    /// Puts into the store what is kept, or else what another server left, and begins the log if there is
    /// to be one. Whatever was not kept in our own way, with what the log goes on from, is kept before this
    /// comes back. Clients are told to wait until then.
    ///
    /// # Errors
    /// [`OpenError`]: the server must not go on then.
    pub fn load(&self, node: &Arc<Node>) -> Result<(), OpenError> {
        let config = node.config.current();
        let has_log = config.durability.level.has_log();
        let place = Place::within(&config.dir);
        let (mut is_kept, mut loaded) = (!has_log, None);
        if let Some(manifest) = &self.found {
            let recovered = self.recover(node, &place, manifest.clone())?;
            is_kept |= recovered.manifest.log_sequence.is_some();
            if self.target != Target::End {
                self.leave(node, &place, &recovered)
                    .map_err(OpenError::Aside)?;
                is_kept = false;
            } else {
                self.around.remove_replaced(&recovered.manifest);
                loaded = Some(recovered.manifest);
            }
        } else if let Some(foreign) = Foreign::find(&config).map_err(OpenError::Aof)? {
            foreign.load(node)?;
            is_kept = config.durability.level < DurabilityLevel::Checkpoint;
        }
        if has_log {
            self.begin_log(node, &place)?;
            if let Some(loaded) = &loaded {
                // The process before may have ended right behind its checkpoint, with the old files left.
                self.around.in_force(loaded);
            }
        }
        if !is_kept {
            keep_now(&self.checkpointer).map_err(OpenError::Kept)?;
        }
        node.end_loading();
        Ok(())
    }

    fn recover(
        &self,
        node: &Node,
        place: &Place,
        manifest: Manifest,
    ) -> Result<Recovered, OpenError> {
        let started_ns = node.clock.monotonic_ns();
        let recovered =
            recovery::recover(&node.env, place, manifest, self.target, available_cores())
                .map_err(OpenError::Recovery)?;
        // No snapshot is in progress in a store that nobody was in.
        let _raised = node.store.raise_generation(recovered.generation());
        self.around.logging.set_end(recovered.next_sequence());
        self.around.logging.set_base(&recovered.manifest);
        self.checkpointer
            .note_clean(recovered.manifest.created_unix_ms);
        let ms = (node.clock.monotonic_ns() - started_ns) / 1_000_000;
        recovered.tell(&*node.log, ms);
        Ok(recovered)
    }

    /// Sets aside what is behind the point that was recovered, and has the log go on somewhere else: no sequence
    /// ever stands for two things. The next checkpoint, which is made before anybody is served, takes the rest
    /// out of force.
    fn leave(&self, node: &Node, place: &Place, recovered: &Recovered) -> io::Result<()> {
        let aside = branch::set_aside(&place.directory, &recovered.manifest)?;
        let end = recovered.next_sequence();
        let next = place.give_up_behind(recovered)?;
        self.around.logging.set_end(next);
        node.log.warning(format_args!(
            "What was kept is set aside in {}; the server goes on from sequence {end}, as {next}",
            aside.display()
        ));
        Ok(())
    }

    /// Has all effects go to the log from now on.
    fn begin_log(&self, node: &Arc<Node>, place: &Place) -> Result<(), OpenError> {
        self.around.prepare().map_err(OpenError::Log)?;
        let durability = &node.config.current().durability;
        let begun = self.around.logging.begin(node, place, durability);
        begun.map_err(|error| OpenError::Log(system_reason(&error)))?;
        self.around.logging.wait_until_in_use(node);
        Ok(())
    }

    /// Keeps from now on what `durability` says. A log that is begun has something to be put behind only when a
    /// checkpoint is in force, which is made next; until then what was kept before counts.
    ///
    /// # Errors
    /// Why there can be no log; everything is as it was then.
    pub(crate) fn change_level(&self, durability: &Durability) -> Result<(), String> {
        let around = &self.around;
        let Some(node) = around.node.upgrade() else {
            return Ok(());
        };
        let level = durability.level;
        if level.has_log() && around.logging.set_level_unless_ending(level) {
            return Ok(());
        }
        if around.logging.put_off(durability) {
            return Ok(());
        }
        let (own, checkpointer) = (Arc::clone(around), Arc::clone(&self.checkpointer));
        let next = {
            let (own, node, checkpointer) = (
                Arc::clone(around),
                Arc::clone(&node),
                Arc::clone(&self.checkpointer),
            );
            move |durability: &Durability| own.change_level(&node, &checkpointer, durability)
        };
        match (around.logging.log().is_some(), level.has_log()) {
            (true, true) => {}
            (false, false) => forget_it_was_not_begun(&node),
            (true, false) => {
                let end = move || own.end_log(&node);
                around.logging.change_aside(true, || Ok(()), end, next)?;
            }
            (false, true) if around.logging.is_behind_base() => {
                around.prepare()?;
                let durability = durability.clone();
                let begin = move || own.begin_anew(&node, &checkpointer, &durability);
                around.logging.change_aside(false, || Ok(()), begin, next)?;
            }
            (false, true) => {
                around.prepare()?;
                let begin = || {
                    let logging = &around.logging;
                    let begun = logging.begin_held(&node, &around.place(), durability);
                    begun.map_err(|error| system_reason(&error))
                };
                let put = {
                    let node = Arc::clone(&node);
                    move || own.put_behind(&node, &checkpointer)
                };
                around.logging.change_aside(false, begin, put, next)?;
            }
        }
        Ok(())
    }

    /// Says in which directory data is to be kept. For who has kept none yet.
    pub(crate) fn set_dir(&self, dir: &Path) {
        dir.clone_into(&mut lock(&self.around.dir));
        self.checkpointer
            .set_directory(&self.around.place().directory);
    }

    /// Whether there is data of this server in the directory.
    #[must_use]
    pub fn has_directory(&self) -> bool {
        lock(&self.around.taken).is_some()
    }

    /// The log.
    #[must_use]
    pub fn logging(&self) -> &Logging {
        &self.around.logging
    }

    /// Cancels what is being made, and ends the thread.
    pub fn stop(&self) {
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            thread.stop();
        }
    }

    /// Ends the log, with everything in it durable. For the end of the server, when nobody writes any more.
    pub fn end_log(&self, node: &Node) {
        self.around.end_log(node);
    }
}

/// What another server left in the working directory.
enum Foreign {
    Rdb(PathBuf),
    Aof(Source),
}

impl Foreign {
    /// Looks for it, as that server would at its start.
    fn find(config: &Config) -> Result<Option<Self>, AofFault> {
        let durability = &config.durability;
        if durability.level.has_log() {
            let (directory, file) = (&durability.aof_directory_name, &durability.aof_file_name);
            if let Some(source) = Source::find(&config.dir, directory, file)? {
                return Ok(Some(Self::Aof(source)));
            }
        }
        let path = config.dir.join(&durability.rdb_file_name);
        Ok(path.is_file().then_some(Self::Rdb(path)))
    }

    fn load(&self, node: &Node) -> Result<(), OpenError> {
        match self {
            Self::Rdb(path) => import_rdb(&node.env, path)
                .map(drop)
                .map_err(OpenError::Rdb),
            Self::Aof(source) => {
                let accepts_short = node.config.current().durability.accepts_torn_log;
                let loaded = aof::load(&node.env, source, accepts_short);
                loaded.map(drop).map_err(OpenError::Aof)
            }
        }
    }
}

/// Makes a checkpoint, and comes back when it is in force.
fn keep_now(checkpointer: &Checkpointer) -> Result<(), Failure> {
    let ticket = checkpointer.schedule(Why::Imported);
    // A server that stops already keeps nothing any more.
    ticket.map_or(Ok(()), |ticket| checkpointer.wait(ticket).result.map(drop))
}

fn say_it_was_not_begun(node: &Node, reason: &str) {
    node.log
        .warning(format_args!("The log was not begun: {reason}"));
    // In this order: who tells of the fault of a log that has just ended asks what is so behind that.
    node.log_in_use.set_missing(Some(reason));
    node.settings.refusals.set_log_fault(Some(reason));
}

/// Nobody wants the log any more that could not be begun.
fn forget_it_was_not_begun(node: &Node) {
    node.log_in_use.set_missing(None);
    node.settings.refusals.set_log_fault(None);
}

/// Another history of writes than any before.
fn new_lineage() -> Lineage {
    let mut lineage = Lineage::default();
    Prng::from_os().fill(&mut lineage.0);
    lineage
}

/// What is around the checkpointer of a node.
struct Around {
    node: Weak<Node>,
    /// The working directory. Nobody asks the configuration, which may just be changed.
    dir: Mutex<PathBuf>,
    /// The directory of the data, once there is something to do in it.
    taken: Mutex<Option<DataDirectory>>,
    logging: Logging,
}

impl Around {
    fn place(&self) -> Place {
        Place::within(&lock(&self.dir))
    }

    /// Begins a log where an older one counts, though not all that was written since is in that: with a
    /// checkpoint first that takes the older one out of force. Otherwise a start would put the new one
    /// right behind the old one, without what was written between them.
    fn begin_anew(&self, node: &Arc<Node>, checkpointer: &Checkpointer, durability: &Durability) {
        let kept = keep_now(checkpointer).map_err(|failure| failure.to_string());
        let begun = kept.and_then(|()| {
            if self.logging.is_behind_base() {
                return Err("the server stops".to_owned());
            }
            let begun = self.logging.begin_held(node, &self.place(), durability);
            begun.map_err(|error| system_reason(&error))
        });
        match begun {
            Ok(()) => self.put_behind(node, checkpointer),
            Err(reason) => say_it_was_not_begun(node, &reason),
        }
    }

    /// Has a log that was just begun put behind a checkpoint, which holds what nobody stated to it.
    fn put_behind(&self, node: &Node, checkpointer: &Checkpointer) {
        self.logging.wait_until_in_use(node);
        // Only who stops refuses.
        let _scheduled = checkpointer.schedule(Why::Rewrite);
    }

    /// Keeps from now on what `durability` says, on the thread that changes the log: what was asked for while
    /// another change went on.
    fn change_level(&self, node: &Arc<Node>, checkpointer: &Checkpointer, durability: &Durability) {
        let has_log = durability.level.has_log();
        match (self.logging.log().is_some(), has_log) {
            (true, true) => self.logging.set_level(durability.level),
            (false, false) => forget_it_was_not_begun(node),
            (true, false) => self.end_log(node),
            (false, true) => match self.prepare() {
                Ok(()) => self.begin_anew(node, checkpointer, durability),
                Err(reason) => say_it_was_not_begun(node, &reason),
            },
        }
    }

    /// Removes other checkpoints than the one that was loaded: what is left when the process ends in the middle
    /// of one may be as large, and the device full.
    fn remove_replaced(&self, loaded: &Manifest) {
        let place = self.place();
        if !loaded.directory.is_empty()
            && let Err(error) = remove_replaced(&*place.disk, &place.directory, loaded)
        {
            let error = system_reason(&error);
            self.tell(
                Level::Warning,
                format_args!("Cannot remove an older checkpoint: {error}"),
            );
        }
    }

    fn end_log(&self, node: &Node) {
        if let Err(fault) = self.logging.end(node) {
            node.log
                .warning(format_args!("The end of the log is not on disk: {fault}"));
        }
    }
}

impl Surroundings for Around {
    fn prepare(&self) -> Result<(), String> {
        let node = self.node.upgrade();
        if node.is_some_and(|node| node.replication.own.holds_log()) {
            return Err("a replica of the own link goes on from the checkpoint it was given".to_owned());
        }
        let mut taken = lock(&self.taken);
        if taken.is_some() {
            return Ok(());
        }
        let directory = DataDirectory::take(&lock(&self.dir)).map_err(|error| error.to_string())?;
        let found = self.place().manifest();
        if found.map_err(|fault| fault.to_string())?.is_some() {
            let path = directory.path().display();
            return Err(format!("{path} holds data that this server has not loaded"));
        }
        *taken = Some(directory);
        Ok(())
    }

    fn log_sequence(&self) -> Option<u64> {
        self.logging.sequence()
    }

    fn libraries(&self) -> Vec<Vec<u8>> {
        let node = self.node.upgrade();
        node.map_or_else(Vec::new, |node| node.settings.scripts.sources())
    }

    fn make_log_durable(&self) -> io::Result<()> {
        self.logging.make_durable()
    }

    fn in_force(&self, manifest: &Manifest) {
        let Some(node) = self.node.upgrade() else {
            return;
        };
        if let Err(error) = self.logging.cut(&node, &self.place(), manifest) {
            let error = system_reason(&error);
            self.tell(
                Level::Warning,
                format_args!("Cannot remove old files of the log: {error}"),
            );
        }
        // What is in the log may count from now on.
        node.log_moved();
    }

    fn save_beside(
        &self,
        limits: SnapshotLimits,
        is_given_up: &dyn Fn() -> bool,
    ) -> Result<u64, Failure> {
        let Some(node) = self.node.upgrade() else {
            return Ok(0);
        };
        let config = node.config.current();
        if !config.durability.also_saves_rdb {
            return Ok(0);
        }
        let beside = RdbBeside {
            file_name: config.durability.rdb_file_name.clone(),
            compresses: config.compresses_dumps,
        };
        let (place, directory) = (self.place(), lock(&self.dir).clone());
        rdb_beside::save(
            &node.env,
            &*place.disk,
            &directory,
            &beside,
            limits,
            is_given_up,
        )
    }

    fn ended(&self, outcome: &Outcome) {
        if let Some(node) = self.node.upgrade() {
            node.note_checkpoint(outcome);
        }
    }

    fn tell(&self, level: Level, message: fmt::Arguments<'_>) {
        if let Some(node) = self.node.upgrade() {
            node.env.log.line(level, message);
        }
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
    use store::{Options, Store};
    use testkit::patience::Patience;
    use testkit::process::TemporaryDirectory;

    use super::*;
    use crate::config::{Loader, Origin, SharedConfig};

    fn node(dir: &Path) -> Arc<Node> {
        let store = Store::new(&Options { databases: 4 }).unwrap();
        let mut loader = Loader::new();
        let directives = format!("dir {}\nlog-segment-size 64kb", dir.display());
        loader.read_text(directives.as_bytes()).unwrap();
        let settings = loader.finish().unwrap().settings;
        let config = SharedConfig::new(settings, Origin::default());
        Arc::new(Node::new(
            store,
            Arc::new(config),
            Arc::new(SystemClock::new()),
        ))
    }

    /// Nobody waits any longer for a checkpoint that would make it count.
    #[test]
    fn a_log_that_ends_before_it_counts_holds_no_reply() {
        let dir = TemporaryDirectory::new("keeper").unwrap();
        let node = node(&dir.join(""));
        node.set_keeper(Keeper::start(&node).unwrap());
        let around = &node.keeper().unwrap().around;
        around.prepare().unwrap();
        around.logging.set_end(64);
        let durability = &node.config.current().durability;
        let begun = around.logging.begin(&node, &around.place(), durability);
        begun.unwrap();
        let tail = node.log_in_use.get().unwrap();
        assert_eq!((tail.tail(), tail.durable()), (64, 0));
        around.logging.end(&node).unwrap();
        assert_eq!((tail.tail(), tail.durable()), (64, 64));
    }

    /// A checkpoint may have been cut while the first log ran, and come into force only now: a start would go on from it
    /// to the first log and then to the second one, without what was written between them.
    #[test]
    fn a_log_is_begun_again_behind_a_checkpoint_of_what_no_log_has() {
        let dir = TemporaryDirectory::new("keeper").unwrap();
        let node = node(&dir.join(""));
        let worker = node.log_in_use.join();
        worker.set_idle(true);
        node.set_keeper(Keeper::start(&node).unwrap());
        let keeper = node.keeper().unwrap();
        let (around, mut durability) = (&keeper.around, node.config.current().durability.clone());
        around.prepare().unwrap();
        let begun = around.logging.begin(&node, &around.place(), &durability);
        begun.unwrap();
        around.logging.wait_until_in_use(&node);
        assert!(around.logging.sequence().is_some(), "a cut would name it");
        around.logging.end(&node).unwrap();

        // No further checkpoint is asked for before the worker has taken up the next one.
        worker.set_idle(false);
        durability.level = DurabilityLevel::EverySecond;
        keeper.change_level(&durability).unwrap();
        let patience = Patience::of(Duration::from_secs(60));
        while around.logging.log().is_none() {
            assert!(patience.lasts(), "it is never begun");
            std::thread::sleep(Duration::from_millis(1));
        }
        let manifest = around.place().manifest().unwrap();
        let named = manifest.map(|manifest| manifest.log_sequence);
        assert_eq!(named, Some(None));
        worker.set_idle(true);
        keeper.stop();
        keeper.end_log(&node);
    }

    /// Writes would be answered as if there were a log.
    #[test]
    fn a_log_that_was_not_begun_is_missed_until_nobody_wants_it() {
        let dir = TemporaryDirectory::new("keeper").unwrap();
        let node = node(&dir.join(""));
        node.set_keeper(Keeper::start(&node).unwrap());
        let keeper = node.keeper().unwrap();
        let refusals = &node.settings.refusals;
        say_it_was_not_begun(&node, "no room");
        keep_now(&keeper.checkpointer).unwrap();
        assert!(refusals.is_log_faulty(), "a checkpoint is no log");
        keeper
            .change_level(&node.config.current().durability)
            .unwrap();
        assert!(!refusals.is_log_faulty());
        keeper.stop();
    }

    /// Otherwise a start would go on to a log that lacks what was written behind the cut.
    #[test]
    fn checkpoints_go_on_to_a_log_that_all_effects_go_to() {
        let dir = TemporaryDirectory::new("keeper").unwrap();
        let node = node(&dir.join(""));
        let late = node.log_in_use.join();
        node.set_keeper(Keeper::start(&node).unwrap());
        let keeper = node.keeper().unwrap();
        let sequence = || {
            let manifest = keeper.around.place().manifest().unwrap();
            manifest.and_then(|manifest| manifest.log_sequence)
        };
        let mut durability = node.config.current().durability.clone();
        durability.level = DurabilityLevel::EverySecond;
        keeper.change_level(&durability).unwrap();
        keep_now(&keeper.checkpointer).unwrap();
        assert_eq!(sequence(), None, "a worker has not taken the log up");
        late.set_idle(true);
        let patience = Patience::of(Duration::from_secs(60));
        while sequence().is_none() {
            assert!(patience.lasts(), "it is never put behind a checkpoint");
            std::thread::sleep(Duration::from_millis(1));
        }
        keeper.stop();
        keeper.end_log(&node);
    }
}
