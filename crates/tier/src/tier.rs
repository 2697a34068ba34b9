//! The segments of a server: the table of slots, where the next entries go, what may be removed.
//!
//! What must stay true: bytes that are named count as live from before they are named until [`Tier::forget`]; a slot is
//! used again only when its segment was removed, and that is while nobody pins.

use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};

use base::random::Prng;
use base::sync::Mutex;
use base::sync::atomic::{AtomicU64, Ordering};
use durability::disk::Disk;

use crate::entry::{Entry, OwnedEntry, UNIT_BYTES, encode, padded_bytes};
use crate::fault::TierFault;
use crate::segment::{SEGMENT_HEAD_BYTES, Segment};

/// What names of segments end with.
const SUFFIX: &str = ".seg";

/// Slots there can be: what fits into 18 bits.
const SLOTS_MAX: usize = 1 << 18;

/// Entries are not longer than 20 bits of units can say.
const ENTRY_BYTES_MAX: usize = ((1 << 20) - 1) * UNIT_BYTES;

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
    /// Bytes of their files.
    pub used_bytes: u64,
    /// Bytes of entries that are named.
    pub live_bytes: u64,
    /// Bytes ever written.
    pub written_bytes: u64,
    /// Of these, by compaction.
    pub compacted_bytes: u64,
}

/// Who owns the segments.
#[derive(Debug)]
pub struct Tier {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    segment_bytes: u64,
    bytes_max: AtomicU64,
    slots: Mutex<Vec<Option<Arc<Segment>>>>,
    writer: Mutex<Writer>,
    pins: AtomicU64,
    written_bytes: AtomicU64,
    compacted_bytes: AtomicU64,
}

/// Where the next entries go.
#[derive(Debug)]
struct Writer {
    open: Option<Arc<Segment>>,
    next_ordinal: u64,
    random: Prng,
}

