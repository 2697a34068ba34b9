//! A counted B+tree: members in the order of their scores, found by rank in O(log n).
//!
//! ```text
//!   inner   (first score, first member, node, entries below) …      up to 64 children
//!   leaf    scores [f64] │ members [reference]                      up to 128 entries
//!           parent, and the leaves before and behind
//! ```
//!
//! Nodes know their parents, so the rank of an entry is counted from its leaf upwards without a
//! comparison. Leaves grow in small steps: a leaf that is two thirds full takes hardly more memory
//! than its content.
//!
//! Invariants
//!  1. Entries ascend by (score, member) over all leaves in order; scores are never NaN.
//!  2. A child's first score and member are those of the first entry below it. Its count is the
//!     number of entries below it.
//!  3. The record of a member names the leaf that has its entry.
//!  4. No node is empty except the root of an empty tree. Of two neighbours below one parent,
//!     either both are at least a quarter full, or together they are more than three quarters full.

use std::ops::Range;

use base::cache::prefetch;

use super::members::{MemberRef, Members};
use super::pool::{Kept, NONE, Pool};
use crate::memory::allocated;
use crate::relocation::Relocation;

mod balance;

/// Maximum entries of a leaf.
const LEAF_MAX: usize = 128;
/// Maximum children of an inner node.
const INNER_MAX: usize = 64;
/// A leaf grows by this many entries.
const LEAF_STEP: usize = 8;

#[derive(Clone, Debug, Default)]
struct Leaf {
    scores: Kept<f64>,
    members: Kept<MemberRef>,
    parent: u32,
    previous: u32,
    next: u32,
}

#[derive(Clone, Debug, Default)]
struct Inner {
    children: Kept<Child>,
    parent: u32,
}

#[derive(Clone, Copy, Debug)]
struct Child {
    score: f64,
    member: MemberRef,
    node: u32,
    count: u32,
}

/// The position of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryPosition {
    leaf: u32,
    at: usize,
}

/// The tree. See the module documentation.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    leaves: Pool<Leaf, 4>,
    inners: Pool<Inner, 4>,
    root: u32,
    /// Number of levels of inner nodes above the leaves.
    height: u32,
    len: usize,
    /// Heap bytes of leaves and inner nodes.
    bytes: usize,
}

impl Default for Tree {
    fn default() -> Self {
        let mut leaves = Pool::default();
        leaves.push(Leaf::alone());
        Self {
            leaves,
            inners: Pool::default(),
            root: 0,
            height: 0,
            len: 0,
            bytes: 0,
        }
    }
}

