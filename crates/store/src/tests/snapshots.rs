//! Snapshots: they hold what the store held at the cut, whatever happens meanwhile.

mod alone;
mod bank;
mod effects;
mod limits;
mod twin;

use std::ops::ControlFlow;
use std::sync::Arc;

use structures::{BlockLimit, Element, End, FieldDeadline, Hash, HashLimits, List};

use super::Force;
use crate::handle::Handle;
use crate::key::DatabaseId;
use crate::policy::Policy;
use crate::snapshot::{
    Batch, Collected, Ending, SnapshotInProgress, SnapshotLimits, SnapshotSink, SnapshotStep,
    Totals,
};
use crate::store::Store;
use crate::value::Deadline;

fn begin(handle: &mut Handle) -> Collected {
    let sink = Collected::default();
    let begun = handle.begin_snapshot(Box::new(sink.clone()), SnapshotLimits::default());
    begun.unwrap();
    sink
}

fn finish(handle: &mut Handle) {
    while handle.advance_snapshot(64) != SnapshotStep::Idle {}
}

fn set(handle: &mut Handle, database: DatabaseId, name: &str, value: &[u8], deadline: Deadline) {
    let key = handle.key(database, name.as_bytes());
    handle.upsert(&key, value, deadline, |_| ()).unwrap();
}

fn delete(handle: &mut Handle, database: DatabaseId, name: &str) {
    let key = handle.key(database, name.as_bytes());
    assert!(handle.delete(&key, |_| ()));
}

/// Sets keys `key:0` … of database 0 to their numbers.
fn fill(handle: &mut Handle, count: usize) {
    for number in 0..count {
        let (name, value) = (format!("key:{number}"), number.to_string());
        set(handle, 0, &name, value.as_bytes(), Deadline::Never);
    }
}

/// Checks that a snapshot has the records that [`fill`] made.
fn assert_filled(sink: &Collected, count: usize) {
    let records = sink.complete();
    assert_eq!(records.len(), count);
    for number in 0..count {
        let (value, deadline, _) = &records[&(0, format!("key:{number}").into_bytes())];
        assert_eq!(
            (value.as_slice(), *deadline),
            (number.to_string().as_bytes(), None)
        );
    }
}

#[test]
fn every_kind_of_value_is_saved_as_it_was() {
    let store = Force::TINY.store(2);
    let mut handle = store.handle();
    let values: [&[u8]; 5] = [b"", b"-17", b"text", &[7; 5_000], &[8; 300_000]];
    let long_name = "n".repeat(70_000);
    for (at, value) in values.iter().enumerate() {
        let deadline = if at % 2 == 0 {
            Deadline::Never
        } else {
            Deadline::At(5_000)
        };
        set(&mut handle, 1, &at.to_string(), value, deadline);
    }
    set(&mut handle, 0, &long_name, b"value", Deadline::Never);
    let sink = begin(&mut handle);
    // Each value is changed in its slot or its pages, not only replaced.
    for at in 0..values.len() {
        let name = at.to_string();
        let key = handle.key(1, name.as_bytes());
        handle
            .modify(&key, |entry| entry.write_at(0, b"changed"))
            .unwrap();
        handle
            .modify(&key, |entry| entry.set_deadline(Some(9_000)))
            .unwrap();
    }
    delete(&mut handle, 0, &long_name);
    set(&mut handle, 0, "new", b"value", Deadline::Never);
    finish(&mut handle);
    let records = sink.complete();
    assert_eq!(records.len(), values.len() + 1);
    for (at, value) in values.iter().enumerate() {
        let saved = &records[&(1, at.to_string().into_bytes())];
        let deadline = if at % 2 == 0 { None } else { Some(5_000) };
        assert!(saved.0 == *value && saved.1 == deadline, "{at}");
    }
    assert_eq!(records[&(0, long_name.into_bytes())].0, b"value");
    let (_, totals) = sink.state().ended.unwrap();
    assert!(totals.bytes > 375_000 && totals.bytes < 375_100);
    assert!(totals.held_bytes_max > 300_000);
}

#[test]
fn what_happens_after_the_cut_is_not_in_it() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill(&mut handle, 1_000);
    for round in 0..3 {
        let sink = begin(&mut handle);
        for number in 0..1_000 {
            let name = format!("key:{number}");
            match number % 3 {
                0 => delete(&mut handle, 0, &name),
                1 => set(&mut handle, 0, &name, b"other", Deadline::Never),
                _ => {}
            }
            set(
                &mut handle,
                0,
                &format!("new:{number}"),
                b"new",
                Deadline::Never,
            );
            if number % 4 == round {
                handle.advance_snapshot(1);
            }
        }
        finish(&mut handle);
        assert_filled(&sink, 1_000);
        handle.flush(None);
        fill(&mut handle, 1_000);
    }
}

