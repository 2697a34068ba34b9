//! The members of a large sorted set, each stored once and close together.
//!
//! ```text
//!   chunk of 4 KiB   record record record … free
//!   record           leaf u32 │ length u8 │ the member's bytes        up to 254 of them
//!                    leaf u32 │ 255       │ number u32                longer ones, on their own
//!   MemberRef        chunk (20 bits) │ offset (12 bits)
//! ```
//!
//! A record names the leaf of the tree that has its entry. So the index by member leads to a score
//! and a rank without a copy of the score.
//!
//! Removed records stay as garbage until their chunk is [worn](Members::worn). Then the caller,
//! which knows where references are stored, moves the remaining members away, at most half a chunk.

use base::cache::prefetch;

use super::pool::{Kept, NONE, Pool};
use crate::memory::allocated;
use crate::relocation::Relocation;

/// Number of bits of a reference that hold the offset in a chunk.
const OFFSET_BITS: u32 = 12;
/// Bytes of a chunk. With the allocator's overhead it fills 4 KiB.
const CHUNK_BYTES: usize = (1 << OFFSET_BITS) - 8;
/// Maximum number of chunks that a reference can distinguish.
const CHUNKS_MAX: u32 = 1 << (32 - OFFSET_BITS);
/// Bytes of a record before the member.
const HEAD_BYTES: usize = 5;
/// Marker in place of a length: the member is stored separately.
const IS_LONG: u8 = u8::MAX;
/// Marker in place of the leaf: the record was removed.
const REMOVED: u32 = NONE;

/// The position of a member's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemberRef(u32);

/// All members. See the module documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    chunks: Pool<Chunk, 2>,
    /// The chunk that records are added to.
    current: Option<u32>,
    long: Pool<Box<[u8]>>,
    /// Bytes of chunks and of long members.
    bytes: usize,
}

#[derive(Clone, Debug, Default)]
struct Chunk {
    bytes: Kept<u8>,
    removed_bytes: usize,
}

impl Members {
    /// Returns the bytes that all of it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes + self.chunks.memory_bytes() + self.long.memory_bytes()
    }

    /// Returns the approximate number of its allocations.
    pub(super) fn allocations(&self) -> usize {
        self.chunks.len() + self.long.len()
    }

    /// Moves its pieces, as far as the relocation allows.
    pub(super) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        self.chunks.move_pieces(relocation, |chunk, relocation| {
            relocation.buffer(&mut chunk.bytes);
        });
        self.long
            .move_pieces(relocation, |member, relocation| relocation.bytes(member));
    }

    /// Stores a member that is not in any leaf yet. Returns `None` if there is no space for
    /// another.
    pub(super) fn add(&mut self, member: &[u8]) -> Option<MemberRef> {
        let place = if member.len() < usize::from(IS_LONG) {
            let place = self.add_record(HEAD_BYTES + member.len())?;
            let record = self.record_mut(place);
            record[4] = u8::try_from(member.len()).unwrap_or(IS_LONG);
            record[HEAD_BYTES..HEAD_BYTES + member.len()].copy_from_slice(member);
            place
        } else {
            let place = self.add_record(HEAD_BYTES + 4)?;
            let number = self.long.add(member.into());
            self.bytes += allocated(member.len());
            let record = self.record_mut(place);
            record[4] = IS_LONG;
            record[HEAD_BYTES..HEAD_BYTES + 4].copy_from_slice(&number.to_le_bytes());
            place
        };
        Some(place)
    }

    /// Returns the member's bytes.
    #[inline]
    pub(super) fn bytes(&self, place: MemberRef) -> &[u8] {
        let record = self.record(place);
        match record[4] {
            IS_LONG => &self.long[long_number(record)],
            length => &record[HEAD_BYTES..HEAD_BYTES + usize::from(length)],
        }
    }

    /// Prefetches a member's record.
    #[inline]
    pub(super) fn prefetch(&self, place: MemberRef) {
        prefetch(self.record(place));
    }

    /// Returns the leaf that has the member's entry.
    #[inline]
    pub(super) fn leaf(&self, place: MemberRef) -> u32 {
        leaf_of(self.record(place))
    }

    /// Sets the leaf that has the member's entry.
    #[inline]
    pub(super) fn set_leaf(&mut self, place: MemberRef, leaf: u32) {
        self.record_mut(place)[..4].copy_from_slice(&leaf.to_le_bytes());
    }

    /// Removes a member.
    pub(super) fn remove(&mut self, place: MemberRef) {
        let record = self.record(place);
        if record[4] == IS_LONG {
            let number = long_number(record);
            self.bytes -= allocated(self.long.remove(number).len());
        }
        self.remove_record(place);
    }

    /// Returns the chunk of a removed record if more than half of the chunk is garbage. No record
    /// is added to that chunk from now on.
    pub(super) fn worn(&mut self, removed: MemberRef) -> Option<u32> {
        let number = removed.chunk();
        if self.chunks[number].removed_bytes * 2 <= CHUNK_BYTES {
            return None;
        }
        if self.current == Some(number) {
            self.current = None;
        }
        Some(number)
    }

    /// Returns the members that are still in a chunk.
    pub(super) fn in_chunk(&self, chunk: u32) -> Vec<MemberRef> {
        let bytes = &self.chunks[chunk].bytes;
        let (mut offset, mut found) = (0, Vec::new());
        while offset < bytes.len() {
            let record = &bytes[offset..];
            if leaf_of(record) != REMOVED {
                found.push(MemberRef::new(chunk, offset));
            }
            offset += record_bytes(record);
        }
        found
    }

    /// Moves a member's record to the end of the current chunk. Returns `None` and leaves the
    /// record in place if there is no space.
    pub(super) fn relocate(&mut self, place: MemberRef) -> Option<MemberRef> {
        let length = record_bytes(self.record(place));
        let to = self.add_record(length)?;
        let mut copy = [0; HEAD_BYTES + u8::MAX as usize];
        copy[..length].copy_from_slice(&self.record(place)[..length]);
        self.record_mut(to)[..length].copy_from_slice(&copy[..length]);
        self.remove_record(place);
        Some(to)
    }

    /// Marks a record as garbage, and frees its chunk if it was the last record.
    fn remove_record(&mut self, place: MemberRef) {
        let length = record_bytes(self.record(place));
        self.set_leaf(place, REMOVED);
        let number = place.chunk();
        let chunk = &mut self.chunks[number];
        chunk.removed_bytes += length;
        if chunk.removed_bytes < chunk.bytes.len() {
            return;
        }
        chunk.removed_bytes = 0;
        chunk.bytes.clear();
        if self.current != Some(number) {
            self.bytes -= allocated(self.chunks.remove(number).bytes.capacity());
        }
    }

    /// Allocates a record of `length` bytes.
    fn add_record(&mut self, length: usize) -> Option<MemberRef> {
        let number = match self.current {
            Some(number) if self.chunks[number].bytes.len() + length <= CHUNK_BYTES => number,
            _ => self.add_chunk()?,
        };
        let chunk = &mut self.chunks[number];
        let (old, start) = (chunk.bytes.capacity(), chunk.bytes.len());
        if start + length > old {
            let more = (start + length).next_power_of_two().clamp(256, CHUNK_BYTES);
            chunk.bytes.reserve_exact(more.max(start + length) - start);
        }
        chunk.bytes.resize(start + length, 0);
        self.bytes += allocated(chunk.bytes.capacity()) - allocated(old);
        Some(MemberRef::new(number, start))
    }

    fn add_chunk(&mut self) -> Option<u32> {
        if let Some(old) = self.current
            && self.chunks[old].bytes.is_empty()
        {
            return Some(old);
        }
        let number = self.chunks.add(Chunk::default());
        if number >= CHUNKS_MAX {
            self.chunks.remove(number);
            return None;
        }
        // The first chunk grows as it is filled. A set that has a second chunk will fill it.
        if self.chunks.len() > 1 {
            let chunk = &mut self.chunks[number];
            chunk.bytes.reserve_exact(CHUNK_BYTES);
            self.bytes += allocated(chunk.bytes.capacity());
        }
        self.current = Some(number);
        Some(number)
    }

    #[inline]
    fn record(&self, place: MemberRef) -> &[u8] {
        &self.chunks[place.chunk()].bytes[place.offset()..]
    }

    #[inline]
    fn record_mut(&mut self, place: MemberRef) -> &mut [u8] {
        &mut self.chunks[place.chunk()].bytes[place.offset()..]
    }
}

