//! The scanner: makes the cut, walks all buckets in slices, and gives the sink what was saved.
//!
//! The walk goes by the numbers of buckets. A split adds a bucket after all others, on the side of
//! its origin, so the walk meets it if there is something left to save in it. A merge moves the
//! last bucket into an earlier one on the same side.
//!
//! Walking happens inside the gate, delivery outside of it: a slow sink keeps no thread from having
//! the store for itself.

use std::sync::Arc;

use base::sync::atomic::Ordering;

use super::batch::{Batch, Origin};
use super::place::Walk;
use super::saving::{put_on_side, save_chain};
use super::{
    Ending, Phase, SnapshotInProgress, SnapshotLimits, SnapshotSink, SnapshotStep, Snapshots, lock,
};
use crate::before_writes::BeforeWrites;
use crate::detached::Detached;
use crate::index::Index;
use crate::indexed::Indexed;
use crate::key::DatabaseId;
use crate::record_span::RecordSpan;
use crate::shared::Shared;
use crate::wait::Wait;

/// Number of short waits for a bucket before the scanner does something else.
const WAITS_MAX: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 200 };

/// How many buckets ahead records are prefetched.
const RECORDS_AHEAD: u64 = 4;

/// Outcome of an attempt to lock a bucket that is not yet saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    Taken,
    SavedAlready,
    Busy,
}

impl Indexed {
    /// Makes the cut. Returns the generation that begins with it.
    pub(crate) fn begin_snapshot(
        &mut self,
        sink: Box<dyn SnapshotSink>,
        limits: SnapshotLimits,
    ) -> Result<u64, SnapshotInProgress> {
        debug_assert!(self.local.held.is_empty(), "a cut with buckets held");
        let shared = Arc::clone(&self.shared);
        if shared.snapshots.phase() != Phase::Idle {
            return Err(SnapshotInProgress);
        }
        if self.is_alone() {
            return shared.snapshots.begin(&shared, sink, limits);
        }
        let was_inside = self.is_inside();
        self.leave();
        let begun = shared
            .gate
            .while_nobody_is_alone(|| shared.snapshots.begin(&shared, sink, limits));
        if was_inside {
            self.enter();
        }
        begun
    }

    /// Passes at most `buckets` buckets and gives the sink what is ready.
    pub(crate) fn advance_snapshot(&mut self, buckets: usize) -> SnapshotStep {
        debug_assert!(self.local.held.is_empty(), "a slice with buckets held");
        if self.shared.snapshots.phase() == Phase::Idle {
            return SnapshotStep::Idle;
        }
        let entered = self.enter();
        let shared = Arc::clone(&self.shared);
        let walked = shared.snapshots.walk_some(&shared, buckets);
        if entered {
            self.leave();
        }
        let given = shared.snapshots.give_ready();
        if shared.snapshots.phase() == Phase::Idle {
            SnapshotStep::Idle
        } else if walked | given {
            SnapshotStep::More
        } else {
            SnapshotStep::Later
        }
    }

    /// Continues a snapshot that was given up, if there is one, because no thread may drive it any
    /// more. Returns whether there is more to do.
    pub(crate) fn finish_given_up(&mut self, buckets: usize) -> bool {
        let phase = self.shared.snapshots.phase();
        matches!(phase, Phase::Cancelled | Phase::OverLimit)
            && self.advance_snapshot(buckets) == SnapshotStep::More
    }
}

