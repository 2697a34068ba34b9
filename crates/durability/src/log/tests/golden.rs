//! The bytes of versions 2 to 4 do not change: `tests/vectors/v2/log/` and so on. One file of
//! version 1 is kept, which must be refused.
//!
//! With `WRITE_VECTORS=1` in the environment the test writes the files; only for a new version.

use std::path::Path;
use std::sync::Arc;

use super::written::{Directory, Written, read, read_from};
use crate::disk::SystemDisk;
use crate::log::{Control, Shape, SlotRanges, SourceFrame, TermFrame, VERSION};

/// Returns the same frames in each version, with the version's own additions.
fn vectors(version: u32) -> [(&'static str, Vec<u8>); 2] {
    let mut first = Written::of_version(version, 0, 0);
    first.block(0, &[&[&[b"SET", b"key", b"value"]], &[&[b"DEL", b""]]]);
    if version >= 3 {
        first.gap = 24;
    }
    first.block(
        0,
        &[&[&[b"LPUSH", b"list", &[b'x'; 1234]], &[b"DEL", b"other"]]],
    );
    let durable = first.sequence;
    first.gap = 0;
    first.block(durable, &[]);
    let mut second = Written::of_version(version, 1, durable);
    // Too high for a short head.
    second.database = 300;
    second.block(durable, &[&[&[b"PING"]]]);
    if version >= 4 {
        let controls = controls();
        let (source, others) = controls.split_first().unwrap();
        let controls = [others, &[*source]].concat();
        second.block_of(
            durable,
            &controls,
            &[&[&[b"SET", b"key", b"other"], &[b"DEL", b"list"]]],
        );
    }
    [
        ("0000000000000000.log", first.bytes),
        ("0000000000000538.log", second.bytes),
    ]
}

/// Returns a source, which stands in front of a group, and one control of each other kind.
fn controls() -> [Control<'static>; 7] {
    [
        Control::Source(SourceFrame {
            replid: *b"8371b4fb1155b71f4a04d3e1bc3e18c4a990aeeb",
            offset: 5678,
            database: 3,
        }),
        Control::Term(TermFrame {
            number: 7,
            id: *b"the id of this term!",
            previous: *b"the id of the former",
            node: *b"the id of the node!!",
            resp_offset: 1234,
            flags: 0,
        }),
        Control::Ping,
        Control::GetAck,
        Control::DigestPoint { number: 9 },
        Control::Trim(SlotRanges::new(&[1, 0, 2, 0, 0, 1, 0xff, 0x3f]).unwrap()),
        Control::Config {
            name: b"name",
            value: b"value",
        },
    ]
}

#[test]
fn the_bytes_are_those_of_the_vectors() {
    for version in [2, 3, 4] {
        check_vectors(version);
    }
}

fn check_vectors(version: u32) {
    let root = env!("CARGO_MANIFEST_DIR");
    let root = &format!("{root}/tests/vectors/v{version}/log");
    let directory = Directory::new();
    for (name, bytes) in vectors(version) {
        let path = format!("{root}/{name}");
        if version == VERSION && std::env::var_os("WRITE_VECTORS").is_some() {
            std::fs::create_dir_all(root).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{name}");
        directory.put(name, &bytes);
    }
    let (mut frames, tail) = read(&directory, 0);
    let of_controls = frames.split_off(4);
    let (long, rest) = (frames[2].clone(), [&frames[0], &frames[1], &frames[3]]);
    assert_eq!(
        rest,
        ["0 3/7 SET key value", "32 3/7 DEL ", "1336 300/7 PING",]
    );
    assert!(long.starts_with("56 0/8 LPUSH list xxx"));
    assert!(long.ends_with("x; 1/8 DEL other"));
    let mut wanted = Vec::new();
    let mut end = 1376;
    if version >= 4 {
        let [source, others @ ..] = controls();
        for (control, bytes) in others.iter().zip([120, 40, 40, 48, 48, 48]) {
            wanted.push(format!("{end} {control:?}"));
            end += bytes;
        }
        wanted.push(format!("{end} {source:?}; 0/8 SET key other; 1/8 DEL list"));
        end += 112;
    }
    assert_eq!(of_controls, wanted);
    let tail = tail.unwrap();
    assert_eq!((tail.end, tail.shape), (end, Shape::Clean));
    assert!(tail.place.unwrap().0.ends_with("0000000000000538.log"));
}

#[test]
fn a_log_is_read_from_any_frame_on() {
    let directory = Directory::new();
    for (name, bytes) in vectors(3) {
        directory.put(name, &bytes);
    }
    for (from, count) in [(0, 4), (32, 3), (56, 2), (1336, 1), (1376, 0), (9999, 0)] {
        let (frames, tail) = read(&directory, from);
        assert_eq!(frames.len(), count, "from {from}");
        assert_eq!(tail.unwrap().end, 1376, "from {from}");
    }
    directory.remove(vectors(3)[0].0);
    let (_, missing) = read(&directory, 32);
    let text = missing.unwrap_err().to_string();
    assert_eq!(
        text,
        "the log begins at sequence 1336, but is needed from 32 on"
    );
}

/// Checks that no reader accepts it, and that opening it changes nothing.
fn assert_is_refused(bytes: &[u8], expected: &str) {
    let directory = Directory::new();
    directory.put("0000000000000000.log", bytes);
    let text = read(&directory, 0).1.unwrap_err().to_string();
    assert_eq!(text, format!("log/0000000000000000.log has {expected}"));
    let text = directory.open_log(0).unwrap_err().to_string();
    assert!(text.ends_with(expected), "{text}");
    assert_eq!(directory.get("0000000000000000.log"), bytes);
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let mut bytes = Written::new(0, 0).bytes;
    bytes[8] = 5;
    let sum = crate::checksum::crc32c(&bytes[..36]);
    bytes[36..40].copy_from_slice(&sum.to_le_bytes());
    assert_is_refused(
        &bytes,
        "version 5 of the log's format; this server reads versions 2 to 4: a newer one reads it",
    );
}

#[test]
fn version_1_is_refused_with_the_way_out() {
    let bytes = include_bytes!("../../../tests/vectors/v1/log/0000000000000000.log");
    assert_is_refused(
        bytes,
        "version 1 of the log's format; this server reads versions 2 to 4: `export` the data with the \
         program that wrote it, and `import` that into an empty directory",
    );
}

#[test]
fn a_directory_without_a_log_ends_where_it_begins() {
    let directory = Directory::new();
    directory.put("0000000000000000.tmp", b"");
    directory.put("00000000000000G0.log", b"");
    let nowhere = read_from(Arc::new(SystemDisk), Path::new("/nowhere/at/all"), 5);
    for (_, tail) in [read(&directory, 5), nowhere] {
        let tail = tail.unwrap();
        assert_eq!((tail.end, tail.place), (5, None));
    }
}
