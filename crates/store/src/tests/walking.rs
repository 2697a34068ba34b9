//! SCAN and RANDOMKEY.

use std::collections::{HashMap, HashSet};

use super::Force;
use crate::handle::Handle;
use crate::value::Deadline;

fn set(handle: &mut Handle, key: &str) {
    let key = handle.key(0, key.as_bytes());
    handle
        .upsert(&key, b"value", Deadline::Never, |_| ())
        .unwrap();
}

/// Walks the whole database, and runs `between` after every step.
fn walk(
    handle: &mut Handle,
    count: usize,
    mut between: impl FnMut(&mut Handle),
) -> HashMap<Vec<u8>, u32> {
    let mut seen = HashMap::new();
    let mut cursor = 0;
    loop {
        cursor = handle.scan(0, cursor, count, |record| {
            *seen.entry(record.key().to_vec()).or_default() += 1;
        });
        if cursor == 0 {
            return seen;
        }
        between(handle);
    }
}

#[test]
fn a_walk_meets_everything_once_while_the_table_grows() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    for number in 0..500 {
        set(&mut handle, &format!("old:{number}"));
    }
    let mut new = 0;
    let seen = walk(&mut handle, 10, |handle| {
        for _ in 0..50 {
            set(handle, &format!("new:{new}"));
            new += 1;
        }
    });
    for number in 0..500 {
        let key = format!("old:{number}").into_bytes();
        assert_eq!(seen.get(&key), Some(&1), "{number}");
    }
    assert!(new > 500, "the table grew under the walk");
}

#[test]
fn a_walk_loses_nothing_while_the_table_shrinks() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    let (all, each) = if cfg!(miri) { (300, 15) } else { (30_000, 30) };
    for number in 0..all {
        set(&mut handle, &format!("key:{number}"));
    }
    let full = handle.buckets(0);
    for number in (0..all).filter(|number| number % each != 0) {
        let name = format!("key:{number}");
        let key = handle.key(0, name.as_bytes());
        handle.delete(&key, |_| ());
    }
    // A walk that begins in the large table ends in the small one.
    let mut sizes = HashSet::new();
    let seen = walk(&mut handle, 1, |handle| {
        sizes.insert(handle.buckets(0));
        handle.tick(1_000);
    });
    let left = (0..all).step_by(each);
    assert!(
        left.clone()
            .all(|number| seen.contains_key(format!("key:{number}").as_bytes()))
    );
    assert_eq!(seen.len(), left.count());
    assert!(
        sizes.len() > 1 && sizes.contains(&full),
        "it shrank on the way"
    );
    while handle.tick(1_000) {}
    let small = handle.buckets(0);
    assert!(small <= full / 8, "{full} buckets, {small} left");
    assert_eq!(walk(&mut handle, 10, |_| ()).len(), seen.len());
}

#[test]
fn nobody_notices_that_a_table_goes_up_and_down() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    let steady = if cfg!(miri) { 5 } else { 100 };
    (0..steady).for_each(|number| set(&mut handle, &format!("steady:{number}")));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                let mut handle = store.handle();
                let mut random = base::random::Prng::seeded(thread);
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let name = format!("steady:{}", random.below(steady));
                    let key = handle.key(0, name.as_bytes());
                    assert!(handle.read(&key, |record| record.is_some()));
                    if thread == 0 {
                        set(&mut handle, &name);
                        handle.tick(1_000);
                    }
                }
            });
        }
        let (rounds, more) = if cfg!(miri) { (1, 30) } else { (10, 10_000) };
        for _ in 0..rounds {
            for number in 0..more {
                set(&mut handle, &format!("passing:{number}"));
            }
            for number in 0..more {
                let name = format!("passing:{number}");
                let key = handle.key(0, name.as_bytes());
                handle.delete(&key, |_| ());
            }
            while handle.tick(1_000) {}
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(handle.len(0), usize::try_from(steady).unwrap());
}

