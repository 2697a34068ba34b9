//! Cold values: a key whose value lies on a device, and in memory only what tells where.
//!
//! ```text
//!   stub      header (form Cold, length of the string or number of elements) │ deadline, etag, clock │ key │ locator
//!   locator   63 ─ 44 43 ── 40 39 ────────────────────────────────── 0
//!             │ units │ kind │ slot (18 bits) : offset in units (22) │    a unit: 16 bytes
//! ```
//!
//! The store knows no files. Who keeps cold values implements [`ColdValues`]: it is asked for a value
//! where one is needed, and told where one is needed no more. Records are exchanged for stubs by
//! [`crate::demote`], and stubs for records when their value is changed ([`crate::writer`]).
//!
//! What must stay true: a stub names bytes that are written; whoever takes a stub out of the store says so
//! ([`ColdPlace::forget`]), and nobody else does.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::{Arc, OnceLock};

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use structures::{Encoding as ObjectEncoding, Kind as ObjectKind, Object};

use crate::value::{EMBEDDED_BYTES_MAX, Encoding, Kind};

/// What lengths and offsets of a locator count in.
pub const COLD_UNIT_BYTES: usize = 16;

/// Where a cold value is, and of which kind it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Locator(u64);

impl Locator {
    const UNITS_SHIFT: u32 = 44;
    const KIND_SHIFT: u32 = 40;
    const SLOT_SHIFT: u32 = 22;
    /// The most units of one entry.
    pub const UNITS_MAX: u32 = (1 << 20) - 1;
    /// Slots there can be.
    pub const SLOTS: u32 = 1 << 18;
    /// Units of one segment.
    pub const OFFSETS: u32 = 1 << 22;

    /// An entry of so many units; none where a part is out of range.
    #[must_use]
    pub fn new(units: u32, kind: ColdKind, slot: u32, offset_units: u32) -> Option<Self> {
        let fits = units <= Self::UNITS_MAX && slot < Self::SLOTS && offset_units < Self::OFFSETS;
        fits.then(|| {
            Self(
                u64::from(units) << Self::UNITS_SHIFT
                    | u64::from(kind.0) << Self::KIND_SHIFT
                    | u64::from(slot) << Self::SLOT_SHIFT
                    | u64::from(offset_units),
            )
        })
    }

    /// As it stands in a stub.
    #[must_use]
    pub fn to_word(self) -> u64 {
        self.0
    }

    /// What [`Locator::to_word`] gave.
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    fn bits(self, shift: u32, width: u32) -> u32 {
        u32::try_from(self.0 >> shift & ((1 << width) - 1)).unwrap_or(0)
    }

    /// Length of the entry in units.
    #[must_use]
    pub fn units(self) -> u32 {
        self.bits(Self::UNITS_SHIFT, 20)
    }

    /// Kind of the value and how it was kept.
    #[must_use]
    pub fn kind(self) -> ColdKind {
        ColdKind((self.0 >> Self::KIND_SHIFT & 0xf).to_le_bytes()[0])
    }

    /// Slot in the table of segments.
    #[must_use]
    pub fn slot(self) -> u32 {
        self.bits(Self::SLOT_SHIFT, 18)
    }

    /// Where in the segment, in units.
    #[must_use]
    pub fn offset_units(self) -> u32 {
        self.bits(0, 22)
    }
}

/// Kind and encoding of a cold value, so that TYPE and OBJECT ENCODING need no I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdKind(u8);

/// Objects by their number, from 2 on.
const OBJECT_KINDS: [(ObjectKind, ObjectEncoding); 10] = [
    (ObjectKind::List, ObjectEncoding::Listpack),
    (ObjectKind::List, ObjectEncoding::Quicklist),
    (ObjectKind::Hash, ObjectEncoding::Listpack),
    (ObjectKind::Hash, ObjectEncoding::Hashtable),
    (ObjectKind::Set, ObjectEncoding::Intset),
    (ObjectKind::Set, ObjectEncoding::Listpack),
    (ObjectKind::Set, ObjectEncoding::Hashtable),
    (ObjectKind::SortedSet, ObjectEncoding::Listpack),
    (ObjectKind::SortedSet, ObjectEncoding::Skiplist),
    (ObjectKind::Stream, ObjectEncoding::Stream),
];

