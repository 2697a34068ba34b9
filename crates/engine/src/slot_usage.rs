//! Resource usage of requests by the hash slot of their keys, for CLUSTER SLOT-STATS
//! (`cluster-slot-stats-enabled`).
//!
//! While this is on, every request is handled one by one, timed, and counted here when it ends.
//! While it is off, nothing is counted and there is no table. A request with keys of several slots
//! counts for no slot. A transaction counts as a whole, a script by the keys that it declares.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::hash_slot::HASH_SLOTS;

/// Size of the MULTI that belongs to an EXEC, in bytes.
pub(crate) const MULTI_BYTES: usize = b"*1\r\n$5\r\nmulti\r\n".len();

/// The resource usage of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of the threads that ran them, in nanoseconds.
    pub cpu_ns: u64,
    /// Bytes of requests.
    pub bytes_in: u64,
    /// Bytes of replies, and of messages to subscribers of shard channels.
    pub bytes_out: u64,
}

#[derive(Debug, Default)]
struct Counts {
    cpu_ns: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

impl Counts {
    fn all(&self) -> [&AtomicU64; 3] {
        [&self.cpu_ns, &self.bytes_in, &self.bytes_out]
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct SlotUsage {
    is_on: AtomicBool,
    slots: OnceLock<Box<[Counts]>>,
}

impl SlotUsage {
    /// Whether requests are counted.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Turns counting on or off. Existing counts stay.
    pub fn set_on(&self, on: bool) {
        if on {
            let _table = self.table();
        }
        self.is_on.store(on, Ordering::Relaxed);
    }

    fn table(&self) -> &[Counts] {
        let new = || (0..HASH_SLOTS).map(|_| Counts::default()).collect();
        self.slots.get_or_init(new)
    }

    /// Adds a request's usage, if counting is on.
    pub fn add(&self, slot: u16, usage: Usage) {
        if self.is_on()
            && let Some(counts) = self.table().get(usize::from(slot))
        {
            let added = [usage.cpu_ns, usage.bytes_in, usage.bytes_out];
            for (count, added) in counts.all().into_iter().zip(added) {
                count.fetch_add(added, Ordering::Relaxed);
            }
        }
    }

    /// Returns the usage of a slot.
    #[must_use]
    pub fn of(&self, slot: u16) -> Usage {
        let counts = self.slots.get().and_then(|it| it.get(usize::from(slot)));
        counts.map_or_else(Usage::default, |counts| {
            let [cpu_ns, bytes_in, bytes_out] = counts.all().map(|it| it.load(Ordering::Relaxed));
            Usage {
                cpu_ns,
                bytes_in,
                bytes_out,
            }
        })
    }

    /// Clears the usage of some slots.
    pub fn forget(&self, is_forgotten: impl Fn(u16) -> bool) {
        let slots = self.slots.get().map(|slots| slots.iter());
        for (slot, counts) in (0..).zip(slots.into_iter().flatten()) {
            if is_forgotten(slot) {
                for count in counts.all() {
                    count.store(0, Ordering::Relaxed);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Usage = Usage {
        cpu_ns: 1,
        bytes_in: 2,
        bytes_out: 3,
    };

    #[test]
    fn what_is_added_is_told_until_it_is_forgotten() {
        let usage = SlotUsage::default();
        usage.add(7, SOME);
        assert_eq!(usage.of(7), Usage::default(), "it is off");
        usage.set_on(true);
        for slot in [7, 7, 16_383] {
            usage.add(slot, SOME);
        }
        usage.forget(|slot| slot == 16_383);
        usage.set_on(false);
        usage.add(7, SOME);
        let twice = Usage {
            cpu_ns: 2,
            bytes_in: 4,
            bytes_out: 6,
        };
        assert_eq!((usage.of(7), usage.of(16_383)), (twice, Usage::default()));
    }
}
