//! Replies as text: with types and quotes for people, raw for scripts, as CSV, and as JSON.

use protocol::Value;

/// The form of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Typed,
    Raw,
    Csv,
    Json,
    /// As JSON, but with texts quoted as for people: ASCII only.
    QuotedJson,
}

/// Prints replies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Printer {
    form: Form,
    /// Delimiter between elements of raw replies.
    between: Delimiter,
    /// Delimiter after raw replies.
    behind: Delimiter,
}

/// A short text, cut off to its maximum length.
#[derive(Clone, Copy, Debug, Default)]
struct Delimiter {
    bytes: [u8; DELIMITER_BYTES_MAX],
    len: usize,
}

impl Delimiter {
    fn new(text: &str) -> Self {
        let mut delimiter = Self {
            len: text.len().min(DELIMITER_BYTES_MAX),
            ..Self::default()
        };
        let len = delimiter.len;
        delimiter.bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        delimiter
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

const DELIMITER_BYTES_MAX: usize = 16;

impl Printer {
    pub(super) fn new(form: Form) -> Self {
        Self {
            form,
            between: Delimiter::new("\n"),
            behind: Delimiter::new("\n"),
        }
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    pub(super) fn set_delimiter(&mut self, text: &str) {
        self.between = Delimiter::new(text);
    }

    pub(super) fn set_end(&mut self, text: &str) {
        self.behind = Delimiter::new(text);
    }

    /// Formats a reply with a line break behind it; text for people is unchanged.
    pub(super) fn show(&self, reply: &Value, is_text: bool) -> Vec<u8> {
        let mut out = Vec::new();
        match (self.form, reply) {
            (Form::Typed, Value::Bulk(text) | Value::Verbatim { text, .. }) if is_text => {
                out.extend_from_slice(text);
                if !text.ends_with(b"\n") {
                    out.push(b'\n');
                }
                return out;
            }
            (Form::Typed, reply) => {
                typed(reply, "", &mut out);
                return out;
            }
            (Form::Raw, reply) => {
                self.raw(reply, &mut out);
                if matches!(reply, Value::Error(_)) {
                    // As `redis-cli` does.
                    out.push(b'\n');
                }
                out.extend_from_slice(self.behind.text());
                return out;
            }
            (Form::Csv, reply) => csv(reply, &mut out),
            (Form::Json, reply) => json(reply, &json_text, &mut out),
            (Form::QuotedJson, reply) => json(reply, &quoted_text, &mut out),
        }
        out.push(b'\n');
        out
    }

    fn raw(&self, reply: &Value, out: &mut Vec<u8>) {
        let delimiter = self.between.text();
        let mut each = |values: &mut dyn Iterator<Item = &Value>, between: &[&[u8]]| {
            for (at, value) in values.enumerate() {
                if at > 0 {
                    out.extend_from_slice(between[(at - 1) % between.len()]);
                }
                self.raw(value, out);
            }
        };
        match reply {
            Value::Array(values) | Value::Set(values) | Value::Push(values) => {
                each(&mut values.iter(), &[delimiter]);
            }
            Value::Map(pairs) => {
                let values = pairs.iter().flat_map(|(name, value)| [name, value]);
                each(&mut values.into_iter(), &[b" ", delimiter]);
            }
            Value::Attribute { value, .. } => self.raw(value, out),
            Value::Boolean(true) => out.extend_from_slice(b"(true)"),
            Value::Boolean(false) => out.extend_from_slice(b"(false)"),
            other => out.extend_from_slice(&text_of(other)),
        }
    }
}

/// Returns the text of a reply without parts.
pub(crate) fn text_of(reply: &Value) -> Vec<u8> {
    match reply {
        Value::Simple(text)
        | Value::Error(text)
        | Value::Bulk(text)
        | Value::Verbatim { text, .. } => text.clone(),
        Value::Integer(number) => number.to_string().into_bytes(),
        Value::Double(double) => double.text.clone().into_bytes(),
        Value::BigNumber(text) => text.clone().into_bytes(),
        Value::Boolean(value) => value.to_string().into_bytes(),
        _ => Vec::new(),
    }
}

/// Quotes bytes and escapes unprintable ones, as Redis' clients read them back.
pub(super) fn quoted(bytes: &[u8]) -> String {
    base::words::quote(bytes)
}

fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
}

fn typed(reply: &Value, indent: &str, out: &mut Vec<u8>) {
    match reply {
        Value::Simple(text) => line(out, &String::from_utf8_lossy(text)),
        Value::Error(text) => line(out, &format!("(error) {}", String::from_utf8_lossy(text))),
        Value::Integer(number) => line(out, &format!("(integer) {number}")),
        Value::Bulk(text) => line(out, &quoted(text)),
        Value::Null | Value::NullArray => line(out, "(nil)"),
        Value::Double(double) => line(out, &format!("(double) {}", double.text)),
        Value::BigNumber(text) => line(out, &format!("(big number) {text}")),
        Value::Boolean(true) => line(out, "(true)"),
        Value::Boolean(false) => line(out, "(false)"),
        Value::Verbatim { text, .. } => {
            out.extend_from_slice(text);
            out.push(b'\n');
        }
        Value::Attribute { value, .. } => typed(value, indent, out),
        Value::Array(values) if values.is_empty() => line(out, "(empty array)"),
        Value::Set(values) if values.is_empty() => line(out, "(empty set)"),
        Value::Push(values) if values.is_empty() => line(out, "(empty push)"),
        Value::Map(pairs) if pairs.is_empty() => line(out, "(empty hash)"),
        Value::Array(values) | Value::Push(values) => numbered(values, ")", indent, out),
        Value::Set(values) => numbered(values, "~", indent, out),
        Value::Map(pairs) => {
            let width = pairs.len().to_string().len();
            let inner = format!("{indent}{}", " ".repeat(width + 2));
            for (at, (name, value)) in pairs.iter().enumerate() {
                let number = format!("{:>width$}# ", at + 1);
                lead(out, indent, at, &number);
                typed(name, &inner, out);
                out.pop();
                out.extend_from_slice(b" => ");
                if has_parts(value) {
                    let inner = format!("{inner}   ");
                    out.push(b'\n');
                    out.extend_from_slice(inner.as_bytes());
                    typed(value, &inner, out);
                } else {
                    typed(value, &inner, out);
                }
            }
        }
    }
}

fn has_parts(value: &Value) -> bool {
    match value {
        Value::Array(values) | Value::Set(values) | Value::Push(values) => !values.is_empty(),
        Value::Map(pairs) => !pairs.is_empty(),
        _ => false,
    }
}

/// Appends the number of an element: the first goes behind what is already there.
fn lead(out: &mut Vec<u8>, indent: &str, at: usize, number: &str) {
    if at > 0 {
        out.extend_from_slice(indent.as_bytes());
    }
    out.extend_from_slice(number.as_bytes());
}

fn numbered(values: &[Value], mark: &str, indent: &str, out: &mut Vec<u8>) {
    let width = values.len().to_string().len();
    let inner = format!("{indent}{}", " ".repeat(width + 2));
    for (at, value) in values.iter().enumerate() {
        lead(out, indent, at, &format!("{:>width$}{mark} ", at + 1));
        typed(value, &inner, out);
    }
}

fn csv(reply: &Value, out: &mut Vec<u8>) {
    let mut each = |values: &mut dyn Iterator<Item = &Value>| {
        for (at, value) in values.enumerate() {
            if at > 0 {
                out.push(b',');
            }
            csv(value, out);
        }
    };
    match reply {
        Value::Array(values) | Value::Set(values) | Value::Push(values) => each(&mut values.iter()),
        Value::Map(pairs) => {
            let values = pairs.iter().flat_map(|(name, value)| [name, value]);
            each(&mut values.into_iter());
        }
        Value::Attribute { value, .. } => csv(value, out),
        Value::Null | Value::NullArray => out.extend_from_slice(b"NULL"),
        Value::Error(text) => {
            out.extend_from_slice(b"ERROR,");
            out.extend_from_slice(quoted(text).as_bytes());
        }
        Value::Simple(text) | Value::Bulk(text) | Value::Verbatim { text, .. } => {
            out.extend_from_slice(quoted(text).as_bytes());
        }
        other => out.extend_from_slice(&text_of(other)),
    }
}

/// Appends a reply as JSON; `text` writes its texts.
fn json(reply: &Value, text: &dyn Fn(&[u8], &mut Vec<u8>), out: &mut Vec<u8>) {
    let each = |values: &[Value], out: &mut Vec<u8>| {
        out.push(b'[');
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            json(value, text, out);
        }
        out.push(b']');
    };
    match reply {
        Value::Array(values) | Value::Set(values) | Value::Push(values) => each(values, out),
        Value::Map(pairs) => {
            out.push(b'{');
            for (at, (name, value)) in pairs.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                // In JSON a name is a text, whatever its type here.
                text(&text_of(name), out);
                out.push(b':');
                json(value, text, out);
            }
            out.push(b'}');
        }
        Value::Attribute { value, .. } => json(value, text, out),
        Value::Null | Value::NullArray => out.extend_from_slice(b"null"),
        Value::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::Boolean(value) => out.extend_from_slice(value.to_string().as_bytes()),
        // A value that is not a number in JSON becomes a text.
        Value::Double(double) if double.value.is_finite() => {
            out.extend_from_slice(double.value.to_string().as_bytes());
        }
        Value::BigNumber(number) => out.extend_from_slice(number.as_bytes()),
        Value::Error(error) => {
            out.extend_from_slice(b"{\"error\":");
            text(error, out);
            out.push(b'}');
        }
        other => text(&text_of(other), out),
    }
}

