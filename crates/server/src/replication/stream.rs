//! The stream for replicas that speak PSYNC: the log that it is made from, and the log positions of
//! its offsets.
//!
//! ```text
//!   workers ──► log (on disk, or in memory while there are replicas)
//!                │  the counter: reads, transcodes, keeps the end and an entry each MiB
//!                └─ a thread per replica: reads, transcodes, sends
//! ```
//!
//! The stream itself is not stored, because it is a function of the log. Only the starting point,
//! the present point and one position per MiB are kept.
//!
//! If the log is on disk, the stream [outlives](keeping) the process.
//!
//! A server without a log on disk has one in memory from its first replica on, until some time
//! after its last one has left.
//!
//! Rule: `counting` is locked by every thread that asks for the offset, workers included, and held
//! for a bounded piece of the log. Its holder waits for no other thread. `beginning` is locked only
//! by replicas' threads, which wait for workers.

mod file;
pub(crate) mod frames;
mod keeping;
mod memory;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::random::Prng;
use durability::log::{Appender, Control, Log};
use replication::offset_index::{OffsetIndex, Start};
use replication::transcode::{Count, Form, Place, Transcoder};

use super::history::{History, ReplicationId};
use crate::node::Node;
pub(crate) use frames::Frames;
pub(super) use frames::{Obstacle, put};
use memory::MemoryTail;

/// Maximum number of bytes of log that one request for the offset counts. The next request counts
/// the rest.
const COUNTED_AT_ONCE_BYTES: u64 = 4 << 20;

/// Minimum size of the log in memory. A smaller one is of no use to a replica that lags for a
/// moment.
const BACKLOG_BYTES_MIN: u64 = 1 << 20;

/// See the module.
#[derive(Default)]
pub struct Stream {
    counting: Mutex<Option<Counting>>,
    beginning: Mutex<()>,
    /// The log in memory, while it is in use.
    memory: Mutex<Option<Arc<Log>>>,
    /// When the last replica left.
    left_unix_ms: AtomicU64,
    has_memory: AtomicBool,
    /// Whether only another primary's frames may be appended to the log.
    is_foreign: AtomicBool,
}

/// Position of the stream in one log.
struct Counting {
    log: Arc<Log>,
    /// The names by which replicas know it while the node follows another: the shown names are the
    /// other's then.
    own: History,
    counter: Counter,
    /// Where counting began.
    start: Place,
    /// Whether a replica knows offsets by the present names.
    is_told: bool,
    index: OffsetIndex,
    /// Appends pings and requests for acknowledgements; created when it is first needed.
    appender: Option<Appender>,
    pinged_unix_ms: u64,
    /// Positions were saved up to here.
    saved: u64,
    /// The name and the end of the stream before a start, until a replica knows the present name.
    before: Option<(ReplicationId, u64)>,
}

/// Reads a log and counts.
struct Counter {
    frames: Frames,
    transcoder: Transcoder,
}

impl Counter {
    fn is_in_reach(&self, log: &Log) -> bool {
        self.frames.next >= log.oldest()
    }

    /// Continues counting, over at most about `bytes_max` bytes of the log.
    fn count(&mut self, index: &mut OffsetIndex, bytes_max: u64) {
        let from = self.frames.next;
        let transcoder = &mut self.transcoder;
        while self.frames.next - from < bytes_max {
            let read = self.frames.read(|frame| {
                let mut count = Count::default();
                if put(transcoder, frame, &mut count).is_err() {
                    // This frame is sent to no replica of this form; each replica's own thread
                    // reports that.
                    transcoder.unsaid(frame.sequence + frame.length);
                }
                if matches!(frame.control(), Some(Control::Trim(_))) {
                    index.forget_below(u64::MAX);
                }
                index.note(transcoder.place());
                Ok(())
            });
            if !matches!(read, Ok(true)) {
                return;
            }
        }
    }
}

impl Stream {
    /// The present offset, or `None` if there never was a stream.
    pub(super) fn offset(&self) -> Option<u64> {
        let mut counting = self.counting();
        let counting = counting.as_mut()?;
        counting.count();
        Some(counting.counter.transcoder.place().offset)
    }

    /// The oldest offset that can be sent, and the present one.
    pub(super) fn reach(&self) -> Option<(u64, u64)> {
        let mut counting = self.counting();
        let counting = counting.as_mut()?;
        counting.count();
        counting.index.forget_below(counting.log.oldest());
        let end = counting.counter.transcoder.place().offset;
        Some((counting.index.oldest_offset().unwrap_or(end), end))
    }

