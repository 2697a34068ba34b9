//! A log that is open for writing: its parts and its state.
//!
//! Appending, writing, syncing and reading are in the modules beside. This one opens the log, and
//! cuts off what a checkpoint holds.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use base::clock::Clock;
use base::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use base::sync::{CachePadded, Mutex};

use super::durable_end::durable_end;
use super::fault::{Faults, LogFault};
use super::locks::lock;
use super::memory::{Chunk, Memory};
use super::options::{self, Level, Options};
use super::pins::Pins;
use super::place::Places;
use super::reader;
use super::ring::{self, Ring};
use super::syncer::{Bell, Group};
use super::wakers::Wakers;
use super::writer::{SPARE_EXTENSION, Writer};
use crate::disk::Disk;

/// An operation log that is open for writing. See the module.
pub struct Log {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) directory: PathBuf,
    pub(super) options: Options,
    pub(super) memory: Memory,
    pub(super) places: Places,
    /// Everything below is with the system, in segments or in the ring.
    pub(super) written: CachePadded<AtomicU64>,
    /// Everything below is in segments; with the system, if it was not in the ring. So once this is
    /// above the last memory outside of the ring, the ring has the rest. Changed only by the holder
    /// of the writer.
    pub(super) stored: AtomicU64,
    /// Everything below is durable. Only [`Log::sync_step`] raises it, and only
    /// [`Follower::truncate`](super::Follower::truncate) lowers it.
    pub(super) durable: CachePadded<AtomicU64>,
    /// Highest sequence up to which a caller asked for durability.
    pub(super) wanted: AtomicU64,
    /// When the oldest frame that is not durable was written, on the monotonic clock; 0 when all
    /// are durable.
    pub(super) unsynced_since_ns: AtomicU64,
    pub(super) level: AtomicU8,
    /// Whether the syncing thread was woken for a piece of the ring.
    pub(super) is_called: AtomicBool,
    pub(super) faults: Faults,
    pub(super) writer: Mutex<Writer>,
    /// Rises whenever a file gets or loses its name. Changed only by the holder of the writer.
    pub(super) files_version: AtomicU64,
    /// Held by the thread that syncs. No thread waits for it while it holds the writer.
    pub(super) syncing: Mutex<()>,
    pub(super) bell: Bell,
    pub(super) group: Group,
    pub(super) on_durable: OnceLock<DurableCallback>,
    pub(super) wakers: Wakers,
    /// Locked before the writer is.
    pub(super) pins: Pins,
    /// Whether the log keeps nothing in files.
    pub(super) is_volatile: bool,
    /// No write begins while the log's end is past this.
    end_max: AtomicU64,
}

/// The parts of a log.
pub(super) struct Make {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) directory: PathBuf,
    pub(super) options: Options,
    pub(super) memory: Memory,
    pub(super) writer: Writer,
    pub(super) is_volatile: bool,
}

/// Minimum number of pieces of a ring in a segment.
const PIECES_MIN: u64 = 4;
/// Divisor of the ring's size: this share of it is left to writes that have already begun.
const RING_SPARE: u64 = 4;

type DurableCallback = Box<dyn Fn(u64) + Send + Sync>;

