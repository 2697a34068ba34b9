//! Clients' notation for ids: `5-1`, `5`, `5-*`, `*`, `-`, `+`, `(5-1`.

use base::number::{parse_i64, write_u64};
use engine::args::Args;
use engine::error::CommandError;
use structures::stream::EntryId;

/// Maximum length of an id's text.
const TEXT_BYTES_MAX: usize = 127;
/// Two numbers of 20 digits, and the hyphen.
const ID_BYTES_MAX: usize = 41;

const INVALID: CommandError =
    CommandError::fixed("ERR Invalid stream ID specified as stream command argument");

/// An id as written in replies and effects.
pub(super) struct IdText {
    bytes: [u8; ID_BYTES_MAX],
    len: usize,
}

impl IdText {
    #[inline]
    pub(super) fn new(id: EntryId) -> Self {
        let mut bytes = [0; ID_BYTES_MAX];
        let dash = write_u64(&mut bytes, id.ms);
        bytes[dash] = b'-';
        let len = dash + 1 + write_u64(&mut bytes[dash + 1..], id.seq);
        Self { bytes, len }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The id that XADD assigns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// `*`: by the clock.
    Next,
    /// `ms-*`: the next id of that millisecond.
    NextOf(u64),
    /// This one.
    Exactly(EntryId),
}

impl Wanted {
    pub(super) fn parse(argument: &[u8]) -> Result<Self, CommandError> {
        if argument == b"*" {
            return Ok(Self::Next);
        }
        let text = text_of(argument)?;
        match text.strip_suffix(b"-*") {
            Some(ms) if !ms.contains(&b'-') => number(ms).map(Self::NextOf).ok_or(INVALID),
            _ => parse(argument, 0).map(Self::Exactly),
        }
    }

