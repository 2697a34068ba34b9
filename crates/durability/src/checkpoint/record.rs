//! One record: a head, its key and its body.
//!
//! ```text
//!   head, see `base::record_head` │ key │ body
//! ```

use base::record_head::{RECORD_HEAD_BYTES_MIN, RecordHead};

use super::fields::Fields;

/// Minimum length of a record: its shortest head, with an empty key and body.
pub const RECORD_BYTES_MIN: u64 = RECORD_HEAD_BYTES_MIN as u64;

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Everything except key and body.
    pub head: RecordHead,
    /// Its key.
    pub key: &'a [u8],
    /// Its body.
    pub body: &'a [u8],
}

/// Reads the record at the front, all bytes of which must be there; `None` if it contradicts
/// itself.
pub(super) fn read<'a>(fields: &mut Fields<'a>) -> Option<Record<'a>> {
    let (head, lengths) = RecordHead::take_from(&mut fields.0)?;
    Some(Record {
        head,
        key: fields.take(lengths.key_bytes.into())?,
        body: fields.take(lengths.body_bytes)?,
    })
}
