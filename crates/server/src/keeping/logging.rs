//! The operation log of a running server: begun, changed and ended while it is written to.
//!
//! Turning it on: every thread that changes the store takes the log up, and only then a checkpoint is cut.
//! So what is not in the checkpoint is in the log. Turning it off: everybody lets go of it, and what was
//! appended becomes durable.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use durability::checkpoint::Manifest;
use durability::log::{Level, Log, LogFault, Options};

use crate::config::{Durability, DurabilityLevel, system_reason};
use crate::node::Node;
use crate::process;
use persistence::log_tail::LogTail;
use persistence::recovery::Place;
use persistence::replacement;

/// How often it is looked whether everybody has taken up a log, and whether it is durable.
const LOOK: Duration = Duration::from_millis(1);

/// So much of the log is kept for replicas that have yet to be sent it, or as much as the checkpoint has.
const KEPT_BYTES_MIN: u64 = 1 << 30;

const CHANGING: &str = "the log is just being begun or ended";

/// The log of a server, if it runs.
#[derive(Default)]
pub struct Logging {
    /// Workers look at it, so nobody waits for the disk with it.
    running: Mutex<Option<Running>>,
    /// The log that is being ended: what is in it is not durable yet.
    ending: Mutex<Option<Arc<Log>>>,
    /// Held while the files of a log are made for `running`, or what a checkpoint replaces is removed. Before the
    /// others.
    files: Mutex<()>,
    /// Where the last one ended.
    end: Mutex<u64>,
    /// The checkpoint in force: its bytes, and the sequence from which on the log is behind it, if it is.
    base: Mutex<(u64, Option<u64>)>,
    /// What the thread does that begins it or ends it.
    change: Arc<Mutex<Change>>,
}

/// What is done to the log by a thread aside.
#[derive(Default)]
struct Change {
    goes_on: bool,
    /// What goes on ends the log.
    ends: bool,
    /// Asked for meanwhile: what is done next.
    next: Option<Durability>,
}

/// A log, and the thread that syncs it.
struct Running {
    log: Arc<Log>,
    /// A checkpoint is in force that it is behind.
    counts: Arc<AtomicBool>,
    /// Everybody states effects to it.
    is_taken_up: bool,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Logging {
    /// The log, if it runs.
    #[must_use]
    pub fn log(&self) -> Option<Arc<Log>> {
        lock(&self.running).as_ref().map(|it| Arc::clone(&it.log))
    }

    /// The sequence from which on the log has the effects of all writes that begin now; none before everybody
    /// states them to it, as [was waited for](Logging::wait_until_in_use).
    #[must_use]
    pub fn sequence(&self) -> Option<u64> {
        let running = lock(&self.running);
        let running = running.as_ref().filter(|it| it.is_taken_up)?;
        Some(running.log.tail())
    }

    /// Says where a log would go on.
    pub fn set_end(&self, sequence: u64) {
        *lock(&self.end) = sequence;
    }

    /// Notes which checkpoint is in force.
    pub fn set_base(&self, manifest: &Manifest) {
        *lock(&self.base) = (manifest.bytes(), manifest.log_sequence);
    }

    /// Bytes of the checkpoint in force.
    #[must_use]
    pub fn base_bytes(&self) -> u64 {
        lock(&self.base).0
    }

    /// Whether a start would go on from the checkpoint in force to a log.
    #[must_use]
    pub fn is_behind_base(&self) -> bool {
        lock(&self.base).1.is_some()
    }

    /// Bytes of the log behind the checkpoint in force; none without a log.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        let log = self.log()?;
        Some(log.tail().saturating_sub(lock(&self.base).1.unwrap_or(0)))
    }

