//! A sorted set: members with scores, in the order of (score, member), found by member or by rank.
//!
//! ```text
//!   Small   one packed block: member score member score …
//!   Large   Members   each member once, with the leaf that its entry is in
//!           Index     member's hash → member
//!           Tree      counted B+tree: scores and members in order
//! ```
//!
//! Ranges of scores and of members are expressed in ranks. [`SortedSet::rank_of_score`] and
//! [`SortedSet::rank_of_member`] turn a bound into a rank, and all range operations take ranks.
//! They are O(log n) for a large set. The index grows and shrinks by a bucket at a time, the
//! members by a chunk, and the tree by a node: no change costs more than a few microseconds. A
//! clone of a large set shares the nodes of all three in groups of eight. A group is copied when
//! either side changes it.
//!
//! A set becomes large by the rules of Redis, so OBJECT ENCODING answers the same, and never
//! becomes small again. Scores are never NaN. 0 and -0 are equal; a small set does not keep the
//! sign of 0, a large one does.

use std::ops::Range;

use crate::compact::{CompactKind, OneBuffer};
use crate::element::ElementText;
use crate::hashing::hash;
use crate::kind::Encoding;
use crate::relocation::Relocation;
use crate::table::Full;

mod index;
mod large;
mod members;
mod pool;
mod small;
#[cfg(test)]
mod tests;
mod tree;

use large::Large;
use small::Small;

/// Limits up to which a sorted set is kept in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortedSetLimits {
    /// Maximum number of members: `zset-max-listpack-entries`.
    pub listpack_entries: usize,
    /// Maximum bytes of a member: `zset-max-listpack-value`.
    pub listpack_value_bytes: usize,
}

/// Members with scores, each member once.
#[derive(Clone, Debug)]
pub struct SortedSet {
    form: Repr,
}

#[derive(Clone, Debug)]
enum Repr {
    Small(Small),
    Large(Box<Large>),
}

/// A member and its score.
#[derive(Debug)]
pub struct Scored<'a> {
    /// The member.
    pub member: ElementText<'a>,
    /// Its score.
    pub score: f64,
}

impl Default for SortedSet {
    fn default() -> Self {
        Self::new()
    }
}

