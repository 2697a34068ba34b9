//! The head that precedes the key of a stored record, in memory for a while or in a file.
//!
//! ```text
//!   type 1 │ flags 1 │ database 2 │ key bytes 4 │ body bytes 4 │ more of them 4? │ deadline 8? │ etag 8?
//! ```
//!
//! A part with a question mark is present if its flag is set, and its flag is set only if the part
//! is not zero: each record has exactly one encoding. The encoding is the same in a snapshot of the
//! store and in a part of a checkpoint, so that records saved as a run of bytes are written as that
//! run. `docs/formats/checkpoint.md` has the fields.

const DEADLINE: u8 = 1;
const ETAG: u8 = 2;
/// The body has 2³² bytes or more.
const LONG: u8 = 4;

/// The type of a string, stored as it is. Also the RDB format's code of strings, which precedes a
/// length there.
pub const TEXT: u8 = 0;

/// The type of a string that spells a number. The body is that number: 8 bytes, signed,
/// little-endian. No type of the RDB format has this code, which ends a file there.
pub const NUMBER: u8 = 255;

/// The type of a value that lies elsewhere: the body is its locator.
pub const COLD: u8 = 254;

/// The type of a value that lies outside of its record's run of bytes: in memory, never in a file.
pub const BESIDE: u8 = 253;

/// Minimum bytes of a head: without any optional part.
pub const RECORD_HEAD_BYTES_MIN: usize = 12;

/// Maximum bytes of a head.
pub const RECORD_HEAD_BYTES_MAX: usize = 32;

/// What is stored of a record besides key and body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHead {
    /// The database that contains it.
    pub database: u16,
    /// Type of the body: [`TEXT`], [`NUMBER`], or a code known to its writer and reader.
    pub type_code: u8,
    /// When it expires, in milliseconds since 1970 UTC.
    pub deadline_unix_ms: Option<u64>,
    /// Its etag; 0 for none.
    pub etag: u64,
}

/// The lengths of key and body behind a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Of the key.
    pub key_bytes: u32,
    /// Of the body.
    pub body_bytes: u64,
}

impl RecordHead {
    /// Returns the length of the head before a body of `body_bytes`.
    #[must_use]
    pub fn encoded_bytes(&self, body_bytes: u64) -> usize {
        let long = if body_bytes >> 32 == 0 { 0 } else { 4 };
        let deadline = if self.deadline_unix_ms.is_some() {
            8
        } else {
            0
        };
        let etag = if self.etag != 0 { 8 } else { 0 };
        RECORD_HEAD_BYTES_MIN + long + deadline + etag
    }

    /// Appends the head to `out`. O(1).
    #[inline]
    pub fn append_to(&self, lengths: Lengths, out: &mut Vec<u8>) {
        let [a, b, c, d] = lengths.key_bytes.to_le_bytes();
        let [e, f, g, h, high @ ..] = lengths.body_bytes.to_le_bytes();
        let is_long = high != [0; 4];
        let flags = u8::from(self.deadline_unix_ms.is_some()) * DEADLINE
            + u8::from(self.etag != 0) * ETAG
            + u8::from(is_long) * LONG;
        let [low, up] = self.database.to_le_bytes();
        let fields = [self.type_code, flags, low, up, a, b, c, d, e, f, g, h];
        out.extend_from_slice(&fields);
        if flags != 0 {
            if is_long {
                out.extend_from_slice(&high);
            }
            if let Some(deadline_unix_ms) = self.deadline_unix_ms {
                out.extend_from_slice(&deadline_unix_ms.to_le_bytes());
            }
            if self.etag != 0 {
                out.extend_from_slice(&self.etag.to_le_bytes());
            }
        }
    }

    /// Takes a head from the front of `bytes`, or returns `None` if it is truncated or
    /// inconsistent. O(1).
    #[inline]
    pub fn take_from(bytes: &mut &[u8]) -> Option<(Self, Lengths)> {
        let (&[type_code, flags, low, up, a, b, c, d, e, f, g, h], mut rest) =
            bytes.split_first_chunk()?;
        let mut head = Self {
            database: u16::from_le_bytes([low, up]),
            type_code,
            deadline_unix_ms: None,
            etag: 0,
        };
        let mut body_bytes = u64::from(u32::from_le_bytes([e, f, g, h]));
        if flags != 0 {
            if flags & !(DEADLINE | ETAG | LONG) != 0 {
                return None;
            }
            if flags & LONG != 0 {
                let high = u32::from_le_bytes(take(&mut rest)?);
                body_bytes |= u64::from(high) << 32;
            }
            if flags & DEADLINE != 0 {
                head.deadline_unix_ms = Some(u64::from_le_bytes(take(&mut rest)?));
            }
            if flags & ETAG != 0 {
                head.etag = u64::from_le_bytes(take(&mut rest)?);
            }
            // Parts that are zero must be left out.
            let is_spelled_so = (flags & LONG != 0) == (body_bytes >> 32 != 0);
            if !is_spelled_so || (flags & ETAG != 0) != (head.etag != 0) {
                return None;
            }
        }
        *bytes = rest;
        let lengths = Lengths {
            key_bytes: u32::from_le_bytes([a, b, c, d]),
            body_bytes,
        };
        Some((head, lengths))
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (array, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*array)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(head: &RecordHead, lengths: Lengths) -> Vec<u8> {
        let mut bytes = Vec::new();
        head.append_to(lengths, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn heads_come_back_and_no_shorter_one_does(
            database: u16,
            type_code: u8,
            deadline_unix_ms: Option<u64>,
            etag in prop_oneof![Just(0), any::<u64>()],
            key_bytes: u32,
            body_bytes in prop_oneof![0..1_u64 << 32, any::<u64>()],
        ) {
            let head = RecordHead { database, type_code, deadline_unix_ms, etag };
            let lengths = Lengths { key_bytes, body_bytes };
            let bytes = encoded(&head, lengths);
            prop_assert_eq!(bytes.len(), head.encoded_bytes(body_bytes));
            prop_assert!((RECORD_HEAD_BYTES_MIN..=RECORD_HEAD_BYTES_MAX).contains(&bytes.len()));
            let behind = [&bytes[..], b"key"].concat();
            let mut rest = &behind[..];
            prop_assert_eq!(RecordHead::take_from(&mut rest), Some((head, lengths)));
            prop_assert_eq!(rest, b"key");
            for length in 0..bytes.len() {
                let mut short = &bytes[..length];
                prop_assert_eq!(RecordHead::take_from(&mut short), None);
                prop_assert_eq!(short.len(), length);
            }
        }

        #[test]
        fn what_is_read_is_what_would_be_written(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut rest = &bytes[..];
            if let Some((head, lengths)) = RecordHead::take_from(&mut rest) {
                let written = encoded(&head, lengths);
                prop_assert_eq!(&bytes[..bytes.len() - rest.len()], &written[..]);
            }
        }
    }

    #[test]
    fn a_second_spelling_is_refused() {
        let lengths = Lengths {
            key_bytes: 3,
            body_bytes: 5,
        };
        let plain = encoded(&RecordHead::default(), lengths);
        for flag in [ETAG, LONG] {
            let mut bytes = plain.clone();
            bytes[1] = flag;
            bytes.extend_from_slice(&[0; 8]);
            assert_eq!(
                RecordHead::take_from(&mut &bytes[..]),
                None,
                "zero, flag {flag}"
            );
        }
        let mut unknown = plain;
        unknown[1] = 8;
        assert_eq!(RecordHead::take_from(&mut &unknown[..]), None);
    }
}
