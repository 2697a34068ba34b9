//! What an attempt sends: the copy and what the log says after it, or the keys of slots that have few.

use std::sync::{Arc, Mutex};

use persistence::checkpointer::share_of_copy;
use store::{Ending, SnapshotLimits, SnapshotStep};

use super::super::cut::{self, Copied, CutSink, lock};
use super::super::directory::{Directory, KEYS_MAX, Named};
use super::super::filter::{Filter, Slots};
use super::super::wire::{Begin, Mark, Step};
use super::super::{SHARE, trim};
use super::{ANSWER_TIME, Attempt, LOOK, Leave, SHORT_LOOK, Stopped};
use crate::replication::Frames;

/// Pieces of data are of so many bytes, or of one longer command.
const PIECE_BYTES: usize = 256 << 10;
/// A message is not longer.
const MESSAGE_BYTES: usize = 512 << 10;
/// Buckets that the scanner passes at a time.
const STEP_BUCKETS: usize = 256;
/// Writes wait when sending and applying what was written meanwhile took no longer than this, ...
const LAG_MS: u64 = 20;
/// ... or after so many times.
const ROUNDS_MAX: u32 = 3;
/// From this share on the copy presses, and the target no longer gives way.
const PRESSED_SHARE: u64 = 2 * SHARE;
/// Slots with no more keys, which take no more memory, are sent while writes wait.
const SMALL_KEYS: u64 = 50_000;
const SMALL_BYTES: u64 = 8 << 20;

