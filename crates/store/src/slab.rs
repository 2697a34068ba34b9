//! Slots for records: size classes, a cache per thread, a pool per class.
//!
//! ```text
//!   thread: SlabCache ─ per class: list of free slots + untouched rest of a chunk     no lock
//!                 │ half a list, a refill                                             ▲
//!                 ▼                                                                   │
//!   shared: Pool per class (mutex) ─ chunks with free slots, each with its own list ──┘
//!                 │ a wholly free chunk, a new chunk
//!                 ▼
//!   Arena: chunks free for any class ─ and back to the system
//! ```
//!
//! Any thread frees any slot: a slot belongs to its chunk, not to a thread. Free slots are linked
//! through their first word. A reader that came through an older entry may look at a slot at any
//! time, free or not, so that word too is only written atomically. The memory is never unmapped
//! (see [`crate::arena`]), so records need no epochs.
//!
//! A chunk counts its slots that are in use or in a thread's cache ("out"). So the count changes
//! only in batches, under the pool's lock, and it can become zero only there. A thread strands at
//! most one list of 64 KiB and one chunk not yet cut per class.
//!
//! Compaction: [`Slab::retire_surplus`] takes chunks out of service whose used slots fit into other
//! chunks. The mover walks them and moves each record (allocate, copy, swap,
//! [`SlabCache::free_moved`]). Caches hand their free slots back ([`SlabCache::settle`]; after the
//! walk once more, because of [`Slab::recall`]), and the emptied chunk goes back to the arena by
//! itself.

use std::sync::Arc;

use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{CachePadded, Mutex};

use crate::accounting::{Ledger, LocalBytes};
use crate::arena::{Arena, CHUNK_BYTES, Offset, distance};
pub(crate) use crate::chunk::OutOfMemory;
use crate::chunk::{CLEANED_AT_ONCE, ChunkId, ChunkInfo, lock};
use crate::size_class::{CLASS_BYTES, CLASS_COUNT, capacity};
pub(crate) use crate::size_class::{SLOT_BYTES_MAX, SizeClass, class_bytes, class_for};

/// A thread keeps at most this many bytes in one class's list …
const LIST_BYTES_MAX: usize = CHUNK_BYTES;
/// … and at most this many slots, so that handing half of them over is quick.
#[cfg(not(any(loom, shuttle)))]
const LIST_SLOTS_MAX: usize = 512;
#[cfg(any(loom, shuttle))]
const LIST_SLOTS_MAX: usize = 2;

/// Number of slots taken from the pool at once. Few, because each is a cache miss under the lock.
#[cfg(not(any(loom, shuttle)))]
const REFILL_SLOTS: u32 = 32;
#[cfg(any(loom, shuttle))]
const REFILL_SLOTS: u32 = 1;

/// Number of slots that a thread may keep in the list of `class`.
#[inline]
fn list_slots_max(class: SizeClass) -> u32 {
    LIST_MAX[class.index()]
}

const LIST_MAX: [u32; CLASS_COUNT] = {
    let mut slots = [0; CLASS_COUNT];
    let mut index = 0;
    while index < CLASS_COUNT {
        let by_bytes = LIST_BYTES_MAX / CLASS_BYTES[index];
        let max = if by_bytes < LIST_SLOTS_MAX {
            by_bytes
        } else {
            LIST_SLOTS_MAX
        };
        #[expect(clippy::cast_possible_truncation, reason = "at most LIST_SLOTS_MAX")]
        let max = max as u32;
        slots[index] = max;
        index += 1;
    }
    slots
};

/// Values of [`ChunkInfo::state`]: free is 0, otherwise one of these uses and the flags below.
mod state {
    pub(super) const SLOTS: u32 = 1;
    pub(super) const PAGE: u32 = 2;
    pub(super) const USE_MASK: u32 = 0xff;
    pub(super) const CLASS_SHIFT: u32 = 8;
    /// The chunk is in its class's list of chunks with free slots.
    pub(super) const LISTED: u32 = 1 << 16;
    /// The chunk gives out no more slots.
    pub(super) const RETIRED: u32 = 1 << 17;
}

