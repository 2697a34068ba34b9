//! What concerns whole databases: emptying and exchanging them.
//!
//! Both happen while one thread has the store for itself. Emptying detaches the index and lets the
//! records be freed behind the scenes: nobody can find them any more, and their slots stay readable
//! memory until they are used again.

use std::sync::Arc;

use structures::Object;

use crate::accounting::Ledger;
use crate::blob::Blob;
use crate::heap;
use crate::index::Index;
use crate::indexed::Indexed;
use crate::key::DatabaseId;
use crate::layout::{Form, View};
use crate::lazy_free::LazyFree;
use crate::shared::Shared;
use crate::slab::{Slab, SlabCache};
use crate::tally::Delta;

/// An index of fewer records is freed at once.
const FREE_LATER_FROM: usize = 512;

impl Indexed {
    /// Empties a database; how many records it had. For who has the store for itself.
    pub(crate) fn flush(&mut self, database: DatabaseId) -> usize {
        debug_assert!(self.is_alone());
        let count = self.len(database);
        let listened = self.shared.listeners.keys_of(database);
        let were_present = self.present(database, &listened);
        let Some(index) = self.shared.databases.detach(database) else {
            return 0;
        };
        self.seen.refresh(&self.shared.databases);
        self.shared.tallies.for_each_delta(database, Delta::forget);
        let detached = Detached {
            slab: Arc::clone(&self.shared.slab),
            ledger: Arc::clone(&self.shared.ledger),
            index,
            count,
        };
        if let Some(detached) = self.shared.snapshots.keep(detached) {
            detached.free_behind(&self.shared.lazy);
        }
        self.tell_flushed(database, &listened, &were_present);
        count
    }

    /// Exchanges two databases. For who has the store for itself.
    pub(crate) fn swap(&mut self, one: DatabaseId, other: DatabaseId) {
        debug_assert!(self.is_alone());
        let listened = [one, other].map(|database| {
            let keys = self.shared.listeners.keys_of(database);
            let were_present = self.present(database, &keys);
            (database, keys, were_present)
        });
        for database in [one, other] {
            if let Some(index) = self.seen.get(database) {
                let tell = |delta: &Delta| index.counts.tell(delta);
                self.shared.tallies.for_each_delta(database, tell);
            } else {
                // What is left is from an index that is gone.
                self.shared.tallies.for_each_delta(database, Delta::forget);
            }
        }
        self.shared.databases.swap(one, other);
        self.seen.refresh(&self.shared.databases);
        for (database, keys, were_present) in listened {
            self.tell_flushed(database, &keys, &were_present);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for database in 0..self.databases.count() {
            if let Some(index) = self.databases.detach(database) {
                drop(Detached {
                    slab: Arc::clone(&self.slab),
                    ledger: Arc::clone(&self.ledger),
                    index,
                    count: 0,
                });
            }
        }
    }
}

/// An index that no database has any more. Dropping it frees its records.
pub(crate) struct Detached {
    slab: Arc<Slab>,
    ledger: Arc<Ledger>,
    index: Arc<Index>,
    /// Records in it.
    count: usize,
}

impl Detached {
    /// The index.
    pub(crate) fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// Frees the records, behind the scenes if they are many or one of them leads to much.
    pub(crate) fn free_behind(self, lazy: &LazyFree) {
        if self.count >= FREE_LATER_FROM || self.is_slow_to_free() {
            let objects = u64::try_from(self.count).unwrap_or(u64::MAX);
            lazy.submit(objects, Box::new(self));
        }
    }

    fn is_slow_to_free(&self) -> bool {
        let mut is_slow = false;
        self.for_each(|view| {
            // SAFETY: the index was detached while nobody was inside, so that nobody changes its objects.
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
        // Handles that have not looked since keep the index, but not its memory.
        self.index.discard();
        self.ledger.add(-i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

/// Frees the record of a detached index, and what it owns; the bytes that its object was counted
/// with.
fn free(cache: &mut SlabCache, view: &View<'_>) -> u64 {
    let mut object_bytes = 0;
    match view.form() {
        Form::Bytes | Form::ChangedBytes | Form::Integer => {}
        Form::Blob => {
            // SAFETY: the index was detached while nobody was inside, so that nobody comes to its
            // records any more; the claim of each word ends here.
            drop(unsafe { Blob::from_raw(view.value_word()) });
        }
        Form::Object | Form::Compact => {
            object_bytes = heap::counted_bytes(view);
            // SAFETY: as above.
            unsafe { heap::free_here(view) };
        }
    }
    if let Some(word) = view.long_key_word() {
        // SAFETY: as above.
        drop(unsafe { Blob::from_raw(word) });
    }
    cache.free(view.offset(), view.class());
    object_bytes
}
