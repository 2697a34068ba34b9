//! Values above 16 KiB: pages of 64 KiB that are shared until written, and a shorter tail.
//!
//! ```text
//!   record ─ pointer word ─► Body ─ pages ─► chunk 7 (1 reference)   chunk 0   chunk 9 (2)
//!   reader ─ BlobRef ───────►  │                                     = zeroes    ▲
//!                              └─ tail: the last len % 64 KiB bytes              │
//!   older reader ─ BlobRef ─► Body as it was ─ pages ────────────────────────────┘
//! ```
//!
//! A [`BlobRef`] pins the value as it is: it can be sent to a client without a copy after the
//! record's lock was released. A later writer then gets a body of its own, which shares all pages,
//! and copies only the pages that it changes. Without a pin a write changes the page in place.
//!
//! Pages of zeroes that were never written cost nothing: they are all chunk 0. The tail is ordinary
//! memory. It has exactly its length if the value was written at once, and a sixteenth of the
//! value's length to spare if it was appended to. So a value costs at most 6 % more than its bytes.
//!
//! Invariants
//!  1. `len = pages × 64 KiB + tail`, and the tail is shorter than a page.
//!  2. A page's chunk counts the bodies that name it. It is written only through a `&mut Body`
//!     while that count is 1; chunk 0 is never written.
//!  3. Pages are written by the arena's atomic copies: readers of records may still look at a chunk
//!     through an offset from the time when it held slots.

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;

use base::shared_bytes::SharedBytes;
use base::sync::atomic::Ordering;
use base::sync::fence;

use crate::arena::CHUNK_BYTES;
use crate::chunk::ChunkId;
use crate::lazy_free::LazyFree;
use crate::slab::{OutOfMemory, STATE_PAGE, Slab};

/// Bytes of a page.
#[cfg(not(any(loom, shuttle)))]
const PAGE_BYTES: usize = CHUNK_BYTES;
/// Model checkers keep the whole value in the tail, because their arena has no plain bytes.
#[cfg(any(loom, shuttle))]
const PAGE_BYTES: usize = 1 << 40;

/// A growing tail gets this part (1/16) of the value's length to spare.
const SPARE_PART: usize = 16;

/// When a value shrinks, a tail with more spare bytes than this is reallocated to fit.
const SPARE_BYTES_MAX: usize = 4 << 10;

/// A value with fewer pages is freed at once (4 MiB: a few microseconds, some tens if the memory
/// goes back to the system).
const LAZY_PAGES_MIN: usize = 64;

/// Number of chunks given back under one lock.
const FREE_SLICE: usize = 256;

/// A long value, owned by one record.
#[derive(Clone, Debug)]
pub(crate) struct Blob {
    body: Arc<Body>,
}

impl Blob {
    /// Creates a blob with a copy of `data`.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is not enough memory for it.
    pub(crate) fn from_bytes(slab: &Arc<Slab>, data: &[u8]) -> Result<Self, OutOfMemory> {
        let mut body = Body::new(slab);
        let (whole, tail) = data.split_at(data.len() - data.len() % PAGE_BYTES);
        reserve_exact(&mut body.pages, whole.len() / PAGE_BYTES)?;
        for page in whole.chunks_exact(PAGE_BYTES) {
            let chunk = body.take_page()?;
            body.pages.push(chunk);
            body.copy_to_page(chunk, 0, page);
        }
        reserve_exact(&mut body.tail, tail.len())?;
        body.tail.extend_from_slice(tail);
        body.account();
        Ok(Self {
            body: Arc::new(body),
        })
    }

