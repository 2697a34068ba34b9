//! The log and the data of a replica: appends, applies, rewinds and replaces what its own link
//! receives.
//!
//! ```text
//!   frames ──► Follower::append_frames ──► log ──► cursor ──► Applier ──► store
//!   blocks ─┬► part files in a directory of their own ──► loaded ──► the checkpoint in force, a new log after it
//!           └► loaded while they arrive, where the store is empty or may be emptied
//! ```
//!
//! Invariants
//!  1. What is applied was appended before: it is the front of the log up to `applied`.
//!  2. The checkpoint in force and the log after it always have the same history: a full sync
//!     replaces both at once ([`persistence::replacement`]).
//!  3. What a rewind removes is saved in a file first.
//!  4. A store that does not match checkpoint and log is marked as such
//!     ([`LogHome::is_store_broken`]), over any number of links, until a full sync is in force.
//!  5. No client sees data of an incomplete full sync: clients are answered that data is being
//!     loaded while it may still become complete, and the store is emptied when it is abandoned.

mod early;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::os_error::system_reason;
use durability::checkpoint::{
    History, MANIFEST_BYTES_MAX, Manifest, Overlap, free_directory, part_name, remove_checkpoint,
};
use durability::disk::DiskFile;
use durability::log::{Control, Follower, Frame, Log, READ_BYTES_MAX, Read, frame_bytes, frames};
use engine::{ServerPort, scripts};
use persistence::checkpointer::{CheckpointPin, Suspended};
use persistence::environment::Environment;
use persistence::recovery::{Onto, Place, load_checkpoint};
use persistence::rewound;
use replication::TermId;
use replication::attach::Attach;
use replication::link::{Block, Full, MANIFEST_PART, Resume, SyncEnd, WHOLE_PART};
use replication::replica::OwnLog;

use early::Early;

use super::applier::Applier;
use super::primary_link::BLOCK_BYTES;
use super::replica_link::ReplicaData;
use super::terms::Terms;
use crate::fence::Turn;
use crate::planted::{self, Bug};
use crate::poll::poll;

/// Maximum number of bytes that are kept of a frame that is received in pieces.
const FRAME_BYTES_MAX: u64 = 1 << 32;
/// Number of bytes of the log that are applied at once.
const APPLY_BYTES: usize = 256 << 10;
/// How often to check whether the log can take more.
const ROOM_LOOK: Duration = Duration::from_millis(1);
/// How often to check whether the log is on disk.
const DISK_LOOK: Duration = Duration::from_micros(100);
/// How long other appenders of effects may take to let go of the log.
const ALONE_TIME: Duration = Duration::from_secs(10);
/// A full sync may exceed twice its announced size by this much.
const SLACK_BYTES: u64 = 64 << 20;
/// Maximum number of parts in a manifest.
const PARTS_MAX: usize = 1 << 12;

/// What a replica's data needs of the server.
pub(crate) trait LogHome: Send + Sync {
    /// The environment for loading.
    fn env(&self) -> &Arc<Environment>;

    /// Where all files are kept.
    fn place(&self) -> Place;

    /// The checkpoint in force, if there is one.
    fn base(&self) -> Option<Manifest>;

    /// The log. Only the follower appends to it.
    ///
    /// # Errors
    /// Why there is none.
    fn log(&self) -> Result<Arc<Log>, String>;

    /// Puts a checkpoint in force whose parts are durable, and begins a new log after it. The
    /// former checkpoint and log are removed. The caller has let go of the former log.
    ///
    /// # Errors
    /// Why that failed.
    fn replace(&self, manifest: &Manifest) -> Result<Arc<Log>, String>;

    /// The history of the log.
    fn terms(&self) -> &Terms;

    /// The turn to append what a primary of this term sends, or `None` if a later term is known.
    fn turn(&self, term: u64) -> Option<Turn<'_>>;

    /// Whether terms are noted when they are appended, because they may be applied much later.
    fn notes_terms_early(&self) -> bool;

    /// Whether the log is applied; false for a log-only copy.
    fn keeps_data(&self) -> bool {
        true
    }

    /// Whether log and data belong to another shard than this node's present one. Then they do not
    /// count here.
    fn is_of_another_shard(&self) -> bool {
        false
    }

