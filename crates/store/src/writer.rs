//! One key's place in the index, locked for a change: the backend of an [`Entry`].
//!
//! A change is made in the slot if the new value fits and fills at least half of it. Otherwise a
//! draft is built in a slot of its own, where no thread can see it. Then its link replaces the old
//! one, and the old slot is freed. So a record that cannot be written (no memory) stays as it was.

use std::mem::MaybeUninit;

use base::number::{IntegerText, parse_i64};
use base::sync::atomic::Ordering;
use structures::{Object, Structure};

use crate::arena::WORD_BYTES;
use crate::blob::Blob;
use crate::bucket::{Bucket, Link};
use crate::cold::{ColdKind, ColdValue, Locator};
use crate::effect::Effect;
use crate::entry::Entry;
use crate::event::{Event, EventClass};
use crate::heap::{self, Body};
use crate::index::{Index, Spot};
use crate::indexed::Indexed;
use crate::key::Key;
use crate::layout::{
    Fields, Form, Header, INLINE_KEY_BYTES_MAX, OBJECT_BYTES, OPTIMISTIC_BYTES_MAX, View,
};
use crate::listeners::{ChangeKind, KeyChange};
use crate::local::{Local, Scene, view_of};
use crate::owned::{Content, Owned};
use crate::record::Record;
use crate::shared::Shared;
use crate::slab::{OutOfMemory, SLOT_BYTES_MAX, class_bytes, class_for};
use crate::value::{Cause, Deadline, StoreError, Use, next_etag};

/// The deadline word 0 means no deadline, so deadlines are at least this.
const DEADLINE_MIN_UNIX_MS: u64 = 1;

impl Indexed {
    /// Runs `change` on a key with its bucket locked.
    #[inline]
    pub(crate) fn modify<R>(
        &mut self,
        key: &Key<'_>,
        change: impl FnOnce(&mut Entry<'_>) -> R,
    ) -> R {
        self.modify_for(key, None, change)
    }

    /// As [`Indexed::modify`]. If `value` is given, `change` does nothing but [set](Writer::set)
    /// that value, without a deadline.
    #[inline]
    pub(crate) fn modify_for<R>(
        &mut self,
        key: &Key<'_>,
        value: Option<&[u8]>,
        change: impl FnOnce(&mut Entry<'_>) -> R,
    ) -> R {
        let entered = self.enter();
        self.need_index(key.database());
        let (answer, inserted) = self.modify_in_index(key, value, change);
        if inserted && self.local.held.is_empty() {
            self.grow_after_insert(key.database());
        }
        if entered {
            self.leave();
        }
        answer
    }

    #[inline]
    fn modify_in_index<R>(
        &mut self,
        key: &Key<'_>,
        value: Option<&[u8]>,
        change: impl FnOnce(&mut Entry<'_>) -> R,
    ) -> (R, bool) {
        let Some(index) = self.seen.get(key.database()) else {
            unreachable!("made before");
        };
        let writer = Writer::open(&self.shared, &mut self.local, index, *key, value);
        let mut entry = Entry::slot(writer);
        let answer = change(&mut entry);
        (answer, entry.has_inserted())
    }
}

/// A key's place, locked.
pub(crate) struct Writer<'a> {
    shared: &'a Shared,
    local: &'a mut Local,
    index: &'a Index,
    home: &'a Bucket,
    /// Index of the bucket in the lock set, if it was locked before.
    held_at: Option<usize>,
    key: Key<'a>,
    spot: Option<Spot<'a>>,
    changed: Changed,
    inserted: bool,
    /// Whether the etag was raised: one change of a key raises it once.
    raised: bool,
    /// Whether a structure was lent for a change. If the change is then announced, the etag is
    /// raised.
    changed_structure: bool,
    /// Whether a new record is an event by itself.
    tells_new: bool,
}

/// How the content of a bucket was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Changed {
    No,
    /// The content may have changed, but clients see no change of the key yet. For instance, a
    /// structure may have been left as it was, or an expired record was removed and its listeners
    /// notified.
    Quietly,
    /// The key was changed: its listeners must be notified.
    Announced,
}

/// Attributes that a record has besides key and value.
#[derive(Clone, Copy, Debug, Default)]
struct Attributes {
    deadline: Option<u64>,
    /// 0 for none.
    etag: u64,
}

impl Attributes {
    #[inline]
    fn are_none(self) -> bool {
        self.deadline.is_none() && self.etag == 0
    }
}

impl From<Option<u64>> for Attributes {
    fn from(deadline: Option<u64>) -> Self {
        Self { deadline, etag: 0 }
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        if self.changed == Changed::Announced && self.home.is_listened() {
            self.tell_listeners();
        }
        let changed = self.changed != Changed::No;
        match self.held_at {
            Some(at) => self.local.held[at].changed |= changed,
            None => self.home.unlock(changed),
        }
    }
}

impl<'a> Writer<'a> {
    /// Locks the key's bucket, finds its record and removes it if it has expired, unless another
    /// server decides what is removed: the writer then finds the record as it is. If `value` is
    /// given, the only change will be to set it, without a deadline.
    #[inline]
    fn open(
        shared: &'a Shared,
        local: &'a mut Local,
        index: &'a Index,
        key: Key<'a>,
        value: Option<&[u8]>,
    ) -> Self {
        let (number, held_at) = if local.held.is_empty() {
            let number = index.lock(key.hash()).number;
            local.choose_side(shared);
            (number, None)
        } else {
            #[cfg(test)]
            shared.snapshots.tempt(local);
            let at = local.held_at(index, key.database(), key.hash());
            (local.held[at].home.number, Some(at))
        };
        let home = index.bucket(number);
        if home.is_behind(local.generation) {
            save_before(shared, local, index, home, &key, value);
        }
        let mut writer = Self {
            shared,
            local,
            index,
            home,
            held_at,
            key,
            spot: None,
            changed: Changed::No,
            inserted: false,
            raised: false,
            changed_structure: false,
            tells_new: true,
        };
        writer.find();
        writer
    }

