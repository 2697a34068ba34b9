//! Tests of background threads and workers on a machine whose time the tests advance by hand.

use std::sync::atomic::AtomicUsize;
use std::sync::{OnceLock, Weak};

use super::*;
use crate::clock::ManualClock;

/// One core, as one background thread sees it.
#[derive(Default)]
struct Desk {
    now_ns: AtomicU64,
    worked_ns: AtomicU64,
    /// How long other threads take when this one yields.
    others_ns: AtomicU64,
    /// If the other threads are background threads: their scheduler, and the core they worked on
    /// meanwhile.
    threads_of: OnceLock<(Weak<Scheduler>, usize)>,
    sleeps: AtomicUsize,
    yields: AtomicUsize,
}

impl Desk {
    fn pass(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// The background thread works.
    fn work(&self, ns: u64) {
        self.pass(ns);
        self.worked_ns.fetch_add(ns, Ordering::Relaxed);
    }

    fn sleeps(&self) -> usize {
        self.sleeps.load(Ordering::Relaxed)
    }

    fn yields(&self) -> usize {
        self.yields.load(Ordering::Relaxed)
    }

    fn set_others_us(&self, us: u64) {
        self.others_ns.store(us * 1_000, Ordering::Relaxed);
    }
}

impl Machine for Arc<Desk> {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    fn worked_ns(&self) -> u64 {
        self.worked_ns.load(Ordering::Relaxed)
    }

    fn yield_core(&self) {
        self.yields.fetch_add(1, Ordering::Relaxed);
        let others_ns = self.others_ns.load(Ordering::Relaxed);
        if let Some((threads_of, core)) = self.threads_of.get()
            && let Some(scheduler) = threads_of.upgrade()
        {
            let worked_ns = &scheduler.cores[*core].worked_ns;
            worked_ns.fetch_add(others_ns, Ordering::Relaxed);
        }
        self.pass(others_ns + 500);
    }

    fn sleep_ns(&self, ns: u64) {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        self.pass(ns);
    }

    fn cores(&self) -> u64 {
        1
    }

    fn core(&self) -> usize {
        0
    }
}

fn desk(share: u64) -> (Arc<Desk>, Arc<Scheduler>) {
    let desk = Arc::new(Desk::default());
    let scheduler = Arc::new(Scheduler::with(Box::new(Arc::clone(&desk))));
    scheduler.set_share(share);
    (desk, scheduler)
}

fn turn_on(scheduler: &Scheduler, core: usize) {
    scheduler.cores[core].turns.fetch_add(1, Ordering::Relaxed);
}

/// Has a background thread work for `ms` in pieces of 10 µs, beside a worker with turns of
/// `turn_us`, if any.
fn work(desk: &Desk, thread: &mut BackgroundThread<'_>, ms: u64, turn_us: u64) {
    let until_ns = desk.worked_ns.load(Ordering::Relaxed) + ms * 1_000_000;
    desk.set_others_us(turn_us);
    while desk.worked_ns.load(Ordering::Relaxed) < until_ns {
        desk.work(10_000);
        if turn_us > 0 {
            // Another test covers that the worker yields itself.
            turn_on(thread.scheduler, 0);
        }
        thread.pause();
    }
}

#[test]
fn who_is_alone_never_sleeps() {
    let (desk, scheduler) = desk(150);
    let mut thread = scheduler.enter();
    work(&desk, &mut thread, 100, 0);
    assert_eq!(desk.sleeps(), 0);
    assert!(desk.yields() > 400);
    assert!(!scheduler.is_contended());
}

/// Returns the share, per mille, that a background thread had of the elapsed time, beside a worker
/// with turns of 300 µs.
fn share_had(share: u64) -> u64 {
    let (desk, scheduler) = desk(share);
    let mut thread = scheduler.enter();
    work(&desk, &mut thread, 50, 300);
    let now_ns = desk.now_ns.load(Ordering::Relaxed);
    desk.worked_ns.load(Ordering::Relaxed) * FULL_SHARE / now_ns
}

#[test]
fn who_is_in_the_way_takes_its_share_and_no_more() {
    for share in [80, 100, 200, 400] {
        let had = share_had(share);
        assert!(
            (share / 2..=share + share / 5).contains(&had),
            "{had} of {share}"
        );
    }
}

#[test]
fn all_threads_pay_from_one_bucket() {
    let (desk, scheduler) = desk(100);
    let mut first = scheduler.enter();
    work(&desk, &mut first, 20, 300);
    assert!(scheduler.is_contended());
    // The bucket is full, and the first thread takes all of it.
    desk.pass(CONTENDED_NS / 2);
    scheduler.set_contended_until(u64::MAX);
    let slice_of = |thread: &mut BackgroundThread<'_>, ns: u64| {
        let before = desk.sleeps();
        desk.work(ns);
        thread.pause();
        desk.sleeps() - before
    };
    assert_eq!(slice_of(&mut first, BUCKET_NS), 0);
    let mut second = scheduler.enter();
    assert_eq!(slice_of(&mut second, FREE_SLICE_NS), 1);
}

