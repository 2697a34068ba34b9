//! The chunks of the arena: the use of each, and the free ones.
//!
//! A chunk is free, holds slots of one size class, or is a page of a large value. Free chunks are
//! kept in two stacks. Dirty ones still have their memory and are handed out first. Clean ones cost
//! no memory. If there are too many dirty ones, some are cleaned: their memory goes back to the
//! system. After all these come the chunks that were never used.

use std::io;

use base::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use base::sync::{CachePadded, Mutex, MutexGuard};

use crate::arena::{Arena, CHUNK_BYTES, HugePages, Offset, distance};
use crate::reservation::HUGE_PAGE_BYTES;
#[cfg(not(any(loom, shuttle)))]
use crate::reservation::Reservation;

/// Number of dirty chunks kept whatever the size of the store (4 MiB).
const DIRTY_MIN: usize = 64;

/// Number of dirty chunks kept although no thread took them for [a while](Arena::clean_unused) (512
/// KiB) …
const UNUSED_KEPT: usize = 8;

/// … and maximum number of such chunks cleaned at once (4 MiB).
const UNUSED_CLEANED: usize = 64;

/// If this many clean chunks are free, the memory after them need not be prepared (4 MiB).
const PREPARED_NEEDLESS: usize = 64;

/// Number of chunks cleaned at once by a thread that may have a client waiting: some tens of
/// microseconds.
pub(crate) const CLEANED_AT_ONCE: usize = 8;

/// Beyond [`DIRTY_MIN`], one dirty chunk is kept per this many chunks in use: 3 % of the memory.
const IN_USE_PER_DIRTY: u64 = 32;

/// Number of chunks that share a huge page.
const CHUNKS_PER_HUGE_PAGE: usize = HUGE_PAGE_BYTES / CHUNK_BYTES;

/// Number of a chunk. 0 is the page of zeroes that has no owner; it also stands for "none".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkId(u32);

impl ChunkId {
    /// The page of zeroes, also "none".
    pub(crate) const ZERO: Self = Self(0);

    /// Returns the chunk that `offset` lies in.
    #[inline]
    pub(crate) fn of(offset: Offset) -> Self {
        Self::from_index(distance(offset.bytes()) / CHUNK_BYTES)
    }

