//! The log and the data of a replica: what comes over its own link is appended, applied, rewound and replaced here.
//!
//! ```text
//!   frames ──► Follower::append_frames ──► log ──► cursor ──► Applier ──► store
//!   blocks ─┬► part files in a directory of their own ──► loaded ──► the checkpoint in force, a new log after it
//!           └► loaded while they arrive, where the store is empty or may be emptied
//! ```
//!
//! Invariants
//!  1. What is applied was appended before, and is the log's beginning up to `applied`.
//!  2. The checkpoint in force and the log after it are always those of one history: a full sync replaces both at once
//!     ([`persistence::replacement`]).
//!  3. What a rewind takes back is in a file before it is gone.
//!  4. A store that is not what checkpoint and log say is known as such ([`LogHome::is_store_broken`]), for as many links
//!     as it takes until a full sync is in force.
//!  5. Of a full sync that is not whole nobody sees anything: clients are told that data is being loaded for as long as it
//!     may become whole, and the store is emptied when it is given up.

mod early;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::os_error::system_reason;
use durability::checkpoint::{
    History, Manifest, Overlap, free_directory, part_name, remove_checkpoint,
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
use replication::link::{Block, Full, Resume, SyncEnd, WHOLE_PART};
use replication::replica::OwnLog;

use early::Early;

use super::applier::Applier;
use super::primary_link::BLOCK_BYTES;
use super::replica_link::ReplicaData;
use super::terms::Terms;
use crate::fence::Turn;
use crate::planted::{self, Bug};
use crate::poll::poll;

/// Of a frame that comes in pieces so much is kept until it is whole.
const FRAME_BYTES_MAX: u64 = 1 << 32;
/// So much of the log is applied at once.
const APPLY_BYTES: usize = 256 << 10;
/// How often it is looked whether the log has room.
const ROOM_LOOK: Duration = Duration::from_millis(1);
/// How often it is looked whether the log is on disk.
const DISK_LOOK: Duration = Duration::from_micros(100);
/// How long those who stated effects to the log may take to let go of it.
const ALONE_TIME: Duration = Duration::from_secs(10);
/// A full sync may be so much longer than twice what was said of it.
const SLACK_BYTES: u64 = 64 << 20;
/// A manifest names so many parts at most.
const PARTS_MAX: usize = 1 << 12;

/// What the data of a replica needs of the server around them.
pub(crate) trait LogHome: Send + Sync {
    /// What loading works in.
    fn env(&self) -> &Arc<Environment>;

    /// Where everything is kept.
    fn place(&self) -> Place;

    /// The checkpoint in force, if there is one.
    fn base(&self) -> Option<Manifest>;

    /// The log, which nobody appends to who is not a follower.
    ///
    /// # Errors
    /// Why there is none.
    fn log(&self) -> Result<Arc<Log>, String>;

    /// Puts a checkpoint in force whose parts are durable, and begins the log anew after it. What was kept before
    /// goes. The log of before was let go of by the caller.
    ///
    /// # Errors
    /// Why not.
    fn replace(&self, manifest: &Manifest) -> Result<Arc<Log>, String>;

    /// The history of the log.
    fn terms(&self) -> &Terms;

    /// The turn to append what a primary of this term sends; none where a later term is known.
    fn turn(&self, term: u64) -> Option<Turn<'_>>;

    /// Whether terms are noted when they are appended: what is appended may be applied long after.
    fn notes_terms_early(&self) -> bool;

    /// Whether the log is applied; false for a copy of the log alone.
    fn keeps_data(&self) -> bool {
        true
    }

    /// Whether log and data are of another shard than the one that this node is of now: they count for nothing here.
    fn is_of_another_shard(&self) -> bool {
        false
    }

    /// The log of a copy of the log alone begins as this manifest says from now on.
    ///
    /// # Errors
    /// Why it does not.
    fn begin_log_at(&self, manifest: &Manifest) -> Result<(), String> {
        Err(format!(
            "the data of sequence {:?} is kept",
            manifest.log_sequence
        ))
    }

    /// The store has what the log has below this sequence.
    fn applied(&self) -> u64;

    /// Whether a copy counts once it is on disk only.
    fn wants_disk(&self) -> bool;

    /// This node may lack what it acknowledged, or lacks nothing any more.
    fn note_certain(&self, is_certain: bool);

    /// The store has what the log has below this sequence. Called with the turn of a batch held.
    fn note_applied(&self, sequence: u64);

    /// The data is to be compared with the primary's, as it is now.
    fn reach_point(&self, number: u64, sequence: u64);

    /// From this sequence on nothing of the log is in the checkpoint that it goes on from.
    fn note_settled(&self, sequence: u64);

    /// Whether the data here may go when other data begins to come, and need not be served until that is there.
    fn drops_data_early(&self) -> bool;

    /// Keeps a directory of parts from being removed by a checkpoint of this node.
    fn pin_directory(&self, name: &str) -> Option<CheckpointPin>;

    /// Has no checkpoint made as long as what this gives lives.
    fn suspend_checkpoints(&self) -> Option<Suspended<'_>>;

    /// The store is not what checkpoint and log say: a step failed in the middle.
    fn is_store_broken(&self) -> &AtomicBool;

    /// Does something with the server as commands see it.
    fn with_port(&self, act: &mut dyn FnMut(&mut dyn ServerPort));

    /// Whether nobody waits for this any more.
    fn is_stopping(&self) -> bool;

    /// So much of a full sync was received.
    fn note_sync(&self, total: u64, received: u64);

    /// Clients are told that data is being loaded, or no longer.
    fn set_loading(&self, bytes: Option<u64>);
}

/// See the module.
pub(crate) struct AppliedLog<'h> {
    home: &'h dyn LogHome,
    applier: Applier,
    /// None only while the log is replaced, or where that failed.
    follower: Option<Follower>,
    applied: u64,
    applied_unix_ms: u64,
    /// What of the log is in the checkpoint that it goes on from.
    overlap: Overlap,
    /// The highest that was met.
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
    /// Keeps the directory from being removed by a checkpoint of this node.
    _pin: Option<CheckpointPin>,
    /// The directory of its parts, by name.
    directory: String,
    part: Option<(u16, Box<dyn DiskFile>)>,
    /// Of the part that is open: where the next bytes go.
    offset: u64,
    parts: u16,
    bytes: u64,
    /// It is loaded while it arrives.
    early: Option<Early>,
}

