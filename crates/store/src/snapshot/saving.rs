//! Saving the records of one bucket. The caller holds it.

use base::clock::{Clock as _, SystemClock};
use base::sync::atomic::{Ordering, fence};
use base::sync::thread;

use super::batch::{Batch, Named, Origin};
use super::saved_cold::SavedCold;
use super::{Phase, Snapshots, lock};
use crate::blob::Blob;
use crate::bucket::{Bucket, Link};
use crate::heap;
use crate::index::{Index, Spot};
use crate::indexed::Indexed;
use crate::key::DatabaseId;
use crate::layout::{Form, View};
use crate::local::{Local, view_of};
use crate::record_span::RecordSpan;
use crate::shared::Shared;

/// Number of times that a writer yields to other threads while a snapshot holds too much: some ten
/// microseconds if no other thread wants the core.
const BACK_OFF_YIELDS: u32 = 64;
/// Maximum time of yielding. If others want the core, the first yields take this long: then they
/// have had it. On a busy machine each yield takes milliseconds.
const BACK_OFF_NS: u64 = 200_000;

impl Indexed {
    /// Yields for a moment if a snapshot holds too much, so that the sink can take it. The caller
    /// holds no bucket.
    #[cold]
    pub(crate) fn back_off(&self) {
        debug_assert!(self.local.held.is_empty(), "waits with buckets held");
        let since_now = SystemClock::new();
        for _ in 0..BACK_OFF_YIELDS {
            if !self.shared.snapshots.is_pressing() || since_now.monotonic_ns() > BACK_OFF_NS {
                return;
            }
            thread::yield_now();
        }
    }
}

impl Local {
    /// Decides on which side of the cut the next changes are. Called once per write, when it holds
    /// all of its buckets.
    #[inline]
    pub(crate) fn choose_side(&mut self, shared: &Shared) {
        self.generation = shared.snapshots.generation();
    }

    /// Saves the chain of `home`, if that is not yet done. The caller holds `home` and is about to
    /// change it. Costs a load and a test if the chain is saved.
    #[inline]
    pub(crate) fn save_first(&self, shared: &Shared, index: &Index, home: &Bucket) {
        if home.is_behind(self.generation) {
            self.save(shared, index, home);
        }
    }

    /// Saves one record of a bucket that is behind, and marks it, so that it alone may be
    /// overwritten: it stays the record of its key, in its place. The caller holds the bucket.
    /// Returns whether this was done; if not, nothing was.
    pub(crate) fn save_alone(&self, shared: &Shared, index: &Index, spot: Spot<'_>) -> bool {
        fence(Ordering::Acquire);
        let snapshots = &shared.snapshots;
        if !snapshots.may_save() {
            return false;
        }
        let Some(view) = view_of(shared, spot.link) else {
            return false;
        };
        self.save_with(snapshots, |batch| {
            // SAFETY: the caller holds the bucket.
            unsafe { view.with_key(|key| save_record(&view, index.cut_database(), key, batch)) };
            batch.count();
        });
        let flags = spot.link.flags() | Link::SAVED;
        spot.bucket.set_link(spot.at, spot.link.with_flags(flags));
        true
    }

    /// Runs `save` with this thread's batch.
    fn save_with(&self, snapshots: &Snapshots, save: impl FnOnce(&mut Batch)) {
        let mut place = lock(&snapshots.buffers[self.buffer]);
        let batch = place.get_or_insert_with(|| Batch::new(&snapshots.held, Origin::Writer));
        save(batch);
        batch.look_ahead();
        let full = place.take_if(|batch| batch.is_full());
        drop(place);
        snapshots.hand_over(full);
    }