    #[inline]
    fn find(&mut self) {
        let is = |link: Link| {
            // SAFETY: the bucket is held.
            view_of(self.shared, link).is_some_and(|view| unsafe { view.key_is(self.key.bytes()) })
        };
        self.spot = self.index.find(self.home, self.key.hash(), is);
        if let Some(spot) = self.spot
            && spot.link.has(Link::DEADLINE)
            && self
                .view()
                .is_some_and(|view| view.is_expired(self.local.now_unix_ms))
            && !self.shared.is_follower()
        {
            let database = self.key.database();
            let (home, cause) = (self.home, Cause::Expired);
            self.local
                .remove_unasked(self.shared, self.index, database, home, spot, cause);
            self.spot = None;
            self.changed = Changed::Quietly;
        }
    }

    /// The record as it is.
    #[inline]
    fn view(&self) -> Option<View<'a>> {
        view_of(self.shared, self.spot?.link)
    }

    /// The key.
    #[inline]
    pub(crate) fn key(&self) -> Key<'a> {
        self.key
    }

    /// Whether the key exists.
    #[inline]
    pub(crate) fn is_present(&self) -> bool {
        self.spot.is_some()
    }

    /// Whether a record was added that did not exist before.
    #[inline]
    pub(crate) fn has_inserted(&self) -> bool {
        self.inserted
    }

    /// The record, to look at.
    #[inline]
    pub(crate) fn record(&self) -> Option<Record<'_>> {
        let view = self.view()?;
        let (in_force, now_unix_ms) = (self.local.in_force, self.local.now_unix_ms);
        // SAFETY: the bucket is held for the life of `self`, and it takes `&mut self` to write.
        Some(unsafe { Record::locked(self.key.bytes(), view, in_force, now_unix_ms) })
    }

    /// Makes the key hold `value`, as an integer if it spells one.
    #[inline]
    pub(crate) fn set(&mut self, value: &[u8], deadline: Deadline) -> Result<(), StoreError> {
        match parse_i64(value) {
            Some(number) => self.set_integer(number, deadline),
            None => self.set_bytes(value, Form::Bytes, deadline),
        }
    }

    /// As [`Writer::set`], with an etag.
    pub(crate) fn set_with_etag(
        &mut self,
        value: &[u8],
        deadline: Deadline,
        etag: u64,
    ) -> Result<(), StoreError> {
        let attributes = Attributes {
            etag,
            ..self.resolve(deadline)
        };
        match parse_i64(value) {
            Some(number) => self.write_integer(number, attributes),
            None => self.write_bytes(value, Form::Bytes, attributes),
        }
    }

    /// Makes the key hold an integer.
    #[inline]
    pub(crate) fn set_integer(
        &mut self,
        number: i64,
        deadline: Deadline,
    ) -> Result<(), StoreError> {
        let attributes = self.resolve(deadline);
        self.write_integer(number, attributes)
    }

    #[inline]
    fn write_integer(&mut self, number: i64, attributes: Attributes) -> Result<(), StoreError> {
        if let Some(view) = self.reuse(Form::Integer, WORD_BYTES, 0, attributes) {
            view.set_value_word(number.cast_unsigned());
            return Ok(());
        }
        let draft = self.draft(Form::Integer, WORD_BYTES, 0, attributes)?;
        draft.set_value_word(number.cast_unsigned());
        self.publish(draft, OldValue::Free)
    }

    /// Makes the key hold bytes.
    #[inline]
    pub(crate) fn set_bytes(
        &mut self,
        bytes: &[u8],
        form: Form,
        deadline: Deadline,
    ) -> Result<(), StoreError> {
        let attributes = self.resolve(deadline);
        self.write_bytes(bytes, form, attributes)
    }

    #[inline]
    fn write_bytes(
        &mut self,
        bytes: &[u8],
        form: Form,
        attributes: Attributes,
    ) -> Result<(), StoreError> {
        if form == Form::Bytes && attributes.are_none() && self.overwrite(bytes) {
            return Ok(());
        }
        if !self.fits_slot(bytes.len(), attributes) {
            let blob = Blob::from_bytes(&self.shared.slab, bytes)?;
            return self.set_blob(blob, attributes, OldValue::Free);
        }
        let len = length(bytes.len())?;
        if let Some(view) = self.reuse(form, bytes.len(), len, attributes) {
            view.write_value(0, bytes);
            return Ok(());
        }
        let draft = self.draft(form, bytes.len(), len, attributes)?;
        draft.write_value(0, bytes);
        self.publish(draft, OldValue::Free)
    }

    /// Overwrites a value with a short one if there is nothing else to consider, as in most writes.
    /// Does what [`Writer::reuse`] would do, in a third of its steps. Returns whether it did.
    #[inline]
    fn overwrite(&mut self, bytes: &[u8]) -> bool {
        let Some(link) = self.spot.map(|spot| spot.link) else {
            return false;
        };
        let Some((mut view, len)) = to_overwrite(self.shared, self.local, link, bytes) else {
            return false;
        };
        self.changed = Changed::Announced;
        view.set_header(view.header().with_value(Form::Bytes, len));
        view.write_value(0, bytes);
        true
    }

    fn set_blob(
        &mut self,
        blob: Blob,
        attributes: Attributes,
        old_value: OldValue,
    ) -> Result<(), StoreError> {
        let len = length(blob.len())?;
        let draft = self.draft(Form::Blob, WORD_BYTES, len, attributes)?;
        draft.set_value_word(blob.into_raw());
        self.publish(draft, old_value)
    }

    /// Makes the key hold an object. This does not fail if the key already holds an object.
    fn set_object(
        &mut self,
        object: Body,
        deadline_unix_ms: Option<u64>,
    ) -> Result<(), StoreError> {
        let in_place = self.view().filter(|view| {
            let has_room = deadline_unix_ms.is_none() || view.header().has_deadline();
            view.form().is_object() && has_room
        });
        if let Some(mut view) = in_place {
            self.changed = Changed::Announced;
            if view.header().has_deadline() {
                let old = view.deadline_unix_ms();
                view.set_deadline(deadline_unix_ms);
                self.note_deadline(old, deadline_unix_ms);
            }
            if view.header().has_etag() {
                view.set_etag(0);
            }
            // SAFETY: the bucket is held, and the words are replaced before anything else is done.
            unsafe { self.local.free_value(self.shared, &view) };
            self.keep_object(&mut view, object);
            self.use_again(&view);
            return Ok(());
        }
        let mut draft = self.draft(Form::Object, OBJECT_BYTES, 0, deadline_unix_ms.into())?;
        self.keep_object(&mut draft, object);
        self.publish(draft, OldValue::Free)
    }

    /// Writes an object into its record, and counts it.
    fn keep_object(&mut self, view: &mut View<'a>, mut object: Body) {
        if let Body::Boxed(object) = &mut object
            && object.has_member_deadlines()
        {
            self.arm_members(object, None);
        }
        let bytes = heap::keep(view, object);
        self.local.count_object(self.shared, 0, bytes);
    }

    /// Arms a visit of the key at its first member deadline, unless a visit at or before that time
    /// is already `armed`.
    #[cold]
    fn arm_members(&mut self, object: &mut Object, armed: Option<u64>) {
        let Some(deadline) = object.first_member_deadline_unix_ms() else {
            return;
        };
        if armed.is_some_and(|armed| armed <= deadline) {
            return;
        }
        self.shared
            .has_member_deadlines
            .store(true, Ordering::Relaxed);
        let (id, now) = (self.index.id(), self.local.now_unix_ms);
        self.local.deadlines.arm(id, self.key.hash(), deadline, now);
    }

    /// Runs `change` on the structure that the key holds, if it exists. Then counts its bytes, and
    /// removes the key if the structure is empty.
    #[inline]
    pub(crate) fn change<S: Structure, R>(
        &mut self,
        change: impl FnOnce(&mut S) -> R,
    ) -> Result<Option<R>, StoreError> {
        if self.is_cold() {
            self.promote()?;
        }
        let Some(mut view) = self.view() else {
            return Ok(None);
        };
        if !view.form().is_object() {
            return Err(StoreError::WrongKind);
        }
        let before = view.second_word();
        let mut due = None;
        // Holds a structure without a box during the change. It is not dropped, and need not be:
        // once the change is closed, it is empty.
        let mut place = MaybeUninit::uninit();
        let structure = if view.form() == Form::Object {
            // SAFETY: the bucket is held, and all other uses of the object go through `self`.
            let object = unsafe { heap::change(&view) };
            if object.has_member_deadlines() {
                due = object.first_member_deadline_unix_ms();
            }
            S::of_mut(object)
        } else {
            // SAFETY: as above.
            unsafe { heap::open(&view) }.map(|structure| place.write(structure))
        };
        let structure = structure.ok_or(StoreError::WrongKind)?;
        self.changed = self.changed.max(Changed::Quietly);
        self.changed_structure = true;
        let answer = change(structure);
        if view.form() == Form::Object {
            self.close_boxed(&view, before, due);
        } else {
            self.close_compact(&mut view, before, structure);
        }
        Ok(Some(answer))
    }

    /// Ends a change of the object in the record's box. It was counted with `before` bytes, and its
    /// first member deadline was `due`.
    #[inline(always)]
    fn close_boxed(&mut self, view: &View<'a>, before: u64, due: Option<u64>) {
        // SAFETY: the bucket is held, and all other uses of the object go through `self`.
        let object = unsafe { heap::change(view) };
        if object.has_member_deadlines() {
            self.arm_members(object, due);
        }
        if object.is_to_be_removed() {
            self.remove();
            return;
        }
        let now = object.memory_bytes() as u64;
        if before != now {
            view.set_second_word(now);
            self.local.count_object(self.shared, before, now);
        }
        self.use_again(view);
    }

    /// Ends a change of a structure without a box; `before` is the record's second word before the
    /// change.
    #[inline(always)]
    fn close_compact(&mut self, view: &mut View<'a>, before: u64, structure: &mut impl Structure) {
        let is_to_be_removed = structure.is_to_be_removed();
        if let Some((before, now)) = heap::give_back(view, structure, before) {
            self.local.count_object(self.shared, before, now);
        }
        if is_to_be_removed {
            self.remove();
            return;
        }
        if view.form() == Form::Object {
            self.arm_boxed(view);
        }
        self.use_again(view);
    }

    /// Arms a visit of a structure that moved into a box, as happens when its members get
    /// deadlines.
    #[cold]
    fn arm_boxed(&mut self, view: &View<'a>) {
        // SAFETY: the bucket is held, and all other uses of the object go through `self`.
        let object = unsafe { heap::change(view) };
        if object.has_member_deadlines() {
            self.arm_members(object, None);
        }
    }

    /// As [`Writer::change`], with an empty structure for an absent key.
    #[inline]
    pub(crate) fn change_or_create<S: Structure, R>(
        &mut self,
        change: impl FnOnce(&mut S) -> R,
    ) -> Result<R, StoreError> {
        if self.spot.is_none() {
            self.set_object(Body::of(S::empty()), None)?;
        }
        let answer = self.change(change)?;
        answer.ok_or(StoreError::OutOfMemory)
    }

    /// Appends `tail` to the string. Returns the new length.
    pub(crate) fn append(&mut self, tail: &[u8]) -> Result<usize, StoreError> {
        let len = self.record().map_or(0, |record| record.len());
        self.write_at(len, tail)
    }

    /// Overwrites the string from `offset` on, and fills a gap before it with zeroes. Returns the
    /// new length.
    pub(crate) fn write_at(&mut self, offset: usize, data: &[u8]) -> Result<usize, StoreError> {
        if self.is_cold() {
            self.promote()?;
        }
        let len = self.record().map_or(0, |record| record.len());
        let end = offset.checked_add(data.len()).ok_or(StoreError::TooLarge)?;
        if self.view().is_some_and(|view| view.form().is_object()) {
            return Err(StoreError::WrongKind);
        }
        let new_len = len.max(end);
        let header_len = length(new_len)?;
        match self.view() {
            Some(view) if view.form() == Form::Blob => self.write_blob(view, offset, data)?,
            Some(view) if view.form().is_inline_bytes() && new_len <= view.value_room() => {
                self.write_inline(view, header_len, len, offset, data);
            }
            view => self.write_elsewhere(view, new_len, offset, data)?,
        }
        Ok(new_len)
    }

    /// Writes into a blob.
    fn write_blob(
        &mut self,
        mut view: View<'a>,
        offset: usize,
        data: &[u8],
    ) -> Result<(), StoreError> {
        let mut word = view.value_word();
        self.changed = Changed::Announced;
        // SAFETY: the record's word names its blob, the bucket is held, and the word is put back.
        let (written, len) =
            unsafe { Blob::change(&mut word, |blob| (blob.write_at(offset, data), blob.len())) };
        view.set_value_word(word);
        view.set_header(view.header().with_value(Form::Blob, length(len)?));
        self.raise_etag(&view);
        Ok(written?)
    }

    /// Writes into the slot, if the value fits there.
    fn write_inline(
        &mut self,
        mut view: View<'a>,
        header_len: u32,
        len: usize,
        offset: usize,
        data: &[u8],
    ) {
        self.changed = Changed::Announced;
        if offset > len {
            view.zero_value(len, offset - len);
        }
        view.write_value(offset, data);
        view.set_header(view.header().with_value(Form::ChangedBytes, header_len));
        self.raise_etag(&view);
        self.use_again(&view);
    }

    /// Writes into a new slot or blob.
    fn write_elsewhere(
        &mut self,
        old: Option<View<'a>>,
        new_len: usize,
        offset: usize,
        data: &[u8],
    ) -> Result<(), StoreError> {
        let attributes = self.resolve(Deadline::Keep);
        if !self.fits_slot(new_len, attributes) {
            let slab = &self.shared.slab;
            let mut blob = with_text(old, |text| Blob::from_bytes(slab, text))?;
            blob.write_at(offset, data)?;
            return self.set_blob(blob, attributes, OldValue::Free);
        }
        let draft = self.draft(Form::ChangedBytes, new_len, length(new_len)?, attributes)?;
        let len = with_text(old, |text| {
            draft.write_value(0, text);
            text.len()
        });
        if offset > len {
            draft.zero_value(len, offset - len);
        }
        draft.write_value(offset, data);
        self.publish(draft, OldValue::Free)
    }

    /// Sets or clears the deadline of a record, if there is one.
    pub(crate) fn set_deadline(&mut self, deadline: Option<u64>) -> Result<(), StoreError> {
        let deadline = deadline.map(|at| at.max(DEADLINE_MIN_UNIX_MS));
        let Some(view) = self.view() else {
            return Ok(());
        };
        if view.header().has_deadline() {
            let old = view.deadline_unix_ms();
            self.changed = Changed::Announced;
            view.set_deadline(deadline);
            self.note_deadline(old, deadline);
            self.use_again(&view);
            return Ok(());
        }
        if deadline.is_none() {
            return Ok(());
        }
        let etag = view.etag();
        self.rebuild(view, Attributes { deadline, etag })
    }

    /// Sets or clears (0) the etag of a record, if there is one.
    pub(crate) fn set_etag(&mut self, etag: u64) -> Result<(), StoreError> {
        let Some(view) = self.view() else {
            return Ok(());
        };
        if view.header().has_etag() {
            self.changed = Changed::Announced;
            view.set_etag(etag);
            return Ok(());
        }
        if etag == 0 {
            return Ok(());
        }
        let deadline = view.deadline_unix_ms();
        self.rebuild(view, Attributes { deadline, etag })
    }

    /// Moves the value of the record to a new record, which has words for all attributes.
    fn rebuild(&mut self, view: View<'a>, attributes: Attributes) -> Result<(), StoreError> {
        let (form, header) = (view.form(), view.header());
        if form == Form::Integer {
            return self.write_integer(view.integer(), attributes);
        }
        let len = length(header.value_len())?;
        if matches!(form, Form::Blob | Form::Cold) {
            let draft = self.draft(form, WORD_BYTES, len, attributes)?;
            draft.set_value_word(view.value_word());
            return self.publish(draft, OldValue::Moved);
        }
        if form.is_object() {
            let draft = self.draft(form, OBJECT_BYTES, len, attributes)?;
            draft.set_value_word(view.value_word());
            draft.set_second_word(view.second_word());
            return self.publish(draft, OldValue::Moved);
        }
        if !self.fits_slot(header.value_len(), attributes) {
            let blob = with_text(Some(view), |text| Blob::from_bytes(&self.shared.slab, text))?;
            return self.set_blob(blob, attributes, OldValue::Free);
        }
        let draft = self.draft(form, header.value_len(), len, attributes)?;
        with_text(Some(view), |text| draft.write_value(0, text));
        self.publish(draft, OldValue::Free)
    }

    /// Deletes the record. Returns whether there was one.
    pub(crate) fn remove(&mut self) -> bool {
        let Some(spot) = self.spot.take() else {
            return false;
        };
        self.changed = Changed::Announced;
        let database = self.key.database();
        self.local
            .remove(self.shared, self.index, database, self.home, spot);
        true
    }

    /// Notes that the record was used.
    pub(crate) fn touch(&mut self) {
        if let Some(view) = self.view() {
            self.use_again(&view);
        }
    }

    /// Notes how the record was used before it came here.
    pub(crate) fn set_use(&self, before: Use) {
        if let Some(view) = self.view()
            && let Some(word) = self.local.clock().of_use(before)
        {
            view.set_clock(word);
        }
    }

    /// Moves the value out.
    pub(crate) fn take(&mut self) -> Option<Owned> {
        if let Some(view) = self.view().filter(|view| view.form().is_object()) {
            return self.take_object(view);
        }
        let owned = self.duplicate()?;
        self.remove();
        Some(owned)
    }

    /// Moves the object of a record out, and removes the record.
    fn take_object(&mut self, mut view: View<'a>) -> Option<Owned> {
        let deadline_unix_ms = view.deadline_unix_ms();
        // SAFETY: the bucket is held, and the record forgets the pointer before it is removed.
        let object = unsafe { self.local.take_object(self.shared, &view) };
        view.set_header(view.header().with_value(Form::Integer, 0));
        self.remove();
        Some(Owned {
            content: Content::Object(object?),
            deadline_unix_ms,
        })
    }

    /// Returns a copy of the value; a blob is shared until one of the two changes.
    pub(crate) fn duplicate(&self) -> Option<Owned> {
        let view = self.view()?;
        let content = match view.form() {
            Form::Integer => Content::Integer(view.integer()),
            Form::Blob => {
                // SAFETY: the record's word names its blob, and the bucket is held.
                let blob = unsafe { Blob::look(view.value_word()) };
                Content::Blob(Blob::clone(&blob))
            }
            Form::Object | Form::Compact => {
                // SAFETY: the bucket is held.
                let object = unsafe { heap::look::<Object>(&view) }?;
                Content::Object(Box::new(object.clone()))
            }
            Form::Cold => self.loaded(&view)?,
            form => Content::Bytes {
                bytes: with_text(Some(view), <[u8]>::to_vec),
                is_changed: form == Form::ChangedBytes,
            },
        };
        Some(Owned {
            content,
            deadline_unix_ms: view.deadline_unix_ms(),
        })
    }

    /// Whether the value is cold.
    #[inline]
    fn is_cold(&self) -> bool {
        self.view().is_some_and(|view| view.form() == Form::Cold)
    }

    /// Loads the value of a stub.
    #[cold]
    fn loaded(&self, view: &View<'a>) -> Option<Content> {
        let word = view.value_word();
        let value = self.shared.cold().load(self.key.bytes(), word)?;
        Some(match &*value {
            ColdValue::Text(text) => Content::Bytes {
                bytes: text.clone(),
                is_changed: Locator::from_word(word).kind() == ColdKind::CHANGED_BYTES,
            },
            ColdValue::Object(object) => Content::Object(Box::new(object.clone())),
        })
    }

    /// Makes the key hold a cold value: a string of `len` bytes, or `len` elements.
    pub(crate) fn set_cold(
        &mut self,
        locator: Locator,
        len: u32,
        deadline: Option<u64>,
        etag: u64,
    ) -> Result<(), StoreError> {
        let deadline = deadline.map(|at| at.max(DEADLINE_MIN_UNIX_MS));
        let attributes = Attributes { deadline, etag };
        // Counted first: a value that is refused counts as gone.
        self.shared.cold().came();
        let draft = self.draft(Form::Cold, WORD_BYTES, len, attributes);
        let draft = draft.inspect_err(|_| self.shared.cold().forget(locator.to_word()))?;
        draft.set_value_word(locator.to_word());
        self.publish(draft, OldValue::Free)
    }

    /// Loads the value of a stub into memory. That is no change of the key: no listener is
    /// notified.
    #[cold]
    pub(crate) fn promote(&mut self) -> Result<(), StoreError> {
        let Some(view) = self.view().filter(|view| view.form() == Form::Cold) else {
            return Ok(());
        };
        let before = self.changed;
        let content = self.loaded(&view).ok_or(StoreError::Unreadable)?;
        let attributes = Attributes {
            deadline: view.deadline_unix_ms(),
            etag: view.etag(),
        };
        let clock = view.clock();
        match content {
            Content::Bytes { bytes, is_changed } => {
                let form = if is_changed {
                    Form::ChangedBytes
                } else {
                    Form::Bytes
                };
                if self.fits_slot(bytes.len(), attributes) {
                    let len = length(bytes.len())?;
                    let draft = self.draft(form, bytes.len(), len, attributes)?;
                    draft.write_value(0, &bytes);
                    self.publish(draft, OldValue::Free)?;
                } else {
                    let blob = Blob::from_bytes(&self.shared.slab, &bytes)?;
                    self.set_blob(blob, attributes, OldValue::Free)?;
                }
            }
            Content::Object(object) => {
                let mut draft = self.draft(Form::Object, OBJECT_BYTES, 0, attributes)?;
                self.keep_object(&mut draft, Body::of_box(object));
                self.publish(draft, OldValue::Free)?;
            }
            Content::Integer(_) | Content::Blob(_) => {}
        }
        if let (Some(clock), Some(view)) = (clock, self.view()) {
            view.set_clock(clock);
        }
        self.changed = before.max(Changed::Quietly);
        Ok(())
    }

    /// Makes the key hold a value that was taken or copied.
    pub(crate) fn put(&mut self, value: Owned) -> Result<(), StoreError> {
        let deadline = value.deadline_unix_ms;
        match value.content {
            Content::Integer(number) => self.set_integer(number, deadline.into()),
            Content::Bytes { bytes, is_changed } => {
                let form = if is_changed {
                    Form::ChangedBytes
                } else {
                    Form::Bytes
                };
                self.set_bytes(&bytes, form, deadline.into())
            }
            Content::Blob(blob) => self.set_blob(blob, deadline.into(), OldValue::Free),
            Content::Object(object) => self.set_object(Body::of_box(object), deadline),
        }
    }

    /// Notes that an effect stated for another key changed this key.
    #[inline]
    pub(crate) fn announce(&mut self) {
        self.changed = Changed::Announced;
        if self.changed_structure
            && let Some(view) = self.view()
        {
            self.raise_etag(&view);
        }
    }

    /// Notifies the listeners of the key.
    #[cold]
    fn tell_listeners(&mut self) {
        let kind = if self.is_present() {
            ChangeKind::Written
        } else {
            ChangeKind::Removed
        };
        let change = KeyChange {
            key: self.key.bytes(),
            database: self.key.database(),
            kind,
            author: self.local.teller.author,
        };
        let scene = Scene {
            shared: self.shared,
            index: self.index,
            home: self.home,
        };
        self.local.tell(scene, self.key.hash(), &change);
    }

    /// Counts a change and states it, if there is a sink.
    #[inline]
    pub(crate) fn effect(&mut self, state: impl FnOnce(&mut Effect<'_>)) {
        self.announce();
        self.effect_elsewhere(state);
        if self.changed_structure {
            self.state_etag();
        }
    }

    /// States the etag of a structure that was changed, because a replica that repeats the stated
    /// effects may have raised it more often.
    #[inline]
    fn state_etag(&mut self) {
        let etag = self.view().map_or(0, |view| view.etag());
        if etag != 0
            && let Some(sink) = self.local.told_sink()
        {
            sink.etag(self.key.database(), self.key.bytes(), etag);
        }
    }

    /// As [`Writer::effect`], but does not announce a change of the key.
    #[inline]
    pub(crate) fn effect_elsewhere(&mut self, state: impl FnOnce(&mut Effect<'_>)) {
        self.local.cell.events.changes.count();
        self.state_effect(state);
    }

    /// States everything that was done to the record, without a change as clients see it.
    pub(crate) fn effect_unnoticed(&mut self, state: impl FnOnce(&mut Effect<'_>)) {
        self.changed = self.changed.min(Changed::Quietly);
        self.state_effect(state);
    }

    #[inline]
    fn state_effect(&mut self, state: impl FnOnce(&mut Effect<'_>)) {
        let database = self.key.database();
        if let Some(sink) = self.local.told_sink() {
            state(&mut Effect::new(sink, database));
        }
    }

    /// States an event, if it has subscribers.
    #[inline]
    pub(crate) fn event(&self, class: EventClass, name: &'static str) {
        self.local.event(self.shared, &self.key, class, name);
    }

    /// Counts members of a structure that were found to be expired.
    pub(crate) fn note_expired_members(&self, count: usize) {
        self.local.cell.events.expired_members.add(count as u64);
    }

    /// Counts a look at the record.
    pub(crate) fn note_look(&self) {
        let events = &self.local.cell.events;
        if self.is_present() {
            events.hits.count();
        } else {
            events.misses.count();
            self.event(EventClass::KEY_MISS, Event::MISSED);
        }
    }

    /// Leaves the event of a new record to the caller.
    pub(crate) fn leave_new_unsaid(&mut self) {
        self.tells_new = false;
    }

    /// Returns the attributes that the record will have. A write that keeps the deadline changes
    /// the existing value and raises its etag; any other write sets a new value, without an etag.
    #[inline]
    fn resolve(&mut self, deadline: Deadline) -> Attributes {
        match deadline {
            Deadline::Never => Attributes::default(),
            Deadline::At(deadline_unix_ms) => Attributes {
                deadline: Some(deadline_unix_ms.max(DEADLINE_MIN_UNIX_MS)),
                etag: 0,
            },
            Deadline::Keep => self
                .view()
                .map_or_else(Attributes::default, |view| Attributes {
                    deadline: view.deadline_unix_ms(),
                    etag: self.raised(view.etag()),
                }),
        }
    }

    /// Returns the etag after a change: raised by one, but only once.
    #[inline]
    fn raised(&mut self, etag: u64) -> u64 {
        if etag == 0 || std::mem::replace(&mut self.raised, true) {
            return etag;
        }
        next_etag(etag)
    }

    /// Raises the etag for a change of the value in place.
    #[inline]
    fn raise_etag(&mut self, view: &View<'a>) {
        if view.header().has_etag() {
            view.set_etag(self.raised(view.etag()));
        }
    }

    /// Returns the fields of a new record of this key.
    #[inline]
    fn fields(&self, attributes: Attributes) -> Fields {
        let len = self.key.bytes().len();
        let inline_key = u16::try_from(len).ok();
        Fields {
            inline_key: inline_key.filter(|_| len <= INLINE_KEY_BYTES_MAX),
            has_deadline: attributes.deadline.is_some(),
            has_etag: attributes.etag != 0,
            has_clock: self.local.clock().is_kept(),
        }
    }

    #[inline]
    fn fits_slot(&self, value_bytes: usize, attributes: Attributes) -> bool {
        value_bytes <= SLOT_BYTES_MAX - self.fields(attributes).bytes()
    }

    /// Prepares the slot of the record for another value, if that fits and fills half of it.
    #[inline]
    fn reuse(
        &mut self,
        form: Form,
        value_bytes: usize,
        value_len: u32,
        attributes: Attributes,
    ) -> Option<View<'a>> {
        let mut view = self
            .view()
            .filter(|view| view.form().is_inline_bytes() || view.form() == Form::Integer)?;
        let header = view.header();
        let bytes = view.value_at() + value_bytes;
        let slot_bytes = class_bytes(view.class());
        let Attributes { deadline, etag } = attributes;
        let lacks_deadline = deadline.is_some() && !header.has_deadline();
        let lacks_etag = etag != 0 && !header.has_etag();
        let lacks_clock = self.local.clock().is_kept() && header.clock_at().is_none();
        if bytes > slot_bytes
            || bytes * 2 < slot_bytes
            || lacks_deadline
            || lacks_etag
            || lacks_clock
        {
            return None;
        }
        self.changed = Changed::Announced;
        if header.has_deadline() {
            let old = view.deadline_unix_ms();
            view.set_deadline(deadline);
            self.note_deadline(old, deadline);
        }
        if header.has_etag() {
            view.set_etag(etag);
        }
        view.set_header(header.with_value(form, value_len));
        self.use_again(&view);
        Some(view)
    }

    /// Starts a new record in a slot of its own: everything but the value, which the caller writes.
    fn draft(
        &mut self,
        form: Form,
        value_bytes: usize,
        value_len: u32,
        attributes: Attributes,
    ) -> Result<View<'a>, StoreError> {
        let fields = self.fields(attributes);
        let class = class_for(fields.bytes() + value_bytes).ok_or(StoreError::TooLarge)?;
        let long_key = match fields.inline_key {
            None if self.spot.is_none() => {
                // A snapshot saves the key with a value's length, and could not refuse it any more.
                length(self.key.bytes().len())?;
                Some(Blob::from_bytes(&self.shared.slab, self.key.bytes())?)
            }
            _ => None,
        };
        let offset = self.local.cache.allocate(class)?;
        let header = Header::new(fields, class, form, value_len);
        let view = View::create(self.shared.arena_ref(), offset, header);
        let view = view.ok_or(StoreError::TooLarge)?;
        if let Some(deadline) = attributes.deadline {
            view.set_deadline(Some(deadline));
        }
        if attributes.etag != 0 {
            view.set_etag(attributes.etag);
        }
        view.set_clock(self.local.clock().fresh());
        match (fields.inline_key, self.view()) {
            (Some(_), _) => view.write_key(self.key.bytes()),
            (None, Some(old)) => view.set_long_key_word(old.long_key_word().unwrap_or(0)),
            (None, None) => view.set_long_key_word(long_key.map_or(0, Blob::into_raw)),
        }
        Ok(view)
    }

    /// Replaces the record with a draft, or adds the draft if there is no record. The key of a
    /// draft that replaces a record was that record's.
    fn publish(&mut self, draft: View<'a>, old_value: OldValue) -> Result<(), StoreError> {
        let deadline = draft.deadline_unix_ms();
        let flags = flags_of(&draft);
        let Some(spot) = self.spot else {
            return self.publish_new(draft, flags);
        };
        let old = self.view();
        let visited = spot.link.flags() & Link::VISITED;
        let link = Link::new(self.key.hash(), draft.offset(), flags | visited);
        self.changed = Changed::Announced;
        spot.bucket.set_link(spot.at, link);
        self.spot = Some(Spot { link, ..spot });
        if let Some(old) = old {
            self.note_deadline(old.deadline_unix_ms(), deadline);
            if old_value == OldValue::Free {
                // SAFETY: the value of the old record, which no link names any more.
                unsafe { self.local.free_value(self.shared, &old) };
            }
            self.local.cache.free(old.offset(), old.class());
        }
        Ok(())
    }

    fn publish_new(&mut self, draft: View<'a>, flags: u64) -> Result<(), StoreError> {
        let link = Link::new(self.key.hash(), draft.offset(), flags);
        self.changed = Changed::Announced;
        self.spot = self.index.insert(self.home, link);
        if self.spot.is_none() {
            // SAFETY: no other thread knows of the draft.
            unsafe { self.local.free(self.shared, &draft) };
            return Err(StoreError::OutOfMemory);
        }
        self.inserted = true;
        self.local.count_keys(self.index, self.key.database(), 1);
        if let Some(slots) = self.local.cell.slots() {
            slots.count(self.key.database(), self.key.bytes(), 1);
        }
        self.note_deadline(None, draft.deadline_unix_ms());
        if self.tells_new {
            self.event(EventClass::NEW, Event::CREATED);
        }
        Ok(())
    }

    /// Counts and arms a change of the deadline. The caller updates the link.
    #[inline]
    fn note_deadline(&mut self, old: Option<u64>, new: Option<u64>) {
        let database = self.key.database();
        match (old, new) {
            (None, Some(_)) => {
                self.local.count_deadlines(self.index, database, 1);
                let home = self.index.state().home(self.key.hash());
                self.index.deadlines.note(home.number);
            }
            (Some(_), None) => self.local.count_deadlines(self.index, database, -1),
            _ => {}
        }
        if let Some(deadline) = new
            && old.is_none_or(|old| deadline < old)
        {
            let (id, now) = (self.index.id(), self.local.now_unix_ms);
            self.local.deadlines.arm(id, self.key.hash(), deadline, now);
        }
    }

    /// Updates the link's flags and the clock after a change in the slot.
    #[inline]
    fn use_again(&mut self, view: &View<'a>) {
        if let Some(clock) = view.clock().and_then(|word| self.local.clock().used(word)) {
            view.set_clock(clock);
        }
        let Some(spot) = &mut self.spot else {
            return;
        };
        let used = if self.local.in_force.uses_marks() {
            Link::VISITED
        } else {
            spot.link.flags() & Link::VISITED
        };
        let link = spot.link.with_flags(flags_of(view) | used);
        if link != spot.link {
            spot.link = link;
            spot.bucket.set_link(spot.at, link);
        }
    }
}

/// Returns the record of a link and the length of `bytes`, if [`Writer::overwrite`] can put these
/// in the place of its value.
#[inline]
fn to_overwrite<'s>(
    shared: &'s Shared,
    local: &Local,
    link: Link,
    bytes: &[u8],
) -> Option<(View<'s>, u32)> {
    let view = View::load_short(shared.arena_ref(), link.offset()?).filter(View::is_bare)?;
    let (used_bytes, slot_bytes) = (view.value_at() + bytes.len(), class_bytes(view.class()));
    let fits = used_bytes <= slot_bytes && used_bytes * 2 >= slot_bytes;
    let len = u32::try_from(bytes.len()).ok()?;
    let notes_use = local.in_force.notes_use();
    (fits && bytes.len() <= OPTIMISTIC_BYTES_MAX && !notes_use).then_some((view, len))
}

