//! Errors of a tier.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a cold value could not be read or written.
#[derive(Debug)]
pub enum TierFault {
    /// The system returned an error.
    System {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The files take the maximum of bytes.
    Full,
    /// The entry exceeds the maximum length.
    TooLong,
    /// There is no such segment.
    NoSegment {
        /// Its slot.
        slot: u32,
    },
    /// A dictionary that values need is missing or has changed.
    Dictionary {
        /// Its number.
        number: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// The bytes read are not those that were written there.
    Damaged {
        /// Name of the segment.
        ordinal: u64,
        /// Offset in the segment, in bytes.
        offset_bytes: u64,
        /// What is wrong.
        what: &'static str,
    },
}

impl TierFault {
    /// Whether it was detected in the bytes, rather than reported by the system.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }
}

impl fmt::Display for TierFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { path, cause } => write!(f, "{}: {cause}", path.display()),
            Self::Full => f.write_str("the tier is full"),
            Self::TooLong => f.write_str("the value is too long for the tier"),
            Self::NoSegment { slot } => write!(f, "no segment in slot {slot}"),
            Self::Dictionary { number, what } => write!(f, "dictionary {number:08x}: {what}"),
            Self::Damaged {
                ordinal,
                offset_bytes,
                what,
            } => write!(f, "segment {ordinal:016x}, offset {offset_bytes}: {what}"),
        }
    }
}

impl std::error::Error for TierFault {}
