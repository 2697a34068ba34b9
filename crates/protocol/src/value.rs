//! The client's side: replies as values, requests as bytes.
//!
//! Used by tests and tools. Strictness matters more than speed: anything that Redis would not send
//! is an error.

use std::fmt;

use base::number::{IntegerText, parse_i64};

/// Maximum depth of nested arrays in a reply.
const DEPTH_MAX: usize = 128;

/// A decoded reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `+`: a status.
    Simple(Vec<u8>),
    /// `-` or `!`: an error.
    Error(Vec<u8>),
    /// `:`: a whole number.
    Integer(i64),
    /// `$`: a string of any bytes.
    Bulk(Vec<u8>),
    /// `_`, or `$-1`: null.
    Null,
    /// `*-1`: null in place of an array.
    NullArray,
    /// `*`: an array.
    Array(Vec<Value>),
    /// `%`: pairs in the order received.
    Map(Vec<(Value, Value)>),
    /// `~`: members in the order received.
    Set(Vec<Value>),
    /// `>`: a message that answers no request.
    Push(Vec<Value>),
    /// `,`: a floating-point number.
    Double(Double),
    /// `#`: a boolean.
    Boolean(bool),
    /// `(`: a whole number of any size, as decimal text.
    BigNumber(String),
    /// `=`: a text with its format.
    Verbatim {
        /// Three characters, such as `txt`.
        format: String,
        /// The text without the format.
        text: Vec<u8>,
    },
    /// `|`: a reply with an annotation.
    Attribute {
        /// The annotation.
        pairs: Vec<(Value, Value)>,
        /// The reply itself.
        value: Box<Value>,
    },
}

/// A floating-point number with its text on the wire. Two are equal if their texts are.
#[derive(Debug, Clone)]
pub struct Double {
    /// The number.
    pub value: f64,
    /// The text on the wire.
    pub text: String,
}

impl PartialEq for Double {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Double {}

/// Why bytes are not a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueError {
    /// No type begins with this byte.
    UnknownType(u8),
    /// The text of a number, boolean or null is not one.
    Malformed,
    /// A string does not end with CR LF.
    MissingLineEnd,
    /// Arrays are nested deeper than in any real reply.
    TooDeep,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownType(byte) => write!(f, "no reply begins with '{}'", byte.escape_ascii()),
            Self::Malformed => f.write_str("a number, boolean or null is malformed"),
            Self::MissingLineEnd => f.write_str("a string does not end with CR LF"),
            Self::TooDeep => f.write_str("the reply is nested too deeply"),
        }
    }
}

impl std::error::Error for ValueError {}

