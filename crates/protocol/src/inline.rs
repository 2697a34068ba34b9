//! Splitting a line into arguments, for inline requests and for configuration lines.
//!
//! Arguments are separated by blanks. `"…"` understands `\n \r \t \b \a \xHH` and takes any other
//! escaped byte as it is; `'…'` understands `\'` only. A closing quote must be followed by a blank
//! or the end. A zero byte ends the line.

use std::fmt;

/// A quoted argument has no end, or something sticks to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnbalancedQuotes;

impl fmt::Display for UnbalancedQuotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unbalanced quotes")
    }
}

impl std::error::Error for UnbalancedQuotes {}

/// The arguments of `line`, unescaped; empty when the line is blank.
///
/// # Errors
/// [`UnbalancedQuotes`], with nothing of the line to be used.
pub fn split_line(line: &[u8]) -> Result<Vec<Vec<u8>>, UnbalancedQuotes> {
    let mut splitter = Splitter::new(line);
    let mut arguments = Vec::new();
    let mut argument = Vec::new();
    while splitter.next_into(&mut argument)? {
        arguments.push(std::mem::take(&mut argument));
    }
    Ok(arguments)
}

/// Walks over a line, one argument a step.
pub(crate) struct Splitter<'a> {
    rest: &'a [u8],
}

impl<'a> Splitter<'a> {
    pub(crate) fn new(line: &'a [u8]) -> Self {
        let end = line.iter().position(|&byte| byte == 0);
        Self {
            rest: &line[..end.unwrap_or(line.len())],
        }
    }

    /// Appends the next argument to `out`; `false` when there is none left.
    pub(crate) fn next_into(&mut self, out: &mut Vec<u8>) -> Result<bool, UnbalancedQuotes> {
        let blanks = self.rest.iter().take_while(|&&byte| is_blank(byte)).count();
        self.rest = &self.rest[blanks..];
        if self.rest.is_empty() {
            return Ok(false);
        }
        while let [byte, rest @ ..] = self.rest {
            self.rest = rest;
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' => break,
                b'"' => return self.double_quoted(out),
                b'\'' => return self.single_quoted(out),
                _ => out.push(*byte),
            }
        }
        Ok(true)
    }

    fn double_quoted(&mut self, out: &mut Vec<u8>) -> Result<bool, UnbalancedQuotes> {
        loop {
            let (byte, rest) = match *self.rest {
                [] => return Err(UnbalancedQuotes),
                [b'"', ref rest @ ..] => return self.close_quote(rest),
                [b'\\', b'x', high, low, ref rest @ ..]
                    if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
                {
                    (hex_digit(high) << 4 | hex_digit(low), rest)
                }
                [b'\\', escaped, ref rest @ ..] => (unescape(escaped), rest),
                [byte, ref rest @ ..] => (byte, rest),
            };
            out.push(byte);
            self.rest = rest;
        }
    }

    fn single_quoted(&mut self, out: &mut Vec<u8>) -> Result<bool, UnbalancedQuotes> {
        loop {
            let (byte, rest) = match *self.rest {
                [] => return Err(UnbalancedQuotes),
                [b'\'', ref rest @ ..] => return self.close_quote(rest),
                [b'\\', b'\'', ref rest @ ..] => (b'\'', rest),
                [byte, ref rest @ ..] => (byte, rest),
            };
            out.push(byte);
            self.rest = rest;
        }
    }

    fn close_quote(&mut self, rest: &'a [u8]) -> Result<bool, UnbalancedQuotes> {
        if rest.first().is_some_and(|&byte| !is_blank(byte)) {
            return Err(UnbalancedQuotes);
        }
        self.rest = rest;
        Ok(true)
    }
}

/// What C's `isspace` accepts.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex_digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        b'A'..=b'F' => byte - b'A' + 10,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &[u8], expected: &[&[u8]]) {
        assert_eq!(
            split_line(line).unwrap(),
            expected,
            "{}",
            line.escape_ascii()
        );
    }

    #[test]
    fn blanks_separate_arguments() {
        check(b"", &[]);
        check(b" \t \x0b\x0c\r\n", &[]);
        check(b"SET a 1", &[b"SET", b"a", b"1"]);
        check(b"  SET\t a  1  ", &[b"SET", b"a", b"1"]);
    }

    #[test]
    fn vertical_blanks_separate_only_in_front_of_an_argument() {
        check(b"a\x0bb \x0bc", &[b"a\x0bb", b"c"]);
    }

    #[test]
    fn quotes_keep_blanks_and_may_start_inside_an_argument() {
        check(b"'a b' \"c d\"", &[b"a b", b"c d"]);
        check(b"x'a b' ''", &[b"xa b", b""]);
    }

    #[test]
    fn escapes() {
        check(br#""\x41\n\r\t\b\a\q\\\"""#, &[b"A\n\r\t\x08\x07q\\\""]);
        check(br#""\xZZ\x4""#, &[b"xZZx4"]);
        check(br"'it\'s \n'", &[br"it's \n"]);
    }

    #[test]
    fn quotes_that_do_not_balance() {
        for line in [&b"\"a"[..], b"'a", b"\"a\"b", b"'a'b", b"\"a\\\"", b"'a\\'"] {
            assert_eq!(
                split_line(line),
                Err(UnbalancedQuotes),
                "{}",
                line.escape_ascii()
            );
        }
    }

    #[test]
    fn a_zero_byte_ends_the_line() {
        check(b"a b\0 c", &[b"a", b"b"]);
    }
}
