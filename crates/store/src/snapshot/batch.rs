//! Records that were saved: copies of what is short and of objects, references to what is long.
//!
//! ```text
//!   bytes    │key│value│key│key│value│ …      one after the other, in the order of `entries`
//!   entries  │ 3, 5    │ 3 │ 3, 5    │ …      lengths; the entry has numbers, long values, objects
//! ```

use std::mem::take;
use std::sync::Arc;

use base::sync::Mutex;
use base::sync::atomic::{AtomicU64, Ordering};
use structures::Object;

use crate::blob::BlobRef;
use crate::key::DatabaseId;

use super::lock;

/// A batch with so many bytes copied is handed over …
const FULL_BYTES: usize = if cfg!(any(loom, shuttle)) {
    64
} else {
    64 << 10
};
/// … or with so many records …
const FULL_RECORDS: usize = if cfg!(any(loom, shuttle)) { 4 } else { 1_024 };
/// … or with long values of so many bytes.
const FULL_LONG_BYTES: u64 = 1 << 20;

/// A batch begins with room for the bucket that makes it full: asking for more would copy it.
const ROOM_BYTES: usize = FULL_BYTES + FULL_BYTES / 8;

/// Room of so many batches is kept to be filled again while a snapshot is in progress: some three megabytes.
const SPARES_MAX: usize = 32;

/// Who filled a batch.
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
    spares: Spares,
}

/// Room of batches that are gone, for those that come: a page that is new costs who fills it more than what
/// is copied there. None is kept while no snapshot is in progress.
#[derive(Debug, Default)]
struct Spares(Mutex<Option<Vec<Room>>>);

type Room = (Vec<u8>, Vec<Entry>);

impl Spares {
    fn take(&self) -> Option<Room> {
        lock(&self.0).as_mut()?.pop()
    }

    fn keep(&self, (mut bytes, mut entries): Room) {
        bytes.clear();
        entries.clear();
        if let Some(spares) = lock(&self.0).as_mut()
            && spares.len() < SPARES_MAX
        {
            spares.push((bytes, entries));
        }
    }
}

impl Held {
    /// What writers saved.
    pub(super) fn by_writers(&self) -> u64 {
        self.by_writers.load(Ordering::Relaxed)
    }

    /// All of it.
    pub(super) fn sum(&self) -> u64 {
        let by_scanner = self.by_scanner.load(Ordering::Relaxed);
        self.by_writers().saturating_add(by_scanner)
    }

    /// The most that the sum was.
    pub(super) fn sum_max(&self) -> u64 {
        self.sum_max.load(Ordering::Relaxed)
    }

    /// A snapshot begins: forgets the most that the sum was, and keeps room from here on.
    pub(super) fn begin(&self) {
        self.sum_max.store(self.sum(), Ordering::Relaxed);
        *lock(&self.spares.0) = Some(Vec::new());
    }

    /// The snapshot has ended: gives the room back that is kept.
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
    entries: Vec<Entry>,
    /// Of values that are not among `bytes`: their lengths, and what objects take in memory.
    beside_bytes: u64,
    long_bytes: u64,
    has_large_object: bool,
    counted_bytes: u64,
    held: Arc<Held>,
    origin: Origin,
}

/// One record of a cut.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'b> {
    /// The database it was in.
    pub database: DatabaseId,
    /// Its key.
    pub key: &'b [u8],
    /// When it stops existing, in milliseconds since 1970 UTC. That may have passed.
    pub deadline_unix_ms: Option<u64>,
    /// Its etag; 0 for none.
    pub etag: u64,
    /// What it held.
    pub value: SavedValue<'b>,
}

/// What a record held.
#[derive(Clone, Copy, Debug)]
pub enum SavedValue<'b> {
    /// A string that is kept as a number.
    Integer(i64),
    /// A string.
    Bytes(&'b [u8]),
    /// A long string.
    Blob(&'b BlobRef),
    /// What is no string.
    Object(&'b Object),
}

impl SavedValue<'_> {
    /// The string in a buffer of its own; of an object nothing.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Integer(number) => number.to_string().into_bytes(),
            Self::Bytes(bytes) => bytes.to_vec(),
            Self::Blob(blob) => blob.to_vec(),
            Self::Object(_) => Vec::new(),
        }
    }
}

#[derive(Debug)]
struct Entry {
    database: DatabaseId,
    deadline_unix_ms: Option<u64>,
    etag: u64,
    key_len: usize,
    value: Kept,
}

