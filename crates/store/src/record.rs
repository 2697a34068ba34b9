//! A live record as a reader sees it.

use std::ops::Range;
use std::sync::Arc;

use base::number::IntegerText;
use structures::{Kept, Kind as ObjectKind, Object, Structure};

use crate::arena::{Arena, Offset};
use crate::blob::{Blob, BlobRef};
use crate::bucket::BUCKET_BYTES;
use crate::clock::Clock;
use crate::cold::{ColdKind, ColdValue, Locator};
use crate::growth::LOAD;
use crate::heap::{self, Lent};
use crate::layout::{Form, OPTIMISTIC_BYTES_MAX, View};
#[cfg(any(test, feature = "naive"))]
use crate::naive::Cell;
use crate::policy::InForce;
use crate::slab::class_bytes;
use crate::value::{EMBEDDED_BYTES_MAX, Encoding, Kind, StoreError};

/// Index memory per record: its share of a bucket at the load at which the table grows.
#[allow(clippy::cast_possible_truncation, reason = "a small constant")]
const INDEX_SHARE_BYTES: usize = BUCKET_BYTES / LOAD as usize;

/// A live record, as a reader sees it.
///
/// A reader may look while a writer writes. What it saw counts only once the store has validated
/// it, so a visitor may run again and must undo what it did before. For that reason this type hands
/// out copies and short-lived chunks, never a reference that outlives the visit.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    key: &'a [u8],
    source: Source<'a>,
}

/// Code that looks at the record of a key. A closure would do, but it is called rather than inlined
/// into its caller, and for GET that call is a tenth of the cost.
pub trait Visitor {
    /// The result of a visit.
    type Answer;

    /// Looks at the record, or at `None` if there is none. May be called more than once (see
    /// [`Record`]); the last answer counts.
    fn visit(&mut self, record: Option<&Record<'_>>) -> Self::Answer;

    /// Undoes what earlier visits did. Called before every visit except the first.
    fn forget(&mut self);
}

/// Where the record is.
#[derive(Clone, Copy)]
enum Source<'a> {
    Slot(Slot<'a>),
    #[cfg(any(test, feature = "naive"))]
    Naive(&'a Cell),
}

/// A record in its slot. Lengths of bytes and keys were read when the view was made and do not
/// change; an integer and a deadline are read on demand.
#[derive(Clone, Copy)]
struct Slot<'a> {
    view: View<'a>,
    in_force: InForce,
    now_unix_ms: u64,
    is_locked: bool,
}

impl<'a> Record<'a> {
    /// # Safety
    /// The caller holds the record's bucket for `'a`.
    #[inline]
    pub(crate) unsafe fn locked(
        key: &'a [u8],
        view: View<'a>,
        in_force: InForce,
        now_unix_ms: u64,
    ) -> Self {
        Self {
            key,
            source: Source::Slot(Slot::new(view, in_force, now_unix_ms, true)),
        }
    }

    /// Returns a record for a reader without the lock, which believes what it saw only after
    /// validation. Not for records that lead to more than their own words.
    #[inline]
    pub(crate) fn optimistic(
        key: &'a [u8],
        view: View<'a>,
        in_force: InForce,
        now_unix_ms: u64,
    ) -> Self {
        debug_assert!(view.is_short());
        Self {
            key,
            source: Source::Slot(Slot::new(view, in_force, now_unix_ms, false)),
        }
    }

    #[cfg(any(test, feature = "naive"))]
    pub(crate) fn naive(key: &'a [u8], cell: &'a Cell) -> Self {
        Self {
            key,
            source: Source::Naive(cell),
        }
    }

    /// The key's bytes.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.key
    }

