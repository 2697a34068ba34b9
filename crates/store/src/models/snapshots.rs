//! Snapshots under a model checker: the scanner against writers and splits.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use base::sync::atomic::Ordering;
use base::sync::thread;

use super::{check, increment, moving, set, store};
use crate::handle::Handle;
use crate::snapshot::{
    Batch, Ending, SavedValue, SnapshotLimits, SnapshotSink, SnapshotStep, Totals,
};
use crate::store::{Backend, Store};
use crate::value::Deadline;

/// Numbers by key.
#[derive(Clone, Default)]
struct Numbers(Arc<Mutex<Vec<(Vec<u8>, i64)>>>);

impl Numbers {
    fn get(&self, key: u8) -> Option<i64> {
        let numbers = self.0.lock().unwrap();
        let mut found = numbers.iter().filter(|(name, _)| *name == [key]);
        let number = found.next().map(|(_, number)| *number);
        assert!(found.next().is_none(), "saved twice");
        number
    }
}

impl SnapshotSink for Numbers {
    fn take(&mut self, batch: Batch) -> ControlFlow<()> {
        for saved in batch.records() {
            let number = match saved.value {
                SavedValue::Integer(number) => number,
                SavedValue::Bytes(text) => {
                    i64::from(text[1] - b'0') * 10 + i64::from(text[2] - b'0')
                }
                _ => unreachable!("all values are numbers"),
            };
            self.0.lock().unwrap().push((saved.key.to_vec(), number));
        }
        ControlFlow::Continue(())
    }

    fn end(&mut self, ending: Ending, _: &Totals) {
        assert_eq!(ending, Ending::Complete);
    }
}

fn snapshot(handle: &mut Handle) -> Numbers {
    let sink = Numbers::default();
    let begun = handle.begin_snapshot(Box::new(sink.clone()), SnapshotLimits::default());
    begun.unwrap();
    loop {
        match handle.advance_snapshot(8) {
            SnapshotStep::Idle => return sink,
            SnapshotStep::More => {}
            SnapshotStep::Later => thread::yield_now(),
        }
    }
}

/// A write of two keys in two buckets, and a snapshot. Texts are overwritten in their records, so
/// these are saved alone; integers are not.
fn write_two_keys(is_planted: bool, are_texts: bool) {
    let store = store(2);
    plant(&store, is_planted);
    let mut handle = store.handle();
    let [near, far] = moving(&handle);
    for key in [near, far, 0] {
        set(&mut handle, &[key], if are_texts { b"=10" } else { b"10" });
    }
    assert_eq!(handle.buckets(0), 2);
    let mut other = store.handle();
    let writer = thread::spawn(move || {
        let (near, far) = ([near], [far]);
        let keys = [other.key(0, &near), other.key(0, &far)];
        other.locked(&keys, |handle| {
            for (key, (number, text)) in keys.iter().zip([(9, b"=09"), (11, b"=11")]) {
                let changed = if are_texts {
                    handle.upsert(key, text, Deadline::Never, |_| ())
                } else {
                    handle.modify(key, |entry| entry.set_integer(number, Deadline::Keep))
                };
                changed.unwrap();
            }
        });
    });
    let saved = snapshot(&mut handle);
    let pair = (saved.get(near), saved.get(far));
    let is_whole = pair == (Some(10), Some(10)) || pair == (Some(9), Some(11));
    assert!(is_whole, "half of a write: {pair:?}");
    writer.join().unwrap();
}

/// Plants the bug of reading the generation for each bucket.
fn plant(store: &Store, is_planted: bool) {
    if let Backend::Indexed(shared) = &store.backend {
        let planted = &shared.snapshots.reads_for_each_bucket;
        planted.store(is_planted, Ordering::Relaxed);
    }
}

#[test]
fn a_cut_does_not_go_through_a_write() {
    check(|| write_two_keys(false, false));
}

#[test]
fn a_cut_does_not_go_through_a_write_that_saves_records_alone() {
    check(|| write_two_keys(false, true));
}

#[test]
#[should_panic(expected = "half of a write")]
fn reading_the_generation_for_each_bucket_is_found_out() {
    check(|| write_two_keys(true, false));
}

#[test]
#[should_panic(expected = "half of a write")]
fn it_is_found_out_of_records_that_are_saved_alone() {
    check(|| write_two_keys(true, true));
}