/// The state of a chunk that is a page of a large value.
pub(crate) const STATE_PAGE: u32 = state::PAGE;

/// All slots of a store, shared by its threads.
#[derive(Debug)]
pub(crate) struct Slab {
    arena: Arc<Arena>,
    ledger: Arc<Ledger>,
    pools: Box<[CachePadded<Mutex<Pool>>]>,
    live: Ledger,
    /// Number of chunks of all classes.
    chunks: CachePadded<AtomicU64>,
    /// Raised each time chunks are retired.
    generation: AtomicU64,
}

/// The chunks of one class that have free slots.
#[derive(Debug)]
struct Pool {
    first: ChunkId,
    /// Number of chunks of the class, with free slots or without.
    chunks: u64,
}

/// Memory of a store's slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlabUsage {
    /// Bytes of the slots in use, with their shares of the chunks' ends. Up to 64 KiB per thread
    /// are not yet counted.
    pub(crate) live_bytes: u64,
    /// Bytes of the chunks that hold slots, including free ones.
    pub(crate) held_bytes: u64,
}

impl SlabUsage {
    /// Bytes held but not in use.
    #[inline]
    pub(crate) fn waste_bytes(self) -> u64 {
        self.held_bytes.saturating_sub(self.live_bytes)
    }
}

impl Slab {
    /// Creates slots in `arena`; what they hold is added to `ledger`.
    pub(crate) fn new(arena: Arc<Arena>, ledger: Arc<Ledger>) -> Arc<Self> {
        Arc::new(Self {
            arena,
            ledger,
            pools: (0..CLASS_COUNT)
                .map(|_| {
                    CachePadded::new(Mutex::new(Pool {
                        first: ChunkId::ZERO,
                        chunks: 0,
                    }))
                })
                .collect(),
            live: Ledger::default(),
            chunks: CachePadded::new(AtomicU64::new(0)),
            generation: AtomicU64::new(0),
        })
    }

    /// The memory behind the slots.
    #[inline]
    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The ledger that counts the slots and pages of this arena.
    #[inline]
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns a cache for one thread.
    pub(crate) fn cache(self: &Arc<Self>) -> SlabCache {
        SlabCache {
            slab: Arc::clone(self),
            lists: std::array::from_fn(|_| List::default()),
            live: LocalBytes::default(),
            generation: self.generation.load(Ordering::Acquire),
        }
    }

    /// Returns the sums over all classes: two loads.
    #[inline]
    pub(crate) fn usage(&self) -> SlabUsage {
        SlabUsage {
            live_bytes: self.live.used_bytes(),
            held_bytes: self.chunks.load(Ordering::Relaxed) * CHUNK_BYTES as u64,
        }
    }