    /// Returns the chunk of an index.
    #[inline]
    fn from_index(index: usize) -> Self {
        // A reservation has at most 2^45 bytes, so there are fewer than 2^32 chunks.
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// Returns the chunk of a number from [`ChunkId::number`].
    #[inline]
    pub(crate) fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// The chunk's number.
    #[inline]
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Whether this is the page of zeroes.
    #[inline]
    pub(crate) fn is_zero(self) -> bool {
        self.0 == 0
    }

    #[inline]
    fn index(self) -> usize {
        distance(u64::from(self.0))
    }

    /// Bytes from the arena's start to the chunk's.
    #[inline]
    pub(crate) fn start(self) -> usize {
        self.index() * CHUNK_BYTES
    }

    /// Returns the offset `byte_at` bytes after the chunk's start, or `None` in chunk 0 or if
    /// `byte_at` is not a multiple of 16.
    #[inline]
    pub(crate) fn offset(self, byte_at: u32) -> Option<Offset> {
        if self.is_zero() {
            return None;
        }
        Offset::new(u64::from(self.0) * CHUNK_BYTES as u64 + u64::from(byte_at))
    }
}

/// The state of one chunk. Which thread may change it depends on the use: see `slab` and `blob`.
/// All zero is a free chunk.
#[derive(Debug, Default)]
#[repr(align(32))]
pub(crate) struct ChunkInfo {
    /// The use, and flags of the slabs.
    pub(crate) state: AtomicU32,
    /// Number of slots that are in use or in a thread's cache; or number of references to the page.
    pub(crate) count: AtomicU32,
    /// Bytes from the chunk's start to the first free slot of its list, plus one; 0 for none.
    pub(crate) free_head: AtomicU32,
    /// Bytes from the chunk's start to the first slot that was never handed out.
    pub(crate) fresh: AtomicU32,
    /// The chunk after this one in its class's list.
    pub(crate) next: AtomicU32,
    /// The chunk before this one in its class's list.
    pub(crate) previous: AtomicU32,
}

/// All chunks of an arena.
#[derive(Debug)]
pub(crate) struct Chunks {
    table: Table,
    huge_pages: HugePages,
    free: CachePadded<Mutex<Free>>,
    in_use: AtomicU64,
    dirty: AtomicU64,
    /// The lowest number of dirty chunks since the last look: that many were not needed. Changed
    /// with `free` locked.
    dirty_least: AtomicU64,
    dirty_max: AtomicU64,
}

#[derive(Debug)]
struct Free {
    dirty: Vec<ChunkId>,
    clean: Vec<ChunkId>,
    /// The first chunk that was never used.
    unused: ChunkId,
    /// End of the last chunk whose memory was requested ahead of its use.
    prepared_end: ChunkId,
}

/// No chunk is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

impl Chunks {
    /// Creates the table for an arena of `count` chunks.
    ///
    /// # Errors
    /// If there is no address space for the table.
    pub(crate) fn new(count: usize, huge_pages: HugePages) -> io::Result<Self> {
        Ok(Self {
            table: Table::new(count)?,
            huge_pages,
            free: CachePadded::new(Mutex::new(Free {
                dirty: Vec::new(),
                clean: Vec::new(),
                unused: ChunkId(1),
                prepared_end: ChunkId::ZERO,
            })),
            in_use: AtomicU64::new(0),
            dirty: AtomicU64::new(0),
            dirty_least: AtomicU64::new(0),
            dirty_max: AtomicU64::new(u64::MAX),
        })
    }

    /// Returns the state of `chunk`.
    ///
    /// # Panics
    /// If there is no such chunk.
    #[inline]
    pub(crate) fn info(&self, chunk: ChunkId) -> &ChunkInfo {
        self.table.at(chunk.index())
    }

    /// Bytes of the chunks that are in use, by slots or as pages.
    pub(crate) fn in_use_bytes(&self) -> u64 {
        self.in_use.load(Ordering::Relaxed) * CHUNK_BYTES as u64
    }

    /// Bytes of the free chunks that still hold memory.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed) * CHUNK_BYTES as u64
    }

    /// The first chunk that was never used: all chunks in use are below it.
    pub(crate) fn unused(&self) -> ChunkId {
        lock(&self.free).unused
    }

    /// Limits the number of dirty chunks, for a store with a memory limit.
    pub(crate) fn set_dirty_max(&self, chunks: u64) {
        self.dirty_max.store(chunks, Ordering::Relaxed);
    }

    fn dirty_max(&self) -> usize {
        let by_use = self.in_use.load(Ordering::Relaxed) / IN_USE_PER_DIRTY;
        let by_limit = distance(self.dirty_max.load(Ordering::Relaxed));
        distance(by_use).max(DIRTY_MIN).min(by_limit)
    }

    /// Removes up to `count` dirty chunks from their stack, the longest unused first.
    fn surplus(&self, free: &mut Free, count: usize) -> Vec<ChunkId> {
        let count = count.min(free.dirty.len());
        let surplus: Vec<_> = free.dirty.drain(..count).collect();
        self.dirty
            .fetch_sub(surplus.len() as u64, Ordering::Relaxed);
        surplus
    }

    /// Whether the memory from `chunk` on is on huge pages from its first use.
    fn wants_huge(&self, chunk: ChunkId) -> bool {
        match self.huge_pages {
            HugePages::Never => false,
            HugePages::After { bytes } => chunk.start() as u64 >= bytes,
        }
    }

    /// Whether the memory of `chunk` moves to huge pages once it is in use.
    fn becomes_huge(&self, chunk: ChunkId) -> bool {
        self.huge_pages != HugePages::Never && !self.wants_huge(chunk)
    }
}

