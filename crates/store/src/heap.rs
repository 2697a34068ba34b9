//! Objects of records: how the two words of a record lead to a structure on the heap.
//!
//! ```text
//!   Form::Object    pointer to the object      bytes that it was counted with
//!   Form::Compact   pointer to its one buffer  capacity, length, front, count: 16 bits each
//! ```
//!
//! A record owns its object. A collection that is one short buffer is kept in parts, and the value
//! length in the header says which kind it is: so it takes one allocation, not two. For a look or a
//! change, it is assembled outside the record, and a change ends with taking it apart again. An
//! object that has become more than a buffer goes into a box, and stays there.
//!
//! Readers without the lock may copy the word with the pointer, but only the holder of the record's
//! bucket follows it, so an ordinary `&mut` is sound. The record keeps the bytes that the object
//! was counted with, or the capacity that they follow from, so that its removal subtracts exactly
//! what was added.

use std::mem::{ManuallyDrop, replace};
use std::ops::Deref;
use std::sync::Arc;

use structures::memory::allocated;
use structures::{
    Compact, CompactKind, Kept, List, ONE_BUFFER_BYTES_END, Object, OneBuffer, Relocation,
    Structure,
};

use crate::arena::distance;
use crate::cold::ColdValue;
use crate::layout::{Form, View};
use crate::lazy_free::LazyFree;

/// An object that is about to go into a record.
pub(crate) enum Body {
    Boxed(Box<Object>),
    Compact(Compact),
}

impl Body {
    /// Returns the body of a structure that is not in a box yet.
    #[inline]
    pub(crate) fn of(mut structure: impl Kept) -> Self {
        match structure.take_compact() {
            Some(compact) => Self::Compact(compact),
            None => Self::Boxed(Box::new(structure.into_object())),
        }
    }

    /// Returns the body of an object in a box. An object that is one short buffer leaves the box.
    pub(crate) fn of_box(mut object: Box<Object>) -> Self {
        match object.take_compact() {
            Some(compact) => Self::Compact(compact),
            None => Self::Boxed(object),
        }
    }
}

/// Puts an object into a record for objects whose words were never written or whose object was
/// taken out. Returns the bytes that it is counted with. Only [`take`] or [`free`] frees it.
#[inline]
pub(crate) fn keep(view: &mut View<'_>, body: Body) -> u64 {
    match body {
        Body::Compact(compact) => keep_compact(view, compact),
        Body::Boxed(object) => keep_boxed(view, object),
    }
}

#[inline(always)]
fn keep_compact(view: &mut View<'_>, compact: Compact) -> u64 {
    keep_kind(view, compact.kind);
    keep_buffer(view, compact.buffer).counted_bytes()
}

/// Notes the kind of the parts in a record's header.
#[inline(always)]
fn keep_kind(view: &mut View<'_>, kind: CompactKind) {
    let number = u32::from(kind.number());
    if view.form() != Form::Compact || self::kind(view) != Some(kind) {
        view.set_header(view.header().with_value(Form::Compact, number));
    }
}

/// Writes the parts of a buffer into a record.
#[inline(always)]
fn keep_buffer(view: &View<'_>, buffer: OneBuffer) -> Shape {
    let shape = Shape::new(&buffer);
    let mut bytes = ManuallyDrop::new(buffer.bytes);
    view.set_value_word(bytes.as_mut_ptr().expose_provenance() as u64);
    view.set_second_word(shape.0);
    shape
}

fn keep_boxed(view: &mut View<'_>, object: Box<Object>) -> u64 {
    let bytes = object.memory_bytes() as u64;
    let pointer = Box::into_raw(object).expose_provenance() as u64;
    view.set_value_word(pointer);
    view.set_second_word(bytes);
    view.set_header(view.header().with_value(Form::Object, 0));
    bytes
}

