//! The background scheduler: work in the background gives way to workers, who serve clients.
//!
//! ```text
//!   background thread  │slice│ yields │slice│ yields ───── late! ──►│slice│ sleeps …… │slice│ sleeps …… │ yields …
//!                      └ full speed: the core is free       └ for 10 ms: no more than the token bucket has
//!   worker             … sleeps …             │turn│turn│turn│ yields │turn│turn│ yields │turn│ …
//! ```
//!
//! The kernel's own slices are milliseconds, which is far too long for whoever answers within some tenths of one; and
//! a thread of the lowest priority never gets on beside one that is always busy. So background threads work in slices
//! of some hundredths of a millisecond, and yield after each. As long as no worker wants their core they go at full
//! speed. Where one does, all of them together pay for their slices from one token bucket: a token is a nanosecond of
//! processor time, it is filled with a share of all cores, and whoever finds it empty sleeps. Workers yield between
//! two turns meanwhile, when everything is answered: there a background thread costs least.
//!
//! Rules
//!  1. A yield that came back late says that the core is wanted, if workers began or ended turns on that core meanwhile.
//!     What other background threads worked there is taken off. With other processes the kernel shares the cores.
//!  2. Background threads hold no locks that others want while they [pause](BackgroundThread::pause).
//!  3. The share is the caller's: it may grow with time and need, up to full speed, so that nobody starves.
//!  4. [Urgent](Scheduler::set_urgent) work, whose end somebody waits for, never sleeps.
//!  5. Without a clock of processor time ([`Clock::thread_cpu_ns`]) nobody pauses: simulations stay what they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;

/// All of a share: nobody sleeps.
pub const FULL_SHARE: u64 = 1_000;

/// Length of a slice while the core is free, ...
const FREE_SLICE_NS: u64 = 100_000;

/// ... and while a worker wants it.
const CONTENDED_SLICE_NS: u64 = 40_000;

/// A yield is late when others than background threads had the core for so long.
const LATE_NS: u64 = 100_000;

/// So many late yields mean that the core is wanted. One alone may be a piece of work that the kernel did for us.
const LATE_YIELDS: u32 = 2;

/// A core that was wanted is taken to be for so long, until the next yield tells.
const CONTENDED_NS: u64 = 10_000_000;

/// What the token bucket holds.
const BUCKET_NS: u64 = 100_000;

/// No background thread sleeps longer: what it may take can change meanwhile.
const SLEEP_NS_MAX: u64 = 5_000_000;

/// A worker whose core somebody else has taken for so long, as it yielded, ...
const TAKEN_NS: u64 = 1_000_000;

/// ... yields no more for so long: it would lose its fair part to whoever computes there.
const KEPT_NS: u64 = 100_000_000;

/// What a scheduler needs of the machine.
pub trait Machine: Send + Sync {
    /// Nanoseconds since some start.
    fn now_ns(&self) -> u64;

    /// Processor time of the calling thread; 0 where that is not known.
    fn worked_ns(&self) -> u64;

    /// Lets another thread have the core, if one wants it.
    fn yield_core(&self);

    /// Sleeps.
    fn sleep_ns(&self, ns: u64);

    /// How many cores there are.
    fn cores(&self) -> u64;

    /// The number of the core that the calling thread is on.
    fn core(&self) -> usize;

    /// The calling thread becomes a background thread: sees to it that its sleeps are no longer than asked for.
    fn begin(&self) {}
}

/// The machine this runs on.
struct ThisMachine {
    clock: Arc<dyn Clock>,
    cores: u64,
}

impl Machine for ThisMachine {
    fn now_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    fn worked_ns(&self) -> u64 {
        self.clock.thread_cpu_ns()
    }

    fn yield_core(&self) {
        std::thread::yield_now();
    }

    fn sleep_ns(&self, ns: u64) {
        std::thread::sleep(Duration::from_nanos(ns));
    }

    fn cores(&self) -> u64 {
        self.cores
    }

    fn core(&self) -> usize {
        // SAFETY: takes nothing and gives a number, or -1 where that is not known.
        let core = unsafe { libc::sched_getcpu() };
        usize::try_from(core).unwrap_or(0)
    }

    fn begin(&self) {
        // SAFETY: takes and gives numbers only. Where it fails, sleeps are some 50 µs longer.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0_u64, 0_u64, 0_u64) };
    }
}

/// Cores that are told apart; those beyond share their numbers.
const CORES: usize = 64;

/// What was done on one core.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Core {
    /// Begins and ends of turns of workers, counted while there are background threads.
    turns: AtomicU64,
    /// What background threads worked.
    worked_ns: AtomicU64,
}

