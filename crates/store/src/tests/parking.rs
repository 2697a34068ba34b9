//! Keys held for long: no thread blocks on them, and no waiter is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use base::random::Prng;

use super::Force;
use crate::handle::Handle;
use crate::key::Key;
use crate::parking::{Busy, Hold, Wake};
use crate::policy::Policy;
use crate::store::{Backend, Store};
use crate::value::{Deadline, StoreError};

/// Much longer than any machine needs; a lost wake-up would last for ever.
const PATIENCE: Duration = Duration::from_secs(120);

/// A table in which some keys are in different buckets.
fn wide() -> Arc<Store> {
    let level = 6;
    Force {
        level,
        ..Force::TINY
    }
    .store(2)
}

fn waiting(store: &Store) -> u64 {
    match &store.backend {
        Backend::Indexed(shared) => shared.parking.waiting(),
        Backend::Naive(..) => 0,
    }
}

/// Returns a callback to leave, and a channel that receives its call.
fn bell() -> (Wake, mpsc::Receiver<()>) {
    let (sender, receiver) = mpsc::channel();
    (Box::new(move || sender.send(()).unwrap()), receiver)
}

#[test]
fn a_survey_passes_by_what_is_held_for_long() {
    let store = wide();
    let (mut holder, mut other) = (store.handle(), store.handle());
    for number in 0..1000 {
        let name = format!("key:{number}");
        let key = holder.key(0, name.as_bytes());
        let set = holder.upsert(&key, b"value", Deadline::Never, |_| ());
        assert!(set.is_ok());
    }
    let held = holder.key(0, b"key:500");
    let seen = holder.try_locked(&[held], Hold::Long, |_| {
        let (mut seen, mut cursor) = (0, 0);
        loop {
            cursor = other.survey(0, cursor, 10, |record| {
                assert_ne!(record.key(), b"key:500");
                seen += 1;
            });
            if cursor == 0 {
                return seen;
            }
        }
    });
    assert!((900..1000).contains(&seen.unwrap()), "{seen:?}");
}

/// The evicting thread remembers eligible records. These may be held for long when their turn
/// comes.
#[test]
fn who_makes_room_waits_for_nothing_that_is_held_for_long() {
    let store = wide();
    store.set_memory_limit(1 << 20, Policy::AllKeysLru, 5);
    let (mut holder, mut other) = (store.handle(), store.handle());
    let names: Vec<String> = (0..20_000).map(|number| format!("key:{number}")).collect();
    for name in &names {
        let key = other.key(0, name.as_bytes());
        other.make_room(200).unwrap();
        other
            .upsert(&key, &[b'v'; 200], Deadline::Never, |_| ())
            .unwrap();
    }
    let held: Vec<Key<'_>> = names
        .iter()
        .map(|name| holder.key(0, name.as_bytes()))
        .collect();
    let made = holder.try_locked(&held, Hold::Long, |_| other.make_room(1 << 20));
    assert_eq!(made, Ok(Err(StoreError::OutOfMemory)));
}

#[test]
fn who_waits_is_called_when_the_keys_are_given_back() {
    let store = wide();
    let (mut holder, mut waiter) = (store.handle(), store.handle());
    let (one, two) = (holder.key(1, b"one"), holder.key(0, b"two"));
    assert!(!waiter.may_be_busy());
    let rang = holder
        .try_locked(&[one, two], Hold::Long, |_| {
            assert!(waiter.may_be_busy());
            let locked = waiter.try_locked(&[two], Hold::Short, |_| ());
            assert_eq!(locked, Err(Busy));
            let (wake, rang) = bell();
            assert!(waiter.park(&[two], wake));
            let (wake, also_rang) = bell();
            let free = waiter.key(0, b"another");
            assert!(waiter.park(&[free, one], wake), "any of the keys");
            assert!(rang.try_recv().is_err() && also_rang.try_recv().is_err());
            assert_eq!(waiting(&store), 2);
            [rang, also_rang]
        })
        .unwrap();
    assert!(rang.iter().all(|rang| rang.try_recv().is_ok()));
    assert_eq!(waiting(&store), 0);
    assert!(!waiter.may_be_busy());
    assert!(waiter.try_locked(&[one, two], Hold::Long, |_| ()).is_ok());
    let (wake, rang) = bell();
    assert!(!waiter.park(&[one, two], wake));
    assert_eq!(rang.try_recv(), Err(mpsc::TryRecvError::Disconnected));
}

#[test]
fn what_was_locked_before_a_busy_key_is_given_back() {
    let store = wide();
    let (mut holder, mut waiter) = (store.handle(), store.handle());
    let names: Vec<_> = (0..40).map(|number| format!("key:{number}")).collect();
    let keys: Vec<_> = names
        .iter()
        .map(|name| holder.key(0, name.as_bytes()))
        .collect();
    holder
        .try_locked(&keys[20..21], Hold::Long, |holder| {
            assert_eq!(waiter.try_locked(&keys, Hold::Long, |_| ()), Err(Busy));
            // All keys that are not in the holder's bucket can be used.
            let mut busy = 0;
            for key in &keys {
                let taken = waiter.try_locked(&[*key], Hold::Short, |_| ());
                busy += usize::from(taken.is_err());
            }
            assert!(busy > 0 && busy < 10, "only what is in the holder's bucket");
            holder
                .upsert(&keys[20], b"value", Deadline::Never, |_| ())
                .unwrap();
        })
        .unwrap();
    assert!(waiter.try_locked(&keys, Hold::Long, |_| ()).is_ok());
}

