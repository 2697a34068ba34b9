//! Set operations on sets of whole numbers.
//!
//! The numbers ascend, so two sets are traversed side by side, once and without going back. A step
//! advances in the set with the smaller number, or in both, and does not branch on which. If one
//! set is much longer, the other's numbers are searched in strides that double.
//!
//! Members are processed in blocks; a word of bits marks which members of a block stay. Comparing
//! eight with eight at once saved 0.4 of the 1.1 µs that two sets of 400 took, and lost 0.6 µs with
//! numbers of eight bytes (no instruction compares those on every processor). A request takes 4 µs,
//! so this was left out.

use std::ops::ControlFlow;

use super::{IntSet, Width, read, width_of};

/// Number of members that are processed together, one per bit.
const BLOCK: usize = u64::BITS as usize;

/// Minimum ratio of the sets' lengths at which strides pay.
const STRIDE_FROM: usize = 16;

impl IntSet {
    /// Creates a set of `numbers`, which ascend.
    #[must_use]
    pub fn from_ascending(numbers: &[i64]) -> Self {
        debug_assert!(numbers.is_sorted_by(|one, next| one < next));
        let ends = [numbers.first(), numbers.last()];
        let widths = ends.into_iter().flatten().map(|number| width_of(*number));
        let width = widths.max().unwrap_or(Width::Two);
        let mut bytes = Vec::with_capacity(numbers.len() * width as usize);
        for number in numbers {
            bytes.extend_from_slice(&number.to_le_bytes()[..width as usize]);
        }
        Self { width, bytes }
    }

    /// Visits the numbers that all `others` have (or, without `have`, that none of them has) in
    /// ascending order, until `visit` breaks off. At most linear in the length of all sets
    /// together.
    pub fn sift(
        &self,
        others: &[&Self],
        have: bool,
        mut visit: impl FnMut(i64) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let begun = others.iter().map(|set| Walk { set, from: 0 });
        let mut walks: Vec<Walk<'_>> = begun.collect();
        let mut room = [0; BLOCK];
        for start in (0..self.len()).step_by(BLOCK) {
            let numbers = self.block(start, &mut room);
            let mut stay = u64::MAX >> (BLOCK - numbers.len());
            for walk in &mut walks {
                let found = walk.find(numbers);
                stay &= if have { found } else { !found };
            }
            while stay != 0 {
                visit(numbers[stay.trailing_zeros() as usize])?;
                stay &= stay - 1;
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns the numbers that any of `sets` has, ascending and each once.
    #[must_use]
    pub fn union(sets: &[&Self]) -> Vec<i64> {
        let mut numbers = Vec::with_capacity(sets.iter().map(|set| set.len()).sum());
        for set in sets {
            numbers.extend(set.iter());
        }
        // The sort finds the runs that already ascend, and merges them.
        numbers.sort();
        numbers.dedup();
        numbers
    }

    /// Reads the numbers from `start` on, as many as fit into `room`.
    fn block<'r>(&self, start: usize, room: &'r mut [i64; BLOCK]) -> &'r [i64] {
        let width = self.width as usize;
        let count = BLOCK.min(self.len() - start);
        let bytes = &self.bytes[start * width..(start + count) * width];
        let decoded = bytes.chunks_exact(width);
        for (number, bytes) in room.iter_mut().zip(decoded) {
            *number = read(self.width, bytes);
        }
        &room[..count]
    }
}

/// A set in which numbers are searched. The numbers ascend from call to call.
struct Walk<'s> {
    set: &'s IntSet,
    /// Everything before this index is less than all numbers still to be searched.
    from: usize,
}

impl Walk<'_> {
    /// Returns which of `numbers`, at most 64, are in the set: one bit each, the lowest for the
    /// first.
    fn find(&mut self, numbers: &[i64]) -> u64 {
        let bytes = &self.set.bytes;
        match self.set.width {
            Width::Two => find(
                numbers,
                bytes.as_chunks().0,
                i16::from_le_bytes,
                &mut self.from,
            ),
            Width::Four => find(
                numbers,
                bytes.as_chunks().0,
                i32::from_le_bytes,
                &mut self.from,
            ),
            Width::Eight => find(
                numbers,
                bytes.as_chunks().0,
                i64::from_le_bytes,
                &mut self.from,
            ),
        }
    }
}

