//! What can be wrong with a tier.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// What came in the way of reading or writing a cold value.
#[derive(Debug)]
pub enum TierFault {
    /// The system said no.
    System {
        /// Of which file.
        path: PathBuf,
        /// What it said.
        cause: io::Error,
    },
    /// The files take as much as they may.
    Full,
    /// The entry is longer than entries can be.
    TooLong,
    /// There is no such segment.
    NoSegment {
        /// Its slot.
        slot: u32,
    },
    /// A dictionary that values need is not what it was, or not there.
    Dictionary {
        /// Its number.
        number: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// What was read is not what was written there.
    Damaged {
        /// Name of the segment.
        ordinal: u64,
        /// Where in it, in bytes.
        offset_bytes: u64,
        /// What is wrong.
        what: &'static str,
    },
}

impl TierFault {
    /// Whether it was found in the bytes, rather than told by the system.
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
