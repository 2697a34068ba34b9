//! A value that is in no record: taken out of one, or copied, to be put under another key.

use structures::Object;

use crate::blob::Blob;

/// A value taken out of, or made for, a record. It moves between keys without being rebuilt.
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
    Object(Box<Object>),
}

impl Owned {
    /// The value's deadline after it is put under a key.
    #[must_use]
    pub fn deadline_unix_ms(&self) -> Option<u64> {
        self.deadline_unix_ms
    }

    /// Returns a structure that was built outside of the store (RESTORE, the STORE forms), to be
    /// [put](crate::Entry::put) under a key.
    #[must_use]
    pub fn of_object(object: Object, deadline_unix_ms: Option<u64>) -> Self {
        Self {
            content: Content::Object(Box::new(object)),
            deadline_unix_ms,
        }
    }

    /// Returns the value with another deadline.
    #[must_use]
    pub fn with_deadline(self, deadline_unix_ms: Option<u64>) -> Self {
        Self {
            deadline_unix_ms,
            ..self
        }
    }

    /// The object, or `None` if the value is a string.
    #[must_use]
    pub fn object(&self) -> Option<&Object> {
        match &self.content {
            Content::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The string's bytes (its effect needs them); empty for an object.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        match &self.content {
            Content::Integer(number) => number.to_string().into_bytes(),
            Content::Bytes { bytes, .. } => bytes.clone(),
            Content::Object(_) => Vec::new(),
            Content::Blob(blob) => {
                let mut bytes = vec![0; blob.len()];
                blob.copy_to(0, &mut bytes);
                bytes
            }
        }
    }
}
