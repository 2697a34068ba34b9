//! Deadlines: exact to the millisecond, for readers, for writers, and when only time passes.

use structures::{FieldDeadline, Hash, HashLimits};

use super::{Force, Notes, Told};
use crate::handle::Handle;
use crate::key::Key;
use crate::value::Deadline;

const START: u64 = 1_700_000_000_000;

fn set(handle: &mut Handle, key: &str, deadline: Deadline) {
    let key = handle.key(0, key.as_bytes());
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
fn a_key_lives_up_to_its_millisecond_and_not_longer() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(START);
    set(&mut handle, "key", Deadline::At(START + 10));
    for (now, lives) in [(START + 9, true), (START + 10, false)] {
        handle.begin(now);
        assert_eq!(exists(&mut handle, "key"), lives);
    }
    assert_eq!((handle.len(0), handle.expiring_len(0)), (0, 0));
}

#[test]
fn a_write_finds_nothing_of_what_has_expired() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(START);
    set(&mut handle, "key", Deadline::At(START + 10));
    handle.begin(START + 10);
    assert_eq!(handle.len(0), 1, "nobody has removed it yet");
    let key = handle.key(0, b"key");
    assert!(!handle.modify(&key, |entry| entry.is_present()));
    assert_eq!((handle.len(0), handle.expiring_len(0)), (0, 0));
}

#[test]
fn who_finds_an_expired_key_removes_it_whichever_way_it_looks() {
    let store = Force::TINY.store(1);
    store.set_active_expire(false);
    let mut handle = store.handle();
    let notes = Notes::default();
    handle.set_sink(Some(Box::new(notes.clone())));
    let ways: [fn(&mut Handle, &Key<'_>) -> bool; 5] = [
        |handle, key| handle.peek(key, |record| record.is_none()),
        |handle, key| handle.read_structure(key, |record| record.is_none()),
        |handle, key| handle.locked(&[*key], |it| it.read(key, |record| record.is_none())),
        |handle, key| handle.read_all(&[*key], |_| true, |records| records[0].is_none()),
        |handle, _| {
            let (mut cursor, mut is_none) = (0, true);
            loop {
                cursor = handle.scan(0, cursor, 10, |_| is_none = false);
                if cursor == 0 {
                    return is_none;
                }
            }
        },
    ];
    for way in ways {
        handle.begin(START);
        set(&mut handle, "key", Deadline::At(START + 10));
        handle.begin(START + 10);
        assert_eq!(handle.len(0), 1);
        let key = handle.key(0, b"key");
        assert!(handle.inspect_expired(&key, |record| record.is_some()));
        assert_eq!(handle.len(0), 1);
        assert!(way(&mut handle, &key));
        assert_eq!((handle.len(0), handle.expiring_len(0)), (0, 0));
        let told = notes.take();
        let is_expiry = |told: &Told| matches!(told, Told::Removed(_, _, "expired"));
        assert!(told.iter().any(is_expiry), "{told:?}");
    }
}

#[test]
fn the_clock_alone_removes_everything_in_its_tick_and_says_so() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    let notes = Notes::default();
    handle.set_sink(Some(Box::new(notes.clone())));
    handle.begin(START);
    let count = if cfg!(miri) { 50 } else { 5_000 };
    for number in 0..count {
        let deadline = START + 1 + number % 100;
        set(
            &mut handle,
            &format!("key:{number}"),
            Deadline::At(deadline),
        );
    }
    set(&mut handle, "stays", Deadline::Never);
    assert_eq!(handle.expiring_len(0), usize::try_from(count).unwrap());
    for passed in 0..=100 {
        tick_all(&mut handle, START + passed);
        let left = (0..count)
            .filter(|number| 1 + number % 100 > passed)
            .count();
        assert_eq!(handle.len(0), left + 1, "after {passed} ms");
        assert_eq!(handle.expiring_len(0), left);
    }
    let told = notes.take();
    assert_eq!(told.len(), usize::try_from(count).unwrap());
    assert!(
        told.iter()
            .all(|told| matches!(told, Told::Removed(0, _, "expired")))
    );
    assert_eq!(store.statistics().expired, count);
}

