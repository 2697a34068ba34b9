//! JSON text: what measurements are kept in, and read from by the report.
//!
//! Small, because it is only for files of our own; strict enough that a damaged one is refused.

use std::fmt::Write as _;

/// Arrays in arrays that are read.
const DEPTH_MAX: usize = 64;

/// A JSON value. Members of an object keep their order.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number; whole ones are exact up to 2^53.
    Number(f64),
    /// A string.
    Text(String),
    /// An array.
    Array(Vec<Json>),
    /// An object.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// A string.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// A whole number.
    #[must_use]
    pub fn whole(number: u64) -> Self {
        Self::Number(number as f64)
    }

    /// An object of these members; those that are null are left out.
    #[must_use]
    pub fn object<const N: usize>(members: [(&str, Json); N]) -> Self {
        let present = members
            .into_iter()
            .filter(|(_, value)| *value != Self::Null);
        Self::Object(
            present
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    }

    /// A member of an object; null when there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> &Json {
        const NULL: &Json = &Json::Null;
        match self {
            Self::Object(members) => {
                let found = members.iter().find(|(key, _)| key == name);
                found.map_or(NULL, |(_, value)| value)
            }
            _ => NULL,
        }
    }

    /// The elements of an array; none of what is no array.
    #[must_use]
    pub fn elements(&self) -> &[Json] {
        match self {
            Self::Array(elements) => elements,
            _ => &[],
        }
    }

    /// The number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The string, empty if it is none.
    #[must_use]
    pub fn str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            _ => "",
        }
    }

    /// The text, on one line.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(number) if number.is_finite() => {
                // Three digits after the point are more than any figure here has.
                let rounded = (number * 1e3).round() / 1e3;
                let _infallible = write!(out, "{rounded}");
            }
            Self::Number(_) => out.push_str("null"),
            Self::Text(text) => write_text(text, out),
            Self::Array(elements) => {
                out.push('[');
                for (at, element) in elements.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    element.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (at, (name, value)) in members.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    write_text(name, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// Where the text stops being JSON, in bytes from its start.
    pub fn parse(text: &str) -> Result<Self, usize> {
        let mut parser = Parser { text, at: 0 };
        let value = parser.value(0);
        parser.skip_space();
        match value {
            Some(value) if parser.at == text.len() => Ok(value),
            _ => Err(parser.at),
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            control if control < ' ' => {
                let _infallible = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn value(&mut self, depth: usize) -> Option<Json> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.skip_space();
        match self.rest().bytes().next()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string().map(Json::Text),
            b'n' => self.word("null", Json::Null),
            b't' => self.word("true", Json::Bool(true)),
            b'f' => self.word("false", Json::Bool(false)),
            _ => self.number(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json> {
        let mut members = Vec::new();
        self.take('{')?;
        if self.take('}').is_some() {
            return Some(Json::Object(members));
        }
        loop {
            self.skip_space();
            let name = self.string()?;
            self.take(':')?;
            members.push((name, self.value(depth + 1)?));
            if self.take(',').is_none() {
                self.take('}')?;
                return Some(Json::Object(members));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<Json> {
        let mut elements = Vec::new();
        self.take('[')?;
        if self.take(']').is_some() {
            return Some(Json::Array(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            if self.take(',').is_none() {
                self.take(']')?;
                return Some(Json::Array(elements));
            }
        }
    }

    fn string(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut characters = self.rest().char_indices();
        characters.next().filter(|(_, quote)| *quote == '"')?;
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    self.at += at + 1;
                    return Some(text);
                }
                '\\' => match characters.next()?.1 {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    'b' => text.push('\u{8}'),
                    'f' => text.push('\u{c}'),
                    'u' => {
                        let digits: String = characters
                            .by_ref()
                            .take(4)
                            .map(|(_, digit)| digit)
                            .collect();
                        let code = u32::from_str_radix(&digits, 16).ok()?;
                        text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                    escaped @ ('"' | '\\' | '/') => text.push(escaped),
                    _ => return None,
                },
                control if control < ' ' => return None,
                other => text.push(other),
            }
        }
        None
    }

    fn number(&mut self) -> Option<Json> {
        let rest = self.rest();
        let is_part = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
        let end = rest
            .bytes()
            .position(|byte| !is_part(byte))
            .unwrap_or(rest.len());
        let number = rest[..end].parse().ok()?;
        self.at += end;
        Some(Json::Number(number))
    }

    fn word(&mut self, word: &str, value: Json) -> Option<Json> {
        self.rest().starts_with(word).then(|| {
            self.at += word.len();
            value
        })
    }

    /// Takes `mark` and the space before it.
    fn take(&mut self, mark: char) -> Option<()> {
        self.skip_space();
        self.rest().starts_with(mark).then(|| self.at += 1)
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\n', '\r', '\t']).len();
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::Bool),
            any::<i32>().prop_map(|number| Json::Number(f64::from(number) / 8.0)),
            any::<String>().prop_map(Json::Text),
        ];
        leaf.prop_recursive(4, 40, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Json::Array),
                prop::collection::vec((any::<String>(), inner), 0..5).prop_map(Json::Object),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in any_json()) {
            prop_assert_eq!(Json::parse(&value.to_text()), Ok(value));
        }

        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _outcome = Json::parse(&text);
        }
    }

    #[test]
    fn what_is_no_json_is_refused_where_it_stops_being() {
        assert_eq!(Json::parse("[1, 2"), Err(5));
        assert_eq!(Json::parse("[1] x"), Err(4));
        assert!(Json::parse(&"[".repeat(100)).is_err());
        assert!(Json::parse("\"\\x\"").is_err());
        assert!(Json::parse("").is_err());
    }

    #[test]
    fn members_are_found_and_absent_ones_are_null() {
        let object = Json::object([("a", Json::whole(1)), ("b", Json::Null)]);
        assert_eq!(object.to_text(), "{\"a\":1}");
        assert_eq!(object.get("b"), &Json::Null);
        assert_eq!(
            Json::parse(" { \"x\" : [ 1.5 , \"\\u0041\\n\" ] } ")
                .unwrap()
                .to_text(),
            "{\"x\":[1.5,\"A\\n\"]}"
        );
    }
}
