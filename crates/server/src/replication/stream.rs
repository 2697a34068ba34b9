//! The stream for replicas that speak PSYNC: which log it is made from, and which offset is where.
//!
//! ```text
//!   workers ──► log (on disk, or in memory while there are replicas)
//!                │  the counter: reads, transcodes, keeps the end and an entry each MiB
//!                └─ a thread per replica: reads, transcodes, sends
//! ```
//!
//! Nothing of the stream is kept: it is a function of the log. What is kept is where counting began, where it is
//! now, and a place for each MiB between.
//!
//! Where the log is on disk, the stream [outlives](keeping) the process.
//!
//! A server that keeps no log on disk has one in memory from its first replica on, until some time after its last.
//!
//! Rule: `counting` is taken by whoever asks for the offset, workers included, and held for a bounded piece of the
//! log. Who holds it waits for nobody. `beginning` is taken by threads of replicas alone: they wait for workers.

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

/// Counted by who asks for the offset, at most; the rest is counted by the next who asks.
const COUNTED_AT_ONCE_BYTES: u64 = 4 << 20;

/// A log with fewer bytes in memory is of no use to a replica that is a moment late.
const BACKLOG_BYTES_MIN: u64 = 1 << 20;

/// See the module.
#[derive(Default)]
pub struct Stream {
    counting: Mutex<Option<Counting>>,
    beginning: Mutex<()>,
    /// The log in memory, while that is the one in use.
    memory: Mutex<Option<Arc<Log>>>,
    /// When the last replica went.
    left_unix_ms: AtomicU64,
    has_memory: AtomicBool,
    /// Somebody else alone says what is in the log.
    is_foreign: AtomicBool,
}

/// Where the stream of one log is.
struct Counting {
    log: Arc<Log>,
    /// Under which names replicas know it while the node follows another: then what is shown are the other's.
    own: History,
    counter: Counter,
    /// Where counting began.
    start: Place,
    /// A replica knows offsets by the present names.
    is_told: bool,
    index: OffsetIndex,
    /// For pings, and for asking replicas how far they are; made when there is something to say.
    appender: Option<Appender>,
    pinged_unix_ms: u64,
    /// Up to here places were written down.
    saved: u64,
    /// The name and the end of the stream before a start, as long as nobody was told of the present name.
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

