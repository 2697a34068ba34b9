//! Loads the primary's snapshot from the link into the store.
//!
//! It is received into a file and checked before the data here is dropped and the file is loaded;
//! or, if an operator wants so, loaded while it is received (`repl-diskless-load`). The data here
//! is dropped only when the snapshot is known to contain data: an empty snapshot has neither a
//! database nor a library, which its first bytes show.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;

use persistence::import::{ImportError, ImportOptions, import_stream, stream_database};
use rdb::file::{Fault, FileReader, Item};
use rdb::{Limits, Malformed};
use replication::redis_follower::{Held, judge_empty_snapshot};
use store::DatabaseId;

use super::applier::Applier;
use super::{Connection, Lost, Step};
use crate::config::{LoadsDirectly, system_reason};
use crate::node::Node;

/// Maximum number of bytes that are examined to see whether there is any data.
const FRONT_BYTES_MAX: usize = 64 << 10;

/// Loads the primary's next snapshot in place of the data here. Returns the database that the
/// stream after it starts in.
pub(super) fn take(
    connection: &mut Connection<'_>,
    held: &Held,
    applier: &mut Applier<'_>,
) -> Result<DatabaseId, Lost> {
    let mut none = Vec::new();
    let Step::SnapshotBegins(total) = connection.next_step(&mut none)? else {
        return Err(Lost::Broken("there is no snapshot".to_owned()));
    };
    let config = connection.node.core.config.current();
    let is_direct = match config.replication.loads_directly {
        LoadsDirectly::No => false,
        LoadsDirectly::OnEmpty => !held.has_data,
        LoadsDirectly::Yes => true,
    };
    let mut source = Source {
        connection,
        total: total.unwrap_or(0),
        front: Vec::new(),
        start: 0,
        read: 0,
        is_over: false,
        lost: None,
    };
    if source.is_empty()? {
        judge_empty_snapshot(held).map_err(Lost::Refused)?;
    }
    if !is_direct {
        let spooled = spool(&mut source, &config.dir)?;
        let node = Arc::clone(&source.connection.node);
        applier.drop_data()?;
        return load(&node, applier, spooled.bytes, &spooled.file).map_err(broken);
    }
    applier.drop_data()?;
    let (node, total) = (Arc::clone(&source.connection.node), source.total);
    match load(&node, applier, total, &mut source) {
        Ok(database) => source.pass_rest().map(|()| database),
        Err(error) => Err(source.lost.take().unwrap_or_else(|| broken(error))),
    }
}

/// Loads a snapshot. If it cannot be loaded, nothing of it is left.
fn load(
    node: &Node,
    applier: &mut Applier<'_>,
    total: u64,
    source: impl Read,
) -> Result<DatabaseId, ImportError> {
    node.core.env.begin_loading(total);
    // The primary removes expired keys.
    let options = ImportOptions {
        keeps_expired: true,
    };
    let loaded = import_stream(&node.core.env, source, options);
    node.core.env.end_loading();
    let loaded = loaded.and_then(|(loaded, _)| {
        // A primary need not name the database: then a SELECT precedes the first command.
        let database = database_of(node, loaded.stream_database.unwrap_or(0))?;
        Ok((loaded, database))
    });
    let (loaded, database) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            applier.drop_part();
            return Err(error);
        }
    };
    if !loaded.functions.is_empty() {
        node.core.log.warning(format_args!(
            "{} libraries of functions of the primary cannot be loaded here",
            loaded.functions.len()
        ));
    }
    node.core.log.notice(format_args!(
        "The primary's data is loaded: {} keys, {} bytes, RDB version {}",
        loaded.keys, loaded.bytes, loaded.version
    ));
    Ok(database)
}

fn database_of(node: &Node, number: u32) -> Result<DatabaseId, ImportError> {
    let count = node.core.store.databases();
    let database = DatabaseId::try_from(number).ok();
    database
        .filter(|number| *number < count)
        .ok_or(ImportError::Database { number, count })
}

fn broken(error: ImportError) -> Lost {
    match error {
        ImportError::Database { .. } => Lost::Unfit(place_of(&error)),
        error => Lost::Broken(place_of(&error)),
    }
}

fn place_of(error: &ImportError) -> String {
    format!("its snapshot: {error}")
}

/// Number of bytes that are read from a file at a time.
const READ_BYTES: usize = 256 << 10;

/// A complete snapshot. Its file has no name any more, and is freed when this is dropped.
struct Spooled {
    file: File,
    bytes: u64,
}

/// Receives a whole snapshot, and checks whether it can be loaded here.
fn spool(source: &mut Source<'_, '_>, dir: &Path) -> Result<Spooled, Lost> {
    let node = Arc::clone(&source.connection.node);
    let full = |error: io::Error| {
        let reason = system_reason(&error);
        node.core.log.warning(format_args!(
            "The snapshot of the primary cannot be kept in a file while it comes: {reason}"
        ));
        Lost::Io(error)
    };
    let mut file = create(dir).map_err(full)?;
    let mut bytes = 0_u64;
    loop {
        let piece = &source.front[source.start..];
        file.write_all(piece).map_err(full)?;
        bytes += piece.len() as u64;
        source.front.clear();
        source.start = 0;
        if source.is_over {
            break;
        }
        source.receive()?;
    }
    file.seek(SeekFrom::Start(0)).map_err(full)?;
    check(&node, &file)?;
    file.seek(SeekFrom::Start(0)).map_err(full)?;
    Ok(Spooled { file, bytes })
}

