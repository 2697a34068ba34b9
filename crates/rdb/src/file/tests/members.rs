//! A file with deadlines of members as KeyDB 6.3 wrote it, and damaged ones.

use structures::Object;

use super::golden::{file, parts, record};
use super::{FileReader, LeftOut, read};
use crate::Value;
use crate::tests::limits;

/// A hash `h` whose fields `a` and `b` have deadlines and whose `c` has none, a set `s` with two
/// members and a sorted set `z` with one, some of which have deadlines, a hash and a string
/// without, and a string `t` with its own deadline.
const OF_KEYDB: &str = "\
     524544495330303039fa0972656469732d7665720b3235352e3235352e323535fa0a72656469732d62697473c040fa056374\
     696d65c226860c6bfa08757365642d6d656dc2d0941600fa0c616f662d707265616d626c65c000fe00fb06040d05706c6169\
     6e10100000000d000000020000016103f2ff00017501760201730201790178fa136b657964622d7375626578706972652d6b\
     65790178fa146b657964622d7375626578706972652d7768656e0d31393030303030303030303030fa136b657964622d7375\
     626578706972652d6b65790179fa146b657964622d7375626578706972652d7768656e0d313930303030303030313030300c\
     017a151500000012000000040000016d03f202016e03f3fffa136b657964622d7375626578706972652d6b6579016dfa146b\
     657964622d7375626578706972652d7768656e0d31393030303030303030343536fce4e8e12ea201000000017401760d0168\
     1a1a00000017000000060000016103f202016203f302016303f4fffa136b657964622d7375626578706972652d6b65790162\
     fa146b657964622d7375626578706972652d7768656e0d31393030303030303030303030fa136b657964622d737562657870\
     6972652d6b65790161fa146b657964622d7375626578706972652d7768656e0d31393030303030303030313233ffdab75f17\
     a6ccc37d";

const MEMBER: &[u8] = b"\xfa\x13keydb-subexpire-key";
const TIME: &[u8] = b"\xfa\x14keydb-subexpire-when";
/// The field `f` with the value `v`.
const HASH: &[u8] = b"\x01\x01f\x01v";

fn of_keydb() -> Vec<u8> {
    let digits = OF_KEYDB.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

fn deadlines(value: &Value) -> Vec<(String, Option<u64>)> {
    let Value::Object(Object::Hash(hash)) = value else {
        panic!("a hash: {value:?}");
    };
    let fields = hash.iter(0).map(|field| {
        let name = String::from_utf8(field.name.as_bytes().to_vec()).unwrap();
        (name, field.deadline_unix_ms)
    });
    let mut fields: Vec<_> = fields.collect();
    fields.sort();
    fields
}

fn left_out(file: &[u8]) -> LeftOut {
    let mut reader = FileReader::open(file, limits(16)).unwrap();
    while reader.next().unwrap().is_some() {}
    reader.left_out().clone()
}

#[test]
fn fields_of_hashes_have_the_deadlines_that_keydb_gave_them() {
    let contents = read(&of_keydb()).unwrap();
    assert_eq!(contents.records.len(), 6);
    let of = |key: &[u8]| {
        contents
            .records
            .iter()
            .find(|kept| kept.key == key)
            .unwrap()
    };
    let expected = [
        ("a".to_owned(), Some(1_900_000_000_123)),
        ("b".to_owned(), Some(1_900_000_000_000)),
        ("c".to_owned(), None),
    ];
    assert_eq!(deadlines(&of(b"h").value), expected);
    assert_eq!(deadlines(&of(b"plain").value), [("a".to_owned(), None)]);
    assert!(of(b"t").deadline_unix_ms.is_some() && of(b"h").deadline_unix_ms.is_none());
    // They belong to their key, and are not facts about the file.
    assert!(
        contents
            .others
            .iter()
            .all(|other| !other.contains("subexpire"))
    );
}

#[test]
fn deadlines_of_other_types_are_counted_with_the_first_key() {
    let left_out = left_out(&of_keydb());
    assert_eq!(left_out.member_deadlines, 3);
    assert_eq!(left_out.first_member_key, b"s");
}

#[test]
fn only_what_is_of_a_key_is_taken_from_behind_it() {
    let one = |fields: &[&[u8]]| {
        let items = parts(&[b"\xfe\0", &record(4, HASH), &parts(fields)]);
        read(&file(9, &items))
    };
    // An active replica writes when the next key was changed. A member alone or a time alone has no
    // meaning.
    for (fields, others) in [
        (
            &[
                MEMBER,
                b"\x01f",
                TIME,
                b"\x0212",
                b"\xfa\x0bmvcc-tstamp\x011",
            ][..],
            1,
        ),
        (&[MEMBER, b"\x01f", TIME, b"\x0212", MEMBER, b"\x01f"], 1),
        (&[MEMBER, b"\x01f", TIME, b"\xc0\x0c", TIME, b"\x0213"], 1),
        (
            &[
                MEMBER, b"\x01x", TIME, b"\x0213", MEMBER, b"\x01f", TIME, b"\x0212",
            ],
            0,
        ),
    ] {
        let contents = one(fields).unwrap();
        let auxiliary = contents
            .others
            .iter()
            .filter(|other| other.starts_with("aux"));
        assert_eq!(auxiliary.count(), others, "{:?}", contents.others);
        let expected = [("f".to_owned(), Some(12))];
        assert_eq!(deadlines(&contents.records[0].value), expected);
    }
    // A time in the past stays in the past, and a time beyond the range becomes the last valid one.
    for (time, expected) in [
        (&b"\x010"[..], 1),
        (b"\x02-5", 1),
        (b"\x139223372036854775807", (1 << 46) - 1),
    ] {
        let contents = one(&[MEMBER, b"\x01f", TIME, time]).unwrap();
        let expected = [("f".to_owned(), Some(expected))];
        assert_eq!(deadlines(&contents.records[0].value), expected);
    }
    assert!(one(&[MEMBER, b"\x01f", TIME, b"\x01x"]).is_err());
    assert!(one(&[MEMBER, b"\x01f", TIME]).is_err());
}