    /// Begins the log of a log-only copy at the sequence of this manifest.
    ///
    /// # Errors
    /// Why that failed.
    fn begin_log_at(&self, manifest: &Manifest) -> Result<(), String> {
        Err(format!(
            "the data of sequence {:?} is kept",
            manifest.log_sequence
        ))
    }

    /// The sequence up to which the log is applied to the store.
    fn applied(&self) -> u64;

    /// Whether a copy counts only once it is on disk.
    fn wants_disk(&self) -> bool;

    /// Notes whether this node may lack something that it acknowledged.
    fn note_certain(&self, is_certain: bool);

    /// Notes that the log is applied up to this sequence. The caller holds the batch turn.
    fn note_applied(&self, sequence: u64);

    /// Compares the data, as it is now, with the primary's.
    fn reach_point(&self, number: u64, sequence: u64);

    /// Notes that from this sequence on nothing of the log is in its checkpoint.
    fn note_settled(&self, sequence: u64);

    /// Whether the data here may be dropped when other data begins to arrive, and need not be
    /// served until that is complete.
    fn drops_data_early(&self) -> bool;

    /// Keeps a checkpoint of this node from removing a directory of parts.
    fn pin_directory(&self, name: &str) -> Option<CheckpointPin>;

    /// Suspends checkpoints while the returned value exists.
    fn suspend_checkpoints(&self) -> Option<Suspended<'_>>;

    /// Whether the store does not match checkpoint and log, because a step failed midway.
    fn is_store_broken(&self) -> &AtomicBool;

    /// Runs `act` with the server port that commands use.
    fn with_port(&self, act: &mut dyn FnMut(&mut dyn ServerPort));

    /// Whether the work should stop.
    fn is_stopping(&self) -> bool;

    /// Notes how much of a full sync was received.
    fn note_sync(&self, total: u64, received: u64);

    /// Sets whether clients are answered that data is being loaded.
    fn set_loading(&self, bytes: Option<u64>);
}

/// See the module.
pub(crate) struct AppliedLog<'h> {
    home: &'h dyn LogHome,
    applier: Applier,
    /// `None` only while the log is replaced, or if that failed.
    follower: Option<Follower>,
    applied: u64,
    applied_unix_ms: u64,
    /// The part of the log whose effects are already in its checkpoint.
    overlap: Overlap,
    /// The highest generation seen.
    generation: u64,
    bytes: Vec<u8>,
    sync: Option<Receiving>,
}

/// A full sync that is being received.
struct Receiving {
    full: Full,
    begun_unix_us: u64,
    /// The node that sends it.
    primary: TermId,
    /// Keeps a checkpoint of this node from removing the directory.
    _pin: Option<CheckpointPin>,
    /// Name of the directory of its parts.
    directory: String,
    part: Option<(u16, Box<dyn DiskFile>)>,
    /// Offset of the next bytes in the open part.
    offset: u64,
    parts: u16,
    /// The manifest so far, if it comes in blocks.
    manifest: Vec<u8>,
    bytes: u64,
    /// The early load, if it is loaded while it is received.
    early: Option<Early>,
}

impl<'h> AppliedLog<'h> {
    /// Begins with the log and the data as they are.
    ///
    /// # Errors
    /// Why there is no log to append to.
    pub(crate) fn new(home: &'h dyn LogHome, applier: Applier) -> Result<Self, String> {
        let log = home.log()?;
        // Idle workers let go of the log as soon as they wake up.
        let follower = poll(ALONE_TIME, ROOM_LOOK, || {
            let follower = log.follower(FRAME_BYTES_MAX);
            (follower.is_some() || home.is_stopping()).then_some(follower)
        });
        let follower = follower.flatten();
        let follower = follower.ok_or("others append to the log")?;
        let applied = home.applied().min(log.tail());
        let base = home.base();
        let overlap = overlap_of(base.as_ref(), applied);
        home.note_settled(overlap.end());
        if home.keeps_data() && base.is_some_and(|base| home.terms().other_history(&base).is_some())
        {
            // See `check_history`: the process ended before the full sync was requested.
            home.is_store_broken().store(true, Ordering::Release);
        }
        Ok(Self {
            home,
            applier,
            applied,
            applied_unix_ms: 0,
            overlap,
            generation: home.base().map_or(0, |base| base.generation),
            follower: Some(follower),
            bytes: Vec::new(),
            sync: None,
        })
    }