#[test]
fn who_may_have_everything_or_is_urgent_never_sleeps() {
    for is_urgent in [false, true] {
        let (desk, scheduler) = desk(if is_urgent { 150 } else { FULL_SHARE });
        scheduler.set_urgent(is_urgent);
        let mut thread = scheduler.enter();
        work(&desk, &mut thread, 20, 3_000);
        assert_eq!(desk.sleeps(), 0);
        assert!(desk.yields() > 0);
    }
}

#[test]
fn work_that_becomes_urgent_waits_no_more() {
    let (desk, scheduler) = desk(150);
    let mut thread = scheduler.enter();
    work(&desk, &mut thread, 20, 300);
    assert!(scheduler.is_contended());
    scheduler.set_urgent(true);
    // The current slice ends first.
    work(&desk, &mut thread, 1, 300);
    let sleeps = desk.sleeps();
    work(&desk, &mut thread, 20, 300);
    assert_eq!(desk.sleeps(), sleeps);
    assert!(!scheduler.is_contended());
}

#[test]
fn it_goes_at_full_speed_again_when_nobody_is_in_the_way() {
    let (desk, scheduler) = desk(150);
    let mut thread = scheduler.enter();
    work(&desk, &mut thread, 20, 300);
    assert!(scheduler.is_contended());
    work(&desk, &mut thread, 5, 0);
    let sleeps = desk.sleeps();
    work(&desk, &mut thread, 20, 0);
    assert_eq!(desk.sleeps(), sleeps);
}

/// Runs a background thread on core 0 beside threads that take 400 µs whenever it yields. Returns
/// how often it slept. Other background threads work on one core meanwhile, and workers have turns
/// on another.
fn sleeps_beside(threads_on: Option<usize>, turns_on: Option<usize>) -> usize {
    let (desk, scheduler) = desk(150);
    if let Some(core) = threads_on {
        let threads_of = (Arc::downgrade(&scheduler), core);
        assert!(desk.threads_of.set(threads_of).is_ok());
    }
    let mut thread = scheduler.enter();
    desk.set_others_us(400);
    for _ in 0..1_000 {
        desk.work(50_000);
        if let Some(core) = turns_on {
            turn_on(&scheduler, core);
        }
        thread.pause();
    }
    desk.sleeps()
}

#[test]
fn only_workers_are_given_way_to() {
    assert!(sleeps_beside(None, Some(0)) > 100);
    assert_eq!(sleeps_beside(None, None), 0, "another process");
    assert_eq!(sleeps_beside(None, Some(1)), 0, "and workers elsewhere");
    assert_eq!(
        sleeps_beside(Some(0), Some(0)),
        0,
        "another background thread"
    );
    assert!(
        sleeps_beside(Some(1), Some(0)) > 100,
        "background threads elsewhere"
    );
}

#[test]
fn a_worker_yields_only_where_it_is_in_the_way_and_not_to_strangers() {
    let (desk, scheduler) = desk(150);
    let mut worker = WorkerTurns::new(Arc::clone(&scheduler));
    worker.started();
    worker.ended();
    assert_eq!(scheduler.cores[0].turns.load(Ordering::Relaxed), 0);
    let mut thread = scheduler.enter();
    worker.started();
    worker.ended();
    assert_eq!(scheduler.cores[0].turns.load(Ordering::Relaxed), 2);
    assert_eq!(desk.yields(), 0);
    work(&desk, &mut thread, 20, 300);
    assert!(scheduler.is_contended());
    desk.set_others_us(50);
    let before = desk.yields();
    (0..10).for_each(|_| worker.ended());
    assert_eq!(desk.yields(), before + 10);
    // Another thread computes there and does not give the core back.
    desk.set_others_us(4_000);
    (0..10).for_each(|_| worker.ended());
    assert_eq!(desk.yields(), before + 11);
    desk.pass(KEPT_NS);
    worker.ended();
    assert_eq!(desk.yields(), before + 12);
    drop(thread);
    assert!(!scheduler.is_contended());
}

#[test]
fn without_processor_time_nothing_happens() {
    let clock = Arc::new(ManualClock::at_unix_ms(0));
    let scheduler = Scheduler::of_machine(Arc::<ManualClock>::clone(&clock));
    scheduler.set_share(1);
    let mut thread = scheduler.enter();
    for _ in 0..100 {
        clock.advance_ms(50);
        thread.pause();
    }
    assert!(!scheduler.is_contended());
}