impl Tree {
    /// Returns the number of entries.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes + self.leaves.memory_bytes() + self.inners.memory_bytes()
    }

    /// Returns the approximate number of its allocations.
    pub(super) fn allocations(&self) -> usize {
        (self.leaves.len() + self.inners.len()) * 2
    }

    /// Moves its pieces, as far as the relocation allows.
    pub(super) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        self.leaves.move_pieces(relocation, |leaf, relocation| {
            relocation.buffer(&mut leaf.scores);
            relocation.buffer(&mut leaf.members);
        });
        self.inners.move_pieces(relocation, |inner, relocation| {
            relocation.buffer(&mut inner.children);
        });
    }

    /// Adds an entry for a member that has none.
    pub(super) fn insert(&mut self, score: f64, member: MemberRef, members: &mut Members) {
        let key = members.bytes(member);
        let (mut node, mut is_last) = (self.root, true);
        for _ in 0..self.height {
            let children = &mut self.inners[node].children;
            let at = child_for(children, score, key, members);
            is_last &= at + 1 == children.len();
            children[at].count += 1;
            node = children[at].node;
        }
        let at = self.leaves[node].place_for(score, key, members);
        self.put(EntryPosition { leaf: node, at }, score, member);
        members.set_leaf(member, node);
        self.len += 1;
        if at == 0 {
            self.tell_first(node);
        }
        let length = self.leaves[node].scores.len();
        if length > LEAF_MAX {
            // Insertions in ascending order leave full leaves behind.
            let is_ascending = is_last && at + 1 == length;
            self.split_leaf(node, if is_ascending { at } else { length / 2 }, members);
        }
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, place: EntryPosition, members: &mut Members) {
        self.len -= 1;
        if self.len == 0 {
            *self = Self::default();
            return;
        }
        let leaf = &mut self.leaves[place.leaf];
        leaf.scores.remove(place.at);
        leaf.members.remove(place.at);
        let (length, spare) = (leaf.scores.len(), leaf.scores.capacity());
        if spare > length + 3 * LEAF_STEP {
            self.resize(place.leaf, length + LEAF_STEP);
        }
        self.count_down(place.leaf);
        if place.at == 0 && length > 0 {
            self.tell_first(place.leaf);
        }
        self.balance_leaf(place.leaf, members);
    }

    /// Changes the score of an entry.
    pub(super) fn rescore(&mut self, place: EntryPosition, score: f64, members: &mut Members) {
        let member = self.member(place);
        let leaf = &mut self.leaves[place.leaf];
        // A score strictly between the neighbours in the same leaf: the entry stays in place.
        let before = place.at.checked_sub(1).and_then(|at| leaf.scores.get(at));
        let behind = leaf.scores.get(place.at + 1);
        if before.is_some_and(|one| *one < score) && behind.is_some_and(|one| score < *one) {
            leaf.scores[place.at] = score;
            return;
        }
        self.remove(place, members);
        self.insert(score, member, members);
    }

    /// Replaces a reference by another reference to the same member.
    pub(super) fn replace(&mut self, old: MemberRef, new: MemberRef, members: &Members) {
        let leaf = members.leaf(new);
        let found = self.leaves[leaf].members.iter().position(|one| *one == old);
        if let Some(at) = found {
            self.leaves[leaf].members[at] = new;
            if at == 0 {
                self.tell_first(leaf);
            }
        }
    }

    /// Prefetches a leaf.
    #[inline]
    pub(super) fn prefetch_leaf(&self, leaf: u32) {
        if let Some(leaf) = self.leaves.get(leaf) {
            prefetch(leaf);
        }
    }

    /// Prefetches the entries of a leaf.
    #[inline]
    pub(super) fn prefetch_entries(&self, leaf: u32) {
        if let Some(leaf) = self.leaves.get(leaf) {
            prefetch(&*leaf.members);
            prefetch(&*leaf.scores);
        }
    }

    /// Returns the position of a member's entry. O(entries of a leaf).
    #[inline]
    pub(super) fn find(&self, member: MemberRef, members: &Members) -> Option<EntryPosition> {
        let leaf = members.leaf(member);
        let entries = &self.leaves[leaf].members;
        let at = entries.iter().position(|one| *one == member)?;
        Some(EntryPosition { leaf, at })
    }

    /// Returns the score of an entry.
    #[inline]
    pub(super) fn score(&self, place: EntryPosition) -> f64 {
        self.leaves[place.leaf].scores[place.at]
    }

    /// Returns the member of an entry.
    #[inline]
    pub(super) fn member(&self, place: EntryPosition) -> MemberRef {
        self.leaves[place.leaf].members[place.at]
    }

    /// Returns the number of entries before this one. O(log n).
    pub(super) fn rank(&self, place: EntryPosition) -> usize {
        let mut rank = place.at;
        let (mut node, mut parent) = (place.leaf, self.leaves[place.leaf].parent);
        while parent != NONE {
            let inner = &self.inners[parent];
            for child in &inner.children {
                if child.node == node {
                    break;
                }
                rank += child.count as usize;
            }
            (node, parent) = (parent, inner.parent);
        }
        rank
    }

    /// Returns the entry with this rank, or `None` if there are fewer entries. O(log n).
    pub(super) fn select(&self, rank: usize) -> Option<EntryPosition> {
        if rank >= self.len {
            return None;
        }
        let (mut node, mut left) = (self.root, rank);
        for _ in 0..self.height {
            for child in &self.inners[node].children {
                node = child.node;
                let count = child.count as usize;
                if left < count {
                    break;
                }
                left -= count;
            }
        }
        Some(EntryPosition {
            leaf: node,
            at: left,
        })
    }

    /// Returns the number of entries that satisfy `is_before`, which are at the front. O(log n).
    pub(super) fn count_where(&self, is_before: impl Fn(f64, MemberRef) -> bool) -> usize {
        let (mut node, mut rank) = (self.root, 0);
        for _ in 0..self.height {
            let children = &self.inners[node].children;
            let rest = children.get(1..).unwrap_or_default();
            let at = rest.partition_point(|one| is_before(one.score, one.member));
            rank += children[..at]
                .iter()
                .map(|one| one.count as usize)
                .sum::<usize>();
            node = children[at].node;
        }
        let leaf = &self.leaves[node];
        let (mut low, mut high) = (0, leaf.scores.len());
        while low < high {
            let middle = low.midpoint(high);
            if is_before(leaf.scores[middle], leaf.members[middle]) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        rank + low
    }

    /// Returns the entries whose ranks are in `ranks`, in order; iterates from both ends.
    pub(super) fn iter(&self, ranks: Range<usize>) -> Iter<'_> {
        let end = ranks.end.min(self.len);
        let left = end.saturating_sub(ranks.start);
        let nowhere = EntryPosition { leaf: NONE, at: 0 };
        Iter {
            tree: self,
            front: self.select(ranks.start).unwrap_or(nowhere),
            back: end
                .checked_sub(1)
                .and_then(|last| self.select(last))
                .unwrap_or(nowhere),
            left,
        }
    }

    /// Inserts an entry into a leaf.
    fn put(&mut self, place: EntryPosition, score: f64, member: MemberRef) {
        let leaf = &self.leaves[place.leaf];
        let length = leaf.scores.len();
        if length == leaf.scores.capacity() {
            self.resize(place.leaf, length + LEAF_STEP);
        }
        let leaf = &mut self.leaves[place.leaf];
        leaf.scores.insert(place.at, score);
        leaf.members.insert(place.at, member);
    }

    /// Sets the capacity of a leaf to `capacity` entries.
    fn resize(&mut self, leaf: u32, capacity: usize) {
        let leaf = &mut self.leaves[leaf];
        let old = leaf.heap_bytes();
        let length = leaf.scores.len();
        if capacity > leaf.scores.capacity() {
            leaf.scores.reserve_exact(capacity - length);
            leaf.members.reserve_exact(capacity - length);
        } else {
            leaf.scores.shrink_to(capacity);
            leaf.members.shrink_to(capacity);
        }
        self.bytes = self.bytes + leaf.heap_bytes() - old;
    }

    /// Decrements the counts of all nodes above a leaf by one entry.
    fn count_down(&mut self, leaf: u32) {
        let (mut node, mut parent) = (leaf, self.leaves[leaf].parent);
        while parent != NONE {
            let inner = &mut self.inners[parent];
            if let Some(child) = inner.child_mut(node) {
                child.count -= 1;
            }
            (node, parent) = (parent, inner.parent);
        }
    }

    /// Updates the nodes above a leaf after its first entry changed, as far as it is their first
    /// entry, too.
    fn tell_first(&mut self, leaf: u32) {
        let entries = &self.leaves[leaf];
        let (score, member) = (entries.scores[0], entries.members[0]);
        let (mut node, mut parent) = (leaf, entries.parent);
        while parent != NONE {
            let inner = &mut self.inners[parent];
            if let Some(child) = inner.child_mut(node) {
                child.score = score;
                child.member = member;
            }
            if inner.children[0].node != node {
                return;
            }
            (node, parent) = (parent, inner.parent);
        }
    }
}

