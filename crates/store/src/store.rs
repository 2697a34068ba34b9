//! [`Store`]: the keyspace of one server, shared by its threads.

#[cfg(not(any(loom, shuttle)))]
use std::io;
use std::sync::Arc as StdArc;

use base::hash::KeyHasher;
use base::sync::atomic::Ordering;
use base::sync::{Mutex, MutexGuard};
use std::sync::{Arc, PoisonError};

use crate::cold::ColdValues;
use crate::event::EventClass;
use crate::handle::Handle;
use crate::hasher::Hasher;
use crate::index::Shape;
use crate::key::DatabaseId;
use crate::mover::work::Mover;
#[cfg(any(test, feature = "naive"))]
use crate::naive;
use crate::policy::{InForce, LfuTuning, Policy, victims_max};
use crate::shared::Shared;
use crate::snapshot::{SnapshotInProgress, SnapshotProgress};

/// Options of a new store.
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
    pub(crate) backend: Backend,
    count: DatabaseId,
    /// Held while a cut is made, and by threads that must exclude a cut.
    batches: Mutex<()>,
}

/// While it lives, no snapshot begins; see [`Store::batch_turn`].
#[derive(Debug)]
pub struct BatchTurn<'s> {
    _held: MutexGuard<'s, ()>,
}

/// The implementation behind the interface.
#[derive(Debug)]
pub(crate) enum Backend {
    Indexed(Arc<Shared>),
    #[cfg(any(test, feature = "naive"))]
    Naive(naive::Databases, Hasher),
}

/// Counters of a store: sums over all handles, which may already be out of date.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Bytes held for records, index and their bookkeeping.
    pub used_bytes: u64,
    /// Reads that found a live record.
    pub hits: u64,
    /// Reads that found no live record.
    pub misses: u64,
    /// Records that were removed because their deadline had passed.
    pub expired: u64,
    /// Members of structures, such as fields of hashes, that were removed because their deadline
    /// had passed.
    pub expired_members: u64,
    /// Steps of housekeeping that left expired records for the next step, for lack of time.
    pub expiry_left: u64,
    /// Records that were removed because memory was needed.
    pub evicted: u64,
    /// Effects stated since the start, whether there was a sink or not.
    pub changes: u64,
    /// Records moved to free memory.
    pub moved: u64,
    /// Places that were considered for a move and left as they are.
    pub left: u64,
    /// Whether records are being moved now.
    pub is_moving: bool,
    /// Large values that wait to be freed in the background.
    pub lazyfree_pending: u64,
    /// Large values freed in the background since the last reset.
    pub lazyfreed: u64,
    /// The memory by use.
    pub memory: MemoryUsage,
}

/// The state of the memory that a store holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// Whether records are being moved now.
    pub is_moving: bool,
    /// Whether more is held than the limit allows.
    pub is_over_limit: bool,
}

/// The memory of a store by use (MEMORY STATS).
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryUsage {
    /// The indexes of all databases.
    pub index_bytes: u64,
    /// Slots in use: records with their keys and short values.
    pub slot_bytes: u64,
    /// Memory held for slots, including free ones.
    pub slot_held_bytes: u64,
    /// Long values, and the parts of collections outside their records.
    pub long_value_bytes: u64,
    /// The part of those in the store's own memory, as slots are.
    pub page_bytes: u64,
    /// The limit; 0 is none.
    pub limit_bytes: u64,
}

/// A table begins with `2^LEVEL` buckets: one page of memory.
#[cfg(not(any(loom, shuttle)))]
const LEVEL: u32 = 6;

/// Maximum number of overflow buckets of one index.
#[cfg(not(any(loom, shuttle)))]
const OVERFLOW_MAX: usize = 1 << 24;

impl Store {
    /// Creates an empty store.
    ///
    /// # Errors
    /// If the address range cannot be reserved.
    #[cfg(not(any(loom, shuttle)))]
    pub fn new(options: &Options) -> io::Result<StdArc<Self>> {
        let hasher = Hasher::new(KeyHasher::from_os());
        Self::with_shape(options, hasher, shape_for_machine())
    }

