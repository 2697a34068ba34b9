//! The end of the log in memory: a row of chunks, addressed by sequence.
//!
//! ```text
//!     durable        written            complete        tail
//!        │              │                  │              │
//!   ─────▼──────┬───────▼──────┬───────────▼──┬───────────▼──┐
//!     chunk 7   │   chunk 8    │   chunk 9    │   chunk 10   │   …
//!   ────────────┴──────────────┴──────────────┴──────────────┘
//! ```
//!
//! A chunk is taken when the first frame reaches it, and is free again when everything in it is
//! durable: until then a segment may fail, and its frames are written again from here.
//!
//! If there is a [`Ring`], its chunks are used in turn while the next one is free. Other chunks are
//! taken when the device is late, or a frame is longer than the ring. A free chunk of the ring
//! keeps its frames until it is taken again: [`Memory::copy`] returns those that are still there,
//! and reports when they are not.
//!
//! A frame may lie in several chunks. Words are relaxed atomics, so nothing here is unsafe; a
//! reader of a word knows by [`super::place`] that it was written. Words hold bytes in the order of
//! the frame on every machine, because files are written from them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use base::shared_words::SharedWords;
use base::sync::Mutex;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::thread;

use super::frame::WORD_BYTES;
use super::growth::Growth;
use super::locks::lock;
use super::ring::Ring;
use super::segment::PAGE_BYTES;
use crate::checksum;

/// A fixed number of words.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) words: SharedWords,
    is_of_ring: bool,
}

/// A chunk of the ring. If the ring is no file, the chunk is allocated when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) chunk: Option<Arc<Chunk>>,
    /// Number of the chunk it was last taken for; `None` before the first time, and after its
    /// frames were discarded.
    holds: Option<u64>,
    /// Whether the chunk's part of the file is a hole. Then it is not taken yet.
    pub(super) is_hole: bool,
}

impl Chunk {
    /// Writes all words once, so that later writes cause no page fault.
    fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            words: Self::words_of(bytes),
            is_of_ring: false,
        })
    }

    fn of_ring(words: SharedWords) -> Arc<Self> {
        Arc::new(Self {
            words,
            is_of_ring: true,
        })
    }

    fn words_of(bytes: u64) -> SharedWords {
        let count = usize::try_from(bytes / WORD_BYTES as u64).unwrap_or(usize::MAX);
        SharedWords::new(count)
    }

    /// Writes to each page of a chunk to which no thread appends, so that the next write does not
    /// wait for the file system to note the page as dirty. It stores the value that is there,
    /// because durable frames are still read from the chunk.
    pub(super) fn touch(&self) {
        for word in self.words.iter().step_by(PAGE_BYTES / WORD_BYTES) {
            let same = std::hint::black_box(word.load(Ordering::Relaxed));
            word.store(same, Ordering::Relaxed);
        }
    }

    /// Copies words from index `at` on, as many as fit into `bytes`.
    fn copy(&self, at: usize, bytes: &mut [u8]) {
        let words = &self.words[at..at + bytes.len() / WORD_BYTES];
        #[cfg(not(any(loom, shuttle)))]
        base::shared_words::copy_out(words, bytes);
        #[cfg(any(loom, shuttle))]
        for (place, word) in bytes.chunks_exact_mut(WORD_BYTES).zip(words) {
            place.copy_from_slice(&word.load(Ordering::Relaxed).to_le().to_le_bytes());
        }
    }

    /// Writes words from index `at` on.
    #[inline]
    pub(super) fn write(&self, at: usize, words: &[[u8; WORD_BYTES]]) {
        let places = &self.words[at..at + words.len()];
        // Unrolled, because compilers do not transform loops over atomics.
        let (places, last_places) = places.as_chunks::<UNROLLED>();
        let (words, last_words) = words.as_chunks::<UNROLLED>();
        for (places, words) in places.iter().zip(words) {
            for (place, word) in places.iter().zip(words) {
                place.store(u64::from_le_bytes(*word).to_le(), Ordering::Relaxed);
            }
        }
        for (place, word) in last_places.iter().zip(last_words) {
            place.store(u64::from_le_bytes(*word).to_le(), Ordering::Relaxed);
        }
    }

    /// Prefetches the lines of the next frames, because a store to a line outside of the caches
    /// delays what follows.
    #[inline]
    pub(super) fn look_ahead(&self, at: usize) {
        // All or none: at the end of a chunk, a check for each line does not pay off.
        let ahead = self.words.get(at + LINE_WORDS..);
        if let Some(ahead) = ahead.and_then(|words| words.first_chunk::<AHEAD_WORDS>()) {
            base::cache::prefetch(&ahead[0]);
            base::cache::prefetch(&ahead[LINE_WORDS]);
            base::cache::prefetch(&ahead[2 * LINE_WORDS]);
            base::cache::prefetch(&ahead[3 * LINE_WORDS]);
            base::cache::prefetch(&ahead[4 * LINE_WORDS]);
        }
    }

    /// Writes a frame from a word on, with its sum for `sequence` in place of the zeroes.
    #[inline]
    pub(super) fn write_summed(&self, at: usize, words: &[[u8; WORD_BYTES]], sequence: u64) {
        let places = &self.words[at..at + words.len()];
        let sum = checksum::of_stored_words(words, places, sequence.to_le_bytes());
        if let (Some(word), Some(place)) = (words.first(), places.first()) {
            let word = u64::from_le_bytes(*word) | u64::from(sum);
            place.store(word.to_le(), Ordering::Relaxed);
        }
    }
}

