//! Parser from JSON to a value of a script.

use mlua::{Lua, Table, Value};

use super::{DEPTH_MAX, Settings};
use crate::library::Failure;

/// Returns the one value that `text` holds.
pub(super) fn document(lua: &Lua, text: &[u8], settings: &Settings) -> Result<Value, Failure> {
    if matches!(text, [0, ..] | [_, 0, ..]) {
        return Err("JSON parser does not support UTF-16 or UTF-32".into());
    }
    let mut reader = JsonParser {
        lua,
        text,
        at: 0,
        settings,
    };
    let value = reader.value()?;
    match reader.token()? {
        (Token::End, _) => Ok(value),
        (token, at) => Err(unexpected("the end", &token, at)),
    }
}

enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Colon,
    Comma,
    End,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    /// The error of the text at this place.
    Error(&'static str),
}

fn unexpected(wanted: &str, token: &Token, at: usize) -> Failure {
    let found = match token {
        Token::ObjectBegin => "T_OBJ_BEGIN",
        Token::ObjectEnd => "T_OBJ_END",
        Token::ArrayBegin => "T_ARR_BEGIN",
        Token::ArrayEnd => "T_ARR_END",
        Token::Colon => "T_COLON",
        Token::Comma => "T_COMMA",
        Token::End => "T_END",
        Token::Text(_) => "T_STRING",
        Token::Number(_) => "T_NUMBER",
        Token::Boolean(_) => "T_BOOLEAN",
        Token::Null => "T_NULL",
        Token::Error(text) => text,
    };
    Failure::Text(format!(
        "Expected {wanted} but found {found} at character {}",
        at + 1
    ))
}

/// An incomplete container.
enum Open {
    Array(Table, usize),
    Object(Table, Option<Value>),
}

struct JsonParser<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    settings: &'a Settings,
}

