//! A clone of a large object takes little memory, as a counting allocator shows.
//!
//! In a separate binary, because it replaces the allocator.

#![allow(clippy::unwrap_used, reason = "a wrong test fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use structures::{
    BlockLimit, Element, End, EntryId, FieldDeadline, Hash, HashLimits, Kept, List, Object, Set,
    SetLimits, SortedSet, SortedSetLimits, Stream, StreamLimits,
};

/// The system's allocator, with a count per thread, because the test runner allocates while a test
/// takes long.
struct Counting;

thread_local! {
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no count any more, and is not measured.
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + layout.size()));
        // SAFETY: the obligation is passed on to the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the obligation is passed on to the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const COUNT: i64 = 50_000;
const HASHES: HashLimits = HashLimits {
    listpack_entries: 128,
    listpack_value_bytes: 64,
};
const SETS: SetLimits = SetLimits {
    intset_entries: 512,
    listpack_entries: 128,
    listpack_value_bytes: 64,
};
const SORTED_SETS: SortedSetLimits = SortedSetLimits {
    listpack_entries: 128,
    listpack_value_bytes: 64,
};

fn list() -> Object {
    let mut list = List::new();
    for number in 0..COUNT {
        list.push(End::Back, Element::Integer(number), BlockLimit::default());
    }
    list.into_object()
}

fn hash() -> Object {
    let mut hash = Hash::new();
    for number in 0..COUNT {
        let name = number.to_string();
        hash.set(
            name.as_bytes(),
            b"some value",
            FieldDeadline::Never,
            0,
            &HASHES,
        )
        .unwrap();
    }
    hash.into_object()
}

fn set() -> Object {
    let mut set = Set::new();
    for number in 0..COUNT {
        let member = format!("member {number}");
        set.insert(member.as_bytes(), &SETS).unwrap();
    }
    set.into_object()
}

fn sorted_set() -> Object {
    let mut set = SortedSet::new();
    for number in 0..u32::try_from(COUNT).unwrap() {
        let member = format!("member {number}");
        set.insert(member.as_bytes(), f64::from(number), &SORTED_SETS)
            .unwrap();
    }
    set.into_object()
}

fn stream() -> Object {
    let mut stream = Stream::new();
    for ms in 1..u64::try_from(COUNT).unwrap() {
        let id = EntryId { ms, seq: 0 };
        let fields = [(b"field".as_slice(), b"some value".as_slice())];
        stream
            .log_mut()
            .append(id, fields.into_iter(), StreamLimits::default())
            .unwrap();
    }
    stream.into_object()
}

#[test]
fn a_clone_takes_no_more_than_was_said() {
    for make in [list, hash, set, sorted_set, stream] {
        let object = make();
        let before = BYTES.with(Cell::get);
        let clone = object.clone();
        let taken = BYTES.with(Cell::get) - before;
        let kind = object.kind().name();
        let (said, whole) = (object.copy_bytes(), object.memory_bytes());
        assert!(taken <= said, "{kind}: {taken} of {said}");
        assert!(said < whole / 8, "{kind}: {said} of {whole}");
        assert_eq!(clone, object);
    }
}
