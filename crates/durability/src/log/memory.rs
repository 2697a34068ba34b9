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
//! A frame may lie in several chunks. Words are relaxed atomics, so that nothing here is unsafe; who
//! reads a word knows by [`super::place`] that it was written. They hold bytes in the order of the frame, on
//! every machine: files are written from here.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use base::sync::Mutex;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::thread;

use super::frame::WORD_BYTES;
use super::lock;
use crate::checksum;

/// A fixed number of words.
#[derive(Debug)]
pub(super) struct Chunk {
    words: Box<[AtomicU64]>,
}

impl Chunk {
    /// All words are written once here, so that later ones cause no page fault.
    fn new(bytes: u64) -> Arc<Self> {
        let words = (0..bytes / WORD_BYTES as u64).map(|_| AtomicU64::new(0));
        Arc::new(Self {
            words: words.collect(),
        })
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
    /// An empty line that begins at a sequence. `chunk_bytes` is a power of two.
    pub(super) fn new(start: u64, chunk_bytes: u64) -> Self {
        debug_assert!(chunk_bytes.is_power_of_two() && chunk_bytes >= WORD_BYTES as u64);
        let line = Line {
            first: start / chunk_bytes,
            used: VecDeque::new(),
            free: Vec::new(),
        };
        Self {
            chunk_bytes,
            chunk_bits: chunk_bytes.trailing_zeros(),
            line: Mutex::new(line),
        }
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
            let chunk = line
                .free
                .pop()
                .unwrap_or_else(|| Chunk::new(self.chunk_bytes));
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

    /// Frees the chunks that lie wholly below a sequence.
    pub(super) fn release(&self, below: u64) {
        let mut line = lock(&self.line);
        while line.first < below / self.chunk_bytes {
            line.first += 1;
            if let Some(chunk) = line.used.pop_front() {
                line.free.push(chunk);
            }
        }
    }

    /// Sees to it that some chunks are ready.
    pub(super) fn prepare(&self) {
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
        (line.used.len() + line.free.len()) as u64 * self.chunk_bytes
    }
}
