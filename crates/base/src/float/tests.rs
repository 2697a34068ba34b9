//! Tests that doubles are read and printed as in the C library.

use super::*;
use proptest::prelude::*;

fn shortest(value: f64) -> String {
    String::from_utf8(FloatText::shortest(value).as_bytes().to_vec()).unwrap()
}

fn seventeen(value: f64) -> String {
    String::from_utf8(FloatText::seventeen(value).as_bytes().to_vec()).unwrap()
}

#[test]
fn shortest_texts() {
    let cases = [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-17.0, "-17"),
        (0.1, "0.1"),
        (9.99, "9.99"),
        (-2.5, "-2.5"),
        (1.0 / 3.0, "0.3333333333333333"),
        (1234.5678, "1234.5678"),
        (1e-3, "0.001"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"),
        (1.25e-3, "0.00125"),
        (1.234_567_89e-4, "1.23456789e-4"),
        (1.234_567_89e-3, "0.00123456789"),
        (1e17, "100000000000000000"),
        (9_007_199_254_740_993.0, "9007199254740992"),
        (4_611_686_018_427_387_904.0, "4611686018427387904"),
        (9_223_372_036_854_775_808.0, "9223372036854776000"),
        (1e19, "1e+19"),
        (1.234_567_890_123_456_7e20, "123456789012345670000"),
        (1e30, "1e+30"),
        (-1.5e300, "-1.5e+300"),
        (f64::MAX, "1.7976931348623157e+308"),
        (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
        (5e-324, "5e-324"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
        (-f64::NAN, "nan"),
    ];
    for (value, expected) in cases {
        assert_eq!(shortest(value), expected);
    }
}

#[test]
fn seventeen_digits() {
    // As a reference server of version 7.0 shows the scores of a sorted set.
    let cases = [
        (0.0, "0"),
        (1.0, "1"),
        (-5.5, "-5.5"),
        (0.1, "0.10000000000000001"),
        (9.99, "9.9900000000000002"),
        (1e-20, "9.9999999999999995e-21"),
        (1e-5, "1.0000000000000001e-05"),
        (1e-4, "0.0001"),
        (1e16, "10000000000000000"),
        (1e17, "1e+17"),
        (123456.0, "123456"),
        (1.5e300, "1.5000000000000001e+300"),
        (f64::MAX, "1.7976931348623157e+308"),
        (f64::NEG_INFINITY, "-inf"),
    ];
    for (value, expected) in cases {
        assert_eq!(seventeen(value), expected);
    }
}

#[test]
fn parses_as_the_c_library() {
    let cases: [(&[u8], f64); 24] = [
        (b"0", 0.0),
        (b"-0", -0.0),
        (b"+5", 5.0),
        (b"5.", 5.0),
        (b".5", 0.5),
        (b"-.5e1", -5.0),
        (b"1E2", 100.0),
        (b"1e+02", 100.0),
        (b"00012", 12.0),
        (b"0e99999999999999999999", 0.0),
        (b"0.0000e-5", 0.0),
        (b"4.9e-324", 5e-324),
        (b"2.5e-324", 5e-324),
        (b"1.7976931348623158e308", f64::MAX),
        (b"inf", f64::INFINITY),
        (b"-Infinity", f64::NEG_INFINITY),
        (b"0x1p3", 8.0),
        (b"-0X.8P+1", -1.0),
        (b"0x0", 0.0),
        (b"0x1p-1074", 5e-324),
        (b"0x1.8p-1075", 5e-324),
        (b"0x1.00000000000008p0", 1.0),
        (
            b"0x1.000000000000080000000000000000000000000000001p0",
            1.0 + f64::EPSILON,
        ),
        (b"0x1.fffffffffffffp1023", f64::MAX),
    ];
    for (text, expected) in cases {
        let value = parse(text).unwrap_or_else(|| panic!("{}", text.escape_ascii()));
        assert_eq!(
            value.to_bits(),
            expected.to_bits(),
            "{}",
            text.escape_ascii()
        );
    }
    assert!(parse(b"nan").is_some_and(f64::is_nan));
    assert!(parse(b"-NaN(a_1)").is_some_and(f64::is_nan));
}

#[test]
fn refuses_what_is_out_of_range() {
    let refused: [&[u8]; 10] = [
        b"1e309",
        b"-1e309",
        b"2e-324",
        b"1e-99999999999999999999",
        b"1e99999999999999999999",
        b"0x1p1024",
        b"0x1.fffffffffffff8p1023",
        b"0x1p-1075",
        b"0x1p-99999999999999999999",
        b"1,5",
    ];
    for text in refused {
        assert_eq!(parse(text), None, "{}", text.escape_ascii());
    }
}

proptest! {
    #[test]
    fn texts_come_back(bits: u64) {
        let value = f64::from_bits(bits);
        for text in [FloatText::shortest(value), FloatText::seventeen(value)] {
            let back = parse(text.as_bytes());
            if value.is_nan() {
                prop_assert!(back.is_some_and(f64::is_nan));
            } else {
                prop_assert_eq!(back, Some(value));
            }
        }
    }

    #[test]
    fn hexadecimal_texts_come_back(mantissa in 0..1_u64 << 53, exponent in -1074..=971_i32) {
        let text = format!("0x{mantissa:x}p{exponent}");
        let expected = if exponent < -537 {
            (mantissa as f64 * 2_f64.powi(exponent + 537)) * 2_f64.powi(-537)
        } else {
            mantissa as f64 * 2_f64.powi(exponent)
        };
        prop_assert_eq!(parse(text.as_bytes()), Some(expected));
    }

    #[test]
    fn any_text_is_read_or_refused(text: Vec<u8>) {
        let _value = parse(&text);
    }
}
