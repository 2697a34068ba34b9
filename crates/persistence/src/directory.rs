//! The directory of the data, used by one server at a time.
//!
//! ```text
//!   <dir>/iolite-data/LOCK        locked as long as the server lives; says which process that is
//!   <dir>/iolite-data/MANIFEST    the checkpoint that counts
//!   <dir>/iolite-data/log/        segments of the operation log
//! ```
//!
//! Two servers that write the same files would each destroy the durable data of the other. The lock
//! is the system's: it ends with the process, however that ends, so there is no stale lock. The
//! file is never removed: otherwise the next server would lock another file.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use base::os_error::system_reason;

/// Directory below the directive `dir`, with everything that only this server understands. Its name
/// differs from the program's, which may be in the same place.
pub(crate) const NAME: &str = "iolite-data";
const LOCK_NAME: &str = "LOCK";
pub(crate) const LOG_NAME: &str = "log";

/// The directory of the data. No other server has it while this lives.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    /// Locked until it is closed.
    _lock: File,
}

impl DataDirectory {
    /// Takes the directory under `dir`; creates it if needed, and makes its name durable. `dir`
    /// itself must exist.
    ///
    /// # Errors
    /// [`DirectoryError::Taken`] if another server has it, and errors of the system.
    pub fn take(dir: &Path) -> Result<Self, DirectoryError> {
        let path = dir.join(NAME);
        let refused = |cause| DirectoryError::Refused {
            path: path.clone(),
            cause,
        };
        make(dir, &path).map_err(refused)?;
        let mut lock = open_lock(&path).map_err(refused)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let process = process_of(&mut lock);
                return Err(DirectoryError::Taken { path, process });
            }
            Err(TryLockError::Error(cause)) => return Err(refused(cause)),
        }
        match write_process(&mut lock) {
            // Then a refused server only does not learn which process has the lock.
            Err(cause) if cause.kind() != io::ErrorKind::StorageFull => return Err(refused(cause)),
            _ => {}
        }
        Ok(Self { path, _lock: lock })
    }

    /// Returns the directory of manifest and checkpoints.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory of the log's segments.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.path.join(LOG_NAME)
    }
}

/// Why a directory could not be taken.
#[derive(Debug)]
pub enum DirectoryError {
    /// Another server has it.
    Taken {
        /// The directory.
        path: PathBuf,
        /// Process id of that server, if known.
        process: Option<u32>,
    },
    /// The system reported an error.
    Refused {
        /// The directory.
        path: PathBuf,
        /// The error.
        cause: io::Error,
    },
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { path, process } => {
                write!(f, "Another server uses the data in {}", path.display())?;
                match process {
                    Some(process) => write!(f, " (process {process})"),
                    None => Ok(()),
                }
            }
            Self::Refused { path, cause } => {
                let reason = system_reason(cause);
                write!(f, "Can't use the data in {}: {reason}", path.display())
            }
        }
    }
}

impl std::error::Error for DirectoryError {}

fn make(dir: &Path, path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Ok(()) => File::open(dir)?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn open_lock(directory: &Path) -> io::Result<File> {
    // The content belongs to the owner until the lock is taken, so it is not truncated.
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(directory.join(LOCK_NAME))
}

/// Writes the process id of the lock's owner, for servers that are refused.
fn write_process(lock: &mut File) -> io::Result<()> {
    let line = format!("{}\n", std::process::id());
    lock.rewind()?;
    // Overwrites the old content, whose space on the device exists.
    lock.write_all(line.as_bytes())?;
    lock.set_len(line.len() as u64)
}

/// Returns the process that has the lock.
fn process_of(lock: &mut File) -> Option<u32> {
    /// A number of 32 bits and a newline.
    const DIGITS_MAX: u64 = 11;
    let mut text = String::new();
    lock.take(DIGITS_MAX).read_to_string(&mut text).ok()?;
    text.trim_end().parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn one_server_has_it_and_the_next_one_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDirectory::take(dir.path()).unwrap();
        assert_eq!(first.path(), dir.path().join("iolite-data"));
        assert_eq!(first.log_path(), dir.path().join("iolite-data/log"));
        let expected = format!(
            "Another server uses the data in {} (process {})",
            dir.path().join("iolite-data").display(),
            std::process::id()
        );
        let refused = DataDirectory::take(dir.path()).unwrap_err();
        assert_eq!(refused.to_string(), expected);
        let again = DataDirectory::take(dir.path()).unwrap_err();
        assert_eq!(
            again.to_string(),
            expected,
            "who is refused changes nothing"
        );
        drop(first);
        DataDirectory::take(dir.path()).unwrap();
    }

    #[test]
    fn a_lock_of_a_process_that_is_gone_is_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("iolite-data")).unwrap();
        fs::write(dir.path().join("iolite-data/LOCK"), "4294967295\nand more").unwrap();
        let _taken = DataDirectory::take(dir.path()).unwrap();
        let text = fs::read_to_string(dir.path().join("iolite-data/LOCK")).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn what_the_system_refuses_is_said_with_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let error = DataDirectory::take(&missing).unwrap_err();
        let expected = format!(
            "Can't use the data in {}: No such file or directory",
            missing.join("iolite-data").display()
        );
        assert_eq!(error.to_string(), expected);
        fs::write(dir.path().join("iolite-data"), "a file").unwrap();
        let error = DataDirectory::take(dir.path()).unwrap_err();
        assert!(error.to_string().ends_with("Not a directory"), "{error}");
    }

    #[test]
    fn an_owner_who_does_not_say_his_name_is_an_owner() {
        let dir = tempfile::tempdir().unwrap();
        let owner = DataDirectory::take(dir.path()).unwrap();
        for text in ["", "seven", "99999999999"] {
            fs::write(owner.path().join(LOCK_NAME), text).unwrap();
            let refused = DataDirectory::take(dir.path()).unwrap_err();
            assert!(matches!(
                refused,
                DirectoryError::Taken { process: None, .. }
            ));
        }
    }
}
