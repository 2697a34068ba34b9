//! Many members: the members themselves, an index of them by hash, and a tree of them by score.

use std::ops::Range;

use super::Scored;
use super::index::Index;
use super::members::{MemberRef, Members};
use super::tree::{self, Tree};
use crate::element::ElementText;
use crate::hashing::hash;
use crate::relocation::Relocation;
use crate::table::{AHEAD_MAX, Full};

/// A large sorted set. Every member has one record, one entry in the index, and one in the tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Large {
    members: Members,
    index: Index,
    tree: Tree,
}

impl Large {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.tree.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.members.memory_bytes() + self.index.memory_bytes() + self.tree.memory_bytes()
    }

    pub(super) fn allocations(&self) -> usize {
        self.members.allocations() + self.index.allocations() + self.tree.allocations()
    }

    /// Moves its pieces, as far as the relocation allows: those of the members, of the index, of
    /// the tree.
    pub(super) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        self.members.move_pieces(relocation);
        self.index.move_pieces(relocation);
        self.tree.move_pieces(relocation);
    }

    /// Prefetches what leads to the entries of these members, at most [`AHEAD_MAX`]: bucket, record
    /// and leaf. Prefetches each kind for all members before the next kind, so that the memory
    /// accesses overlap.
    pub(super) fn prefetch<'m>(&self, members: impl Iterator<Item = &'m [u8]>) {
        let mut hashes = [0; AHEAD_MAX];
        let mut count = 0;
        for (place, member) in hashes.iter_mut().zip(members) {
            *place = hash(member);
            self.index.prefetch(*place);
            count += 1;
        }
        let mut found = [None; AHEAD_MAX];
        for (found, hash) in found.iter_mut().zip(&hashes[..count]) {
            *found = self.index.find(*hash, |one| {
                self.members.prefetch(one);
                true
            });
        }
        let leaves = || found.iter().flatten().map(|one| self.members.leaf(*one));
        leaves().for_each(|leaf| self.tree.prefetch_leaf(leaf));
        leaves().for_each(|leaf| self.tree.prefetch_entries(leaf));
    }

    #[inline]
    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        let place = self
            .tree
            .find(self.find(member, hash(member))?, &self.members)?;
        Some(self.tree.score(place))
    }

    pub(super) fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let place = self
            .tree
            .find(self.find(member, hash(member))?, &self.members)?;
        Some((self.tree.rank(place), self.tree.score(place)))
    }

    pub(super) fn update(
        &mut self,
        member: &[u8],
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Result<(), Full> {
        let hash = hash(member);
        let Some(found) = self.find(member, hash) else {
            return match decide(None) {
                Some(score) => self.insert(score, member, hash),
                None => Ok(()),
            };
        };
        let Some(place) = self.tree.find(found, &self.members) else {
            return Ok(());
        };
        let old = self.tree.score(place);
        if let Some(score) = decide(Some(old))
            && score.to_bits() != old.to_bits()
        {
            self.tree.rescore(place, score, &mut self.members);
        }
        Ok(())
    }

    /// Adds a member that is not in the set.
    pub(super) fn insert(&mut self, score: f64, member: &[u8], hash: u64) -> Result<(), Full> {
        let place = self.members.add(member).ok_or(Full)?;
        let members = &self.members;
        self.index.insert(hash, place, |one| hash_of(members, one));
        self.tree.insert(score, place, &mut self.members);
        Ok(())
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let hash = hash(member);
        let found = self.find(member, hash)?;
        let place = self.tree.find(found, &self.members)?;
        let score = self.tree.score(place);
        self.remove_at(place, hash);
        Some(score)
    }

    pub(super) fn remove_range(
        &mut self,
        ranks: Range<usize>,
        mut removed: impl FnMut(Scored<'_>),
    ) {
        for _ in ranks.clone() {
            let Some(place) = self.tree.select(ranks.start) else {
                return;
            };
            let member = self.members.bytes(self.tree.member(place));
            let hash = hash(member);
            removed(Scored {
                member: ElementText::Bytes(member),
                score: self.tree.score(place),
            });
            self.remove_at(place, hash);
        }
    }

    pub(super) fn rank_of_score(&self, score: f64, is_behind: bool) -> usize {
        match is_behind {
            true => self.tree.count_where(|one, _| one <= score),
            false => self.tree.count_where(|one, _| one < score),
        }
    }

    pub(super) fn rank_of_member(&self, member: &[u8], is_behind: bool) -> usize {
        let bytes = |one| self.members.bytes(one);
        match is_behind {
            true => self.tree.count_where(|_, one| bytes(one) <= member),
            false => self.tree.count_where(|_, one| bytes(one) < member),
        }
    }

    pub(super) fn iter(&self, ranks: Range<usize>) -> Iter<'_> {
        Iter {
            members: &self.members,
            entries: self.tree.iter(ranks),
        }
    }

    pub(super) fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Scored<'_>)) -> u64 {
        self.index.scan(cursor, count, |one| {
            if let Some(place) = self.tree.find(one, &self.members) {
                visit(Scored {
                    member: ElementText::Bytes(self.members.bytes(one)),
                    score: self.tree.score(place),
                });
            }
        })
    }

    #[inline]
    fn find(&self, member: &[u8], hash: u64) -> Option<MemberRef> {
        self.index
            .find(hash, |one| self.members.bytes(one) == member)
    }

    fn remove_at(&mut self, place: tree::EntryPosition, hash: u64) {
        let member = self.tree.member(place);
        self.index.remove(hash, member);
        self.tree.remove(place, &mut self.members);
        self.members.remove(member);
        if let Some(chunk) = self.members.worn(member) {
            self.empty_chunk(chunk);
        }
    }

    /// Moves the remaining members of a chunk to another: at most half a chunk.
    fn empty_chunk(&mut self, chunk: u32) {
        for old in self.members.in_chunk(chunk) {
            let hash = hash_of(&self.members, old);
            let Some(new) = self.members.relocate(old) else {
                return;
            };
            self.index.replace(hash, old, new);
            self.tree.replace(old, new, &self.members);
        }
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        self.tree.check(&self.members);
        for (_, member) in self.tree.iter(0..self.len()) {
            let hash = hash_of(&self.members, member);
            assert_eq!(self.index.find(hash, |one| one == member), Some(member));
        }
    }
}

fn hash_of(members: &Members, member: MemberRef) -> u64 {
    hash(members.bytes(member))
}

/// Members in order, from both ends.
#[derive(Clone, Debug)]
pub(super) struct Iter<'a> {
    members: &'a Members,
    entries: tree::Iter<'a>,
}

impl<'a> Iter<'a> {
    #[inline]
    fn scored(&self, (score, member): (f64, MemberRef)) -> Scored<'a> {
        Scored {
            member: ElementText::Bytes(self.members.bytes(member)),
            score,
        }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Scored<'a>;

    #[inline]
    fn next(&mut self) -> Option<Scored<'a>> {
        let entry = self.entries.next()?;
        Some(self.scored(entry))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        let entry = self.entries.next_back()?;
        Some(self.scored(entry))
    }
}
