//! Tests of round trips of values of every kind in every version, and of payloads with flipped
//! bits.

use std::collections::BTreeSet;

use base::random::Prng;
use proptest::prelude::*;
use structures::{Element, End, FieldDeadline, Hash, List, Object, Set, SortedSet};

use super::*;
use crate::dump::Refused;

const DEADLINE: u64 = 4_000_000_000_000;

mod streams;

/// Returns limits that a few elements exceed, or the usual ones.
pub(crate) fn limits(entries: usize) -> Limits {
    Limits::narrow(entries)
}

pub(crate) fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        (-300_i64..300).prop_map(|number| number.to_string().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..8),
        prop::collection::vec(0_u8..3, 0..200),
    ]
}

pub(crate) fn value(limits: Limits) -> impl Strategy<Value = Value> {
    let texts = || prop::collection::vec(text(), 1..40);
    let numbers = prop::collection::vec(any::<i64>(), 1..40);
    let scores = prop_oneof![
        any::<f64>().prop_filter("a score", |score| !score.is_nan()),
        (-5_i32..5).prop_map(f64::from),
        Just(f64::INFINITY),
    ];
    prop_oneof![
        text().prop_map(Value::String),
        texts().prop_map(move |texts| list(&texts, &limits)),
        texts().prop_map(move |texts| set(&texts, &limits)),
        numbers.prop_map(move |numbers| {
            let texts: Vec<_> = numbers
                .iter()
                .map(|one| one.to_string().into_bytes())
                .collect();
            set(&texts, &limits)
        }),
        prop::collection::vec((text(), scores), 1..40)
            .prop_map(move |pairs| sorted_set(&pairs, &limits)),
        prop::collection::vec((text(), text(), prop::option::of(0_u64..9)), 1..40)
            .prop_map(move |fields| hash(&fields, &limits)),
        prop::collection::vec((text(), text(), Just(None)), 1..40)
            .prop_map(move |fields| hash(&fields, &limits)),
        any::<u64>()
            .prop_map(move |seed| Value::Object(Object::Stream(streams::any(seed, &limits)))),
    ]
}

pub(crate) fn list(texts: &[Vec<u8>], limits: &Limits) -> Value {
    let mut list = List::new();
    for text in texts {
        list.push(End::Back, Element::parse(text), limits.list_blocks);
    }
    Value::Object(Object::List(list))
}

pub(crate) fn set(texts: &[Vec<u8>], limits: &Limits) -> Value {
    let mut set = Set::new();
    for text in texts {
        set.insert(text, &limits.set).unwrap();
    }
    Value::Object(Object::Set(set))
}

pub(crate) fn sorted_set(pairs: &[(Vec<u8>, f64)], limits: &Limits) -> Value {
    let mut set = SortedSet::new();
    for (member, score) in pairs {
        set.insert(member, *score, &limits.sorted_set).unwrap();
    }
    Value::Object(Object::SortedSet(set))
}

pub(crate) fn hash(fields: &[(Vec<u8>, Vec<u8>, Option<u64>)], limits: &Limits) -> Value {
    let mut hash = Hash::new();
    // Each name once: a replaced value would leave behind the form that it required.
    let mut names = BTreeSet::new();
    for (name, value, deadline) in fields {
        if !names.insert(name) {
            continue;
        }
        let deadline = deadline.map_or(FieldDeadline::Never, |at| FieldDeadline::At(DEADLINE + at));
        hash.set(name, value, deadline, 0, &limits.hash).unwrap();
    }
    Value::Object(Object::Hash(hash))
}

fn encoding(value: &Value) -> Option<structures::Encoding> {
    match value {
        Value::String(_) => None,
        Value::Object(object) => Some(object.encoding()),
    }
}

fn payload(value: &Value, compresses: bool) -> Vec<u8> {
    let mut payload = Vec::new();
    dump::write(value, compresses, &mut payload);
    payload
}

