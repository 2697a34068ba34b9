//! A listener of a key is notified of every change of it, and of nothing else.

use std::sync::{Arc, Mutex};

use structures::{FieldDeadline, Hash, HashLimits};

use super::Force;
use crate::handle::Handle;
use crate::listeners::{ChangeKind, Interest, KeyChange, Listener};
use crate::store::{Options, Store};
use crate::value::{Deadline, StoreError};

const START: u64 = 1_700_000_000_000;

const LIMITS: HashLimits = HashLimits {
    listpack_entries: 128,
    listpack_value_bytes: 64,
};

/// Records its notifications, and returns the same result each time.
struct Ear {
    answer: Interest,
    heard: Mutex<Vec<(String, u16, ChangeKind, u64)>>,
}

impl Ear {
    fn new(answer: Interest) -> (Arc<Self>, Arc<dyn Listener>) {
        let ear = Arc::new(Self {
            answer,
            heard: Mutex::default(),
        });
        (Arc::clone(&ear), ear)
    }

    fn kinds(&self) -> Vec<ChangeKind> {
        let heard = std::mem::take(&mut *self.heard.lock().unwrap());
        heard.into_iter().map(|(_, _, kind, _)| kind).collect()
    }
}

impl Listener for Ear {
    fn changed(&self, change: &KeyChange<'_>) -> Interest {
        let key = String::from_utf8_lossy(change.key).into_owned();
        let heard = (key, change.database, change.kind, change.author);
        self.heard.lock().unwrap().push(heard);
        self.answer
    }
}

fn set(handle: &mut Handle, key: &str) {
    set_until(handle, key, Deadline::Never);
}

fn set_until(handle: &mut Handle, key: &str, deadline: Deadline) {
    let key = handle.key(0, key.as_bytes());
    handle
        .upsert(&key, b"value", deadline, |entry| entry.announce())
        .unwrap();
}

/// Returns stores with one bucket for all keys, with many buckets, and the plain map.
fn stores() -> [Arc<Store>; 3] {
    let one_bucket = Force {
        hash_mask: 0,
        ..Force::TINY
    };
    [
        one_bucket.store(2),
        Force::TINY.store(2),
        Store::naive(&Options { databases: 2 }),
    ]
}

#[test]
fn every_change_of_the_key_is_told_and_no_other() {
    for store in stores() {
        let mut handle = store.handle();
        handle.begin(START);
        let (ear, listener) = Ear::new(Interest::Keep);
        let key = handle.key(0, b"key");
        handle.listen(&key, &listener);
        handle.listen(&key, &listener);
        set(&mut handle, "other");
        assert_eq!(ear.kinds(), []);
        set(&mut handle, "key");
        set(&mut handle, "key");
        assert_eq!(ear.kinds(), [ChangeKind::Written; 2]);
        handle.read(&key, |record| assert!(record.is_some()));
        handle.modify(&key, |entry| assert!(entry.is_present()));
        assert_eq!(ear.kinds(), [], "looking changes nothing");
        handle.delete(&key, |_| ());
        handle.delete(&key, |_| ());
        assert_eq!(ear.kinds(), [ChangeKind::Removed]);
        handle.unlisten(&key, &listener);
        set(&mut handle, "key");
        assert_eq!(ear.kinds(), []);
    }
}

#[test]
fn a_structure_is_changed_when_somebody_says_so() {
    for store in stores() {
        let mut handle = store.handle();
        let (ear, listener) = Ear::new(Interest::Keep);
        let key = handle.key(0, b"key");
        handle.listen(&key, &listener);
        let set_field = |handle: &mut Handle, states: bool| {
            handle.modify(&key, |entry| {
                entry.change_or_create(|hash: &mut Hash| {
                    hash.set(b"f", b"v", FieldDeadline::Never, START, &LIMITS)
                        .is_ok()
                })?;
                if states {
                    entry.effect(|_| ());
                }
                Ok::<_, StoreError>(())
            })
        };
        set_field(&mut handle, false).unwrap();
        assert_eq!(ear.kinds(), [ChangeKind::Written], "it came into being");
        set_field(&mut handle, false).unwrap();
        assert_eq!(ear.kinds(), []);
        set_field(&mut handle, true).unwrap();
        assert_eq!(ear.kinds(), [ChangeKind::Written]);
    }
}

#[test]
fn the_author_is_named_and_who_wants_no_more_is_left_alone() {
    for store in stores() {
        let mut handle = store.handle();
        let (ear, listener) = Ear::new(Interest::Forget);
        let key = handle.key(1, b"key");
        handle.listen(&key, &listener);
        handle.set_author(7);
        for _ in 0..2 {
            handle
                .upsert(&key, b"value", Deadline::Never, |_| ())
                .unwrap();
        }
        let heard = ear.heard.lock().unwrap().clone();
        assert_eq!(heard, [("key".into(), 1, ChangeKind::Written, 7)]);
    }
}

