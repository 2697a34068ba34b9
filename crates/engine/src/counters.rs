//! Counters of an engine: requests per row of the table, error replies per code.
//!
//! Only the engine writes its cells; any thread reads them. A sum over engines is only slightly out
//! of date. No counter is ever reset: a reader that wants to count from now on keeps the present
//! counts and subtracts them later ([`Counts::since`]).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::command_index::CommandIndex;
use crate::error::CommandError;
use crate::histogram::{Histogram, HistogramCells};
use crate::observer::REQUESTS_PER_SAMPLE;

/// The cells of one engine.
#[derive(Debug)]
pub struct EngineCounters {
    rows: Box<[RowCells]>,
    /// Error replies by their first word. Errors are rare enough for a lock.
    errors: Mutex<BTreeMap<String, u64>>,
    errors_count: AtomicU64,
    /// Number of requests until the next sample.
    until_sample: AtomicU64,
    samples: AtomicU64,
}

#[derive(Debug, Default)]
struct RowCells {
    calls: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    ns: AtomicU64,
    /// Allocated when the command first runs: most commands never do.
    latency: OnceLock<HistogramCells>,
}

/// The counts of one command or subcommand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Number of times it ran.
    pub calls: u64,
    /// Number of times it was refused before it ran.
    pub rejected: u64,
    /// Number of times it ran and replied with an error.
    pub failed: u64,
    /// Total run time.
    pub ns: u64,
}

/// Run times of commands up to some moment, by index into the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies(pub BTreeMap<CommandIndex, Histogram>);

impl Latencies {
    /// Returns what was added after `before`, without commands that have nothing new.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        for (index, histogram) in &mut self.0 {
            if let Some(old) = before.0.get(index) {
                histogram.subtract(old);
            }
        }
        self.0.retain(|_, histogram| histogram.count() > 0);
        self
    }
}

/// The counts of engines up to some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows by index into the table. The list may be shorter than the table; missing rows are 0.
    pub rows: Vec<RowCounts>,
    /// Error replies by their first word.
    pub errors: BTreeMap<String, u64>,
}

/// Maximum number of distinct first words. All later ones are counted as one.
const ERROR_CODES_MAX: usize = 128;
/// The code under which error replies with further first words are counted.
const OTHER_CODES: &str = "ERRORSTATS_OVERFLOW";
/// Maximum length of a code, in bytes. A text without a space in this range is counted as `ERR`.
const CODE_BYTES_MAX: usize = 31;

impl EngineCounters {
    /// Returns cells for the rows of a table, all 0.
    #[must_use]
    pub fn of_rows(rows_count: usize) -> Self {
        let rows = std::iter::repeat_with(RowCells::default);
        Self {
            rows: rows.take(rows_count).collect(),
            errors: Mutex::default(),
            errors_count: AtomicU64::new(0),
            until_sample: AtomicU64::new(1),
            samples: AtomicU64::new(0),
        }
    }

    /// Counts requests that ran.
    #[inline]
    pub(crate) fn count_calls(&self, index: CommandIndex, calls: usize) {
        if let Some(row) = self.rows.get(usize::from(index)) {
            add(&row.calls, calls);
        }
    }

    /// Counts the run time of requests: `ns` each. `in_detail` also adds it to the histogram.
    #[inline]
    pub(crate) fn count_time(&self, index: CommandIndex, calls: usize, ns: u64, in_detail: bool) {
        if let Some(row) = self.rows.get(usize::from(index)) {
            let calls = calls as u64;
            let sum = row.ns.load(Ordering::Relaxed);
            row.ns
                .store(sum.wrapping_add(ns.wrapping_mul(calls)), Ordering::Relaxed);
            if in_detail {
                row.latency.get_or_init(Default::default).add(ns, calls);
            }
        }
    }

    /// Returns which of `requests` that ran is sampled, if any: one in [`REQUESTS_PER_SAMPLE`], at
    /// irregular distances.
    #[inline]
    pub(crate) fn drawn(&self, requests: usize) -> Option<usize> {
        let left = self.until_sample.load(Ordering::Relaxed);
        let count = requests as u64;
        if left > count {
            self.until_sample.store(left - count, Ordering::Relaxed);
            return None;
        }
        self.draw_next();
        Some(usize::try_from(left).unwrap_or(1).saturating_sub(1))
    }

