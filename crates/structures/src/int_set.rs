//! A small set of whole numbers, sorted, each in as few bytes as the widest of them needs.
//!
//! The numbers are consecutive little-endian integers of two, four or eight bytes each, as in a
//! dump. The width grows with the first number that needs it and never shrinks. A lookup is a
//! binary search. An insertion or removal moves all numbers behind it, so the owner of such a set
//! keeps it short. `algebra` combines several sets.

mod algebra;

use std::ops::ControlFlow;

use crate::compact::{ONE_BUFFER_BYTES_END, OneBuffer};
use crate::memory::grown;
use crate::relocation::Relocation;

/// Whole numbers, each once, in ascending order.
#[derive(Clone, Debug)]
pub struct IntSet {
    width: Width,
    bytes: Vec<u8>,
}

/// Bytes per number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Width {
    Two = 2,
    Four = 4,
    Eight = 8,
}

impl Default for IntSet {
    fn default() -> Self {
        Self::new()
    }
}

/// Two sets are equal if their numbers are, whatever their width.
impl PartialEq for IntSet {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for IntSet {}

impl IntSet {
    /// Creates an empty set. Allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self {
            width: Width::Two,
            bytes: Vec::new(),
        }
    }

    /// Returns the set of the numbers in `bytes`, as [`IntSet::as_bytes`] returns them, or `None`
    /// unless the width is two, four or eight and the numbers ascend.
    #[must_use]
    pub fn from_bytes(width_bytes: usize, bytes: &[u8]) -> Option<Self> {
        let width = [Width::Two, Width::Four, Width::Eight]
            .into_iter()
            .find(|width| *width as usize == width_bytes)?;
        let set = Self {
            width,
            bytes: bytes.to_vec(),
        };
        let is_whole = bytes.len().is_multiple_of(width_bytes);
        (is_whole && set.iter().is_sorted_by(|one, next| one < next)).then_some(set)
    }

    /// Moves its buffer if the relocation wants it moved.
    pub(crate) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        relocation.buffer(&mut self.bytes);
    }

    /// Takes the buffer and the width, and leaves the set empty. Returns `None` and changes nothing
    /// if the buffer has 64 KiB or more.
    #[inline]
    #[must_use]
    pub fn take_buffer(&mut self) -> Option<OneBuffer> {
        if self.bytes.capacity() >= ONE_BUFFER_BYTES_END {
            return None;
        }
        Some(OneBuffer {
            bytes: std::mem::take(&mut self.bytes),
            front: self.width as u32,
            count: 0,
        })
    }

    /// Returns the set from which [`IntSet::take_buffer`] took this buffer. Another buffer gives a
    /// set of arbitrary numbers.
    #[inline]
    #[must_use]
    pub fn from_buffer(buffer: OneBuffer) -> Self {
        let width = match buffer.front {
            2 => Width::Two,
            4 => Width::Four,
            _ => Width::Eight,
        };
        Self {
            width,
            bytes: buffer.bytes,
        }
    }

    /// Returns the number of members.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / self.width as usize
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the bytes per number: two, four or eight.
    #[must_use]
    pub fn width_bytes(&self) -> usize {
        self.width as usize
    }

    /// Returns the numbers as they are stored.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the capacity of its buffer in bytes.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether `number` is in the set.
    #[must_use]
    pub fn contains(&self, number: i64) -> bool {
        self.search(number).is_break()
    }

    /// Adds `number`. Returns whether it was absent.
    pub fn insert(&mut self, number: i64) -> bool {
        self.widen(width_of(number));
        let ControlFlow::Continue(index) = self.search(number) else {
            return false;
        };
        let width = self.width as usize;
        let end = self.bytes.len();
        if self.bytes.capacity() - end < width {
            self.bytes.reserve_exact(grown(end + width) - end);
        }
        self.bytes.resize(end + width, 0);
        self.bytes
            .copy_within(index * width..end, (index + 1) * width);
        self.bytes[index * width..(index + 1) * width]
            .copy_from_slice(&number.to_le_bytes()[..width]);
        true
    }

    /// Removes `number`. Returns whether it was present.
    pub fn remove(&mut self, number: i64) -> bool {
        let ControlFlow::Break(index) = self.search(number) else {
            return false;
        };
        let width = self.width as usize;
        self.bytes.drain(index * width..(index + 1) * width);
        if self.bytes.len() < self.bytes.capacity() / 4 {
            self.bytes.shrink_to(self.bytes.len() * 2);
        }
        true
    }

    /// Returns the number at `index` in ascending order.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<i64> {
        if index >= self.len() {
            return None;
        }
        let start = index * self.width as usize;
        Some(read(self.width, &self.bytes[start..]))
    }

    /// Returns the numbers in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + '_ {
        let chunks = self.bytes.chunks_exact(self.width as usize);
        chunks.map(|bytes| read(self.width, bytes))
    }

    /// Returns the index of `number`, or the index at which it would be inserted.
    fn search(&self, number: i64) -> ControlFlow<usize, usize> {
        if width_of(number) > self.width {
            return ControlFlow::Continue(if number < 0 { 0 } else { self.len() });
        }
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.get(middle).cmp(&Some(number)) {
                std::cmp::Ordering::Equal => return ControlFlow::Break(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        ControlFlow::Continue(low)
    }

    fn widen(&mut self, width: Width) {
        if width <= self.width {
            return;
        }
        let mut bytes = Vec::new();
        bytes.reserve_exact(grown((self.len() + 1) * width as usize));
        for number in self.iter() {
            bytes.extend_from_slice(&number.to_le_bytes()[..width as usize]);
        }
        (self.width, self.bytes) = (width, bytes);
    }
}

fn width_of(number: i64) -> Width {
    if i16::try_from(number).is_ok() {
        Width::Two
    } else if i32::try_from(number).is_ok() {
        Width::Four
    } else {
        Width::Eight
    }
}

/// Reads the number from as many bytes as the width.
#[inline]
fn read(width: Width, bytes: &[u8]) -> i64 {
    match width {
        Width::Two => bytes
            .first_chunk()
            .map_or(0, |one| i16::from_le_bytes(*one).into()),
        Width::Four => bytes
            .first_chunk()
            .map_or(0, |one| i32::from_le_bytes(*one).into()),
        Width::Eight => bytes
            .first_chunk()
            .map_or(0, |one| i64::from_le_bytes(*one)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use base::random::Prng;

    use super::*;
    use crate::memory::allocated;

    #[test]
    fn a_small_set_has_nothing_to_spare_but_what_its_allocation_has() {
        for wide in [1, 1 << 20, 1 << 40] {
            let mut set = IntSet::new();
            for number in 0..20 {
                set.insert(number * wide);
                let (used, taken) = (set.as_bytes().len(), set.capacity_bytes());
                assert_eq!(allocated(taken), allocated(used), "{used} of {taken}");
            }
        }
    }

    #[test]
    fn behaves_like_a_sorted_set() {
        for (seed, range) in [(1, 100), (2, 70_000), (3, 1 << 40)] {
            let mut random = Prng::seeded(seed);
            let (mut set, mut twin) = (IntSet::new(), BTreeSet::new());
            for _ in 0..2_000 {
                let number = i64::try_from(random.below(range)).unwrap() - 50;
                if random.below(3) == 0 {
                    assert_eq!(set.remove(number), twin.remove(&number));
                } else {
                    assert_eq!(set.insert(number), twin.insert(number));
                }
                assert_eq!(set.contains(number), twin.contains(&number));
            }
            assert!(set.iter().eq(twin.iter().copied()));
            assert!(set.iter().rev().eq(twin.iter().rev().copied()));
            let third = twin.iter().nth(3).copied();
            assert_eq!(set.get(3), third);
        }
    }

    #[test]
    fn is_as_wide_as_its_widest_number() {
        let mut set = IntSet::new();
        for (number, width) in [
            (-32_768, 2),
            (32_767, 2),
            (32_768, 4),
            (-2_147_483_648, 4),
            (2_147_483_648, 8),
            (i64::MIN, 8),
            (i64::MAX, 8),
        ] {
            assert!(!set.contains(number));
            assert!(!set.remove(number));
            assert!(set.insert(number));
            assert!(set.contains(number));
            assert_eq!(set.width_bytes(), width);
        }
        assert!(set.iter().is_sorted());
        assert_eq!(set.len(), 7);
    }

    #[test]
    fn bytes_make_the_same_set_or_none() {
        let mut set = IntSet::new();
        for number in [5, -70_000, 1] {
            set.insert(number);
        }
        let copy = IntSet::from_bytes(set.width_bytes(), set.as_bytes());
        assert_eq!(copy.as_ref(), Some(&set));
        assert!(IntSet::from_bytes(4, &set.as_bytes()[..5]).is_none());
        assert!(IntSet::from_bytes(3, &[0; 6]).is_none());
        assert!(
            IntSet::from_bytes(2, &[1, 0, 1, 0]).is_none(),
            "twice the same"
        );
        assert!(
            IntSet::from_bytes(2, &[2, 0, 1, 0]).is_none(),
            "not ascending"
        );
    }

    #[test]
    fn removed_numbers_give_memory_back() {
        let mut set: IntSet = IntSet::new();
        (0..512).for_each(|number| assert!(set.insert(number * 1_000_000)));
        (1..512).for_each(|number| assert!(set.remove(number * 1_000_000)));
        assert!(set.capacity_bytes() < 64);
    }
}
