//! Randomness as a seedable dependency.
//!
//! [`fill_from_os`] is for values that an adversary must not guess (hash secrets, identities);
//! [`Prng`] is for choices (sampling, jitter, RANDOMKEY), which a test or a simulation replays from
//! a seed. The generator is xoshiro256++ by Blackman and Vigna, its state filled by splitmix64.

use crate::hex;

/// A fast generator, unsuitable for secrets.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    /// Creates the generator that always returns the same numbers for the same `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let mut position = seed;
        let mut next = || {
            position = position.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (position ^ (position >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        };
        // Four consecutive outputs of a bijection of distinct inputs are never all zero, which is
        // the one state the generator cannot leave.
        Self {
            state: [next(), next(), next(), next()],
        }
    }

    /// Creates a generator seeded by the operating system.
    ///
    /// # Panics
    /// If the operating system provides no randomness: no server may start then.
    #[must_use]
    pub fn from_os() -> Self {
        let mut seed = [0; 8];
        fill_from_os(&mut seed);
        Self::seeded(u64::from_le_bytes(seed))
    }

    /// Returns the next number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let state = &mut self.state;
        let result = state[0]
            .wrapping_add(state[3])
            .rotate_left(23)
            .wrapping_add(state[0]);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }

    /// Returns a number below `bound`, each with the same probability; 0 if `bound` is 0.
    ///
    /// One multiplication nearly always; a second draw with probability below `bound / 2^64`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        // Lemire, "Fast Random Integer Generation in an Interval": the high half of a product is
        // the answer, and the low half tells whether the draw fell into the uneven remainder.
        let (mut low, mut high) = self.next_u64().widening_product(bound);
        if low < bound {
            let uneven = bound.wrapping_neg() % bound;
            while low < uneven {
                (low, high) = self.next_u64().widening_product(bound);
            }
        }
        high
    }

    /// Returns an index below `length`, each with the same probability; 0 if `length` is 0.
    #[inline]
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// Returns a number in `0.0..1.0`, of 53 random bits.
    #[inline]
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in a double")]
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for piece in out.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            piece.copy_from_slice(&bytes[..piece.len()]);
        }
    }

    /// Returns forty hexadecimal digits, the format of a run ID or replication ID.
    #[must_use]
    pub fn hex_id(&mut self) -> String {
        let mut bytes = [0; 20];
        self.fill(&mut bytes);
        hex::text(&bytes)
    }

    /// Creates an independent generator for another part, which shares no numbers with this one.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::seeded(self.next_u64())
    }
}

/// Fills `out` with random bytes of the operating system.
///
/// # Panics
/// If the operating system provides no randomness: no server may start then.
pub fn fill_from_os(out: &mut [u8]) {
    if let Err(error) = getrandom::fill(out) {
        panic!("the operating system gives no randomness: {error}");
    }
}

/// Computes both halves of a product.
trait WideningProduct {
    /// Returns the low and the high 64 bits of `self * other`.
    fn widening_product(self, other: Self) -> (u64, u64);
}

impl WideningProduct for u64 {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "halves of the product")]
    fn widening_product(self, other: Self) -> (u64, u64) {
        let product = u128::from(self) * u128::from(other);
        (product as u64, (product >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_reference_sequence() {
        // First outputs of the authors' C programs, splitmix64 seeded with 0.
        let mut prng = Prng::seeded(0);
        assert_eq!(
            prng.state,
            [
                0xe220_a839_7b1d_cdaf,
                0x6e78_9e6a_a1b9_65f4,
                0x06c4_5d18_8009_454f,
                0xf88b_b8a8_724c_81ec
            ]
        );
        assert_eq!(prng.next_u64(), 0x5317_5d61_490b_23df);
        assert_eq!(prng.next_u64(), 0x61da_6f3d_c380_d507);
        let mut counting = Prng {
            state: [1, 2, 3, 4],
        };
        let first: [u64; 4] = std::array::from_fn(|_| counting.next_u64());
        assert_eq!(
            first,
            [
                41_943_041,
                58_720_359,
                3_588_806_011_781_223,
                3_591_011_842_654_386
            ]
        );
    }

    #[test]
    fn below_is_even_and_in_range() {
        let mut prng = Prng::seeded(7);
        assert_eq!(prng.below(0), 0);
        assert_eq!(prng.below(1), 0);
        let mut counts = [0_u32; 6];
        for _ in 0..60_000 {
            counts[prng.index(6)] += 1;
        }
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)));
        // A bound at which a plain remainder would favour the lower third.
        let bound = u64::MAX / 4 * 3;
        let low = (0..30_000)
            .filter(|_| prng.below(bound) < bound / 3)
            .count();
        assert!((9_500..10_500).contains(&low), "{low}");
    }

    #[test]
    fn fill_reaches_every_byte() {
        let mut prng = Prng::seeded(1);
        for length in [0, 1, 7, 8, 9, 600] {
            let mut seen = vec![0_u8; length];
            for _ in 0..8 {
                let mut out = vec![0; length];
                prng.fill(&mut out);
                seen.iter_mut().zip(out).for_each(|(all, new)| *all |= new);
            }
            assert!(seen.iter().all(|&byte| byte != 0));
        }
    }

    #[test]
    fn the_system_gives_different_bytes_each_time() {
        let (mut one, mut two) = ([0; 300], [0; 300]);
        fill_from_os(&mut one);
        fill_from_os(&mut two);
        assert_ne!(one, two);
        assert_ne!(one[256..], [0; 44]);
        assert_ne!(Prng::from_os().next_u64(), Prng::from_os().next_u64());
    }

    #[test]
    fn ids_are_lower_case_hexadecimal() {
        let id = Prng::seeded(3).hex_id();
        assert_eq!(id.len(), 40);
        assert!(id.bytes().all(|byte| b"0123456789abcdef".contains(&byte)));
        assert_eq!(id, Prng::seeded(3).hex_id());
        assert_ne!(Prng::from_os().hex_id(), id);
    }

    #[test]
    fn unit_numbers_stay_below_one() {
        let mut prng = Prng::seeded(11);
        let sum: f64 = (0..10_000).map(|_| prng.unit_f64()).sum();
        assert!((4_800.0..5_200.0).contains(&sum));
    }
}
