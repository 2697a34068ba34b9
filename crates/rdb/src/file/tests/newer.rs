//! Files of Redis 8.6 to 8.10, byte by byte according to other readers and Redis' own tests.

use structures::Object;

use super::golden::{ENTRIES, ID, ID_AS_LENGTHS, file, only, pair, parts, record, text};
use super::{FileReader, Item, LeftOut, read};
use crate::Value;
use crate::tests::{hash, limits};

/// Returns a stream with one entry, a group without consumers, and this data about producers.
fn stream(producers: &[u8]) -> Vec<u8> {
    parts(&[
        b"\x01",
        &text(ID),
        &text(ENTRIES),
        b"\x01",
        ID_AS_LENGTHS,
        ID_AS_LENGTHS,
        b"\0\0\x01",
        b"\x01\x01g",
        ID_AS_LENGTHS,
        b"\x01\0\0",
        producers,
    ])
}

/// 100 seconds, 100 entries, none; counts.
const NO_PRODUCERS: &[u8] = b"\x40\x64\x40\x64\x00\x00\x00";
/// Two producers with one and two requests.
const PRODUCERS: &[u8] =
    b"\x40\x64\x40\x64\x02\x01p\x01\x02r1\x43\xe8\x01\x01q\x02\x02r1\x43\xe8\x01\xc0\x07\x43\xe8\x01\x03\x01";

fn left_out(file: &[u8]) -> LeftOut {
    let mut reader = FileReader::open(file, limits(16)).unwrap();
    while reader.next().unwrap().is_some() {}
    reader.left_out().clone()
}

#[test]
fn streams_of_redis_8_6_are_read_without_their_producers() {
    for (producers, count) in [(NO_PRODUCERS, 0), (PRODUCERS, 2)] {
        let body = stream(producers);
        let Value::Object(Object::Stream(read)) = only(13, 26, &body) else {
            panic!("a stream");
        };
        assert_eq!(read.len(), 1);
        let (name, group) = read.groups().next().unwrap();
        assert_eq!((name, group.entries_read()), (&b"g"[..], Some(1)));
        let items = parts(&[b"\xfe\0", &record(26, &body), &record(0, b"\x01v")]);
        let left_out = left_out(&file(13, &items));
        assert_eq!(left_out.stream_producers, count);
    }
    // Truncated data is detected.
    let body = stream(&PRODUCERS[..PRODUCERS.len() - 1]);
    assert!(read(&file(13, &record(26, &body))).is_err());
}

#[test]
fn metadata_of_modules_is_passed() {
    // Two classes: a number and a text; a double.
    let metadata = parts(&[
        b"\xf3\x02abcd\x02\x05\x05\x02hi\x00efgh\x04",
        &[0; 8],
        b"\x00",
    ]);
    let items = parts(&[
        b"\xfe\0\xfc\x00\x10\xa5\xd4\xe8\0\0\0",
        &metadata,
        &record(0, b"\x01v"),
    ]);
    let contents = read(&file(13, &items)).unwrap();
    assert_eq!(contents.records[0].value, Value::String(b"v".to_vec()));
    assert!(contents.records[0].deadline_unix_ms.is_some());
    assert_eq!(left_out(&file(13, &items)).metadata_keys, 1);
    // No earlier version has it.
    let error = read(&file(12, &items)).unwrap_err();
    assert!(error.to_string().contains("no type has the code 243"));
}

/// The listpack of a template's number and the values `1` and `x`.
const OF_TEMPLATE: &[u8] = b"\x0e\0\0\0\x03\0\x07\x01\x01\x01\x81x\x02\xff";
/// The listpack of the names `a` and `bb`.
const NAMES: &[u8] = b"\x0e\0\0\0\x02\0\x81a\x02\x82bb\x03\xff";

#[test]
fn hashes_by_templates_of_a_file() {
    let template = b"\xf2\x07\x02\x01a\x02bb";
    let both = parts(&[
        template,
        b"\xfe\0\x20\x01k\x07\xc0\x01\x01x",
        &parts(&[b"\x1e\x01l", &text(OF_TEMPLATE)]),
    ]);
    let contents = read(&file(15, &both)).unwrap();
    let expected = hash(&[pair("a", "1"), pair("bb", "x")], &limits(16));
    assert_eq!(contents.records.len(), 2);
    for record in contents.records {
        assert_eq!(record.value, expected);
    }
    let whole = file(15, &both);
    let mut reader = FileReader::open(&whole[..], limits(16)).unwrap();
    while let Some(item) = reader.next().unwrap() {
        if let Item::Record(record) = item {
            assert_eq!(record.type_code, 4);
        }
    }
    // A template that is missing, duplicated, or without names, or whose names differ in number
    // from the values.
    for wrong in [
        parts(&[b"\xfe\0\x20\x01k\x07\xc0\x01\x01x"]),
        parts(&[template, template]),
        parts(&[b"\xf2\x07\x00"]),
        parts(&[b"\xf2\x07\x01\x01a\xfe\0\x1e\x01l", &text(OF_TEMPLATE)]),
        parts(&[
            b"\xf2\x08\x02\x01a\x02bb\xfe\0\x1e\x01l",
            &text(OF_TEMPLATE),
        ]),
    ] {
        assert!(read(&file(15, &wrong)).is_err(), "{wrong:02x?}");
    }
    // A duplicated name would be two fields in one.
    let twice = parts(&[b"\xf2\x07\x02\x01a\x01a\xfe\0\x20\x01k\x07\xc0\x01\x01x"]);
    assert!(read(&file(15, &twice)).is_err());
    assert!(read(&file(14, template)).is_err());
}

