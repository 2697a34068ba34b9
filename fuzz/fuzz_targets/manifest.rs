//! A manifest as it may be found on disk, unchanged and with the right checksum appended.
//!
//! Accepted bytes are exactly those that would be written, and the counts are consistent.
#![no_main]

use base::crc::crc64;
use durability::checkpoint::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    check(input);
    let mut summed = input.to_vec();
    let sum = crc64(0, &summed);
    summed.extend_from_slice(format!("end {sum:016x}\n").as_bytes());
    check(&summed);
});

fn check(bytes: &[u8]) {
    let Ok(manifest) = Manifest::decode(bytes) else {
        return;
    };
    assert_eq!(manifest.encode().as_bytes(), bytes);
    let records: u64 = manifest.parts.iter().map(|part| part.records).sum();
    assert_eq!(manifest.records(), records);
    assert!(!manifest.directory.contains('/'));
}