    /// Length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.body.len()
    }

    /// Bytes of memory that the blob takes. Pages shared with pins or copies count in full. One
    /// step per page.
    pub(crate) fn memory_bytes(&self) -> usize {
        let pages = self.body.pages.iter().filter(|page| !page.is_zero());
        pages.count() * PAGE_BYTES + self.body.own_bytes()
    }

    /// Returns the bytes of `range` (clamped to the value) in order, in pieces. All pieces but the
    /// first start at a multiple of 64 KiB.
    pub(crate) fn chunks(&self, range: Range<usize>) -> Pieces<'_> {
        self.body.pieces(range)
    }

    /// Copies bytes from `start` on into `out`, up to the end of `out` or of the value. Returns
    /// their number.
    pub(crate) fn copy_to(&self, start: usize, out: &mut [u8]) -> usize {
        self.body.copy_to(start, out)
    }

    /// Pins `range` (clamped to the value) as it is now, whatever happens to the record. One locked
    /// instruction.
    pub(crate) fn pin(&self, range: Range<usize>) -> BlobRef {
        let end = range.end.min(self.len());
        BlobRef {
            body: Arc::clone(&self.body),
            range: range.start.min(end)..end,
        }
    }

    /// Overwrites the value from `start` on; fills up to there with zeroes if the value is shorter.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is not enough memory; the value is unchanged.
    pub(crate) fn write_at(&mut self, start: usize, data: &[u8]) -> Result<(), OutOfMemory> {
        let end = start.checked_add(data.len()).ok_or(OutOfMemory)?;
        let body = Arc::make_mut(&mut self.body);
        let len = body.len();
        let written = body
            .grow(end)
            .and_then(|()| body.own_pages(start..end))
            .map(|()| body.overwrite(start, data));
        if written.is_err() && len < body.len() {
            body.truncate(len);
        }
        body.account();
        written
    }

    /// Appends `data` at the end.
    ///
    /// # Errors
    /// As [`Blob::write_at`].
    #[cfg_attr(
        not(test),
        allow(dead_code, reason = "strings are changed through write_at so far")
    )]
    pub(crate) fn append(&mut self, data: &[u8]) -> Result<(), OutOfMemory> {
        self.write_at(self.len(), data)
    }

    /// Shortens the value to `len` bytes, if it is longer.
    #[cfg_attr(
        not(test),
        allow(dead_code, reason = "strings are changed through write_at so far")
    )]
    pub(crate) fn truncate(&mut self, len: usize) {
        let body = Arc::make_mut(&mut self.body);
        body.truncate(len);
        body.account();
    }

    /// Sets the value's length to `len` bytes, with zeroes at the end if it was shorter.
    ///
    /// # Errors
    /// As [`Blob::write_at`].
    #[cfg_attr(
        not(test),
        allow(dead_code, reason = "strings are changed through write_at so far")
    )]
    pub(crate) fn resize(&mut self, len: usize) -> Result<(), OutOfMemory> {
        let body = Arc::make_mut(&mut self.body);
        body.truncate(len);
        let grown = body.grow(len);
        body.account();
        grown
    }

    /// Drops the value; on `lazy`'s thread if that takes long and there is no other reference.
    pub(crate) fn free(self, lazy: &LazyFree) {
        if self.body.pages.len() >= LAZY_PAGES_MIN && Arc::strong_count(&self.body) == 1 {
            lazy.submit(1, Box::new(self));
        }
    }

    /// Turns the blob into a word for a record. Only [`Blob::from_raw`] frees it.
    pub(crate) fn into_raw(self) -> u64 {
        Arc::into_raw(self.body).expose_provenance() as u64
    }

    /// Returns the blob that [`Blob::into_raw`] turned into `word`.
    ///
    /// # Safety
    /// `word` came from there, and is taken back only once.
    pub(crate) unsafe fn from_raw(word: u64) -> Self {
        let pointer = std::ptr::with_exposed_provenance(crate::arena::distance(word));
        // SAFETY: `into_raw` made the word of such a pointer, and the caller vouches that this is
        // the only time it is taken back.
        let body = unsafe { Arc::from_raw(pointer) };
        Self { body }
    }

    /// Returns the blob in `word` for a look; it stays in its record.
    ///
    /// # Safety
    /// `word` came from [`Blob::into_raw`]; the record is locked during the look, and the result is
    /// neither changed nor dropped.
    pub(crate) unsafe fn look(word: u64) -> ManuallyDrop<Self> {
        // SAFETY: passed on to the caller; the result is not dropped, so the record's reference
        // stays valid.
        ManuallyDrop::new(unsafe { Self::from_raw(word) })
    }

    /// Changes the blob in `word`, and `word` with it (the body moves if the old one is pinned).
    ///
    /// # Safety
    /// `word` came from [`Blob::into_raw`]; the record is locked, and no code uses the old word
    /// again.
    pub(crate) unsafe fn change<R>(word: &mut u64, change: impl FnOnce(&mut Self) -> R) -> R {
        /// Puts the word back even if `change` panics.
        struct WriteBack<'a> {
            blob: ManuallyDrop<Blob>,
            word: &'a mut u64,
        }
        impl Drop for WriteBack<'_> {
            fn drop(&mut self) {
                *self.word = Arc::as_ptr(&self.blob.body).expose_provenance() as u64;
            }
        }
        // SAFETY: passed on to the caller; the blob goes back into the word and is not dropped.
        let blob = ManuallyDrop::new(unsafe { Self::from_raw(*word) });
        let mut held = WriteBack { blob, word };
        change(&mut held.blob)
    }
}

