//! The source of a full sync: a checkpoint on disk, and the log from its sequence on.
//!
//! ```text
//!   replicas that wait ─┬─► one checkpoint in <dir>/sync-<pid>-<number>/, made by a thread of its own
//!                       └─► each reads it at its own pace; the last one that goes removes it
//! ```
//!
//! The store is read once for all waiting replicas, and no longer than the checkpoint takes,
//! however slow they are. If the checkpoint in force and the log since are less to send than a new
//! one, its files are linked into such a directory, and the store is not read at all.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use durability::checkpoint::{History, Lineage, Manifest};
use durability::disk::Disk;
use durability::log::{Log, Pin};
use persistence::checkpointer::{Checkpointer, Setup, Surroundings, Why, writers_for};
use persistence::lines::Level;
use persistence::recovery::Place as FilePlace;
use reactor::workers::available_cores;
use replication::transcode::Place;

use crate::config::system_reason;
use crate::node::Node;

/// A checkpoint is given to a later replica while the log since then has at most this percentage of
/// its bytes. Otherwise a new one is less to send.
const LOG_PERCENT_MAX: u64 = 150;

/// A checkpoint followed by at most this many bytes of log is always sent.
const LOG_BYTES_FREE: u64 = 16 << 20;

/// A checkpoint for replicas. Its files are removed when it is dropped.
pub(super) struct Source {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) directory: PathBuf,
    pub(super) manifest: Arc<Manifest>,
    /// Position at which the stream continues after it. Effects of generations below the manifest's
    /// are in it.
    pub(super) place: Place,
    log: Arc<Log>,
    /// Keeps the log from its sequence on.
    _pin: Option<Pin>,
}

impl Source {
    /// Whether it is less to send than a new one, and the log still reaches back to it.
    fn is_good_for(&self, log: &Arc<Log>) -> bool {
        Arc::ptr_eq(&self.log, log)
            && self.log.oldest() <= self.place.sequence
            && is_little(log, self.place.sequence, &self.manifest)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        remove(&self.directory);
    }
}

/// State of a source.
#[derive(Clone)]
pub(super) enum Progress {
    /// It is being made.
    Going,
    /// It is ready.
    Made(Arc<Source>),
    /// It could not be made.
    Failed(String),
}

/// A source that several replicas may wait for.
pub(super) struct Making(Mutex<Progress>);

impl Making {
    pub(super) fn progress(&self) -> Progress {
        lock(&self.0).clone()
    }
}

/// All sources of a node.
#[derive(Default)]
pub(super) struct Sources {
    making: Mutex<Weak<Making>>,
    made: Mutex<Weak<Source>>,
}

impl Sources {
    /// Returns a source for a full sync: the existing one, the one that is being made, or a new
    /// one.
    #[allow(
        clippy::disallowed_methods,
        reason = "a thread that ends with the checkpoint"
    )]
    pub(super) fn obtain(self: &Arc<Self>, node: &Arc<Node>, log: &Arc<Log>) -> Arc<Making> {
        let mut making = lock(&self.making);
        if let Some(source) = lock(&self.made)
            .upgrade()
            .filter(|one| one.is_good_for(log))
        {
            return Arc::new(Making(Mutex::new(Progress::Made(source))));
        }
        if let Some(going) = making.upgrade()
            && matches!(going.progress(), Progress::Going)
        {
            return going;
        }
        let new = Arc::new(Making(Mutex::new(Progress::Going)));
        *making = Arc::downgrade(&new);
        let (own, node, log) = (Arc::clone(&new), Arc::clone(node), Arc::clone(log));
        let sources = Arc::clone(self);
        let thread = std::thread::Builder::new().name("sync".into());
        let spawned = thread.spawn(move || {
            let made = make(&node, &log);
            if let Ok(source) = &made {
                *lock(&sources.made) = Arc::downgrade(source);
            }
            *lock(&own.0) = made.map_or_else(Progress::Failed, Progress::Made);
        });
        if let Err(error) = spawned {
            *lock(&new.0) = Progress::Failed(system_reason(&error));
        }
        new
    }
}

/// The surroundings of a full sync's checkpoint.
struct Around {
    node: Weak<Node>,
    /// The stream's last position that was read: it is read repeatedly while the checkpoint is
    /// made.
    seen: Mutex<Option<Place>>,
    /// Its position at the cut.
    at_cut: Mutex<Option<Place>>,
}

impl Surroundings for Around {
    fn log_sequence(&self) -> Option<u64> {
        let node = self.node.upgrade()?;
        let place = node.replication.stream.end_place()?;
        *lock(&self.seen) = Some(place);
        Some(place.sequence)
    }

    fn history(&self, log_sequence: Option<u64>) -> Result<History, String> {
        // Use the position read right before the cut and no later one: the checkpoint has exactly
        // what was written until then.
        let seen = lock(&self.seen).filter(|place| Some(place.sequence) == log_sequence);
        *lock(&self.at_cut) = seen;
        let Some(node) = self.node.upgrade() else {
            return Err("the server stops".to_owned());
        };
        // If this node follows by the own link, the cut is at what it has applied, which may be
        // less than its log.
        let history = node.replication.own.manifest_history(log_sequence)?;
        Ok(History {
            cut_sequence: history.cut_sequence,
            ..History::default()
        })
    }