impl Log {
    /// Opens the log of a directory to continue at `start`; creates the directory if it does not
    /// exist. `start` is where a [`Reader`](super::Reader) ended, or the sequence of a checkpoint above that, or
    /// the sequence of any frame in order to discard what is behind it. On return everything below
    /// `start` is durable, and so is a file that begins at or below it.
    ///
    /// If the device has no space for that, the log has a [`Log::fault`] instead, which heals like
    /// any other: nothing below `start` is lost, and nothing can be written. A caller that begins a
    /// new log has to check for it.
    ///
    /// # Errors
    /// Those of the system, and damaged heads of files.
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        directory: &Path,
        start: u64,
        mut options: Options,
    ) -> io::Result<Arc<Self>> {
        let durable = durable_end(&disk, directory, start).map_err(reader::refusal)?;
        let writer = Writer::open(&*disk, directory, durable, &options)?;
        ring::remove(&*disk, directory)?;
        let unwritten_bytes = start.saturating_sub(durable);
        let ring = Ring::create(&*disk, directory, durable, unwritten_bytes, &options);
        options.piece_bytes = options.piece_bytes.min(options.segment_bytes / PIECES_MIN);
        options.in_place_bytes = options.in_place_bytes.min(options.piece_bytes);
        if let Some(ring) = &ring {
            // If a write has to wait, it waits for room before it begins, not for the device
            // afterwards.
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

    pub(super) fn make(make: Make, start: u64, durable: u64) -> Self {
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
            pins: Pins::default(),
            is_volatile,
            end_max: AtomicU64::new(u64::MAX),
        }
    }

    /// Returns the sequence of the next frame.
    #[inline]
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.places.tail()
    }

    /// Returns the sequence below which everything is with the system. It falls back to
    /// [`Log::durable`] when a file fails.
    #[inline]
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Returns chunk number `index`, for a caller that has an unfilled place in it.
    #[cold]
    pub(super) fn chunk(&self, index: u64) -> Arc<Chunk> {
        if self.is_volatile {
            // Neither the caller's own place nor anything after it is complete yet.
            self.memory.release(self.places.complete());
        }
        self.memory.chunk(index)
    }

    pub(super) fn has_ring(&self) -> bool {
        self.memory.has_ring()
    }

    /// Returns the sequence below which everything was put into segments.
    pub(super) fn stored(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }

    /// Returns the sequence below which everything survives a power cut. Only
    /// [`Follower::truncate`](super::Follower::truncate) lowers it.
    #[inline]
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Returns the durability level of appended frames.
    #[must_use]
    pub fn level(&self) -> Level {
        Level::of(self.level.load(Ordering::Relaxed))
    }

    /// Changes the durability level, from now on.
    pub fn set_level(&self, level: Level) {
        self.level.store(level as u8, Ordering::Relaxed);
        self.bell.ring();
    }

    /// Calls `listener` with [`Log::durable`] whenever that rose, and when a fault began or ended.
    /// The thread that caused the change calls it, with no lock held. It must not wait. Only the
    /// first listener counts.
    pub fn on_durable(&self, listener: Box<dyn Fn(u64) + Send + Sync>) {
        let _only_one = self.on_durable.set(listener);
    }

    /// Returns why nothing can be written at present, if so. A fault heals by itself.
    #[must_use]
    pub fn fault(&self) -> Option<LogFault> {
        self.faults.get()
    }

    /// Whether a write may begin. The caller asks before it takes any lock, once for a batch of
    /// commands. `false` while there is a fault, too much is held, or the device is late.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.has_room_at(self.clock.monotonic_ns())
    }

    /// Like [`Log::has_room`], for a caller that knows the monotonic time, of now or not long ago.
    #[inline]
    #[must_use]
    pub fn has_room_at(&self, now_ns: u64) -> bool {
        let is_too_much = self.held_bytes() >= self.options.held_bytes_max;
        let is_within = self.tail() <= self.end_max.load(Ordering::Acquire);
        !self.faults.is_any() && !is_too_much && is_within && !self.is_late(now_ns)
    }

    /// Sets a bound: no write begins while the log's end is past it; `None` removes the bound. A
    /// batch that already runs may pass it. Returns whether a write may have waited that need not
    /// wait any more.
    pub fn set_end_max(&self, end_max: Option<u64>) -> bool {
        let end_max = end_max.unwrap_or(u64::MAX);
        let before = self.end_max.swap(end_max, Ordering::AcqRel);
        before < end_max && before < self.tail()
    }

    /// Returns the bytes of frames that are kept because they are not durable.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        if self.is_volatile {
            return 0;
        }
        let durable = self.durable();
        self.tail().saturating_sub(durable)
    }

    /// Returns the allocated memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Removes the files that hold nothing from `sequence` on, except for [pinned](Log::pin) ones,
    /// or keeps some of them for reuse. Only for a sequence below which a verified checkpoint holds
    /// everything.
    ///
    /// # Errors
    /// Those of the system. The log continues nevertheless, and tries to remove the remaining files
    /// again when it is next opened and cut.
    pub fn cut(&self, sequence: u64) -> io::Result<()> {
        if self.is_volatile {
            return Ok(());
        }
        let (mut below, kept_count, mut gone) = self.pins.with_cut(sequence, |sequence| {
            let mut writer = lock(&self.writer);
            let below = writer.cut(sequence);
            self.files_version.fetch_add(1, Ordering::Release);
            let (kept_count, gone) = writer.plan_spares(below.len());
            (below, kept_count, gone)
        });
        if !below.is_empty() {
            // The name of a remaining file may not be durable yet; it must be found once the files
            // before it are gone.
            self.disk.sync_directory(&self.directory)?;
        }
        // Removing a long file takes a while; other threads may write meanwhile.
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

    /// Keeps files for reuse, under names that do not belong to the log.
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
        // A reused file that still had its old name, with another head, would replace files in
        // force.
        self.disk.sync_directory(&self.directory)?;
        lock(&self.writer).add_spares(spares);
        Ok(())
    }

    /// Whether the oldest frame that is not durable has waited too long for a level that promises a
    /// time.
    fn is_late(&self, now_ns: u64) -> bool {
        let since_ns = self.unsynced_since_ns.load(Ordering::Relaxed);
        since_ns != 0
            && self.level() == Level::EverySecond
            && now_ns.saturating_sub(since_ns) > options::LATE_NS
    }

    pub(super) fn tell(&self) {
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