    /// The highest generation in this node's data.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    fn follower(&mut self) -> Result<&mut Follower, String> {
        self.follower
            .as_mut()
            .ok_or_else(|| "there is no log".to_owned())
    }

    /// Applies the log from `applied` on: whole frames that end at or before `up_to`.
    fn apply_log(&mut self, log: &Arc<Log>, up_to: u64, notes_terms: bool) -> Result<(), String> {
        let mut cursor = log.cursor();
        let mut bytes = std::mem::take(&mut self.bytes);
        let mut piece = Vec::new();
        let done = loop {
            let from = self.applied + bytes.len() as u64;
            if from >= up_to {
                break Ok(());
            }
            let max = if bytes.is_empty() {
                APPLY_BYTES
            } else {
                READ_BYTES_MAX
            };
            match cursor.read(from, max, &mut piece) {
                Read::Frames { .. } if bytes.is_empty() => std::mem::swap(&mut bytes, &mut piece),
                Read::Frames { .. } => bytes.extend_from_slice(&piece),
                Read::AtTail => break Ok(()),
                Read::Lapped { oldest } => break Err(format!("the log begins at {oldest}")),
                Read::Damaged(error) => break Err(error.to_string()),
            }
            let length = frame_bytes(&bytes).unwrap_or(u64::MAX);
            if length <= bytes.len() as u64 {
                let is_short = truncate_to(&mut bytes, self.applied, up_to);
                if is_short && bytes.is_empty() {
                    break Ok(());
                }
                if let Err(reason) = self.apply_to_points(&bytes, notes_terms) {
                    break Err(reason);
                }
                bytes.clear();
            }
        };
        bytes.clear();
        bytes.shrink_to(2 * APPLY_BYTES);
        self.bytes = bytes;
        done
    }

    /// Applies frames, and stops after each digest point, where the data is compared with the
    /// primary's.
    fn apply_to_points(&mut self, bytes: &[u8], is_live: bool) -> Result<(), String> {
        let first = self.applied;
        let mut rest = bytes;
        let points = frames(first, bytes).filter_map(|frame| match frame.control()? {
            Control::DigestPoint { number } => Some((number, frame.sequence + frame.length)),
            _ => None,
        });
        for (number, end) in points.filter(|_| is_live) {
            let length = usize::try_from(end - self.applied).unwrap_or(rest.len());
            let (before, behind) = rest.split_at(length.min(rest.len()));
            self.apply_bytes(before, is_live)?;
            self.home.reach_point(number, self.applied);
            rest = behind;
        }
        if rest.is_empty() {
            return Ok(());
        }
        self.apply_bytes(rest, is_live)
    }

    /// Checks a frame against the overlap. The checkpoint of a full sync contains writes up to the
    /// end of its overlap. If another primary wrote below that, the data here belongs to another
    /// history.
    fn check_history(&self, frame: &Frame<'_>) -> Result<(), String> {
        let is_other = frame.sequence < self.overlap.end()
            && matches!(frame.control(), Some(Control::Term(_)));
        match is_other {
            true => Err(format!(
                "another primary wrote from sequence {} on, and the data here has writes of the one before up to {}",
                frame.sequence,
                self.overlap.end()
            )),
            false => Ok(()),
        }
    }

    /// Loads the store again from exactly what is on disk.
    ///
    /// # Errors
    /// Why that is not possible.
    pub(crate) fn restore(&mut self) -> Result<(), String> {
        let log = Arc::clone(self.follower()?.log());
        let base = self.home.base().ok_or("no checkpoint is in force")?;
        self.reload(&log, &base)
    }

    /// Applies frames, all of them on the same side of every cut.
    fn apply_bytes(&mut self, bytes: &[u8], notes_terms: bool) -> Result<(), String> {
        let (home, first) = (self.home, self.applied);
        let mut done = Ok(());
        let store = Arc::clone(self.applier.store().store());
        let turn = store.batch_turn();
        home.with_port(&mut |server| {
            done = frames(first, bytes)
                .try_for_each(|frame| {
                    if notes_terms {
                        home.terms().note(&frame);
                        self.check_history(&frame)?;
                    }
                    for effect in frame.effects() {
                        self.generation = self.generation.max(effect.generation);
                    }
                    if !planted::skips_frame() {
                        self.applier.frame(&frame, self.overlap, server)?;
                    }
                    if planted::is_on(Bug::ApplyTwice) {
                        self.applier.frame(&frame, self.overlap, server)?;
                    }
                    self.applied = frame.sequence + frame.length;
                    self.applied_unix_ms = frame.unix_ms;
                    Ok(())
                })
                .and_then(|()| self.applier.flush(server));
        });
        match &done {
            Ok(()) => home.note_applied(self.applied),
            // Before any thread makes a cut of partly applied frames.
            Err(_) => self.set_broken(true),
        }
        drop(turn);
        self.applier.store().tell_memory();
        done
    }

    /// Replaces the store's content with a checkpoint. If that cannot be loaded, the store is
    /// empty.
    fn load(&mut self, manifest: &Manifest) -> Result<(), String> {
        let env = self.home.env();
        check_databases(env, manifest)?;
        self.empty_store();
        install_libraries(env, manifest)?;
        let threads = env.threads.max(1);
        load_checkpoint(env, &self.home.place(), manifest, threads, Onto::Empty)
            .map_err(|fault| fault.to_string())
            .inspect_err(|_| self.empty_store())
    }

    /// Empties the store. From here on it does not match checkpoint and log.
    fn empty_store(&mut self) {
        let home = self.home;
        let store = Arc::clone(self.applier.store().store());
        let turn = store.batch_turn();
        // The caller cancels earlier cuts, and no later ones are made.
        self.set_broken(true);
        drop(turn);
        let applier = &mut self.applier;
        home.with_port(&mut |server| {
            applier.store().exclusive(|handle| {
                server.tell_flush(handle);
                handle.flush(None);
            });
        });
    }

    /// As [`AppliedLog::load`], with the checkpoint in force and the log after it.
    fn reload(&mut self, log: &Arc<Log>, base: &Manifest) -> Result<(), String> {
        let from = base
            .log_sequence
            .ok_or("no log goes on from the checkpoint")?;
        self.home.set_loading(Some(base.bytes()));
        let loaded = self.load(base).and_then(|()| {
            self.applied = from;
            self.overlap = overlap_of(Some(base), log.tail());
            self.home.note_settled(self.overlap.end());
            self.home.note_applied(from);
            self.apply_log(log, u64::MAX, false)
        });
        self.home.set_loading(None);
        loaded.inspect(|()| self.set_broken(false))
    }

    /// Waits until what was appended is on disk, or writing fails.
    fn wait_for_disk(&self, log: &Log, end: u64) {
        log.request_sync(end);
        while log.durable() < end && log.fault().is_none() && !self.home.is_stopping() {
            std::thread::sleep(DISK_LOOK);
        }
    }

    fn set_broken(&self, is_broken: bool) {
        let known = self.home.is_store_broken();
        known.store(is_broken, Ordering::Release);
    }

    fn has_keys(&mut self) -> bool {
        let handle = self.applier.store();
        let databases = handle.store().databases();
        (0..databases).any(|database| handle.len(database) > 0)
    }

    /// Receives a block of a manifest that is too long for one message.
    fn receive_manifest(&mut self, block: &Block<'_>) -> Result<(), String> {
        let sync = self.sync.as_mut().ok_or("no full sync goes on")?;
        let at = u64::from(block.number) * BLOCK_BYTES as u64;
        let end = sync.manifest.len() + block.bytes.len();
        if sync.part.is_some() || at != sync.manifest.len() as u64 {
            return Err("a piece of the manifest is missing".to_owned());
        }
        if end as u64 > MANIFEST_BYTES_MAX {
            return Err(format!(
                "the manifest has more than {MANIFEST_BYTES_MAX} bytes"
            ));
        }
        sync.manifest.extend_from_slice(block.bytes);
        Ok(())
    }

    fn receive(&mut self, block: &Block<'_>) -> Result<(), String> {
        if block.part == MANIFEST_PART {
            return self.receive_manifest(block);
        }
        let place = self.home.place();
        let sync = self.sync.as_mut().ok_or("no full sync goes on")?;
        let is_next = match &sync.part {
            Some((part, _)) => block.part == *part,
            None => block.part == sync.parts,
        };
        let at = u64::from(block.number) * BLOCK_BYTES as u64;
        if sync.part.is_none() && is_next {
            let name = part_name(block.part.into());
            let path = place.directory.join(&sync.directory).join(name);
            // The parts of an early load are not read again.
            let file = match sync.early {
                Some(_) => place.disk.create_stream(&path),
                None => place.disk.create(&path),
            };
            let file = file.map_err(|error| system_reason(&error))?;
            sync.part = Some((block.part, file));
            sync.offset = 0;
        }
        let Some((_, file)) = sync.part.as_ref().filter(|_| is_next && at == sync.offset) else {
            return Err("a piece of a part is missing".to_owned());
        };
        let written = file.write_at(block.bytes, sync.offset);
        written.map_err(|error| system_reason(&error))?;
        // A primary that sends without end must not fill the disk.
        if sync.bytes
            > sync
                .full
                .bytes
                .saturating_mul(2)
                .saturating_add(SLACK_BYTES)
        {
            return Err("more comes than the primary said".to_owned());
        }
        sync.offset += block.bytes.len() as u64;
        sync.bytes += block.bytes.len() as u64;
        self.home.note_sync(sync.full.bytes, sync.bytes);
        self.load_early(|early, goes_on| early.piece(block.bytes, goes_on))
    }

    fn finish_part(&mut self, part: u16) -> Result<(), String> {
        let sync = self.sync.as_mut().ok_or("no full sync goes on")?;
        let Some((_, file)) = sync.part.take().filter(|(open, _)| *open == part) else {
            return Err("a part ends that did not begin".to_owned());
        };
        file.sync().map_err(|error| system_reason(&error))?;
        sync.parts += 1;
        self.load_early(|early, goes_on| early.end_part(goes_on))
    }

    fn finish_sync(&mut self, end: &SyncEnd<'_>) -> Result<(), String> {
        let mut sync = self.sync.take().ok_or("no full sync goes on")?;
        let mut early = sync.early.take();
        let done = self.put_in_force(end, sync, &mut early);
        if let Some(early) = early {
            self.give_up_early(early);
        }
        done
    }

    /// Puts a full sync in force. `early` is the early load; it is taken when it is used.
    fn put_in_force(
        &mut self,
        end: &SyncEnd<'_>,
        sync: Receiving,
        early: &mut Option<Early>,
    ) -> Result<(), String> {
        // The log that this node acknowledged is about to be removed.
        self.home.note_certain(false);
        let place = self.home.place();
        let directory = place.directory.join(&sync.directory);
        let synced = place.disk.sync_directory(&directory);
        let synced = synced.and_then(|()| place.disk.sync_directory(&place.directory));
        synced.map_err(|error| system_reason(&error))?;
        let encoded = match end.manifest {
            [] => &sync.manifest[..],
            encoded => encoded,
        };
        let manifest = Manifest::decode(encoded).map_err(|flaw| flaw.to_string())?;
        let is_expected = manifest.log_sequence == Some(sync.full.log_from)
            && manifest.generation == sync.full.generation
            && manifest.parts.len() == usize::from(sync.parts)
            && manifest.parts.len() <= PARTS_MAX
            && (manifest.parts.iter().enumerate()).all(|(number, part)| {
                u32::try_from(number).is_ok_and(|it| part.name == part_name(it))
            });
        if !is_expected {
            return Err("the manifest is of another checkpoint".to_owned());
        }
        let mut manifest = Manifest {
            directory: sync.directory,
            ..manifest
        };
        let history = &mut manifest.history;
        if history.cut_sequence.is_none() {
            let settled = history.settled_sequence.unwrap_or(end.sequence);
            history.settled_sequence = Some(settled.max(sync.full.log_from));
        }
        // A checkpoint that comes into force later would be of the data that is replaced here.
        let _suspended = self.home.suspend_checkpoints();
        self.tell_unrelated(&manifest);
        self.keep_surplus(sync.full.fork)?;
        let loaded = match early.take() {
            Some(early) => self.finish_early(early, &manifest),
            None => {
                self.home.set_loading(Some(manifest.bytes()));
                self.load(&manifest)
            }
        };
        let replaced = loaded.and_then(|()| {
            // No thread reads or appends to the former log any more.
            self.follower = None;
            self.home.replace(&manifest)
        });
        self.home.set_loading(None);
        let log = replaced?;
        self.follower = log.follower(FRAME_BYTES_MAX);
        self.applied = log.tail();
        self.overlap = manifest.overlap();
        self.home.note_settled(self.overlap.end());
        self.home.note_applied(self.applied);
        self.generation = self.generation.max(manifest.generation);
        self.home.terms().begin(&manifest.history.terms);
        self.set_broken(false);
        self.follower().map(|_| ())
    }

    /// Warns of a log that shares no term with the primary's and is dropped as the operator
    /// allowed, with its range.
    fn tell_unrelated(&self, manifest: &Manifest) {
        let own = self.home.terms().lineage();
        let theirs = &manifest.history.terms;
        let is_shared = |id: &[u8; 20]| theirs.iter().any(|term| term.id == *id);
        let is_unrelated = !own.terms().iter().any(|term| is_shared(&term.id.0));
        if let (Some(first), Some(follower)) = (own.terms().first(), &self.follower)
            && is_unrelated
        {
            self.home.env().log.warning(format_args!(
                "Writes of sequences {} to {} are not in the primary's history and are not kept: it has nothing in common \
                 with the one here",
                first.start,
                follower.log().tail()
            ));
        }
    }

    /// Saves in files the part of the log that is not in the primary's history, before the log is
    /// removed.
    fn keep_surplus(&self, fork: u64) -> Result<(), String> {
        let Some(follower) = &self.follower else {
            return Ok(());
        };
        let log = Arc::clone(follower.log());
        if fork >= log.tail() {
            return Ok(());
        }
        let env = self.home.env();
        let from = fork.max(log.oldest());
        if fork < from {
            env.log.warning(format_args!(
                "Writes of sequences {fork} to {from} are not in the primary's history and are not kept: the log here \
                 begins after them"
            ));
        }
        let kept = rewound::suffix(&log, &self.home.place(), &env.clock, from)?;
        env.log.warning(format_args!("{kept}"));
        Ok(())
    }

    fn forget_sync(&mut self) {
        if let Some(mut sync) = self.sync.take() {
            if let Some(early) = sync.early.take() {
                self.give_up_early(early);
            }
            let place = self.home.place();
            // The next checkpoint removes what is left.
            let _left = remove_checkpoint(&*place.disk, &place.directory.join(sync.directory));
        }
    }
}

