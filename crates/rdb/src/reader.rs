//! Lengths, texts and numbers from the front of received bytes.
//!
//! ```text
//!   00llllll            a length up to 63        11000000 + 1   a text: an 8-bit number
//!   01llllll + 1        up to 16383              11000001 + 2   a 16-bit number
//!   10000000 + 4        up to 32 bits            11000010 + 4   a 32-bit number
//!   10000001 + 8        up to 64 bits            11000011       compressed: length, length
//!                                                               expanded, data
//! ```
//!
//! Lengths are big-endian, numbers little-endian. A text is a length followed by that many bytes,
//! or one of the forms on the right.

use std::fmt;

use base::number::IntegerText;
use structures::{BlockLimit, HashLimits, SetLimits, SortedSetLimits, StreamLimits};

use crate::bytes::{Bytes, index};
use crate::code::name_of_foreign;
use crate::lzf;

/// A fault in received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// They end too early; they may be the start of something valid.
    Ended,
    /// A length or count is invalid in its place.
    Length,
    /// A text exceeds the maximum length.
    TooLong,
    /// A compressed text does not expand to its stated length.
    Compressed,
    /// A block (listpack, ziplist, zipmap, intset) is inconsistent.
    Block,
    /// An element, field or member is duplicated.
    Twice,
    /// A collection without elements, which no key can hold.
    Empty,
    /// A score or time is not a number, or not an allowed one.
    Number,
    /// The type code is unknown.
    Type(u8),
    /// There are bytes behind the end.
    Behind,
    /// A collection has the maximum number of elements.
    Full,
    /// A hash refers to a template that its file does not have.
    Template,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "it ends too early",
            Self::Length => "a length makes no sense",
            Self::TooLong => "a text is too long",
            Self::Compressed => "a compressed text does not expand",
            Self::Block => "a block contradicts itself",
            Self::Twice => "an element is there twice",
            Self::Empty => "a collection is empty",
            Self::Number => "a number is none",
            Self::Type(code) => {
                return match name_of_foreign(*code) {
                    Some(name) => write!(f, "type {code} has no counterpart here: {name}"),
                    None => write!(f, "no type has the code {code}"),
                };
            }
            Self::Behind => "there is something behind the end",
            Self::Full => "a collection is full",
            Self::Template => "a hash is by a template that is not there",
        })
    }
}

impl std::error::Error for Malformed {}

impl From<structures::Full> for Malformed {
    fn from(_: structures::Full) -> Self {
        Self::Full
    }
}

/// Limits for decoding: the maximum length of texts, and the sizes up to which collections stay
/// compact.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum length of a text, in bytes.
    pub string_bytes_max: usize,
    /// Maximum size of a list's block.
    pub list_blocks: BlockLimit,
    /// Maximum size of a hash in one block.
    pub hash: HashLimits,
    /// Maximum size of a compact set.
    pub set: SetLimits,
    /// Maximum size of a sorted set in one block.
    pub sorted_set: SortedSetLimits,
    /// Maximum size of a stream's block.
    pub stream: StreamLimits,
}

impl Limits {
    /// Returns limits that many values exceed: collections of more than `entries` are large, texts
    /// end at 1 MiB. For tests and the fuzz targets.
    #[must_use]
    pub fn narrow(entries: usize) -> Self {
        let listpack_value_bytes = 64;
        Self {
            string_bytes_max: 1 << 20,
            list_blocks: BlockLimit::from_directive(i64::try_from(entries).unwrap_or(i64::MAX)),
            hash: HashLimits {
                listpack_entries: entries,
                listpack_value_bytes,
            },
            set: SetLimits {
                intset_entries: entries,
                listpack_entries: entries,
                listpack_value_bytes,
            },
            sorted_set: SortedSetLimits {
                listpack_entries: entries,
                listpack_value_bytes,
            },
            stream: StreamLimits {
                block_bytes: 4096,
                block_entries: entries,
            },
        }
    }
}

/// Received bytes, read from the front.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: Bytes<'a>,
    version: u16,
    limits: &'a Limits,
}

impl<'a> Reader<'a> {
    /// Creates a reader of `bytes`, written in version `version` of the format.
    #[must_use]
    pub fn new(bytes: &'a [u8], version: u16, limits: &'a Limits) -> Self {
        Self {
            bytes: Bytes(bytes),
            version,
            limits,
        }
    }