/// What background threads and workers of one process share.
pub struct Scheduler {
    machine: Box<dyn Machine>,
    /// How many background threads there are.
    threads: AtomicU64,
    cores: [Core; CORES],
    /// Until then workers want their cores; 0 when they do not.
    contended_until_ns: AtomicU64,
    /// When the token bucket is full again, or was.
    full_at_ns: AtomicU64,
    /// Of a thousand, what of each core goes into the bucket.
    share: AtomicU64,
    is_urgent: AtomicBool,
}

impl Scheduler {
    /// That of a process on the machine, with the time of `clock`.
    #[must_use]
    pub fn of_machine(clock: Arc<dyn Clock>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with(Box::new(ThisMachine {
            clock,
            cores: cores as u64,
        }))
    }

    /// One on a machine of one's own.
    #[must_use]
    pub fn with(machine: Box<dyn Machine>) -> Self {
        Self {
            machine,
            threads: AtomicU64::new(0),
            cores: std::array::from_fn(|_| Core::default()),
            contended_until_ns: AtomicU64::new(0),
            full_at_ns: AtomicU64::new(0),
            share: AtomicU64::new(FULL_SHARE),
            is_urgent: AtomicBool::new(false),
        }
    }

    /// Says what background threads may have of each core that workers want, of a [thousand](FULL_SHARE), all together.
    pub fn set_share(&self, per_mille: u64) {
        self.share
            .store(per_mille.clamp(1, FULL_SHARE), Ordering::Relaxed);
    }

    /// Says whether somebody waits for the end of the work.
    pub fn set_urgent(&self, is_urgent: bool) {
        self.is_urgent.store(is_urgent, Ordering::Relaxed);
    }

    /// Whether somebody waits for the end of the work.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.is_urgent.load(Ordering::Relaxed)
    }

    /// Processor time of background threads, all together. They note it at the end of each slice.
    #[must_use]
    pub fn worked_ns(&self) -> u64 {
        let worked = self.cores.iter();
        worked
            .map(|core| core.worked_ns.load(Ordering::Relaxed))
            .sum()
    }

    /// The calling thread becomes a background thread, until what this gives is dropped.
    pub fn enter(&self) -> BackgroundThread<'_> {
        self.machine.begin();
        self.threads.fetch_add(1, Ordering::Relaxed);
        BackgroundThread {
            scheduler: self,
            began_ns: self.machine.now_ns(),
            worked_ns: self.machine.worked_ns(),
            turns: self.core().turns.load(Ordering::Relaxed),
            late_yields: 0,
            slice_ns: FREE_SLICE_NS,
        }
    }

    /// Whether background threads wait for workers to let them in. O(1), a load.
    #[inline]
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.contended_until_ns.load(Ordering::Relaxed) != 0
    }

    /// The core that the calling thread is on.
    fn core(&self) -> &Core {
        &self.cores[self.machine.core() % CORES]
    }

    fn set_contended_until(&self, ns: u64) {
        self.contended_until_ns.store(ns, Ordering::Relaxed);
    }

    /// Takes tokens from the bucket for what was worked; how long it is until there are any again.
    fn pay(&self, now_ns: u64, worked_ns: u64) -> u64 {
        let per_core = self.share.load(Ordering::Relaxed);
        let filled = (per_core * self.machine.cores()).max(1);
        let time_ns = |tokens_ns: u64| tokens_ns.saturating_mul(FULL_SHARE) / filled;
        let full_at_ns = |before: u64| before.max(now_ns) + time_ns(worked_ns);
        let before = self
            .full_at_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
                Some(full_at_ns(before))
            });
        let full_at_ns = full_at_ns(before.unwrap_or_default());
        full_at_ns.saturating_sub(now_ns + time_ns(BUCKET_NS))
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler")
            .field("share", &self.share)
            .field("is_urgent", &self.is_urgent)
            .finish_non_exhaustive()
    }
}

/// A thread that works in the background.
#[derive(Debug)]
pub struct BackgroundThread<'s> {
    scheduler: &'s Scheduler,
    /// When its slice began.
    began_ns: u64,
    /// The thread's processor time by then.
    worked_ns: u64,
    /// Turns on its core when it last yielded.
    turns: u64,
    late_yields: u32,
    slice_ns: u64,
}

