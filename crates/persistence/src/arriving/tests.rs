//! A checkpoint that is loaded while it is received: whole, damaged and given up.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use base::clock::ManualClock;
use base::record_head::RecordHead;
use durability::checkpoint::{Lineage, PartWriter};
use durability::disk::Disk;
use durability::simulated::SimulatedDisk;
use store::Store;

use super::*;
use crate::bodies;

const RECORDS: u64 = 3_000;

fn environment() -> Arc<Environment> {
    let store = Store::new(&store::Options::default()).unwrap();
    let clock = Arc::new(ManualClock::at_unix_ms(1_000));
    Arc::new(Environment::new(testkit::table(), store, clock))
}

fn value_of(number: u64) -> Vec<u8> {
    let length = match number {
        // Spans several blocks.
        7 => 700_000,
        _ => usize::try_from(number % 500).unwrap(),
    };
    vec![b'a' + u8::try_from(number % 20).unwrap(); length]
}

/// Returns two parts of several blocks each, and the manifest that names them.
fn checkpoint() -> (Manifest, Vec<Vec<u8>>) {
    let disk = SimulatedDisk::new(1);
    disk.create_directory(Path::new("/data")).unwrap();
    let mut manifest = Manifest {
        generation: 9,
        lineage: Lineage([7; 20]),
        ..Manifest::default()
    };
    let mut parts = Vec::new();
    for part in 0..2 {
        let (name, head) = (
            part_name(part),
            PartHead {
                value_version: bodies::STYLE.version,
                part,
                generation: 9,
                created_unix_ms: 1_000,
                lineage: Lineage([7; 20]),
            },
        );
        let path = Path::new("/data").join(&name);
        let mut writer = PartWriter::create(&disk, &path, head).unwrap();
        for number in (0..RECORDS).filter(|number| number % 2 == u64::from(part)) {
            let (head, body) = (RecordHead::default(), value_of(number));
            let key = format!("key:{number}");
            let length = body.len() as u64;
            writer
                .record(&head, key.as_bytes(), length, [&body[..]])
                .unwrap();
        }
        let (entry, databases) = writer.finish(&name).unwrap();
        for (database, records) in databases {
            *manifest.databases.entry(database).or_default() += records;
        }
        let mut bytes = vec![0; usize::try_from(entry.bytes).unwrap()];
        let read = disk.open(&path).unwrap().read_at(&mut bytes, 0).unwrap();
        assert_eq!(read, bytes.len());
        parts.push(bytes);
        manifest.parts.push(entry);
    }
    (manifest, parts)
}

/// Delivers parts in pieces of `piece_bytes`; returns the result.
fn arrive(
    env: &Arc<Environment>,
    (manifest, parts): &(Manifest, Vec<Vec<u8>>),
    piece_bytes: usize,
    threads: usize,
) -> Result<(), LoadFault> {
    let arriving = Arriving::begin(env, Path::new("/arriving"), RECORDS, threads).unwrap();
    for part in parts {
        let mut pieces = part.chunks(piece_bytes);
        let is_wanted = pieces.all(|piece| arriving.piece(piece, &|| true));
        if !(is_wanted && arriving.end_part(&|| true)) {
            break;
        }
    }
    arriving.finish(manifest)
}

fn count(env: &Environment) -> usize {
    env.store.handle().len(0)
}

#[test]
fn what_arrives_is_there_however_it_was_cut() {
    let checkpoint = checkpoint();
    for (piece_bytes, threads) in [(1 << 18, 2), (999, 1), (70_001, 3), (usize::MAX, 4)] {
        let env = environment();
        arrive(&env, &checkpoint, piece_bytes, threads).unwrap();
        assert_eq!(count(&env) as u64, RECORDS);
        let mut handle = env.store.handle();
        for number in [0, 7, 8, RECORDS - 1] {
            let key = format!("key:{number}");
            let key = handle.key(0, key.as_bytes());
            let found = handle.read(&key, |record| record.map(store::Record::to_vec));
            assert_eq!(found.unwrap(), value_of(number), "{number}");
        }
    }
}

/// Every byte of a part counts: a fault in any of them is found.
#[test]
fn what_is_damaged_is_refused_with_its_part() {
    let whole = checkpoint();
    let length = whole.1[1].len();
    for at in [0, 20, 64, 90, length / 2, length - 60, length - 1] {
        let mut damaged = whole.clone();
        damaged.1[1][at] ^= 4;
        let fault = arrive(&environment(), &damaged, 10_000, 2).unwrap_err();
        let text = fault.to_string();
        assert!(text.contains("/arriving/0001.part"), "{at}: {text}");
    }
}

#[test]
fn what_is_not_whole_or_another_checkpoint_is_refused() {
    let whole = checkpoint();
    let mut short = whole.clone();
    short.1[1].truncate(5_000);
    let mut long = whole.clone();
    long.1[1].push(0);
    let mut lacking = whole.clone();
    lacking.1.pop();
    let mut exchanged = whole.clone();
    exchanged.1.swap(0, 1);
    let mut other_sum = whole.clone();
    other_sum.0.parts[0].digest ^= 1;
    let mut other_history = whole.clone();
    other_history.0.lineage = Lineage([8; 20]);
    let mut other_counts = whole;
    *other_counts.0.databases.entry(0).or_default() += 1;
    for (number, bad) in [
        short,
        long,
        lacking,
        exchanged,
        other_sum,
        other_history,
        other_counts,
    ]
    .iter()
    .enumerate()
    {
        assert!(arrive(&environment(), bad, 10_000, 2).is_err(), "{number}");
    }
}

#[test]
fn what_is_given_up_ends_and_leaves_the_store_to_who_began() {
    let (env, (_, parts)) = (environment(), checkpoint());
    let arriving = Arriving::begin(&env, Path::new("/arriving"), RECORDS, 2).unwrap();
    assert!(arriving.piece(&parts[0][..100_000], &|| true));
    drop(arriving);
    assert!(count(&env) as u64 <= RECORDS / 2);
}

/// A primary that states more records than memory can hold does not cause an allocation.
#[test]
fn room_is_made_for_what_was_met() {
    for (met, step) in [
        (1, 64),
        (32, 64),
        (33, 4_096),
        (2_048, 4_096),
        (2_049, 262_144),
        (u64::MAX, u64::MAX),
    ] {
        assert_eq!(step_of(met), step);
    }
    let env = environment();
    let arriving = Arriving::begin(&env, Path::new("/arriving"), u64::MAX, 2).unwrap();
    let (manifest, parts) = checkpoint();
    for part in &parts {
        assert!(arriving.piece(part, &|| true) && arriving.end_part(&|| true));
    }
    arriving.finish(&manifest).unwrap();
}
