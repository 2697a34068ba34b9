//! Contents of logs: append-only files of Redis, with the records with which such a file may begin,
//! and our own log.

use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use durability::checkpoint::Manifest;
use durability::disk::SystemDisk;
use durability::log::Reader;

use super::append_only::{End, Flaw, read as read_requests};
use super::files::{fault, records};
use super::tally::Tally;
use crate::error::BenchError;

/// Directory of our log, beside a checkpoint.
pub(super) const LOG_NAME: &str = "log";
/// Bytes read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Counts records and requests of Redis files, in order. Returns what they are.
pub(super) fn append_only(
    path: &Path,
    files: &[PathBuf],
    tally: &mut Tally,
) -> Result<String, BenchError> {
    let mut told = path.display().to_string();
    for (number, file) in files.iter().enumerate() {
        let is_last = number + 1 == files.len();
        let kind = one(file, is_last, tally)?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        told.push_str(&match file == path {
            true => format!(", {kind}"),
            false => format!("; {name}, {kind}"),
        });
    }
    Ok(told)
}

/// Counts the contents of a file. Returns what it is.
fn one(path: &Path, is_last: bool, tally: &mut Tally) -> Result<String, BenchError> {
    let mut file = File::open(path).map_err(|error| fault(path, error))?;
    let mut start = Vec::new();
    let read = file.by_ref().take(5).read_to_end(&mut start);
    read.map_err(|error| fault(path, error))?;
    let source = Cursor::new(start.clone()).chain(file);
    let has_records = matches!(start.as_slice(), b"REDIS" | b"VALKE");
    // An empty base is a file of zero bytes.
    if !has_records && !matches!(start.first(), None | Some(b'*' | b'#')) {
        return Err(fault(
            path,
            "this is no RDB file, no append-only file and no directory of such or of ours",
        ));
    }
    if !has_records {
        let source = BufReader::with_capacity(BUFFER_BYTES, source);
        let end = requests(path, source, 0, is_last, tally)?;
        return Ok(format!("an append-only file{end}"));
    }
    let (version, reader) = records(path, source, tally)?;
    let offset = reader.offset();
    let (ahead, source) = reader.into_rest();
    let mut rest = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(ahead).chain(source));
    let has_rest = !std::io::BufRead::fill_buf(&mut rest)
        .map_err(|error| fault(path, error))?
        .is_empty();
    let end = match has_rest {
        true => format!(
            " with a log behind it{}",
            requests(path, rest, offset, is_last, tally)?
        ),
        false => String::new(),
    };
    Ok(format!("RDB version {version}{end}"))
}

/// Counts requests. Returns how the file ends, if it ends within a request.
fn requests(
    path: &Path,
    source: impl std::io::BufRead,
    offset: u64,
    is_last: bool,
    tally: &mut Tally,
) -> Result<String, BenchError> {
    match read_requests(source, offset, tally.writes()) {
        Ok(End::Whole) => Ok(String::new()),
        Ok(End::Short(at)) if is_last => Ok(format!(", which ends within the request at {at}")),
        Ok(End::Short(at)) => Err(fault(
            path,
            format!("at offset {at}: it ends within a request, and another file follows"),
        )),
        Err(Flaw::Damaged(at)) => Err(fault(path, format!("at offset {at}: this is no request"))),
        Err(Flaw::Io(error)) => Err(fault(path, error)),
    }
}

/// Counts what our log has behind a checkpoint, or all of it. Returns what both are. Frames that
/// are only in the log's ring, after a kill, are not counted; a server takes them over at its
/// start.
pub(super) fn own(
    place: &Path,
    manifest: Option<&Manifest>,
    tally: &mut Tally,
) -> Result<String, BenchError> {
    let checkpoint =
        manifest.map(|manifest| format!("checkpoint of generation {}", manifest.generation));
    let told = format!(
        "{}, {}",
        place.display(),
        checkpoint.as_deref().unwrap_or("without a checkpoint")
    );
    let directory = place.join(LOG_NAME);
    let from = match manifest {
        Some(manifest) => manifest.log_sequence,
        None => Some(0),
    };
    let Some(from) = from.filter(|_| directory.is_dir()) else {
        return Ok(told);
    };
    let overlap = manifest.map(Manifest::overlap);
    let writes = tally.writes();
    let reader = Reader::open(Arc::new(SystemDisk), &directory, from);
    let mut reader = reader.map_err(|error| fault(&directory, error))?;
    while let Some(frame) = reader
        .next_frame()
        .map_err(|error| fault(&directory, error))?
    {
        for effect in frame.effects() {
            let is_in_checkpoint =
                overlap.is_some_and(|overlap| overlap.has(frame.sequence, effect.generation));
            if is_in_checkpoint {
                continue;
            }
            writes.select(effect.database.into());
            writes.begin();
            for part in effect.parts {
                writes.part(part, part.len() as u64);
            }
            writes.end();
        }
    }
    Ok(format!("{told}, with the log from {from} on"))
}
