//! How many bytes the process holds, and whether that is too much.
//!
//! Every thread counts what it takes and frees in its own number ([`LocalBytes`]) and adds that to
//! the shared one ([`Ledger`]) once it passes 64 KiB. So the shared number is wrong by at most that
//! much per thread and class of counter, and its cache line moves rarely.
//!
//! The limit is on what the process holds, which the counters know only in part: there are also the
//! program itself, the buffers of clients, and the overhead of allocators. [`Budget`] therefore
//! adds a correction. It is measured from the resident set ten times a second, and up to a hundred
//! times while writers evict. This sum decides about eviction at once, without waiting for the next
//! measurement.
//!
//! Rules that keep the correction from emptying the store:
//!
//! 1. It is never negative: memory that was promised but not touched yet will be.
//! 2. A little memory that is held but free for new records (free slots, dirty chunks) is
//!    subtracted first: evicting does not lower it, and the next writes use it up without growing
//!    the process. Free memory beyond that may not fit the next records: writers make chunks of it
//!    ([`Budget::excess_bytes`], [`crate::mover`]), and as far as they cannot, it counts as used.
//! 3. It is at most a quarter of the limit, however large the rest of the process is; unless the
//!    server itself says that program and clients hold more ([`Budget::set_other_bytes`]).
//! 4. It rises by at most 1/64 of the limit per measurement and falls at once, so that a short
//!    spike evicts little. If the process holds more than the limit, it may rise by as much as that
//!    excess.

use std::io;

use base::sync::CachePadded;
use base::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A thread reports its bytes to the shared number once they pass this.
pub(crate) const FLUSH_BYTES: i64 = 64 << 10;

/// The largest correction is the limit divided by this.
const CORRECTION_PART_MAX: u64 = 4;

/// The correction rises per measurement by at most the limit divided by this.
const CORRECTION_PART_STEP: u64 = 64;

/// The memory that may lie idle: the limit divided by this, and at least the number below.
const IDLE_PART: u64 = 32;
const IDLE_BYTES_MIN: u64 = 1 << 20;

/// A number of bytes that all threads add to.
#[derive(Debug, Default)]
pub struct Ledger {
    bytes: CachePadded<AtomicI64>,
}

impl Ledger {
    /// Adds `bytes`, which may be negative. One locked instruction on a shared line: for rare and
    /// large amounts; small ones go through [`LocalBytes`].
    #[inline]
    pub fn add(&self, bytes: i64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The sum; 0 if the frees of one thread were reported before the allocations of another.
    #[inline]
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed).max(0).unsigned_abs()
    }
}

/// The bytes that one thread has not reported to the [`Ledger`] yet.
#[derive(Debug, Default)]
pub struct LocalBytes {
    pending: i64,
}

impl LocalBytes {
    /// Counts `bytes`. Returns the bytes due for the ledger, if any.
    #[inline]
    #[must_use]
    pub fn add(&mut self, bytes: i64) -> Option<i64> {
        self.pending += bytes;
        if self.pending.abs() < FLUSH_BYTES {
            return None;
        }
        Some(self.take())
    }

    /// The bytes not yet reported.
    #[inline]
    #[must_use]
    pub fn pending(&self) -> i64 {
        self.pending
    }

    /// Takes all bytes not yet reported.
    #[must_use]
    pub fn take(&mut self) -> i64 {
        std::mem::take(&mut self.pending)
    }
}

/// Decides whether the process holds more than it may.
#[derive(Debug, Default)]
pub struct Budget {
    /// 0 is no limit.
    limit_bytes: AtomicU64,
    correction_bytes: AtomicU64,
    other_bytes: AtomicU64,
}

impl Budget {
    /// Creates a budget with a limit of `limit_bytes`; 0 is no limit.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes: AtomicU64::new(limit_bytes),
            correction_bytes: AtomicU64::new(0),
            other_bytes: AtomicU64::new(0),
        }
    }

    /// The limit; 0 is none.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Changes the limit; 0 is none.
    pub fn set_limit_bytes(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
        let correction = self.correction_bytes();
        self.correction_bytes.store(
            correction.min(limit_bytes / CORRECTION_PART_MAX),
            Ordering::Relaxed,
        );
    }

    /// The correction for memory that the counters do not know.
    #[must_use]
    pub fn correction_bytes(&self) -> u64 {
        self.correction_bytes.load(Ordering::Relaxed)
    }

    /// Sets the memory that is known to be held outside of the store: the program, buffers of
    /// clients. It counts in full, as it does in INFO's used memory.
    pub fn set_other_bytes(&self, other_bytes: u64) {
        self.other_bytes.store(other_bytes, Ordering::Relaxed);
    }

    /// The bytes by which the limit is exceeded if the counters say `used_bytes`; 0 if it is not.
    #[inline]
    #[must_use]
    pub fn over_bytes(&self, used_bytes: u64) -> u64 {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        if limit_bytes == 0 {
            return 0;
        }
        self.counted_bytes(used_bytes).saturating_sub(limit_bytes)
    }

    /// The bytes that count for the limit if the counters say `used_bytes`.
    #[inline]
    #[must_use]
    pub fn counted_bytes(&self, used_bytes: u64) -> u64 {
        let other_bytes = self.other_bytes.load(Ordering::Relaxed);
        used_bytes.saturating_add(self.correction_bytes().max(other_bytes))
    }

    /// The bytes by which the limit plus the allowed idle memory is exceeded, if the counters say
    /// `used_bytes` and `idle_bytes` are held but not used; 0 if it is not.
    #[inline]
    #[must_use]
    pub fn excess_bytes(&self, used_bytes: u64, idle_bytes: u64) -> u64 {
        let limit_bytes = self.limit_bytes();
        let idle_max = idle_bytes_max(limit_bytes);
        if limit_bytes == 0 || idle_bytes <= idle_max {
            return 0;
        }
        let excess = self.over_bytes(used_bytes.saturating_add(idle_bytes - idle_max));
        excess.min(idle_bytes)
    }

    /// Updates the correction from a measurement: the process has `resident_bytes`, the counters
    /// said `used_bytes`, and `idle_bytes` are held but not used. Only one caller at a time.
    pub fn correct(&self, resident_bytes: u64, used_bytes: u64, idle_bytes: u64) {
        let limit_bytes = self.limit_bytes();
        let unknown = resident_bytes
            .saturating_sub(used_bytes)
            .saturating_sub(idle_bytes.min(idle_bytes_max(limit_bytes)));
        let passed = resident_bytes.saturating_sub(limit_bytes);
        let step_max = passed.max(limit_bytes / CORRECTION_PART_STEP);
        let rise_max = self.correction_bytes().saturating_add(step_max);
        let correction = unknown.min(limit_bytes / CORRECTION_PART_MAX).min(rise_max);
        self.correction_bytes.store(correction, Ordering::Relaxed);
    }
}