/// Words of one cache line.
const LINE_WORDS: usize = 8;
/// Words from the first to the last of five lines behind a frame, which hold one or two frames of a
/// short value.
const AHEAD_WORDS: usize = 4 * LINE_WORDS + 1;

/// Words of one chunk; empty without a chunk.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    chunk: Option<Arc<Chunk>>,
    words: Range<usize>,
}

impl Row {
    pub(super) fn words(&self) -> &[AtomicU64] {
        let chunk = self.chunk.as_ref();
        chunk.map_or(&[], |chunk| &chunk.words[self.words.clone()])
    }
}

/// Words of a chunk that are copied.
#[derive(Debug)]
pub(super) struct Piece {
    chunk: Arc<Chunk>,
    /// Number of the chunk.
    index: u64,
    at: usize,
    words: usize,
}

/// Words that are copied in one iteration of a loop.
const UNROLLED: usize = 8;

/// The chunks in use, and free ones.
#[derive(Debug)]
pub(super) struct Memory {
    /// Chunk size, a power of two; `chunk_bits` is its logarithm.
    pub(super) chunk_bytes: u64,
    chunk_bits: u32,
    pub(super) ring: Option<Ring>,
    /// Whether there are chunks that are used in turn.
    has_turns: bool,
    /// End of the last chunk that was not of the ring.
    unshared_end: AtomicU64,
    pub(super) line: Mutex<Line>,
}

#[derive(Debug)]
pub(super) struct Line {
    /// Number of the first chunk in use, counted from sequence 0.
    first: u64,
    used: VecDeque<Arc<Chunk>>,
    free: Vec<Arc<Chunk>>,
    /// The chunks of the ring. Chunk number `n` is the one at `n` modulo their count.
    pub(super) turns: Vec<Turn>,
    pub(super) growth: Growth,
    /// Sequence below which no frame was ever here.
    begin: u64,
    /// How often frames were discarded. Frames found before that may no longer exist.
    given_up: u64,
}

impl Line {
    /// Takes the ring's chunk for chunk number `index`, if it is not in use.
    fn take_in_turn(&mut self, index: u64, chunk_bytes: u64) -> Option<Arc<Chunk>> {
        let count = self.turns.len() as u64;
        if index >= self.first + count {
            return None;
        }
        let turn = self.turns.get_mut(usize::try_from(index % count).ok()?)?;
        if turn.is_hole {
            return None;
        }
        turn.holds = Some(index);
        let new = || Chunk::of_ring(Chunk::words_of(chunk_bytes));
        Some(Arc::clone(turn.chunk.get_or_insert_with(new)))
    }

