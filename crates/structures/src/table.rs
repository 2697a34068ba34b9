//! A hash table of byte strings without long pauses, for large sets and hashes.
//!
//! ```text
//!   directory  0 0 1 2 3 3 3 3      by the leading bits of the hash
//!              └┬┘ │ │ └──┬──┘
//!   pages      page 0, 1, 2, 3     up to 112 entries each, their bytes side by side
//! ```
//!
//! Extendible hashing (Fagin et al., TODS 1979): a full page is split in two by the next bit of its
//! hashes, and the directory doubles if that page had as many bits as the directory. So an
//! operation moves at most one page, besides the directory: four bytes for about 80 entries. A page
//! with few entries left is merged with the page of its other half.
//!
//! A page covers an interval of hashes, so a cursor is simply a hash. When intervals are split and
//! merged, a scan neither misses an entry nor visits one twice.
//!
//! Pages are shared on clone and copied when one of the owners changes them.
//!
//! Invariants
//!  1. `directory[p]` is the page whose interval contains the hashes that begin with `p`.
//!  2. No page has more bits than the directory. If the directory has bits, some page has as many.

mod deadlines;
mod entry;
mod page;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use deadlines::Deadlines;
use page::{LEN_MAX, Page, Slot};

pub use entry::Entry;

use crate::hashing::hash;
use crate::relocation::Relocation;

/// Maximum bits of the directory: enough for about five thousand million entries.
const DEPTH_MAX: u8 = 26;

/// The pages of two halves of an interval are merged if together they have fewer entries than this.
const MERGE_BELOW: usize = LEN_MAX / 3;

/// Number of bits of a hash that a cursor omits, so that the cursor is exact as a double, too.
const CURSOR_SHIFT: u32 = 11;

/// Maximum number of keys that are [prefetched](Table::prefetch) together. A core can have fewer
/// memory accesses in flight at once.
pub const AHEAD_MAX: usize = 16;

/// There is no space for another entry: the largest directory is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A table of entries with distinct keys.
#[derive(Clone, Debug)]
pub struct Table {
    directory: Vec<u32>,
    depth: u8,
    pages: Vec<Arc<Page>>,
    /// Number of pages by the number of their bits.
    pages_at: [u32; DEPTH_MAX as usize + 1],
    len: usize,
    pages_bytes: usize,
    deadlines: Option<Box<Deadlines>>,
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    /// Creates an empty table, which has one empty page.
    #[must_use]
    pub fn new() -> Self {
        let page = Page::new(0, 0);
        let mut pages_at = [0; DEPTH_MAX as usize + 1];
        pages_at[0] = 1;
        Self {
            directory: vec![0],
            depth: 0,
            pages_bytes: page.memory_bytes(),
            pages: vec![Arc::new(page)],
            pages_at,
            len: 0,
            deadlines: None,
        }
    }