/// The bytes that the object of a record was counted with; 0 for a record without an object.
#[inline]
pub(crate) fn counted_bytes(view: &View<'_>) -> u64 {
    match view.form() {
        Form::Object => view.second_word(),
        Form::Compact => Shape(view.second_word()).counted_bytes(),
        Form::Bytes | Form::ChangedBytes | Form::Integer | Form::Blob | Form::Cold => 0,
    }
}

/// Takes the object out of a record; `None` if the record has none.
///
/// # Safety
/// [`keep`] put the object into the record; the record's bucket is held or no other thread can
/// reach it; and its words are not used again.
pub(crate) unsafe fn take(view: &View<'_>) -> Option<Box<Object>> {
    match view.form() {
        // SAFETY: passed on to the caller: it is the pointer of a box that was released.
        Form::Object => Some(unsafe { Box::from_raw(pointer(view)) }),
        Form::Compact => {
            let kind = kind(view)?;
            // SAFETY: passed on to the caller: nothing else owns the buffer from now on.
            let buffer = unsafe { buffer(view) };
            Some(Box::new(Object::from_compact(Compact { kind, buffer })))
        }
        Form::Bytes | Form::ChangedBytes | Form::Integer | Form::Blob | Form::Cold => None,
    }
}

/// Frees the object of a record, if it has one, on this thread, however long that takes.
///
/// # Safety
/// As [`take`].
pub(crate) unsafe fn free_here(view: &View<'_>) {
    if view.form() == Form::Compact {
        // SAFETY: passed on to the caller: nothing else owns the buffer from now on.
        drop(unsafe { buffer(view) });
    } else {
        // SAFETY: passed on to the caller.
        drop(unsafe { take(view) });
    }
}

/// As [`free_here`], on `lazy`'s thread if that takes long.
///
/// # Safety
/// As [`take`].
pub(crate) unsafe fn free(view: &View<'_>, lazy: &LazyFree) {
    if view.form() == Form::Compact {
        // SAFETY: passed on to the caller.
        unsafe { free_here(view) };
        return;
    }
    // SAFETY: passed on to the caller.
    let object = unsafe { take(view) };
    if let Some(object) = object.filter(|object| object.is_slow_to_free()) {
        lazy.submit(1, object);
    }
}

/// Returns the object in the box of a record, or `None` for another record.
///
/// # Safety
/// As [`look`].
#[inline]
pub(crate) unsafe fn boxed<'a>(view: &View<'a>) -> Option<&'a Object> {
    // SAFETY: passed on to the caller.
    (view.form() == Form::Object).then(|| unsafe { &*pointer(view) })
}

/// A structure that can be looked at as long as its record does not change.
#[derive(Debug)]
pub struct Lent<'a, T>(Source<'a, T>);

#[derive(Debug)]
enum Source<'a, T> {
    /// In its box, or at another fixed place.
    InPlace(&'a T),
    /// Assembled outside its record, which also owns the buffer: so this is never dropped.
    Apart(ManuallyDrop<T>),
    /// Loaded from the store of cold values.
    Loaded(Arc<ColdValue>),
}

impl<'a, T> Lent<'a, T> {
    /// Lends a structure at a fixed place.
    #[cfg(any(test, feature = "naive"))]
    pub(crate) fn in_place(object: &'a T) -> Self {
        Self(Source::InPlace(object))
    }
}

impl<T: Kept> Lent<'_, T> {
    /// Lends a loaded value, or returns `None` if it is of another kind.
    pub(crate) fn loaded(value: Arc<ColdValue>) -> Option<Self> {
        part_of::<T>(&value)?;
        Some(Self(Source::Loaded(value)))
    }
}

fn part_of<T: Kept>(value: &ColdValue) -> Option<&T> {
    match value {
        ColdValue::Object(object) => T::of(object),
        ColdValue::Text(_) => None,
    }
}

impl<T: Kept> Deref for Lent<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        match &self.0 {
            Source::InPlace(object) => object,
            Source::Apart(object) => object,
            Source::Loaded(value) => {
                part_of(value).unwrap_or_else(|| unreachable!("looked at when it was lent"))
            }
        }
    }
}