impl Tier {
    /// An empty tier in a directory of its own. Segments that are there are of an earlier process, which nobody
    /// names: they are removed. Nothing else in it is touched.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(disk: Arc<dyn Disk>, options: &TierOptions) -> Result<Self, TierFault> {
        let directory = &options.directory;
        empty(&*disk, directory).map_err(|cause| TierFault::System {
            path: directory.clone(),
            cause,
        })?;
        let longest = 1 << 26;
        Ok(Self {
            disk,
            directory: directory.clone(),
            segment_bytes: options.segment_bytes.clamp(SEGMENT_HEAD_BYTES * 2, longest),
            bytes_max: AtomicU64::new(options.bytes_max),
            slots: Mutex::new(Vec::new()),
            writer: Mutex::new(Writer {
                open: None,
                next_ordinal: 1,
                random: Prng::from_os(),
            }),
            pins: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            compacted_bytes: AtomicU64::new(0),
        })
    }

    /// Changes how much the files may take.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Writes an entry; where it is. It counts as named from now on.
    ///
    /// # Errors
    /// [`TierFault::Full`], [`TierFault::TooLong`], or those of the system; then it is nowhere.
    pub fn append(&self, entry: &Entry<'_>) -> Result<Place, TierFault> {
        let places = self.append_all(std::slice::from_ref(entry))?;
        places.into_iter().next().ok_or(TierFault::TooLong)
    }

    /// Writes entries, at once as far as one segment has room for them.
    ///
    /// # Errors
    /// As [`Tier::append`]; then none of them is named.
    pub fn append_all(&self, entries: &[Entry<'_>]) -> Result<Vec<Place>, TierFault> {
        let mut places = Vec::with_capacity(entries.len());
        let written = self.append_some(entries, &mut places);
        if let Err(fault) = written {
            for place in places {
                self.forget(place);
            }
            return Err(fault);
        }
        Ok(places)
    }

    fn append_some(&self, entries: &[Entry<'_>], places: &mut Vec<Place>) -> Result<(), TierFault> {
        let mut writer = lock(&self.writer);
        let mut rest = entries;
        while let Some(first) = rest.first() {
            let needed = entry_bytes(first)?;
            let segment = self.segment_for(&mut writer, needed as u64)?;
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
    fn segment_for(&self, writer: &mut Writer, bytes: u64) -> Result<Arc<Segment>, TierFault> {
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
        if used.saturating_add(length) > self.bytes_max.load(Ordering::Relaxed) {
            return Err(TierFault::Full);
        }
        let mut slots = lock(&self.slots);
        let free = slots.iter().position(Option::is_none);
        let at = free.unwrap_or(slots.len());
        if at >= SLOTS_MAX {
            return Err(TierFault::Full);
        }
        let slot = u32::try_from(at).map_err(|_| TierFault::Full)?;
        let (ordinal, salt) = (writer.next_ordinal, writer.random.next_u64());
        writer.next_ordinal += 1;
        let path = self.directory.join(format!("{ordinal:016x}{SUFFIX}"));
        let made = Segment::create(&*self.disk, path, (slot, ordinal, salt))?;
        let made = Arc::new(made);
        match slots.get_mut(at) {
            Some(place) => *place = Some(Arc::clone(&made)),
            None => slots.push(Some(Arc::clone(&made))),
        }
        writer.open = Some(Arc::clone(&made));
        Ok(made)
    }

    /// The entry of a key. May wait for the device.
    ///
    /// # Errors
    /// [`TierFault`]; what is there is not returned.
    pub fn read(&self, place: Place, key: &[u8]) -> Result<OwnedEntry, TierFault> {
        let segment = self.segment(place.slot)?;
        let bytes = usize::try_from(place.units).unwrap_or(usize::MAX);
        let bytes = bytes.saturating_mul(UNIT_BYTES).min(ENTRY_BYTES_MAX);
        segment.read(offset_bytes(place), bytes, key)
    }

    /// The name of the segment in a slot: another one each time that the slot is used.
    #[must_use]
    pub fn ordinal(&self, slot: u32) -> Option<u64> {
        self.segment(slot).ok().map(|segment| segment.ordinal)
    }

    fn segment(&self, slot: u32) -> Result<Arc<Segment>, TierFault> {
        let slots = lock(&self.slots);
        let at = usize::try_from(slot).unwrap_or(usize::MAX);
        let segment = slots.get(at).and_then(Option::as_ref);
        segment.map(Arc::clone).ok_or(TierFault::NoSegment { slot })
    }

    /// An entry is named no more.
    pub fn forget(&self, place: Place) {
        if let Ok(segment) = self.segment(place.slot) {
            let bytes = u64::from(place.units) * UNIT_BYTES as u64;
            segment.live_bytes.fetch_sub(bytes, Ordering::AcqRel);
        }
    }

    /// Nothing is removed until [`Tier::unpin`]: somebody has places of entries that may be forgotten meanwhile.
    pub fn pin(&self) {
        self.pins.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends what [`Tier::pin`] began.
    pub fn unpin(&self) {
        self.pins.fetch_sub(1, Ordering::AcqRel);
    }

    /// Removes segments that nothing names, unless somebody pins; how many. What cannot be removed is tried again.
    pub fn remove_dead(&self) -> usize {
        // Whoever pins now has a place of something that was alive then, and so is not in one that is dead already;
        // with the table held none is used again meanwhile.
        let mut slots = lock(&self.slots);
        if self.pins.load(Ordering::Acquire) != 0 {
            return 0;
        }
        let mut removed = 0;
        for place in slots.iter_mut() {
            let is_dead = place.as_ref().is_some_and(|segment| {
                segment.is_sealed.load(Ordering::Acquire)
                    && segment.live_bytes.load(Ordering::Acquire) == 0
            });
            if is_dead && let Some(segment) = place.take() {
                if self.disk.remove(&segment.path).is_ok() {
                    removed += 1;
                } else {
                    *place = Some(segment);
                }
            }
        }
        removed
    }

    /// The slot of the sealed segment of which the smallest part is alive, if that is below `percent`.
    #[must_use]
    pub fn next_to_compact(&self, percent: u64) -> Option<u32> {
        let slots = lock(&self.slots);
        let part = |segment: &Segment| {
            let end = segment.end_bytes.load(Ordering::Relaxed);
            segment.live_bytes.load(Ordering::Relaxed) * 100 / end.max(1)
        };
        let sealed = slots.iter().flatten().filter(|segment| {
            segment.is_sealed.load(Ordering::Relaxed)
                && !segment.is_damaged.load(Ordering::Relaxed)
                && segment.live_bytes.load(Ordering::Relaxed) > 0
        });
        let least = sealed.min_by_key(|segment| (part(segment), segment.ordinal))?;
        (part(least) < percent).then_some(least.slot)
    }

    /// Writes what is still named of a segment elsewhere: `is_named` tells that of an entry and its place, and `moved`
    /// has its name changed from one place to another, and tells whether that was done. How many were moved.
    ///
    /// # Errors
    /// As [`Tier::append`] and [`Tier::read`]. A segment with an entry that cannot be read is left as it is from
    /// then on.
    pub fn compact(
        &self,
        slot: u32,
        mut is_named: impl FnMut(&Entry<'_>, Place) -> bool,
        mut moved: impl FnMut(&Entry<'_>, Place, Place) -> bool,
    ) -> Result<u64, TierFault> {
        let segment = self.segment(slot)?;
        let mut count = 0;
        let scanned = segment.scan(|offset, bytes, entry| {
            let old = place(slot, offset, bytes)?;
            if !is_named(&entry, old) {
                return Ok(());
            }
            let new = self.append(&entry)?;
            self.compacted_bytes
                .fetch_add(bytes as u64, Ordering::Relaxed);
            if moved(&entry, old, new) {
                self.forget(old);
                count += 1;
            } else {
                self.forget(new);
            }
            Ok(())
        });
        if scanned.as_ref().is_err_and(TierFault::is_damage) {
            segment.is_damaged.store(true, Ordering::Relaxed);
        }
        scanned.map(|()| count)
    }

    /// Reads all entries of all segments; how many, and what is wrong with the first bad one of each segment.
    #[must_use]
    pub fn scrub(&self) -> (u64, Vec<TierFault>) {
        let segments: Vec<_> = lock(&self.slots).iter().flatten().map(Arc::clone).collect();
        let (mut count, mut faults) = (0, Vec::new());
        for segment in segments {
            let scanned = segment.scan(|_, _, _| {
                count += 1;
                Ok(())
            });
            faults.extend(scanned.err());
        }
        (count, faults)
    }

    /// How much there is.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let slots = lock(&self.slots);
        let mut figures = Figures {
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            compacted_bytes: self.compacted_bytes.load(Ordering::Relaxed),
            ..Figures::default()
        };
        for segment in slots.iter().flatten() {
            figures.segments += 1;
            figures.used_bytes += segment.end_bytes.load(Ordering::Relaxed);
            figures.live_bytes += segment.live_bytes.load(Ordering::Relaxed);
        }
        figures
    }
}

/// Ends the open segment.
fn seal(writer: &mut Writer, segment: &Segment) {
    segment.is_sealed.store(true, Ordering::Release);
    writer.open = None;
}

fn entry_bytes(entry: &Entry<'_>) -> Result<usize, TierFault> {
    padded_bytes(entry.key.len(), entry.body.len())
        .filter(|bytes| *bytes <= ENTRY_BYTES_MAX)
        .ok_or(TierFault::TooLong)
}

fn place(slot: u32, offset_bytes: u64, bytes: usize) -> Result<Place, TierFault> {
    let unit = UNIT_BYTES as u64;
    let units = |bytes: u64| u32::try_from(bytes / unit).map_err(|_| TierFault::TooLong);
    Ok(Place {
        slot,
        offset_units: units(offset_bytes)?,
        units: units(bytes as u64)?,
    })
}

fn offset_bytes(place: Place) -> u64 {
    u64::from(place.offset_units) * UNIT_BYTES as u64
}

/// Makes the directory, and removes segments in it.
fn empty(disk: &dyn Disk, directory: &Path) -> std::io::Result<()> {
    disk.create_directory(directory)?;
    let names = disk.list(directory)?;
    let is_segment = |name: &&String| {
        name.strip_suffix(SUFFIX)
            .is_some_and(|name| name.len() == 16 && u64::from_str_radix(name, 16).is_ok())
    };
    for name in names.iter().filter(is_segment) {
        disk.remove(&directory.join(name))?;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