impl Drop for AppliedLog<'_> {
    fn drop(&mut self) {
        self.forget_sync();
    }
}

/// Checks that all databases with keys of a checkpoint exist here.
fn check_databases(env: &Environment, manifest: &Manifest) -> Result<(), String> {
    let databases = env.store.databases();
    match manifest.databases.range(databases..).next() {
        None => Ok(()),
        Some((database, _)) => Err(format!(
            "there are keys in database {database}, and only {databases} databases (directive databases)"
        )),
    }
}

fn install_libraries(env: &Environment, manifest: &Manifest) -> Result<(), String> {
    let installed = scripts::install(&env.shared.scripts, &manifest.libraries);
    installed.map_err(|error| String::from_utf8_lossy(&error.text()).into_owned())
}

/// Returns which part of a log up to `end` is in the checkpoint that it continues. Later frames are
/// a primary's, with its own generations, unless the checkpoint came from a full sync, whose
/// manifest says how far the overlap goes.
fn overlap_of(base: Option<&Manifest>, end: u64) -> Overlap {
    let Some(base) = base else {
        return Overlap::NONE;
    };
    match base.history.settled_sequence {
        Some(_) => base.overlap(),
        None => base.overlap().up_to(end),
    }
}

/// Truncates frames to those that end at or before `up_to`. Returns whether others were cut off.
/// The first frame begins at `first`.
fn truncate_to(bytes: &mut Vec<u8>, first: u64, up_to: u64) -> bool {
    let end = first + bytes.len() as u64;
    if end <= up_to {
        return false;
    }
    let ends = frames(first, bytes).map(|frame| frame.sequence + frame.length);
    let kept = ends.take_while(|end| *end <= up_to).last().unwrap_or(first);
    bytes.truncate(usize::try_from(kept - first).unwrap_or(0));
    true
}

