//! A request with placeholders for the parts that change: the key, and the value.
//!
//! `__key__` stands for a key of the key space, `__rand_int__` for twelve digits of one (as in
//! `redis-benchmark`), `__rand_int:N__` for twelve digits of one modulo `N`, `__data__` for a
//! value.

use std::num::NonZeroU64;

/// Digits of `__rand_int__`.
pub(crate) const RANDOM_DIGITS: usize = 12;
/// Prefix of the digits of `__key__`.
const KEY_PREFIX: &[u8] = b"key:";
const PLACES: [(&[u8], Placeholder); 3] = [
    (b"__key__", Placeholder::Key),
    (b"__rand_int__", Placeholder::Digits { below: None }),
    (b"__data__", Placeholder::Data),
];
/// Text before and behind the limit in `__rand_int:N__`.
const LIMITED: (&[u8], &[u8]) = (b"__rand_int:", b"__");

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Name for people, such as `SET` or `MSET (10 keys)`.
    pub name: String,
    words: Words,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Words {
    /// Sent as an array of bulk strings.
    Array(Vec<Vec<Piece>>),
    /// Sent unchanged, as a line.
    Inline(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Bytes(Vec<u8>),
    Placeholder(Placeholder),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    Key,
    Digits { below: Option<NonZeroU64> },
    Data,
}

/// What replaces the placeholders of a template.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filling<'a> {
    /// Length of `__key__`: prefix and digits.
    pub(crate) key_bytes: usize,
    /// The value.
    pub(crate) data: &'a [u8],
}

/// Position of digits in a request that name a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DigitSpan {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// If set, the number is the key modulo this.
    pub(crate) below: Option<NonZeroU64>,
}

impl DigitSpan {
    /// Returns the number to write for `key`.
    #[inline]
    pub(crate) fn number(&self, key: u64) -> u64 {
        match self.below {
            None => key,
            Some(below) => key % below,
        }
    }
}

impl Template {
    /// Creates a request of `words`, named after its first word.
    #[must_use]
    pub fn new<W: AsRef<[u8]>>(words: &[W]) -> Self {
        let name = words
            .first()
            .map(|word| String::from_utf8_lossy(word.as_ref()).into_owned());
        Self::named(&name.unwrap_or_default(), words)
    }

    /// Creates a request of `words`, called `name`.
    #[must_use]
    pub fn named<W: AsRef<[u8]>>(name: &str, words: &[W]) -> Self {
        Self {
            name: name.to_owned(),
            words: Words::Array(words.iter().map(|word| pieces(word.as_ref())).collect()),
        }
    }

    /// Creates a line that is sent without lengths.
    #[must_use]
    pub fn inline(name: &str, line: &[u8]) -> Self {
        Self {
            name: name.to_owned(),
            words: Words::Inline(line.to_vec()),
        }
    }

    /// Appends the request to `out`, with number 0 for all keys, and the positions of their digits
    /// to `digits`.
    pub(crate) fn encode(
        &self,
        filling: &Filling<'_>,
        out: &mut Vec<u8>,
        digits: &mut Vec<DigitSpan>,
    ) {
        let words = match &self.words {
            Words::Array(words) => words,
            Words::Inline(line) => {
                out.extend_from_slice(line);
                out.extend_from_slice(b"\r\n");
                return;
            }
        };
        out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            let bytes: usize = word.iter().map(|piece| filling.length(piece)).sum();
            out.extend_from_slice(format!("${bytes}\r\n").as_bytes());
            for piece in word {
                filling.push(piece, out, digits);
            }
            out.extend_from_slice(b"\r\n");
        }
    }
}

impl Filling<'_> {
    fn length(&self, piece: &Piece) -> usize {
        match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Placeholder(Placeholder::Key) => self.key_bytes,
            Piece::Placeholder(Placeholder::Digits { .. }) => RANDOM_DIGITS,
            Piece::Placeholder(Placeholder::Data) => self.data.len(),
        }
    }

    fn push(&self, piece: &Piece, out: &mut Vec<u8>, digits: &mut Vec<DigitSpan>) {
        match piece {
            Piece::Bytes(bytes) => out.extend_from_slice(bytes),
            Piece::Placeholder(Placeholder::Data) => out.extend_from_slice(self.data),
            Piece::Placeholder(Placeholder::Digits { below }) => {
                push_digits(RANDOM_DIGITS, *below, out, digits);
            }
            Piece::Placeholder(Placeholder::Key) => {
                let prefix = &KEY_PREFIX[..KEY_PREFIX.len().min(self.key_bytes.saturating_sub(1))];
                out.extend_from_slice(prefix);
                push_digits(self.key_bytes - prefix.len(), None, out, digits);
            }
        }
    }
}