    /// Bytes of the chunks of one class.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self, class: SizeClass) -> u64 {
        lock(&self.pools[class.index()]).chunks * CHUNK_BYTES as u64
    }

    /// Takes chunks out of service of whose slots less than `percent` are out. Returns their
    /// number.
    #[cfg(test)]
    pub(crate) fn retire_sparse(&self, percent: u32) -> usize {
        let retired = self
            .all_chunks()
            .filter(|&chunk| {
                self.retire_if(chunk, |class, out| {
                    u64::from(out) * 100 < u64::from(percent) * u64::from(capacity(class))
                })
            })
            .count();
        if retired > 0 {
            self.recall();
        }
        retired
    }

    /// Takes chunks out of service whose used slots fit into the other chunks of their class. Only
    /// chunks with less than `percent` of their slots in use are eligible. Takes the emptiest
    /// first, until about `goal_bytes` of chunks are taken. Looks twice at every chunk ever used, a
    /// few nanoseconds each.
    pub(crate) fn retire_surplus(&self, percent: u32, goal_bytes: u64) -> Vec<ChunkId> {
        let mut surplus = Surplus::default();
        for chunk in self.all_chunks() {
            if let Some((class, out)) = self.in_service(chunk) {
                surplus.count(class, out);
            }
        }
        surplus.choose(percent, goal_bytes);
        let chosen: Vec<ChunkId> = self
            .all_chunks()
            .filter(|&chunk| {
                self.in_service(chunk)
                    .is_some_and(|(class, out)| surplus.take(class, out))
            })
            .collect();
        let mut retired = chosen;
        retired.retain(|&chunk| self.retire_if(chunk, |_, _| true));
        if !retired.is_empty() {
            self.recall();
        }
        retired
    }

    /// Puts a retired chunk back into service, because its content cannot be moved now.
    pub(crate) fn reinstate(&self, chunk: ChunkId) {
        let info = self.arena.chunks().info(chunk);
        let Some(class) = class_of(info.state.load(Ordering::Acquire)) else {
            return;
        };
        let mut pool = lock(&self.pools[class.index()]);
        let now = info.state.load(Ordering::Relaxed);
        if class_of(now) != Some(class) || now & state::RETIRED == 0 {
            return;
        }
        info.state.store(now & !state::RETIRED, Ordering::Relaxed);
        let has_free = info.free_head.load(Ordering::Relaxed) != 0
            || info.fresh.load(Ordering::Relaxed) < slots_end(class);
        if has_free {
            self.list(&mut pool, chunk);
        }
    }

    /// Returns all chunks that were ever used.
    pub(crate) fn all_chunks(&self) -> impl Iterator<Item = ChunkId> + use<> {
        (1..self.arena.chunks().unused().number()).map(ChunkId::from_number)
    }

    /// Returns the class of a chunk, or `None` if it holds no slots.
    #[inline]
    pub(crate) fn class_of_chunk(&self, chunk: ChunkId) -> Option<SizeClass> {
        class_of(
            self.arena
                .chunks()
                .info(chunk)
                .state
                .load(Ordering::Acquire),
        )
    }

    /// Returns the class of a chunk that gives out slots, and how many of them are out.
    fn in_service(&self, chunk: ChunkId) -> Option<(SizeClass, u32)> {
        let info = self.arena.chunks().info(chunk);
        let now = info.state.load(Ordering::Acquire);
        let class = class_of(now).filter(|_| now & state::RETIRED == 0)?;
        Some((class, info.count.load(Ordering::Relaxed)))
    }

    /// Makes every cache hand its free slots back when it next settles. Slots of retired chunks
    /// that were freed since the last time may be all that keeps those chunks.
    pub(crate) fn recall(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Whether the record at `offset` should be moved.
    #[inline]
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn is_retired(&self, offset: Offset) -> bool {
        self.is_retired_chunk(ChunkId::of(offset))
    }

    /// Whether a chunk is out of service.
    #[inline]
    pub(crate) fn is_retired_chunk(&self, chunk: ChunkId) -> bool {
        let info = self.arena.chunks().info(chunk);
        info.state.load(Ordering::Relaxed) & state::RETIRED != 0
    }

    /// Takes a chunk out of service if its class and its number of slots that are out suit.
    fn retire_if(&self, chunk: ChunkId, suits: impl Fn(SizeClass, u32) -> bool) -> bool {
        let info = self.arena.chunks().info(chunk);
        let Some(class) = class_of(info.state.load(Ordering::Acquire)) else {
            return false;
        };
        let mut pool = lock(&self.pools[class.index()]);
        // A chunk keeps its class only under the lock of that class.
        let now = info.state.load(Ordering::Relaxed);
        let out = info.count.load(Ordering::Relaxed);
        if class_of(now) != Some(class) || now & state::RETIRED != 0 || !suits(class, out) {
            return false;
        }
        self.unlist(&mut pool, chunk);
        set_flag(info, state::RETIRED);
        true
    }

    /// Takes slots for a cache that has none of `class`.
    fn refill(&self, class: SizeClass, list: &mut List) -> Result<(), OutOfMemory> {
        {
            let mut pool = lock(&self.pools[class.index()]);
            if !pool.first.is_zero() {
                self.take_from_first(&mut pool, class, list);
                return Ok(());
            }
            pool.chunks += 1;
        }
        let chunk = self.arena.take_chunk().inspect_err(|_| {
            lock(&self.pools[class.index()]).chunks -= 1;
        })?;
        self.chunks.fetch_add(1, Ordering::Relaxed);
        let info = self.arena.chunks().info(chunk);
        let end = slots_end(class);
        info.count.store(capacity(class), Ordering::Relaxed);
        info.free_head.store(0, Ordering::Relaxed);
        info.fresh.store(end, Ordering::Relaxed);
        // Stored last: a thread that sees the class under its lock sees the rest too, because the
        // lock was free before.
        let state = state::SLOTS | u32::from(class.number()) << state::CLASS_SHIFT;
        info.state.store(state, Ordering::Release);
        list.set_fresh(chunk, 0, end);
        Ok(())
    }

    /// Moves a few free slots, or the uncut rest, from the pool's first chunk to `list`.
    fn take_from_first(&self, pool: &mut Pool, class: SizeClass, list: &mut List) {
        let chunk = pool.first;
        let info = self.arena.chunks().info(chunk);
        let end = slots_end(class);
        let mut taken = 0;
        let mut head = info.free_head.load(Ordering::Relaxed);
        while let Some(offset) = slot_at(chunk, head).filter(|_| taken < REFILL_SLOTS) {
            let link = self.arena.word(offset, 0);
            head = u32::try_from(link.load(Ordering::Relaxed)).unwrap_or(0);
            link.store(list.head, Ordering::Relaxed);
            list.head = offset.bytes();
            taken += 1;
        }
        list.count += taken;
        info.free_head.store(head, Ordering::Relaxed);
        let fresh = info.fresh.load(Ordering::Relaxed);
        if taken == 0 && fresh < end {
            list.set_fresh(chunk, fresh, end);
            info.fresh.store(end, Ordering::Relaxed);
            taken = (end - fresh) / slot_bytes(class);
        }
        let out = info.count.load(Ordering::Relaxed) + taken;
        info.count.store(out, Ordering::Relaxed);
        if head == 0 && info.fresh.load(Ordering::Relaxed) >= end {
            self.unlist(pool, chunk);
        }
    }

    /// Takes back `count` slots of `class`, linked from `head` on. Returns the slot after the last
    /// of them.
    fn give_back(&self, class: SizeClass, head: u64, count: u32) -> u64 {
        let mut emptied = Vec::new();
        let mut next = head;
        {
            let mut pool = lock(&self.pools[class.index()]);
            for _ in 0..count {
                let Some(offset) = Offset::new(next) else {
                    break;
                };
                next = self.arena.word(offset, 0).load(Ordering::Relaxed);
                let chunk = self.return_slot(offset);
                if self.after_return(&mut pool, chunk, 1) {
                    emptied.push(chunk);
                }
            }
        }
        if !emptied.is_empty() {
            self.arena.give_chunks(&emptied, CLEANED_AT_ONCE);
        }
        next
    }

    /// Takes back the uncut rest of a chunk.
    fn give_back_fresh(&self, class: SizeClass, fresh_at: u64, fresh_end: u64) {
        let Some(offset) = Offset::new(fresh_at).filter(|_| fresh_at < fresh_end) else {
            return;
        };
        let chunk = ChunkId::of(offset);
        let rest = u32::try_from(fresh_end - fresh_at).unwrap_or(0);
        let emptied = {
            let mut pool = lock(&self.pools[class.index()]);
            let info = self.arena.chunks().info(chunk);
            info.fresh.store(slots_end(class) - rest, Ordering::Relaxed);
            self.after_return(&mut pool, chunk, rest / slot_bytes(class))
        };
        if emptied {
            self.arena.give_chunks(&[chunk], CLEANED_AT_ONCE);
        }
    }

    /// Puts a slot into the list of its chunk. The caller holds the pool's lock.
    fn return_slot(&self, offset: Offset) -> ChunkId {
        let chunk = ChunkId::of(offset);
        let info = self.arena.chunks().info(chunk);
        let head = info.free_head.load(Ordering::Relaxed);
        self.arena
            .word(offset, 0)
            .store(u64::from(head), Ordering::Relaxed);
        let byte_at = offset.bytes() % CHUNK_BYTES as u64;
        let head = u32::try_from(byte_at + 1).unwrap_or(0);
        info.free_head.store(head, Ordering::Relaxed);
        chunk
    }

    /// Counts `slots` returned to `chunk`. Returns whether the chunk is now wholly free and no
    /// longer the class's.
    fn after_return(&self, pool: &mut Pool, chunk: ChunkId, slots: u32) -> bool {
        let info = self.arena.chunks().info(chunk);
        let out = info.count.load(Ordering::Relaxed) - slots;
        info.count.store(out, Ordering::Relaxed);
        if out == 0 {
            self.unlist(pool, chunk);
            pool.chunks -= 1;
            self.chunks.fetch_sub(1, Ordering::Relaxed);
            info.free_head.store(0, Ordering::Relaxed);
            info.state.store(0, Ordering::Release);
            return true;
        }
        if info.state.load(Ordering::Relaxed) & (state::LISTED | state::RETIRED) == 0 {
            self.list(pool, chunk);
        }
        false
    }

    /// Puts `chunk` at the head of the pool's list.
    fn list(&self, pool: &mut Pool, chunk: ChunkId) {
        let chunks = self.arena.chunks();
        let info = chunks.info(chunk);
        info.previous.store(0, Ordering::Relaxed);
        info.next.store(pool.first.number(), Ordering::Relaxed);
        if !pool.first.is_zero() {
            let next = chunks.info(pool.first);
            next.previous.store(chunk.number(), Ordering::Relaxed);
        }
        pool.first = chunk;
        set_flag(info, state::LISTED);
    }

    /// Removes `chunk` from the pool's list, if it is in it.
    fn unlist(&self, pool: &mut Pool, chunk: ChunkId) {
        let chunks = self.arena.chunks();
        let info = chunks.info(chunk);
        let state = info.state.load(Ordering::Relaxed);
        if state & state::LISTED == 0 {
            return;
        }
        let next = ChunkId::from_number(info.next.load(Ordering::Relaxed));
        let previous = ChunkId::from_number(info.previous.load(Ordering::Relaxed));
        if previous.is_zero() {
            pool.first = next;
        } else {
            let before = chunks.info(previous);
            before.next.store(next.number(), Ordering::Relaxed);
        }
        if !next.is_zero() {
            let after = chunks.info(next);
            after.previous.store(previous.number(), Ordering::Relaxed);
        }
        info.state.store(state & !state::LISTED, Ordering::Relaxed);
    }
}