impl BackgroundThread<'_> {
    /// Whether a [pause](BackgroundThread::pause) would do more than nothing.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.is_due_at(self.scheduler.machine.now_ns())
    }

    fn is_due_at(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.began_ns) >= self.slice_ns
    }

    /// Whether a worker wants the core: its pieces of work should be short.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.slice_ns == CONTENDED_SLICE_NS
    }

    /// To be called between two pieces of work, each shorter than a tenth of a millisecond: gives way if the slice is
    /// over. Some ten nanoseconds if it is not.
    pub fn pause(&mut self) {
        let now_ns = self.scheduler.machine.now_ns();
        if self.is_due_at(now_ns) {
            self.end_slice(now_ns);
            let is_contended = self.scheduler.is_contended();
            self.slice_ns = if is_contended {
                CONTENDED_SLICE_NS
            } else {
                FREE_SLICE_NS
            };
            self.began_ns = self.scheduler.machine.now_ns();
        }
    }

    fn end_slice(&mut self, now_ns: u64) {
        let scheduler = self.scheduler;
        let sum_ns = scheduler.machine.worked_ns();
        let worked_ns = sum_ns.saturating_sub(std::mem::replace(&mut self.worked_ns, sum_ns));
        if worked_ns == 0 {
            return;
        }
        let core = scheduler.core();
        core.worked_ns.fetch_add(worked_ns, Ordering::Relaxed);
        if scheduler.is_urgent() || scheduler.share.load(Ordering::Relaxed) >= FULL_SHARE {
            scheduler.set_contended_until(0);
            scheduler.machine.yield_core();
        } else if now_ns < scheduler.contended_until_ns.load(Ordering::Relaxed) {
            let empty_ns = scheduler.pay(now_ns, worked_ns);
            if empty_ns > 0 {
                scheduler.machine.sleep_ns(empty_ns.min(SLEEP_NS_MAX));
            }
        } else {
            self.probe(now_ns, core);
        }
    }

    /// Yields, and finds out by that whether a worker wants the core.
    fn probe(&mut self, now_ns: u64, core: &Core) {
        let scheduler = self.scheduler;
        let was_contended = scheduler.is_contended();
        if was_contended {
            // The others go on as they do until it is known.
            scheduler.set_contended_until(now_ns + CONTENDED_NS);
        }
        let others_before_ns = core.worked_ns.load(Ordering::Relaxed);
        scheduler.machine.yield_core();
        let back_ns = scheduler.machine.now_ns();
        let others_ns = core.worked_ns.load(Ordering::Relaxed) - others_before_ns;
        let turns = core.turns.load(Ordering::Relaxed);
        let had_turns = turns != std::mem::replace(&mut self.turns, turns);
        if back_ns.saturating_sub(now_ns + others_ns) < LATE_NS {
            self.late_yields = 0;
            if was_contended {
                scheduler.set_contended_until(0);
            }
        } else if had_turns {
            self.late_yields += 1;
            if was_contended || self.late_yields >= LATE_YIELDS {
                scheduler.set_contended_until(back_ns + CONTENDED_NS);
            }
        }
    }
}

impl Drop for BackgroundThread<'_> {
    fn drop(&mut self) {
        if self.scheduler.threads.fetch_sub(1, Ordering::Relaxed) == 1 {
            // Nobody is left for whom workers would yield.
            self.scheduler.set_contended_until(0);
        }
    }
}

/// What a thread that serves clients tells of its turns.
#[derive(Debug)]
pub struct WorkerTurns {
    scheduler: Arc<Scheduler>,
    /// Until then it yields no more.
    keeps_until_ns: u64,
}

impl WorkerTurns {
    /// That of one worker.
    #[must_use]
    pub fn new(scheduler: Arc<Scheduler>) -> Self {
        Self {
            scheduler,
            keeps_until_ns: 0,
        }
    }

    /// To be called when it begins to serve. A load if there is no background thread.
    #[inline]
    pub fn started(&mut self) {
        if self.scheduler.threads.load(Ordering::Relaxed) != 0 {
            self.scheduler.core().turns.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// To be called when nobody waits for this thread as far as it knows: lets a background thread in that wants the
    /// core. A load if there is none.
    #[inline]
    pub fn ended(&mut self) {
        if self.scheduler.threads.load(Ordering::Relaxed) != 0 {
            self.scheduler.core().turns.fetch_add(1, Ordering::Relaxed);
            if self.scheduler.is_contended() {
                self.let_in();
            }
        }
    }

    #[cold]
    fn let_in(&mut self) {
        let machine = &self.scheduler.machine;
        let began_ns = machine.now_ns();
        if began_ns < self.keeps_until_ns {
            return;
        }
        machine.yield_core();
        let ended_ns = machine.now_ns();
        if ended_ns.saturating_sub(began_ns) >= TAKEN_NS {
            self.keeps_until_ns = ended_ns + KEPT_NS;
        }
    }
}

#[cfg(test)]
mod tests;