#[test]
fn a_deadline_may_move_both_ways_and_go() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(START);
    for key in ["later", "sooner", "never"] {
        set(&mut handle, key, Deadline::At(START + 100));
    }
    let moves = [
        ("later", Some(START + 300)),
        ("sooner", Some(START + 50)),
        ("never", None),
    ];
    for (key, deadline) in moves {
        let key = handle.key(0, key.as_bytes());
        handle
            .modify(&key, |entry| entry.set_deadline(deadline))
            .unwrap();
    }
    tick_all(&mut handle, START + 50);
    assert_eq!(handle.len(0), 2, "sooner is gone");
    tick_all(&mut handle, START + 299);
    assert_eq!(handle.len(0), 2, "the old time of the others says nothing");
    tick_all(&mut handle, START + 300);
    assert!(!exists(&mut handle, "later") && exists(&mut handle, "never"));
    assert_eq!((handle.len(0), handle.expiring_len(0)), (1, 0));
}

#[test]
fn what_expires_stays_while_removals_are_held() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(START);
    set(&mut handle, "key", Deadline::At(START + 1));
    store.hold_removals(true);
    tick_all(&mut handle, START + 10);
    assert_eq!(handle.len(0), 1);
    assert!(!exists(&mut handle, "key"));
    store.hold_removals(false);
    tick_all(&mut handle, START + 20);
    assert_eq!(handle.len(0), 0);
}

#[test]
fn nothing_is_removed_by_the_clock_when_that_is_switched_off() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(START);
    set(&mut handle, "key", Deadline::At(START + 1));
    store.set_active_expire(false);
    tick_all(&mut handle, START + 10);
    assert_eq!(handle.len(0), 1);
    assert!(!exists(&mut handle, "key"), "but readers know");
    store.set_active_expire(true);
    tick_all(&mut handle, START + 10);
    assert_eq!(handle.len(0), 0);
}

#[test]
fn deadlines_outlive_the_thread_that_set_them_and_follow_their_database() {
    let store = Force::TINY.store(2);
    let mut first = store.handle();
    first.begin(START);
    set(&mut first, "key", Deadline::At(START + 5));
    first.swap(0, 1);
    drop(first);
    let mut second = store.handle();
    assert_eq!((second.len(0), second.len(1)), (0, 1));
    tick_all(&mut second, START + 4);
    assert_eq!(second.len(1), 1);
    tick_all(&mut second, START + 5);
    assert_eq!(second.len(1), 0);
}

#[test]
fn armed_times_of_records_that_are_gone_do_not_pile_up() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(START);
    set(&mut handle, "lives", Deadline::At(START + 2_000_000));
    let rounds = if cfg!(miri) { 10 } else { 50_000 };
    for _ in 0..rounds {
        set(&mut handle, "key", Deadline::At(START + 1_000_000));
        let key = handle.key(0, b"key");
        handle.delete(&key, |_| ());
        handle.tick(START);
    }
    tick_all(&mut handle, START);
    assert!(handle.armed_len() <= 10_000, "{} armed", handle.armed_len());
    tick_all(&mut handle, START + 2_000_000);
    assert_eq!(handle.len(0), 0, "those of the living were kept");
}

/// Gives fields of a hash deadlines after `START`, or none.
fn set_fields(handle: &mut Handle, key: &str, fields: &[(&str, Option<u64>)]) {
    const LIMITS: HashLimits = HashLimits {
        listpack_entries: 128,
        listpack_value_bytes: 64,
    };
    let key = handle.key(0, key.as_bytes());
    handle.modify(&key, |entry| {
        let change = |hash: &mut Hash| {
            for (name, after) in fields {
                let deadline = after.map_or(FieldDeadline::Never, |after| {
                    FieldDeadline::At(START + after)
                });
                hash.set(name.as_bytes(), b"value", deadline, START, &LIMITS)
                    .unwrap();
            }
        };
        entry.change_or_create(change).unwrap();
    });
}

