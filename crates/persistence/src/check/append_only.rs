//! Append-only files: which there are, and the requests in them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use engine::Table;
use store::DatabaseId;

use super::{Damage, Findings, Place};
use crate::aof::course::{self, Taker};
use crate::aof::{AofFault, Flaw, Source};
use crate::replay::ReplayFault;

/// Returns the files that a path stands for, and their kinds.
pub(super) fn expand(path: &Path) -> Vec<(PathBuf, Result<Place, Damage>)> {
    let source = match Source::at(path) {
        Ok(source) => source,
        Err(AofFault { file, flaw }) => return vec![(file, Err(Damage::Log(flaw)))],
    };
    let is_of_log = source.files != [path];
    let last = source.files.len().saturating_sub(1);
    let placed = source.files.into_iter().enumerate().map(|(at, file)| {
        let place = Place {
            is_of_log,
            is_last: at == last,
        };
        (file, Ok(place))
    });
    placed.collect()
}

/// Whether requests, or an annotation of them, begin at an offset; if so, the file is positioned
/// there.
pub(super) fn are_requests_at(file: &mut File, offset: u64) -> io::Result<bool> {
    let before = file.stream_position()?;
    file.seek(SeekFrom::Start(offset))?;
    let mut first = [0];
    match file.read_exact(&mut first) {
        Ok(()) if matches!(first, [b'*' | b'#']) => {
            file.seek(SeekFrom::Start(offset))?;
            return Ok(true);
        }
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
        Err(error) => return Err(error),
    }
    file.seek(SeekFrom::Start(before))?;
    Ok(false)
}

/// Checks the requests of a file from an offset on.
pub(super) fn requests(
    table: &'static Table,
    file: &mut File,
    offset: u64,
    place: Place,
    findings: &mut Findings,
) -> Result<(), Flaw> {
    file.seek(SeekFrom::Start(offset)).map_err(Flaw::Io)?;
    let mut counter = Counter::default();
    let cut = course::read(table, file, offset, DatabaseId::MAX, &mut counter);
    let bytes = counter.bytes;
    // Writing to a string does not fail.
    let _always = writeln!(findings.requests, "  {bytes} bytes of requests");
    for (database, commands) in &counter.commands {
        let _always = writeln!(
            findings.requests,
            "  database {database}: {commands} commands"
        );
    }
    match cut? {
        Some(offset) => Err(Flaw::Short {
            offset,
            is_last: place.is_last,
        }),
        None => Ok(()),
    }
}

/// Counts commands.
#[derive(Default)]
struct Counter {
    bytes: u64,
    commands: BTreeMap<DatabaseId, u64>,
}

impl Taker for Counter {
    fn take(
        &mut self,
        _offset: u64,
        database: DatabaseId,
        _request: &[u8],
    ) -> Result<(), ReplayFault> {
        *self.commands.entry(database).or_default() += 1;
        Ok(())
    }

    fn passed(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}
