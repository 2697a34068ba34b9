//! Guests and hosts on a machine whose time is made by hand.

use std::sync::atomic::AtomicUsize;
use std::sync::{OnceLock, Weak};

use super::*;
use crate::clock::ManualClock;

/// One core, one guest's view of it.
#[derive(Default)]
struct Desk {
    now_ns: AtomicU64,
    worked_ns: AtomicU64,
    /// How long others take when the guest gives way.
    others_ns: AtomicU64,
    /// Whose guests these others are, if they are, and on which core they worked meanwhile.
    guests_of: OnceLock<(Weak<Courtesy>, usize)>,
    slept_ns: AtomicU64,
    sleeps: AtomicUsize,
    yields: AtomicUsize,
}

impl Desk {
    fn pass(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// The guest works.
    fn work(&self, ns: u64) {
        self.pass(ns);
        self.worked_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

impl Machine for Arc<Desk> {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    fn worked_ns(&self) -> u64 {
        self.worked_ns.load(Ordering::Relaxed)
    }

    fn give_way(&self) {
        self.yields.fetch_add(1, Ordering::Relaxed);
        let others_ns = self.others_ns.load(Ordering::Relaxed);
        if let Some((guests_of, core)) = self.guests_of.get()
            && let Some(courtesy) = guests_of.upgrade()
        {
            let worked_ns = &courtesy.cores[*core].worked_ns;
            worked_ns.fetch_add(others_ns, Ordering::Relaxed);
        }
        self.pass(others_ns + 500);
    }

    fn sleep_ns(&self, ns: u64) {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        self.slept_ns.fetch_add(ns, Ordering::Relaxed);
        self.pass(ns);
    }

    fn cores(&self) -> u64 {
        1
    }

    fn core(&self) -> usize {
        0
    }
}

fn desk(share: u64) -> (Arc<Desk>, Arc<Courtesy>) {
    let desk = Arc::new(Desk::default());
    let courtesy = Arc::new(Courtesy::with(Box::new(Arc::clone(&desk))));
    courtesy.set_share(share);
    (desk, courtesy)
}

/// A guest works for so long in pieces of 10 µs, while a host has turns of so many microseconds, if any.
fn work(desk: &Desk, courtesy: &Arc<Courtesy>, guest: &mut Guest<'_>, ms: u64, turn_us: u64) {
    let until_ns = desk.worked_ns.load(Ordering::Relaxed) + ms * 1_000_000;
    desk.others_ns.store(turn_us * 1_000, Ordering::Relaxed);
    while desk.worked_ns.load(Ordering::Relaxed) < until_ns {
        desk.work(10_000);
        if turn_us > 0 {
            // It had turns meanwhile; that it gives way itself is another test's.
            courtesy.cores[0].turns.fetch_add(1, Ordering::Relaxed);
        }
        guest.pause();
    }
}

#[test]
fn who_is_alone_never_sleeps() {
    let (desk, courtesy) = desk(150);
    let mut guest = courtesy.enter();
    work(&desk, &courtesy, &mut guest, 100, 0);
    assert_eq!(desk.sleeps.load(Ordering::Relaxed), 0);
    assert!(desk.yields.load(Ordering::Relaxed) > 400);
    assert!(!courtesy.is_wanted());
}

/// Of a thousand, what a guest had of the time that it took, beside a host with turns of 300 µs.
fn share_had(share: u64) -> u64 {
    let (desk, courtesy) = desk(share);
    let mut guest = courtesy.enter();
    work(&desk, &courtesy, &mut guest, 50, 300);
    let now_ns = desk.now_ns.load(Ordering::Relaxed);
    desk.worked_ns.load(Ordering::Relaxed) * FULL_SHARE / now_ns
}

#[test]
fn who_is_in_the_way_takes_its_share_and_no_more() {
    let had: Vec<u64> = [100, 200, 400].into_iter().map(share_had).collect();
    for (had, share) in had.iter().zip([100, 200, 400]) {
        assert!(
            (share / 2..=share + share / 5).contains(had),
            "{had} of {share}"
        );
    }
}

#[test]
fn who_may_have_everything_or_is_in_a_hurry_never_sleeps() {
    for in_hurry in [false, true] {
        let (desk, courtesy) = desk(if in_hurry { 150 } else { FULL_SHARE });
        courtesy.set_hurry(in_hurry);
        let mut guest = courtesy.enter();
        work(&desk, &courtesy, &mut guest, 20, 3_000);
        assert_eq!(desk.sleeps.load(Ordering::Relaxed), 0);
        assert!(desk.yields.load(Ordering::Relaxed) > 0);
    }
}

#[test]
fn a_hurry_ends_politeness_at_once() {
    let (desk, courtesy) = desk(150);
    let mut guest = courtesy.enter();
    work(&desk, &courtesy, &mut guest, 20, 300);
    assert!(courtesy.is_wanted());
    courtesy.set_hurry(true);
    // The slice that it is in comes to its end first.
    work(&desk, &courtesy, &mut guest, 1, 300);
    let sleeps = desk.sleeps.load(Ordering::Relaxed);
    work(&desk, &courtesy, &mut guest, 20, 300);
    assert_eq!(desk.sleeps.load(Ordering::Relaxed), sleeps);
    assert!(!courtesy.is_wanted());
}

#[test]
fn it_goes_at_full_speed_again_when_nobody_is_in_the_way() {
    let (desk, courtesy) = desk(150);
    let mut guest = courtesy.enter();
    work(&desk, &courtesy, &mut guest, 20, 300);
    assert!(courtesy.is_wanted());
    work(&desk, &courtesy, &mut guest, 5, 0);
    let sleeps = desk.sleeps.load(Ordering::Relaxed);
    work(&desk, &courtesy, &mut guest, 20, 0);
    assert_eq!(desk.sleeps.load(Ordering::Relaxed), sleeps);
}

#[test]
fn a_host_who_waits_for_a_moment_is_given_way_to_all_the_same() {
    let (desk, courtesy) = desk(150);
    let mut guest = courtesy.enter();
    work(&desk, &courtesy, &mut guest, 20, 300);
    desk.others_ns.store(0, Ordering::Relaxed);
    let mut looks = 0;
    while courtesy.is_wanted() {
        desk.pass(POLITE_NS);
        desk.work(50_000);
        courtesy.cores[0].turns.fetch_add(1, Ordering::Relaxed);
        guest.pause();
        looks += 1;
    }
    assert_eq!(looks, EARLY_YIELDS);
    // Somebody is there again in between: it counts anew.
    work(&desk, &courtesy, &mut guest, 20, 300);
    for looks in 1..10 * EARLY_YIELDS {
        let is_there = looks % EARLY_YIELDS == 0;
        let others_ns = if is_there { 300_000 } else { 0 };
        desk.others_ns.store(others_ns, Ordering::Relaxed);
        desk.pass(POLITE_NS);
        desk.work(50_000);
        courtesy.cores[0].turns.fetch_add(1, Ordering::Relaxed);
        guest.pause();
        assert!(courtesy.is_wanted(), "look {looks}");
    }
}

#[test]
fn between_two_turns_of_a_host_all_guests_together_have_one_burst() {
    let (desk, courtesy) = desk(150);
    let mut host = Host::new(Arc::clone(&courtesy));
    let mut first = courtesy.enter();
    work(&desk, &courtesy, &mut first, 20, 300);
    desk.others_ns.store(0, Ordering::Relaxed);
    // Of a short turn the burst is the least.
    host.turn_ended();
    host.turn_ended();
    // Somebody wakes the second one up, who has not worked yet, when nobody did, and when the first has had it all.
    let sleeps_of_second = || {
        let mut second = courtesy.enter();
        let before = desk.sleeps.load(Ordering::Relaxed);
        desk.pass(SLICES_NS[1]);
        second.pause();
        desk.sleeps.load(Ordering::Relaxed) - before
    };
    assert_eq!(sleeps_of_second(), 0);
    desk.work(BURST_NS[0]);
    first.pause();
    assert!(courtesy.is_wanted());
    assert_eq!(sleeps_of_second(), 1);
    host.turn_ended();
    assert_eq!(sleeps_of_second(), 0);
}

/// A guest on core 0 beside others who take 400 µs whenever it gives way; how often it slept. Guests work on a core
/// meanwhile, and hosts have turns on one.
fn sleeps_beside(guests_on: Option<usize>, turns_on: Option<usize>) -> usize {
    let (desk, courtesy) = desk(150);
    if let Some(core) = guests_on {
        let guests_of = (Arc::downgrade(&courtesy), core);
        assert!(desk.guests_of.set(guests_of).is_ok());
    }
    let mut guest = courtesy.enter();
    desk.others_ns.store(400_000, Ordering::Relaxed);
    for _ in 0..1_000 {
        desk.work(50_000);
        if let Some(core) = turns_on {
            courtesy.cores[core].turns.fetch_add(1, Ordering::Relaxed);
        }
        guest.pause();
    }
    desk.sleeps.load(Ordering::Relaxed)
}

#[test]
fn only_hosts_are_given_way_to() {
    assert!(sleeps_beside(None, Some(0)) > 100);
    assert_eq!(sleeps_beside(None, None), 0, "another process");
    assert_eq!(sleeps_beside(None, Some(1)), 0, "and hosts elsewhere");
    assert_eq!(sleeps_beside(Some(0), Some(0)), 0, "another guest");
    assert!(sleeps_beside(Some(1), Some(0)) > 100, "guests elsewhere");
}

/// How often a guest slept beside a host who is in a turn for so many of the times that it runs at once, and does nothing
/// for as many, while others have the core.
fn sleeps_beside_turns_of(times: u64, others: u64) -> usize {
    let (desk, courtesy) = desk(150);
    let mut host = Host::new(Arc::clone(&courtesy));
    let mut guest = courtesy.enter();
    desk.others_ns.store(3_000_000, Ordering::Relaxed);
    for round in 0..1_000 {
        if round % (times + others) == 0 {
            host.turn_started();
        }
        desk.work(200_000);
        guest.pause();
        if round % (times + others) == times {
            host.turn_ended();
        }
    }
    desk.sleeps.load(Ordering::Relaxed)
}

#[test]
fn turns_may_take_longer_than_a_host_runs_at_once() {
    let sleeps = sleeps_beside_turns_of(5, 1);
    assert!(sleeps > 100, "{sleeps}");
    let fewer = sleeps_beside_turns_of(1, 99);
    assert!(fewer < sleeps / 4, "{fewer} beside others, nearly always");
}

#[test]
fn a_host_who_goes_is_not_at_work() {
    let (desk, courtesy) = desk(150);
    let guest = courtesy.enter();
    let mut host = Host::new(Arc::clone(&courtesy));
    host.turn_started();
    host.turn_started();
    let at_work = || courtesy.cores[0].at_work.load(Ordering::Relaxed);
    assert_eq!(at_work(), 1);
    // A turn that began beside a guest who is gone ends all the same.
    drop(guest);
    host.turn_ended();
    assert_eq!(at_work(), 0);
    host.turn_started();
    assert_eq!(at_work(), 0, "there is no guest");
    let guest = courtesy.enter();
    host.turn_started();
    drop(host);
    assert_eq!(at_work(), 0);
    drop((guest, desk));
}

#[test]
fn a_host_gives_way_only_to_polite_guests_and_not_to_strangers() {
    let (desk, courtesy) = desk(150);
    let mut host = Host::new(Arc::clone(&courtesy));
    host.turn_ended();
    assert_eq!(courtesy.cores[0].turns.load(Ordering::Relaxed), 0);
    let mut guest = courtesy.enter();
    host.turn_ended();
    assert_eq!(desk.yields.load(Ordering::Relaxed), 0);
    work(&desk, &courtesy, &mut guest, 20, 300);
    assert!(courtesy.is_wanted());
    let yields = || desk.yields.load(Ordering::Relaxed);
    desk.others_ns.store(50_000, Ordering::Relaxed);
    let before = yields();
    (0..10).for_each(|_| host.turn_ended());
    assert_eq!(yields(), before + 10);
    // Somebody computes there who gives nothing back.
    desk.others_ns.store(4_000_000, Ordering::Relaxed);
    (0..10).for_each(|_| host.turn_ended());
    assert_eq!(yields(), before + 11);
    desk.pass(KEPT_NS);
    host.turn_ended();
    assert_eq!(yields(), before + 12);
    drop(guest);
    assert!(!courtesy.is_wanted());
}

#[test]
fn without_processor_time_nothing_happens() {
    let clock = Arc::new(ManualClock::at_unix_ms(0));
    let courtesy = Courtesy::of_machine(Arc::<ManualClock>::clone(&clock));
    courtesy.set_share(1);
    let mut guest = courtesy.enter();
    for _ in 0..100 {
        clock.advance_ms(50);
        guest.pause();
    }
    assert!(!courtesy.is_wanted());
}
