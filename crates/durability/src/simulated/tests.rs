//! What the simulated device promises, and that it keeps nothing else.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::collections::BTreeSet;

use super::*;

/// Enough seeds for every outcome of a crash below.
const SEEDS: Range<u64> = 0..600;

fn content(disk: &SimulatedDisk, path: &str) -> Option<Vec<u8>> {
    let file = disk.open(Path::new(path)).ok()?;
    let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
    let read = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(read, bytes.len());
    Some(bytes)
}

/// Creates a file with this content, durable in every respect.
fn durable_file(disk: &SimulatedDisk, path: &str, bytes: &[u8]) -> Box<dyn DiskFile> {
    let file = disk.create(Path::new(path)).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
    disk.sync_directory(Path::new(path).parent().unwrap())
        .unwrap();
    file
}

/// Returns what is found at a path after each of the crashes.
fn found_after_crashes(disk: &SimulatedDisk, path: &str) -> BTreeSet<Option<Vec<u8>>> {
    let crashes = SEEDS.map(|seed| content(&disk.crash(seed), path));
    crashes.collect()
}

#[test]
fn what_was_synced_survives_every_crash() {
    let disk = SimulatedDisk::new(1);
    durable_file(&disk, "a", b"kept");
    let found = found_after_crashes(&disk, "a");
    assert_eq!(found, BTreeSet::from([Some(b"kept".to_vec())]));
}

#[test]
fn a_write_that_was_not_synced_arrives_in_part_or_not_at_all() {
    let disk = SimulatedDisk::new(1);
    let file = durable_file(&disk, "a", &[1; 2048]);
    file.write_at(&[2; 2048], 0).unwrap();
    let found = found_after_crashes(&disk, "a");
    let sectors: BTreeSet<Vec<u8>> = found
        .iter()
        .map(|bytes| {
            let bytes = bytes.as_ref().unwrap();
            assert_eq!(bytes.len(), 2048, "only the bytes were written");
            bytes
                .chunks(512)
                .map(|sector| {
                    assert!(sector.iter().all(|byte| *byte == sector[0]), "not torn");
                    sector[0]
                })
                .collect()
        })
        .collect();
    assert_eq!(sectors.len(), 16, "any subset of four sectors: {sectors:?}");
}

#[test]
fn later_writes_may_survive_without_earlier_ones() {
    let disk = SimulatedDisk::new(1);
    let file = durable_file(&disk, "a", &[0; 8192]);
    file.write_at(&[1; 4096], 0).unwrap();
    file.write_at(&[2; 4096], 4096).unwrap();
    let found = found_after_crashes(&disk, "a");
    let mut whole = vec![0; 4096];
    whole.extend([2; 4096]);
    assert!(found.contains(&Some(whole)));
}

#[test]
fn a_length_survives_without_its_bytes_and_bytes_without_their_length() {
    let disk = SimulatedDisk::new(1);
    let file = durable_file(&disk, "a", b"");
    file.write_at(&[7; 1024], 0).unwrap();
    let found: Vec<Vec<u8>> = found_after_crashes(&disk, "a")
        .into_iter()
        .flatten()
        .collect();
    assert!(found.contains(&vec![]), "forgotten");
    assert!(found.contains(&vec![7; 1024]), "arrived");
    assert!(found.contains(&vec![0; 1024]), "only the length");
    let is_noise = |bytes: &Vec<u8>| bytes.iter().any(|byte| ![0, 7].contains(byte));
    assert!(found.iter().any(is_noise), "what lay there before");
    let torn = [[7; 512], [0; 512]].concat();
    assert!(found.contains(&torn), "the first sector");
}

#[test]
fn old_files_shine_through_where_bytes_did_not_arrive() {
    let disk = SimulatedDisk::new(1);
    durable_file(&disk, "old", &[9; 1024]);
    disk.remove(Path::new("old")).unwrap();
    let file = durable_file(&disk, "a", b"");
    file.write_at(&[7; 1024], 0).unwrap();
    let found = found_after_crashes(&disk, "a");
    assert!(found.contains(&Some(vec![9; 1024])));
}