    /// The form in which offsets are counted: the shown offset is of this form.
    pub(super) fn form(&self, node: &Node) -> Form {
        let counting = self.counting();
        let counted = counting.as_ref().map(|it| it.counter.transcoder.form());
        counted.unwrap_or_else(|| Self::form_by_default(node))
    }

    fn form_by_default(node: &Node) -> Form {
        let config = &node.core.config.current().replication;
        Form {
            allows_loss: config.allows_loss,
            ..Form::of(config.peer)
        }
    }

    /// Returns the stream's position at the sequence of a checkpoint, if it was counted from before
    /// that.
    pub(super) fn place_at(&self, sequence: u64) -> Option<Place> {
        let (log, form, from) = {
            let counting = self.counting();
            let counting = counting.as_ref()?;
            let places = counting.index.places();
            let after = places.partition_point(|place| place.sequence <= sequence);
            let from = *places.get(after.checked_sub(1)?)?;
            (
                Arc::clone(&counting.log),
                counting.counter.transcoder.form(),
                from,
            )
        };
        let mut frames = Frames::new(&log, from.sequence);
        let mut transcoder = Transcoder::new(form, from);
        let mut is_between = true;
        while frames.next < sequence {
            let read = frames.read(|frame| {
                let end = frame.sequence + frame.length;
                if end <= sequence {
                    if put(&mut transcoder, frame, &mut Count::default()).is_err() {
                        transcoder.unsaid(end);
                    }
                } else if frame.sequence < sequence {
                    is_between = false;
                }
                Ok(())
            });
            if !matches!(read, Ok(true)) {
                return None;
            }
        }
        // Bytes between the last frame and the sequence have no offset.
        let place = Place {
            sequence,
            ..transcoder.place()
        };
        is_between.then_some(place)
    }

    /// Returns where to begin for an offset.
    pub(super) fn find(&self, offset: u64) -> Option<Start> {
        let counting = self.counting();
        counting.as_ref()?.index.find(offset)
    }

    /// Counts up to the end of the log, and returns the position there: where a full sync begins.
    pub(super) fn end_place(&self) -> Option<Place> {
        let mut counting = self.counting();
        let counting = counting.as_mut()?;
        let end = counting.log.tail_complete();
        while counting.counter.transcoder.place().sequence < end {
            let before = counting.counter.transcoder.place().sequence;
            counting.count();
            if counting.counter.transcoder.place().sequence == before {
                return None;
            }
        }
        let place = counting.counter.transcoder.place();
        counting.index.note(place);
        Some(place)
    }

    /// Returns the log that the stream is made from. If there is none, begins one; then no replica
    /// can continue from the former stream. Only for replicas' threads, because it waits for
    /// workers.
    ///
    /// # Errors
    /// Why there is none.
    ///
    /// Offsets are counted in the form of the connecting replica, unless others are connected,
    /// which know the offsets of their form.
    pub(super) fn begin(
        &self,
        node: &Arc<Node>,
        form: Form,
        is_alone: bool,
    ) -> Result<Arc<Log>, String> {
        let _alone = lock(&self.beginning);
        let log = self.log(node)?;
        let (is_there, before) = {
            let mut counting = self.counting();
            // A counter that did not count for long may be behind the start of the log.
            let serves = counting
                .as_mut()
                .is_some_and(|it| it.serves(&log, form, is_alone));
            if serves {
                return Ok(log);
            }
            let place = counting.as_ref().map(|it| it.counter.transcoder.place());
            (place.is_some(), place.map_or(0, |place| place.offset))
        };
        // This log does not have everything that was written: no replica can continue from an older
        // one.
        let history = History::new(&mut Prng::from_os());
        let follows = node.replication.follows();
        if is_there && !follows {
            node.replication.set_history(history);
        }
        let offset = before.max(log.tail_complete());
        self.count_from(node, &log, offset, history, form);
        if let Some(counting) = &mut *self.counting() {
            counting.is_told = true;
        }
        self.save(node);
        Ok(log)
    }

