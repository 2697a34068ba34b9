//! Moving records together, so that memory that is mostly free becomes wholly free.
//!
//! When sizes of values drift, or most records are deleted, what is left lies thinly over many
//! chunks, and their free slots fit no other size. Chunks of which little is in use are taken out
//! of service, a walk over the indexes moves the records that are left in them, and the emptied
//! chunks go back to the system. A link is the only thing that names a record, so a move is a copy
//! and a new link under the bucket's lock, with a new version for readers that hold no lock.
//!
//! The walk is shared: whichever thread comes by does the next few buckets.

use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, MutexGuard};

use crate::bucket::{Bucket, Link};
use crate::index::{Index, Spot};
use crate::indexed::Indexed;
use crate::key::DatabaseId;
use crate::local::{Local, view_of};
use crate::shared::Shared;
use crate::slab::class_bytes;

/// Buckets walked in one tick: some tens of microseconds.
const BUCKETS_PER_TICK: usize = 64;

/// Chunks with a smaller part of their slots in use are emptied when somebody asks …
const ASKED_PERCENT: u32 = 80;
/// … and without being asked.
const UNASKED_PERCENT: u32 = 50;

/// Without being asked nothing is moved while less than this is free …
const WASTE_BYTES_MIN: u64 = 16 << 20;
/// … or less than this part of what is in use.
const WASTE_PART: u64 = 5;

/// The walk in progress, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Mover {
    is_walking: AtomicBool,
    walk: Mutex<Option<Walk>>,
}

/// How far a walk has come.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    database: DatabaseId,
    position: u64,
}

impl Mover {
    fn lock(&self) -> MutexGuard<'_, Option<Walk>> {
        self.walk
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes sparse chunks out of service and begins a walk, unless one is in progress.
    fn begin(&self, shared: &Shared, percent: u32) {
        let mut walk = self.lock();
        if walk.is_none() && shared.slab.retire_sparse(percent) > 0 {
            *walk = Some(Walk::default());
            self.is_walking.store(true, Ordering::Release);
        }
    }

    /// Begins a walk because somebody asked for it.
    pub(crate) fn begin_asked(&self, shared: &Shared) {
        self.begin(shared, ASKED_PERCENT);
    }

    /// Begins a walk if much is free that new records do not use.
    pub(crate) fn begin_if_due(&self, shared: &Shared) {
        let usage = shared.slab.usage();
        let waste_bytes = usage.held_bytes.saturating_sub(usage.live_bytes);
        if waste_bytes > WASTE_BYTES_MIN.max(usage.live_bytes / WASTE_PART) {
            self.begin(shared, UNASKED_PERCENT);
        }
    }

    /// Whether a walk is in progress: one load.
    #[inline]
    pub(crate) fn is_walking(&self) -> bool {
        self.is_walking.load(Ordering::Acquire)
    }
}

impl Indexed {
    /// Goes on with the walk, in a bounded step; whether there is more to do.
    pub(crate) fn move_some(&mut self) -> bool {
        if !self.shared.mover.is_walking() {
            return false;
        }
        let shared = std::sync::Arc::clone(&self.shared);
        let mut guard = shared.mover.lock();
        let Some(walk) = guard.as_mut() else {
            return false;
        };
        for _ in 0..BUCKETS_PER_TICK {
            if walk.database >= shared.databases.count() {
                *guard = None;
                shared.mover.is_walking.store(false, Ordering::Release);
                // What was freed in retired chunks meanwhile may be all that keeps them.
                shared.slab.recall();
                self.local.cache.settle();
                return false;
            }
            self.move_bucket(&shared, walk);
        }
        true
    }

    /// Moves what is to be moved of the bucket at the walk's position.
    fn move_bucket(&mut self, shared: &Shared, walk: &mut Walk) {
        let mut end = 0;
        if let Some(index) = self.seen.get(walk.database) {
            let home = index.lock(walk.position.reverse_bits());
            let bucket = index.bucket(home.number);
            let moved = move_chain(shared, &mut self.local, index, bucket);
            bucket.unlock(moved);
            end = home.end_position();
        }
        walk.position = end;
        if end == 0 {
            walk.database += 1;
        }
    }
}

/// Moves the records of a chain that lie in retired chunks; whether there were any. The caller holds
/// the chain's bucket.
fn move_chain(shared: &Shared, local: &mut Local, index: &Index, home: &Bucket) -> bool {
    let mut moved = false;
    index.for_each(home, |spot| {
        if let Some(offset) = spot.link.offset()
            && shared.slab.is_retired(offset)
        {
            moved |= move_record(shared, local, spot);
        }
    });
    moved
}

/// Moves one record to another slot of its class; whether there was one. The caller holds its
/// bucket.
fn move_record(shared: &Shared, local: &mut Local, spot: Spot<'_>) -> bool {
    let Some(view) = view_of(shared, spot.link) else {
        return false;
    };
    let Ok(offset) = local.cache.allocate(view.class()) else {
        return false;
    };
    let bytes = class_bytes(view.class());
    // SAFETY: the caller holds the bucket, and what is written is another slot.
    unsafe { view.with_slot(bytes, |slot| shared.arena_ref().copy_in(offset, 0, slot)) };
    let link: Link = spot.link.with_offset(offset);
    spot.bucket.set_link(spot.at, link);
    local.cache.free_moved(view.offset(), view.class());
    true
}
