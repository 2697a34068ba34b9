//! Records that are moved without a visible effect.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Force;
use crate::handle::Handle;
use crate::value::Deadline;

fn set(handle: &mut Handle, number: u64, len: usize) {
    let name = format!("key:{number}");
    let key = handle.key(0, name.as_bytes());
    let value = vec![b'a' + number.to_le_bytes()[0] % 26; len];
    handle
        .upsert(&key, &value, Deadline::Never, |_| ())
        .unwrap();
}

fn is_whole(handle: &mut Handle, number: u64) -> Option<bool> {
    let name = format!("key:{number}");
    let key = handle.key(0, name.as_bytes());
    let wanted = b'a' + number.to_le_bytes()[0] % 26;
    handle.read(&key, |record| {
        record.map(|record| record.to_vec().iter().all(|byte| *byte == wanted))
    })
}

fn held_bytes(handle: &Handle) -> u64 {
    handle.statistics().memory.slot_held_bytes
}

#[test]
fn little_is_left_alone() {
    let store = Force::TINY.store(1);
    store.set_moving(Some((1_000, 10)));
    assert!(!store.is_worth_moving(1_000, 0));
    assert!(store.is_worth_moving(1_001, 0));
    assert!(!store.is_worth_moving(10_000, 100_000));
    assert!(store.is_worth_moving(10_001, 100_000));
}

fn tick_until_done(handle: &mut Handle) {
    while handle.tick(1_000) {}
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn what_is_left_of_many_lies_close_together_afterwards() {
    let store = Force::TINY.store(2);
    let mut handle = store.handle();
    for number in 0..20_000 {
        set(&mut handle, number, 100);
    }
    let full = held_bytes(&handle);
    for number in (0..20_000).filter(|number| number % 10 != 0) {
        let name = format!("key:{number}");
        let key = handle.key(0, name.as_bytes());
        handle.delete(&key, |_| ());
    }
    let sparse = held_bytes(&handle);
    assert!(sparse > full / 2, "every chunk has a record left");
    handle.purge();
    tick_until_done(&mut handle);
    let moved = held_bytes(&handle);
    assert!(
        moved < full / 5,
        "{full} full, {sparse} before, {moved} after"
    );
    for number in (0..20_000).filter(|number| number % 10 == 0) {
        assert_eq!(is_whole(&mut handle, number), Some(true));
    }
    assert_eq!(handle.len(0), 2_000);
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn a_drift_of_sizes_does_not_keep_memory() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    let count = 40_000;
    for round in 0..4_u64 {
        for number in 0..count {
            let len = 50 + usize::try_from((number * 31 + round * 57) % 100).unwrap();
            set(&mut handle, number, len);
        }
        handle.purge();
        tick_until_done(&mut handle);
    }
    let usage = handle.statistics().memory;
    let limit = usage.slot_bytes + usage.slot_bytes / 4 + (4 << 20);
    assert!(usage.slot_held_bytes < limit, "{usage:?}");
}

#[test]
fn readers_and_writers_do_not_notice() {
    let store = Force::TINY.store(1);
    let count = if cfg!(miri) { 30 } else { 3_000 };
    let mut handle = store.handle();
    (0..count).for_each(|number| set(&mut handle, number, 60));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                let mut handle = store.handle();
                let mut random = base::random::Prng::seeded(thread);
                while !done.load(Ordering::Relaxed) {
                    let number = random.below(count);
                    assert_eq!(is_whole(&mut handle, number), Some(true));
                    if thread == 0 {
                        set(&mut handle, number, random.index(200));
                        handle.tick(1_000);
                    }
                }
            });
        }
        for _ in 0..if cfg!(miri) { 2 } else { 50 } {
            handle.purge();
            tick_until_done(&mut handle);
        }
        done.store(true, Ordering::Relaxed);
    });
}