impl<'h> AppliedLog<'h> {
    /// The data as they are.
    ///
    /// # Errors
    /// Why there is no log to append to.
    pub(crate) fn new(home: &'h dyn LogHome, applier: Applier) -> Result<Self, String> {
        let log = home.log()?;
        // Idle workers let go of it as soon as they wake up.
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
            // See `check_history`; the process ended before everything was asked for.
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

    /// The highest generation of what this node has.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    fn follower(&mut self) -> Result<&mut Follower, String> {
        self.follower
            .as_mut()
            .ok_or_else(|| "there is no log".to_owned())
    }

    /// Applies what the log has from `applied` on, as far as whole frames of it end no later than `up_to`.
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

    /// Applies frames, and stops after each point where the data is compared with the primary's.
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

    /// The data of a checkpoint that was given has writes up to where its overlap ends: what another primary has written
    /// below that is of another history, and so is the data here.
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

    /// Has the store hold what is on disk, and nothing else.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) fn restore(&mut self) -> Result<(), String> {
        let log = Arc::clone(self.follower()?.log());
        let base = self.home.base().ok_or("no checkpoint is in force")?;
        self.reload(&log, &base)
    }

    /// Applies frames, all of them on one side of every cut.
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
            // Before anybody cuts what is applied in part.
            Err(_) => self.set_broken(true),
        }
        drop(turn);
        self.applier.store().tell_memory();
        done
    }

    /// Has the store hold what a checkpoint holds, and nothing else; nothing, where it cannot be loaded.
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

    /// Has the store hold nothing. It is not what checkpoint and log say from here on.
    fn empty_store(&mut self) {
        let home = self.home;
        let store = Arc::clone(self.applier.store().store());
        let turn = store.batch_turn();
        // Who has cut before is cancelled by whoever calls this, and nobody cuts any more.
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

    /// As [`AppliedLog::load`], of the checkpoint in force; then what the log has after it.
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

    /// Waits until what was appended is on disk; not while that fails.
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

    fn receive(&mut self, block: &Block<'_>) -> Result<(), String> {
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
            // What is loaded while it arrives is not read again.
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
        // A primary that never ends does not fill the disk.
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

    /// `early` is what was loaded; it is taken when it is used.
    fn put_in_force(
        &mut self,
        end: &SyncEnd<'_>,
        sync: Receiving,
        early: &mut Option<Early>,
    ) -> Result<(), String> {
        // The log that it acknowledged goes.
        self.home.note_certain(false);
        let place = self.home.place();
        let directory = place.directory.join(&sync.directory);
        let synced = place.disk.sync_directory(&directory);
        let synced = synced.and_then(|()| place.disk.sync_directory(&place.directory));
        synced.map_err(|error| system_reason(&error))?;
        let manifest = Manifest::decode(end.manifest).map_err(|flaw| flaw.to_string())?;
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
        // A checkpoint that is put in force later would be of what is replaced here.
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
            // Nobody reads or appends to the log of before any more.
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

    /// Tells the operator of a log that has nothing in common with the primary's, and goes as he allowed: how far it went.
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

    /// Keeps in files what the log has that is not in the primary's history, before the log goes.
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
            // What is left is removed with the next checkpoint.
            let _left = remove_checkpoint(&*place.disk, &place.directory.join(sync.directory));
        }
    }
}

impl Drop for AppliedLog<'_> {
    fn drop(&mut self) {
        self.forget_sync();
    }
}

/// Whether there are the databases that the keys of a checkpoint are in.
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

/// What of a log up to `end` is in a checkpoint that it goes on from. What comes after is of a primary, whose generations
/// are its own, unless the checkpoint is one that was given, and says how far the overlap goes.
fn overlap_of(base: Option<&Manifest>, end: u64) -> Overlap {
    let Some(base) = base else {
        return Overlap::NONE;
    };
    match base.history.settled_sequence {
        Some(_) => base.overlap(),
        None => base.overlap().up_to(end),
    }
}

/// Leaves of frames those that end no later than `up_to`; whether there were others. The first begins at `first`.
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
        // Half of a full sync in the store is no data; what is on disk is.
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
            // A term that is not in the log any more begins at its end at most.
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
        // It goes on without the full sync that broke off.
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
        // None may be put in force that has what is given up.
        let _suspended = self.home.suspend_checkpoints();
        let is_broken = self.home.is_store_broken().load(Ordering::Acquire);
        // Nothing of what is given up was applied, or the state before it has to be found.
        let is_log_only = !self.home.keeps_data();
        let base = match is_log_only || self.applied <= to && !is_broken {
            true => None,
            false => {
                let base = self.home.base().filter(|base| base.is_before(to));
                // The full sync that is asked for keeps what is given up, once.
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
