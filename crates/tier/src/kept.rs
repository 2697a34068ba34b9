//! Segments that outlive the process: what checkpoints name, and what keeps segments.
//!
//! ```text
//!   checkpoint   hold ─► make_durable ─► about_to_be_in_force ─► manifest ─► in_force
//!   start        open ─► adopt ─► revive, for each stub ─► remove_leftovers
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::sync::atomic::Ordering;
use durability::whole_file;

use crate::dictionary::DictionaryName;
use crate::entry::UNIT_BYTES;
use crate::fault::TierFault;
use crate::hold::Hold;
use crate::segment::{SEGMENT_HEAD_BYTES, Segment, SegmentName};
use crate::tier::{Place, Tier, lock, seal};

/// The files that a checkpoint names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Segments, by ordinal.
    pub segments: Vec<NamedSegment>,
    /// The dictionaries that entries in these segments need, by number.
    pub dictionaries: Vec<DictionaryName>,
}

/// A segment that a checkpoint names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSegment {
    /// Identity of the segment.
    pub name: SegmentName,
    /// Number of its entries that the checkpoint names.
    pub records: u64,
    /// Numbers of the dictionaries that entries in it need.
    pub dictionaries: Vec<u32>,
}

/// Name of the file that contains the directory of the data that names the segments.
const OWNER_NAME: &str = "OWNER";
/// Maximum length of a path.
const OWNER_BYTES_MAX: u64 = 1 << 12;

impl Tier {
    /// Records that the data in a directory names the segments. No other data directory may remove
    /// them.
    ///
    /// # Errors
    /// Those of the system.
    pub fn claim(&self, data: &Path) -> Result<(), TierFault> {
        let data = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
        if self.owner()?.as_ref() == Some(&data) {
            return Ok(());
        }
        let bytes = data.as_os_str().as_bytes();
        let written = whole_file::replace(&*self.disk, &self.directory, OWNER_NAME, bytes);
        written.map(drop).map_err(|cause| TierFault::System {
            path: self.directory.join(OWNER_NAME),
            cause,
        })
    }

    /// Returns the directory of the data that last named segments here, or `None` if there is none.
    ///
    /// # Errors
    /// Those of the system.
    pub fn owner(&self) -> Result<Option<PathBuf>, TierFault> {
        let path = self.directory.join(OWNER_NAME);
        let found = whole_file::read(&*self.disk, &path, OWNER_BYTES_MAX);
        match found {
            Ok(bytes) => Ok(bytes.map(|bytes| PathBuf::from(OsString::from_vec(bytes)))),
            Err(cause) => Err(TierFault::System { path, cause }),
        }
    }

    /// Adopts the segments that a checkpoint in force names, of this process or an earlier one,
    /// with their dictionaries. They stay until another checkpoint is [in force](Tier::in_force).
    ///
    /// # Errors
    /// If a segment is missing, too short, or another one. The existing files are left unchanged.
    pub fn adopt(&self, named: &Named) -> Result<(), TierFault> {
        // Held until the segments have shares in them.
        let dictionaries = self.adopt_dictionaries(&named.dictionaries)?;
        let mut slots = lock(&self.slots);
        for one in &named.segments {
            let name = &one.name;
            let segment = match slots.of_ordinal(name.ordinal) {
                Some(there) => Arc::clone(there),
                None => {
                    let path = self.path(name.ordinal);
                    let needed = one.dictionaries.iter();
                    let shares = needed.map(|number| dictionaries.get(number).cloned());
                    let shares = shares.collect::<Option<_>>();
                    let shares = shares.ok_or(TierFault::Damaged {
                        ordinal: name.ordinal,
                        offset_bytes: 0,
                        what: "a dictionary that it needs is not named",
                    })?;
                    let codecs = (&self.codecs, shares);
                    slots.add(Segment::open(&*self.disk, path, *name, codecs)?)?
                }
            };
            let is = segment.name();
            if is.salt != name.salt || is.bytes < name.bytes {
                return Err(TierFault::Damaged {
                    ordinal: name.ordinal,
                    offset_bytes: 0,
                    what: "it is another segment",
                });
            }
            segment.is_named.store(true, Ordering::Release);
            slots.leftovers.remove(&name.ordinal);
        }
        Ok(())
    }

