//! Compaction of records, so that partly free memory becomes wholly free.
//!
//! When sizes of values drift, or most records are deleted, the rest lies thinly over many chunks,
//! and their free slots fit no other size. Chunks whose records fit elsewhere are taken out of
//! service ([`crate::slab::Slab::retire_surplus`]), the records in them are moved, and the emptied
//! chunks go to another user or back to the system. A record in a slot larger than it needs is
//! moved to one that fits.
//!
//! The mover goes through the slots of a chunk. A slot may contain a record, a free slot, the
//! remains of an earlier record, or something half written. The mover reads it as a reader without
//! the lock would: the key leads to a bucket, and only if a link of that bucket, now locked, names
//! this very slot, there is a record in it. Only a link names a record, so a move is a copy and a
//! new link, with a new version for readers that hold no lock.
//!
//! Every tick does a bounded piece of the pending work ([`Indexed::move_some`]). A writer that
//! needs memory which only moving can free does a piece in proportion to what it adds
//! ([`Indexed::compact_for`]). The mover never waits for a bucket: what is in use is left for
//! another round.

pub(crate) mod pieces;
pub(crate) mod work;

use base::sync::atomic::Ordering;

use crate::arena::{CHUNK_BYTES, Offset};
use crate::chunk::ChunkId;
use crate::databases::Seen;
use crate::indexed::Indexed;
use crate::layout::View;
use crate::local::{Local, view_of};
use crate::shared::Shared;
use crate::size_class::{SizeClass, capacity, class_bytes, class_for};
use work::{Leftover, Mover, Pass, Source, Work};

/// Work of one tick, in bytes moved: some tens of microseconds.
const WORK_PER_TICK: u64 = 64 << 10;

/// Cost of only looking at a slot, in bytes moved.
const LOOK_COST: u64 = 16;

/// Cost of a move besides its bytes.
const MOVE_COST: u64 = 256;

/// Number of passes over the chunks on request. The first also moves records into slots that fit,
/// which leaves space in which the others can close gaps.
const ASKED_PASSES: u32 = 3;

/// Chunks with more than this percentage in use are not moved on request …
const ASKED_PERCENT: u32 = 100;
/// … and without a request.
const UNASKED_PERCENT: u32 = 75;

/// Caches must hand back their free slots when more than this is idle, and more than this part of
/// the memory in use.
const RECALL_BYTES_MIN: u64 = 512 << 10;
const RECALL_PART: u64 = 8;

/// After this many failed attempts to empty it, a chunk goes back into service.
const TRIES_MAX: u8 = 3;

/// A writer in need moves this many times what it adds …
const NEED_TIMES: u64 = 6;
/// … and at least this many bytes.
const NEED_WORK_MIN: u64 = 8 << 10;

/// Part of the limit that one plan of a writer in need frees.
const NEED_PLAN_PART: u64 = 128;

impl Mover {
    /// Begins to compact everything, on request.
    pub(crate) fn begin_asked(&self, shared: &Shared) {
        let mut work = self.lock();
        drop(shared.slab.retire_surplus(ASKED_PERCENT, u64::MAX));
        let end = shared.arena_ref().chunks().unused().number();
        let source = Source::All { next: 1, end };
        self.begin(&mut work, source, ASKED_PASSES - 1, ASKED_PERCENT);
    }

    /// Begins to compact if much memory is idle, or if earlier work left something over.
    pub(crate) fn begin_if_due(&self, shared: &Shared) {
        self.in_vain_bytes.store(0, Ordering::Relaxed);
        let mut work = self.lock();
        if work.pass.is_some() {
            return;
        }
        let usage = shared.slab.usage();
        if usage.waste_bytes() > RECALL_BYTES_MIN.max(usage.live_bytes / RECALL_PART) {
            // A few slots in a cache may be all that keeps many chunks.
            shared.slab.recall();
        }
        let goal = if self.is_worth(usage.waste_bytes(), usage.live_bytes) {
            u64::MAX
        } else {
            0
        };
        self.begin_retired(&mut work, shared, UNASKED_PERCENT, goal);
    }

    /// Begins to free `goal_bytes` of chunks for a writer in need. Returns whether there is pending
    /// work.
    fn begin_needed(&self, work: &mut Work, shared: &Shared, goal_bytes: u64) -> bool {
        if work.pass.is_some() {
            return true;
        }
        let waste = shared.slab.usage().waste_bytes();
        let in_vain = self.in_vain_bytes.load(Ordering::Relaxed);
        if in_vain > 0 && waste < in_vain.saturating_add(CHUNK_BYTES as u64) {
            return false;
        }
        let begun = self.begin_retired(work, shared, ASKED_PERCENT, goal_bytes);
        self.in_vain_bytes
            .store(if begun { 0 } else { waste }, Ordering::Relaxed);
        begun
    }