impl Arena {
    /// Takes a free chunk; the caller sets its info. Its content may be anything.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the reserved range is used up.
    pub(crate) fn take_chunk(&self) -> Result<ChunkId, OutOfMemory> {
        let chunks = self.chunks();
        let mut free = lock(&chunks.free);
        let chunk = if let Some(chunk) = free.dirty.pop() {
            chunks.dirty.fetch_sub(1, Ordering::Relaxed);
            let left = free.dirty.len() as u64;
            chunks.dirty_least.fetch_min(left, Ordering::Relaxed);
            chunk
        } else if let Some(chunk) = free.clean.pop() {
            chunk
        } else {
            let chunk = free.unused;
            if chunk.index() >= self.bytes() / CHUNK_BYTES {
                return Err(OutOfMemory);
            }
            free.unused = ChunkId(chunk.0 + 1);
            if let Some(end) = self.before_first_use(chunk) {
                free.prepared_end = end;
            }
            chunk
        };
        chunks.in_use.fetch_add(1, Ordering::Relaxed);
        Ok(chunk)
    }

    /// Gives back chunks that are no longer in use; their info must say so. If there are then too
    /// many dirty chunks, cleans up to `cleaned_max` of them; the rest is left to
    /// [`Arena::clean_surplus`].
    pub(crate) fn give_chunks(&self, given: &[ChunkId], cleaned_max: usize) {
        let chunks = self.chunks();
        let count = given.len() as u64;
        {
            let mut free = lock(&chunks.free);
            free.dirty.extend_from_slice(given);
            chunks.in_use.fetch_sub(count, Ordering::Relaxed);
            chunks.dirty.fetch_add(count, Ordering::Relaxed);
        }
        self.clean_surplus(cleaned_max);
    }

    /// Cleans up to `count_max` dirty chunks if there are too many; two loads if not.
    pub(crate) fn clean_surplus(&self, count_max: usize) {
        let chunks = self.chunks();
        let dirty_max = chunks.dirty_max();
        let dirty = distance(chunks.dirty.load(Ordering::Relaxed));
        if dirty <= dirty_max {
            return;
        }
        // Half of the allowed number stays, so that this happens once for many chunks.
        let count = (dirty - dirty_max / 2).min(count_max);
        let surplus = chunks.surplus(&mut lock(&chunks.free), count);
        self.clean_free(surplus);
    }

    /// Cleans the dirty chunks that no thread needed since the last call, except a few: so memory
    /// goes back even if no client writes. Called about once a second.
    pub(crate) fn clean_unused(&self) {
        let chunks = self.chunks();
        let surplus = {
            let mut free = lock(&chunks.free);
            let least = distance(chunks.dirty_least.load(Ordering::Relaxed));
            let surplus = chunks.surplus(
                &mut free,
                least.saturating_sub(UNUSED_KEPT).min(UNUSED_CLEANED),
            );
            let left = free.dirty.len() as u64;
            chunks.dirty_least.store(left, Ordering::Relaxed);
            self.give_prepared(&mut free);
            surplus
        };
        self.clean_free(surplus);
    }

    /// Returns memory that was requested ahead of its use, if so many chunks are free by now that
    /// its use is far away. The caller holds the lock, so that no thread begins to use it
    /// meanwhile.
    fn give_prepared(&self, free: &mut Free) {
        let end = free.prepared_end;
        if end > free.unused && free.clean.len() >= PREPARED_NEEDLESS {
            free.prepared_end = ChunkId::ZERO;
            self.discard(free.unused, end);
        }
    }

    /// Returns the memory of all dirty chunks to the system. Returns the number of bytes.
    pub(crate) fn give_dirty(&self) -> u64 {
        let chunks = self.chunks();
        if chunks.dirty.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let surplus = chunks.surplus(&mut lock(&chunks.free), usize::MAX);
        let bytes = surplus.len() as u64 * CHUNK_BYTES as u64;
        self.clean_free(surplus);
        bytes
    }