/// Saves what must be saved before a change of `key`, whose bucket is held and behind: only one
/// record if the change will only overwrite it with a `value`, otherwise the whole bucket.
#[cold]
fn save_before(
    shared: &Shared,
    local: &Local,
    index: &Index,
    home: &Bucket,
    key: &Key<'_>,
    value: Option<&[u8]>,
) {
    let is = |link: Link| {
        // SAFETY: the bucket is held.
        view_of(shared, link).is_some_and(|view| unsafe { view.key_is(key.bytes()) })
    };
    // A value that is not kept as text takes another path.
    let text = value.filter(|value| parse_i64(value).is_none());
    if let Some(text) = text
        && let Some(spot) = index.find(home, key.hash(), is)
        && to_overwrite(shared, local, spot.link, text).is_some()
        && (spot.link.has(Link::SAVED) || local.save_alone(shared, index, spot))
    {
        return;
    }
    local.save_first(shared, index, home);
}

/// What happens to the value of a record that is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OldValue {
    /// It is freed.
    Free,
    /// It moves to the new record.
    Moved,
}

/// Returns the flags of a record's link.
#[inline]
fn flags_of(view: &View<'_>) -> u64 {
    let header = view.header();
    let is_long = matches!(view.form(), Form::Blob | Form::Cold)
        || view.form().is_object()
        || header.fields().inline_key.is_none()
        || header.value_len() > OPTIMISTIC_BYTES_MAX;
    let mut flags = 0;
    if view.deadline_unix_ms().is_some() {
        flags |= Link::DEADLINE;
    }
    if is_long {
        flags |= Link::LOCKED_READ;
    }
    flags
}

/// Runs `look` with the text of a record that is neither blob nor object, or with an empty text if
/// there is none. The caller holds its bucket.
fn with_text<R>(view: Option<View<'_>>, look: impl FnOnce(&[u8]) -> R) -> R {
    match view {
        None => look(b""),
        Some(view) if view.form() == Form::Integer => {
            look(IntegerText::new(view.integer()).as_bytes())
        }
        // SAFETY: only a `Writer` calls this, with the record whose bucket it holds.
        Some(view) => unsafe { view.with_inline_value(look) },
    }
}

/// Returns a value's length as the header keeps it.
#[inline]
fn length(len: usize) -> Result<u32, StoreError> {
    u32::try_from(len).map_err(|_| StoreError::TooLarge)
}

impl From<Option<u64>> for Deadline {
    fn from(deadline_unix_ms: Option<u64>) -> Self {
        deadline_unix_ms.map_or(Self::Never, Self::At)
    }
}

impl From<OutOfMemory> for StoreError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}