    /// Takes chunks out of service and begins to empty them. Returns whether there are any.
    fn begin_retired(&self, work: &mut Work, shared: &Shared, percent: u32, goal: u64) -> bool {
        let mut chunks = work.take_leftovers(shared);
        if goal > 0 {
            chunks.append(&mut shared.slab.retire_surplus(percent, goal));
        }
        let begins = !chunks.is_empty();
        if begins {
            self.begin(work, Source::Retired(chunks), 0, percent);
        }
        begins
    }

    fn begin(&self, work: &mut Work, source: Source, more_passes: u32, percent: u32) {
        work.pass = Some(Pass {
            source,
            chunk: ChunkId::ZERO,
            slot: 0,
            more_passes,
            percent,
            is_asked: more_passes > 0,
        });
        self.is_moving.store(true, Ordering::Release);
    }
}

impl Work {
    /// Takes the chunks to try again; those tried too often go back into service.
    fn take_leftovers(&mut self, shared: &Shared) -> Vec<ChunkId> {
        self.leftovers
            .retain(|left| shared.slab.is_retired_chunk(left.chunk));
        let tired = |left: &&Leftover| left.tries >= TRIES_MAX;
        for left in self.leftovers.iter().filter(tired) {
            shared.slab.reinstate(left.chunk);
        }
        self.leftovers.retain(|left| left.tries < TRIES_MAX);
        self.leftovers.iter().map(|left| left.chunk).collect()
    }

    /// Notes that the mover went through a chunk.
    fn leave(&mut self, shared: &Shared, chunk: ChunkId) {
        if !shared.slab.is_retired_chunk(chunk) {
            return;
        }
        let known = self.leftovers.iter_mut().find(|left| left.chunk == chunk);
        match known {
            Some(left) => left.tries += 1,
            None => self.leftovers.push(Leftover { chunk, tries: 1 }),
        }
    }
}

impl Indexed {
    /// Continues the pending work, in a bounded step. Returns whether there is more.
    pub(crate) fn move_some(&mut self) -> bool {
        if !self.shared.mover.is_moving() {
            return false;
        }
        let shared = std::sync::Arc::clone(&self.shared);
        // The thread that holds the lock does the work; one is enough.
        let Ok(mut work) = shared.mover.work.try_lock() else {
            return true;
        };
        self.work_on(&mut work, WORK_PER_TICK)
    }

    /// Frees memory that is idle in slots of other sizes for what is about to be added, as far as
    /// `bytes` justify the work. This thread is inside and holds nothing.
    #[cold]
    pub(crate) fn compact_for(&mut self, bytes: usize, over_bytes: u64) {
        let shared = std::sync::Arc::clone(&self.shared);
        if shared.arena_ref().give_dirty() >= over_bytes {
            return;
        }
        let Ok(mut work) = shared.mover.work.try_lock() else {
            return;
        };
        let goal = over_bytes.max(shared.budget.limit_bytes() / NEED_PLAN_PART);
        if shared.mover.begin_needed(&mut work, &shared, goal) {
            let needed = (bytes as u64).saturating_mul(NEED_TIMES);
            self.work_on(&mut work, needed.max(NEED_WORK_MIN));
        }
    }

    /// Does `work_left` of the work. Returns whether there is more.
    fn work_on(&mut self, work: &mut Work, mut work_left: u64) -> bool {
        let shared = std::sync::Arc::clone(&self.shared);
        // Slots of newly retired chunks must not be given out again.
        self.local.cache.settle();
        while work_left > 0 {
            let Some(pass) = &mut work.pass else {
                return false;
            };
            if pass.chunk.is_zero() {
                let Some(chunk) = pass.source.next() else {
                    self.finish_pass(&shared, work);
                    continue;
                };
                (pass.chunk, pass.slot) = (chunk, 0);
            }
            let (chunk, mut slot) = (pass.chunk, pass.slot);
            let mut moving = Moving {
                shared: &shared,
                seen: &self.seen,
                local: &mut self.local,
                key: &mut work.key,
            };
            let is_done = moving.empty(chunk, &mut slot, &mut work_left);
            pass.slot = slot;
            if is_done {
                pass.chunk = ChunkId::ZERO;
                work.leave(&shared, chunk);
            }
        }
        work.pass.is_some()
    }