impl JsonParser<'_> {
    fn value(&mut self) -> Result<Value, Failure> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            let (token, at) = self.token()?;
            let Some(mut done) = self.begin(token, at, &mut open)? else {
                continue;
            };
            // A complete value is put into its container, which may become complete by it.
            loop {
                match self.put(done, &mut open)? {
                    Step::Next => break,
                    Step::Complete(container) if open.is_empty() => return Ok(container),
                    Step::Complete(container) => done = container,
                }
            }
        }
    }

    /// Returns a value if its token completes it, or opens a container.
    fn begin(
        &mut self,
        token: Token,
        at: usize,
        open: &mut Vec<Open>,
    ) -> Result<Option<Value>, Failure> {
        Ok(Some(match token {
            Token::Text(text) => Value::String(self.lua.create_string(text)?),
            Token::Number(number) => Value::Number(number),
            Token::Boolean(truth) => Value::Boolean(truth),
            Token::Null => Value::LightUserData(mlua::LightUserData(std::ptr::null_mut())),
            Token::ObjectBegin => {
                self.deeper(open.len())?;
                let table = self.lua.create_table()?;
                match self.token()? {
                    (Token::ObjectEnd, _) => Value::Table(table),
                    (token, at) => {
                        let key = self.key(token, at)?;
                        open.push(Open::Object(table, Some(key)));
                        return Ok(None);
                    }
                }
            }
            Token::ArrayBegin => {
                self.deeper(open.len())?;
                let table = self.lua.create_table()?;
                let before = self.at;
                if let (Token::ArrayEnd, _) = self.token()? {
                    Value::Table(table)
                } else {
                    self.at = before;
                    open.push(Open::Array(table, 0));
                    return Ok(None);
                }
            }
            other => return Err(unexpected("value", &other, at)),
        }))
    }

    fn deeper(&self, depth: usize) -> Result<(), Failure> {
        let depth = u32::try_from(depth + 1).unwrap_or(u32::MAX);
        if depth > self.settings.decode_depth_max.min(DEPTH_MAX) {
            let text = format!(
                "Found too many nested data structures ({depth}) at character {}",
                self.at
            );
            return Err(Failure::Text(text));
        }
        Ok(())
    }

    /// Reads a key and the colon after it.
    fn key(&mut self, token: Token, at: usize) -> Result<Value, Failure> {
        let Token::Text(text) = token else {
            return Err(unexpected("object key string", &token, at));
        };
        match self.token()? {
            (Token::Colon, _) => Ok(Value::String(self.lua.create_string(text)?)),
            (token, at) => Err(unexpected("colon", &token, at)),
        }
    }

    fn put(&mut self, value: Value, open: &mut Vec<Open>) -> Result<Step, Failure> {
        let (table, wanted) = match open.last_mut() {
            None => return Ok(Step::Complete(value)),
            Some(Open::Array(table, length)) => {
                *length += 1;
                table.raw_seti(*length, value)?;
                (table.clone(), "comma or array end")
            }
            Some(Open::Object(table, key)) => {
                table.raw_set(key.take().unwrap_or(Value::Nil), value)?;
                (table.clone(), "comma or object end")
            }
        };
        let is_array = matches!(open.last(), Some(Open::Array(..)));
        match self.token()? {
            (Token::Comma, _) if is_array => Ok(Step::Next),
            (Token::Comma, _) => {
                let (token, at) = self.token()?;
                let next = self.key(token, at)?;
                if let Some(Open::Object(_, key)) = open.last_mut() {
                    *key = Some(next);
                }
                Ok(Step::Next)
            }
            (Token::ArrayEnd, _) if is_array => {
                open.pop();
                Ok(Step::Complete(Value::Table(table)))
            }
            (Token::ObjectEnd, _) if !is_array => {
                open.pop();
                Ok(Step::Complete(Value::Table(table)))
            }
            (token, at) => Err(unexpected(wanted, &token, at)),
        }
    }

    /// Returns the next token and its start.
    fn token(&mut self) -> Result<(Token, usize), Failure> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        let at = self.at;
        let Some(first) = self.text.get(at) else {
            return Ok((Token::End, at));
        };
        let single = match first {
            b'{' => Some(Token::ObjectBegin),
            b'}' => Some(Token::ObjectEnd),
            b'[' => Some(Token::ArrayBegin),
            b']' => Some(Token::ArrayEnd),
            b':' => Some(Token::Colon),
            b',' => Some(Token::Comma),
            _ => None,
        };
        if let Some(token) = single {
            self.at += 1;
            return Ok((token, at));
        }
        if *first == b'"' {
            return Ok(self.string(at));
        }
        let rest = &self.text[at..];
        for (word, token) in [
            (&b"true"[..], Token::Boolean(true)),
            (b"false", Token::Boolean(false)),
            (b"null", Token::Null),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok((token, at));
            }
        }
        Ok((self.number(rest), at))
    }

    fn number(&mut self, rest: &[u8]) -> Token {
        let is_number = matches!(rest[0], b'-' | b'+' | b'0'..=b'9')
            || (self.settings.decode_invalid
                && matches!(rest[0].to_ascii_lowercase(), b'i' | b'n'));
        if !is_number {
            return Token::Error("invalid token");
        }
        let digits = rest
            .strip_prefix(b"-")
            .or_else(|| rest.strip_prefix(b"+"))
            .unwrap_or(rest);
        let is_invalid = !digits.first().is_some_and(u8::is_ascii_digit)
            || rest[0] == b'+'
            || matches!(digits, [b'0', b'0'..=b'9' | b'x' | b'X', ..]);
        if is_invalid && !self.settings.decode_invalid {
            return Token::Error("invalid number");
        }
        match prefix_number(rest) {
            Some((number, length)) => {
                self.at += length;
                Token::Number(number)
            }
            None if is_invalid
                && !digits.first().is_some_and(u8::is_ascii_digit)
                && !matches!(rest[0], b'-' | b'+') =>
            {
                Token::Error("invalid token")
            }
            None => Token::Error("invalid number"),
        }
    }

    /// Reads a string from its opening quote. Errors are at the position of the bad character.
    fn string(&mut self, start: usize) -> (Token, usize) {
        let mut out = Vec::new();
        let mut at = start + 1;
        loop {
            let rest = &self.text[at.min(self.text.len())..];
            let plain = rest
                .iter()
                .position(|byte| matches!(byte, b'"' | b'\\'))
                .unwrap_or(rest.len());
            out.extend_from_slice(&rest[..plain]);
            at += plain;
            match self.text.get(at..) {
                Some([b'"', ..]) => {
                    self.at = at + 1;
                    return (Token::Text(out), start);
                }
                Some([b'\\', b'u', ..]) => match unicode(&self.text[at..], &mut out) {
                    Some(length) => at += length,
                    None => return (Token::Error("invalid unicode escape code"), at),
                },
                Some([b'\\', escape, ..]) => {
                    out.push(match escape {
                        b'b' => 0x08,
                        b'f' => 0x0c,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'"' | b'\\' | b'/' => *escape,
                        _ => return (Token::Error("invalid escape code"), at),
                    });
                    at += 2;
                }
                _ => return (Token::Error("unexpected end of string"), self.text.len()),
            }
        }
    }
}