#[test]
fn room_that_was_allocated_shows_zeroes_only() {
    let disk = SimulatedDisk::new(1);
    let file = durable_file(&disk, "a", b"");
    file.allocate(1024).unwrap();
    file.sync().unwrap();
    file.write_at(&[7; 1024], 0).unwrap();
    for bytes in found_after_crashes(&disk, "a") {
        let bytes = bytes.unwrap();
        assert_eq!(bytes.len(), 1024);
        assert!(bytes.iter().all(|byte| [0, 7].contains(byte)));
    }
}

#[test]
fn a_shorter_length_is_pending_like_a_write() {
    let disk = SimulatedDisk::new(1);
    let file = durable_file(&disk, "a", b"12345678");
    file.set_len(4).unwrap();
    let found = found_after_crashes(&disk, "a");
    let both = [b"1234".to_vec(), b"12345678".to_vec()].map(Some);
    assert_eq!(found, BTreeSet::from(both));
}

#[test]
fn a_name_whose_directory_was_not_synced_may_be_gone() {
    let disk = SimulatedDisk::new(1);
    let file = disk.create(Path::new("a")).unwrap();
    file.write_at(b"kept", 0).unwrap();
    file.sync().unwrap();
    let found = found_after_crashes(&disk, "a");
    assert_eq!(found, BTreeSet::from([None, Some(b"kept".to_vec())]));
}

#[test]
fn a_rename_is_old_or_new() {
    let disk = SimulatedDisk::new(1);
    durable_file(&disk, "a", b"old");
    durable_file(&disk, "b", b"new");
    disk.rename(Path::new("b"), Path::new("a")).unwrap();
    let found: BTreeSet<_> = SEEDS
        .map(|seed| {
            let disk = disk.crash(seed);
            (content(&disk, "a").unwrap(), content(&disk, "b"))
        })
        .collect();
    let old = (b"old".to_vec(), Some(b"new".to_vec()));
    let new = (b"new".to_vec(), None);
    assert_eq!(found, BTreeSet::from([old, new]));
}

#[test]
fn a_chain_of_renames_leaves_one_of_its_names() {
    let disk = SimulatedDisk::new(1);
    durable_file(&disk, "a", b"it");
    disk.rename(Path::new("a"), Path::new("b")).unwrap();
    durable_file_pending(&disk, "a");
    disk.rename(Path::new("b"), Path::new("c")).unwrap();
    for seed in SEEDS {
        let disk = disk.crash(seed);
        let found = ["a", "b", "c"].map(|path| content(&disk, path));
        let count = found.iter().flatten().filter(|bytes| *bytes == b"it");
        assert_eq!(count.count(), 1, "{found:?}");
    }
}

fn durable_file_pending(disk: &SimulatedDisk, path: &str) {
    let file = disk.create(Path::new(path)).unwrap();
    file.write_at(b"another", 0).unwrap();
}

#[test]
fn a_removal_may_be_undone() {
    let disk = SimulatedDisk::new(1);
    durable_file(&disk, "a", b"it");
    disk.remove(Path::new("a")).unwrap();
    let found = found_after_crashes(&disk, "a");
    assert_eq!(found, BTreeSet::from([None, Some(b"it".to_vec())]));
}

#[test]
fn a_directory_that_is_lost_takes_its_files_along() {
    let disk = SimulatedDisk::new(1);
    disk.create_directory(Path::new("d/e")).unwrap();
    durable_file(&disk, "d/e/f", b"it");
    disk.sync_directory(Path::new("d")).unwrap();
    let found = found_after_crashes(&disk, "d/e/f");
    assert_eq!(found, BTreeSet::from([None, Some(b"it".to_vec())]));
}

