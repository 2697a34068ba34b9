//! Reads files of the operation log. The first byte chooses what the rest is.
//!
//! The rest is either the bytes of a file, or changes to the golden files of a version, four bytes
//! each. With checksums checked, a changed file gives a prefix of what the original held. With the
//! check disabled by a planted bug, frames may contain anything; even then, the reader reads
//! nothing beyond the file.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use durability::disk::Disk;
use durability::log::{LogError, Reader};
use durability::planted::{self, Bug};
use durability::simulated::SimulatedDisk;
use libfuzzer_sys::fuzz_target;

const DIRECTORY: &str = "log";
const FIRST: &str = "0000000000000000.log";
const SECOND: &str = "0000000000000538.log";
/// The golden files of each version that can be read.
const VERSIONS: [[(&str, &[u8]); 2]; 3] = [
    [
        (
            FIRST,
            include_bytes!("../../crates/durability/tests/vectors/v4/log/0000000000000000.log"),
        ),
        (
            SECOND,
            include_bytes!("../../crates/durability/tests/vectors/v4/log/0000000000000538.log"),
        ),
    ],
    [
        (
            FIRST,
            include_bytes!("../../crates/durability/tests/vectors/v3/log/0000000000000000.log"),
        ),
        (
            SECOND,
            include_bytes!("../../crates/durability/tests/vectors/v3/log/0000000000000538.log"),
        ),
    ],
    [
        (
            FIRST,
            include_bytes!("../../crates/durability/tests/vectors/v2/log/0000000000000000.log"),
        ),
        (
            SECOND,
            include_bytes!("../../crates/durability/tests/vectors/v2/log/0000000000000538.log"),
        ),
    ],
];
const UNSUMMED: u8 = 1;
const WHOLE_FILE: u8 = 2;
const VERSION_2: u8 = 4;
const VERSION_4: u8 = 8;

/// A control entry as text, or the parts of an effect.
#[derive(PartialEq)]
struct Found {
    sequence: u64,
    is_control: bool,
    content: Vec<u8>,
}

fuzz_target!(|input: &[u8]| {
    let Some((&choice, rest)) = input.split_first() else {
        return;
    };
    if choice & WHOLE_FILE != 0 {
        let (frames, _) = read(&[(FIRST, rest.to_vec())]);
        let effects = frames.iter().filter(|found| !found.is_control);
        assert!(effects.map(|found| found.content.len()).sum::<usize>() <= rest.len());
        return;
    }
    // Existing inputs have neither flag and mean version 3.
    let (version, count) = match choice & (VERSION_2 | VERSION_4) {
        0 => (1, 5),
        VERSION_2 => (2, 5),
        _ => (0, 14),
    };
    let files = VERSIONS[version];
    let mut files = files.map(|(name, bytes)| (name, bytes.to_vec()));
    let (good, end) = read(&files);
    assert!(good.len() == count && end.is_ok());
    rest.chunks_exact(4)
        .for_each(|change| apply(&mut files, change));
    if choice & UNSUMMED != 0 {
        planted::plant(Some(Bug::NoChecksum));
        let _anything = read(&files);
        planted::plant(None);
    } else {
        let (frames, _) = read(&files);
        assert!(good.starts_with(&frames));
    }
});

/// Changes a byte of a file, or cuts it.
fn apply(files: &mut [(&str, Vec<u8>); 2], change: &[u8]) {
    let bytes = &mut files[usize::from(change[0] & 1)].1;
    let at = usize::from(u16::from_le_bytes([change[1], change[2]]));
    if change[0] & 2 != 0 {
        bytes.truncate(at);
    } else if let Some(byte) = bytes.get_mut(at) {
        *byte ^= change[3];
    }
}

/// Returns every control entry and every effect, and the end of the log or the error.
fn read(files: &[(&str, Vec<u8>)]) -> (Vec<Found>, Result<u64, LogError>) {
    let disk = SimulatedDisk::new(1);
    let done = disk.create_directory(Path::new(DIRECTORY));
    done.expect("a new device has room");
    for (name, bytes) in files {
        let file = disk.create(&Path::new(DIRECTORY).join(name));
        let written = file.and_then(|file| file.write_at(bytes, 0));
        written.expect("a new device has room");
    }
    let mut found = Vec::new();
    let end = read_all(Arc::new(disk), &mut found);
    (found, end)
}

fn read_all(disk: Arc<dyn Disk>, found: &mut Vec<Found>) -> Result<u64, LogError> {
    let mut reader = Reader::open(disk, Path::new(DIRECTORY), 0)?;
    while let Some(frame) = reader.next_frame()? {
        if let Some(control) = frame.control() {
            found.push(Found {
                sequence: frame.sequence,
                is_control: true,
                content: format!("{control:?}").into_bytes(),
            });
        }
        for effect in frame.effects() {
            assert_eq!(
                effect.parts.len(),
                effect.parts.count(),
                "as many as it says"
            );
            let parts = effect.parts.collect::<Vec<_>>();
            found.push(Found {
                sequence: frame.sequence,
                is_control: false,
                content: parts.concat(),
            });
        }
    }
    Ok(reader.sequence())
}
