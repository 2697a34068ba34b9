//! What the store keeps for a key that holds no string, and what it asks of it.

use crate::hash::Hash;
use crate::kept::Kept;
use crate::kind::{Encoding, Kind};
use crate::list::List;
use crate::memory::allocated;
use crate::relocation::Relocation;
use crate::set::Set;
use crate::sorted_set::SortedSet;
use crate::stream::Stream;

/// A value that is no string.
///
/// `Clone` copies it whole (COPY); `PartialEq` compares what clients can see, not how it is kept.
/// A variant is at most [`VARIANT_BYTES_MAX`] long: a structure with more keeps it in a box.
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
    // A type that lands adds its variant here, its arms below, its `Structure` and its `Kept`.
}

/// The longest variant of [`Object`] in bytes: every collection that is not kept without its box pays for it.
pub const VARIANT_BYTES_MAX: usize = 40;

/// With fewer nodes an object may be one that shares none.
const SHARED_NODES_MIN: usize = 16;
/// What a clone takes for each node that it shares, at most …
const NODE_LINK_BYTES: usize = 32;
/// … and for what is not shared.
const OWN_BYTES_MAX: usize = 16 * 1024;

/// Freeing fewer allocations than this is done at once: some microseconds.
const LAZY_ALLOCATIONS_MIN: usize = 128;

/// Calls the same method of whichever structure it is.
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
    /// What TYPE answers.
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

    /// What OBJECT ENCODING answers.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        with_structure!(self, structure => structure.encoding())
    }

    /// An empty one of the same kind.
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

    /// Number of elements, fields, members or entries.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        with_structure!(self, structure => structure.len())
    }

    /// Whether there is nothing in it. The store removes a key whose object became empty, unless
    /// its kind [may be empty](Object::is_to_be_removed).
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the key goes with the last element, as it does for all kinds but streams.
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

    /// Bytes it takes, with what the allocator adds. Kept up to date by the structure: O(1).
    #[inline]
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let inner = with_structure!(self, structure => structure.memory_bytes());
        allocated(size_of::<Self>()) + inner
    }

    /// Pieces of memory it is made of, about: a clone takes a share in each, or in several with one step.
    /// O(1).
    #[must_use]
    pub fn allocations(&self) -> usize {
        with_structure!(self, structure => structure.allocations())
    }

    /// Bytes that a clone takes for itself, at most: a large object shares its nodes with it, until one
    /// of both changes them. O(1).
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

    /// Asks the cache for what looking up these members or fields will read, if it is so large that
    /// this is worth while.
    #[inline]
    pub fn prefetch<'m>(&self, members: impl Iterator<Item = &'m [u8]>) {
        match self {
            Self::Hash(hash) => hash.prefetch(members),
            Self::Set(set) => set.prefetch(members),
            Self::SortedSet(set) => set.prefetch(members),
            _ => {}
        }
    }

    /// The earliest deadline of its members, in milliseconds since 1970.
    pub fn first_member_deadline_unix_ms(&mut self) -> Option<u64> {
        match self {
            Self::Hash(hash) => hash.first_deadline_unix_ms(),
            _ => None,
        }
    }

    /// Removes members whose deadline is not after `now_unix_ms`, at most `count` of them, and shows
    /// each before it goes. Returns how many went.
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

    /// Moves pieces that it is made of, as far as a relocation says.
    pub fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        with_structure!(self, structure => structure.move_pieces(relocation));
    }

    /// Whether freeing it takes so long that another thread should do it. O(1).
    #[must_use]
    pub fn is_slow_to_free(&self) -> bool {
        self.allocations() >= LAZY_ALLOCATIONS_MIN
    }
}

/// A type that [`Object`] can hold; what family code is generic over.
pub trait Structure: Kept {
    /// Its kind.
    const KIND: Kind;

    /// An empty one.
    fn empty() -> Self;

    /// Whether nothing is left in it, and its key goes with the last element.
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