    /// Cleans chunks that were removed from the dirty stack. No thread can take them while they are
    /// in neither stack, so no lock is held during the system calls.
    fn clean_free(&self, surplus: Vec<ChunkId>) {
        let cleaned = self.clean(surplus);
        lock(&self.chunks().free).clean.extend_from_slice(&cleaned);
    }

    /// Returns the memory of free chunks to the system, neighbours with one call.
    fn clean(&self, mut chunks: Vec<ChunkId>) -> Vec<ChunkId> {
        chunks.sort_unstable();
        for run in chunks.chunk_by(|before, after| before.0 + 1 == after.0) {
            if let [first, ..] = run {
                self.discard(*first, ChunkId::from_index(first.index() + run.len()));
            }
        }
        chunks
    }

    /// If 2 MiB begin with `chunk`, prepares the huge page after it, or has the 2 MiB before it,
    /// all handed out by now, moved to one. Returns the end of the memory that this prepares.
    fn before_first_use(&self, chunk: ChunkId) -> Option<ChunkId> {
        if !chunk.index().is_multiple_of(CHUNKS_PER_HUGE_PAGE) {
            return None;
        }
        let behind = ChunkId::from_index(chunk.index() + CHUNKS_PER_HUGE_PAGE);
        let end = ChunkId::from_index(behind.index() + CHUNKS_PER_HUGE_PAGE);
        let is_prepared = self.chunks().wants_huge(behind) && end.start() <= self.bytes();
        if is_prepared {
            self.prepare_huge(behind);
        }
        if let Some(before) = chunk.index().checked_sub(CHUNKS_PER_HUGE_PAGE) {
            let before = ChunkId::from_index(before);
            if self.chunks().becomes_huge(before) {
                self.make_huge(before);
            }
        }
        is_prepared.then_some(end)
    }
}

/// Locks `mutex`. A thread that panicked while it held the lock left the numbers inside consistent:
/// nothing between lock and unlock in this crate calls foreign code.
///
/// Memory passes from thread to thread through these locks. A reader of records takes none of them.
/// It may see what the new owner writes to a slot, and must then also see that the old owner
/// changed the bucket through which the reader came. So a fence orders the new owner's writes after
/// what it learned under this lock. It pairs with the reader's fence (see
/// [`crate::bucket::Bucket::word_after`]).
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let guard = mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    fence(Ordering::Release);
    guard
}

/// One [`ChunkInfo`] for each chunk, in memory that the system provides when it is touched.
#[derive(Debug)]
#[cfg(not(any(loom, shuttle)))]
struct Table {
    range: Reservation,
    count: usize,
}

#[cfg(not(any(loom, shuttle)))]
impl Table {
    fn new(count: usize) -> io::Result<Self> {
        let bytes = (count * size_of::<ChunkInfo>()).next_multiple_of(HUGE_PAGE_BYTES);
        Ok(Self {
            range: Reservation::new(bytes, bytes)?,
            count,
        })
    }

    #[inline]
    fn at(&self, index: usize) -> &ChunkInfo {
        assert!(index < self.count, "a chunk outside of the arena");
        // SAFETY: inside the range, which was made for `count` of them and is aligned to pages.
        // It starts as zeroes, which is a valid `ChunkInfo` (atomic integers only), and is only
        // ever accessed through this type.
        unsafe { self.range.base().cast::<ChunkInfo>().add(index).as_ref() }
    }
}

/// One [`ChunkInfo`] for each chunk.
#[derive(Debug)]
#[cfg(any(loom, shuttle))]
struct Table {
    infos: Box<[ChunkInfo]>,
}

#[cfg(any(loom, shuttle))]
impl Table {
    fn new(count: usize) -> io::Result<Self> {
        Ok(Self {
            infos: (0..count).map(|_| ChunkInfo::default()).collect(),
        })
    }

    fn at(&self, index: usize) -> &ChunkInfo {
        &self.infos[index]
    }
}
