//! The operation log: what writes did, as bytes that come back in order and whole, or not at all.
//!
//! ```text
//!   directory  0000000000000000.log  0000000004000010.log  …      named by their first sequence
//!   segment    head │ block │ block │ …
//!   block      head │ frame │ frame │ …                           what was written at once
//!   frame      head │ effect, or a group of them                  applied whole or not at all
//! ```
//!
//! A **sequence** is a place in the log: how many bytes of frames were ever written before it. It names
//! a frame, orders what happened and says how far something is durable.
//!
//! Invariants
//!  1. The sequences of frames follow each other without a gap, within a segment and from one to the next.
//!  2. A segment is read up to where the next one begins. What stands behind that place was never made
//!     durable, and was written again.
//!  3. Each block states what was durable when it was written. Damage below the highest such statement
//!     is refused; what is unreadable above it is the tail that a power cut left.
//!
//! The bytes are a paper: `docs/formats/log.md`.
//!
//! ```text
//!   threads ── Appender ──► memory ── write_out ──► segment ── sync_step ──► durable
//!              claim a place,         whoever needs it,        one at a time,
//!              copy a frame           one at a time            owns the watermark
//! ```
//!
//! Where memory is a ring that is mapped, it is with the system at once: then whoever syncs writes, too.
//!
//! Nobody waits for a device to append. Frames stay in memory until they are durable, so that those of
//! a segment that failed are written again into another one.

mod appender;
mod backlog;
mod builder;
mod control;
mod cursor;
mod fault;
mod follower;
mod frame;
mod memory;
mod options;
mod place;
mod reader;
mod remainder;
mod ring;
mod segment;
mod syncer;
mod wakers;
mod writer;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use base::clock::Clock;
use base::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use base::sync::{CachePadded, Mutex, MutexGuard};

use crate::disk::Disk;
pub use appender::Appender;
pub use control::{Control, SlotRanges, SourceFrame, TermFrame};
pub use cursor::{Cursor, READ_BYTES_MAX, Read};
use fault::Faults;
pub use fault::LogFault;
pub use follower::{AppendError, Follower, TruncateError};
pub use frame::{Effect, Effects, Frame, Parts, frame_bytes, frames};
use memory::{Chunk, Memory};
pub use options::{Level, Options};
use place::Places;
pub use reader::{LogError, Reader, Shape, Tail, bound, has_file_of, remove_from};
use ring::Ring;
pub use ring::{ring_end, salvage};
pub use segment::VERSION;
use syncer::{Bell, Group};
pub use wakers::Waker;
use wakers::Wakers;
use writer::{SPARE_EXTENSION, Writer};

/// An operation log that is open for writing. See the module for what it is.
pub struct Log {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    directory: PathBuf,
    options: Options,
    memory: Memory,
    places: Places,
    /// Below: with the system, in segments or in the ring.
    written: CachePadded<AtomicU64>,
    /// Below: in segments; with the system, where it was not in the ring. So once it is above the last memory that is not of
    /// the ring, the ring has the rest. Changed with the writer held.
    stored: AtomicU64,
    /// Below: made durable. Raised by [`Log::sync_step`] alone, and lowered by [`Follower::truncate`].
    durable: CachePadded<AtomicU64>,
    /// Somebody asked that everything below be made durable.
    wanted: AtomicU64,
    /// When the oldest was written that is not durable, on the monotonic clock; 0 when all is.
    unsynced_since_ns: AtomicU64,
    level: AtomicU8,
    /// Whoever syncs was woken for a piece of the ring.
    is_called: AtomicBool,
    faults: Faults,
    writer: Mutex<Writer>,
    /// Rises whenever a file gets its name or loses it. Changed with the writer held.
    files_version: AtomicU64,
    /// Held by the one who syncs. Never waited for with the writer held.
    syncing: Mutex<()>,
    bell: Bell,
    group: Group,
    on_durable: OnceLock<DurableCallback>,
    wakers: Wakers,
    /// Nothing of it is kept in files.
    is_volatile: bool,
}

/// What a log is made of.
struct Make {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    directory: PathBuf,
    options: Options,
    memory: Memory,
    writer: Writer,
    is_volatile: bool,
}

