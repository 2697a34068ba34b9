//! A store in which another server decides what is removed: it removes nothing by itself, and hides
//! expired records.

use super::{Force, Notes};
use crate::handle::Handle;
use crate::policy::Policy;
use crate::value::Deadline;

const START: u64 = 1_700_000_000_000;

fn set(handle: &mut Handle, key: &str, deadline: Deadline) {
    let key = handle.key(0, key.as_bytes());
    handle.make_room(8).unwrap();
    handle.upsert(&key, b"value", deadline, |_| ()).unwrap();
}

fn exists(handle: &mut Handle, key: &str) -> bool {
    let key = handle.key(0, key.as_bytes());
    handle.read(&key, |record| record.is_some())
}

fn tick_all(handle: &mut Handle, now: u64) {
    handle.begin(now);
    while handle.tick(now) {}
}

#[test]
fn what_is_due_is_hidden_and_nobody_removes_it() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(START);
    set(&mut handle, "key", Deadline::At(START + 10));
    store.set_follower(true);
    let notes = Notes::default();
    handle.set_sink(Some(Box::new(notes.clone())));
    handle.begin(START + 20);
    assert!(!exists(&mut handle, "key"), "readers do not see it");
    assert_eq!(handle.next_expiry_unix_ms(), None);
    tick_all(&mut handle, START + 30);
    let key = handle.key(0, b"key");
    let seen = handle.modify(&key, |entry| entry.is_present());
    assert!(seen, "a writer finds it as it is");
    assert_eq!((handle.len(0), handle.expiring_len(0)), (1, 1));
    assert!(notes.take().is_empty(), "nothing was stated");
    store.set_follower(false);
    tick_all(&mut handle, START + 40);
    assert_eq!(handle.len(0), 0, "a primary sweeps again");
}

#[test]
fn who_applies_finds_what_the_primary_found() {
    let store = Force::TINY.store(1);
    store.set_follower(true);
    let mut applier = store.handle();
    applier.set_ageless(true);
    applier.begin(START);
    set(&mut applier, "key", Deadline::At(START - 10));
    assert!(exists(&mut applier, "key"));
    assert_eq!(applier.now_unix_ms(), START, "effects have their time");
    let mut reader = store.handle();
    reader.begin(START);
    assert!(!exists(&mut reader, "key"));
    let key = applier.key(0, b"key");
    assert!(applier.delete(&key, |_| ()), "the primary's DEL finds it");
    assert_eq!(applier.len(0), 0);
}

#[test]
fn nothing_is_evicted_and_no_write_refused_for_memory() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(1);
    store.set_follower(true);
    for policy in [Policy::AllKeysLru, Policy::NoEviction] {
        store.set_memory_limit(1, policy, 5);
        for number in 0..200 {
            set(&mut handle, &number.to_string(), Deadline::Never);
        }
        while handle.tick(2) {}
        assert_eq!(handle.len(0), 200);
    }
}

/// A pause of clients may begin and end meanwhile.
#[test]
fn a_pause_that_ends_does_not_end_following() {
    let store = Force::TINY.store(1);
    store.set_follower(true);
    store.hold_removals(true);
    store.hold_removals(false);
    assert!(store.holds_removals() && store.is_follower());
    store.set_follower(false);
    assert!(!store.holds_removals());
}