#[test]
fn what_has_no_counterpart_is_named_with_its_key() {
    let error = read(&file(14, b"\xfe\0\x1c\x04list\x01\x00")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "at offset 11: the key 'list' of this file of RDB version 14 is not loaded: type 28 has no counterpart here: \
         an array, since Redis 8.8; without that key the file can be"
    );
    let error = read(&file(14, b"\xfe\0\x1b\x04jobs\x01\x00")).unwrap_err();
    assert!(error.to_string().contains("released by XNACK"));
    // A file without any of them is read in every version.
    assert_eq!(only(14, 0, b"\x01v"), Value::String(b"v".to_vec()));
}

mod payloads {
    use super::*;
    use crate::dump::{self, Refused};
    use crate::reader::Malformed;

    fn payload(content: &[u8], version: u16) -> Vec<u8> {
        let mut payload = parts(&[content, &version.to_le_bytes()]);
        let sum = base::crc::crc64(0, &payload);
        payload.extend_from_slice(&sum.to_le_bytes());
        payload
    }

    fn value(payload: &[u8]) -> Result<Value, Refused> {
        dump::read(payload, &limits(16))
    }

    #[test]
    fn hashes_by_templates() {
        let expected = hash(&[pair("a", "1"), pair("bb", "x")], &limits(16));
        let listpacks = parts(&[b"\x1d\x00", &text(NAMES), &text(OF_TEMPLATE)]);
        let texts = b"\x1f\x01\x02\x01a\x02bb\xc0\x01\x01x";
        for content in [&listpacks[..], texts] {
            let payload = payload(content, 15);
            assert_eq!(value(&payload).unwrap(), expected);
            // Without a checksum, as on the replication link of a Redis 8.10.
            let len = payload.len() - 8;
            let sumless = parts(&[&payload[..len], &[0; 8]]);
            assert_eq!(value(&sumless).unwrap(), expected);
        }
    }

    /// Templates that Redis' tests expect to be refused.
    #[test]
    fn wrong_templates() {
        let names = b"\x17\x17\0\0\0\x02\0\x86field1\x07\x86field2\x07\xff";
        for (content, expected) in [
            // Fewer values than names; no values; an invalid number; no names.
            (
                parts(&[
                    b"\x1d\0",
                    names,
                    b"\x0b\x0b\0\0\0\x02\0\x00\x01\x01\x01\xff",
                ]),
                Malformed::Block,
            ),
            (
                parts(&[b"\x1d\0", names, b"\x07\x07\0\0\0\0\0\xff"]),
                Malformed::Block,
            ),
            (
                parts(&[
                    b"\x1d\0",
                    names,
                    b"\x0e\x0e\0\0\0\x03\0\x81x\x02\x01\x01\x02\x01\xff",
                ]),
                Malformed::Block,
            ),
            (
                parts(&[
                    b"\x1d\0\x07\x07\0\0\0\0\0\xff",
                    b"\x0d\x0d\0\0\0\x03\0\x00\x01\x01\x01\x02\x01\xff",
                ]),
                Malformed::Empty,
            ),
            (
                b"\x1f\x01\x00\x06field1\x06field2\xc0\x01\xc0\x02".to_vec(),
                Malformed::Empty,
            ),
            // With a template of a file: no payload has one.
            (
                b"\x1e\x0d\x0d\0\0\0\x03\0\x05\x01\x01\x01\x02\x01\xff".to_vec(),
                Malformed::Type(30),
            ),
            (b"\x20\x05\xc0\x01\xc0\x02".to_vec(), Malformed::Type(32)),
        ] {
            let refused = value(&payload(&content, 15)).unwrap_err();
            assert_eq!(refused, Refused::Malformed(expected), "{content:02x?}");
        }
    }

    #[test]
    fn a_sum_may_be_missing_from_version_15_on() {
        for (version, is_taken) in [(12, false), (14, false), (15, true), (80, false)] {
            let sumless = parts(&[b"\x00\x01v", &u16::to_le_bytes(version), &[0; 8]]);
            assert_eq!(value(&sumless).is_ok(), is_taken, "{version}");
        }
        assert_eq!(value(&payload(b"\x00\x01v", 16)), Err(Refused::Footer));
    }

    #[test]
    fn metadata_is_passed() {
        let content = b"\xf3\x01abcd\x05\x02hi\x00\x00\x01v";
        let expected = Value::String(b"v".to_vec());
        assert_eq!(value(&payload(content, 13)).unwrap(), expected);
        assert!(value(&payload(content, 12)).is_err());
        for at in 1..content.len() {
            assert!(value(&payload(&content[..at], 13)).is_err());
        }
    }
}
