//! The background scheduler: background work gives way to workers, which serve clients.
//!
//! ```text
//!   background thread  │slice│ yields │slice│ yields ───── late! ──►│slice│ sleeps …… │slice│ sleeps …… │ yields …
//!                      └ full speed: the core is free       └ for 10 ms: no more than the token bucket has
//!   worker             … sleeps …             │turn│turn│turn│ yields │turn│turn│ yields │turn│ …
//! ```
//!
//! The kernel's own slices last milliseconds. That is far too long for a worker that answers within
//! a few tenths of a millisecond. A thread of the lowest priority, in turn, makes no progress
//! beside a thread that is always busy. So background threads work in slices of a few hundredths of
//! a millisecond and yield after each. They run at full speed until a worker wants their core. Then
//! all of them together pay for their slices from one token bucket: a token is a nanosecond of
//! processor time, the bucket is filled with a share of all cores, and a thread that finds it empty
//! sleeps. Meanwhile workers yield between two turns, when all requests are answered: a background
//! thread costs least there.
//!
//! Rules
//!  1. A yield that returns late means that the core is wanted, if workers began or ended turns on
//!     that core meanwhile. Time that other background threads worked there is subtracted. With
//!     other processes the kernel shares the cores.
//!  2. Background threads hold no locks that other threads want while they
//!     [pause](BackgroundThread::pause).
//!  3. The caller sets the share. It may grow with time and need, up to full speed, so that no
//!     thread starves.
//!  4. [Urgent](Scheduler::set_urgent) work, whose end a thread waits for, never sleeps.
//!  5. Without a clock of processor time ([`Clock::thread_cpu_ns`]) no thread pauses: simulations
//!     are unaffected.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;

/// The full share: no thread sleeps.
pub const FULL_SHARE: u64 = 1_000;

/// Length of a slice while the core is free, ...
const FREE_SLICE_NS: u64 = 100_000;

/// ... and while a worker wants it.
const CONTENDED_SLICE_NS: u64 = 40_000;

/// Minimum time that threads other than background threads had the core for a yield to be late.
const LATE_NS: u64 = 100_000;

/// Number of successive late yields after which the core counts as wanted. A single one may be work
/// that the kernel did for this thread.
const LATE_YIELDS: u32 = 2;

/// For how long a core counts as wanted, until the next yield checks again.
const CONTENDED_NS: u64 = 10_000_000;

/// Capacity of the token bucket.
const BUCKET_NS: u64 = 100_000;

/// Maximum sleep of a background thread: its share can change meanwhile.
const SLEEP_NS_MAX: u64 = 5_000_000;

/// Duration of a yield after which a worker knows that another thread kept its core, ...
const TAKEN_NS: u64 = 1_000_000;

/// ... and time for which it then does not yield: it would lose its fair share to that thread.
const KEPT_NS: u64 = 100_000_000;

/// What a scheduler needs from the machine.
pub trait Machine: Send + Sync {
    /// Nanoseconds since an arbitrary start.
    fn now_ns(&self) -> u64;

    /// Processor time of the calling thread; 0 if unknown.
    fn worked_ns(&self) -> u64;

    /// Lets another thread have the core, if one wants it.
    fn yield_core(&self);

    /// Sleeps.
    fn sleep_ns(&self, ns: u64);

    /// Number of cores.
    fn cores(&self) -> u64;

    /// The number of the core that the calling thread is on.
    fn core(&self) -> usize;

    /// Makes the calling thread a background thread: ensures that its sleeps are no longer than
    /// requested.
    fn begin(&self) {}
}

/// The machine that this process runs on.
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
        // SAFETY: takes nothing and returns a number, or -1 if it is unknown.
        let core = unsafe { libc::sched_getcpu() };
        usize::try_from(core).unwrap_or(0)
    }

    fn begin(&self) {
        // SAFETY: takes and returns numbers only. If it fails, sleeps are some 50 µs longer.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0_u64, 0_u64, 0_u64) };
    }
}

/// Number of cores that are distinguished; cores beyond share their entries.
const CORES: usize = 64;

/// Work on one core.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Core {
    /// Begins and ends of workers' turns, counted while there are background threads.
    turns: AtomicU64,
    /// Processor time of background threads.
    worked_ns: AtomicU64,
}

