//! Random elements: what SRANDMEMBER, SPOP, HRANDFIELD and ZRANDMEMBER share.

use base::random::Prng;
use engine::args::Args;
use engine::error::CommandError;

/// Maximum number of draws with repetition in one command.
const DRAWS_MAX: u64 = 10_000_000;

/// Minimum size of one draw in a reply: `$0` and two line ends.
const DRAW_BYTES_MIN: u64 = 6;

/// Number of elements to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// This many different elements, or all if there are fewer.
    Different(usize),
    /// This many draws with repetition.
    Draws(usize),
}

/// The count argument of a command, and whether a `word` follows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RandomCount {
    count: i64,
    /// Whether the word is present.
    pub(crate) with_word: bool,
}

impl RandomCount {
    /// Parses the count, and the `word` after it if the command has one.
    ///
    /// # Errors
    /// If the count is out of range, or something else follows.
    pub(crate) fn parse(args: &mut Args<'_>, word: Option<&str>) -> Result<Self, CommandError> {
        if word.is_none() && args.remaining() > 1 {
            return Err(CommandError::Syntax);
        }
        let count = args.bounded(-i64::MAX, i64::MAX)?;
        let with_word = word.is_some_and(|word| args.take_word(word));
        if args.remaining() > 0 {
            return Err(CommandError::Syntax);
        }
        if with_word && count.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
            return Err(CommandError::fixed("ERR value is out of range"));
        }
        Ok(Self { count, with_word })
    }

    /// Limits the draws if a reply of more than `replies_bytes_max` closes its client unsent. More
    /// than `DRAWS_MAX` draws are reduced to the number that exceeds that size.
    pub(crate) fn within(self, replies_bytes_max: Option<u64>) -> Self {
        let Some(bytes_max) = replies_bytes_max else {
            return self;
        };
        let enough = bytes_max / DRAW_BYTES_MIN + 1;
        if self.count >= 0 || self.count.unsigned_abs() <= DRAWS_MAX || enough > DRAWS_MAX {
            return self;
        }
        let count = i64::try_from(enough).map_or(self.count, |enough| -enough);
        Self { count, ..self }
    }

    /// Returns the number of elements to take from an existing collection.
    ///
    /// # Errors
    /// If it is more draws than one command makes.
    pub(crate) fn wanted(self) -> Result<Wanted, CommandError> {
        let count = self.count.unsigned_abs();
        if self.count >= 0 {
            return Ok(Wanted::Different(
                usize::try_from(count).unwrap_or(usize::MAX),
            ));
        }
        if count > DRAWS_MAX {
            return Err(CommandError::fixed(
                "ERR value is out of range, at most 10000000 repetitions",
            ));
        }
        Ok(Wanted::Draws(usize::try_from(count).unwrap_or(usize::MAX)))
    }
}

impl Wanted {
    /// Returns the approximate number of elements visited in a collection of `len`.
    pub(crate) fn steps(self, len: usize) -> usize {
        match self {
            Self::Draws(count) => count,
            Self::Different(count) if are_few(count, len) => count,
            Self::Different(_) => len,
        }
    }
}

/// Whether so few elements are wanted that drawing until enough differ is cheaper than a pass over
/// all.
pub(crate) fn are_few(wanted: usize, len: usize) -> bool {
    wanted.saturating_mul(3) < len
}

/// Selection sampling (Knuth, TAOCP 3.4.2, algorithm S): asked once for each of `len` elements in
/// order, it takes `wanted` of them, each with equal probability.
#[derive(Debug)]
pub(crate) struct Selection {
    left: usize,
    wanted: usize,
}

impl Selection {
    /// Returns a selection of `wanted` of `len` elements, or of all if there are fewer.
    pub(crate) fn new(wanted: usize, len: usize) -> Self {
        Self {
            left: len,
            wanted: wanted.min(len),
        }
    }

    /// Returns whether to take the next element.
    pub(crate) fn takes(&mut self, random: &mut Prng) -> bool {
        let takes = self.left > 0 && random.index(self.left) < self.wanted;
        self.left = self.left.saturating_sub(1);
        self.wanted -= usize::from(takes);
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_draws_are_as_many_as_a_limit_of_replies_takes() {
        let wanted = |count: i64, bytes_max: Option<u64>| {
            let count = RandomCount {
                count,
                with_word: false,
            };
            count.within(bytes_max).wanted().ok()
        };
        assert!(wanted(-10_000_001, None).is_none());
        assert_eq!(
            wanted(-10_000_001, Some(600_000)),
            Some(Wanted::Draws(100_001))
        );
        assert_eq!(wanted(-10_000_001, Some(1)), Some(Wanted::Draws(1)));
        assert!(wanted(-10_000_001, Some(1 << 30)).is_none());
        assert_eq!(wanted(-200_000, Some(600)), Some(Wanted::Draws(200_000)));
        assert_eq!(wanted(99, Some(600)), Some(Wanted::Different(99)));
    }

    #[test]
    fn a_selection_takes_as_many_as_wanted_and_each_as_often() {
        let mut random = Prng::seeded(5);
        let mut taken = [0_u32; 10];
        for _ in 0..10_000 {
            let mut selection = Selection::new(3, 10);
            let mut count = 0;
            for one in &mut taken {
                if selection.takes(&mut random) {
                    *one += 1;
                    count += 1;
                }
            }
            assert_eq!(count, 3);
        }
        // 3,000 each; six standard deviations are 275.
        assert!(taken.iter().all(|count| (2_725..3_275).contains(count)));
        let mut all = Selection::new(20, 4);
        assert!((0..4).all(|_| all.takes(&mut random)));
        assert!(!all.takes(&mut random));
    }
}