impl Snapshots {
    fn begin(
        &self,
        shared: &Shared,
        sink: Box<dyn SnapshotSink>,
        limits: SnapshotLimits,
    ) -> Result<u64, SnapshotInProgress> {
        let mut delivery = lock(&self.delivery);
        let mut walk = lock(&self.walk);
        if delivery.is_some() || walk.is_some() {
            return Err(SnapshotInProgress);
        }
        self.soft_bytes.store(limits.soft_bytes, Ordering::Relaxed);
        self.hard_bytes.store(limits.hard_bytes, Ordering::Relaxed);
        self.held.begin(sink.reads_cold());
        let indexes = shared.databases.with_indexes(|indexes| {
            for (database, index) in &indexes {
                index.set_cut_database(*database);
            }
            let live = |(_, index): &(DatabaseId, Arc<Index>)| index.state().buckets();
            self.counts.reset(indexes.iter().map(live).sum());
            self.set_phase(Phase::Saving);
            shared.before_writes.set(BeforeWrites::SNAPSHOT, true);
            // A release store, so that a thread that sees the new generation sees the rest as well.
            self.generation.fetch_add(1, Ordering::Release);
            indexes
        });
        let span = RecordSpan::of(indexes.iter().map(|(_, index)| &**index), &shared.slab);
        self.span_bytes.store(span.bytes(), Ordering::Relaxed);
        *walk = Some(Walk {
            span,
            indexes: indexes.into_iter().map(|(_, index)| index).collect(),
            at: 0,
            number: 0,
            batch: None,
            kept: Vec::new(),
        });
        *delivery = Some(sink);
        Ok(self.generation())
    }

    /// Keeps the records of an index without a database if they are not yet saved; otherwise
    /// returns it. The caller has the store for itself.
    pub(crate) fn keep(&self, detached: Detached) -> Option<Detached> {
        let mut walk = lock(&self.walk);
        match walk.as_mut() {
            Some(walk) if walk.needs(detached.index()) => {
                walk.kept.push(detached);
                self.counts.keeps_emptied.store(true, Ordering::Relaxed);
                None
            }
            _ => Some(detached),
        }
    }

    /// Passes some buckets. Returns whether it passed any. The caller is inside the gate.
    fn walk_some(&self, shared: &Shared, buckets: usize) -> bool {
        let Ok(mut guard) = self.walk.try_lock() else {
            return false;
        };
        let Some(walk) = guard.as_mut() else {
            return false;
        };
        let mut passed = 0;
        while passed < buckets && !self.is_paused() {
            let Some(index) = walk.indexes.get(walk.at).map(Arc::clone) else {
                self.finish_walk(shared, walk);
                break;
            };
            if walk.number >= index.state().buckets() {
                (walk.at, walk.number) = (walk.at + 1, 0);
                continue;
            }
            let row = self.pass_row(shared, &index, walk, buckets - passed);
            if row == 0 {
                break;
            }
            passed += row;
        }
        self.hand_over(walk.batch.take_if(|batch| batch.is_full()));
        if self.is_paused() {
            // So that no memory is held that the sink cannot release.
            self.hand_over(walk.batch.take());
            self.collect_buffers();
        }
        let done = &self.counts.buckets_done;
        done.fetch_add(passed as u64, Ordering::Relaxed);
        passed > 0
    }

    /// Whether so much is held that the scanner must not save more.
    fn is_paused(&self) -> bool {
        let limit = self.soft_bytes.load(Ordering::Relaxed) / 2;
        self.held.sum() > limit && self.phase() == Phase::Saving
    }

    /// Passes up to `buckets` buckets of one index. Returns their number: 0 if another thread holds
    /// the next one for long.
    fn pass_row(&self, shared: &Shared, index: &Index, walk: &mut Walk, buckets: usize) -> usize {
        let mut passed = 0;
        while passed < buckets && walk.number < index.state().buckets() && !self.is_paused() {
            if !self.pass(shared, index, walk) {
                break;
            }
            walk.number += 1;
            passed += 1;
        }
        passed
    }

    /// Puts the bucket at the walk's place on the new side, and saves it if need be. Returns
    /// `false` if another thread holds it for long.
    fn pass(&self, shared: &Shared, index: &Index, walk: &mut Walk) -> bool {
        let generation = self.generation();
        let bucket = index.bucket(walk.number);
        match lock_behind(index, walk.number, generation) {
            Lock::Taken => {}
            Lock::SavedAlready => return true,
            Lock::Busy => return false,
        }
        let mut has_marks = true;
        if self.phase() == Phase::Saving {
            look_ahead(shared, index, walk);
            let new = || Batch::new(&self.held, Origin::Scanner);
            has_marks = save_chain(shared, index, bucket, walk.batch.get_or_insert_with(new));
            self.hand_over(walk.batch.take_if(|batch| batch.is_full()));
        }
        put_on_side(index, bucket, generation, has_marks);
        bucket.unlock(false);
        true
    }