impl MemberRef {
    #[inline]
    fn new(chunk: u32, offset: usize) -> Self {
        Self((chunk << OFFSET_BITS) | u32::try_from(offset).unwrap_or(0))
    }

    #[inline]
    fn chunk(self) -> u32 {
        self.0 >> OFFSET_BITS
    }

    #[inline]
    fn offset(self) -> usize {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as usize
    }
}

#[inline]
fn leaf_of(record: &[u8]) -> u32 {
    record
        .first_chunk()
        .map_or(REMOVED, |leaf| u32::from_le_bytes(*leaf))
}

fn long_number(record: &[u8]) -> u32 {
    leaf_of(&record[HEAD_BYTES..])
}

fn record_bytes(record: &[u8]) -> usize {
    match record[4] {
        IS_LONG => HEAD_BYTES + 4,
        length => HEAD_BYTES + usize::from(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_back_as_they_were() {
        let mut members = Members::default();
        let lengths = [0, 1, 20, 254, 255, 256, 70_000];
        let all: Vec<Vec<u8>> = (0..500)
            .map(|n: usize| vec![b'a' + u8::try_from(n % 26).unwrap(); lengths[n % 7]])
            .collect();
        let places: Vec<_> = all.iter().map(|one| members.add(one).unwrap()).collect();
        for (number, place) in (0..).zip(&places) {
            members.set_leaf(*place, number);
        }
        for (number, (place, member)) in (0..).zip(places.iter().zip(&all)) {
            assert_eq!(members.bytes(*place), member);
            assert_eq!(members.leaf(*place), number);
        }
        places.iter().for_each(|place| members.remove(*place));
        assert_eq!(members.bytes, allocated(CHUNK_BYTES));
    }

    #[test]
    fn a_worn_chunk_can_be_emptied() {
        let mut members = Members::default();
        let places: Vec<_> = (0..1_000_u32)
            .map(|n| members.add(format!("member {n}").as_bytes()).unwrap())
            .collect();
        for (number, place) in (0..).zip(&places) {
            members.set_leaf(*place, number);
        }
        let worn = places.iter().find_map(|place| {
            members.remove(*place);
            members.worn(*place)
        });
        let chunk = worn.unwrap();
        for place in members.in_chunk(chunk) {
            let (leaf, text) = (members.leaf(place), members.bytes(place).to_vec());
            let to = members.relocate(place).unwrap();
            assert_eq!(members.leaf(to), leaf);
            assert_eq!(members.bytes(to), text);
        }
        assert!(members.in_chunk(chunk).is_empty());
    }
}
