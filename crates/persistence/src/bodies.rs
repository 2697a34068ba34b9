//! Bodies of records in a checkpoint: from a snapshot to bytes, and into the store.
//!
//! Strings are kept unchanged, which is how the store saves them, so that neither side copies more
//! than it must. Objects are written as in the dump format, in its newest version and uncompressed,
//! because a checkpoint must be fast.

use std::fmt;
use std::io;

use base::record_head::{NUMBER, RecordHead, TEXT};
use durability::checkpoint::{PartWriter, RUN_BYTES_MAX, Record};
use rdb::{Limits, Malformed, Output, Reader, Style, VERSION_MAX, Value, value};
use store::{Batch, Deadline, Handle, Key, Owned, Saved, SavedCold, SavedValue, StoreError};

/// The encoding of objects.
pub const STYLE: Style = Style {
    version: VERSION_MAX,
    compresses: false,
};

/// Maximum size of the encoding buffer that is kept for the next object.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// A flaw of a record that was read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// Its body does not match its type.
    Malformed(Malformed),
    /// The store refuses it.
    Refused(StoreError),
    /// Its key exists already.
    Twice,
    /// There is no such database.
    Database(u16),
    /// It refers to a place that is in no segment.
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

/// Bytes of an object that are encoded between two pauses, ...
const MADE_BYTES: usize = 1 << 10;
/// ... and bytes that are written: some microseconds each.
const WRITTEN_BYTES: usize = 16 << 10;

/// The encoded bytes of an object, with a callback between pieces of them.
struct InPieces<'o, P> {
    bytes: &'o mut Vec<u8>,
    pause: &'o mut P,
    /// Length at which the callback is called next.
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

/// Handles a record whose value is not in memory.
pub type WriteCold<'c> =
    dyn FnMut((&Saved<'_>, &SavedCold), &mut PartWriter) -> io::Result<()> + 'c;

/// Adds all records of a batch to a part; `scratch` and `pause` as in [`write()`]. Strings are
/// written as the run of bytes in which they were saved. `cold` handles values that are not in
/// memory.
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

/// Adds a record to a part. `scratch` is a reused buffer. Within a long record, `pause` is called
/// between pieces of work of some microseconds.
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

/// What happens to a key that exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It is damage: no key is kept twice.
    #[default]
    Refused,
    /// The loaded value replaces it.
    Replaced,
}

/// Sets `key` to the value of the record. `version` is that of the object encoding.
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

/// The content of a body that is not a raw string.
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
