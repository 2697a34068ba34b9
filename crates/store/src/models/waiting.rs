//! Waiting for keys to change, under a model checker: an integer at a key says how many units there
//! are to take, and a thread that finds none waits.

use std::sync::Arc;

use base::sync::thread;

use super::{check, increment, moving, number, store};
use crate::handle::Handle;
use crate::key::Key;
use crate::value::Deadline;
use crate::waiting::{Attempt, Waiter, Waiters, Wanted};

type TestWaiter = Arc<Waiter<()>>;

/// Takes one unit if there is any. Returns whether it did.
fn take(handle: &mut Handle, key: &Key<'_>) -> bool {
    handle.modify(key, |entry| {
        let found = entry.record().and_then(|record| record.integer());
        let left = found.unwrap_or(0) - 1;
        left >= 0 && entry.set_integer(left, Deadline::Keep).is_ok()
    })
}

/// Takes one unit from one of `names`, or joins the queue.
fn take_or_wait(
    handle: &mut Handle,
    waiters: &Arc<Waiters<()>>,
    names: &[u8],
) -> Option<TestWaiter> {
    let keys: Vec<Key<'_>> = names.chunks(1).map(|name| handle.key(0, name)).collect();
    let place = handle.locked(&keys, |handle| {
        let is_free = |key: &Key<'_>| !waiters.is_ahead(key, Wanted::KnownStream, None);
        let mut free = keys.iter().filter(|key| is_free(key));
        match free.any(|key| take(handle, key)) {
            true => None,
            false => Some(waiters.wait(handle, &keys, Wanted::KnownStream, ())),
        }
    });
    serve(handle, waiters, names);
    place
}

/// Adds one unit, and serves its waiters.
fn give(handle: &mut Handle, waiters: &Arc<Waiters<()>>, name: u8, all: &[u8]) {
    increment(handle, &[name]);
    serve(handle, waiters, all);
}

/// Serves every waiter for the keys of `all`, as an engine does.
fn serve(handle: &mut Handle, waiters: &Arc<Waiters<()>>, all: &[u8]) {
    for (database, key) in handle.take_served() {
        waiters.serve(handle, database, &key, |handle, waiter| {
            let names = all.chunks(1).filter(|name| waiter.waits_for(0, name));
            let keys: Vec<Key<'_>> = names.map(|name| handle.key(0, name)).collect();
            handle.locked(&keys, |handle| {
                let ticket = Some(waiter.ticket());
                let is_taken = keys.iter().any(|key| {
                    number(handle, key.bytes()).unwrap_or(0) > 0
                        && !waiters.is_ahead(key, Wanted::KnownStream, ticket)
                        && waiter.claim()
                        && take(handle, key)
                });
                if is_taken {
                    waiters.leave(handle, waiter);
                }
            });
            drop(handle.take_served());
            Attempt::Done
        });
    }
}

/// Number of units that no waiter took.
fn left(handle: &mut Handle, names: &[u8]) -> i64 {
    let each = names.chunks(1).map(|name| number(handle, name));
    each.map(|number| number.unwrap_or(0)).sum()
}

/// A waiter that found nothing gets the next unit, whatever the two do at once.
#[test]
fn nobody_waits_for_what_is_there() {
    check(|| {
        let (store, waiters) = (store(1), Arc::<Waiters<()>>::default());
        let mut handle = store.handle();
        let (mut other, others) = (store.handle(), Arc::clone(&waiters));
        let giver = thread::spawn(move || give(&mut other, &others, 1, &[1]));
        let place = take_or_wait(&mut handle, &waiters, &[1]);
        giver.join().unwrap();
        assert!(place.is_none_or(|place| !place.waits()));
        assert_eq!(left(&mut handle, &[1]), 0);
        assert_eq!(waiters.waited_keys().all, 0);
    });
}

