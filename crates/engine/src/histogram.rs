//! Histograms of command run times, with a precision of three per cent.
//!
//! Every power of two of nanoseconds has `STEPS` cells, so the width of a cell is at most a 32nd of
//! its value. As for all counters of engines, one thread writes the cells and any thread reads
//! them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of cells per power of two, as an exponent of two.
const STEP_BITS: u32 = 5;
/// Number of cells per power of two.
const STEPS: usize = 1 << STEP_BITS;
/// Maximum time in bits (about two minutes). Longer times are counted as this.
const BITS_MAX: u32 = 37;
const CELLS: usize = (BITS_MAX - STEP_BITS + 1) as usize * STEPS;

/// The cells that one engine writes for one command.
#[derive(Debug)]
pub(crate) struct HistogramCells(Box<[AtomicU64]>);

impl Default for HistogramCells {
    fn default() -> Self {
        Self((0..CELLS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl HistogramCells {
    /// Counts commands that took this long.
    #[inline]
    pub(crate) fn add(&self, ns: u64, count: u64) {
        if let Some(cell) = self.0.get(cell_of(ns)) {
            let sum = cell.load(Ordering::Relaxed).wrapping_add(count);
            cell.store(sum, Ordering::Relaxed);
        }
    }
}

/// Counts up to some moment, summed over engines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    cells: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            cells: vec![0; CELLS],
        }
    }
}

impl Histogram {
    /// Adds the counts of one engine.
    pub(crate) fn add(&mut self, counted: &HistogramCells) {
        for (sum, cell) in self.cells.iter_mut().zip(&counted.0) {
            *sum += cell.load(Ordering::Relaxed);
        }
    }

    /// Subtracts earlier counts.
    pub(crate) fn subtract(&mut self, before: &Self) {
        for (sum, old) in self.cells.iter_mut().zip(&before.cells) {
            *sum = sum.saturating_sub(*old);
        }
    }

    /// Returns the number of commands counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.cells.iter().sum()
    }

    /// Returns the time within which `percent` per cent of the commands were done, in nanoseconds,
    /// rounded up to its cell.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank between 1 and the count"
    )]
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let count = self.count();
        let rank = (percent / 100.0 * count as f64 + 0.5) as u64;
        let rank = rank.clamp(1, count.max(1));
        let mut seen = 0;
        for (cell, counted) in self.cells.iter().enumerate() {
            seen += counted;
            if seen >= rank {
                return longest_of(cell);
            }
        }
        0
    }

    /// Returns how many commands took less than `2^bits` nanoseconds.
    #[must_use]
    pub fn shorter_than(&self, bits: u32) -> u64 {
        let end = cell_of(1_u64.checked_shl(bits).unwrap_or(u64::MAX));
        self.cells.iter().take(end).sum()
    }
}

/// Returns the cell of a time.
#[inline]
fn cell_of(ns: u64) -> usize {
    let ns = ns.min((1 << BITS_MAX) - 1);
    let bits = u64::BITS - ns.leading_zeros();
    let shift = bits.saturating_sub(STEP_BITS + 1);
    let step = usize::try_from(ns >> shift).unwrap_or(0);
    shift as usize * STEPS + step
}

/// Returns the longest time of a cell.
fn longest_of(cell: usize) -> u64 {
    let shift = (cell / STEPS).saturating_sub(1);
    let step = cell - shift * STEPS;
    ((step as u64 + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_follow_each_other_and_are_narrow() {
        let mut last = 0;
        for ns in (0..5_000).chain((5_000..50_000_000).step_by(4_999)) {
            let cell = cell_of(ns);
            assert!(cell == last || cell == last + 1 || ns > 5_000, "{ns}");
            assert!(cell >= last);
            last = cell;
            let longest = longest_of(cell);
            assert!(longest >= ns && longest - ns <= ns / 32, "{ns} {longest}");
        }
        assert!(cell_of(u64::MAX) < CELLS);
    }

    #[test]
    fn percentiles_are_ranks() {
        let cells = HistogramCells::default();
        for ns in 1..=1000 {
            cells.add(ns * 1000, 1);
        }
        let mut sum = Histogram::default();
        sum.add(&cells);
        assert_eq!(sum.count(), 1000);
        for (percent, us) in [(0.0, 1), (50.0, 500), (99.0, 990), (100.0, 1000)] {
            let ns = sum.percentile_ns(percent);
            assert!(ns >= us * 1000 && ns <= us * 1032, "{percent}: {ns}");
        }
        assert_eq!(sum.shorter_than(10), 1);
        assert_eq!(sum.shorter_than(40), 1000);
        let before = sum.clone();
        sum.subtract(&before);
        assert_eq!((sum.count(), sum.percentile_ns(50.0)), (0, 0));
    }
}
