//! One key's place in the store, locked for a change.

use structures::Structure;

use crate::cold::Locator;
use crate::effect::Effect;
use crate::event::{Event, EventClass};
use crate::key::Key;
use crate::layout::Form;
#[cfg(any(test, feature = "naive"))]
use crate::naive::NaiveEntry;
use crate::owned::Owned;
use crate::record::Record;
use crate::value::{Deadline, StoreError, Use};
use crate::writer::Writer;

/// One key's place in the store, locked for a change.
///
/// An expired record is removed, and its removal stated, before the caller sees the entry.
pub struct Entry<'a> {
    place: EntryBackend<'a>,
}

enum EntryBackend<'a> {
    Slot(Writer<'a>),
    #[cfg(any(test, feature = "naive"))]
    Naive(NaiveEntry<'a>),
}

/// Calls the same method on whichever backend the place has.
macro_rules! with_place {
    ($place:expr, $name:ident => $body:expr) => {
        match $place {
            EntryBackend::Slot($name) => $body,
            #[cfg(any(test, feature = "naive"))]
            EntryBackend::Naive($name) => $body,
        }
    };
}

impl<'a> Entry<'a> {
    pub(crate) fn slot(writer: Writer<'a>) -> Self {
        Self {
            place: EntryBackend::Slot(writer),
        }
    }

    #[cfg(any(test, feature = "naive"))]
    pub(crate) fn naive(entry: NaiveEntry<'a>) -> Self {
        Self {
            place: EntryBackend::Naive(entry),
        }
    }

    /// Whether a record was added that did not exist before.
    #[inline]
    pub(crate) fn has_inserted(&self) -> bool {
        match &self.place {
            EntryBackend::Slot(writer) => writer.has_inserted(),
            #[cfg(any(test, feature = "naive"))]
            EntryBackend::Naive(_) => false,
        }
    }

    /// The key this entry is for.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Key<'a> {
        with_place!(&self.place, place => place.key())
    }

    /// The live record, or `None` if there is none.
    #[inline]
    #[must_use]
    pub fn record(&self) -> Option<Record<'_>> {
        with_place!(&self.place, place => place.record())
    }

    /// Whether the key exists.
    #[inline]
    #[must_use]
    pub fn is_present(&self) -> bool {
        with_place!(&self.place, place => place.is_present())
    }

    /// Makes the key hold `value`; as an integer if it is the canonical text of one.
    ///
    /// # Errors
    /// [`StoreError::OutOfMemory`] or [`StoreError::TooLarge`]; the record is unchanged.
    #[inline]
    pub fn set(&mut self, value: &[u8], deadline: Deadline) -> Result<(), StoreError> {
        with_place!(&mut self.place, place => place.set(value, deadline))
    }

    /// As [`Entry::set`], with an etag (0: none). The other ways to set a value clear the etag,
    /// unless they keep the deadline. Those that keep the deadline, and changes in place, raise the
    /// etag by one.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn set_with_etag(
        &mut self,
        value: &[u8],
        deadline: Deadline,
        etag: u64,
    ) -> Result<(), StoreError> {
        with_place!(&mut self.place, place => place.set_with_etag(value, deadline, etag))
    }

    /// Makes the key hold `value` as bytes, even if they spell an integer (BITOP, SETRANGE on a new
    /// key …).
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn set_raw(&mut self, value: &[u8], deadline: Deadline) -> Result<(), StoreError> {
        let form = Form::ChangedBytes;
        with_place!(&mut self.place, place => place.set_bytes(value, form, deadline))
    }

    /// Makes the key hold `value` as bytes that OBJECT ENCODING may call `embstr` (INCRBYFLOAT).
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn set_text(&mut self, value: &[u8], deadline: Deadline) -> Result<(), StoreError> {
        let form = Form::Bytes;
        with_place!(&mut self.place, place => place.set_bytes(value, form, deadline))
    }

    /// Makes the key hold an integer.
    ///
    /// # Errors
    /// As [`Entry::set`].
    #[inline]
    pub fn set_integer(&mut self, value: i64, deadline: Deadline) -> Result<(), StoreError> {
        with_place!(&mut self.place, place => place.set_integer(value, deadline))
    }

    /// Appends `tail` to the string (an absent key starts empty). Returns the new length.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn append(&mut self, tail: &[u8]) -> Result<usize, StoreError> {
        with_place!(&mut self.place, place => place.append(tail))
    }

    /// Overwrites the string from `offset` on, and fills a gap before it with zero bytes (an absent
    /// key starts empty). Returns the new length.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn write_at(&mut self, offset: usize, data: &[u8]) -> Result<usize, StoreError> {
        with_place!(&mut self.place, place => place.write_at(offset, data))
    }

    /// Runs `change` on the structure that the key holds, or returns `None` if there is no such
    /// key. A key whose structure is empty afterwards is removed.
    ///
    /// # Errors
    /// [`StoreError::WrongKind`] if the key holds another kind of value; `change` has not run.
    #[inline]
    pub fn change<S: Structure, R>(
        &mut self,
        change: impl FnOnce(&mut S) -> R,
    ) -> Result<Option<R>, StoreError> {
        with_place!(&mut self.place, place => place.change(change))
    }

    /// As [`Entry::change`]; an absent key first gets an empty structure.
    ///
    /// # Errors
    /// As [`Entry::change`], or [`StoreError::OutOfMemory`]; `change` has not run.
    #[inline]
    pub fn change_or_create<S: Structure, R>(
        &mut self,
        change: impl FnOnce(&mut S) -> R,
    ) -> Result<R, StoreError> {
        with_place!(&mut self.place, place => place.change_or_create(change))
    }

    /// Makes the key hold a cold value: a string of `len` bytes, or a structure of `len` elements.
    /// The cold store has counted the value as named. If this call fails, the cold store is
    /// notified that it is not.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn set_cold(
        &mut self,
        locator: Locator,
        len: u32,
        deadline_unix_ms: Option<u64>,
        etag: u64,
    ) -> Result<(), StoreError> {
        match &mut self.place {
            EntryBackend::Slot(writer) => writer.set_cold(locator, len, deadline_unix_ms, etag),
            #[cfg(any(test, feature = "naive"))]
            EntryBackend::Naive(_) => Err(StoreError::Unreadable),
        }
    }

    /// Loads the value into memory if it is cold.
    ///
    /// # Errors
    /// [`StoreError::OutOfMemory`] or [`StoreError::Unreadable`]; the record is unchanged.
    pub fn promote(&mut self) -> Result<(), StoreError> {
        match &mut self.place {
            EntryBackend::Slot(writer) => writer.promote(),
            #[cfg(any(test, feature = "naive"))]
            EntryBackend::Naive(_) => Ok(()),
        }
    }

    /// Sets or clears (`None`) the deadline of an existing record. Has no effect on an absent key.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn set_deadline(&mut self, deadline_unix_ms: Option<u64>) -> Result<(), StoreError> {
        with_place!(&mut self.place, place => place.set_deadline(deadline_unix_ms))
    }

    /// Sets or clears (0) the etag of an existing record of any kind. Has no effect on an absent
    /// key. From then on every stated change of the value raises the etag.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn set_etag(&mut self, etag: u64) -> Result<(), StoreError> {
        with_place!(&mut self.place, place => place.set_etag(etag))
    }

    /// Deletes the record. Returns whether there was one.
    pub fn remove(&mut self) -> bool {
        with_place!(&mut self.place, place => place.remove())
    }

    /// Marks the record as used now (TOUCH, GETEX).
    pub fn touch(&mut self) {
        with_place!(&mut self.place, place => place.touch());
    }

    /// Notes how the record was used before it came here; counts only for a policy that keeps such
    /// data.
    pub fn set_use(&mut self, before: Use) {
        with_place!(&mut self.place, place => place.set_use(before));
    }

    /// Moves the value out, including its deadline; the key is then absent.
    pub fn take(&mut self) -> Option<Owned> {
        with_place!(&mut self.place, place => place.take())
    }

    /// Returns a copy of the value, including its deadline. Large values share pages until one is
    /// changed.
    #[must_use]
    pub fn duplicate(&self) -> Option<Owned> {
        with_place!(&self.place, place => place.duplicate())
    }

    /// Makes the key hold a value from [`Entry::take`] or [`Entry::duplicate`], with that value's
    /// deadline, and without an etag, because another key's etag does not carry over.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn put(&mut self, value: Owned) -> Result<(), StoreError> {
        with_place!(&mut self.place, place => place.put(value))
    }

    /// Notes that another key's effect states a change of this key (the source of LMOVE), so that
    /// its listeners are notified.
    #[inline]
    pub fn announce(&mut self) {
        with_place!(&mut self.place, place => place.announce());
    }

    /// States what was done, while the record is still locked. `state` runs only if there is an
    /// effect sink.
    #[inline]
    pub fn effect(&mut self, state: impl FnOnce(&mut Effect<'_>)) {
        with_place!(&mut self.place, place => place.effect(state));
    }

    /// States an event of one class for the key, by its client-visible name. The caller states it
    /// where it makes the change, while the record is still locked. An event without subscribers
    /// costs a load and a branch.
    #[inline]
    pub fn event(&mut self, class: EventClass, name: &'static str) {
        with_place!(&mut self.place, place => place.event(class, name));
    }

    /// Notes that the command also reads the key. This counts as [`crate::Handle::read`] does, and
    /// a missing key is an event.
    pub fn note_look(&self) {
        with_place!(&self.place, place => place.note_look());
    }

    /// Counts members of the structure that were removed because their deadline had passed.
    pub fn note_expired_members(&self, count: usize) {
        with_place!(&self.place, place => place.note_expired_members(count));
    }

    /// Leaves the event of a new key to the caller, who states it later, after other events.
    pub fn leave_new_unsaid(&mut self) {
        with_place!(&mut self.place, place => place.leave_new_unsaid());
    }

    /// As [`Entry::event`], for a change that removes elements from a structure. If the last
    /// element is removed, the key is removed too, and that is a second event.
    #[inline]
    pub fn event_of_taking(&mut self, class: EventClass, name: &'static str) {
        self.event(class, name);
        if !self.is_present() {
            self.event(EventClass::GENERIC, Event::DELETED);
        }
    }

    /// As [`Entry::effect`], for something that does not change this key (COPY states its effect in
    /// the database of its source). Listeners of the key are not notified.
    pub fn effect_elsewhere(&mut self, state: impl FnOnce(&mut Effect<'_>)) {
        with_place!(&mut self.place, place => place.effect_elsewhere(state));
    }

    /// As [`Entry::effect`], for something that clients may not see as a change (a string is kept
    /// in another encoding). Unless it `is_noticed`, listeners are not notified and no change is
    /// counted.
    pub fn effect_if_noticed(&mut self, is_noticed: bool, state: impl FnOnce(&mut Effect<'_>)) {
        with_place!(&mut self.place, place => match is_noticed {
            true => place.effect(state),
            false => place.effect_unnoticed(state),
        });
    }
}
