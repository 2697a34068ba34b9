//! Append-only files of Redis: in directories with a manifest, and single ones of older servers.
//!
//! ```text
//!   source      which files, in which order             manifest ─ appendonly.aof.manifest
//!   reader      a file: requests with their offsets
//!   course      databases, transactions, what may be in such a file
//!   load        into the store: records of a base by the importer, requests by lanes
//! ```
//!
//! A file may begin as an RDB file does; what stands behind that are requests. The last file may end
//! within a request or a transaction, as a server leaves it that was stopped: that much is left out, if
//! `aof-load-truncated` says so. Everything else that is not whole is refused with file and offset, and
//! nothing that was read before counts then.

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
    /// Which file it is about.
    pub file: PathBuf,
    /// What is wrong with it.
    pub flaw: Flaw,
}

/// What is wrong with a file.
#[derive(Debug)]
pub enum Flaw {
    /// It cannot be read.
    Io(io::Error),
    /// It is a manifest that contradicts the format.
    Manifest(ManifestFault),
    /// There is no manifest in the directory, or more than one.
    NoManifest,
    /// It ends within the request or the transaction that begins at an offset.
    Short {
        /// Where that is.
        offset: u64,
        /// Whether it is the last file, of which it may be let pass.
        is_last: bool,
    },
    /// What stands at an offset is no request.
    Damaged(u64),
    /// There is a request at an offset that no such file has, or that this server does not know.
    Request {
        /// Where it begins.
        offset: u64,
        /// The name of the command.
        name: String,
    },
    /// The transaction that begins at an offset takes too many bytes.
    LongTransaction(u64),
    /// What it begins with is refused.
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
