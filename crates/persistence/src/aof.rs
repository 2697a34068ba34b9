//! Append-only files of Redis: in directories with a manifest, and single files of older servers.
//!
//! ```text
//!   source      which files, in which order             manifest ─ appendonly.aof.manifest
//!   reader      a file: requests with their offsets
//!   course      databases, transactions, what may be in such a file
//!   load        into the store: records of a base by the importer, requests by lanes
//! ```
//!
//! A file may begin like an RDB file, with requests behind that. The last file may end within a
//! request or a transaction, as a stopped server leaves it: that part is left out if
//! `aof-load-truncated` allows it. Any other incomplete content is refused with file and offset,
//! and then nothing that was read before counts.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::import::ImportError;
use super::replay::ReplayFault;
use base::os_error::system_reason;

pub mod course;
pub mod export;
pub mod load;
pub mod reader;
pub mod source;

pub use export::export_aof;
pub use load::{Loaded, load};
pub use rdb::aof_manifest::{Manifest, ManifestFault, ManifestFile};
pub use source::Source;

/// Why append-only files are refused.
#[derive(Debug)]
pub struct AofFault {
    /// The file that is the cause.
    pub file: PathBuf,
    /// Its flaw.
    pub flaw: Flaw,
}

/// A flaw of a file.
#[derive(Debug)]
pub enum Flaw {
    /// It cannot be read.
    Io(io::Error),
    /// It is a manifest that contradicts the format.
    Manifest(ManifestFault),
    /// There is no manifest in the directory, or more than one.
    NoManifest,
    /// It ends within the request or the transaction that begins at `offset`.
    Short {
        /// Where that begins.
        offset: u64,
        /// Whether it is the last file, for which this may be accepted.
        is_last: bool,
    },
    /// The bytes at an offset are no request.
    Damaged(u64),
    /// The request at `offset` does not belong in such a file, or this server does not know it.
    Request {
        /// Where the request begins.
        offset: u64,
        /// The name of the command.
        name: String,
    },
    /// The transaction that begins at an offset takes too many bytes.
    LongTransaction(u64),
    /// The records at its beginning are refused.
    Base(ImportError),
    /// Its requests cannot be applied; the position is an offset.
    Replay(ReplayFault),
}

impl From<ReplayFault> for Flaw {
    fn from(fault: ReplayFault) -> Self {
        Self::Replay(fault)
    }
}

impl fmt::Display for AofFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.flaw)
    }
}

impl std::error::Error for AofFault {}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => f.write_str(&system_reason(error)),
            Self::Manifest(fault) => fault.fmt(f),
            Self::NoManifest => f.write_str("there is not one manifest in it"),
            Self::Short { offset, is_last } => {
                let way_out = match is_last {
                    true => "'aof-load-truncated yes' leaves that out",
                    false => "and it is not the last file",
                };
                write!(
                    f,
                    "at offset {offset}: the file ends within a request or transaction; {way_out}"
                )
            }
            Self::Damaged(offset) => write!(f, "at offset {offset}: this is no request"),
            Self::Request { offset, name } => {
                write!(
                    f,
                    "at offset {offset}: '{name}' is no command that can be loaded"
                )
            }
            Self::LongTransaction(offset) => {
                write!(f, "at offset {offset}: the transaction is too long")
            }
            Self::Base(error) => error.fmt(f),
            Self::Replay(fault) => fault.fmt(f),
        }
    }
}