impl SortedSet {
    /// Creates a set without members.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            form: Repr::Small(Small::new()),
        }
    }

    /// Takes the buffer out of a small set; see
    /// [`Packed::take_buffer`](crate::Packed::take_buffer).
    #[inline]
    pub(crate) fn take_buffer(&mut self) -> Option<(CompactKind, OneBuffer)> {
        match &mut self.form {
            Repr::Small(small) => Some((CompactKind::SortedSet, small.take_buffer()?)),
            Repr::Large(_) => None,
        }
    }

    /// Returns the small set with this buffer.
    #[inline]
    pub(crate) fn from_buffer(_: CompactKind, buffer: OneBuffer) -> Self {
        Self {
            form: Repr::Small(Small::from_buffer(buffer)),
        }
    }

    /// Returns an empty set that will get `count` members, the longest of `longest_bytes`. It
    /// already has the representation that these members need.
    #[must_use]
    pub fn for_members(count: usize, longest_bytes: usize, limits: &SortedSetLimits) -> Self {
        if count <= limits.listpack_entries && longest_bytes <= limits.listpack_value_bytes {
            return Self::new();
        }
        Self {
            form: Repr::Large(Box::default()),
        }
    }

    /// Moves a set that was built as a large one to one block if it is small enough.
    ///
    /// # Errors
    /// None in practice: the members fit into one block.
    pub fn compact(&mut self, limits: &SortedSetLimits) -> Result<(), Full> {
        let is_short = |one: Scored<'_>| one.member.as_bytes().len() <= limits.listpack_value_bytes;
        if self.len() > limits.listpack_entries || !self.iter().all(is_short) {
            return Ok(());
        }
        let mut small = Self::new();
        for one in self.iter() {
            small.insert(one.member.as_bytes(), one.score, limits)?;
        }
        *self = small;
        Ok(())
    }

    /// Returns the number of members.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.form {
            Repr::Small(small) => small.len(),
            Repr::Large(large) => large.len(),
        }
    }

    /// Whether it has no members.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the answer of OBJECT ENCODING.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        match &self.form {
            Repr::Small(_) => Encoding::Listpack,
            Repr::Large(_) => Encoding::Skiplist,
        }
    }

    /// Returns the bytes it takes beside itself, as the allocator rounds them. Constant time.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.form {
            Repr::Small(small) => small.memory_bytes(),
            Repr::Large(large) => {
                crate::memory::allocated(size_of::<Large>()) + large.memory_bytes()
            }
        }
    }

    /// Moves the pieces it consists of, as far as the relocation allows.
    pub(crate) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        match &mut self.form {
            Repr::Small(small) if relocation.is_one_next() => small.move_pieces(relocation),
            Repr::Small(_) => {}
            Repr::Large(large) => {
                if relocation.is_one_next() {
                    relocation.boxed(large, Large::default);
                }
                large.move_pieces(relocation);
            }
        }
    }

    /// Returns the approximate number of its allocations, which is the cost of freeing it.
    #[must_use]
    pub fn allocations(&self) -> usize {
        match &self.form {
            Repr::Small(_) => 1,
            Repr::Large(large) => large.allocations(),
        }
    }

    /// Prefetches what a lookup of these members will read in a large set.
    pub fn prefetch<'m>(&self, members: impl Iterator<Item = &'m [u8]>) {
        if let Repr::Large(large) = &self.form {
            large.prefetch(members);
        }
    }

    /// Returns the score of `member`. Constant time for a large set.
    #[inline]
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.form {
            Repr::Small(small) => small.find(member).map(|(_, score)| score),
            Repr::Large(large) => large.score(member),
        }
    }

    /// Returns the number of members before `member`, and its score.
    #[must_use]
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        match &self.form {
            Repr::Small(small) => small.rank(member),
            Repr::Large(large) => large.rank(member),
        }
    }

    /// Adds `member` or changes its score. `decide` gets its present score, or `None` if it is
    /// absent, and returns its new score, or `None` to change nothing. The new score is not NaN.
    ///
    /// # Errors
    /// [`Full`] if there is no space for another member; the set is unchanged.
    pub fn update(
        &mut self,
        member: &[u8],
        limits: &SortedSetLimits,
        decide: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Result<(), Full> {
        let small = match &mut self.form {
            Repr::Small(small) => small,
            Repr::Large(large) => return large.update(member, decide),
        };
        let found = small.find(member);
        let Some(score) = decide(found.map(|(_, score)| score)) else {
            return Ok(());
        };
        if let Some((place, old)) = found {
            if old.to_bits() != score.to_bits() {
                small.remove_at(place);
                small.insert(score, member);
            }
            return Ok(());
        }
        let is_small = small.len() < limits.listpack_entries
            && member.len() <= limits.listpack_value_bytes
            && small.has_room_for(member);
        if is_small {
            small.insert(score, member);
            return Ok(());
        }
        self.make_large()?.insert(score, member, hash(member))
    }

    /// Adds `member` with `score`, or sets its score. Returns its former score.
    ///
    /// # Errors
    /// As [`SortedSet::update`].
    pub fn insert(
        &mut self,
        member: &[u8],
        score: f64,
        limits: &SortedSetLimits,
    ) -> Result<Option<f64>, Full> {
        let mut old = None;
        self.update(member, limits, |found| {
            old = found;
            Some(score)
        })?;
        Ok(old)
    }

    /// Removes `member`. Returns its former score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.form {
            Repr::Small(small) => {
                let (place, score) = small.find(member)?;
                small.remove_at(place);
                Some(score)
            }
            Repr::Large(large) => large.remove(member),
        }
    }

    /// Removes the members whose ranks are in `ranks`, and calls `removed` with each.
    pub fn remove_range(&mut self, ranks: Range<usize>, removed: impl FnMut(Scored<'_>)) {
        let ranks = ranks.start..ranks.end.min(self.len());
        if ranks.is_empty() {
            return;
        }
        match &mut self.form {
            Repr::Small(small) => small.remove_range(ranks, removed),
            Repr::Large(large) => large.remove_range(ranks, removed),
        }
    }

    /// Returns the number of members with a lower score or, with `is_behind`, with a lower or equal
    /// score.
    #[must_use]
    pub fn rank_of_score(&self, score: f64, is_behind: bool) -> usize {
        match &self.form {
            Repr::Small(small) => small.rank_where(|one| match is_behind {
                true => one.score <= score,
                false => one.score < score,
            }),
            Repr::Large(large) => large.rank_of_score(score, is_behind),
        }
    }

    /// Returns the number of members before `member` in the order of bytes; with `is_behind`,
    /// counts `member` itself, too. Only meaningful if all scores are equal.
    #[must_use]
    pub fn rank_of_member(&self, member: &[u8], is_behind: bool) -> usize {
        match &self.form {
            Repr::Small(small) => small.rank_where(|one| match is_behind {
                true => one.member.as_bytes() <= member,
                false => one.member.as_bytes() < member,
            }),
            Repr::Large(large) => large.rank_of_member(member, is_behind),
        }
    }

    /// Returns the members whose ranks are in `ranks`, in order; iterates from both ends.
    #[must_use]
    pub fn range(&self, ranks: Range<usize>) -> Iter<'_> {
        let ranks = ranks.start.min(ranks.end)..ranks.end;
        match &self.form {
            Repr::Small(small) => Iter::Small(small.iter(ranks)),
            Repr::Large(large) => Iter::Large(large.iter(ranks)),
        }
    }

    /// Returns all members in order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        self.range(0..self.len())
    }

    /// Visits about `count` members from `cursor` on. Returns the next cursor, or 0 at the end. All
    /// members of a small set are visited in one call. A member that exists from the first call to
    /// the last is visited.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Scored<'_>)) -> u64 {
        match &self.form {
            Repr::Small(_) => {
                self.iter().for_each(&mut visit);
                0
            }
            Repr::Large(large) => large.scan(cursor, count, visit),
        }
    }

    fn make_large(&mut self) -> Result<&mut Large, Full> {
        if let Repr::Small(small) = &self.form {
            let mut large = Box::<Large>::default();
            for one in small.iter(0..small.len()) {
                let member = one.member.as_bytes();
                large.insert(one.score, member, hash(member))?;
            }
            self.form = Repr::Large(large);
        }
        match &mut self.form {
            Repr::Large(large) => Ok(large),
            Repr::Small(_) => Err(Full),
        }
    }
}

