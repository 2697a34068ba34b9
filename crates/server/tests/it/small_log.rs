//! Tests of the memory and disk space of a log while no client writes, and that it grows when a
//! client does.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use protocol::Value;
use testkit::client::Client;
use testkit::process::{Server, ServerBuilder, TemporaryDirectory};

const MIB: u64 = 1 << 20;
/// Maximum resident memory of an empty server with a log. It uses some 20 MiB, and some 20 MiB on
/// the device.
const RESIDENT_BYTES_MAX: u64 = 24 * MIB;
const DEVICE_BYTES_MAX: u64 = 40 * MIB;
/// Number of keys written, each of [`VALUE_BYTES`].
const KEYS: usize = 40_000;
const VALUE_BYTES: usize = 4096;
const KEYS_PER_PIPELINE: usize = 400;

fn start(directory: &Path) -> Server {
    let directory = directory.display().to_string();
    let args = [
        "--appendonly",
        "yes",
        "--threads",
        "1",
        "--dir",
        &directory,
        "--save",
        "",
        "--enable-debug-command",
        "yes",
    ];
    ServerBuilder::iolite().args(&args).start().unwrap()
}

/// Returns the disk space that the files of a directory take.
fn device_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(about) if about.is_dir() => device_bytes(&entry.path()),
            Ok(about) => about.blocks() * 512,
            // The file was removed after the directory was listed.
            Err(_) => 0,
        })
        .sum()
}

fn log_memory_bytes(client: &mut Client) -> u64 {
    let Value::Bulk(text) = client.command(&["INFO", "memory"]).unwrap() else {
        panic!("INFO is a text");
    };
    let text = String::from_utf8(text).unwrap();
    let mut lines = text.lines();
    let bytes = lines.find_map(|line| line.strip_prefix("mem_aof_buffer:"));
    bytes.unwrap().parse().unwrap()
}

/// Returns the value of a key, which differs from all others.
fn value(number: usize) -> String {
    let mut value = format!("{number:08}").repeat(VALUE_BYTES / 8);
    value.truncate(VALUE_BYTES - number % 100);
    value
}

fn write_all(server: &Server, client: &mut Client) {
    let mut stream = UnixStream::connect(server.socket()).unwrap();
    for first in (0..KEYS).step_by(KEYS_PER_PIPELINE) {
        let mut requests = String::new();
        for number in first..first + KEYS_PER_PIPELINE {
            let value = value(number);
            let (key, length) = (format!("key:{number:08}"), value.len());
            requests += &format!("*3\r\n$3\r\nSET\r\n$12\r\n{key}\r\n${length}\r\n{value}\r\n");
        }
        stream.write_all(requests.as_bytes()).unwrap();
        let mut replies = vec![0; KEYS_PER_PIPELINE * "+OK\r\n".len()];
        std::io::Read::read_exact(&mut stream, &mut replies).unwrap();
        assert!(!replies.contains(&b'-'), "all are OK");
    }
    assert_eq!(
        client.command(&["DBSIZE"]).unwrap(),
        Value::Integer(i64::try_from(KEYS).unwrap())
    );
}

#[test]
fn a_log_that_nobody_writes_to_is_small_and_grows_with_what_is_written() {
    let directory = TemporaryDirectory::new("small-log").unwrap();
    let server = start(&directory);
    let mut client = server.client().unwrap();
    let (resident, on_device) = (server.rss_bytes().unwrap(), device_bytes(&directory));
    assert!(
        on_device <= DEVICE_BYTES_MAX,
        "{on_device} bytes on the device"
    );
    // A debug build is larger by itself.
    let most = if cfg!(debug_assertions) { 2 } else { 1 } * RESIDENT_BYTES_MAX;
    assert!(resident <= most, "{resident} bytes resident");
    let small = log_memory_bytes(&mut client);

    write_all(&server, &mut client);
    // On file systems other than ext4 and tmpfs there is no ring that could grow.
    if directory.join("iolite-data/log/ring").exists() {
        let large = log_memory_bytes(&mut client);
        assert!(large >= small + 8 * MIB, "{small}, then {large}");
    }

    // Acknowledged writes survive a kill, in segments and in the ring, to whatever size it grew.
    drop(server);
    let server = start(&directory);
    let mut client = server.client().unwrap();
    for number in 0..KEYS {
        let found = client.command(&["GET", &format!("key:{number:08}")]);
        let wanted = Value::Bulk(value(number).into_bytes());
        assert!(found.unwrap() == wanted, "key {number}");
    }
}

/// All workers sleep while this client writes: only its own worker could notice that the log has
/// space again.
#[test]
fn one_client_alone_makes_more_keys_than_the_log_has_room_for_in_memory() {
    let directory = TemporaryDirectory::new("small-log").unwrap();
    let server = start(&directory.join(""));
    let mut client = server.client().unwrap();
    let made = client.command(&["DEBUG", "POPULATE", "40000", "key", "4000"]);
    assert_eq!(made.unwrap(), Value::Simple(b"OK".to_vec()));
    let count = client.command(&["DBSIZE"]).unwrap();
    assert_eq!(count, Value::Integer(40_000));
}
