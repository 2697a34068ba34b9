//! Bodies of records in a checkpoint: from what a snapshot gives to bytes, and into the store.
//!
//! Strings are as they are, which is how the store saves them, so that neither side copies more than it must. Objects
//! are written as in the dump format, in its newest version and not compressed: a checkpoint is about speed.

use std::fmt;
use std::io;

use base::record_head::{NUMBER, RecordHead, TEXT};
use durability::checkpoint::{PartWriter, RUN_BYTES_MAX, Record};
use rdb::{Limits, Malformed, Output, Reader, Style, VERSION_MAX, Value, value};
use store::{Batch, Deadline, Handle, Key, Owned, Saved, SavedCold, SavedValue, StoreError};

/// How objects are written.
pub const STYLE: Style = Style {
    version: VERSION_MAX,
    compresses: false,
};

/// What was written of an object is kept for the next one, unless it had more bytes than this.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// What is wrong with a record that came whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// Its body is not what its type says.
    Malformed(Malformed),
    /// The store does not take it.
    Refused(StoreError),
    /// Its key is there already.
    Twice,
    /// There are not so many databases.
    Database(u16),
    /// It names a place that is in no segment.
    Place,
}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => write!(f, "its value is wrong: {malformed}"),
            Self::Refused(error) => write!(f, "it cannot be kept: {error}"),
            Self::Twice => f.write_str("its key is there twice"),
            Self::Database(number) => {
                write!(f, "it is in database {number}, and there are fewer")
            }
            Self::Place => f.write_str("its value is in no segment of the tier"),
        }
    }
}

impl std::error::Error for BodyFault {}

impl From<Malformed> for BodyFault {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<StoreError> for BodyFault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

/// Of an object that is made into bytes, so many are made until the caller may do something else ...
const MADE_BYTES: usize = 1 << 10;
/// ... and so many are written: some microseconds each.
const WRITTEN_BYTES: usize = 16 << 10;

/// The bytes of an object, and what is called between some of them and the next.
struct InPieces<'o, P> {
    bytes: &'o mut Vec<u8>,
    pause: &'o mut P,
    /// The length at which it is called next.
    next: usize,
}

impl<P: FnMut()> InPieces<'_, P> {
    #[inline]
    fn was_added(&mut self) {
        if self.bytes.len() >= self.next {
            self.next = self.bytes.len() + MADE_BYTES;
            (self.pause)();
        }
    }
}

impl<P: FnMut()> Output for InPieces<'_, P> {
    #[inline]
    fn push(&mut self, byte: u8) {
        self.bytes.push(byte);
        self.was_added();
    }

    #[inline]
    fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.was_added();
    }

    fn step(&mut self) {
        (self.pause)();
    }
}

