//! [`Store`], shared by all threads, and [`Handle`], one thread's way into it.

use std::ops::Bound;
use std::sync::Arc;

use base::hash::KeyHasher;

use crate::effect::{Effect, EffectSink};
use crate::key::{DatabaseId, Key};
use crate::naive::{Databases, Map};
use crate::record::{Entry, Record};
use crate::value::{Deadline, StoreError};

/// How a store is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of logical databases.
    pub databases: DatabaseId,
}

impl Default for Options {
    fn default() -> Self {
        Self { databases: 16 }
    }
}

/// The keyspace of one server, shared by its threads.
#[derive(Debug)]
pub struct Store {
    hasher: KeyHasher,
    databases: Databases,
    count: DatabaseId,
}

/// What a store counts. Sums over all handles, a moment old.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Bytes held for records, index and their bookkeeping.
    pub used_bytes: u64,
    /// Reads that found a live record.
    pub hits: u64,
    /// Reads that found none.
    pub misses: u64,
    /// Records that went away because their deadline passed.
    pub expired: u64,
    /// Records that went away because memory was needed.
    pub evicted: u64,
    /// Large values that wait to be freed behind the scenes.
    pub lazyfree_pending: u64,
    /// Large values freed behind the scenes so far.
    pub lazyfreed: u64,
}

impl Store {
    /// An empty store.
    ///
    /// # Errors
    /// When the address range cannot be reserved.
    pub fn new(options: &Options) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            hasher: KeyHasher::from_os(),
            databases: Databases::new(usize::from(options.databases)),
            count: options.databases,
        }))
    }

    /// A way into the store for one thread.
    #[must_use]
    pub fn handle(self: &Arc<Self>) -> Handle {
        Handle {
            store: Arc::clone(self),
            now_unix_ms: 0,
            sink: None,
            held: None,
        }
    }

    /// Forgets what was counted (CONFIG RESETSTAT).
    pub fn reset_statistics(&self) {}

    /// Whether expired records are removed before anyone asks for them (DEBUG SET-ACTIVE-EXPIRE).
    pub fn set_active_expire(&self, on: bool) {
        let _ = on;
    }

    /// Number of logical databases.
    #[must_use]
    pub fn databases(&self) -> DatabaseId {
        self.count
    }
}

/// One thread's way into the store.
///
/// Not shared: it owns the thread's free lists, counters and effect sink. Every operation uses the
/// clock sample given to [`Handle::begin`], so that one command sees one time.
pub struct Handle {
    store: Arc<Store>,
    now_unix_ms: u64,
    sink: Option<Box<dyn EffectSink>>,
    /// The databases while [`Handle::locked`] or [`Handle::exclusive`] holds them.
    held: Option<Vec<Map>>,
}

impl Handle {
    /// The store this handle belongs to.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Starts a command: `now_unix_ms` is the time all its operations see.
    #[inline]
    pub fn begin(&mut self, now_unix_ms: u64) {
        self.now_unix_ms = now_unix_ms;
    }

    /// The time of the running command, in milliseconds since 1970 UTC.
    #[must_use]
    pub fn now_unix_ms(&self) -> u64 {
        self.now_unix_ms
    }

    /// Says that this thread now works on the store (a batch); whole-store operations of other
    /// threads wait until [`Handle::leave`].
    #[inline]
    pub fn enter(&mut self) {}

    /// Ends what [`Handle::enter`] began.
    #[inline]
    pub fn leave(&mut self) {}

    /// Housekeeping of one loop turn: expired records, memory accounting. Bounded work; `true` when
    /// more is waiting and the caller should come back soon.
    pub fn tick(&mut self, now_unix_ms: u64) -> bool {
        self.now_unix_ms = now_unix_ms;
        false
    }

    /// Installs or removes the sink that effects go to.
    pub fn set_sink(&mut self, sink: Option<Box<dyn EffectSink>>) {
        self.sink = sink;
    }