/// Returns the object of a record, or the structure in it, for a look; it stays in the record.
/// `None` if the record has another structure or none.
///
/// # Safety
/// [`keep`] put the object into the record, and for `'a` its bucket is held and its object does not
/// change.
#[inline(always)]
pub(crate) unsafe fn look<'a, T: Kept>(view: &View<'a>) -> Option<Lent<'a, T>> {
    match view.form() {
        Form::Object => {
            // SAFETY: passed on to the caller.
            let object = unsafe { &*pointer(view) };
            T::of(object).map(|object| Lent(Source::InPlace(object)))
        }
        Form::Compact => {
            let kind = kind(view).filter(|kind| T::can_be(*kind))?;
            // SAFETY: passed on to the caller: nothing changes or frees the buffer meanwhile. Nor
            // does this function, because the result is only looked at and not dropped.
            let buffer = unsafe { buffer(view) };
            let object = T::from_compact(Compact { kind, buffer });
            Some(Lent(Source::Apart(ManuallyDrop::new(object))))
        }
        Form::Bytes | Form::ChangedBytes | Form::Integer | Form::Blob | Form::Cold => None,
    }
}

/// Returns the object in the box of a record of that form, for a change.
///
/// # Safety
/// As [`look`], and there is no other use of the object meanwhile.
#[inline]
pub(crate) unsafe fn change<'a>(view: &View<'a>) -> &'a mut Object {
    debug_assert_eq!(view.form(), Form::Object);
    // SAFETY: passed on to the caller.
    unsafe { &mut *pointer(view) }
}

/// Takes a structure out of a record in [`Form::Compact`] for a change, after which it is [given
/// back](give_back); `None` if the record has another structure. Meanwhile the record has an empty
/// buffer, so that the buffer never has two owners, even if the change ends in a panic.
///
/// # Safety
/// As [`look`], and there is no other use of the object meanwhile.
#[inline(always)]
pub(crate) unsafe fn open<T: Kept>(view: &View<'_>) -> Option<T> {
    debug_assert_eq!(view.form(), Form::Compact);
    let kind = kind(view).filter(|kind| T::can_be(*kind))?;
    // SAFETY: passed on to the caller: the record forgets the buffer.
    let buffer = unsafe { buffer(view) };
    view.set_second_word(Shape::EMPTY.0);
    Some(T::from_compact(Compact { kind, buffer }))
}

/// Puts a structure that was [taken out](open) and changed back into its record, and leaves an
/// empty structure, which holds no memory. If the counted bytes changed, returns the bytes before
/// and now. `before` is the second word of the record before the change.
#[inline(always)]
pub(crate) fn give_back(
    view: &mut View<'_>,
    structure: &mut impl Structure,
    before: u64,
) -> Option<(u64, u64)> {
    let before = Shape(before);
    let Some(Compact { kind, buffer }) = structure.take_compact() else {
        return Some((before.counted_bytes(), give_box(view, structure)));
    };
    let now = keep_buffer(view, buffer);
    keep_kind(view, kind);
    let has_changed = now.capacity() != before.capacity();
    has_changed.then(|| (before.counted_bytes(), now.counted_bytes()))
}

#[cold]
#[inline(never)]
fn give_box<S: Structure>(view: &mut View<'_>, structure: &mut S) -> u64 {
    let structure = replace(structure, S::empty());
    keep_boxed(view, Box::new(structure.into_object()))
}

