//! Values that verify themselves, from several threads, while the table grows.

use std::sync::atomic::{AtomicBool, Ordering};

use base::random::Prng;

use super::Force;
use crate::handle::Handle;
use crate::record::Record;
use crate::value::Deadline;

/// Returns a value whose every word follows from its key, its length and its round, so that a value
/// made of parts of several is detected.
fn value(key: u64, round: u64, len: usize) -> Vec<u8> {
    let seed = key << 32 ^ round;
    let mut bytes = vec![0; 16 + len];
    bytes[..8].copy_from_slice(&key.to_le_bytes());
    bytes[8..16].copy_from_slice(&round.to_le_bytes());
    Prng::seeded(seed).fill(&mut bytes[16..]);
    bytes
}

fn check(key: u64, record: &Record<'_>) -> bool {
    let bytes = record.to_vec();
    let Some((head, _)) = bytes.split_at_checked(16) else {
        return false;
    };
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
    word(0) == key && bytes == value(key, word(8), bytes.len() - 16)
}

fn read(handle: &mut Handle, key: u64) -> Option<bool> {
    let name = format!("key:{key}");
    let key_ref = handle.key(0, name.as_bytes());
    // The visitor may see garbage that the store then rejects: only its last answer counts.
    handle.read(&key_ref, |record| record.map(|record| check(key, record)))
}

fn write(handle: &mut Handle, key: u64, round: u64, len: usize) {
    let name = format!("key:{key}");
    let key_ref = handle.key(0, name.as_bytes());
    handle
        .upsert(&key_ref, &value(key, round, len), Deadline::Never, |_| ())
        .unwrap();
}

fn delete(handle: &mut Handle, key: u64) {
    let name = format!("key:{key}");
    let key_ref = handle.key(0, name.as_bytes());
    handle.delete(&key_ref, |_| ());
}

#[test]
fn no_value_is_ever_torn() {
    let store = Force::TINY.store(1);
    let (threads, rounds) = if cfg!(miri) { (2, 60) } else { (4, 25_000) };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let store = &store;
            scope.spawn(move || {
                let mut handle = store.handle();
                let mut random = Prng::seeded(thread);
                for round in 0..rounds {
                    // The number of keys in use rises, so that the table grows all the time.
                    let key = random.below(8 + round);
                    let len_max = if random.below(50) == 0 { 3_000 } else { 150 };
                    let len = random.index(len_max);
                    match random.below(10) {
                        0 => delete(&mut handle, key),
                        1..=4 => write(&mut handle, key, round << 8 | thread, len),
                        _ => assert_ne!(read(&mut handle, key), Some(false), "torn"),
                    }
                }
            });
        }
    });
}

#[test]
fn what_is_never_deleted_is_never_missed() {
    let store = Force::TINY.store(1);
    let steady = if cfg!(miri) { 10 } else { 500 };
    let mut handle = store.handle();
    (0..steady).for_each(|key| write(&mut handle, key, 0, 20));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // One thread rewrites them at other sizes, one makes the table grow, two read.
        scope.spawn(|| {
            let mut handle = store.handle();
            let mut random = Prng::seeded(1);
            let mut round = 1;
            while !done.load(Ordering::Relaxed) {
                write(&mut handle, random.below(steady), round, random.index(200));
                round += 1;
            }
        });
        let grower = scope.spawn(|| {
            let mut handle = store.handle();
            for key in steady..if cfg!(miri) { 200 } else { 60_000 } {
                write(&mut handle, key, 0, 8);
            }
        });
        for thread in 0..2 {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                let mut handle = store.handle();
                let mut random = Prng::seeded(100 + thread);
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(read(&mut handle, random.below(steady)), Some(true));
                }
            });
        }
        while !grower.is_finished() {
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn increments_from_all_sides_add_up() {
    let store = Force::TINY.store(1);
    let (threads, rounds) = if cfg!(miri) { (2, 30) } else { (4, 10_000) };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut handle = store.handle();
                for round in 0..rounds {
                    let name = format!("counter:{}", round % 3);
                    let key = handle.key(0, name.as_bytes());
                    handle.modify(&key, |entry| {
                        let record = entry.record();
                        let number = record.and_then(|record| record.integer()).unwrap_or(0);
                        entry.set_integer(number + 1, Deadline::Keep).unwrap();
                    });
                }
            });
        }
    });
    let mut handle = store.handle();
    let mut sum = 0;
    handle.scan(0, 0, 100, |record| sum += record.integer().unwrap());
    assert_eq!(sum, threads * rounds);
}
