//! The present index of each numbered database.
//!
//! An index is created when its database is first written to, removed when it is flushed, and
//! swapped by SWAPDB; the latter two only while one thread has the store for itself. Handles keep
//! their own list ([`Seen`]) and look here again when the generation has changed: one load per
//! batch. A detached index lives until the last handle has looked.

use std::io;

use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{CachePadded, Mutex, MutexGuard};
use std::sync::Arc;

use crate::index::{Index, Shape};
use crate::key::DatabaseId;

/// The databases of a store.
#[derive(Debug)]
pub(crate) struct Databases {
    indexes: Mutex<Vec<Option<Arc<Index>>>>,
    generation: CachePadded<AtomicU64>,
    ids: AtomicU64,
    shape: Shape,
}

/// The databases as one handle knows them.
#[derive(Debug)]
pub(crate) struct Seen {
    indexes: Vec<Option<Arc<Index>>>,
    generation: u64,
}

impl Databases {
    /// Creates `count` databases without an index; each index will be created with `shape`.
    pub(crate) fn new(count: DatabaseId, shape: Shape) -> Self {
        Self {
            indexes: Mutex::new(vec![None; usize::from(count)]),
            generation: CachePadded::new(AtomicU64::new(1)),
            ids: AtomicU64::new(1),
            shape,
        }
    }

    /// Number of databases.
    pub(crate) fn count(&self) -> DatabaseId {
        DatabaseId::try_from(self.lock().len()).unwrap_or(DatabaseId::MAX)
    }

    /// Returns a list that knows nothing yet.
    pub(crate) fn unseen(&self) -> Seen {
        Seen {
            indexes: Vec::new(),
            generation: 0,
        }
    }

    /// Creates an index if there is none. Returns whether there was none. `generation` returns the
    /// side of a cut that the index is on; it is called while no cut is made.
    ///
    /// # Errors
    /// If the address space cannot be reserved.
    pub(crate) fn create(
        &self,
        database: DatabaseId,
        generation: impl FnOnce() -> u64,
    ) -> io::Result<bool> {
        let mut indexes = self.lock();
        let place = &mut indexes[usize::from(database)];
        let is_new = place.is_none();
        if is_new {
            let id = self.ids.fetch_add(1, Ordering::Relaxed);
            *place = Some(Arc::new(Index::new(id, self.shape, generation())?));
            self.generation.fetch_add(1, Ordering::Release);
        }
        Ok(is_new)
    }

    /// Removes the index of a database. The caller has the store for itself.
    pub(crate) fn detach(&self, database: DatabaseId) -> Option<Arc<Index>> {
        let index = self.lock()[usize::from(database)].take();
        self.generation.fetch_add(1, Ordering::Release);
        index
    }

    /// Swaps two indexes. The caller has the store for itself.
    pub(crate) fn swap(&self, one: DatabaseId, other: DatabaseId) {
        self.lock().swap(usize::from(one), usize::from(other));
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Calls `look` with all indexes, while none is added or removed.
    pub(crate) fn with_indexes<R>(
        &self,
        look: impl FnOnce(Vec<(DatabaseId, Arc<Index>)>) -> R,
    ) -> R {
        let indexes = self.lock();
        let numbered = (0..).zip(indexes.iter());
        let live = numbered.filter_map(|(id, index)| Some((id, Arc::clone(index.as_ref()?))));
        look(live.collect())
    }

    /// Bytes of all indexes.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.lock()
            .iter()
            .flatten()
            .map(|index| index.bytes())
            .sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Arc<Index>>>> {
        self.indexes
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Seen {
    /// Updates the list if something changed.
    #[inline]
    pub(crate) fn refresh(&mut self, databases: &Databases) {
        if self.generation != databases.generation.load(Ordering::Acquire) {
            self.look(databases);
        }
    }

    #[cold]
    fn look(&mut self, databases: &Databases) {
        let indexes = databases.lock();
        // Read under the lock, so that it belongs to the copied list.
        self.generation = databases.generation.load(Ordering::Acquire);
        self.indexes.clone_from(&indexes);
    }

    /// Returns the index of a database, if it has one.
    ///
    /// # Panics
    /// If there is no such database.
    #[inline]
    pub(crate) fn get(&self, database: DatabaseId) -> Option<&Arc<Index>> {
        self.indexes[usize::from(database)].as_ref()
    }

    /// Returns the databases that have an index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (DatabaseId, &Arc<Index>)> {
        (0..)
            .zip(&self.indexes)
            .filter_map(|(database, index)| Some((database, index.as_ref()?)))
    }

    /// Returns the index with an id from [`Index::id`], and the database that has it now.
    pub(crate) fn by_id(&self, id: u64) -> Option<(DatabaseId, &Arc<Index>)> {
        self.iter().find(|(_, index)| index.id() == id)
    }
}
