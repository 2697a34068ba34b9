//! Waiting for keys that are held for long, under a model checker.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::thread;

#[cfg(not(loom))]
use super::check;
use super::{check_deeply, moving, set, store};
use crate::handle::Handle;
use crate::parking::{Busy, Hold};

/// Tries to lock two keys until it either has them or has left a note, because they are held for
/// long. Returns the flag of that note.
fn lock_or_park(handle: &mut Handle, names: [u8; 2]) -> Option<Arc<AtomicBool>> {
    let names = names.map(|name| [name]);
    let keys = names.each_ref().map(|name| handle.key(0, name));
    loop {
        if handle.try_locked(&keys, Hold::Short, |_| ()) != Err(Busy) {
            return None;
        }
        let woken = Arc::new(AtomicBool::new(false));
        let wake = Arc::clone(&woken);
        let parked = handle.park(&keys, Box::new(move || wake.store(true, Ordering::Relaxed)));
        if parked {
            return Some(woken);
        }
    }
}

/// A thread that left a note is woken by the time the keys have been released.
#[test]
fn no_wake_up_is_lost() {
    static PARKED: AtomicU64 = AtomicU64::new(0);
    // With few preemptions the holder ends before a note is left.
    check_deeply(8, || {
        let store = store(2);
        let mut handle = store.handle();
        let [near, far] = moving(&handle);
        for key in [near, far, 0] {
            set(&mut handle, &[key], b"1");
        }
        let mut other = store.handle();
        let holder = thread::spawn(move || {
            let name = [far];
            let key = other.key(0, &name);
            while other.try_locked(&[key], Hold::Long, |_| ()).is_err() {}
        });
        let woken = lock_or_park(&mut handle, [near, far]);
        holder.join().unwrap();
        if let Some(woken) = woken {
            PARKED.fetch_add(1, Ordering::Relaxed);
            assert!(woken.load(Ordering::Relaxed));
        }
        assert!(lock_or_park(&mut handle, [near, far]).is_none());
    });
    let parked = PARKED.load(Ordering::Relaxed);
    assert!(parked > 0, "nobody met what was held for long");
}

/// Two waiters, one for the same bucket and one for another bucket of the set.
#[cfg(all(shuttle, not(loom)))]
#[test]
fn everybody_is_woken() {
    check(|| {
        let store = store(2);
        let mut handle = store.handle();
        let [near, far] = moving(&handle);
        for key in [near, far, 0] {
            set(&mut handle, &[key], b"1");
        }
        let waiters = [[near, near], [far, near]].map(|names| {
            let mut handle = store.handle();
            thread::spawn(move || lock_or_park(&mut handle, names))
        });
        let names = [[near], [far]];
        let keys = names.each_ref().map(|name| handle.key(0, name));
        for _ in 0..2 {
            while handle.try_locked(&keys, Hold::Long, |_| ()).is_err() {}
        }
        for waiter in waiters {
            let woken = waiter.join().unwrap();
            assert!(woken.is_none_or(|woken| woken.load(Ordering::Relaxed)));
        }
    });
}