#[test]
fn a_directory_made_anew_is_empty() {
    let disk = SimulatedDisk::new(1);
    disk.create_directory(Path::new("d")).unwrap();
    durable_file(&disk, "d/f", b"it");
    disk.sync_directory(Path::new("")).unwrap();
    disk.remove(Path::new("d/f")).unwrap();
    let full = disk.list(Path::new("d")).unwrap();
    assert!(full.is_empty());
    disk.remove_directory(Path::new("d")).unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    disk.create_directory(Path::new("d")).unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    assert_eq!(
        found_after_crashes(&disk, "d/f"),
        BTreeSet::from([None]),
        "what was removed with the old one"
    );
}

#[test]
fn what_is_in_a_directory_does_not_go_with_the_one_before_it() {
    let disk = SimulatedDisk::new(1);
    disk.create_directory(Path::new("d")).unwrap();
    disk.sync_directory(Path::new("")).unwrap();
    disk.remove_directory(Path::new("d")).unwrap();
    disk.create_directory(Path::new("d")).unwrap();
    durable_file(&disk, "d/f", b"it");
    disk.sync_directory(Path::new("")).unwrap();
    let found = found_after_crashes(&disk, "d/f");
    assert_eq!(found, BTreeSet::from([Some(b"it".to_vec())]));
}

#[test]
fn a_failed_sync_forgets_and_the_next_one_says_nothing() {
    let mut lost = 0;
    for seed in SEEDS {
        let disk = SimulatedDisk::new(seed);
        let file = durable_file(&disk, "a", b"old");
        file.write_at(b"new", 0).unwrap();
        let now = disk.operations();
        disk.fail(now..now + 1, Fault::Device);
        file.sync().unwrap_err();
        file.sync().unwrap();
        assert_eq!(content(&disk, "a").unwrap(), b"new", "readers see it");
        lost += usize::from(content(&disk.crash(seed), "a").unwrap() == b"old");
    }
    assert!(lost > 100, "{lost}");
}

#[test]
fn after_a_failed_sync_of_a_directory_nobody_knows() {
    let disk = SimulatedDisk::new(1);
    let mut lost = 0;
    for seed in SEEDS {
        let disk = SimulatedDisk::new(seed);
        disk.create(Path::new("a")).unwrap();
        disk.fail(1..2, Fault::Full);
        disk.sync_directory(Path::new("")).unwrap_err();
        lost += usize::from(content(&disk.crash(seed), "a").is_none());
    }
    assert!((100..500).contains(&lost), "{lost}");
    disk.create(Path::new("a")).unwrap();
    disk.fail(1..2, Fault::Full);
    disk.sync_directory(Path::new("")).unwrap_err();
    disk.sync_directory(Path::new("")).unwrap();
    assert!(!found_after_crashes(&disk, "a").contains(&None));
}

#[test]
fn the_operation_that_was_asked_for_fails_and_no_other() {
    for fault in Fault::ALL {
        let disk = SimulatedDisk::new(1);
        let file = durable_file(&disk, "a", b"");
        let now = disk.operations();
        disk.fail(now + 1..now + 2, fault);
        file.write_at(b"1234", 0).unwrap();
        file.write_at(b"5678", 4).unwrap_err();
        file.write_at(b"9", 8).unwrap();
        let bytes = content(&disk, "a").unwrap();
        assert_eq!(&bytes[..4], b"1234");
        assert_eq!(bytes[7], 0, "the write ended early");
        assert_eq!((disk.faults_struck(), bytes[8]), (1, b'9'));
    }
}

#[test]
fn faults_strike_only_where_they_can_happen() {
    let disk = SimulatedDisk::new(1);
    let file = durable_file(&disk, "a", b"1");
    disk.fail(0..u64::MAX, Fault::Full);
    assert_eq!(file.read_at(&mut [0; 4], 0).unwrap(), 1);
    assert_eq!(disk.list(Path::new("")).unwrap(), ["a"]);
    let error = file.sync().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    disk.heal();
    file.sync().unwrap();
}