/// Idle memory that a limit allows: 1/32 of it, and at least what a few caches hold.
#[inline]
#[must_use]
pub(crate) fn idle_bytes_max(limit_bytes: u64) -> u64 {
    (limit_bytes / IDLE_PART).max(IDLE_BYTES_MIN)
}

/// Resident bytes of this process.
///
/// # Errors
/// If the system does not say (no `/proc`).
pub fn resident_bytes() -> io::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm
        .split_ascii_whitespace()
        .nth(1)
        .and_then(|field| field.parse().ok())
        .ok_or(io::ErrorKind::InvalidData)?;
    // SAFETY: `sysconf` reads a constant of the system.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(pages.saturating_mul(u64::try_from(page_bytes).unwrap_or(4096)))
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_thread_tells_the_ledger_in_batches() {
        let ledger = Ledger::default();
        let mut local = LocalBytes::default();
        assert_eq!(local.add(FLUSH_BYTES - 1), None);
        ledger.add(local.add(1).expect("the bound is reached"));
        assert_eq!(ledger.used_bytes(), FLUSH_BYTES.unsigned_abs());
        assert_eq!(local.add(-1), None);
        ledger.add(local.take());
        assert_eq!(ledger.used_bytes(), FLUSH_BYTES.unsigned_abs() - 1);
    }

    #[test]
    fn frees_told_before_allocations_read_as_zero() {
        let ledger = Ledger::default();
        ledger.add(-5);
        assert_eq!(ledger.used_bytes(), 0);
    }

    #[test]
    fn without_a_limit_nothing_is_over() {
        let budget = Budget::new(0);
        budget.correct(u64::MAX, 0, 0);
        assert_eq!(budget.over_bytes(u64::MAX), 0);
    }

    #[test]
    fn memory_that_counters_do_not_know_counts_a_step_at_a_time() {
        let budget = Budget::new(64 * MIB);
        assert_eq!(budget.over_bytes(64 * MIB), 0);
        budget.correct(65 * MIB, 60 * MIB, 2 * MIB);
        assert_eq!(budget.over_bytes(64 * MIB), MIB, "a step is 1/64");
        for _ in 0..10 {
            budget.correct(65 * MIB, 60 * MIB, 2 * MIB);
        }
        assert_eq!(budget.correction_bytes(), 3 * MIB);
        for _ in 0..10 {
            budget.correct(70 * MIB, 60 * MIB, 7 * MIB);
        }
        assert_eq!(budget.correction_bytes(), 8 * MIB, "2 MiB may lie idle");
        budget.correct(60 * MIB, 60 * MIB, 0);
        assert_eq!(budget.correction_bytes(), 0, "falls at once");
    }

    #[test]
    fn what_lies_idle_beyond_its_part_is_to_be_used() {
        let budget = Budget::new(64 * MIB);
        assert_eq!(budget.excess_bytes(62 * MIB, 2 * MIB), 0);
        assert_eq!(budget.excess_bytes(62 * MIB, 4 * MIB), 0, "there is room");
        assert_eq!(budget.excess_bytes(62 * MIB, 5 * MIB), MIB);
        assert_eq!(
            budget.excess_bytes(90 * MIB, 5 * MIB),
            5 * MIB,
            "no more than there is"
        );
        assert_eq!(Budget::new(0).excess_bytes(u64::MAX, u64::MAX), 0);
    }

    #[test]
    fn what_the_server_knows_of_counts_in_full() {
        let budget = Budget::new(64 * MIB);
        budget.set_other_bytes(40 * MIB);
        assert_eq!(budget.over_bytes(25 * MIB), MIB);
        for _ in 0..100 {
            budget.correct(45 * MIB, 0, 0);
        }
        assert_eq!(
            budget.over_bytes(25 * MIB),
            MIB,
            "the larger of both counts"
        );
    }

    #[test]
    fn the_correction_leaves_three_quarters_to_the_store() {
        let budget = Budget::new(64 * MIB);
        for _ in 0..1000 {
            budget.correct(u64::MAX, 0, 0);
        }
        assert_eq!(budget.over_bytes(48 * MIB), 0);
        assert_eq!(budget.over_bytes(49 * MIB), MIB);
        budget.set_limit_bytes(32 * MIB);
        assert_eq!(budget.correction_bytes(), 8 * MIB);
    }

    #[test]
    fn the_resident_set_grows_with_touched_memory() {
        let before = resident_bytes().unwrap();
        let touched = std::hint::black_box(vec![1_u8; 64 << 20]);
        let after = resident_bytes().unwrap();
        assert!(
            after >= before + (32 << 20),
            "{before} {after} {}",
            touched.len()
        );
    }
}
