//! Work in the background that steps back when somebody else wants the processor.
//!
//! ```text
//!   guest   │work│ yields │work│ yields ──────── late! ─────►│work│ sleeps ……… │work│ sleeps ……… │ yields …
//!           └ full speed: nobody else was there      └ for 10 ms: a share of the core, in short slices
//!   host    … sleeps …          │turn│turn│turn│ gives way │turn│turn│ gives way │turn│ …
//! ```
//!
//! The kernel's own slices are milliseconds, which is far too long for whoever answers within some tenths of one;
//! and a thread of the lowest rank never gets on beside one that is always busy. So *guests*, threads that
//! save everything there is, look every few hundredths of a millisecond whether somebody else wants their core.
//! Where nobody does they go at full speed. Where somebody does, all guests together take a share of the
//! cores and sleep for the rest, and *hosts*, who serve clients, let them in between two of their turns,
//! when everything is answered: there a guest costs least.
//!
//! Rules
//!  1. That a yield came back late says that the core is wanted, if hosts had turns there meanwhile or are in one (which may
//!     take longer than the kernel lets it run at once), and unless it was other guests who worked there: what they did is
//!     taken off. With other processes the kernel shares the cores.
//!  2. Guests hold no locks that others want while they [pause](Guest::pause).
//!  3. The share is the caller's: it may grow with time and need, up to full speed, so that nobody starves.
//!  4. Who is [in a hurry](Courtesy::set_hurry), because somebody waits for the end, sleeps never.
//!  5. Between two turns of a host its core is the guests' for one burst, whoever of them woke whom meanwhile.
//!  6. That a host waited for a moment does not mean that it wants its core no more: polite guests look again there. Who
//!     looks where no host is has an answer at once, for all.
//!  7. Without a clock of processor time ([`Clock::thread_cpu_ns`]) nobody pauses: simulations stay what they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;

/// All of a share: nobody sleeps.
pub const FULL_SHARE: u64 = 1_000;

/// A guest works so long until it looks around, while no host has turns, while one has, and when it is polite.
const SLICES_NS: [u64; 3] = [200_000, 100_000, 40_000];

/// A yield is late when others than guests worked for so long meanwhile.
const LATE_NS: u64 = 100_000;

/// So many late yields in a row mean that the core is wanted. One alone is no news: it may be a piece of work that
/// the kernel did for us.
const LATE_YIELDS: u32 = 2;

/// For so long guests are polite until they look again.
const POLITE_NS: u64 = 10_000_000;

/// A host that is always busy waits for a moment, too. So many yields in a row that come back early, ...
const EARLY_YIELDS: u64 = 4;

/// ... each so long behind the one before, mean that the core is free while hosts have turns.
const UNCERTAIN_NS: u64 = 1_000_000;

/// What guests may do at once of what they could not do before, all together, at the least and at the most: in between,
/// their share of a turn of the hosts, so that it costs who waits for one always the same part of that.
const BURST_NS: [u64; 2] = [50_000, 300_000];

/// No guest sleeps longer: what it may take can change meanwhile.
const SLEEP_NS_MAX: u64 = 5_000_000;

/// A host whose core somebody else has taken for so long, as it gave way, ...
const TAKEN_NS: u64 = 1_000_000;

/// ... gives way no more for so long: it would lose its fair part to whoever computes there.
const KEPT_NS: u64 = 100_000_000;

/// What a courtesy needs of the machine.
pub trait Machine: Send + Sync {
    /// Nanoseconds since some start.
    fn now_ns(&self) -> u64;

    /// Nanoseconds that the calling thread has worked; 0 where that is not known.
    fn worked_ns(&self) -> u64;

    /// Lets another thread have the core, if one wants it.
    fn give_way(&self);

    /// Sleeps.
    fn sleep_ns(&self, ns: u64);

    /// How many cores there are.
    fn cores(&self) -> u64;

    /// The number of the core that the calling thread is on.
    fn core(&self) -> usize;

    /// The calling thread becomes a guest: sees to it that its sleeps are no longer than asked for.
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

