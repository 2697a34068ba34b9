//! Maps a member's hash to its reference: linear hashing, one bucket at a time.
//!
//! ```text
//!   bucket   group group …        as many as its entries need
//!   group    tags [u8; 8] │ references [u32; 8]        a tag is 8 bits of the hash, 0: free
//! ```
//!
//! Buckets are numbered from 0. The low bits of a hash are the number of its bucket. If there are
//! too many entries, the next bucket in order is split in two; if there are too few, the two are
//! joined again. No operation touches more than two buckets, and memory follows the number of
//! entries closely. Source of the scheme: W. Litwin, "Linear hashing", VLDB 1980.
//!
//! A scan visits the buckets in the order of their reversed numbers. A bucket and the buckets that
//! it is split into cover the same interval of that order, so a cursor stays valid while buckets
//! are split and joined.

use base::cache::prefetch;

use super::members::MemberRef;
use super::pool::{Kept, Pool};
use crate::memory::allocated;
use crate::relocation::Relocation;

/// Entries per group.
const GROUP: usize = 8;
/// Average number of entries per bucket above which a bucket is split.
const BUCKET_ENTRIES: usize = 40;
/// Below this average buckets are joined again. It is lower, so that a set around one size does not
/// split and join all the time.
const BUCKET_ENTRIES_MIN: usize = 30;

#[derive(Clone, Copy, Debug, Default)]
struct Group {
    tags: [u8; GROUP],
    members: [MemberRef; GROUP],
}

/// Invariant: all groups except the last are full, and the last is not empty.
type Bucket = Kept<Group>;

/// An index by hash. See the module documentation.
#[derive(Clone, Debug)]
pub(super) struct Index {
    buckets: Pool<Bucket>,
    len: usize,
    /// Bytes of the groups.
    bytes: usize,
}

impl Default for Index {
    fn default() -> Self {
        let mut buckets = Pool::default();
        buckets.push(Bucket::default());
        Self {
            buckets,
            len: 0,
            bytes: 0,
        }
    }
}