    /// Ends the walk after everything is saved or given up: hands over the buffers, and frees the
    /// kept indexes.
    fn finish_walk(&self, shared: &Shared, walk: &mut Walk) {
        shared.before_writes.set(BeforeWrites::SNAPSHOT, false);
        self.hand_over(walk.batch.take());
        self.collect_buffers();
        walk.indexes.clear();
        for kept in walk.kept.drain(..) {
            kept.free_behind(&shared.lazy);
        }
        self.counts.is_walked.store(true, Ordering::Release);
    }

    fn collect_buffers(&self) {
        for buffer in &self.buffers {
            let batch = lock(buffer).take();
            self.hand_over(batch);
        }
    }

    /// Gives the sink what is ready, and ends the snapshot if that was all. Returns whether
    /// anything was given.
    fn give_ready(&self) -> bool {
        let Ok(mut guard) = self.delivery.try_lock() else {
            return false;
        };
        let Some(sink) = guard.as_deref_mut() else {
            return false;
        };
        // Read before `ready` is taken: if it is set, `ready` is complete.
        let is_walked = self.counts.is_walked.load(Ordering::Acquire);
        let ready = std::mem::take(&mut *lock(&self.ready));
        let given = !ready.is_empty();
        for batch in ready {
            self.give(sink, batch);
        }
        if is_walked {
            self.end(sink);
            *guard = None;
        }
        given
    }

    fn give(&self, sink: &mut dyn SnapshotSink, batch: Batch) {
        if self.phase() != Phase::Saving || batch.is_empty() {
            return;
        }
        let counts = &self.counts;
        let (records, bytes) = (batch.len() as u64, batch.content_bytes());
        counts.records.fetch_add(records, Ordering::Relaxed);
        counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        if sink.take(batch).is_break() {
            self.cancel();
        }
    }

    /// Ends the snapshot. Until this last step no other cut can be made.
    fn end(&self, sink: &mut dyn SnapshotSink) {
        self.leave_saving(Phase::Ending);
        let ending = match self.phase() {
            Phase::Cancelled => Ending::Cancelled,
            Phase::OverLimit => Ending::OverLimit,
            Phase::Idle | Phase::Saving | Phase::Ending => Ending::Complete,
        };
        sink.end(ending, &self.totals());
        *lock(&self.walk) = None;
        self.held.end();
        self.set_phase(Phase::Idle);
    }
}

impl Walk {
    /// Whether there may be something to save in `index`.
    fn needs(&self, index: &Arc<Index>) -> bool {
        let rest = self.indexes.get(self.at..).unwrap_or_default();
        rest.iter().any(|other| Arc::ptr_eq(other, index))
    }
}

/// Locks a bucket if it is not yet saved.
fn lock_behind(index: &Index, number: u64, generation: u64) -> Lock {
    let mut wait = Wait::default();
    for _ in 0..=WAITS_MAX {
        let Some(depth) = index.state().depth_of(number) else {
            // Merged with an earlier bucket, which the walk has passed: both were saved.
            return Lock::SavedAlready;
        };
        let bucket = index.bucket(number);
        let word = bucket.word();
        if word.depth() != depth {
            wait.pause();
            continue;
        }
        if !word.is_behind(generation) {
            return Lock::SavedAlready;
        }
        if !word.is_locked() && bucket.try_lock(word) {
            return Lock::Taken;
        }
        wait.pause();
    }
    Lock::Busy
}

/// Prefetches the records that the scanner will reach soon.
fn look_ahead(shared: &Shared, index: &Index, walk: &Walk) {
    let ahead = walk.number + RECORDS_AHEAD;
    if ahead < index.state().buckets() {
        let bucket = index.bucket(ahead);
        walk.span.prefetch_records(shared.arena_ref(), bucket);
    }
}
