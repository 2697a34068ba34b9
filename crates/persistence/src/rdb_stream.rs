//! Streams a checkpoint as an RDB file, for the full sync of a Redis or Valkey replica.
//!
//! ```text
//!   manifest, parts ──► records ──► this ──► RDB of the peer's version ──► socket, or a file
//! ```
//!
//! The store is not touched, so any number of slow replicas cost it nothing. Objects with the same
//! form in the peer's version are copied as they are kept; others are decoded and encoded anew.
//!
//! Invariants
//!  1. Content that the peer's version cannot hold is an error with the key, or is left out and
//!     counted if loss is allowed.
//!  2. Memory is that of one block of the checkpoint and of its longest record.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use base::number::IntegerText;
use base::record_head::{NUMBER, TEXT};
use durability::checkpoint::{CheckpointFault, Manifest, Record, open_part};
use durability::disk::Disk;
use rdb::file::{Content, Entry, FileWriter, Sizes};
use rdb::{
    Limits, Malformed, Reader, Style, VERSION_MAX, VERSION_MIN, VERSION_VALKEY, Value, value,
};

/// Format and content of the file.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Version of the format: the peer's.
    pub version: u16,
    /// Whether long texts are compressed.
    pub compresses: bool,
    /// Whether the file has a checksum.
    pub sums_up: bool,
    /// What the file states about its writer: names and texts.
    pub origin: Vec<(&'static str, Vec<u8>)>,
    /// Whether it contains keys.
    pub has_data: bool,
    /// Whether it contains libraries of functions. Versions before 10 have none.
    pub has_functions: bool,
    /// Whether deadlines of fields that the version does not know are left out.
    pub allows_loss: bool,
}

/// The result of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streamed {
    /// Number of keys.
    pub keys: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Number of keys and libraries that are incomplete or left out.
    pub lost: u64,
}

/// Why the file was not written. What the sink has of it is unusable.
#[derive(Debug)]
pub enum StreamFault {
    /// The sink reported an error.
    Sink(io::Error),
    /// The checkpoint is damaged or missing.
    Checkpoint(CheckpointFault),
    /// A record of the checkpoint is malformed.
    Record {
        /// Its key.
        key: Vec<u8>,
        /// Its flaw.
        fault: Malformed,
    },
    /// This version cannot be written.
    Unknown(u16),
    /// The version cannot hold this key: its fields have deadlines.
    Version {
        /// The version of the file.
        version: u16,
        /// The key.
        key: Vec<u8>,
    },
    /// The version has no functions, but there are some.
    Functions(u16),
}

impl From<io::Error> for StreamFault {
    fn from(error: io::Error) -> Self {
        Self::Sink(error)
    }
}

impl From<CheckpointFault> for StreamFault {
    fn from(fault: CheckpointFault) -> Self {
        Self::Checkpoint(fault)
    }
}

impl fmt::Display for StreamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sink(error) => write!(f, "{}", base::os_error::system_reason(error)),
            Self::Checkpoint(fault) => fault.fmt(f),
            Self::Record { key, fault } => {
                write!(f, "the key '{}' is damaged: {fault}", key.escape_ascii())
            }
            Self::Unknown(version) => write!(
                f,
                "RDB version {version} is not written: {VERSION_MIN} to {VERSION_MAX} are, and {VERSION_VALKEY}"
            ),
            Self::Version { version, key } => write!(
                f,
                "the key '{}' has fields with deadlines, which RDB version {version} does not know",
                key.escape_ascii()
            ),
            Self::Functions(version) => {
                write!(
                    f,
                    "there are functions, which RDB version {version} does not know"
                )
            }
        }
    }
}

impl std::error::Error for StreamFault {}

/// The first version with functions.
const FUNCTIONS_VERSION: u16 = 10;

