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
//! when the device is late, or a frame is longer than the ring.
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
use super::lock;
use super::ring::Ring;
use super::segment::PAGE_BYTES;
use crate::checksum;

/// A fixed number of words.
#[derive(Debug)]
pub(super) struct Chunk {
    words: SharedWords,
    is_of_ring: bool,
}

impl Chunk {
    /// All words are written once here, so that later ones cause no page fault.
    fn new(bytes: u64) -> Arc<Self> {
        let count = usize::try_from(bytes / WORD_BYTES as u64).unwrap_or(usize::MAX);
        Arc::new(Self {
            words: SharedWords::new(count),
            is_of_ring: false,
        })
    }

    fn of_ring(words: SharedWords) -> Arc<Self> {
        Arc::new(Self {
            words,
            is_of_ring: true,
        })
    }

    /// Writes to each page, of a chunk that nobody uses: whoever writes there next does not wait for a file system that
    /// has to know.
    fn touch(&self) {
        for word in self.words.iter().step_by(PAGE_BYTES / WORD_BYTES) {
            word.store(0, Ordering::Relaxed);
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

/// Words that are copied in one turn of a loop.
const UNROLLED: usize = 8;

/// The chunks that are in use, and some that are not.
#[derive(Debug)]
pub(super) struct Memory {
    /// A power of two, and which one.
    chunk_bytes: u64,
    chunk_bits: u32,
    /// With its chunks, of which the one that a sequence has is that of its number modulo theirs.
    ring: Option<(Ring, Vec<Arc<Chunk>>)>,
    /// Behind the last chunk that was not of the ring.
    unshared_end: AtomicU64,
    line: Mutex<Line>,
}

#[derive(Debug)]
struct Line {
    /// Which chunk the first one is, counted from sequence 0.
    first: u64,
    used: VecDeque<Arc<Chunk>>,
    free: Vec<Arc<Chunk>>,
}

/// Chunks that are kept ready, so that who appends makes none.
const READY_CHUNKS: usize = 2;

impl Memory {
    /// An empty line that begins at a sequence. `chunk_bytes` is a power of two; a ring is some of them long.
    pub(super) fn new(start: u64, chunk_bytes: u64, ring: Option<Ring>) -> Self {
        debug_assert!(chunk_bytes.is_power_of_two() && chunk_bytes >= WORD_BYTES as u64);
        let with_chunks = |ring: Ring| {
            let chunks = ring.chunks(chunk_bytes).map(Chunk::of_ring).collect();
            (ring, chunks)
        };
        let line = Line {
            first: start / chunk_bytes,
            used: VecDeque::new(),
            free: Vec::new(),
        };
        Self {
            chunk_bytes,
            chunk_bits: chunk_bytes.trailing_zeros(),
            ring: ring.map(with_chunks),
            unshared_end: AtomicU64::new(0),
            line: Mutex::new(line),
        }
    }

    pub(super) fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// The ring, if all chunks that were taken from a sequence on are its own.
    #[inline]
    pub(super) fn ring_from(&self, sequence: u64) -> Option<&Ring> {
        let (ring, _) = self.ring.as_ref()?;
        let is_shared = self.unshared_end.load(Ordering::Acquire) <= sequence;
        is_shared.then_some(ring)
    }

    /// The chunk of the ring that is to be that of a number, if it is not in use.
    fn free_of_ring(&self, line: &Line, index: u64) -> Option<Arc<Chunk>> {
        let (_, chunks) = self.ring.as_ref()?;
        let count = chunks.len() as u64;
        let at = usize::try_from(index % count).ok()?;
        (index < line.first + count).then(|| Arc::clone(&chunks[at]))
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
            let chunk = self.free_of_ring(&line, next).unwrap_or_else(|| {
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

    /// Frees the chunks that lie wholly below a sequence, which is durable.
    pub(super) fn release(&self, below: u64) {
        if let Some((ring, _)) = &self.ring {
            ring.set_durable(below);
            self.touch_below(below);
        }
        let mut line = lock(&self.line);
        while line.first < below / self.chunk_bytes {
            line.first += 1;
            let chunk = line.used.pop_front();
            line.free.extend(chunk.filter(|chunk| !chunk.is_of_ring));
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
        let of_ring = self.ring.as_ref().map_or(0, |(_, chunks)| chunks.len());
        (own.count() + line.free.len() + of_ring) as u64 * self.chunk_bytes
    }
}
