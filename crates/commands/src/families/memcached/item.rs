//! What an etag says of an item.
//!
//! ```text
//!   etag:   0 | flags, 32 bits | version, 31 bits, never 0
//! ```
//!
//! A change through memcached counts the version up, and a new item begins at a random one below half: a client that
//! remembers the number of an item that was deleted and made again does not meet it. Other commands that change a value in
//! place count the whole etag up, which leaves the flags for a thousand million changes; those that put another value in its
//! place take the etag away, and the flags with it.
//!
//! A string without an etag has no number. The one that is told instead is a hash of its bytes with the topmost bit set, which
//! no etag has: comparing it compares the value. The hash has secrets of the process, so such a number is
//! good for as long as the process.

use std::sync::OnceLock;

use base::hash::KeyHasher;
use base::random::Prng;
use store::Record;

const VERSION_BITS: u32 = 31;
const VERSION_MAX: u64 = (1 << VERSION_BITS) - 1;
const OF_CONTENT: u64 = 1 << 63;

/// The flags that an etag holds.
pub(super) fn flags_of(etag: u64) -> u32 {
    u32::try_from((etag & !OF_CONTENT) >> VERSION_BITS).unwrap_or(u32::MAX)
}

/// The etag of an item with these flags behind one with `before`, 0 for none.
pub(super) fn etag_behind(before: u64, flags: u32, random: &mut Prng) -> u64 {
    let version = match before & VERSION_MAX {
        _ if before == 0 => 1 + (random.next_u64() & (VERSION_MAX >> 1)),
        VERSION_MAX => 1,
        version => version + 1,
    };
    u64::from(flags) << VERSION_BITS | version
}

/// The number that tells one value of an item from another.
pub(super) fn cas_of(record: &Record<'_>) -> u64 {
    match record.etag() {
        0 if record.is_string() => OF_CONTENT | hash(&record.to_vec()),
        etag => etag,
    }
}

/// Whether the value is the one with that number.
pub(super) fn has_cas(record: &Record<'_>, cas: u64) -> bool {
    if cas & OF_CONTENT == 0 {
        return record.etag() == cas && cas != 0;
    }
    record.etag() == 0 && cas_of(record) == cas
}

fn hash(bytes: &[u8]) -> u64 {
    static HASHER: OnceLock<KeyHasher> = OnceLock::new();
    HASHER.get_or_init(KeyHasher::from_os).hash(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_versions_do_not_touch() {
        let mut random = Prng::seeded(1);
        for flags in [0, 1, 0xffff, u32::MAX] {
            let first = etag_behind(0, flags, &mut random);
            assert_eq!(flags_of(first), flags);
            assert!(first < OF_CONTENT && first & VERSION_MAX != 0);
            assert!(first & VERSION_MAX <= 1 << 30);
            assert_eq!(etag_behind(first, flags, &mut random), first + 1);
            let last = u64::from(flags) << VERSION_BITS | VERSION_MAX;
            let again = etag_behind(last, flags, &mut random);
            assert_eq!((flags_of(again), again & VERSION_MAX), (flags, 1));
        }
    }
}