enum Step {
    /// Another value follows.
    Next,
    /// This container is complete.
    Complete(Value),
}

/// Decodes one `\uXXXX`, or two that form one character. Returns the number of bytes that they
/// take.
fn unicode(text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let unit = |from: usize| -> Option<u32> {
        let digits = text.get(from..from + 6)?.strip_prefix(b"\\u")?;
        digits.iter().try_fold(0, |number, digit| {
            Some(number << 4 | char::from(*digit).to_digit(16)?)
        })
    };
    let high = unit(0)?;
    let (code, length) = if high & 0xf800 == 0xd800 {
        let low = unit(6).filter(|low| low & 0xfc00 == 0xdc00)?;
        if high & 0x400 != 0 {
            return None;
        }
        ((((high & 0x3ff) << 10) | (low & 0x3ff)) + 0x1_0000, 12)
    } else {
        (high, 6)
    };
    let mut buffer = [0; 4];
    out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut buffer).as_bytes());
    Some(length)
}

/// Returns the number at the start of `text`, as C parses it, and the number of bytes that it
/// takes.
fn prefix_number(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let negative = text.first() == Some(&b'-');
    let body = &text[sign..];
    let signed = |number: f64| if negative { -number } else { number };
    let starts = |word: &[u8]| {
        body.get(..word.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(word))
    };
    for (word, number) in [
        (&b"infinity"[..], f64::INFINITY),
        (b"inf", f64::INFINITY),
        (b"nan", f64::NAN),
    ] {
        if starts(word) {
            return Some((signed(number), sign + word.len()));
        }
    }
    if starts(b"0x") && body.get(2).is_some_and(u8::is_ascii_hexdigit) {
        let digits = body[2..]
            .iter()
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        let number = body[2..2 + digits].iter().fold(0.0, |number, digit| {
            number * 16.0 + f64::from(char::from(*digit).to_digit(16).unwrap_or(0))
        });
        return Some((signed(number), sign + 2 + digits));
    }
    let count = |from: usize| {
        body[from.min(body.len())..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let whole = count(0);
    let mut end = whole;
    let mut digits = whole;
    if body.get(end) == Some(&b'.') {
        let fraction = count(end + 1);
        digits += fraction;
        end += 1 + fraction;
    }
    if digits == 0 {
        return None;
    }
    if matches!(body.get(end), Some(b'e' | b'E')) {
        let after = end + 1 + usize::from(matches!(body.get(end + 1), Some(b'-' | b'+')));
        let exponent = count(after);
        if exponent > 0 {
            end = after + exponent;
        }
    }
    let number = std::str::from_utf8(&body[..end])
        .ok()?
        .parse::<f64>()
        .ok()?;
    Some((signed(number), sign + end))
}