    /// Counts on, up to so many bytes of the log.
    fn count(&mut self, index: &mut OffsetIndex, bytes_max: u64) {
        let from = self.frames.next;
        let transcoder = &mut self.transcoder;
        while self.frames.next - from < bytes_max {
            let read = self.frames.read(|frame| {
                let mut count = Count::default();
                if put(transcoder, frame, &mut count).is_err() {
                    // Nobody of this form is sent it; who follows is told so by his own thread.
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
    /// Where the stream is; none before there ever was one.
    pub(super) fn offset(&self) -> Option<u64> {
        let mut counting = self.counting();
        let counting = counting.as_mut()?;
        counting.count();
        Some(counting.counter.transcoder.place().offset)
    }

    /// The oldest offset that can be sent, and the end.
    pub(super) fn reach(&self) -> Option<(u64, u64)> {
        let mut counting = self.counting();
        let counting = counting.as_mut()?;
        counting.count();
        counting.index.forget_below(counting.log.oldest());
        let end = counting.counter.transcoder.place().offset;
        Some((counting.index.oldest_offset().unwrap_or(end), end))
    }

    /// The form that is counted in: what is shown as the offset is of this one.
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

    /// The stream at a sequence that a checkpoint begins at, if it was counted from before that.
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
        // What lies between the last frame and the sequence has none.
        let place = Place {
            sequence,
            ..transcoder.place()
        };
        is_between.then_some(place)
    }

    /// Where to begin for an offset.
    pub(super) fn find(&self, offset: u64) -> Option<Start> {
        let counting = self.counting();
        counting.as_ref()?.index.find(offset)
    }

    /// The place at the end of the log, and that the stream is counted up to there: where a full sync begins.
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

    /// The log that the stream is made from. One is begun where there is none; then all that replicas knew of the
    /// stream before is void. For threads of replicas alone: it waits for workers.
    ///
    /// # Errors
    /// Why there is none.
    ///
    /// It is counted in the form of the replica that comes, unless there are others: they know offsets of theirs.
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
            // Who does not count for long may be left behind by the log.
            let serves = counting
                .as_mut()
                .is_some_and(|it| it.serves(&log, form, is_alone));
            if serves {
                return Ok(log);
            }
            let place = counting.as_ref().map(|it| it.counter.transcoder.place());
            (place.is_some(), place.map_or(0, |place| place.offset))
        };
        // Not all that was written is in this log: no replica can go on from an older one.
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

    /// Goes on at an offset: that of a stream that was followed until now. Nobody writes meanwhile. For the thread
    /// that follows alone: it waits for workers.
    ///
    /// # Errors
    /// Why there is no log to go on in.
    pub(super) fn begin_at(&self, node: &Arc<Node>, offset: u64) -> Result<(), String> {
        let _alone = lock(&self.beginning);
        // A log in memory waits for replicas from now on.
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

    /// Under which names the stream is known to replicas.
    pub(super) fn names(&self, node: &Node) -> History {
        let own = self.counting().as_ref().map(|counting| counting.own);
        own.filter(|_| node.replication.follows())
            .unwrap_or_else(|| node.replication.history())
    }

    /// What this node can go on from as a replica of who has followed it: the name of its stream, and its end.
    pub fn resume(&self, node: &Node) -> Option<(ReplicationId, u64)> {
        let offset = self.offset()?;
        // Nobody knows the name of since the start: a former replica knows the one before.
        let before = self.counting().as_ref().and_then(|it| it.before);
        if let Some(before) = before.filter(|(_, end)| *end == offset && node.replication.follows())
        {
            return Some(before);
        }
        Some((self.names(node).id, offset))
    }

    /// The node begins to follow another: replicas know the stream by the names that it has now.
    pub(super) fn keep_names(&self, history: History) {
        if let Some(counting) = &mut *self.counting() {
            counting.own = history;
        }
    }

    /// The log that effects go to.
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

    /// Begins the log in memory, and comes back when all effects go to it.
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
        // A replica that leaves before the next upkeep was there nevertheless.
        let now_unix_ms = node.core.clock.now_unix_ms();
        self.left_unix_ms.store(now_unix_ms, Ordering::Relaxed);
        self.has_memory.store(true, Ordering::Release);
        Ok(log)
    }

    /// Whether effects still go to this log.
    pub(super) fn is_of(&self, node: &Node, log: &Arc<Log>) -> bool {
        let on_disk = node.persistence().and_then(|it| it.log().log());
        let in_use = on_disk.or_else(|| lock(&self.memory).clone());
        in_use.is_some_and(|in_use| Arc::ptr_eq(&in_use, log))
    }

    /// Says whether somebody else alone says what is in the log: nothing is added to it here then, not even a ping.
    pub fn set_foreign(&self, on: bool) {
        let mut counting = self.counting();
        self.is_foreign.store(on, Ordering::SeqCst);
        if let Some(counting) = counting.as_mut().filter(|_| on) {
            counting.appender = None;
        }
    }

    /// Pings replicas where that is due. Called by their threads.
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

    /// Says something in the log itself, as that another term begins; nothing where no replica ever came.
    pub fn append(&self, control: &Control<'_>, now_unix_ms: u64) {
        let mut counting = self.counting();
        let is_foreign = self.is_foreign.load(Ordering::SeqCst);
        if let Some(counting) = counting.as_mut().filter(|_| !is_foreign) {
            counting.append(control, now_unix_ms);
        }
    }

    /// Lets go of the log: somebody else appends to it from now on.
    pub(super) fn let_go(&self, node: &Node) {
        *self.counting() = None;
        self.forget(node);
    }

    /// Bytes of the log in memory, while there is one for replicas alone.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let memory = lock(&self.memory);
        memory.as_ref().map_or(0, |log| log.memory_bytes())
    }

    /// Ends the log in memory some time after the last replica.
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
        // A replica that comes just now has its turn first.
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
    /// Whether a replica of this form is served from it, as one that knows its offsets or as one that does not.
    fn serves(&mut self, log: &Arc<Log>, form: Form, is_alone: bool) -> bool {
        if !Arc::ptr_eq(&self.log, log) || !self.counter.is_in_reach(log) {
            return false;
        }
        if self.counter.transcoder.form() != form && is_alone {
            if self.is_told || self.start.sequence < log.oldest() {
                return false;
            }
            // Where it began all forms are at the same offset.
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
        // Whoever sends is to hear of it; what the disk says others see.
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