/// Part of a long value as it was when pinned. Clones share the pin.
#[derive(Clone, Debug)]
pub struct BlobRef {
    body: Arc<Body>,
    range: Range<usize>,
}

impl BlobRef {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether the pinned part has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns the bytes in order, in pieces of at most 64 KiB.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.body.pieces(self.range.clone())
    }

    /// Returns the piece `at` bytes after the start; empty at the end. For a caller that sends in
    /// parts.
    #[must_use]
    pub fn chunk_at(&self, at: usize) -> &[u8] {
        let start = self.range.start.saturating_add(at);
        self.body
            .pieces(start..self.range.end)
            .next()
            .unwrap_or_default()
    }

    /// Returns a part of it; `range` is clamped to its length.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let end = range.end.min(self.len());
        let start = range.start.min(end);
        Self {
            body: Arc::clone(&self.body),
            range: self.range.start + start..self.range.start + end,
        }
    }

    /// Returns a copy in ordinary memory.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.chunks()
            .for_each(|piece| bytes.extend_from_slice(piece));
        bytes
    }
}

impl SharedBytes for BlobRef {
    fn len(&self) -> usize {
        self.len()
    }

    fn piece_at(&self, at: usize) -> &[u8] {
        self.chunk_at(at)
    }
}

/// Pages and tail.
#[derive(Debug)]
struct Body {
    slab: Arc<Slab>,
    pages: Vec<ChunkId>,
    tail: Vec<u8>,
    /// Bytes that the ledger has counted for this body, without its pages.
    accounted: i64,
}

impl Body {
    fn new(slab: &Arc<Slab>) -> Self {
        Self {
            slab: Arc::clone(slab),
            pages: Vec::new(),
            tail: Vec::new(),
            accounted: 0,
        }
    }

    fn len(&self) -> usize {
        self.pages.len() * PAGE_BYTES + self.tail.len()
    }

    fn own_bytes(&self) -> usize {
        size_of::<Self>() + self.tail.capacity() + self.pages.capacity() * size_of::<ChunkId>()
    }

    /// Reports changes to the ledger, except those of pages.
    fn account(&mut self) {
        let own = i64::try_from(self.own_bytes()).unwrap_or(i64::MAX);
        if own != self.accounted {
            self.slab.ledger().add(own - self.accounted);
            self.accounted = own;
        }
    }

    /// Returns the bytes from `at` to the end of its page, or of the tail; none at the end of the
    /// value.
    fn piece_at(&self, at: usize) -> &[u8] {
        match self.pages.get(at / PAGE_BYTES) {
            // SAFETY: this body has a reference to the page, so other bodies do not write to it
            // (invariant 2), and no code writes through this one while it is borrowed.
            Some(&page) => unsafe {
                let arena = self.slab.arena();
                arena.chunk_bytes(page, at % PAGE_BYTES..PAGE_BYTES)
            },
            None => {
                let start = at - self.pages.len() * PAGE_BYTES;
                self.tail.get(start..).unwrap_or_default()
            }
        }
    }

