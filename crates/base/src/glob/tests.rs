//! Tests of patterns, their limits and their cost.

use super::*;
use proptest::prelude::*;

/// The obvious matcher: tries every length for every `*`.
fn matches_naive(mut pattern: &[u8], text: &[u8], case: Case) -> bool {
    if text.is_empty() {
        return pattern.iter().all(|&byte| byte == b'*');
    }
    match pattern {
        [] => false,
        [b'*', rest @ ..] => {
            matches_naive(rest, text, case) || matches_naive(pattern, &text[1..], case)
        }
        _ => {
            take_element(&mut pattern, text[0], case).unwrap_or(false)
                && matches_naive(pattern, &text[1..], case)
        }
    }
}

fn sensitive(pattern: &[u8], text: &[u8]) -> bool {
    matches(pattern, text, Case::Sensitive)
}

#[test]
fn elements() {
    let fits: [(&[u8], &[u8]); 27] = [
        (b"", b""),
        (b"a", b"a"),
        (b"*", b"a"),
        (b"***", b"abc"),
        (b"a*", b"a"),
        (b"a***", b"a"),
        (b"*a*b*c*", b"xaxbxcx"),
        (b"*a", b"aa"),
        (b"*ab*abc", b"abababc"),
        (b"h?llo", b"hxllo"),
        (b"h[ae]llo", b"hello"),
        (b"h[^e]llo", b"hallo"),
        (b"h[a-b]llo", b"hbllo"),
        (b"h[b-a]llo", b"hallo"),
        (b"\\*", b"*"),
        (b"a\\", b"a\\"),
        (b"\\a", b"a"),
        (b"[\\]]", b"]"),
        (b"[\\\\]", b"\\"),
        (b"[a-\\]", b"\\"),
        (b"[ab", b"b"),
        (b"[^ab", b"c"),
        (b"[^", b"x"),
        (b"[a-]", b"]"),
        (b"[a-", b"-"),
        (b"[^]x", b"ax"),
        (b"[\x80-\xff]", b"\xc0"),
    ];
    for (pattern, text) in fits {
        assert!(
            sensitive(pattern, text),
            "{} {}",
            pattern.escape_ascii(),
            text.escape_ascii()
        );
    }
    let differs: [(&[u8], &[u8]); 16] = [
        (b"", b"a"),
        (b"*", b""),
        (b"?", b""),
        (b"a", b"ab"),
        (b"ab", b"a"),
        (b"?", b"ab"),
        (b"*a", b"ab"),
        (b"a*b*c", b"acb"),
        (b"[]", b"]"),
        (b"[", b"["),
        (b"[^a", b"a"),
        (b"\\", b"a"),
        (b"h[^e]llo", b"hello"),
        (b"A", b"a"),
        // As signed bytes this is the range from -128 to 'a'.
        (b"[a-\x80]", b"b"),
        (b"[a", b"b"),
    ];
    for (pattern, text) in differs {
        assert!(
            !sensitive(pattern, text),
            "{} {}",
            pattern.escape_ascii(),
            text.escape_ascii()
        );
    }
}

#[test]
fn case_of_letters() {
    let insensitive = |pattern, text| matches(pattern, text, Case::Insensitive);
    assert!(insensitive(b"ABC*", b"abcd"));
    assert!(insensitive(b"[A-C]", b"b"));
    assert!(insensitive(b"[B]", b"b"));
    assert!(insensitive(b"\\A", b"a"));
    assert!(!insensitive(b"[\\A]", b"a"));
    assert!(!insensitive(b"[Z-a]", b"z"));
    assert!(!insensitive(b"\xc9", b"\xe9"));
}

#[test]
fn hostile_patterns_end_soon() {
    let text = [b'a'; 200];
    let pattern = b"a*"
        .repeat(60)
        .into_iter()
        .chain(*b"b")
        .collect::<Vec<_>>();
    let mut steps = 200 * 200;
    assert_eq!(
        matches_within(&pattern, &text, Case::Sensitive, &mut steps),
        Ok(false)
    );
}

#[test]
fn steps_are_counted() {
    let mut steps = 3;
    assert_eq!(
        matches_within(b"abc", b"abc", Case::Sensitive, &mut steps),
        Ok(true)
    );
    assert_eq!(steps, 0);
    let out_of_steps = matches_within(b"abc", b"abc", Case::Sensitive, &mut 2);
    assert_eq!(out_of_steps, Err(OutOfSteps));
    assert_eq!(
        matches_within(b"*", b"abc", Case::Sensitive, &mut 0),
        Ok(true)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn as_the_naive_matcher(
        pattern in r"[ab*?\[\]\^\\-]{0,9}",
        text in r"[abAB\]\\-]{1,9}",
        ignore: bool,
    ) {
        let case = if ignore { Case::Insensitive } else { Case::Sensitive };
        prop_assert_eq!(
            matches(pattern.as_bytes(), text.as_bytes(), case),
            matches_naive(pattern.as_bytes(), text.as_bytes(), case)
        );
    }

    #[test]
    fn any_bytes_are_matched_or_not(pattern: Vec<u8>, text: Vec<u8>) {
        let case = Case::Insensitive;
        prop_assert_eq!(
            matches(&pattern, &text, case),
            matches_naive(&pattern, &text, case) && (!text.is_empty() || pattern.is_empty())
        );
    }
}
