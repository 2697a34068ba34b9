//! What a record holds, in terms that do not depend on how it is kept.

use std::fmt;

use structures::{Encoding as ObjectEncoding, Kind as ObjectKind};

/// Kind of value that a key holds (the reply of TYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes or an integer.
    String,
    /// A structure.
    Object(ObjectKind),
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::String,
        Self::Object(ObjectKind::List),
        Self::Object(ObjectKind::Hash),
        Self::Object(ObjectKind::Set),
        Self::Object(ObjectKind::SortedSet),
        Self::Object(ObjectKind::Stream),
    ];

    /// The word that TYPE replies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Object(kind) => kind.name(),
        }
    }
}

/// How a value is kept, in the words of OBJECT ENCODING.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A 64-bit integer (`int`).
    Integer,
    /// A short string that was written whole (`embstr`, at most [`EMBEDDED_BYTES_MAX`]).
    Embedded,
    /// A long string, or one that was changed in place (`raw`).
    Raw,
    /// The encoding of a structure.
    Object(ObjectEncoding),
}

impl Encoding {
    /// The word that OBJECT ENCODING replies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Integer => "int",
            Self::Embedded => "embstr",
            Self::Raw => "raw",
            Self::Object(encoding) => encoding.name(),
        }
    }
}

/// Longest string that OBJECT ENCODING calls `embstr`.
pub const EMBEDDED_BYTES_MAX: usize = 44;

/// The highest etag, because clients read etags as signed numbers.
pub const ETAG_MAX: u64 = i64::MAX.cast_unsigned();

/// Returns the etag after `etag`. The highest etag is followed by itself.
#[must_use]
pub fn next_etag(etag: u64) -> u64 {
    etag.saturating_add(1).min(ETAG_MAX)
}

/// What a write does to the key's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The deadline stays as it is. Such a write changes the existing value: its etag is kept and
    /// raised by one.
    Keep,
    /// The key lives until it is deleted.
    Never,
    /// The key expires at this time, in milliseconds since 1970 UTC.
    At(u64),
}

/// How a record was used before it came here (RESTORE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It was last used this many seconds ago.
    IdleSeconds(u64),
    /// The logarithmic use counter of the LFU policies.
    Frequency(u8),
}

/// Why a record was removed; every deletion names a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its deadline passed.
    Expired,
    /// Memory was needed.
    Evicted,
}

/// Why the store refused an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// `maxmemory` is reached and the policy found nothing to evict, or the reserved range is full.
    OutOfMemory,
    /// A bound of the format (length of key or value) would be exceeded.
    TooLarge,
    /// The key holds another kind of value; the record is unchanged.
    WrongKind,
    /// The value lies on a device and cannot be read; the record is unchanged.
    Unreadable,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfMemory => "out of memory",
            Self::TooLarge => "key or value too large",
            Self::WrongKind => "another kind of value",
            Self::Unreadable => "the value cannot be read",
        })
    }
}

impl std::error::Error for StoreError {}