    fn pieces(&self, range: Range<usize>) -> Pieces<'_> {
        Pieces {
            body: self,
            at: range.start,
            end: range.end.min(self.len()),
        }
    }

    fn copy_to(&self, start: usize, out: &mut [u8]) -> usize {
        let mut copied = 0;
        for piece in self.pieces(start..start.saturating_add(out.len())) {
            out[copied..copied + piece.len()].copy_from_slice(piece);
            copied += piece.len();
        }
        copied
    }

    /// Extends the value with zeroes up to `len`. Holes become the page of zeroes.
    fn grow(&mut self, len: usize) -> Result<(), OutOfMemory> {
        if len <= self.len() {
            return Ok(());
        }
        let pages = len / PAGE_BYTES;
        if pages > self.pages.len() {
            let more = pages - self.pages.len();
            reserve_exact(&mut self.pages, more)?;
            self.tail_to_page()?;
            self.pages.resize(pages, ChunkId::ZERO);
        }
        self.grow_tail(len % PAGE_BYTES)
    }

    /// Turns the tail, if there is one, into a whole page.
    fn tail_to_page(&mut self) -> Result<(), OutOfMemory> {
        if self.tail.is_empty() {
            return Ok(());
        }
        let page = self.take_page()?;
        self.copy_to_page(page, 0, &self.tail);
        if let Some(first) = page.offset(0) {
            let used = self.tail.len();
            self.slab.arena().zero(first, used, PAGE_BYTES - used);
        }
        self.pages.push(page);
        self.tail = Vec::new();
        Ok(())
    }

    fn grow_tail(&mut self, len: usize) -> Result<(), OutOfMemory> {
        if len > self.tail.capacity() {
            // The first tail of a value gets no spare bytes; one that grows is likely to grow
            // again.
            let spare = if self.tail.is_empty() {
                0
            } else {
                (self.pages.len() * PAGE_BYTES + len) / SPARE_PART
            };
            let capacity = (len + spare).min(PAGE_BYTES);
            let more = capacity - self.tail.len();
            reserve_exact(&mut self.tail, more)?;
        }
        self.tail.resize(len, 0);
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        if len >= self.len() {
            return;
        }
        let pages = len / PAGE_BYTES;
        if pages < self.pages.len() {
            let tail = self.piece_at(pages * PAGE_BYTES)[..len % PAGE_BYTES].to_vec();
            self.tail = tail;
            let dropped = self.pages.split_off(pages);
            self.release(&dropped);
            self.pages.shrink_to_fit();
        } else {
            self.tail.truncate(len % PAGE_BYTES);
            if self.tail.capacity() - self.tail.len() > SPARE_BYTES_MAX {
                self.tail.shrink_to_fit();
            }
        }
    }

    /// Makes the pages that `range` touches writable. Content outside of the range is kept; content
    /// inside it may become anything.
    fn own_pages(&mut self, range: Range<usize>) -> Result<(), OutOfMemory> {
        let end = range.end.div_ceil(PAGE_BYTES).min(self.pages.len());
        // Two rounds: no page that will be overwritten may lose content while another page may
        // still be refused.
        let mut fresh = Vec::new();
        for index in range.start / PAGE_BYTES..end {
            if !self.may_write(self.pages[index]) {
                match self.take_page() {
                    Ok(page) => fresh.push((index, page)),
                    Err(refused) => {
                        let taken: Vec<ChunkId> = fresh.iter().map(|&(_, page)| page).collect();
                        self.release(&taken);
                        return Err(refused);
                    }
                }
            }
        }
        for (index, page) in fresh {
            let start = index * PAGE_BYTES;
            let covered = range.start <= start && start + PAGE_BYTES <= range.end;
            if !covered {
                self.copy_to_page(page, 0, self.piece_at(start));
            }
            let shared = std::mem::replace(&mut self.pages[index], page);
            self.release(&[shared]);
        }
        Ok(())
    }

    /// Writes to a range whose pages [`Body::own_pages`] made writable.
    fn overwrite(&mut self, start: usize, data: &[u8]) {
        let mut at = start;
        let mut rest = data;
        while !rest.is_empty() {
            let within = at % PAGE_BYTES;
            let Some(&page) = self.pages.get(at / PAGE_BYTES) else {
                self.tail[within..within + rest.len()].copy_from_slice(rest);
                return;
            };
            let (now, later) = rest.split_at(rest.len().min(PAGE_BYTES - within));
            self.copy_to_page(page, within, now);
            at += now.len();
            rest = later;
        }
    }

    /// Whether this body alone names `page`.
    fn may_write(&self, page: ChunkId) -> bool {
        // Acquire pairs with the release in `release`: the body that let go has done its last read.
        !page.is_zero() && self.info(page).count.load(Ordering::Acquire) == 1
    }

    /// Takes a page with one reference; its content may be anything.
    fn take_page(&self) -> Result<ChunkId, OutOfMemory> {
        let page = self.slab.arena().take_chunk()?;
        let info = self.info(page);
        info.count.store(1, Ordering::Relaxed);
        info.state.store(STATE_PAGE, Ordering::Relaxed);
        self.slab.ledger().add(CHUNK_BYTES_SIGNED);
        Ok(page)
    }

    /// Copies `data` to `at` in a page that this body may write.
    fn copy_to_page(&self, page: ChunkId, at: usize, data: &[u8]) {
        if let Some(first) = page.offset(0) {
            self.slab.arena().copy_in(first, at, data);
        }
    }

    /// Releases pages; those without a reference go back to the arena.
    fn release(&self, pages: &[ChunkId]) {
        for slice in pages.chunks(FREE_SLICE) {
            let unused: Vec<ChunkId> = slice
                .iter()
                .copied()
                .filter(|&page| self.let_go(page))
                .collect();
            if !unused.is_empty() {
                let count = i64::try_from(unused.len()).unwrap_or(0);
                self.slab.ledger().add(-count * CHUNK_BYTES_SIGNED);
                self.slab.arena().give_chunks(&unused, usize::MAX);
            }
        }
    }

    /// Drops one reference to `page`. Returns whether it was the last.
    fn let_go(&self, page: ChunkId) -> bool {
        if page.is_zero() {
            return false;
        }
        let info = self.info(page);
        if info.count.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        fence(Ordering::Acquire);
        info.state.store(0, Ordering::Relaxed);
        true
    }

    fn info(&self, page: ChunkId) -> &crate::chunk::ChunkInfo {
        self.slab.arena().chunks().info(page)
    }
}