    fn give_way(&self) {
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
    /// Turns of hosts that ended, counted while there are guests.
    turns: AtomicU64,
    /// Hosts who are in a turn that they began there while there were guests.
    at_work: AtomicU64,
    /// What guests worked, all together, ...
    worked_ns: AtomicU64,
    /// ... and what it was when a host last gave way.
    let_in_ns: AtomicU64,
}

impl Core {
    /// What guests worked since a host last gave way, all together.
    fn burst_ns(&self) -> u64 {
        let let_in_ns = self.let_in_ns.load(Ordering::Relaxed);
        let worked_ns = self.worked_ns.load(Ordering::Relaxed);
        worked_ns.saturating_sub(let_in_ns)
    }
}

/// What guests and hosts of one process share.
pub struct Courtesy {
    machine: Box<dyn Machine>,
    /// How many guests there are.
    guests: AtomicU64,
    cores: [Core; CORES],
    /// Until then guests are polite; 0 when they are not.
    polite_until_ns: AtomicU64,
    /// How often in a row polite guests found nobody in their way, though there are hosts.
    early_yields: AtomicU64,
    /// When the next slice of any guest is due.
    due_ns: AtomicU64,
    /// How long a turn of a host took.
    turn_ns: AtomicU64,
    /// Of a thousand, what guests may have of each core.
    share: AtomicU64,
    in_hurry: AtomicBool,
}

impl Courtesy {
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
            guests: AtomicU64::new(0),
            cores: std::array::from_fn(|_| Core::default()),
            polite_until_ns: AtomicU64::new(0),
            early_yields: AtomicU64::new(0),
            due_ns: AtomicU64::new(0),
            turn_ns: AtomicU64::new(0),
            share: AtomicU64::new(FULL_SHARE),
            in_hurry: AtomicBool::new(false),
        }
    }

    /// Says what guests may have of each core that others want, of a [thousand](FULL_SHARE), all together.
    pub fn set_share(&self, per_mille: u64) {
        self.share
            .store(per_mille.clamp(1, FULL_SHARE), Ordering::Relaxed);
    }

    /// Says whether somebody waits for the end of what guests do.
    pub fn set_hurry(&self, in_hurry: bool) {
        self.in_hurry.store(in_hurry, Ordering::Relaxed);
    }

    /// Whether somebody waits for the end of what guests do.
    #[must_use]
    pub fn is_in_hurry(&self) -> bool {
        self.in_hurry.load(Ordering::Relaxed)
    }

    /// What guests have worked, all together. They note it at the end of each slice.
    #[must_use]
    pub fn worked_ns(&self) -> u64 {
        let worked = self.cores.iter();
        worked
            .map(|core| core.worked_ns.load(Ordering::Relaxed))
            .sum()
    }

    /// The core that the calling thread is on.
    fn core(&self) -> &Core {
        &self.cores[self.machine.core() % CORES]
    }

    /// The calling thread becomes a guest, until what this gives is dropped.
    pub fn enter(&self) -> Guest<'_> {
        self.machine.begin();
        self.guests.fetch_add(1, Ordering::Relaxed);
        let core = self.core();
        Guest {
            core,
            turns: core.turns.load(Ordering::Relaxed),
            courtesy: self,
            began_ns: self.machine.now_ns(),
            worked_ns: self.machine.worked_ns(),
            burst_ns: 0,
            late_yields: 0,
            slice_ns: SLICES_NS[1],
        }
    }

    /// Whether guests wait for hosts to let them in. O(1), a load.
    #[inline]
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.polite_until_ns.load(Ordering::Relaxed) != 0
    }

    fn is_polite(&self, now_ns: u64) -> bool {
        now_ns < self.polite_until_ns.load(Ordering::Relaxed)
    }

    /// A polite guest found nobody in its way.
    fn was_early(&self, now_ns: u64, has_hosts: bool) {
        let before = self.early_yields.fetch_add(1, Ordering::Relaxed);
        let is_certain = !has_hosts || before + 1 >= EARLY_YIELDS;
        let until_ns = if is_certain { 0 } else { now_ns + UNCERTAIN_NS };
        if is_certain {
            self.early_yields.store(0, Ordering::Relaxed);
        }
        self.polite_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// What guests may do at once.
    fn burst_ns_max(&self) -> u64 {
        let turn_ns = self.turn_ns.load(Ordering::Relaxed);
        let part_ns = turn_ns.saturating_mul(self.share.load(Ordering::Relaxed)) / FULL_SHARE;
        part_ns.clamp(BURST_NS[0], BURST_NS[1])
    }

    /// How long a guest sleeps that is to be there when a host has had a turn.
    fn until_next_turn_ns(&self) -> u64 {
        let turn_ns = self.turn_ns.load(Ordering::Relaxed);
        turn_ns.clamp(BURST_NS[0], BURST_NS[1])
    }

    /// Notes what a guest did; when it may go on, of what it may have.
    fn reserve(&self, now_ns: u64, worked_ns: u64) -> u64 {
        let share = self.share.load(Ordering::Relaxed) * self.machine.cores();
        let cost_ns = worked_ns.saturating_mul(FULL_SHARE) / share.max(1);
        let credit_ns = BURST_NS[1].saturating_mul(FULL_SHARE) / share.max(1);
        let earliest_ns = now_ns.saturating_sub(credit_ns.max(cost_ns));
        let due_ns = |due_ns: u64| due_ns.max(earliest_ns) + cost_ns;
        let before = self
            .due_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |due| {
                Some(due_ns(due))
            });
        due_ns(before.unwrap_or_default())
    }
}