    #[cold]
    fn save(&self, shared: &Shared, index: &Index, home: &Bucket) {
        // The generation was read without ordering; the fence orders the following reads after it,
        // so they see what the cut set before.
        fence(Ordering::Acquire);
        let snapshots = &shared.snapshots;
        if snapshots.may_save() {
            // The record to be changed is in the cache, its neighbours are not: their cache misses
            // overlap.
            let span = snapshots.span_bytes.load(Ordering::Relaxed);
            RecordSpan::of_bytes(span).prefetch_records(shared.arena_ref(), home);
            let mut has_marks = false;
            self.save_with(snapshots, |batch| {
                has_marks = save_chain(shared, index, home, batch);
            });
            put_on_side(index, home, self.generation, has_marks);
        } else {
            put_on_side(index, home, self.generation, true);
        }
    }
}

impl Snapshots {
    /// Whether a writer may save what it is about to change. If memory does not allow it, no thread
    /// may save any more.
    fn may_save(&self) -> bool {
        if self.phase() != Phase::Saving {
            return false;
        }
        let is_over = self.held.by_writers() >= self.hard_bytes.load(Ordering::Relaxed);
        if is_over {
            self.leave_saving(Phase::OverLimit);
        }
        !is_over
    }

    /// Queues batches, for the next thread that delivers to the sink.
    pub(super) fn hand_over(&self, batch: impl IntoIterator<Item = Batch>) {
        for batch in batch {
            lock(&self.ready).push(batch);
        }
    }
}

/// Puts a chain on the side of `generation`, where no record may be marked. `has_marks` says
/// whether there may be marks now. The caller holds the bucket.
pub(super) fn put_on_side(index: &Index, home: &Bucket, generation: u64, has_marks: bool) {
    if has_marks {
        index.for_each(home, |spot| {
            if spot.link.has(Link::SAVED) {
                let flags = spot.link.flags() & !Link::SAVED;
                spot.bucket.set_link(spot.at, spot.link.with_flags(flags));
            }
        });
    }
    debug_assert!(!index.has_saved(home), "a mark that outlives its snapshot");
    home.set_side(generation);
}

/// Adds the records of a chain to a batch, except those that were saved alone. Returns whether
/// there are any of these. The caller holds the bucket.
pub(super) fn save_chain(shared: &Shared, index: &Index, home: &Bucket, batch: &mut Batch) -> bool {
    let mut has_marks = false;
    let database = index.cut_database();
    index.for_each(home, |spot| {
        let is_marked = spot.link.has(Link::SAVED);
        has_marks |= is_marked;
        if !is_marked && let Some(view) = view_of(shared, spot.link) {
            // SAFETY: the caller holds the bucket.
            unsafe { view.with_key(|key| save_record(&view, database, key, batch)) };
        }
    });
    batch.count();
    has_marks
}

/// Adds a record to a batch. The caller holds its bucket.
fn save_record(view: &View<'_>, database: DatabaseId, key: &[u8], batch: &mut Batch) {
    let named = Named {
        database,
        key,
        deadline_unix_ms: view.deadline_unix_ms(),
        etag: view.etag(),
    };
    match view.form() {
        Form::Integer => batch.push_integer(named, view.integer()),
        Form::Blob => {
            // SAFETY: the record's word names its blob, and the bucket is held.
            let blob = unsafe { Blob::look(view.value_word()) };
            batch.push_blob(named, blob.pin(0..blob.len()));
        }
        Form::Object | Form::Compact => {
            // SAFETY: the bucket is held.
            if let Some(object) = unsafe { heap::look::<structures::Object>(view) } {
                batch.push_object(named, &object);
            }
        }
        Form::Cold => {
            if let Some(values) = view.arena().cold().values() {
                batch.push_cold(
                    named,
                    SavedCold::new(values, view.value_word(), view.header().value_len()),
                );
            }
        }
        Form::Bytes | Form::ChangedBytes => {
            // SAFETY: the bucket is held.
            unsafe { view.with_inline_value(|bytes| batch.push_bytes(named, bytes)) };
        }
    }
}

#[cfg(test)]
impl Snapshots {
    /// Applies the bug that a test plants: a write of several keys reads the generation for each.
    pub(crate) fn tempt(&self, local: &mut Local) {
        if self.reads_for_each_bucket.load(Ordering::Relaxed) {
            local.generation = self.generation();
        }
    }
}