    /// Hash of a key's bytes under the store's secret.
    #[inline]
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        self.store.hasher.hash(bytes)
    }

    /// A key of `database`.
    #[inline]
    #[must_use]
    pub fn key<'k>(&self, database: DatabaseId, bytes: &'k [u8]) -> Key<'k> {
        Key::with_hash(bytes, self.hash(bytes), database)
    }

    /// First stage of a batch: asks the cache for the key's bucket.
    #[inline]
    pub fn prefetch_bucket(&self, _key: &Key<'_>) {}

    /// Second stage of a batch: asks the cache for the key's record.
    #[inline]
    pub fn prefetch_record(&self, _key: &Key<'_>) {}

    /// Looks a key up. `visit` may be run more than once (see [`Record`]); its last answer counts.
    #[inline]
    pub fn read<R>(&mut self, key: &Key<'_>, mut visit: impl FnMut(Option<&Record<'_>>) -> R) -> R {
        let now = self.now_unix_ms;
        self.with_map(key.database(), |map, _| {
            let live = map
                .get(key.bytes())
                .filter(|cell| cell.deadline_unix_ms.is_none_or(|deadline| deadline > now));
            visit(live.map(|cell| Record::naive(key.bytes(), cell)).as_ref())
        })
    }

    /// Makes a key hold a string, whatever it held. `effect` states it (see [`Entry::effect`]).
    ///
    /// # Errors
    /// As [`Entry::set`].
    #[inline]
    pub fn upsert(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        deadline: Deadline,
        effect: impl FnOnce(&mut Effect<'_>),
    ) -> Result<(), StoreError> {
        self.modify(key, |entry| {
            entry.set(value, deadline)?;
            entry.effect(effect);
            Ok(())
        })
    }

    /// Changes a key under its lock: `change` sees the record, if any, and may replace, alter or
    /// remove it. Runs exactly once.
    #[inline]
    pub fn modify<R>(&mut self, key: &Key<'_>, change: impl FnOnce(&mut Entry<'_>) -> R) -> R {
        let now = self.now_unix_ms;
        self.with_map(key.database(), |map, sink| {
            change(&mut Entry::naive(*key, map, sink, now))
        })
    }

    /// Deletes a key; whether it existed. `effect` states it and runs only then.
    #[inline]
    pub fn delete(&mut self, key: &Key<'_>, effect: impl FnOnce(&mut Effect<'_>)) -> bool {
        self.modify(key, |entry| {
            let existed = entry.remove();
            if existed {
                entry.effect(effect);
            }
            existed
        })
    }

    /// Walks a database: visits the records of the next intervals after `cursor` (0: the beginning)
    /// until at least `count` were visited, and gives the next cursor (0: the end).
    ///
    /// A record that is there during a whole walk is visited at least once. `visit` must not come
    /// back to the store.
    pub fn scan(
        &mut self,
        database: DatabaseId,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&Record<'_>),
    ) -> u64 {
        let now = self.now_unix_ms;
        let hasher = self.store.hasher.clone();
        self.with_map(database, |map, _| {
            let mut order: Vec<_> = map
                .iter()
                .map(|(key, cell)| (hasher.hash(key).reverse_bits(), key, cell))
                .collect();
            order.sort_by_key(|(position, ..)| *position);
            let mut visited = 0;
            for (position, key, cell) in order {
                if position < cursor {
                    continue;
                }
                if visited >= count {
                    return position;
                }
                visited += 1;
                if cell.deadline_unix_ms.is_none_or(|deadline| deadline > now) {
                    visit(&Record::naive(key, cell));
                }
            }
            0
        })
    }

    /// Runs `body` with all of `keys` locked, so that what it does to them is one step for every
    /// other thread. Inside, the operations of this handle may touch those keys and no others.
    /// Keys may repeat and come in any order. May be nested when the inner keys are held already.
    pub fn locked<R>(&mut self, keys: &[Key<'_>], body: impl FnOnce(&mut Self) -> R) -> R {
        let _ = keys;
        self.exclusive(body)
    }

    /// Runs `body` while no other thread is in the store (FLUSHALL, SWAPDB …).
    pub fn exclusive<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        if self.held.is_some() {
            return body(self);
        }
        let databases = self.store.databases.clone();
        let mut guard = databases.lock();
        self.held = Some(std::mem::take(&mut *guard));
        self.group(true);
        let answer = body(self);
        self.group(false);
        *guard = self.held.take().unwrap_or_default();
        answer
    }

    /// Number of keys of a database, expired ones that are not yet freed included.
    pub fn len(&mut self, database: DatabaseId) -> usize {
        self.with_map(database, |map, _| map.len())
    }

    /// Number of keys of a database that have a deadline.
    pub fn expiring_len(&mut self, database: DatabaseId) -> usize {
        self.with_map(database, |map, _| {
            map.values()
                .filter(|cell| cell.deadline_unix_ms.is_some())
                .count()
        })
    }

    /// Some live key of the database, chosen by `random`; `None` when there is none.
    pub fn random_key(&mut self, database: DatabaseId, random: u64) -> Option<Vec<u8>> {
        let now = self.now_unix_ms;
        self.with_map(database, |map, _| {
            let live: Vec<_> = map
                .iter()
                .filter(|(_, cell)| cell.deadline_unix_ms.is_none_or(|deadline| deadline > now))
                .map(|(key, _)| key)
                .collect();
            let index = usize::try_from(random % live.len().max(1) as u64).ok()?;
            live.get(index).map(|key| (*key).clone())
        })
    }

    /// Empties one database, or all (`None`), as one step for every other thread; the memory is
    /// given back behind. Gives the number of keys that went.
    pub fn flush(&mut self, database: Option<DatabaseId>) -> usize {
        let range = match database {
            Some(one) => (Bound::Included(one), Bound::Included(one)),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        let all = 0..self.store.count;
        self.exclusive(|handle| {
            all.filter(|id| std::ops::RangeBounds::contains(&range, id))
                .map(|id| handle.with_map(id, |map, _| std::mem::take(map).len()))
                .sum()
        })
    }

    /// Exchanges the contents of two databases, as one step for every other thread.
    pub fn swap(&mut self, one: DatabaseId, other: DatabaseId) {
        self.exclusive(|handle| {
            if let Some(held) = handle.held.as_mut() {
                held.swap(usize::from(one), usize::from(other));
            }
        });
    }

    /// States an effect of the whole store (FLUSHALL, SWAPDB); inside [`Handle::exclusive`].
    pub fn effect(&mut self, database: DatabaseId, state: impl FnOnce(&mut Effect<'_>)) {
        if let Some(sink) = self.sink.as_deref_mut() {
            state(&mut Effect::new(sink, database));
        }
    }

    /// Makes sure that `bytes` more may be held, evicting by the policy if need be. Called before
    /// any lock is taken.
    ///
    /// # Errors
    /// [`StoreError::OutOfMemory`] when `maxmemory` is reached and the policy frees nothing.
    #[inline]
    pub fn make_room(&mut self, _bytes: usize) -> Result<(), StoreError> {
        Ok(())
    }

    /// Gives memory that is free inside back to the system (MEMORY PURGE).
    pub fn purge(&mut self) {}

    /// What the store counted so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    fn group(&mut self, begin: bool) {
        if let Some(sink) = self.sink.as_deref_mut() {
            if begin {
                sink.group_begin();
            } else {
                sink.group_end();
            }
        }
    }

    fn with_map<R>(
        &mut self,
        database: DatabaseId,
        body: impl FnOnce(&mut Map, Option<&mut (dyn EffectSink + 'static)>) -> R,
    ) -> R {
        let sink = self.sink.as_deref_mut();
        match self.held.as_mut() {
            Some(held) => body(&mut held[usize::from(database)], sink),
            None => body(
                &mut self.store.databases.lock()[usize::from(database)],
                sink,
            ),
        }
    }
}
