//! Quoted words, sizes and checksums, compared with the reference server.

use crate::reference::{Answer, Reference};
use base::random::Prng;
use base::{crc, memory_size, words};

#[test]
fn words_of_inline_commands() {
    const BYTES: &[u8] = b"ab  \t\"\"''\\\\xn4f\x0b\x0c\xff";
    let Some(mut reference) = Reference::start() else {
        return;
    };
    let mut prng = Prng::seeded(9);
    for _ in 0..6_000 {
        let line: Vec<u8> = (0..prng.below(14))
            .map(|_| BYTES[prng.index(BYTES.len())])
            .collect();
        reference.call(&[b"DEL", b"words"]);
        let request = [b"RPUSH words first ", line.as_slice(), b"\r\n"].concat();
        let found = match reference.send_raw(&request) {
            Answer::Error(error) => {
                assert!(error.contains("unbalanced quotes"), "{error}");
                reference.reconnect();
                None
            }
            _ => match reference.call(&[b"LRANGE", b"words", b"1", b"-1"]) {
                Answer::Array(words) => Some(words),
                other => panic!("LRANGE gives an array, not {other:?}"),
            },
        };
        let expected = words::split(&line)
            .ok()
            .map(|words| words.into_iter().map(Answer::Text).collect());
        assert_eq!(expected, found, "{}", line.escape_ascii());
    }
}

#[test]
fn sizes_of_config_set() {
    let Some(mut reference) = Reference::start() else {
        return;
    };
    let texts = [
        "0",
        "10",
        "64k",
        "64KB",
        "3m",
        "100mb",
        "1g",
        "1Gb",
        "12b",
        "",
        "b",
        "gb",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1tb",
        "1.5gb",
        "1kib",
        "0x10",
        "18446744073709551615",
    ];
    for text in texts {
        reference.call(&[b"CONFIG", b"SET", b"maxmemory", b"0"]);
        let set = reference.call(&[b"CONFIG", b"SET", b"maxmemory", text.as_bytes()]);
        let expected = memory_size::parse(text.as_bytes());
        assert_eq!(
            expected.is_some(),
            set == Answer::Text(b"OK".to_vec()),
            "{text}"
        );
        let Some(bytes) = expected else { continue };
        let Answer::Array(found) = reference.call(&[b"CONFIG", b"GET", b"maxmemory"]) else {
            panic!("CONFIG GET gives an array");
        };
        assert_eq!(
            found[1],
            Answer::Text(bytes.to_string().into_bytes()),
            "{text}"
        );
    }
}

#[test]
fn sizes_of_info() {
    let Some(mut reference) = Reference::start() else {
        return;
    };
    for shift in 0..63 {
        let bytes = (1_u64 << shift) + (1_u64 << shift >> 2) - 1;
        reference.call(&[
            b"CONFIG",
            b"SET",
            b"maxmemory",
            bytes.to_string().as_bytes(),
        ]);
        let info = reference.text(&[b"INFO", b"memory"]).unwrap();
        let found = info
            .lines()
            .find_map(|line| line.strip_prefix("maxmemory_human:"));
        assert_eq!(found, Some(memory_size::human(bytes).as_str()), "{bytes}");
    }
}

#[test]
fn checksums_of_dump() {
    let Some(mut reference) = Reference::start() else {
        return;
    };
    for length in (0..200).chain([1_000, 100_000]) {
        let value: Vec<u8> = (0..length)
            .map(|n: u32| (n % 251).to_le_bytes()[0])
            .collect();
        reference.call(&[b"SET", b"value", &value]);
        let Answer::Text(payload) = reference.call(&[b"DUMP", b"value"]) else {
            panic!("DUMP gives a text");
        };
        let (content, checksum) = payload.split_last_chunk::<8>().unwrap();
        assert_eq!(crc::crc64(0, content), u64::from_le_bytes(*checksum));
    }
}