/// Moves pieces of the object of a record, as far as a relocation says; does nothing for a record
/// without an object.
///
/// # Safety
/// [`keep`] put the object into the record, its bucket is held, and there is no other use of the
/// object meanwhile.
pub(crate) unsafe fn move_pieces(view: &View<'_>, relocation: &mut Relocation<'_>) {
    match view.form() {
        Form::Object => {
            // SAFETY: passed on to the caller.
            let object = unsafe { &mut *pointer(view) };
            object.move_pieces(relocation);
            if relocation.rest().is_some() {
                return;
            }
            // SAFETY: as above: it is the pointer of a box that was released, and it is released
            // again below. Nothing in between panics: if there is no memory left, the process
            // aborts.
            let mut boxed = ManuallyDrop::new(unsafe { Box::from_raw(pointer(view)) });
            if relocation.boxed(&mut boxed, || Object::List(List::new())) {
                let pointer = ManuallyDrop::into_inner(boxed);
                view.set_value_word(Box::into_raw(pointer).expose_provenance() as u64);
            }
        }
        Form::Compact => {
            // SAFETY: passed on to the caller. It is not dropped here: the record still owns it.
            let mut bytes = ManuallyDrop::new(unsafe { buffer(view) }.bytes);
            if relocation.buffer(&mut bytes) {
                view.set_value_word(bytes.as_mut_ptr().expose_provenance() as u64);
            }
        }
        Form::Bytes | Form::ChangedBytes | Form::Integer | Form::Blob | Form::Cold => {}
    }
}

/// Prefetches what the pointer of an object's record leads to. Any word will do: nothing is read.
#[inline]
pub(crate) fn prefetch(word: u64) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
    {
        let address: *const i8 = std::ptr::without_provenance(distance(word));
        // SAFETY: a prefetch affects nothing but caches, whatever the address.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address);
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
    let _ = word;
}

/// Returns the kind of structure of a record in [`Form::Compact`].
#[inline]
fn kind(view: &View<'_>) -> Option<CompactKind> {
    let number = u8::try_from(view.header().value_len()).ok()?;
    CompactKind::from_number(number)
}

/// Returns the buffer of a record.
///
/// # Safety
/// The record is in [`Form::Compact`] as [`keep`] left it, and its bucket is held or no other
/// thread can reach it. The record owns the buffer as well: only one of the two may change or free
/// it.
#[inline(always)]
unsafe fn buffer(view: &View<'_>) -> OneBuffer {
    let shape = Shape(view.second_word());
    let pointer = std::ptr::with_exposed_provenance_mut(distance(view.value_word()));
    // SAFETY: these are the parts of a vector of bytes that `keep_buffer` took apart, and the
    // caller ensures that they still are one vector.
    let bytes = unsafe { Vec::from_raw_parts(pointer, shape.len(), shape.capacity()) };
    OneBuffer {
        bytes,
        front: shape.front(),
        count: shape.count(),
    }
}

/// What a record says of a buffer: its capacity and length in bytes, and the other two fields of
/// [`OneBuffer`], in 16 bits each.
#[derive(Clone, Copy)]
struct Shape(u64);

impl Shape {
    /// The shape of no buffer.
    const EMPTY: Self = Self(0);

    #[inline(always)]
    fn new(buffer: &OneBuffer) -> Self {
        let OneBuffer {
            bytes,
            front,
            count,
        } = buffer;
        // Memory is freed with this capacity: a wrong one would free something else, so the process
        // must not go on.
        assert!(bytes.capacity() < ONE_BUFFER_BYTES_END);
        debug_assert!(*front < 1 << 16 && *count < 1 << 16);
        let (capacity, len) = (bytes.capacity() as u64, bytes.len() as u64);
        Self(capacity | len << 16 | u64::from(*front) << 32 | u64::from(*count) << 48)
    }

    #[inline(always)]
    fn capacity(self) -> usize {
        distance(self.0 & 0xffff)
    }

    #[inline(always)]
    fn len(self) -> usize {
        distance(self.0 >> 16 & 0xffff)
    }

    #[inline(always)]
    fn front(self) -> u32 {
        (self.0 >> 32 & 0xffff) as u32
    }

    #[inline(always)]
    fn count(self) -> u32 {
        (self.0 >> 48) as u32
    }

    #[inline]
    fn counted_bytes(self) -> u64 {
        allocated(self.capacity()) as u64
    }
}

#[inline]
fn pointer(view: &View<'_>) -> *mut Object {
    std::ptr::with_exposed_provenance_mut(distance(view.value_word()))
}