    fn libraries(&self) -> Vec<Vec<u8>> {
        let node = self.node.upgrade();
        node.map_or_else(Vec::new, |node| node.core.shared.scripts.sources())
    }

    fn tell(&self, level: Level, message: std::fmt::Arguments<'_>) {
        if let Some(node) = self.node.upgrade() {
            node.core.env.log.line(level, message);
        }
    }
}

/// Makes a checkpoint in a directory of its own.
fn make(node: &Arc<Node>, log: &Arc<Log>) -> Result<Arc<Source>, String> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let config = node.core.config.current();
    let directory = config
        .dir
        .join(format!("sync-{}-{number}", std::process::id()));
    let disk = FilePlace::within(&config.dir).disk;
    std::fs::create_dir(&directory).map_err(|error| system_reason(&error))?;
    if let Some(source) = take_in_force(node, log, &disk, &directory) {
        return Ok(source);
    }
    remove(&directory);
    std::fs::create_dir(&directory).map_err(|error| system_reason(&error))?;
    let made = make_in(node, log, &disk, &directory);
    if made.is_err() {
        remove(&directory);
    }
    made
}

/// Returns the checkpoint in force as a source, if it is less to send than a new one. Links keep
/// its files while the source exists, even if another checkpoint replaces it.
fn take_in_force(
    node: &Arc<Node>,
    log: &Arc<Log>,
    disk: &Arc<dyn Disk>,
    directory: &Path,
) -> Option<Arc<Source>> {
    node.persistence()?;
    let kept = FilePlace::within(&node.core.config.current().dir);
    let manifest = kept.manifest().ok().flatten()?;
    if !manifest.segments.is_empty() {
        // Its files refer to values that the replica does not have.
        return None;
    }
    let sequence = manifest.log_sequence?;
    // From here on the log is kept for it, if it still exists.
    let pin = log.pin("full sync", sequence);
    let place = node.replication.stream.place_at(sequence)?;
    let from = kept.directory.join(&manifest.directory);
    let own = directory.join(&manifest.directory);
    std::fs::create_dir_all(&own).ok()?;
    for part in &manifest.parts {
        std::fs::hard_link(from.join(&part.name), own.join(&part.name)).ok()?;
    }
    if !is_little(log, sequence, &manifest) || log.oldest() > sequence {
        return None;
    }
    node.core.log.notice(format_args!(
        "The checkpoint in force, {}, and the log from {sequence} on are sent",
        manifest.generation
    ));
    Some(Arc::new(Source {
        disk: Arc::clone(disk),
        directory: directory.to_owned(),
        manifest: Arc::new(manifest),
        place,
        log: Arc::clone(log),
        _pin: Some(pin),
    }))
}

/// Whether a checkpoint and the log since then are less to send than a new checkpoint.
fn is_little(log: &Log, sequence: u64, manifest: &Manifest) -> bool {
    let since = log.tail_complete().saturating_sub(sequence);
    since <= (manifest.bytes() * LOG_PERCENT_MAX / 100).max(LOG_BYTES_FREE)
}

fn make_in(
    node: &Arc<Node>,
    log: &Arc<Log>,
    disk: &Arc<dyn Disk>,
    directory: &Path,
) -> Result<Arc<Source>, String> {
    let around = Arc::new(Around {
        node: Arc::downgrade(node),
        seen: Mutex::default(),
        at_cut: Mutex::default(),
    });
    let surroundings: Arc<dyn Surroundings> = Arc::<Around>::clone(&around);
    let checkpointer = Checkpointer::new(Setup {
        store: Arc::clone(&node.core.store),
        disk: Arc::clone(disk),
        directory: directory.to_owned(),
        clock: Arc::clone(&node.core.clock),
        lineage: Lineage::default(),
        background: Arc::clone(&node.work.background),
        writers: writers_for(available_cores()),
        surroundings,
    });
    let limit = node
        .core
        .config
        .current()
        .durability
        .checkpoint_buffer_bytes_max;
    checkpointer.set_buffer_limit(limit);
    let mut handle = node.core.store.handle();
    let outcome = checkpointer.make_now(&mut handle, Why::Imported);
    let outcome = outcome.map_err(|_| "the server stops".to_owned())?;
    let manifest = outcome.result.map_err(|failure| failure.to_string())?;
    let place = match manifest.history.cut_sequence {
        Some(sequence) => node.replication.stream.place_at(sequence),
        None => lock(&around.at_cut).take(),
    };
    let place = place.ok_or_else(|| "the log could not be counted".to_owned())?;
    Ok(Arc::new(Source {
        disk: Arc::clone(disk),
        directory: directory.to_owned(),
        manifest,
        place,
        log: Arc::clone(log),
        _pin: None,
    }))
}

/// Removes the files of a source. An operator recognises by the name what could not be removed.
fn remove(directory: &Path) {
    let _left: io::Result<()> = std::fs::remove_dir_all(directory);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
