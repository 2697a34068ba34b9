//! Waking a loop from other threads.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use reactor::Options;

use crate::lines::Bounds;
use crate::rig::{Rig, eventually};

#[test]
fn a_wake_from_another_thread_resumes() {
    let rig = Rig::new();
    for kind in rig.kinds() {
        let mut client = rig.connect(kind);
        client.send("pause\nafter\n");
        client.expect("paused\n");
        let waker = rig.balancer.waker(0);
        thread::spawn(move || waker.wake()).join().unwrap();
        client.expect("resumed\nafter\n");
    }
}

#[test]
fn rings_are_merged_and_none_is_lost() {
    let rig = Rig::new();
    let ringers: Vec<_> = (0..4)
        .map(|_| {
            let waker = rig.balancer.waker(0);
            thread::spawn(move || (0..10_000).for_each(|_| waker.wake()))
        })
        .collect();
    for ringer in ringers {
        ringer.join().unwrap();
    }
    let woken = rig.shared.woken_count.load(Ordering::SeqCst);
    assert!(woken <= 40_000);
    rig.wake_all();
    eventually("one more", || {
        rig.shared.woken_count.load(Ordering::SeqCst) > 0
    });
}

/// A loop that spins far longer than any answer takes, so every event finds it spinning.
#[test]
fn a_spinning_loop_misses_nothing() {
    let options = Options {
        spin: Duration::from_millis(5),
        ..Options::default()
    };
    let rig = Rig::with_options(1, Bounds::default(), &options);
    for kind in rig.kinds() {
        let mut client = rig.connect(kind);
        for _ in 0..50 {
            client.send("one\n");
            client.expect("one\n");
        }
        client.send("pause\nafter\n");
        client.expect("paused\n");
        rig.wake_all();
        client.expect("resumed\nafter\n");
    }
}

/// Input of a paused connection stays in its socket, and wakes the loop once.
#[test]
fn a_paused_connection_that_sends_keeps_nobody_awake() {
    let rig = Rig::new();
    for kind in rig.kinds() {
        let mut client = rig.connect(kind);
        client.send("pause\n");
        client.expect("paused\n");
        let turns = || rig.shared.turns_count.load(Ordering::SeqCst);
        client.send("after\n");
        thread::sleep(Duration::from_millis(5));
        let before = turns();
        thread::sleep(Duration::from_millis(30));
        let more = turns() - before;
        // A loop that does not sleep has several thousand.
        assert!(more < 20, "{kind:?}: {more} turns");
        rig.wake_all();
        client.expect("resumed\nafter\n");
    }
}