impl Index {
    /// Returns the bytes it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes + self.buckets.memory_bytes()
    }

    /// Returns the approximate number of its allocations.
    pub(super) fn allocations(&self) -> usize {
        self.buckets.len()
    }

    /// Moves its pieces, as far as the relocation allows.
    pub(super) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        self.buckets.move_pieces(relocation, |bucket, relocation| {
            relocation.buffer(bucket);
        });
    }

    /// Prefetches the tags and references of a hash's bucket.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        for group in self.buckets[self.bucket_of(hash)].iter() {
            prefetch(group);
        }
    }

    /// Returns the reference with this hash for which `is_it` returns true.
    #[inline]
    pub(super) fn find(
        &self,
        hash: u64,
        mut is_it: impl FnMut(MemberRef) -> bool,
    ) -> Option<MemberRef> {
        let bucket = &self.buckets[self.bucket_of(hash)];
        let tag = tag_of(hash);
        for group in bucket.iter() {
            let mut hits = slots_with(group.tags, tag);
            while hits != 0 {
                let member = group.members[slot_of(hits)];
                if is_it(member) {
                    return Some(member);
                }
                hits &= hits - 1;
            }
        }
        None
    }

    /// Adds a reference that is not in the index. `hash_of` returns the hash of any reference.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        member: MemberRef,
        hash_of: impl Fn(MemberRef) -> u64,
    ) {
        self.push(self.bucket_of(hash), tag_of(hash), member);
        self.len += 1;
        if self.len > self.buckets.len() * BUCKET_ENTRIES {
            self.split(hash_of);
        }
    }

    /// Removes a reference that is in the index.
    pub(super) fn remove(&mut self, hash: u64, member: MemberRef) {
        let number = self.bucket_of(hash);
        let Some((group, slot)) = self.place(number, tag_of(hash), member) else {
            return;
        };
        self.take(number, group, slot);
        self.len -= 1;
        if self.len < (self.buckets.len() - 1) * BUCKET_ENTRIES_MIN {
            self.join();
        }
    }

    /// Replaces a reference that is in the index.
    pub(super) fn replace(&mut self, hash: u64, old: MemberRef, new: MemberRef) {
        let number = self.bucket_of(hash);
        if let Some((group, slot)) = self.place(number, tag_of(hash), old) {
            self.buckets[number][group].members[slot] = new;
        }
    }

    /// Visits whole buckets until it has visited `count` references. Returns the next cursor, or 0
    /// at the end. A reference that exists from the first call to the last is visited at least
    /// once.
    pub(super) fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(MemberRef)) -> u64 {
        let (mut cursor, mut shown) = (cursor, 0);
        while shown < count {
            // A cursor is a position in the order of reversed hashes, in the upper 32 bits of 64.
            let reversed = cursor << 32;
            let number = self.bucket_of(reversed.reverse_bits());
            for group in self.buckets[number].iter() {
                for member in &group.members[..used(group)] {
                    visit(*member);
                    shown += 1;
                }
            }
            let next = u64::from(number.reverse_bits()) + (1 << (32 - self.bits_of(number)));
            if next > u64::from(u32::MAX) {
                return 0;
            }
            cursor = next;
        }
        cursor
    }

    fn push(&mut self, number: u32, tag: u8, member: MemberRef) {
        let bucket = &mut self.buckets[number];
        let slot = bucket.last().map_or(GROUP, used);
        if slot < GROUP {
            if let Some(last) = bucket.last_mut() {
                last.tags[slot] = tag;
                last.members[slot] = member;
            }
            return;
        }
        let old = bucket.capacity();
        if bucket.len() == old {
            bucket.reserve_exact(1);
        }
        let mut group = Group::default();
        group.tags[0] = tag;
        group.members[0] = member;
        bucket.push(group);
        self.bytes += groups_bytes(bucket.capacity()) - groups_bytes(old);
    }

    /// Removes one entry from a bucket and moves the bucket's last entry to its place.
    fn take(&mut self, number: u32, group: usize, slot: usize) {
        let bucket = &mut self.buckets[number];
        let last = bucket.len() - 1;
        let end = used(&bucket[last]) - 1;
        let (tag, moved) = (bucket[last].tags[end], bucket[last].members[end]);
        bucket[group].tags[slot] = tag;
        bucket[group].members[slot] = moved;
        bucket[last].tags[end] = 0;
        if end == 0 {
            bucket.pop();
            let old = bucket.capacity();
            let kept = bucket.len() + 1;
            bucket.shrink_to(kept);
            self.bytes = self.bytes + groups_bytes(bucket.capacity()) - groups_bytes(old);
        }
    }

    /// Returns the position of a reference in a bucket.
    fn place(&self, number: u32, tag: u8, member: MemberRef) -> Option<(usize, usize)> {
        for (at, group) in self.buckets[number].iter().enumerate() {
            let mut hits = slots_with(group.tags, tag);
            while hits != 0 {
                let slot = slot_of(hits);
                if group.members[slot] == member {
                    return Some((at, slot));
                }
                hits &= hits - 1;
            }
        }
        None
    }

    /// Splits the next bucket in order into itself and a new last one.
    fn split(&mut self, hash_of: impl Fn(MemberRef) -> u64) {
        let Ok(new) = u32::try_from(self.buckets.len()) else {
            return;
        };
        let bit = 1 << new.ilog2();
        self.buckets.push(Bucket::default());
        let old = std::mem::take(&mut self.buckets[new - bit]);
        self.bytes -= groups_bytes(old.capacity());
        for group in old {
            for slot in 0..used(&group) {
                let (tag, member) = (group.tags[slot], group.members[slot]);
                let is_moved = hash_of(member) & u64::from(bit) != 0;
                self.push(if is_moved { new } else { new - bit }, tag, member);
            }
        }
    }

    /// Joins the last bucket with the one from which it was split.
    fn join(&mut self) {
        let Some(old) = self.buckets.pop() else {
            return;
        };
        self.bytes -= groups_bytes(old.capacity());
        let last = u32::try_from(self.buckets.len()).unwrap_or(u32::MAX);
        let target = last - (1 << last.ilog2());
        for group in old {
            for slot in 0..used(&group) {
                self.push(target, group.tags[slot], group.members[slot]);
            }
        }
    }

    #[inline]
    fn bucket_of(&self, hash: u64) -> u32 {
        let count = self.buckets.len() as u64;
        let mask = count.next_power_of_two() - 1;
        let number = hash & mask;
        let number = if number < count {
            number
        } else {
            number & (mask >> 1)
        };
        low(number)
    }

    /// Returns the number of low bits of a hash that determine this bucket.
    fn bits_of(&self, number: u32) -> u32 {
        let count = self.buckets.len() as u64;
        let bits = count.next_power_of_two().ilog2();
        let is_split =
            u64::from(number) + (1 << bits >> 1) < count || u64::from(number) >= 1 << bits >> 1;
        if is_split { bits } else { bits - 1 }
    }
}