impl std::fmt::Debug for Courtesy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Courtesy")
            .field("share", &self.share)
            .field("in_hurry", &self.in_hurry)
            .finish_non_exhaustive()
    }
}

/// A thread that works in the background.
#[derive(Debug)]
pub struct Guest<'c> {
    courtesy: &'c Courtesy,
    /// When its slice began.
    began_ns: u64,
    /// What the thread had worked by then.
    worked_ns: u64,
    /// What it worked since it slept.
    burst_ns: u64,
    late_yields: u32,
    /// Where it last looked around.
    core: &'c Core,
    /// Turns of hosts there by then.
    turns: u64,
    slice_ns: u64,
}

impl Guest<'_> {
    /// Whether a [pause](Guest::pause) would do more than nothing.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.is_due_at(self.courtesy.machine.now_ns())
    }

    fn is_due_at(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.began_ns) >= self.slice_ns
    }

    /// Whether the core is somebody else's before it is this guest's: its pieces of work should be short.
    #[must_use]
    pub fn is_polite(&self) -> bool {
        self.slice_ns == SLICES_NS[2]
    }

    /// To be called between two pieces of work, each shorter than a tenth of a millisecond: gives way if that is due.
    /// Some ten nanoseconds if it is not.
    pub fn pause(&mut self) {
        let now_ns = self.courtesy.machine.now_ns();
        if self.is_due_at(now_ns) {
            self.end_slice(now_ns);
            self.slice_ns = self.next_slice_ns();
            self.began_ns = self.courtesy.machine.now_ns();
        }
    }

    fn next_slice_ns(&mut self) -> u64 {
        let core = self.courtesy.core();
        let before = std::mem::replace(&mut self.core, core);
        let is_elsewhere = !std::ptr::eq(core, before);
        let turns = core.turns.load(Ordering::Relaxed);
        let are_busy = turns != std::mem::replace(&mut self.turns, turns) && !is_elsewhere;
        let [alone, beside, polite] = SLICES_NS;
        match (self.courtesy.is_wanted(), are_busy) {
            (true, _) => polite,
            (false, true) => beside,
            (false, false) => alone,
        }
    }

    fn end_slice(&mut self, now_ns: u64) {
        let courtesy = self.courtesy;
        let sum_ns = courtesy.machine.worked_ns();
        let worked_ns = sum_ns.saturating_sub(std::mem::replace(&mut self.worked_ns, sum_ns));
        let core = courtesy.core();
        if worked_ns == 0 {
            // Others have let it go on, who used up what they and it may have.
            if courtesy.is_polite(now_ns) && core.burst_ns() >= courtesy.burst_ns_max() {
                courtesy.machine.sleep_ns(courtesy.until_next_turn_ns());
            }
            return;
        }
        core.worked_ns.fetch_add(worked_ns, Ordering::Relaxed);
        let is_urgent =
            courtesy.is_in_hurry() || courtesy.share.load(Ordering::Relaxed) >= FULL_SHARE;
        if is_urgent {
            courtesy.polite_until_ns.store(0, Ordering::Relaxed);
            courtesy.machine.give_way();
        } else if courtesy.is_polite(now_ns) {
            self.rest(core, now_ns, worked_ns);
        } else {
            self.probe(now_ns);
        }
    }

    /// Sleeps until this guest may go on.
    fn rest(&mut self, core: &Core, now_ns: u64, worked_ns: u64) {
        let courtesy = self.courtesy;
        self.burst_ns += worked_ns;
        let due_ns = courtesy.reserve(now_ns, worked_ns);
        let is_used_up = core.burst_ns() >= courtesy.burst_ns_max();
        if due_ns <= now_ns && !is_used_up {
            // It was kept from working, and makes up for it.
            return;
        }
        // Where there are many cores: each is somebody else's for half of the time.
        let mut sleep_ns = due_ns.saturating_sub(now_ns).max(self.burst_ns);
        if is_used_up {
            sleep_ns = sleep_ns.max(courtesy.until_next_turn_ns());
        }
        courtesy.machine.sleep_ns(sleep_ns.min(SLEEP_NS_MAX));
        self.burst_ns = 0;
    }

    /// Finds out whether somebody else wants the core.
    fn probe(&mut self, now_ns: u64) {
        let courtesy = self.courtesy;
        let machine = &courtesy.machine;
        let was_polite = courtesy.is_wanted();
        if was_polite {
            // The others go on as they do until it is known.
            let until_ns = now_ns + POLITE_NS;
            courtesy.polite_until_ns.store(until_ns, Ordering::Relaxed);
        }
        let core = courtesy.core();
        if !std::ptr::eq(core, self.core) {
            self.turns = core.turns.load(Ordering::Relaxed);
        }
        let others_ns = core.worked_ns.load(Ordering::Relaxed);
        machine.give_way();
        let back_ns = machine.now_ns();
        let others_ns = core.worked_ns.load(Ordering::Relaxed) - others_ns;
        let away_ns = back_ns.saturating_sub(now_ns).saturating_sub(others_ns);
        let has_hosts = core.turns.load(Ordering::Relaxed) != self.turns
            || core.at_work.load(Ordering::Relaxed) != 0;
        if away_ns < LATE_NS || !has_hosts {
            self.late_yields = 0;
            if was_polite {
                courtesy.was_early(back_ns, has_hosts);
            }
            return;
        }
        courtesy.early_yields.store(0, Ordering::Relaxed);
        self.late_yields += 1;
        if was_polite || self.late_yields >= LATE_YIELDS {
            let until_ns = back_ns + POLITE_NS;
            courtesy.polite_until_ns.store(until_ns, Ordering::Relaxed);
        }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        if self.courtesy.guests.fetch_sub(1, Ordering::Relaxed) == 1 {
            // Nobody is left for whom hosts would give way.
            self.courtesy.polite_until_ns.store(0, Ordering::Relaxed);
        }
    }
}

