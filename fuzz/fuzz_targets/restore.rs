//! Reads a value of the dump format. The first byte chooses version and limits.
//!
//! An accepted value can be written in every version that can hold it, with and without
//! compression, and is then read back unchanged. To a client, the value is also the same under
//! other limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rdb::{Limits, Reader, Style, VERSION_MAX, VERSION_MIN, VERSION_VALKEY, Value, dump, value};
use structures::Object;

/// How many times as long as its bytes a value may be. A repetition of 264 bytes takes three bytes.
const EXPANSION_MAX: usize = 88;

fuzz_target!(|input: &[u8]| {
    let Some((&flags, payload)) = input.split_first() else {
        return;
    };
    // Random bytes hardly ever have the right checksum, but nothing may depend on that.
    let _sum_is_right = dump::verify(payload).is_ok();
    let version = [9, 10, 11, VERSION_MAX, VERSION_VALKEY][usize::from(flags) % 5];
    let limits = Limits::narrow(if flags & 0x80 == 0 { 16 } else { 0 });
    let mut reader = Reader::new(payload, version, &limits);
    let Ok(code) = reader.byte() else {
        return;
    };
    let Ok(value) = value::read(code, &mut reader) else {
        return;
    };
    if let Value::String(text) = &value {
        assert!(text.len() <= EXPANSION_MAX * payload.len());
    }
    for compresses in [false, true] {
        comes_back(&value, compresses, &limits);
    }
});

fn comes_back(value: &Value, compresses: bool, limits: &Limits) {
    let mut payload = Vec::new();
    dump::write(value, compresses, &mut payload);
    for entries in [0, 3, 1000] {
        let back = dump::read(&payload, &Limits::narrow(entries));
        assert_eq!(back.as_ref(), Ok(value));
    }
    for version in value::version_needed(value).max(VERSION_MIN)..=VERSION_MAX {
        let style = Style {
            version,
            compresses,
        };
        let mut body = Vec::new();
        value::write(value, style, &mut body);
        let mut reader = Reader::new(&body, version, limits);
        let back = value::read(value::type_code(value, style), &mut reader);
        // The first version of streams has no counters.
        let is_whole = version > VERSION_MIN || !matches!(value, Value::Object(Object::Stream(_)));
        assert!(back.is_ok_and(|back| back == *value || !is_whole));
        assert!(reader.rest().is_empty());
    }
}
