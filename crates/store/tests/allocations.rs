//! Steady work allocates nothing: a counting allocator checks that.
//!
//! A separate binary, because it replaces the allocator.

#![allow(clippy::unwrap_used, reason = "a wrong test fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use store::{Deadline, Handle, Options, Store};

/// The system's allocator, with a count per thread, because the test runner allocates if a test
/// takes long.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

fn count() {
    // A thread that is ending has no count any more, and does not matter.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: passed on to the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on to the caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: passed on to the caller.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const KEYS: usize = 1_000;
const OPERATIONS: usize = 100_000;

fn name(number: usize) -> [u8; 12] {
    let mut name = *b"key:00000000";
    let mut rest = number;
    for digit in name[4..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap();
        rest /= 10;
    }
    name
}

fn increment(handle: &mut Handle, number: usize) {
    let name = name(number);
    let key = handle.key(0, &name);
    handle.modify(&key, |entry| {
        let record = entry.record();
        let number = record.and_then(|record| record.integer()).unwrap_or(0);
        entry.set_integer(number + 1, Deadline::Keep).unwrap();
    });
}

fn set(handle: &mut Handle, number: usize, value: &[u8]) {
    let name = name(KEYS + number);
    let key = handle.key(0, &name);
    handle.make_room(value.len()).unwrap();
    handle.upsert(&key, value, Deadline::Never, |_| ()).unwrap();
}

fn get(handle: &mut Handle, number: usize, out: &mut [u8]) -> usize {
    let name = name(KEYS + number);
    let key = handle.key(0, &name);
    let ahead = handle.lookahead(0);
    ahead.bucket(key.hash());
    ahead.records(&[key], |key| key.hash());
    handle.read(&key, |record| {
        record.map_or(0, |record| {
            let len = record.len();
            record.copy_to(0, &mut out[..len]);
            len
        })
    })
}

fn get_two(handle: &mut Handle, number: usize) {
    let names = [name(KEYS + number), name(KEYS + (number * 7) % KEYS)];
    let keys = names.each_ref().map(|name| handle.key(0, name));
    handle.locked(&keys, |handle| {
        for key in &keys {
            assert!(handle.read(key, |record| record.is_some()));
        }
    });
}

#[test]
fn steady_work_allocates_nothing() {
    let store = Store::new(&Options::default()).unwrap();
    let mut handle = store.handle();
    let values = [[b'v'; 90], [b'w'; 90]];
    let mut out = [0; 128];
    // All keys exist, and everything that is kept for reuse has been needed once.
    for number in 0..KEYS {
        increment(&mut handle, number);
        set(&mut handle, number, &values[0][..80 + number % 10]);
        set(&mut handle, number, &values[0][..40]);
        set(&mut handle, number, &values[0]);
    }
    (0..KEYS).for_each(|number| get_two(&mut handle, number));
    let before = allocations();
    for operation in 0..OPERATIONS {
        handle.begin(1_000 + operation as u64);
        handle.enter();
        let number = operation % KEYS;
        increment(&mut handle, number);
        // With sizes that stay in the slot, and some that do not.
        let len = if operation % 10 == 0 { 40 } else { 90 };
        set(&mut handle, number, &values[operation % 2][..len]);
        assert_eq!(get(&mut handle, number, &mut out), len);
        get_two(&mut handle, number);
        handle.leave();
        handle.tick(1_000);
    }
    let after = allocations();
    assert_eq!(after - before, 0);
}
