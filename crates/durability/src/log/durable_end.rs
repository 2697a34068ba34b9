//! Up to where a log is known to be durable, by what its files state. What is above is written again
//! ([`remainder`](super::remainder)).

use std::path::Path;
use std::sync::Arc;

use super::reader::{self, LogError, Reader};
use crate::disk::Disk;

/// Up to where the log is known to be durable that is to go on at `start`. What is between them is in its files.
/// Each file is read once or twice, however many there are.
pub(super) fn durable_end(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    start: u64,
) -> Result<u64, LogError> {
    let segments = reader::in_force(&**disk, directory, u64::MAX)?;
    // What a file states may be about those before it, not about itself: back to one that does.
    let (mut from, mut until, mut stated_behind) = (start, start, 0);
    loop {
        let opened = Reader::among(Arc::clone(disk), segments.clone(), from);
        let (first, stated) = match opened.and_then(|reader| look(reader, from, until, start)) {
            Ok(Some((first, stated))) => (first, stated.max(stated_behind)),
            // A checkpoint holds what is missing.
            Ok(None) => return Ok(start),
            // What was before was cut off, and may have come back in part.
            Err(LogError::Missing { .. }) => return Ok(from.saturating_add(1).min(start)),
            Err(LogError::Damage { .. }) if from < start => return Ok(from + 1),
            // Nothing in the files leads up to `start`: a checkpoint holds what is before it.
            Err(LogError::Damage { .. }) => return Ok(start),
            Err(error) => return Err(error),
        };
        match first.checked_sub(1) {
            Some(before) if stated < first && first <= start => {
                if from < start {
                    // All of it was checked, and leads up to `start`.
                    until = first;
                }
                (from, stated_behind) = (before, stated);
            }
            _ => return Ok(stated.max(first).min(start)),
        }
    }
}

/// Where the file begins that holds `from`, and the highest sequence that it and those after it, up to `until`,
/// state to be durable, or from which on alone they are whole; none when they do not reach up to there.
fn look(
    mut reader: Reader,
    from: u64,
    until: u64,
    start: u64,
) -> Result<Option<(u64, u64)>, LogError> {
    let first = reader.sequence();
    if from < start {
        // No frame need begin there.
        reader.check_whole_file();
    }
    match reader.pass(until) {
        // What comes after is given up, or was looked at.
        Err(LogError::Damage { sequence, .. }) if sequence >= until => {}
        passed => passed?,
    }
    Ok((reader.sequence() >= until).then(|| (first, reader.stated().max(reader.resumed()))))
}