impl Leaf {
    /// Creates a leaf without entries, parent and neighbours.
    fn alone() -> Self {
        Self {
            parent: NONE,
            previous: NONE,
            next: NONE,
            ..Self::default()
        }
    }

    /// Returns the index at which an entry with this score and member belongs.
    fn place_for(&self, score: f64, key: &[u8], members: &Members) -> usize {
        let low = self.scores.partition_point(|one| *one < score);
        let same = self.scores[low..].partition_point(|one| *one <= score);
        let same = &self.members[low..low + same];
        low + same.partition_point(|one| members.bytes(*one) < key)
    }

    fn heap_bytes(&self) -> usize {
        allocated(self.scores.capacity() * size_of::<f64>())
            + allocated(self.members.capacity() * size_of::<MemberRef>())
    }
}

impl Inner {
    fn position(&self, node: u32) -> Option<usize> {
        self.children.iter().position(|child| child.node == node)
    }

    fn child_mut(&mut self, node: u32) -> Option<&mut Child> {
        self.children.iter_mut().find(|child| child.node == node)
    }

    fn heap_bytes(&self) -> usize {
        allocated(self.children.capacity() * size_of::<Child>())
    }
}

/// Returns the last child whose first entry is not behind this score and member, or the first child
/// if there is none.
#[inline]
fn child_for(children: &[Child], score: f64, key: &[u8], members: &Members) -> usize {
    let rest = children.get(1..).unwrap_or_default();
    rest.partition_point(|one| {
        one.score < score || (one.score == score && members.bytes(one.member) <= key)
    })
}