/// A segment holds so many pieces of a ring at least.
const PIECES_MIN: u64 = 4;
/// The share of the ring that is left to those who have begun to write.
const RING_SPARE: u64 = 4;

type DurableCallback = Box<dyn Fn(u64) + Send + Sync>;

impl Log {
    /// Opens the log of a directory, which is made where there is none, to go on at `start`: where a
    /// [`Reader`] ended, or the sequence of a checkpoint that is above that, or any frame's to forget what is
    /// behind it. What is below it is durable when this returns, and so is a file that begins at it or before.
    ///
    /// On a device without room for that there is a [`Log::fault`] instead, which heals as any other: nothing of what
    /// is below `start` is lost, and nothing can be written. Who begins a log where there was none has to look.
    ///
    /// # Errors
    /// Those of the system, and heads of files that are damaged.
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        directory: &Path,
        start: u64,
        mut options: Options,
    ) -> io::Result<Arc<Self>> {
        let durable =
            remainder::durable_end(&disk, directory, start).map_err(remainder::refusal)?;
        let writer = Writer::open(&*disk, directory, durable, &options)?;
        ring::remove(&*disk, directory)?;
        let unwritten_bytes = start.saturating_sub(durable);
        let ring = Ring::create(&*disk, directory, durable, unwritten_bytes, &options);
        options.piece_bytes = options.piece_bytes.min(options.segment_bytes / PIECES_MIN);
        options.in_place_bytes = options.in_place_bytes.min(options.piece_bytes);
        if let Some(ring) = &ring {
            // Who has to wait is to wait for room before a write, not for the device after it.
            let most = ring.bytes() - ring.bytes() / RING_SPARE;
            options.held_bytes_max = options.held_bytes_max.min(most);
        }
        let make = Make {
            memory: Memory::new(durable, options.chunk_bytes, ring),
            directory: directory.to_owned(),
            is_volatile: false,
            disk,
            clock,
            options,
            writer,
        };
        let log = Arc::new(Self::make(make, start, durable));
        log.write_remainder(start)?;
        if !log.faults.is_any()
            && let Err(error) = log.prepare()
            && error.kind() != io::ErrorKind::StorageFull
        {
            return Err(error);
        }
        Ok(log)
    }

    fn make(make: Make, start: u64, durable: u64) -> Self {
        let Make {
            disk,
            clock,
            directory,
            options,
            memory,
            writer,
            is_volatile,
        } = make;
        Self {
            disk,
            clock,
            directory,
            options,
            memory,
            places: Places::new(start),
            written: CachePadded::new(AtomicU64::new(durable)),
            stored: AtomicU64::new(durable),
            durable: CachePadded::new(AtomicU64::new(durable)),
            wanted: AtomicU64::new(0),
            unsynced_since_ns: AtomicU64::new(0),
            level: AtomicU8::new(Level::EverySecond as u8),
            is_called: AtomicBool::new(false),
            faults: Faults::default(),
            writer: Mutex::new(writer),
            files_version: AtomicU64::new(0),
            syncing: Mutex::default(),
            bell: Bell::default(),
            group: Group::default(),
            on_durable: OnceLock::new(),
            wakers: Wakers::default(),
            is_volatile,
        }
    }

    /// An appender for one thread.
    #[must_use]
    pub fn appender(self: &Arc<Self>) -> Appender {
        Appender::new(Arc::clone(self))
    }

    /// Where the next frame will begin.
    #[inline]
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.places.tail()
    }

    /// Everything below is with the system. It falls back to [`Log::durable`] when a file fails.
    #[inline]
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// The chunk of a number, for who has a place in it that is not filled yet.
    #[cold]
    fn chunk(&self, index: u64) -> Arc<Chunk> {
        if self.is_volatile {
            // The own place is not complete, nor is what is above it.
            self.memory.release(self.places.complete());
        }
        self.memory.chunk(index)
    }

    fn has_ring(&self) -> bool {
        self.memory.has_ring()
    }

    /// Everything below was put into segments.
    fn stored(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }

    /// Everything below comes back after a power cut. Never falls, but by [`Follower::truncate`].
    #[inline]
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// What is done with what is appended.
    #[must_use]
    pub fn level(&self) -> Level {
        Level::of(self.level.load(Ordering::Relaxed))
    }

    /// Changes what is done with what is appended, from now on.
    pub fn set_level(&self, level: Level) {
        self.level.store(level as u8, Ordering::Relaxed);
        self.bell.ring();
    }

    /// Calls `listener` with [`Log::durable`] whenever that rose, and when a fault began or ended. It is called by
    /// whichever thread did it, with nothing locked, and must not wait. Only the first listener counts.
    pub fn on_durable(&self, listener: Box<dyn Fn(u64) + Send + Sync>) {
        let _only_one = self.on_durable.set(listener);
    }

    /// Why nothing can be written just now. It heals by itself.
    #[must_use]
    pub fn fault(&self) -> Option<LogFault> {
        self.faults.get()
    }

    /// Whether a write may begin: to be asked before any lock is taken, once for a batch of commands.
    /// `false` while there is a fault, too much is held, or the device is late.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.has_room_at(self.clock.monotonic_ns())
    }

    /// As [`Log::has_room`], for who knows the monotonic time: of now, or not long ago.
    #[inline]
    #[must_use]
    pub fn has_room_at(&self, now_ns: u64) -> bool {
        let is_too_much = self.held_bytes() >= self.options.held_bytes_max;
        !self.faults.is_any() && !is_too_much && !self.is_late(now_ns)
    }

    /// Bytes of frames that are kept because they are not durable.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        if self.is_volatile {
            return 0;
        }
        let durable = self.durable();
        self.tail().saturating_sub(durable)
    }

    /// Bytes of memory taken.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Removes the files that hold nothing from `sequence` on, or keeps some of them to be written again. Only
    /// for what a verified checkpoint holds.
    ///
    /// # Errors
    /// Those of the system. The log goes on nevertheless, and tries the files left again when it is next opened
    /// and cut.
    pub fn cut(&self, sequence: u64) -> io::Result<()> {
        if self.is_volatile {
            return Ok(());
        }
        let mut writer = lock(&self.writer);
        let mut below = writer.cut(sequence);
        self.files_version.fetch_add(1, Ordering::Release);
        let (kept_count, mut gone) = writer.plan_spares(below.len());
        drop(writer);
        if !below.is_empty() {
            // What is left may have a name that is not durable, and has to be found when what was before it is gone.
            self.disk.sync_directory(&self.directory)?;
        }
        // Removing a long file takes a while, in which others write.
        let kept = below.split_off(below.len().saturating_sub(kept_count));
        gone.extend(below);
        for path in gone {
            match self.disk.retire(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.set_aside(kept)
    }

    /// Keeps files to be written again, under names that are none of the log's.
    fn set_aside(&self, files: Vec<PathBuf>) -> io::Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let mut spares = Vec::new();
        for path in files {
            let spare = path.with_extension(SPARE_EXTENSION);
            self.disk.rename(&path, &spare)?;
            spares.push(spare);
        }
        // Under its old name, and with another head, one would take the place of files that count.
        self.disk.sync_directory(&self.directory)?;
        lock(&self.writer).add_spares(spares);
        Ok(())
    }

    /// Whether the oldest that is not durable has waited too long for a level that promises a time.
    fn is_late(&self, now_ns: u64) -> bool {
        let since_ns = self.unsynced_since_ns.load(Ordering::Relaxed);
        since_ns != 0
            && self.level() == Level::EverySecond
            && now_ns.saturating_sub(since_ns) > options::LATE_NS
    }

    fn tell(&self) {
        if let Some(listener) = self.on_durable.get() {
            listener(self.durable());
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("directory", &self.directory)
            .field("tail", &self.tail())
            .field("written", &self.written())
            .field("durable", &self.durable())
            .field("level", &self.level())
            .finish_non_exhaustive()
    }
}

/// What a mutex guards; that somebody panicked with it changes nothing here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

#[cfg(all(test, shuttle, not(loom)))]
mod models;
