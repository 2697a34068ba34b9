//! Matches a pattern against a text. The reference fills a table of all prefixes of both.
#![no_main]

use base::glob::{self, Case};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&flags, rest)) = input.split_first() else {
        return;
    };
    let case = match flags & 1 {
        0 => Case::Sensitive,
        _ => Case::Insensitive,
    };
    let (pattern, text) = rest.split_at(rest.len() * usize::from(flags >> 1) / 127);
    let expected = match text {
        [] => pattern.is_empty(),
        _ => fills_table(&elements(pattern), text, case),
    };
    assert_eq!(glob::matches(pattern, text, case), expected);

    let bound = (pattern.len() as u64 + 1) * (text.len() as u64 + 1);
    let mut steps = bound;
    assert_eq!(
        glob::matches_within(pattern, text, case, &mut steps),
        Ok(expected)
    );
    let used = bound - steps;
    if used > 0 {
        let mut too_few = used - 1;
        assert!(glob::matches_within(pattern, text, case, &mut too_few).is_err());
    }
});

enum Element {
    Star,
    Any,
    Literal(u8),
    Set { negated: bool, members: Vec<Member> },
}

enum Member {
    Exactly(u8),
    Literal(u8),
    Range(u8, u8),
}

fn elements(mut pattern: &[u8]) -> Vec<Element> {
    let mut elements = Vec::new();
    while let Some((&byte, rest)) = pattern.split_first() {
        pattern = rest;
        elements.push(match byte {
            b'*' => Element::Star,
            b'?' => Element::Any,
            b'[' => take_set(&mut pattern),
            b'\\' if !rest.is_empty() => {
                pattern = &rest[1..];
                Element::Literal(rest[0])
            }
            _ => Element::Literal(byte),
        });
    }
    elements
}

fn take_set(pattern: &mut &[u8]) -> Element {
    let mut members = Vec::new();
    let negated = pattern.first() == Some(&b'^');
    let mut at = usize::from(negated);
    loop {
        let left = pattern.len() - at;
        match pattern.get(at) {
            Some(b'\\') if left >= 2 => {
                members.push(Member::Exactly(pattern[at + 1]));
                at += 2;
            }
            Some(b']') => {
                at += 1;
                break;
            }
            None => break,
            Some(&start) if left >= 3 && pattern[at + 1] == b'-' => {
                members.push(Member::Range(start, pattern[at + 2]));
                at += 3;
            }
            Some(&byte) => {
                members.push(Member::Literal(byte));
                at += 1;
            }
        }
    }
    *pattern = &pattern[at..];
    Element::Set { negated, members }
}

fn fills_table(elements: &[Element], text: &[u8], case: Case) -> bool {
    // Whether the elements so far match the text up to each position.
    let mut matched = vec![false; text.len() + 1];
    matched[0] = true;
    for element in elements {
        let mut next = vec![false; text.len() + 1];
        for at in 0..=text.len() {
            next[at] = match element {
                Element::Star => matched[at] || (at > 0 && next[at - 1]),
                other => at > 0 && matched[at - 1] && fits(other, text[at - 1], case),
            };
        }
        matched = next;
    }
    matched[text.len()]
}

fn fits(element: &Element, byte: u8, case: Case) -> bool {
    match element {
        Element::Star => false,
        Element::Any => true,
        Element::Literal(literal) => fold(*literal, case) == fold(byte, case),
        Element::Set { negated, members } => {
            let found = members.iter().any(|member| match *member {
                Member::Exactly(exactly) => exactly == byte,
                Member::Literal(literal) => fold(literal, case) == fold(byte, case),
                Member::Range(one, other) => {
                    let (low, high) = if one.cast_signed() <= other.cast_signed() {
                        (one, other)
                    } else {
                        (other, one)
                    };
                    let place = fold(byte, case).cast_signed();
                    fold(low, case).cast_signed() <= place
                        && place <= fold(high, case).cast_signed()
                }
            });
            found != *negated
        }
    }
}

fn fold(byte: u8, case: Case) -> u8 {
    match case {
        Case::Sensitive => byte,
        Case::Insensitive => byte.to_ascii_lowercase(),
    }
}