fn push_digits(
    count: usize,
    below: Option<NonZeroU64>,
    out: &mut Vec<u8>,
    digits: &mut Vec<DigitSpan>,
) {
    out.resize(out.len() + count, b'0');
    digits.push(DigitSpan {
        start: out.len() - count.min(RANDOM_DIGITS),
        end: out.len(),
        below,
    });
}

/// Splits a word at its placeholders.
fn pieces(word: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut literal = Vec::new();
    let mut rest = word;
    while let Some((&byte, after)) = rest.split_first() {
        if let Some((place, mark_bytes)) = place(rest) {
            if !literal.is_empty() {
                pieces.push(Piece::Bytes(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Placeholder(place));
            rest = &rest[mark_bytes..];
        } else {
            literal.push(byte);
            rest = after;
        }
    }
    if !literal.is_empty() {
        pieces.push(Piece::Bytes(literal));
    }
    pieces
}

/// Returns the placeholder at the beginning of `text`, and the length of its mark.
fn place(text: &[u8]) -> Option<(Placeholder, usize)> {
    let plain = PLACES.iter().find(|(mark, _)| text.starts_with(mark));
    plain
        .map(|(mark, place)| (*place, mark.len()))
        .or_else(|| limited_digits(text))
}

/// Parses `__rand_int:N__`.
fn limited_digits(text: &[u8]) -> Option<(Placeholder, usize)> {
    let (before, after) = LIMITED;
    let limit = text.strip_prefix(before)?;
    let digits = limit
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if !limit[digits..].starts_with(after) {
        return None;
    }
    let below = std::str::from_utf8(&limit[..digits]).ok()?.parse().ok()?;
    let mark_bytes = before.len() + digits + after.len();
    Some((Placeholder::Digits { below: Some(below) }, mark_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(template: &Template, key_bytes: usize) -> (String, Vec<DigitSpan>) {
        let filling = Filling {
            key_bytes,
            data: b"value",
        };
        let (mut out, mut digits) = (Vec::new(), Vec::new());
        template.encode(&filling, &mut out, &mut digits);
        (String::from_utf8(out).unwrap(), digits)
    }

    #[test]
    fn places_are_filled_and_digits_are_found() {
        let set = Template::new(&["SET", "__key__", "__data__"]);
        let (text, digits) = encoded(&set, 16);
        assert_eq!(
            text,
            "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000000\r\n$5\r\nvalue\r\n"
        );
        assert_eq!((digits[0].start, digits[0].end, digits.len()), (22, 34, 1));
        assert_eq!(set.name, "SET");
        let (text, digits) = encoded(&Template::new(&["GET", "__key__"]), 20);
        assert!(text.ends_with("$20\r\nkey:0000000000000000\r\n"));
        assert_eq!(text[digits[0].start..].len(), 14);
    }

    #[test]
    fn places_may_stand_inside_a_word() {
        let (text, digits) = encoded(&Template::new(&["GET", "a:__rand_int__:b__data__"]), 16);
        assert!(text.ends_with("$21\r\na:000000000000:bvalue\r\n"));
        assert_eq!(digits.len(), 1);
    }

    #[test]
    fn digits_may_be_limited() {
        let template = Template::new(&["GET", "a:__rand_int:10__:b", "__rand_int:0__"]);
        let (text, digits) = encoded(&template, 16);
        assert!(text.contains("a:000000000000:b\r\n$14\r\n__rand_int:0__\r\n"));
        assert_eq!(digits.len(), 1);
        assert_eq!(digits[0].number(1_234), 4);
    }

    #[test]
    fn short_keys_keep_a_digit() {
        let (text, digits) = encoded(&Template::new(&["GET", "__key__"]), 3);
        assert!(text.ends_with("$3\r\nke0\r\n"));
        assert_eq!(digits[0].end - digits[0].start, 1);
    }

    #[test]
    fn a_line_is_sent_as_it_is() {
        let (text, digits) = encoded(&Template::inline("PING_INLINE", b"PING"), 16);
        assert_eq!((text.as_str(), digits.len()), ("PING\r\n", 0));
    }
}