    /// Returns chunk number `index` if it still has its frames: it is in use, or was not taken
    /// again.
    fn readable(&self, index: u64) -> Option<&Arc<Chunk>> {
        if let Some(at) = index.checked_sub(self.first) {
            return self.used.get(usize::try_from(at).ok()?);
        }
        let at = index.checked_rem(self.turns.len() as u64)?;
        let turn = self.turns.get(usize::try_from(at).ok()?)?;
        let chunk = turn.chunk.as_ref();
        chunk.filter(|_| turn.holds == Some(index))
    }
}

/// Number of chunks that are kept ready, so that an appender allocates none.
const READY_CHUNKS: usize = 2;

impl Memory {
    /// Returns an empty line that begins at a sequence. `chunk_bytes` is a power of two; a ring is
    /// a multiple of it long.
    pub(super) fn new(start: u64, chunk_bytes: u64, ring: Option<Ring>) -> Self {
        let turn = |words| Turn {
            chunk: Some(Chunk::of_ring(words)),
            is_hole: true,
            ..Turn::default()
        };
        let words = ring.iter().flat_map(|ring| ring.chunks(chunk_bytes));
        let mut turns: Vec<Turn> = words.map(turn).collect();
        let first_count = ring.as_ref().map_or(0, Ring::first_count);
        let growth = Growth::new(&mut turns, start / chunk_bytes, first_count);
        Self::with_turns(start, chunk_bytes, ring, turns, growth)
    }

    /// Like [`Memory::new`], with a ring of `bytes` that is no file's.
    pub(super) fn of_backlog(start: u64, chunk_bytes: u64, bytes: u64) -> Self {
        let count = usize::try_from(bytes.div_ceil(chunk_bytes)).unwrap_or(usize::MAX);
        let turns = (0..count.max(1)).map(|_| Turn::default()).collect();
        Self::with_turns(start, chunk_bytes, None, turns, Growth::default())
    }

    fn with_turns(
        start: u64,
        chunk_bytes: u64,
        ring: Option<Ring>,
        turns: Vec<Turn>,
        growth: Growth,
    ) -> Self {
        debug_assert!(chunk_bytes.is_power_of_two() && chunk_bytes >= WORD_BYTES as u64);
        let has_turns = !turns.is_empty();
        let line = Line {
            first: start / chunk_bytes,
            used: VecDeque::new(),
            free: Vec::new(),
            turns,
            growth,
            begin: start,
            given_up: 0,
        };
        Self {
            chunk_bytes,
            chunk_bits: chunk_bytes.trailing_zeros(),
            ring,
            has_turns,
            unshared_end: AtomicU64::new(0),
            line: Mutex::new(line),
        }
    }

    pub(super) fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Whether it has a ring in its own memory. Other chunks are hardly ever needed then.
    fn is_backlog(&self) -> bool {
        self.ring.is_none() && self.has_turns
    }

    /// Returns the ring, if all chunks taken from a sequence on belong to it.
    #[inline]
    pub(super) fn ring_from(&self, sequence: u64) -> Option<&Ring> {
        let ring = self.ring.as_ref()?;
        let is_shared = self.unshared_end.load(Ordering::Acquire) <= sequence;
        is_shared.then_some(ring)
    }

    /// Returns the chunk number of a sequence, the index of its word in there, and the number of
    /// words from it on.
    #[inline]
    pub(super) fn place_of(&self, sequence: u64) -> (u64, usize, usize) {
        let index = sequence >> self.chunk_bits;
        let offset = sequence & (self.chunk_bytes - 1);
        let word = |bytes: u64| usize::try_from(bytes / WORD_BYTES as u64).unwrap_or(usize::MAX);
        (index, word(offset), word(self.chunk_bytes - offset))
    }

    /// Returns chunk number `index`, which is not free yet. Takes all chunks up to it into use.
    #[cold]
    pub(super) fn chunk(&self, index: u64) -> Arc<Chunk> {
        let mut line = lock(&self.line);
        let at = usize::try_from(index - line.first).unwrap_or(usize::MAX);
        while line.used.len() <= at {
            let next = line.first + line.used.len() as u64;
            let chunk = line
                .take_in_turn(next, self.chunk_bytes)
                .unwrap_or_else(|| {
                    let end = (next + 1).saturating_mul(self.chunk_bytes);
                    self.unshared_end.fetch_max(end, Ordering::Release);
                    let free = line.free.pop();
                    free.unwrap_or_else(|| Chunk::new(self.chunk_bytes))
                });
            line.used.push_back(chunk);
        }
        Arc::clone(&line.used[at])
    }