#[test]
fn a_panic_wakes_who_waits() {
    let store = wide();
    let mut waiter = store.handle();
    let (wake, rang) = bell();
    let mut victim = store.handle();
    let key = victim.key(0, b"key");
    let caught = std::panic::AssertUnwindSafe(|| {
        victim.try_locked(&[key], Hold::Long, |_| {
            assert!(waiter.park(&[key], wake));
            panic!("meant");
        })
    });
    assert!(std::panic::catch_unwind(caught).is_err());
    assert!(rang.try_recv().is_ok());
}

/// Threads hold pairs of keys for long, and wait for each other without blocking.
#[test]
fn everybody_comes_to_his_turn() {
    let store = wide();
    let (threads, rounds) = if cfg!(miri) { (2, 10) } else { (4, 3_000) };
    let parked = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (store, parked) = (&store, &parked);
            scope.spawn(move || {
                let mut handle = store.handle();
                let mut random = Prng::seeded(thread);
                for round in 0..rounds {
                    let names = [0; 2].map(|_: u8| format!("key:{}", random.below(6)));
                    take_turn(&mut handle, &names, parked);
                    // New buckets are added meanwhile.
                    let name = format!("other:{thread}:{round}");
                    let key = handle.key(0, name.as_bytes());
                    handle.upsert(&key, b"1", Deadline::Never, |_| ()).unwrap();
                }
            });
        }
    });
    let mut handle = store.handle();
    let mut sum = 0;
    for number in 0..6 {
        let name = format!("key:{number}");
        let key = handle.key(0, name.as_bytes());
        sum += handle.read(&key, |record| {
            record.and_then(|record| record.integer()).unwrap_or(0)
        });
    }
    let turns = i64::try_from(threads * rounds).unwrap();
    assert_eq!(sum, 2 * turns);
    assert_eq!(waiting(&store), 0);
}

fn take_turn(handle: &mut Handle, names: &[String; 2], parked: &AtomicU64) {
    let keys = names.each_ref().map(|name| handle.key(0, name.as_bytes()));
    loop {
        let taken = handle.try_locked(&keys, Hold::Long, |handle| {
            for key in &keys {
                handle.modify(key, |entry| {
                    let record = entry.record();
                    let number = record.and_then(|record| record.integer()).unwrap_or(0);
                    entry.set_integer(number + 1, Deadline::Keep).unwrap();
                });
                std::thread::yield_now();
            }
        });
        if taken.is_ok() {
            return;
        }
        let (wake, rang) = bell();
        if handle.park(&keys, wake) {
            parked.fetch_add(1, Ordering::Relaxed);
            rang.recv_timeout(PATIENCE).expect("nobody is forgotten");
        }
    }
}

/// A thread that is inside while another asks for keys for long finishes first, and sees from its
/// entry to its exit that nothing is held.
#[test]
fn keys_are_taken_for_long_while_nobody_is_inside() {
    let store = wide();
    let key = store.handle().key(0, b"key");
    let rounds = if cfg!(miri) { 5 } else { 200 };
    let (inside, done) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut holder = store.handle();
            for _ in 0..rounds {
                holder.locked_long(&[key], |holder| {
                    assert_eq!(inside.load(Ordering::SeqCst), 0);
                    assert!(holder.may_be_busy());
                    let deleted = holder.delete(&key, |_| {});
                    assert!(!deleted, "nothing is ever there");
                });
            }
            done.store(1, Ordering::SeqCst);
        });
        scope.spawn(|| {
            let mut visitor = store.handle();
            while done.load(Ordering::SeqCst) == 0 {
                visitor.enter();
                if !visitor.may_be_busy() {
                    inside.store(1, Ordering::SeqCst);
                    assert!(!visitor.may_be_busy());
                    assert_eq!(visitor.try_locked(&[key], Hold::Short, |_| ()), Ok(()));
                    inside.store(0, Ordering::SeqCst);
                }
                visitor.leave();
            }
        });
    });
    let mut handle = store.handle();
    assert!(!handle.may_be_busy());
    assert_eq!(handle.try_locked(&[key], Hold::Short, |_| ()), Ok(()));
}

/// A transaction without keys takes a set, and a command in it takes another one.
#[test]
fn a_set_inside_of_one_without_keys_is_counted_once() {
    let store = wide();
    let mut holder = store.handle();
    holder.locked_long(&[], |holder| {
        assert_eq!(holder.try_locked(&[], Hold::Long, |_| ()), Ok(()));
    });
    assert!(!store.handle().may_be_busy());
}
