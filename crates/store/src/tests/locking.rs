//! Several keys as one, and the whole store for one thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Force, Notes, Told};
use crate::handle::Handle;
use crate::record::Record;
use crate::store::{Options, Store};
use crate::value::Deadline;

const ACCOUNTS: usize = 40;
const START_BALANCE: i64 = 1_000;

fn account(number: usize) -> String {
    format!("account:{number}")
}

fn open_accounts(handle: &mut Handle) {
    for number in 0..ACCOUNTS {
        let name = account(number);
        let key = handle.key(0, name.as_bytes());
        handle
            .modify(&key, |entry| {
                entry.set_integer(START_BALANCE, Deadline::Never)
            })
            .unwrap();
    }
}

fn balance(handle: &mut Handle, name: &str) -> i64 {
    let key = handle.key(0, name.as_bytes());
    handle.read(&key, |record| {
        record.and_then(|record| record.integer()).unwrap()
    })
}

fn add(handle: &mut Handle, name: &str, amount: i64) {
    let key = handle.key(0, name.as_bytes());
    handle.modify(&key, |entry| {
        let balance = entry.record().and_then(|record| record.integer()).unwrap();
        entry.set_integer(balance + amount, Deadline::Keep).unwrap();
    });
}

fn transfer(handle: &mut Handle, from: &str, to: &str, amount: i64) {
    let keys = [from, to].map(|name| handle.key(0, name.as_bytes()));
    handle.locked(&keys, |handle| {
        add(handle, from, -amount);
        add(handle, to, amount);
    });
}

fn total(handle: &mut Handle) -> i64 {
    let names: Vec<_> = (0..ACCOUNTS).map(account).collect();
    let keys: Vec<_> = names
        .iter()
        .map(|name| handle.key(0, name.as_bytes()))
        .collect();
    let sum_of_each = handle.locked(&keys, |handle| {
        names.iter().map(|name| balance(handle, name)).sum()
    });
    let sum_of_all = handle.read_all(
        &keys,
        |_| true,
        |records| {
            let balances = records.iter().flatten().filter_map(Record::integer);
            balances.sum()
        },
    );
    assert_eq!(sum_of_each, sum_of_all);
    sum_of_each
}

#[test]
fn several_keys_are_shown_at_once() {
    for store in [
        Force::TINY.store(2),
        Store::naive(&Options { databases: 2 }),
    ] {
        let mut handle = store.handle();
        handle.begin(1_000);
        for (database, name, deadline) in [
            (0, "a", Deadline::Never),
            (1, "a", Deadline::Never),
            (0, "due", Deadline::At(2_000)),
        ] {
            let key = handle.key(database, name.as_bytes());
            let value = format!("{database}{name}");
            handle
                .upsert(&key, value.as_bytes(), deadline, |_| ())
                .unwrap();
        }
        handle.begin(3_000);
        let keys = [(0, "a"), (0, "none"), (1, "a"), (0, "due"), (0, "a")]
            .map(|(database, name)| handle.key(database, name.as_bytes()));
        let all = |handle: &mut Handle| {
            handle.read_all(
                &keys,
                |_| true,
                |records| {
                    let text = |record: &Option<Record<'_>>| record.map(|record| record.to_vec());
                    records.iter().map(text).collect::<Vec<_>>()
                },
            )
        };
        let expected = [Some("0a"), None, Some("1a"), None, Some("0a")]
            .map(|text| text.map(|text| text.as_bytes().to_vec()));
        assert_eq!(all(&mut handle), expected);
        assert_eq!(handle.locked(&keys, all), expected);
        assert_eq!(handle.exclusive(all), expected);
        let is_second = |record: &Record<'_>| record.to_vec() == b"1a";
        let kinds = handle.read_all(
            &keys,
            |record| !is_second(record),
            |records| records.iter().map(Option::is_some).collect::<Vec<_>>(),
        );
        assert_eq!(kinds, [true, false, true]);
    }
}

/// Transfers between accounts in both directions, readers of all accounts, and a table that grows
/// from one bucket at the same time.
#[test]
fn no_money_is_made_or_lost() {
    let store = Force::TINY.store(1);
    open_accounts(&mut store.handle());
    let rounds = if cfg!(miri) { 20 } else { 8_000 };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|thread| scope.spawn(move_money(&store, thread, rounds)))
            .collect();
        scope.spawn(|| grow(&store, &done));
        let mut handle = store.handle();
        while !workers.iter().all(|worker| worker.is_finished()) {
            assert_eq!(
                total(&mut handle),
                START_BALANCE * i64::try_from(ACCOUNTS).unwrap()
            );
            handle.exclusive(|handle| {
                assert_eq!(
                    total(handle),
                    START_BALANCE * i64::try_from(ACCOUNTS).unwrap()
                );
            });
        }
        done.store(true, Ordering::Relaxed);
    });
}