    /// Fills `rows` with the words between two sequences, as far as they suffice; returns where
    /// they end.
    pub(super) fn rows(&self, start: u64, end: u64, rows: &mut [Row]) -> u64 {
        let mut sequence = start;
        for row in rows {
            let (index, at, left) = self.place_of(sequence);
            let wanted = usize::try_from((end - sequence) / WORD_BYTES as u64);
            let count = left.min(wanted.unwrap_or(usize::MAX));
            if count == 0 {
                break;
            }
            *row = Row {
                chunk: Some(self.chunk(index)),
                words: at..at + count,
            };
            sequence += (count * WORD_BYTES) as u64;
        }
        sequence
    }

    /// Copies the frames between two sequences to `bytes`, if all of them are still here. All of
    /// them must have been appended.
    ///
    /// No thread waits for this. A thread that takes the chunk for other frames may overwrite words
    /// while they are copied; then the copy is invalid. It takes the chunk with the line locked,
    /// before it writes. So if the chunk is not yet taken when the line is locked here, after the
    /// copy, no such word was seen.
    pub(super) fn copy(
        &self,
        from: u64,
        end: u64,
        pieces: &mut Vec<Piece>,
        bytes: &mut [u8],
    ) -> bool {
        pieces.clear();
        let found = self.find(from, end, pieces);
        if found.is_some() {
            let mut rest = bytes;
            for piece in pieces.iter() {
                let (here, behind) = rest.split_at_mut(piece.words * WORD_BYTES);
                piece.chunk.copy(piece.at, here);
                rest = behind;
            }
        }
        let is_same = found.is_some_and(|given_up| self.are_same(pieces, given_up));
        pieces.clear();
        is_same
    }

    /// Returns the sequence from which on all frames can be [copied](Self::copy).
    pub(super) fn oldest(&self) -> u64 {
        let line = lock(&self.line);
        let mut first = line.first;
        while first > 0 && line.readable(first - 1).is_some() {
            first -= 1;
        }
        line.begin.max(first.saturating_mul(self.chunk_bytes))
    }

    /// Finds the pieces of chunks that hold the frames between two sequences, if all are here.
    /// Returns how often frames had been discarded by then.
    fn find(&self, from: u64, end: u64, pieces: &mut Vec<Piece>) -> Option<u64> {
        let line = lock(&self.line);
        if from < line.begin {
            return None;
        }
        let mut sequence = from;
        while sequence < end {
            let (index, at, left) = self.place_of(sequence);
            let chunk = line.readable(index)?;
            let wanted = usize::try_from((end - sequence) / WORD_BYTES as u64);
            let words = left.min(wanted.unwrap_or(usize::MAX));
            if words == 0 {
                return None;
            }
            pieces.push(Piece {
                chunk: Arc::clone(chunk),
                index,
                at,
                words,
            });
            sequence += (words * WORD_BYTES) as u64;
        }
        Some(line.given_up)
    }

    /// Whether no chunk was taken again, and no frames were discarded since `given_up` was read.
    fn are_same(&self, pieces: &[Piece], given_up: u64) -> bool {
        let line = lock(&self.line);
        let is_same = |piece: &Piece| {
            let chunk = line.readable(piece.index);
            chunk.is_some_and(|chunk| Arc::ptr_eq(chunk, &piece.chunk))
        };
        line.given_up == given_up && pieces.iter().all(is_same)
    }

    /// Frees the chunks that lie wholly below a sequence, which is durable.
    pub(super) fn release(&self, below: u64) {
        if let Some(ring) = &self.ring {
            ring.set_durable(below);
            self.touch_below(below);
        }
        let is_backlog = self.is_backlog();
        let mut line = lock(&self.line);
        while line.first < below / self.chunk_bytes {
            line.first += 1;
            let chunk = line.used.pop_front();
            let own = chunk.filter(|chunk| !chunk.is_of_ring && !is_backlog);
            line.free.extend(own);
        }
    }

