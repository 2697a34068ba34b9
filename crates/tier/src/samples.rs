//! Samples of short values, for training: what is copied, and when.
//!
//! ```text
//!   collecting ── full ──► training ──► resting, twice as long as before ──► watching, or collecting again
//!        ▲                    │ a new dictionary is in use
//!        └── values take a quarter more than they should ──◄── watching
//! ```
//!
//! Where dictionaries do not help, this comes to an addition for each value: samples are copied ever more seldom.

use crate::codecs::{InUse, SHORT_BYTES_MAX, SHORT_BYTES_MIN};
use base::sync::atomic::Ordering;

/// So much is collected, unless memory is short.
const SAMPLE_BYTES: usize = 10 << 20;

/// Less is not worth training.
pub(crate) const SAMPLE_BYTES_MIN: usize = 1 << 20;

/// After training in vain, so many bytes of short values pass before the next, and twice as many each time.
const REST_BYTES: u64 = 128 << 20;
const REST_BYTES_MAX: u64 = 64 << 30;

/// How a dictionary does is looked at whenever so many bytes of values came by.
const WATCHED_BYTES: u64 = 16 << 20;

/// What training takes besides the samples.
pub const TRAINING_BYTES: u64 = 16 << 20;

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Collecting,
    Training,
    /// For so many bytes more.
    Resting(u64),
    Watching,
}

/// What was collected.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// One after the other.
    pub(crate) bodies: Vec<u8>,
    pub(crate) lens: Vec<usize>,
}

/// See the module.
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
    /// Limits what is collected; to nothing, where that is not worth it.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = match bytes_max {
            less if less < SAMPLE_BYTES_MIN => 0,
            bytes => bytes.min(SAMPLE_BYTES),
        };
        if self.collected.bodies.len() > self.bytes_max {
            self.give_up();
        }
    }

    /// Forgets what was collected: no dictionaries are wanted.
    pub(crate) fn give_up(&mut self) {
        self.collected = Collected::default();
        if self.phase != Phase::Training {
            self.phase = Phase::Collecting;
        }
    }

    /// Sees bodies that are about to be written.
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

    /// Whether there is enough.
    pub(crate) fn is_full(&self) -> bool {
        let is_full = self.collected.bodies.len() + SHORT_BYTES_MAX > self.bytes_max;
        self.phase == Phase::Collecting && self.bytes_max > 0 && is_full
    }

    /// Gives what was collected to who trains now, and says so when it is done.
    pub(crate) fn take(&mut self) -> Option<Collected> {
        if !self.is_full() {
            return None;
        }
        self.phase = Phase::Training;
        Some(std::mem::take(&mut self.collected))
    }

    /// Training is over, in vain or not.
    pub(crate) fn trained(&mut self, has_new: bool) {
        if has_new {
            self.phase = Phase::Watching;
            self.next_rest_bytes = REST_BYTES;
        } else {
            self.phase = Phase::Resting(self.next_rest_bytes);
            self.next_rest_bytes = (self.next_rest_bytes * 2).min(REST_BYTES_MAX);
        }
    }

    /// A dictionary of an earlier process is in use.
    pub(crate) fn watch(&mut self) {
        self.give_up();
        self.phase = Phase::Watching;
    }

    /// Memory that it takes, and what training takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let lens = self.collected.lens.capacity() * size_of::<usize>();
        let own = (self.collected.bodies.capacity() + lens) as u64;
        match self.phase {
            Phase::Training => own + self.bytes_max as u64 + TRAINING_BYTES,
            _ => own,
        }
    }
}

/// Whether values have taken a quarter more lately than samples did.
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