/// Two sets are equal if they have the same members and scores, whatever their representation.
impl PartialEq for SortedSet {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |(one, other): (Scored<'_>, Scored<'_>)| {
            one.score == other.score && one.member.as_bytes() == other.member.as_bytes()
        };
        self.len() == other.len() && self.iter().zip(other.iter()).all(is_same)
    }
}

/// Members in order. See [`SortedSet::range`].
#[derive(Clone, Debug)]
#[allow(private_interfaces, reason = "the forms are nobody's business")]
pub enum Iter<'a> {
    /// Members of a block.
    #[doc(hidden)]
    Small(small::Iter<'a>),
    /// Members of a tree.
    #[doc(hidden)]
    Large(large::Iter<'a>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = Scored<'a>;

    #[inline]
    fn next(&mut self) -> Option<Scored<'a>> {
        match self {
            Self::Small(iter) => iter.next(),
            Self::Large(iter) => iter.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Small(iter) => iter.size_hint(),
            Self::Large(iter) => iter.size_hint(),
        }
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Self::Small(iter) => iter.next_back(),
            Self::Large(iter) => iter.next_back(),
        }
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// Returns the whole number that equals a score, or `None` if no exact one does.
#[allow(
    clippy::cast_possible_truncation,
    reason = "checked to be whole and small"
)]
fn is_whole(score: f64) -> Option<i64> {
    /// All whole numbers up to this are exact doubles.
    const EXACT_MAX: f64 = (1_u64 << 53) as f64;
    let is_exact = score.trunc() == score && score.abs() <= EXACT_MAX;
    is_exact.then_some(score as i64)
}