    /// Draws the next distance. Multiples of the golden ratio are evenly spread and never repeat.
    #[cold]
    fn draw_next(&self) {
        let samples = self.samples.load(Ordering::Relaxed).wrapping_add(1);
        self.samples.store(samples, Ordering::Relaxed);
        let spread = samples.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - 8);
        let distance = REQUESTS_PER_SAMPLE / 2 + spread * REQUESTS_PER_SAMPLE / 256;
        self.until_sample.store(distance, Ordering::Relaxed);
    }

    /// Counts a request that ran and replied with an error.
    #[cold]
    pub(crate) fn count_failure(&self, index: CommandIndex) {
        if let Some(row) = self.rows.get(usize::from(index)) {
            add(&row.failed, 1);
        }
    }

    #[cold]
    pub(crate) fn count_rejection(&self, index: CommandIndex) {
        if let Some(row) = self.rows.get(usize::from(index)) {
            add(&row.rejected, 1);
        }
    }

    /// Counts an error reply unless it was counted before. Any thread may call this.
    #[cold]
    pub fn count_reply(&self, error: &CommandError) {
        if !matches!(error, CommandError::HandedOn(_)) {
            self.count_error(&error.text());
        }
    }

    /// Counts an error reply by the text's first word.
    #[cold]
    pub(crate) fn count_error(&self, text: &[u8]) {
        let head = &text[..text.len().min(CODE_BYTES_MAX)];
        let end = head.iter().position(|byte| *byte == b' ');
        let code = String::from_utf8_lossy(end.map_or(b"ERR", |end| &head[..end]));
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        add(&self.errors_count, 1);
        if let Some(count) = errors.get_mut(code.as_ref()) {
            *count += 1;
        } else if errors.len() < ERROR_CODES_MAX {
            errors.insert(code.into_owned(), 1);
        } else {
            *errors.entry(OTHER_CODES.to_owned()).or_default() += 1;
        }
    }

    /// Returns the number of error replies of any kind, with one load. A caller compares it to see
    /// whether there were new ones.
    #[must_use]
    pub fn errors_count(&self) -> u64 {
        self.errors_count.load(Ordering::Relaxed)
    }

    /// Adds the counts so far to `counts`.
    pub fn add_to(&self, counts: &mut Counts) {
        if counts.rows.len() < self.rows.len() {
            counts.rows.resize(self.rows.len(), RowCounts::default());
        }
        for (sum, row) in counts.rows.iter_mut().zip(&self.rows) {
            sum.calls += row.calls.load(Ordering::Relaxed);
            sum.rejected += row.rejected.load(Ordering::Relaxed);
            sum.failed += row.failed.load(Ordering::Relaxed);
            sum.ns = sum.ns.wrapping_add(row.ns.load(Ordering::Relaxed));
        }
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        for (code, count) in &*errors {
            *counts.errors.entry(code.clone()).or_default() += count;
        }
    }
}

impl EngineCounters {
    /// Adds the run times so far to `latencies`.
    pub fn add_latencies_to(&self, latencies: &mut Latencies) {
        for (index, row) in (0..).zip(&self.rows) {
            if let Some(cells) = row.latency.get() {
                latencies.0.entry(index).or_default().add(cells);
            }
        }
    }
}

/// Adds without a locked instruction: the only writer is the engine's thread, or the holder of the
/// lock of [`EngineCounters::errors`].
#[inline]
fn add(cell: &AtomicU64, count: usize) {
    let sum = cell.load(Ordering::Relaxed).wrapping_add(count as u64);
    cell.store(sum, Ordering::Relaxed);
}

impl Counts {
    /// Returns what was added after `before`, without codes that have nothing new.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        for (row, old) in self.rows.iter_mut().zip(&before.rows) {
            row.calls = row.calls.saturating_sub(old.calls);
            row.rejected = row.rejected.saturating_sub(old.rejected);
            row.failed = row.failed.saturating_sub(old.failed);
            row.ns = row.ns.saturating_sub(old.ns);
        }
        for (code, count) in &mut self.errors {
            *count = count.saturating_sub(before.errors.get(code).copied().unwrap_or(0));
        }
        self.errors.retain(|_, count| *count > 0);
        self
    }

    /// Returns the calls of all commands.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.rows.iter().map(|row| row.calls).sum()
    }

    /// Returns the total run time of all commands.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.rows.iter().map(|row| row.ns).sum()
    }

    /// Returns the number of all error replies.
    #[must_use]
    pub fn error_replies(&self) -> u64 {
        self.errors.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_add_up_and_start_again() {
        let (one, other) = (EngineCounters::of_rows(2), EngineCounters::of_rows(2));
        one.count_calls(0, 1);
        one.count_error(b"WRONGTYPE Operation against");
        other.count_calls(0, 1);
        other.count_failure(0);
        other.count_rejection(1);
        let sum = || {
            let mut sum = Counts::default();
            one.add_to(&mut sum);
            other.add_to(&mut sum);
            sum
        };
        let before = sum();
        assert_eq!((before.rows[0].calls, before.rows[0].failed), (2, 1));
        assert_eq!(before.rows[1].rejected, 1);
        assert_eq!(before.error_replies(), 1);
        one.count_error(b"ERR");
        let since = sum().since(&before);
        assert_eq!(since.rows[0], RowCounts::default());
        assert_eq!(since.errors, BTreeMap::from([("ERR".to_owned(), 1)]));
    }

    #[test]
    fn one_request_in_so_many_is_drawn() {
        for batch in [1, 3, 16] {
            let counters = EngineCounters::of_rows(2);
            let batches = 1_000_000 / batch;
            let drawn: Vec<usize> = (0..batches).filter_map(|_| counters.drawn(batch)).collect();
            assert!(drawn.iter().all(|at| *at < batch));
            let expected = 1_000_000 / usize::try_from(REQUESTS_PER_SAMPLE).unwrap();
            let most = expected + expected / 10;
            assert!(
                (expected * 9 / 10..=most).contains(&drawn.len()),
                "{}",
                drawn.len()
            );
        }
    }

    #[test]
    fn invented_codes_do_not_grow_without_bound() {
        let counters = EngineCounters::of_rows(2);
        for number in 0..1000 {
            counters.count_error(format!("CODE{number} text").as_bytes());
        }
        let mut counts = Counts::default();
        counters.add_to(&mut counts);
        assert!(counts.errors.len() <= ERROR_CODES_MAX + 1);
        assert_eq!(counts.error_replies(), 1000);
    }
}
