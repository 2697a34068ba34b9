//! Cold values: the value of a key lies on a device, and memory has only its locator.
//!
//! ```text
//!   stub      header (form Cold, length of the string or number of elements) │ deadline, etag, clock │ key │ locator
//!   locator   63 ─ 44 43 ── 40 39 ────────────────────────────────── 0
//!             │ units │ kind │ slot (18 bits) : offset in units (22) │    a unit: 16 bytes
//! ```
//!
//! The store knows no files. The cold store implements [`ColdValues`]: it loads values on request,
//! and is notified when a value is no longer needed. [`crate::demote`] replaces records with stubs,
//! and [`crate::writer`] replaces stubs with records when their value is changed.
//!
//! What must stay true: a stub names bytes that are written. Code that takes a stub out of the
//! store reports it ([`ColdPlace::forget`]), and no other code does.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::{Arc, OnceLock};

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use structures::{Encoding as ObjectEncoding, Kind as ObjectKind, Object};

use crate::value::{EMBEDDED_BYTES_MAX, Encoding, Kind};

/// Bytes of the unit of lengths and offsets in a locator.
pub const COLD_UNIT_BYTES: usize = 16;

/// The place of a cold value, and its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Locator(u64);

impl Locator {
    const UNITS_SHIFT: u32 = 44;
    const KIND_SHIFT: u32 = 40;
    const SLOT_SHIFT: u32 = 22;
    /// Maximum number of units of one entry.
    pub const UNITS_MAX: u32 = (1 << 20) - 1;
    /// Maximum number of slots.
    pub const SLOTS: u32 = 1 << 18;
    /// Maximum number of units of one segment.
    pub const OFFSETS: u32 = 1 << 22;

    /// Returns the locator of an entry of `units` units, or `None` if a part is out of range.
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

    /// The word in a stub.
    #[must_use]
    pub fn to_word(self) -> u64 {
        self.0
    }

    /// Returns the locator of a word from [`Locator::to_word`].
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

    /// Kind of the value and its encoding.
    #[must_use]
    pub fn kind(self) -> ColdKind {
        ColdKind((self.0 >> Self::KIND_SHIFT & 0xf).to_le_bytes()[0])
    }

    /// Slot in the table of segments.
    #[must_use]
    pub fn slot(self) -> u32 {
        self.bits(Self::SLOT_SHIFT, 18)
    }

    /// Offset in the segment, in units.
    #[must_use]
    pub fn offset_units(self) -> u32 {
        self.bits(0, 22)
    }
}

/// Kind and encoding of a cold value, so that TYPE and OBJECT ENCODING need no I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdKind(u8);

/// Kinds of objects; their numbers start at 2.
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

    /// Returns the kind of an object, or `None` if it must stay in memory, such as a hash whose
    /// fields have deadlines.
    #[must_use]
    pub fn of_object(object: &Object) -> Option<Self> {
        if object.has_member_deadlines() {
            return None;
        }
        let pair = (object.kind(), object.encoding());
        let at = OBJECT_KINDS.iter().position(|known| *known == pair)?;
        Some(Self(u8::try_from(at).ok()? + 2))
    }

    /// The kind's number, below 16.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// Returns the kind of a number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        (usize::from(number) < OBJECT_KINDS.len() + 2).then_some(Self(number))
    }

    fn object(self) -> Option<(ObjectKind, ObjectEncoding)> {
        let at = usize::from(self.0).checked_sub(2)?;
        OBJECT_KINDS.get(at).copied()
    }

    /// Whether the value is a string.
    #[must_use]
    pub fn is_string(self) -> bool {
        self.0 < 2
    }

    /// The kind that TYPE replies.
    #[must_use]
    pub fn kind(self) -> Kind {
        self.object()
            .map_or(Kind::String, |(kind, _)| Kind::Object(kind))
    }

    /// The encoding that OBJECT ENCODING replies for a value of this length.
    pub(crate) fn encoding(self, len: usize) -> Encoding {
        match self.object() {
            Some((_, encoding)) => Encoding::Object(encoding),
            None if self == Self::BYTES && len <= EMBEDDED_BYTES_MAX => Encoding::Embedded,
            None => Encoding::Raw,
        }
    }
}