#[test]
fn the_clock_removes_members_and_with_the_last_the_key() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    let notes = Notes::default();
    handle.set_sink(Some(Box::new(notes.clone())));
    handle.begin(START);
    set_fields(&mut handle, "h", &[("late", Some(50)), ("stays", None)]);
    set_fields(
        &mut handle,
        "h",
        &[("early", Some(10)), ("later", Some(60))],
    );
    set_fields(&mut handle, "h", &[("later", Some(20))]);
    set_fields(
        &mut handle,
        "whole",
        &[("one", Some(10)), ("two", Some(20))],
    );
    let gone_at = |handle: &mut Handle, after| {
        tick_all(handle, START + after);
        let mut told: Vec<String> = notes
            .take()
            .into_iter()
            .map(|told| match told {
                Told::Removed(0, name, "member expired") => String::from_utf8(name).unwrap(),
                other => panic!("{other:?}"),
            })
            .collect();
        told.sort();
        told
    };
    assert!(gone_at(&mut handle, 9).is_empty());
    assert_eq!(gone_at(&mut handle, 10), ["h/early", "whole/one"]);
    assert!(exists(&mut handle, "whole"));
    assert_eq!(gone_at(&mut handle, 20), ["h/later", "whole/two"]);
    assert!(!exists(&mut handle, "whole"));
    assert_eq!(gone_at(&mut handle, 100), ["h/late"]);
    assert!(exists(&mut handle, "h"));
    assert_eq!(handle.len(0), 1);
}

#[test]
fn deadlines_of_members_move_with_their_key() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(START);
    set_fields(&mut handle, "one", &[("field", Some(10))]);
    let (one, two) = (handle.key(0, b"one"), handle.key(0, b"two"));
    let taken = handle.modify(&one, |entry| entry.take().unwrap());
    handle.modify(&two, |entry| entry.put(taken).unwrap());
    tick_all(&mut handle, START + 10);
    assert_eq!(handle.len(0), 0);
}

/// More members than one visit removes, and more than a wheel may have without being replaced.
#[test]
fn many_members_go_in_their_tick() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(START);
    let count = if cfg!(miri) { 300 } else { 3_000 };
    for number in 0..count {
        let field = number.to_string();
        set_fields(&mut handle, "large", &[(&field, Some(10))]);
        let key = format!("h{number}");
        for after in [40, 30, 20] {
            set_fields(&mut handle, &key, &[("field", Some(after))]);
        }
    }
    tick_all(&mut handle, START + 10);
    assert!(!exists(&mut handle, "large"));
    assert_eq!(handle.len(0), count);
    tick_all(&mut handle, START + 20);
    assert_eq!(handle.len(0), 0);
}

#[test]
fn the_next_expiry_is_never_later_than_the_first_deadline() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(START);
    assert_eq!(handle.next_expiry_unix_ms(), None);
    set(&mut handle, "later", Deadline::At(START + 100_000));
    set(&mut handle, "soon", Deadline::At(START + 10));
    assert_eq!(handle.next_expiry_unix_ms(), Some(START + 10));
    // A thread that sleeps until the announced time wakes a bounded number of times, and removes
    // each key in its millisecond.
    let mut wakes = 0;
    let mut now = START;
    while let Some(next) = handle.next_expiry_unix_ms() {
        assert!(next > now && next <= START + 100_000, "{next}");
        now = next;
        tick_all(&mut handle, now);
        assert_eq!(exists(&mut handle, "soon"), now < START + 10);
        wakes += 1;
    }
    assert_eq!(now, START + 100_000);
    assert!(wakes < 20, "{wakes}");
    assert_eq!(handle.expiring_len(0), 0);
}

#[test]
fn nothing_is_due_while_removals_are_held() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(START);
    set(&mut handle, "key", Deadline::At(START + 10));
    store.hold_removals(true);
    assert_eq!(handle.next_expiry_unix_ms(), None);
    store.hold_removals(false);
    assert_eq!(handle.next_expiry_unix_ms(), Some(START + 10));
}