    /// Begins the log, to which all effects go from now on; comes back before everybody does so (see
    /// [`Logging::wait_until_in_use`]).
    ///
    /// # Errors
    /// Those of the system; there is no log then.
    pub fn begin(
        &self,
        node: &Arc<Node>,
        place: &Place,
        durability: &Durability,
    ) -> io::Result<()> {
        if lock(&self.change).goes_on {
            return Err(io::Error::other(CHANGING));
        }
        self.begin_held(node, place, durability)
    }

    /// As [`Logging::begin`], for a [change](Logging::change_aside) that goes on.
    ///
    /// # Errors
    /// Those of the system; there is no log then. That there is no room is none where the log goes on behind a
    /// checkpoint: all that is kept can be read, and writes are refused until there is.
    pub fn begin_held(
        &self,
        node: &Arc<Node>,
        place: &Place,
        durability: &Durability,
    ) -> io::Result<()> {
        let _alone = lock(&self.files);
        let (goes_on, end) = (self.is_behind_base(), *lock(&self.end));
        let begun = Running::begin(node, place, durability, end, goes_on)?;
        let mut running = lock(&self.running);
        begun.counts.store(goes_on, Ordering::Release);
        let tail = LogTail::new(Arc::clone(&begun.log), Arc::clone(&begun.counts));
        node.use_log(Some(Arc::new(tail)));
        *running = Some(begun);
        drop(running);
        // It may have begun with a fault, which is to be known before anybody is served.
        node.log_moved();
        Ok(())
    }

    /// Notes what is to be kept behind the change that goes on; whether one does. What was noted before is
    /// forgotten.
    pub fn put_off(&self, durability: &Durability) -> bool {
        let mut change = lock(&self.change);
        if change.goes_on {
            change.next = Some(durability.clone());
        }
        change.goes_on
    }

    /// Changes what is done with what is appended, unless the log does not run or is being ended; whether
    /// that was done.
    pub fn set_level_unless_ending(&self, level: DurabilityLevel) -> bool {
        let mut change = lock(&self.change);
        if change.goes_on && change.ends || lock(&self.running).is_none() {
            return false;
        }
        change.next = None;
        self.set_level(level);
        true
    }

