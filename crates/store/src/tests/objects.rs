//! Objects: counted, freed, moved between keys, and never followed without the lock.

use std::sync::atomic::{AtomicBool, Ordering};

use structures::{BlockLimit, Element, End, List};

use super::Force;
use crate::handle::Handle;
use crate::policy::Policy;
use crate::value::{Deadline, Kind, StoreError};

/// So many elements that freeing them is left to the separate thread.
const MANY: i64 = 300_000;

fn push(handle: &mut Handle, name: &str, numbers: std::ops::Range<i64>) {
    let key = handle.key(0, name.as_bytes());
    let limit = BlockLimit::default();
    let pushed = handle.modify(&key, |entry| {
        entry.change_or_create(|list: &mut List| {
            for number in numbers {
                list.push(End::Back, Element::Integer(number), limit);
            }
        })
    });
    pushed.unwrap();
}

fn len(handle: &mut Handle, name: &str) -> Option<usize> {
    let key = handle.key(0, name.as_bytes());
    handle.read(&key, |record| {
        let record = record?;
        Some(record.structure::<List>().map_or(0, |list| list.len()))
    })
}

fn used_bytes(handle: &mut Handle) -> u64 {
    let now = handle.now_unix_ms();
    handle.tick(now);
    handle.statistics().used_bytes
}

/// The same to the byte: advances time far enough that the thread reports its counts.
fn exactly_used_bytes(handle: &mut Handle) -> u64 {
    let later = handle.now_unix_ms() + 10_000;
    handle.begin(later);
    used_bytes(handle)
}

