//! Files as servers of all ages wrote them, byte by byte according to the documentation of the
//! format.

use structures::{FieldDeadline, Hash, Object};

use super::{Contents, Fault, Usage, read, with_sum};
use crate::Value;
use crate::reader::Malformed;
use crate::tests::{hash, limits, list, set, sorted_set};

/// Encodes a short text.
pub(super) fn text(bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 64);
    let len = u8::try_from(bytes.len()).unwrap();
    [&[len][..], bytes].concat()
}

pub(super) fn parts(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// Encodes a record with the key `k`.
pub(super) fn record(type_code: u8, body: &[u8]) -> Vec<u8> {
    [&[type_code, 1, b'k'][..], body].concat()
}

/// Encodes a file of version `version` with these items.
pub(super) fn file(version: u16, items: &[u8]) -> Vec<u8> {
    let mut file = match version {
        80 => b"VALKEY080".to_vec(),
        _ => format!("REDIS{version:04}").into_bytes(),
    };
    file.extend_from_slice(items);
    file.push(0xff);
    if version < 5 { file } else { with_sum(file) }
}

/// Returns the only value of a file with this record.
pub(super) fn only(version: u16, type_code: u8, body: &[u8]) -> Value {
    let items = parts(&[b"\xfe\x00", &record(type_code, body)]);
    let Contents { mut records, .. } = read(&file(version, &items)).unwrap();
    assert_eq!(records.len(), 1);
    records.pop().unwrap().value
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

pub(super) fn pair(name: &str, value: &str) -> (Vec<u8>, Vec<u8>, Option<u64>) {
    (name.into(), value.into(), None)
}

/// `a` and 5.
const ZIPLIST: &[u8] = b"\x10\0\0\0\x0d\0\0\0\x02\0\x00\x01a\x03\xf6\xff";
/// `a` and 5.
const LISTPACK: &[u8] = b"\x0c\0\0\0\x02\0\x81a\x02\x05\x01\xff";
/// The field `f` with the value `v`.
const ZIPMAP: &[u8] = b"\x01\x01f\x01\x00v\xff";
/// -2 and 3 in two bytes each.
const INTSET: &[u8] = b"\x02\0\0\0\x02\0\0\0\xfe\xff\x03\0";

#[test]
fn the_first_version() {
    let expected = limits(16);
    // Strings: plain, numbers of one, two and four bytes, compressed.
    assert_eq!(only(1, 0, b"\x04text"), Value::String(b"text".into()));
    assert_eq!(only(1, 0, b"\xc0\xff"), Value::String(b"-1".into()));
    assert_eq!(only(1, 0, b"\xc1\x10\x27"), Value::String(b"10000".into()));
    let number = only(1, 0, b"\xc2\x00\xe1\xf5\x05");
    assert_eq!(number, Value::String(b"100000000".into()));
    // One literal byte, repeated 28 times.
    let packed = only(1, 0, b"\xc3\x05\x1d\x00x\xe0\x13\x00");
    assert_eq!(packed, Value::String(vec![b'x'; 29]));
    assert_eq!(
        only(1, 1, b"\x02\x01a\xc0\x05"),
        list(&texts(&["a", "5"]), &expected)
    );
    assert_eq!(
        only(1, 2, b"\x02\x01a\x01b"),
        set(&texts(&["a", "b"]), &expected)
    );
    let scores = b"\x03\x01a\x031.5\x01b\xfe\x01c\xff";
    let sorted = [
        (b"a".to_vec(), 1.5),
        (b"b".to_vec(), f64::INFINITY),
        (b"c".to_vec(), f64::NEG_INFINITY),
    ];
    assert_eq!(only(1, 3, scores), sorted_set(&sorted, &expected));
    let fields = [pair("f", "v"), pair("g", "w")];
    assert_eq!(
        only(1, 4, b"\x02\x01f\x01v\x01g\x01w"),
        hash(&fields, &expected)
    );
}

#[test]
fn blocks_of_versions_2_to_9() {
    let expected = limits(16);
    let zipmap = only(2, 9, &text(ZIPMAP));
    assert_eq!(zipmap, hash(&[pair("f", "v")], &expected));
    let both = list(&texts(&["a", "5"]), &expected);
    assert_eq!(only(3, 10, &text(ZIPLIST)), both);
    let ints = only(3, 11, &text(INTSET));
    assert_eq!(ints, set(&texts(&["-2", "3"]), &expected));
    let sorted = only(3, 12, &text(ZIPLIST));
    assert_eq!(sorted, sorted_set(&[(b"a".to_vec(), 5.0)], &expected));
    let pairs = only(4, 13, &text(ZIPLIST));
    assert_eq!(pairs, hash(&[pair("a", "5")], &expected));
    let four = list(&texts(&["a", "5", "a", "5"]), &expected);
    let rows = parts(&[b"\x02", &text(ZIPLIST), &text(ZIPLIST)]);
    assert_eq!(only(7, 14, &rows), four);
    let score = 2.5_f64.to_le_bytes();
    assert_eq!(
        only(8, 5, &parts(&[b"\x01\x01a", &score])),
        sorted_set(&[(b"a".to_vec(), 2.5)], &expected)
    );
}

#[test]
fn blocks_of_versions_10_and_11() {
    let expected = limits(16);
    let pairs = only(10, 16, &text(LISTPACK));
    assert_eq!(pairs, hash(&[pair("a", "5")], &expected));
    let sorted = only(10, 17, &text(LISTPACK));
    assert_eq!(sorted, sorted_set(&[(b"a".to_vec(), 5.0)], &expected));
    // A block, and a separate element.
    let rows = parts(&[b"\x02\x02", &text(LISTPACK), b"\x01\x04long"]);
    let three = list(&texts(&["a", "5", "long"]), &expected);
    assert_eq!(only(10, 18, &rows), three);
    let members = only(11, 20, &text(LISTPACK));
    assert_eq!(members, set(&texts(&["a", "5"]), &expected));
}

#[test]
fn fields_with_deadlines() {
    let at = 4_000_000_000_000_u64;
    let mut expected = Hash::new();
    let limits = limits(16).hash;
    let mut set = |name: &[u8], deadline| expected.set(name, b"v", deadline, 0, &limits).unwrap();
    set(b"a", FieldDeadline::At(at));
    set(b"b", FieldDeadline::At(at + 2));
    set(b"c", FieldDeadline::Never);
    let expected = Value::Object(Object::Hash(expected));
    let earliest = at.to_le_bytes();
    let later = b"\x03\x01\x01a\x01v\x03\x01b\x01v\x00\x01c\x01v";
    assert_eq!(only(12, 24, &parts(&[&earliest, later])), expected);
    // Before 7.4 there is no earliest deadline: deadlines are absolute, and are lengths of nine
    // bytes.
    let absolute = |at: u64| [&[0x81][..], &at.to_be_bytes()].concat();
    let early = parts(&[
        b"\x03",
        &absolute(at),
        b"\x01a\x01v",
        &absolute(at + 2),
        b"\x01b\x01v\x00\x01c\x01v",
    ]);
    assert_eq!(only(12, 22, &early), expected);
    // Numbers of 64 bits in a listpack: f4 and eight bytes.
    let number = |at: u64| [&[0xf4][..], &at.to_le_bytes(), &[9]].concat();
    let block = parts(&[
        b"\x81a\x02\x81v\x02",
        &number(at),
        b"\x81b\x02\x81v\x02",
        &number(at + 2),
        b"\x81c\x02\x81v\x02\x00\x01\xff",
    ]);
    let total = u32::try_from(block.len() + 6).unwrap();
    let listpack = text(&parts(&[&total.to_le_bytes(), b"\x09\0", &block]));
    assert_eq!(only(12, 23, &listpack), expected);
    assert_eq!(only(12, 25, &parts(&[&earliest, &listpack])), expected);
    let of_valkey = parts(&[
        b"\x03\x01a\x01v",
        &earliest,
        b"\x01b\x01v",
        &(at + 2).to_le_bytes(),
        b"\x01c\x01v",
        &[0xff; 8],
    ]);
    assert_eq!(only(80, 22, &of_valkey), expected);
}

/// The entry 1000-1 with the field `f` and the value `v`.
pub(super) const ENTRIES: &[u8] = b"\x1d\0\0\0\x0a\0\
    \x01\x01\x00\x01\x01\x01\x81f\x02\x00\x01\
    \x02\x01\x00\x01\x00\x01\x81v\x02\x04\x01\xff";
pub(super) const ID: &[u8] = b"\0\0\0\0\0\0\x03\xe8\0\0\0\0\0\0\0\x01";
pub(super) const ID_AS_LENGTHS: &[u8] = b"\x43\xe8\x01";

#[test]
fn streams_of_three_versions() {
    let time = 1_700_000_000_000_u64.to_le_bytes();
    let block = parts(&[b"\x01", &text(ID), &text(ENTRIES), b"\x01", ID_AS_LENGTHS]);
    let counters = parts(&[ID_AS_LENGTHS, b"\0\0", b"\x01"]);
    let group = parts(&[b"\x01\x01g", ID_AS_LENGTHS]);
    let pending = parts(&[b"\x01", ID, &time, b"\x02"]);
    let consumer = parts(&[b"\x01\x01c", &time]);
    let owned = parts(&[b"\x01", ID]);
    let first = parts(&[&block, &group, &pending, &consumer, &owned]);
    let second = parts(&[
        &block, &counters, &group, b"\x01", &pending, &consumer, &owned,
    ]);
    let third = parts(&[
        &block, &counters, &group, b"\x01", &pending, &consumer, &time, &owned,
    ]);
    for (version, code, body) in [(9, 15, first), (10, 19, second), (11, 21, third)] {
        let Value::Object(Object::Stream(stream)) = only(version, code, &body) else {
            panic!("a stream");
        };
        assert_eq!(stream.len(), 1);
        assert_eq!(stream.log().counters().entries_added, 1);
        let (name, group) = stream.groups().next().unwrap();
        assert_eq!(name, b"g");
        assert_eq!(group.entries_read(), Some(1));
        assert_eq!(group.pending_count(), 1);
        let (_, consumer) = group.consumers().next().unwrap();
        assert_eq!(consumer.name(), b"c");
        assert_eq!(consumer.active_unix_ms(), Some(1_700_000_000_000));
    }
}

#[test]
fn everything_that_can_stand_between_records() {
    let items = parts(&[
        b"\xfa\x09redis-ver\x057.2.4",
        b"\xfa\x0aredis-bits\xc0\x40",
        // Remains of a module: name, when, a number, a text and the end.
        &[0xf7, 0x81],
        &module_id("ReJSON-RL", 3).to_be_bytes(),
        b"\x02\x02\x01\x05\x03\0\0\x80\x3f\x05\x02hi\x00",
        b"\xf5\x0d#!lua name=x\n",
        b"\xfe\x03\xfb\x02\x01\xf4\x01\x02\x00",
        b"\xfc\x00\x10\xa5\xd4\xe8\0\0\0\xf8\x45\x00\x00\x01a\x01v",
        b"\xf9\xff\x00\x01b\x01v",
        // A deadline in seconds, and one that means none.
        b"\xfd\x00\xca\x9a\x3b\x00\x01c\x01v",
        b"\xfc\xff\xff\xff\xff\xff\xff\xff\xff\x00\x01d\x01v",
        b"\xfe\x00\x00\x01a\x01v",
    ]);
    let contents = read(&file(11, &items)).unwrap();
    let row = |at: usize| {
        let record = &contents.records[at];
        let key = String::from_utf8_lossy(&record.key).into_owned();
        (record.database, key, record.deadline_unix_ms, record.usage)
    };
    let deadline = u64::from_le_bytes(*b"\x00\x10\xa5\xd4\xe8\0\0\0");
    let idle = Some(Usage::IdleSeconds(0x500));
    assert_eq!(row(0), (3, "a".into(), Some(deadline), idle));
    assert_eq!(row(1), (3, "b".into(), None, Some(Usage::Frequency(255))));
    assert_eq!(row(2), (3, "c".into(), Some(1_000_000_000_000), None));
    assert_eq!(row(3), (3, "d".into(), None, None));
    assert_eq!(row(4), (0, "a".into(), None, None));
    assert_eq!(
        contents.others[..8],
        [
            "aux redis-ver=7.2.4",
            "aux redis-bits=64",
            "module ReJSON-RL",
            "function #!lua name=x\n",
            "Database(3)",
            "Sizes { keys: 2, expiring: 1 }",
            "Slot",
            "Database(0)",
        ]
    );
    let early = read(&file(10, b"\xf6\x01n\x03LUA\x00\x04code")).unwrap();
    assert!(early.others[0].starts_with("FunctionEarly("));
    let import = parts(&[b"\xf3\x02id\x01\x01\x02"]);
    assert_eq!(read(&file(80, &import)).unwrap().others[0], "SlotImport");
    assert!(read(&file(11, &import)).is_err());
}

/// Encodes a module's name and version as a number.
fn module_id(name: &str, version: u64) -> u64 {
    const CHARACTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let name = name.chars().fold(0, |id, character| {
        id << 6 | CHARACTERS.find(character).unwrap() as u64
    });
    name << 10 | version
}

#[test]
fn values_of_modules_are_refused_by_name() {
    let id = module_id("MBbloom--", 4).to_be_bytes();
    let items = parts(&[b"\xfe\0\x07\x01k\x81", &id, b"\x02\x00\x00"]);
    let error = read(&file(11, &items)).unwrap_err();
    assert!(matches!(error.fault, Fault::Module(_)));
    assert_eq!(
        error.to_string(),
        "at offset 14: a value of the module type 'MBbloom--', which is unknown"
    );
}

#[test]
fn a_file_without_a_sum_is_read() {
    let mut old = b"REDIS0004\xfe\x00\x00\x01k\x01v\xff".to_vec();
    assert_eq!(read(&old).unwrap().others.last().unwrap(), "Some(Absent)");
    // Only its end distinguishes it from a file of a later version whose version was damaged.
    old.extend_from_slice(&[0; 8]);
    let error = read(&old).unwrap_err();
    assert!(matches!(error.fault, Fault::Malformed(Malformed::Behind)));
    old[8] = b'9';
    assert_eq!(read(&old).unwrap().others.last().unwrap(), "Some(Off)");
}

#[test]
fn an_unknown_type_is_refused_where_it_stands() {
    let error = read(&file(11, b"\xfe\x00\x63\x01k\x01v")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "at offset 11: the key 'k' of this file of RDB version 11 is not loaded: no type has the code 99; \
         without that key the file can be"
    );
}

#[test]
fn a_block_that_lies_is_refused_where_its_value_is() {
    let mut listpack = LISTPACK.to_vec();
    listpack[4] = 3;
    let items = parts(&[b"\xfe\x00", &record(16, &text(&listpack))]);
    let error = read(&file(11, &items)).unwrap_err();
    assert!(matches!(error.fault, Fault::Malformed(Malformed::Block)));
    assert!((14..=27).contains(&error.offset), "{error}");
}