#[test]
fn a_walk_loses_nothing_while_others_write_and_delete() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    let steady = if cfg!(miri) { 20 } else { 1_000 };
    for number in 0..steady {
        set(&mut handle, &format!("steady:{number}"));
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                let mut handle = store.handle();
                let mut number = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    set(&mut handle, &format!("passing:{thread}:{number}"));
                    if number % 3 == 0 {
                        let gone = format!("passing:{thread}:{}", number / 2);
                        let key = handle.key(0, gone.as_bytes());
                        handle.delete(&key, |_| ());
                    }
                    number = (number + 1) % 100_000;
                }
            });
        }
        for _ in 0..if cfg!(miri) { 1 } else { 20 } {
            let seen = walk(&mut handle, 100, |_| ());
            let missed = (0..steady)
                .find(|number| seen.get(format!("steady:{number}").as_bytes()) != Some(&1));
            assert_eq!(missed, None);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_step_ends_soon_where_there_is_nothing() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    for number in 0..6_000 {
        set(&mut handle, &format!("key:{number}"));
    }
    for number in 0..6_000 {
        let key = format!("key:{number}");
        let key = handle.key(0, key.as_bytes());
        assert!(handle.delete(&key, |_| ()));
    }
    let mut steps = 0;
    assert!(walk(&mut handle, 1, |_| steps += 1).is_empty());
    assert!(steps > 10, "1,200 buckets in steps of 64");
    assert_eq!(handle.random_key(0, 3), None);
}

#[test]
fn any_cursor_is_good() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    for number in 0..100 {
        set(&mut handle, &format!("key:{number}"));
    }
    for cursor in [1, 77, 1 << 63, u64::MAX, 0x1234_5678] {
        let mut cursor = cursor;
        let mut steps = 0;
        while cursor != 0 {
            cursor = handle.scan(0, cursor, 10, |_| ());
            steps += 1;
            assert!(steps < 1_000);
        }
    }
}

#[test]
fn random_keys_reach_every_record() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    for number in 0..50 {
        set(&mut handle, &format!("key:{number}"));
    }
    let met: HashSet<_> = (0..5_000)
        .filter_map(|draw| handle.random_key(0, draw))
        .collect();
    assert_eq!(met.len(), 50);
}

#[test]
fn databases_are_apart() {
    let store = Force::TINY.store(3);
    let mut handle = store.handle();
    set(&mut handle, "key");
    assert_eq!([0, 1, 2].map(|database| handle.len(database)), [1, 0, 0]);
    handle.swap(0, 2);
    assert_eq!([0, 1, 2].map(|database| handle.len(database)), [0, 0, 1]);
    handle.swap(2, 2);
    assert_eq!(handle.flush(Some(1)), 0);
    assert_eq!(handle.flush(None), 1);
    assert_eq!(handle.len(2), 0);
    set(&mut handle, "key");
    assert_eq!(handle.len(0), 1, "a flushed database works as before");
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn a_flush_gives_the_memory_back() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    for number in 0..2_000 {
        let name = format!("key:{number}");
        let key = handle.key(0, name.as_bytes());
        let value = vec![b'v'; number * 20];
        handle
            .upsert(&key, &value, Deadline::Never, |_| ())
            .unwrap();
    }
    handle.tick(1_000);
    let before = store.statistics().used_bytes;
    assert!(before > 30 << 20);
    assert_eq!(handle.flush(None), 2_000);
    while store.statistics().lazyfree_pending > 0 {
        std::thread::yield_now();
    }
    handle.tick(2_000);
    let after = store.statistics().used_bytes;
    assert!(after < 256 << 10, "{before} before, {after} after");
}

#[test]
fn no_page_of_a_fresh_table_is_empty() {
    // Each store draws secrets of its own, so keys have other positions in each.
    for round in 0..200 {
        let store = crate::Store::new(&crate::Options::default()).unwrap();
        let mut handle = store.handle();
        let keys = if round % 2 == 0 { 3 } else { 10 };
        for number in 0..keys {
            set(&mut handle, &format!("key:{number}"));
        }
        let (mut cursor, mut found) = (0, 0);
        loop {
            let mut page = 0;
            cursor = handle.scan(0, cursor, 2, |_| page += 1);
            found += page;
            assert!(
                page > 0 || found == keys,
                "round {round}: an empty page after {found} of {keys}"
            );
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(found, keys);
    }
}