    /// As [`Store::new`], with parameters that tests choose.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn with_shape(
        options: &Options,
        hasher: Hasher,
        shape: Shape,
    ) -> io::Result<StdArc<Self>> {
        let arena = Shared::arena()?;
        let shared = Shared::new(options.databases, hasher, arena, shape)?;
        Ok(StdArc::new(Self {
            backend: Backend::Indexed(Arc::new(shared)),
            count: options.databases,
            batches: Mutex::new(()),
        }))
    }

    /// Creates a store for a model checker, with an arena of `chunks` chunks.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn for_model(chunks: usize, shape: Shape) -> StdArc<Self> {
        let hasher = Hasher::new(KeyHasher::seeded(1));
        let arena = crate::arena::Arena::with_chunks(chunks).expect("a small arena");
        let shared = Shared::new(1, hasher, arena, shape).expect("a small store");
        StdArc::new(Self {
            backend: Backend::Indexed(Arc::new(shared)),
            count: 1,
            batches: Mutex::new(()),
        })
    }

    /// Creates an empty store that is a plain map behind a lock, for tests that prove that users of
    /// a store need nothing but its interface.
    #[cfg(any(test, feature = "naive"))]
    #[must_use]
    pub fn naive(options: &Options) -> StdArc<Self> {
        let databases = naive::Databases::new(usize::from(options.databases));
        StdArc::new(Self {
            backend: Backend::Naive(databases, Hasher::new(KeyHasher::from_os())),
            count: options.databases,
            batches: Mutex::new(()),
        })
    }

    /// Returns a handle for one thread.
    #[must_use]
    pub fn handle(self: &StdArc<Self>) -> Handle {
        Handle::new(self)
    }

    /// Number of logical databases.
    #[must_use]
    pub fn databases(&self) -> DatabaseId {
        self.count
    }

    /// Sets the classes of events that have subscribers, from now on.
    pub fn set_wanted_events(&self, classes: EventClass) {
        match &self.backend {
            Backend::Indexed(shared) => shared.wanted_events.set(classes),
            #[cfg(any(test, feature = "naive"))]
            Backend::Naive(databases, _) => databases.wanted_events().set(classes),
        }
    }

    /// Makes handles created from now on count the keys of hash slots: for cluster mode, where
    /// databases are not swapped. Called before the first handle.
    pub fn count_hash_slots(&self) {
        if let Some(shared) = self.shared() {
            shared.tallies.count_slots();
        }
    }

    /// Number of keys of a hash slot in all databases; it may already be out of date. 0 if keys are
    /// not counted by hash slot.
    #[must_use]
    pub fn keys_in_hash_slot(&self, slot: u16) -> u64 {
        self.shared()
            .map_or(0, |shared| shared.tallies.keys_in_slot(slot))
    }

    /// Hides the keys of these hash slots, first and last of each range, and no others: they are
    /// here, but belong to another node. Code that walks the keyspace for a client asks
    /// [`Store::hides`].
    pub fn hide_hash_slots(&self, ranges: &[(u16, u16)]) {
        if let Some(shared) = self.shared() {
            shared.hidden.set(ranges);
        }
    }

    /// Whether a key belongs to a [hidden](Store::hide_hash_slots) hash slot.
    #[inline]
    #[must_use]
    pub fn hides(&self, key: &[u8]) -> bool {
        self.shared().is_some_and(|shared| shared.hidden.hides(key))
    }

    /// Number of hidden keys of a database; it may already be out of date.
    #[must_use]
    pub fn hidden_len(&self, database: DatabaseId) -> usize {
        let shared = self.shared().filter(|shared| shared.hidden.is_any());
        shared.map_or(0, |shared| {
            let count = shared.tallies.keys_in_slots(database, &shared.hidden, true);
            usize::try_from(count).unwrap_or(usize::MAX)
        })
    }

    /// Number of visible keys of a database, or `None` if no hash slot is hidden.
    #[must_use]
    pub fn shown_len(&self, database: DatabaseId) -> Option<usize> {
        let shared = self.shared().filter(|shared| shared.hidden.is_any())?;
        let count = shared
            .tallies
            .keys_in_slots(database, &shared.hidden, false);
        Some(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Resets the counters (CONFIG RESETSTAT).
    pub fn reset_statistics(&self) {
        if let Some(shared) = self.shared() {
            shared.tallies.reset();
            shared.lazy.forget_freed();
        }
    }

    /// Sets whether expired records are removed before a client asks for them (DEBUG
    /// SET-ACTIVE-EXPIRE).
    pub fn set_active_expire(&self, on: bool) {
        if let Some(shared) = self.shared() {
            shared.active_expire.store(on, Ordering::Relaxed);
        }
    }

    /// Waits for the turn to apply a batch as a unit: all of it lies on one side of every cut. A
    /// follower applies its primary's stream in this way, so that a cut names one position. The
    /// caller is outside of all operations.
    pub fn batch_turn(&self) -> BatchTurn<'_> {
        let held = self.batches.lock();
        BatchTurn {
            _held: held.unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Whether removals are [held](Self::hold_removals).
    #[must_use]
    pub fn holds_removals(&self) -> bool {
        self.shared().is_some_and(|shared| shared.holds_removals())
    }

    /// Sets whether expired records stay and eviction stops (CLIENT PAUSE). Readers do not see
    /// expired records, and a write to such a key still removes it.
    pub fn hold_removals(&self, on: bool) {
        if let Some(shared) = self.shared() {
            shared.set_holds_removals(on);
        }
    }

    /// Sets whether another server decides what is removed (a replica): nothing expires and nothing
    /// is evicted, and neither readers nor writers remove expired records. Readers do not see
    /// these; a handle that [applies](crate::Handle::set_ageless) that server's effects does.
    pub fn set_follower(&self, on: bool) {
        if let Some(shared) = self.shared() {
            shared.set_follower(on);
        }
    }

    /// Whether another server decides what is removed.
    #[must_use]
    pub fn is_follower(&self) -> bool {
        self.shared().is_some_and(|shared| shared.is_follower())
    }

    /// Sets the memory that the process holds besides the store; it counts for the memory limit.
    pub fn set_other_bytes(&self, other_bytes: u64) {
        if let Some(shared) = self.shared() {
            shared.budget.set_other_bytes(other_bytes);
        }
    }

    /// Limits the memory that the process may hold to `limit_bytes` (0: no limit). Excess is
    /// evicted by `policy`, which looks at `samples` records if it samples.
    pub fn set_memory_limit(&self, limit_bytes: u64, policy: Policy, samples: u8) {
        if let Some(shared) = self.shared() {
            shared.set_limit_bytes(limit_bytes);
            shared.policy.store(InForce {
                policy,
                samples: samples.max(1),
                ..shared.policy.load()
            });
        }
    }

    /// Sets the store of cold values, once and before there are any. Returns whether there was none
    /// so far. From then on use is recorded whatever the policy.
    pub fn set_cold_values(&self, values: Arc<dyn ColdValues>) -> bool {
        self.shared().is_some_and(|shared| {
            let is_first = shared.cold().set(values);
            let in_force = shared.policy.load();
            shared.policy.store(InForce {
                has_tier: true,
                ..in_force
            });
            is_first
        })
    }

    /// Whether more memory is held than the limit, and values are being demoted.
    #[must_use]
    pub fn waits_for_demotion(&self) -> bool {
        let (used, limit) = self.used_and_limit_bytes();
        limit > 0 && used > limit && self.shared().is_some_and(|shared| shared.cold().has_room())
    }

    /// Sets whether the cold store has space for more values. Then nothing is evicted or refused
    /// for lack of memory, and a background thread demotes what is over the limit.
    pub fn set_cold_room(&self, on: bool) {
        if let Some(shared) = self.shared() {
            shared.cold().set_has_room(on);
        }
    }

    /// The bytes held by the process that count for the limit, and the limit (0: none).
    #[must_use]
    pub fn used_and_limit_bytes(&self) -> (u64, u64) {
        self.shared().map_or((0, 0), |shared| {
            let limit = shared.budget.limit_bytes();
            (
                shared.budget.counted_bytes(shared.ledger.used_bytes()),
                limit,
            )
        })
    }

    /// Sets how much one call at most evicts beyond its own need: 0 little, 10 the default, 100
    /// everything over the limit.
    pub fn set_tenacity(&self, tenacity: u8) {
        if let Some(shared) = self.shared() {
            let victims = victims_max(tenacity);
            shared.victims_max.store(victims, Ordering::Relaxed);
        }
    }

    /// Sets the threshold from which records are compacted without a request: at least
    /// `ignore_bytes` and `threshold_percent` of the memory in use are idle. `None` is the store's
    /// own choice.
    pub fn set_moving(&self, threshold: Option<(u64, u64)>) {
        if let Some(shared) = self.shared() {
            let own = (Mover::IGNORE_BYTES, Mover::THRESHOLD_PERCENT);
            let (ignore_bytes, threshold_percent) = threshold.unwrap_or(own);
            shared.mover.tune(ignore_bytes, threshold_percent);
        }
    }

    /// Sets a function that the thread that frees large values calls once it rests: it can return
    /// what the allocator keeps for that thread. Only the first call counts.
    pub fn set_at_rest_of_lazy_free(&self, function: fn()) {
        if let Some(shared) = self.shared() {
            shared.lazy.set_at_rest(function);
        }
    }

    /// Tunes the use counter of the LFU policies.
    pub fn set_lfu_tuning(&self, lfu: LfuTuning) {
        if let Some(shared) = self.shared() {
            let in_force = shared.policy.load();
            shared.policy.store(InForce { lfu, ..in_force });
        }
    }

    /// Cancels the snapshot in progress. Returns whether there was one. Another can begin once
    /// [`Handle::advance_snapshot`] says that it is over.
    pub fn cancel_snapshot(&self) -> bool {
        self.shared()
            .is_some_and(|shared| shared.snapshots.cancel())
    }

    /// Counts cuts from at least `generation` on, so that effects stated by an earlier process
    /// belong to older generations than all future ones. Returns the generation that is now in
    /// force.
    ///
    /// # Errors
    /// [`SnapshotInProgress`]; then nothing is changed.
    pub fn raise_generation(&self, generation: u64) -> Result<u64, SnapshotInProgress> {
        self.shared().map_or(Ok(0), |shared| {
            shared.snapshots.raise_generation(generation)
        })
    }

    /// The progress of the snapshot in progress, or `None` if there is none.
    #[must_use]
    pub fn snapshot_progress(&self) -> Option<SnapshotProgress> {
        self.shared()?.snapshots.progress()
    }

    /// The state of the memory that the store holds. Takes no lock.
    #[must_use]
    pub fn held(&self) -> Held {
        self.shared().map_or_else(Held::default, |shared| Held {
            is_moving: shared.mover.is_at_work(),
            is_over_limit: shared.budget.over_bytes(shared.ledger.used_bytes()) > 0,
        })
    }

    /// Counters of the store.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.shared().map_or_else(Statistics::default, statistics)
    }

    pub(crate) fn shared(&self) -> Option<&Arc<Shared>> {
        match &self.backend {
            Backend::Indexed(shared) => Some(shared),
            #[cfg(any(test, feature = "naive"))]
            Backend::Naive(..) => None,
        }
    }
}

fn statistics(shared: &Arc<Shared>) -> Statistics {
    let sums = shared.tallies.sums();
    let slots = shared.slab.usage();
    let used_bytes = shared.ledger.used_bytes();
    let index_bytes = shared.databases.index_bytes();
    let other_bytes = slots.live_bytes.saturating_add(index_bytes);
    let in_chunks_bytes = shared.arena_ref().chunks().in_use_bytes();
    Statistics {
        used_bytes,
        hits: sums.hits,
        misses: sums.misses,
        expired: sums.expired,
        expired_members: sums.expired_members,
        expiry_left: sums.expiry_left,
        evicted: sums.evicted,
        changes: sums.changes,
        moved: shared.mover.moved.load(Ordering::Relaxed),
        left: shared.mover.left.load(Ordering::Relaxed),
        is_moving: shared.mover.is_at_work(),
        lazyfree_pending: shared.lazy.pending_objects(),
        lazyfreed: shared.lazy.freed_objects(),
        memory: MemoryUsage {
            index_bytes,
            slot_bytes: slots.live_bytes,
            slot_held_bytes: slots.held_bytes,
            long_value_bytes: used_bytes.saturating_sub(other_bytes),
            page_bytes: in_chunks_bytes.saturating_sub(slots.held_bytes),
            limit_bytes: shared.budget.limit_bytes(),
        },
    }
}

/// Returns a shape with buckets for more records than the machine's memory holds.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn shape_for_machine() -> Shape {
    let memory_bytes = crate::reservation::machine_memory_bytes();
    Shape {
        level: LEVEL,
        buckets_max: memory_bytes / 2 / crate::bucket::BUCKET_BYTES,
        overflow_max: (memory_bytes / 16 / crate::bucket::BUCKET_BYTES).min(OVERFLOW_MAX),
    }
}