    /// Returns the unread bytes.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.0
    }

    /// Returns the version of the format.
    #[must_use]
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Returns the limits for decoding.
    #[must_use]
    pub fn limits(&self) -> &'a Limits {
        self.limits
    }

    /// Takes the next byte.
    ///
    /// # Errors
    /// [`Malformed::Ended`].
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        self.bytes.byte()
    }

    /// Skips `count` bytes.
    pub(crate) fn skip(&mut self, count: usize) -> Result<(), Malformed> {
        self.bytes.take(count).map(drop)
    }

    /// Takes the next length.
    ///
    /// # Errors
    /// [`Malformed::Ended`], or [`Malformed::Length`] if there is no length.
    pub fn length(&mut self) -> Result<u64, Malformed> {
        match self.head()? {
            Head::Length(length) => Ok(length),
            Head::Special(_) => Err(Malformed::Length),
        }
    }

    /// Takes the number of items that follow, each of at least `bytes_each` bytes.
    ///
    /// # Errors
    /// As [`Reader::length`], and if the remaining bytes are too few for so many.
    pub fn count(&mut self, bytes_each: usize) -> Result<usize, Malformed> {
        let count = index(self.length()?)?;
        if count > self.bytes.len() / bytes_each.max(1) {
            return Err(Malformed::Ended);
        }
        Ok(count)
    }

    /// Like [`Reader::count`], for a collection: not 0.
    pub(crate) fn collection(&mut self, bytes_each: usize) -> Result<usize, Malformed> {
        match self.count(bytes_each)? {
            0 => Err(Malformed::Empty),
            count => Ok(count),
        }
    }

    /// Takes the next text.
    ///
    /// # Errors
    /// If there is none, or it exceeds the maximum length. A compressed text takes memory only
    /// after its stated length was verified.
    pub fn text(&mut self) -> Result<Text<'a>, Malformed> {
        let special = match self.head()? {
            Head::Length(length) => {
                let len = self.text_len(length)?;
                return self.bytes.take(len).map(Text::Bytes);
            }
            Head::Special(special) => special,
        };
        let number_bytes = match special {
            0 => 1,
            1 => 2,
            2 => 4,
            3 => return self.compressed().map(Text::Expanded),
            _ => return Err(Malformed::Length),
        };
        let number = self.bytes.signed(number_bytes)?;
        Ok(Text::Number(IntegerText::new(number)))
    }

    /// Takes the head of the next text. Returns how many bytes of it follow.
    ///
    /// # Errors
    /// As [`Reader::text`], as far as the head shows.
    pub(crate) fn text_head(&mut self) -> Result<usize, Malformed> {
        match self.head()? {
            Head::Length(length) => self.text_len(length),
            Head::Special(special @ 0..=2) => Ok(1 << special),
            Head::Special(3) => {
                let packed_len = self.length()?;
                let length = self.length()?;
                self.text_len(length)?;
                self.text_len(packed_len)
            }
            Head::Special(_) => Err(Malformed::Length),
        }
    }

    /// Takes the next eight bytes as a time in milliseconds since 1970.
    ///
    /// # Errors
    /// [`Malformed::Ended`].
    pub fn time_unix_ms(&mut self) -> Result<i64, Malformed> {
        self.bytes.array().map(i64::from_le_bytes)
    }

    /// Takes the next eight bytes as a big-endian integer.
    pub(crate) fn big_endian(&mut self) -> Result<u64, Malformed> {
        self.bytes.array().map(u64::from_be_bytes)
    }

    /// Takes the next eight bytes as a double.
    ///
    /// # Errors
    /// [`Malformed::Ended`].
    pub fn double(&mut self) -> Result<f64, Malformed> {
        self.bytes.array().map(f64::from_le_bytes)
    }

    /// Takes a double in the format of older versions: its text, preceded by a length byte.
    ///
    /// # Errors
    /// [`Malformed::Ended`], or [`Malformed::Number`] if the text is not a number.
    pub fn double_text(&mut self) -> Result<f64, Malformed> {
        match self.byte()? {
            253 => Ok(f64::NAN),
            254 => Ok(f64::INFINITY),
            255 => Ok(f64::NEG_INFINITY),
            len => {
                let text = self.bytes.take(len.into())?;
                base::float::parse(text).ok_or(Malformed::Number)
            }
        }
    }

    fn compressed(&mut self) -> Result<Vec<u8>, Malformed> {
        let packed_len = index(self.length()?)?;
        let length = self.length()?;
        let len = self.text_len(length)?;
        let packed = self.bytes.take(packed_len)?;
        lzf::expand(packed, len).ok_or(Malformed::Compressed)
    }

    fn text_len(&self, length: u64) -> Result<usize, Malformed> {
        let len = index(length)?;
        if len > self.limits.string_bytes_max {
            return Err(Malformed::TooLong);
        }
        Ok(len)
    }

    fn head(&mut self) -> Result<Head, Malformed> {
        let first = self.bytes.byte()?;
        let low = first & 0x3f;
        Ok(match first >> 6 {
            0 => Head::Length(low.into()),
            1 => Head::Length(u64::from(low) << 8 | u64::from(self.bytes.byte()?)),
            2 => match low {
                0 => Head::Length(u32::from_be_bytes(self.bytes.array()?).into()),
                1 => Head::Length(u64::from_be_bytes(self.bytes.array()?)),
                _ => return Err(Malformed::Length),
            },
            _ => Head::Special(low),
        })
    }
}

enum Head {
    Length(u64),
    Special(u8),
}

/// A text that was read.
#[derive(Debug)]
pub enum Text<'a> {
    /// A text in the received bytes.
    Bytes(&'a [u8]),
    /// The text of a number.
    Number(IntegerText),
    /// A text that was compressed.
    Expanded(Vec<u8>),
}

impl Text<'_> {
    /// Returns the text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(text) => text.as_bytes(),
            Self::Expanded(bytes) => bytes,
        }
    }

    /// Returns the text in its own buffer.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Expanded(bytes) => bytes,
            other => other.as_bytes().to_vec(),
        }
    }
}