#[test]
fn a_flush_and_a_swap_leave_the_cut_alone() {
    let store = Force::TINY.store(3);
    let mut handle = store.handle();
    fill(&mut handle, 2_000);
    set(&mut handle, 1, "one", b"1", Deadline::Never);
    let sink = begin(&mut handle);
    handle.advance_snapshot(50);
    handle.swap(0, 1);
    set(&mut handle, 0, "one", b"2", Deadline::Never);
    set(&mut handle, 1, "key:7", b"other", Deadline::Never);
    let keeps_emptied = || store.snapshot_progress().unwrap().keeps_emptied;
    assert!(!keeps_emptied());
    assert_eq!(handle.flush(Some(1)), 2_000);
    assert!(keeps_emptied());
    set(&mut handle, 1, "key:8", b"other", Deadline::Never);
    set(&mut handle, 2, "two", b"other", Deadline::Never);
    handle.flush(None);
    fill(&mut handle, 10);
    let used = store.statistics().used_bytes;
    finish(&mut handle);
    let mut records = sink.complete();
    assert_eq!(records.remove(&(1, b"one".to_vec())).unwrap().0, b"1");
    assert_eq!(records.len(), 2_000);
    assert!((0..2_000).all(|number| {
        let saved = &records[&(0, format!("key:{number}").into_bytes())];
        saved.0 == number.to_string().as_bytes()
    }));
    // Records that were kept for the snapshot are freed with it.
    while store.statistics().lazyfree_pending > 0 {
        std::thread::yield_now();
    }
    assert!(store.statistics().used_bytes < used);
    let again = begin(&mut handle);
    assert!(!keeps_emptied(), "that is over");
    finish(&mut handle);
    assert_filled(&again, 10);
}

#[test]
fn expired_and_evicted_records_are_in_the_cut() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(1_000);
    for number in 0..2_000 {
        let name = format!("key:{number}");
        let deadline = if number % 2 == 0 {
            Deadline::At(2_000)
        } else {
            Deadline::Never
        };
        set(&mut handle, 0, &name, name.as_bytes(), deadline);
    }
    let sink = begin(&mut handle);
    while handle.tick(3_000) {}
    assert_eq!(handle.len(0), 1_000);
    let limit = store.statistics().used_bytes / 2;
    store.set_memory_limit(limit, Policy::AllKeysLru, 5);
    for _ in 0..100 {
        handle.make_room(1_000).unwrap();
    }
    assert!(handle.len(0) < 1_000, "some were evicted");
    finish(&mut handle);
    let records = sink.complete();
    assert_eq!(records.len(), 2_000);
    let expired = records.values().filter(|saved| saved.1 == Some(2_000));
    assert_eq!(expired.count(), 1_000);
}

#[test]
fn expired_members_are_in_the_cut() {
    const LIMITS: HashLimits = HashLimits {
        listpack_entries: 128,
        listpack_value_bytes: 64,
    };
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(1_000);
    for name in [b"one", b"two"] {
        let key = handle.key(0, name);
        let change = |hash: &mut Hash| {
            for at in 1..=4_u64 {
                let deadline = FieldDeadline::At(2_000 * at);
                hash.set(&at.to_le_bytes(), b"value", deadline, 1_000, &LIMITS)
                    .unwrap();
            }
        };
        handle
            .modify(&key, |entry| entry.change_or_create(change))
            .unwrap();
    }
    let sink = begin(&mut handle);
    while handle.tick(4_000) {}
    finish(&mut handle);
    for (_, _, object) in sink.complete().into_values() {
        assert_eq!(object.unwrap().len(), 4);
    }
    let sink = begin(&mut handle);
    finish(&mut handle);
    for (_, _, object) in sink.complete().into_values() {
        assert_eq!(object.unwrap().len(), 2);
    }
}

#[test]
fn moved_records_are_saved_once() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill(&mut handle, 30_000);
    for number in 0..30_000 {
        if number % 16 != 0 {
            delete(&mut handle, 0, &format!("key:{number}"));
        }
    }
    handle.purge();
    let sink = begin(&mut handle);
    let mut now = 1;
    while handle.advance_snapshot(7) != SnapshotStep::Idle {
        handle.tick(now);
        now += 1;
    }
    assert_eq!(sink.complete().len(), 30_000 / 16);
}