    /// Returns the id that follows `last`, or `None` if it is not above `last`.
    pub(super) fn after(self, last: EntryId, now_unix_ms: u64) -> Option<EntryId> {
        match self {
            Self::Next if now_unix_ms > last.ms => Some(EntryId::new(now_unix_ms, 0)),
            Self::Next => last.next(),
            Self::NextOf(ms) if ms == last.ms => last.next().filter(|next| next.ms == ms),
            Self::NextOf(ms) => Some(EntryId::new(ms, 0)).filter(|id| *id > last),
            Self::Exactly(id) => Some(id).filter(|id| *id > last),
        }
    }
}

/// Parses an id with both parts, or with `missing_seq` as the second.
#[inline]
pub(super) fn parse(argument: &[u8], missing_seq: u64) -> Result<EntryId, CommandError> {
    let text = text_of(argument)?;
    let (ms, seq) = match text.iter().position(|byte| *byte == b'-') {
        Some(dash) => (number(&text[..dash]), number(&text[dash + 1..])),
        None => (number(text), Some(missing_seq)),
    };
    match (ms, seq) {
        (Some(ms), Some(seq)) => Ok(EntryId::new(ms, seq)),
        _ => Err(INVALID),
    }
}

/// Does the same, and accepts `-` and `+` for the lowest and the highest id.
pub(super) fn parse_or_end(argument: &[u8], missing_seq: u64) -> Result<EntryId, CommandError> {
    match argument {
        b"-" => Ok(EntryId::MIN),
        b"+" => Ok(EntryId::MAX),
        _ => parse(argument, missing_seq),
    }
}

/// Takes the next argument as an id. A missing second part is 0.
pub(super) fn next(args: &mut Args<'_>) -> Result<EntryId, CommandError> {
    parse(args.bytes()?, 0)
}

/// Parses an argument as the first id of a range.
pub(super) fn range_start(argument: &[u8]) -> Result<EntryId, CommandError> {
    match exclusive(argument) {
        None => parse_or_end(argument, 0),
        Some(text) => parse(text, 0)?
            .next()
            .ok_or(CommandError::fixed("ERR invalid start ID for the interval")),
    }
}

/// Parses an argument as the last id of a range.
pub(super) fn range_end(argument: &[u8]) -> Result<EntryId, CommandError> {
    match exclusive(argument) {
        None => parse_or_end(argument, u64::MAX),
        Some(text) => parse(text, u64::MAX)?
            .previous()
            .ok_or(CommandError::fixed("ERR invalid end ID for the interval")),
    }
}

/// Returns the text after a `(`.
fn exclusive(argument: &[u8]) -> Option<&[u8]> {
    argument.strip_prefix(b"(").filter(|text| !text.is_empty())
}

/// Returns an argument up to its first zero byte.
fn text_of(argument: &[u8]) -> Result<&[u8], CommandError> {
    if argument.len() > TEXT_BYTES_MAX {
        return Err(INVALID);
    }
    let end = argument.iter().position(|byte| *byte == 0);
    Ok(&argument[..end.unwrap_or(argument.len())])
}

/// Parses a part of an id as `strtoull` does, except for plainly negative numbers.
#[inline]
fn number(text: &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    // Most parts have few digits.
    if !text.is_empty() && text.len() < 20 && text.iter().all(u8::is_ascii_digit) {
        text.iter()
            .for_each(|digit| value = value * 10 + u64::from(digit - b'0'));
        return Some(value);
    }
    lenient(text)
}

fn lenient(text: &[u8]) -> Option<u64> {
    if parse_i64(text).is_some_and(|number| number < 0) {
        return None;
    }
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = text.iter().position(|byte| !is_space(byte))?;
    let (is_negative, digits) = match &text[start..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let value = digits.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })?;
    Some(if is_negative {
        value.wrapping_neg()
    } else {
        value
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_one_part_or_two() {
        let id = |text: &str| parse(text.as_bytes(), 7).ok();
        assert_eq!(id("5-1"), Some(EntryId::new(5, 1)));
        assert_eq!(id("5"), Some(EntryId::new(5, 7)));
        assert_eq!(id("05-+1"), Some(EntryId::new(5, 1)));
        let max = "18446744073709551615-18446744073709551615";
        assert_eq!(id(max), Some(EntryId::MAX));
        for text in [
            "",
            "-",
            "+",
            "5-",
            "-5",
            "5--1",
            "5-1-1",
            "18446744073709551616",
            "a",
            "5-*",
            "*",
        ] {
            assert_eq!(id(text), None, "{text}");
        }
        assert_eq!(parse_or_end(b"-", 0), Ok(EntryId::MIN));
        assert_eq!(parse_or_end(b"+", 0), Ok(EntryId::MAX));
        assert_eq!(IdText::new(EntryId::MAX).as_bytes(), max.as_bytes());
    }

    #[test]
    fn ends_of_ranges_may_be_left_out() {
        assert_eq!(range_start(b"(5"), Ok(EntryId::new(5, 1)));
        assert_eq!(range_end(b"(5"), Ok(EntryId::new(5, u64::MAX - 1)));
        assert_eq!(range_end(b"5"), Ok(EntryId::new(5, u64::MAX)));
        assert_eq!(range_end(b"(5-0"), Ok(EntryId::new(4, u64::MAX)));
        assert!(range_end(b"(0-0").is_err() && range_start(b"(").is_err());
        assert!(range_start(b"(-").is_err() && range_start(b"(+").is_err());
    }

    #[test]
    fn the_next_id_follows_clock_and_last() {
        let wanted = |text: &str| Wanted::parse(text.as_bytes()).unwrap();
        let last = EntryId::new(5, u64::MAX);
        assert_eq!(wanted("*").after(last, 6), Some(EntryId::new(6, 0)));
        assert_eq!(wanted("*").after(last, 3), Some(EntryId::new(6, 0)));
        assert_eq!(wanted("5-*").after(last, 9), None);
        assert_eq!(wanted("4-*").after(last, 9), None);
        assert_eq!(wanted("7-*").after(last, 9), Some(EntryId::new(7, 0)));
        assert_eq!(
            wanted("0-*").after(EntryId::MIN, 9),
            Some(EntryId::new(0, 1))
        );
        assert_eq!(wanted("5").after(last, 9), None);
        assert!(Wanted::parse(b"-*").is_err() && Wanted::parse(b"1-1-*").is_err());
    }
}