#[test]
fn keys_to_be_served_are_known_once_in_order() {
    for store in stores() {
        let mut handle = store.handle();
        let (_, listener) = Ear::new(Interest::Serve);
        for name in ["a", "b"] {
            let key = handle.key(0, name.as_bytes());
            handle.listen(&key, &listener);
        }
        assert!(!handle.has_served());
        for name in ["b", "a", "b", "c"] {
            set(&mut handle, name);
        }
        assert!(handle.has_served());
        let served = handle.take_served();
        let names = served.iter().map(|(_, key)| &**key);
        assert_eq!(names.collect::<Vec<_>>(), [b"b", b"a"]);
        assert!(!handle.has_served());
    }
}

#[test]
fn within_a_lock_set_as_well() {
    for store in stores() {
        let mut handle = store.handle();
        let (ear, listener) = Ear::new(Interest::Keep);
        let keys = [handle.key(0, b"a"), handle.key(0, b"b")];
        handle.locked(&keys, |handle| {
            handle.listen(&keys[0], &listener);
            set(handle, "a");
            assert_eq!(ear.kinds(), [ChangeKind::Written]);
            set(handle, "b");
            handle.unlisten(&keys[0], &listener);
            set(handle, "a");
        });
        assert_eq!(ear.kinds(), []);
    }
}

#[test]
fn a_key_that_expires_is_told_of_by_whoever_removes_it() {
    for by_clock in [false, true] {
        let store = Force::TINY.store(1);
        let mut handle = store.handle();
        handle.begin(START);
        let (ear, listener) = Ear::new(Interest::Keep);
        let key = handle.key(0, b"key");
        set_until(&mut handle, "key", Deadline::At(START + 10));
        handle.listen(&key, &listener);
        handle.begin(START + 10);
        if by_clock {
            while handle.tick(START + 10) {}
            assert_eq!(ear.kinds(), [ChangeKind::Expired]);
        } else {
            set(&mut handle, "key");
            assert_eq!(ear.kinds(), [ChangeKind::Expired, ChangeKind::Written]);
        }
    }
}

#[test]
fn emptying_and_exchanging_databases_is_told_of_keys_that_are_or_were() {
    for store in stores() {
        let mut handle = store.handle();
        handle.begin(START);
        let (ear, listener) = Ear::new(Interest::Keep);
        let key = handle.key(0, b"key");
        handle.listen(&key, &listener);
        handle.flush(Some(0));
        assert_eq!(ear.kinds(), [], "there was no such key");
        set(&mut handle, "key");
        ear.kinds();
        handle.flush(None);
        assert_eq!(ear.kinds(), [ChangeKind::Flushed]);
        set(&mut handle, "key");
        assert_eq!(ear.kinds(), [ChangeKind::Written], "it still listens");
        handle.swap(0, 1);
        assert_eq!(ear.kinds(), [ChangeKind::Flushed], "it is gone");
        handle.swap(0, 1);
        assert_eq!(ear.kinds(), [ChangeKind::Flushed], "it is back");
        set(&mut handle, "key");
        assert_eq!(ear.kinds(), [ChangeKind::Written]);
    }
}

#[test]
fn growing_and_shrinking_tables_forget_nobody() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(START);
    let ears: Vec<_> = (0..50)
        .map(|number| {
            let (ear, listener) = Ear::new(Interest::Keep);
            let name = format!("key:{number}");
            let key = handle.key(0, name.as_bytes());
            handle.listen(&key, &listener);
            (name, ear, listener)
        })
        .collect();
    let count = if cfg!(miri) { 100 } else { 10_000 };
    let others: Vec<_> = (0..count).map(|number| format!("other:{number}")).collect();
    others.iter().for_each(|name| set(&mut handle, name));
    for (name, ear, _) in &ears {
        set(&mut handle, name);
        assert_eq!(ear.kinds(), [ChangeKind::Written], "{name}");
    }
    for name in &others {
        let key = handle.key(0, name.as_bytes());
        handle.delete(&key, |_| ());
    }
    while handle.tick(START) {}
    for (name, ear, listener) in &ears {
        set(&mut handle, name);
        assert_eq!(ear.kinds(), [ChangeKind::Written], "{name}");
        let key = handle.key(0, name.as_bytes());
        handle.unlisten(&key, listener);
        set(&mut handle, name);
        assert_eq!(ear.kinds(), []);
    }
}
