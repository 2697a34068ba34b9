//! Replies: golden vectors for both versions, and a round trip of writing and reading.

use proptest::collection::vec;
use proptest::prelude::*;
use protocol::{Double, Reply, ReplyBuffer, Resp, Value, ValueError, decode_value};

use crate::escaped::{lines, unescape};

const VECTORS: &str = include_str!("../vectors/replies.resp");

fn write(version: Resp, write: impl FnOnce(&mut Reply<'_>)) -> Vec<u8> {
    let mut buffer = ReplyBuffer::new();
    write(&mut Reply::new(&mut buffer, version));
    buffer.as_slice().to_vec()
}

fn write_named(name: &str, reply: &mut Reply<'_>) {
    match name {
        "ok" => reply.ok(),
        "simple" => reply.simple("PONG"),
        "error" => reply.error("ERR syntax error"),
        "error_with_line_ends" => reply.error_bytes(b"ERR 'a\r\nb'\r\n"),
        "integer_0" => reply.integer(0),
        "integer_9" => reply.integer(9),
        "integer_10" => reply.integer(10),
        "integer_-1" => reply.integer(-1),
        "integer_max" => reply.integer(i64::MAX),
        "integer_min" => reply.integer(i64::MIN),
        "bulk_empty" => reply.bulk(b""),
        "bulk" => reply.bulk(b"a\r\n\0\xff"),
        "bulk_of_12" => reply.bulk_with(12, |room| room.copy_from_slice(b"abcdefghijkl")),
        "bulk_integer" => reply.bulk_integer(-123),
        "null" => reply.null(),
        "null_array" => reply.null_array(),
        "array_empty" => reply.array(0),
        "array" => {
            reply.array(2);
            reply.integer(1);
            reply.bulk_str("a");
        }
        "map" => {
            reply.map(2);
            reply.bulk(b"a");
            reply.integer(1);
            reply.bulk(b"b");
            reply.integer(2);
        }
        "set" => {
            reply.set(2);
            reply.integer(1);
            reply.integer(2);
        }
        "push" => {
            reply.push(2);
            reply.bulk_str("bye");
            reply.integer(1);
        }
        "attribute" => {
            if reply.attribute(1) {
                reply.simple("ttl");
                reply.integer(9);
            }
            reply.integer(7);
        }
        "double" => reply.double(1.5),
        "double_whole" => reply.double(3.0),
        "double_large" => reply.double(1e30),
        "double_small" => reply.double(1.5e-7),
        "double_infinite" => reply.double(f64::INFINITY),
        "double_negative_infinite" => reply.double(f64::NEG_INFINITY),
        "double_not_a_number" => reply.double(f64::NAN),
        "boolean_true" => reply.boolean(true),
        "boolean_false" => reply.boolean(false),
        "big_number" => reply.big_number("1234567999999999999999999"),
        "verbatim" => reply.verbatim("txt", b"hello"),
        "verbatim_empty" => reply.verbatim("txt", b""),
        "deferred_array" => {
            let outer = reply.begin_array();
            let inner = reply.begin_array();
            (0..=10).for_each(|number| reply.integer(number));
            reply.end_array(inner, 11);
            reply.end_array(outer, 1);
        }
        "deferred_map" => {
            let slot = reply.begin_map();
            reply.integer(1);
            reply.integer(2);
            reply.end_map(slot, 1);
        }
        "deferred_set" => {
            let slot = reply.begin_set();
            reply.integer(1);
            reply.end_set(slot, 1);
        }
        other => panic!("no such reply: {other}"),
    }
}

#[test]
fn vectors_are_written_as_they_stand_there() {
    for line in lines(VECTORS) {
        let (name, encoded) = line.split_once(" | ").unwrap();
        let (in_2, in_3) = encoded.split_once(" | ").unwrap();
        for (version, expected) in [(Resp::V2, in_2), (Resp::V3, in_3)] {
            let written = write(version, |reply| write_named(name, reply));
            assert_eq!(written, unescape(expected), "{name} in {version:?}");
            let (_, consumed) = decode_value(&written).unwrap().unwrap();
            assert_eq!(consumed, written.len(), "{name} in {version:?}");
        }
    }
}

#[test]
fn strings_of_any_length_have_their_header() {
    for len in (0..=120).chain([999, 1_000, 100_000]) {
        let content = vec![b'x'; len];
        let written = write(Resp::V2, |reply| {
            reply.ok();
            reply.bulk(&content);
        });
        let text = format!("+OK\r\n${len}\r\n{}\r\n", "x".repeat(len));
        assert_eq!(written, text.as_bytes());
    }
}

#[test]
fn a_reply_can_be_taken_back() {
    let written = write(Resp::V2, |reply| {
        reply.ok();
        let mark = reply.mark();
        reply.bulk(b"no one sees this");
        reply.rollback(mark);
        reply.null();
    });
    assert_eq!(written, b"+OK\r\n$-1\r\n");
}

#[test]
fn what_no_server_sends_is_refused() {
    for (input, expected) in [
        (&b"x\r\n"[..], ValueError::UnknownType(b'x')),
        (b":1x\r\n", ValueError::Malformed),
        (b"$-2\r\n", ValueError::Malformed),
        (b"$1\r\nab\r\n", ValueError::MissingLineEnd),
        (b"+a\n", ValueError::MissingLineEnd),
        (b"#x\r\n", ValueError::Malformed),
        (b"_x\r\n", ValueError::Malformed),
        (b",x\r\n", ValueError::Malformed),
        (b"(1x\r\n", ValueError::Malformed),
        (b"=2\r\nab\r\n", ValueError::Malformed),
        (b"=5\r\ntxt-a\r\n", ValueError::Malformed),
        (b"%-1\r\n", ValueError::Malformed),
    ] {
        assert_eq!(
            decode_value(input),
            Err(expected),
            "{}",
            input.escape_ascii()
        );
    }
    assert_eq!(
        decode_value(&b"*1\r\n".repeat(200)),
        Err(ValueError::TooDeep)
    );
    assert_eq!(
        decode_value(&b"|0\r\n".repeat(200)),
        Err(ValueError::TooDeep)
    );
    assert_eq!(decode_value(b"*1000000000\r\n"), Ok(None));
}

fn any_line() -> impl Strategy<Value = String> {
    "[ -~]{0,30}[!-~]"
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any_line().prop_map(|text| Value::Simple(text.into_bytes())),
        any_line().prop_map(|text| Value::Error(text.into_bytes())),
        any::<i64>().prop_map(Value::Integer),
        (-20..2000_i64).prop_map(Value::Integer),
        vec(any::<u8>(), 0..200).prop_map(Value::Bulk),
        Just(Value::Null),
        any::<f64>().prop_map(double),
        any::<bool>().prop_map(Value::Boolean),
        "-?[0-9]{1,40}".prop_map(Value::BigNumber),
        vec(any::<u8>(), 0..100).prop_map(|text| Value::Verbatim {
            format: "txt".to_owned(),
            text
        }),
    ];
    leaf.prop_recursive(4, 100, 15, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..15).prop_map(Value::Array),
            vec(inner.clone(), 0..15).prop_map(Value::Set),
            vec(inner.clone(), 0..15).prop_map(Value::Push),
            vec((inner.clone(), inner.clone()), 0..12).prop_map(Value::Map),
            (vec((inner.clone(), inner.clone()), 0..3), inner).prop_map(|(pairs, value)| {
                Value::Attribute {
                    pairs,
                    value: Box::new(value),
                }
            }),
        ]
    })
}

