//! Growth of the ring: chunks are made ready ahead of the appenders, more of them the faster the
//! log is written.
//!
//! ```text
//!             tail
//!   ┌───────┬──▼────┬───────┬───────┬ ─ ─ ─ ┬ ─ ─ ─
//!   │ ready │ ready │ ready │ ready │ hole    hole       of the ring's file
//!   └───────┴───────┴───────┴───────┴ ─ ─ ─ ┴ ─ ─ ─
//!              └──── ahead ─────────┘
//! ```
//!
//! A server without writes has a few ready chunks. The syncing thread makes others ready, which
//! takes a write to a file; an appender never does. If that thread finds that half of the chunks
//! ahead were used since its last check, it wants twice as many, up to the whole ring. A ready
//! chunk stays ready: after a ring's length of frames, all are.
//!
//! Rules
//!  1. A chunk that is not ready is never taken ([`super::memory`]); the frames of its turn go to
//!     memory of the process.
//!  2. One thread makes a chunk ready, with no lock held. The chunk is taken only after the line of
//!     chunks was locked again.

use std::io;
use std::sync::Arc;

use super::locks::lock;
use super::memory::{Chunk, Line, Memory, Turn};

/// Maximum number of chunks that are made ready before the syncing thread does the rest of its
/// work.
const AT_ONCE: usize = 8;

/// How much of the ring is ready.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Number of chunks that are not ready.
    holes: usize,
    /// Number of chunks that are to be ready, from the one with the tail on.
    ahead: usize,
    /// Whether they were ready at the last check.
    is_reached: bool,
}

impl Growth {
    /// Returns the state of a ring with `ready_count` ready chunks, beginning at chunk number
    /// `first`. All of `turns` were holes before.
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

    /// Gives up for lack of space. More is requested again when writes have used half of what is
    /// ready.
    fn give_up(&mut self) {
        self.ahead = (self.ahead / 2).max(1);
        self.is_reached = true;
    }
}

impl Line {
    /// Returns the chunk of the ring to make ready next, for a log whose next frame is in chunk
    /// number `index`. `is_first` on the first call of a step.
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
    /// Makes chunks of the ring ready ahead of `tail`, if they are wanted. Only one thread at a
    /// time may call it.
    ///
    /// # Errors
    /// Those of the system; then the ring has not grown further.
    pub(super) fn grow(&self, tail: u64, has_room: impl Fn(u64) -> bool) -> io::Result<()> {
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

    /// Whether more chunks of the ring are to be made ready, as far as known.
    pub(super) fn is_growing(&self) -> bool {
        self.ring.is_some() && !lock(&self.line).growth.is_reached
    }
}

/// Returns the turn, of `count`, of chunk number `number`; 0 if there are none.
fn place_of(number: u64, count: usize) -> usize {
    let place = number.checked_rem(count as u64).unwrap_or(0);
    usize::try_from(place).unwrap_or(0)
}
