//! Records that are saved alone, because they are merely overwritten, while the rest of their
//! bucket is not yet saved.

use std::collections::BTreeMap;

use base::random::Prng;

use super::super::Force;
use super::{begin, delete, finish, set};
use crate::bucket::Link;
use crate::handle::Handle;
use crate::key::DatabaseId;
use crate::snapshot::{Collected, Ending, SnapshotStep};
use crate::store::{Backend, Store};
use crate::value::Deadline;

const COUNT: usize = 300;

fn name(number: usize) -> String {
    format!("key:{number}")
}

fn text(number: usize) -> String {
    format!("text:{number:05}")
}

fn fill(handle: &mut Handle, count: usize) {
    (0..count).for_each(|number| put(handle, number, text(number).as_bytes()));
}

fn put(handle: &mut Handle, number: usize, value: &[u8]) {
    set(handle, 0, &name(number), value, Deadline::Never);
}

fn assert_filled(sink: &Collected, count: usize) {
    let records = sink.complete();
    assert_eq!(records.len(), count);
    for number in 0..count {
        let (value, ..) = &records[&(0, name(number).into_bytes())];
        assert_eq!(value.as_slice(), text(number).as_bytes());
    }
}

/// Returns the number of records that are marked as saved.
fn marked(store: &Store) -> usize {
    let Backend::Indexed(shared) = &store.backend else {
        unreachable!("the store of these tests has an index");
    };
    let mut count = 0;
    shared.databases.with_indexes(|indexes| {
        for (_, index) in indexes {
            for number in 0..index.state().buckets() {
                index.for_each(index.bucket(number), |spot| {
                    count += usize::from(spot.link.has(Link::SAVED));
                });
            }
        }
    });
    count
}

#[test]
fn one_of_a_bucket_is_saved_and_the_others_are_not() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill(&mut handle, COUNT);
    let sink = begin(&mut handle);
    for _ in 0..2 {
        put(&mut handle, 7, b"other:0007");
        assert_eq!(marked(&store), 1);
    }
    // A value that is no longer a text of about the same length does not merely overwrite the
    // record.
    put(&mut handle, 7, b"7");
    assert_eq!(marked(&store), 0);
    put(&mut handle, 7, b"other:0008");
    assert_eq!(marked(&store), 0, "its bucket was saved");
    finish(&mut handle);
    assert_filled(&sink, COUNT);
}

#[test]
fn no_mark_outlives_a_snapshot() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill(&mut handle, COUNT);
    for is_cancelled in [true, false, true] {
        let sink = begin(&mut handle);
        handle.advance_snapshot(5);
        (0..COUNT).for_each(|number| put(&mut handle, number, b"other:0000"));
        assert!(marked(&store) > COUNT / 2);
        if is_cancelled {
            assert!(store.cancel_snapshot());
            // A writer that comes meanwhile saves nothing and leaves no mark.
            put(&mut handle, 250, b"third:0000");
        }
        finish(&mut handle);
        assert_eq!(marked(&store), 0);
        let ending = sink.state().ended.unwrap().0;
        assert_eq!(ending == Ending::Cancelled, is_cancelled);
        fill(&mut handle, COUNT);
    }
    let sink = begin(&mut handle);
    finish(&mut handle);
    assert_filled(&sink, COUNT);
}

#[test]
fn a_table_that_grows_or_shrinks_takes_marks_along() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    for (before, extra) in [(20, 20_000), (20_000, 0)] {
        fill(&mut handle, before);
        for number in 20..before {
            delete(&mut handle, 0, &name(number));
        }
        let sink = begin(&mut handle);
        (0..20).for_each(|number| put(&mut handle, number, b"other:0000"));
        for number in before..before + extra {
            set(
                &mut handle,
                0,
                &format!("new:{number}"),
                b"new",
                Deadline::Never,
            );
        }
        let mut now = 1;
        handle.purge();
        while handle.advance_snapshot(3) != SnapshotStep::Idle {
            handle.tick(now);
            now += 1;
        }
        assert_filled(&sink, 20);
        for number in before..before + extra {
            delete(&mut handle, 0, &format!("new:{number}"));
        }
        assert_eq!(marked(&store), 0);
    }
}

