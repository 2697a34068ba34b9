//! Values of keys that hold no string, and what the store needs from them.

use crate::hash::Hash;
use crate::kept::Kept;
use crate::kind::{Encoding, Kind};
use crate::list::List;
use crate::memory::allocated;
use crate::relocation::Relocation;
use crate::set::Set;
use crate::sorted_set::SortedSet;
use crate::stream::Stream;

/// A value that is not a string.
///
/// `Clone` copies the whole value (COPY). `PartialEq` compares what clients can see, not the
/// representation. A variant has at most [`VARIANT_BYTES_MAX`] bytes: a larger structure is kept in
/// a box.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A list.
    List(List),
    /// A hash.
    Hash(Hash),
    /// A set.
    Set(Set),
    /// A sorted set.
    SortedSet(SortedSet),
    /// A stream.
    Stream(Stream),
    // A new type adds its variant here, its arms below, its `Structure` and its `Kept`.
}

/// Maximum bytes of a variant of [`Object`]. Every collection that is kept without a box of its own
/// pays for it.
pub const VARIANT_BYTES_MAX: usize = 40;

/// Below this number of nodes an object may be one that shares none.
const SHARED_NODES_MIN: usize = 16;
/// Maximum bytes that a clone takes for each node that it shares …
const NODE_LINK_BYTES: usize = 32;
/// … and for everything that it does not share.
const OWN_BYTES_MAX: usize = 16 * 1024;

/// An object with fewer allocations than this is freed at once, in a few microseconds.
const LAZY_ALLOCATIONS_MIN: usize = 128;

/// Calls the same method of the structure, whichever it is.
macro_rules! with_structure {
    ($object:expr, $name:ident => $body:expr) => {
        match $object {
            Object::List($name) => $body,
            Object::Hash($name) => $body,
            Object::Set($name) => $body,
            Object::SortedSet($name) => $body,
            Object::Stream($name) => $body,
        }
    };
}

