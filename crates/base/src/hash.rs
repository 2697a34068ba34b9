//! Hash of keys with secret parameters of the process.
//!
//! rapidhash v3 with all of its secrets, not just its seed, drawn from the operating system: with
//! the published constants, keys are known that collide under every seed, and a client could put
//! all of them into one bucket. So hashes differ from run to run and must never be written to disk
//! or sent to another server.

use crate::random::{self, Prng};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};

/// Hashes keys with secrets drawn when it is created. Clones hash alike.
#[derive(Clone)]
pub struct KeyHasher {
    secrets: RapidSecrets,
}

impl KeyHasher {
    /// Draws the secrets from the operating system.
    ///
    /// # Panics
    /// If the operating system provides no randomness: no server may start then.
    #[must_use]
    pub fn from_os() -> Self {
        Self::with_words(|| {
            let mut word = [0; 8];
            random::fill_from_os(&mut word);
            u64::from_le_bytes(word)
        })
    }

    /// Derives the secrets from `seed`, for tests and simulations only.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let mut prng = Prng::seeded(seed);
        Self::with_words(|| prng.next_u64())
    }

    /// Returns the hash of `bytes`; all 64 bits are usable.
    #[inline]
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        rapidhash_v3_inline::<true, false, false>(bytes, &self.secrets)
    }

    fn with_words(mut draw: impl FnMut() -> u64) -> Self {
        // A secret is multiplied with key bytes: almost only zeros or ones would mix badly.
        let mut word = || {
            loop {
                let word = draw();
                if (16..=48).contains(&word.count_ones()) {
                    return word;
                }
            }
        };
        Self {
            secrets: RapidSecrets {
                seed: word(),
                secrets: std::array::from_fn(|_| word()),
            },
        }
    }
}

/// Never shows the secrets.
impl std::fmt::Debug for KeyHasher {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("KeyHasher").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn same_secrets_same_hash() {
        let hasher = KeyHasher::from_os();
        let twin = hasher.clone();
        assert_eq!(hasher.hash(b"key"), twin.hash(b"key"));
        assert_eq!(
            KeyHasher::seeded(1).hash(b"key"),
            KeyHasher::seeded(1).hash(b"key")
        );
    }

    #[test]
    fn other_secrets_other_hash() {
        let key = b"a key of more than sixteen bytes";
        assert_ne!(
            KeyHasher::from_os().hash(key),
            KeyHasher::from_os().hash(key)
        );
        assert_ne!(
            KeyHasher::seeded(1).hash(key),
            KeyHasher::seeded(2).hash(key)
        );
    }

    #[test]
    fn every_secret_is_drawn() {
        let (one, two) = (KeyHasher::from_os().secrets, KeyHasher::from_os().secrets);
        assert_ne!(one.seed, two.seed);
        for (one, two) in one.secrets.iter().zip(two.secrets) {
            assert_ne!(*one, two);
        }
    }

    #[test]
    fn lengths_and_single_bits_spread() {
        let hasher = KeyHasher::seeded(9);
        let zeros = [0_u8; 300];
        let mut hashes: HashSet<u64> = (0..=300).map(|n| hasher.hash(&zeros[..n])).collect();
        assert_eq!(hashes.len(), 301);
        for bit in 0..300 * 8 {
            let mut key = zeros;
            key[bit / 8] |= 1 << (bit % 8);
            hashes.insert(hasher.hash(&key));
        }
        assert_eq!(hashes.len(), 301 + 300 * 8);
    }

    #[test]
    fn debug_hides_the_secrets() {
        assert_eq!(format!("{:?}", KeyHasher::seeded(1)), "KeyHasher { .. }");
    }
}
