//! Measures the memory of tools with large files.

use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::Command;

use testkit::process::{TemporaryDirectory, iolite_program};

const KEYS: u32 = 200_000;
const VALUE_BYTES: u16 = 400;
/// Less than the size of the file, and more than the tool needs, which is about 5 MB.
const DATA_KIB_MAX: u32 = 32 << 10;

/// Writes an RDB file of texts, 84 MB, with the checksum 0, which means none.
fn write(path: &Path) {
    let mut file = BufWriter::new(std::fs::File::create(path).unwrap());
    file.write_all(b"REDIS0011\xfe\x00").unwrap();
    let [high, low] = VALUE_BYTES.to_be_bytes();
    let value = vec![b'v'; VALUE_BYTES.into()];
    for number in 0..KEYS {
        let key = format!("key:{number:08}");
        file.write_all(&[0, u8::try_from(key.len()).unwrap()])
            .unwrap();
        file.write_all(key.as_bytes()).unwrap();
        // A length of 14 bits.
        file.write_all(&[0x40 | high, low]).unwrap();
        file.write_all(&value).unwrap();
    }
    file.write_all(b"\xff\0\0\0\0\0\0\0\0").unwrap();
    file.flush().unwrap();
}

#[test]
fn an_analysis_takes_less_memory_than_its_file() {
    let directory = TemporaryDirectory::new("large-file").unwrap();
    let path = directory.join("dump.rdb");
    write(&path);
    // The shell limits the writable memory of the process.
    let script = format!("ulimit -d {DATA_KIB_MAX}; exec \"$0\" analyze \"$1\" --json");
    let told = Command::new("sh")
        .args(["-c", &script])
        .arg(iolite_program())
        .arg(&path)
        .output()
        .unwrap();
    assert!(told.status.success(), "{told:?}");
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["keys"], KEYS, "{told}");
}
