//! Numbers: the reference server accepts and refuses the same texts, and prints the same.

use crate::reference::{Answer, Reference};
use base::extended::Extended;
use base::float::{self, FloatText};
use base::number;
use base::random::Prng;

const BYTES: &[u8] = b"0011234567899..eE+-- xXpPinfaN()_";

fn random_text(prng: &mut Prng) -> Vec<u8> {
    match prng.below(5) {
        0 => (0..1 + prng.below(7))
            .map(|_| BYTES[prng.index(BYTES.len())])
            .collect(),
        1 => format!("{}", f64::from_bits(prng.next_u64())).into_bytes(),
        2 => format!("{:e}", f64::from_bits(prng.next_u64())).into_bytes(),
        3 => format!("{}e{}", prng.below(100_000), prng.below(40)).into_bytes(),
        _ => format!("{}.{}", prng.below(1_000), prng.below(100_000_000)).into_bytes(),
    }
}

#[test]
fn doubles_as_scores() {
    let Some(mut reference) = Reference::start() else {
        return;
    };
    let shortest = reference.prints_shortest_doubles();
    let mut prng = Prng::seeded(6);
    for _ in 0..6_000 {
        let text = random_text(&mut prng);
        reference.call(&[b"DEL", b"scores"]);
        let added = reference.call(&[b"ZADD", b"scores", &text, b"member"]);
        let value = float::parse(&text).filter(|value| !value.is_nan());
        let is_added = added == Answer::Integer(1);
        assert_eq!(value.is_some(), is_added, "{}", text.escape_ascii());
        let Some(value) = value else { continue };
        // Small sorted sets store whole scores as integers, which drops the sign of a zero.
        let score = value + 0.0;
        let printed = if shortest {
            FloatText::shortest(score)
        } else {
            FloatText::seventeen(score)
        };
        let found = reference.call(&[b"ZSCORE", b"scores", b"member"]);
        let expected = Answer::Text(printed.as_bytes().to_vec());
        assert_eq!(found, expected, "{}", text.escape_ascii());
    }
}

#[test]
fn sums_of_incrbyfloat() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let Some(mut reference) = Reference::start() else {
        return;
    };
    let mut prng = Prng::seeded(7);
    for _ in 0..6_000 {
        let (one, other) = (random_text(&mut prng), random_text(&mut prng));
        reference.call(&[b"SET", b"number", &one]);
        let found = reference.text(&[b"INCRBYFLOAT", b"number", &other]);
        let expected = Extended::parse(&one)
            .zip(Extended::parse(&other))
            .map(|(one, other)| one + other)
            .filter(|sum| !sum.is_nan() && !sum.is_infinite())
            .map(|sum| sum.to_string());
        let texts = (one.escape_ascii(), other.escape_ascii());
        assert_eq!(expected, found, "{} + {}", texts.0, texts.1);
    }
}

#[test]
fn integers_of_incrby() {
    let Some(mut reference) = Reference::start() else {
        return;
    };
    let mut prng = Prng::seeded(8);
    for _ in 0..4_000 {
        let text = match prng.below(3) {
            0 => (0..=prng.below(3))
                .map(|_| b"0123- +x"[prng.index(8)])
                .collect(),
            1 => (prng.next_u64().cast_signed() >> prng.below(64))
                .to_string()
                .into_bytes(),
            _ => format!("{}{}", prng.below(100), prng.next_u64()).into_bytes(),
        };
        reference.call(&[b"SET", b"number", &text]);
        let found = match reference.call(&[b"INCRBY", b"number", b"0"]) {
            Answer::Integer(number) => Some(number),
            _ => None,
        };
        assert_eq!(number::parse_i64(&text), found, "{}", text.escape_ascii());
    }
}
