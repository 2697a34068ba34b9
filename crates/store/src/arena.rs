//! The memory of all records: one range of words, cut into chunks of 64 KiB.
//!
//! ```text
//!   offset 0        64 KiB          128 KiB                          bytes
//!   ├───────────────┼───────────────┼───────────────┬─ … ─┬───────────┤ guard page
//!   │ never handed  │ chunk 1:      │ chunk 2:      │     │ never     │
//!   │ out: zeroes   │ slots of a    │ page of a     │     │ touched   │
//!   │               │ size class    │ large value   │     │ yet       │
//!   └───────────────┴───────────────┴───────────────┴─ … ─┴───────────┘
//! ```
//!
//! Readers look at records while writers change them, and at slots that were freed and used again
//! (they find out afterwards and try again). So this memory is read and written only as relaxed
//! atomic words, or by the block of assembly for bulk copies in [`crate::bulk`]. It is never
//! unmapped while the arena lives: a stale offset always names readable memory.
//!
//! Why 64 KiB chunks: a chunk is also the page of a large value, and the most memory of one size
//! class that a thread may strand. Small chunks become wholly empty sooner, so that their memory
//! can go to another class or back to the system. The 32 bytes of data kept per chunk are 0.05 % of
//! it.
//!
//! Chunk 0 is never handed out. So 0 can mean "no offset", and all large values with holes share
//! one page of zeroes.

use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
#[cfg(not(any(loom, shuttle)))]
use std::sync::atomic::AtomicU8;

use base::sync::atomic::AtomicU64;

use crate::bulk;
use crate::chunk::{ChunkId, Chunks};
use crate::cold::ColdPlace;
#[cfg(not(any(loom, shuttle)))]
use crate::reservation::{HUGE_PAGE_BYTES, Reservation, machine_memory_bytes};

/// Bytes of a chunk.
#[cfg(not(any(loom, shuttle)))]
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// Bytes of a chunk under a model checker, which counts every word.
#[cfg(any(loom, shuttle))]
pub(crate) const CHUNK_BYTES: usize = 64;

/// Bytes of a word.
pub(crate) const WORD_BYTES: usize = 8;

/// Reserved address space as a multiple of the machine's memory. It is more than one, because
/// chunks that were given back leave holes and because memory may be added to a running machine.
#[cfg(not(any(loom, shuttle)))]
const RESERVED_PER_MEMORY: usize = 4;

/// Maximum reservation: offsets have 48 bits in an index entry, and a process has 47 bits of
/// address space.
#[cfg(not(any(loom, shuttle)))]
const RESERVED_BYTES_MAX: usize = 1 << 45;

/// Minimum reservation; with less the store does not start.
#[cfg(not(any(loom, shuttle)))]
const RESERVED_BYTES_MIN: usize = if cfg!(miri) { 4 << 20 } else { 64 << 20 };

/// Place of a slot: bytes from the arena's start, a multiple of 16, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Offset(NonZeroU64);

impl Offset {
    /// Alignment of every offset.
    pub(crate) const ALIGNMENT_BYTES: u64 = 16;

    /// Returns the offset `bytes` from the start, or `None` if that is 0 or not a multiple of 16.
    #[inline]
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        if bytes.is_multiple_of(Self::ALIGNMENT_BYTES) {
            NonZeroU64::new(bytes).map(Self)
        } else {
            None
        }
    }

    /// Bytes from the arena's start.
    #[inline]
    pub(crate) fn bytes(self) -> u64 {
        self.0.get()
    }

    /// The offset as a `usize` distance in memory.
    #[inline]
    fn distance(self) -> usize {
        distance(self.0.get())
    }
}

/// Returns a distance in the arena as `usize`.
#[inline]
pub(crate) fn distance(bytes: u64) -> usize {
    const { assert!(usize::BITS == 64, "offsets are distances of 64 bits") };
    #[expect(clippy::cast_possible_truncation, reason = "64 bits, asserted above")]
    let distance = bytes as usize;
    distance
}