/// A thread that serves clients.
#[derive(Debug)]
pub struct Host {
    courtesy: Arc<Courtesy>,
    /// Until then it gives way no more.
    keeps_until_ns: u64,
    /// When it gave way last.
    last_ns: u64,
    /// The core on which it is at work, if that was noted there.
    at_work_on: Option<usize>,
}

impl Host {
    /// One of these.
    #[must_use]
    pub fn new(courtesy: Arc<Courtesy>) -> Self {
        Self {
            courtesy,
            keeps_until_ns: 0,
            last_ns: 0,
            at_work_on: None,
        }
    }

    /// To be called when it begins to serve. A load if there is no guest.
    #[inline]
    pub fn turn_started(&mut self) {
        if self.courtesy.guests.load(Ordering::Relaxed) != 0 {
            self.end_work();
            let core = self.courtesy.machine.core() % CORES;
            self.courtesy.cores[core]
                .at_work
                .fetch_add(1, Ordering::Relaxed);
            self.at_work_on = Some(core);
        }
    }

    /// Is not at work any more, wherever it was.
    #[inline]
    fn end_work(&mut self) {
        if let Some(core) = self.at_work_on.take() {
            self.courtesy.cores[core]
                .at_work
                .fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// To be called when nobody waits for this thread as far as it knows: lets a guest in that wants the core. A load
    /// if there is none.
    #[inline]
    pub fn turn_ended(&mut self) {
        self.end_work();
        if self.courtesy.guests.load(Ordering::Relaxed) != 0 {
            self.courtesy.core().turns.fetch_add(1, Ordering::Relaxed);
            if self.courtesy.is_wanted() {
                self.let_in();
            }
        }
    }

    #[cold]
    fn let_in(&mut self) {
        let machine = &self.courtesy.machine;
        let began_ns = machine.now_ns();
        if began_ns < self.keeps_until_ns {
            return;
        }
        let turn_ns = began_ns.saturating_sub(self.last_ns);
        self.courtesy.turn_ns.store(turn_ns, Ordering::Relaxed);
        let core = self.courtesy.core();
        let worked_ns = core.worked_ns.load(Ordering::Relaxed);
        core.let_in_ns.store(worked_ns, Ordering::Relaxed);
        machine.give_way();
        let ended_ns = machine.now_ns();
        self.last_ns = ended_ns;
        if ended_ns.saturating_sub(began_ns) >= TAKEN_NS {
            self.keeps_until_ns = ended_ns + KEPT_NS;
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.end_work();
    }
}

#[cfg(test)]
mod tests;
