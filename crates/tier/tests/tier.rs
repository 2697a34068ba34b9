//! The tier over a simulated device: what is read is what was written, or an error.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use base::random::Prng;
use durability::disk::Disk;
use durability::simulated::SimulatedDisk;
use tier::{Entry, Place, Tier, TierFault, TierOptions};

fn tier(disk: &Arc<SimulatedDisk>, bytes_max: u64) -> Tier {
    let options = TierOptions {
        directory: "tier".into(),
        bytes_max,
        segment_bytes: 64 << 10,
    };
    Tier::open(Arc::clone(disk) as Arc<dyn Disk>, &options).unwrap()
}

fn entry<'e>(key: &'e [u8], body: &'e [u8]) -> Entry<'e> {
    Entry {
        kind: 2,
        keyspace: 7,
        key,
        body,
    }
}

#[test]
fn entries_come_back_over_many_segments_and_long_ones_too() {
    let disk = Arc::new(SimulatedDisk::new(1));
    let tier = tier(&disk, 1 << 30);
    let mut random = Prng::seeded(5);
    let mut kept: Vec<(Vec<u8>, Vec<u8>, Place)> = Vec::new();
    for number in 0..300_u32 {
        let key = number.to_le_bytes().to_vec();
        let len = if number % 50 == 0 {
            200_000
        } else {
            random.index(3_000)
        };
        let body = vec![key[0]; len];
        let place = tier.append(&entry(&key, &body)).unwrap();
        kept.push((key, body, place));
    }
    assert!(tier.figures().segments > 10);
    for (key, body, place) in &kept {
        let read = tier.read(*place, key).unwrap();
        assert_eq!((read.kind, read.keyspace, &read.body), (2, 7, body));
        let other = tier.read(*place, b"other");
        assert!(other.is_err_and(|fault| fault.is_damage()));
    }
    assert_eq!(tier.scrub().0, 300);
    assert!(tier.scrub().1.is_empty());
}

#[test]
fn what_nothing_names_goes_and_what_is_pinned_stays() {
    let disk = Arc::new(SimulatedDisk::new(2));
    let tier = tier(&disk, 1 << 30);
    let bodies = vec![7; 10_000];
    let places: Vec<Place> = (0..30_u8)
        .map(|number| tier.append(&entry(&[number], &bodies)).unwrap())
        .collect();
    let before = tier.figures();
    tier.pin();
    for place in &places {
        tier.forget(*place);
    }
    assert_eq!((tier.remove_dead(), tier.figures().live_bytes), (0, 0));
    assert_eq!(tier.read(places[0], &[0]).unwrap().body, bodies);
    tier.unpin();
    let removed = tier.remove_dead();
    assert_eq!(removed as u64, before.segments - 1, "all but the open one");
    assert!(matches!(
        tier.read(places[0], &[0]),
        Err(TierFault::NoSegment { .. })
    ));
    let names = disk.list(Path::new("tier")).unwrap();
    assert_eq!(names.len(), 1);
}

#[test]
fn compaction_moves_what_is_named_and_frees_the_rest() {
    let disk = Arc::new(SimulatedDisk::new(3));
    let tier = tier(&disk, 1 << 30);
    let mut named = HashMap::new();
    for number in 0..200_u8 {
        let body = vec![number; 5_000];
        let place = tier.append(&entry(&[number], &body)).unwrap();
        if number % 5 == 0 {
            named.insert(vec![number], place);
        } else {
            tier.forget(place);
        }
    }
    let before = tier.figures();
    while let Some(slot) = tier.next_to_compact(50) {
        let names = std::cell::RefCell::new(&mut named);
        tier.compact(
            slot,
            |entry, place| names.borrow().get(entry.key) == Some(&place),
            |entry, _, new| names.borrow_mut().insert(entry.key.to_vec(), new).is_some(),
        )
        .unwrap();
        assert_eq!(tier.remove_dead(), 1);
    }
    let after = tier.figures();
    assert_eq!(after.live_bytes, before.live_bytes);
    assert!(after.used_bytes * 2 < before.used_bytes, "{after:?}");
    for (key, place) in &named {
        assert_eq!(tier.read(*place, key).unwrap().body, vec![key[0]; 5_000]);
    }
}

#[test]
fn a_full_tier_says_so_and_goes_on_when_there_is_room() {
    let disk = Arc::new(SimulatedDisk::new(4));
    let tier = tier(&disk, 200 << 10);
    let body = vec![1; 30_000];
    let mut places = Vec::new();
    let fault = loop {
        match tier.append(&entry(b"key", &body)) {
            Ok(place) => places.push(place),
            Err(fault) => break fault,
        }
    };
    assert!(matches!(fault, TierFault::Full));
    assert!(places.len() >= 4);
    assert!(tier.figures().used_bytes <= 200 << 10);
    for place in places {
        tier.forget(place);
    }
    assert!(tier.remove_dead() > 0);
    assert!(tier.append(&entry(b"key", &body)).is_ok());
}

#[test]
fn what_an_earlier_process_left_is_removed_and_nothing_else() {
    let disk = Arc::new(SimulatedDisk::new(5));
    let first = tier(&disk, 1 << 30);
    first.append(&entry(b"key", b"value")).unwrap();
    disk.create(Path::new("tier/notes.txt")).unwrap();
    drop(first);
    let again = tier(&disk, 1 << 30);
    assert_eq!(again.figures().segments, 0);
    assert_eq!(disk.list(Path::new("tier")).unwrap(), ["notes.txt"]);
}