/// Writes the checkpoint that `manifest` names, in `directory`, to `sink`. `limits` decide the form
/// of objects that are encoded anew.
///
/// # Errors
/// See [`StreamFault`].
pub fn stream_checkpoint<W: Write>(
    disk: &dyn Disk,
    directory: &Path,
    manifest: &Manifest,
    options: &StreamOptions,
    limits: &Limits,
    sink: W,
) -> Result<Streamed, StreamFault> {
    let version = options.version;
    if !(VERSION_MIN..=VERSION_MAX).contains(&version) && version != VERSION_VALKEY {
        return Err(StreamFault::Unknown(version));
    }
    let style = Style {
        version,
        compresses: options.compresses,
    };
    let mut stream = Stream {
        writer: FileWriter::new(sink, style, options.sums_up),
        options,
        limits,
        done: Streamed::default(),
    };
    for (name, text) in &options.origin {
        stream.writer.aux(name, text)?;
    }
    stream.libraries(manifest)?;
    if options.has_data {
        for number in 0..manifest.parts.len() {
            let mut reader = open_part(disk, directory, manifest, number)?;
            let value_version = reader.head().value_version;
            while let Some(block) = reader.next_block()? {
                for record in block.records() {
                    stream.record(&record, value_version, manifest)?;
                }
            }
        }
    }
    stream.done.bytes = stream.writer.finish()?;
    Ok(stream.done)
}

struct Stream<'o, W> {
    writer: FileWriter<W>,
    options: &'o StreamOptions,
    limits: &'o Limits,
    done: Streamed,
}

impl<W: Write> Stream<'_, W> {
    fn libraries(&mut self, manifest: &Manifest) -> Result<(), StreamFault> {
        if !self.options.has_functions || manifest.libraries.is_empty() {
            return Ok(());
        }
        if self.options.version < FUNCTIONS_VERSION {
            if !self.options.allows_loss {
                return Err(StreamFault::Functions(self.options.version));
            }
            self.done.lost += manifest.libraries.len() as u64;
            return Ok(());
        }
        for library in &manifest.libraries {
            self.writer.function(library)?;
        }
        Ok(())
    }

    fn record(
        &mut self,
        record: &Record<'_>,
        value_version: u16,
        manifest: &Manifest,
    ) -> Result<(), StreamFault> {
        let head = &record.head;
        let keys = manifest.databases.get(&head.database).copied();
        let sizes = keys.map(|keys| Sizes { keys, expiring: 0 });
        self.writer.database(head.database.into(), || sizes)?;
        let damaged = |fault| StreamFault::Record {
            key: record.key.to_vec(),
            fault,
        };
        let (number, object);
        let content = match head.type_code {
            TEXT => Content::Text(record.body),
            NUMBER => {
                let bytes = record.body.try_into();
                let bytes = bytes.map_err(|_| damaged(Malformed::Number))?;
                number = IntegerText::new(i64::from_le_bytes(bytes));
                Content::Text(number.as_bytes())
            }
            type_code if self.is_same(type_code, value_version) => Content::Encoded {
                type_code,
                body: record.body,
            },
            type_code => {
                let mut reader = Reader::new(record.body, value_version, self.limits);
                let value = value::read(type_code, &mut reader).map_err(damaged)?;
                let Value::Object(read) = value else {
                    return Err(damaged(Malformed::Type(type_code)));
                };
                let version = self.options.version;
                if value::version_needed_of(&read) > version {
                    if !self.options.allows_loss {
                        let key = record.key.to_vec();
                        return Err(StreamFault::Version { version, key });
                    }
                    self.done.lost += 1;
                }
                object = read;
                Content::Object(&object)
            }
        };
        self.writer.record(&Entry {
            key: record.key,
            deadline_unix_ms: head.deadline_unix_ms,
            usage: None,
            content,
        })?;
        self.done.keys += 1;
        Ok(())
    }

    /// Whether a body in the file is the same as in the checkpoint.
    fn is_same(&self, type_code: u8, value_version: u16) -> bool {
        !self.options.compresses
            && value::is_type_of(type_code, value_version)
            && value::is_type_of(type_code, self.options.version)
    }
}
