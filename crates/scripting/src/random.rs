//! The random number generator of scripts. Each machine has one; `api` passes its numbers to
//! scripts.

/// The generator behind `math.random`: the linear congruence of `drand48`, so that a seed yields
/// the numbers that scripts know.
#[derive(Clone, Copy, Default)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: i64) -> Self {
        Self(((seed.cast_unsigned() & 0xffff_ffff) << 16) | 0x330e)
    }

    /// Returns a number of 31 bits.
    pub(crate) fn next(&mut self) -> u32 {
        let product = self.0.wrapping_mul(0x5_deec_e66d).wrapping_add(0xb);
        self.0 = product & 0xffff_ffff_ffff;
        u32::try_from(self.0 >> 17).unwrap_or(0)
    }
}
