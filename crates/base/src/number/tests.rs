//! Tests of whole numbers at their limits.

use super::*;
use proptest::prelude::*;

const REFUSED: [&[u8]; 26] = [
    b"",
    b"-",
    b"+1",
    b"-0",
    b"00",
    b"01",
    b"-01",
    b" 1",
    b"1 ",
    b"1\0",
    b"--1",
    b"1-",
    b"0x1",
    b"1.0",
    b"1e3",
    b"12345678:",
    b"1234567/8",
    b"123456789a",
    b"1\xff345678\xff",
    b"1\xb0\xb0\xb0\xb0\xb0\xb0\xb0\xb0",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551616",
    b"99999999999999999999",
    b"100000000000000000000",
    b"-100000000000000000000",
];

#[test]
fn refuses_what_is_not_canonical() {
    for text in REFUSED {
        assert_eq!(parse_i64(text), None, "{}", text.escape_ascii());
    }
}

#[test]
fn takes_the_ends_of_the_range() {
    assert_eq!(parse_i64(b"9223372036854775807"), Some(i64::MAX));
    assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
    assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
    assert_eq!(parse_u64(b"18446744073709551616"), None);
    assert_eq!(parse_u64(b"1844674407370955161x"), None);
    assert_eq!(parse_u64(b"-1"), None);
    assert_eq!(parse_i64(b"0"), Some(0));
}

#[test]
fn every_length_goes_there_and_back() {
    let mut power: u64 = 1;
    loop {
        for value in [power - 1, power, power + 1, power / 7 * 9] {
            let expected = value.to_string();
            assert_eq!(IntegerText::new_u64(value).as_bytes(), expected.as_bytes());
            assert_eq!(digits_count(value), expected.len(), "{value}");
            assert_eq!(parse_u64(expected.as_bytes()), Some(value));
        }
        match power.checked_mul(10) {
            Some(next) => power = next,
            None => break,
        }
    }
    assert_eq!(digits_count(u64::MAX), 20);
}

/// The obvious parser: what std accepts, if it prints back as the same text.
fn parse_naive(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

proptest! {
    #[test]
    fn numbers_go_there_and_back(value: i64, shift in 0..64_u32) {
        let value = value >> shift;
        let expected = value.to_string();
        let text = IntegerText::new(value);
        prop_assert_eq!(text.as_bytes(), expected.as_bytes());
        prop_assert_eq!(decimal_len(value), expected.len());
        let mut out = [0; TEXT_BYTES_MAX];
        let length = write_i64(&mut out, value);
        prop_assert_eq!(&out[..length], expected.as_bytes());
        prop_assert_eq!(parse_i64(expected.as_bytes()), Some(value));
    }

    #[test]
    fn unsigned_numbers_go_there_and_back(value: u64, shift in 0..64_u32) {
        let value = value >> shift;
        let expected = value.to_string();
        let mut out = [0; TEXT_BYTES_MAX];
        let length = write_u64(&mut out, value);
        prop_assert_eq!(&out[..length], expected.as_bytes());
        prop_assert_eq!(parse_u64(expected.as_bytes()), Some(value));
    }

    #[test]
    fn any_text_as_the_naive_parser(text in "-?[0-9]{0,21}[ -~]?[0-9]{0,9}") {
        prop_assert_eq!(parse_i64(text.as_bytes()), parse_naive(text.as_bytes()));
    }

    #[test]
    fn one_odd_byte_is_refused(value in 1_000_000_000_u64.., index in 1..10_usize, odd: u8) {
        let mut text = value.to_string().into_bytes();
        text[index] = odd;
        prop_assert_eq!(parse_i64(&text), parse_naive(&text));
    }
}
