//! An element of a collection: bytes, or a whole number if the bytes are the text of one.
//!
//! Invariant: [`Element::Bytes`] never spells a canonical whole number. So two elements are equal
//! exactly if their texts are equal. [`Element::parse`] ensures this; code that builds the variants
//! itself must ensure it, too.

use base::number::{IntegerText, decimal_len, parse_i64, write_i64};

use crate::packed::CONTENT_BYTES_MAX;

/// Maximum length of an element. Commands refuse longer elements before a structure sees them.
pub const ELEMENT_BYTES_MAX: usize = CONTENT_BYTES_MAX - 16;

/// Maximum length of the text of a 64-bit number.
const NUMBER_BYTES_MAX: usize = 20;

/// One element, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'a> {
    /// The number whose decimal text the element is.
    Integer(i64),
    /// Any other text.
    Bytes(&'a [u8]),
}

impl<'a> Element<'a> {
    /// Parses what a client sent: a number if the text is the canonical text of one.
    #[inline]
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Self {
        if text.len() > NUMBER_BYTES_MAX {
            return Self::Bytes(text);
        }
        match parse_i64(text) {
            Some(number) => Self::Integer(number),
            None => Self::Bytes(text),
        }
    }

    /// Returns the length of its text in bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Integer(number) => decimal_len(*number),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Whether its text is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes its text to `room`, which has [`Element::len`] bytes (usually of a reply).
    #[inline]
    pub fn write_to(&self, room: &mut [u8]) {
        match self {
            Self::Integer(number) => {
                write_i64(room, *number);
            }
            Self::Bytes(bytes) => room.copy_from_slice(bytes),
        }
    }

    /// Returns its text. The caller borrows it from the result.
    #[inline]
    #[must_use]
    pub fn text(&self) -> ElementText<'a> {
        match *self {
            Self::Integer(number) => ElementText::Integer(IntegerText::new(number)),
            Self::Bytes(bytes) => ElementText::Bytes(bytes),
        }
    }

    /// Returns its text in a buffer of its own.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.text().as_bytes().to_vec()
    }
}

/// The text of an element. Contains the text if the element is a number.
#[derive(Debug)]
pub enum ElementText<'a> {
    /// The text of a number.
    Integer(IntegerText),
    /// Any other text, borrowed.
    Bytes(&'a [u8]),
}

impl ElementText<'_> {
    /// Returns the text.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Integer(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_numbers_are_numbers() {
        for number in ["0", "-1", "9223372036854775807", "-9223372036854775808"] {
            let element = Element::parse(number.as_bytes());
            assert!(matches!(element, Element::Integer(_)), "{number}");
            assert_eq!(element.to_vec(), number.as_bytes());
            assert_eq!(element.len(), number.len());
        }
        for text in [
            "",
            "-0",
            "01",
            "+1",
            " 1",
            "1 ",
            "9223372036854775808",
            "1e3",
        ] {
            assert_eq!(
                Element::parse(text.as_bytes()),
                Element::Bytes(text.as_bytes())
            );
        }
    }
}
