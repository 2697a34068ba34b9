//! The mark of a directory that has a log and no data: its log was never applied, and its checkpoint names no part.
//!
//! Nothing else tells it from that of a server whose data is empty. Who takes the one for the other serves a part of the data, or cuts a
//! checkpoint of nothing and removes the log.

use std::io;

use durability::whole_file;

use crate::recovery::Place;

/// The file beside the manifest. What is in it is for people.
const NAME: &str = "LOG-ALONE";
const TEXT: &str = "iolite-log-alone 1\nThis directory has the log of a shard and none of its data (witness-log).\n";
/// It is not longer than this.
const BYTES_MAX: u64 = 1 << 10;

/// Whether what is kept here is a log alone.
///
/// # Errors
/// Those of the system.
pub fn is_marked(place: &Place) -> io::Result<bool> {
    let read = whole_file::read(&*place.disk, &place.directory.join(NAME), BYTES_MAX)?;
    Ok(read.is_some())
}

/// Says so for good.
///
/// # Errors
/// Those of the system: then it may be so or not.
pub fn mark(place: &Place) -> io::Result<()> {
    whole_file::replace(&*place.disk, &place.directory, NAME, TEXT.as_bytes()).map(drop)
}