    /// Removes the files of an earlier process that were not requested. Returns their number.
    ///
    /// # Errors
    /// Those of the system. The remaining files are removed at the next start.
    pub fn remove_leftovers(&self) -> Result<usize, TierFault> {
        let leftovers = std::mem::take(&mut lock(&self.slots).leftovers);
        for ordinal in &leftovers {
            let path = self.path(*ordinal);
            let removed = self.disk.remove(&path);
            removed.map_err(|cause| TierFault::System { path, cause })?;
        }
        Ok(leftovers.len() + self.remove_left_dictionaries()?)
    }

    /// Returns the place of an entry that a checkpoint names, in an [adopted](Tier::adopt) segment.
    /// The entry counts as named from now on. Returns `None` if there is no such segment, or it is
    /// shorter.
    #[must_use]
    pub fn revive(&self, ordinal: u64, offset_units: u32, units: u32) -> Option<Place> {
        let slots = lock(&self.slots);
        let segment = slots.of_ordinal(ordinal)?;
        let unit = UNIT_BYTES as u64;
        let (offset, bytes) = (u64::from(offset_units) * unit, u64::from(units) * unit);
        let end = segment.end_bytes.load(Ordering::Acquire);
        if offset < SEGMENT_HEAD_BYTES || bytes == 0 || offset + bytes > end {
            return None;
        }
        segment.live_bytes.fetch_add(bytes, Ordering::AcqRel);
        Some(Place {
            slot: segment.slot,
            offset_units,
            units,
        })
    }

    /// Makes the [held](Hold) entries durable. Returns what a checkpoint has to name for them.
    /// Dictionaries were made durable before any of these entries was written.
    ///
    /// # Errors
    /// Those of the system. A segment that could not be synced never becomes durable: its live
    /// entries are written to another segment.
    pub fn make_durable(&self, hold: &Hold) -> Result<Named, TierFault> {
        let mut segments = Vec::new();
        let mut dictionaries = BTreeMap::new();
        for (segment, entries) in hold.segments() {
            let synced = segment.make_durable();
            if segment.is_untrusted.load(Ordering::Acquire) {
                let mut writer = lock(&self.writer);
                if writer
                    .open
                    .as_ref()
                    .is_some_and(|open| Arc::ptr_eq(open, segment))
                {
                    seal(&mut writer, segment);
                }
            }
            let bytes = synced?;
            let needed = segment.needed();
            segments.push(NamedSegment {
                name: SegmentName {
                    bytes,
                    ..segment.name()
                },
                records: entries,
                dictionaries: needed.iter().map(|one| one.name.number).collect(),
            });
            dictionaries.extend(needed.iter().map(|one| (one.name.number, one.name)));
        }
        segments.sort_by_key(|segment| segment.name.ordinal);
        if !segments.is_empty() {
            let directory = &self.directory;
            let synced = self.disk.sync_directory(directory);
            synced.map_err(|cause| TierFault::System {
                path: directory.clone(),
                cause,
            })?;
        }
        Ok(Named {
            segments,
            dictionaries: dictionaries.into_values().collect(),
        })
    }

    /// Must be called before a checkpoint that names these segments comes into force. They stay,
    /// and so do those of the checkpoint before, until it is known which of the two is in force.
    pub fn about_to_be_in_force(&self, hold: &Hold) {
        for (segment, _) in hold.segments() {
            segment.is_named.store(true, Ordering::Release);
        }
    }

    /// Records that a checkpoint is in force that names exactly these segments.
    pub fn in_force(&self, ordinals: &BTreeSet<u64>) {
        for segment in lock(&self.slots).all() {
            let is_named = ordinals.contains(&segment.ordinal);
            segment.is_named.store(is_named, Ordering::Release);
        }
    }

    /// Makes a [`Hold`] keep the segment in a slot, for one more entry. Returns its ordinal. The
    /// segment must already be pinned, or a stub that is locked meanwhile must name an entry in it.
    #[must_use]
    pub fn hold(&self, hold: &mut Hold, slot: u32) -> Option<u64> {
        if let Some(ordinal) = hold.again(slot) {
            return Some(ordinal);
        }
        let segment = self.segment(slot).ok()?;
        Some(hold.take(segment))
    }
}