/// When to request huge pages (2 MiB) from the system.
///
/// They save a third of the time of a random access to a large store, but all 2 MiB are held from
/// the first touched byte on. A small store would notice that, so its memory moves to huge pages
/// only once it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Never.
    Never,
    /// Before its first use, for memory after this many bytes.
    After {
        /// Bytes in use before that.
        bytes: u64,
    },
}

impl Default for HugePages {
    /// After 64 MiB: the overhead of rounding up is then below 4 %.
    fn default() -> Self {
        Self::After { bytes: 64 << 20 }
    }
}

/// The memory of all records.
#[derive(Debug)]
pub(crate) struct Arena {
    words: Words,
    chunks: Chunks,
    /// The store of cold values, which records only name.
    cold: ColdPlace,
}

impl Arena {
    /// Reserves an arena that suits the machine; touches no memory.
    ///
    /// # Errors
    /// If not even 64 MiB of address space are available.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn new(huge_pages: HugePages) -> io::Result<Self> {
        let wanted_bytes = machine_memory_bytes()
            .saturating_mul(RESERVED_PER_MEMORY)
            .clamp(RESERVED_BYTES_MIN, RESERVED_BYTES_MAX)
            .next_multiple_of(HUGE_PAGE_BYTES);
        Self::with_reserve(wanted_bytes, RESERVED_BYTES_MIN, huge_pages)
    }

    /// Reserves an arena of `wanted_bytes`, or of a fraction that is at least `bytes_min`
    /// (multiples of 2 MiB).
    ///
    /// # Errors
    /// If the address space cannot be reserved.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn with_reserve(
        wanted_bytes: usize,
        bytes_min: usize,
        huge_pages: HugePages,
    ) -> io::Result<Self> {
        let range = Reservation::new(wanted_bytes, bytes_min)?;
        let chunks = Chunks::new(range.bytes() / CHUNK_BYTES, huge_pages)?;
        Ok(Self {
            words: Words { range },
            chunks,
            cold: ColdPlace::default(),
        })
    }

    /// Returns an arena of `count` chunks for a model checker.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn with_chunks(count: usize) -> io::Result<Self> {
        let words = count * CHUNK_BYTES / WORD_BYTES;
        Ok(Self {
            words: Words {
                words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            },
            chunks: Chunks::new(count, HugePages::Never)?,
            cold: ColdPlace::default(),
        })
    }

    /// The store of cold values, which records only name.
    #[inline]
    pub(crate) fn cold(&self) -> &ColdPlace {
        &self.cold
    }

    /// Reserved bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.words.bytes()
    }

    /// The state of each chunk, and the free chunks.
    #[inline]
    pub(crate) fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// Returns the word `index` words after `offset`.
    ///
    /// # Panics
    /// If the word is outside the arena. The caller should clamp `index`, because it may come from
    /// a slot that changes at the same time.
    #[inline]
    pub(crate) fn word(&self, offset: Offset, index: usize) -> &AtomicU64 {
        self.words
            .at((offset.distance() / WORD_BYTES).saturating_add(index))
    }

    /// Returns the first word of a slot. The arena may not have such a slot.
    ///
    /// # Panics
    /// As [`Arena::word`].
    #[inline]
    pub(crate) fn first_word(&self, offset: Offset) -> &AtomicU64 {
        assert!(
            offset.distance() < self.bytes(),
            "a slot outside of the arena"
        );
        // SAFETY: inside, because a distance that is a multiple of a word and below another such
        // distance is.
        #[cfg(not(any(loom, shuttle)))]
        return unsafe { self.words.at_unchecked(offset.distance() / WORD_BYTES) };
        #[cfg(any(loom, shuttle))]
        self.words.at(offset.distance() / WORD_BYTES)
    }

    /// Prefetches the cache line at `offset`.
    #[inline]
    pub(crate) fn prefetch(&self, offset: Offset) {
        self.prefetch_behind(offset, 0);
    }

    /// Prefetches the cache line `bytes_behind` bytes after an offset.
    #[inline]
    pub(crate) fn prefetch_behind(&self, offset: Offset, bytes_behind: usize) {
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
        {
            let address = self
                .words
                .range
                .base()
                .as_ptr()
                .wrapping_add(offset.distance() + bytes_behind);
            // SAFETY: a prefetch affects nothing but caches, whatever the address.
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                    address.cast(),
                );
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
        let _ = (offset, bytes_behind);
    }

    /// Copies `data` to `byte_at` bytes after `offset`. Readers may look meanwhile and see any mix
    /// of old and new words; other writers must be excluded.
    ///
    /// # Panics
    /// If the range does not lie in the arena.
    #[inline]
    pub(crate) fn copy_in(&self, offset: Offset, byte_at: usize, data: &[u8]) {
        let range = self.range(offset.distance(), byte_at, data.len());
        self.words.copy_in(range, data);
    }

    /// Copies the bytes at `byte_at` bytes after `offset` to `out`. Writers may change them
    /// meanwhile: the caller may believe the copy only after it has found that none did.
    ///
    /// # Panics
    /// If the range does not lie in the arena.
    #[inline(always)]
    pub(crate) fn copy_out(&self, offset: Offset, byte_at: usize, out: &mut [u8]) {
        let range = self.range(offset.distance(), byte_at, out.len());
        self.words.copy_out(range, out);
    }

    /// Sets `len` bytes to zero, from `byte_at` bytes after `offset` on. As [`Arena::copy_in`].
    ///
    /// # Panics
    /// If the range does not lie in the arena.
    pub(crate) fn zero(&self, offset: Offset, byte_at: usize, len: usize) {
        const ZEROES: [u8; 512] = [0; 512];
        let mut at = byte_at;
        let mut left = len;
        while left > 0 {
            let piece = left.min(ZEROES.len());
            self.copy_in(offset, at, &ZEROES[..piece]);
            at += piece;
            left -= piece;
        }
    }

    /// Whether the bytes at `byte_at` bytes after `offset` equal `data`. As [`Arena::copy_out`].
    ///
    /// # Panics
    /// If the range does not lie in the arena.
    #[inline]
    pub(crate) fn matches(&self, offset: Offset, byte_at: usize, data: &[u8]) -> bool {
        let range = self.range(offset.distance(), byte_at, data.len());
        self.words.matches(range, data)
    }

    /// As [`Arena::matches`], for a record that is known to end inside the arena.
    ///
    /// # Safety
    /// The range lies in the arena.
    #[inline(always)]
    pub(crate) unsafe fn matches_inside(
        &self,
        offset: Offset,
        byte_at: usize,
        data: &[u8],
    ) -> bool {
        let start = offset.distance() + byte_at;
        debug_assert!(start + data.len() <= self.bytes());
        self.words.matches(start..start + data.len(), data)
    }

    /// Returns the bytes of `range`, counted from `offset`, without a copy.
    ///
    /// There is no mutable counterpart: a reader that came through an older entry of the index may
    /// look at any time, so changes go through [`Arena::copy_in`] or [`Arena::word`].
    ///
    /// # Safety
    /// No thread writes to the range while the slice lives: the caller holds the lock of the bucket
    /// that owns the slot, or a reference to the page.
    ///
    /// # Panics
    /// If the range does not lie in the arena.
    #[cfg(not(any(loom, shuttle)))]
    #[inline]
    pub(crate) unsafe fn bytes_under_lock(&self, offset: Offset, range: Range<usize>) -> &[u8] {
        // SAFETY: passed on to the caller.
        unsafe { self.bytes_at(offset.distance(), range) }
    }

    /// Returns the bytes of `range`, counted from the start of a chunk. See
    /// [`Arena::bytes_under_lock`].
    ///
    /// # Safety
    /// As [`Arena::bytes_under_lock`]; no thread ever writes to chunk 0.
    #[cfg(not(any(loom, shuttle)))]
    #[inline]
    pub(crate) unsafe fn chunk_bytes(&self, chunk: ChunkId, range: Range<usize>) -> &[u8] {
        // SAFETY: passed on to the caller.
        unsafe { self.bytes_at(chunk.start(), range) }
    }

    /// Returns nothing: under a model checker values have no pages.
    ///
    /// # Safety
    /// No requirement; the signature is that of the real function.
    #[cfg(any(loom, shuttle))]
    pub(crate) unsafe fn chunk_bytes(&self, _chunk: ChunkId, _range: Range<usize>) -> &[u8] {
        &[]
    }

    /// Returns the bytes of `range`, counted from the start of a chunk, for its owner to write.
    ///
    /// # Safety
    /// Only the caller has a reference to the page, and holds no slice of it.
    ///
    /// # Panics
    /// If the range does not lie in the arena.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) unsafe fn chunk_room(&self, chunk: ChunkId, range: Range<usize>) -> &[AtomicU8] {
        let len = range.end.saturating_sub(range.start);
        let range = self.range(chunk.start(), range.start, len);
        // SAFETY: the range lies in the mapping (checked above), which is writable, lives as long
        // as `self` and whose bytes all have a value; an atomic byte has the layout of a byte. Only
        // late readers look at it; they read words atomically and drop what they saw.
        unsafe {
            let first = self.words.range.base().as_ptr().add(range.start);
            std::slice::from_raw_parts(first.cast::<AtomicU8>(), range.len())
        }
    }

    /// Returns nothing: under a model checker values have no pages.
    ///
    /// # Safety
    /// No requirement; the signature is that of the real function.
    #[cfg(any(loom, shuttle))]
    pub(crate) unsafe fn chunk_room(
        &self,
        _chunk: ChunkId,
        _range: Range<usize>,
    ) -> &[std::sync::atomic::AtomicU8] {
        &[]
    }

    /// # Safety
    /// As [`Arena::bytes_under_lock`].
    #[cfg(not(any(loom, shuttle)))]
    #[inline]
    unsafe fn bytes_at(&self, start: usize, range: Range<usize>) -> &[u8] {
        let len = range.end.checked_sub(range.start);
        let range = self.range(
            start,
            range.start,
            len.expect("a range that ends before it starts"),
        );
        // SAFETY: the range lies in the mapping (checked above), which lives as long as `self` and
        // whose bytes all have a value (the system's zeroes if no thread wrote). The caller vouches
        // that no thread writes; other threads may read words of it atomically, which is no
        // conflict.
        unsafe {
            let first = self.words.range.base().as_ptr().add(range.start);
            std::slice::from_raw_parts(first, range.len())
        }
    }

    /// Returns the memory of chunks `first..end` to the system; they read as zero from now on.
    pub(crate) fn discard(&self, first: ChunkId, end: ChunkId) {
        #[cfg(not(any(loom, shuttle)))]
        self.words.range.discard(first.start()..end.start());
        #[cfg(any(loom, shuttle))]
        let _ = (first, end);
    }

    /// Requests a huge page for the 2 MiB that begin with chunk `first`, and that its memory be
    /// there soon.
    pub(crate) fn prepare_huge(&self, first: ChunkId) {
        #[cfg(not(any(loom, shuttle)))]
        {
            let end = first.start() + HUGE_PAGE_BYTES;
            if end <= self.bytes() {
                self.words.range.prepare_huge(first.start()..end);
            }
        }
        #[cfg(any(loom, shuttle))]
        let _ = first;
    }

    /// Requests that the 2 MiB that begin with chunk `first` move to a huge page soon.
    pub(crate) fn make_huge(&self, first: ChunkId) {
        #[cfg(not(any(loom, shuttle)))]
        {
            let end = first.start() + HUGE_PAGE_BYTES;
            if end <= self.bytes() {
                self.words.range.make_huge(first.start()..end);
            }
        }
        #[cfg(any(loom, shuttle))]
        let _ = first;
    }

    /// Returns the range of `len` bytes from `start + byte_at` on, which must lie in the arena.
    #[inline]
    fn range(&self, start: usize, byte_at: usize, len: usize) -> Range<usize> {
        // A saturated sum ends outside: no arena is that large.
        let start = start.saturating_add(byte_at);
        let end = start.saturating_add(len);
        assert!(end <= self.bytes(), "a range outside of the arena");
        start..end
    }
}