fn find<const BYTES: usize, N: Into<i64>>(
    numbers: &[i64],
    set: &[[u8; BYTES]],
    decode: impl Fn([u8; BYTES]) -> N,
    from: &mut usize,
) -> u64 {
    let at = |index: usize| set.get(index).map(|bytes| decode(*bytes).into());
    let mut found = 0;
    if set.len() - *from > numbers.len() * STRIDE_FROM {
        for (bit, number) in numbers.iter().enumerate() {
            *from = stride(*from, |index| {
                at(index).is_some_and(|one: i64| one < *number)
            });
            found |= u64::from(at(*from) == Some(*number)) << bit;
        }
        return found;
    }
    let (mut mine, mut theirs) = (0, *from);
    while let (Some(number), Some(one)) = (numbers.get(mine), at(theirs)) {
        found |= u64::from(*number == one) << mine;
        mine += usize::from(*number <= one);
        theirs += usize::from(one <= *number);
    }
    *from = theirs;
    found
}

/// Returns the first index from `from` on at which `is_less` does not hold; it does not hold at any
/// later index either. Strides double while it holds at their end, and then halve.
fn stride(mut from: usize, is_less: impl Fn(usize) -> bool) -> usize {
    let mut step = 1;
    while is_less(from + step - 1) {
        from += step;
        step *= 2;
    }
    while step > 1 {
        step /= 2;
        if is_less(from + step - 1) {
            from += step;
        }
    }
    from
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use base::random::Prng;

    use super::*;

    /// Draws `count` numbers from a range of `spread` around 0. Numbers drawn twice count once.
    fn drawn(random: &mut Prng, count: u64, spread: u64) -> BTreeSet<i64> {
        let middle = i64::try_from(spread / 2).unwrap();
        let mut number = || i64::try_from(random.below(spread)).unwrap() - middle;
        (0..count).map(|_| number()).collect()
    }

    fn set_of(twin: &BTreeSet<i64>) -> IntSet {
        let mut set = IntSet::new();
        for number in twin {
            set.insert(*number);
        }
        set
    }

    fn sifted(sets: &[&IntSet], have: bool) -> Vec<i64> {
        let mut numbers = Vec::new();
        let ended = sets[0].sift(&sets[1..], have, |number| {
            numbers.push(number);
            ControlFlow::Continue(())
        });
        assert!(ended.is_continue());
        numbers
    }

    fn assert_like_twins(twins: &[BTreeSet<i64>]) {
        let sets: Vec<IntSet> = twins.iter().map(set_of).collect();
        let sets: Vec<&IntSet> = sets.iter().collect();
        let in_others = |number: &i64| {
            twins[1..]
                .iter()
                .map(|twin| twin.contains(number))
                .collect()
        };
        let common = twins[0].iter().filter(|number| {
            let there: Vec<bool> = in_others(number);
            there.into_iter().all(|is_there| is_there)
        });
        assert!(common.eq(&sifted(&sets, true)));
        let others_lack = twins[0].iter().filter(|number| {
            let there: Vec<bool> = in_others(number);
            !there.into_iter().any(|is_there| is_there)
        });
        assert!(others_lack.eq(&sifted(&sets, false)));
        let all: BTreeSet<i64> = twins.iter().flatten().copied().collect();
        let union = IntSet::union(&sets);
        assert!(all.iter().eq(&union));
        assert_eq!(IntSet::from_ascending(&union), set_of(&all));
    }

    #[test]
    fn combines_like_sets_of_any_kind() {
        let mut random = Prng::seeded(9);
        let sizes = [0, 1, 5, 63, 64, 65, 400, 3_000];
        let spreads = [40, 700, 60_000, 1 << 20, 1 << 40];
        for _ in 0..400 {
            let twins: Vec<_> = (0..=random.below(4))
                .map(|_| {
                    let size = sizes[usize::try_from(random.below(8)).unwrap()];
                    let spread = spreads[usize::try_from(random.below(5)).unwrap()];
                    drawn(&mut random, size, spread)
                })
                .collect();
            assert_like_twins(&twins);
        }
    }

    #[test]
    fn the_widest_numbers_are_compared_whole() {
        let ends = [i64::MIN, -1 << 32, -1, 0, 1, 1 << 32, i64::MAX];
        let (ends, few) = (BTreeSet::from(ends), BTreeSet::from([-1, 0, 7]));
        assert_like_twins(&[ends.clone(), few.clone()]);
        assert_like_twins(&[few, ends]);
    }

    #[test]
    fn what_breaks_off_sees_no_more() {
        let set = set_of(&(0..500).collect());
        let mut seen = Vec::new();
        let ended = set.sift(&[&set], true, |number| {
            seen.push(number);
            if seen.len() < 70 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        assert!(ended.is_break());
        assert!(seen.into_iter().eq(0..70));
    }
}