    /// The kind that TYPE replies.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> Kind {
        if let Some(kind) = self.cold_kind() {
            return kind.kind();
        }
        match self.object() {
            None => Kind::String,
            Some(object) => Kind::Object(object.kind()),
        }
    }

    /// Whether the key holds a string.
    #[inline]
    #[must_use]
    pub fn is_string(&self) -> bool {
        match &self.source {
            Source::Slot(slot) => match slot.cold_kind() {
                None => !slot.view.form().is_object(),
                Some(kind) => kind.is_string(),
            },
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(cell) => cell.data.object().is_none(),
        }
    }

    /// Kind of the value if it is cold.
    #[inline]
    fn cold_kind(&self) -> Option<ColdKind> {
        match &self.source {
            Source::Slot(slot) => slot.cold_kind(),
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(_) => None,
        }
    }

    /// Whether the value is cold (OBJECT TIER).
    #[must_use]
    pub fn is_cold(&self) -> bool {
        self.cold_kind().is_some()
    }

    /// Keeps a cold value where it is for this thread until [`crate::release_held_values`]. Returns
    /// whether the value can be read.
    #[must_use]
    pub fn hold_value(&self) -> bool {
        match &self.source {
            Source::Slot(slot) if slot.view.form() == Form::Cold => {
                slot.is_locked
                    && slot
                        .view
                        .arena()
                        .cold()
                        .hold(self.key, slot.view.value_word())
            }
            Source::Slot(_) => true,
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(_) => true,
        }
    }

    /// Number of elements of a cold value of this kind (for HLEN and similar commands), or `None`
    /// if the value is in memory.
    ///
    /// # Errors
    /// [`StoreError::WrongKind`] if the key holds a cold value of another kind.
    pub fn cold_len(&self, kind: ObjectKind) -> Result<Option<usize>, StoreError> {
        match &self.source {
            Source::Slot(slot) => match slot.cold_kind() {
                None => Ok(None),
                Some(cold) if cold.kind() == Kind::Object(kind) => {
                    Ok(Some(slot.view.header().value_len()))
                }
                Some(_) => Err(StoreError::WrongKind),
            },
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(_) => Ok(None),
        }
    }

    /// The object that the key holds, or `None` if it holds a string. A reader without the lock
    /// never meets an object: the store takes the lock for it, so what is read here is the object
    /// itself. A small object is built from its record for each call: a caller that needs it more
    /// than once keeps it.
    #[inline]
    #[must_use]
    pub fn object(&self) -> Option<Lent<'_, Object>> {
        self.kept()
    }

    #[inline(always)]
    fn kept<T: Kept>(&self) -> Option<Lent<'_, T>> {
        match &self.source {
            Source::Slot(slot) => slot.kept(self.key),
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(cell) => Some(Lent::in_place(T::of(cell.data.object()?)?)),
        }
    }

    /// The structure that the key holds.
    ///
    /// # Errors
    /// [`StoreError::WrongKind`] if it holds another kind of value.
    #[inline(always)]
    pub fn structure<S: Structure>(&self) -> Result<Lent<'_, S>, StoreError> {
        self.kept().ok_or(StoreError::WrongKind)
    }

    /// The encoding that OBJECT ENCODING replies.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        match &self.source {
            Source::Slot(slot) => match slot.view.form() {
                Form::Integer => Encoding::Integer,
                Form::Bytes if slot.len() <= EMBEDDED_BYTES_MAX => Encoding::Embedded,
                Form::Cold => slot.cold_word().kind().encoding(slot.len()),
                Form::Bytes | Form::ChangedBytes | Form::Blob | Form::Object | Form::Compact => {
                    let object = slot.kept::<Object>(self.key);
                    object.map_or(Encoding::Raw, |object| Encoding::Object(object.encoding()))
                }
            },
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(cell) => cell.data.encoding(),
        }
    }

    /// Length of the string in bytes (of its text, if it is kept as an integer); 0 for an object.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.source {
            Source::Slot(slot) => slot.len(),
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(cell) => cell.data.to_bytes().len(),
        }
    }

    /// Whether the string has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The integer, if the value is kept as one.
    #[inline(always)]
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        match &self.source {
            Source::Slot(slot) => slot.number(),
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(cell) => cell.data.integer(),
        }
    }

    /// The key's deadline, in milliseconds since 1970 UTC.
    #[must_use]
    pub fn deadline_unix_ms(&self) -> Option<u64> {
        match &self.source {
            Source::Slot(slot) => slot.view.deadline_unix_ms(),
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(cell) => cell.deadline_unix_ms,
        }
    }

    /// Number that counts changes of the value, for keys whose clients asked for it; 0 for others.
    #[must_use]
    pub fn etag(&self) -> u64 {
        match &self.source {
            Source::Slot(slot) => slot.view.etag(),
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(cell) => cell.etag,
        }
    }

    /// Copies `out.len()` bytes of the string, from `start` on. The range must lie within
    /// [`Record::len`]; bytes beyond it are left as they are.
    #[inline(always)]
    pub fn copy_to(&self, start: usize, out: &mut [u8]) {
        match &self.source {
            Source::Slot(slot) => slot.copy_to(self.key, start, out),
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(cell) => copy_from(&cell.data.to_bytes(), start, out),
        }
    }

    /// Calls `visit` with the bytes of `range` in order, in one or more pieces. Each piece of a
    /// value of several pages starts at a multiple of eight bytes from the value's start.
    #[inline]
    pub fn for_each_chunk(&self, range: Range<usize>, visit: impl FnMut(&[u8])) {
        match &self.source {
            Source::Slot(slot) => slot.for_each_chunk(self.key, range, visit),
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(cell) => {
                std::iter::once(part(&cell.data.to_bytes(), range)).for_each(visit);
            }
        }
    }

    /// Pins the present bytes of `range` (clamped to the value) without copying them, so that they
    /// can be used after the visit. Returns `None` for values that are too short for that.
    #[must_use]
    pub fn pin(&self, range: Range<usize>) -> Option<BlobRef> {
        match &self.source {
            Source::Slot(slot) => slot.with_blob(|blob| blob.pin(range)),
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(_) => None,
        }
    }

    /// Returns the whole string in a new buffer.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes);
        bytes
    }

    /// Bytes the record costs: key, value, header and index share (MEMORY USAGE).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.source {
            Source::Slot(slot) => slot.memory_bytes(self.key.len()),
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(cell) => {
                let object = cell.data.object().map_or(0, Object::memory_bytes);
                self.key.len() + self.len() + object + 48
            }
        }
    }

    /// Seconds since the record was last used, if the policy keeps a clock; otherwise 0.
    #[must_use]
    pub fn idle_seconds(&self) -> u64 {
        match &self.source {
            Source::Slot(slot) => {
                let word = slot.view.clock();
                word.map_or(0, |word| slot.clock().idle_seconds(word))
            }
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(_) => 0,
        }
    }

    /// The logarithmic use counter, if the policy keeps one; otherwise 0.
    #[must_use]
    pub fn frequency(&self) -> u8 {
        match &self.source {
            Source::Slot(slot) => {
                let word = slot.view.clock();
                word.map_or(0, |word| slot.clock().frequency(word))
            }
            #[cfg(any(test, feature = "naive"))]
            Source::Naive(_) => 0,
        }
    }
}

