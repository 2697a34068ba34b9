//! What an attempt sends: the copy and the log after it, or the keys of slots that have few.

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

/// Length of a piece of data, unless one command is longer.
const PIECE_BYTES: usize = 256 << 10;
/// Maximum length of a message.
const MESSAGE_BYTES: usize = 512 << 10;
/// Buckets that the scanner passes in one step.
const STEP_BUCKETS: usize = 256;
/// Writes are paused once sending and applying the concurrent writes took at most this long, ...
const LAG_MS: u64 = 20;
/// ... or after this number of rounds.
const ROUNDS_MAX: u32 = 3;
/// Share from which on the copy is urgent, and the target no longer yields.
const PRESSED_SHARE: u64 = 2 * SHARE;
/// Maximum number of keys and their memory for slots that are sent while writes wait.
const SMALL_KEYS: u64 = 50_000;
const SMALL_BYTES: u64 = 8 << 20;

impl Attempt<'_> {
    /// Whether the keys are few and short enough to be sent while writes wait.
    pub(super) fn is_small(&mut self, begin: &Begin) -> bool {
        let databases = 0..self.node.core.store.databases();
        let all: usize = databases.map(|one| self.handle.len(one)).sum();
        let has_cold = self.handle.stubs() > 0;
        begin.keys <= SMALL_KEYS && begin.bytes <= SMALL_BYTES && all <= KEYS_MAX && !has_cold
    }

    /// Moves slots with few keys, which are found by name: needs neither a cut nor a walk over the
    /// keyspace per move.
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
            // The keys that were sent may have changed since, so they are sent again.
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

    /// Sends all keys of the slots while no thread changes them. Returns their names.
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
                // The visitor may run again if the record was inconsistent.
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

    /// Returns the approximate memory of the slots' keys.
    pub(super) fn estimate(&mut self) -> u64 {
        let databases = 0..self.node.core.store.databases();
        let all: usize = databases.map(|one| self.handle.len(one)).sum();
        let keys = trim::keys_in(self.node, &self.job.ranges);
        let bytes = u128::from(trim::used_bytes(&self.handle)) * u128::from(keys);
        u64::try_from(bytes / u128::try_from(all.max(1)).unwrap_or(1)).unwrap_or(u64::MAX)
    }

    /// Sends the data as of a cut. Returns the cut's generation, and the log sequence from which
    /// later effects follow.
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
                // A checkpoint or another move uses the scanner.
                Err(_) => std::thread::sleep(LOOK),
            }
        };
        let sent = self.send_cut(&copied, soft_bytes);
        if sent.is_err() {
            // No other thread would finish the snapshot.
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
        // The target also yields to its clients until the copy becomes urgent here. Concurrent
        // writes follow the copy at full speed.
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

    /// Sends the log's effects on the slots up to a sequence.
    pub(super) fn send_log(&mut self, tail: &mut Tail, end: u64) -> Result<(), Stopped> {
        while tail.frames.next() < end {
            self.go_on_heard()?;
            let (filter, out) = (&mut tail.filter, &mut tail.out);
            let mut obstacle = None;
            let read = tail.frames.read(|frame| {
                // After an obstacle the rest of the piece is useless.
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

    /// Brings the target close to the end of the log.
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

/// The log after the cut, and how much of it was sent.
pub(super) struct Tail {
    pub(super) filter: Filter,
    pub(super) frames: Frames,
    pub(super) out: Vec<u8>,
}