    /// Returns the number of entries, including those whose deadline has passed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of the table. Constant time.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let lists = self.directory.capacity() * size_of::<u32>()
            + self.pages.capacity() * size_of::<Arc<Page>>();
        let deadlines = self.deadlines.as_ref().map_or(0, |one| one.memory_bytes());
        size_of::<Self>() + lists + self.pages_bytes + deadlines
    }

    /// Returns the approximate number of its allocations, which is the cost of freeing it.
    #[must_use]
    pub fn allocations(&self) -> usize {
        2 * self.pages.len()
    }

    /// Moves its pieces, page after page, as far as the relocation allows. Does not move the heap
    /// of deadlines.
    pub(crate) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        if relocation.is_one_next() {
            relocation.buffer(&mut self.directory);
            relocation.buffer(&mut self.pages);
        }
        let first = relocation.pass_by(self.pages.len());
        for page in &mut self.pages[first..] {
            if !relocation.is_next() {
                return;
            }
            if let Some(page) = relocation.unshared(page, || Page::new(0, 0)) {
                page.move_pieces(relocation);
            }
        }
    }

    /// Returns the entry of `key`.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Entry<'_>> {
        let hash = hash(key);
        let page = &self.pages[self.page_of(hash)];
        page.find(hash, key).map(|slot| page.entry(slot))
    }

    /// Whether there is an entry of `key`.
    #[inline]
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        let hash = hash(key);
        self.pages[self.page_of(hash)].find(hash, key).is_some()
    }

    /// Returns which of these keys, at most [`AHEAD_MAX`], have an entry: one bit each, the lowest
    /// for the first key. The memory accesses overlap, and each key is hashed once.
    pub fn which<'k>(&self, keys: impl Iterator<Item = &'k [u8]> + Clone) -> u32 {
        let mut hashes = [0; AHEAD_MAX];
        let count = self.prefetch_hashed(keys.clone(), &mut hashes);
        let mut found = 0;
        for (at, (key, hash)) in keys.zip(&hashes[..count]).enumerate() {
            let page = &self.pages[self.page_of(*hash)];
            found |= u32::from(page.find(*hash, key).is_some()) << at;
        }
        found
    }

    /// Prefetches what a lookup of these keys will read, for all keys at once, so that the memory
    /// accesses overlap. Only a hint: it may be wrong, and costs about forty instructions per key.
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        self.prefetch_hashed(keys, &mut [0; AHEAD_MAX]);
    }

    /// Does the same, stores the hashes, and returns the number of keys.
    #[inline]
    fn prefetch_hashed<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
        hashes: &mut [u64; AHEAD_MAX],
    ) -> usize {
        let mut count = 0;
        for (place, key) in hashes.iter_mut().zip(keys) {
            *place = hash(key);
            self.pages[self.page_of(*place)].prefetch(*place);
            count += 1;
        }
        for hash in &hashes[..count] {
            self.pages[self.page_of(*hash)].prefetch_entry(*hash);
        }
        count
    }

    /// Adds an entry or replaces the one with the same key. Returns whether it was added.
    ///
    /// # Errors
    /// [`Full`] if the key is new and there can be no more pages; the table is unchanged.
    pub fn insert(&mut self, entry: &Entry<'_>) -> Result<bool, Full> {
        let hash = hash(entry.key);
        let mut index = self.page_of(hash);
        let found = self.pages[index].find(hash, entry.key);
        if let Some(slot) = found {
            self.replace(index, slot, hash, entry);
            return Ok(false);
        }
        while self.pages[index].is_full() {
            self.split(index)?;
            index = self.page_of(hash);
        }
        self.change(index, |page| page.add(hash, entry));
        self.len += 1;
        if let Some(deadline) = entry.deadline_unix_ms {
            self.deadlines.get_or_insert_default().add((deadline, hash));
        }
        Ok(true)
    }

    /// Removes the entry of `key`. Returns whether it existed.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let hash = hash(key);
        let index = self.page_of(hash);
        let Some(slot) = self.pages[index].find(hash, key) else {
            return false;
        };
        self.remove_slot(index, slot, hash);
        true
    }

    /// Returns all entries, in no meaningful order.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.pages.iter().flat_map(|page| page.entries())
    }

    /// Returns an entry drawn with equal probability, by numbers from `random`, or `None` if the
    /// table is empty. Takes two draws on average.
    pub fn random(&self, mut random: impl FnMut() -> u64) -> Option<Entry<'_>> {
        if self.is_empty() {
            return None;
        }
        loop {
            let number = random();
            let page = &self.pages[(number >> 32) as usize % self.pages.len()];
            let slot = Page::slot_for(number);
            if page.is_used(slot) {
                return Some(page.entry(slot));
            }
        }
    }

    /// Visits about `count` entries from `cursor` on. Returns the next cursor, or 0 at the end.
    /// Every entry that exists from the first call of a scan to its last is visited once.
    pub fn scan<'t>(&'t self, cursor: u64, count: usize, mut visit: impl FnMut(Entry<'t>)) -> u64 {
        let mut start = cursor << CURSOR_SHIFT;
        let mut shown = 0;
        loop {
            let page = &self.pages[self.page_of(start)];
            let last = slice_end(page, start, count);
            let is_whole = start == page.first_hash && last == page.last_hash();
            for entry in page.entries() {
                if is_whole || (start..=last).contains(&hash(entry.key)) {
                    visit(entry);
                    shown += 1;
                }
            }
            match last.checked_add(1) {
                None => return 0,
                Some(next) if shown >= count.max(1) => return next >> CURSOR_SHIFT,
                Some(next) => start = next,
            }
        }
    }

    /// Returns the number of entries that have a deadline.
    #[must_use]
    pub fn expiring_len(&self) -> usize {
        self.deadlines.as_ref().map_or(0, |one| one.live())
    }

    /// Whether there may be entries whose deadline is not after `now_unix_ms`. Checks the first
    /// mark only, which may be stale because the entry has another deadline now. Constant time.
    #[inline]
    #[must_use]
    pub fn has_due(&self, now_unix_ms: u64) -> bool {
        let first = self.deadlines.as_ref().and_then(|one| one.first());
        first.is_some_and(|(deadline, _)| deadline <= now_unix_ms)
    }

    /// Returns the earliest deadline of all entries.
    pub fn first_deadline_unix_ms(&mut self) -> Option<u64> {
        self.first_due().map(|(deadline, ..)| deadline)
    }

    /// Removes at most `count` entries whose deadline is not after `now_unix_ms`, and calls `visit`
    /// with each before its removal. Returns the number of removed entries.
    pub fn expire(
        &mut self,
        now_unix_ms: u64,
        count: usize,
        mut visit: impl FnMut(Entry<'_>),
    ) -> usize {
        for gone in 0..count {
            match self.first_due() {
                Some((deadline, index, slot, hash)) if deadline <= now_unix_ms => {
                    visit(self.pages[index].entry(slot));
                    self.remove_slot(index, slot, hash);
                }
                _ => return gone,
            }
        }
        count
    }

    /// Returns the first mark that still belongs to an entry. Drops the stale marks before it.
    fn first_due(&mut self) -> Option<(u64, usize, Slot, u64)> {
        loop {
            let (deadline, key_hash) = self.deadlines.as_ref()?.first()?;
            let index = self.page_of(key_hash);
            if let Some(slot) = self.pages[index].find_due(key_hash, deadline, hash) {
                return Some((deadline, index, slot, key_hash));
            }
            self.deadlines.as_mut()?.drop_first();
        }
    }

    /// Returns the number of the page whose interval contains `hash`.
    #[inline]
    fn page_of(&self, hash: u64) -> usize {
        // In two steps, because a shift by 64 is not allowed.
        let prefix = hash >> 1 >> (63 - u32::from(self.depth));
        self.directory[prefix as usize] as usize
    }

    /// Changes a page, after copying it if it is shared, and updates the count of its bytes.
    #[inline]
    fn change<R>(&mut self, index: usize, change: impl FnOnce(&mut Page) -> R) -> R {
        // Before the copy, because a copy has no unused capacity.
        let before = self.pages[index].memory_bytes();
        let page = Arc::make_mut(&mut self.pages[index]);
        let result = change(page);
        self.pages_bytes = self.pages_bytes - before + page.memory_bytes();
        result
    }

    fn replace(&mut self, index: usize, slot: Slot, hash: u64, entry: &Entry<'_>) {
        let before = self.pages[index].entry(slot).deadline_unix_ms;
        self.change(index, |page| page.replace(slot, entry));
        if before != entry.deadline_unix_ms {
            self.note_deadline(hash, before, entry.deadline_unix_ms);
        }
    }

    fn remove_slot(&mut self, index: usize, slot: Slot, hash: u64) {
        let deadline = self.pages[index].entry(slot).deadline_unix_ms;
        self.change(index, |page| page.remove(slot, hash));
        self.len -= 1;
        self.note_deadline(hash, deadline, None);
        if self.pages[index].len() < MERGE_BELOW {
            self.merge(index);
        }
    }

    fn note_deadline(&mut self, hash: u64, before: Option<u64>, after: Option<u64>) {
        if before.is_none() && after.is_none() {
            return;
        }
        let deadlines = self.deadlines.get_or_insert_default();
        if before.is_some() {
            deadlines.forget();
        }
        if let Some(deadline) = after {
            deadlines.add((deadline, hash));
        }
        if deadlines.live() == 0 {
            self.deadlines = None;
        } else if deadlines.is_mostly_stale() {
            let marks = self.marks();
            self.deadlines.get_or_insert_default().rebuild(marks);
        }
    }

    fn marks(&self) -> Vec<deadlines::Mark> {
        let mark = |entry: Entry<'_>| Some((entry.deadline_unix_ms?, hash(entry.key)));
        self.iter().filter_map(mark).collect()
    }

    fn split(&mut self, index: usize) -> Result<(), Full> {
        let depth = self.pages[index].depth;
        if depth == self.depth {
            self.double_directory()?;
        }
        let sibling = u32::try_from(self.pages.len()).map_err(|_| Full)?;
        let upper = self.change(index, |page| page.split(hash));
        let (first, last) = self.prefixes(&upper);
        self.directory[first..=last].fill(sibling);
        self.pages_bytes += upper.memory_bytes();
        self.pages.push(Arc::new(upper));
        self.pages_at[usize::from(depth)] -= 1;
        self.pages_at[usize::from(depth) + 1] += 2;
        Ok(())
    }

    fn double_directory(&mut self) -> Result<(), Full> {
        if self.depth == DEPTH_MAX {
            return Err(Full);
        }
        let twice = self.directory.iter().flat_map(|page| [*page; 2]);
        self.directory = twice.collect();
        self.depth += 1;
        Ok(())
    }

    /// Merges the page with the page of the other half of its interval, if one page has that half
    /// and both together are small enough.
    fn merge(&mut self, index: usize) {
        let page = &self.pages[index];
        if page.depth == 0 {
            return;
        }
        let depth = page.depth;
        let other_half = page.first_hash ^ (1 << (64 - u32::from(depth)));
        let other_index = self.page_of(other_half);
        let other = &self.pages[other_index];
        if other.depth != depth || page.len() + other.len() >= MERGE_BELOW {
            return;
        }
        let (keep, give) = if index < other_index {
            (index, other_index)
        } else {
            (other_index, index)
        };
        let given = self.take_page(give);
        self.change(keep, |page| page.merge(&given, hash));
        self.point_to(keep);
        self.pages_at[usize::from(depth)] -= 2;
        self.pages_at[usize::from(depth) - 1] += 1;
        while self.depth > 0 && self.pages_at[usize::from(self.depth)] == 0 {
            self.directory = self.directory.iter().step_by(2).copied().collect();
            self.depth -= 1;
        }
    }

    /// Removes a page from the list. The last page gets its number. The directory still names the
    /// removed page.
    fn take_page(&mut self, index: usize) -> Arc<Page> {
        let taken = self.pages.swap_remove(index);
        self.pages_bytes -= taken.memory_bytes();
        if index < self.pages.len() {
            self.point_to(index);
        }
        if self.pages.len() < self.pages.capacity() / 4 {
            self.pages.shrink_to(self.pages.len() * 2);
        }
        taken
    }

    /// Sets the directory's places for a page's interval to the page.
    fn point_to(&mut self, index: usize) {
        let (first, last) = self.prefixes(&self.pages[index]);
        // There are always fewer pages than a u32 can count: the directory has at most 2^26 places.
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        self.directory[first..=last].fill(number);
    }

    /// Returns the range of a page's places in the directory.
    fn prefixes(&self, page: &Page) -> (usize, usize) {
        let prefix = |hash: u64| (hash >> 1 >> (63 - u32::from(self.depth))) as usize;
        (prefix(page.first_hash), prefix(page.last_hash()))
    }
}

/// Returns the last hash of the part of the page that a scan visits in one step: the page's
/// interval, halved until a part has about `count` entries.
fn slice_end(page: &Page, start: u64, count: usize) -> u64 {
    let parts = (page.len() / count.max(1)).max(1).ilog2();
    let width_bits = (64 - u32::from(page.depth))
        .saturating_sub(parts)
        .max(CURSOR_SHIFT);
    start | u64::MAX.checked_shr(64 - width_bits).unwrap_or(0)
}
