//! What code that is generic over the type of a value needs from the types: access to a value in an
//! [`Object`], and conversion of it into a [`Compact`] and back.

use crate::compact::{Compact, CompactKind};
use crate::hash::Hash;
use crate::list::List;
use crate::object::Object;
use crate::set::Set;
use crate::sorted_set::SortedSet;
use crate::stream::Stream;

/// The value of a key that holds no string: any [`Object`] or, if the caller knows its type, one of
/// the structures. Only types of this library implement it.
pub trait Kept: sealed::Sealed + Sized {
    /// Returns the value of this type in `object`, or `None` if `object` has another type.
    fn of(object: &Object) -> Option<&Self>;

    /// Returns the value of this type in `object` for a change, or `None` if `object` has another
    /// type.
    fn of_mut(object: &mut Object) -> Option<&mut Self>;

    /// Converts it to a value that the store can keep.
    fn into_object(self) -> Object;

    /// Whether it can be made from parts of this kind.
    fn can_be(kind: CompactKind) -> bool;

    /// Takes its parts out and leaves it empty, without memory. Returns `None` and changes nothing
    /// unless the value is one buffer of less than 64 KiB.
    fn take_compact(&mut self) -> Option<Compact>;

    /// Puts together what [`Kept::take_compact`] took apart, of a kind that it [can
    /// be](Kept::can_be). The value then owns the buffer. Other parts make a collection that is out
    /// of order or whose use panics. This function neither frees the buffer nor panics, because a
    /// caller that only reads a collection puts it together, too, and the buffer still belongs to
    /// another owner.
    fn from_compact(compact: Compact) -> Self;
}

/// The store makes two values of one buffer for a while, and relies on neither being freed
/// meanwhile. So [`Kept`] has no other implementations.
mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for Object {}

impl Kept for Object {
    #[inline]
    fn of(object: &Object) -> Option<&Self> {
        Some(object)
    }

    #[inline]
    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        Some(object)
    }

    #[inline]
    fn into_object(self) -> Object {
        self
    }

    #[inline]
    fn can_be(_: CompactKind) -> bool {
        true
    }

    #[inline]
    fn take_compact(&mut self) -> Option<Compact> {
        match self {
            Self::List(list) => list.take_compact(),
            Self::Hash(hash) => hash.take_compact(),
            Self::Set(set) => set.take_compact(),
            Self::SortedSet(set) => set.take_compact(),
            Self::Stream(_) => None,
        }
    }

    #[inline]
    fn from_compact(compact: Compact) -> Self {
        match compact.kind {
            CompactKind::List => Self::List(List::from_compact(compact)),
            CompactKind::Hash => Self::Hash(Hash::from_compact(compact)),
            CompactKind::Set | CompactKind::Numbers => Self::Set(Set::from_compact(compact)),
            CompactKind::SortedSet => Self::SortedSet(SortedSet::from_compact(compact)),
        }
    }
}

/// Implements [`Kept`] for the structure in a variant of [`Object`]. Its parts have one of `kinds`.
macro_rules! kept {
    ($structure:ident, $kinds:expr) => {
        impl sealed::Sealed for $structure {}

        impl Kept for $structure {
            #[inline]
            fn of(object: &Object) -> Option<&Self> {
                match object {
                    Object::$structure(structure) => Some(structure),
                    _ => None,
                }
            }

            #[inline]
            fn of_mut(object: &mut Object) -> Option<&mut Self> {
                match object {
                    Object::$structure(structure) => Some(structure),
                    _ => None,
                }
            }

            #[inline]
            fn into_object(self) -> Object {
                Object::$structure(self)
            }

            #[inline]
            fn can_be(kind: CompactKind) -> bool {
                const KINDS: &[CompactKind] = $kinds;
                KINDS.contains(&kind)
            }

            #[inline]
            fn take_compact(&mut self) -> Option<Compact> {
                let (kind, buffer) = self.take_buffer()?;
                Some(Compact { kind, buffer })
            }

            #[inline]
            fn from_compact(compact: Compact) -> Self {
                Self::from_buffer(compact.kind, compact.buffer)
            }
        }
    };
}