/// Entries in order. See [`Tree::iter`].
#[derive(Clone, Debug)]
pub(super) struct Iter<'a> {
    tree: &'a Tree,
    front: EntryPosition,
    back: EntryPosition,
    left: usize,
}

impl Iterator for Iter<'_> {
    type Item = (f64, MemberRef);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let leaf = &self.tree.leaves[self.front.leaf];
        let entry = (leaf.scores[self.front.at], leaf.members[self.front.at]);
        self.front.at += 1;
        if self.front.at == leaf.scores.len() {
            self.front = EntryPosition {
                leaf: leaf.next,
                at: 0,
            };
        }
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let leaf = &self.tree.leaves[self.back.leaf];
        let entry = (leaf.scores[self.back.at], leaf.members[self.back.at]);
        if let Some(at) = self.back.at.checked_sub(1) {
            self.back.at = at;
        } else if self.left > 0 {
            let previous = &self.tree.leaves[leaf.previous];
            self.back = EntryPosition {
                leaf: leaf.previous,
                at: previous.scores.len() - 1,
            };
        }
        Some(entry)
    }
}

impl ExactSizeIterator for Iter<'_> {}

#[cfg(test)]
impl Tree {
    /// Checks the invariants of the module documentation.
    pub(super) fn check(&self, members: &Members) {
        let (mut leaf, mut count, mut bytes) = (self.first_leaf(), 0, 0);
        let mut last: Option<(f64, &[u8])> = None;
        let mut previous = NONE;
        while leaf != NONE {
            let entries = &self.leaves[leaf];
            assert_eq!(entries.previous, previous);
            assert!(!entries.scores.is_empty() || self.len == 0);
            assert_eq!(entries.scores.len(), entries.members.len());
            for (score, member) in entries.scores.iter().zip(&entries.members) {
                assert_eq!(members.leaf(*member), leaf);
                let entry = (*score, members.bytes(*member));
                assert!(last.is_none_or(|before| before < entry));
                last = Some(entry);
            }
            count += entries.scores.len();
            bytes += entries.heap_bytes();
            (previous, leaf) = (leaf, entries.next);
        }
        assert_eq!(count, self.len);
        let (total, inners) = self.check_node(self.root, self.height, NONE);
        assert_eq!(total, self.len);
        assert_eq!(self.bytes, bytes + inners);
    }

    fn first_leaf(&self) -> u32 {
        (0..self.height).fold(self.root, |node, _| self.inners[node].children[0].node)
    }

    fn check_node(&self, node: u32, level: u32, parent: u32) -> (usize, usize) {
        if level == 0 {
            assert_eq!(self.leaves[node].parent, parent);
            return (self.leaves[node].scores.len(), 0);
        }
        let inner = &self.inners[node];
        assert_eq!(inner.parent, parent);
        assert!(!inner.children.is_empty() && inner.children.len() <= INNER_MAX);
        let (mut total, mut bytes) = (0, inner.heap_bytes());
        for child in &inner.children {
            let (count, below) = self.check_node(child.node, level - 1, node);
            assert_eq!(child.count as usize, count);
            let first = (1..level).fold(child.node, |node, _| self.inners[node].children[0].node);
            assert_eq!(self.leaves[first].members[0], child.member);
            assert_eq!(self.leaves[first].scores[0], child.score);
            total += count;
            bytes += below;
        }
        (total, bytes)
    }
}
