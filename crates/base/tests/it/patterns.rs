//! Patterns: KEYS of the reference server finds the same keys.

use crate::reference::{Answer, Reference};
use base::glob::{self, Case};
use base::random::Prng;
use std::collections::BTreeSet;

const PATTERN_BYTES: &[u8] = b"aabbcz**??[[]]]^^--\\\\AZ\x00\x7f\x80\xc0\xff";
const KEY_BYTES: &[u8] = b"aabbbczAZ]^-\\[*?\x00\x7f\x80\xc0\xff";

fn random_bytes(prng: &mut Prng, alphabet: &[u8], length_max: u64) -> Vec<u8> {
    (0..prng.below(length_max + 1))
        .map(|_| alphabet[prng.index(alphabet.len())])
        .collect()
}

#[test]
fn keys_of_random_patterns() {
    let Some(mut reference) = Reference::start() else {
        return;
    };
    let mut prng = Prng::seeded(4);
    let mut keys: BTreeSet<Vec<u8>> = KEY_BYTES.iter().map(|&byte| vec![byte]).collect();
    keys.extend((0..600).map(|_| random_bytes(&mut prng, KEY_BYTES, 7)));
    for key in &keys {
        reference.call(&[b"SET", key, b""]);
    }
    for _ in 0..6_000 {
        let pattern = random_bytes(&mut prng, PATTERN_BYTES, 8);
        if pattern == b"*" {
            // Returns all keys, without any matching.
            continue;
        }
        let Answer::Array(found) = reference.call(&[b"KEYS", &pattern]) else {
            panic!("KEYS gives an array");
        };
        let found: BTreeSet<_> = found
            .into_iter()
            .map(|key| match key {
                Answer::Text(key) => key,
                other => panic!("a key is a text, not {other:?}"),
            })
            .collect();
        let expected: BTreeSet<_> = keys
            .iter()
            .filter(|key| glob::matches(&pattern, key, Case::Sensitive))
            .cloned()
            .collect();
        assert_eq!(expected, found, "{}", pattern.escape_ascii());
    }
}

/// Parameter names are matched case-insensitively: one parameter, many patterns for it.
#[test]
fn config_get_ignores_case() {
    let Some(mut reference) = Reference::start() else {
        return;
    };
    let mut prng = Prng::seeded(5);
    let name = b"maxclients";
    for _ in 0..3_000 {
        let mut pattern = name.to_vec();
        for _ in 0..=prng.below(3) {
            let at = prng.index(pattern.len());
            match prng.below(8) {
                0 => pattern[at] = b'?',
                1 => pattern[at] = b'*',
                2 => pattern[at].make_ascii_uppercase(),
                3 => drop(pattern.splice(at..=at, *b"[A-Z]")),
                4 => drop(pattern.splice(at..=at, *b"[Z-a]")),
                5 => drop(pattern.splice(at..=at, *b"[^\\AX]")),
                6 => drop(pattern.splice(at..=at, *b"[\\MAXLIENTS]")),
                _ => drop(pattern.splice(at..=at, *b"[MAXLIENTS")),
            }
        }
        if !pattern.iter().any(|byte| b"*?[".contains(byte)) {
            // A full name is looked up.
            continue;
        }
        let Answer::Array(found) = reference.call(&[b"CONFIG", b"GET", &pattern]) else {
            panic!("CONFIG GET gives an array");
        };
        let expected = glob::matches(&pattern, name, Case::Insensitive);
        let is_found = found.contains(&Answer::Text(name.to_vec()));
        assert_eq!(expected, is_found, "{}", pattern.escape_ascii());
    }
}
