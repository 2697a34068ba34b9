//! The contents of an item's etag.
//!
//! ```text
//!   etag:   0 | flags, 32 bits | sent | stale | version, 29 bits, never 0
//! ```
//!
//! *Stale*: a client marked the value as out of date, but it is still returned. *Sent*: a client
//! was chosen to fetch the value again, so that no other client is. The number that clients see is
//! the etag without these two bits, which change while the value does not.
//!
//! A change through memcached increments the version. A new item begins at a random version in the
//! lower half: if an item is deleted and created again, its number does not match one that a client
//! remembers. Other commands that change a value in place increment the whole etag, which leaves
//! marks and flags intact for 268 million changes. Commands that store another value remove the
//! etag, and the flags with it.
//!
//! A string without an etag has no number. Clients get a hash of its bytes instead, with the
//! topmost bit set, which no etag has: comparing it compares the value. The hash is keyed with
//! random numbers of the process, so it is valid only as long as the process.

use std::sync::OnceLock;

use base::hash::KeyHasher;
use base::random::Prng;
use store::Record;

const VERSION_BITS: u32 = 29;
const VERSION_MAX: u64 = (1 << VERSION_BITS) - 1;
const FLAGS_AT: u32 = 31;
const STALE: u64 = 1 << VERSION_BITS;
const SENT: u64 = 1 << (VERSION_BITS + 1);
const OF_CONTENT: u64 = 1 << 63;

/// Returns the flags in an etag.
pub(super) fn flags_of(etag: u64) -> u32 {
    u32::try_from((etag & !OF_CONTENT) >> FLAGS_AT).unwrap_or(u32::MAX)
}

/// The marks of an item besides its value and flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// Whether it is out of date.
    pub(super) is_stale: bool,
    /// Whether a client was chosen to fetch it again.
    pub(super) is_sent: bool,
}

impl Marks {
    pub(super) fn of(etag: u64) -> Self {
        Self {
            is_stale: etag & STALE != 0,
            is_sent: etag & SENT != 0,
        }
    }

    /// Returns an etag with these marks.
    pub(super) fn on(self, etag: u64) -> u64 {
        let stale = if self.is_stale { STALE } else { 0 };
        let sent = if self.is_sent { SENT } else { 0 };
        number_of(etag) | stale | sent
    }

    /// Returns the marks as clients see them: 1 for stale, 2 for sent.
    pub(super) fn code(self) -> i64 {
        i64::from(self.is_stale) | i64::from(self.is_sent) << 1
    }
}

/// Returns the number that clients see.
pub(super) fn number_of(etag: u64) -> u64 {
    etag & !(STALE | SENT)
}

/// Returns the etag of an item that is stored as stale: version and marks stay, the flags are new.
pub(super) fn etag_kept(before: u64, flags: u32) -> u64 {
    before & (STALE | SENT | VERSION_MAX) | u64::from(flags) << FLAGS_AT
}

/// Whether a number belongs to an earlier value than this etag. The hash of a content is never
/// earlier.
pub(super) fn is_before(cas: u64, etag: u64) -> bool {
    cas & OF_CONTENT == 0 && cas & VERSION_MAX < etag & VERSION_MAX
}

/// Returns the etag that follows `before` (0 for none), with these flags.
pub(super) fn etag_behind(before: u64, flags: u32, random: &mut Prng) -> u64 {
    let version = match before & VERSION_MAX {
        _ if before == 0 => 1 + (random.next_u64() & (VERSION_MAX >> 1)),
        VERSION_MAX => 1,
        version => version + 1,
    };
    u64::from(flags) << FLAGS_AT | version
}

/// Returns the number that distinguishes the values of an item.
pub(super) fn cas_of(record: &Record<'_>) -> u64 {
    match record.etag() {
        0 if record.is_string() => OF_CONTENT | hash(&record.to_vec()),
        etag => number_of(etag),
    }
}

/// Whether the value has this number.
pub(super) fn has_cas(record: &Record<'_>, cas: u64) -> bool {
    if cas & OF_CONTENT == 0 {
        return number_of(record.etag()) == cas && cas != 0;
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
            assert!(first & VERSION_MAX <= 1 << 28);
            assert_eq!(etag_behind(first, flags, &mut random), first + 1);
            let last = u64::from(flags) << FLAGS_AT | VERSION_MAX;
            let again = etag_behind(last, flags, &mut random);
            assert_eq!((flags_of(again), again & VERSION_MAX), (flags, 1));
            assert!(is_before(first, etag_behind(first, flags, &mut random)));
            assert!(!is_before(OF_CONTENT, first), "of a content");
        }
    }

    #[test]
    fn marks_change_neither_flags_nor_the_number() {
        let mut random = Prng::seeded(1);
        let etag = etag_behind(0, 0xabcd_ef01, &mut random);
        for (is_stale, is_sent, code) in [(false, true, 2), (true, false, 1), (true, true, 3)] {
            let marks = Marks { is_stale, is_sent };
            let marked = marks.on(etag);
            assert_eq!((number_of(marked), flags_of(marked)), (etag, 0xabcd_ef01));
            assert_eq!((Marks::of(marked), marks.code()), (marks, code));
            // The next stored value has no marks.
            assert_eq!(
                Marks::of(etag_behind(marked, 1, &mut random)),
                Marks::default()
            );
            assert_eq!(Marks::of(etag_kept(marked, 7)), marks);
        }
        assert!(is_before(etag - 1, etag) && !is_before(etag, etag));
    }
}
