//! The segments of a server: the table of slots, where the next entries go, what may be removed.
//!
//! ```text
//!   stubs, pins, checkpoints in force ── name ──► segments       a segment that nothing names is removed
//! ```
//!
//! What must stay true: bytes that are named count as live from before they are named until [`Tier::forget`]; a slot is
//! used again only when its segment was removed; a segment that a checkpoint in force names is there, whatever of it is
//! alive.

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

/// What names of segments end with.
const SUFFIX: &str = ".seg";

/// Slots there can be: what fits into 18 bits.
const SLOTS_MAX: usize = 1 << 18;

/// Entries are not longer than 20 bits of units can say.
const ENTRY_BYTES_MAX: usize = ((1 << 20) - 1) * UNIT_BYTES;

/// So many segments are left for what compaction writes, or an eighth of a small tier: it frees more than it takes.
const RESERVED_SEGMENTS: u64 = 2;

/// For what something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Demotion,
    Compaction,
}

/// What a tier is made with.
#[derive(Clone, Debug)]
pub struct TierOptions {
    /// The directory of the segments.
    pub directory: PathBuf,
    /// All files together are not longer.
    pub bytes_max: u64,
    /// Length of a segment: up to 64 MiB.
    pub segment_bytes: u64,
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Slot of its segment.
    pub slot: u32,
    /// From the segment's start, in units.
    pub offset_units: u32,
    /// Its length in units.
    pub units: u32,
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Segments.
    pub segments: u64,
    /// Bytes of their files, and those of dictionaries.
    pub used_bytes: u64,
    /// Bytes of entries that are named.
    pub live_bytes: u64,
    /// Bytes ever written.
    pub written_bytes: u64,
    /// Of these, by compaction.
    pub compacted_bytes: u64,
    /// Bytes of values that came to be written, before compression.
    pub raw_bytes: u64,
    /// Bytes of files that only a checkpoint in force names.
    pub kept_bytes: u64,
    /// Dictionaries.
    pub dictionaries: u64,
    /// Bytes of values that came to be written with a dictionary, before that.
    pub packed_raw_bytes: u64,
    /// Bytes that they took.
    pub packed_bytes: u64,
}

/// Who owns the segments.
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

/// Which segment is in which slot.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    table: Vec<Option<Arc<Segment>>>,
    by_ordinal: HashMap<u64, u32>,
    /// Where the next one is looked for: a slot that was just given up rests, for those who had a place in it.
    next: usize,
    /// Files that an earlier process left and that nobody has asked for yet.
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

/// Where the next entries go.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) open: Option<Arc<Segment>>,
    next_ordinal: u64,
    random: Prng,
}

impl Tier {
    /// A tier in a directory of its own. Segments that are there are of an earlier process: a checkpoint may name them
    /// ([`Tier::adopt`]), and the others go when [`Tier::remove_leftovers`] says so. Nothing else in it is touched.
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

    /// As [`Tier::open`], for who only reads, of a directory that is there.
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