/// State that the background threads and workers of one process share.
pub struct Scheduler {
    machine: Box<dyn Machine>,
    /// Number of background threads.
    threads: AtomicU64,
    cores: [Core; CORES],
    /// Until when workers want their cores; 0 if they do not.
    contended_until_ns: AtomicU64,
    /// When the token bucket is, or was, full again.
    full_at_ns: AtomicU64,
    /// Share of each core that goes into the bucket, per mille.
    share: AtomicU64,
    is_urgent: AtomicBool,
}

impl Scheduler {
    /// Creates the scheduler of a process on the machine, with the time of `clock`.
    #[must_use]
    pub fn of_machine(clock: Arc<dyn Clock>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with(Box::new(ThisMachine {
            clock,
            cores: cores as u64,
        }))
    }

    /// Creates a scheduler on the given machine.
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

    /// Sets the share of each core that all background threads together may have if workers want
    /// it, of a [thousand](FULL_SHARE).
    pub fn set_share(&self, per_mille: u64) {
        self.share
            .store(per_mille.clamp(1, FULL_SHARE), Ordering::Relaxed);
    }

    /// Sets whether a thread waits for the end of the work.
    pub fn set_urgent(&self, is_urgent: bool) {
        self.is_urgent.store(is_urgent, Ordering::Relaxed);
    }

    /// Whether a thread waits for the end of the work.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.is_urgent.load(Ordering::Relaxed)
    }

    /// Returns the processor time of all background threads. They add theirs at the end of each
    /// slice.
    #[must_use]
    pub fn worked_ns(&self) -> u64 {
        let worked = self.cores.iter();
        worked
            .map(|core| core.worked_ns.load(Ordering::Relaxed))
            .sum()
    }

    /// Makes the calling thread a background thread until the returned value is dropped.
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

    /// Whether background threads need workers to yield. O(1), a load.
    #[inline]
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.contended_until_ns.load(Ordering::Relaxed) != 0
    }

    /// Returns the core that the calling thread is on.
    fn core(&self) -> &Core {
        &self.cores[self.machine.core() % CORES]
    }

    fn set_contended_until(&self, ns: u64) {
        self.contended_until_ns.store(ns, Ordering::Relaxed);
    }

    /// Takes tokens from the bucket for the time worked. Returns the time until there are tokens
    /// again.
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
    /// When the current slice began.
    began_ns: u64,
    /// The thread's processor time at that moment.
    worked_ns: u64,
    /// Turns on the core when the thread last yielded.
    turns: u64,
    late_yields: u32,
    slice_ns: u64,
}

impl BackgroundThread<'_> {
    /// Whether the slice is over, so that a [pause](BackgroundThread::pause) has an effect.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.is_due_at(self.scheduler.machine.now_ns())
    }

    fn is_due_at(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.began_ns) >= self.slice_ns
    }

    /// Whether a worker wants the core. The caller should then work in short pieces.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.slice_ns == CONTENDED_SLICE_NS
    }

    /// Gives way if the slice is over. The caller calls it between two pieces of work, each shorter
    /// than a tenth of a millisecond. Costs some ten nanoseconds if the slice is not over.
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

    /// Yields, and learns from the time it took whether a worker wants the core.
    fn probe(&mut self, now_ns: u64, core: &Core) {
        let scheduler = self.scheduler;
        let was_contended = scheduler.is_contended();
        if was_contended {
            // The other background threads go on as before until the result is known.
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
            // No background thread is left for which workers would yield.
            self.scheduler.set_contended_until(0);
        }
    }
}

/// A worker's reports of its turns to the scheduler.
#[derive(Debug)]
pub struct WorkerTurns {
    scheduler: Arc<Scheduler>,
    /// Until when the worker does not yield.
    keeps_until_ns: u64,
}

impl WorkerTurns {
    /// Creates the reports of one worker.
    #[must_use]
    pub fn new(scheduler: Arc<Scheduler>) -> Self {
        Self {
            scheduler,
            keeps_until_ns: 0,
        }
    }

    /// Notes that the worker begins to serve. A load if there is no background thread.
    #[inline]
    pub fn started(&mut self) {
        if self.scheduler.threads.load(Ordering::Relaxed) != 0 {
            self.scheduler.core().turns.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that the worker has answered all requests it knows of. Lets a background thread in
    /// that wants the core. A load if there is none.
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
