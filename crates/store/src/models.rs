//! The store itself under a model checker: `--cfg loom` tries every interleaving of two or three
//! threads with a bounded number of preemptions, `--cfg shuttle` random ones of larger tests.
//!
//! Nothing here is a copy of the algorithms: these are handles of a real store with a small arena,
//! two size classes and a table of one or two buckets.

#![allow(clippy::unwrap_used, reason = "a wrong test fails")]

mod parking;
mod snapshots;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::sync::thread;
use structures::{BlockLimit, Element, End, List};

use crate::handle::Handle;
use crate::index::Shape;
use crate::mover::pieces::PieceHand;
use crate::store::Store;
use crate::value::Deadline;

/// The key is empty, so that values of two sizes fit into the two size classes of the models.
const KEY: &[u8] = b"";

#[cfg(loom)]
fn check(test: impl Fn() + Sync + Send + 'static) {
    check_deeply(2, test);
}

/// As [`check`], with this many preemptions.
#[cfg(loom)]
fn check_deeply(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 100_000;
    model.check(test);
}

#[cfg(all(shuttle, not(loom)))]
fn check(test: impl Fn() + Sync + Send + 'static) {
    check_deeply(3, test);
}

#[cfg(all(shuttle, not(loom)))]
fn check_deeply(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    shuttle::check_pct(test, 1_000, preemptions);
}

fn store(buckets_max: usize) -> Arc<Store> {
    let shape = Shape {
        level: 0,
        buckets_max,
        overflow_max: 3,
    };
    Store::for_model(10, shape)
}

fn set(handle: &mut Handle, key: &[u8], value: &[u8]) {
    let key = handle.key(0, key);
    handle.upsert(&key, value, Deadline::Never, |_| ()).unwrap();
}

/// Returns a copy of the value, as a command would.
fn get(handle: &mut Handle, key: &[u8]) -> Option<Vec<u8>> {
    let key = handle.key(0, key);
    handle.read(&key, |record| record.map(|record| record.to_vec()))
}

fn increment(handle: &mut Handle, key: &[u8]) {
    let key = handle.key(0, key);
    handle.modify(&key, |entry| {
        let record = entry.record();
        let number = record.and_then(|record| record.integer()).unwrap_or(0);
        entry.set_integer(number + 1, Deadline::Keep).unwrap();
    });
}

fn number(handle: &mut Handle, key: &[u8]) -> Option<i64> {
    let key = handle.key(0, key);
    handle.read(&key, |record| record.and_then(|record| record.integer()))
}

/// Returns two names of one byte. A split moves the first to the new bucket but not the second.
fn moving(handle: &Handle) -> [u8; 2] {
    [1, 0].map(|bit| {
        let mut keys = 10..=u8::MAX;
        keys.find(|key| handle.hash(&[*key]) & 1 == bit).unwrap()
    })
}

/// A value whose words are equal is never seen half changed, whether it is overwritten in its slot
/// or in another slot, which may have been freed just before.
#[test]
fn a_reader_sees_a_whole_value() {
    check(|| {
        let store = store(1);
        let mut handle = store.handle();
        set(&mut handle, KEY, b"aaaaaaaaaaaaaaaa");
        let mut other = store.handle();
        let writer = thread::spawn(move || {
            set(&mut other, KEY, b"bbbbbbbbbbbbbbbb");
            set(&mut other, KEY, b"cccccccc");
        });
        let value = get(&mut handle, KEY).expect("never deleted");
        assert!(value.iter().all(|byte| *byte == value[0]), "{value:?}");
        assert_eq!(value.len() == 8, value[0] == b'c');
        writer.join().unwrap();
        assert_eq!(get(&mut handle, KEY).unwrap(), b"cccccccc");
    });
}

/// The slot of a deleted key is used for another key: a reader of either sees its own value or
/// none.
#[test]
fn a_slot_used_again_fools_nobody() {
    check(|| {
        let store = store(1);
        let mut handle = store.handle();
        set(&mut handle, b"one", b"11111111");
        let mut other = store.handle();
        let writer = thread::spawn(move || {
            let key = other.key(0, b"one");
            other.delete(&key, |_| ());
            set(&mut other, b"two", b"22222222");
        });
        let one = get(&mut handle, b"one");
        assert!(one.is_none_or(|value| value == b"11111111"));
        let two = get(&mut handle, b"two");
        assert!(two.is_none_or(|value| value == b"22222222"));
        writer.join().unwrap();
    });
}