#[test]
fn a_table_that_shrinks_meanwhile_loses_nothing() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill(&mut handle, 30_000);
    for number in 100..30_000 {
        delete(&mut handle, 0, &format!("key:{number}"));
    }
    for buckets in [3, 40, 400] {
        let sink = begin(&mut handle);
        let mut now = 1;
        while handle.advance_snapshot(buckets) != SnapshotStep::Idle {
            handle.tick(now);
            // Some buckets are on the new side before the scanner reaches them.
            set(
                &mut handle,
                0,
                &format!("key:{}", now % 100),
                b"other",
                Deadline::Never,
            );
            now += 1;
        }
        assert_filled(&sink, 100);
        fill(&mut handle, 100);
    }
}

#[test]
fn an_object_is_saved_as_it_was() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    let push = |handle: &mut Handle, count: usize| {
        let key = handle.key(0, b"list");
        handle
            .modify(&key, |entry| {
                entry.change_or_create(|list: &mut List| {
                    for _ in 0..count {
                        list.push(End::Back, Element::parse(b"element"), BlockLimit::default());
                    }
                })
            })
            .unwrap();
    };
    push(&mut handle, 1_000);
    let sink = begin(&mut handle);
    push(&mut handle, 1_000);
    finish(&mut handle);
    let records = sink.complete();
    let object = records[&(0, b"list".to_vec())].2.as_ref().unwrap();
    assert_eq!(object.len(), 1_000);
}

#[test]
fn there_is_one_at_a_time_and_a_cancelled_one_ends_first() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill(&mut handle, 500);
    assert!(!store.cancel_snapshot());
    assert_eq!(handle.advance_snapshot(10), SnapshotStep::Idle);
    let sink = begin(&mut handle);
    let second = handle.begin_snapshot(Box::new(Collected::default()), SnapshotLimits::default());
    assert_eq!(second, Err(SnapshotInProgress));
    handle.advance_snapshot(10);
    let progress = store.snapshot_progress().unwrap();
    assert_eq!((progress.buckets_done, progress.totals.generation), (10, 1));
    assert!(store.cancel_snapshot());
    assert!(!store.cancel_snapshot(), "only once");
    assert!(store.snapshot_progress().unwrap().is_given_up);
    let third = handle.begin_snapshot(Box::new(Collected::default()), SnapshotLimits::default());
    assert_eq!(third, Err(SnapshotInProgress));
    set(&mut handle, 0, "key:1", b"other", Deadline::Never);
    // Any thread that ticks finishes it.
    while handle.tick(1) {}
    assert_eq!(store.snapshot_progress(), None);
    assert_eq!(sink.state().ended.unwrap().0, Ending::Cancelled);
    set(&mut handle, 0, "key:1", b"1", Deadline::Never);
    let sink = begin(&mut handle);
    finish(&mut handle);
    assert_filled(&sink, 500);
}

/// A sink that stops after the first batch.
struct Full(Collected);

impl SnapshotSink for Full {
    fn take(&mut self, batch: Batch) -> ControlFlow<()> {
        let _more = self.0.take(batch);
        ControlFlow::Break(())
    }

    fn end(&mut self, ending: Ending, totals: &Totals) {
        self.0.end(ending, totals);
    }
}

#[test]
fn a_sink_that_takes_no_more_cancels() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill(&mut handle, 5_000);
    let seen = Collected::default();
    let sink = Box::new(Full(seen.clone()));
    handle
        .begin_snapshot(sink, SnapshotLimits::default())
        .unwrap();
    finish(&mut handle);
    let state = seen.state();
    let (ending, totals) = state.ended.unwrap();
    assert_eq!(ending, Ending::Cancelled);
    assert_eq!(totals.records, state.records.len() as u64);
    assert!(totals.records > 0 && totals.records < 5_000);
}

#[test]
fn a_batch_outlives_the_store() {
    /// A sink that keeps batches.
    struct Keep(Arc<std::sync::Mutex<Vec<Batch>>>);
    impl SnapshotSink for Keep {
        fn take(&mut self, batch: Batch) -> ControlFlow<()> {
            self.0.lock().unwrap().push(batch);
            ControlFlow::Continue(())
        }
        fn end(&mut self, _: Ending, _: &Totals) {}
    }
    let kept = Arc::default();
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    set(&mut handle, 0, "long", &[3; 200_000], Deadline::Never);
    let sink = Box::new(Keep(Arc::clone(&kept)));
    handle
        .begin_snapshot(sink, SnapshotLimits::default())
        .unwrap();
    finish(&mut handle);
    drop((handle, store));
    let batches = std::mem::take(&mut *kept.lock().unwrap());
    let saved = batches[0].records().next().unwrap();
    assert_eq!(saved.value.to_vec(), [3; 200_000]);
}

