//! Tests of a start with data on a full file system: the stored data is served, and writes work
//! again when there is space.
//!
//! The tests need root and loop devices, as [`power_cuts`](crate::power_cuts) does.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, temporary_directory};

use crate::ledger::{kill, start};
use crate::power_cuts::Device;

const KEYS_COUNT: u64 = 200;
const DEVICE_MIB: u64 = 48;

fn set(client: &mut Client, key: u64) -> Value {
    let value = format!("{key}{}", "v".repeat(5_000));
    client
        .command(&["SET", &format!("k{key}"), &value])
        .unwrap()
}

/// Asserts that the first `count` keys exist, and no other.
fn check(server: &Server, count: u64) {
    let mut client = server.client().unwrap();
    for key in 0..count {
        let length = client.command(&["STRLEN", &format!("k{key}")]).unwrap();
        let expected = 5_000 + key.to_string().len();
        assert_eq!(length, Value::Integer(i64::try_from(expected).unwrap()));
    }
    let size = client.command(&["DBSIZE"]).unwrap();
    assert_eq!(size, Value::Integer(i64::try_from(count).unwrap()));
}

/// Cuts off the unwritten end of a file, which a start would use.
fn cut_reserve(path: &Path) {
    let bytes = fs::read(path).unwrap();
    let written = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    // A frame may end with zeroes.
    let kept = (written + 8).next_multiple_of(4096).min(bytes.len());
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(kept as u64).unwrap();
}

/// Uses up everything that a file system has: the names, the space reserved by the log, and then
/// all bytes.
fn fill(device: &Path, log: &Path) -> PathBuf {
    for entry in fs::read_dir(log).unwrap() {
        let path = entry.unwrap().path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("new") => fs::remove_file(path).unwrap(),
            Some("log") => cut_reserve(&path),
            _ => {}
        }
    }
    let fillers = device.join("fillers");
    fs::create_dir(&fillers).unwrap();
    let mut filler = File::create(fillers.join("long")).unwrap();
    let is_full = |result: io::Result<()>| {
        result.is_err_and(|error| {
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
            true
        })
    };
    let mut names = 0..;
    while !is_full(File::create(fillers.join(names.next().unwrap().to_string())).map(drop)) {}
    for block in [vec![1; 64 << 10], vec![1; 64]] {
        while !is_full(filler.write_all(&block).and_then(|()| filler.sync_data())) {}
    }
    fillers
}

fn is_refused(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with(b"MISCONF Errors writing to the log"))
}

/// Writes keys from `first` on until the log has no space for one. Returns the first refused key.
fn set_until_refused(server: &Server, first: u64) -> u64 {
    let mut client = server.client().unwrap();
    let patience = Patience::of(Duration::from_secs(60));
    let mut key = first;
    while !is_refused(&set(&mut client, key)) {
        key += 1;
        assert!(patience.lasts(), "{} keys, {}", key - first, server.log());
    }
    key
}

#[test]
#[allow(clippy::print_stdout, reason = "for who reads the run")]
fn what_is_kept_is_served_on_a_full_disk_and_writes_come_back_with_the_room() {
    let device = match Device::new(DEVICE_MIB, &["-N", "128"]) {
        Ok(device) => device,
        Err(reason) => {
            println!("skipped: a full disk needs root, ext4 and loop devices ({reason})");
            return;
        }
    };
    let dir = device.path().join("data");
    fs::create_dir(&dir).unwrap();
    let server = start(&dir, "everysec");
    let mut client = server.client().unwrap();
    for key in 0..KEYS_COUNT {
        assert_eq!(set(&mut client, key), Value::Simple(b"OK".to_vec()));
    }
    kill(&server);
    drop(server);
    let fillers = fill(&device.path(), &dir.join("iolite-data/log"));

    // Each start serves the existing data, including what was acknowledged with the last of the
    // log's space.
    let mut count = KEYS_COUNT;
    for _ in 0..2 {
        let server = start(&dir, "everysec");
        check(&server, count);
        count = set_until_refused(&server, count);
        let log = server.log();
        assert!(log.contains("The log cannot be written: "), "{log}");
        kill(&server);
    }

    let server = start(&dir, "everysec");
    check(&server, count);
    count = set_until_refused(&server, count);
    let mut client = server.client().unwrap();
    fs::remove_dir_all(fillers).unwrap();
    let patience = Patience::of(Duration::from_secs(60));
    while is_refused(&set(&mut client, count)) {
        assert!(patience.lasts(), "{}", server.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(server.log().contains("The log can be written again"));
    kill(&server);
    drop(server);
    check(&start(&dir, "everysec"), count + 1);
}

#[test]
fn a_start_removes_a_checkpoint_that_was_not_finished() {
    let dir = temporary_directory("unfinished").unwrap();
    let server = start(&dir, "everysec");
    let set = set(&mut server.client().unwrap(), 0);
    assert_eq!(set, Value::Simple(b"OK".to_vec()));
    kill(&server);
    drop(server);
    let data = dir.join("iolite-data");
    let unfinished = data.join("checkpoint-9-1");
    fs::create_dir(&unfinished).unwrap();
    fs::write(unfinished.join("0000.part"), b"some of it").unwrap();
    let checkpoints = || {
        let names = fs::read_dir(&data).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("checkpoint-")).count()
    };
    assert_eq!(checkpoints(), 2);
    check(&start(&dir, "everysec"), 1);
    assert_eq!(checkpoints(), 1);
    fs::remove_dir_all(&dir).unwrap();
}