/// Waits until no object is left to be freed.
fn wait_for_lazy_free(handle: &Handle) {
    while handle.statistics().lazyfree_pending > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn what_objects_take_is_counted_while_they_change_and_when_they_go() {
    let store = Force::TINY.store(2);
    let mut handle = store.handle();
    handle.begin(1_000);
    push(&mut handle, "first", 0..1);
    let before = used_bytes(&mut handle);
    let ways: [fn(&mut Handle); 6] = [
        |handle| {
            let key = handle.key(0, b"l");
            assert!(handle.delete(&key, |_| ()));
        },
        |handle| {
            let key = handle.key(0, b"l");
            handle
                .upsert(&key, b"text", Deadline::Never, |_| ())
                .unwrap();
            handle.delete(&key, |_| ());
        },
        |handle| {
            let key = handle.key(0, b"l");
            handle
                .modify(&key, |entry| entry.set_deadline(Some(1_001)))
                .unwrap();
            handle.begin(1_002);
            assert!(len(handle, "l").is_none());
            handle.modify(&key, |entry| assert!(!entry.is_present()));
            handle.begin(1_000);
        },
        |handle| {
            let key = handle.key(0, b"l");
            let limit = BlockLimit::default();
            let all = |list: &mut List| list.pop(End::Front, usize::MAX, limit);
            assert_eq!(handle.modify(&key, |entry| entry.change(all)), Ok(Some(())));
        },
        |handle| {
            let key = handle.key(0, b"l");
            drop(handle.modify(&key, |entry| entry.take()));
        },
        |handle| {
            let (key, other) = (handle.key(0, b"l"), handle.key(0, b"m"));
            let copy = handle.modify(&key, |entry| entry.duplicate()).unwrap();
            handle.modify(&other, |entry| entry.put(copy)).unwrap();
            assert_eq!(len(handle, "m"), len(handle, "l"));
            handle.delete(&key, |_| ());
            handle.delete(&other, |_| ());
        },
    ];
    for (number, end) in ways.iter().enumerate() {
        push(&mut handle, "l", 0..20_000);
        let grown = used_bytes(&mut handle);
        assert!(grown > before + 20_000 * 3, "way {number}: {grown}");
        end(&mut handle);
        assert!(len(&mut handle, "l").is_none(), "way {number}");
        // A deadline leaves a little memory behind: that of its wheel.
        assert!(used_bytes(&mut handle) <= before + 1024, "way {number}");
    }
    push(&mut handle, "l", 0..20_000);
    handle.flush(None);
    wait_for_lazy_free(&handle);
    assert!(used_bytes(&mut handle) < before + 4096, "flushed");
}

#[test]
fn a_small_collection_is_its_record_and_one_buffer() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(1_000);
    push(&mut handle, "first", 0..5);
    let before = exactly_used_bytes(&mut handle);
    let limit = BlockLimit::default();
    let ways: [fn(&mut Handle); 5] = [
        |handle| {
            let key = handle.key(0, b"l");
            assert!(handle.delete(&key, |_| ()));
        },
        |handle| {
            let key = handle.key(0, b"l");
            let set = handle.upsert(&key, b"text", Deadline::Never, |_| ());
            set.unwrap();
            handle.delete(&key, |_| ());
        },
        |handle| {
            let (key, other) = (handle.key(0, b"l"), handle.key(0, b"m"));
            let moved = handle.modify(&key, |entry| entry.take()).unwrap();
            handle.modify(&other, |entry| entry.put(moved)).unwrap();
            let copy = handle.modify(&other, |entry| entry.duplicate()).unwrap();
            handle.modify(&other, |entry| entry.put(copy)).unwrap();
            assert_eq!(len(handle, "m"), Some(9));
            handle.delete(&other, |_| ());
        },
        |handle| {
            // Once it is more than a buffer it has a box, and keeps it.
            push(handle, "l", 9..20_000);
            assert_eq!(len(handle, "l"), Some(20_000));
            let key = handle.key(0, b"l");
            let limit = BlockLimit::default();
            let most = |list: &mut List| list.pop(End::Back, 19_991, limit);
            assert_eq!(
                handle.modify(&key, |entry| entry.change(most)),
                Ok(Some(()))
            );
            assert_eq!(len(handle, "l"), Some(9));
            handle.delete(&key, |_| ());
        },
        |handle| {
            let key = handle.key(0, b"l");
            handle.modify(&key, |entry| {
                entry.set_etag(7).unwrap();
                let copy = entry.duplicate().unwrap();
                entry.put(copy).unwrap();
            });
            assert_eq!(len(handle, "l"), Some(9));
            handle.delete(&key, |_| ());
        },
    ];
    for (number, end) in ways.iter().enumerate() {
        push(&mut handle, "l", 0..9);
        // Header, key, the two words of an object; 18 bytes of elements in an allocation of 32.
        assert_eq!(
            exactly_used_bytes(&mut handle),
            before + 32 + 32,
            "way {number}"
        );
        end(&mut handle);
        assert_eq!(exactly_used_bytes(&mut handle), before, "way {number}");
    }
    let key = handle.key(0, b"first");
    let held = len(&mut handle, "first").unwrap();
    let more = |list: &mut List| list.push(End::Back, Element::Integer(7), limit);
    handle.modify(&key, |entry| entry.change(more)).unwrap();
    assert_eq!(len(&mut handle, "first"), Some(held + 1));
    assert_eq!(exactly_used_bytes(&mut handle), before, "there was room");
}

/// The content is lost, but it never has two owners. (The binary ends at any panic.)
#[test]
fn a_change_that_panics_leaves_a_small_collection_empty() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    push(&mut handle, "l", 0..9);
    let key = handle.key(0, b"l");
    for _ in 0..2 {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let change = |list: &mut List| {
                // The record must not lead to this buffer any more. (What is left at the panic is
                // never freed.)
                *list = List::new();
                panic!("in the middle of a change");
            };
            handle.modify(&key, |entry| entry.change(change))
        }));
        assert!(panicked.is_err());
        assert_eq!(len(&mut handle, "l"), Some(0));
        push(&mut handle, "l", 0..5);
        assert_eq!(len(&mut handle, "l"), Some(5));
    }
    assert!(handle.delete(&key, |_| ()));
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn a_long_object_is_freed_by_another_thread() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    push(&mut handle, "long", 0..MANY);
    push(&mut handle, "short", 0..10);
    for name in ["long", "short"] {
        let key = handle.key(0, name.as_bytes());
        assert!(handle.delete(&key, |_| ()));
    }
    wait_for_lazy_free(&handle);
    assert_eq!(handle.statistics().lazyfreed, 1);
    store.reset_statistics();
    assert_eq!(handle.statistics().lazyfreed, 0);
    // Emptying a database of a few keys checks how much memory they lead to.
    for (long, freed) in [(0..10, 0), (0..MANY, 2)] {
        push(&mut handle, "long", long);
        push(&mut handle, "short", 0..10);
        assert_eq!(handle.flush(None), 2);
        wait_for_lazy_free(&handle);
        assert_eq!(handle.statistics().lazyfreed, freed);
    }
}

