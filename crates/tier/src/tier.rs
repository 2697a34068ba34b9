//! The segments of a server: the table of slots, the open segment, and the removal of segments.
//!
//! ```text
//!   stubs, pins, checkpoints in force ── name ──► segments       a segment that nothing names is removed
//! ```
//!
//! What must stay true: bytes count as live from before they are named until [`Tier::forget`]. A
//! slot is reused only after its segment was removed. A segment that a checkpoint in force names
//! exists, even if no entry of it is live.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};

use base::random::Prng;
use base::sync::Mutex;
use base::sync::atomic::{AtomicU64, Ordering};
use durability::disk::Disk;
use durability::whole_file;

use crate::codecs::{Codecs, Compression};
use crate::dictionaries::Table;
use crate::entry::{Entry, OwnedEntry, StoredEntry, UNIT_BYTES, encode};
use crate::fault::TierFault;
use crate::segment::{SEGMENT_HEAD_BYTES, Segment};

/// Suffix of the names of segment files.
const SUFFIX: &str = ".seg";

/// Maximum number of slots: 18 bits.
const SLOTS_MAX: usize = 1 << 18;

/// Maximum length of an entry: 20 bits of units.
const ENTRY_BYTES_MAX: usize = ((1 << 20) - 1) * UNIT_BYTES;

/// Number of segments (at most an eighth of a small tier) that are reserved for compaction, which
/// frees more than it takes.
const RESERVED_SEGMENTS: u64 = 2;

/// Purpose of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Demotion,
    Compaction,
}

/// Options of a tier.
#[derive(Clone, Debug)]
pub struct TierOptions {
    /// The directory of the segments.
    pub directory: PathBuf,
    /// Maximum bytes of all files together.
    pub bytes_max: u64,
    /// Length of a segment: up to 64 MiB.
    pub segment_bytes: u64,
}

/// Position of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Slot of its segment.
    pub slot: u32,
    /// Offset from the segment's start, in units.
    pub offset_units: u32,
    /// Its length in units.
    pub units: u32,
}

/// Counters of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of segments.
    pub segments: u64,
    /// Bytes of the segments' and dictionaries' files.
    pub used_bytes: u64,
    /// Bytes of entries that are named.
    pub live_bytes: u64,
    /// Bytes ever written.
    pub written_bytes: u64,
    /// Bytes written by compaction, out of these.
    pub compacted_bytes: u64,
    /// Bytes of the values to be written, before compression.
    pub raw_bytes: u64,
    /// Bytes of files that only a checkpoint in force names.
    pub kept_bytes: u64,
    /// Number of dictionaries.
    pub dictionaries: u64,
    /// Bytes of the values to be written with a dictionary, before compression.
    pub packed_raw_bytes: u64,
    /// Bytes of these values as stored.
    pub packed_bytes: u64,
}

/// The owner of the segments.
#[derive(Debug)]
pub struct Tier {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: PathBuf,
    segment_bytes: u64,
    bytes_max: AtomicU64,
    pub(crate) slots: Mutex<Slots>,
    pub(crate) writer: Mutex<Writer>,
    /// Files that could not be removed.
    rubbish: Mutex<Vec<PathBuf>>,
    pub(crate) codecs: Arc<Codecs>,
    written_bytes: AtomicU64,
    raw_bytes: AtomicU64,
    pub(crate) compacted_bytes: AtomicU64,
}

/// The segments by slot.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    table: Vec<Option<Arc<Segment>>>,
    by_ordinal: HashMap<u64, u32>,
    /// Where the search for a free slot begins. A slot that was just freed is not reused soon, for
    /// users that had a place in it.
    next: usize,
    /// Files of an earlier process that were not requested yet.
    pub(crate) leftovers: BTreeSet<u64>,
}

impl Slots {
    /// Puts a segment into a free slot.
    pub(crate) fn add(&mut self, mut segment: Segment) -> Result<Arc<Segment>, TierFault> {
        let len = self.table.len();
        let mut places = (self.next..len).chain(0..self.next.min(len));
        let free = places.find(|at| self.table[*at].is_none());
        let at = free.unwrap_or(len);
        if at >= SLOTS_MAX {
            return Err(TierFault::Full);
        }
        segment.slot = u32::try_from(at).map_err(|_| TierFault::Full)?;
        let segment = Arc::new(segment);
        if at == len {
            self.table.push(None);
        }
        self.table[at] = Some(Arc::clone(&segment));
        self.by_ordinal.insert(segment.ordinal, segment.slot);
        self.next = at + 1;
        Ok(segment)
    }

    fn get(&self, slot: u32) -> Option<&Arc<Segment>> {
        let at = usize::try_from(slot).ok()?;
        self.table.get(at)?.as_ref()
    }

