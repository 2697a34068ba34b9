//! Objects of records: how the two words of a record lead to a structure on the heap.
//!
//! ```text
//!   Form::Object    pointer to the object      bytes that it was counted with
//!   Form::Compact   pointer to its one buffer  capacity, length, front, count: 16 bits each
//! ```
//!
//! A record owns its object. A collection that is one short buffer is kept in parts, of which kind it is
//! in the header's length of the value: so it takes one allocation, not two. Who looks at it or changes
//! it has it put together beside the record meanwhile, and a change ends with taking it apart again. What
//! has become more than a buffer goes into a box, and stays there.
//!
//! The pointer is in a word that readers without the lock may copy, but only who holds the record's
//! bucket follows it, so that an ordinary `&mut` is sound. The record keeps the bytes that the object was
//! counted with, or the capacity that they follow from, so that what is counted down when it goes is what
//! was counted up.

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

/// An object on its way into a record.
pub(crate) enum Body {
    Boxed(Box<Object>),
    Compact(Compact),
}

impl Body {
    /// A structure that is in no box yet.
    #[inline]
    pub(crate) fn of(mut structure: impl Kept) -> Self {
        match structure.take_compact() {
            Some(compact) => Self::Compact(compact),
            None => Self::Boxed(Box::new(structure.into_object())),
        }
    }

    /// An object in a box, which it leaves if it is one short buffer.
    pub(crate) fn of_box(mut object: Box<Object>) -> Self {
        match object.take_compact() {
            Some(compact) => Self::Compact(compact),
            None => Self::Boxed(object),
        }
    }
}

/// Keeps an object in a record for objects, whose words have been taken from or were never written; the
/// bytes it is counted with. It is freed only through [`take`] or [`free`].
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

/// Says in a record's header that it has parts of this kind.
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

/// The bytes that the object of a record was counted with; 0 of another record.
#[inline]
pub(crate) fn counted_bytes(view: &View<'_>) -> u64 {
    match view.form() {
        Form::Object => view.second_word(),
        Form::Compact => Shape(view.second_word()).counted_bytes(),
        Form::Bytes | Form::ChangedBytes | Form::Integer | Form::Blob | Form::Cold => 0,
    }
}

/// Takes the object out of a record; none of a record of something else.
///
/// # Safety
/// What the record has was put there by [`keep`], its bucket is held or nobody else comes to it, and its
/// words are not used again.
pub(crate) unsafe fn take(view: &View<'_>) -> Option<Box<Object>> {
    match view.form() {
        // SAFETY: passed on to the caller: it is the pointer of a box that was given up.
        Form::Object => Some(unsafe { Box::from_raw(pointer(view)) }),
        Form::Compact => {
            let kind = kind(view)?;
            // SAFETY: passed on to the caller: the buffer is nobody else's from now on.
            let buffer = unsafe { buffer(view) };
            Some(Box::new(Object::from_compact(Compact { kind, buffer })))
        }
        Form::Bytes | Form::ChangedBytes | Form::Integer | Form::Blob | Form::Cold => None,
    }
}

/// Frees the object of a record, if it has one, however long that takes.
///
/// # Safety
/// As [`take`].
pub(crate) unsafe fn free_here(view: &View<'_>) {
    if view.form() == Form::Compact {
        // SAFETY: passed on to the caller: the buffer is nobody else's from now on.
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

/// The object in the box of a record; none of another record.
///
/// # Safety
/// As [`look`].
#[inline]
pub(crate) unsafe fn boxed<'a>(view: &View<'a>) -> Option<&'a Object> {
    // SAFETY: passed on to the caller.
    (view.form() == Form::Object).then(|| unsafe { &*pointer(view) })
}

/// A structure that is shown for as long as its record stays as it is.
#[derive(Debug)]
pub struct Lent<'a, T>(Source<'a, T>);

#[derive(Debug)]
enum Source<'a, T> {
    /// In its box, or wherever it is.
    InPlace(&'a T),
    /// Put together beside its record, whose buffer it has as well: it is never dropped.
    Apart(ManuallyDrop<T>),
    /// Loaded from where cold values are kept.
    Loaded(Arc<ColdValue>),
}

impl<'a, T> Lent<'a, T> {
    /// Something that is where it is.
    #[cfg(any(test, feature = "naive"))]
    pub(crate) fn in_place(object: &'a T) -> Self {
        Self(Source::InPlace(object))
    }
}

impl<T: Kept> Lent<'_, T> {
    /// What was loaded, if it is that.
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

