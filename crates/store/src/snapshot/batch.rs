//! Saved records: copies of short values and of objects, references to long values.
//!
//! ```text
//!   bytes   │ head │ key │ value │ head │ key │ head │ key │ value │ …
//!   beside                                └ a long value or an object, in the same order
//! ```
//!
//! A record is one run of bytes, because a writer saves it between two requests that it would
//! rather serve. The lines of memory that it writes to, and that are read later, then displace
//! others from its cache. Heads are those of [`base::record_head`], so that a run without values
//! beside it can be written to a file as it is.

use std::mem::take;
use std::sync::Arc;

use base::cache::prefetch_room;
use base::record_head::{BESIDE, Lengths, NUMBER, RECORD_HEAD_BYTES_MAX, RecordHead, TEXT};
use base::sync::Mutex;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use structures::Object;

use crate::blob::BlobRef;
use crate::cold::ColdValue;
use crate::key::DatabaseId;

use super::lock;
use super::saved_cold::SavedCold;

/// A batch is handed over with this many copied bytes …
const FULL_BYTES: usize = if cfg!(any(loom, shuttle)) {
    64
} else {
    64 << 10
};
/// … or with this many records …
const FULL_RECORDS: usize = if cfg!(any(loom, shuttle)) { 4 } else { 1_024 };
/// … or with long values of this many bytes.
const FULL_LONG_BYTES: u64 = 1 << 20;

/// Initial capacity of a batch. It includes the bucket that makes the batch full, because growing
/// would copy it.
const ROOM_BYTES: usize = FULL_BYTES + FULL_BYTES / 8;

/// Bytes prefetched for the next record. Most records are shorter.
const AHEAD_BYTES: usize = 256;

/// Maximum number of batches whose buffers are kept for reuse while a snapshot is in progress: some
/// megabytes.
const SPARES_MAX: usize = 32;

/// The kind of thread that filled a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Writer,
    Scanner,
}

/// Memory held by the batches that are alive, in bytes.
#[derive(Debug, Default)]
pub(super) struct Held {
    by_writers: AtomicU64,
    by_scanner: AtomicU64,
    sum_max: AtomicU64,
    /// Whether cold values are loaded into memory when the sink looks at them.
    reads_cold: AtomicBool,
    spares: Spares,
}

/// Buffers of dropped batches, for new ones: a fresh page costs the thread that fills it more than
/// the copying does. None is kept while no snapshot is in progress.
#[derive(Debug, Default)]
struct Spares(Mutex<Option<Vec<BatchBuffers>>>);

type BatchBuffers = (Vec<u8>, Vec<Beside>);

impl Spares {
    fn take(&self) -> Option<BatchBuffers> {
        lock(&self.0).as_mut()?.pop()
    }

    fn keep(&self, (mut bytes, mut beside): BatchBuffers) {
        bytes.clear();
        beside.clear();
        if let Some(spares) = lock(&self.0).as_mut()
            && spares.len() < SPARES_MAX
        {
            spares.push((bytes, beside));
        }
    }
}

impl Held {
    /// Bytes held by batches that writers filled.
    pub(super) fn by_writers(&self) -> u64 {
        self.by_writers.load(Ordering::Relaxed)
    }

    /// Bytes held by all batches.
    pub(super) fn sum(&self) -> u64 {
        let by_scanner = self.by_scanner.load(Ordering::Relaxed);
        self.by_writers().saturating_add(by_scanner)
    }

    /// Maximum of the sum so far.
    pub(super) fn sum_max(&self) -> u64 {
        self.sum_max.load(Ordering::Relaxed)
    }

    /// Begins a snapshot: resets the maximum of the sum, and keeps buffers from here on.
    pub(super) fn begin(&self, reads_cold: bool) {
        self.reads_cold.store(reads_cold, Ordering::Relaxed);
        self.sum_max.store(self.sum(), Ordering::Relaxed);
        *lock(&self.spares.0) = Some(Vec::new());
    }

    /// Ends the snapshot: frees the buffers that are kept.
    pub(super) fn end(&self) {
        let spares = lock(&self.spares.0).take();
        drop(spares);
    }

    fn add(&self, origin: Origin, bytes: u64) {
        self.of(origin).fetch_add(bytes, Ordering::Relaxed);
        self.sum_max.fetch_max(self.sum(), Ordering::Relaxed);
    }

    fn of(&self, origin: Origin) -> &AtomicU64 {
        match origin {
            Origin::Writer => &self.by_writers,
            Origin::Scanner => &self.by_scanner,
        }
    }
}

