//! The branch of history that a recovery to an earlier point leaves: it is set aside whole, before
//! any of it is removed.
//!
//! ```text
//!   <dir>/iolite-data/before-recovery-1/iolite-data/MANIFEST, checkpoint-…, log/
//! ```
//!
//! The files of the checkpoint are set aside as hard links if the file system supports them: they
//! take no space until the originals are replaced, and the originals are never written again. The
//! files of the log are copied, because the log reuses its files. A server whose `dir` is
//! `before-recovery-1` has all data as it was. Nothing here removes such a directory.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use durability::checkpoint::{MANIFEST_NAME, Manifest};
use tier::{dictionary_name, segment_name};

use super::directory;

const PREFIX: &str = "before-recovery-";
/// Name of a directory that is being made.
const NEW_NAME: &str = "before-recovery.new";

/// Sets aside the content of the data directory, whose checkpoint is `manifest`, and the files of
/// the tier that it names. Returns the new directory, which is durable.
///
/// # Errors
/// Those of the system; then nothing is set aside.
pub fn set_aside(data: &Path, manifest: &Manifest, segments: Option<&Path>) -> io::Result<PathBuf> {
    let new = data.join(NEW_NAME);
    match fs::remove_dir_all(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let copy = new.join(directory::NAME);
    fs::create_dir_all(&copy)?;
    repeat(data, &copy, How::Link, |name| name == MANIFEST_NAME)?;
    for (name, how, extension) in [
        (manifest.directory.as_str(), How::Link, ""),
        (directory::LOG_NAME, How::Copy, ".log"),
    ] {
        let (from, to) = (data.join(name), copy.join(name));
        if !name.is_empty() && from.is_dir() {
            fs::create_dir(&to)?;
            repeat(&from, &to, how, |name| name.ends_with(extension))?;
        }
    }
    if let Some(from) = segments.filter(|_| !manifest.segments.is_empty()) {
        let to = new.join(tier::DIRECTORY_NAME);
        fs::create_dir(&to)?;
        let segments = manifest.segments.iter();
        let segments = segments.map(|named| segment_name(named.ordinal));
        let dictionaries = manifest.dictionaries.iter();
        let dictionaries = dictionaries.map(|named| dictionary_name(named.number));
        let names: BTreeSet<_> = segments.chain(dictionaries).collect();
        repeat(from, &to, How::Link, |name| names.contains(name))?;
    }
    sync(&copy)?;
    sync(&new)?;
    let place = free(data)?;
    fs::rename(&new, &place)?;
    sync(data)?;
    Ok(place)
}

/// Returns the first unused name.
fn free(data: &Path) -> io::Result<PathBuf> {
    let paths = (1_u32..).map(|number| data.join(format!("{PREFIX}{number}")));
    for path in paths {
        if !path.try_exists()? {
            return Ok(path);
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// How a file is set aside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// By a hard link, if that is possible.
    Link,
    Copy,
}

/// Links or copies the wanted files of a directory, chosen by name, into another directory.
fn repeat(from: &Path, to: &Path, how: How, is_wanted: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(&is_wanted) && entry.file_type()?.is_file() {
            let copy = to.join(&name);
            if how == How::Copy || fs::hard_link(entry.path(), &copy).is_err() {
                fs::copy(entry.path(), &copy)?;
            }
            sync(&copy)?;
        }
    }
    sync(to)
}

/// Makes a file durable, or the names in a directory.
fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
