//! Samples of short values for training: what is copied, and when.
//!
//! ```text
//!   collecting ── full ──► training ──► resting, twice as long as before ──► watching, or collecting again
//!        ▲                    │ a new dictionary is in use
//!        └── values take a quarter more than they should ──◄── watching
//! ```
//!
//! If dictionaries do not help, this costs one addition per value: samples are copied less and less
//! often.

use crate::codecs::{InUse, SHORT_BYTES_MAX, SHORT_BYTES_MIN};
use base::sync::atomic::Ordering;

/// Number of sample bytes that are collected, unless memory is short.
const SAMPLE_BYTES: usize = 10 << 20;

/// Minimum number of bytes that are worth training.
pub(crate) const SAMPLE_BYTES_MIN: usize = 1 << 20;

/// After training without success, this many bytes of short values pass before the next training,
/// and twice as many each time.
const REST_BYTES: u64 = 128 << 20;
const REST_BYTES_MAX: u64 = 64 << 30;

/// The compression by a dictionary is checked whenever this many bytes of values were written.
const WATCHED_BYTES: u64 = 16 << 20;

/// Memory that training takes besides the samples.
pub const TRAINING_BYTES: u64 = 16 << 20;

/// Present phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Collecting,
    Training,
    /// For this many more bytes.
    Resting(u64),
    Watching,
}

/// Collected samples.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// The bodies, concatenated.
    pub(crate) bodies: Vec<u8>,
    pub(crate) lens: Vec<usize>,
}

/// The collector of samples. See the module documentation.
#[derive(Debug)]
pub(crate) struct Samples {
    phase: Phase,
    collected: Collected,
    bytes_max: usize,
    next_rest_bytes: u64,
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            phase: Phase::Collecting,
            collected: Collected::default(),
            bytes_max: SAMPLE_BYTES,
            next_rest_bytes: REST_BYTES,
        }
    }
}

impl Samples {
    /// Limits the bytes that are collected; to zero if so few are not worth it.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = match bytes_max {
            less if less < SAMPLE_BYTES_MIN => 0,
            bytes => bytes.min(SAMPLE_BYTES),
        };
        if self.collected.bodies.len() > self.bytes_max {
            self.give_up();
        }
    }

    /// Drops the collected samples: no dictionaries are wanted.
    pub(crate) fn give_up(&mut self) {
        self.collected = Collected::default();
        if self.phase != Phase::Training {
            self.phase = Phase::Collecting;
        }
    }

    /// Processes bodies that are about to be written.
    pub(crate) fn see<'b>(
        &mut self,
        bodies: impl Iterator<Item = &'b [u8]>,
        in_use: Option<&InUse>,
    ) {
        if self.phase == Phase::Training || self.bytes_max == 0 {
            return;
        }
        let short = bodies.filter(|body| (SHORT_BYTES_MIN..=SHORT_BYTES_MAX).contains(&body.len()));
        match (self.phase, in_use) {
            (Phase::Collecting, _) => short.for_each(|body| self.collect(body)),
            (Phase::Resting(left), _) => {
                let seen: u64 = short.map(|body| body.len() as u64).sum();
                self.phase = match left.checked_sub(seen) {
                    Some(left) if left > 0 => Phase::Resting(left),
                    _ if in_use.is_some() => Phase::Watching,
                    _ => Phase::Collecting,
                };
            }
            (Phase::Watching, Some(in_use)) if is_worse(in_use) => self.phase = Phase::Collecting,
            (Phase::Watching, Some(_)) => {}
            (Phase::Watching, None) => self.phase = Phase::Collecting,
            (Phase::Training, _) => {}
        }
    }

    fn collect(&mut self, body: &[u8]) {
        if self.collected.bodies.len() + body.len() > self.bytes_max {
            return;
        }
        if self.collected.bodies.is_empty() {
            self.collected.bodies.reserve_exact(self.bytes_max);
        }
        self.collected.bodies.extend_from_slice(body);
        self.collected.lens.push(body.len());
    }

    /// Whether there are enough samples.
    pub(crate) fn is_full(&self) -> bool {
        let is_full = self.collected.bodies.len() + SHORT_BYTES_MAX > self.bytes_max;
        self.phase == Phase::Collecting && self.bytes_max > 0 && is_full
    }

    /// Takes the samples for training. The caller calls [`Samples::trained`] when it is done.
    pub(crate) fn take(&mut self) -> Option<Collected> {
        if !self.is_full() {
            return None;
        }
        self.phase = Phase::Training;
        Some(std::mem::take(&mut self.collected))
    }

    /// Ends training, with or without a new dictionary.
    pub(crate) fn trained(&mut self, has_new: bool) {
        if has_new {
            self.phase = Phase::Watching;
            self.next_rest_bytes = REST_BYTES;
        } else {
            self.phase = Phase::Resting(self.next_rest_bytes);
            self.next_rest_bytes = (self.next_rest_bytes * 2).min(REST_BYTES_MAX);
        }
    }

    /// Watches a dictionary of an earlier process that is in use.
    pub(crate) fn watch(&mut self) {
        self.give_up();
        self.phase = Phase::Watching;
    }

    /// Returns the memory that it takes, and that training takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let lens = self.collected.lens.capacity() * size_of::<usize>();
        let own = (self.collected.bodies.capacity() + lens) as u64;
        match self.phase {
            Phase::Training => own + self.bytes_max as u64 + TRAINING_BYTES,
            _ => own,
        }
    }
}

/// Whether recent values took a quarter more than the samples did.
fn is_worse(in_use: &InUse) -> bool {
    let raw = in_use.recent_raw_bytes.load(Ordering::Relaxed);
    if raw < WATCHED_BYTES {
        return false;
    }
    in_use.recent_raw_bytes.store(0, Ordering::Relaxed);
    let bytes = in_use.recent_bytes.swap(0, Ordering::Relaxed);
    let expected = u64::from(in_use.dictionary.expected_per_mille).min(1_000);
    bytes / 5 * 4 > raw / 1_000 * expected
}