/// Some records of a cut. Its memory counts as held by the snapshot until it is dropped.
#[derive(Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    beside: Vec<Beside>,
    records: usize,
    /// The database of the first record.
    database: DatabaseId,
    /// Whether all records are of that database, and none has a value beside the bytes.
    is_run: bool,
    /// Bytes of keys and values; for objects the memory that they take.
    content_bytes: u64,
    long_bytes: u64,
    has_large_object: bool,
    counted_bytes: u64,
    held: Arc<Held>,
    origin: Origin,
}

/// Records of one database as consecutive bytes: for each a head ([`base::record_head`]), its key
/// and its value, which is a text or an integer.
#[derive(Clone, Copy, Debug)]
pub struct Run<'b> {
    /// The database of the records.
    pub database: DatabaseId,
    /// Number of records: at least one.
    pub records: usize,
    /// The bytes.
    pub bytes: &'b [u8],
}

/// One record of a cut.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'b> {
    /// The database of the record.
    pub database: DatabaseId,
    /// Its key.
    pub key: &'b [u8],
    /// Its deadline, in milliseconds since 1970 UTC. It may have passed.
    pub deadline_unix_ms: Option<u64>,
    /// Its etag; 0 for none.
    pub etag: u64,
    /// Its value.
    pub value: SavedValue<'b>,
}

/// The value of a record.
#[derive(Clone, Copy, Debug)]
pub enum SavedValue<'b> {
    /// A string that is kept as an integer.
    Integer(i64),
    /// A string.
    Bytes(&'b [u8]),
    /// A long string.
    Blob(&'b BlobRef),
    /// A value that is not a string.
    Object(&'b Object),
    /// A value on a device that cannot be read: a sink that stores the records fails with that.
    Unreadable,
}

impl<'b> SavedValue<'b> {
    /// Returns the value that was read.
    #[must_use]
    pub fn of_cold(value: &'b ColdValue) -> Self {
        match value {
            ColdValue::Text(text) => Self::Bytes(text),
            ColdValue::Object(object) => Self::Object(object),
        }
    }
}

impl SavedValue<'_> {
    /// Returns the string in a new buffer; empty for an object.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Integer(number) => number.to_string().into_bytes(),
            Self::Bytes(bytes) => bytes.to_vec(),
            Self::Blob(blob) => blob.to_vec(),
            Self::Object(_) | Self::Unreadable => Vec::new(),
        }
    }
}

/// A value that is not among the bytes.
#[derive(Debug)]
enum Beside {
    Blob(BlobRef),
    Object(Box<Object>),
    Cold(SavedCold),
}

/// Data saved of a record besides its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'k> {
    pub(super) database: DatabaseId,
    pub(super) key: &'k [u8],
    pub(super) deadline_unix_ms: Option<u64>,
    pub(super) etag: u64,
}

impl Batch {
    pub(super) fn new(held: &Arc<Held>, origin: Origin) -> Self {
        let room = held.spares.take();
        let (bytes, beside) = room.unwrap_or_else(|| (Vec::with_capacity(ROOM_BYTES), Vec::new()));
        let mut batch = Self {
            bytes,
            beside,
            records: 0,
            database: 0,
            is_run: false,
            content_bytes: 0,
            long_bytes: 0,
            has_large_object: false,
            counted_bytes: 0,
            held: Arc::clone(held),
            origin,
        };
        batch.count();
        batch
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records
    }

