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
//! A chunk is taken when the first frame reaches it, and is free again when everything in it is durable:
//! until then a segment may fail, and its frames are written again from here.
//!
//! Where there is a [`Ring`], chunks are its own as long as it has some that are free, in turn. Others are taken
//! when the device is late, or a frame is longer than the ring. A chunk of the ring that is free keeps its frames until it
//! is taken again: [`Memory::copy`] gives those that are still there, and says when they are not.
//!
//! A frame may lie in several chunks. Words are relaxed atomics, so that nothing here is unsafe; who
//! reads a word knows by [`super::place`] that it was written. They hold bytes in the order of the frame, on
//! every machine: files are written from here.

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

/// A chunk of the ring, made when it is first needed where that is no file.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) chunk: Option<Arc<Chunk>>,
    /// Which one it was taken for last; none before the first time, and when what it had was given up.
    holds: Option<u64>,
    /// Nobody takes it yet: its part of the file is a hole.
    pub(super) is_hole: bool,
}

impl Chunk {
    /// All words are written once here, so that later ones cause no page fault.
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

    /// Writes to each page, of a chunk that nobody appends to: whoever writes there next does not wait for a file system
    /// that has to know. What is written is what was there, for frames that are durable are still read from it.
    pub(super) fn touch(&self) {
        for word in self.words.iter().step_by(PAGE_BYTES / WORD_BYTES) {
            let same = std::hint::black_box(word.load(Ordering::Relaxed));
            word.store(same, Ordering::Relaxed);
        }
    }

    /// Copies words from one on, as many as `bytes` has room for.
    fn copy(&self, at: usize, bytes: &mut [u8]) {
        let words = &self.words[at..at + bytes.len() / WORD_BYTES];
        #[cfg(not(any(loom, shuttle)))]
        base::shared_words::copy_out(words, bytes);
        #[cfg(any(loom, shuttle))]
        for (place, word) in bytes.chunks_exact_mut(WORD_BYTES).zip(words) {
            place.copy_from_slice(&word.load(Ordering::Relaxed).to_le().to_le_bytes());
        }
    }