    /// Discards the log from `sequence` to `end`. No thread may append meanwhile; concurrent copies
    /// are invalidated.
    ///
    /// In the ring the frames are overwritten: other frames may get the same sequences, and a
    /// device that keeps the ring's head but not its pages would then hold the old frames there,
    /// with valid sums.
    pub(super) fn give_up(&self, sequence: u64, end: u64) {
        if let Some(ring) = &self.ring {
            ring.give_up(sequence);
        }
        let mut line = lock(&self.line);
        line.given_up += 1;
        if self.has_ring() {
            self.wipe(&line, sequence, end);
        }
        let (index, at, _) = self.place_of(sequence);
        let has_rest = at > 0 && line.begin <= sequence && line.readable(index).is_some();
        let kept_end = if has_rest { index + 1 } else { index };
        let kept = has_rest.then(|| line.readable(index).cloned()).flatten();
        for turn in &mut line.turns {
            turn.holds = turn.holds.filter(|holds| *holds < kept_end);
        }
        let count = usize::try_from(index.saturating_sub(line.first)).unwrap_or(usize::MAX);
        let gone = line.used.len().min(count);
        let gone = line.used.split_off(gone);
        if !self.is_backlog() {
            let others = gone.into_iter().filter(|chunk| !chunk.is_of_ring);
            let others =
                others.filter(|chunk| kept.as_ref().is_none_or(|kept| !Arc::ptr_eq(kept, chunk)));
            line.free.extend(others);
        }
        line.first = line.first.min(index);
        if !has_rest && at > 0 || sequence < line.begin {
            line.begin = sequence;
        }
        line.used.extend(kept);
        let unshared = line.used.iter().rposition(|chunk| !chunk.is_of_ring);
        let unshared_end = unshared.map_or(0, |at| (line.first + at as u64 + 1) * self.chunk_bytes);
        self.unshared_end.store(unshared_end, Ordering::Release);
    }

    /// Overwrites the frames between two sequences in the chunks of the ring.
    fn wipe(&self, line: &Line, start: u64, end: u64) {
        let mut sequence = start;
        while sequence < end {
            let (index, at, left) = self.place_of(sequence);
            if let Some(chunk) = line.readable(index).filter(|chunk| chunk.is_of_ring) {
                for word in &chunk.words[at..at + left] {
                    word.store(0, Ordering::Relaxed);
                }
            }
            sequence += (left * WORD_BYTES) as u64;
        }
    }

    /// Touches the chunks of the ring that lie wholly below a sequence, before they are taken
    /// again. Holds no lock, because the file system may be slow.
    fn touch_below(&self, below: u64) {
        let gone: Vec<Arc<Chunk>> = {
            let line = lock(&self.line);
            let count = (below / self.chunk_bytes).saturating_sub(line.first);
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let gone = line.used.iter().take(count);
            gone.filter(|chunk| chunk.is_of_ring).cloned().collect()
        };
        for chunk in gone {
            chunk.touch();
        }
    }

    /// Allocates chunks until enough are ready.
    pub(super) fn prepare(&self) {
        if self.has_ring() {
            return;
        }
        while lock(&self.line).free.len() < READY_CHUNKS {
            let chunk = Chunk::new(self.chunk_bytes);
            lock(&self.line).free.push(chunk);
        }
    }

    /// Frees half of the unused chunks, except those that are kept ready.
    pub(super) fn shrink(&self) {
        let gone = {
            let mut line = lock(&self.line);
            let kept = (line.free.len() / 2).max(READY_CHUNKS).min(line.free.len());
            line.free.split_off(kept)
        };
        for chunk in gone {
            drop(chunk);
            thread::yield_now();
        }
    }

    /// Returns the bytes of all chunks.
    pub(super) fn bytes(&self) -> u64 {
        let line = lock(&self.line);
        let own = line.used.iter().filter(|chunk| !chunk.is_of_ring);
        let of_ring = line.turns.iter();
        let of_ring = of_ring.filter(|turn| turn.chunk.is_some() && !turn.is_hole);
        (own.count() + line.free.len() + of_ring.count()) as u64 * self.chunk_bytes
    }
}