    pub(crate) fn of_ordinal(&self, ordinal: u64) -> Option<&Arc<Segment>> {
        self.get(*self.by_ordinal.get(&ordinal)?)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.table.iter().flatten()
    }
}

/// The segment that the next entries are written to.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) open: Option<Arc<Segment>>,
    next_ordinal: u64,
    random: Prng,
}

impl Tier {
    /// Opens a tier in a directory of its own. Existing segments belong to an earlier process: a
    /// checkpoint may name them ([`Tier::adopt`]), and [`Tier::remove_leftovers`] removes the
    /// others. No other file in the directory is touched.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(disk: Arc<dyn Disk>, options: &TierOptions) -> Result<Self, TierFault> {
        let directory = &options.directory;
        let made = whole_file::make_directory(&*disk, directory);
        made.map_err(|cause| TierFault::System {
            path: directory.clone(),
            cause,
        })?;
        Self::open_to_read(disk, options)
    }

    /// Opens a tier like [`Tier::open`], for reading only. The directory must exist.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open_to_read(disk: Arc<dyn Disk>, options: &TierOptions) -> Result<Self, TierFault> {
        let directory = &options.directory;
        let listed = disk.list(directory);
        let names = listed.map_err(|cause| TierFault::System {
            path: directory.clone(),
            cause,
        })?;
        let leftovers: BTreeSet<u64> = names.iter().filter_map(|name| ordinal_of(name)).collect();
        let last = leftovers.last().copied().unwrap_or(0);
        let longest = 1 << 26;
        Ok(Self {
            disk,
            directory: directory.clone(),
            segment_bytes: options.segment_bytes.clamp(SEGMENT_HEAD_BYTES * 2, longest),
            bytes_max: AtomicU64::new(options.bytes_max),
            slots: Mutex::new(Slots {
                leftovers,
                ..Slots::default()
            }),
            rubbish: Mutex::default(),
            writer: Mutex::new(Writer {
                open: None,
                next_ordinal: last.saturating_add(1),
                random: Prng::from_os(),
            }),
            codecs: Arc::new(Codecs::new(Table::new(&names))),
            written_bytes: AtomicU64::new(0),
            raw_bytes: AtomicU64::new(0),
            compacted_bytes: AtomicU64::new(0),
        })
    }

    /// Returns the directory of the segments.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether there are segments of an earlier process that were not requested.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        !lock(&self.slots).leftovers.is_empty()
    }

    pub(crate) fn path(&self, ordinal: u64) -> PathBuf {
        self.directory.join(segment_name(ordinal))
    }

    /// Sets the maximum bytes of the files.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Sets which values are compressed, and how.
    pub fn set_compression(&self, wanted: Compression) {
        self.codecs.set_compression(wanted);
    }

    /// Sets the maximum bytes of samples for a dictionary. Below a minimum none are collected.
    pub fn set_sample_bytes_max(&self, bytes_max: usize) {
        lock(&self.codecs.samples).set_bytes_max(bytes_max);
    }

    /// Returns the memory that compression takes: dictionaries, contexts, samples, and training
    /// while it runs.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let (_, _, dictionary_bytes) = lock(&self.codecs.table).counts();
        let samples_bytes = lock(&self.codecs.samples).memory_bytes();
        dictionary_bytes + samples_bytes + self.codecs.context_bytes()
    }

    /// Returns the maximum bytes of the files.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Returns the length of a segment.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Writes an entry. Returns its place. The entry counts as named from now on.
    ///
    /// # Errors
    /// [`TierFault::Full`], [`TierFault::TooLong`], or those of the system. The entry is not
    /// written then.
    pub fn append(&self, entry: &Entry<'_>) -> Result<Place, TierFault> {
        let places = self.append_all(std::slice::from_ref(entry))?;
        places.into_iter().next().ok_or(TierFault::TooLong)
    }

    /// Writes entries, with one write per segment. Returns the places of as many entries, from the
    /// first on, as could be written. If an error occurs later, the entries written before are
    /// kept: if only one segment at a time is freed, a batch that is longer than a segment could
    /// never be written otherwise.
    ///
    /// # Errors
    /// The same as those of [`Tier::append`], if not even the first entry could be written.
    pub fn append_all(&self, entries: &[Entry<'_>]) -> Result<Vec<Place>, TierFault> {
        // Compresses before it waits for the lock of the open segment.
        let mut packer = self.codecs.packer();
        if self.codecs.compression().has_dictionaries() {
            let bodies = entries.iter().map(|entry| entry.body);
            lock(&self.codecs.samples).see(bodies, packer.in_use());
        }
        let stored = entries
            .iter()
            .map(|entry| StoredEntry::new(entry, &mut packer));
        let stored: Vec<_> = stored.collect();
        let raw: u64 = stored.iter().map(|entry| entry.raw_bytes() as u64).sum();
        self.raw_bytes.fetch_add(raw, Ordering::Relaxed);
        packer.note(&self.codecs);
        self.append_stored(&stored, Purpose::Demotion)
    }

    pub(crate) fn append_stored(
        &self,
        entries: &[StoredEntry<'_>],
        purpose: Purpose,
    ) -> Result<Vec<Place>, TierFault> {
        let mut places = Vec::with_capacity(entries.len());
        match self.append_some(entries, purpose, &mut places) {
            Err(fault) if places.is_empty() => Err(fault),
            _ => Ok(places),
        }
    }

    fn append_some(
        &self,
        entries: &[StoredEntry<'_>],
        purpose: Purpose,
        places: &mut Vec<Place>,
    ) -> Result<(), TierFault> {
        let mut writer = lock(&self.writer);
        let mut rest = entries;
        while let Some(first) = rest.first() {
            let needed = entry_bytes(first)?;
            let segment = self.segment_for(&mut writer, needed as u64, purpose)?;
            let mut bytes = Vec::new();
            let start = segment.end_bytes.load(Ordering::Relaxed);
            let mut batch = Vec::new();
            while let Some(entry) = rest.first() {
                let offset = start + bytes.len() as u64;
                let length = entry_bytes(entry)?;
                let is_first = batch.is_empty();
                if !is_first && offset + length as u64 > self.segment_bytes {
                    break;
                }
                if let Some(dictionary) = entry.dictionary() {
                    segment.need(dictionary);
                }
                encode(entry, segment.at(offset), &mut bytes).ok_or(TierFault::TooLong)?;
                batch.push(place(segment.slot, offset, length)?);
                rest = &rest[1..];
            }
            if let Err(fault) = segment.write(&bytes) {
                // The bytes after its valid end belong to no entry.
                seal(&mut writer, &segment);
                return Err(fault);
            }
            let written = bytes.len() as u64;
            segment.live_bytes.fetch_add(written, Ordering::Relaxed);
            self.written_bytes.fetch_add(written, Ordering::Relaxed);
            places.append(&mut batch);
        }
        Ok(())
    }

    /// Returns the open segment if it has space for this many bytes, or a new one.
    fn segment_for(
        &self,
        writer: &mut Writer,
        bytes: u64,
        purpose: Purpose,
    ) -> Result<Arc<Segment>, TierFault> {
        if let Some(open) = &writer.open {
            let end = open.end_bytes.load(Ordering::Relaxed);
            if end + bytes <= self.segment_bytes {
                return Ok(Arc::clone(open));
            }
            let open = Arc::clone(open);
            seal(writer, &open);
        }
        let used = self.figures().used_bytes;
        let length = self.segment_bytes.max(SEGMENT_HEAD_BYTES + bytes);
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        let reserved = match purpose {
            Purpose::Demotion => (RESERVED_SEGMENTS * self.segment_bytes).min(bytes_max / 8),
            Purpose::Compaction => 0,
        };
        if used.saturating_add(length) > bytes_max - reserved {
            return Err(TierFault::Full);
        }
        let (ordinal, salt) = (writer.next_ordinal, writer.random.next_u64());
        writer.next_ordinal += 1;
        let path = self.path(ordinal);
        // The table is not locked here, so no thread waits for the device while it holds the table.
        let made = Segment::create(&*self.disk, path, (ordinal, salt), &self.codecs)?;
        let made = lock(&self.slots).add(made)?;
        writer.open = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Reads the entry of a key. May wait for the device.
    ///
    /// # Errors
    /// [`TierFault`]; the damaged bytes are not returned.
    pub fn read(&self, place: Place, key: &[u8]) -> Result<OwnedEntry, TierFault> {
        let segment = self.segment(place.slot)?;
        let (offset_bytes, bytes) = entry_at(place);
        segment.read(offset_bytes, bytes, key)
    }

    /// Returns the ordinal of the segment in a slot. Each use of the slot has another one.
    #[must_use]
    pub fn ordinal(&self, slot: u32) -> Option<u64> {
        self.segment(slot).ok().map(|segment| segment.ordinal)
    }

    pub(crate) fn segment(&self, slot: u32) -> Result<Arc<Segment>, TierFault> {
        let slots = lock(&self.slots);
        let segment = slots.get(slot).map(Arc::clone);
        segment.ok_or(TierFault::NoSegment { slot })
    }

    /// Records that an entry is no longer named.
    pub fn forget(&self, place: Place) {
        if let Ok(segment) = self.segment(place.slot) {
            let bytes = u64::from(place.units) * UNIT_BYTES as u64;
            segment.live_bytes.fetch_sub(bytes, Ordering::AcqRel);
        }
    }

    /// Keeps the segment in a slot from being removed until [`Tier::unpin`], for a caller with the
    /// place of an entry that may be forgotten meanwhile. Must be called while the entry is named.
    pub fn pin(&self, slot: u32) {
        if let Ok(segment) = self.segment(slot) {
            segment.pins.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Ends the effect of [`Tier::pin`].
    pub fn unpin(&self, slot: u32) {
        if let Ok(segment) = self.segment(slot) {
            segment.pins.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Removes segments that are neither named nor pinned, and then dictionaries that are not
    /// needed. Returns the number of segments. If a file cannot be removed, later calls try again.
    pub fn remove_dead(&self) -> usize {
        let mut slots = lock(&self.slots);
        // Live bytes are checked before pins: a caller pins while an entry is live, so its pin is
        // visible before the live bytes become 0.
        let is_dead = |segment: &Segment| {
            segment.is_sealed.load(Ordering::Acquire)
                && segment.live_bytes.load(Ordering::Acquire) == 0
                && segment.pins.load(Ordering::Acquire) == 0
                && !segment.is_named.load(Ordering::Acquire)
        };
        let dead: Vec<_> = slots
            .all()
            .filter(|segment| is_dead(segment))
            .map(Arc::clone)
            .collect();
        for segment in &dead {
            slots.by_ordinal.remove(&segment.ordinal);
            if let Ok(at) = usize::try_from(segment.slot) {
                slots.table[at] = None;
            }
        }
        drop(slots);
        let removed = self.discard(dead.iter().map(|segment| segment.path.clone()).collect());
        // The last owner of a segment releases the segment's shares in dictionaries.
        drop(dead);
        self.remove_unneeded_dictionaries();
        removed
    }

    /// Removes these files, and those that could not be removed before. Returns the number of
    /// removed files.
    pub(crate) fn discard(&self, files: Vec<PathBuf>) -> usize {
        let mut rubbish = std::mem::take(&mut *lock(&self.rubbish));
        rubbish.extend(files);
        let all = rubbish.len();
        rubbish.retain(|path| self.disk.remove(path).is_err());
        let removed = all - rubbish.len();
        lock(&self.rubbish).append(&mut rubbish);
        removed
    }

    /// Returns the counters.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let (dictionaries, dictionary_bytes, _) = lock(&self.codecs.table).counts();
        let slots = lock(&self.slots);
        let mut figures = Figures {
            dictionaries,
            used_bytes: dictionary_bytes,
            packed_raw_bytes: self.codecs.packed_raw_bytes.load(Ordering::Relaxed),
            packed_bytes: self.codecs.packed_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            raw_bytes: self.raw_bytes.load(Ordering::Relaxed),
            compacted_bytes: self.compacted_bytes.load(Ordering::Relaxed),
            ..Figures::default()
        };
        for segment in slots.all() {
            let end = segment.end_bytes.load(Ordering::Relaxed);
            let live = segment.live_bytes.load(Ordering::Relaxed);
            figures.segments += 1;
            figures.used_bytes += end;
            figures.live_bytes += live;
            if live == 0 && segment.is_named.load(Ordering::Relaxed) {
                figures.kept_bytes += end;
            }
        }
        figures
    }
}

/// Returns the name of a segment's file.
#[must_use]
pub fn segment_name(ordinal: u64) -> String {
    format!("{ordinal:016x}{SUFFIX}")
}

/// Whether a file has the name of a segment.
#[must_use]
pub fn is_segment_name(name: &str) -> bool {
    ordinal_of(name).is_some()
}

/// Seals the open segment.
pub(crate) fn seal(writer: &mut Writer, segment: &Segment) {
    segment.is_sealed.store(true, Ordering::Release);
    writer.open = None;
}

fn entry_bytes(entry: &StoredEntry<'_>) -> Result<usize, TierFault> {
    entry
        .padded_bytes()
        .filter(|bytes| *bytes <= ENTRY_BYTES_MAX)
        .ok_or(TierFault::TooLong)
}

pub(crate) fn place(slot: u32, offset_bytes: u64, bytes: usize) -> Result<Place, TierFault> {
    let unit = UNIT_BYTES as u64;
    let units = |bytes: u64| u32::try_from(bytes / unit).map_err(|_| TierFault::TooLong);
    Ok(Place {
        slot,
        offset_units: units(offset_bytes)?,
        units: units(bytes as u64)?,
    })
}

/// Returns the offset of an entry in its segment and its length, in bytes.
pub(crate) fn entry_at(place: Place) -> (u64, usize) {
    let bytes = usize::try_from(place.units).unwrap_or(usize::MAX);
    let bytes = bytes.saturating_mul(UNIT_BYTES).min(ENTRY_BYTES_MAX);
    (u64::from(place.offset_units) * UNIT_BYTES as u64, bytes)
}

/// Returns the ordinal in a file's name, or `None` if it is not a segment's.
fn ordinal_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let is_one = digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_one
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