/// What becomes of a record whose value is not in memory.
pub type WriteCold<'c> =
    dyn FnMut((&Saved<'_>, &SavedCold), &mut PartWriter) -> io::Result<()> + 'c;

/// Adds all records of a batch to a part; `scratch` and `pause` as in [`write`]. Strings are written as the run
/// of bytes that they were saved in. A value that is not in memory is left to `cold`.
///
/// # Errors
/// Those of the system.
pub fn write_batch(
    batch: &Batch,
    writer: &mut PartWriter,
    scratch: &mut Vec<u8>,
    mut pause: impl FnMut(),
    cold: &mut WriteCold<'_>,
) -> io::Result<()> {
    let run = batch.run().filter(|run| run.bytes.len() <= RUN_BYTES_MAX);
    if let Some(run) = run {
        return writer.run(run.database, run.records, run.bytes);
    }
    for (saved, unread) in batch.records_unread() {
        match unread {
            Some(unread) => cold((&saved, unread), writer)?,
            None => write(&saved, writer, scratch, &mut pause)?,
        }
    }
    Ok(())
}

/// Adds a record to a part. `scratch` is room that is used again. Within a long one, `pause` is called between pieces of work
/// of some microseconds.
///
/// # Errors
/// Those of the system.
pub(crate) fn write(
    saved: &Saved<'_>,
    writer: &mut PartWriter,
    scratch: &mut Vec<u8>,
    mut pause: impl FnMut(),
) -> io::Result<()> {
    let head = |type_code| RecordHead {
        database: saved.database,
        type_code,
        deadline_unix_ms: saved.deadline_unix_ms,
        etag: saved.etag,
    };
    let key = saved.key;
    match saved.value {
        SavedValue::Integer(number) => {
            let bytes = number.to_le_bytes();
            writer.record(&head(NUMBER), key, bytes.len() as u64, [&bytes[..]])
        }
        SavedValue::Bytes(bytes) => writer.record(&head(TEXT), key, bytes.len() as u64, [bytes]),
        SavedValue::Blob(blob) => {
            let pieces = blob.chunks().flat_map(|chunk| chunk.chunks(WRITTEN_BYTES));
            let pieces = pieces.inspect(|_| pause());
            writer.record(&head(TEXT), key, blob.len() as u64, pieces)
        }
        SavedValue::Unreadable => Err(io::Error::other(
            "a value that lies out of memory cannot be read",
        )),
        SavedValue::Object(object) => {
            scratch.clear();
            let mut made = InPieces {
                bytes: scratch,
                pause: &mut pause,
                next: MADE_BYTES,
            };
            value::write_object(object, STYLE, &mut made);
            let type_code = value::type_code_of(object, STYLE);
            let bytes = scratch.len() as u64;
            let first = scratch.len().min(WRITTEN_BYTES);
            let (first, more) = scratch.split_at(first);
            let more = more.chunks(WRITTEN_BYTES).inspect(|_| pause());
            let pieces = std::iter::once(first).chain(more);
            let written = writer.record(&head(type_code), key, bytes, pieces);
            scratch.clear();
            scratch.shrink_to(SCRATCH_BYTES_MAX);
            written
        }
    }
}

/// What becomes of a key that is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It is damage: no key is kept twice.
    #[default]
    Refused,
    /// It holds what is loaded.
    Replaced,
}

/// Makes `key` hold what the record says. `version` is that in which objects were written.
///
/// # Errors
/// [`BodyFault`]; the store is unchanged.
pub fn put(
    store: &mut Handle,
    key: &Key<'_>,
    record: &Record<'_>,
    version: u16,
    limits: &Limits,
    existing: Existing,
) -> Result<(), BodyFault> {
    let is_refused = |is_present: bool| is_present && existing == Existing::Refused;
    let head = &record.head;
    let deadline = head.deadline_unix_ms.map_or(Deadline::Never, Deadline::At);
    if head.type_code == TEXT {
        return store.modify(key, |entry| match is_refused(entry.is_present()) {
            true => Err(BodyFault::Twice),
            false => Ok(entry.set_with_etag(record.body, deadline, head.etag)?),
        });
    }
    let content = read(head.type_code, record.body, version, limits)?;
    store.modify(key, |entry| {
        if is_refused(entry.is_present()) {
            return Err(BodyFault::Twice);
        }
        match content {
            Content::Number(number) => entry.set_integer(number, deadline)?,
            Content::Object(object) => entry.put(object.with_deadline(head.deadline_unix_ms))?,
        }
        if head.etag != 0 {
            entry.set_etag(head.etag)?;
        }
        Ok(())
    })
}

/// What is no string as it is.
enum Content {
    Number(i64),
    Object(Owned),
}

fn read(type_code: u8, body: &[u8], version: u16, limits: &Limits) -> Result<Content, Malformed> {
    if type_code == NUMBER {
        let number = body.try_into().map_err(|_| Malformed::Number)?;
        return Ok(Content::Number(i64::from_le_bytes(number)));
    }
    let mut reader = Reader::new(body, version, limits);
    let value = value::read(type_code, &mut reader)?;
    match value {
        Value::Object(_) if !reader.rest().is_empty() => Err(Malformed::Behind),
        Value::Object(object) => Ok(Content::Object(Owned::of_object(object, None))),
        Value::String(_) => Err(Malformed::Type(type_code)),
    }
}