impl Object {
    /// Returns the answer of TYPE.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::List(_) => List::KIND,
            Self::Hash(_) => Hash::KIND,
            Self::Set(_) => Set::KIND,
            Self::SortedSet(_) => SortedSet::KIND,
            Self::Stream(_) => Stream::KIND,
        }
    }

    /// Returns the answer of OBJECT ENCODING.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        with_structure!(self, structure => structure.encoding())
    }

    /// Returns an empty object of the same kind.
    #[must_use]
    pub fn to_empty(&self) -> Self {
        match self {
            Self::List(_) => List::empty().into_object(),
            Self::Hash(_) => Hash::empty().into_object(),
            Self::Set(_) => Set::empty().into_object(),
            Self::SortedSet(_) => SortedSet::empty().into_object(),
            Self::Stream(_) => Stream::empty().into_object(),
        }
    }

    /// Returns the number of elements, fields, members or entries.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        with_structure!(self, structure => structure.len())
    }

    /// Whether it is empty. The store removes a key whose object became empty, unless its kind [may
    /// be empty](Object::is_to_be_removed).
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the key must be removed because the object is empty. A stream's key never must.
    #[inline]
    #[must_use]
    pub fn is_to_be_removed(&self) -> bool {
        match self {
            Self::List(list) => list.is_empty(),
            Self::Hash(hash) => hash.is_empty(),
            Self::Set(set) => set.is_empty(),
            Self::SortedSet(set) => set.is_empty(),
            Self::Stream(_) => false,
        }
    }

    /// Returns the bytes it takes, as the allocator rounds them. The structure keeps the number up
    /// to date: O(1).
    #[inline]
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let inner = with_structure!(self, structure => structure.memory_bytes());
        allocated(size_of::<Self>()) + inner
    }

    /// Returns the approximate number of pieces of memory it consists of. A clone takes a share of
    /// each, or of several in one step. O(1).
    #[must_use]
    pub fn allocations(&self) -> usize {
        with_structure!(self, structure => structure.allocations())
    }

    /// Returns the maximum bytes that a clone takes for itself. A large object shares its nodes
    /// with the clone until either of them changes. O(1).
    #[must_use]
    pub fn copy_bytes(&self) -> usize {
        let nodes = self.allocations();
        if nodes < SHARED_NODES_MIN {
            return self.memory_bytes();
        }
        let own = allocated(size_of::<Self>()) + OWN_BYTES_MAX;
        (own + nodes * NODE_LINK_BYTES).min(self.memory_bytes())
    }

    /// Whether some of its members have deadlines of their own. O(1).
    #[inline]
    #[must_use]
    pub fn has_member_deadlines(&self) -> bool {
        match self {
            Self::Hash(hash) => hash.has_deadlines(),
            _ => false,
        }
    }

    /// Prefetches what a lookup of these members or fields will read, if the object is large enough
    /// for this to pay.
    #[inline]
    pub fn prefetch<'m>(&self, members: impl Iterator<Item = &'m [u8]>) {
        match self {
            Self::Hash(hash) => hash.prefetch(members),
            Self::Set(set) => set.prefetch(members),
            Self::SortedSet(set) => set.prefetch(members),
            _ => {}
        }
    }

    /// Returns the earliest deadline of its members, in milliseconds since 1970.
    pub fn first_member_deadline_unix_ms(&mut self) -> Option<u64> {
        match self {
            Self::Hash(hash) => hash.first_deadline_unix_ms(),
            _ => None,
        }
    }

    /// Removes at most `count` members whose deadline is not after `now_unix_ms`, and calls `visit`
    /// with each before its removal. Returns the number of removed members.
    pub fn expire_members(
        &mut self,
        now_unix_ms: u64,
        count: usize,
        mut visit: impl FnMut(&[u8]),
    ) -> usize {
        match self {
            Self::Hash(hash) => {
                hash.expire(now_unix_ms, count, |field| visit(field.name.as_bytes()))
            }
            _ => 0,
        }
    }

    /// Moves the pieces it consists of, as far as the relocation allows.
    pub fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        with_structure!(self, structure => structure.move_pieces(relocation));
    }

    /// Whether freeing it takes so long that another thread should free it. O(1).
    #[must_use]
    pub fn is_slow_to_free(&self) -> bool {
        self.allocations() >= LAZY_ALLOCATIONS_MIN
    }
}

/// A type that [`Object`] can hold. Code of command families is generic over it.
pub trait Structure: Kept {
    /// Its kind.
    const KIND: Kind;

    /// Returns an empty value.
    fn empty() -> Self;

    /// Whether it is empty, and its key is removed with the last element.
    fn is_to_be_removed(&self) -> bool;
}

/// Implements [`Structure`] for the type in one variant of [`Object`].
macro_rules! structure {
    ($type:ty, $variant:ident) => {
        impl Structure for $type {
            const KIND: Kind = Kind::$variant;

            fn empty() -> Self {
                Self::new()
            }

            #[inline]
            fn is_to_be_removed(&self) -> bool {
                !matches!(Self::KIND, Kind::Stream) && self.is_empty()
            }
        }
    };
}

structure!(List, List);
structure!(Hash, Hash);
structure!(Set, Set);
structure!(SortedSet, SortedSet);
structure!(Stream, Stream);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_is_short() {
        assert!(size_of::<Object>() <= VARIANT_BYTES_MAX + 8);
        assert!(size_of::<List>() <= VARIANT_BYTES_MAX);
        assert!(size_of::<Hash>() <= VARIANT_BYTES_MAX);
        assert!(size_of::<Set>() <= VARIANT_BYTES_MAX);
        assert!(size_of::<SortedSet>() <= VARIANT_BYTES_MAX);
        assert!(size_of::<Stream>() <= VARIANT_BYTES_MAX);
    }
}