impl ColdKind {
    /// A string as it was set.
    pub const BYTES: Self = Self(0);
    /// A string that was changed in place.
    pub const CHANGED_BYTES: Self = Self(1);

    /// That of an object; none of one that stays in memory, as a hash whose fields have deadlines does.
    #[must_use]
    pub fn of_object(object: &Object) -> Option<Self> {
        if object.has_member_deadlines() {
            return None;
        }
        let pair = (object.kind(), object.encoding());
        let at = OBJECT_KINDS.iter().position(|known| *known == pair)?;
        Some(Self(u8::try_from(at).ok()? + 2))
    }

    /// Its number, below 16.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// That of a number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        (usize::from(number) < OBJECT_KINDS.len() + 2).then_some(Self(number))
    }

    fn object(self) -> Option<(ObjectKind, ObjectEncoding)> {
        let at = usize::from(self.0).checked_sub(2)?;
        OBJECT_KINDS.get(at).copied()
    }

    /// Whether it is a string.
    #[must_use]
    pub fn is_string(self) -> bool {
        self.0 < 2
    }

    /// What TYPE answers.
    #[must_use]
    pub fn kind(self) -> Kind {
        self.object()
            .map_or(Kind::String, |(kind, _)| Kind::Object(kind))
    }

    /// What OBJECT ENCODING answers of a value of this length.
    pub(crate) fn encoding(self, len: usize) -> Encoding {
        match self.object() {
            Some((_, encoding)) => Encoding::Object(encoding),
            None if self == Self::BYTES && len <= EMBEDDED_BYTES_MAX => Encoding::Embedded,
            None => Encoding::Raw,
        }
    }
}

/// A cold value in memory.
#[derive(Debug)]
pub enum ColdValue {
    /// A string.
    Text(Vec<u8>),
    /// Anything else.
    Object(Object),
}

/// Who keeps cold values.
pub trait ColdValues: Send + Sync + fmt::Debug {
    /// The value of a key; none when it cannot be read. May wait for a device: called with the key held.
    fn load(&self, key: &[u8], locator: Locator) -> Option<Arc<ColdValue>>;

    /// The same for who keeps nobody waiting: it may take as long as it takes.
    fn load_in_background(&self, key: &[u8], locator: Locator) -> Option<Arc<ColdValue>> {
        self.load(key, locator)
    }

    /// An object as bytes; none of one that is to stay in memory.
    fn encode(&self, object: &Object) -> Option<Vec<u8>>;

    /// No stub names this any more.
    fn forget(&self, locator: Locator);

    /// Somebody will load this, which no stub may name any more by then: until [`ColdValues::unpin`] it stays where it is.
    /// Called while a stub names it.
    fn pin(&self, locator: Locator);

    /// Ends what [`ColdValues::pin`] began.
    fn unpin(&self, locator: Locator);
}

/// Who keeps cold values of a store, if anybody does, and how many stubs there are.
#[derive(Debug, Default)]
pub(crate) struct ColdPlace {
    values: OnceLock<Arc<dyn ColdValues>>,
    stubs: AtomicU64,
    /// Whether there is room for more: then nothing is evicted, nor refused, for want of memory.
    has_room: AtomicBool,
}

thread_local! {
    /// Whether this thread needed a value since it was last asked that could not be read.
    static UNREADABLE: Cell<bool> = const { Cell::new(false) };
    /// Values that this thread needs for the request that it runs.
    static HELD: RefCell<Vec<HeldValue>> = const { RefCell::new(Vec::new()) };
}

impl ColdPlace {
    /// Says who keeps cold values, once.
    pub(crate) fn set(&self, values: Arc<dyn ColdValues>) -> bool {
        self.values.set(values).is_ok()
    }

    pub(crate) fn values(&self) -> Option<&Arc<dyn ColdValues>> {
        self.values.get()
    }

    /// How many stubs there are.
    #[inline]
    pub(crate) fn stubs(&self) -> u64 {
        self.stubs.load(Ordering::Relaxed)
    }

    /// Whether there is room for more values.
    pub(crate) fn has_room(&self) -> bool {
        self.has_room.load(Ordering::Relaxed)
    }

    /// Says whether there is room for more values.
    pub(crate) fn set_has_room(&self, on: bool) {
        self.has_room.store(on, Ordering::Relaxed);
    }

