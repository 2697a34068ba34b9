//! The bytes of a page's entry: a head of a few bytes, then its key and its value.
//!
//! ```text
//!   flags:u8 [deadline:u64] key_len [value_len] key value     lengths u8, or u16 with WIDE
//!   flags:u8 [deadline:u64] index:u16                         LARGE: the bytes stand outside
//! ```
//!
//! All numbers are little-endian. The entries of a set have no value and take two bytes beside the
//! member.

use crate::relocation::Relocation;

const DEADLINE: u8 = 1;
const VALUE: u8 = 2;
const WIDE: u8 = 4;
const LARGE: u8 = 8;

/// Maximum bytes of key and value together that are stored in the page. Longer ones are stored
/// outside, so that a full page is always below the 64 KiB that its offsets can address.
pub(super) const INLINE_BYTES_MAX: usize = 500;

/// An entry as a reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key by which it is found.
    pub key: &'a [u8],
    /// Its value, which is empty in a set.
    pub value: &'a [u8],
    /// Time at which it expires, in milliseconds since 1970.
    pub deadline_unix_ms: Option<u64>,
}

/// Key and value in a separate allocation.
#[derive(Clone, Debug)]
pub(super) struct Large {
    key_bytes: usize,
    bytes: Box<[u8]>,
}

