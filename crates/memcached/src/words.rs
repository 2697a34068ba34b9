//! Lines, words and numbers of a request.

use base::number::{parse_i64, parse_u64};

use crate::limits::{GET_LINE_BYTES_MAX, KEY_BYTES_MAX, LINE_BYTES_MAX};

/// The beginning of a client's input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A line without its end, and the number of bytes that it took.
    Whole(&'a [u8], usize),
    /// The line's end has not been received yet.
    Partial,
    /// The line is longer than allowed.
    TooLong,
}

/// Returns the first line of `input`.
pub(crate) fn line(input: &[u8]) -> Line<'_> {
    let bytes_max = if names_many(input) {
        GET_LINE_BYTES_MAX
    } else {
        LINE_BYTES_MAX
    };
    let window = &input[..input.len().min(bytes_max + 2)];
    match window.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            let text = &window[..end];
            Line::Whole(text.strip_suffix(b"\r").unwrap_or(text), end + 1)
        }
        None if input.len() > bytes_max => Line::TooLong,
        None => Line::Partial,
    }
}

fn names_many(input: &[u8]) -> bool {
    let names = [&b"get "[..], b"gets ", b"gat ", b"gats "];
    names.iter().any(|name| input.starts_with(name))
}

/// Returns the words of a line.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty())
}

/// Returns whether a word may be a key: neither empty nor too long, and without bytes that separate
/// words.
pub(crate) fn is_key(word: &[u8]) -> bool {
    let is_plain = |byte: &u8| *byte > b' ' && *byte != 0x7f;
    (1..=KEY_BYTES_MAX).contains(&word.len()) && word.iter().all(is_plain)
}

/// Parses an unsigned number of 32 bits.
pub(crate) fn number32(word: &[u8]) -> Option<u32> {
    parse_u64(word).and_then(|number| u32::try_from(number).ok())
}

/// Maximum number of seconds that count from now. Larger numbers count from 1970.
const RELATIVE_S_MAX: i64 = 60 * 60 * 24 * 30;

/// Returns the deadline of an item with this `exptime`, in milliseconds since 1970; 0 for never.
pub(crate) fn deadline_unix_ms(word: &[u8], now_unix_ms: u64) -> Option<u64> {
    let seconds = parse_i64(word)?;
    let ms = |seconds: i64| u64::try_from(seconds).ok()?.checked_mul(1000);
    match seconds {
        0 => Some(0),
        // The item has expired already.
        ..0 => Some(1),
        1..=RELATIVE_S_MAX => now_unix_ms.checked_add(ms(seconds)?),
        _ => ms(seconds).filter(|ms| i64::try_from(*ms).is_ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_or_without_a_carriage_return() {
        assert_eq!(line(b"get a\r\nx"), Line::Whole(b"get a", 7));
        assert_eq!(line(b"get a\nx"), Line::Whole(b"get a", 6));
        assert_eq!(line(b"get a"), Line::Partial);
        assert_eq!(line(&[b'x'; LINE_BYTES_MAX]), Line::Partial);
        assert_eq!(line(&[b'x'; LINE_BYTES_MAX + 1]), Line::TooLong);
        let long = [&b"get "[..], &[b'k'; LINE_BYTES_MAX]].concat();
        assert_eq!(line(&long), Line::Partial);
    }

    #[test]
    fn times_are_relative_up_to_a_month() {
        assert_eq!(deadline_unix_ms(b"0", 5), Some(0));
        assert_eq!(deadline_unix_ms(b"-1", 5), Some(1));
        assert_eq!(deadline_unix_ms(b"10", 5), Some(10_005));
        assert_eq!(deadline_unix_ms(b"2592001", 5), Some(2_592_001_000));
        assert_eq!(deadline_unix_ms(b"9223372036854775807", 5), None);
        assert_eq!(deadline_unix_ms(b"x", 5), None);
    }

    #[test]
    fn keys_have_no_bytes_that_end_words() {
        assert!(is_key(b"a") && is_key(&[b'k'; KEY_BYTES_MAX]) && is_key("ä".as_bytes()));
        assert!(!is_key(b"") && !is_key(&[b'k'; KEY_BYTES_MAX + 1]));
        assert!(!is_key(b"a\tb") && !is_key(b"a\0") && !is_key(b"a\x7f"));
    }
}
