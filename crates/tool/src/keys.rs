//! Which keys a thread of the generator requests, and in which order.
//!
//! A key is a number below the key space. Uniform choices are drawn on demand. A Zipf choice costs
//! several powers, so these are drawn before the run, and used in order.

use std::sync::Arc;

use base::random::Prng;

/// How keys are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyOrder {
    /// Each with the same probability.
    Uniform,
    /// The k-th most popular key with a probability proportional to `k^-exponent`. Popularity is
    /// spread over the key space, so that popular keys are not adjacent.
    Zipf {
        /// 0 is uniform; published traces have values between 0.6 and 1.2.
        exponent: f64,
    },
    /// In ascending order over all threads together: each key once before any key twice.
    Sequential,
    /// Each key once before any key twice, with neighbours far from each other: for loading in an
    /// order that looks random.
    Scattered,
}

/// Minimum and maximum number of drawn choices.
const DRAWN_MIN: u64 = 1 << 20;
const DRAWN_MAX: u64 = 1 << 23;
/// A prime above any number of drawn keys, which spreads popularity over the key space.
const SPREAD: u64 = 2_654_435_761;

/// The keys of a run, shared by its threads.
#[derive(Clone, Debug)]
pub struct Keys {
    space: u64,
    order: KeyOrder,
    drawn: Arc<[u32]>,
}

impl Keys {
    /// Creates keys below `space` (1 to 2^32), drawn from `seed`. With a Zipf order this draws up
    /// to 8 M choices, which takes most of a second.
    #[must_use]
    pub fn new(space: u64, order: KeyOrder, seed: u64) -> Self {
        let space = space.clamp(1, 1 << 32);
        let drawn = match order {
            KeyOrder::Zipf { exponent } => draw(space, exponent, seed),
            KeyOrder::Uniform | KeyOrder::Sequential | KeyOrder::Scattered => Arc::default(),
        };
        Self {
            space,
            order,
            drawn,
        }
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn space(&self) -> u64 {
        self.space
    }

    /// Returns the choices of one thread.
    #[must_use]
    pub fn chooser(&self, seed: u64) -> KeyChooser {
        let mut prng = Prng::seeded(seed);
        let position = match self.order {
            KeyOrder::Zipf { .. } => prng.below(self.drawn.len() as u64),
            KeyOrder::Uniform | KeyOrder::Sequential | KeyOrder::Scattered => 0,
        };
        KeyChooser {
            keys: self.clone(),
            prng,
            position,
        }
    }
}

/// The choices of one thread.
#[derive(Clone, Debug)]
pub struct KeyChooser {
    keys: Keys,
    prng: Prng,
    /// Position of the next choice, for all orders but a uniform one.
    position: u64,
}

impl KeyChooser {
    /// Makes a sequential or scattered order continue from the `first`-th key of all threads
    /// together.
    #[inline]
    pub fn start_at(&mut self, first: u64) {
        if matches!(self.keys.order, KeyOrder::Sequential | KeyOrder::Scattered) {
            self.position = first % self.keys.space;
        }
    }

    /// Returns the next key.
    #[inline]
    pub fn next_key(&mut self) -> u64 {
        match self.keys.order {
            KeyOrder::Uniform => self.prng.below(self.keys.space),
            KeyOrder::Sequential => self.next_position(),
            // Both are below 2^32, and the prime omits no key.
            KeyOrder::Scattered => self.next_position() * SPREAD % self.keys.space,
            KeyOrder::Zipf { .. } => self.next_drawn(),
        }
    }

    #[inline]
    fn next_position(&mut self) -> u64 {
        let position = self.position;
        self.position = if position + 1 == self.keys.space {
            0
        } else {
            position + 1
        };
        position
    }

    #[inline]
    fn next_drawn(&mut self) -> u64 {
        let length = self.keys.drawn.len() as u64;
        let index = usize::try_from(self.position).unwrap_or(0);
        self.position = if self.position + 1 >= length {
            0
        } else {
            self.position + 1
        };
        u64::from(self.keys.drawn.get(index).copied().unwrap_or(0))
    }
}

fn draw(space: u64, exponent: f64, seed: u64) -> Arc<[u32]> {
    let zipf = Zipf::new(space, exponent);
    let mut prng = Prng::seeded(seed);
    let count = space.saturating_mul(4).clamp(DRAWN_MIN, DRAWN_MAX);
    let spread = |rank: u64| (u128::from(rank) * u128::from(SPREAD)) % u128::from(space);
    (0..count)
        .map(|_| u32::try_from(spread(zipf.draw(&mut prng))).unwrap_or(0))
        .collect()
}

/// Zipf's law over ranks from 0.
///
/// Rejection sampling under an envelope that is 1 on the first rank and the integral of `x^-s`
/// beyond it. A draw costs the same for any number of ranks and needs no table. After W. Hörmann
/// and G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
/// distributions".
#[derive(Clone, Copy, Debug)]
struct Zipf {
    exponent: f64,
    /// The area under the envelope.
    area: f64,
    ranks: u64,
}

impl Zipf {
    fn new(ranks: u64, exponent: f64) -> Self {
        let last = ranks as f64;
        let tail = if is_one(exponent) {
            last.ln()
        } else {
            (last.powf(1.0 - exponent) - 1.0) / (1.0 - exponent)
        };
        Self {
            exponent,
            area: 1.0 + tail,
            ranks,
        }
    }

