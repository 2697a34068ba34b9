//! The hash of members and fields, under one secret for the whole process.

use std::sync::LazyLock;

use base::hash::KeyHasher;

static HASHER: LazyLock<KeyHasher> = LazyLock::new(KeyHasher::from_os);

/// Returns the hash of a member or a field. All 64 bits are usable. It differs from run to run.
#[inline]
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    HASHER.hash(bytes)
}