/// A cold value, loaded into memory.
#[derive(Debug)]
pub enum ColdValue {
    /// A string.
    Text(Vec<u8>),
    /// Any other value.
    Object(Object),
}

/// The store of cold values.
pub trait ColdValues: Send + Sync + fmt::Debug {
    /// Loads the value of a key, or returns `None` if it cannot be read. May wait for a device:
    /// called with the key held.
    fn load(&self, key: &[u8], locator: Locator) -> Option<Arc<ColdValue>>;

    /// As [`ColdValues::load`], for a caller that keeps no client waiting: it may take any time.
    fn load_in_background(&self, key: &[u8], locator: Locator) -> Option<Arc<ColdValue>> {
        self.load(key, locator)
    }

    /// Returns an object as bytes, or `None` if it must stay in memory.
    fn encode(&self, object: &Object) -> Option<Vec<u8>>;

    /// Notes that no stub has this locator any more.
    fn forget(&self, locator: Locator);

    /// Keeps this entry in its place until [`ColdValues::unpin`]: it will be loaded later, when
    /// possibly no stub names it any more. Called while a stub names it.
    fn pin(&self, locator: Locator);

    /// Ends the pin of [`ColdValues::pin`].
    fn unpin(&self, locator: Locator);
}

/// The cold values of a store, if it has any, and the number of stubs.
#[derive(Debug, Default)]
pub(crate) struct ColdPlace {
    values: OnceLock<Arc<dyn ColdValues>>,
    stubs: AtomicU64,
    /// Whether there is space for more cold values: then nothing is evicted or refused for lack of
    /// memory.
    has_room: AtomicBool,
}

thread_local! {
    /// Whether this thread needed a value that could not be read, since the last query.
    static UNREADABLE: Cell<bool> = const { Cell::new(false) };
    /// Values that this thread needs for the request that it runs.
    static HELD: RefCell<Vec<HeldValue>> = const { RefCell::new(Vec::new()) };
}

impl ColdPlace {
    /// Sets the store of cold values, once.
    pub(crate) fn set(&self, values: Arc<dyn ColdValues>) -> bool {
        self.values.set(values).is_ok()
    }

    pub(crate) fn values(&self) -> Option<&Arc<dyn ColdValues>> {
        self.values.get()
    }

    /// Number of stubs.
    #[inline]
    pub(crate) fn stubs(&self) -> u64 {
        self.stubs.load(Ordering::Relaxed)
    }

    /// Whether there is space for more cold values.
    pub(crate) fn has_room(&self) -> bool {
        self.has_room.load(Ordering::Relaxed)
    }

    /// Sets whether there is space for more cold values.
    pub(crate) fn set_has_room(&self, on: bool) {
        self.has_room.store(on, Ordering::Relaxed);
    }

    /// Counts a stub that came into the store.
    pub(crate) fn came(&self) {
        self.stubs.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts and reports a stub that is gone.
    pub(crate) fn forget(&self, word: u64) {
        self.stubs.fetch_sub(1, Ordering::Relaxed);
        if let Some(values) = self.values() {
            values.forget(Locator::from_word(word));
        }
    }

    /// Loads the value of a key whose bucket is held, and keeps it for this thread. Returns whether
    /// it can be read.
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

    /// Loads the value of a key.
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
    /// The store of the value, in which its segment is pinned: so no other entry has its locator.
    values: Arc<dyn ColdValues>,
}

fn held(values: &Arc<dyn ColdValues>, locator: Locator) -> Option<Arc<ColdValue>> {
    HELD.with_borrow(|all| {
        let is = |one: &&HeldValue| one.locator == locator && Arc::ptr_eq(&one.values, values);
        all.iter().find(is).map(|one| Arc::clone(&one.value))
    })
}

/// Number of values that this thread holds ([`crate::Record::hold_value`]).
#[must_use]
pub fn held_values() -> usize {
    HELD.with_borrow(Vec::len)
}

/// Releases all values that this thread holds except the first `but`.
pub fn release_held_values(but: usize) {
    if held_values() > but {
        let released = HELD.with_borrow_mut(|all| all.split_off(but));
        for one in released {
            one.values.unpin(one.locator);
        }
    }
}

/// Whether a value that this thread needed could not be read, since the last call.
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
