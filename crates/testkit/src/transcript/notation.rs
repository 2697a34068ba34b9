//! Notation of one reply as one line of text, with a parser ([`parse`]) and a writer ([`show`]).

use std::fmt::Write;

use base::words::{quote, split};
use protocol::{Double, Value};

use super::pattern::{Pattern, Sequence};

/// Why a line is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NotationError {
    /// It ends inside brackets. The next line may continue it.
    Unfinished,
    /// It is malformed at this byte.
    Malformed(usize, &'static str),
}

type Parsed<T> = Result<T, NotationError>;

/// Parses a pattern.
pub(super) fn parse(line: &str) -> Parsed<Pattern> {
    let line = line.trim_end();
    // An outermost status or error extends to the end of the line, without escapes.
    if let Some(text) = line.strip_prefix('+') {
        return Ok(Pattern::Exactly(Value::Simple(text.as_bytes().to_vec())));
    }
    if let Some(text) = line.strip_prefix('-') {
        return Ok(Pattern::Exactly(Value::Error(text.as_bytes().to_vec())));
    }
    let mut reader = NotationParser { line, at: 0 };
    let pattern = reader.pattern()?;
    reader.skip_spaces();
    match reader.rest() {
        "" => Ok(pattern),
        _ => Err(reader.error("something follows the reply")),
    }
}

/// Writes a value in the form that `parse` reads.
#[must_use]
pub fn show(value: &Value) -> String {
    match value {
        Value::Simple(text) => format!("+{}", String::from_utf8_lossy(text)),
        Value::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
        _ => {
            let mut out = String::new();
            show_nested(&mut out, value);
            out
        }
    }
}

fn show_nested(out: &mut String, value: &Value) {
    match value {
        Value::Simple(text) => show_word(out, '+', text),
        Value::Error(text) => show_word(out, '-', text),
        Value::Integer(number) => push(out, format_args!(":{number}")),
        Value::Bulk(bytes) => out.push_str(&quote(bytes)),
        Value::Null => out.push_str("(nil)"),
        Value::NullArray => out.push_str("(nil-array)"),
        Value::Array(items) => show_items(out, "[", items, "]"),
        Value::Set(items) => show_items(out, "~{", items, "}"),
        Value::Push(items) => show_items(out, ">[", items, "]"),
        Value::Map(pairs) => show_pairs(out, "%{", pairs),
        Value::Double(double) => push(out, format_args!(",{}", double.text)),
        Value::Boolean(value) => out.push_str(if *value { "#t" } else { "#f" }),
        Value::BigNumber(digits) => push(out, format_args!("(big {digits})")),
        Value::Verbatim { format, text } => push(out, format_args!("={format}:{}", quote(text))),
        Value::Attribute { pairs, value } => {
            show_pairs(out, "|{", pairs);
            out.push(' ');
            show_nested(out, value);
        }
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a String takes any text");
}

fn show_word(out: &mut String, marker: char, text: &[u8]) {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b" _-'.".contains(byte);
    out.push(marker);
    match std::str::from_utf8(text) {
        Ok(plain) if !text.is_empty() && text.iter().all(is_plain) => {
            out.push_str(plain);
        }
        _ => out.push_str(&quote(text)),
    }
}

fn show_items(out: &mut String, open: &str, items: &[Value], close: &str) {
    out.push_str(open);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        show_nested(out, item);
    }
    out.push_str(close);
}

fn show_pairs(out: &mut String, open: &str, pairs: &[(Value, Value)]) {
    out.push_str(open);
    for (index, (key, value)) in pairs.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        show_nested(out, key);
        out.push_str(": ");
        show_nested(out, value);
    }
    out.push('}');
}

