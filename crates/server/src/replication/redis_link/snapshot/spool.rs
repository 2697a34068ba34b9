//! A snapshot in a file, until it is whole: what is here is served meanwhile, and kept if it is of no use.

use std::fs::{self, File};
use std::io::{BufReader, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;

use persistence::import::ImportError;
use rdb::file::{FileReader, Item};
use store::DatabaseId;

use super::super::Lost;
use super::{Source, place_of};
use crate::config::system_reason;
use crate::node::Node;

/// Read from the file at a time.
const READ_BYTES: usize = 256 << 10;

/// A snapshot that is whole. Its file has no name any more, and goes with this.
pub(super) struct Spooled {
    pub(super) file: File,
    pub(super) bytes: u64,
}

/// Receives all of a snapshot, and looks whether it can be loaded here.
pub(super) fn receive(source: &mut Source<'_, '_>, dir: &Path) -> Result<Spooled, Lost> {
    let node = Arc::clone(&source.connection.node);
    let full = |error: std::io::Error| {
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

/// A file that nobody else sees: what is left of one that ends early is nothing.
fn create(dir: &Path) -> std::io::Result<File> {
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

/// Reads all of it, and loads nothing.
fn check(node: &Node, file: &File) -> Result<(), Lost> {
    let count = node.core.store.databases();
    let limits = node.core.settings.value_limits();
    let unreadable = |error: rdb::file::FileError| Lost::Refused(place_of(&error.into()));
    let source = BufReader::with_capacity(READ_BYTES, file);
    let mut reader = FileReader::open(source, limits).map_err(unreadable)?;
    while let Some(item) = reader.next().map_err(unreadable)? {
        if let Item::Database(number) = item
            && !DatabaseId::try_from(number).is_ok_and(|number| number < count)
        {
            return Err(Lost::Unfit(place_of(&ImportError::Database {
                number,
                count,
            })));
        }
    }
    Ok(())
}
