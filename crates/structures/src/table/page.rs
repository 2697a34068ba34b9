//! A page: up to 112 entries whose hashes begin with the same bits, their bytes side by side.
//!
//! ```text
//!   groups   8 × ┌ tags     16 × u16    16 bits of the hash, 0 where a slot is free
//!                └ offsets  16 × u16    where the slot's entry starts in the heap
//!   heap     flags lengths key value │ flags lengths key value │ …
//! ```
//!
//! A group is one cache line, so a search usually reads three lines: the page's head, a group, and
//! the entry. A caller that searches several keys first prefetches all of them
//! ([`Page::prefetch`]).
//!
//! A hash has a home group. An entry is in the first group with a free slot, from the home group
//! on. Each group counts the entries that passed it because it was full. So a search ends at the
//! first group that no entry passed, and a removal leaves no tombstone.
//!
//! Bytes of removed entries stay in the heap until a quarter of it is such garbage; then the heap
//! is rewritten. One operation moves at most a page.

use base::{cache, lanes};

use super::entry::{self, Entry, EntryLayout, Large};
use crate::relocation::Relocation;

const GROUP: usize = 16;
const GROUPS: usize = 8;
const SLOTS: usize = GROUP * GROUPS;

/// Number of entries of a full page: with seven of eight slots in use, a search reads little more
/// than one group.
pub(super) const LEN_MAX: usize = SLOTS * 7 / 8;

/// Offsets are 16 bits wide.
const HEAP_BYTES_MAX: usize = 1 << 16;

/// Bytes that the allocator and the shared pointer to a page take beside it.
const KEPT_BESIDE_BYTES: usize = 80;

/// Position of an entry in its page.
pub(super) type Slot = usize;

/// Slots in one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Group {
    tags: [u16; GROUP],
    offsets: [u16; GROUP],
}

impl Group {
    const EMPTY: Self = Self {
        tags: [0; GROUP],
        offsets: [0; GROUP],
    };
}

#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Page {
    // The head of the page, in one cache line.
    heap: Vec<u8>,
    /// Number of entries that found the group full and are in a later one.
    passed: [u8; GROUPS],
    /// The smallest hash of the page's interval.
    pub(super) first_hash: u64,
    outside: Option<Box<Outside>>,
    garbage_bytes: u32,
    len: u8,
    /// Number of leading bits that the hashes of this page share.
    pub(super) depth: u8,
    groups: [Group; GROUPS],
}

/// Entries that are too long to be stored in the page.
#[derive(Clone, Debug, Default)]
struct Outside {
    entries: Vec<Option<Large>>,
    bytes: usize,
}

impl Outside {
    fn of(page: &Page) -> &[Option<Large>] {
        page.outside
            .as_ref()
            .map_or(&[], |outside| &outside.entries)
    }
}

impl Page {
    pub(super) fn new(depth: u8, first_hash: u64) -> Self {
        Self {
            heap: Vec::new(),
            passed: [0; GROUPS],
            first_hash,
            outside: None,
            garbage_bytes: 0,
            len: 0,
            depth,
            groups: [Group::EMPTY; GROUPS],
        }
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= LEN_MAX
    }

    /// Returns the bytes of the page, including its bookkeeping.
    pub(super) fn memory_bytes(&self) -> usize {
        let outside = self.outside.as_ref().map_or(0, |outside| {
            size_of::<Outside>()
                + outside.entries.capacity() * size_of::<Option<Large>>()
                + outside.bytes
        });
        size_of::<Self>() + KEPT_BESIDE_BYTES + self.heap.capacity() + outside
    }