    /// Where the segments are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether there are segments of an earlier process that nobody has asked for.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        !lock(&self.slots).leftovers.is_empty()
    }

    pub(crate) fn path(&self, ordinal: u64) -> PathBuf {
        self.directory.join(segment_name(ordinal))
    }

    /// Changes how much the files may take.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Says which values are compressed, and how.
    pub fn set_compression(&self, wanted: Compression) {
        self.codecs.set_compression(wanted);
    }

    /// Says how many bytes of samples are collected for a dictionary, at most; too few are none.
    pub fn set_sample_bytes_max(&self, bytes_max: usize) {
        lock(&self.codecs.samples).set_bytes_max(bytes_max);
    }

    /// Memory that compression takes: dictionaries, contexts, samples, and training while it is done.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let (_, _, dictionary_bytes) = lock(&self.codecs.table).counts();
        let samples_bytes = lock(&self.codecs.samples).memory_bytes();
        dictionary_bytes + samples_bytes + self.codecs.context_bytes()
    }

    /// How much the files may take.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Length of a segment.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Writes an entry; where it is. It counts as named from now on.
    ///
    /// # Errors
    /// [`TierFault::Full`], [`TierFault::TooLong`], or those of the system; then it is nowhere.
    pub fn append(&self, entry: &Entry<'_>) -> Result<Place, TierFault> {
        let places = self.append_all(std::slice::from_ref(entry))?;
        places.into_iter().next().ok_or(TierFault::TooLong)
    }

    /// Writes entries, at once as far as one segment has room for them: the places of as many of them, from the first on, as
    /// could be written. What was written is not given up for the rest: where only a segment at a time is freed, a batch that is
    /// longer than one would never be written otherwise.
    ///
    /// # Errors
    /// As [`Tier::append`], where not even the first could be written.
    pub fn append_all(&self, entries: &[Entry<'_>]) -> Result<Vec<Place>, TierFault> {
        // Before anybody waits for the open segment.
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
                // What comes after its good end is nobody's.
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

    /// The open segment if it has room for so many bytes, or a new one.
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
        // Nobody waits for the device with the table held.
        let made = Segment::create(&*self.disk, path, (ordinal, salt), &self.codecs)?;
        let made = lock(&self.slots).add(made)?;
        writer.open = Some(Arc::clone(&made));
        Ok(made)
    }

    /// The entry of a key. May wait for the device.
    ///
    /// # Errors
    /// [`TierFault`]; what is there is not returned.
    pub fn read(&self, place: Place, key: &[u8]) -> Result<OwnedEntry, TierFault> {
        let segment = self.segment(place.slot)?;
        let (offset_bytes, bytes) = entry_at(place);
        segment.read(offset_bytes, bytes, key)
    }

    /// The name of the segment in a slot: another one each time that the slot is used.
    #[must_use]
    pub fn ordinal(&self, slot: u32) -> Option<u64> {
        self.segment(slot).ok().map(|segment| segment.ordinal)
    }

    pub(crate) fn segment(&self, slot: u32) -> Result<Arc<Segment>, TierFault> {
        let slots = lock(&self.slots);
        let segment = slots.get(slot).map(Arc::clone);
        segment.ok_or(TierFault::NoSegment { slot })
    }

    /// An entry is named no more.
    pub fn forget(&self, place: Place) {
        if let Ok(segment) = self.segment(place.slot) {
            let bytes = u64::from(place.units) * UNIT_BYTES as u64;
            segment.live_bytes.fetch_sub(bytes, Ordering::AcqRel);
        }
    }

    /// The segment in a slot is not removed until [`Tier::unpin`]: somebody has the place of an entry that may be forgotten
    /// meanwhile. Called while that is named.
    pub fn pin(&self, slot: u32) {
        if let Ok(segment) = self.segment(slot) {
            segment.pins.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Ends what [`Tier::pin`] began.
    pub fn unpin(&self, slot: u32) {
        if let Ok(segment) = self.segment(slot) {
            segment.pins.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Removes segments that nothing names and nobody pins, and then dictionaries that nothing needs; how many segments. What
    /// cannot be removed is tried again.
    pub fn remove_dead(&self) -> usize {
        let mut slots = lock(&self.slots);
        // What is alive is looked at first: whoever pins does so while something is, and so before nothing is.
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
        // Who is the last to have one gives up shares in dictionaries.
        drop(dead);
        self.remove_unneeded_dictionaries();
        removed
    }

    /// Removes files that nothing needs, and those that could not be removed before; how many.
    pub(crate) fn discard(&self, files: Vec<PathBuf>) -> usize {
        let mut rubbish = std::mem::take(&mut *lock(&self.rubbish));
        rubbish.extend(files);
        let all = rubbish.len();
        rubbish.retain(|path| self.disk.remove(path).is_err());
        let removed = all - rubbish.len();
        lock(&self.rubbish).append(&mut rubbish);
        removed
    }

    /// How much there is.
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

/// The name of the file of a segment.
#[must_use]
pub fn segment_name(ordinal: u64) -> String {
    format!("{ordinal:016x}{SUFFIX}")
}

/// Whether a file is called as a segment is.
#[must_use]
pub fn is_segment_name(name: &str) -> bool {
    ordinal_of(name).is_some()
}

/// Ends the open segment.
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

/// From which byte of its segment on an entry is, and how many it has.
pub(crate) fn entry_at(place: Place) -> (u64, usize) {
    let bytes = usize::try_from(place.units).unwrap_or(usize::MAX);
    let bytes = bytes.saturating_mul(UNIT_BYTES).min(ENTRY_BYTES_MAX);
    (u64::from(place.offset_units) * UNIT_BYTES as u64, bytes)
}

/// The ordinal that a file's name tells, if it is a segment's.
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