    /// Ends a pass. Begins the next if there is to be one and it has something to do.
    fn finish_pass(&mut self, shared: &Shared, work: &mut Work) {
        // Slots that were freed meanwhile in retired chunks may be all that keeps those chunks.
        shared.slab.recall();
        self.local.cache.settle();
        let Some(pass) = work.pass.take() else {
            return;
        };
        let next = pass.more_passes > 0
            && shared
                .mover
                .begin_retired(work, shared, pass.percent, u64::MAX);
        if next && let Some(next) = &mut work.pass {
            next.more_passes = pass.more_passes - 1;
            next.is_asked = pass.is_asked;
        } else {
            shared.mover.is_moving.store(false, Ordering::Release);
            if pass.is_asked {
                shared.arena_ref().give_dirty();
            }
        }
    }
}

/// State for moving records one by one.
struct Moving<'a> {
    shared: &'a Shared,
    seen: &'a Seen,
    local: &'a mut Local,
    key: &'a mut Vec<u8>,
}

impl Moving<'_> {
    /// Goes through the slots of a chunk from `slot` on. Returns whether it reached the end.
    fn empty(&mut self, chunk: ChunkId, slot: &mut u32, work_left: &mut u64) -> bool {
        let slab = &self.shared.slab;
        let Some(class) = slab.class_of_chunk(chunk) else {
            return true;
        };
        let bytes = u32::try_from(class_bytes(class)).unwrap_or(u32::MAX);
        while *slot < capacity(class) {
            if *work_left == 0 {
                return false;
            }
            let is_retired = slab.is_retired_chunk(chunk);
            let offset = chunk.offset(*slot * bytes);
            *slot += 1;
            let cost = offset.map_or(0, |offset| self.move_from(offset, class, is_retired));
            *work_left = work_left.saturating_sub(LOOK_COST + cost);
        }
        true
    }

    /// Moves the record in a slot, if there is one and it should be moved. Returns the cost.
    fn move_from(&mut self, offset: Offset, class: SizeClass, is_retired: bool) -> u64 {
        let seen = View::load(self.shared.arena_ref(), offset)
            .filter(|view| view.class() == class)
            .filter(|view| {
                is_retired || class_for(view.used_bytes()).is_some_and(|fit| fit < class)
            });
        let Some(seen) = seen else {
            return 0;
        };
        if !seen.copy_inline_key(self.key) {
            return 0;
        }
        let hash = self.shared.hasher.hash(self.key);
        let moved = self.move_of(hash, offset);
        let counter = if moved {
            &self.shared.mover.moved
        } else {
            &self.shared.mover.left
        };
        counter.fetch_add(1, Ordering::Relaxed);
        MOVE_COST + class_bytes(class) as u64
    }

    /// Moves the record at `offset` if it is a record of a key with `hash`. Returns whether it was.
    fn move_of(&mut self, hash: u64, offset: Offset) -> bool {
        for (_, index) in self.seen.iter() {
            let Some(bucket) = index.try_lock(hash) else {
                continue;
            };
            let found = index.find(bucket, hash, |link| link.offset() == Some(offset));
            let moved = found.is_some_and(|spot| {
                view_of(self.shared, spot.link)
                    .and_then(|view| self.copy_elsewhere(&view))
                    .inspect(|&to| spot.bucket.set_link(spot.at, spot.link.with_offset(to)))
                    .is_some()
            });
            if moved {
                // While the bucket is held, so that no thread first finds the old slot in use
                // again.
                self.free_moved(offset);
            }
            bucket.unlock(moved);
            if moved {
                return true;
            }
        }
        false
    }

    /// Copies a record to a slot that fits it. Returns that slot. The caller holds its bucket.
    fn copy_elsewhere(&mut self, view: &View<'_>) -> Option<Offset> {
        let arena = self.shared.arena_ref();
        let class = class_for(view.used_bytes())?;
        let to = self.local.cache.allocate(class).ok()?;
        let used = view.used_bytes();
        // SAFETY: the caller holds the bucket, and what is written is another slot.
        unsafe { view.with_slot(used, |record| arena.copy_in(to, 0, record)) };
        View::create(arena, to, view.header().with_class(class)).map(|_| to)
    }

    /// Frees the slot that a record was moved away from.
    fn free_moved(&mut self, offset: Offset) {
        let chunk = ChunkId::of(offset);
        if let Some(class) = self.shared.slab.class_of_chunk(chunk) {
            if self.shared.slab.is_retired_chunk(chunk) {
                self.local.cache.free_moved(offset, class);
            } else {
                self.local.cache.free(offset, class);
            }
        }
    }
}