impl Large {
    pub(super) fn new(entry: &Entry<'_>) -> Self {
        Self {
            key_bytes: entry.key.len(),
            bytes: [entry.key, entry.value].concat().into_boxed_slice(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        relocation.bytes(&mut self.bytes);
    }

    fn parts(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at(self.key_bytes)
    }
}

/// Whether the entry's bytes are stored outside the page.
pub(super) fn is_large(entry: &Entry<'_>) -> bool {
    entry.key.len() + entry.value.len() > INLINE_BYTES_MAX
}

/// Returns the bytes that [`append`] writes for an entry.
pub(super) fn encoded_bytes(entry: &Entry<'_>) -> usize {
    let deadline = if entry.deadline_unix_ms.is_some() {
        8
    } else {
        0
    };
    if is_large(entry) {
        return 1 + deadline + 2;
    }
    let length = if is_wide(entry) { 2 } else { 1 };
    let lengths = if entry.value.is_empty() { 1 } else { 2 };
    1 + deadline + length * lengths + entry.key.len() + entry.value.len()
}

fn is_wide(entry: &Entry<'_>) -> bool {
    entry.key.len().max(entry.value.len()) > usize::from(u8::MAX)
}

/// Writes an entry at the end of `heap`. For a large entry, `index` is the number of its bytes
/// outside.
pub(super) fn append(heap: &mut Vec<u8>, entry: &Entry<'_>, index: u16) {
    let mut flags = 0;
    if entry.deadline_unix_ms.is_some() {
        flags |= DEADLINE;
    }
    let is_large = is_large(entry);
    let is_wide = is_wide(entry);
    if is_large {
        flags |= LARGE;
    } else {
        flags |= if is_wide { WIDE } else { 0 };
        flags |= if entry.value.is_empty() { 0 } else { VALUE };
    }
    heap.push(flags);
    if let Some(deadline) = entry.deadline_unix_ms {
        heap.extend_from_slice(&deadline.to_le_bytes());
    }
    if is_large {
        heap.extend_from_slice(&index.to_le_bytes());
        return;
    }
    append_length(heap, entry.key.len(), is_wide);
    if !entry.value.is_empty() {
        append_length(heap, entry.value.len(), is_wide);
    }
    heap.extend_from_slice(entry.key);
    heap.extend_from_slice(entry.value);
}

/// Appends a length, which is at most [`INLINE_BYTES_MAX`] and therefore not truncated.
#[allow(clippy::cast_possible_truncation, reason = "at most INLINE_BYTES_MAX")]
fn append_length(heap: &mut Vec<u8>, length: usize, is_wide: bool) {
    if is_wide {
        heap.extend_from_slice(&(length as u16).to_le_bytes());
    } else {
        heap.push(length as u8);
    }
}

/// Positions of the parts of an entry in its page.
#[derive(Clone, Copy)]
pub(super) struct EntryLayout {
    flags: u8,
    /// Position behind the flags and the deadline.
    body: usize,
    key_bytes: usize,
    value_bytes: usize,
    start: usize,
}

impl EntryLayout {
    /// Reads the head of the entry that starts at `offset`. Inlined, so that a caller that needs
    /// only the key does not pay for the rest.
    #[inline(always)]
    pub(super) fn of(heap: &[u8], offset: usize) -> Self {
        let flags = heap[offset];
        let body = offset + 1 + if flags & DEADLINE != 0 { 8 } else { 0 };
        let mut place = Self {
            flags,
            body,
            key_bytes: 0,
            value_bytes: 0,
            start: offset,
        };
        if flags & (LARGE | WIDE) == 0 {
            place.key_bytes = usize::from(heap[body]);
            place.body += 1;
            if flags & VALUE != 0 {
                place.value_bytes = usize::from(heap[body + 1]);
                place.body += 1;
            }
        } else if flags & LARGE == 0 {
            place.key_bytes = usize::from(word(heap, body));
            place.body += 2;
            if flags & VALUE != 0 {
                place.value_bytes = usize::from(word(heap, body + 2));
                place.body += 2;
            }
        }
        place
    }

    /// Returns the number of the entry's bytes outside, or `None` if it is not large.
    #[inline]
    pub(super) fn large(&self, heap: &[u8]) -> Option<usize> {
        (self.flags & LARGE != 0).then(|| usize::from(word(heap, self.body)))
    }

    /// Returns the bytes of the entry in its page.
    pub(super) fn bytes(&self) -> usize {
        let outside = if self.flags & LARGE != 0 { 2 } else { 0 };
        self.body - self.start + outside + self.key_bytes + self.value_bytes
    }

    #[inline(always)]
    pub(super) fn key<'a>(&self, heap: &'a [u8], large: &'a [Option<Large>]) -> &'a [u8] {
        match self.large(heap) {
            Some(index) => outside(large, index).0,
            None => &heap[self.body..self.body + self.key_bytes],
        }
    }

    #[inline]
    pub(super) fn entry<'a>(&self, heap: &'a [u8], large: &'a [Option<Large>]) -> Entry<'a> {
        let (key, value) = match self.large(heap) {
            Some(index) => outside(large, index),
            None => heap[self.body..self.body + self.key_bytes + self.value_bytes]
                .split_at(self.key_bytes),
        };
        Entry {
            key,
            value,
            deadline_unix_ms: self.deadline(heap),
        }
    }

    /// Overwrites value and deadline in place. Returns `false` and changes nothing if the value's
    /// length or the presence of a deadline differs.
    pub(super) fn overwrite(&self, heap: &mut [u8], entry: &Entry<'_>) -> bool {
        let fits = self.flags & LARGE == 0
            && !is_large(entry)
            && entry.value.len() == self.value_bytes
            && entry.deadline_unix_ms.is_some() == (self.flags & DEADLINE != 0);
        if !fits {
            return false;
        }
        if let Some(deadline) = entry.deadline_unix_ms {
            heap[self.start + 1..self.start + 9].copy_from_slice(&deadline.to_le_bytes());
        }
        let value = self.body + self.key_bytes;
        heap[value..value + self.value_bytes].copy_from_slice(entry.value);
        true
    }

    fn deadline(&self, heap: &[u8]) -> Option<u64> {
        let bytes = heap[self.start + 1..].first_chunk::<8>()?;
        (self.flags & DEADLINE != 0).then(|| u64::from_le_bytes(*bytes))
    }
}

fn word(heap: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([heap[at], heap[at + 1]])
}

fn outside(large: &[Option<Large>], index: usize) -> (&[u8], &[u8]) {
    large[index].as_ref().map_or((&[], &[]), Large::parts)
}