impl Attempt<'_> {
    /// Whether the keys are so few and short that they are sent while writes wait.
    pub(super) fn is_small(&mut self, begin: &Begin) -> bool {
        let databases = 0..self.node.core.store.databases();
        let all: usize = databases.map(|one| self.handle.len(one)).sum();
        let has_cold = self.handle.stubs() > 0;
        begin.keys <= SMALL_KEYS && begin.bytes <= SMALL_BYTES && all <= KEYS_MAX && !has_cold
    }

    /// Moves slots with few keys, which are found by name: without a cut, and without a walk for each.
    pub(super) fn move_small(&mut self, leave: &Leave<'_>) -> Result<Vec<Named>, Stopped> {
        let node = Arc::clone(self.node);
        let mut place = node.migrations.directory();
        let table = node.core.env.table;
        place.take_if(|known| !known.is_of(&self.log));
        let directory =
            place.get_or_insert_with(|| Directory::of(table, &self.log, &mut self.handle));
        let now_ms = self.now_ms();
        let moved = directory
            .catch_up(self.log.tail_complete(), now_ms)
            .map_err(Stopped::Failed)
            .and_then(|()| {
                let send = |own: &mut Self, end| own.send_keys(directory, end);
                self.hand_over(leave, send)
            });
        match moved {
            Ok(Some(keys)) => {
                directory.forget(&self.job.ranges);
                Ok(keys)
            }
            // What was sent may have changed since: it is sent anew.
            Ok(None) => Err(Stopped::Failed(format!(
                "writes to the slots would have waited for longer than {} ms",
                self.pause_max().as_millis()
            ))),
            Err(stopped) => {
                *place = None;
                Err(stopped)
            }
        }
    }

    /// Sends all keys of the slots, which nobody changes; their names.
    fn send_keys(&mut self, directory: &mut Directory, end: u64) -> Result<Vec<Named>, Stopped> {
        let now_ms = self.now_ms();
        directory.catch_up(end, now_ms)?;
        let keys = directory.keys(&self.job.ranges);
        let (mut out, mut scratch) = (Vec::new(), Vec::new());
        self.handle.begin(self.node.core.clock.now_unix_ms());
        for (database, name) in &keys {
            let key = self.handle.key(*database, name);
            let start = out.len();
            let was_put = self.handle.inspect(&key, |record| {
                // It may be shown again, if it was not whole.
                out.truncate(start);
                record.map(|it| cut::put_record(it, *database, &mut scratch, &mut out))
            });
            if was_put == Some(false) {
                return Err(Stopped::Failed(
                    "a value that lies out of memory cannot be read".to_owned(),
                ));
            }
            if out.len() >= PIECE_BYTES {
                self.send_data(&out)?;
                out.clear();
            }
        }
        if !out.is_empty() {
            self.send_data(&out)?;
        }
        Ok(keys)
    }

    /// What the keys of the slots take in memory, about.
    pub(super) fn estimate(&mut self) -> u64 {
        let databases = 0..self.node.core.store.databases();
        let all: usize = databases.map(|one| self.handle.len(one)).sum();
        let keys = trim::keys_in(self.node, &self.job.ranges);
        let bytes = u128::from(trim::used_bytes(&self.handle)) * u128::from(keys);
        u64::try_from(bytes / u128::try_from(all.max(1)).unwrap_or(1)).unwrap_or(u64::MAX)
    }

    /// Sends what was there at a cut; the cut's generation, and from where on the log has what came after.
    pub(super) fn copy(&mut self) -> Result<(u64, u64), Stopped> {
        let soft_bytes = self
            .node
            .core
            .config
            .current()
            .durability
            .checkpoint_buffer_bytes_max;
        let limits = SnapshotLimits {
            soft_bytes,
            hard_bytes: soft_bytes.saturating_mul(4),
        };
        let copied = Arc::<Mutex<Copied>>::default();
        let (generation, from) = loop {
            self.go_on_heard()?;
            let from = self.log.tail_complete();
            let slots = Slots::new(&self.job.ranges);
            let sink = Box::new(CutSink::new(slots, &copied));
            match self.handle.begin_snapshot(sink, limits) {
                Ok(generation) => break (generation, from),
                // A checkpoint, or another move.
                Err(_) => std::thread::sleep(LOOK),
            }
        };
        let sent = self.send_cut(&copied, soft_bytes);
        if sent.is_err() {
            // Nobody else would bring it to an end.
            self.node.core.store.cancel_snapshot();
            while self.handle.advance_snapshot(STEP_BUCKETS) != SnapshotStep::Idle {}
        }
        sent?;
        Ok((generation, from))
    }

    fn send_cut(&mut self, copied: &Mutex<Copied>, held_bytes_max: u64) -> Result<(), Stopped> {
        let node = Arc::clone(self.node);
        let (background, clock) = (&node.work.background, &node.core.clock);
        let began_ns = clock.monotonic_ns();
        let mut thread = background.enter();
        let mut bytes = Vec::new();
        // The target gives way, too, until something presses here. What is written meanwhile goes after the copy at full speed.
        let _answered_later = self.send_mark(Mark::Background)?;
        let mut is_pressed = false;
        loop {
            let step = self.handle.advance_snapshot(STEP_BUCKETS);
            let (ending, keys) = {
                let mut copied = lock(copied);
                if copied.is_unreadable {
                    return Err(Stopped::Failed(
                        "a value that lies out of memory cannot be read".to_owned(),
                    ));
                }
                if copied.bytes.len() >= PIECE_BYTES || copied.ending.is_some() {
                    std::mem::swap(&mut bytes, &mut copied.bytes);
                }
                (copied.ending, copied.keys)
            };
            if !bytes.is_empty() {
                self.send_data(&bytes)?;
                bytes.clear();
                let now_unix_ms = self.node.core.clock.now_unix_ms();
                self.job.change(now_unix_ms, |it| it.keys = keys);
            }
            match ending {
                None => {}
                Some(Ending::Complete) if is_pressed => return Ok(()),
                Some(Ending::Complete) => return self.send_mark(Mark::Applied).map(drop),
                Some(_) => {
                    return Err(Stopped::Failed(
                        "more was written during the copy than checkpoint-buffer-limit allows"
                            .to_owned(),
                    ));
                }
            }
            self.go_on_heard()?;
            if thread.is_due() {
                let progress = node.core.store.snapshot_progress();
                let held_bytes = progress.map_or(0, |progress| progress.held_bytes);
                let elapsed_ns = clock.monotonic_ns().saturating_sub(began_ns);
                let share = share_of_copy(SHARE, held_bytes, held_bytes_max, elapsed_ns);
                background.set_share(share);
                thread.pause();
                if share > PRESSED_SHARE && !is_pressed {
                    is_pressed = true;
                    let _answered_later = self.send_mark(Mark::Applied)?;
                }
            }
            if step == SnapshotStep::Later {
                std::thread::sleep(SHORT_LOOK);
            }
        }
    }

    fn send_data(&mut self, bytes: &[u8]) -> Result<(), Stopped> {
        for piece in bytes.chunks(MESSAGE_BYTES) {
            self.send(Step::Data, piece)?;
        }
        Ok(())
    }

    /// Sends what the log says of the slots up to a sequence.
    pub(super) fn send_log(&mut self, tail: &mut Tail, end: u64) -> Result<(), Stopped> {
        while tail.frames.next() < end {
            self.go_on_heard()?;
            let (filter, out) = (&mut tail.filter, &mut tail.out);
            let mut obstacle = None;
            let read = tail.frames.read(|frame| {
                // After an obstacle the rest of the piece is of no use.
                if obstacle.is_none()
                    && let Err(found) = filter.frame(frame, out)
                {
                    obstacle = Some(found);
                }
                Ok(())
            });
            if let Some(obstacle) = obstacle {
                return Err(Stopped::Failed(obstacle.text().to_owned()));
            }
            let is_more = read.map_err(|fault| Stopped::Failed(fault.to_string()))?;
            if tail.out.len() >= PIECE_BYTES {
                self.flush(tail)?;
            }
            if !is_more {
                std::thread::yield_now();
            }
        }
        self.flush(tail)
    }

    fn flush(&mut self, tail: &mut Tail) -> Result<(), Stopped> {
        let bytes = std::mem::take(&mut tail.out);
        if !bytes.is_empty() {
            self.send_data(&bytes)?;
        }
        tail.out = bytes;
        tail.out.clear();
        tail.out.shrink_to(4 * PIECE_BYTES);
        Ok(())
    }

    /// Brings the target near the end of the log.
    pub(super) fn catch_up(&mut self, tail: &mut Tail) -> Result<(), Stopped> {
        for _ in 0..ROUNDS_MAX {
            let began_ms = self.now_ms();
            let end = self.log.tail_complete();
            let left_bytes = end.saturating_sub(tail.frames.next());
            let now_unix_ms = self.node.core.clock.now_unix_ms();
            self.job
                .change(now_unix_ms, |it| it.left_bytes = left_bytes);
            self.send_log(tail, end)?;
            let mark = self.send_mark(Mark::Applied)?;
            if !self.await_mark(mark, ANSWER_TIME, SHORT_LOOK)? {
                return Err(Stopped::Failed("the target does not go on".to_owned()));
            }
            if self.now_ms() - began_ms <= LAG_MS {
                break;
            }
        }
        Ok(())
    }
}

/// The log after the cut, as far as it was sent.
pub(super) struct Tail {
    pub(super) filter: Filter,
    pub(super) frames: Frames,
    pub(super) out: Vec<u8>,
}
