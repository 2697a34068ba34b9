//! Pieces of objects that are moved without a visible effect.

use std::sync::atomic::{AtomicBool, Ordering};

use structures::{BlockLimit, Element, End, List, Set, SetLimits};

use super::{Force, Notes};
use crate::handle::Handle;
use crate::mover::pieces::PieceHand;
use crate::snapshot::{Collected, SnapshotLimits, SnapshotStep};

const SET: SetLimits = SetLimits {
    intset_entries: 16,
    listpack_entries: 16,
    listpack_value_bytes: 64,
};

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

fn numbers(handle: &mut Handle, name: &str) -> Vec<Vec<u8>> {
    let key = handle.key(0, name.as_bytes());
    handle.read(&key, |record| {
        let list = record.and_then(|record| record.structure::<List>().ok());
        list.map_or_else(Vec::new, |list| {
            list.iter().map(|element| element.to_vec()).collect()
        })
    })
}

fn add(handle: &mut Handle, name: &str, members: usize) {
    let key = handle.key(0, name.as_bytes());
    let added = handle.modify(&key, |entry| {
        entry.change_or_create(|set: &mut Set| {
            for number in 0..members {
                let member = format!("member {number}");
                set.insert(member.as_bytes(), &SET).unwrap();
            }
        })
    });
    added.unwrap();
}

fn texts(count: i64) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| number.to_string().into_bytes())
        .collect()
}

/// Moves everything, in steps of `work_bytes`. Returns the number of steps.
fn move_all(handle: &mut Handle, work_bytes: u64) -> usize {
    let (mut hand, mut steps) = (PieceHand::default(), 1);
    while handle.move_pieces(&mut hand, work_bytes, &mut |_| true) {
        steps += 1;
    }
    steps
}

/// Fills a store with lists and sets, short ones in parts and long ones in boxes, and strings
/// between them.
fn fill(handle: &mut Handle) {
    for number in 0..100 {
        push(handle, &format!("short:{number}"), 0..number % 10 + 1);
        add(handle, &format!("few:{number}"), 3);
        let name = format!("text:{number}");
        let key = handle.key(0, name.as_bytes());
        let value = vec![b'v'; 50_000 * usize::from(number == 7) + 10];
        let written = handle.upsert(&key, &value, crate::value::Deadline::Never, |_| ());
        written.unwrap();
    }
    push(handle, "long", 0..20_000);
    add(handle, "many", 2_000);
}

fn assert_filled(handle: &mut Handle) {
    for number in 0..100 {
        let list = numbers(handle, &format!("short:{number}"));
        assert_eq!(list, texts(number % 10 + 1));
    }
    assert_eq!(numbers(handle, "long"), texts(20_000));
    let key = handle.key(0, b"many");
    let count = handle.read(&key, |record| {
        record.and_then(|record| Some(record.structure::<Set>().ok()?.len()))
    });
    assert_eq!(count, Some(2_000));
    let key = handle.key(0, b"text:7");
    let len = handle.read(&key, |record| record.map(|record| record.len()));
    assert_eq!(len, Some(50_010));
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn what_was_moved_is_what_it_was_and_nobody_is_told() {
    let store = Force::TINY.store(2);
    let mut handle = store.handle();
    handle.begin(1_000);
    fill(&mut handle);
    let notes = Notes::default();
    handle.set_sink(Some(Box::new(notes.clone())));
    let before = handle.statistics();
    assert_eq!(move_all(&mut handle, u64::MAX), 1);
    let after = handle.statistics();
    assert_eq!(after.moved - before.moved, 202, "each list and each set");
    assert_eq!(after.used_bytes, before.used_bytes);
    assert_filled(&mut handle);
    assert!(notes.take().is_empty());
    // The counts stay consistent with those before the move, also when the objects are removed.
    let short = handle.key(0, b"short:9");
    let long = handle.key(0, b"long");
    assert!(handle.delete(&short, |_| ()) && handle.delete(&long, |_| ()));
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn a_step_is_short_however_long_an_object_is() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(1_000);
    fill(&mut handle);
    let mut asked = 0;
    let mut hand = PieceHand::default();
    loop {
        let before = asked;
        let mut wants = |_: *const u8| {
            asked += 1;
            true
        };
        let has_more = handle.move_pieces(&mut hand, 4_096, &mut wants);
        assert!(asked - before < 40, "{} in one step", asked - before);
        if !has_more {
            break;
        }
    }
    assert!(asked > 200, "{asked}");
    assert_filled(&mut handle);
}

#[test]
fn a_key_in_use_is_passed_by() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(1_000);
    push(&mut handle, "held", 0..5);
    let mut other = store.handle();
    let key = handle.key(0, b"held");
    handle.locked(&[key], |_| {
        assert_eq!(move_all(&mut other, u64::MAX), 1);
    });
    assert_eq!(store.statistics().moved, 0);
    move_all(&mut other, u64::MAX);
    assert_eq!(store.statistics().moved, 1);
    assert_eq!(numbers(&mut handle, "held"), texts(5));
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn a_snapshot_has_what_was_there_at_its_cut() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(1_000);
    fill(&mut handle);
    let sink = Collected::default();
    let begun = handle.begin_snapshot(Box::new(sink.clone()), SnapshotLimits::default());
    begun.unwrap();
    let mut step = 0_i64;
    while handle.advance_snapshot(8) != SnapshotStep::Idle {
        move_all(&mut handle, u64::MAX);
        push(&mut handle, "long", 20_000 + step..20_001 + step);
        step += 1;
    }
    assert_eq!(sink.complete().len(), 302);
    move_all(&mut handle, u64::MAX);
    assert_eq!(numbers(&mut handle, "long"), texts(20_000 + step));
}

#[test]
fn readers_and_writers_do_not_notice() {
    let store = Force::TINY.store(1);
    let rounds = if cfg!(miri) { 3 } else { 300 };
    let mut handle = store.handle();
    for number in 0..20 {
        push(&mut handle, &format!("list:{number}"), 0..number * number);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                let mut handle = store.handle();
                let mut random = base::random::Prng::seeded(thread);
                while !done.load(Ordering::Relaxed) {
                    let name = format!("list:{}", random.below(20));
                    let list = numbers(&mut handle, &name);
                    let len = i64::try_from(list.len()).unwrap();
                    assert_eq!(list, texts(len), "{name}");
                    if thread == 0 && len < 2_000 {
                        push(&mut handle, &name, len..len + 3);
                    }
                }
            });
        }
        for _ in 0..rounds {
            move_all(&mut handle, 10_000);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(store.statistics().moved > 0);
}