#[test]
fn other_kinds_are_refused_and_left_alone() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    push(&mut handle, "l", 0..3);
    let list = handle.key(0, b"l");
    let text = handle.key(0, b"s");
    handle
        .upsert(&text, b"text", Deadline::Never, |_| ())
        .unwrap();
    let refused = Err(StoreError::WrongKind);
    handle.modify(&list, |entry| {
        assert_eq!(entry.append(b"x"), refused);
        assert_eq!(entry.write_at(0, b"x"), refused);
        let record = entry.record().unwrap();
        assert_eq!(record.kind(), Kind::Object(structures::Kind::List));
        assert_eq!((record.len(), record.integer()), (0, None));
    });
    handle.modify(&text, |entry| {
        assert_eq!(entry.change(|_: &mut List| ()), Err(StoreError::WrongKind));
        let created = entry.change_or_create(|_: &mut List| ());
        assert_eq!(created, Err(StoreError::WrongKind));
    });
    assert_eq!(len(&mut handle, "l"), Some(3));
    let text = handle.read(&text, |record| record.map(|record| record.to_vec()));
    assert_eq!(text.unwrap(), b"text");
}

#[test]
fn a_key_that_nothing_was_put_into_does_not_stay() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    let key = handle.key(0, b"l");
    let nothing = handle.modify(&key, |entry| entry.change_or_create(|_: &mut List| ()));
    assert_eq!(nothing, Ok(()));
    assert_eq!(len(&mut handle, "l"), None);
    assert_eq!(handle.len(0), 0);
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn the_memory_limit_counts_objects() {
    const LIMIT_BYTES: u64 = 4 << 20;
    for policy in [
        Policy::AllKeysLru,
        Policy::AllKeysLfu,
        Policy::AllKeysRandom,
    ] {
        let store = Force::TINY.store(1);
        store.set_memory_limit(LIMIT_BYTES, policy, 5);
        let mut handle = store.handle();
        for round in 0..500_i64 {
            handle.begin(1_000 + round.unsigned_abs());
            handle.make_room(20_000).unwrap();
            push(&mut handle, &format!("l:{}", round % 400), 0..5_000);
            let used = used_bytes(&mut handle);
            assert!(used <= LIMIT_BYTES + (256 << 10), "{policy}: {used}");
        }
        assert!(store.statistics().evicted > 100, "{policy}");
    }
}

/// Readers without the lock meet keys that change from strings into lists and back.
#[test]
fn readers_never_follow_what_another_thread_frees() {
    let store = Force::TINY.store(1);
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut handle = store.handle();
                let key = handle.key(0, b"k");
                while !done.load(Ordering::Relaxed) {
                    handle.read(&key, |record| {
                        let Some(record) = record else { return };
                        if let Some(object) = record.object() {
                            let list = record.structure::<List>().unwrap();
                            assert!(!object.is_empty());
                            let sum: usize = list.iter().map(|element| element.len()).sum();
                            assert_eq!(sum, list.len(), "elements of one digit");
                        } else {
                            let _copy = record.to_vec();
                        }
                    });
                }
            });
        }
        let mut handle = store.handle();
        let key = handle.key(0, b"k");
        for round in 0..rounds {
            match round % 4 {
                0 => handle
                    .upsert(&key, b"a text", Deadline::Never, |_| ())
                    .unwrap(),
                1 => drop(handle.modify(&key, |entry| entry.take())),
                2 => push(&mut handle, "k", 0..9),
                _ => push(&mut handle, "k", 0..3),
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}
