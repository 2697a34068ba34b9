//! The reads of one worker by its ring. No other thread takes part in them.
//!
//! ```text
//!   requests ── want ──► queue ── turn ──► ring ──► kernel
//!                                           │ completed, which wakes the worker
//!   requests go on ◄── kept as read ◄───────┴─ cannot be read, or is not what was written ──► threads, which try again
//! ```
//!
//! A turn of the worker costs one system call, whatever it starts and whatever has completed; none
//! if there is nothing to do.

use std::sync::Arc;
use std::time::Duration;

use reactor::{ConnectionId, Ring, RingRead};
use store::ColdValue;
use tier::EntryRead;

use super::Wakes;
use super::readers::{Readers, WantedValue};
use super::tuning::Tuning;
use super::values::{Name, Values};

/// Completions that are processed before the limits of a turn are checked.
const REAPED_AT_ONCE: usize = 8;

/// Maximum number of reads and of bytes that are processed in a turn, so that clients with all
/// values in memory do not wait. The requests that continue with these values take as long again.
const REAPED_MAX: usize = 16;
const REAPED_BYTES_MAX: usize = 256 << 10;

/// Maximum number of times in a turn that immediate completions make way for further reads.
const ROUNDS_MAX: usize = 4;

/// Interval between two checks for reads that take too long.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// A read under way.
struct UnderWay {
    wanted: WantedValue,
    entry: EntryRead,
    /// Offset at which the read begins.
    from_bytes: u64,
    since_ns: u64,
}

/// See the module documentation.
pub(crate) struct RingReads {
    worker: usize,
    ring: Ring,
    /// By place in the ring.
    under_way: Vec<Option<UnderWay>>,
    readers: Arc<Readers>,
    values: Arc<Values>,
    tuning: Arc<Tuning>,
    requests: Arc<dyn Wakes>,
    /// Whether the ring has failed: no further read begins.
    is_broken: bool,
    /// Whether completions or reads are left for the next turn.
    has_more: bool,
    looked_ns: u64,
    /// Scratch memory for reads that are about to begin, and for values that were read.
    wanted: Vec<WantedValue>,
    read: Vec<(Name, Arc<ColdValue>)>,
}

impl RingReads {
    /// Makes the reads of a worker. All methods are called on that worker's thread.
    pub(super) fn new(
        (worker, ring): (usize, Ring),
        (readers, values, tuning): (&Arc<Readers>, &Arc<Values>, &Arc<Tuning>),
        requests: Arc<dyn Wakes>,
    ) -> Self {
        readers.use_ring(worker);
        Self {
            worker,
            ring,
            under_way: Vec::new(),
            readers: Arc::clone(readers),
            values: Arc::clone(values),
            tuning: Arc::clone(tuning),
            requests,
            is_broken: false,
            has_more: false,
            looked_ns: 0,
            wanted: Vec::new(),
            read: Vec::new(),
        }
    }

    /// Whether the next turn must not block.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Starts wanted reads and processes completed ones. Appends the connections of this worker
    /// that can continue to `own`.
    pub(crate) fn turn(&mut self, now_ns: u64, own: &mut Vec<ConnectionId>) {
        if self.ring.is_empty() && !self.readers.wants_ring(self.worker) {
            return;
        }
        let (mut count, mut bytes) = (0, 0);
        for _ in 0..ROUNDS_MAX {
            self.begin(now_ns);
            if let Err(error) = self.ring.enter() {
                self.give_way(&error);
            }
            let before = count;
            while count < REAPED_MAX && bytes < REAPED_BYTES_MAX {
                let now = self.reap(&mut bytes);
                count += now;
                if now < REAPED_AT_ONCE {
                    break;
                }
            }
            if count == before || !self.readers.wants_ring(self.worker) {
                break;
            }
        }
        let (worker, requests) = (self.worker, &*self.requests);
        self.readers.done(worker, &mut self.read, requests, own);
        let could_begin = !self.ring.is_full() && self.readers.wants_ring(worker);
        self.has_more = self.ring.arm() || could_begin;
        if u128::from(now_ns.saturating_sub(self.looked_ns)) >= LOOKS_EVERY.as_nanos() {
            self.look(now_ns);
        } else if self.ring.is_empty() {
            self.readers.note_oldest(worker, 0);
        }
    }

    /// Starts as many wanted reads as the ring can take.
    fn begin(&mut self, now_ns: u64) {
        if !self.readers.wants_ring(self.worker) {
            return;
        }
        let mut wanted = std::mem::take(&mut self.wanted);
        let room = self.ring.room();
        self.readers.take_for_ring(self.worker, room, &mut wanted);
        for value in wanted.drain(..) {
            self.begin_one(value, now_ns);
        }
        self.wanted = wanted;
    }

    fn begin_one(&mut self, wanted: WantedValue, now_ns: u64) {
        let entry = self.values.entry_elsewhere(&wanted);
        let begun = entry.and_then(|entry| {
            let extent = entry.extent().filter(|_| !self.is_broken)?;
            let from_bytes = extent.offset_bytes;
            let place = self.ring.push(RingRead {
                file: extent.file,
                offset: extent.offset_bytes,
                bytes: extent.bytes,
            })?;
            Some((place, entry, from_bytes))
        });
        let Some((place, entry, from_bytes)) = begun else {
            return self.readers.leave_to_threads(wanted);
        };
        if self.under_way.len() <= place {
            self.under_way.resize_with(place + 1, || None);
        }
        self.under_way[place] = Some(UnderWay {
            wanted,
            entry,
            from_bytes,
            since_ns: now_ns,
        });
    }

    /// Processes some completions. Returns their number, and adds their length to `bytes`.
    fn reap(&mut self, bytes: &mut usize) -> usize {
        let Self {
            ring,
            under_way,
            values,
            readers,
            read,
            ..
        } = self;
        ring.reap(REAPED_AT_ONCE, |place, came| {
            let Some(one) = under_way.get_mut(place).and_then(Option::take) else {
                return;
            };
            let found = came.ok().and_then(|came| {
                *bytes += came.len();
                values.arrived(&one.entry, (came, one.from_bytes), &one.wanted)
            });
            match found {
                Some(value) => read.push((one.wanted.name, value)),
                None => readers.leave_to_threads(one.wanted),
            }
        })
    }

    /// Checks for reads that take too long.
    fn look(&mut self, now_ns: u64) {
        self.looked_ns = now_ns;
        let since_ns = self.under_way.iter().flatten().map(|one| one.since_ns);
        let oldest_ns = since_ns.map(|since_ns| now_ns.saturating_sub(since_ns));
        self.readers
            .note_oldest(self.worker, oldest_ns.max().unwrap_or(0));
        let time = Duration::from_millis(self.tuning.now().read_timeout_ms);
        self.readers
            .give_up_after(time, Some(self.worker), &self.values, &*self.requests);
    }

    /// Leaves all reads to threads from now on.
    fn give_way(&mut self, error: &std::io::Error) {
        if std::mem::replace(&mut self.is_broken, true) {
            return;
        }
        self.values.tell_broken_ring(self.worker, error);
        self.readers.end_ring(self.worker);
        for one in &mut self.under_way {
            if let Some(one) = one.take() {
                self.readers.leave_to_threads(one.wanted);
            }
        }
    }
}

#[cfg(test)]
mod tests;
