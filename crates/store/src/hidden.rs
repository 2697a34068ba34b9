//! Hash slots whose keys are here but belong to another node: incoming ones until this node owns
//! them, and outgoing ones until their keys are removed. Walks of the keyspace for a client skip
//! their keys, and none of them is evicted.
//!
//! This costs one load and a branch while there are none, which is always so outside of a cluster
//! of several nodes.

use base::hash_slot::{self, HASH_SLOTS};
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const WORDS: usize = HASH_SLOTS / 64;

/// The hash slots whose keys are hidden (see the module's comment).
#[derive(Debug)]
pub(crate) struct HiddenSlots {
    is_any: AtomicBool,
    words: Box<[AtomicU64]>,
}

impl Default for HiddenSlots {
    fn default() -> Self {
        Self {
            is_any: AtomicBool::new(false),
            words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl HiddenSlots {
    /// Hides these slots and no others: first and last of each range.
    pub(crate) fn set(&self, ranges: &[(u16, u16)]) {
        let mut words = vec![0_u64; WORDS];
        for slot in ranges.iter().flat_map(|(first, last)| *first..=*last) {
            if let Some(word) = words.get_mut(usize::from(slot / 64)) {
                *word |= 1 << (slot % 64);
            }
        }
        for (own, word) in self.words.iter().zip(words) {
            own.store(word, Ordering::Relaxed);
        }
        self.is_any.store(!ranges.is_empty(), Ordering::Release);
    }

    /// Whether any slot is hidden.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Whether a slot is hidden.
    pub(crate) fn has(&self, slot: u16) -> bool {
        let word = self.words.get(usize::from(slot / 64));
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (slot % 64) & 1 == 1)
    }

    /// Whether a key belongs to a hidden slot.
    #[inline]
    pub(crate) fn hides(&self, key: &[u8]) -> bool {
        self.is_any() && self.has(hash_slot::of(key))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn keys_of_hidden_slots_are_hidden_and_no_others() {
        let hidden = HiddenSlots::default();
        assert!(!hidden.hides(b"foo") && !hidden.is_any());
        hidden.set(&[(0, 0), (12_182, 12_183)]);
        assert!(hidden.hides(b"foo") && hidden.has(0) && hidden.has(12_183));
        assert!(!hidden.hides(b"hello") && !hidden.has(12_184) && !hidden.has(12_181));
        hidden.set(&[]);
        assert!(!hidden.hides(b"foo") && !hidden.is_any());
    }
}