    /// A stub came into the store.
    pub(crate) fn came(&self) {
        self.stubs.fetch_add(1, Ordering::Relaxed);
    }

    /// A stub has gone.
    pub(crate) fn forget(&self, word: u64) {
        self.stubs.fetch_sub(1, Ordering::Relaxed);
        if let Some(values) = self.values() {
            values.forget(Locator::from_word(word));
        }
    }

    /// Loads the value of a key whose bucket is held, and keeps it for this thread; whether it can be read.
    pub(crate) fn hold(&self, key: &[u8], word: u64) -> bool {
        let locator = Locator::from_word(word);
        let Some(values) = self.values() else {
            return false;
        };
        if held(values, locator).is_some() {
            return true;
        }
        values.pin(locator);
        let Some(value) = self.load(key, word) else {
            values.unpin(locator);
            return false;
        };
        let values = Arc::clone(values);
        HELD.with_borrow_mut(|all| {
            all.push(HeldValue {
                locator,
                value,
                values,
            });
        });
        true
    }

    /// The value of a key.
    pub(crate) fn load(&self, key: &[u8], word: u64) -> Option<Arc<ColdValue>> {
        let values = self.values();
        let value = values.and_then(|values| {
            let locator = Locator::from_word(word);
            held(values, locator).or_else(|| values.load(key, locator))
        });
        if value.is_none() {
            UNREADABLE.set(true);
        }
        value
    }
}

/// A value that a thread keeps in memory while it runs a request.
struct HeldValue {
    locator: Locator,
    value: Arc<ColdValue>,
    /// Whose it is, and who pins its segment: so its locator is no other entry's.
    values: Arc<dyn ColdValues>,
}

fn held(values: &Arc<dyn ColdValues>, locator: Locator) -> Option<Arc<ColdValue>> {
    HELD.with_borrow(|all| {
        let is = |one: &&HeldValue| one.locator == locator && Arc::ptr_eq(&one.values, values);
        all.iter().find(is).map(|one| Arc::clone(&one.value))
    })
}

/// How many values this thread holds ([`crate::Record::hold_value`]).
#[must_use]
pub fn held_values() -> usize {
    HELD.with_borrow(Vec::len)
}

/// Lets go all values that this thread holds but the first so many.
pub fn release_held_values(but: usize) {
    if held_values() > but {
        let released = HELD.with_borrow_mut(|all| all.split_off(but));
        for one in released {
            one.values.unpin(one.locator);
        }
    }
}

/// Whether a value that this thread needed could not be read, since this was last asked.
pub fn take_unreadable() -> bool {
    UNREADABLE.replace(false)
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn a_locator_keeps_its_parts_apart() {
        let kind = ColdKind::from_number(11).unwrap();
        let (slot, offset) = (Locator::SLOTS - 1, Locator::OFFSETS - 1);
        let locator = Locator::new(Locator::UNITS_MAX, kind, slot, offset).unwrap();
        assert_eq!(locator.to_word(), !(0xf << 40) | 11 << 40);
        assert_eq!((locator.slot(), locator.offset_units()), (slot, offset));
        assert_eq!(
            (locator.units(), locator.kind()),
            (Locator::UNITS_MAX, kind)
        );
        let small = Locator::new(3, ColdKind::CHANGED_BYTES, 1, 2).unwrap();
        assert_eq!(
            (small.units(), small.slot(), small.offset_units()),
            (3, 1, 2)
        );
        for (units, slot, offset) in [
            (1 << 20, 0, 0),
            (0, Locator::SLOTS, 0),
            (0, 0, Locator::OFFSETS),
        ] {
            assert_eq!(Locator::new(units, ColdKind::BYTES, slot, offset), None);
        }
    }

    #[test]
    fn kinds_tell_type_and_encoding() {
        assert_eq!(ColdKind::BYTES.encoding(44), Encoding::Embedded);
        assert_eq!(ColdKind::BYTES.encoding(45), Encoding::Raw);
        assert_eq!(ColdKind::CHANGED_BYTES.encoding(3), Encoding::Raw);
        assert_eq!(ColdKind::from_number(12), None);
        let set = Object::Set(structures::Set::default());
        let kind = ColdKind::of_object(&set).unwrap();
        assert_eq!(kind.kind(), Kind::Object(ObjectKind::Set));
        assert_eq!(kind.encoding(0), Encoding::Object(set.encoding()));
    }
}
