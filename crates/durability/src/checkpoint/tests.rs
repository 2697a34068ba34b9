//! Everything that is written comes back, and any later change is refused.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use base::record_head::Lengths;
use proptest::prelude::*;

use tempfile::TempDir;

use super::block::PAYLOAD_BYTES_MAX;
use super::*;
use crate::disk::{Disk, SystemDisk};

mod damage;
mod golden;

/// Where two histories part, a node may continue only from a checkpoint that has nothing from
/// behind that point.
#[test]
fn a_checkpoint_is_before_a_sequence_that_its_cut_does_not_pass() {
    let manifest = |log_sequence, cut_sequence, settled_sequence| Manifest {
        log_sequence,
        history: History {
            cut_sequence,
            settled_sequence,
            ..History::default()
        },
        ..Manifest::default()
    };
    // Writes up to 150 may be in it, although the log is needed from 100 on.
    let of_primary = manifest(Some(100), None, Some(150));
    assert!(of_primary.is_before(150) && !of_primary.is_before(149));
    let of_replica = manifest(Some(100), Some(100), None);
    assert!(of_replica.is_before(100) && !of_replica.is_before(99));
    assert!(!manifest(Some(100), None, None).is_before(u64::MAX));
    assert!(!manifest(None, None, None).is_before(u64::MAX));
}

/// A directory of its own, removed with its content.
struct TestDirectory(TempDir);