    /// Writes words from one on.
    #[inline]
    pub(super) fn write(&self, at: usize, words: &[[u8; WORD_BYTES]]) {
        let places = &self.words[at..at + words.len()];
        // Compilers leave loops over atomics as they are.
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

    /// Asks the caches for where the next frames go, as a store to a line that is not there holds up what follows.
    #[inline]
    pub(super) fn look_ahead(&self, at: usize) {
        // All or none: at the end of a chunk it is not worth a question for each.
        let ahead = self.words.get(at + LINE_WORDS..);
        if let Some(ahead) = ahead.and_then(|words| words.first_chunk::<AHEAD_WORDS>()) {
            base::cache::prefetch(&ahead[0]);
            base::cache::prefetch(&ahead[LINE_WORDS]);
            base::cache::prefetch(&ahead[2 * LINE_WORDS]);
            base::cache::prefetch(&ahead[3 * LINE_WORDS]);
            base::cache::prefetch(&ahead[4 * LINE_WORDS]);
        }
    }

    /// Writes a frame from a word on, which has zeroes where its sum goes, with the sum that it has at its sequence.
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

/// Words of one line of the caches.
const LINE_WORDS: usize = 8;
/// From the first of five lines behind a frame, which are those of one or two frames of a short value, to the last.
const AHEAD_WORDS: usize = 4 * LINE_WORDS + 1;

/// Words of one chunk; none at all without one.
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

/// Words of a chunk that are to be copied.
#[derive(Debug)]
pub(super) struct Piece {
    chunk: Arc<Chunk>,
    /// Which chunk it was taken for.
    index: u64,
    at: usize,
    words: usize,
}

/// Words that are copied in one turn of a loop.
const UNROLLED: usize = 8;

/// The chunks that are in use, and some that are not.
#[derive(Debug)]
pub(super) struct Memory {
    /// A power of two, and which one.
    pub(super) chunk_bytes: u64,
    chunk_bits: u32,
    pub(super) ring: Option<Ring>,
    /// There are chunks that are used in turn.
    has_turns: bool,
    /// Behind the last chunk that was not of the ring.
    unshared_end: AtomicU64,
    pub(super) line: Mutex<Line>,
}

#[derive(Debug)]
pub(super) struct Line {
    /// Which chunk the first one is, counted from sequence 0.
    first: u64,
    used: VecDeque<Arc<Chunk>>,
    free: Vec<Arc<Chunk>>,
    /// The chunks of the ring. The one that a number has is that of the number modulo theirs.
    pub(super) turns: Vec<Turn>,
    pub(super) growth: Growth,
    /// Nothing below was ever here.
    begin: u64,
    /// How often frames were given up: what was read before may stand nowhere any more.
    given_up: u64,
}

impl Line {
    /// The chunk of the ring that is to be that of a number, if it is not in use.
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

    /// The chunk of a number, if it still has what was written there: it is in use, or was not taken again.
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

/// Chunks that are kept ready, so that who appends makes none.
const READY_CHUNKS: usize = 2;

impl Memory {
    /// An empty line that begins at a sequence. `chunk_bytes` is a power of two; a ring is some of them long.
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

    /// As [`Memory::new`], with a ring of so many bytes that is no file's.
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

    /// It has a ring of its own memory: others are hardly ever needed.
    fn is_backlog(&self) -> bool {
        self.ring.is_none() && self.has_turns
    }

    /// The ring, if all chunks that were taken from a sequence on are its own.
    #[inline]
    pub(super) fn ring_from(&self, sequence: u64) -> Option<&Ring> {
        let ring = self.ring.as_ref()?;
        let is_shared = self.unshared_end.load(Ordering::Acquire) <= sequence;
        is_shared.then_some(ring)
    }

    /// Which chunk a sequence is in, which of its words it is, and how many there are from it on.
    #[inline]
    pub(super) fn place_of(&self, sequence: u64) -> (u64, usize, usize) {
        let index = sequence >> self.chunk_bits;
        let offset = sequence & (self.chunk_bytes - 1);
        let word = |bytes: u64| usize::try_from(bytes / WORD_BYTES as u64).unwrap_or(usize::MAX);
        (index, word(offset), word(self.chunk_bytes - offset))
    }

    /// A chunk that is not free yet. Takes those up to it into use where they are not.
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

    /// Fills `rows` with what lies between two sequences, as far as they suffice; where they end.
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

    /// Copies what is between two sequences, all of which was appended, to `bytes`, if all of it is still here.
    ///
    /// Nobody waits for this. Words may be overwritten while they are copied, by those who take the chunk for
    /// other frames; then what was copied does not count. They take it with the line locked, before they write:
    /// where it is not taken yet when the line is locked here, after the copy, no word of theirs was seen.
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

    /// From here on all frames can be [copied](Self::copy).
    pub(super) fn oldest(&self) -> u64 {
        let line = lock(&self.line);
        let mut first = line.first;
        while first > 0 && line.readable(first - 1).is_some() {
            first -= 1;
        }
        line.begin.max(first.saturating_mul(self.chunk_bytes))
    }

    /// The pieces of chunks that have what is between two sequences, if all of it is here; how often frames were given
    /// up before.
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

    /// Whether no chunk was taken again since frames had been given up so often.
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

    /// Gives up what is from a sequence on, up to `end`. Nobody appends meanwhile; who copies does so in vain.
    ///
    /// In the ring it is overwritten: other frames may come to the same sequences, and a device that keeps the ring's head but
    /// not its pages would have the old ones there, with sums that are right.
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

    /// Touches the chunks of the ring that lie wholly below a sequence, before somebody takes them again. With nothing
    /// locked: the file system may take its time.
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

    /// Sees to it that some chunks are ready.
    pub(super) fn prepare(&self) {
        if self.has_ring() {
            return;
        }
        while lock(&self.line).free.len() < READY_CHUNKS {
            let chunk = Chunk::new(self.chunk_bytes);
            lock(&self.line).free.push(chunk);
        }
    }

    /// Gives half of the chunks back that are not in use, but for those that are to be ready.
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

    /// Bytes of all chunks.
    pub(super) fn bytes(&self) -> u64 {
        let line = lock(&self.line);
        let own = line.used.iter().filter(|chunk| !chunk.is_of_ring);
        let of_ring = line.turns.iter();
        let of_ring = of_ring.filter(|turn| turn.chunk.is_some() && !turn.is_hole);
        (own.count() + line.free.len() + of_ring.count()) as u64 * self.chunk_bytes
    }
}
