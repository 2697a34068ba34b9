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
/// An expired record is gone (and its removal stated) before the caller sees the entry.
pub struct Entry<'a> {
    place: EntryBackend<'a>,
}

enum EntryBackend<'a> {
    Slot(Writer<'a>),
    #[cfg(any(test, feature = "naive"))]
    Naive(NaiveEntry<'a>),
}

/// Calls the same method of whichever place it is.
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

    /// Whether a record was added that was not there.
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

    /// The live record, if there is one.
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

    /// Makes the key hold `value`, as a number when it is the canonical text of one.
    ///
    /// # Errors
    /// [`StoreError::OutOfMemory`] or [`StoreError::TooLarge`]; the record is unchanged.
    #[inline]
    pub fn set(&mut self, value: &[u8], deadline: Deadline) -> Result<(), StoreError> {
        with_place!(&mut self.place, place => place.set(value, deadline))
    }

    /// As [`Entry::set`], with an etag (0: none). The other ways to set a value clear the etag,
    /// unless they keep the deadline; those and the changes in place count it up.
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

    /// Makes the key hold `value` as bytes, whatever they spell (BITOP, SETRANGE on a new key …).
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

    /// Makes the key hold a number.
    ///
    /// # Errors
    /// As [`Entry::set`].
    #[inline]
    pub fn set_integer(&mut self, value: i64, deadline: Deadline) -> Result<(), StoreError> {
        with_place!(&mut self.place, place => place.set_integer(value, deadline))
    }

    /// Adds `tail` behind the string (an absent key starts empty); gives the new length.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn append(&mut self, tail: &[u8]) -> Result<usize, StoreError> {
        with_place!(&mut self.place, place => place.append(tail))
    }

    /// Overwrites the string from `offset` on, with zero bytes up to there if it is shorter (an
    /// absent key starts empty); gives the new length.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn write_at(&mut self, offset: usize, data: &[u8]) -> Result<usize, StoreError> {
        with_place!(&mut self.place, place => place.write_at(offset, data))
    }

    /// Runs `change` on the structure that the key holds; `None` when there is no such key. A key
    /// whose structure is empty afterwards is removed.
    ///
    /// # Errors
    /// [`StoreError::WrongKind`] when the key holds something else; `change` has not run.
    #[inline]
    pub fn change<S: Structure, R>(
        &mut self,
        change: impl FnOnce(&mut S) -> R,
    ) -> Result<Option<R>, StoreError> {
        with_place!(&mut self.place, place => place.change(change))
    }

    /// As [`Entry::change`]; an absent key gets an empty structure first.
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

    /// Makes the key hold a value that lies elsewhere: a string of `len` bytes, or so many elements. Whoever keeps cold values
    /// has counted it as named, and hears that it is not where this fails.
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

    /// Brings the value into memory, if it is not there.
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

    /// Sets or clears the deadline of an existing record (`None`: lives on); no effect on an absent
    /// key.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn set_deadline(&mut self, deadline_unix_ms: Option<u64>) -> Result<(), StoreError> {
        with_place!(&mut self.place, place => place.set_deadline(deadline_unix_ms))
    }

    /// Sets or clears (0) the etag of an existing record, of whatever kind; no effect on an absent key.
    /// From then on every change of the value that is stated counts it up.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn set_etag(&mut self, etag: u64) -> Result<(), StoreError> {
        with_place!(&mut self.place, place => place.set_etag(etag))
    }

    /// Deletes the record; whether there was one.
    pub fn remove(&mut self) -> bool {
        with_place!(&mut self.place, place => place.remove())
    }

    /// Marks the record as used now (TOUCH, GETEX).
    pub fn touch(&mut self) {
        with_place!(&mut self.place, place => place.touch());
    }

    /// Says how the record was used before it came here; counts for a policy that keeps such.
    pub fn set_use(&mut self, before: Use) {
        with_place!(&mut self.place, place => place.set_use(before));
    }

    /// Moves the value out, deadline included; the key is then absent.
    pub fn take(&mut self) -> Option<Owned> {
        with_place!(&mut self.place, place => place.take())
    }

    /// A copy of the value, deadline included. Large values share pages until one is changed.
    #[must_use]
    pub fn duplicate(&self) -> Option<Owned> {
        with_place!(&self.place, place => place.duplicate())
    }

    /// Makes the key hold a value that came from [`Entry::take`] or [`Entry::duplicate`], with that
    /// value's deadline, and without an etag: what was another key's counts from the beginning.
    ///
    /// # Errors
    /// As [`Entry::set`].
    pub fn put(&mut self, value: Owned) -> Result<(), StoreError> {
        with_place!(&mut self.place, place => place.put(value))
    }

    /// Says that the key was changed by what another key's effect states (the source of LMOVE), so
    /// that who listens to it is told.
    #[inline]
    pub fn announce(&mut self) {
        with_place!(&mut self.place, place => place.announce());
    }

    /// States what was done, while the record is still locked. `state` runs only when someone
    /// listens.
    #[inline]
    pub fn effect(&mut self, state: impl FnOnce(&mut Effect<'_>)) {
        with_place!(&mut self.place, place => place.effect(state));
    }

    /// Says what happened to the key, as clients call it: one event of one class. Stated where the
    /// change is made, while the record is still locked; an event that nobody wants costs a load and
    /// a branch.
    #[inline]
    pub fn event(&mut self, class: EventClass, name: &'static str) {
        with_place!(&mut self.place, place => place.event(class, name));
    }

    /// Says that the command came to read the key as well: that counts as [`crate::Handle::read`] does,
    /// and a key that is not there is an event.
    pub fn note_look(&self) {
        with_place!(&self.place, place => place.note_look());
    }

    /// Counts members of the structure that went because their deadline had passed.
    pub fn note_expired_members(&self, count: usize) {
        with_place!(&self.place, place => place.note_expired_members(count));
    }

    /// Leaves the event of a new key to the caller, who states it later, where others come first.
    pub fn leave_new_unsaid(&mut self) {
        with_place!(&mut self.place, place => place.leave_new_unsaid());
    }

    /// As [`Entry::event`], for a change that takes elements from a structure: when none is left and
    /// the key has gone with the last, that is an event as well.
    #[inline]
    pub fn event_of_taking(&mut self, class: EventClass, name: &'static str) {
        self.event(class, name);
        if !self.is_present() {
            self.event(EventClass::GENERIC, Event::DELETED);
        }
    }

    /// As [`Entry::effect`], of something that does not change this key (COPY states its effect in the
    /// database of its source): who listens to the key is not told.
    pub fn effect_elsewhere(&mut self, state: impl FnOnce(&mut Effect<'_>)) {
        with_place!(&mut self.place, place => place.effect_elsewhere(state));
    }

    /// As [`Entry::effect`], of what clients may call no change (a string is kept in another way): unless it
    /// `is_noticed`, who listens is not told, and no change is counted.
    pub fn effect_if_noticed(&mut self, is_noticed: bool, state: impl FnOnce(&mut Effect<'_>)) {
        with_place!(&mut self.place, place => match is_noticed {
            true => place.effect(state),
            false => place.effect_unnoticed(state),
        });
    }
}
