//! How many elements registers stand for: Ertl's improved raw estimator, which needs neither tables
//! nor a case for small or large counts.

use super::{REGISTERS, Registers};

/// Bits of a hash beside those that choose the register.
const REST_BITS: usize = 50;

/// 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// The estimated number of different elements.
#[must_use]
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of registers are small, and the estimate is a positive number below 2^64"
)]
pub fn count(registers: &Registers) -> u64 {
    let mut histogram = [0_u32; 64];
    for register in registers {
        histogram[usize::from(*register) & 63] += 1;
    }
    let all = REGISTERS as f64;
    let full = f64::from(histogram[REST_BITS + 1]);
    let mut sum = all * tau((all - full) / all);
    for number in histogram[1..=REST_BITS].iter().rev() {
        sum = (sum + f64::from(*number)) * 0.5;
    }
    sum += all * sigma(f64::from(histogram[0]) / all);
    (ALPHA * all * all / sum).round() as u64
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