/// One thread's access to slots. Not shared; returns all it holds when dropped.
#[derive(Debug)]
pub(crate) struct SlabCache {
    slab: Arc<Slab>,
    lists: [List; CLASS_COUNT],
    live: LocalBytes,
    generation: u64,
}

/// Free slots of one class.
#[derive(Debug, Default)]
struct List {
    /// Offset of the first free slot, 0 for none; each free slot names the next in its first word.
    head: u64,
    /// Offset of the first slot that was never cut; the uncut rest ends at `fresh_end`.
    fresh_at: u64,
    fresh_end: u64,
    count: u32,
}

impl List {
    fn set_fresh(&mut self, chunk: ChunkId, from: u32, to: u32) {
        self.fresh_at = (chunk.start() as u64) + u64::from(from);
        self.fresh_end = (chunk.start() as u64) + u64::from(to);
    }
}

impl SlabCache {
    /// The memory behind the slots.
    #[cfg(all(test, any(loom, shuttle)))]
    pub(crate) fn arena(&self) -> &Arena {
        &self.slab.arena
    }

    /// Allocates a slot of `class`; its content may be anything.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the reserved range is used up.
    #[inline]
    pub(crate) fn allocate(&mut self, class: SizeClass) -> Result<Offset, OutOfMemory> {
        let bytes = class_bytes(class);
        let list = &mut self.lists[class.index()];
        let offset = loop {
            if let Some(offset) = Offset::new(list.head) {
                list.head = self.slab.arena.word(offset, 0).load(Ordering::Relaxed);
                list.count -= 1;
                // The next allocation reads the link in the next slot.
                if let Some(next) = Offset::new(list.head) {
                    self.slab.arena.prefetch(next);
                }
                break offset;
            }
            if list.fresh_at < list.fresh_end {
                let offset = Offset::new(list.fresh_at).ok_or(OutOfMemory)?;
                list.fresh_at += bytes as u64;
                break offset;
            }
            self.slab.refill(class, list)?;
        };
        self.count_live(share_bytes(class));
        Ok(offset)
    }

