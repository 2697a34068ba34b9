//! The tier on a simulated device: a read returns what was written, or an error.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use base::random::Prng;
use durability::disk::Disk;
use durability::simulated::{Fault, SimulatedDisk};
use tier::{
    Compression, Entry, EntryHead, Hold, Named, Place, SegmentName, Tier, TierFault, TierOptions,
};

fn tier(disk: &Arc<SimulatedDisk>, bytes_max: u64) -> Tier {
    disk.create_directory(Path::new("disk")).unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    let options = TierOptions {
        directory: "disk/tier".into(),
        bytes_max,
        segment_bytes: 64 << 10,
    };
    let tier = Tier::open(Arc::clone(disk) as Arc<dyn Disk>, &options).unwrap();
    // The bodies of these tests would be short otherwise.
    tier.set_compression(Compression::No);
    tier
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
    tier.pin(places[0].slot);
    for place in &places {
        tier.forget(*place);
    }
    let removed = tier.remove_dead() as u64;
    assert_eq!(removed, before.segments - 2, "the pinned and the open one");
    assert_eq!(tier.figures().live_bytes, 0);
    assert_eq!(tier.read(places[0], &[0]).unwrap().body, bodies);
    tier.unpin(places[0].slot);
    assert_eq!(tier.remove_dead(), 1, "all but the open one");
    assert!(matches!(
        tier.read(places[0], &[0]),
        Err(TierFault::NoSegment { .. })
    ));
    let names = disk.list(Path::new("disk/tier")).unwrap();
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

/// A batch that failed as a whole would fill the freed space with useless entries again and again.
#[test]
fn of_a_batch_that_is_longer_than_the_room_there_is_the_first_entries_are_written() {
    let disk = Arc::new(SimulatedDisk::new(1));
    let tier = tier(&disk, 256 << 10);
    let body = vec![7; 20_000];
    let keys: Vec<_> = (0..30_u8).map(|number| [number]).collect();
    let entries: Vec<_> = keys.iter().map(|key| entry(key, &body)).collect();
    let places = tier.append_all(&entries).unwrap();
    assert!(
        (1..entries.len()).contains(&places.len()),
        "{}",
        places.len()
    );
    for (place, key) in places.iter().zip(&keys) {
        assert_eq!(tier.read(*place, key).unwrap().body, body);
    }
    let none = tier.append_all(&entries[places.len()..]);
    assert!(matches!(none, Err(TierFault::Full)), "{none:?}");
    // The space of one segment is freed, so some more entries fit.
    for place in &places[..3] {
        tier.forget(*place);
    }
    assert_eq!(tier.remove_dead(), 1);
    let more = tier.append_all(&entries[places.len()..]).unwrap();
    assert_eq!(more.len(), 3);
}

#[test]
fn a_full_tier_of_which_most_is_in_use_is_compacted_and_goes_on() {
    let disk = Arc::new(SimulatedDisk::new(12));
    let tier = tier(&disk, 20 * (64 << 10));
    let body = vec![1; 1_000];
    let mut random = Prng::seeded(13);
    // Seven tenths of the tier are in use, and overwritten entries are spread everywhere.
    let mut named: HashMap<Vec<u8>, Place> = HashMap::new();
    let mut rewritten = 0;
    for round in 0..6_000_u32 {
        let number = if round < 850 {
            round
        } else {
            u32::try_from(random.index(850)).unwrap()
        };
        let key = number.to_le_bytes().to_vec();
        let place = loop {
            match tier.append(&entry(&key, &body)) {
                Ok(place) => break place,
                Err(TierFault::Full) => rewritten += compact_least(&tier, &mut named),
                Err(fault) => panic!("{fault}"),
            }
        };
        if let Some(old) = named.insert(key, place) {
            tier.forget(old);
        }
        tier.remove_dead();
    }
    assert!(rewritten > 0);
    let figures = tier.figures();
    assert!(figures.used_bytes <= 20 * (64 << 10));
    for (key, place) in &named {
        assert_eq!(tier.read(*place, key).unwrap().body, body);
    }
    // Bytes written per requested byte. The design expects 1.9 for uniform overwrites.
    let amplification =
        figures.written_bytes * 100 / (figures.written_bytes - figures.compacted_bytes);
    assert!(amplification < 300, "{amplification}");
}

/// Compacts the segment with the smallest live part.
fn compact_least(tier: &Tier, named: &mut HashMap<Vec<u8>, Place>) -> u64 {
    let slot = tier.next_to_compact(95).unwrap();
    let named = std::cell::RefCell::new(named);
    let moved = tier.compact(
        slot,
        |entry, place| named.borrow().get(entry.key) == Some(&place),
        |entry, _, new| named.borrow_mut().insert(entry.key.to_vec(), new).is_some(),
    );
    assert_eq!(tier.remove_dead(), 1);
    moved.unwrap()
}

#[test]
fn what_an_earlier_process_left_is_removed_and_nothing_else() {
    let disk = Arc::new(SimulatedDisk::new(5));
    let first = tier(&disk, 1 << 30);
    first.append(&entry(b"key", b"value")).unwrap();
    disk.create(Path::new("disk/tier/notes.txt")).unwrap();
    drop(first);
    let again = tier(&disk, 1 << 30);
    assert_eq!(again.figures().segments, 0);
    assert!(again.has_leftovers(), "a checkpoint may name it");
    assert_eq!(again.remove_leftovers().unwrap(), 1);
    assert_eq!(disk.list(Path::new("disk/tier")).unwrap(), ["notes.txt"]);
}

/// Makes a checkpoint of these places. Returns what it names.
fn keep(tier: &Tier, places: &[Place]) -> Named {
    let mut hold = Hold::default();
    for place in places {
        tier.hold(&mut hold, place.slot).unwrap();
    }
    let named = tier.make_durable(&hold).unwrap();
    let entries: u64 = named.segments.iter().map(|one| one.records).sum();
    assert_eq!(entries, places.len() as u64);
    tier.about_to_be_in_force(&hold);
    let ordinals = named.segments.iter().map(|one| one.name.ordinal);
    tier.in_force(&ordinals.collect());
    named
}

#[test]
fn what_a_checkpoint_names_outlives_the_process_and_a_power_cut() {
    let disk = Arc::new(SimulatedDisk::new(6));
    let first = tier(&disk, 1 << 30);
    let body = vec![9; 10_000];
    let place_of = |number: u8| first.append(&entry(&[number], &body)).unwrap();
    let places: Vec<Place> = (0..30).map(place_of).collect();
    let ordinals: Vec<u64> = places
        .iter()
        .map(|place| first.ordinal(place.slot).unwrap())
        .collect();
    let names = keep(&first, &places[..20]);
    for place in &places {
        first.forget(*place);
    }
    let before = first.figures();
    first.remove_dead();
    assert_eq!(first.figures().segments, names.segments.len() as u64 + 1);
    assert!(before.kept_bytes > 0);
    for (number, place) in (0..20).zip(&places) {
        assert_eq!(first.read(*place, &[number]).unwrap().body, body);
    }
    let disk = Arc::new(disk.crash(7));
    let again = tier(&disk, 1 << 30);
    again.adopt(&names).unwrap();
    again.remove_leftovers().unwrap();
    for (number, (place, ordinal)) in (0..20).zip(places.iter().zip(&ordinals)) {
        let revived = again.revive(*ordinal, place.offset_units, place.units);
        let read = again.read(revived.unwrap(), &[number]).unwrap();
        assert_eq!(read.body, body);
    }
    assert_eq!(again.revive(ordinals[0], 1 << 21, 1), None, "past its end");
    assert_eq!(again.revive(999, 256, 1), None, "no such segment");
    let new = again.append(&entry(b"new", &body)).unwrap();
    let ordinal = again.ordinal(new.slot).unwrap();
    assert!(ordinal > *ordinals.last().unwrap(), "a name is used once");
    again.adopt(&names).unwrap();
    assert_eq!(again.scrub().1.len(), 0);
}

#[test]
fn what_is_missing_short_or_another_segment_is_refused() {
    let disk = Arc::new(SimulatedDisk::new(8));
    let first = tier(&disk, 1 << 30);
    let place = first.append(&entry(b"key", &[1; 5_000])).unwrap();
    let names = keep(&first, &[place]);
    drop(first);
    let refused = |name: SegmentName| {
        let mut other = names.clone();
        other.segments[0].name = name;
        let fault = tier(&disk, 1 << 30).adopt(&other).unwrap_err();
        fault.to_string()
    };
    let name = names.segments[0].name;
    let long = SegmentName {
        bytes: name.bytes + 16,
        ..name
    };
    assert!(refused(long).contains("it ends too soon"));
    let other = SegmentName {
        salt: name.salt ^ 1,
        ..name
    };
    assert!(refused(other).contains("it is another segment"));
    let missing = SegmentName {
        ordinal: name.ordinal + 1,
        ..name
    };
    assert!(refused(missing).contains("0000000000000002.seg"));
    tier(&disk, 1 << 30).adopt(&names).unwrap();
}

#[test]
fn a_segment_that_could_not_be_synced_is_named_by_no_checkpoint_and_written_elsewhere() {
    let disk = Arc::new(SimulatedDisk::new(9));
    let tier = tier(&disk, 1 << 30);
    let place = tier.append(&entry(b"key", &[1; 5_000])).unwrap();
    let mut hold = Hold::default();
    tier.hold(&mut hold, place.slot).unwrap();
    let now = disk.operations();
    disk.fail(now..now + 1, Fault::Device);
    assert!(tier.make_durable(&hold).is_err());
    disk.heal();
    assert!(
        tier.make_durable(&hold).is_err(),
        "asking again tells nothing"
    );
    let slot = tier.next_to_compact(50).unwrap();
    assert_eq!(slot, place.slot);
    let mut moved = None;
    let is_moved = |_: &EntryHead<'_>, _, new| moved.replace(new).is_none();
    assert_eq!(tier.compact(slot, |_, _| true, is_moved).unwrap(), 1);
    let mut hold = Hold::default();
    tier.hold(&mut hold, moved.unwrap().slot).unwrap();
    assert_eq!(tier.make_durable(&hold).unwrap().segments.len(), 1);
}

#[test]
fn what_was_cut_off_a_file_is_damage_and_not_waited_for() {
    let disk = Arc::new(SimulatedDisk::new(11));
    let tier = tier(&disk, 1 << 30);
    tier.append(&entry(b"key", &[1; 5_000])).unwrap();
    let path = tier.directory().join(tier::segment_name(1));
    let file = disk.open_for_writing(&path).unwrap();
    for bytes in [4096 + 4_000, 4096 + 20, 4096] {
        file.set_len(bytes).unwrap();
        let (_, faults) = tier.scrub();
        assert!(faults[0].is_damage(), "{bytes}: {}", faults[0]);
    }
}

#[test]
fn compressed_values_are_read_moved_and_kept_as_they_were() {
    let disk = Arc::new(SimulatedDisk::new(10));
    let tier = tier(&disk, 1 << 30);
    tier.set_compression(Compression::Auto);
    let mut named = HashMap::new();
    for number in 0..200_u8 {
        let body = format!("{number} and more of it, ").repeat(200);
        let place = tier.append(&entry(&[number], body.as_bytes())).unwrap();
        if number % 3 == 0 {
            named.insert(vec![number], (place, body));
        } else {
            tier.forget(place);
        }
    }
    let figures = tier.figures();
    assert!(figures.written_bytes * 5 < figures.raw_bytes, "{figures:?}");
    // An entry that does not fit into the open segment seals it.
    tier.set_compression(Compression::No);
    let filler = tier.append(&entry(b"filler", &[1; 60_000])).unwrap();
    while let Some(slot) = tier.next_to_compact(50) {
        let names = std::cell::RefCell::new(&mut named);
        tier.compact(
            slot,
            |head, place| {
                names
                    .borrow()
                    .get(head.key)
                    .is_some_and(|kept| kept.0 == place)
            },
            |head, _, new| {
                names
                    .borrow_mut()
                    .get_mut(head.key)
                    .map(|kept| kept.0 = new)
                    .is_some()
            },
        )
        .unwrap();
        tier.remove_dead();
    }
    assert!(tier.figures().compacted_bytes > 0);
    for (key, (place, body)) in &named {
        assert_eq!(tier.read(*place, key).unwrap().body, body.as_bytes());
    }
    assert_eq!(tier.read(filler, b"filler").unwrap().body, [1; 60_000]);
}