    fn draw(&self, prng: &mut Prng) -> u64 {
        loop {
            let at = self.envelope_inverse(prng.unit_f64() * self.area);
            let rank = at.floor() + 1.0;
            let under_envelope = if rank > 1.0 {
                at.powf(-self.exponent)
            } else {
                1.0
            };
            if prng.unit_f64() * under_envelope < rank.powf(-self.exponent) {
                return crate::units::whole(rank - 1.0).min(self.ranks - 1);
            }
        }
    }

    /// Returns the position that has `area` of the envelope to its left.
    fn envelope_inverse(&self, area: f64) -> f64 {
        if area <= 1.0 {
            area
        } else if is_one(self.exponent) {
            (area - 1.0).exp()
        } else {
            let power = (area - 1.0) * (1.0 - self.exponent) + 1.0;
            power.powf(1.0 / (1.0 - self.exponent))
        }
    }
}

/// Whether the integral of `x^-exponent` is a logarithm, or too close to one to divide by the
/// difference.
fn is_one(exponent: f64) -> bool {
    (exponent - 1.0).abs() < 1e-9
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "keys are below a thousand")]
mod tests {
    use super::*;

    #[test]
    fn zipf_frequencies_follow_the_law() {
        const RANKS: u64 = 1_000;
        const DRAWS: u32 = 400_000;
        for exponent in [0.0, 0.5, 0.9, 0.99, 1.0, 1.3] {
            let zipf = Zipf::new(RANKS, exponent);
            let mut prng = Prng::seeded(3);
            let mut counts = vec![0_u32; RANKS as usize];
            for _ in 0..DRAWS {
                counts[zipf.draw(&mut prng) as usize] += 1;
            }
            let weight = |rank: usize| (rank as f64 + 1.0).powf(-exponent);
            let total: f64 = (0..RANKS as usize).map(weight).sum();
            for range in [0..1, 1..2, 2..10, 10..100, 100..1_000] {
                let expected = range.clone().map(weight).sum::<f64>() / total * f64::from(DRAWS);
                let counted = f64::from(counts[range.clone()].iter().sum::<u32>());
                // Six standard deviations.
                let slack = 6.0 * expected.sqrt();
                assert!(
                    (counted - expected).abs() < slack,
                    "exponent {exponent}, ranks {range:?}: {counted} instead of {expected}"
                );
            }
        }
    }

    #[test]
    fn popular_keys_are_spread_and_none_is_lost() {
        let keys = Keys::new(100, KeyOrder::Zipf { exponent: 0.9 }, 1);
        let mut chooser = keys.chooser(2);
        let mut counts = [0_u32; 100];
        (0..200_000).for_each(|_| counts[chooser.next_key() as usize] += 1);
        assert!(counts.iter().all(|&count| count > 0));
        let first = SPREAD % 100;
        assert_eq!(counts.iter().max(), Some(&counts[0]));
        assert!(counts[first as usize] > counts[50]);
    }

    #[test]
    fn sequential_keys_wrap_and_start_where_told() {
        let mut chooser = Keys::new(10, KeyOrder::Sequential, 1).chooser(1);
        chooser.start_at(28);
        let keys: Vec<u64> = (0..4).map(|_| chooser.next_key()).collect();
        assert_eq!(keys, [8, 9, 0, 1]);
    }

    #[test]
    fn scattered_keys_come_once_and_far_from_each_other() {
        let mut chooser = Keys::new(1_001, KeyOrder::Scattered, 1).chooser(1);
        let keys: Vec<u64> = (0..1_001).map(|_| chooser.next_key()).collect();
        assert!(keys.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 10));
        let unique: std::collections::BTreeSet<u64> = keys.into_iter().collect();
        assert_eq!(unique.len(), 1_001);
    }

    #[test]
    fn uniform_keys_fill_the_space() {
        let mut chooser = Keys::new(8, KeyOrder::Uniform, 1).chooser(1);
        let mut counts = [0_u32; 8];
        (0..8_000).for_each(|_| counts[chooser.next_key() as usize] += 1);
        assert!(counts.iter().all(|&count| (800..1_200).contains(&count)));
    }
}