#[test]
fn a_snapshot_that_nobody_drives_ends_with_the_store() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill(&mut handle, 2_000);
    let _sink = begin(&mut handle);
    handle.flush(None);
    drop(handle);
}

#[test]
fn who_has_the_store_for_itself_is_on_one_side() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill(&mut handle, 100);
    let sink = handle.exclusive(|handle| {
        set(handle, 0, "key:100", b"100", Deadline::Never);
        let sink = begin(handle);
        set(handle, 0, "key:1", b"other", Deadline::Never);
        sink
    });
    finish(&mut handle);
    assert_filled(&sink, 101);
}

#[test]
fn generations_go_on_from_a_life_before() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill(&mut handle, 100);
    for (at_least, now) in [(0, 0), (6, 6), (9, 10), (3, 10)] {
        assert_eq!(store.raise_generation(at_least), Ok(now));
    }
    let sink = begin(&mut handle);
    assert_eq!(store.raise_generation(20), Err(SnapshotInProgress));
    set(&mut handle, 0, "key:1", b"another", Deadline::Never);
    finish(&mut handle);
    assert_filled(&sink, 100);
    assert_eq!(store.raise_generation(11), Ok(11));
    assert_eq!(store.raise_generation(12), Ok(13));
    let sink = begin(&mut handle);
    finish(&mut handle);
    assert_eq!(sink.complete().len(), 100);
}

/// Returns the keys of [`fill`] that are not locked.
fn not_held(handle: &Handle, count: usize) -> Vec<String> {
    let names = (0..count).map(|number| format!("key:{number}"));
    names
        .filter(|name| !handle.holds(&handle.key(0, name.as_bytes())))
        .collect()
}

/// Makes a cut, and advances the scanner until it meets a bucket that this thread holds.
fn cut_by_another_thread(store: &Arc<Store>) -> Collected {
    let cut = || {
        let mut other = store.handle();
        let sink = begin(&mut other);
        while other.advance_snapshot(64) == SnapshotStep::More {}
        sink
    };
    std::thread::scope(|scope| scope.spawn(cut).join().unwrap())
}

/// Changes one key, has a cut made that advances as far as it can, and changes all keys that may
/// then be locked. Returns how many could be locked, and how many not.
fn change_across_a_cut(first: &str) -> (usize, usize) {
    const COUNT: usize = 200;
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill(&mut handle, COUNT);
    let (mut changed, mut refused) = (1, 0);
    let first = handle.key(0, first.as_bytes());
    let sink = handle.locked(&[first], |handle| {
        handle
            .upsert(&first, b"changed", Deadline::Never, |_| ())
            .unwrap();
        let sink = cut_by_another_thread(&store);
        for name in not_held(handle, COUNT) {
            let key = handle.key(0, name.as_bytes());
            if handle.lock_more(&[key]).is_ok() {
                set(handle, 0, &name, b"changed", Deadline::Never);
                changed += 1;
            } else {
                assert!(!handle.holds(&key));
                refused += 1;
            }
        }
        sink
    });
    finish(&mut handle);
    let records = sink.complete();
    let values = records.values();
    let saved = values.filter(|(value, ..)| value == b"changed").count();
    assert_eq!(saved, changed);
    (changed, refused)
}

#[test]
fn a_lock_set_that_grows_stays_on_one_side_of_a_cut() {
    // Where the scanner stops depends on the position of the first key.
    let names = (0..20).map(|number| format!("key:{number}"));
    let counts: Vec<_> = names.map(|name| change_across_a_cut(&name)).collect();
    assert!(counts.iter().any(|(changed, _)| *changed > 1));
    assert!(counts.iter().any(|(_, refused)| *refused > 0));
}

#[test]
fn a_lock_set_that_has_changed_nothing_goes_behind_a_cut() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill(&mut handle, 200);
    let first = handle.key(0, b"key:0");
    let sink = handle.locked(&[first], |handle| {
        let sink = cut_by_another_thread(&store);
        let name = not_held(handle, 200).remove(0);
        let second = handle.key(0, name.as_bytes());
        handle.lock_more(&[second]).unwrap();
        for key in [first, second] {
            handle
                .upsert(&key, b"changed", Deadline::Never, |_| ())
                .unwrap();
        }
        sink
    });
    finish(&mut handle);
    assert_filled(&sink, 200);
}
