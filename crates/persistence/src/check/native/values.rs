//! The values in segments of a tier to which a checkpoint refers: each is read, and checked against
//! its sum and its key.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::record_head::COLD;
use durability::checkpoint::{Manifest, Record, open_part};
use durability::disk::SystemDisk;
use tier::{DIRECTORY_NAME, Tier, TierOptions};

use crate::places::{self, KeptPlace};

/// Reads all of them; returns their number. The segments are beside the data, or at one of the
/// given paths.
pub(super) fn check(data: &Path, others: &[PathBuf], manifest: &Manifest) -> Result<u64, String> {
    let directory = find(data, others).ok_or_else(|| {
        let records: u64 = manifest.segments.iter().map(|segment| segment.records).sum();
        format!(
            "{records} values are in a tier, which is not beside it: give the directory of its segments as well"
        )
    })?;
    let options = TierOptions {
        directory,
        bytes_max: 0,
        segment_bytes: 0,
    };
    let tier =
        Tier::open_to_read(Arc::new(SystemDisk), &options).map_err(|fault| fault.to_string())?;
    places::adopt(&tier, manifest).map_err(|fault| fault.to_string())?;
    let mut read = 0;
    for number in 0..manifest.parts.len() {
        let part = open_part(&SystemDisk, data, manifest, number);
        let mut part = part.map_err(|fault| fault.to_string())?;
        while let Some(block) = part.next_block().map_err(|fault| fault.to_string())? {
            let named = block
                .records()
                .filter(|record| record.head.type_code == COLD);
            for record in named {
                read_value(&tier, &record)?;
                read += 1;
            }
        }
    }
    Ok(read)
}

fn read_value(tier: &Tier, record: &Record<'_>) -> Result<(), String> {
    let name = record.key.escape_ascii();
    let kept = KeptPlace::decode(record.body);
    let kept = kept.ok_or_else(|| format!("the key '{name}' has no place in the tier"))?;
    let place = tier.revive(kept.ordinal, kept.offset_units, kept.units);
    let place = place.ok_or_else(|| format!("the value of '{name}' is in no segment"))?;
    let read = tier.read(place, record.key);
    read.map(drop)
        .map_err(|fault| format!("the value of '{name}': {fault}"))
}

/// Returns the directory of the segments: beside the data, or one of the given paths.
fn find(data: &Path, others: &[PathBuf]) -> Option<PathBuf> {
    let above = data.parent().map(|above| above.join(DIRECTORY_NAME));
    let given = others
        .iter()
        .flat_map(|path| [path.clone(), path.join(DIRECTORY_NAME)]);
    let mut all = above.into_iter().chain(given);
    all.find(|path| holds_segments(path))
}

/// Whether a directory has segments of a tier.
pub(super) fn holds_segments(directory: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return false;
    };
    let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.any(|name| tier::is_segment_name(&name))
}
