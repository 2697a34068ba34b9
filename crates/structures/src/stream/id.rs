//! Ids of entries: a time in milliseconds, and a number among the entries of one millisecond.

use std::fmt;

/// The id of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Milliseconds since 1970, or any number that a client chose.
    pub ms: u64,
    /// Number among the entries of one millisecond.
    pub seq: u64,
}

impl EntryId {
    /// The lowest id, which no entry has.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The highest id.
    pub const MAX: Self = Self {
        ms: u64::MAX,
        seq: u64::MAX,
    };

    /// Creates an id from its parts.
    #[must_use]
    pub const fn new(ms: u64, seq: u64) -> Self {
        Self { ms, seq }
    }

    /// Returns the next id, or `None` after the highest.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { ms: self.ms, seq }),
            None => self.ms.checked_add(1).map(|ms| Self { ms, seq: 0 }),
        }
    }

    /// Returns the previous id, or `None` before the lowest.
    #[must_use]
    pub fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { ms: self.ms, seq }),
            None => self.ms.checked_sub(1).map(|ms| Self { ms, seq: u64::MAX }),
        }
    }
}

/// Formats it as clients write it: `ms-seq`.
impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::EntryId;

    #[test]
    fn neighbours_carry_over() {
        let full = EntryId::new(5, u64::MAX);
        assert_eq!(full.next(), Some(EntryId::new(6, 0)));
        assert_eq!(EntryId::new(6, 0).previous(), Some(full));
        assert_eq!(EntryId::new(6, 0).next(), Some(EntryId::new(6, 1)));
        assert_eq!(EntryId::MAX.next(), None);
        assert_eq!(EntryId::MIN.previous(), None);
        assert_eq!(full.to_string(), "5-18446744073709551615");
    }
}