fn move_money(store: &std::sync::Arc<Store>, thread: u64, rounds: u64) -> impl FnOnce() + Send {
    let store = std::sync::Arc::clone(store);
    move || {
        let mut handle = store.handle();
        let mut random = base::random::Prng::seeded(thread);
        for _ in 0..rounds {
            let (from, to) = (random.index(ACCOUNTS), random.index(ACCOUNTS));
            transfer(&mut handle, &account(from), &account(to), 1);
        }
    }
}

fn grow(store: &std::sync::Arc<Store>, done: &AtomicBool) {
    let mut handle = store.handle();
    let mut number = 0_u32;
    while !done.load(Ordering::Relaxed) && number < 200_000 {
        let name = format!("other:{number}");
        let key = handle.key(0, name.as_bytes());
        handle
            .upsert(&key, b"value", Deadline::Never, |_| ())
            .unwrap();
        number += 1;
    }
}

#[test]
fn a_set_takes_keys_in_any_order_repeated_and_of_several_databases() {
    let store = Force::TINY.store(3);
    let mut handle = store.handle();
    let notes = Notes::default();
    handle.set_sink(Some(Box::new(notes.clone())));
    let keys = [
        handle.key(2, b"b"),
        handle.key(0, b"a"),
        handle.key(2, b"a"),
        handle.key(0, b"a"),
    ];
    handle.locked(&keys, |handle| {
        for key in &keys {
            handle
                .upsert(key, b"value", Deadline::Never, |entry| {
                    entry.effect(|effect| effect.command(&[b"SET"]));
                })
                .unwrap();
        }
        handle.locked(&keys[1..2], |handle| {
            assert!(handle.read(&keys[1], |record| record.is_some()));
        });
    });
    assert_eq!([0, 1, 2].map(|database| handle.len(database)), [1, 0, 2]);
    let told = notes.take();
    assert_eq!(
        (told.first(), told.last()),
        (Some(&Told::Begin), Some(&Told::End))
    );
    assert_eq!(told.len(), 6, "one group, whatever is nested");
    handle.locked(&[], |_| ());
}

#[test]
fn many_new_keys_at_once_leave_no_long_chains() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    let names: Vec<_> = (0..5_000).map(|number| format!("key:{number}")).collect();
    let keys: Vec<_> = names
        .iter()
        .map(|name| handle.key(0, name.as_bytes()))
        .collect();
    handle.locked(&keys, |handle| {
        for key in &keys {
            handle
                .upsert(key, b"value", Deadline::Never, |_| ())
                .unwrap();
        }
    });
    assert_eq!(handle.len(0), 5_000);
    assert!(
        handle.overflow_buckets(0) < 300,
        "{}",
        handle.overflow_buckets(0)
    );
}

#[test]
#[should_panic(expected = "outside of the lock set")]
fn a_key_that_was_not_declared_is_refused() {
    let store = Force {
        level: 6,
        ..Force::TINY
    }
    .store(1);
    let mut handle = store.handle();
    let keys: Vec<_> = (0..64_u8).map(|byte| [byte]).collect();
    let declared = handle.key(0, &keys[0]);
    handle.locked(&[declared], |handle| {
        // At least one of the keys is in another bucket.
        for key in &keys {
            let key = handle.key(0, key);
            handle.delete(&key, |_| ());
        }
    });
}

#[test]
fn a_panic_gives_locks_back() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    let key = handle.key(0, b"key");
    let panics: [&dyn Fn(&mut Handle); 3] = [
        &|handle| handle.modify(&key, |_| panic!("meant")),
        &|handle| handle.locked(&[key], |_| panic!("meant")),
        &|handle| handle.exclusive(|_| panic!("meant")),
    ];
    for panics in panics {
        let mut victim = store.handle();
        let caught = std::panic::AssertUnwindSafe(|| panics(&mut victim));
        assert!(std::panic::catch_unwind(caught).is_err());
        drop(victim);
        handle
            .upsert(&key, b"value", Deadline::Never, |_| ())
            .unwrap();
        assert_eq!(handle.exclusive(|handle| handle.len(0)), 1);
    }
}