    /// Frees a slot of `class`, which any thread may have allocated. Readers that still look at it
    /// see its words change.
    #[inline]
    pub(crate) fn free(&mut self, offset: Offset, class: SizeClass) {
        debug_assert_eq!(
            class_of(
                self.slab
                    .arena
                    .chunks()
                    .info(ChunkId::of(offset))
                    .state
                    .load(Ordering::Relaxed)
            ),
            Some(class),
            "freed as another class than it was allocated"
        );
        let list = &mut self.lists[class.index()];
        let link = self.slab.arena.word(offset, 0);
        link.store(list.head, Ordering::Relaxed);
        list.head = offset.bytes();
        list.count += 1;
        if list.count > list_slots_max(class) {
            let half = list.count / 2;
            list.head = self.slab.give_back(class, list.head, half);
            list.count -= half;
        }
        self.count_live(-share_bytes(class));
    }

    /// Frees a slot of a retired chunk. The slot does not go into the list, which would give it out
    /// again.
    pub(crate) fn free_moved(&mut self, offset: Offset, class: SizeClass) {
        self.slab.give_back(class, offset.bytes(), 1);
        self.count_live(-share_bytes(class));
    }

    /// Hands all free slots back if chunks were retired since the last call; one load if not.
    /// Called once per tick.
    #[inline]
    pub(crate) fn settle(&mut self) {
        let generation = self.slab.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.generation = generation;
            self.give_back_all();
        }
    }

    /// Bytes that this thread counted and has not yet reported.
    #[inline]
    pub(crate) fn pending_bytes(&self) -> i64 {
        self.live.pending()
    }

    /// Adds the bytes that this thread counted to the shared counters.
    pub(crate) fn flush(&mut self) {
        let bytes = self.live.take();
        self.tell(bytes);
    }

    #[cold]
    fn give_back_all(&mut self) {
        for (list, class) in self.lists.iter_mut().zip(SizeClass::all()) {
            if list.count > 0 {
                self.slab.give_back(class, list.head, list.count);
            }
            self.slab
                .give_back_fresh(class, list.fresh_at, list.fresh_end);
            *list = List::default();
        }
        self.flush();
    }

    #[inline]
    fn count_live(&mut self, bytes: i64) {
        if let Some(due) = self.live.add(bytes) {
            self.tell(due);
        }
    }

    fn tell(&self, bytes: i64) {
        self.slab.live.add(bytes);
        self.slab.ledger.add(bytes);
    }
}