kept!(List, &[CompactKind::List]);
kept!(Hash, &[CompactKind::Hash]);
kept!(Set, &[CompactKind::Set, CompactKind::Numbers]);
kept!(SortedSet, &[CompactKind::SortedSet]);
kept!(Stream, &[]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Element;
    use crate::hash::{FieldDeadline, HashLimits};
    use crate::list::{BlockLimit, End};
    use crate::set::SetLimits;
    use crate::sorted_set::SortedSetLimits;

    const HASH: HashLimits = HashLimits {
        listpack_entries: 128,
        listpack_value_bytes: 64,
    };
    const SET: SetLimits = SetLimits {
        intset_entries: 512,
        listpack_entries: 128,
        listpack_value_bytes: 64,
    };
    const SORTED_SET: SortedSetLimits = SortedSetLimits {
        listpack_entries: 128,
        listpack_value_bytes: 64,
    };

    fn hash(fields: usize) -> Hash {
        let mut hash = Hash::new();
        for number in 0..fields {
            let name = format!("field:{number}");
            let set = hash.set(name.as_bytes(), b"value", FieldDeadline::Never, 0, &HASH);
            set.unwrap();
        }
        hash
    }

    fn list(elements: i64) -> List {
        let mut list = List::new();
        for number in 0..elements {
            let end = [End::Front, End::Back][usize::from(number % 2 == 0)];
            list.push(end, Element::Integer(number), BlockLimit::default());
        }
        list
    }

    fn set(members: &[&str]) -> Set {
        let mut set = Set::new();
        for member in members {
            set.insert(member.as_bytes(), &SET).unwrap();
        }
        set
    }

    fn sorted_set() -> SortedSet {
        let mut set = SortedSet::new();
        for (score, member) in [(1.5, "one"), (-2.0, "two")] {
            set.insert(member.as_bytes(), score, &SORTED_SET).unwrap();
        }
        set
    }

    #[test]
    fn what_is_one_buffer_comes_back_as_it_was() {
        let objects = [
            (list(0).into_object(), CompactKind::List),
            (list(40).into_object(), CompactKind::List),
            (hash(1).into_object(), CompactKind::Hash),
            (hash(100).into_object(), CompactKind::Hash),
            (set(&["a", "7"]).into_object(), CompactKind::Set),
            (set(&[]).into_object(), CompactKind::Numbers),
            (set(&["7", "70000"]).into_object(), CompactKind::Numbers),
            (
                set(&["7", "-70000000000"]).into_object(),
                CompactKind::Numbers,
            ),
            (sorted_set().into_object(), CompactKind::SortedSet),
        ];
        for (mut object, kind) in objects {
            let (twin, bytes) = (object.clone(), object.memory_bytes());
            let encoding = object.encoding();
            let compact = object.take_compact().unwrap();
            assert_eq!(compact.kind, kind);
            assert_eq!(CompactKind::from_number(kind.number()), Some(kind));
            assert!(object.is_empty());
            let again = Object::from_compact(compact);
            assert_eq!(again, twin);
            assert_eq!((again.encoding(), again.memory_bytes()), (encoding, bytes));
        }
        assert_eq!(CompactKind::from_number(5), None);
    }

    #[test]
    fn what_is_more_stays_as_it_is() {
        let mut expiring = hash(2);
        expiring.set_deadline(b"field:0", Some(1_000)).unwrap();
        let mut long = List::new();
        let text = "x".repeat(70_000);
        long.push(
            End::Back,
            Element::parse(text.as_bytes()),
            BlockLimit::default(),
        );
        let objects = [
            expiring.into_object(),
            hash(200).into_object(),
            list(100_000).into_object(),
            long.into_object(),
            Stream::new().into_object(),
        ];
        for mut object in objects {
            let twin = object.clone();
            assert!(object.take_compact().is_none());
            assert_eq!(object, twin);
        }
    }
}