/// Two waiters and two givers: each waiter gets one unit.
#[cfg(all(shuttle, not(loom)))]
#[test]
fn everybody_gets_one() {
    check(|| {
        let (store, waiters) = (store(1), Arc::<Waiters<()>>::default());
        let takers = [(); 2].map(|()| {
            let (mut handle, waiters) = (store.handle(), Arc::clone(&waiters));
            thread::spawn(move || take_or_wait(&mut handle, &waiters, &[1]))
        });
        let (mut other, others) = (store.handle(), Arc::clone(&waiters));
        let giver = thread::spawn(move || give(&mut other, &others, 1, &[1]));
        let mut handle = store.handle();
        give(&mut handle, &waiters, 1, &[1]);
        giver.join().unwrap();
        for taker in takers {
            let place = taker.join().unwrap();
            assert!(place.is_none_or(|place| !place.waits()));
        }
        assert_eq!(left(&mut handle, &[1]), 0);
        assert_eq!(waiters.waited_keys().all, 0);
    });
}

/// A waiter for two keys, both of which are given a unit at once, gets one of them.
#[test]
fn who_waits_for_two_keys_gets_one() {
    check(|| {
        let (store, waiters) = (store(2), Arc::<Waiters<()>>::default());
        let mut handle = store.handle();
        let names = moving(&handle);
        let place = take_or_wait(&mut handle, &waiters, &names).unwrap();
        let (mut other, others) = (store.handle(), Arc::clone(&waiters));
        let giver = thread::spawn(move || give(&mut other, &others, names[0], &names));
        give(&mut handle, &waiters, names[1], &names);
        giver.join().unwrap();
        assert!(!place.waits());
        assert_eq!(left(&mut handle, &names), 1);
        assert_eq!(waiters.waited_keys().all, 0);
    });
}

/// A timeout at the very moment at which a unit comes: the unit is either taken or still there.
#[test]
fn nothing_is_taken_for_who_has_gone() {
    check(|| {
        let (store, waiters) = (store(1), Arc::<Waiters<()>>::default());
        let mut handle = store.handle();
        let place = take_or_wait(&mut handle, &waiters, &[1]).unwrap();
        let (mut other, others) = (store.handle(), Arc::clone(&waiters));
        let giver = thread::spawn(move || give(&mut other, &others, 1, &[1]));
        let has_gone = place.claim();
        if has_gone {
            waiters.leave(&mut handle, &place);
        }
        giver.join().unwrap();
        assert_eq!(left(&mut handle, &[1]), i64::from(has_gone));
        assert_eq!(waiters.waited_keys().all, 0);
    });
}

/// The last waiter for a key leaves while another comes: the new waiter is not forgotten with it.
#[test]
fn who_comes_is_not_forgotten_with_who_goes() {
    check(|| {
        let (store, waiters) = (store(1), Arc::<Waiters<()>>::default());
        let mut handle = store.handle();
        let place = take_or_wait(&mut handle, &waiters, &[1]).unwrap();
        let (mut other, others) = (store.handle(), Arc::clone(&waiters));
        let comer = thread::spawn(move || take_or_wait(&mut other, &others, &[1]));
        assert!(place.claim());
        waiters.leave(&mut handle, &place);
        let place = comer.join().unwrap().unwrap();
        give(&mut handle, &waiters, 1, &[1]);
        assert!(!place.waits());
        assert_eq!(left(&mut handle, &[1]), 0);
    });
}

/// The thread that has waited gets the unit, not the one that comes in the moment between.
#[test]
fn the_first_to_come_is_the_first_served() {
    check(|| {
        let (store, waiters) = (store(1), Arc::<Waiters<()>>::default());
        let mut handle = store.handle();
        let first = take_or_wait(&mut handle, &waiters, &[1]).unwrap();
        let (mut other, others) = (store.handle(), Arc::clone(&waiters));
        let comer = thread::spawn(move || take_or_wait(&mut other, &others, &[1]));
        give(&mut handle, &waiters, 1, &[1]);
        let second = comer.join().unwrap().unwrap();
        assert!(!first.waits() && second.waits());
        give(&mut handle, &waiters, 1, &[1]);
        assert!(!second.waits());
        assert_eq!(left(&mut handle, &[1]), 0);
    });
}