/// As before, but the slot goes to another thread, for a key in another bucket: only the order of
/// memory operations can show this to the reader.
#[test]
fn a_slot_handed_over_fools_nobody() {
    check(|| {
        let store = store(2);
        let mut handle = store.handle();
        let mut other = store.handle();
        let [one, two] = moving(&handle);
        for key in [one, two, 0] {
            set(&mut other, &[key], b"11111111");
        }
        assert_eq!(handle.buckets(0), 2);
        let key = handle.key(0, std::slice::from_ref(&two));
        handle.delete(&key, |_| ());
        let deleter = thread::spawn(move || {
            let key = other.key(0, std::slice::from_ref(&one));
            other.delete(&key, |_| ());
            other.give_slots_back();
        });
        let mut third = store.handle();
        let writer = thread::spawn(move || set(&mut third, &[two], b"22222222"));
        let value = get(&mut handle, &[one]);
        assert!(value.is_none_or(|value| value == b"11111111"));
        deleter.join().unwrap();
        writer.join().unwrap();
    });
}

/// Three records in two chunks, of which one record is deleted: the others are moved into one
/// chunk. A concurrent reader finds each of them whole, and a writer's change is in whichever slot
/// the record has afterwards.
#[test]
fn a_move_hides_nothing() {
    static MOVED: AtomicU64 = AtomicU64::new(0);
    check(|| {
        let store = store(1);
        let mut handle = store.handle();
        for key in 0..3_u8 {
            set(&mut handle, &[key], &[b'0' + key; 16]);
        }
        let key = handle.key(0, &[1]);
        handle.delete(&key, |_| ());
        let mut other = store.handle();
        let reader = thread::spawn(move || {
            assert_eq!(get(&mut other, &[2]).unwrap(), [b'2'; 16]);
            set(&mut other, &[0], &[b'9'; 16]);
        });
        handle.purge();
        handle.tick(1);
        reader.join().unwrap();
        assert_eq!(get(&mut handle, &[0]).unwrap(), [b'9'; 16]);
        assert_eq!(get(&mut handle, &[2]).unwrap(), [b'2'; 16]);
        MOVED.fetch_add(store.statistics().moved, Ordering::Relaxed);
    });
    assert!(
        MOVED.load(Ordering::Relaxed) > 0,
        "there was nothing to move"
    );
}

/// A list whose buffer is moved while another thread looks at it and changes it: both see all of
/// it, and the change is in whichever buffer the list has afterwards.
#[test]
fn a_move_of_pieces_hides_nothing() {
    static MOVED: AtomicU64 = AtomicU64::new(0);
    check(|| {
        let store = store(1);
        let mut handle = store.handle();
        push(&mut handle, 1);
        let mut other = store.handle();
        let writer = thread::spawn(move || {
            assert_eq!(list_len(&mut other), 1);
            push(&mut other, 2);
            assert_eq!(list_len(&mut other), 2);
        });
        let mut hand = PieceHand::default();
        while handle.move_pieces(&mut hand, u64::MAX, &mut |_| true) {}
        writer.join().unwrap();
        assert_eq!(list_len(&mut handle), 2);
        MOVED.fetch_add(store.statistics().moved, Ordering::Relaxed);
    });
    assert!(
        MOVED.load(Ordering::Relaxed) > 0,
        "there was nothing to move"
    );
}

fn push(handle: &mut Handle, number: i64) {
    let key = handle.key(0, KEY);
    let pushed = handle.modify(&key, |entry| {
        entry.change_or_create(|list: &mut List| {
            list.push(End::Back, Element::Integer(number), BlockLimit::default());
        })
    });
    pushed.unwrap();
}

/// Number of elements of the list; the elements are the numbers from 1 on.
fn list_len(handle: &mut Handle) -> usize {
    let key = handle.key(0, KEY);
    handle.read(&key, |record| {
        let list = record.and_then(|record| record.structure::<List>().ok());
        list.map_or(0, |list| {
            for (number, element) in (1..).zip(list.iter()) {
                assert_eq!(element, Element::Integer(number));
            }
            list.len()
        })
    })
}

