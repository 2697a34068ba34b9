//! A value that is in no record: taken out of one, or copied, to be put under another key.

use crate::blob::Blob;

/// A value taken out of, or made for, a record: moves between keys without being rebuilt.
#[derive(Clone, Debug)]
pub struct Owned {
    pub(crate) content: Content,
    pub(crate) deadline_unix_ms: Option<u64>,
}

/// The value itself.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Integer(i64),
    Bytes { bytes: Vec<u8>, is_changed: bool },
    Blob(Blob),
}

impl Owned {
    /// When the value stops existing where it is put.
    #[must_use]
    pub fn deadline_unix_ms(&self) -> Option<u64> {
        self.deadline_unix_ms
    }

    /// The value's bytes (its effect needs them).
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        match &self.content {
            Content::Integer(number) => number.to_string().into_bytes(),
            Content::Bytes { bytes, .. } => bytes.clone(),
            Content::Blob(blob) => {
                let mut bytes = vec![0; blob.len()];
                blob.copy_to(0, &mut bytes);
                bytes
            }
        }
    }
}
