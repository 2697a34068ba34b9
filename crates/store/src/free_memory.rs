//! Whether free memory suffices for all writes of a command; asked before the first of them.
//!
//! A write that finds no slot or no bucket for its link fails and changes nothing. A command of
//! several writes would stop half way, so it asks here first. Usually so much is free that other
//! threads cannot use it up meanwhile. If not, the command asks again while it has the store for
//! itself: then no other thread takes any.

use crate::arena::{CHUNK_BYTES, distance};
use crate::indexed::Indexed;
use crate::key::DatabaseId;
use crate::size_class::CLASS_COUNT;

/// Maximum size of a record without its key and its value, in bytes.
const RECORD_BYTES: usize = 64;

/// A slot is at most this many times as large as its content.
const SLOT_TIMES: usize = 2;

/// If this part (1/16) of the reservation is left, a command need not have the store for itself:
/// other threads would have to use it all up during one command.
const LEFT_PART: usize = 16;

/// Whether free memory suffices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeMemory {
    /// So much that other threads will not use it up during the command.
    Ample,
    /// Enough, if no other thread writes meanwhile.
    Enough,
    /// Maybe not enough.
    Lacking,
}

impl FreeMemory {
    fn of(left: usize, needed: usize, reserved: usize) -> Self {
        if needed > left {
            Self::Lacking
        } else if left - needed < reserved / LEFT_PART {
            Self::Enough
        } else {
            Self::Ample
        }
    }

    fn or_less(self, other: Self) -> Self {
        match (self, other) {
            (Self::Lacking, _) | (_, Self::Lacking) => Self::Lacking,
            (Self::Enough, _) | (_, Self::Enough) => Self::Enough,
            (Self::Ample, Self::Ample) => Self::Ample,
        }
    }
}

impl Indexed {
    /// Whether free memory in a database suffices for `records` records whose keys and values have
    /// `bytes` bytes. Loads two numbers.
    pub(crate) fn free_memory_for(
        &mut self,
        database: DatabaseId,
        records: usize,
        bytes: usize,
    ) -> FreeMemory {
        let reserved = self.shared.arena_ref().bytes() / CHUNK_BYTES;
        let in_use = self.shared.arena_ref().chunks().in_use_bytes() / CHUNK_BYTES as u64;
        // The first chunk is never handed out.
        let left = reserved.saturating_sub(distance(in_use) + 1);
        let slots_bytes = bytes
            .saturating_add(records.saturating_mul(RECORD_BYTES))
            .saturating_mul(SLOT_TIMES);
        let needed = slots_bytes / CHUNK_BYTES + records.min(CLASS_COUNT) + 1;
        let memory = FreeMemory::of(left, needed, reserved);
        let Some(index) = self.find_index(database) else {
            return memory;
        };
        let reserved = index.overflow().reserved();
        let left = reserved.saturating_sub(distance(index.overflow().in_use()));
        match memory.or_less(FreeMemory::of(left, records, reserved)) {
            // A thread that already holds keys cannot have the store for itself.
            FreeMemory::Enough if self.holds_several() => FreeMemory::Ample,
            free => free,
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;
    use crate::hasher::Hasher;
    use crate::index::Shape;
    use crate::store::{Options, Store};
    use crate::value::Deadline;
    use base::hash::KeyHasher;

    #[test]
    fn what_is_promised_fits_until_nothing_is_left() {
        let shape = Shape {
            level: 0,
            buckets_max: 4,
            overflow_max: 40,
        };
        let hasher = Hasher::masked(KeyHasher::seeded(7), u64::MAX);
        let store = Store::with_shape(&Options { databases: 1 }, hasher, shape).unwrap();
        let mut handle = store.handle();
        assert_eq!(handle.free_memory_for(0, 10, 100), FreeMemory::Ample);
        let mut number = 0_u64;
        let mut seen = Vec::new();
        loop {
            let free = handle.free_memory_for(0, 3, 30);
            if seen.last() != Some(&free) {
                seen.push(free);
            }
            if free == FreeMemory::Lacking {
                break;
            }
            for _ in 0..3 {
                number += 1;
                let name = number.to_le_bytes();
                let key = handle.key(0, &name);
                handle.upsert(&key, b"v", Deadline::Never, |_| ()).unwrap();
            }
        }
        assert_eq!(
            seen,
            [FreeMemory::Ample, FreeMemory::Enough, FreeMemory::Lacking]
        );
        assert!(number > 100, "{number}");
        assert_eq!(
            handle.free_memory_for(0, 1, usize::MAX),
            FreeMemory::Lacking
        );
    }
}