    /// Continues at the offset of a stream that was followed until now. No client writes meanwhile.
    /// Only for the following thread, because it waits for workers.
    ///
    /// # Errors
    /// Why there is no log for it.
    pub(super) fn begin_at(&self, node: &Arc<Node>, offset: u64) -> Result<(), String> {
        let _alone = lock(&self.beginning);
        // The lifetime of a log in memory counts from now.
        let now_unix_ms = node.core.clock.now_unix_ms();
        self.left_unix_ms.store(now_unix_ms, Ordering::Relaxed);
        let log = self.log(node)?;
        let history = node.replication.history();
        self.count_from(node, &log, offset, history, Self::form_by_default(node));
        self.save(node);
        Ok(())
    }

    fn count_from(&self, node: &Node, log: &Arc<Log>, offset: u64, own: History, form: Form) {
        let sequence = log.tail_complete();
        let place = Place {
            sequence,
            offset,
            database: None,
        };
        *self.counting() = Some(Counting {
            own,
            counter: Counter {
                frames: Frames::new(log, sequence),
                transcoder: Transcoder::new(form, place),
            },
            start: place,
            is_told: false,
            index: OffsetIndex::new(place),
            appender: None,
            log: Arc::clone(log),
            pinged_unix_ms: node.core.clock.now_unix_ms(),
            saved: sequence,
            before: None,
        });
    }

    /// The names by which replicas know the stream.
    pub(super) fn names(&self, node: &Node) -> History {
        let own = self.counting().as_ref().map(|counting| counting.own);
        own.filter(|_| node.replication.follows())
            .unwrap_or_else(|| node.replication.history())
    }

    /// The name and the end of the stream from which this node can continue as a replica of a
    /// former replica.
    pub fn resume(&self, node: &Node) -> Option<(ReplicationId, u64)> {
        let offset = self.offset()?;
        // No node knows the name since the start: a former replica knows the one before.
        let before = self.counting().as_ref().and_then(|it| it.before);
        if let Some(before) = before.filter(|(_, end)| *end == offset && node.replication.follows())
        {
            return Some(before);
        }
        Some((self.names(node).id, offset))
    }

    /// Keeps the present names for this node's replicas, because the node begins to follow another.
    pub(super) fn keep_names(&self, history: History) {
        if let Some(counting) = &mut *self.counting() {
            counting.own = history;
        }
    }

    /// Returns the log to which effects are appended.
    fn log(&self, node: &Arc<Node>) -> Result<Arc<Log>, String> {
        let log = match node.persistence().and_then(|it| it.log().log()) {
            Some(log) => {
                *lock(&self.memory) = None;
                self.has_memory.store(false, Ordering::Relaxed);
                log
            }
            None => self.begin_in_memory(node)?,
        };
        Ok(log)
    }

    /// Begins the log in memory, and returns when all effects are appended to it.
    fn begin_in_memory(&self, node: &Arc<Node>) -> Result<Arc<Log>, String> {
        if let Some(log) = &*lock(&self.memory) {
            return Ok(Arc::clone(log));
        }
        if node.core.config.current().durability.level.has_log() {
            return Err("the log is not there yet".to_owned());
        }
        let bytes = node.core.config.current().replication.backlog_bytes;
        let start = self
            .counting()
            .as_ref()
            .map_or(0, |it| it.log.tail_complete());
        let clock = Arc::clone(&node.core.clock);
        let log = Log::in_memory(clock, start, bytes.max(BACKLOG_BYTES_MIN));
        node.use_log(Some(Arc::new(MemoryTail::new(&log))));
        if !node
            .keeping
            .log_in_use
            .wait_until_taken_up(&|| node.is_stopping())
        {
            return Err("the server stops".to_owned());
        }
        *lock(&self.memory) = Some(Arc::clone(&log));
        // Counts as if a replica left now, because it may leave before the next upkeep.
        let now_unix_ms = node.core.clock.now_unix_ms();
        self.left_unix_ms.store(now_unix_ms, Ordering::Relaxed);
        self.has_memory.store(true, Ordering::Release);
        Ok(log)
    }

    /// Whether effects are still appended to this log.
    pub(super) fn is_of(&self, node: &Node, log: &Arc<Log>) -> bool {
        let on_disk = node.persistence().and_then(|it| it.log().log());
        let in_use = on_disk.or_else(|| lock(&self.memory).clone());
        in_use.is_some_and(|in_use| Arc::ptr_eq(&in_use, log))
    }

