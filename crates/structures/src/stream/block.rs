//! A block of entries in one allocation.
//!
//! ```text
//!   buffer   names ░░░░ entry entry entry …
//!                  └ of entries removed at the front
//!   names    count, then the names of the fields of the block's first entry
//!   entry    2·length of the rest (+ 1: has its own names) ─ ms ─ seq ─ [count] ─ values
//! ```
//!
//! `ms` is the distance from the block's first id. `seq` is the distance from it, too, while `ms`
//! is 0, and the number itself otherwise. An entry with the names of the block contains values
//! only. Any other entry contains its number of pairs, and each name before its value. Removed
//! entries leave no bytes behind.

use super::entry::Entry;
use super::id::EntryId;
use super::varint::{self, put, put_over, put_text, take, take_text};
use crate::element::Element;
use crate::memory::allocated;
use crate::relocation::Relocation;

/// A buffer with fewer bytes is not shrunk.
const SHRINK_FROM_BYTES: usize = 128;
/// A buffer that is not tiny grows by this fraction (1/n) of what it has to hold …
const SPARE_PART: usize = 3;
const SMALL_BYTES: usize = 96;
/// … but by at most this many bytes.
const SPARE_BYTES_MAX: usize = 1 << 10;
/// A buffer of which less than this fraction (1/n) is in use is shrunk.
const USED_PART: usize = 4;
/// Texts shorter than this have heads of one byte.
const SHORT_TEXT_BYTES: usize = 64;

/// Consecutive entries. See the module documentation.
#[derive(Clone, Debug)]
pub(super) struct Block {
    buffer: Vec<u8>,
    /// End of the names.
    names_end: u32,
    /// Position of the first entry.
    start: u32,
    len: u32,
    /// Number of entries that were removed from it.
    removed: u32,
    /// The id from which distances are counted: that of the first entry it ever had.
    first: EntryId,
    /// The highest id it ever had.
    newest: EntryId,
}

/// The size of an entry, as the caller measured it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    pub(super) pairs: usize,
    pub(super) text_bytes: usize,
}

impl Size {
    /// Measures these fields and values.
    pub(super) fn of<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Self {
        fields.fold(Self::default(), |size, (name, value)| Self {
            pairs: size.pairs + 1,
            text_bytes: size.text_bytes + name.len() + value.len(),
        })
    }

    /// Returns an upper bound for the bytes of the texts.
    fn bytes_max(self) -> usize {
        let head = match self.text_bytes {
            ..SHORT_TEXT_BYTES => 1,
            _ => 5,
        };
        self.text_bytes + 2 * self.pairs * head
    }
}