struct NotationParser<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> NotationParser<'a> {
    fn rest(&self) -> &'a str {
        &self.line[self.at..]
    }

    fn error(&self, what: &'static str) -> NotationError {
        match self.rest().is_empty() {
            true => NotationError::Unfinished,
            false => NotationError::Malformed(self.at, what),
        }
    }

    /// Returns an error that no further line can repair.
    fn malformed(&self, what: &'static str) -> NotationError {
        NotationError::Malformed(self.at, what)
    }

    fn skip_spaces(&mut self) {
        self.at = self.line.len() - self.rest().trim_start().len();
    }

    /// Consumes `token` if it is next.
    fn take(&mut self, token: &str) -> bool {
        self.skip_spaces();
        let is_here = self.rest().starts_with(token);
        if is_here {
            self.at += token.len();
        }
        is_here
    }

    fn expect(&mut self, token: &str, what: &'static str) -> Parsed<()> {
        match self.take(token) {
            true => Ok(()),
            false => Err(self.error(what)),
        }
    }

    /// Consumes and returns everything before the first of `stops`.
    fn until(&mut self, stops: &[char]) -> &'a str {
        let rest = self.rest();
        let text = &rest[..rest.find(stops).unwrap_or(rest.len())];
        self.at += text.len();
        text
    }

    fn pattern(&mut self) -> Parsed<Pattern> {
        self.skip_spaces();
        if self.rest().starts_with('"') {
            return Ok(Pattern::Exactly(Value::Bulk(self.quoted()?)));
        }
        if self.take("(nil-array)") {
            return Ok(Pattern::Exactly(Value::NullArray));
        }
        if self.take("(nil)") {
            return Ok(Pattern::Exactly(Value::Null));
        }
        if self.take("(big ") {
            let digits = self.until(&[')']).trim().to_owned();
            self.expect(")", "a big number ends with a bracket")?;
            return Ok(Pattern::Exactly(Value::BigNumber(digits)));
        }
        if self.take("{any-order:") {
            return Ok(Pattern::AnyOrder(self.sequence("}")?));
        }
        if self.take("~{") {
            return Ok(Pattern::Set(self.sequence("}")?));
        }
        if self.take(">[") {
            return Ok(Pattern::Push(self.sequence("]")?));
        }
        if self.take("%{") {
            return self.map();
        }
        self.short_pattern()
    }

    /// Parses a pattern whose kind its first byte shows.
    fn short_pattern(&mut self) -> Parsed<Pattern> {
        let Some(marker) = self.rest().chars().next() else {
            return Err(NotationError::Unfinished);
        };
        if !marker.is_ascii() {
            return Err(self.error("no reply begins like this"));
        }
        self.at += 1;
        match marker {
            '*' => Ok(Pattern::Any),
            '[' => Ok(Pattern::Array(self.sequence("]")?)),
            '+' => Ok(Pattern::Exactly(Value::Simple(self.word()?))),
            '-' => Ok(Pattern::Exactly(Value::Error(self.word()?))),
            ':' => self.integer(),
            ',' => self.double(),
            '#' => self.boolean(),
            '=' => self.verbatim(),
            '<' => self.wildcard(),
            _ => {
                self.at -= 1;
                Err(self.malformed("no reply begins like this"))
            }
        }
    }

    /// Parses a string in double quotes, with the escapes of the command line.
    fn quoted(&mut self) -> Parsed<Vec<u8>> {
        let rest = self.rest();
        let mut escaped = false;
        let close = rest.bytes().enumerate().skip(1).find(|&(_, byte)| {
            let is_close = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            is_close
        });
        let Some((close, _)) = close else {
            return Err(self.error("a string is not closed"));
        };
        let words = split(&rest.as_bytes()[..=close]);
        let word = words.ok().and_then(|mut words| words.pop());
        let bytes = word.ok_or_else(|| self.error("a string is malformed"))?;
        self.at += close + 1;
        Ok(bytes)
    }

    /// Parses a status or error inside brackets: quoted, or up to the end of the element.
    fn word(&mut self) -> Parsed<Vec<u8>> {
        match self.rest().starts_with('"') {
            true => self.quoted(),
            false => Ok(self
                .until(&[',', ']', '}', ':'])
                .trim_end()
                .as_bytes()
                .to_vec()),
        }
    }

    fn number_text(&mut self) -> &'a str {
        self.until(&[',', ']', '}', ':', ' ', '>'])
    }

    fn integer(&mut self) -> Parsed<Pattern> {
        let text = self.number_text();
        let number = text
            .parse()
            .map_err(|_| self.malformed("not a whole number"))?;
        Ok(Pattern::Exactly(Value::Integer(number)))
    }

    fn double(&mut self) -> Parsed<Pattern> {
        let text = self.number_text().to_owned();
        let value = text.parse().map_err(|_| self.malformed("not a number"))?;
        Ok(Pattern::Exactly(Value::Double(Double { value, text })))
    }

    fn boolean(&mut self) -> Parsed<Pattern> {
        if self.take("t") {
            return Ok(Pattern::Exactly(Value::Boolean(true)));
        }
        self.expect("f", "a boolean is #t or #f")?;
        Ok(Pattern::Exactly(Value::Boolean(false)))
    }

    fn verbatim(&mut self) -> Parsed<Pattern> {
        let format = self.until(&[':']).to_owned();
        self.expect(":", "verbatim text has a format")?;
        let text = self.quoted()?;
        Ok(Pattern::Exactly(Value::Verbatim { format, text }))
    }

    fn wildcard(&mut self) -> Parsed<Pattern> {
        let kind = self.until(&[' ', '>']);
        let pattern = match kind {
            "bulk" => Pattern::AnyBulk,
            "double" => Pattern::AnyDouble,
            "integer" => self.integer_range()?,
            "text" => Pattern::Text(self.glob()?),
            "error" => Pattern::Error(self.glob()?),
            _ => return Err(self.malformed("no such wildcard")),
        };
        self.expect(">", "a wildcard ends with >")?;
        Ok(pattern)
    }

    fn integer_range(&mut self) -> Parsed<Pattern> {
        let text = self.until(&['>']).trim();
        if text.is_empty() {
            return Ok(Pattern::Integer(i64::MIN..=i64::MAX));
        }
        let bounds = text.split_once("..").and_then(|(low, high)| {
            let low = low.trim().parse().ok()?;
            Some(low..=high.trim().parse().ok()?)
        });
        bounds
            .map(Pattern::Integer)
            .ok_or_else(|| self.malformed("a range is LOW..HIGH"))
    }

    fn glob(&mut self) -> Parsed<Option<Vec<u8>>> {
        self.skip_spaces();
        match self.rest().starts_with('"') {
            true => Ok(Some(self.quoted()?)),
            false => Ok(None),
        }
    }

    fn sequence(&mut self, close: &str) -> Parsed<Sequence> {
        let mut items = Vec::new();
        let mut open = false;
        while !self.take(close) {
            if self.take("...") {
                open = true;
                self.expect(close, "the dots come last")?;
                break;
            }
            items.push(self.pattern()?);
            if !self.take(",") {
                self.expect(close, "a comma or the closing bracket is missing")?;
                break;
            }
        }
        Ok(Sequence { items, open })
    }

    fn map(&mut self) -> Parsed<Pattern> {
        let mut pairs = Vec::new();
        let mut open = false;
        while !self.take("}") {
            if self.take("...") {
                open = true;
                self.expect("}", "the dots come last")?;
                break;
            }
            let key = self.pattern()?;
            self.expect(":", "a colon stands between key and value")?;
            pairs.push((key, self.pattern()?));
            if !self.take(",") {
                self.expect("}", "a comma or the closing bracket is missing")?;
                break;
            }
        }
        Ok(Pattern::Map { pairs, open })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::decode_value;

    #[test]
    fn what_is_shown_is_accepted() {
        let replies: [&[u8]; 16] = [
            b"+OK\r\n",
            b"+with, [all] {of} it: \"too\"\r\n",
            b"-ERR value is not an integer or out of range\r\n",
            b":-5\r\n",
            b"$11\r\na\r\n\"\\\x00\xff, ]}\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*3\r\n+a\r\n-ERR b, c\r\n*0\r\n",
            b"*2\r\n+a: b\r\n:1\r\n",
            b"%2\r\n$1\r\na\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
            b"~2\r\n:1\r\n#t\r\n",
            b">2\r\n+message\r\n#f\r\n",
            b",1.5\r\n",
            b",-inf\r\n",
            b"(123456789012345678901234567890\r\n",
            b"=8\r\ntxt:a\"b\n\r\n",
        ];
        for reply in replies {
            let (value, _) = decode_value(reply).unwrap().unwrap();
            let line = show(&value);
            let pattern = parse(&line).unwrap_or_else(|error| panic!("{line}: {error:?}"));
            assert!(pattern.accepts(&value), "{line}");
        }
    }

    #[test]
    fn open_brackets_wait_for_the_next_line() {
        for line in ["[", "[:1,", "%{\"a\":", "~{", "[[:1]", "{any-order:"] {
            assert_eq!(parse(line), Err(NotationError::Unfinished), "{line}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "OK",
            "[:1 :2]",
            ":x",
            "<strange>",
            "%{:1}",
            "[...,:1]",
            "(nil) x",
            "\u{e9}",
        ] {
            let result = parse(line);
            assert!(
                matches!(result, Err(NotationError::Malformed(..))),
                "{line}: {result:?}"
            );
        }
    }
}
