//! Small files that are written whole: after a power cut at any time, a file has its old content or
//! the new one.
//!
//! ```text
//!   NAME.new: written, synced ─► renamed to NAME ─► the directory synced
//! ```

use std::io;
use std::path::Path;

use crate::disk::{Disk, DiskFile};

/// Replaces the content of a file; the new content is durable on return. Returns the open file.
///
/// # Errors
/// Those of the system: then the file has the old or the new content, and the next start finds out
/// which.
pub fn replace(
    disk: &dyn Disk,
    directory: &Path,
    name: &str,
    bytes: &[u8],
) -> io::Result<Box<dyn DiskFile>> {
    let new = directory.join(format!("{name}.new"));
    remove(disk, &new)?;
    let file = disk.create(&new)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&new, &directory.join(name))?;
    disk.sync_directory(directory)?;
    Ok(file)
}

/// Returns the content of a file, or `None` if there is no such file.
///
/// # Errors
/// Those of the system, and [`io::ErrorKind::InvalidData`] if the file is longer than `bytes_max`.
pub fn read(disk: &dyn Disk, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    match disk.open(path) {
        Ok(file) => read_all(&*file, bytes_max).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the content of an open file.
///
/// # Errors
/// As [`read`].
pub fn read_all(file: &dyn DiskFile, bytes_max: u64) -> io::Result<Vec<u8>> {
    let size = file.size()?;
    if size > bytes_max {
        let what = format!("a file of {size} bytes, where {bytes_max} are the most");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    let count = file.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Removes a file if it exists.
///
/// # Errors
/// Those of the system.
pub fn remove(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Creates a directory if it does not exist, and makes its name durable.
///
/// # Errors
/// Those of the system.
pub fn make_directory(disk: &dyn Disk, directory: &Path) -> io::Result<()> {
    match disk.create_directory(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match directory.parent() {
        None => Ok(()),
        Some(parent) if parent.as_os_str().is_empty() => disk.sync_directory(Path::new(".")),
        Some(parent) => disk.sync_directory(parent),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;
    use crate::simulated::SimulatedDisk;

    #[test]
    fn what_was_put_there_outlives_a_power_cut() {
        let mut disk = SimulatedDisk::new(1);
        let directory = Path::new("/data");
        make_directory(&disk, directory).unwrap();
        let path = directory.join("file");
        assert_eq!(read(&disk, &path, 10).unwrap(), None);
        for (seed, bytes) in [(2, &b"one"[..]), (3, b"another")] {
            replace(&disk, directory, "file", bytes).unwrap();
            disk = disk.crash(seed);
            assert_eq!(read(&disk, &path, 10).unwrap().as_deref(), Some(bytes));
        }
        let long = read(&disk, &path, 6).unwrap_err();
        assert_eq!(long.kind(), io::ErrorKind::InvalidData);
        remove(&disk, &path).unwrap();
        remove(&disk, &path).unwrap();
        assert_eq!(read(&disk, &path, 10).unwrap(), None);
    }
}