/// The object of a record to look at, or the structure in it, which stays in the record; none where there
/// is another or none.
///
/// # Safety
/// What the record has was put there by [`keep`], and its bucket is held, without a change of the object,
/// for `'a`.
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
            // SAFETY: passed on to the caller: nobody changes the buffer or frees it meanwhile, as this does
            // not, for it is only looked at and not dropped.
            let buffer = unsafe { buffer(view) };
            let object = T::from_compact(Compact { kind, buffer });
            Some(Lent(Source::Apart(ManuallyDrop::new(object))))
        }
        Form::Bytes | Form::ChangedBytes | Form::Integer | Form::Blob | Form::Cold => None,
    }
}

/// The object in the box of a record of that form, for a change.
///
/// # Safety
/// As [`look`], and there is no other use of the object meanwhile.
#[inline]
pub(crate) unsafe fn change<'a>(view: &View<'a>) -> &'a mut Object {
    debug_assert_eq!(view.form(), Form::Object);
    // SAFETY: passed on to the caller.
    unsafe { &mut *pointer(view) }
}

/// Takes a structure out of a record in [`Form::Compact`] for a change, after which it is
/// [given back](give_back); none where that has another one. Meanwhile the record has an empty buffer, so
/// that there is none in two places, even if the change ends in a panic.
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

/// Puts what became of a structure that was [taken out](open) into its record again and leaves an empty one,
/// which holds no memory. Where that has changed, the bytes that it was and is counted with; `before` is
/// the second word of the record from before.
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

/// Moves pieces of the object of a record, as far as a relocation says; nothing of another record.
///
/// # Safety
/// What the record has was put there by [`keep`], its bucket is held, and there is no other use of the object
/// meanwhile.
pub(crate) unsafe fn move_pieces(view: &View<'_>, relocation: &mut Relocation<'_>) {
    match view.form() {
        Form::Object => {
            // SAFETY: passed on to the caller.
            let object = unsafe { &mut *pointer(view) };
            object.move_pieces(relocation);
            if relocation.rest().is_some() {
                return;
            }
            // SAFETY: as above: it is the pointer of a box that was given up, and is given up again below. Nothing
            // in between panics: where there is no memory left the process ends.
            let mut boxed = ManuallyDrop::new(unsafe { Box::from_raw(pointer(view)) });
            if relocation.boxed(&mut boxed, || Object::List(List::new())) {
                let pointer = ManuallyDrop::into_inner(boxed);
                view.set_value_word(Box::into_raw(pointer).expose_provenance() as u64);
            }
        }
        Form::Compact => {
            // SAFETY: passed on to the caller. It is not dropped here: it stays the record's.
            let mut bytes = ManuallyDrop::new(unsafe { buffer(view) }.bytes);
            if relocation.buffer(&mut bytes) {
                view.set_value_word(bytes.as_mut_ptr().expose_provenance() as u64);
            }
        }
        Form::Bytes | Form::ChangedBytes | Form::Integer | Form::Blob | Form::Cold => {}
    }
}

/// Starts to bring what the pointer of an object's record leads to into the cache. Any word will do:
/// nothing is read.
#[inline]
pub(crate) fn prefetch(word: u64) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
    {
        let address: *const i8 = std::ptr::without_provenance(distance(word));
        // SAFETY: a prefetch has no effect but on caches, whatever the address.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address);
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
    let _ = word;
}

/// Which structure a record in [`Form::Compact`] has.
#[inline]
fn kind(view: &View<'_>) -> Option<CompactKind> {
    let number = u8::try_from(view.header().value_len()).ok()?;
    CompactKind::from_number(number)
}

/// The buffer of a record.
///
/// # Safety
/// The record is in [`Form::Compact`] as [`keep`] left it, and its bucket is held or nobody else comes to
/// it. The buffer is the record's as well: only one of both may change or free it.
#[inline(always)]
unsafe fn buffer(view: &View<'_>) -> OneBuffer {
    let shape = Shape(view.second_word());
    let pointer = std::ptr::with_exposed_provenance_mut(distance(view.value_word()));
    // SAFETY: these are the parts of a vector of bytes that `keep_buffer` took apart, and the caller sees
    // to it that it is one vector still.
    let bytes = unsafe { Vec::from_raw_parts(pointer, shape.len(), shape.capacity()) };
    OneBuffer {
        bytes,
        front: shape.front(),
        count: shape.count(),
    }
}

/// What a record says of a buffer: its capacity and length in bytes, and what stands beside it in
/// [`OneBuffer`], in 16 bits each.
#[derive(Clone, Copy)]
struct Shape(u64);

impl Shape {
    /// Of a buffer that is nowhere.
    const EMPTY: Self = Self(0);

    #[inline(always)]
    fn new(buffer: &OneBuffer) -> Self {
        let OneBuffer {
            bytes,
            front,
            count,
        } = buffer;
        // What is freed is as long as this says: better no server than one that frees something else.
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