/// Returns the number with its text in a reply.
fn double(value: f64) -> Value {
    let written = write(Resp::V3, |reply| reply.double(value));
    let text = String::from_utf8(written[1..written.len() - 2].to_vec()).unwrap();
    Value::Double(Double { value, text })
}

fn write_value(reply: &mut Reply<'_>, value: &Value, deferred: bool) {
    match value {
        Value::Simple(text) => reply.simple(std::str::from_utf8(text).unwrap()),
        Value::Error(text) => reply.error_bytes(text),
        Value::Integer(number) => reply.integer(*number),
        Value::Bulk(bytes) => reply.bulk(bytes),
        Value::Null => reply.null(),
        Value::NullArray => reply.null_array(),
        Value::Double(double) => reply.double(double.value),
        Value::Boolean(value) => reply.boolean(*value),
        Value::BigNumber(digits) => reply.big_number(digits),
        Value::Verbatim { format, text } => reply.verbatim(format, text),
        Value::Push(items) => {
            reply.push(items.len());
            write_values(reply, items, deferred);
        }
        Value::Array(items) if deferred => {
            let slot = reply.begin_array();
            write_values(reply, items, deferred);
            reply.end_array(slot, items.len());
        }
        Value::Array(items) => {
            reply.array(items.len());
            write_values(reply, items, deferred);
        }
        Value::Set(items) if deferred => {
            let slot = reply.begin_set();
            write_values(reply, items, deferred);
            reply.end_set(slot, items.len());
        }
        Value::Set(items) => {
            reply.set(items.len());
            write_values(reply, items, deferred);
        }
        Value::Map(pairs) if deferred => {
            let slot = reply.begin_map();
            write_pairs(reply, pairs, deferred);
            reply.end_map(slot, pairs.len());
        }
        Value::Map(pairs) => {
            reply.map(pairs.len());
            write_pairs(reply, pairs, deferred);
        }
        Value::Attribute { pairs, value } => {
            if reply.attribute(pairs.len()) {
                write_pairs(reply, pairs, deferred);
            }
            write_value(reply, value, deferred);
        }
    }
}

