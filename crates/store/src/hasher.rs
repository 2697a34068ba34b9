//! The hash of a key.

use base::hash::KeyHasher;

/// Hashes keys; tests may drop most bits of the hash to force collisions.
#[derive(Clone, Debug)]
pub(crate) struct Hasher {
    hasher: KeyHasher,
    #[cfg(test)]
    mask: u64,
}

impl Hasher {
    /// Creates a hasher with all bits of the hash.
    pub(crate) fn new(hasher: KeyHasher) -> Self {
        Self {
            hasher,
            #[cfg(test)]
            mask: u64::MAX,
        }
    }

    /// Creates a hasher that keeps only the bits of `mask`.
    #[cfg(test)]
    pub(crate) fn masked(hasher: KeyHasher, mask: u64) -> Self {
        Self { hasher, mask }
    }

    /// Returns the hash of a key.
    #[inline]
    pub(crate) fn hash(&self, bytes: &[u8]) -> u64 {
        let hash = self.hasher.hash(bytes);
        #[cfg(test)]
        let hash = hash & self.mask;
        hash
    }
}