/// Two writers of one key: no increment is lost.
#[test]
fn a_bucket_has_one_holder() {
    check(|| {
        let store = store(1);
        let mut handle = store.handle();
        set(&mut handle, KEY, b"0");
        let mut other = store.handle();
        let writer = thread::spawn(move || increment(&mut other, KEY));
        increment(&mut handle, KEY);
        writer.join().unwrap();
        assert_eq!(number(&mut handle, KEY), Some(2));
    });
}

/// Three keys in a table of one bucket: the third splits it. A concurrent reader finds all existing
/// keys.
#[test]
fn a_split_hides_nothing_from_readers() {
    check(|| {
        let store = store(2);
        let mut handle = store.handle();
        for key in moving(&handle) {
            set(&mut handle, &[key], b"1");
        }
        let mut other = store.handle();
        let reader = thread::spawn(move || {
            for key in moving(&other) {
                assert_eq!(number(&mut other, &[key]), Some(1));
            }
        });
        set(&mut handle, &[2], b"1");
        reader.join().unwrap();
    });
}

/// As before with a writer: its change must be in whichever bucket the key is afterwards.
#[test]
fn a_split_loses_no_write() {
    check(|| {
        let store = store(2);
        let mut handle = store.handle();
        for key in moving(&handle) {
            set(&mut handle, &[key], b"1");
        }
        let mut other = store.handle();
        let writer = thread::spawn(move || {
            for key in moving(&other) {
                increment(&mut other, &[key]);
            }
        });
        set(&mut handle, &[2], b"1");
        writer.join().unwrap();
        for key in moving(&handle) {
            assert_eq!(number(&mut handle, &[key]), Some(2));
        }
    });
}

/// A table of two buckets with a key in each.
fn two_buckets() -> (Arc<Store>, Handle) {
    let store = store(2);
    let mut handle = store.handle();
    let [near, far] = moving(&handle);
    for key in [near, far, 0] {
        set(&mut handle, &[key], b"1");
    }
    assert_eq!(handle.buckets(0), 2);
    (store, handle)
}

/// Two buckets become one: a concurrent reader finds all existing keys.
#[test]
fn a_merge_hides_nothing_from_readers() {
    check(|| {
        let (store, mut handle) = two_buckets();
        let mut other = store.handle();
        let reader = thread::spawn(move || {
            for key in moving(&other) {
                assert_eq!(number(&mut other, &[key]), Some(1));
            }
        });
        handle.merge(0);
        reader.join().unwrap();
    });
}

/// Two buckets become one and, by another thread's insertion, two again, while a third looks.
#[test]
#[cfg_attr(loom, ignore = "too many interleavings of three threads")]
fn a_merge_undone_hides_nothing() {
    check(|| {
        let (store, mut handle) = two_buckets();
        let (mut other, mut third) = (store.handle(), store.handle());
        let reader = thread::spawn(move || {
            for key in moving(&other) {
                assert_eq!(number(&mut other, &[key]), Some(1));
            }
        });
        let writer = thread::spawn(move || set(&mut third, &[3], b"1"));
        handle.merge(0);
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(number(&mut handle, &[3]), Some(1));
    });
}

/// A change made while two buckets become one is in the merged bucket.
#[test]
fn a_merge_loses_no_write() {
    check(|| {
        let (store, mut handle) = two_buckets();
        let mut other = store.handle();
        let writer = thread::spawn(move || {
            for key in moving(&other) {
                increment(&mut other, &[key]);
            }
        });
        handle.merge(0);
        writer.join().unwrap();
        for key in moving(&handle) {
            assert_eq!(number(&mut handle, &[key]), Some(2));
        }
    });
}

/// A key in an overflow bucket moves to the home bucket when another key is removed, and the
/// overflow bucket is used again in the same chain: the key is found all the time.
#[test]
fn an_overflow_bucket_used_again_hides_nothing() {
    check(|| {
        let store = store(1);
        let mut handle = store.handle();
        for key in 0..3_u8 {
            set(&mut handle, &[key], b"1");
        }
        let mut other = store.handle();
        let reader = thread::spawn(move || {
            assert_eq!(number(&mut other, &[2]), Some(1));
            assert_eq!(number(&mut other, &[1]), Some(1));
        });
        let key = handle.key(0, &[0]);
        handle.delete(&key, |_| ());
        set(&mut handle, &[3], b"1");
        assert_eq!(number(&mut handle, &[3]), Some(1));
        reader.join().unwrap();
    });
}

