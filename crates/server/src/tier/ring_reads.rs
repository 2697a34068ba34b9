//! The reads of one worker by its ring: no other thread has a part in them.
//!
//! ```text
//!   requests ── want ──► queue ── turn ──► ring ──► kernel
//!                                           │ completed, which wakes the worker
//!   requests go on ◄── kept as read ◄───────┴─ cannot be read, or is not what was written ──► threads, which try again
//! ```
//!
//! A turn of the worker costs one system call, whatever it begins and whatever was completed; none where there is nothing of
//! either.

use std::sync::Arc;
use std::time::Duration;

use reactor::{ConnectionId, Ring, RingRead};
use store::ColdValue;
use tier::EntryRead;

use super::Wakes;
use super::readers::{Readers, WantedValue};
use super::tuning::Tuning;
use super::values::{Name, Values};

/// Of what is completed so much is taken in at once before it is looked how much that was.
const REAPED_AT_ONCE: usize = 8;

/// So much is taken in a turn, so that who has all values in memory does not wait for it: reads, and bytes of values. What
/// goes on for it takes as long again.
const REAPED_MAX: usize = 16;
const REAPED_BYTES_MAX: usize = 256 << 10;

/// What completes at once makes room for more so often in a turn.
const ROUNDS_MAX: usize = 4;

/// How often it looks whether a read takes too long.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// A read that is under way.
struct UnderWay {
    wanted: WantedValue,
    entry: EntryRead,
    /// From where on is read.
    from_bytes: u64,
    since_ns: u64,
}

/// See the module.
pub(crate) struct RingReads {
    worker: usize,
    ring: Ring,
    /// By the ring's places.
    under_way: Vec<Option<UnderWay>>,
    readers: Arc<Readers>,
    values: Arc<Values>,
    tuning: Arc<Tuning>,
    requests: Arc<dyn Wakes>,
    /// It takes in what is under way, and begins nothing.
    is_broken: bool,
    /// What could not be taken in within a turn, or begun.
    has_more: bool,
    looked_ns: u64,
    /// Memory for what is about to begin, and for what was read.
    wanted: Vec<WantedValue>,
    read: Vec<(Name, Arc<ColdValue>)>,
}

impl RingReads {
    /// The reads of a worker, which calls this and everything of it.
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

    /// Whether the next turn is not to wait for anything.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Begins what is wanted, and takes in what was read. Into `own` go connections of this worker whose requests may go on.
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

    /// Begins as much of what is wanted as the ring has room for.
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

    /// Takes in some of what was completed: how many, and how many `bytes` more.
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

    /// Looks whether reads take too long.
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

    /// Leaves everything to threads, from now on.
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