/// The words of the arena.
#[derive(Debug)]
#[cfg(not(any(loom, shuttle)))]
struct Words {
    range: Reservation,
}

#[cfg(not(any(loom, shuttle)))]
impl Words {
    #[inline]
    fn bytes(&self) -> usize {
        self.range.bytes()
    }

    #[inline]
    fn at(&self, index: usize) -> &AtomicU64 {
        assert!(
            index < self.range.bytes() / WORD_BYTES,
            "a word outside of the arena"
        );
        // SAFETY: inside the mapping (asserted), aligned because the base is and the distance is a
        // multiple of eight, and never accessed other than atomically while a thread may write (see
        // the module's comment).
        unsafe { self.range.base().cast::<AtomicU64>().add(index).as_ref() }
    }

    /// [`Words::at`] without its check.
    ///
    /// # Safety
    /// `index` is below the number of words.
    #[inline]
    unsafe fn at_unchecked(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < self.range.bytes() / WORD_BYTES);
        // SAFETY: the caller vouches that this is inside the mapping; otherwise as in `at`.
        unsafe { self.range.base().cast::<AtomicU64>().add(index).as_ref() }
    }

    #[inline]
    fn copy_in(&self, range: Range<usize>, data: &[u8]) {
        debug_assert_eq!(range.len(), data.len());
        if bulk::is_bulk(data.len()) {
            // SAFETY: `Arena::range` checked that the range lies in the mapping; the module's
            // comment names all other accesses.
            unsafe {
                let target = self.range.base().as_ptr().add(range.start);
                bulk::copy(data.as_ptr(), target, data.len());
            }
        } else {
            // SAFETY: words that the checked range touches are in the mapping.
            bulk::store_bytes(
                |index| unsafe { self.at_unchecked(index) },
                range.start,
                data,
            );
        }
    }

    #[inline(always)]
    fn copy_out(&self, range: Range<usize>, out: &mut [u8]) {
        debug_assert_eq!(range.len(), out.len());
        if bulk::is_bulk(out.len()) {
            // SAFETY: as in `copy_in`, with the direction reversed.
            unsafe {
                let source = self.range.base().as_ptr().add(range.start);
                bulk::copy(source, out.as_mut_ptr(), out.len());
            }
        } else {
            // SAFETY: words that the checked range touches are in the mapping.
            bulk::load_bytes(
                |index| unsafe { self.at_unchecked(index) },
                range.start,
                out,
            );
        }
    }

    #[inline]
    fn matches(&self, range: Range<usize>, data: &[u8]) -> bool {
        debug_assert_eq!(range.len(), data.len());
        // SAFETY: words that the checked range touches are in the mapping.
        bulk::matches(
            |index| unsafe { self.at_unchecked(index) },
            range.start,
            data,
        )
    }
}

/// The words of the arena, under a model checker.
#[derive(Debug)]
#[cfg(any(loom, shuttle))]
struct Words {
    words: Box<[AtomicU64]>,
}

#[cfg(any(loom, shuttle))]
impl Words {
    fn bytes(&self) -> usize {
        self.words.len() * WORD_BYTES
    }

    fn at(&self, index: usize) -> &AtomicU64 {
        &self.words[index]
    }

    fn copy_in(&self, range: Range<usize>, data: &[u8]) {
        bulk::store_bytes(|index| self.at(index), range.start, data);
    }

    fn copy_out(&self, range: Range<usize>, out: &mut [u8]) {
        bulk::load_bytes(|index| self.at(index), range.start, out);
    }

    fn matches(&self, range: Range<usize>, data: &[u8]) -> bool {
        bulk::matches(|index| self.at(index), range.start, data)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
