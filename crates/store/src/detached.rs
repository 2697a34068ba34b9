//! Indexes that belong to no database any more, and how their records are freed.

use std::sync::Arc;

use structures::Object;

use crate::accounting::Ledger;
use crate::blob::Blob;
use crate::heap;
use crate::index::Index;
use crate::layout::{Form, View};
use crate::lazy_free::LazyFree;
use crate::slab::{Slab, SlabCache};

/// An index with fewer records is freed at once.
const FREE_LATER_FROM: usize = 512;

/// An index that belongs to no database any more. Dropping it frees its records.
pub(crate) struct Detached {
    pub(crate) slab: Arc<Slab>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) index: Arc<Index>,
    /// Number of its records.
    pub(crate) count: usize,
}

impl Detached {
    /// The index.
    pub(crate) fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// Frees the records; in the background if they are many or one of them leads to much memory.
    pub(crate) fn free_behind(self, lazy: &LazyFree) {
        if self.count >= FREE_LATER_FROM || self.is_slow_to_free() {
            let objects = u64::try_from(self.count).unwrap_or(u64::MAX);
            lazy.submit(objects, Box::new(self));
        }
    }

    fn is_slow_to_free(&self) -> bool {
        let mut is_slow = false;
        self.for_each(|view| {
            // SAFETY: the index was detached while no thread was inside, so no thread changes its
            // objects.
            let object = unsafe { heap::boxed(view) };
            is_slow |= object.is_some_and(Object::is_slow_to_free);
        });
        is_slow
    }

    fn for_each(&self, mut visit: impl FnMut(&View<'_>)) {
        for number in 0..self.index.state().buckets() {
            let bucket = self.index.bucket(number);
            self.index.for_each(bucket, |spot| {
                let offset = spot.link.offset();
                if let Some(view) = offset.and_then(|offset| View::load(self.slab.arena(), offset))
                {
                    visit(&view);
                }
            });
        }
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        let mut cache = self.slab.cache();
        let mut bytes = self.index.home_bytes();
        self.for_each(|view| bytes += free(&mut cache, view));
        // Handles that have not looked since then keep the index, but not its memory.
        self.index.discard();
        self.ledger.add(-i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

/// Frees the record of a detached index, and what it owns. Returns the bytes that its object was
/// counted with.
fn free(cache: &mut SlabCache, view: &View<'_>) -> u64 {
    let mut object_bytes = 0;
    match view.form() {
        Form::Bytes | Form::ChangedBytes | Form::Integer => {}
        Form::Blob => {
            // SAFETY: the index was detached while no thread was inside, so no thread comes to its
            // records any more; the reference of each word ends here.
            drop(unsafe { Blob::from_raw(view.value_word()) });
        }
        Form::Object | Form::Compact => {
            object_bytes = heap::counted_bytes(view);
            // SAFETY: as above.
            unsafe { heap::free_here(view) };
        }
        Form::Cold => view.arena().cold().forget(view.value_word()),
    }
    if let Some(word) = view.long_key_word() {
        // SAFETY: as above.
        drop(unsafe { Blob::from_raw(word) });
    }
    cache.free(view.offset(), view.class());
    object_bytes
}