proptest! {
    #[test]
    fn payloads_come_back(value in value(limits(16)), compresses: bool) {
        let payload = payload(&value, compresses);
        let back = dump::read(&payload, &limits(16)).unwrap();
        let mut oldest = Vec::new();
        dump::write_oldest(&value, &mut oldest);
        let of_oldest = dump::read(&oldest, &limits(16)).unwrap();
        let is_stream = matches!(&value, Value::Object(Object::Stream(_)));
        prop_assert!(is_stream || of_oldest == value);
        prop_assert_eq!(&back, &value);
        prop_assert_eq!(encoding(&back), encoding(&value));
        // Read with other limits, it is the same to a client, and can be written again.
        for entries in [0, 2, 1000] {
            let other = dump::read(&payload, &limits(entries)).unwrap();
            prop_assert_eq!(&other, &value);
            let again = self::payload(&other, compresses);
            prop_assert_eq!(dump::read(&again, &limits(16)).unwrap(), other);
        }
    }

    #[test]
    fn bodies_come_back_in_every_version(value in value(limits(16)), compresses: bool) {
        for version in (VERSION_MIN..=VERSION_MAX).chain([VERSION_VALKEY]) {
            let style = Style { version, compresses };
            if version < value::version_needed(&value) {
                continue;
            }
            let mut body = Vec::new();
            value::write(&value, style, &mut body);
            let code = value::type_code(&value, style);
            let behind = body.len();
            body.extend_from_slice(b"what follows");
            let limits = limits(16);
            let mut reader = Reader::new(&body, version, &limits);
            let back = value::read(code, &mut reader).unwrap();
            prop_assert!(is_same_in(version, &back, &value));
            prop_assert_eq!(reader.rest(), b"what follows");
            // A body that ends too early is reported as such or as malformed; it never becomes
            // another value.
            let mut short = Reader::new(&body[..behind - 1], version, &limits);
            prop_assert!(value::read(code, &mut short).is_err());
        }
    }

    #[test]
    fn what_is_accepted_can_be_written_and_read_again(
        value in value(limits(16)),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        compresses: bool,
    ) {
        let mut payload = payload(&value, compresses);
        let content = payload.len() - 10;
        for (at, byte) in flips {
            payload[at.index(content)] ^= byte;
        }
        assert_sound(&payload[..content]);
    }

    #[test]
    fn bytes_of_a_stranger_do_no_harm(code in 0_u8..30, body: Vec<u8>) {
        let mut content = vec![code];
        content.extend_from_slice(&body);
        assert_sound(&content);
    }
}

/// Reads the content of a payload in every version, and checks that accepted values survive a round
/// trip.
fn assert_sound(content: &[u8]) {
    for version in [9, 10, 11, 12, VERSION_VALKEY] {
        let limits = limits(16);
        let mut reader = Reader::new(content, version, &limits);
        let code = reader.byte().unwrap();
        let Ok(value) = value::read(code, &mut reader) else {
            continue;
        };
        let payload = payload(&value, true);
        assert_eq!(dump::read(&payload, &limits), Ok(value));
    }
}

/// Whether two values are equal as far as the version can express.
pub(crate) fn is_same_in(version: u16, one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(Object::Stream(one)), Value::Object(Object::Stream(other)))
            if version < 10 =>
        {
            one.log().iter().eq(other.log().iter())
                && one
                    .groups()
                    .map(|group| group.0)
                    .eq(other.groups().map(|group| group.0))
        }
        _ => one == other,
    }
}

#[test]
fn only_known_versions_with_the_right_sum_are_read() {
    let good = payload(&Value::String(b"text".to_vec()), true);
    assert!(dump::verify(&good).is_ok());
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            assert_eq!(dump::verify(&bad), Err(Refused::Footer));
        }
        assert_eq!(dump::verify(&good[..at]), Err(Refused::Footer));
    }
    let with_version = |version: u16| {
        let mut payload = b"\x00\x01a".to_vec();
        payload.extend_from_slice(&version.to_le_bytes());
        let sum = base::crc::crc64(0, &payload);
        payload.extend_from_slice(&sum.to_le_bytes());
        dump::verify(&payload).is_ok()
    };
    for (version, is_known) in [
        (0, true),
        (1, true),
        (12, true),
        (15, true),
        (16, false),
        (79, false),
        (80, true),
        (81, false),
        (u16::MAX, false),
    ] {
        assert_eq!(with_version(version), is_known, "{version}");
    }
}

