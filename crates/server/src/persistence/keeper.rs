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
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use base::random::Prng;
use durability::checkpoint::{CheckpointFault, Lineage, Manifest, read_manifest};
use durability::disk::SystemDisk;
use reactor::workers::available_cores;

use super::checkpointer::{
    CheckpointThread, Checkpointer, Outcome, Setup, Surroundings, writers_for,
};
use super::directory::{DataDirectory, DirectoryError};
use super::loader::{LoadFault, Source};
use crate::log::Level;
use crate::node::Node;

/// What keeps the data of one server.
pub struct Keeper {
    /// Who makes checkpoints.
    pub checkpointer: Arc<Checkpointer>,
    thread: Mutex<Option<CheckpointThread>>,
    around: Arc<Around>,
    /// What is to be loaded.
    found: Option<Manifest>,
}

/// Why a server cannot start with the data that it finds.
#[derive(Debug)]
pub enum OpenError {
    /// The directory is not to be had.
    Directory(DirectoryError),
    /// The manifest, or what it names, is not what was written.
    Checkpoint(CheckpointFault),
    /// It was not loaded.
    Load(LoadFault),
    /// There is no thread to be had.
    Thread(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(error) => error.fmt(f),
            Self::Checkpoint(fault) => fault.fmt(f),
            Self::Load(fault) => fault.fmt(f),
            Self::Thread(error) => error.fmt(f),
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
        Self::with(node, None)
    }

    /// For a node with an empty store: takes the directory if there is data in it, which is to be
    /// [loaded](Keeper::load) then.
    ///
    /// # Errors
    /// [`OpenError`]: the server must not start then.
    pub fn open(node: &Arc<Node>) -> Result<Self, OpenError> {
        let dir = node.config.current().dir.clone();
        let directory = dir.join(super::directory::NAME);
        let there_is = read_manifest(&SystemDisk, &directory).map_err(OpenError::Checkpoint)?;
        if there_is.is_none() {
            return Self::start(node);
        }
        let taken = DataDirectory::take(&dir).map_err(OpenError::Directory)?;
        // Who had it before may have replaced it until now.
        let manifest = read_manifest(&SystemDisk, &directory).map_err(OpenError::Checkpoint)?;
        Self::with(node, Some((taken, manifest.unwrap_or_default())))
    }

    fn with(node: &Arc<Node>, found: Option<(DataDirectory, Manifest)>) -> Result<Self, OpenError> {
        let config = node.config.current();
        let (taken, found) = found.unzip();
        let lineage = found
            .as_ref()
            .map_or_else(new_lineage, |manifest| manifest.lineage);
        let around = Arc::new(Around {
            node: Arc::downgrade(node),
            taken: Mutex::new(taken),
        });
        let surroundings: Arc<dyn Surroundings> = Arc::<Around>::clone(&around);
        let checkpointer = Arc::new(Checkpointer::new(Setup {
            store: Arc::clone(&node.store),
            disk: Arc::new(SystemDisk),
            directory: config.dir.join(super::directory::NAME),
            clock: Arc::clone(&node.clock),
            lineage,
            writers: writers_for(available_cores()),
            surroundings,
        }));
        checkpointer.set_buffer_limit(config.durability.checkpoint_buffer_bytes_max);
        let thread = CheckpointThread::start(&checkpointer).map_err(OpenError::Thread)?;
        Ok(Self {
            checkpointer,
            thread: Mutex::new(Some(thread)),
            around,
            found,
        })
    }

    /// Whether there is something to load.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.found.is_some()
    }

    /// Puts into the store what was found in the directory.
    ///
    /// # Errors
    /// [`OpenError`]: the server must not go on then.
    pub fn load(&self, node: &Node) -> Result<(), OpenError> {
        let Some(manifest) = &self.found else {
            return Ok(());
        };
        let started_ns = node.clock.monotonic_ns();
        node.begin_loading(manifest.bytes());
        let directory = node.config.current().dir.join(super::directory::NAME);
        let source = Source {
            disk: &SystemDisk,
            directory: &directory,
            manifest,
            limits: &node.settings.value_limits(),
            progress: node.loading.parts(),
        };
        source
            .load(&node.store, available_cores())
            .map_err(OpenError::Load)?;
        // No snapshot is in progress in a store that nobody was in.
        let _raised = node.store.raise_generation(manifest.generation);
        self.checkpointer.note_clean(manifest.created_unix_ms);
        node.end_loading();
        let ms = (node.clock.monotonic_ns() - started_ns) / 1_000_000;
        node.log.notice(format_args!(
            "Checkpoint {} loaded: {} records, {} bytes in {ms} ms",
            manifest.generation,
            manifest.records(),
            manifest.bytes()
        ));
        Ok(())
    }

    /// Says in which directory data is to be kept. For who has kept none yet.
    pub(crate) fn set_dir(&self, dir: &Path) {
        self.checkpointer
            .set_directory(&dir.join(super::directory::NAME));
    }

    /// Whether there is data of this server in the directory.
    #[must_use]
    pub fn has_directory(&self) -> bool {
        lock(&self.around.taken).is_some()
    }

    /// Cancels what is being made, and ends the thread.
    pub fn stop(&self) {
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            thread.stop();
        }
    }
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
    /// The directory, once there is something to do in it.
    taken: Mutex<Option<DataDirectory>>,
}

impl Surroundings for Around {
    fn prepare(&self) -> Result<(), String> {
        let mut taken = lock(&self.taken);
        let Some(node) = self.node.upgrade() else {
            return Ok(());
        };
        if taken.is_some() {
            return Ok(());
        }
        let dir = &node.config.current().dir;
        let directory = DataDirectory::take(dir).map_err(|error| error.to_string())?;
        let found = read_manifest(&SystemDisk, directory.path());
        if found.map_err(|fault| fault.to_string())?.is_some() {
            let path = directory.path().display();
            return Err(format!("{path} holds data that this server has not loaded"));
        }
        *taken = Some(directory);
        Ok(())
    }

    fn ended(&self, outcome: &Outcome) {
        if let Some(node) = self.node.upgrade() {
            node.note_checkpoint(outcome);
        }
    }

    fn tell(&self, level: Level, message: fmt::Arguments<'_>) {
        if let Some(node) = self.node.upgrade() {
            node.log.log(level, message);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
