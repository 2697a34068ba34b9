//! What an insertion pays for the growth of the table, and how rarely a tag misleads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::handle::Handle;
use crate::index::Index;
use crate::indexed::hash_of;
use crate::value::{Deadline, StoreError};

/// Maximum number of buckets that one insertion splits.
const SPLITS_MAX: u64 = 2;

const KEYS: u64 = if cfg!(miri) { 500 } else { 100_000 };

fn insert(handle: &mut Handle, number: u64) {
    let name = number.to_le_bytes();
    let key = handle.key(0, &name);
    handle
        .upsert(&key, b"value", Deadline::Never, |_| ())
        .unwrap();
}

fn index(store: &Store) -> Arc<Index> {
    let databases = &store.shared().unwrap().databases;
    let mut seen = databases.unseen();
    seen.refresh(databases);
    Arc::clone(seen.get(0).unwrap())
}

#[test]
fn an_insertion_splits_two_buckets_at_most() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    insert(&mut handle, 0);
    let index = index(&store);
    let mut before = index.state().buckets();
    for number in 1..KEYS {
        insert(&mut handle, number);
        let buckets = index.state().buckets();
        assert!(buckets - before <= SPLITS_MAX, "at {number}");
        before = buckets;
    }
    assert!(before >= KEYS / 5 - SPLITS_MAX, "and keeps up: {before}");
}

/// Two other threads add records all the while, and each of them sometimes holds a needed bucket.
#[test]
fn room_for_records_is_made_beside_others_who_put_some() {
    let store = Force::TINY.store(1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for part in 1..=2_u64 {
            let (store, is_over) = (&store, &is_over);
            scope.spawn(move || {
                let mut handle = store.handle();
                let numbers = (0..100).cycle();
                for number in numbers.take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    insert(&mut handle, part << 32 | number);
                }
            });
        }
        let mut handle = store.handle();
        insert(&mut handle, 0);
        handle.expect(0, KEYS);
        let buckets = index(&store).state().buckets();
        is_over.store(true, Ordering::Relaxed);
        assert!(buckets >= KEYS / 5, "{buckets}");
    });
}

#[test]
fn a_table_that_expects_records_has_their_room_and_keeps_it_meanwhile() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.expect(0, KEYS);
    let index = index(&store);
    let buckets = index.state().buckets();
    assert!(buckets >= KEYS / 5, "{buckets}");
    let mut now_unix_ms = 1_000;
    let mut rest = |handle: &mut Handle| {
        // More steps than it takes to shrink such a table.
        for _ in 0..KEYS / 5 {
            now_unix_ms += 1;
            handle.tick(now_unix_ms);
        }
    };
    rest(&mut handle);
    assert_eq!(index.state().buckets(), buckets);
    for number in 0..KEYS / 10 {
        insert(&mut handle, number);
    }
    rest(&mut handle);
    assert_eq!(index.state().buckets(), buckets, "none was split");
    handle.expect(0, 0);
    rest(&mut handle);
    let kept = index.state().buckets();
    assert!(kept < buckets, "as any table with few records: {kept}");
    for number in 0..KEYS / 10 {
        let name = number.to_le_bytes();
        let key = handle.key(0, &name);
        assert!(handle.read(&key, |record| record.is_some()), "{number}");
    }
}

#[test]
fn a_tag_misleads_less_than_one_lookup_of_a_hundred() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    (0..KEYS).for_each(|number| insert(&mut handle, number));
    let shared = store.shared().unwrap();
    let index = index(&store);
    let mut misled = 0;
    for number in 0..2 * KEYS {
        let hash = handle.hash(&number.to_le_bytes());
        let home = index.lock(hash);
        let bucket = index.bucket(home.number);
        let found = index.find(bucket, hash, |link| {
            let is = hash_of(shared, link) == hash;
            misled += u64::from(!is);
            is
        });
        assert_eq!(found.is_some(), number < KEYS);
        bucket.unlock(false);
    }
    println!("{misled} of {} lookups", 2 * KEYS);
    assert!(misled * 100 < 2 * KEYS, "{misled}");
}

/// The length of such a key would not fit into the head of a saved record. All pages of the key are
/// the same page.
#[test]
#[cfg(target_pointer_width = "64")]
#[ignore = "takes a quarter of a minute, to hash it"]
fn a_key_of_more_than_4_gib_is_refused() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    let name = vec![0; (u32::MAX as usize) + 1];
    let key = handle.key(0, &name);
    let refused = handle.upsert(&key, b"value", Deadline::Never, |_| ());
    assert!(matches!(refused, Err(StoreError::TooLarge)), "{refused:?}");
    assert_eq!(handle.len(0), 0);
}
