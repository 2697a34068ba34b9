//! Values in segments of the tier, as checkpoints record them: not the value, but where it is.
//!
//! ```text
//!   0         8           12      16     20     21  24
//!   │ ordinal │ offset    │ units │ len  │ kind │ 0 │
//!   │ u64     │ u32 units │ u32   │ u32  │ u8   │   │     the body of a record of type 254
//! ```
//!
//! `len` is the length of the string in bytes, or the number of elements. The segments are kept by
//! the checkpoint's [`Hold`] while it is made, and then by its manifest.

use std::collections::BTreeSet;
use std::io;

use base::record_head::{COLD, RecordHead};
use durability::checkpoint::{DictionaryEntry, Manifest, PartWriter, SegmentEntry};
use store::{ColdKind, Handle, Key, Locator, Saved, SavedCold};
use tier::{DictionaryName, Hold, Named, NamedSegment, Place, SegmentName, Tier, TierFault};

use crate::bodies::{BodyFault, Existing};

/// Length of a body in bytes.
const BODY_BYTES: usize = 24;

/// Returns the place of a locator's entry.
#[must_use]
pub fn place_of(locator: Locator) -> Place {
    Place {
        slot: locator.slot(),
        offset_units: locator.offset_units(),
        units: locator.units(),
    }
}

/// Returns the locator of an entry for a stub, or `None` if it does not fit.
#[must_use]
pub fn locator_of(place: Place, kind: ColdKind) -> Option<Locator> {
    Locator::new(place.units, kind, place.slot, place.offset_units)
}

/// The place of a value, independent of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptPlace {
    pub(crate) ordinal: u64,
    pub(crate) offset_units: u32,
    pub(crate) units: u32,
    len: u32,
    kind: ColdKind,
}

impl KeptPlace {
    fn encode(self) -> [u8; BODY_BYTES] {
        let mut body = [0; BODY_BYTES];
        body[..8].copy_from_slice(&self.ordinal.to_le_bytes());
        for (at, number) in [(8, self.offset_units), (12, self.units), (16, self.len)] {
            body[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        body[20] = self.kind.number();
        body
    }

    /// Decodes a body; `None` if no checkpoint has such a body.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let (ordinal, rest) = body.split_first_chunk()?;
        let (offset_units, rest) = rest.split_first_chunk()?;
        let (units, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let [kind, 0, 0, 0] = rest else {
            return None;
        };
        Some(Self {
            ordinal: u64::from_le_bytes(*ordinal),
            offset_units: u32::from_le_bytes(*offset_units),
            units: u32::from_le_bytes(*units),
            len: u32::from_le_bytes(*len),
            kind: ColdKind::from_number(*kind)?,
        })
    }
}

/// Writes a record that refers to its value's place. `hold` keeps the value there.
///
/// # Errors
/// Those of the system.
pub(crate) fn write(
    tier: &Tier,
    hold: &mut Hold,
    (saved, cold): (&Saved<'_>, &SavedCold),
    writer: &mut PartWriter,
) -> io::Result<()> {
    let place = place_of(cold.locator());
    let gone = || io::Error::other("a segment of the tier is gone");
    let ordinal = tier.hold(hold, place.slot).ok_or_else(gone)?;
    let kept = KeptPlace {
        ordinal,
        offset_units: place.offset_units,
        units: place.units,
        len: u32::try_from(cold.len()).map_err(io::Error::other)?,
        kind: cold.locator().kind(),
    };
    let head = RecordHead {
        database: saved.database,
        type_code: COLD,
        deadline_unix_ms: saved.deadline_unix_ms,
        etag: saved.etag,
    };
    let body = kept.encode();
    writer.record(&head, saved.key, body.len() as u64, [&body[..]])
}

/// Sets a key to the value that a record refers to.
///
/// # Errors
/// [`BodyFault`]; the store is unchanged.
pub fn put(
    tier: Option<&Tier>,
    store: &mut Handle,
    key: &Key<'_>,
    (head, body): (&RecordHead, &[u8]),
    existing: Existing,
) -> Result<(), BodyFault> {
    let kept = KeptPlace::decode(body).ok_or(BodyFault::Place)?;
    let place = tier.and_then(|tier| tier.revive(kept.ordinal, kept.offset_units, kept.units));
    let place = place.ok_or(BodyFault::Place)?;
    let forget = || {
        if let Some(tier) = tier {
            tier.forget(place);
        }
    };
    let Some(locator) = locator_of(place, kept.kind) else {
        forget();
        return Err(BodyFault::Place);
    };
    store.modify(key, |entry| {
        if entry.is_present() && existing == Existing::Refused {
            forget();
            return Err(BodyFault::Twice);
        }
        Ok(entry.set_cold(locator, kept.len, head.deadline_unix_ms, head.etag)?)
    })
}

/// Adds what a checkpoint names of the tier to its manifest.
pub(crate) fn note(named: &Named, manifest: &mut Manifest) {
    let segments = named.segments.iter().map(|segment| SegmentEntry {
        ordinal: segment.name.ordinal,
        bytes: segment.name.bytes,
        salt: segment.name.salt,
        records: segment.records,
        dictionaries: segment.dictionaries.clone(),
    });
    manifest.segments = segments.collect();
    let dictionaries = named.dictionaries.iter().map(|one| DictionaryEntry {
        number: one.number,
        bytes: one.bytes,
        sum: one.sum,
    });
    manifest.dictionaries = dictionaries.collect();
}

/// Adopts the segments that a manifest names, and their dictionaries.
///
/// # Errors
/// [`TierFault`] if one of them is invalid.
pub(crate) fn adopt(tier: &Tier, manifest: &Manifest) -> Result<(), TierFault> {
    let segments = manifest.segments.iter().map(|segment| NamedSegment {
        name: SegmentName {
            ordinal: segment.ordinal,
            salt: segment.salt,
            bytes: segment.bytes,
        },
        records: segment.records,
        dictionaries: segment.dictionaries.clone(),
    });
    let dictionaries = manifest.dictionaries.iter().map(|one| DictionaryName {
        number: one.number,
        bytes: one.bytes,
        sum: one.sum,
    });
    tier.adopt(&Named {
        segments: segments.collect(),
        dictionaries: dictionaries.collect(),
    })
}

/// Notes that a manifest is in force.
pub fn in_force(tier: &Tier, manifest: &Manifest) {
    let ordinals = manifest.segments.iter().map(|segment| segment.ordinal);
    tier.in_force(&ordinals.collect::<BTreeSet<_>>());
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_these_bytes_and_no_others() {
        let kept = KeptPlace {
            ordinal: 0x0102_0304_0506_0708,
            offset_units: 256,
            units: 70,
            len: 1_000,
            kind: ColdKind::CHANGED_BYTES,
        };
        // The golden vector of docs/formats/checkpoint.md.
        let body = [
            8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 0, 0, 70, 0, 0, 0, 232, 3, 0, 0, 1, 0, 0, 0,
        ];
        assert_eq!(kept.encode(), body);
        assert_eq!(KeptPlace::decode(&body), Some(kept));
        for len in 0..body.len() {
            assert_eq!(KeptPlace::decode(&body[..len]), None);
        }
        let long = [&body[..], &[0]].concat();
        assert_eq!(KeptPlace::decode(&long), None);
        for (at, byte) in [(20, 12), (21, 1), (23, 1)] {
            let mut other = body;
            other[at] = byte;
            assert_eq!(KeptPlace::decode(&other), None, "byte {at}");
        }
    }
}
