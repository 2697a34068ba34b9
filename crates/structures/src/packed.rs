//! Consecutive elements in one allocation. Every small collection consists of one such block.
//!
//! ```text
//!   buffer   ░░░░░░ entry entry entry entry ░░░░░░░░
//!            └ gap ┘└──────── content ──────┘└ room ┘
//! ```
//!
//! A gap in front is possible, so pushing and popping at both ends is O(1). A change in the middle
//! moves the shorter side. An entry leads to both neighbours, because its length is also stored
//! behind it. A position in the block is an [`At`]: the entry's distance from the start of the
//! content. Any change of the block makes positions behind the change stale.
//!
//! Invariants
//!  1. The content consists of whole entries, `count` of them, and has less than 4 GiB.
//!  2. An element whose text spells a canonical number is stored as that number.
//!  3. Every entry is in its shortest form, so equal elements have equal bytes.

use crate::compact::{ONE_BUFFER_BYTES_END, OneBuffer};
use crate::element::Element;
use crate::memory::{SPARE_PART, allocated, grown, stepped};
use crate::relocation::Relocation;

mod entry;

#[cfg(test)]
mod tests;

use entry::{Encoded, decode, entry_len, last_entry_len};

/// Maximum bytes of a block's content: 4 GiB, less the additional bytes that a gap may have.
pub const CONTENT_BYTES_MAX: usize = u32::MAX as usize - (64 << 10);

/// A buffer with fewer bytes is not shrunk.
const SHRINK_FROM_BYTES: usize = 128;

/// Consecutive elements. See the module documentation.
#[derive(Clone, Default)]
pub struct Packed {
    buffer: Vec<u8>,
    /// Bytes of the gap in front.
    gap: u32,
    count: u32,
}

/// A position in a block: that of an element, or the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct At(u32);

