//! Randomness, as a thing that can be seeded.

/// A fast generator.
#[derive(Clone, Debug)]
pub struct Prng(u64);

impl Prng {
    /// From a seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
