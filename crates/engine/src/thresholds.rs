//! The configured sizes at which a collection changes its encoding (`hash-max-listpack-entries` and
//! similar). All workers share them.
//!
//! CONFIG SET writes them, and any worker reads them when it changes a collection. An existing
//! collection keeps its encoding until then.

use std::sync::atomic::{AtomicI64, Ordering};

use structures::{BlockLimit, HashLimits, SetLimits, SortedSetLimits, StreamLimits};

/// One threshold, by its directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// `list-max-listpack-size`: elements, or -1 to -5 for 4 to 64 KiB.
    ListMaxListpackSize,
    /// `hash-max-listpack-entries`: fields of a packed hash.
    HashMaxListpackEntries,
    /// `hash-max-listpack-value`: bytes of a field or value of a packed hash.
    HashMaxListpackValue,
    /// `set-max-intset-entries`: members of a set of integers.
    SetMaxIntsetEntries,
    /// `set-max-listpack-entries`: members of a packed set.
    SetMaxListpackEntries,
    /// `set-max-listpack-value`: bytes of a member of a packed set.
    SetMaxListpackValue,
    /// `zset-max-listpack-entries`: members of a packed sorted set.
    ZsetMaxListpackEntries,
    /// `zset-max-listpack-value`: bytes of a member of a packed sorted set.
    ZsetMaxListpackValue,
    /// `hll-sparse-max-bytes`: bytes of a sparse HyperLogLog.
    HllSparseMaxBytes,
    /// `stream-node-max-bytes`: bytes of a block of a stream, 0 for no such limit.
    StreamNodeMaxBytes,
    /// `stream-node-max-entries`: entries of a block of a stream, 0 for no such limit.
    StreamNodeMaxEntries,
}

/// Number of thresholds.
const COUNT: usize = 11;

impl Threshold {
    /// Every threshold with its directive and its default, in order.
    pub const ALL: [(Self, &'static str, i64); COUNT] = [
        (Self::ListMaxListpackSize, "list-max-listpack-size", -2),
        (
            Self::HashMaxListpackEntries,
            "hash-max-listpack-entries",
            512,
        ),
        (Self::HashMaxListpackValue, "hash-max-listpack-value", 64),
        (Self::SetMaxIntsetEntries, "set-max-intset-entries", 512),
        (Self::SetMaxListpackEntries, "set-max-listpack-entries", 128),
        (Self::SetMaxListpackValue, "set-max-listpack-value", 64),
        (
            Self::ZsetMaxListpackEntries,
            "zset-max-listpack-entries",
            128,
        ),
        (Self::ZsetMaxListpackValue, "zset-max-listpack-value", 64),
        (Self::HllSparseMaxBytes, "hll-sparse-max-bytes", 3000),
        (Self::StreamNodeMaxBytes, "stream-node-max-bytes", 4096),
        (Self::StreamNodeMaxEntries, "stream-node-max-entries", 100),
    ];
}

/// The thresholds in force.
#[derive(Debug)]
pub struct Thresholds {
    values: [AtomicI64; COUNT],
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            values: Threshold::ALL.map(|(.., default)| AtomicI64::new(default)),
        }
    }
}

impl Thresholds {
    /// Returns the value of a directive.
    #[inline]
    #[must_use]
    pub fn get(&self, threshold: Threshold) -> i64 {
        self.values[threshold as usize].load(Ordering::Relaxed)
    }

    /// Returns the value of a directive that is a count or a length.
    #[inline]
    #[must_use]
    pub fn count(&self, threshold: Threshold) -> usize {
        usize::try_from(self.get(threshold)).unwrap_or(0)
    }

    /// Sets a value.
    pub fn set(&self, threshold: Threshold, value: i64) {
        self.values[threshold as usize].store(value, Ordering::Relaxed);
    }

    /// Returns the limits up to which a hash is one block.
    #[inline]
    #[must_use]
    pub fn hash_limits(&self) -> HashLimits {
        HashLimits {
            listpack_entries: self.count(Threshold::HashMaxListpackEntries),
            listpack_value_bytes: self.count(Threshold::HashMaxListpackValue),
        }
    }

    /// Returns the limits up to which a set has a compact encoding.
    #[inline]
    #[must_use]
    pub fn set_limits(&self) -> SetLimits {
        SetLimits {
            intset_entries: self.count(Threshold::SetMaxIntsetEntries),
            listpack_entries: self.count(Threshold::SetMaxListpackEntries),
            listpack_value_bytes: self.count(Threshold::SetMaxListpackValue),
        }
    }

    /// Returns the limits up to which a sorted set is one block.
    #[inline]
    #[must_use]
    pub fn sorted_set_limits(&self) -> SortedSetLimits {
        SortedSetLimits {
            listpack_entries: self.count(Threshold::ZsetMaxListpackEntries),
            listpack_value_bytes: self.count(Threshold::ZsetMaxListpackValue),
        }
    }

    /// Returns the maximum size of a block of a stream.
    #[must_use]
    pub fn stream_blocks(&self) -> StreamLimits {
        StreamLimits {
            block_bytes: self.count(Threshold::StreamNodeMaxBytes),
            block_entries: self.count(Threshold::StreamNodeMaxEntries),
        }
    }

    /// Returns the maximum size of a block of a list.
    #[inline]
    #[must_use]
    pub fn list_blocks(&self) -> BlockLimit {
        BlockLimit::from_directive(self.get(Threshold::ListMaxListpackSize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_threshold_has_its_own_place_and_default() {
        let thresholds = Thresholds::default();
        for (at, (threshold, directive, default)) in Threshold::ALL.into_iter().enumerate() {
            assert_eq!(threshold as usize, at, "{directive}");
            assert_eq!(thresholds.get(threshold), default, "{directive}");
        }
        thresholds.set(Threshold::SetMaxIntsetEntries, 7);
        assert_eq!(thresholds.count(Threshold::SetMaxIntsetEntries), 7);
        assert_eq!(thresholds.list_blocks(), BlockLimit::default());
    }
}