    /// Whether the batch has no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Returns the [`len`](Self::len) records; cold values are read.
    pub fn records(&self) -> impl Iterator<Item = Saved<'_>> {
        self.records_unread().map(|(saved, cold)| match cold {
            Some(cold) => Saved {
                value: cold.value(saved.key),
                ..saved
            },
            None => saved,
        })
    }

    /// Returns the [`len`](Self::len) records; a cold value is replaced by its locator.
    pub fn records_unread(&self) -> impl Iterator<Item = (Saved<'_>, Option<&SavedCold>)> {
        let mut rest = self.bytes.as_slice();
        let mut beside = self.beside.iter();
        std::iter::from_fn(move || {
            let Some((head, lengths)) = RecordHead::take_from(&mut rest) else {
                debug_assert!(rest.is_empty(), "ends with half a record");
                return None;
            };
            let mut take = |bytes: u64| {
                let (taken, behind) = rest.split_at_checked(usize::try_from(bytes).ok()?)?;
                rest = behind;
                Some(taken)
            };
            let (key, value) = (take(lengths.key_bytes.into())?, take(lengths.body_bytes)?);
            let mut cold = None;
            let value = match head.type_code {
                TEXT => SavedValue::Bytes(value),
                NUMBER => SavedValue::Integer(i64::from_le_bytes(value.try_into().ok()?)),
                _ => match beside.next()? {
                    Beside::Blob(blob) => SavedValue::Blob(blob),
                    Beside::Object(object) => SavedValue::Object(object),
                    Beside::Cold(saved) => {
                        cold = Some(saved);
                        SavedValue::Unreadable
                    }
                },
            };
            let saved = Saved {
                database: head.database,
                key,
                deadline_unix_ms: head.deadline_unix_ms,
                etag: head.etag,
                value,
            };
            Some((saved, cold))
        })
    }

    /// Returns all records as one run of bytes, if they are one.
    #[must_use]
    pub fn run(&self) -> Option<Run<'_>> {
        self.is_run.then_some(Run {
            database: self.database,
            records: self.records,
            bytes: &self.bytes,
        })
    }

    /// Bytes of keys and values; for objects the memory that they take.
    pub(super) fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Whether the batch is large enough to be handed over.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= FULL_BYTES
            || self.records >= FULL_RECORDS
            || self.long_bytes >= FULL_LONG_BYTES
            || self.has_large_object
    }

    pub(super) fn push_integer(&mut self, named: Named<'_>, number: i64) {
        self.content_bytes += base::number::decimal_len(number) as u64;
        self.push(named, NUMBER, &number.to_le_bytes());
    }

    pub(super) fn push_bytes(&mut self, named: Named<'_>, bytes: &[u8]) {
        self.content_bytes += bytes.len() as u64;
        self.push(named, TEXT, bytes);
    }

    pub(super) fn push_blob(&mut self, named: Named<'_>, blob: BlobRef) {
        self.content_bytes += blob.len() as u64;
        self.long_bytes += blob.len() as u64;
        self.push(named, BESIDE, &[]);
        self.beside.push(Beside::Blob(blob));
    }

    /// Adds a copy of an object. The parts that a large object shares with its copy are not
    /// counted: only what is changed until the batch is dropped takes more memory, and a large
    /// object is handed over at once.
    pub(super) fn push_object(&mut self, named: Named<'_>, object: &Object) {
        self.content_bytes += object.memory_bytes() as u64;
        self.long_bytes += object.copy_bytes() as u64;
        self.has_large_object |= object.copy_bytes() < object.memory_bytes();
        self.push(named, BESIDE, &[]);
        self.beside.push(Beside::Object(Box::new(object.clone())));
    }

    /// Adds a cold value. If the sink reads cold values, it is counted as if it were in memory,
    /// because it will be then.
    pub(super) fn push_cold(&mut self, named: Named<'_>, cold: SavedCold) {
        self.content_bytes += cold.bytes();
        if self.held.reads_cold.load(Ordering::Relaxed) {
            self.long_bytes += cold.bytes();
        }
        self.push(named, BESIDE, &[]);
        self.beside.push(Beside::Cold(cold));
    }

    fn push(&mut self, named: Named<'_>, type_code: u8, value: &[u8]) {
        let head = RecordHead {
            database: named.database,
            type_code,
            deadline_unix_ms: named.deadline_unix_ms,
            etag: named.etag,
        };
        let lengths = Lengths {
            key_bytes: u32::try_from(named.key.len()).expect("a key is below 4 GiB"),
            body_bytes: value.len() as u64,
        };
        if self.records == 0 {
            (self.database, self.is_run) = (named.database, true);
        }
        self.is_run &= type_code != BESIDE && named.database == self.database;
        let room = RECORD_HEAD_BYTES_MAX + named.key.len() + value.len();
        self.bytes.reserve(room);
        head.append_to(lengths, &mut self.bytes);
        self.bytes.extend_from_slice(named.key);
        self.bytes.extend_from_slice(value);
        self.content_bytes += named.key.len() as u64;
        self.records += 1;
    }

    /// Prefetches the place of the next record.
    #[inline]
    pub(super) fn look_ahead(&mut self) {
        let room = self.bytes.spare_capacity_mut();
        let ahead = room.len().min(AHEAD_BYTES);
        prefetch_room(&room[..ahead]);
    }

    /// Counts what was added since the last count as held. A long value counts in full: its pages
    /// are shared with its record, but only until that is changed.
    pub(super) fn count(&mut self) {
        let own = self.bytes.capacity() + self.beside.capacity() * size_of::<Beside>();
        let bytes = own as u64 + self.long_bytes;
        // Most buckets fit into what was counted already.
        if bytes != self.counted_bytes {
            self.held.add(self.origin, bytes - self.counted_bytes);
            self.counted_bytes = bytes;
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let held = self.held.of(self.origin);
        held.fetch_sub(self.counted_bytes, Ordering::Relaxed);
        let (bytes, beside) = (take(&mut self.bytes), take(&mut self.beside));
        // A buffer that an extraordinary bucket made longer is not kept.
        if bytes.capacity() == ROOM_BYTES {
            self.held.spares.keep((bytes, beside));
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn filled(held: &Arc<Held>) -> Batch {
        let mut batch = Batch::new(held, Origin::Writer);
        let named = Named {
            database: 3,
            key: b"key",
            deadline_unix_ms: None,
            etag: 0,
        };
        batch.push_bytes(named, b"value");
        batch
    }

    #[test]
    fn records_come_back_as_they_went_in() {
        let mut batch = Batch::new(&Arc::new(Held::default()), Origin::Scanner);
        let object = Object::Set(structures::Set::default());
        let named = |key, deadline_unix_ms, etag| Named {
            database: 0x1ff,
            key,
            deadline_unix_ms,
            etag,
        };
        batch.push_bytes(named(b"", None, 0), b"");
        batch.push_object(named(b"object", Some(u64::MAX), 0), &object);
        batch.push_integer(named(b"number", None, u64::MAX), i64::MIN);
        batch.push_bytes(named(b"text", Some(0), 1), &[7; 300]);
        assert!(batch.run().is_none(), "an object is no bytes");
        let told: Vec<_> = batch
            .records()
            .map(|saved| {
                assert_eq!(saved.database, 0x1ff);
                let value = match saved.value {
                    SavedValue::Integer(number) => number.to_string(),
                    SavedValue::Bytes(bytes) => format!("{} bytes", bytes.len()),
                    SavedValue::Blob(_) => "a long value".to_owned(),
                    SavedValue::Object(_) => "an object".to_owned(),
                    SavedValue::Unreadable => "unreadable".to_owned(),
                };
                (saved.key, saved.deadline_unix_ms, saved.etag, value)
            })
            .collect();
        let value = str::to_owned;
        let expected: [(&[u8], Option<u64>, u64, String); 4] = [
            (b"", None, 0, value("0 bytes")),
            (b"object", Some(u64::MAX), 0, value("an object")),
            (b"number", None, u64::MAX, i64::MIN.to_string()),
            (b"text", Some(0), 1, value("300 bytes")),
        ];
        assert_eq!(told, expected);
        let content = (6 + 20) + (4 + 300) + 6 + object.memory_bytes() as u64;
        assert_eq!((batch.len(), batch.content_bytes()), (4, content));
    }

    #[test]
    fn a_run_is_of_one_database() {
        let held = Arc::new(Held::default());
        let mut batch = filled(&held);
        let run = batch
            .run()
            .map(|run| (run.database, run.records, run.bytes.to_vec()));
        let expected = b"\x00\x00\x03\x00\x03\x00\x00\x00\x05\x00\x00\x00keyvalue";
        assert_eq!(run, Some((3, 1, expected.to_vec())));
        let named = Named {
            database: 4,
            key: b"key",
            deadline_unix_ms: None,
            etag: 0,
        };
        batch.push_integer(named, 7);
        assert!(batch.run().is_none());
        assert_eq!(
            batch
                .records()
                .map(|saved| saved.database)
                .collect::<Vec<_>>(),
            [3, 4]
        );
        assert!(Batch::new(&held, Origin::Writer).run().is_none(), "empty");
    }

    fn spares(held: &Held) -> usize {
        lock(&held.spares.0).as_ref().map_or(0, Vec::len)
    }

    #[test]
    fn room_is_filled_again_until_the_snapshot_ends() {
        let held = Arc::new(Held::default());
        drop(filled(&held));
        assert_eq!(spares(&held), 0, "no snapshot");
        held.begin(true);
        let first = filled(&held);
        let place = first.bytes.as_ptr();
        drop(first);
        let again = filled(&held);
        assert_eq!((again.bytes.as_ptr(), spares(&held)), (place, 0));
        assert_eq!(
            (again.len(), again.content_bytes()),
            (1, 8),
            "what was in it is not"
        );
        let all: Vec<Batch> = (0..=SPARES_MAX).map(|_| filled(&held)).collect();
        assert!(held.sum() > 0);
        drop(all);
        assert_eq!(
            (spares(&held), held.sum()),
            (SPARES_MAX, again.counted_bytes)
        );
        held.end();
        drop(again);
        assert_eq!((spares(&held), held.sum()), (0, 0));
    }
}