/// One thread overwrites a key, adds one, which splits the bucket, and overwrites another: a
/// snapshot has these changes up to some point and none after it, and each key once.
#[test]
fn a_split_takes_along_which_records_were_saved() {
    check(|| {
        let store = store(2);
        let mut handle = store.handle();
        let [near, far] = moving(&handle);
        for key in [near, far] {
            set(&mut handle, &[key], b"=01");
        }
        let mut other = store.handle();
        let writer = thread::spawn(move || {
            set(&mut other, &[near], b"=02");
            set(&mut other, &[0], b"=02");
            set(&mut other, &[far], b"=02");
        });
        let saved = snapshot(&mut handle);
        writer.join().unwrap();
        let numbers = (saved.get(near), saved.get(0), saved.get(far));
        let possible = [
            (Some(1), None, Some(1)),
            (Some(2), None, Some(1)),
            (Some(2), Some(2), Some(1)),
            (Some(2), Some(2), Some(2)),
        ];
        assert!(possible.contains(&numbers), "{numbers:?}");
    });
}

/// One thread changes a key, adds one, which splits the bucket, and changes another: a snapshot has
/// these changes up to some point and none after it.
#[test]
fn a_split_hides_nothing_from_a_snapshot() {
    check(|| {
        let store = store(2);
        let mut handle = store.handle();
        let [near, far] = moving(&handle);
        for key in [near, far] {
            set(&mut handle, &[key], b"1");
        }
        let mut other = store.handle();
        let writer = thread::spawn(move || {
            increment(&mut other, &[near]);
            set(&mut other, &[0], b"1");
            increment(&mut other, &[far]);
        });
        let saved = snapshot(&mut handle);
        let seen = [saved.get(near), saved.get(0), saved.get(far)];
        let prefixes = [
            [Some(1), None, Some(1)],
            [Some(2), None, Some(1)],
            [Some(2), Some(1), Some(1)],
            [Some(2), Some(1), Some(2)],
        ];
        assert!(prefixes.contains(&seen), "{seen:?}");
        writer.join().unwrap();
    });
}

/// Two buckets become one during a snapshot: it has both keys, from before a change or from after
/// it.
#[test]
fn a_merge_hides_nothing_from_a_snapshot() {
    check(|| {
        let (store, mut handle) = super::two_buckets();
        let mut other = store.handle();
        let [near, far] = moving(&handle);
        let writer = thread::spawn(move || {
            increment(&mut other, &[near]);
            other.merge(0);
            increment(&mut other, &[far]);
        });
        let saved = snapshot(&mut handle);
        let seen = [saved.get(near), saved.get(far), saved.get(0)];
        let prefixes = [[1, 1, 1], [2, 1, 1], [2, 2, 1]].map(|seen| seen.map(Some));
        assert!(prefixes.contains(&seen), "{seen:?}");
        writer.join().unwrap();
    });
}

/// The records in the store at the cut are saved, whichever thread empties it.
#[test]
fn a_flush_is_before_or_after_a_cut() {
    check(|| {
        let store = store(1);
        let mut handle = store.handle();
        for key in [1, 2] {
            set(&mut handle, &[key], b"1");
        }
        let mut other = store.handle();
        let writer = thread::spawn(move || {
            other.flush(None);
            set(&mut other, &[3], b"1");
        });
        let saved = snapshot(&mut handle);
        let seen = [1, 2, 3].map(|key| saved.get(key));
        let prefixes = [
            [Some(1), Some(1), None],
            [None, None, None],
            [None, None, Some(1)],
        ];
        assert!(prefixes.contains(&seen), "{seen:?}");
        writer.join().unwrap();
    });
}

/// Two snapshots while two threads move numbers between keys and the table grows.
#[cfg(all(shuttle, not(loom)))]
#[test]
fn sums_are_the_same_in_every_snapshot() {
    check(|| {
        let shape = crate::index::Shape {
            level: 0,
            buckets_max: 4,
            overflow_max: 16,
        };
        let store = crate::store::Store::for_model(64, shape);
        let mut handle = store.handle();
        for key in 10..14_u8 {
            set(&mut handle, &[key], b"100");
        }
        let threads: Vec<_> = (0..2_u8)
            .map(|thread| {
                let store = Arc::clone(&store);
                thread::spawn(move || {
                    let mut handle = store.handle();
                    for round in 0..3_u8 {
                        let names = [[10 + round], [11 + (round + thread) % 3]];
                        let keys = names.each_ref().map(|name| handle.key(0, name));
                        handle.locked(&keys, |handle| {
                            for (key, change) in keys.iter().zip([-1, 1]) {
                                handle.modify(key, |entry| {
                                    let number = entry.record().unwrap().integer().unwrap();
                                    entry.set_integer(number + change, Deadline::Keep).unwrap();
                                });
                            }
                        });
                        set(&mut handle, &[20 + 10 * thread + round], b"7");
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            let saved = snapshot(&mut handle);
            let sum: i64 = (10..14).map(|key| saved.get(key).unwrap()).sum();
            assert_eq!(sum, 400);
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
