//! Type and encoding of a value, in the words of TYPE and OBJECT ENCODING.

/// Type of a structure (the answer of TYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Elements in an order that clients choose.
    List,
    /// Fields with values.
    Hash,
    /// Members without order.
    Set,
    /// Members ordered by score.
    SortedSet,
    /// Entries in order of time.
    Stream,
}

impl Kind {
    /// Returns the word that TYPE answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Hash => "hash",
            Self::Set => "set",
            Self::SortedSet => "zset",
            Self::Stream => "stream",
        }
    }
}

/// Encoding of a value (the answer of OBJECT ENCODING).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Elements one after another in one allocation.
    Listpack,
    /// Blocks of packed elements.
    Quicklist,
    /// A hash of few fields, some of which have deadlines.
    ListpackEx,
    /// A table by hash.
    Hashtable,
    /// Whole numbers in order.
    Intset,
    /// An index by score and one by member.
    Skiplist,
    /// Blocks of entries in an ordered index.
    Stream,
}

impl Encoding {
    /// Returns the word that OBJECT ENCODING answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Listpack => "listpack",
            Self::Quicklist => "quicklist",
            Self::ListpackEx => "listpackex",
            Self::Hashtable => "hashtable",
            Self::Intset => "intset",
            Self::Skiplist => "skiplist",
            Self::Stream => "stream",
        }
    }
}
