//! The sequence up to which a log is known to be durable, by what its files state. Frames above it
//! are written again ([`remainder`](super::remainder)).

use std::path::Path;
use std::sync::Arc;

use super::reader::{self, LogError, Reader};
use crate::disk::Disk;

/// Returns the sequence up to which the log that continues at `start` is known to be durable.
/// Frames from there to `start` are in its files. Each file is read once or twice, however many
/// there are.
pub(super) fn durable_end(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    start: u64,
) -> Result<u64, LogError> {
    let segments = reader::in_force(&**disk, directory, u64::MAX)?;
    // A file may state what is durable of earlier files, but not of itself. So go back to one that
    // does.
    let (mut from, mut until, mut stated_behind) = (start, start, 0);
    loop {
        let opened = Reader::among(Arc::clone(disk), segments.clone(), from);
        let (first, stated) = match opened.and_then(|reader| look(reader, from, until, start)) {
            Ok(Some((first, stated))) => (first, stated.max(stated_behind)),
            // A checkpoint holds the missing frames.
            Ok(None) => return Ok(start),
            // Earlier files were cut off, and may have come back in part.
            Err(LogError::Missing { .. }) => return Ok(from.saturating_add(1).min(start)),
            Err(LogError::Damage { .. }) if from < start => return Ok(from + 1),
            // Nothing in the files leads up to `start`: a checkpoint holds everything before it.
            Err(LogError::Damage { .. }) => return Ok(start),
            Err(error) => return Err(error),
        };
        match first.checked_sub(1) {
            Some(before) if stated < first && first <= start => {
                if from < start {
                    // The whole file was checked, and leads up to `start`.
                    until = first;
                }
                (from, stated_behind) = (before, stated);
            }
            _ => return Ok(stated.max(first).min(start)),
        }
    }
}

/// Returns the start of the file that holds `from`. Also returns the highest sequence that this
/// file and those after it, up to `until`, state to be durable, or from which on alone they are
/// whole. Returns `None` if they do not reach `until`.
fn look(
    mut reader: Reader,
    from: u64,
    until: u64,
    start: u64,
) -> Result<Option<(u64, u64)>, LogError> {
    let first = reader.sequence();
    if from < start {
        // No frame need begin at `from`.
        reader.check_whole_file();
    }
    match reader.pass(until) {
        // Frames behind `until` are discarded, or were checked before.
        Err(LogError::Damage { sequence, .. }) if sequence >= until => {}
        passed => passed?,
    }
    Ok((reader.sequence() >= until).then(|| (first, reader.stated().max(reader.resumed()))))
}