impl TestDirectory {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

type Kept = (RecordHead, Vec<u8>, Vec<u8>);

fn head(part: u32) -> PartHead {
    PartHead {
        value_version: 12,
        part,
        generation: 7,
        created_unix_ms: 1_700_000_000_000,
        lineage: Lineage(*b"a history of twenty!"),
    }
}

fn record(number: u16) -> Kept {
    let head = RecordHead {
        database: number % 3,
        type_code: u8::try_from(number % 5).unwrap(),
        deadline_unix_ms: (number % 2 == 1).then_some(1_700_000_000_000 + u64::from(number)),
        etag: u64::from(number % 4),
    };
    let body = vec![b'v'; usize::from(number) * 7 % 50];
    (head, format!("key:{number}").into_bytes(), body)
}

/// Writes a part and returns its manifest entry.
fn write(path: &Path, head: PartHead, records: &[Kept]) -> (PartEntry, BTreeMap<u16, u64>) {
    let mut writer = PartWriter::create(&SystemDisk, path, head).unwrap();
    for (head, key, body) in records {
        let (front, back) = body.split_at(body.len() / 2);
        let written = writer.record(head, key, body.len() as u64, [front, back]);
        written.unwrap();
    }
    let (entry, databases) = writer
        .finish(path.file_name().unwrap().to_str().unwrap())
        .unwrap();
    assert_eq!(path.metadata().unwrap().len(), entry.bytes);
    (entry, databases)
}

fn read(reader: &mut PartReader) -> Result<Vec<Kept>, CheckpointFault> {
    let mut records = Vec::new();
    while let Some(block) = reader.next_block()? {
        assert!(!block.is_empty());
        let before = records.len();
        records.extend(
            block
                .records()
                .map(|one| (one.head, one.key.to_vec(), one.body.to_vec())),
        );
        assert_eq!(records.len(), before + block.len());
    }
    Ok(records)
}

/// Checks all blocks; returns their number.
fn check(reader: &mut PartReader) -> Result<usize, CheckpointFault> {
    let mut blocks = 0;
    while reader.check_block()? {
        blocks += 1;
    }
    Ok(blocks)
}

fn open(path: &Path, entry: &PartEntry) -> Result<PartReader, CheckpointFault> {
    PartReader::open(&SystemDisk, path)?.expect(entry)
}

/// Returns the history of a replica in its second term.
fn history() -> History {
    let term = |number, id: &[u8; 20], start| TermEntry {
        number,
        id: *id,
        start,
    };
    History {
        cut_sequence: Some(41_943_040),
        settled_sequence: None,
        terms: vec![
            term(6, b"the id of the former", 0),
            term(7, b"the id of this term!", 4_096),
        ],
        resp: Some(RespEntry {
            sequence: 41_943_000,
            offset: 123_456,
            database: 3,
        }),
    }
}

/// Writes a whole checkpoint of two parts in `place`.
fn checkpoint(place: &TestDirectory, generation: u64) -> Manifest {
    let directory = free_directory(&SystemDisk, place.path(), generation).unwrap();
    let path = place.path().join(&directory);
    SystemDisk.create_directory(&path).unwrap();
    let mut manifest = Manifest {
        lineage: head(0).lineage,
        generation,
        log_sequence: Some(4_096),
        created_unix_ms: 1_700_000_000_000,
        directory,
        ..Manifest::default()
    };
    for part in 0..2 {
        let own = PartHead {
            generation,
            ..head(part)
        };
        let first = u16::try_from(part).unwrap() * 100;
        let records: Vec<Kept> = (first..first + 20).map(record).collect();
        let (entry, databases) = write(&path.join(part_name(part)), own, &records);
        manifest.parts.push(entry);
        for (database, records) in databases {
            *manifest.databases.entry(database).or_default() += records;
        }
    }
    manifest
}

#[test]
fn what_is_written_comes_back() {
    let place = TestDirectory::new();
    let path = place.path().join("0001.part");
    let records: Vec<Kept> = (0..20_000).map(record).collect();
    let (entry, databases) = write(&path, head(1), &records);
    assert_eq!(entry.records, 20_000);
    assert_eq!(databases.values().sum::<u64>(), 20_000);
    assert!(entry.bytes > 2 * BLOCK_BYTES_MAX as u64, "several blocks");
    let mut reader = open(&path, &entry).unwrap();
    assert_eq!(reader.head(), &head(1));
    assert_eq!(read(&mut reader).unwrap(), records);
    assert_eq!(open(&path, &entry).unwrap().count().unwrap(), databases);
}

#[test]
fn a_part_without_records_is_one() {
    let place = TestDirectory::new();
    let path = place.path().join("0000.part");
    let (entry, databases) = write(&path, head(0), &[]);
    assert_eq!((entry.bytes, databases.len()), (120, 0));
    assert_eq!(read(&mut open(&path, &entry).unwrap()).unwrap(), []);
}

#[test]
fn long_records_go_over_several_blocks() {
    let place = TestDirectory::new();
    let lengths = [
        10,
        PAYLOAD_BYTES_MAX - 100,
        PAYLOAD_BYTES_MAX - 17,
        PAYLOAD_BYTES_MAX - 16,
        PAYLOAD_BYTES_MAX - 15,
        PAYLOAD_BYTES_MAX,
        2 * PAYLOAD_BYTES_MAX - 16,
        3_000_000,
        5,
    ];
    let make = |len: usize| {
        let body = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
        (RecordHead::default(), b"name".to_vec(), body)
    };
    let records: Vec<Kept> = lengths.into_iter().map(make).collect();
    let path = place.path().join("0000.part");
    let (entry, _) = write(&path, head(0), &records);
    assert_eq!(read(&mut open(&path, &entry).unwrap()).unwrap(), records);
    let blocks = check(&mut open(&path, &entry).unwrap()).unwrap();
    assert!(blocks > 3_000_000 / PAYLOAD_BYTES_MAX, "{blocks}");
}

/// Returns `records` as the run that a snapshot has of them.
fn run_of(records: &[Kept]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (head, key, body) in records {
        let lengths = Lengths {
            key_bytes: u32::try_from(key.len()).unwrap(),
            body_bytes: body.len() as u64,
        };
        head.append_to(lengths, &mut bytes);
        bytes.extend_from_slice(&[key.as_slice(), body].concat());
    }
    bytes
}

/// Returns records of one database, of about `bytes` in all.
fn of_one(database: u16, bytes: usize) -> Vec<Kept> {
    let head = RecordHead {
        database,
        ..RecordHead::default()
    };
    let keys = 0..bytes.div_ceil(120);
    keys.map(|number| {
        (
            head,
            format!("{database}:{number}").into_bytes(),
            vec![7; 100],
        )
    })
    .collect()
}

#[test]
fn a_run_is_written_as_it_is_and_comes_back_as_records() {
    let place = TestDirectory::new();
    let path = place.path().join("0002.part");
    let mut writer = PartWriter::create(&SystemDisk, &path, head(2)).unwrap();
    let (short, long) = (1_000, 64_000);
    let mut records = Vec::new();
    for (database, bytes) in [
        (3, short),
        (3, short),
        (4, long),
        (4, short),
        (3, long),
        (5, long),
    ] {
        let some = of_one(database, bytes);
        writer.run(database, some.len(), &run_of(&some)).unwrap();
        records.extend(some);
    }
    // Single records between runs, one of them longer than a block.
    for body in [vec![1; 50], vec![2; 2 * PAYLOAD_BYTES_MAX], vec![3; 50]] {
        let one = (RecordHead::default(), b"single".to_vec(), body);
        let body_bytes = one.2.len() as u64;
        writer
            .record(&one.0, &one.1, body_bytes, [&one.2[..]])
            .unwrap();
        let some = of_one(5, short);
        writer.run(5, some.len(), &run_of(&some)).unwrap();
        records.push(one);
        records.extend(some);
    }
    let (entry, databases) = writer.finish("0002.part").unwrap();
    let mut expected = BTreeMap::new();
    for (head, ..) in &records {
        *expected.entry(head.database).or_default() += 1;
    }
    assert_eq!((entry.records, databases), (records.len() as u64, expected));
    assert_eq!(read(&mut open(&path, &entry).unwrap()).unwrap(), records);
    // The blocks: one of two short runs, a long run, a short run, two long runs, one of everything
    // up to the longest record, three of that record, and one of the rest.
    assert_eq!(check(&mut open(&path, &entry).unwrap()).unwrap(), 10);
}

#[test]
fn runs_fill_blocks_to_the_last_byte() {
    let place = TestDirectory::new();
    let path = place.path().join("0000.part");
    let mut writer = PartWriter::create(&SystemDisk, &path, head(0)).unwrap();
    let of_length = |bytes: usize| {
        let body = vec![9; bytes - 12 - 4];
        (RecordHead::default(), b"name".to_vec(), body)
    };
    let mut records = Vec::new();
    // The rest of the block is filled to the byte; the next record begins another block, and the
    // longest run is a block of its own.
    let rest = PAYLOAD_BYTES_MAX % 16_000;
    let lengths = vec![16_000; PAYLOAD_BYTES_MAX / 16_000];
    for bytes in lengths.into_iter().chain([rest, 16, PAYLOAD_BYTES_MAX]) {
        let one = of_length(bytes);
        writer
            .run(0, 1, &run_of(std::slice::from_ref(&one)))
            .unwrap();
        records.push(one);
    }
    let (entry, _) = writer.finish("0000.part").unwrap();
    assert_eq!(read(&mut open(&path, &entry).unwrap()).unwrap(), records);
    assert_eq!(check(&mut open(&path, &entry).unwrap()).unwrap(), 3);
}

#[test]
fn a_run_that_no_block_can_have_is_not_written() {
    let place = TestDirectory::new();
    let path = place.path().join("0000.part");
    let mut writer = PartWriter::create(&SystemDisk, &path, head(0)).unwrap();
    let run = run_of(&of_one(0, 1_000));
    for (records, bytes) in [
        (0, run.len()),
        (usize::from(u16::MAX) + 1, run.len()),
        (1, RUN_BYTES_MAX + 1),
    ] {
        let refused = writer.run(0, records, &vec![0; bytes]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
    let (entry, databases) = writer.finish("0000.part").unwrap();
    assert_eq!((entry.bytes, databases.len()), (120, 0), "nothing of them");
}

#[test]
fn a_run_of_other_records_than_was_said_is_refused_when_it_is_read() {
    let place = TestDirectory::new();
    let some = of_one(3, 1_000);
    for records in [some.len() - 1, some.len() + 1] {
        let path = place.path().join(format!("{records}.part"));
        let mut writer = PartWriter::create(&SystemDisk, &path, head(0)).unwrap();
        writer.run(3, records, &run_of(&some)).unwrap();
        let (entry, _) = writer.finish("part").unwrap();
        let fault = read(&mut open(&path, &entry).unwrap()).unwrap_err();
        assert!(matches!(fault, CheckpointFault::Damaged { .. }), "{fault}");
    }
}

#[test]
fn a_body_of_another_length_is_not_written() {
    let place = TestDirectory::new();
    let mut writer = PartWriter::create(&SystemDisk, &place.path().join("part"), head(0)).unwrap();
    for (said, given) in [(3, &b"ab"[..]), (1, b"ab"), (1 << 40, b"ab")] {
        let written = writer.record(&RecordHead::default(), b"k", said, [given]);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn a_manifest_is_replaced_and_what_it_replaced_goes() {
    let place = TestDirectory::new();
    assert_eq!(read_manifest(&SystemDisk, place.path()).unwrap(), None);
    let first = checkpoint(&place, 6);
    replace_manifest(&SystemDisk, place.path(), &first).unwrap();
    let attempt = checkpoint(&place, 7);
    let second = checkpoint(&place, 7);
    assert_eq!(
        (attempt.directory.as_str(), second.directory.as_str()),
        ("checkpoint-7-1", "checkpoint-7-2")
    );
    // The remains of a failed attempt do no harm.
    place.write("MANIFEST.new", b"half");
    replace_manifest(&SystemDisk, place.path(), &second).unwrap();
    let found = read_manifest(&SystemDisk, place.path()).unwrap();
    assert_eq!(found.as_ref(), Some(&second));
    verify(&SystemDisk, place.path(), &first).unwrap();
    verify(&SystemDisk, place.path(), &second).unwrap();
    assert_eq!((second.records(), second.parts.len()), (40, 2));
    remove_replaced(&SystemDisk, place.path(), &second).unwrap();
    assert_eq!(
        SystemDisk.list(place.path()).unwrap(),
        ["MANIFEST", "checkpoint-7-2"]
    );
    verify(&SystemDisk, place.path(), &second).unwrap();
}

#[test]
fn parts_of_other_checkpoints_are_refused() {
    let place = TestDirectory::new();
    let (first, second) = (checkpoint(&place, 6), checkpoint(&place, 7));
    let flaw = |manifest: &Manifest| match verify(&SystemDisk, place.path(), manifest) {
        Err(CheckpointFault::Damaged { flaw, .. }) => Some(flaw),
        _ => None,
    };
    let mixed = Manifest {
        directory: first.directory,
        ..second.clone()
    };
    assert_eq!(flaw(&mixed), Some(Flaw::Foreign));
    let mut exchanged = second.clone();
    exchanged.parts.swap(0, 1);
    assert_eq!(flaw(&exchanged), Some(Flaw::Foreign));
    let mut other = second.clone();
    other.parts[1].digest ^= 1;
    assert_eq!(flaw(&other), Some(Flaw::Digest));
    let mut short = second.clone();
    short.parts.pop();
    let fault = verify(&SystemDisk, place.path(), &short).unwrap_err();
    assert!(matches!(fault, CheckpointFault::Manifest { .. }), "{fault}");
    SystemDisk
        .remove(&place.path().join(&second.directory).join("0001.part"))
        .unwrap();
    let fault = verify(&SystemDisk, place.path(), &second).unwrap_err();
    assert!(matches!(fault, CheckpointFault::System { .. }), "{fault}");
    assert!(fault.path().ends_with("0001.part"));
}

fn any_record() -> impl Strategy<Value = Kept> {
    let head = (
        any::<u16>(),
        any::<u8>(),
        any::<Option<u64>>(),
        any::<u64>(),
    );
    let bytes = || prop::collection::vec(any::<u8>(), 0..200);
    (head, bytes(), bytes()).prop_map(|(head, key, body)| {
        let head = RecordHead {
            database: head.0,
            type_code: head.1,
            deadline_unix_ms: head.2,
            etag: head.3,
        };
        (head, key, body)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_records_come_back(records in prop::collection::vec(any_record(), 0..50)) {
        let place = TestDirectory::new();
        let path = place.path().join("0003.part");
        let (entry, _) = write(&path, head(3), &records);
        prop_assert_eq!(read(&mut open(&path, &entry).unwrap()).unwrap(), records);
        prop_assert!(check(&mut open(&path, &entry).unwrap()).is_ok());
    }

    #[test]
    fn any_manifest_comes_back(
        numbers: [u64; 3],
        parts in prop::collection::vec(any::<(u32, u32, u64)>(), 0..20),
        lineage: [u8; 20],
    ) {
        let parts: Vec<PartEntry> = parts
            .into_iter()
            .zip(0..)
            .map(|((bytes, records, digest), number)| PartEntry {
                name: part_name(number),
                bytes: bytes.into(),
                records: records.into(),
                digest,
            })
            .collect();
        let records = parts.iter().map(|part| part.records).sum();
        let manifest = Manifest {
            lineage: Lineage(lineage),
            generation: numbers[0],
            log_sequence: (numbers[1] % 8 > 0).then_some(numbers[1]),
            created_unix_ms: numbers[2],
            directory: "checkpoint-1-1".into(),
            parts,
            databases: BTreeMap::from([(3, records)]),
            libraries: vec![b"#!lua name=a".to_vec(), Vec::new()],
            segments: (0..u64::from(lineage[2] % 4))
                .map(|at| SegmentEntry {
                    ordinal: numbers[0] / 8 + at,
                    bytes: numbers[1],
                    salt: numbers[2],
                    records: at,
                    dictionaries: (0..u32::from(lineage[3] % 3)).collect(),
                })
                .collect(),
            dictionaries: match lineage[2] % 4 {
                0 => Vec::new(),
                _ => (0..u32::from(lineage[3] % 3))
                    .map(|number| DictionaryEntry {
                        number,
                        bytes: numbers[1],
                        sum: u32::from(lineage[4]),
                    })
                    .collect(),
            },
            history: History {
                cut_sequence: (numbers[1] % 8 > 4).then_some(numbers[1]),
                settled_sequence: (numbers[1] % 8 == 3).then_some(numbers[1]),
                resp: (numbers[1] % 3 > 0).then_some(RespEntry {
                    sequence: numbers[0],
                    offset: numbers[2],
                    database: u16::from(lineage[0]),
                }),
                terms: (0..lineage[1] % 4)
                    .map(|at| TermEntry {
                        number: u64::from(at) + 3,
                        id: lineage,
                        start: u64::from(at) * 8,
                    })
                    .collect(),
            },
        };
        prop_assert_eq!(Manifest::decode(manifest.encode().as_bytes()), Ok(manifest));
    }
}