    /// Sets whether only another primary's frames are appended to the log: then nothing is appended
    /// here, not even a ping.
    pub fn set_foreign(&self, on: bool) {
        let mut counting = self.counting();
        self.is_foreign.store(on, Ordering::SeqCst);
        if let Some(counting) = counting.as_mut().filter(|_| on) {
            counting.appender = None;
        }
    }

    /// Pings replicas if that is due. Called by their threads.
    pub(super) fn ping(&self, now_unix_ms: u64, period_ms: u64) {
        let mut counting = self.counting();
        let Some(counting) = &mut *counting else {
            return;
        };
        let is_due = now_unix_ms.saturating_sub(counting.pinged_unix_ms) >= period_ms;
        if is_due && !self.is_foreign.load(Ordering::SeqCst) {
            counting.pinged_unix_ms = now_unix_ms;
            counting.append(&Control::Ping, now_unix_ms);
        }
    }

    /// Asks replicas how far they are.
    pub(super) fn ask(&self, now_unix_ms: u64) {
        self.append(&Control::GetAck, now_unix_ms);
    }

    /// Appends a control frame to the log, such as the beginning of a term. Does nothing if no
    /// replica ever connected.
    pub fn append(&self, control: &Control<'_>, now_unix_ms: u64) {
        let mut counting = self.counting();
        let is_foreign = self.is_foreign.load(Ordering::SeqCst);
        if let Some(counting) = counting.as_mut().filter(|_| !is_foreign) {
            counting.append(control, now_unix_ms);
        }
    }

    /// Lets go of the log, because other code appends to it from now on.
    pub(super) fn let_go(&self, node: &Node) {
        *self.counting() = None;
        self.forget(node);
    }

    /// Bytes of the log in memory that exists only for replicas.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let memory = lock(&self.memory);
        memory.as_ref().map_or(0, |log| log.memory_bytes())
    }

    /// Ends the log in memory some time after the last replica has left.
    pub(super) fn upkeep(&self, node: &Node, has_replicas: bool) {
        if !self.has_memory.load(Ordering::Acquire) {
            return;
        }
        let now_unix_ms = node.core.clock.now_unix_ms();
        if has_replicas {
            self.left_unix_ms.store(now_unix_ms, Ordering::Relaxed);
            return;
        }
        let ttl_ms = node
            .core
            .config
            .current()
            .replication
            .backlog_ttl_s
            .saturating_mul(1000);
        let left_unix_ms = self.left_unix_ms.load(Ordering::Relaxed);
        if ttl_ms == 0 || now_unix_ms.saturating_sub(left_unix_ms) < ttl_ms {
            return;
        }
        // A replica that is just connecting goes first.
        let Ok(_alone) = self.beginning.try_lock() else {
            return;
        };
        let has_disk = node
            .persistence()
            .is_some_and(|it| it.log().log().is_some());
        *self.counting() = None;
        *lock(&self.memory) = None;
        self.has_memory.store(false, Ordering::Relaxed);
        if !node.replication.follows() {
            node.replication
                .set_history(History::new(&mut Prng::from_os()));
        }
        if !has_disk {
            node.use_log(None);
        }
    }

    fn counting(&self) -> MutexGuard<'_, Option<Counting>> {
        lock(&self.counting)
    }
}

impl Counting {
    /// Whether a replica of this form can be served from it, either with known offsets or with a
    /// full sync.
    fn serves(&mut self, log: &Arc<Log>, form: Form, is_alone: bool) -> bool {
        if !Arc::ptr_eq(&self.log, log) || !self.counter.is_in_reach(log) {
            return false;
        }
        if self.counter.transcoder.form() != form && is_alone {
            if self.is_told || self.start.sequence < log.oldest() {
                return false;
            }
            // At the starting point all forms have the same offset.
            self.counter = Counter {
                frames: Frames::new(log, self.start.sequence),
                transcoder: Transcoder::new(form, self.start),
            };
            self.index = OffsetIndex::new(self.start);
        }
        self.before = None;
        self.is_told = true;
        true
    }

    fn count(&mut self) {
        self.counter.count(&mut self.index, COUNTED_AT_ONCE_BYTES);
    }

    fn append(&mut self, control: &Control<'_>, now_unix_ms: u64) {
        let log = &self.log;
        let appender = self.appender.get_or_insert_with(|| log.appender());
        appender.set_time(now_unix_ms);
        appender.control(control);
        // The sender's threads are to see it; errors of the disk are handled elsewhere.
        let _seen_later = log.write_out(appender.end());
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
