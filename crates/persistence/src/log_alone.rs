//! The mark of a directory that has a log and no data: its log was never applied, and its
//! checkpoint names no part.
//!
//! Nothing else distinguishes it from the directory of a server without keys. Code that confuses
//! the two serves a part of the data, or cuts an empty checkpoint and removes the log.

use std::io;

use durability::whole_file;

use crate::recovery::Place;

/// Name of the file beside the manifest. Its content is for people.
const NAME: &str = "LOG-ALONE";
const TEXT: &str = "iolite-log-alone 1\nThis directory has the log of a shard and none of its data (witness-log).\n";
/// Maximum length of the file.
const BYTES_MAX: u64 = 1 << 10;

/// Whether this place has a log alone.
///
/// # Errors
/// Those of the system.
pub fn is_marked(place: &Place) -> io::Result<bool> {
    let read = whole_file::read(&*place.disk, &place.directory.join(NAME), BYTES_MAX)?;
    Ok(read.is_some())
}

/// Marks the place, for good.
///
/// # Errors
/// Those of the system: then it is uncertain whether the place is marked.
pub fn mark(place: &Place) -> io::Result<()> {
    whole_file::replace(&*place.disk, &place.directory, NAME, TEXT.as_bytes()).map(drop)
}