/// Returns the bits of the hash that distinguish entries of a bucket. Never 0, which marks a free
/// slot.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the upper 8 bits")]
fn tag_of(hash: u64) -> u8 {
    ((hash >> 56) as u8).max(1)
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "below a number of buckets")]
fn low(number: u64) -> u32 {
    number as u32
}

/// Returns a word with the highest bit of every byte of the group that equals this tag. Exact,
/// because free slots hold stale references.
#[inline]
fn slots_with(tags: [u8; GROUP], tag: u8) -> u64 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const REST: u64 = LOW * 0x7f;
    let differences = u64::from_le_bytes(tags) ^ (LOW * u64::from(tag));
    !(((differences & REST) + REST) | differences | REST)
}

#[inline]
fn slot_of(hits: u64) -> usize {
    (hits.trailing_zeros() / 8) as usize
}

/// Returns the number of entries of a group. They are at its front.
#[inline]
fn used(group: &Group) -> usize {
    GROUP - (u64::from_le_bytes(group.tags).leading_zeros() / 8) as usize
}

fn groups_bytes(count: usize) -> usize {
    allocated(count * size_of::<Group>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use base::random::Prng;

    use super::super::members::Members;
    use super::*;
    use crate::hashing::hash;

    #[test]
    fn what_was_inserted_is_found_while_buckets_split_and_join() {
        let (mut random, mut members) = (Prng::seeded(1), Members::default());
        let (mut index, mut twin) = (Index::default(), BTreeMap::new());
        for round in 0..40_000_u32 {
            let text = random.below(5_000).to_string().into_bytes();
            let is_shrinking = round / 10_000 % 2 == 1;
            let found = index.find(hash(&text), |one| members.bytes(one) == text);
            assert_eq!(found, twin.get(&text).copied());
            match found {
                None if !is_shrinking => {
                    let place = members.add(&text).unwrap();
                    index.insert(hash(&text), place, |one| hash(members.bytes(one)));
                    twin.insert(text, place);
                }
                Some(place) if is_shrinking => {
                    index.remove(hash(&text), place);
                    twin.remove(&text);
                }
                _ => {}
            }
            let groups = (0..).take(index.buckets.len());
            let bytes = groups.map(|one| groups_bytes(index.buckets[one].capacity()));
            if round % 1_000 == 0 {
                assert_eq!(bytes.sum::<usize>(), index.bytes);
                assert_eq!(index.len, twin.len());
            }
        }
    }

    #[test]
    fn a_walk_shows_all_while_buckets_are_split_and_joined() {
        let mut members = Members::default();
        let mut index = Index::default();
        let mut add = |index: &mut Index, number: u32| {
            let place = members.add(number.to_string().as_bytes()).unwrap();
            let hash_of = hash(members.bytes(place));
            index.insert(hash_of, place, |one| hash(members.bytes(one)));
            (hash_of, place)
        };
        let kept: Vec<_> = (0..3_000).map(|one| add(&mut index, one).1).collect();
        let (mut seen, mut cursor, mut extra) = (Vec::new(), 0, Vec::new());
        for step in 0.. {
            cursor = index.scan(cursor, 10, |one| seen.push(one.to_owned()));
            if cursor == 0 {
                break;
            }
            match step % 100 {
                0..50 => extra.extend((0..40).map(|one| add(&mut index, 10_000 + step * 40 + one))),
                _ => extra
                    .drain(extra.len().saturating_sub(40)..)
                    .for_each(|(hash, one)| {
                        index.remove(hash, one);
                    }),
            }
        }
        assert!(kept.iter().all(|one| seen.contains(one)));
    }
}