impl Packed {
    /// Creates an empty block. Allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            buffer: Vec::new(),
            gap: 0,
            count: 0,
        }
    }

    /// Creates an empty block with capacity for `bytes` at the back.
    #[must_use]
    pub fn with_room_behind(bytes: usize) -> Self {
        let mut block = Self::new();
        block.buffer.reserve_exact(stepped(bytes));
        block
    }

    /// Creates an empty block with capacity for `bytes` at the front.
    #[must_use]
    pub fn with_room_in_front(bytes: usize) -> Self {
        let gap = stepped(bytes);
        Self {
            buffer: vec![0; gap],
            gap: number(gap),
            count: 0,
        }
    }

    /// Takes the buffer and the numbers that describe it, and leaves the block empty. Returns
    /// `None` and changes nothing if the buffer has 64 KiB or more.
    #[inline]
    #[must_use]
    pub fn take_buffer(&mut self) -> Option<OneBuffer> {
        if self.buffer.capacity() >= ONE_BUFFER_BYTES_END {
            return None;
        }
        // The gap is a part of the buffer, and every element has at least two bytes in it.
        let Self { buffer, gap, count } = std::mem::take(self);
        Some(OneBuffer {
            bytes: buffer,
            front: gap,
            count,
        })
    }

    /// Returns the block from which [`Packed::take_buffer`] took this buffer. Reading a block of
    /// another buffer panics or returns arbitrary elements.
    #[inline]
    #[must_use]
    pub fn from_buffer(buffer: OneBuffer) -> Self {
        Self {
            buffer: buffer.bytes,
            gap: buffer.front,
            count: buffer.count,
        }
    }

    /// Returns the number of elements.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        index(self.count)
    }

    /// Whether it has no elements.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the bytes of the entries.
    #[inline]
    #[must_use]
    pub fn content_bytes(&self) -> usize {
        self.buffer.len() - index(self.gap)
    }

    /// Returns the entries, as consecutive listpack entries (a dump adds head and end).
    #[inline]
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.buffer[index(self.gap)..]
    }

    /// Returns the bytes that its buffer takes, as the allocator rounds them.
    #[inline]
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        allocated(self.buffer.capacity())
    }

    /// Moves its buffer if the relocation wants it moved.
    pub(crate) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        relocation.buffer(&mut self.buffer);
    }

    /// Returns the bytes that `element` takes in a block.
    #[inline]
    #[must_use]
    pub fn entry_bytes(element: Element<'_>) -> usize {
        entry::encoded_len(element)
    }

    /// Whether it has space for `bytes` more, up to [`CONTENT_BYTES_MAX`].
    #[inline]
    #[must_use]
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.content_bytes()
            .checked_add(bytes)
            .is_some_and(|bytes| bytes <= CONTENT_BYTES_MAX)
    }

    /// Returns the position of the first element, or the end if there is none.
    #[inline]
    #[must_use]
    pub fn first(&self) -> At {
        At(0)
    }

    /// Returns the position behind the last element.
    #[inline]
    #[must_use]
    pub fn end(&self) -> At {
        at(self.content_bytes())
    }

    /// Returns the position of the last element, or `None` if there is none.
    #[inline]
    #[must_use]
    pub fn last(&self) -> Option<At> {
        self.before(self.end())
    }

    /// Returns the element at `place`, or `None` at the end.
    #[inline]
    #[must_use]
    pub fn get(&self, place: At) -> Option<Element<'_>> {
        let bytes = &self.content()[index(place.0)..];
        (!bytes.is_empty()).then(|| decode(bytes).0)
    }

    /// Returns the position behind the element at `place`. The end stays the end.
    #[inline]
    #[must_use]
    pub fn after(&self, place: At) -> At {
        let start = index(place.0);
        let bytes = &self.content()[start..];
        if bytes.is_empty() {
            return place;
        }
        at(start + entry_len(bytes))
    }

    /// Returns the position of the element before `place`, or `None` at the beginning.
    #[inline]
    #[must_use]
    pub fn before(&self, place: At) -> Option<At> {
        let bytes = &self.content()[..index(place.0)];
        (!bytes.is_empty()).then(|| at(bytes.len() - last_entry_len(bytes)))
    }

    /// Returns the position of the element with number `number` from the front, or the end if there
    /// are fewer elements. O(n), from the nearer end.
    #[must_use]
    pub fn seek(&self, number: usize) -> At {
        let len = self.len();
        if number >= len {
            return self.end();
        }
        if number <= len / 2 {
            return self.skip(self.first(), number);
        }
        let mut place = self.end();
        for _ in number..len {
            place = self.before(place).unwrap_or(place);
        }
        place
    }

    /// Returns the position `count` elements behind `place`, or the end if there are fewer
    /// elements.
    #[inline]
    #[must_use]
    pub fn skip(&self, place: At, count: usize) -> At {
        let content = self.content();
        let mut start = index(place.0);
        for _ in 0..count {
            if start == content.len() {
                break;
            }
            start += entry_len(&content[start..]);
        }
        at(start)
    }

    /// Returns the first element.
    #[inline]
    #[must_use]
    pub fn front(&self) -> Option<Element<'_>> {
        self.get(self.first())
    }

    /// Returns the last element.
    #[inline]
    #[must_use]
    pub fn back(&self) -> Option<Element<'_>> {
        self.get(self.last()?)
    }

    /// Returns the elements in order; iterates from both ends.
    #[inline]
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            bytes: self.content(),
        }
    }

    /// Returns the elements from `place` on.
    #[inline]
    #[must_use]
    pub fn iter_from(&self, place: At) -> Iter<'_> {
        Iter {
            bytes: &self.content()[index(place.0)..],
        }
    }

    /// Returns the elements before `place`.
    #[inline]
    #[must_use]
    pub fn iter_to(&self, place: At) -> Iter<'_> {
        Iter {
            bytes: &self.content()[..index(place.0)],
        }
    }

    /// Returns the position of the first element equal to `element` among the one at `from` and
    /// every `stride`-th behind it (2 for the fields of a hash).
    #[must_use]
    pub fn find(&self, element: Element<'_>, from: At, stride: usize) -> Option<At> {
        let wanted = Encoded::new(element);
        let content = self.content();
        let mut start = index(from.0);
        while start < content.len() {
            if wanted.is_at(&content[start..]) {
                return Some(at(start));
            }
            for _ in 0..stride {
                if start < content.len() {
                    start += entry_len(&content[start..]);
                }
            }
        }
        None
    }

    /// Calls `found` with the number of every element that equals `element`, until `found` returns
    /// `false`. Looks at the first `compared` elements only. Returns whether `found` never returned
    /// `false`.
    pub fn for_each_equal(
        &self,
        element: Element<'_>,
        compared: usize,
        mut found: impl FnMut(usize) -> bool,
    ) -> bool {
        let wanted = Encoded::new(element);
        let mut bytes = self.content();
        for number in 0..compared.min(self.len()) {
            if wanted.is_at(bytes) && !found(number) {
                return false;
            }
            bytes = &bytes[entry_len(bytes)..];
        }
        true
    }

    /// Adds an element behind the last. Amortized O(1).
    ///
    /// # Panics
    /// If there is no [space](Packed::has_room_for).
    #[inline]
    pub fn push_back(&mut self, element: Element<'_>) {
        let encoded = Encoded::new(element);
        self.room_behind(encoded.len());
        let end = self.buffer.len();
        self.buffer.resize(end + encoded.len(), 0);
        encoded.write_to(&mut self.buffer[end..]);
        self.count += 1;
    }

    /// Adds an element before the first. Amortized O(1).
    ///
    /// # Panics
    /// As [`Packed::push_back`].
    #[inline]
    pub fn push_front(&mut self, element: Element<'_>) {
        let encoded = Encoded::new(element);
        self.room_in_front(encoded.len());
        let start = index(self.gap) - encoded.len();
        encoded.write_to(&mut self.buffer[start..start + encoded.len()]);
        self.gap = number(start);
        self.count += 1;
    }

    /// Inserts an element before the one at `place`, or at the end. O(bytes of the shorter side).
    ///
    /// # Panics
    /// As [`Packed::push_back`].
    pub fn insert(&mut self, place: At, element: Element<'_>) {
        let encoded = Encoded::new(element);
        let start = self.open(index(place.0), encoded.len());
        encoded.write_to(&mut self.buffer[start..start + encoded.len()]);
        self.count += 1;
    }

    /// Replaces the element at `place`, which must not be the end.
    ///
    /// # Panics
    /// As [`Packed::push_back`].
    pub fn replace(&mut self, place: At, element: Element<'_>) {
        let encoded = Encoded::new(element);
        let old = entry_len(&self.content()[index(place.0)..]);
        if old == encoded.len() {
            let start = index(self.gap) + index(place.0);
            encoded.write_to(&mut self.buffer[start..start + old]);
            return;
        }
        self.close(index(place.0), old);
        let start = self.open(index(place.0), encoded.len());
        encoded.write_to(&mut self.buffer[start..start + encoded.len()]);
    }

    /// Removes `count` elements, or as many as there are, from the one at `place` on. The position
    /// is then that of the next element. Returns the number of removed elements.
    pub fn remove(&mut self, place: At, count: usize) -> usize {
        let start = index(place.0);
        let content = self.content();
        let (mut end, mut removed) = (start, 0);
        while removed < count && end < content.len() {
            end += entry_len(&content[end..]);
            removed += 1;
        }
        self.close(start, end - start);
        self.count -= number(removed);
        self.shrink();
        removed
    }

    /// Removes the first `count` elements, or all. Returns the number of removed elements.
    #[inline]
    pub fn pop_front(&mut self, count: usize) -> usize {
        self.remove(self.first(), count)
    }

    /// Removes the last `count` elements, or all. Returns the number of removed elements.
    #[inline]
    pub fn pop_back(&mut self, count: usize) -> usize {
        let mut place = self.end();
        let mut removed = 0;
        while removed < count
            && let Some(before) = self.before(place)
        {
            place = before;
            removed += 1;
        }
        self.buffer.truncate(index(self.gap) + index(place.0));
        self.count -= number(removed);
        self.shrink();
        removed
    }

    /// Moves the elements from `place` on to a new block.
    #[must_use]
    pub fn split_off(&mut self, place: At) -> Self {
        let moved = self.iter_from(place).count();
        let mut tail = Self::new();
        let start = index(self.gap) + index(place.0);
        tail.reserve_exact(self.buffer.len() - start);
        tail.buffer.extend_from_slice(&self.buffer[start..]);
        tail.count = number(moved);
        self.buffer.truncate(start);
        self.count -= tail.count;
        self.shrink();
        tail
    }

    /// Adds the elements of `other` behind the last.
    ///
    /// # Panics
    /// As [`Packed::push_back`].
    pub fn append(&mut self, other: &Self) {
        self.room_behind(other.content_bytes());
        self.buffer.extend_from_slice(other.content());
        self.count += other.count;
    }

    /// Removes all elements and keeps the buffer.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.gap = 0;
        self.count = 0;
    }

    /// Frees the unused capacity of the buffer.
    pub fn shrink_to_fit(&mut self) {
        if self.buffer.capacity() <= stepped(self.content_bytes()) {
            return;
        }
        if self.gap == 0 {
            self.buffer.shrink_to_fit();
        } else {
            self.rebuild(self.content_bytes(), 0);
        }
    }

    /// Makes space for `bytes` behind the content. Moves the content to the start of the buffer if
    /// the buffer has enough space then, or to a longer buffer otherwise.
    #[inline]
    fn room_behind(&mut self, bytes: usize) {
        assert!(self.has_room_for(bytes), "a block of 4 GiB");
        if self.buffer.capacity() - self.buffer.len() < bytes {
            self.make_room_behind(bytes);
        }
    }

    #[cold]
    fn make_room_behind(&mut self, bytes: usize) {
        let content = self.content_bytes();
        // A move costs as much as the content is long, so it has to pay for many pushes.
        if index(self.gap) >= bytes.max(content / SPARE_PART) {
            self.buffer.drain(..index(self.gap));
            self.gap = 0;
            return;
        }
        if self.gap == 0 {
            self.reserve_exact(grown(content + bytes) - content);
            return;
        }
        self.rebuild(grown(content + bytes), 0);
    }

    /// Does the same as [`Packed::room_behind`] in front of the content.
    #[inline]
    fn room_in_front(&mut self, bytes: usize) {
        assert!(self.has_room_for(bytes), "a block of 4 GiB");
        if index(self.gap) < bytes {
            self.make_room_in_front(bytes);
        }
    }

    #[cold]
    fn make_room_in_front(&mut self, bytes: usize) {
        let content = self.content_bytes();
        let capacity = self.buffer.capacity();
        let spare = capacity - content;
        if spare >= bytes.max(content / SPARE_PART) {
            let old = index(self.gap);
            self.buffer.resize(capacity, 0);
            self.buffer
                .copy_within(old..old + content, capacity - content);
            self.gap = number(capacity - content);
            return;
        }
        let capacity = grown(content + bytes);
        self.rebuild(capacity, capacity - content);
    }

    /// Moves the content to a buffer of `capacity` bytes, with a gap of `gap` bytes in front.
    fn rebuild(&mut self, capacity: usize, gap: usize) {
        let mut buffer = Vec::new();
        buffer.reserve_exact(capacity);
        buffer.resize(gap, 0);
        buffer.extend_from_slice(self.content());
        self.buffer = buffer;
        self.gap = number(gap);
    }

    fn reserve_exact(&mut self, bytes: usize) {
        self.buffer.reserve_exact(bytes);
    }

    /// Opens a hole of `bytes` at `place` in the content. Returns where it begins in the buffer.
    fn open(&mut self, place: usize, bytes: usize) -> usize {
        let content = self.content_bytes();
        if place < content - place {
            self.room_in_front(bytes);
            let gap = index(self.gap);
            self.buffer.copy_within(gap..gap + place, gap - bytes);
            self.gap = number(gap - bytes);
        } else {
            self.room_behind(bytes);
            let start = index(self.gap) + place;
            let end = self.buffer.len();
            self.buffer.resize(end + bytes, 0);
            self.buffer.copy_within(start..end, start + bytes);
        }
        index(self.gap) + place
    }

    /// Removes `bytes` from the content at `place`.
    fn close(&mut self, place: usize, bytes: usize) {
        let gap = index(self.gap);
        let behind = self.content_bytes() - place - bytes;
        if place < behind {
            self.buffer.copy_within(gap..gap + place, gap + bytes);
            self.gap = number(gap + bytes);
        } else {
            let start = gap + place;
            let end = self.buffer.len();
            self.buffer.copy_within(start + bytes..end, start);
            self.buffer.truncate(end - bytes);
        }
    }

    /// Shrinks a buffer of which little is in use.
    #[inline]
    fn shrink(&mut self) {
        let capacity = self.buffer.capacity();
        if self.count == 0 {
            self.clear();
        } else if capacity >= SHRINK_FROM_BYTES && self.content_bytes() < capacity / SPARE_PART {
            self.rebuild(grown(self.content_bytes()), 0);
        }
    }
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Two blocks are equal if they have the same elements, whatever the capacity of their buffers.
impl PartialEq for Packed {
    fn eq(&self, other: &Self) -> bool {
        self.content() == other.content()
    }
}

/// The elements of a block, or of a part of it.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        if self.bytes.is_empty() {
            return None;
        }
        let (element, len) = decode(self.bytes);
        self.bytes = &self.bytes[len..];
        Some(element)
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let (rest, entry) = self
            .bytes
            .split_at(self.bytes.len() - last_entry_len(self.bytes));
        self.bytes = rest;
        Some(decode(entry).0)
    }
}

#[inline]
fn index(number: u32) -> usize {
    number as usize
}

/// Converts a distance or count inside a block, which [`CONTENT_BYTES_MAX`] bounds.
#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "bounded where content is added"
)]
fn number(index: usize) -> u32 {
    debug_assert!(u32::try_from(index).is_ok());
    index as u32
}

#[inline]
fn at(place: usize) -> At {
    At(number(place))
}