#[test]
fn a_full_device_takes_what_fits_and_heals_with_more_room() {
    let disk = SimulatedDisk::new(1);
    disk.set_capacity(1000);
    let file = disk.create(Path::new("a")).unwrap();
    file.write_at(&[1; 900], 0).unwrap();
    let error = file.write_at(&[1; 200], 900).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(disk.used_bytes() <= 1000);
    file.write_at(&[2; 900], 0).unwrap();
    let other = disk.create(Path::new("b")).unwrap();
    other.allocate(200).unwrap_err();
    disk.set_capacity(2000);
    other.allocate(200).unwrap();
    disk.remove(Path::new("a")).unwrap();
    assert_eq!(disk.used_bytes(), 200);
}

#[test]
fn a_power_cut_ends_everything_at_the_operation_that_was_named() {
    let disk = SimulatedDisk::new(1);
    let file = durable_file(&disk, "a", &[1; 512]);
    let now = disk.operations();
    disk.cut_power_at(now + 1);
    file.write_at(&[2; 512], 512).unwrap();
    assert!(!disk.is_off());
    file.sync().unwrap_err();
    assert!(disk.is_off());
    file.write_at(&[3; 512], 0).unwrap_err();
    let found = found_after_crashes(&disk, "a");
    assert!(found.contains(&Some(vec![1; 512])), "not synced");
    assert!(found.contains(&Some([[1; 512], [2; 512]].concat())));
    let first_byte_is_old = |bytes: &Option<Vec<u8>>| bytes.as_ref().unwrap()[0] == 1;
    assert!(found.iter().all(first_byte_is_old));
}

#[test]
fn the_same_seeds_leave_the_same_device() {
    let run = || {
        let disk = SimulatedDisk::new(3);
        let file = durable_file(&disk, "a", &[1; 100]);
        file.write_at(&[2; 5000], 50).unwrap();
        disk.crash(4)
    };
    assert_eq!(content(&run(), "a"), content(&run(), "a"));
}

#[test]
fn files_and_directories_answer_as_the_systems_do() {
    let disk = SimulatedDisk::new(1);
    let kind = |result: io::Result<()>| result.unwrap_err().kind();
    let path = Path::new;
    disk.create_directory(path("/d/e")).unwrap();
    disk.create_directory(path("/d/e")).unwrap();
    let file = disk.create(path("/d/e/f")).unwrap();
    assert!(disk.create(path("/d/e/f")).is_err(), "made once");
    assert!(disk.create(path("/x/f")).is_err(), "no such directory");
    assert_eq!(
        kind(disk.remove_directory(path("/d/e"))),
        io::ErrorKind::DirectoryNotEmpty
    );
    assert_eq!(kind(disk.remove(path("/d/x"))), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.remove(path("/d/e"))), io::ErrorKind::IsADirectory);
    assert_eq!(
        kind(disk.create_directory(path("/d/e/f"))),
        io::ErrorKind::NotADirectory
    );
    assert!(disk.open(path("/d")).is_err());
    let reader = disk.open(path("/d/e/f")).unwrap();
    assert!(reader.write_at(b"x", 0).is_err(), "opened for reading");
    disk.remove(path("/d/e/f")).unwrap();
    file.write_at(b"x", 0).unwrap();
    assert_eq!(reader.size().unwrap(), 1, "open though it has no name");
    disk.remove_directory(path("/d/e")).unwrap();
    assert_eq!(disk.list(path("/")).unwrap(), ["d"]);
    assert!(disk.list(path("/d/e")).is_err());
}

#[test]
fn an_orderly_end_keeps_everything() {
    let disk = SimulatedDisk::new(1);
    let file = disk.create(Path::new("a")).unwrap();
    file.write_at(&[1; 9000], 0).unwrap();
    disk.settle();
    let found = found_after_crashes(&disk, "a");
    assert_eq!(found, BTreeSet::from([Some(vec![1; 9000])]));
}