#[test]
fn a_lock_set_is_not_given_what_was_overwritten_behind_its_cut() {
    let mut refused = 0;
    for first in 0..10 {
        let store = Force::TINY.store(1);
        let mut handle = store.handle();
        fill(&mut handle, COUNT);
        let first_name = name(first);
        let key = handle.key(0, first_name.as_bytes());
        let mut taken = 0;
        let sink = handle.locked(&[key], |handle| {
            put(handle, first, b"changed:00");
            let free: Vec<usize> = (0..COUNT)
                .filter(|&number| !handle.holds(&handle.key(0, name(number).as_bytes())))
                .collect();
            let cut = || {
                let mut other = store.handle();
                let sink = begin(&mut other);
                let some = free.iter().filter(|&number| number % 7 == 0);
                some.for_each(|&number| put(&mut other, number, b"other:0000"));
                sink
            };
            let sink = std::thread::scope(|scope| scope.spawn(cut).join().unwrap());
            for number in free {
                if handle
                    .lock_more(&[handle.key(0, name(number).as_bytes())])
                    .is_ok()
                {
                    put(handle, number, b"changed:00");
                    taken += 1;
                } else {
                    refused += 1;
                }
            }
            sink
        });
        finish(&mut handle);
        let records = sink.complete();
        assert_eq!(records.len(), COUNT);
        let values = records.values().map(|(value, ..)| value);
        let changed = values.filter(|value| *value == b"changed:00").count();
        assert_eq!(changed, taken + 1);
    }
    assert!(refused > 0);
}

/// The contents of a snapshot: the value and deadline of each key.
type Contents = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

fn step(handle: &mut Handle, random: &mut Prng, model: &mut Contents) {
    let number = random.index(120);
    let key = name(number).into_bytes();
    let value = match random.below(12) {
        0 => random.below(1_000).to_string().into_bytes(),
        1 => vec![b'l'; 40 + random.index(200)],
        2 => vec![b's'; 1 + random.index(3)],
        _ => format!("text:{:05}", random.below(100_000)).into_bytes(),
    };
    let database: DatabaseId = 0;
    match random.below(16) {
        0 => {
            let key_of = handle.key(database, &key);
            let existed = handle.delete(&key_of, |_| ());
            assert_eq!(existed, model.remove(&key).is_some());
        }
        1 => {
            set(
                handle,
                database,
                &name(number),
                &value,
                Deadline::At(1 << 40),
            );
            model.insert(key, (value, Some(1 << 40)));
        }
        2 => {
            let key_of = handle.key(database, &key);
            let appended = handle.modify(&key_of, |entry| entry.append(b"+"));
            appended.unwrap();
            model.entry(key).or_default().0.push(b'+');
        }
        _ => {
            set(handle, database, &name(number), &value, Deadline::Never);
            model.insert(key, (value, None));
        }
    }
}

#[test]
fn whatever_happens_each_record_of_the_cut_is_saved_once() {
    let rounds = if cfg!(miri) { 3 } else { 300 };
    for seed in 0..rounds {
        let (store, mut random) = (Force::TINY.store(1), Prng::seeded(seed));
        let (mut handle, mut model) = (store.handle(), Contents::new());
        for _ in 0..4 {
            (0..200).for_each(|_| step(&mut handle, &mut random, &mut model));
            let (at_cut, sink) = (model.clone(), begin(&mut handle));
            let mut now = 1;
            while handle.advance_snapshot(random.index(4)) != SnapshotStep::Idle {
                let steps = random.index(30);
                (0..steps).for_each(|_| step(&mut handle, &mut random, &mut model));
                if random.below(8) == 0 {
                    handle.purge();
                }
                handle.tick(now);
                now += 1;
                // The walk has to end at some time.
                handle.advance_snapshot(1);
            }
            let records = sink.complete();
            let found = records
                .iter()
                .map(|((_, key), (value, deadline, _))| (key.clone(), (value.clone(), *deadline)));
            assert_eq!(found.collect::<Contents>(), at_cut, "seed {seed}");
            assert_eq!(marked(&store), 0);
        }
    }
}
