//! State that all threads of a store share: memory, databases, the gate, and the sums of counters.

use std::io;

use base::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;

use crate::accounting::{Budget, Ledger, idle_bytes_max};
#[cfg(not(any(loom, shuttle)))]
use crate::arena::HugePages;
use crate::arena::{Arena, CHUNK_BYTES};
use crate::before_writes::BeforeWrites;
use crate::cold::ColdPlace;
use crate::databases::Databases;
use crate::event::Wanted;
use crate::gate::Gate;
use crate::hasher::Hasher;
use crate::hidden::HiddenSlots;
use crate::index::Shape;
use crate::key::DatabaseId;
use crate::last_time::LastTime;
use crate::lazy_free::LazyFree;
use crate::listeners::Listeners;
use crate::mover::work::Mover;
use crate::orphans::Orphans;
use crate::parking::Parking;
use crate::policy::{PolicyCell, VICTIMS_MAX};
use crate::slab::Slab;
use crate::snapshot::Snapshots;
use crate::tally::Tallies;

/// Removals are held for a while on request.
const HELD_ASKED: u32 = 1;
/// Removals are held because another server decides what is removed.
const HELD_FOLLOWER: u32 = 2;

/// State that all threads of a store share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) hasher: Hasher,
    pub(crate) slab: Arc<Slab>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) budget: Budget,
    /// Maximum number of records that one call evicts beyond what it needs.
    pub(crate) victims_max: AtomicU32,
    pub(crate) before_writes: BeforeWrites,
    /// The events that have subscribers.
    pub(crate) wanted_events: Wanted,
    pub(crate) policy: PolicyCell,
    pub(crate) databases: Databases,
    pub(crate) gate: Gate,
    pub(crate) tallies: Tallies,
    /// Hash slots whose keys are here but belong to another node of a cluster.
    pub(crate) hidden: HiddenSlots,
    pub(crate) lazy: LazyFree,
    pub(crate) orphans: Orphans,
    pub(crate) last_measure: LastTime,
    pub(crate) last_move: LastTime,
    pub(crate) mover: Mover,
    pub(crate) snapshots: Snapshots,
    pub(crate) parking: Parking,
    pub(crate) listeners: Listeners,
    pub(crate) active_expire: AtomicBool,
    /// Why neither expiry nor eviction may remove keys at present: bits, 0 if they may.
    removals_held: AtomicU32,
    /// Whether any structure ever had members with deadlines; until then no code looks for them.
    pub(crate) has_member_deadlines: AtomicBool,
}

impl Shared {
    /// Creates an empty store.
    ///
    /// # Errors
    /// If the address space cannot be reserved.
    pub(crate) fn new(
        count: DatabaseId,
        hasher: Hasher,
        arena: Arena,
        shape: Shape,
    ) -> io::Result<Self> {
        let ledger = Arc::new(Ledger::default());
        Ok(Self {
            hasher,
            slab: Slab::new(Arc::new(arena), Arc::clone(&ledger)),
            ledger,
            budget: Budget::new(0),
            victims_max: AtomicU32::new(VICTIMS_MAX),
            before_writes: BeforeWrites::default(),
            wanted_events: Wanted::default(),
            policy: PolicyCell::default(),
            databases: Databases::new(count, shape),
            gate: Gate::new(),
            tallies: Tallies::new(count),
            hidden: HiddenSlots::default(),
            lazy: LazyFree::new(),
            orphans: Orphans::default(),
            last_measure: LastTime::default(),
            last_move: LastTime::default(),
            mover: Mover::default(),
            snapshots: Snapshots::default(),
            parking: Parking::default(),
            listeners: Listeners::default(),
            active_expire: AtomicBool::new(true),
            removals_held: AtomicU32::new(0),
            has_member_deadlines: AtomicBool::new(false),
        })
    }

    /// Reserves the arena that suits the machine.
    ///
    /// # Errors
    /// If the address space cannot be reserved.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn arena() -> io::Result<Arena> {
        Arena::new(HugePages::default())
    }

    /// The memory of all records.
    #[inline]
    pub(crate) fn arena_ref(&self) -> &Arena {
        self.slab.arena()
    }

    /// The store of cold values.
    #[inline]
    pub(crate) fn cold(&self) -> &ColdPlace {
        self.arena_ref().cold()
    }

    /// Memory that is held but not used: free slots and free chunks.
    #[inline]
    pub(crate) fn idle_bytes(&self) -> u64 {
        self.slab.usage().waste_bytes() + self.arena_ref().chunks().dirty_bytes()
    }

    /// Limits the memory that the process may hold; 0 is no limit.
    pub(crate) fn set_limit_bytes(&self, limit_bytes: u64) {
        self.before_writes
            .set(BeforeWrites::LIMIT, limit_bytes != 0);
        self.budget.set_limit_bytes(limit_bytes);
        let dirty_max = match limit_bytes {
            0 => u64::MAX,
            _ => idle_bytes_max(limit_bytes) / 2 / CHUNK_BYTES as u64,
        };
        self.arena_ref().chunks().set_dirty_max(dirty_max);
    }

    /// Whether expired records are removed before a client asks for them.
    pub(crate) fn expires_actively(&self) -> bool {
        self.active_expire.load(Ordering::Relaxed) && !self.holds_removals()
    }

    /// Whether expiry and eviction are held at present.
    #[inline]
    pub(crate) fn holds_removals(&self) -> bool {
        self.removals_held.load(Ordering::Relaxed) != 0
    }

    /// Sets whether removals are held on request.
    pub(crate) fn set_holds_removals(&self, on: bool) {
        self.hold(HELD_ASKED, on);
    }

    /// Whether another server decides what is removed.
    #[inline]
    pub(crate) fn is_follower(&self) -> bool {
        self.removals_held.load(Ordering::Relaxed) & HELD_FOLLOWER != 0
    }

    /// Sets whether another server decides what is removed.
    pub(crate) fn set_follower(&self, on: bool) {
        self.hold(HELD_FOLLOWER, on);
    }

    fn hold(&self, reason: u32, on: bool) {
        if on {
            self.removals_held.fetch_or(reason, Ordering::Relaxed);
        } else {
            self.removals_held.fetch_and(!reason, Ordering::Relaxed);
        }
    }
}