impl Drop for SlabCache {
    fn drop(&mut self) {
        self.give_back_all();
    }
}

/// Chooses the chunks that their class does not need, from counts by fullness.
struct Surplus {
    classes: Vec<ClassFill>,
}

/// The chunks of one class.
#[derive(Clone, Copy, Default)]
struct ClassFill {
    chunks: u64,
    out: u64,
    by_fill: [u32; FILLS],
    /// Number of chunks to take, by fullness.
    wanted: [u32; FILLS],
}

/// Number of degrees of fullness.
const FILLS: usize = 32;

impl Default for Surplus {
    fn default() -> Self {
        Self {
            classes: vec![ClassFill::default(); CLASS_COUNT],
        }
    }
}

impl Surplus {
    fn fill(class: SizeClass, out: u32) -> usize {
        let fill = u64::from(out) * FILLS as u64 / u64::from(capacity(class));
        distance(fill).min(FILLS - 1)
    }

    fn count(&mut self, class: SizeClass, out: u32) {
        let of_class = &mut self.classes[class.index()];
        of_class.chunks += 1;
        of_class.out += u64::from(out);
        of_class.by_fill[Self::fill(class, out)] += 1;
    }

    /// Decides how many chunks of each class and fullness to take.
    fn choose(&mut self, percent: u32, goal_bytes: u64) {
        let mut goal = u32::try_from(goal_bytes.div_ceil(CHUNK_BYTES as u64)).unwrap_or(u32::MAX);
        let fullest = FILLS * distance(u64::from(percent)) / 100;
        let mut spare: Vec<u32> = self
            .classes
            .iter()
            .zip(SizeClass::all())
            .map(|(of_class, class)| {
                let needed = of_class.out.div_ceil(u64::from(capacity(class)));
                u32::try_from(of_class.chunks - needed).unwrap_or(u32::MAX)
            })
            .collect();
        for fill in 0..fullest.min(FILLS) {
            for (of_class, spare) in self.classes.iter_mut().zip(&mut spare) {
                let taken = of_class.by_fill[fill].min(*spare).min(goal);
                of_class.wanted[fill] = taken;
                *spare -= taken;
                goal -= taken;
            }
        }
    }

