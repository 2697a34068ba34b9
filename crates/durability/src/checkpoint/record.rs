//! One record: a head, its key and its body.
//!
//! ```text
//!   type 1 │ flags 1 │ database 2 │ key bytes 4 │ body bytes 4 │ more of them 4?
//!   deadline 8? │ etag 8? │ key │ body
//! ```
//!
//! What has a question mark is there when its flag is set, and then only if it is not zero: of each
//! record there is one spelling.

use super::fields::Fields;

const DEADLINE: u8 = 1;
const ETAG: u8 = 2;
/// The body has 2³² bytes or more.
const LONG: u8 = 4;

/// The least bytes of a record: its head, with nothing that may be left out, and neither key nor body.
pub const RECORD_BYTES_MIN: u64 = 12;

/// The most bytes of a record before its key.
pub(super) const RECORD_HEAD_BYTES_MAX: usize = 32;

/// What is kept of a record besides key and body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHead {
    /// The database it is in.
    pub database: u16,
    /// What the body is, as who fills and reads it knows.
    pub type_code: u8,
    /// When it stops existing, in milliseconds since 1970 UTC.
    pub deadline_unix_ms: Option<u64>,
    /// Its etag; 0 for none.
    pub etag: u64,
}

/// A record as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// All but key and body.
    pub head: RecordHead,
    /// Its key.
    pub key: &'a [u8],
    /// Its body.
    pub body: &'a [u8],
}

impl RecordHead {
    /// Writes what comes before the key to the front of `out`; how many bytes that are.
    pub(super) fn encode(
        &self,
        key_bytes: u32,
        body_bytes: u64,
        out: &mut [u8; RECORD_HEAD_BYTES_MAX],
    ) -> usize {
        let [low @ .., _, _, _, _] = body_bytes.to_le_bytes();
        let [_, _, _, _, high @ ..] = body_bytes.to_le_bytes();
        let is_long = high != [0; 4];
        let flags = u8::from(self.deadline_unix_ms.is_some()) * DEADLINE
            + u8::from(self.etag != 0) * ETAG
            + u8::from(is_long) * LONG;
        let mut at = 0;
        let mut put = |field: &[u8]| {
            out[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&[self.type_code, flags]);
        put(&self.database.to_le_bytes());
        put(&key_bytes.to_le_bytes());
        put(&low);
        if is_long {
            put(&high);
        }
        if let Some(deadline_unix_ms) = self.deadline_unix_ms {
            put(&deadline_unix_ms.to_le_bytes());
        }
        if self.etag != 0 {
            put(&self.etag.to_le_bytes());
        }
        at
    }
}

/// The record at the front, of which all bytes must be there; none when it contradicts itself.
pub(super) fn read<'a>(fields: &mut Fields<'a>) -> Option<Record<'a>> {
    let (type_code, flags, database) = (fields.u8()?, fields.u8()?, fields.u16()?);
    let (key_bytes, low) = (fields.u32()?, fields.u32()?);
    let has = |flag| flags & flag != 0;
    let mut body_bytes = u64::from(low);
    if has(LONG) {
        let high = fields.u32().filter(|high| *high != 0)?;
        body_bytes |= u64::from(high) << 32;
    }
    let mut deadline_unix_ms = None;
    if has(DEADLINE) {
        deadline_unix_ms = Some(fields.u64()?);
    }
    let mut etag = 0;
    if has(ETAG) {
        etag = fields.u64().filter(|etag| *etag != 0)?;
    }
    if flags & !(DEADLINE | ETAG | LONG) != 0 {
        return None;
    }
    Some(Record {
        head: RecordHead {
            database,
            type_code,
            deadline_unix_ms,
            etag,
        },
        key: fields.take(key_bytes.into())?,
        body: fields.take(body_bytes)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_record_is_shorter_than_the_least() {
        let mut out = [0; RECORD_HEAD_BYTES_MAX];
        let bytes = RecordHead::default().encode(0, 0, &mut out);
        assert_eq!(bytes as u64, RECORD_BYTES_MIN);
        let length = bytes - 1;
        assert!(read(&mut Fields(&out[..bytes])).is_some());
        assert!(read(&mut Fields(&out[..length])).is_none());
    }
}