#[derive(Debug)]
enum Kept {
    Integer(i64),
    /// So many of the batch's bytes.
    Bytes(usize),
    Blob(BlobRef),
    Object(Box<Object>),
}

/// What is saved of a record besides its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'k> {
    pub(super) database: DatabaseId,
    pub(super) key: &'k [u8],
    pub(super) deadline_unix_ms: Option<u64>,
    pub(super) etag: u64,
}

impl Batch {
    pub(super) fn new(held: &Arc<Held>, origin: Origin) -> Self {
        let (bytes, entries) = held.spares.take().unwrap_or_else(|| {
            let entries = Vec::with_capacity(FULL_RECORDS / 2);
            (Vec::with_capacity(ROOM_BYTES), entries)
        });
        let mut batch = Self {
            bytes,
            entries,
            beside_bytes: 0,
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
        self.entries.len()
    }

    /// Whether there are no records in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The records.
    pub fn records(&self) -> impl Iterator<Item = Saved<'_>> {
        let mut rest = self.bytes.as_slice();
        let mut take = move |len: usize| {
            let (bytes, behind) = rest.split_at(len);
            rest = behind;
            bytes
        };
        self.entries.iter().map(move |entry| Saved {
            database: entry.database,
            deadline_unix_ms: entry.deadline_unix_ms,
            etag: entry.etag,
            key: take(entry.key_len),
            value: match &entry.value {
                Kept::Integer(number) => SavedValue::Integer(*number),
                Kept::Bytes(len) => SavedValue::Bytes(take(*len)),
                Kept::Blob(blob) => SavedValue::Blob(blob),
                Kept::Object(object) => SavedValue::Object(object),
            },
        })
    }

    /// Bytes of keys and values; of objects what they take in memory.
    pub(super) fn content_bytes(&self) -> u64 {
        self.bytes.len() as u64 + self.beside_bytes
    }

    /// Whether it is worth handing over.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= FULL_BYTES
            || self.entries.len() >= FULL_RECORDS
            || self.long_bytes >= FULL_LONG_BYTES
            || self.has_large_object
    }

    pub(super) fn push_integer(&mut self, named: Named<'_>, number: i64) {
        self.beside_bytes += base::number::decimal_len(number) as u64;
        self.push(named, Kept::Integer(number));
    }

    pub(super) fn push_bytes(&mut self, named: Named<'_>, bytes: &[u8]) {
        self.push(named, Kept::Bytes(bytes.len()));
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn push_blob(&mut self, named: Named<'_>, blob: BlobRef) {
        self.beside_bytes += blob.len() as u64;
        self.long_bytes += blob.len() as u64;
        self.push(named, Kept::Blob(blob));
    }

    /// Adds a copy of an object. What a large one shares with it is not counted: only what is changed
    /// until the batch is dropped becomes more memory, and a large object is handed over at once.
    pub(super) fn push_object(&mut self, named: Named<'_>, object: &Object) {
        self.beside_bytes += object.memory_bytes() as u64;
        self.long_bytes += object.copy_bytes() as u64;
        self.has_large_object |= object.copy_bytes() < object.memory_bytes();
        self.push(named, Kept::Object(Box::new(object.clone())));
    }

    fn push(&mut self, named: Named<'_>, value: Kept) {
        self.bytes.extend_from_slice(named.key);
        self.entries.push(Entry {
            database: named.database,
            deadline_unix_ms: named.deadline_unix_ms,
            etag: named.etag,
            key_len: named.key.len(),
            value,
        });
    }

    /// Counts what was added since the last count as held. A long value counts in full: its pages
    /// are shared with its record, but only until that is changed.
    pub(super) fn count(&mut self) {
        let own = self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>();
        let bytes = own as u64 + self.long_bytes;
        // Most buckets have room in what was counted already.
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
        let (bytes, entries) = (take(&mut self.bytes), take(&mut self.entries));
        // What an extraordinary bucket made longer is not to be longer for ever.
        if bytes.capacity() == ROOM_BYTES {
            self.held.spares.keep((bytes, entries));
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

    fn spares(held: &Held) -> usize {
        lock(&held.spares.0).as_ref().map_or(0, Vec::len)
    }

    #[test]
    fn room_is_filled_again_until_the_snapshot_ends() {
        let held = Arc::new(Held::default());
        drop(filled(&held));
        assert_eq!(spares(&held), 0, "no snapshot");
        held.begin();
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