    /// Whether the log is just being begun or ended.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        lock(&self.change).goes_on
    }

    /// Whether the log is just being begun, or will be next.
    #[must_use]
    pub fn is_beginning(&self) -> bool {
        let change = lock(&self.change);
        let next = change.next.as_ref().map(|next| next.level.has_log());
        change.goes_on && next.unwrap_or(!change.ends)
    }

    /// Runs `first`, and then `change`, which ends the log or begins it, on a thread of its own: what a worker asks for
    /// that has to wait for all workers. Then `next` with what was [put off](Logging::put_off) meanwhile, for as long
    /// as there is something. Whether the log ends is said before anybody can ask.
    ///
    /// # Errors
    /// When one is running already, there is no thread to be had, or what `first` says; nothing was done then.
    #[allow(clippy::disallowed_methods, reason = "a thread that ends soon")]
    pub fn change_aside(
        &self,
        ends: bool,
        first: impl FnOnce() -> Result<(), String>,
        change: impl FnOnce() + Send + 'static,
        next: impl Fn(&Durability) + Send + 'static,
    ) -> Result<(), String> {
        {
            let mut change = lock(&self.change);
            if change.goes_on {
                return Err(CHANGING.to_owned());
            }
            change.goes_on = true;
            change.ends = ends;
        }
        let state = Arc::clone(&self.change);
        let thread = std::thread::Builder::new().name("log-change".into());
        let (go, may_go) = sync_channel(1);
        let spawned = thread.spawn(move || {
            if may_go.recv().is_err() {
                return;
            }
            change();
            let put_off = || {
                let mut state = lock(&state);
                let next = state.next.take();
                state.goes_on = next.is_some();
                state.ends = next.as_ref().is_some_and(|next| !next.level.has_log());
                next
            };
            while let Some(durability) = put_off() {
                next(&durability);
            }
        });
        // The thread comes first: without it `first` would be done, and nothing else.
        let begun = spawned.map_err(|error| system_reason(&error));
        let done = begun.and_then(|_thread| first());
        match done {
            // It waits for that, and for nothing else.
            Ok(()) => go.send(()).map_err(|_| CHANGING.to_owned()),
            Err(reason) => {
                lock(&self.change).goes_on = false;
                Err(reason)
            }
        }
    }

    /// Waits until everybody states effects to the log that was begun last, and notes that.
    pub fn wait_until_in_use(&self, node: &Node) {
        let is_taken_up = Self::wait_until_taken_up(node, &|| false);
        if let Some(running) = &mut *lock(&self.running) {
            running.is_taken_up = is_taken_up;
        }
    }

    /// Waits until everybody states effects to the log, the server stops or it `is_given_up`; whether the first.
    pub fn wait_until_taken_up(node: &Node, is_given_up: &dyn Fn() -> bool) -> bool {
        loop {
            if node.log_in_use.is_taken_up() {
                return true;
            }
            if node.is_stopping() || is_given_up() {
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Changes what is done with what is appended.
    pub fn set_level(&self, level: DurabilityLevel) {
        if let Some(running) = &*lock(&self.running) {
            running.log.set_level(level_of(level));
        }
    }

    /// Puts a checkpoint of another history in force, whose parts are durable, and begins the log anew behind it; nobody
    /// states effects to either. For a replica that was given everything.
    ///
    /// # Errors
    /// Why not. There may be no log then.
    pub(crate) fn replace(
        &self,
        node: &Arc<Node>,
        place: &Place,
        manifest: &Manifest,
        durability: &Durability,
    ) -> Result<Arc<Log>, String> {
        let _alone = lock(&self.files);
        let taken = lock(&self.running).take();
        if let Some(running) = taken {
            // What it has is given up.
            let _fault = running.end();
        }
        replacement::decide(place, manifest).map_err(|error| system_reason(&error))?;
        let finished = replacement::finish(place, &node.clock);
        finished.map_err(|fault| fault.to_string())?;
        let start = manifest.log_sequence.unwrap_or(0);
        self.set_end(start);
        self.set_base(manifest);
        let begun = Running::begin(node, place, durability, start, true);
        let mut begun = begun.map_err(|error| system_reason(&error))?;
        begun.counts.store(true, Ordering::Release);
        begun.is_taken_up = true;
        let log = Arc::clone(&begun.log);
        *lock(&self.running) = Some(begun);
        Ok(log)
    }

    /// Has everybody state effects to the log again, which somebody else appended to; comes back when they do.
    pub(crate) fn resume(&self, node: &Node) {
        let tail = {
            let running = lock(&self.running);
            let running = running.as_ref();
            running.map(|it| LogTail::new(Arc::clone(&it.log), Arc::clone(&it.counts)))
        };
        if let Some(tail) = tail {
            node.use_log(Some(Arc::new(tail)));
            Self::wait_until_taken_up(node, &|| false);
        }
    }

    /// Ends the log: nothing goes to it any more, and what did is durable.
    ///
    /// # Errors
    /// Why the end of it is not durable.
    pub fn end(&self, node: &Node) -> Result<(), LogFault> {
        let taken = {
            // One that is just being begun ends as well.
            let _begun = lock(&self.files);
            let mut running = lock(&self.running);
            *lock(&self.ending) = running.as_ref().map(|it| Arc::clone(&it.log));
            running.take()
        };
        let Some(running) = taken else {
            return Ok(());
        };
        // The checkpoint that is being made may have been cut while everybody stated effects to this log. It goes on to
        // where the log ends, and to whatever is put there: who begins the next one has another checkpoint made first.
        lock(&self.base).1.get_or_insert_with(|| running.log.tail());
        node.use_log(None);
        Self::wait_until_taken_up(node, &|| false);
        self.set_end(running.log.tail());
        // No checkpoint will make it count that does not by now, and who waits for that is not to wait for ever.
        running.counts.store(true, Ordering::Release);
        let ended = running.end();
        *lock(&self.ending) = None;
        ended
    }

    /// Makes everything durable that was appended.
    ///
    /// # Errors
    /// What the device says.
    pub fn make_durable(&self) -> io::Result<()> {
        let log = {
            let running = lock(&self.running);
            let running = running.as_ref().map(|it| Arc::clone(&it.log));
            running.or_else(|| lock(&self.ending).clone())
        };
        let Some(log) = log else {
            return Ok(());
        };
        let up_to = log.tail();
        while log.durable() < up_to {
            if let Some(fault) = log.fault() {
                return Err(io::Error::new(fault.kind, fault.text));
            }
            log.request_sync(up_to);
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Removes what a checkpoint that is in force has replaced.
    ///
    /// # Errors
    /// Those of the system; what is left is removed the next time.
    pub fn cut(&self, node: &Node, place: &Place, manifest: &Manifest) -> io::Result<()> {
        // Without a log the whole directory goes: not while there are files of the next one in it.
        let _alone = lock(&self.files);
        self.set_base(manifest);
        if let Some(running) = &*lock(&self.running) {
            let counts = manifest.log_sequence.is_some();
            running.counts.store(counts, Ordering::Release);
        }
        match (self.log(), manifest.log_sequence) {
            (Some(log), Some(sequence)) => {
                let own = &node.replication.own;
                own.terms.catch_up(&log);
                own.terms.write_beside(place, manifest)?;
                let needed = own.needed_from().filter(|from| {
                    log.tail().saturating_sub(*from) <= manifest.bytes().max(KEPT_BYTES_MIN)
                });
                log.cut(needed.map_or(sequence, |from| from.min(sequence)))
            }
            (None, None) => place.remove_log(),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Logging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logging").finish_non_exhaustive()
    }
}

impl Running {
    #[allow(clippy::disallowed_methods, reason = "the one thread that syncs")]
    fn begin(
        node: &Arc<Node>,
        place: &Place,
        durability: &Durability,
        start: u64,
        goes_on: bool,
    ) -> io::Result<Self> {
        let options = Options {
            segment_bytes: durability.log_segment_bytes,
            ring_bytes: ring_bytes(
                durability.log_segment_bytes,
                process::usable_bytes(),
                place.disk.room_bytes(&place.directory),
            ),
            ring_bytes_min: RING_BYTES_MIN,
            ..Options::default()
        };
        let (disk, clock) = (Arc::clone(&place.disk), Arc::clone(&node.clock));
        let log = Log::open(disk, clock, &place.log_directory, start, options)?;
        if let Some(fault) = log.fault().filter(|_| !goes_on) {
            return Err(io::Error::new(fault.kind, fault.text));
        }
        log.set_level(level_of(durability.level));
        let told = Arc::downgrade(node);
        log.on_durable(Box::new(move |_| {
            if let Some(node) = told.upgrade() {
                node.log_moved();
            }
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let (own_log, own_stop) = (Arc::clone(&log), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("log".into())
            .spawn(move || own_log.run_syncer(&own_stop))?;
        Ok(Self {
            log,
            counts: Arc::default(),
            is_taken_up: false,
            stop,
            thread,
        })
    }

    fn end(self) -> Result<(), LogFault> {
        self.stop.store(true, Ordering::Release);
        self.log.wake_syncer();
        let _panicked = self.thread.join();
        self.log.close()
    }
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

/// The log's word for a level.
fn level_of(level: DurabilityLevel) -> Level {
    match level {
        DurabilityLevel::None => Level::None,
        DurabilityLevel::Checkpoint => Level::Checkpoint,
        DurabilityLevel::Os => Level::Os,
        DurabilityLevel::EverySecond => Level::EverySecond,
        DurabilityLevel::Always => Level::Always,
    }
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
