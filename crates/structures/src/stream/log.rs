//! The entries of a stream, and counters that include removed entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::block::{Block, Size};
use super::entry::Entry;
use super::id::EntryId;
use super::range::{Backwards, Blocks, Range};
use crate::memory::allocated;
use crate::relocation::Relocation;

/// Maximum bytes of an entry's fields and values together.
pub const ENTRY_BYTES_MAX: usize = 1 << 30;
/// Maximum bytes of a block, whatever is configured, because a change inside a block moves its
/// bytes.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// Bytes of a sealed block beside its buffer: itself with two counts, and its part of a node.
const SEALED_BYTES: usize = SHARED_BYTES + NODE_PART_BYTES;
const NODE_PART_BYTES: usize = 48;
const SHARED_BYTES: usize = allocated(2 * size_of::<usize>() + size_of::<Block>());

/// Maximum number of blocks for which a relocation rebuilds the map of blocks, to move it.
const MAP_MOVED_MAX: usize = 512;

/// Maximum length of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// `stream-node-max-bytes`; 0 for no limit.
    pub block_bytes: usize,
    /// `stream-node-max-entries`; 0 for no limit.
    pub block_entries: usize,
}

impl Default for StreamLimits {
    /// Returns 4096 bytes, 100 entries.
    fn default() -> Self {
        Self {
            block_bytes: 4096,
            block_entries: 100,
        }
    }
}

/// What a trim leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimTo {
    /// At most this many entries (MAXLEN).
    Len(u64),
    /// The entries from an id on (MINID).
    Id(EntryId),
}

/// How to trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// What the trim leaves.
    pub to: TrimTo,
    /// Whether to remove whole blocks only (`~`).
    pub is_approximate: bool,
    /// Maximum number of entries to remove at once.
    pub count_max: Option<u64>,
}

/// Why an entry was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its id is not above the last.
    Id,
    /// It is longer than [`ENTRY_BYTES_MAX`].
    Size,
}

/// Counters that a stream keeps besides its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The highest id that was ever assigned.
    pub last_id: EntryId,
    /// The highest id that was ever deleted (trims do not count).
    pub max_deleted_id: EntryId,
    /// Number of entries ever added.
    pub entries_added: u64,
}

/// Why counters contradict the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCounters {
    /// The last id is below that of an entry.
    LastId,
    /// Fewer entries were added than there are.
    EntriesAdded,
    /// An id above the last id was deleted.
    MaxDeletedId,
}

/// The entries of a stream.
#[derive(Clone, Debug, Default)]
pub struct EntryLog {
    sealed: BTreeMap<EntryId, Arc<Block>>,
    /// The block that grows. Its first id is above those of all others.
    tail: Option<Arc<Block>>,
    len: usize,
    /// Bytes of the blocks' buffers.
    buffer_bytes: usize,
    counters: Counters,
}

impl EntryLog {
    /// Returns the number of entries.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no entries.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of blocks (XINFO STREAM).
    #[must_use]
    pub fn blocks_count(&self) -> usize {
        self.sealed.len() + usize::from(self.tail.is_some())
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let tail = if self.tail.is_some() { SHARED_BYTES } else { 0 };
        self.buffer_bytes + self.sealed.len() * SEALED_BYTES + tail
    }

