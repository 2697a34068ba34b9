//! Hash of keys under a secret of the process.

use std::hash::{BuildHasher, Hasher};

/// Hashes keys with secrets drawn when it is made.
#[derive(Clone, Debug)]
pub struct KeyHasher {
    state: std::hash::RandomState,
}

impl KeyHasher {
    /// Secrets from the operating system.
    #[must_use]
    pub fn from_os() -> Self {
        Self {
            state: std::hash::RandomState::new(),
        }
    }

    /// Hash of `bytes`.
    #[inline]
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write(bytes);
        hasher.finish()
    }
}