    /// Moves what it has besides itself, as far as the relocation allows.
    pub(super) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        relocation.buffer(&mut self.heap);
        if let Some(outside) = &mut self.outside {
            relocation.boxed(outside, Outside::default);
            relocation.buffer(&mut outside.entries);
            let large = outside.entries.iter_mut().flatten();
            large.for_each(|one| one.move_pieces(relocation));
        }
    }

    /// Returns the last hash of the page's interval.
    pub(super) fn last_hash(&self) -> u64 {
        self.first_hash | u64::MAX.checked_shr(u32::from(self.depth)).unwrap_or(0)
    }

    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<Slot> {
        let outside = Outside::of(self);
        self.find_by(hash, |place| place.key(&self.heap, outside) == key)
    }

    /// Prefetches what [`find`](Page::find) reads first.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        cache::prefetch(&self.heap);
        cache::prefetch(&self.groups[home_of(hash)]);
    }

    /// Prefetches the entry of `hash` if it is in its home group, as most are. Its page and group
    /// should already be in the cache.
    #[inline]
    pub(super) fn prefetch_entry(&self, hash: u64) {
        let group = &self.groups[home_of(hash)];
        let hits = lanes::equal(&group.tags, tag_of(hash));
        let offset = group.offsets[hits.trailing_zeros() as usize % GROUP];
        if hits != 0
            && let Some(first) = self.heap.get(usize::from(offset))
        {
            cache::prefetch(first);
        }
    }

    /// Returns the entry with this hash and deadline, whatever its key.
    pub(super) fn find_due(
        &self,
        hash: u64,
        deadline_unix_ms: u64,
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Option<Slot> {
        self.find_by(hash, |place| {
            let entry = place.entry(&self.heap, Outside::of(self));
            entry.deadline_unix_ms == Some(deadline_unix_ms) && hash_of(entry.key) == hash
        })
    }

    #[inline]
    fn find_by(&self, hash: u64, is_it: impl Fn(EntryLayout) -> bool) -> Option<Slot> {
        let tag = tag_of(hash);
        let mut group = home_of(hash);
        for _ in 0..GROUPS {
            let mut hits = lanes::equal(&self.groups[group].tags, tag);
            while hits != 0 {
                let slot = group * GROUP + hits.trailing_zeros() as usize;
                if is_it(self.place(slot)) {
                    return Some(slot);
                }
                hits &= hits - 1;
            }
            if self.passed[group] == 0 {
                break;
            }
            group = (group + 1) % GROUPS;
        }
        None
    }

    #[inline]
    pub(super) fn entry(&self, slot: Slot) -> Entry<'_> {
        self.place(slot).entry(&self.heap, Outside::of(self))
    }

    pub(super) fn is_used(&self, slot: Slot) -> bool {
        self.groups[slot / GROUP].tags[slot % GROUP] != 0
    }

    /// Returns a slot drawn from all, which may be free.
    #[allow(clippy::cast_possible_truncation, reason = "only the low bits count")]
    pub(super) fn slot_for(random: u64) -> Slot {
        random as usize & (SLOTS - 1)
    }

    /// Returns all entries, in the order of their slots.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        (0..SLOTS)
            .filter(|slot| self.is_used(*slot))
            .map(|slot| self.entry(slot))
    }

    /// Adds an entry whose key is not in the page. The page must not be full.
    pub(super) fn add(&mut self, hash: u64, entry: &Entry<'_>) {
        debug_assert!(!self.is_full());
        let mut group = home_of(hash);
        let slot = loop {
            let free = lanes::equal(&self.groups[group].tags, 0);
            if free != 0 {
                break group * GROUP + free.trailing_zeros() as usize;
            }
            self.passed[group] += 1;
            group = (group + 1) % GROUPS;
        };
        // Before the tag is set; otherwise making space would read the slot's entry, which does not
        // exist yet.
        self.write(slot, entry);
        *self.tag_mut(slot) = tag_of(hash);
        self.len += 1;
    }

    /// Replaces value and deadline of the key in `slot`.
    pub(super) fn replace(&mut self, slot: Slot, entry: &Entry<'_>) {
        let place = self.place(slot);
        if place.overwrite(&mut self.heap, entry) {
            return;
        }
        let tag = std::mem::take(self.tag_mut(slot));
        self.discard(place);
        self.write(slot, entry);
        *self.tag_mut(slot) = tag;
    }

    /// Removes the entry of `slot`, whose hash is `hash`.
    pub(super) fn remove(&mut self, slot: Slot, hash: u64) {
        let mut group = home_of(hash);
        while group != slot / GROUP {
            self.passed[group] -= 1;
            group = (group + 1) % GROUPS;
        }
        let place = self.place(slot);
        *self.tag_mut(slot) = 0;
        self.len -= 1;
        self.discard(place);
        if self.len == 0 {
            self.heap = Vec::new();
            self.outside = None;
            self.garbage_bytes = 0;
        } else if self.garbage_bytes() > self.heap.len() / 2 {
            self.compact(0);
        }
    }

    /// Splits the page at the next bit of the hashes and returns the upper half.
    pub(super) fn split(&mut self, hash_of: impl Fn(&[u8]) -> u64) -> Self {
        let depth = self.depth + 1;
        let middle = 1 << (64 - u32::from(depth));
        let mut lower = Self::new(depth, self.first_hash);
        let mut upper = Self::new(depth, self.first_hash | middle);
        let expected = (self.heap.len() - self.garbage_bytes()) * 5 / 8;
        lower.heap.reserve_exact(expected);
        upper.heap.reserve_exact(expected);
        for entry in self.entries() {
            let hash = hash_of(entry.key);
            let half = if hash & middle == 0 {
                &mut lower
            } else {
                &mut upper
            };
            half.add(hash, &entry);
        }
        *self = lower;
        upper
    }

    /// Adds the entries of the page with the other half of this one's interval.
    pub(super) fn merge(&mut self, other: &Self, hash_of: impl Fn(&[u8]) -> u64) {
        debug_assert!(self.depth == other.depth && self.len() + other.len() <= LEN_MAX);
        self.depth -= 1;
        self.first_hash = self.first_hash.min(other.first_hash);
        for entry in other.entries() {
            self.add(hash_of(entry.key), &entry);
        }
    }

    #[inline(always)]
    fn place(&self, slot: Slot) -> EntryLayout {
        EntryLayout::of(&self.heap, self.offset(slot))
    }

    #[inline]
    fn offset(&self, slot: Slot) -> usize {
        usize::from(self.groups[slot / GROUP].offsets[slot % GROUP])
    }

    fn tag_mut(&mut self, slot: Slot) -> &mut u16 {
        &mut self.groups[slot / GROUP].tags[slot % GROUP]
    }

    /// Returns the bytes of the heap that belong to no slot.
    fn garbage_bytes(&self) -> usize {
        self.garbage_bytes as usize
    }

    /// Writes an entry for a slot that has none.
    fn write(&mut self, slot: Slot, entry: &Entry<'_>) {
        let index = if entry::is_large(entry) {
            self.keep_outside(entry)
        } else {
            0
        };
        self.make_room(entry::encoded_bytes(entry));
        self.set_offset(slot, self.heap.len());
        entry::append(&mut self.heap, entry, index);
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "make_room keeps the heap below 64 KiB"
    )]
    fn set_offset(&mut self, slot: Slot, offset: usize) {
        debug_assert!(offset < HEAP_BYTES_MAX);
        self.groups[slot / GROUP].offsets[slot % GROUP] = offset as u16;
    }

    /// Stores a large entry outside and returns its number, which is small: there are at most as
    /// many large entries as slots.
    #[allow(clippy::cast_possible_truncation, reason = "at most one a slot")]
    fn keep_outside(&mut self, entry: &Entry<'_>) -> u16 {
        let large = Large::new(entry);
        let outside = self.outside.get_or_insert_default();
        outside.bytes += large.len();
        let free = outside.entries.iter().position(Option::is_none);
        let index = free.unwrap_or(outside.entries.len());
        if index == outside.entries.len() {
            outside.entries.push(Some(large));
        } else {
            outside.entries[index] = Some(large);
        }
        index as u16
    }

    /// Marks the bytes of an entry as garbage: they belong to no slot any more.
    #[allow(clippy::cast_possible_truncation, reason = "at most HEAP_BYTES_MAX")]
    fn discard(&mut self, place: EntryLayout) {
        self.garbage_bytes += place.bytes() as u32;
        if let Some(index) = place.large(&self.heap)
            && let Some(outside) = &mut self.outside
            && let Some(large) = outside.entries[index].take()
        {
            outside.bytes -= large.len();
        }
    }

    fn make_room(&mut self, bytes: usize) {
        let needed = self.heap.len() + bytes;
        let is_too_long = needed > HEAP_BYTES_MAX;
        if needed <= self.heap.capacity() && !is_too_long {
            return;
        }
        if is_too_long || self.garbage_bytes() >= self.heap.len() / 4 + 64 {
            self.compact(bytes);
            return;
        }
        // An eighth at a time: pages are many, so the unused capacity of each matters.
        let step = bytes.max(self.heap.capacity() / 8);
        self.heap.reserve_exact(step);
    }

    /// Rewrites the heap without garbage, with capacity for `bytes` more.
    fn compact(&mut self, bytes: usize) {
        let live = self.heap.len() - self.garbage_bytes();
        let old = std::mem::replace(&mut self.heap, Vec::with_capacity(live + bytes + live / 8));
        for slot in 0..SLOTS {
            if self.is_used(slot) {
                let offset = self.offset(slot);
                let bytes = EntryLayout::of(&old, offset).bytes();
                self.set_offset(slot, self.heap.len());
                self.heap.extend_from_slice(&old[offset..offset + bytes]);
            }
        }
        self.garbage_bytes = 0;
    }
}

/// Returns the bits of the hash that distinguish entries of a page. Never 0, which marks a free
/// slot.
#[allow(clippy::cast_possible_truncation, reason = "the low 16 bits")]
fn tag_of(hash: u64) -> u16 {
    (hash as u16).max(1)
}

/// Returns the home group of a hash. Uses other bits than the tag and the directory.
fn home_of(hash: u64) -> usize {
    (hash >> 16) as usize % GROUPS
}
