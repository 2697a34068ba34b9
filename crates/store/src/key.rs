//! A key as command code names it: bytes, hash and database together.

/// Number of a logical database (`SELECT`).
pub type DatabaseId = u16;

/// A key to look up: its bytes, their hash under the store's secret and its database.
///
/// [`crate::Handle::key`] makes one, or [`Key::with_hash`] if the plan of a batch has already
/// hashed the bytes. Copying one is cheap; it borrows the bytes of the request.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    bytes: &'a [u8],
    hash: u64,
    database: DatabaseId,
}

impl<'a> Key<'a> {
    /// Returns a key whose hash is known; `hash` must come from the same store's
    /// [`crate::Handle::hash`].
    #[inline]
    #[must_use]
    pub const fn with_hash(bytes: &'a [u8], hash: u64, database: DatabaseId) -> Self {
        Self {
            bytes,
            hash,
            database,
        }
    }

    /// Returns the same name in another database (MOVE, COPY … DB).
    #[inline]
    #[must_use]
    pub const fn in_database(self, database: DatabaseId) -> Self {
        Self { database, ..self }
    }

    /// The name as the client sent it.
    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Hash of the name; the same in every database.
    #[inline]
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// The database the name is looked up in.
    #[inline]
    #[must_use]
    pub const fn database(&self) -> DatabaseId {
        self.database
    }

    /// Place of the key in the one global lock order: by database, then by the reversed hash. A
    /// bucket of any depth is an interval of reversed hashes (architecture, section 3.4).
    #[inline]
    #[must_use]
    pub const fn position(&self) -> (DatabaseId, u64) {
        (self.database, self.hash.reverse_bits())
    }
}
