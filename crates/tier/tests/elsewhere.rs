//! Entries whose bytes the caller reads are checked like those that the tier reads.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use durability::disk::{Disk, SystemDisk};
use durability::simulated::SimulatedDisk;
use tier::{Compression, Entry, EntryRead, Place, Tier, TierOptions};

/// A directory that is removed on drop.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

fn tier(disk: Arc<dyn Disk>, directory: &Path) -> Tier {
    let options = TierOptions {
        directory: directory.to_owned(),
        bytes_max: 1 << 30,
        segment_bytes: 64 << 10,
    };
    let tier = Tier::open(disk, &options).unwrap();
    tier.set_compression(Compression::No);
    tier
}

fn append(tier: &Tier, key: &[u8], body: &[u8]) -> (Place, u64) {
    let entry = Entry {
        kind: 2,
        keyspace: 7,
        key,
        body,
    };
    let place = tier.append(&entry).unwrap();
    (place, tier.ordinal(place.slot).unwrap())
}

/// Reads the extent of an entry. Returns the bytes, and where they begin.
fn read(entry: &EntryRead) -> (Vec<u8>, u64) {
    let extent = entry.extent().unwrap();
    // Into page-aligned memory, as a read that bypasses the cache needs it.
    let mut bytes = base::page_buffer::PageBuffer::new(extent.bytes).unwrap();
    let count = extent
        .file
        .read_at(&mut bytes, extent.offset_bytes)
        .unwrap();
    (bytes[..count].to_vec(), extent.offset_bytes)
}

#[test]
fn an_entry_is_found_in_what_was_read_before_and_after_its_segment_is_settled() {
    let path = std::env::temp_dir().join(format!("iolite-elsewhere-{}", std::process::id()));
    let directory = Directory(path);
    let tier = tier(Arc::new(SystemDisk), &directory.0);
    let bodies: Vec<_> = (0..40_u8).map(|number| vec![number; 5_000]).collect();
    let kept: Vec<_> = bodies
        .iter()
        .map(|body| append(&tier, &body[..1], body))
        .collect();
    for is_settled in [false, true] {
        while is_settled && tier.settle_next() {}
        for ((place, ordinal), body) in kept.iter().zip(&bodies) {
            let entry = tier.entry_elsewhere(*place, *ordinal).unwrap();
            let (bytes, from) = read(&entry);
            let found = entry.entry(&bytes, from, &body[..1]).unwrap();
            assert_eq!((found.kind, found.keyspace, &found.body), (2, 7, body));
            let others = entry.entry(&bytes, from, b"other");
            assert!(others.is_err_and(|fault| fault.is_damage()));
            for short in [0, 10, 4_000] {
                assert!(entry.entry(&bytes[..short], from, &body[..1]).is_err());
            }
            let mut flipped = bytes.clone();
            let inside = usize::try_from(u64::from(place.offset_units) * 16 - from).unwrap();
            flipped[inside + 100] ^= 1;
            assert!(entry.entry(&flipped, from, &body[..1]).is_err());
            // As if the bytes were read at another place.
            assert!(entry.entry(&bytes, from + 16, &body[..1]).is_err());
        }
    }
    let (place, ordinal) = kept[0];
    assert!(tier.entry_elsewhere(place, ordinal + 1).is_none());
}

#[test]
fn a_device_that_is_not_the_systems_has_nothing_to_be_read_elsewhere() {
    let disk = Arc::new(SimulatedDisk::new(1));
    let tier = tier(disk, Path::new("/tier"));
    let (place, ordinal) = append(&tier, b"key", &[7; 50_000]);
    append(&tier, b"next", &[7; 50_000]);
    assert!(tier.settle_next());
    assert!(!tier.settle_next(), "the other one is being written");
    let entry = tier.entry_elsewhere(place, ordinal).unwrap();
    assert!(entry.extent().is_none());
}