impl ReplicaData for AppliedLog<'_> {
    fn attach(&mut self) -> Attach {
        planted::note_attach();
        let log = self.log();
        let lineage = self.home.terms().lineage();
        let start = lineage.last().map_or(0, |term| term.start);
        let is_broken = self.home.is_store_broken().load(Ordering::Acquire);
        // A partial full sync in the store does not count as data; what is on disk does.
        let has_data = if !self.home.keeps_data() {
            !lineage.terms().is_empty()
        } else if self.was_empty_before() || self.home.is_of_another_shard() {
            false
        } else if is_broken {
            !lineage.terms().is_empty()
        } else {
            self.has_keys()
        };
        Attach {
            // A term that is no longer in the log begins at the log's end at the latest.
            end: log.appended.max(start),
            durable: log.durable.min(log.appended),
            has_data,
            lineage,
            may_discard: false,
            is_damaged: is_broken || self.follower.is_none(),
        }
    }

    fn log(&self) -> OwnLog {
        let Some(follower) = &self.follower else {
            return OwnLog::default();
        };
        let log = follower.log();
        let appended = log.tail();
        OwnLog {
            appended,
            durable: log.durable().min(appended),
            applied: self.applied.min(appended),
            settled: self.overlap.end(),
        }
    }

    fn append(&mut self, term: u64, first: u64, bytes: &[u8]) -> Result<(), String> {
        // The stream continues without the interrupted full sync.
        self.forget_sync();
        let home = self.home;
        let follower = self.follower()?;
        while !follower.log().has_room() {
            if home.is_stopping() {
                return Err("the server stops".to_owned());
            }
            std::thread::sleep(ROOM_LOOK);
        }
        let turn = home.turn(term).ok_or("a later term is known here")?;
        let before = follower.log().tail();
        let tail = follower
            .append_frames(first, bytes)
            .map_err(|error| error.to_string())?;
        drop(turn);
        let log = Arc::clone(follower.log());
        if home.notes_terms_early() {
            home.terms().note_from(&log, before);
        }
        log.write_out(tail).map_err(|fault| fault.to_string())?;
        if home.wants_disk() {
            self.wait_for_disk(&log, tail);
        }
        Ok(())
    }

    fn apply(&mut self, up_to: u64) -> Result<(), String> {
        let log = Arc::clone(self.follower()?.log());
        if !self.home.keeps_data() {
            self.applied = log.tail();
            self.home.note_applied(self.applied);
            return Ok(());
        }
        self.apply_log(&log, up_to, true)
            .inspect_err(|_| self.set_broken(true))
    }

    fn applied_unix_ms(&self) -> u64 {
        self.applied_unix_ms
    }

    fn rewind(&mut self, to: u64) -> Result<(), String> {
        // No checkpoint may come into force that contains what is discarded.
        let _suspended = self.home.suspend_checkpoints();
        let is_broken = self.home.is_store_broken().load(Ordering::Acquire);
        // Unless nothing of the discarded part was applied, the state before it has to be found.
        let is_log_only = !self.home.keeps_data();
        let base = match is_log_only || self.applied <= to && !is_broken {
            true => None,
            false => {
                let base = self.home.base().filter(|base| base.is_before(to));
                // The full sync that follows saves the discarded part, once.
                Some(base.ok_or("no checkpoint of its own is from before the fork")?)
            }
        };
        let place = self.home.place();
        let log = Arc::clone(self.follower()?.log());
        let kept = rewound::suffix(&log, &place, &self.home.env().clock, to)?;
        self.home.env().log.warning(format_args!(
            "{kept}; the log is truncated at sequence {to}"
        ));
        self.follower()?
            .truncate(to)
            .map_err(|error| error.to_string())?;
        self.home.terms().truncate(to);
        if is_log_only {
            self.applied = self.applied.min(to);
            self.home.note_applied(self.applied);
        }
        base.map_or(Ok(()), |base| self.reload(&log, &base))
    }

    fn kept_sync(&mut self, primary: TermId) -> Option<Resume> {
        self.forget_late_sync();
        let sync = self.sync.as_ref().filter(|sync| sync.primary == primary)?;
        let whole = std::iter::repeat_n(WHOLE_PART, sync.parts.into());
        let begun = sync
            .part
            .as_ref()
            .map(|_| sync.offset.div_ceil(BLOCK_BYTES as u64));
        let begun = begun.map(|blocks| u32::try_from(blocks).unwrap_or(WHOLE_PART - 1));
        Some(Resume {
            node: primary,
            sync: sync.full.sync,
            generation: sync.full.generation,
            blocks: whole.chain(begun).collect(),
        })
    }

    fn begin_sync(&mut self, full: &Full, primary: TermId) -> Result<(), String> {
        let is_same = |sync: &Receiving| {
            let (was, is) = (&sync.full, full);
            sync.primary == primary
                && (was.sync, was.generation, was.log_from) == (is.sync, is.generation, is.log_from)
        };
        if let Some(sync) = self.sync.as_ref().filter(|sync| is_same(sync)) {
            self.home.env().log.notice(format_args!(
                "The full sync goes on after {} bytes that were received before",
                sync.bytes
            ));
            return Ok(());
        }
        self.forget_sync();
        let place = self.home.place();
        let directory = free_directory(&*place.disk, &place.directory, full.generation);
        let directory = directory.map_err(|error| system_reason(&error))?;
        let made = place
            .disk
            .create_directory(&place.directory.join(&directory));
        made.map_err(|error| system_reason(&error))?;
        let early = self.begin_early(full, &place.directory.join(&directory))?;
        self.sync = Some(Receiving {
            full: *full,
            begun_unix_us: self.home.env().clock.now_unix_us(),
            primary,
            _pin: self.home.pin_directory(&directory),
            directory,
            part: None,
            offset: 0,
            parts: 0,
            manifest: Vec::new(),
            bytes: 0,
            early,
        });
        self.home.note_sync(full.bytes, 0);
        Ok(())
    }

    fn block(&mut self, block: &Block<'_>) -> Result<(), String> {
        let received = self.receive(block);
        received.inspect_err(|_| self.forget_early_sync())
    }

    fn end_part(&mut self, end: &Block<'_>) -> Result<(), String> {
        let finished = self.finish_part(end.part);
        finished.inspect_err(|_| self.forget_early_sync())
    }

    fn end_sync(&mut self, end: &SyncEnd<'_>) -> Result<(), String> {
        let sync = self.sync.as_ref();
        let begun = sync.map(|sync| (sync.begun_unix_us, sync.bytes));
        let done = self.finish_sync(end);
        if let Some((begun_unix_us, bytes)) = begun {
            let env = self.home.env();
            env.shared.observer.spans.note(
                "full sync",
                begun_unix_us,
                &*env.clock,
                done.as_ref().copied().map_err(|reason| reason as _),
                &[("iolite.bytes", &bytes)],
            );
        }
        done
    }

    fn trim(&mut self, to: u64) {
        let Some(log) = self.follower.as_ref().map(|one| Arc::clone(one.log())) else {
            return;
        };
        let base = self.home.base().filter(|_| !self.home.keeps_data());
        let Some(base) = base.filter(|base| base.log_sequence < Some(to)) else {
            return;
        };
        if to > log.tail() {
            return;
        }
        let history = History {
            cut_sequence: Some(to),
            terms: self.home.terms().below(to),
            ..History::default()
        };
        let manifest = Manifest {
            log_sequence: Some(to),
            history,
            ..base
        };
        if let Err(reason) = self.home.begin_log_at(&manifest) {
            self.home.env().log.warning(format_args!(
                "The log of this copy is not trimmed at sequence {to}: {reason}"
            ));
        }
    }

    fn forget_piece(&mut self) {
        self.note_break();
        if let Some(follower) = &mut self.follower {
            follower.forget_piece();
        }
    }
}