#[test]
fn handles_come_and_go_while_one_wants_the_store_for_itself() {
    let store = Force::TINY.store(1);
    let seen = AtomicU64::new(0);
    let is_slow = cfg!(any(miri, target_endian = "big"));
    let rounds = if is_slow { 5 } else { 40 };
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (store, seen) = (&store, &seen);
            scope.spawn(move || {
                for round in 0..rounds {
                    let mut handle = store.handle();
                    handle.enter();
                    let name = format!("key:{thread}:{round}");
                    let key = handle.key(0, name.as_bytes());
                    handle.upsert(&key, b"1", Deadline::Never, |_| ()).unwrap();
                    handle.leave();
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut handle = store.handle();
        handle.enter();
        while seen.load(Ordering::Relaxed) < 3 * rounds {
            handle.exclusive(|handle| {
                let before = handle.len(0);
                std::thread::yield_now();
                assert_eq!(handle.len(0), before);
            });
            // Without the sleep it would win hundreds of times before another thread comes in, if
            // the cores are in use.
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        handle.leave();
        assert_eq!(handle.len(0), usize::try_from(3 * rounds).unwrap());
    });
}

/// Records that come and go together are counted together.
#[test]
fn no_half_of_a_set_is_counted() {
    let store = Store::new(&Options::default()).unwrap();
    let mut handle = store.handle();
    handle.begin(0);
    let names: Vec<String> = (0..ACCOUNTS).map(account).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut handle = store.handle();
            handle.begin(0);
            let keys: Vec<_> = names
                .iter()
                .map(|name| handle.key(0, name.as_bytes()))
                .collect();
            for round in 0..1_000 {
                handle.locked(&keys, |handle| {
                    for key in &keys {
                        if round % 2 == 0 {
                            handle.upsert(key, b"x", Deadline::Never, |_| ()).unwrap();
                        } else {
                            handle.delete(key, |_| ());
                        }
                    }
                });
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            let count = handle.len(0);
            assert!(count == 0 || count == ACCOUNTS, "{count}");
        }
    });
    assert_eq!(handle.len(0), 0);
}

/// A reader of several keys without a lock sees them at one moment, whatever other threads write
/// meanwhile.
#[test]
fn keys_that_are_read_together_are_of_one_moment() {
    let store = Force::TINY.store(1);
    let names = ["a", "b", "c"];
    let is_over = AtomicBool::new(false);
    let set_all = |handle: &mut Handle, number: u64| {
        let keys = names.map(|name| handle.key(0, name.as_bytes()));
        handle.locked(&keys, |handle| {
            for key in &keys {
                let value = number.to_string();
                handle
                    .upsert(key, value.as_bytes(), Deadline::Never, |_| ())
                    .unwrap();
            }
        });
    };
    std::thread::scope(|scope| {
        let mut writer = store.handle();
        writer.begin(1_000);
        set_all(&mut writer, 0);
        let (over, set_all) = (&is_over, &set_all);
        scope.spawn(move || {
            let mut number = 0;
            while !over.load(Ordering::Relaxed) {
                number += 1;
                set_all(&mut writer, number);
            }
        });
        let mut reader = store.handle();
        let keys = names.map(|name| reader.key(0, name.as_bytes()));
        let mut seen: Vec<Option<i64>> = Vec::new();
        for _ in 0..if cfg!(miri) { 20 } else { 20_000 } {
            reader.begin(1_000);
            reader.read_together(
                &keys,
                |_, _| (),
                |at, record| {
                    seen.truncate(at);
                    seen.push(record.and_then(Record::integer));
                },
            );
            assert!(seen.len() == 3 && seen[0].is_some(), "{seen:?}");
            assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// A look at several keys counts each once, whether or not it takes the lock.
#[test]
fn keys_that_are_read_together_are_counted_once() {
    // The plain map counts nothing.
    for (store, is_counted) in [
        (Force::TINY.store(1), true),
        (Store::naive(&Options { databases: 1 }), false),
    ] {
        let mut handle = store.handle();
        handle.begin(1_000);
        let long = "long".repeat(10_000);
        for (name, value) in [("a", "1"), ("long", &*long), ("due", "2")] {
            let deadline = match name {
                "due" => Deadline::At(2_000),
                _ => Deadline::Never,
            };
            let key = handle.key(0, name.as_bytes());
            handle
                .upsert(&key, value.as_bytes(), deadline, |_| ())
                .unwrap();
        }
        let counts = |store: &Store| {
            let statistics = store.statistics();
            (statistics.hits, statistics.misses)
        };
        // First briefly, then with a key that needs the lock after one that does not, then with an
        // expired key that is removed.
        for (names, now, lengths) in [
            (["a", "none", "a"], 1_000, [1, 0, 1]),
            (["a", "none", "long"], 1_000, [1, 0, 40_000]),
            (["a", "due", "a"], 3_000, [1, 0, 1]),
        ] {
            handle.begin(now);
            let keys = names.map(|name| handle.key(0, name.as_bytes()));
            let before = counts(&store);
            let mut seen = Vec::new();
            handle.read_together(
                &keys,
                |_, _| (),
                |at, record| {
                    seen.truncate(at);
                    seen.push(record.map_or(0, |record| record.to_vec().len()));
                },
            );
            assert_eq!(seen, lengths);
            let after = counts(&store);
            let misses = lengths.iter().filter(|length| **length == 0).count() as u64;
            let counted = (after.0 - before.0, after.1 - before.1);
            let expected = if is_counted {
                (3 - misses, misses)
            } else {
                (0, 0)
            };
            assert_eq!(counted, expected, "{names:?}");
        }
    }
}