impl<'a> Slot<'a> {
    #[inline]
    fn new(view: View<'a>, in_force: InForce, now_unix_ms: u64, is_locked: bool) -> Self {
        Self {
            view,
            in_force,
            now_unix_ms,
            is_locked,
        }
    }

    #[inline(always)]
    fn number(&self) -> Option<i64> {
        (self.view.form() == Form::Integer).then(|| self.view.integer())
    }

    #[inline(always)]
    fn len(&self) -> usize {
        match self.view.form() {
            Form::Bytes | Form::ChangedBytes | Form::Blob => self.view.header().value_len(),
            Form::Integer => base::number::decimal_len(self.view.integer()),
            Form::Cold if self.cold_word().kind().is_string() => self.view.header().value_len(),
            Form::Object | Form::Compact | Form::Cold => 0,
        }
    }

    #[inline(always)]
    fn copy_to(&self, key: &[u8], start: usize, out: &mut [u8]) {
        if !self.view.form().is_inline_bytes() {
            let (arena, offset) = (self.view.arena(), self.view.offset());
            return copy_apart(arena, offset, self.is_locked, key, start, out);
        }
        let len = self.view.header().value_len();
        let start = start.min(len);
        let count = out.len().min(len - start);
        let at = self.view.value_at() + start;
        let arena = self.view.arena();
        arena.copy_out(self.view.offset(), at, &mut out[..count]);
    }

    #[inline]
    fn for_each_chunk(&self, key: &[u8], range: Range<usize>, mut visit: impl FnMut(&[u8])) {
        match self.view.form() {
            Form::Integer => visit(part(
                IntegerText::new(self.view.integer()).as_bytes(),
                range,
            )),
            Form::Bytes | Form::ChangedBytes if self.is_locked => {
                // SAFETY: the caller that made this a locked slot vouched for it.
                unsafe {
                    self.view
                        .with_inline_value(|bytes| visit(part(bytes, range)));
                };
            }
            Form::Bytes | Form::ChangedBytes => {
                let mut copy = [0; OPTIMISTIC_BYTES_MAX];
                let end = range.end.min(self.len()).min(copy.len());
                let start = range.start.min(end);
                let copy = &mut copy[..end - start];
                self.copy_to(key, start, copy);
                visit(copy);
            }
            Form::Blob => {
                self.with_blob(|blob| blob.chunks(range).for_each(visit));
            }
            Form::Cold => {
                if let Some(ColdValue::Text(text)) = self.load(key).as_deref() {
                    visit(part(text, range));
                }
            }
            Form::Object | Form::Compact => {}
        }
    }

