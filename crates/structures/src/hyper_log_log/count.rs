//! Estimates how many elements registers stand for. Uses Ertl's improved raw estimator, which needs
//! neither tables nor special cases for small or large counts.

use super::{Corrupted, REGISTERS, Registers, sparse};

/// Bits of a hash, without those that choose the register.
const REST_BITS: usize = 50;

/// 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// How many registers have each value. An estimate needs no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram([u32; VALUES]);

/// Number of values that six bits can have.
const VALUES: usize = 64;

impl Histogram {
    /// Counts registers one by one.
    #[must_use]
    pub fn of_registers(registers: &Registers) -> Self {
        let mut counts = [0; VALUES];
        for register in registers {
            counts[usize::from(*register) % VALUES] += 1;
        }
        Self(counts)
    }

    /// Counts the registers of a sparse sketch run by run: a few steps if it saw few elements.
    ///
    /// # Errors
    /// [`Corrupted`], as [`merge`](super::merge) returns it.
    pub fn of_sparse(sketch: &[u8]) -> Result<Self, Corrupted> {
        let mut counts = [0; VALUES];
        sparse::for_each_run(sketch, |value, run| {
            counts[usize::from(value) % VALUES] += u32::try_from(run.len()).unwrap_or(0);
        })?;
        Ok(Self(counts))
    }

    /// Returns the estimated number of distinct elements.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts of registers are small, and the estimate is a positive number below 2^64"
    )]
    pub fn estimate(&self) -> u64 {
        let Self(histogram) = self;
        let all = REGISTERS as f64;
        let full = f64::from(histogram[REST_BITS + 1]);
        let mut sum = all * tau((all - full) / all);
        for number in histogram[1..=REST_BITS].iter().rev() {
            sum = (sum + f64::from(*number)) * 0.5;
        }
        sum += all * sigma(f64::from(histogram[0]) / all);
        (ALPHA * all * all / sum).round() as u64
    }
}

/// Returns the estimated number of distinct elements that these registers have seen.
#[must_use]
pub fn count(registers: &Registers) -> u64 {
    Histogram::of_registers(registers).estimate()
}

fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z <= before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z >= before {
            return z / 3.0;
        }
    }
}
