//! A part of a checkpoint as it may be found on disk. The first byte says what the rest is: the
//! file, the payload of one block that is made here as the format's description says, or changes to
//! a file that was written.
//!
//! A file that is accepted would be written with the same bytes. A changed file is never accepted.
#![no_main]

use std::path::Path;

use base::crc::crc64;
use durability::checkpoint::{
    CheckpointFault, Lineage, PartHead, PartReader, PartWriter, RecordHead,
};
use durability::checksum::crc32c;
use durability::disk::Disk;
use durability::simulated::SimulatedDisk;
use libfuzzer_sys::fuzz_target;

const HEAD: PartHead = PartHead {
    value_version: 12,
    part: 3,
    generation: 7,
    created_unix_ms: 1_700_000_000_000,
    lineage: Lineage([5; 20]),
};

type Kept = (RecordHead, Vec<u8>, Vec<u8>);

fuzz_target!(|input: &[u8]| {
    let Some((&mode, rest)) = input.split_first() else {
        return;
    };
    match mode % 3 {
        0 => {
            // Random input never has the right checksum, but nothing may depend on that.
            let _records = read(rest);
        }
        1 => one_block(rest),
        _ => changed(rest),
    }
});

/// Reads a file with one block of this payload, with all checksums right.
fn one_block(input: &[u8]) {
    let Some((records, payload)) = input.split_first_chunk::<2>() else {
        return;
    };
    let mut file = write(&[])[..64].to_vec();
    let mut fields = Vec::new();
    fields.extend_from_slice(&HEAD.generation.to_le_bytes());
    fields.extend_from_slice(&HEAD.part.to_le_bytes());
    fields.extend_from_slice(&0_u32.to_le_bytes());
    fields.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(0).to_le_bytes());
    fields.extend_from_slice(records);
    fields.extend_from_slice(&[0; 2]);
    let mut digest = crc64(0, &file);
    let sum = crc32c(&[&fields, payload].concat());
    let head = [b"BLCK".as_slice(), &sum.to_le_bytes(), &fields].concat();
    digest = crc64(digest, &head);
    file.extend_from_slice(&head);
    file.extend_from_slice(payload);
    let mut foot = Vec::new();
    foot.extend_from_slice(&HEAD.generation.to_le_bytes());
    foot.extend_from_slice(&HEAD.part.to_le_bytes());
    foot.extend_from_slice(&[0; 4]);
    foot.extend_from_slice(&1_u64.to_le_bytes());
    foot.extend_from_slice(&u64::from(u16::from_le_bytes(*records)).to_le_bytes());
    foot.extend_from_slice(&(file.len() as u64 + 56).to_le_bytes());
    foot.extend_from_slice(&digest.to_le_bytes());
    file.extend_from_slice(b"FOOT");
    file.extend_from_slice(&crc32c(&foot).to_le_bytes());
    file.extend_from_slice(&foot);
    if let Ok(records) = read(&file) {
        assert_eq!(write(&records), file);
    }
}

/// Reads a file that was written, with some bytes changed and its end cut off.
fn changed(input: &[u8]) {
    let Some((seed, changes)) = input.split_first_chunk::<2>() else {
        return;
    };
    let records: Vec<Kept> = (0..seed[0] % 8)
        .map(|number| record(seed[1], number))
        .collect();
    let written = write(&records);
    assert_eq!(read(&written).expect("it was written"), records);
    let mut file = written.clone();
    for change in changes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % file.len();
        file[at] ^= change[2];
        if change[2] == 0 {
            file.truncate(at.max(1));
        }
    }
    if file != written {
        assert!(read(&file).is_err(), "a change went unnoticed");
    }
}

fn record(seed: u8, number: u8) -> Kept {
    let head = RecordHead {
        database: (seed % 4).into(),
        type_code: number,
        deadline_unix_ms: (seed & 1 == 1).then_some(number.into()),
        etag: u64::from(seed & 2) * u64::from(number),
    };
    (
        head,
        vec![seed; number.into()],
        vec![number; (seed / 4).into()],
    )
}

fn write(records: &[Kept]) -> Vec<u8> {
    let disk = SimulatedDisk::new(0);
    let path = Path::new("/part");
    let mut writer = PartWriter::create(&disk, path, HEAD).expect("there is room");
    for (head, key, body) in records {
        let body_bytes = body.len() as u64;
        let written = writer.record(head, key, body_bytes, [body.as_slice()]);
        written.expect("there is room");
    }
    writer.finish("part").expect("there is room");
    let file = disk.open(path).expect("it was made");
    let mut bytes = vec![0; usize::try_from(file.size().expect("it is there")).unwrap_or(0)];
    let count = file.read_at(&mut bytes, 0).expect("it is there");
    assert_eq!(count, bytes.len());
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<Kept>, CheckpointFault> {
    let disk = SimulatedDisk::new(0);
    let path = Path::new("/part");
    let file = disk.create(path).expect("there is room");
    file.write_at(bytes, 0).expect("there is room");
    let mut reader = PartReader::open(&disk, path)?;
    let mut records = Vec::new();
    while let Some(block) = reader.next_block()? {
        let kept = block
            .records()
            .map(|one| (one.head, one.key.to_vec(), one.body.to_vec()));
        records.extend(kept);
    }
    Ok(records)
}
