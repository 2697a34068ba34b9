//! How the ring grows: chunks are made ready ahead of what is appended, more of them the faster the log is written to.
//!
//! ```text
//!             tail
//!   ┌───────┬──▼────┬───────┬───────┬ ─ ─ ─ ┬ ─ ─ ─
//!   │ ready │ ready │ ready │ ready │ hole    hole       of the ring's file
//!   └───────┴───────┴───────┴───────┴ ─ ─ ─ ┴ ─ ─ ─
//!              └──── ahead ─────────┘
//! ```
//!
//! A server that nobody writes to has a few chunks. The thread that syncs makes others ready, which takes a write to a
//! file; whoever appends never does. When it finds that half of those ahead were used since it looked, it wants twice
//! as many, up to the whole ring. A chunk that is ready stays so: after a ring's length of frames, all are.
//!
//! Rules
//!  1. A chunk that is not ready is never taken ([`super::memory`]); frames of its turn go to memory of the process.
//!  2. One is made ready by one thread, with nothing locked, and is taken only once the line of chunks was locked after that.

use std::io;
use std::sync::Arc;

use super::locks::lock;
use super::memory::{Chunk, Line, Memory, Turn};
use super::open_log::Log;

/// So many chunks are made ready before whoever syncs looks after the rest of its work.
const AT_ONCE: usize = 8;

/// How much of the ring there is.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Chunks that are not ready.
    holes: usize,
    /// So many are to be ready from the one with the tail on.
    ahead: usize,
    /// They were, when it was last looked.
    is_reached: bool,
}

impl Growth {
    /// Of a ring that has so many chunks ready, from one of a number on: in `turns`, which were all holes.
    pub(super) fn new(turns: &mut [Turn], first: u64, ready_count: u64) -> Self {
        let ready_count = usize::try_from(ready_count).unwrap_or(usize::MAX);
        let first = place_of(first, turns.len());
        let (behind, front) = turns.split_at_mut(first);
        for turn in front.iter_mut().chain(behind).take(ready_count) {
            turn.is_hole = false;
        }
        Self {
            holes: turns.len().saturating_sub(ready_count),
            ahead: ready_count,
            is_reached: true,
        }
    }

    /// There is no room for more. It is asked for again when writes have used half of what there is.
    fn give_up(&mut self) {
        self.ahead = (self.ahead / 2).max(1);
        self.is_reached = true;
    }
}

impl Line {
    /// Which chunk of the ring is to be made ready next, for a log whose next frame is in the chunk of a number;
    /// `is_first` when somebody looks for the first time in a while.
    fn wanted(&mut self, index: u64, is_first: bool) -> Option<(usize, Arc<Chunk>)> {
        if self.growth.holes == 0 {
            self.growth.is_reached = true;
            return None;
        }
        let first = place_of(index, self.turns.len());
        let (behind, front) = self.turns.split_at(first);
        let ahead = front.iter().chain(behind);
        let ready_count = ahead.take_while(|turn| !turn.is_hole).count();
        let growth = &mut self.growth;
        if is_first && growth.is_reached && ready_count <= growth.ahead / 2 {
            growth.ahead = (growth.ahead * 2).min(self.turns.len());
        }
        growth.is_reached = ready_count >= growth.ahead;
        if growth.is_reached {
            return None;
        }
        let at = (first + ready_count) % self.turns.len();
        let chunk = self.turns[at].chunk.as_ref()?;
        Some((at, Arc::clone(chunk)))
    }
}

impl Memory {
    /// Makes some chunks of the ring ready that are wanted ahead of a sequence. One thread at a time does this.
    ///
    /// # Errors
    /// Those of the system: there is no more of the ring than there was.
    fn grow(&self, tail: u64, has_room: impl Fn(u64) -> bool) -> io::Result<()> {
        let Some(ring) = &self.ring else {
            return Ok(());
        };
        for number in 0..AT_ONCE {
            let (next, ready_count) = {
                let mut line = lock(&self.line);
                let next = line.wanted(tail / self.chunk_bytes, number == 0);
                (next, line.turns.len() - line.growth.holes)
            };
            let Some((at, chunk)) = next else {
                return Ok(());
            };
            if !has_room(self.chunk_bytes) {
                lock(&self.line).growth.give_up();
                return Ok(());
            }
            let made = ring.make_ready(at as u64, &chunk.words, ready_count as u64 + 1);
            if made.is_err() {
                lock(&self.line).growth.give_up();
            }
            made?;
            chunk.touch();
            let mut line = lock(&self.line);
            line.turns[at].is_hole = false;
            line.growth.holes -= 1;
        }
        Ok(())
    }

    /// Whether chunks of the ring are to be made ready that are not, as far as it is known.
    pub(super) fn is_growing(&self) -> bool {
        self.ring.is_some() && !lock(&self.line).growth.is_reached
    }
}

impl Log {
    /// Makes more of the ring ready where writes ask for it and the device has room for it: a chunk takes its length of
    /// the ring and of its spare file, and is not to take that of the next segment.
    pub(super) fn grow_ring(&self) -> io::Result<()> {
        let has_room = |chunk_bytes: u64| {
            let room_bytes = self.disk.room_bytes(&self.directory);
            let wanted = 2 * chunk_bytes + self.options.segment_bytes;
            room_bytes.is_none_or(|room_bytes| room_bytes >= wanted)
        };
        self.memory.grow(self.tail(), has_room)
    }
}

/// Which of so many turns is that of a number; 0 of none.
fn place_of(number: u64, count: usize) -> usize {
    let place = number.checked_rem(count as u64).unwrap_or(0);
    usize::try_from(place).unwrap_or(0)
}