/// [`CHUNK_BYTES`] for the ledger.
const CHUNK_BYTES_SIGNED: i64 = {
    #[expect(clippy::cast_possible_wrap, reason = "64 KiB")]
    let bytes = CHUNK_BYTES as i64;
    bytes
};

impl Clone for Body {
    /// Shares the pages, copies the tail.
    fn clone(&self) -> Self {
        for &page in self.pages.iter().filter(|page| !page.is_zero()) {
            self.info(page).count.fetch_add(1, Ordering::Relaxed);
        }
        let mut body = Self {
            slab: Arc::clone(&self.slab),
            pages: self.pages.clone(),
            tail: self.tail.clone(),
            accounted: 0,
        };
        body.account();
        body
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.release(&self.pages);
        self.slab.ledger().add(-self.accounted);
    }
}

/// The pieces of a part of a value.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    body: &'a Body,
    at: usize,
    end: usize,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.at >= self.end {
            return None;
        }
        let piece = self.body.piece_at(self.at);
        let piece = &piece[..piece.len().min(self.end - self.at)];
        self.at += piece.len();
        Some(piece)
    }
}

/// Reserves capacity for exactly `additional` more elements, or returns an error instead of
/// aborting the process.
fn reserve_exact<T>(items: &mut Vec<T>, additional: usize) -> Result<(), OutOfMemory> {
    items
        .try_reserve_exact(additional)
        .map_err(|_refused| OutOfMemory)
}

mod incoming;

pub use incoming::{INCOMING_BYTES_MIN, Incoming};

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
