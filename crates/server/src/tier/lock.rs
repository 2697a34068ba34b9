//! Lock of the segments' directory, for one server at a time.
//!
//! Two servers with the same directory would remove each other's segments. The lock is the
//! system's, and ends with the process.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

const NAME: &str = "LOCK";

/// Exclusive use of the directory while this lives.
#[derive(Debug)]
pub(super) struct TierLock {
    /// Locked until it is closed.
    _file: File,
}

impl TierLock {
    /// Locks the directory, which exists.
    pub(super) fn take(directory: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join(NAME))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => {
                let path = directory.display();
                let what = format!("another server uses the tier in {path}");
                Err(io::Error::other(what))
            }
            Err(TryLockError::Error(cause)) => Err(cause),
        }
    }
}
