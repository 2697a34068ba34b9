//! Lines of words with quotes, as in configuration files and inline commands.
//!
//! Spaces separate words. `"..."` knows the escapes `\n \r \t \b \a \xHH` and takes any other
//! escaped byte literally; `'...'` knows only `\'`. A quote may open inside a word, and must be
//! closed at the end of a word. A zero byte ends the line.

use std::fmt;

use crate::hex;

/// A quote was not closed, or a byte other than a space followed it directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnbalancedQuotes;

impl fmt::Display for UnbalancedQuotes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("unbalanced quotes")
    }
}

impl std::error::Error for UnbalancedQuotes {}

/// Splits `line` into its words, unquoted.
///
/// # Errors
/// [`UnbalancedQuotes`] if a quote is not closed at the end of a word.
pub fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, UnbalancedQuotes> {
    let end = line.iter().position(|&byte| byte == 0);
    let mut rest = &line[..end.unwrap_or(line.len())];
    let mut words = Vec::new();
    loop {
        rest = skip_spaces(rest);
        if rest.is_empty() {
            return Ok(words);
        }
        let word;
        (word, rest) = take_word(rest)?;
        words.push(word);
    }
}

/// Returns `bytes` in double quotes, so that [`split`] returns them unchanged and a terminal shows
/// them safely.
///
/// Bytes that are not printable ASCII become escapes.
#[must_use]
pub fn quote(bytes: &[u8]) -> String {
    let mut quoted = String::with_capacity(bytes.len() + 2);
    quoted.push('"');
    for &byte in bytes {
        push_escaped(&mut quoted, byte);
    }
    quoted.push('"');
    quoted
}

/// Returns `bytes` unquoted if [`split`] reads them back as one word, otherwise in quotes.
#[must_use]
pub fn quote_unless_plain(bytes: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
    match !bytes.is_empty() && bytes.iter().all(is_plain) {
        true => bytes.iter().map(|byte| char::from(*byte)).collect(),
        false => quote(bytes),
    }
}

fn push_escaped(quoted: &mut String, byte: u8) {
    let escaped = match byte {
        b'\\' | b'"' => char::from(byte),
        b'\n' => 'n',
        b'\r' => 'r',
        b'\t' => 't',
        0x07 => 'a',
        0x08 => 'b',
        b' '..=b'~' => {
            quoted.push(char::from(byte));
            return;
        }
        _ => {
            quoted.push_str("\\x");
            quoted.extend(hex::digits(byte).map(char::from));
            return;
        }
    };
    quoted.push('\\');
    quoted.push(escaped);
}

fn skip_spaces(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|&byte| !is_space(byte));
    &line[start.unwrap_or(line.len())..]
}

/// Whether the C library calls this byte a space.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// Returns the first word of `line`, which starts with one, and what follows it.
fn take_word(line: &[u8]) -> Result<(Vec<u8>, &[u8]), UnbalancedQuotes> {
    let mut word = Vec::new();
    let mut rest = line;
    while let Some((&byte, tail)) = rest.split_first() {
        match byte {
            // Vertical tab and form feed separate words only before a word, never after it.
            b' ' | b'\t' | b'\n' | b'\r' => break,
            b'"' => {
                rest = take_double_quoted(&mut word, tail)?;
                break;
            }
            b'\'' => {
                rest = take_single_quoted(&mut word, tail)?;
                break;
            }
            _ => word.push(byte),
        }
        rest = tail;
    }
    Ok((word, rest))
}

/// Appends the text before the closing quote to `word`. Returns what follows it.
fn take_double_quoted<'line>(
    word: &mut Vec<u8>,
    mut rest: &'line [u8],
) -> Result<&'line [u8], UnbalancedQuotes> {
    loop {
        rest = match rest {
            [] => return Err(UnbalancedQuotes),
            [b'"', tail @ ..] => return after_quote(tail),
            [b'\\', b'x', high, low, tail @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex_digit(*high) << 4 | hex_digit(*low));
                tail
            }
            [b'\\', escaped, tail @ ..] => {
                word.push(unescape(*escaped));
                tail
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                tail
            }
        };
    }
}

/// Appends the text before the closing quote to `word`. Returns what follows it.
fn take_single_quoted<'line>(
    word: &mut Vec<u8>,
    mut rest: &'line [u8],
) -> Result<&'line [u8], UnbalancedQuotes> {
    loop {
        rest = match rest {
            [] => return Err(UnbalancedQuotes),
            [b'\'', tail @ ..] => return after_quote(tail),
            [b'\\', b'\'', tail @ ..] => {
                word.push(b'\'');
                tail
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                tail
            }
        };
    }
}

fn after_quote(rest: &[u8]) -> Result<&[u8], UnbalancedQuotes> {
    match rest.first() {
        Some(&byte) if !is_space(byte) => Err(UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn unescape(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

/// Returns the value of a hexadecimal digit.
fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts(line: &[u8]) -> Option<Vec<String>> {
        let words = split(line).ok()?;
        Some(
            words
                .iter()
                .map(|word| word.escape_ascii().to_string())
                .collect(),
        )
    }

    #[test]
    fn splits_and_unquotes() {
        let cases: [(&[u8], &[&str]); 14] = [
            (b"", &[]),
            (b" \t\r\n\x0b\x0c ", &[]),
            (b"set key  value\r\n", &["set", "key", "value"]),
            (b"\x0b\x0cset a\x0bb", &["set", "a\\x0bb"]),
            (b"save \"\"", &["save", ""]),
            (b"''", &[""]),
            (br#""a b" 'c d'"#, &["a b", "c d"]),
            (br#"ab"cd ef" g"#, &["abcd ef", "g"]),
            (br#""\n\r\t\b\a\q\"\\""#, &[r#"\n\r\t\x08\x07q\"\\"#]),
            (br#""\x41\xfF\x4""#, &[r"A\xffx4"]),
            (br#""\xg1""#, &["xg1"]),
            (br#"'\n\''"#, &[r"\\n\'"]),
            (b"a b\0c \"", &["a", "b"]),
            (b"\"a\"\x0b\"b\"", &["a", "b"]),
        ];
        for (line, expected) in cases {
            let words = texts(line).unwrap_or_else(|| panic!("{}", line.escape_ascii()));
            assert_eq!(words, expected, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn refuses_open_quotes() {
        let cases: [&[u8]; 9] = [
            b"\"", b"'", b"\"a", b"'a", br#""a\""#, br#""a\"#, b"\"a\"b", b"'a'b", b"\"a\0\"",
        ];
        for line in cases {
            assert_eq!(
                split(line),
                Err(UnbalancedQuotes),
                "{}",
                line.escape_ascii()
            );
        }
    }

    #[test]
    fn quotes_what_is_not_printable() {
        assert_eq!(
            quote(b"a \"b\"\\\n\r\t\x07\x08\x00\x7f\xff'"),
            r#""a \"b\"\\\n\r\t\a\b\x00\x7f\xff'""#
        );
    }

    proptest! {
        #[test]
        fn quoted_words_come_back(words: Vec<Vec<u8>>) {
            let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
            prop_assert_eq!(split(quoted.join(" ").as_bytes()), Ok(words));
        }

        #[test]
        fn any_line_is_split_or_refused(line: Vec<u8>) {
            let _words = split(&line);
        }
    }
}