impl Block {
    /// Creates a block with space for an entry of `id`, which will be its first.
    pub(super) fn new<'f>(
        id: EntryId,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        size: Size,
    ) -> Self {
        let mut buffer = Vec::new();
        reserve(&mut buffer, size.bytes_max() + varint::BYTES_MAX);
        put(&mut buffer, size.pairs as u64);
        fields.for_each(|(name, _)| put_text(&mut buffer, name));
        let start = short(buffer.len());
        Self {
            buffer,
            names_end: start,
            start,
            len: 0,
            removed: 0,
            first: id,
            newest: id,
        }
    }

    /// Returns a placeholder for a block that is being moved.
    pub(super) fn empty() -> Self {
        Self {
            buffer: Vec::new(),
            names_end: 0,
            start: 0,
            len: 0,
            removed: 0,
            first: EntryId::MIN,
            newest: EntryId::MIN,
        }
    }

    pub(super) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        relocation.buffer(&mut self.buffer);
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the number of entries that are or were in it.
    pub(super) fn len_ever(&self) -> usize {
        self.len() + self.removed as usize
    }

    /// Returns the bytes in use.
    pub(super) fn content_bytes(&self) -> usize {
        self.buffer.len() - (self.start - self.names_end) as usize
    }

    pub(super) fn memory_bytes(&self) -> usize {
        allocated(self.buffer.capacity())
    }

    pub(super) fn first(&self) -> EntryId {
        self.first
    }

    pub(super) fn newest(&self) -> EntryId {
        self.newest
    }

    /// Appends an entry. `id` is above [`Block::newest`], or is that of a new block.
    #[inline]
    pub(super) fn push<'f>(
        &mut self,
        id: EntryId,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
        size: Size,
    ) {
        let rest_max = size.bytes_max() + 3 * varint::BYTES_MAX;
        // The length is known only after the rest is written, so the longest possible length is
        // reserved.
        let head = varint::len((rest_max as u64) << 1);
        reserve(&mut self.buffer, head + rest_max);
        let at = self.buffer.len();
        self.buffer.resize(at + head, 0);
        let has_own_names = !self.has_names(size.pairs, fields.clone());
        let ms = id.ms - self.first.ms;
        put(&mut self.buffer, ms);
        put(
            &mut self.buffer,
            if ms == 0 {
                id.seq - self.first.seq
            } else {
                id.seq
            },
        );
        if has_own_names {
            put(&mut self.buffer, size.pairs as u64);
        }
        for (name, value) in fields {
            if has_own_names {
                put_text(&mut self.buffer, name);
            }
            put_text(&mut self.buffer, value);
        }
        let rest = (self.buffer.len() - at - head) as u64;
        put_over(
            &mut self.buffer[at..at + head],
            rest << 1 | u64::from(has_own_names),
        );
        self.len += 1;
        self.newest = id;
    }

    /// Whether these are the names of the block.
    fn has_names<'f>(
        &self,
        pairs: usize,
        mut fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    ) -> bool {
        let (count, mut names) = self.names();
        count == pairs
            && fields.all(|(name, _)| match take_text(&mut names) {
                Element::Bytes(bytes) => bytes == name,
                number => number == Element::parse(name),
            })
    }

    /// Returns the number of names, and the names.
    #[inline]
    fn names(&self) -> (usize, &[u8]) {
        let mut names = &self.buffer[..self.names_end as usize];
        let count = take(&mut names);
        (whole(count), names)
    }

    /// Returns the entries from the first on.
    #[inline]
    pub(super) fn iter(&self) -> Entries<'_> {
        Entries {
            block: self,
            names: self.names(),
            place: self.start as usize,
        }
    }

    /// Returns the position of the entry with this id, and that of the next.
    pub(super) fn find(&self, id: EntryId) -> Option<(usize, usize)> {
        let mut entries = self.iter();
        loop {
            let place = entries.place;
            let entry = entries.next()?;
            if entry.id >= id {
                return (entry.id == id).then_some((place, entries.place));
            }
        }
    }

    /// Removes one entry: what lies between two positions.
    pub(super) fn remove(&mut self, (place, next): (usize, usize)) {
        if place == self.start as usize {
            self.start = short(next);
        } else {
            self.buffer.drain(place..next);
        }
        self.len -= 1;
        self.removed += 1;
        self.shrink();
    }

    /// Removes entries from the front while `is_old` holds. Returns the number of removed entries.
    pub(super) fn remove_front(&mut self, mut is_old: impl FnMut(EntryId) -> bool) -> usize {
        let mut entries = self.iter();
        let (mut start, mut count) = (entries.place, 0);
        while let Some(entry) = entries.next()
            && is_old(entry.id)
        {
            start = entries.place;
            count += 1;
        }
        self.start = short(start);
        self.len -= count;
        self.removed += count;
        self.shrink();
        count as usize
    }

    /// Frees the unused capacity of the buffer: no entry will be added.
    pub(super) fn seal(&mut self) {
        if self.buffer.capacity() > self.buffer.len() + 16 {
            self.buffer.shrink_to_fit();
        }
    }

    fn shrink(&mut self) {
        let capacity = self.buffer.capacity();
        let content = self.content_bytes();
        if capacity < SHRINK_FROM_BYTES || content >= capacity / USED_PART {
            return;
        }
        let mut buffer = Vec::with_capacity(grown(content));
        buffer.extend_from_slice(&self.buffer[..self.names_end as usize]);
        buffer.extend_from_slice(&self.buffer[self.start as usize..]);
        self.buffer = buffer;
        self.start = self.names_end;
    }

    #[inline]
    fn entry_at<'a>(&'a self, names: (usize, &'a [u8]), place: usize) -> (Entry<'a>, usize) {
        let mut rest = &self.buffer[place..];
        let head = take(&mut rest);
        let (mut body, behind) = rest.split_at(whole(head >> 1));
        let ms = take(&mut body);
        let seq = take(&mut body);
        let id = match ms {
            0 => EntryId::new(self.first.ms, self.first.seq + seq),
            _ => EntryId::new(self.first.ms + ms, seq),
        };
        let has_own_names = head & 1 != 0;
        let pairs = match has_own_names {
            true => whole(take(&mut body)),
            false => names.0,
        };
        let entry = Entry {
            id,
            pairs,
            names: (!has_own_names).then_some(names.1),
            body,
        };
        (entry, self.buffer.len() - behind.len())
    }

    /// Returns the entry at a position that [`Entries::places`] returned.
    pub(super) fn get(&self, place: u32) -> Entry<'_> {
        self.entry_at(self.names(), place as usize).0
    }
}

/// The entries of a block in order.
#[derive(Clone, Debug)]
pub(super) struct Entries<'a> {
    block: &'a Block,
    names: (usize, &'a [u8]),
    place: usize,
}

impl Entries<'_> {
    /// Returns the positions of the entries with ids from `from` to `to`.
    pub(super) fn places(mut self, from: EntryId, to: EntryId) -> Vec<u32> {
        let mut places = Vec::new();
        loop {
            let place = short(self.place);
            match self.next() {
                Some(entry) if entry.id < from => {}
                Some(entry) if entry.id <= to => places.push(place),
                _ => return places,
            }
        }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        if self.place == self.block.buffer.len() {
            return None;
        }
        let (entry, next) = self.block.entry_at(self.names, self.place);
        self.place = next;
        Some(entry)
    }
}

/// Reserves `bytes` at the end of the buffer.
#[inline]
fn reserve(buffer: &mut Vec<u8>, bytes: usize) {
    if buffer.capacity() - buffer.len() < bytes {
        let wanted = grown(buffer.len() + bytes);
        buffer.reserve_exact(wanted - buffer.len());
    }
}

/// Returns the length of a buffer for `bytes` that is expected to grow.
fn grown(bytes: usize) -> usize {
    match bytes {
        ..=SMALL_BYTES => bytes,
        _ => bytes + (bytes / SPARE_PART).min(SPARE_BYTES_MAX),
    }
}

#[inline]
fn whole(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Converts a position in a block, whose length the log bounds.
#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "bounded where content is added"
)]
fn short(place: usize) -> u32 {
    debug_assert!(u32::try_from(place).is_ok());
    place as u32
}
