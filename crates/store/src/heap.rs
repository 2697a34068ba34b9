//! Objects of records: how a word of a record leads to a structure on the heap.
//!
//! A record owns its object. The pointer is in a word that readers without the lock may copy, but
//! only who holds the record's bucket follows it, so that an ordinary `&mut` is sound. Beside it the
//! record keeps the bytes that the object was counted with, so that what is counted down when it
//! goes is what was counted up.

use structures::Object;

use crate::lazy_free::LazyFree;

/// The object as a word to keep in a record. It is freed only through [`take`].
pub(crate) fn leak(object: Box<Object>) -> u64 {
    Box::into_raw(object).expose_provenance() as u64
}

/// The object that [`leak`] turned into `word`.
///
/// # Safety
/// `word` came from there and is taken back once; nobody uses the object through it again.
pub(crate) unsafe fn take(word: u64) -> Box<Object> {
    // SAFETY: passed on to the caller: it is the pointer of a box that was given up.
    unsafe { Box::from_raw(pointer(word)) }
}

/// A look at the object in `word`, which stays in its record.
///
/// # Safety
/// `word` came from [`leak`], and the record's bucket is held, without a change of the object, for
/// as long as the result is used.
#[inline]
pub(crate) unsafe fn look<'a>(word: u64) -> &'a Object {
    // SAFETY: passed on to the caller.
    unsafe { &*pointer(word) }
}

/// The object in `word` for a change.
///
/// # Safety
/// As [`look`], and there is no other use of the object meanwhile.
#[inline]
pub(crate) unsafe fn change<'a>(word: u64) -> &'a mut Object {
    // SAFETY: passed on to the caller.
    unsafe { &mut *pointer(word) }
}

/// Starts to bring the object in `word` into the cache. Any word will do: nothing is read.
#[inline]
pub(crate) fn prefetch(word: u64) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
    {
        let address: *const i8 = std::ptr::without_provenance(crate::arena::distance(word));
        // SAFETY: a prefetch has no effect but on caches, whatever the address.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address);
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
    let _ = word;
}

/// Frees an object, on `lazy`'s thread if that takes long.
pub(crate) fn free(object: Box<Object>, lazy: &LazyFree) {
    if object.is_slow_to_free() {
        lazy.submit(1, object);
    }
}

fn pointer(word: u64) -> *mut Object {
    std::ptr::with_exposed_provenance_mut(crate::arena::distance(word))
}