/// Two threads lock two keys, named in opposite orders: no deadlock, and the sum stays.
#[test]
fn two_keys_are_one_step() {
    check(|| {
        let store = store(2);
        let mut handle = store.handle();
        // One key in each bucket, and one to make it two buckets.
        let [near, far] = moving(&handle);
        for key in [near, far, 0] {
            set(&mut handle, &[key], b"10");
        }
        assert_eq!(handle.buckets(0), 2);
        let mut other = store.handle();
        let writer = thread::spawn(move || {
            let (near, far) = ([near], [far]);
            let keys = [other.key(0, &near), other.key(0, &far)];
            other.locked(&keys, |handle| {
                for (key, change) in keys.iter().zip([-1, 1]) {
                    handle.modify(key, |entry| {
                        let number = entry.record().unwrap().integer().unwrap();
                        entry.set_integer(number + change, Deadline::Keep).unwrap();
                    });
                }
            });
        });
        let (near, far) = ([near], [far]);
        let keys = [handle.key(0, &far), handle.key(0, &near)];
        let sum: i64 = handle.locked(&keys, |handle| {
            keys.iter()
                .map(|key| handle.read(key, |record| record.unwrap().integer().unwrap()))
                .sum()
        });
        assert_eq!(sum, 20);
        writer.join().unwrap();
    });
}

/// A thread that has the store for itself sees both of two writes of a batch or none.
#[test]
fn nobody_is_inside_when_one_is_alone() {
    check(|| {
        let store = store(1);
        let mut handle = store.handle();
        set(&mut handle, b"a", b"1");
        set(&mut handle, b"b", b"1");
        let mut other = store.handle();
        let writer = thread::spawn(move || {
            other.enter();
            increment(&mut other, b"a");
            increment(&mut other, b"b");
            other.leave();
        });
        handle.exclusive(|handle| {
            assert_eq!(number(handle, b"a"), number(handle, b"b"));
        });
        writer.join().unwrap();
    });
}

/// A flush, a reader and a writer: the reader sees the old value, none, or the new one, and no
/// write touches the memory of the old index.
#[test]
fn a_flush_is_one_step() {
    check(|| {
        let store = store(1);
        let mut handle = store.handle();
        set(&mut handle, KEY, b"old");
        let mut other = store.handle();
        let writer = thread::spawn(move || {
            other.flush(None);
            set(&mut other, KEY, b"new");
        });
        let value = get(&mut handle, KEY);
        assert!(value.is_none_or(|value| value == b"old" || value == b"new"));
        writer.join().unwrap();
        assert_eq!(get(&mut handle, KEY).unwrap(), b"new");
        assert_eq!(handle.len(0), 1);
    });
}

/// A test that only shuttle can afford: three threads with all operations, a growing table, sums at
/// the end.
#[cfg(all(shuttle, not(loom)))]
#[test]
fn everything_at_once() {
    check(|| {
        // Large enough that no schedule exhausts it: slots that each thread keeps in its cache,
        // late splits.
        let shape = Shape {
            level: 0,
            buckets_max: 4,
            overflow_max: 16,
        };
        let store = Store::for_model(64, shape);
        let threads: Vec<_> = (0..3_u8)
            .map(|thread| {
                let store = Arc::clone(&store);
                thread::spawn(move || {
                    let mut handle = store.handle();
                    for round in 0..2_u8 {
                        set(&mut handle, &[thread, round], b"1");
                        increment(&mut handle, b"shared");
                        assert_eq!(number(&mut handle, &[thread, round]), Some(1));
                        if round % 2 == 1 {
                            let name = [thread, round - 1];
                            let key = handle.key(0, &name);
                            assert!(handle.delete(&key, |_| ()));
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let mut handle = store.handle();
        assert_eq!(number(&mut handle, b"shared"), Some(6));
        assert_eq!(handle.len(0), 4);
        let mut walked = 0;
        let mut cursor = 0;
        loop {
            cursor = handle.scan(0, cursor, 2, |_| walked += 1);
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(walked, 4);
    });
}