/// Appends a quoted text, as for people.
fn quoted_text(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(quoted(bytes).as_bytes());
}

/// Appends a JSON text. Each byte that is not UTF-8 becomes one character, from U+0080 to U+00FF.
fn json_text(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\t' => out.extend_from_slice(b"\\t"),
                control if control < ' ' || control == '\u{7f}' => {
                    out.extend_from_slice(format!("\\u{:04x}", u32::from(control)).as_bytes());
                }
                other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for byte in chunk.invalid() {
            out.extend_from_slice(format!("\\u00{byte:02x}").as_bytes());
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(form: Form, reply: &[u8]) -> String {
        let (value, used) = protocol::decode_value(reply).unwrap().unwrap();
        assert_eq!(used, reply.len());
        String::from_utf8(Printer::new(form).show(&value, false)).unwrap()
    }

    #[test]
    fn replies_for_people() {
        let nested = b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n*0\r\n";
        let expected = "1) (integer) 1\n2) 1) \"a\"\n   2) (nil)\n3) (empty array)\n";
        assert_eq!(shown(Form::Typed, nested), expected);
        let map = b"%2\r\n+a\r\n:1\r\n$1\r\nb\r\n*1\r\n+x\r\n";
        assert_eq!(
            shown(Form::Typed, map),
            "1# a => (integer) 1\n2# \"b\" => \n      1) x\n"
        );
        assert_eq!(shown(Form::Typed, b"-ERR no\r\n"), "(error) ERR no\n");
        assert_eq!(shown(Form::Typed, b"$3\r\n\x00\"a\r\n"), "\"\\x00\\\"a\"\n");
        assert_eq!(shown(Form::Typed, b"~1\r\n#t\r\n"), "1~ (true)\n");
    }

    #[test]
    fn replies_for_programs() {
        let nested = b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n$3\r\nb\"c\r\n";
        assert_eq!(shown(Form::Raw, nested), "1\na\n\nb\"c\n");
        assert_eq!(shown(Form::Csv, nested), "1,\"a\",NULL,\"b\\\"c\"\n");
        assert_eq!(shown(Form::Json, nested), "[1,[\"a\",null],\"b\\\"c\"]\n");
        let map = b"%2\r\n:1\r\n,1.5\r\n+a\r\n,inf\r\n";
        assert_eq!(shown(Form::Json, map), "{\"1\":1.5,\"a\":\"inf\"}\n");
        assert_eq!(
            shown(Form::Json, b"$3\r\n\xff\n\x01\r\n"),
            "\"\\u00ff\\n\\u0001\"\n"
        );
        assert_eq!(shown(Form::Json, b"-ERR x\r\n"), "{\"error\":\"ERR x\"}\n");
        let text = shown(Form::QuotedJson, b"*1\r\n$3\r\n\xff\n\x01\r\n");
        assert_eq!(text, "[\"\\xff\\n\\x01\"]\n");
    }

    #[test]
    fn what_stands_between_and_behind_raw_replies_is_chosen() {
        let mut printer = Printer::new(Form::Raw);
        printer.set_delimiter(", ");
        printer.set_end("");
        let reply = Value::Array(vec![Value::Integer(1), Value::Integer(2)]);
        assert_eq!(printer.show(&reply, false), b"1, 2");
    }
}