#[test]
fn a_field_cannot_have_stopped_to_exist_in_1970() {
    // Valkey's format, absolute deadlines, and distances from the earliest.
    let bodies = [
        (22, VERSION_VALKEY, &b"\x01\x01a\x01b\0\0\0\0\0\0\0\0"[..]),
        (24, 12, b"\0\0\0\0\0\0\0\0\x01\x01\x01a\x01b"),
    ];
    for (code, version, body) in bodies {
        let limits = limits(16);
        let mut reader = Reader::new(body, version, &limits);
        assert_eq!(value::read(code, &mut reader), Err(Malformed::Number));
    }
}

#[test]
fn a_text_may_be_as_long_as_it_may_be() {
    let value = Value::String(vec![b'x'; 1 << 20]);
    let longer = Value::String(vec![b'x'; (1 << 20) + 1]);
    for compresses in [false, true] {
        assert_eq!(
            dump::read(&payload(&value, compresses), &limits(1)),
            Ok(value.clone())
        );
        let refused = dump::read(&payload(&longer, compresses), &limits(1));
        assert_eq!(refused, Err(Refused::Malformed(Malformed::TooLong)));
    }
}

#[test]
fn many_elements_come_back() {
    let mut random = Prng::seeded(7);
    let limits = limits(128);
    let texts: Vec<_> = (0..50_000)
        .map(|_| random.next_u64().to_string().into_bytes())
        .collect();
    let pairs: Vec<_> = texts
        .iter()
        .map(|text| (text.clone(), random.unit_f64()))
        .collect();
    let fields: Vec<_> = texts
        .iter()
        .map(|text| (text.clone(), text.clone(), Some(3)))
        .collect();
    for value in [
        list(&texts, &limits),
        set(&texts, &limits),
        sorted_set(&pairs, &limits),
        hash(&fields, &limits),
    ] {
        let back = dump::read(&payload(&value, true), &limits).unwrap();
        assert_eq!(back, value);
        assert_eq!(encoding(&back), encoding(&value));
    }
}

/// Reads a payload with auxiliary fields after the value.
fn with_fields(value: &Value, fields: &[u8]) -> Result<Value, Refused> {
    let mut payload = payload(value, false);
    payload.truncate(payload.len() - 10);
    payload.extend_from_slice(fields);
    payload.extend_from_slice(&9_u16.to_le_bytes());
    let sum = base::crc::crc64(0, &payload);
    payload.extend_from_slice(&sum.to_le_bytes());
    dump::read(&payload, &limits(16))
}

/// As KeyDB writes them after a value in its files.
#[test]
fn deadlines_of_members_after_a_hash_are_taken() {
    let plain = hash(&[(b"f".to_vec(), b"v".to_vec(), None)], &limits(16));
    let fields = b"\xfa\x0bmvcc-tstamp\x0212\xfa\x13keydb-subexpire-key\x01f\xfa\x14keydb-subexpire-when\x0d4000000000000";
    let expected = hash(&[(b"f".to_vec(), b"v".to_vec(), Some(0))], &limits(16));
    assert_eq!(with_fields(&plain, fields), Ok(expected));
}

/// KeyDB writes after the value when it was changed.
#[test]
fn auxiliary_fields_after_a_value_are_passed() {
    let plain = Value::String(b"value".to_vec());
    let with_fields = |fields: &[u8]| with_fields(&plain, fields);
    let value = Ok(plain.clone());
    assert_eq!(with_fields(b"\xfa\x0bmvcc-tstamp\x0212"), value);
    assert_eq!(with_fields(b"\xfa\x01a\x01b\xfa\x01c\x01d"), value);
    for wrong in [
        &b"\xfa"[..],
        b"\xfa\x01a",
        b"\xfa\x01a\x05b",
        b"\xfa\x01a\x01bc",
        b"x",
    ] {
        assert!(matches!(with_fields(wrong), Err(Refused::Malformed(_))));
    }
}