    /// Moves its pieces, as far as the relocation allows: the map of blocks unless it is large, the
    /// tail, then each block in turn.
    pub(super) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        if relocation.is_one_next() {
            if let Some((_, block)) = self.sealed.first_key_value()
                && self.sealed.len() <= MAP_MOVED_MAX
                && relocation.wants_at(block, self.sealed.len() * NODE_PART_BYTES)
            {
                self.sealed = std::mem::take(&mut self.sealed).into_iter().collect();
            }
            if let Some(tail) = &mut self.tail {
                relocate_block(tail, relocation);
            }
        }
        let first = relocation.pass_by(self.sealed.len());
        for block in self.sealed.values_mut().skip(first) {
            if !relocation.is_next() {
                return;
            }
            relocate_block(block, relocation);
        }
    }

    pub(super) fn allocations(&self) -> usize {
        2 * self.blocks_count() + self.sealed.len() / 6
    }

    /// Returns the counters that the stream keeps besides its entries.
    #[inline]
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the highest id that was ever assigned.
    #[inline]
    #[must_use]
    pub fn last_id(&self) -> EntryId {
        self.counters.last_id
    }

    /// Replaces the counters (XSETID, RESTORE).
    ///
    /// # Errors
    /// If they contradict the entries, or each other; nothing is changed.
    pub fn set_counters(&mut self, counters: Counters) -> Result<(), BadCounters> {
        if self
            .newest_id()
            .is_some_and(|newest| counters.last_id < newest)
        {
            return Err(BadCounters::LastId);
        }
        if counters.entries_added < self.len as u64 {
            return Err(BadCounters::EntriesAdded);
        }
        if counters.max_deleted_id > counters.last_id {
            return Err(BadCounters::MaxDeletedId);
        }
        self.counters = counters;
        Ok(())
    }

    /// Returns the lowest id of an entry.
    #[must_use]
    pub fn first_id(&self) -> Option<EntryId> {
        let mut blocks = self.blocks();
        blocks
            .find_map(|block| block.iter().next())
            .map(|entry| entry.id)
    }

    /// Returns the highest id of an entry.
    #[must_use]
    pub fn newest_id(&self) -> Option<EntryId> {
        let mut blocks = self.blocks();
        let block = blocks.next_back()?;
        block.iter().last().map(|entry| entry.id)
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// If its id is not above the last, or it is too long; nothing is changed.
    pub fn append<'f, F>(
        &mut self,
        id: EntryId,
        fields: F,
        limits: StreamLimits,
    ) -> Result<(), Refused>
    where
        F: Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    {
        if id <= self.counters.last_id {
            return Err(Refused::Id);
        }
        let size = Size::of(fields.clone());
        if size.text_bytes > ENTRY_BYTES_MAX {
            return Err(Refused::Size);
        }
        if self
            .tail
            .as_ref()
            .is_none_or(|tail| is_full(tail, size, limits))
        {
            self.seal();
            let block = Block::new(id, fields.clone(), size);
            self.buffer_bytes += block.memory_bytes();
            self.tail = Some(Arc::new(block));
        }
        if let Some(tail) = &mut self.tail {
            change(tail, &mut self.buffer_bytes, |block| {
                block.push(id, fields, size);
            });
        }
        self.len += 1;
        self.counters.last_id = id;
        self.counters.entries_added = self.counters.entries_added.saturating_add(1);
        Ok(())
    }

    /// Moves the tail to the sealed blocks.
    #[cold]
    fn seal(&mut self) {
        if let Some(mut tail) = self.tail.take() {
            if Arc::get_mut(&mut tail).is_some() {
                change(&mut tail, &mut self.buffer_bytes, Block::seal);
            }
            self.sealed.insert(tail.first(), tail);
        }
    }

    /// Returns the entries with ids from `from` to `to`, both included.
    #[inline]
    #[must_use]
    pub fn range(&self, from: EntryId, to: EntryId) -> Range<'_> {
        Range {
            blocks: self.blocks_between(from, to),
            current: None,
            from,
            to,
        }
    }

    /// Returns all entries.
    #[must_use]
    pub fn iter(&self) -> Range<'_> {
        self.range(EntryId::MIN, EntryId::MAX)
    }

    /// Returns the same as [`EntryLog::range`], from the last entry to the first.
    #[must_use]
    pub fn range_backwards(&self, from: EntryId, to: EntryId) -> Backwards<'_> {
        Backwards {
            blocks: self.blocks_between(from, to),
            current: None,
            from,
            to,
        }
    }

    /// Returns an upper bound for the number of entries from `from` to `to`. Counts block by block
    /// and stops at `enough`.
    #[must_use]
    pub fn count_about(&self, from: EntryId, to: EntryId, enough: usize) -> usize {
        let mut count = 0;
        for block in self.blocks_between(from, to) {
            count += block.len();
            if count >= enough {
                break;
            }
        }
        count
    }

    /// Returns the entry with this id.
    #[must_use]
    pub fn get(&self, id: EntryId) -> Option<Entry<'_>> {
        self.range(id, id).next()
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks {
            sealed: self.sealed.range(..),
            tail: self.tail.as_deref(),
        }
    }

    /// Returns the blocks that may have ids from `from` to `to`.
    #[inline]
    fn blocks_between(&self, from: EntryId, to: EntryId) -> Blocks<'_> {
        if from > to || from > self.counters.last_id {
            return Blocks::default();
        }
        let tail = self.tail.as_deref();
        if tail.is_some_and(|tail| tail.first() <= from) {
            return Blocks {
                tail,
                ..Blocks::default()
            };
        }
        let before = self.sealed.range(..=from).next_back();
        let start = before.map_or(from, |(first, _)| *first);
        Blocks {
            sealed: self.sealed.range(start..=to),
            tail: tail.filter(|tail| tail.first() <= to),
        }
    }

    /// Deletes an entry. Returns whether it existed.
    pub fn remove(&mut self, id: EntryId) -> bool {
        let in_tail = self.tail.as_ref().is_some_and(|tail| tail.first() <= id);
        let block = if in_tail {
            self.tail.as_mut()
        } else {
            self.sealed
                .range_mut(..=id)
                .next_back()
                .map(|(_, block)| block)
        };
        let Some((block, found)) = block.and_then(|block| block.find(id).map(|at| (block, at)))
        else {
            return false;
        };
        if block.len() > 1 {
            change(block, &mut self.buffer_bytes, |block| block.remove(found));
        } else {
            self.buffer_bytes -= block.memory_bytes();
            let first = block.first();
            self.sealed.remove(&first);
            self.tail.take_if(|_| in_tail);
        }
        self.len -= 1;
        self.counters.max_deleted_id = self.counters.max_deleted_id.max(id);
        true
    }

    /// Removes the oldest entries. Returns the number of removed entries. Drops whole blocks
    /// without reading them.
    pub fn trim(&mut self, trim: &Trim) -> usize {
        let before = self.len;
        while !self.is_done(trim.to) {
            let Some(block) = self.blocks().next() else {
                break;
            };
            let gone = (before - self.len) as u64;
            let count = block.len() as u64;
            if trim.count_max.is_some_and(|most| gone + count > most) {
                break;
            }
            let is_whole = match trim.to {
                TrimTo::Len(len) => self.len as u64 - count >= len,
                TrimTo::Id(id) => block.newest() < id,
            };
            if is_whole {
                self.drop_front();
                continue;
            }
            if !trim.is_approximate {
                self.trim_front(trim.to);
            }
            break;
        }
        before - self.len
    }

    fn is_done(&self, to: TrimTo) -> bool {
        match to {
            TrimTo::Len(len) => self.len as u64 <= len,
            TrimTo::Id(_) => false,
        }
    }

    /// Drops the first block.
    fn drop_front(&mut self) {
        let block = match self.sealed.pop_first() {
            Some((_, block)) => Some(block),
            None => self.tail.take(),
        };
        if let Some(block) = block {
            self.len -= block.len();
            self.buffer_bytes -= block.memory_bytes();
        }
    }

    /// Removes entries from the front of the first block.
    fn trim_front(&mut self, to: TrimTo) {
        let mut left = match to {
            TrimTo::Len(len) => self.len as u64 - len,
            TrimTo::Id(_) => u64::MAX,
        };
        let is_old = |id| {
            let goes = left > 0 && !matches!(to, TrimTo::Id(least) if id >= least);
            left -= u64::from(goes);
            goes
        };
        let mut first = self.sealed.first_entry();
        let block = match &mut first {
            Some(first) => Some(first.get_mut()),
            None => self.tail.as_mut(),
        };
        let Some(block) = block else { return };
        self.len -= change(block, &mut self.buffer_bytes, |block| {
            block.remove_front(is_old)
        });
        if block.len() == 0 {
            self.drop_front();
        }
    }

    /// Returns how many entries had been added up to the one with this id, or `None` if it is
    /// unknown.
    #[must_use]
    pub fn added_up_to(&self, id: EntryId) -> Option<u64> {
        let Counters {
            last_id,
            max_deleted_id,
            entries_added,
        } = self.counters;
        if entries_added == 0 {
            return Some(0);
        }
        if id == last_id || (self.is_empty() && id < last_id) {
            return Some(entries_added);
        }
        let first = self.first_id()?;
        if id > last_id || (max_deleted_id != EntryId::MIN && max_deleted_id >= first) {
            return None;
        }
        let trimmed = entries_added.saturating_sub(self.len as u64);
        match id.cmp(&first) {
            std::cmp::Ordering::Less => Some(trimmed),
            std::cmp::Ordering::Equal => Some(trimmed + 1),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// Whether entries from `from` on may have been deleted.
    #[must_use]
    pub fn may_lack_from(&self, from: EntryId) -> bool {
        let deleted = self.counters.max_deleted_id;
        from <= deleted
            && deleted != EntryId::MIN
            && self.first_id().is_some_and(|first| first <= deleted)
    }
}

impl PartialEq for EntryLog {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.counters == other.counters && self.iter().eq(other.iter())
    }
}

fn relocate_block(block: &mut Arc<Block>, relocation: &mut Relocation<'_>) {
    if let Some(block) = relocation.unshared(block, Block::empty) {
        block.move_pieces(relocation);
    }
}

/// Whether a block cannot take another entry of this size. Removed entries count, too.
#[inline]
fn is_full(block: &Block, size: Size, limits: StreamLimits) -> bool {
    let bytes_max = match limits.block_bytes {
        0 => BLOCK_BYTES_MAX,
        bytes => bytes.min(BLOCK_BYTES_MAX),
    };
    block.content_bytes() + size.text_bytes >= bytes_max
        || (limits.block_entries > 0 && block.len_ever() >= limits.block_entries)
}

/// Changes a block, after copying it if it is shared, and updates the sum of the buffers.
#[inline]
fn change<R>(
    block: &mut Arc<Block>,
    buffer_bytes: &mut usize,
    change: impl FnOnce(&mut Block) -> R,
) -> R {
    let before = block.memory_bytes();
    let block = Arc::make_mut(block);
    let answer = change(block);
    *buffer_bytes = *buffer_bytes + block.memory_bytes() - before;
    answer
}