fn write_values(reply: &mut Reply<'_>, values: &[Value], deferred: bool) {
    values
        .iter()
        .for_each(|value| write_value(reply, value, deferred));
}

fn write_pairs(reply: &mut Reply<'_>, pairs: &[(Value, Value)], deferred: bool) {
    for (key, value) in pairs {
        write_value(reply, key, deferred);
        write_value(reply, value, deferred);
    }
}

/// Returns what a RESP2 client sees of a RESP3 value.
fn in_resp2(value: Value) -> Value {
    let all = |items: Vec<Value>| Value::Array(items.into_iter().map(in_resp2).collect());
    match value {
        Value::Double(double) => Value::Bulk(double.text.into_bytes()),
        Value::Boolean(value) => Value::Integer(value.into()),
        Value::BigNumber(digits) => Value::Bulk(digits.into_bytes()),
        Value::Verbatim { text, .. } => Value::Bulk(text),
        Value::Array(items) | Value::Set(items) | Value::Push(items) => all(items),
        Value::Map(pairs) => all(pairs
            .into_iter()
            .flat_map(|(key, value)| [key, value])
            .collect()),
        Value::Attribute { value, .. } => in_resp2(*value),
        same => same,
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(value in any_value()) {
        let in_3 = write(Resp::V3, |reply| write_value(reply, &value, false));
        prop_assert_eq!(decode_value(&in_3), Ok(Some((value.clone(), in_3.len()))));
        let in_2 = write(Resp::V2, |reply| write_value(reply, &value, false));
        prop_assert_eq!(decode_value(&in_2), Ok(Some((in_resp2(value.clone()), in_2.len()))));
        for (version, direct) in [(Resp::V2, in_2), (Resp::V3, in_3)] {
            let deferred = write(version, |reply| write_value(reply, &value, true));
            prop_assert_eq!(deferred, direct);
        }
    }

    #[test]
    fn a_part_of_a_reply_is_incomplete(value in any_value(), cut in any::<prop::sample::Index>()) {
        let written = write(Resp::V3, |reply| write_value(reply, &value, false));
        prop_assert_eq!(decode_value(&written[..cut.index(written.len())]), Ok(None));
    }

    #[test]
    fn arbitrary_bytes_are_survived(input in vec(any::<u8>(), 0..200)) {
        if let Ok(Some((_, consumed))) = decode_value(&input) {
            prop_assert!(consumed <= input.len());
        }
    }

    #[test]
    fn doubles_read_back(value in any::<f64>()) {
        let written = write(Resp::V3, |reply| reply.double(value));
        let Ok(Some((Value::Double(double), _))) = decode_value(&written) else {
            panic!("no double: {}", written.escape_ascii());
        };
        prop_assert_eq!(double.value.to_bits(), value.to_bits());
    }

    #[test]
    fn an_error_is_one_line(text in vec(any::<u8>(), 0..50)) {
        let written = write(Resp::V2, |reply| reply.error_bytes(&text));
        let (value, consumed) = decode_value(&written).unwrap().unwrap();
        prop_assert!(matches!(value, Value::Error(_)));
        prop_assert_eq!(consumed, written.len());
    }
}