/// Creates a file without a name, so that nothing is left of a snapshot that ends early.
fn create(dir: &Path) -> io::Result<File> {
    let path = dir.join(format!("temp-sync-{}.rdb", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Reads the whole file without loading it.
fn check(node: &Node, file: &File) -> Result<(), Lost> {
    let limits = node.core.shared.settings.value_limits();
    let unreadable = |error: rdb::file::FileError| Lost::Refused(place_of(&error.into()));
    let source = BufReader::with_capacity(READ_BYTES, file);
    let mut reader = FileReader::open(source, limits).map_err(unreadable)?;
    while let Some(item) = reader.next().map_err(unreadable)? {
        let number = match &item {
            Item::Database(number) => Some(*number),
            Item::Aux { name, value } => stream_database(name.as_bytes(), value.as_bytes()),
            _ => None,
        };
        if let Some(number) = number {
            database_of(node, number).map_err(broken)?;
        }
    }
    Ok(())
}

/// The snapshot as a reader.
struct Source<'c, 'f> {
    connection: &'c mut Connection<'f>,
    total: u64,
    /// Bytes that were received; those from `start` on are not read yet.
    front: Vec<u8>,
    start: usize,
    read: u64,
    is_over: bool,
    /// Why no more bytes come.
    lost: Option<Lost>,
}

impl Source<'_, '_> {
    /// Waits for more bytes.
    fn receive(&mut self) -> Result<(), Lost> {
        if self.is_over {
            return Ok(());
        }
        let before = self.front.len();
        match self.connection.next_step(&mut self.front)? {
            Step::Snapshot => {
                self.read += (self.front.len() - before) as u64;
                self.connection.following.note_sync(self.total, self.read);
                Ok(())
            }
            Step::SnapshotEnds => {
                self.is_over = true;
                Ok(())
            }
            _ => Err(Lost::Broken("the snapshot is none any more".to_owned())),
        }
    }

    /// Whether the snapshot contains no data.
    fn is_empty(&mut self) -> Result<bool, Lost> {
        loop {
            match has_data(&self.front) {
                Front::Data => return Ok(false),
                Front::None => return Ok(true),
                Front::Unknown if self.is_over || self.front.len() >= FRONT_BYTES_MAX => {
                    // The loader finds out what is wrong with it.
                    return Ok(false);
                }
                Front::Refused(reason) => return Err(Lost::Refused(reason)),
                Front::Unknown => self.receive()?,
            }
        }
    }

    /// Skips bytes after the end of the format.
    fn pass_rest(&mut self) -> Result<(), Lost> {
        while !self.is_over {
            self.front.clear();
            self.start = 0;
            self.receive()?;
        }
        Ok(())
    }
}

impl Read for Source<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.start == self.front.len() {
            if self.is_over {
                return Ok(0);
            }
            self.front.clear();
            self.start = 0;
            if let Err(lost) = self.receive() {
                self.lost = Some(lost);
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        let ahead = &self.front[self.start..];
        let len = ahead.len().min(buffer.len());
        buffer[..len].copy_from_slice(&ahead[..len]);
        self.start += len;
        Ok(len)
    }
}

/// What the first bytes of a snapshot show.
#[derive(Debug, PartialEq, Eq)]
enum Front {
    Data,
    None,
    Unknown,
    /// The snapshot cannot be loaded.
    Refused(String),
}

fn has_data(front: &[u8]) -> Front {
    let limits = Limits::narrow(1);
    let refused = |error: rdb::file::FileError| match error.fault {
        Fault::Malformed(Malformed::Ended | Malformed::TooLong) => Front::Unknown,
        Fault::Magic if front.len() < 9 => Front::Unknown,
        fault => Front::Refused(format!("its snapshot: {fault}")),
    };
    let mut reader = match FileReader::open(front, limits) {
        Ok(reader) => reader,
        Err(error) => return refused(error),
    };
    loop {
        match reader.next() {
            Ok(Some(Item::Aux { .. })) => {}
            Ok(Some(_)) => return Front::Data,
            Ok(None) => return Front::None,
            Err(error) => return refused(error),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use rdb::Style;
    use rdb::file::{Content, Entry, FileWriter};

    use super::*;

    #[test]
    fn whether_there_is_data_is_seen_in_the_first_bytes() {
        let style = Style {
            version: 10,
            compresses: false,
        };
        let file = |has_key: bool| {
            let mut writer = FileWriter::new(Vec::new(), style, true);
            writer.aux("redis-ver", b"7.0.15").unwrap();
            if has_key {
                writer.database(0, || None).unwrap();
                let entry = Entry {
                    key: b"k",
                    deadline_unix_ms: None,
                    usage: None,
                    content: Content::Text(b"v"),
                };
                writer.record(&entry).unwrap();
            }
            writer.finish().unwrap();
            writer.into_sink()
        };
        let (with, without) = (file(true), file(false));
        assert_eq!(has_data(&with), Front::Data);
        assert_eq!(has_data(&without), Front::None);
        for len in 0..without.len() {
            assert_eq!(has_data(&without[..len]), Front::Unknown, "{len}");
        }
        assert!(matches!(has_data(b"REDIS9999 and more"), Front::Refused(_)));
        assert!(matches!(has_data(b"no snapshot at all"), Front::Refused(_)));
    }
}
