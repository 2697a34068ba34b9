//! Whole files as streams: records, and the items between them.
//!
//! ```text
//!   REDIS0011                     magic and version: four digits, or VALKEY and three
//!   250 name value                what the writer tells about itself, any number of times
//!   245 library                   functions
//!   254 database │ 251 keys, keys with a deadline
//!     252 deadline (8) │ 248 idle seconds │ 249 frequency (1)    each of them or not
//!     type │ key │ body                                          a record
//!   255 │ CRC-64 of all before (8), from version 5 on; 0 for none
//! ```
//!
//! | Code | What follows |
//! |---|---|
//! | 255 | the end |
//! | 254 | the number of the database of the records that follow |
//! | 253 | a deadline in seconds (4), up to version 2 |
//! | 252 | a deadline in milliseconds (8) |
//! | 251 | numbers of keys and of keys with a deadline in the database, for who makes tables |
//! | 250 | a name and a text; after a value of KeyDB's, [deadlines of members](crate::member_deadlines) |
//! | 249, 248 | how the next record was used |
//! | 247 | something of a module that belongs to no key |
//! | 246, 245 | a library of functions: of a release candidate, and of a release |
//! | 244 | a slot of a cluster: its number, and how many keys it has |
//! | 243 | of Valkey: slots that were about to move here; of Redis since 8.6: metadata of modules at the next key |
//! | 242 | since Redis 8.10: a template of hashes |
//!
//! Invariants
//!  1. A reader holds one record at a time. Memory grows only as bytes are received, whatever a
//!     stated length claims, so it is a small multiple of the longest record that is really
//!     present.
//!  2. Damage is reported with the offset at which it was detected. Only the end shows whether a
//!     file is complete: if it is not, the caller discards what was read before.
//!  3. A file of one version contains only types of that version.

use std::fmt;
use std::io;

use crate::reader::Malformed;
use crate::{VERSION_READ_MAX, VERSION_VALKEY};

mod extent;
mod input;
mod reader;
mod writer;

pub use reader::{Checksum, FileReader, Item, LeftOut, Record, read_value};
pub use writer::{Content, Entry, FileWriter, Sizes};

/// Codes that may occur in the place of a type.
pub(crate) mod opcode {
    pub(super) const TEMPLATE: u8 = 242;
    pub(super) const SLOT_IMPORT: u8 = 243;
    pub(super) const METADATA: u8 = crate::metadata::CODE;
    pub(super) const SLOT_INFO: u8 = 244;
    pub(super) const FUNCTION: u8 = 245;
    pub(super) const FUNCTION_EARLY: u8 = 246;
    pub(super) const MODULE_AUX: u8 = 247;
    pub(super) const IDLE: u8 = 248;
    pub(super) const FREQUENCY: u8 = 249;
    pub(crate) const AUX: u8 = 250;
    pub(super) const SIZES: u8 = 251;
    pub(super) const DEADLINE_MS: u8 = 252;
    pub(super) const DEADLINE_SECONDS: u8 = 253;
    pub(super) const DATABASE: u8 = 254;
    pub(super) const END: u8 = 255;
}

/// Maximum number of bytes of a key that are shown.
const SHOWN_BYTES_MAX: usize = 128;
/// The first version with templates.
const TEMPLATES_VERSION: u16 = 15;
/// Magic and version.
const HEAD_BYTES: usize = 9;
/// The first version with a checksum.
const CHECKSUM_VERSION: u16 = 5;

/// Use of a record before the file was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Number of seconds since its last use.
    IdleSeconds(u64),
    /// Frequency of its use, as a logarithmic counter.
    Frequency(u8),
}

/// Why a file was refused, and at which offset.
#[derive(Debug)]
pub struct FileError {
    /// Offset in the file at which the fault was detected.
    pub offset: u64,
    /// The fault.
    pub fault: Fault,
}

/// A fault of a file.
#[derive(Debug)]
pub enum Fault {
    /// It cannot be read.
    Read(io::Error),
    /// It is not a file of this format.
    Magic,
    /// Its version is unknown.
    Version(u16),
    /// It contradicts the format.
    Malformed(Malformed),
    /// The value of a key has a type that is unknown or has no counterpart here.
    Type {
        /// The code of the type.
        code: u8,
        /// The version of the file.
        version: u16,
        /// The key, cut off to the shown length.
        key: Vec<u8>,
    },
    /// It has data of the module with this name, which only that module can interpret.
    Module(ModuleName),
    /// Its checksum is wrong.
    Checksum {
        /// The checksum in the file.
        stated: u64,
        /// The computed checksum.
        summed: u64,
    },
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at offset {}: {}", self.offset, self.fault)
    }
}

impl std::error::Error for FileError {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "cannot be read: {error}"),
            Self::Magic => f.write_str("this is no RDB file"),
            Self::Version(version) => write!(
                f,
                "RDB version {version} is not known: 1 to {VERSION_READ_MAX} are, and {VERSION_VALKEY}; keys can be copied \
                 from the server that wrote it (iolite migrate)"
            ),
            Self::Type { code, version, key } => write!(
                f,
                "the key '{}' of this file of RDB version {version} is not loaded: {}; without that key the file can be",
                key.escape_ascii(),
                Malformed::Type(*code)
            ),
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::Module(name) => {
                write!(f, "a value of the module type '{name}', which is unknown")
            }
            Self::Checksum { stated, summed } => write!(
                f,
                "the checksum is {summed:016x}, but should be {stated:016x}: the file is damaged"
            ),
        }
    }
}

/// The name of a module's type: nine characters encoded in one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleName(pub u64);

impl fmt::Display for ModuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CHARACTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        // Six bits each from the top; the lowest ten bits are a version.
        (0..9).try_for_each(|at| {
            let [low, ..] = (self.0 >> (58 - 6 * at)).to_le_bytes();
            let character = CHARACTERS[usize::from(low & 0x3f)];
            write!(f, "{}", char::from(character))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests;
