//! Bounds of ranges in clients' notation, and the ranks between two bounds.

use std::ops::Range;

use base::float;
use engine::error::CommandError;
use structures::SortedSet;

/// A score, and whether it is included in the range.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ScoreBound {
    score: f64,
    is_inside: bool,
}

/// A range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ScoreRange {
    low: ScoreBound,
    high: ScoreBound,
}

impl ScoreRange {
    /// Parses two bounds: a score, or `(` and an excluded score.
    ///
    /// # Errors
    /// "min or max is not a float".
    pub(super) fn parse(low: &[u8], high: &[u8]) -> Result<Self, CommandError> {
        let bound = |text: &[u8]| {
            let (text, is_inside) = match text {
                [b'(', rest @ ..] => (rest, false),
                text => (text, true),
            };
            let score = bound_score(text)?;
            Some(ScoreBound { score, is_inside })
        };
        let wrong = CommandError::fixed("ERR min or max is not a float");
        match (bound(low), bound(high)) {
            (Some(low), Some(high)) => Ok(Self { low, high }),
            _ => Err(wrong),
        }
    }

    /// Returns the ranks of the members in the range.
    pub(super) fn ranks(&self, set: &SortedSet) -> Range<usize> {
        let start = set.rank_of_score(self.low.score, !self.low.is_inside);
        let end = set.rank_of_score(self.high.score, self.high.is_inside);
        start..end.max(start)
    }
}

/// Parses a bound as C's `strtod` does: it accepts leading blanks, reads an empty text as zero and
/// too large numbers as infinite, and ends at a zero byte.
fn bound_score(text: &[u8]) -> Option<f64> {
    let end = text.iter().position(|byte| *byte == 0);
    let text = &text[..end.unwrap_or(text.len())];
    if text.is_empty() {
        return Some(0.0);
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_blank(byte))?;
    let text = &text[start..];
    let score = float::parse(text).or_else(|| beyond_doubles(text))?;
    (!score.is_nan()).then_some(score)
}

/// Parses a decimal number outside the range of doubles as infinite or zero.
fn beyond_doubles(text: &[u8]) -> Option<f64> {
    let is_decimal = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let text = std::str::from_utf8(text).ok()?;
    text.bytes().all(|byte| is_decimal(&byte)).then_some(())?;
    text.parse().ok()
}

/// A bound of a range of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberBound<'a> {
    /// `-`: before all members.
    First,
    /// `+`: after all members.
    Last,
    Inside(&'a [u8]),
    Outside(&'a [u8]),
}

/// A range of members, for sets whose scores are all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemberRange<'a> {
    low: MemberBound<'a>,
    high: MemberBound<'a>,
}

impl<'a> MemberRange<'a> {
    /// Parses two bounds: `[` or `(` and a member, `-`, or `+`.
    ///
    /// # Errors
    /// "min or max not valid string range item".
    pub(super) fn parse(low: &'a [u8], high: &'a [u8]) -> Result<Self, CommandError> {
        let bound = |text: &'a [u8]| match text {
            b"-" => Some(MemberBound::First),
            b"+" => Some(MemberBound::Last),
            [b'[', member @ ..] => Some(MemberBound::Inside(member)),
            [b'(', member @ ..] => Some(MemberBound::Outside(member)),
            _ => None,
        };
        let wrong = CommandError::fixed("ERR min or max not valid string range item");
        match (bound(low), bound(high)) {
            (Some(low), Some(high)) => Ok(Self { low, high }),
            _ => Err(wrong),
        }
    }

    /// Returns the ranks of the members in the range.
    pub(super) fn ranks(&self, set: &SortedSet) -> Range<usize> {
        let rank = |bound, is_low: bool| match bound {
            MemberBound::First => 0,
            MemberBound::Last => set.len(),
            MemberBound::Inside(member) => set.rank_of_member(member, !is_low),
            MemberBound::Outside(member) => set.rank_of_member(member, is_low),
        };
        let (start, end) = (rank(self.low, true), rank(self.high, false));
        start..end.max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_as_strtod_does() {
        assert_eq!(bound_score(b"1.5"), Some(1.5));
        assert_eq!(bound_score(b" \t1"), Some(1.0));
        assert_eq!(bound_score(b""), Some(0.0));
        assert_eq!(bound_score(b"1\0x"), Some(1.0));
        assert_eq!(bound_score(b"1e999"), Some(f64::INFINITY));
        assert_eq!(bound_score(b"-1e999"), Some(f64::NEG_INFINITY));
        assert_eq!(bound_score(b"1e-999"), Some(0.0));
        assert_eq!(bound_score(b"-inf"), Some(f64::NEG_INFINITY));
        for wrong in [&b" "[..], b"nan", b"1x", b"1 ", b"x", b"(1"] {
            assert_eq!(bound_score(wrong), None);
        }
    }

    #[test]
    fn members_need_a_bracket() {
        assert!(MemberRange::parse(b"-", b"+").is_ok());
        assert!(MemberRange::parse(b"[", b"(b").is_ok());
        for wrong in [&b"a"[..], b"", b"--", b"+1"] {
            assert!(MemberRange::parse(wrong, b"+").is_err());
            assert!(MemberRange::parse(b"-", wrong).is_err());
        }
    }
}
