//! One record: a head, its key and its body.
//!
//! ```text
//!   head, see `base::record_head` │ key │ body
//! ```

use base::record_head::{RECORD_HEAD_BYTES_MIN, RecordHead};

use super::fields::Fields;

/// The least bytes of a record: its head, with nothing that may be left out, and neither key nor body.
pub const RECORD_BYTES_MIN: u64 = RECORD_HEAD_BYTES_MIN as u64;

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

/// The record at the front, of which all bytes must be there; none when it contradicts itself.
pub(super) fn read<'a>(fields: &mut Fields<'a>) -> Option<Record<'a>> {
    let (head, lengths) = RecordHead::take_from(&mut fields.0)?;
    Some(Record {
        head,
        key: fields.take(lengths.key_bytes.into())?,
        body: fields.take(lengths.body_bytes)?,
    })
}
