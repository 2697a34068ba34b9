//! Why a checkpoint cannot be read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::manifest::ManifestFlaw;

/// Why a checkpoint cannot be read, and which file is the cause.
#[derive(Debug)]
pub enum CheckpointFault {
    /// The system reported an error.
    System {
        /// The file.
        path: PathBuf,
        /// The error.
        cause: io::Error,
    },
    /// A part differs from what was written.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset of the flaw in bytes.
        offset: u64,
        /// The flaw.
        flaw: Flaw,
    },
    /// The manifest differs from what was written.
    Manifest {
        /// The file.
        path: PathBuf,
        /// The flaw.
        flaw: ManifestFlaw,
    },
}

/// A flaw of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// It does not begin like a part.
    NoPart,
    /// It was written by a newer server, in this version of the format.
    Version(u16),
    /// The file is too short.
    Short,
    /// There are bytes behind its foot.
    Long,
    /// Neither a block nor the foot is where one of them must be.
    NoBlock,
    /// A checksum is wrong.
    Checksum,
    /// It belongs to another checkpoint, or is another part of it.
    Foreign,
    /// A block is missing or duplicate.
    Order,
    /// The head of a block or record contradicts its content.
    Shape,
    /// The counts in its foot are wrong.
    Counts,
    /// It is whole, but not the file that the manifest names.
    Digest,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPart => "it is no part of a checkpoint",
            Self::Version(version) => {
                return write!(f, "version {version} of the format is not known");
            }
            Self::Short => "it ends too early",
            Self::Long => "there is something behind its end",
            Self::NoBlock => "there is no block",
            Self::Checksum => "a checksum is wrong",
            Self::Foreign => "it belongs elsewhere",
            Self::Order => "a block is out of order",
            Self::Shape => "a block contradicts itself",
            Self::Counts => "its counts are wrong",
            Self::Digest => "it is not the file that the manifest names",
        })
    }
}

impl CheckpointFault {
    /// Returns the file that is the cause.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::System { path, .. }
            | Self::Damaged { path, .. }
            | Self::Manifest { path, .. } => path,
        }
    }

    /// Returns a function that makes a fault of the system's error about `path`.
    pub fn system(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |cause| Self::System { path, cause }
    }
}

impl fmt::Display for CheckpointFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { path, cause } => write!(f, "{}: {cause}", path.display()),
            Self::Damaged { path, offset, flaw } => {
                write!(f, "{}: damaged at offset {offset}: {flaw}", path.display())
            }
            Self::Manifest { path, flaw } => write!(f, "{}: {flaw}", path.display()),
        }
    }
}

impl std::error::Error for CheckpointFault {}
