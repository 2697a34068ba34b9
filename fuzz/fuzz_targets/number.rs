//! Parses text as integers, doubles and 80-bit numbers.
#![no_main]

use base::extended::Extended;
use base::float::{self, FloatText};
use base::number::{self, IntegerText};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    integers(text);
    doubles(text);
    let (one, other) = text.split_at(text.len() / 2);
    sums(one, other);
});

fn integers(text: &[u8]) {
    let naive = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<i64>().ok())
        .filter(|number| number.to_string().as_bytes() == text);
    assert_eq!(number::parse_i64(text), naive);
    if let Some(number) = naive {
        assert_eq!(IntegerText::new(number).as_bytes(), text);
        assert_eq!(number::decimal_len(number), text.len());
    }
    if let Some(number) = number::parse_u64(text) {
        assert_eq!(IntegerText::new_u64(number).as_bytes(), text);
    }
}

fn doubles(text: &[u8]) {
    let Some(value) = float::parse(text) else {
        return;
    };
    for printed in [FloatText::shortest(value), FloatText::seventeen(value)] {
        let back = float::parse(printed.as_bytes());
        let back = back.expect("what was printed is a number");
        assert!(back.to_bits() == value.to_bits() || (back.is_nan() && value.is_nan()));
    }
}

fn sums(one: &[u8], other: &[u8]) {
    let (Some(one), Some(other)) = (Extended::parse(one), Extended::parse(other)) else {
        return;
    };
    let sum = one + other;
    assert_eq!(sum.to_string(), (other + one).to_string());
    if sum.is_nan() {
        return;
    }
    // Printing loses what is beyond 17 digits, but only the first time.
    let printed = sum.to_string();
    if let Some(back) = Extended::parse(printed.as_bytes()) {
        let again = back.to_string();
        let settled = Extended::parse(again.as_bytes()).expect("it is a number");
        assert_eq!(settled.to_string(), again);
    }
}