    /// Whether a chunk is one of those to take.
    fn take(&mut self, class: SizeClass, out: u32) -> bool {
        let wanted = &mut self.classes[class.index()].wanted[Self::fill(class, out)];
        let takes = *wanted > 0;
        *wanted -= u32::from(takes);
        takes
    }
}

/// Bytes of a chunk that a slot of `class` accounts for: the slot, and its share of the rest at the
/// chunk's end.
#[inline]
fn share_bytes(class: SizeClass) -> i64 {
    SHARE_BYTES[class.index()]
}

const SHARE_BYTES: [i64; CLASS_COUNT] = {
    let mut shares = [0; CLASS_COUNT];
    let mut index = 0;
    while index < CLASS_COUNT {
        let slots = CHUNK_BYTES / CLASS_BYTES[index];
        #[expect(clippy::cast_possible_wrap, reason = "at most 64 KiB")]
        let share = (CHUNK_BYTES / slots) as i64;
        shares[index] = share;
        index += 1;
    }
    shares
};

/// Bytes of a slot of `class`.
#[inline]
fn slot_bytes(class: SizeClass) -> u32 {
    u32::try_from(class_bytes(class)).unwrap_or(u32::MAX)
}

/// Bytes from a chunk's start to the end of its last whole slot.
fn slots_end(class: SizeClass) -> u32 {
    capacity(class) * slot_bytes(class)
}

/// Returns the slot that a chunk's list names with `head`.
fn slot_at(chunk: ChunkId, head: u32) -> Option<Offset> {
    chunk.offset(head.checked_sub(1)?)
}

/// Returns the class of a chunk of slots.
fn class_of(state: u32) -> Option<SizeClass> {
    if state & state::USE_MASK != state::SLOTS {
        return None;
    }
    let [_, class, ..] = state.to_le_bytes();
    SizeClass::from_number(class)
}

fn set_flag(info: &ChunkInfo, flag: u32) {
    let state = info.state.load(Ordering::Relaxed);
    info.state.store(state | flag, Ordering::Relaxed);
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

#[cfg(all(test, any(loom, shuttle)))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod model;
