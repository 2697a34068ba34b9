//! Saving the records of one bucket, by who holds it.

use base::sync::atomic::{Ordering, fence};
use base::sync::thread;

use super::batch::{Batch, Named, Origin};
use super::{Phase, Snapshots, lock};
use crate::blob::Blob;
use crate::bucket::Bucket;
use crate::heap;
use crate::index::Index;
use crate::indexed::Indexed;
use crate::key::DatabaseId;
use crate::layout::{Form, View};
use crate::local::{Local, view_of};
use crate::lookahead::RecordSpan;
use crate::shared::Shared;

/// Times that a writer lets others run while a snapshot holds too much: some ten microseconds where
/// nobody else wants the core, and as long as it takes for the others to have had it.
const BACK_OFF_YIELDS: u32 = 64;

impl Indexed {
    /// Lets others run for a moment if a snapshot holds too much, so that it can be given away. Called
    /// with no bucket held.
    #[cold]
    pub(crate) fn back_off(&self) {
        debug_assert!(self.local.held.is_empty(), "waits with buckets held");
        for _ in 0..BACK_OFF_YIELDS {
            if !self.shared.snapshots.is_pressing() {
                return;
            }
            thread::yield_now();
        }
    }
}

impl Local {
    /// Decides on which side of the cut the next changes are. Called once for a write, when it holds
    /// all of its buckets.
    #[inline]
    pub(crate) fn choose_side(&mut self, shared: &Shared) {
        self.generation = shared.snapshots.generation();
    }

    /// Saves what is in the chain of `home`, which the caller holds and is about to change, if it is
    /// still to be saved. Costs a load and a test when it is not.
    #[inline]
    pub(crate) fn save_first(&self, shared: &Shared, index: &Index, home: &Bucket) {
        if home.is_behind(self.generation) {
            self.save(shared, index, home);
        }
    }

    #[cold]
    fn save(&self, shared: &Shared, index: &Index, home: &Bucket) {
        // The generation was read without order; what the cut set before it is looked at now.
        fence(Ordering::Acquire);
        let snapshots = &shared.snapshots;
        if snapshots.may_save() {
            // The one that is to be changed is in the cache, those beside it are not: waited for together.
            let span = snapshots.span_bytes.load(Ordering::Relaxed);
            RecordSpan::of_bytes(span).prefetch_records(shared.arena_ref(), home);
            let mut place = lock(&snapshots.buffers[self.buffer]);
            let new = || Batch::new(&snapshots.held, Origin::Writer);
            let batch = place.get_or_insert_with(new);
            save_chain(shared, index, home, batch);
            let full = if batch.is_full() { place.take() } else { None };
            drop(place);
            snapshots.hand_over(full);
        }
        home.set_side(self.generation);
    }
}

impl Snapshots {
    /// Whether a writer may save what it is about to change; if memory does not allow it, nobody
    /// may any more.
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

    /// Lets the sink have a batch when somebody next comes by.
    pub(super) fn hand_over(&self, batch: impl IntoIterator<Item = Batch>) {
        for batch in batch {
            lock(&self.ready).push(batch);
        }
    }
}

/// Adds the records of a chain to a batch. The caller holds the bucket.
pub(super) fn save_chain(shared: &Shared, index: &Index, home: &Bucket, batch: &mut Batch) {
    let database = index.cut_database();
    index.for_each(home, |spot| {
        if let Some(view) = view_of(shared, spot.link) {
            // SAFETY: the caller holds the bucket.
            unsafe { view.with_key(|key| save_record(&view, database, key, batch)) };
        }
    });
    batch.count();
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
        Form::Bytes | Form::ChangedBytes => {
            // SAFETY: the bucket is held.
            unsafe { view.with_inline_value(|bytes| batch.push_bytes(named, bytes)) };
        }
    }
}

#[cfg(test)]
impl Snapshots {
    /// The bug that a test plants: a write of several keys that reads the generation for each.
    pub(crate) fn tempt(&self, local: &mut Local) {
        if self.reads_for_each_bucket.load(Ordering::Relaxed) {
            local.generation = self.generation();
        }
    }
}
