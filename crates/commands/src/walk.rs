//! What SCAN and its variants share: cursors in clients' notation, and filters.

use base::glob::{self, Case};
use base::number::IntegerText;
use engine::args::Args;
use engine::error::CommandError;
use protocol::Reply;

/// Default number of elements visited in one step of a walk, without COUNT.
const COUNT_DEFAULT: usize = 10;

/// Which option words a command has besides MATCH and COUNT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkWords {
    /// None.
    Plain,
    /// TYPE, of SCAN.
    Type,
    /// NOVALUES, of HSCAN.
    NoValues,
    /// NOSCORES, of ZSCAN.
    NoScores,
}

/// The options of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkOptions<'a> {
    pattern: Option<&'a [u8]>,
    /// The requested type of values.
    pub(crate) kind: Option<&'a [u8]>,
    /// Approximate number of elements that a step visits.
    pub(crate) count: usize,
    /// Whether values or scores are left out.
    pub(crate) without_values: bool,
}

impl<'a> WalkOptions<'a> {
    /// Parses the remaining arguments.
    ///
    /// # Errors
    /// A syntax error, or an error if COUNT has no number.
    pub(crate) fn parse(args: &mut Args<'a>, words: WalkWords) -> Result<Self, CommandError> {
        let mut options = Self {
            pattern: None,
            kind: None,
            count: COUNT_DEFAULT,
            without_values: false,
        };
        while args.remaining() > 0 {
            let leaves_out = match words {
                WalkWords::NoValues => args.take_word("NOVALUES"),
                WalkWords::NoScores => args.take_word("NOSCORES"),
                WalkWords::Plain | WalkWords::Type => false,
            };
            if leaves_out {
                options.without_values = true;
                continue;
            }
            if args.remaining() < 2 {
                return Err(CommandError::Syntax);
            }
            if args.take_word("MATCH") {
                // As a pattern, a single star would not match the empty name.
                options.pattern = args.next().filter(|pattern| *pattern != b"*");
            } else if words == WalkWords::Type && args.take_word("TYPE") {
                options.kind = args.next();
            } else if args.take_word("COUNT") {
                let count = args.integer()?;
                if count < 1 {
                    return Err(CommandError::Syntax);
                }
                options.count = usize::try_from(count).unwrap_or(usize::MAX);
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(options)
    }

    /// Whether a name matches.
    pub(crate) fn accepts(&self, name: &[u8]) -> bool {
        self.pattern
            .is_none_or(|pattern| glob::matches(pattern, name, Case::Sensitive))
    }
}

/// Parses a cursor as `strtoul` does: a sign is allowed, a negative number counts back from 2^64,
/// and an empty text is the beginning.
///
/// # Errors
/// "invalid cursor".
pub(crate) fn parse_cursor(text: &[u8]) -> Result<u64, CommandError> {
    let (negative, digits) = match text {
        [] => return Ok(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let add = |number: u64, digit: &u8| {
        let digit = char::from(*digit).to_digit(10)?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    };
    let magnitude = match digits {
        [] => None,
        digits => digits.iter().try_fold(0_u64, add),
    };
    let magnitude = magnitude.ok_or(CommandError::fixed("ERR invalid cursor"))?;
    Ok(if negative {
        magnitude.wrapping_neg()
    } else {
        magnitude
    })
}

/// Writes the next cursor, the first of the two parts of the reply.
pub(crate) fn write_cursor(cursor: u64, reply: &mut Reply<'_>) {
    reply.array(2);
    reply.bulk(IntegerText::new_u64(cursor).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_strtoul_does() {
        assert_eq!(parse_cursor(b"12"), Ok(12));
        assert_eq!(parse_cursor(b"+12"), Ok(12));
        assert_eq!(parse_cursor(b"-1"), Ok(u64::MAX));
        assert_eq!(parse_cursor(b""), Ok(0));
        assert_eq!(parse_cursor(b"18446744073709551615"), Ok(u64::MAX));
        for wrong in ["18446744073709551616", "x", "1x", "-", "+-1", " 1", "1 "] {
            assert!(parse_cursor(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
