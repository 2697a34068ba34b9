//! Patterns of KEYS, SCAN, PSUBSCRIBE and the like.
//!
//! `*` matches any bytes, `?` one byte, `[abc]`, `[a-z]` and `[^a-z]` one byte of a set, `\` takes
//! the next byte literally. Bytes are compared, not characters.
//!
//! Every element but `*` takes exactly one byte, so the match is greedy: if a byte does not fit,
//! only the latest `*` may take one more. (If an earlier one took more, what follows it would only
//! move to the right, where the latest `*` has looked already.) There is no recursion, and at most
//! pattern length times text length steps; [`matches_within`] stops earlier.
//!
//! Oddities that clients can see are kept: a set that is not closed ends with the pattern; the ends
//! of a range may come in either order and compare as signed bytes; an escaped byte in a set is
//! always case-sensitive; only the empty pattern matches an empty text, `*` does not.

/// Whether upper and lower case of ASCII letters differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// They differ.
    Sensitive,
    /// They do not differ.
    Insensitive,
}

/// The allowed steps were used up before the answer was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfSteps;

impl std::fmt::Display for OutOfSteps {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("pattern took too many steps to match")
    }
}

impl std::error::Error for OutOfSteps {}

/// Whether `pattern` matches all of `text`.
///
/// Linear in practice; at worst the product of both lengths, for patterns such as `*aaaaab`.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8], case: Case) -> bool {
    let mut unlimited = u64::MAX;
    matches_within(pattern, text, case, &mut unlimited).unwrap_or(false)
}

/// Like [`matches()`], but takes its steps from `steps_left`.
///
/// A step is one element of the pattern tried on one byte; sets count their length. A caller that
/// matches many keys shares one budget over all of them.
///
/// # Errors
/// [`OutOfSteps`] if the budget ran out.
pub fn matches_within(
    pattern: &[u8],
    text: &[u8],
    case: Case,
    steps_left: &mut u64,
) -> Result<bool, OutOfSteps> {
    if text.is_empty() {
        return Ok(pattern.is_empty());
    }
    let (mut pattern, mut text) = (pattern, text);
    // The pattern behind the latest `*`, and the text from where that was last tried.
    let mut latest_star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            pattern = rest;
            if skip_stars(pattern).is_empty() {
                return Ok(true);
            }
            latest_star = Some((pattern, text));
            continue;
        }
        let Some((&byte, text_rest)) = text.split_first() else {
            // A later start leaves even less text for the rest of the pattern.
            return Ok(skip_stars(pattern).is_empty());
        };
        let before = pattern;
        let fits = take_element(&mut pattern, byte, case).unwrap_or(false);
        spend(steps_left, before.len() - pattern.len())?;
        if fits {
            text = text_rest;
            continue;
        }
        let Some((after_star, tried)) = latest_star else {
            return Ok(false);
        };
        let retry = &tried[1..];
        (pattern, text) = (after_star, retry);
        latest_star = Some((after_star, retry));
    }
}

fn spend(steps_left: &mut u64, pattern_bytes: usize) -> Result<(), OutOfSteps> {
    let steps = u64::try_from(pattern_bytes).unwrap_or(u64::MAX).max(1);
    *steps_left = steps_left.checked_sub(steps).ok_or(OutOfSteps)?;
    Ok(())
}

fn skip_stars(pattern: &[u8]) -> &[u8] {
    let start = pattern.iter().position(|&byte| byte != b'*');
    &pattern[start.unwrap_or(pattern.len())..]
}

/// Takes one element other than `*` from the pattern. Returns whether `byte` fits it, or `None` at
/// the end of the pattern.
fn take_element(pattern: &mut &[u8], byte: u8, case: Case) -> Option<bool> {
    let (element, rest) = pattern.split_first()?;
    *pattern = rest;
    Some(match element {
        b'?' => true,
        b'[' => take_set(pattern, byte, case),
        b'\\' if !rest.is_empty() => {
            *pattern = &rest[1..];
            same(rest[0], byte, case)
        }
        literal => same(*literal, byte, case),
    })
}

/// Takes a set, whose `[` was already taken. Returns whether `byte` is in it.
fn take_set(pattern: &mut &[u8], byte: u8, case: Case) -> bool {
    let mut rest = *pattern;
    let negated = rest.first() == Some(&b'^');
    if negated {
        rest = &rest[1..];
    }
    let mut found = false;
    loop {
        rest = match rest {
            [b'\\', escaped, tail @ ..] => {
                found |= *escaped == byte;
                tail
            }
            [b']', tail @ ..] => {
                rest = tail;
                break;
            }
            [] => break,
            [start, b'-', end, tail @ ..] => {
                found |= in_range(*start, *end, byte, case);
                tail
            }
            [literal, tail @ ..] => {
                found |= same(*literal, byte, case);
                tail
            }
        };
    }
    *pattern = rest;
    found != negated
}

fn same(one: u8, other: u8, case: Case) -> bool {
    one == other || (case == Case::Insensitive && one.eq_ignore_ascii_case(&other))
}

fn in_range(start: u8, end: u8, byte: u8, case: Case) -> bool {
    let signed = |byte: u8| byte.cast_signed();
    let (low, high) = if signed(start) > signed(end) {
        (end, start)
    } else {
        (start, end)
    };
    // The ends are ordered before their case is folded: `[Z-a]` is empty if case is ignored.
    let folded = |byte: u8| match case {
        Case::Sensitive => signed(byte),
        Case::Insensitive => signed(byte.to_ascii_lowercase()),
    };
    (folded(low)..=folded(high)).contains(&folded(byte))
}

#[cfg(test)]
mod tests;