/// Decodes the reply at the front of `input`. Returns the value and the number of its bytes, or
/// `None` if bytes are missing.
///
/// # Errors
/// [`ValueError`] if no further bytes could make it a reply.
pub fn decode_value(input: &[u8]) -> Result<Option<(Value, usize)>, ValueError> {
    let mut reader = ValueParser {
        rest: input,
        depth: 0,
    };
    match reader.value() {
        Ok(value) => Ok(Some((value, input.len() - reader.rest.len()))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Appends the request that a client sends for `args`, the command's name first.
pub fn encode_request(out: &mut Vec<u8>, args: &[&[u8]]) {
    encode_arguments(out, args.iter().copied());
}

/// Does the same as [`encode_request`], for a caller without a slice of slices. Takes about 40
/// instructions per short argument.
#[inline]
pub fn encode_arguments<'a>(out: &mut Vec<u8>, arguments: impl ExactSizeIterator<Item = &'a [u8]>) {
    push_header(out, b'*', arguments.len());
    for argument in arguments {
        push_header(out, b'$', argument.len());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

#[inline]
fn push_header(out: &mut Vec<u8>, marker: u8, count: usize) {
    let Some(line) = SHORT_LINES.get(count) else {
        return push_long_header(out, marker, count);
    };
    // One store, whatever the length.
    let end = out.len() + usize::from(line.to_le_bytes()[0]);
    out.extend_from_slice(&(line & !0xff | u64::from(marker)).to_le_bytes());
    out.truncate(end);
}

#[cold]
fn push_long_header(out: &mut Vec<u8>, marker: u8, count: usize) {
    out.push(marker);
    out.extend_from_slice(IntegerText::new_u64(count as u64).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Lines of counts below 1,000, as words with the first byte lowest. In place of the first byte,
/// the marker, a word contains the length of the line.
static SHORT_LINES: [u64; 1000] = short_lines();

/// Returns such lines for counts below `COUNTS`, which is at most 100,000.
pub(crate) const fn short_lines<const COUNTS: usize>() -> [u64; COUNTS] {
    const END: u64 = 0x0a0d;
    let mut lines = [0; COUNTS];
    let mut number = 0;
    while number < lines.len() {
        let (mut rest, mut digits, mut count) = (number as u64, 0, 0);
        while rest > 0 || count == 0 {
            digits = (digits << 8) | (0x30 + rest % 10);
            rest /= 10;
            count += 1;
        }
        lines[number] = (count + 3) | digits << 8 | END << (8 * (count + 1));
        number += 1;
    }
    lines
}

/// Why no value was decoded.
enum Stop {
    Incomplete,
    Failed(ValueError),
}

impl From<ValueError> for Stop {
    fn from(error: ValueError) -> Self {
        Self::Failed(error)
    }
}

struct ValueParser<'a> {
    rest: &'a [u8],
    depth: usize,
}

impl<'a> ValueParser<'a> {
    fn value(&mut self) -> Result<Value, Stop> {
        let (&marker, rest) = self.rest.split_first().ok_or(Stop::Incomplete)?;
        self.rest = rest;
        Ok(match marker {
            b'+' => Value::Simple(self.line()?.to_vec()),
            b'-' => Value::Error(self.line()?.to_vec()),
            b':' => Value::Integer(self.integer()?),
            b'$' => self
                .blob()?
                .map_or(Value::Null, |bytes| Value::Bulk(bytes.to_vec())),
            b'!' => Value::Error(self.blob()?.ok_or(ValueError::Malformed)?.to_vec()),
            b'=' => self.verbatim()?,
            b'_' => self.null()?,
            b'#' => self.boolean()?,
            b',' => self.double()?,
            b'(' => self.big_number()?,
            b'*' => self.array()?,
            b'~' => Value::Set(self.elements()?),
            b'>' => Value::Push(self.elements()?),
            b'%' => Value::Map(self.pairs()?),
            b'|' => self.attribute()?,
            other => return Err(ValueError::UnknownType(other).into()),
        })
    }

    /// Reads the text up to CR LF.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let end = self
            .rest
            .iter()
            .position(|&byte| byte == b'\n')
            .ok_or(Stop::Incomplete)?;
        let line = self.rest[..end]
            .strip_suffix(b"\r")
            .ok_or(ValueError::MissingLineEnd)?;
        self.rest = &self.rest[end + 1..];
        Ok(line)
    }

    fn text(&mut self) -> Result<&'a str, Stop> {
        Ok(std::str::from_utf8(self.line()?).map_err(|_| ValueError::Malformed)?)
    }

    fn integer(&mut self) -> Result<i64, Stop> {
        Ok(parse_i64(self.line()?).ok_or(ValueError::Malformed)?)
    }

    /// Reads a count or length; `None` for -1.
    fn count(&mut self) -> Result<Option<usize>, Stop> {
        match self.integer()? {
            -1 => Ok(None),
            count => Ok(Some(
                usize::try_from(count).map_err(|_| ValueError::Malformed)?,
            )),
        }
    }

    fn blob(&mut self) -> Result<Option<&'a [u8]>, Stop> {
        let Some(length) = self.count()? else {
            return Ok(None);
        };
        let (content, rest) = self.rest.split_at_checked(length).ok_or(Stop::Incomplete)?;
        match rest {
            [b'\r', b'\n', rest @ ..] => self.rest = rest,
            [] | [b'\r'] => return Err(Stop::Incomplete),
            _ => return Err(ValueError::MissingLineEnd.into()),
        }
        Ok(Some(content))
    }

    fn verbatim(&mut self) -> Result<Value, Stop> {
        let content = self.blob()?.ok_or(ValueError::Malformed)?;
        let (format, text) = content.split_at_checked(4).ok_or(ValueError::Malformed)?;
        let format = std::str::from_utf8(format)
            .ok()
            .and_then(|text| text.strip_suffix(':'));
        let format = format.ok_or(ValueError::Malformed)?.to_owned();
        Ok(Value::Verbatim {
            format,
            text: text.to_vec(),
        })
    }

    fn null(&mut self) -> Result<Value, Stop> {
        match self.line()? {
            [] => Ok(Value::Null),
            _ => Err(ValueError::Malformed.into()),
        }
    }

    fn boolean(&mut self) -> Result<Value, Stop> {
        match self.line()? {
            b"t" => Ok(Value::Boolean(true)),
            b"f" => Ok(Value::Boolean(false)),
            _ => Err(ValueError::Malformed.into()),
        }
    }

    fn double(&mut self) -> Result<Value, Stop> {
        let text = self.text()?;
        let value = text.parse().map_err(|_| ValueError::Malformed)?;
        Ok(Value::Double(Double {
            value,
            text: text.to_owned(),
        }))
    }

    fn big_number(&mut self) -> Result<Value, Stop> {
        let text = self.text()?;
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ValueError::Malformed.into());
        }
        Ok(Value::BigNumber(text.to_owned()))
    }

    fn array(&mut self) -> Result<Value, Stop> {
        match self.count()? {
            None => Ok(Value::NullArray),
            Some(count) => Ok(Value::Array(self.repeat(count, Self::value)?)),
        }
    }

    fn elements(&mut self) -> Result<Vec<Value>, Stop> {
        let count = self.count()?.ok_or(ValueError::Malformed)?;
        self.repeat(count, Self::value)
    }

    fn pairs(&mut self) -> Result<Vec<(Value, Value)>, Stop> {
        let count = self.count()?.ok_or(ValueError::Malformed)?;
        self.repeat(count, |reader| Ok((reader.value()?, reader.value()?)))
    }

    fn attribute(&mut self) -> Result<Value, Stop> {
        let pairs = self.pairs()?;
        self.descend()?;
        let value = Box::new(self.value()?);
        self.depth -= 1;
        Ok(Value::Attribute { pairs, value })
    }

    /// Reads `count` items one level deeper. Reserves no memory for a count alone.
    fn repeat<T>(
        &mut self,
        count: usize,
        read: impl Fn(&mut Self) -> Result<T, Stop>,
    ) -> Result<Vec<T>, Stop> {
        self.descend()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(read(self)?);
        }
        self.depth -= 1;
        Ok(items)
    }

    fn descend(&mut self) -> Result<(), Stop> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(ValueError::TooDeep.into());
        }
        Ok(())
    }
}