    fn with_blob<R>(&self, look: impl FnOnce(&Blob) -> R) -> Option<R> {
        if self.view.form() != Form::Blob || !self.is_locked {
            return None;
        }
        // SAFETY: the caller that made this a locked slot holds the bucket, so the word is the
        // record's and stays so while `look` runs.
        let blob = unsafe { Blob::look(self.view.value_word()) };
        Some(look(&blob))
    }

    #[inline(always)]
    fn kept<T: Kept>(&self, key: &[u8]) -> Option<Lent<'_, T>> {
        if !self.is_locked {
            return None;
        }
        if self.view.form() == Form::Cold {
            return self.kept_apart(key);
        }
        // SAFETY: the caller that made this a locked slot holds the bucket for as long as the slot
        // lives.
        unsafe { heap::look(&self.view) }
    }

    #[cold]
    #[inline(never)]
    fn kept_apart<T: Kept>(&self, key: &[u8]) -> Option<Lent<'_, T>> {
        if self.cold_word().kind().is_string() {
            return None;
        }
        Lent::loaded(self.load(key)?)
    }

    /// Loads the value of a stub.
    fn load(&self, key: &[u8]) -> Option<Arc<ColdValue>> {
        let is_stub = self.is_locked && self.view.form() == Form::Cold;
        is_stub
            .then(|| self.view.arena().cold().load(key, self.view.value_word()))
            .flatten()
    }

    /// The locator of a stub.
    fn cold_word(&self) -> Locator {
        Locator::from_word(self.view.value_word())
    }

    #[inline]
    fn cold_kind(&self) -> Option<ColdKind> {
        (self.view.form() == Form::Cold).then(|| self.cold_word().kind())
    }

    fn memory_bytes(&self, key_len: usize) -> usize {
        let blob = self.with_blob(Blob::memory_bytes).unwrap_or(0);
        let is_long_key = self.view.header().fields().inline_key.is_none();
        let long_key = if is_long_key { key_len } else { 0 };
        let object = usize::try_from(heap::counted_bytes(&self.view)).unwrap_or(usize::MAX);
        class_bytes(self.view.class()) + blob + object + long_key + INDEX_SHARE_BYTES
    }

    fn clock(&self) -> Clock {
        Clock::new(self.in_force, self.now_unix_ms)
    }
}

/// [`Slot::copy_to`] for a value that is not bytes in the slot. Finds the record again, so that
/// callers need not keep the view in memory for this rare call.
#[inline(never)]
fn copy_apart(
    arena: &Arena,
    offset: Offset,
    is_locked: bool,
    key: &[u8],
    start: usize,
    out: &mut [u8],
) {
    let Some(view) = View::load(arena, offset) else {
        return;
    };
    match view.form() {
        Form::Integer => copy_from(IntegerText::new(view.integer()).as_bytes(), start, out),
        Form::Blob if is_locked => {
            // SAFETY: the caller that made this a locked slot holds the bucket, so the word is the
            // record's and stays so meanwhile.
            unsafe { Blob::look(view.value_word()) }.copy_to(start, out);
        }
        Form::Cold if is_locked => {
            if let Some(ColdValue::Text(text)) =
                arena.cold().load(key, view.value_word()).as_deref()
            {
                copy_from(text, start, out);
            }
        }
        _ => {}
    }
}

/// Returns the part of `bytes` that lies in `range`.
#[inline]
fn part(bytes: &[u8], range: Range<usize>) -> &[u8] {
    let end = range.end.min(bytes.len());
    &bytes[range.start.min(end)..end]
}

/// Copies `bytes` from `start` on into `out`, as far as `out` reaches.
#[inline]
fn copy_from(bytes: &[u8], start: usize, out: &mut [u8]) {
    let source = part(bytes, start..start.saturating_add(out.len()));
    out[..source.len()].copy_from_slice(source);
}
