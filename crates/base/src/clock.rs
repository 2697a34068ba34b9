//! Time as a replaceable dependency.
//!
//! This module is the only place that asks the operating system for the time. All other code is
//! given a [`Clock`], so that a test or a simulation can control expiry, timeouts and logs.
#![allow(clippy::disallowed_methods, reason = "this is where time comes from")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Two readings from one clock call, for callers that read the time once per batch of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since 1970 UTC.
    pub unix_ms: u64,
    /// Nanoseconds since an arbitrary start. They may jump, either way, when the machine's clock is
    /// set; a span that looks long has to be checked with [`Clock::monotonic_ns`].
    pub ns: u64,
}

/// A source of time.
///
/// The two wall readings follow the machine's clock and may step back; the monotonic one never
/// does, and counts from an arbitrary start.
pub trait Clock: Send + Sync {
    /// Microseconds since 1970 UTC.
    fn now_unix_us(&self) -> u64;

    /// Nanoseconds since a start that is fixed for the lifetime of the clock.
    fn monotonic_ns(&self) -> u64;

    /// Milliseconds since that start.
    fn monotonic_ms(&self) -> u64 {
        self.monotonic_ns() / 1_000_000
    }

    /// Milliseconds since 1970 UTC.
    fn now_unix_ms(&self) -> u64 {
        self.now_unix_us() / 1000
    }

    /// Milliseconds since a start, including time in which the machine slept. Leases are measured
    /// by it.
    fn boottime_ms(&self) -> u64 {
        self.monotonic_ms()
    }

    /// Returns both readings at once.
    fn moment(&self) -> Moment {
        Moment {
            unix_ms: self.now_unix_ms(),
            ns: self.monotonic_ns(),
        }
    }

    /// Processor time of the calling thread in nanoseconds, including its time in the kernel,
    /// excluding its waits for a processor. A system call of some hundred nanoseconds. 0 if time is
    /// not the machine's.
    fn thread_cpu_ns(&self) -> u64 {
        0
    }
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Creates a clock whose monotonic reading starts at zero now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_unix_us(&self) -> u64 {
        // A machine whose clock is set before 1970 reads as 1970; the 64 bits last for half a
        // million years.
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    fn now_unix_ms(&self) -> u64 {
        self.moment().unix_ms
    }

    /// Calls the system directly, because the moment is read for every batch of commands: computing
    /// differences of [`SystemTime`] takes four times as many instructions.
    fn moment(&self) -> Moment {
        let (seconds, ns) = read(libc::CLOCK_REALTIME);
        Moment {
            unix_ms: seconds.saturating_mul(1000).saturating_add(ns / 1_000_000),
            ns: seconds.wrapping_mul(1_000_000_000).wrapping_add(ns),
        }
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn boottime_ms(&self) -> u64 {
        let (seconds, ns) = read(libc::CLOCK_BOOTTIME);
        seconds.saturating_mul(1000).saturating_add(ns / 1_000_000)
    }

    fn thread_cpu_ns(&self) -> u64 {
        let (seconds, ns) = read(libc::CLOCK_THREAD_CPUTIME_ID);
        seconds.saturating_mul(1_000_000_000).saturating_add(ns)
    }
}

/// Returns the seconds of a system clock and the nanoseconds beyond them.
#[inline]
fn read(clock: libc::clockid_t) -> (u64, u64) {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes only to `now`, which is of the required size. The requested clocks
    // exist everywhere; if one fails all the same, it reads 0.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    (seconds, u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// A clock that moves only when a caller moves it.
///
/// [`advance_ms`](Self::advance_ms) moves both readings together;
/// [`set_unix_us`](Self::set_unix_us) moves only the wall reading, as when a machine's clock is
/// set.
#[derive(Debug)]
pub struct ManualClock {
    unix_us: AtomicU64,
    monotonic_ns: AtomicU64,
}

impl ManualClock {
    /// Creates a clock that reads `unix_ms` milliseconds since 1970, with zero as its monotonic
    /// reading.
    #[must_use]
    pub fn at_unix_ms(unix_ms: u64) -> Self {
        Self {
            unix_us: AtomicU64::new(unix_ms.saturating_mul(1000)),
            monotonic_ns: AtomicU64::new(0),
        }
    }

    /// Moves both readings forward.
    pub fn advance_ms(&self, ms: u64) {
        self.advance_us(ms.saturating_mul(1000));
    }

    /// Moves both readings forward.
    pub fn advance_us(&self, us: u64) {
        self.unix_us.fetch_add(us, Ordering::SeqCst);
        self.monotonic_ns
            .fetch_add(us.saturating_mul(1000), Ordering::SeqCst);
    }

    /// Sets the wall reading, forward or back; the monotonic one stays.
    pub fn set_unix_ms(&self, unix_ms: u64) {
        self.set_unix_us(unix_ms.saturating_mul(1000));
    }

    /// Sets the wall reading, forward or back; the monotonic one stays.
    pub fn set_unix_us(&self, unix_us: u64) {
        self.unix_us.store(unix_us, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_unix_us(&self) -> u64 {
        self.unix_us.load(Ordering::SeqCst)
    }

    fn monotonic_ns(&self) -> u64 {
        self.monotonic_ns.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_is_past_2020_and_never_goes_back() {
        let clock = SystemClock::new();
        assert!(clock.now_unix_ms() > 1_577_836_800_000);
        let first = clock.monotonic_ns();
        assert!(clock.monotonic_ns() >= first);
        let first_ms = clock.boottime_ms();
        assert!(first_ms > 0 && clock.boottime_ms() >= first_ms);
    }

    #[test]
    fn processor_time_goes_with_what_the_thread_does() {
        let clock = SystemClock::new();
        // Far more than a thread needs to start.
        let (began_ns, mut looks) = (clock.thread_cpu_ns(), 0_u64);
        while clock.thread_cpu_ns() - began_ns < 50_000_000 {
            looks += 1;
        }
        assert!(looks > 1);
        let own_ns = clock.thread_cpu_ns();
        let of_another = std::thread::spawn(move || clock.thread_cpu_ns());
        assert!(of_another.join().unwrap() < own_ns);
        assert_eq!(ManualClock::at_unix_ms(5).thread_cpu_ns(), 0);
    }

    #[test]
    fn the_manual_clock_moves_only_when_told() {
        let clock = ManualClock::at_unix_ms(5);
        assert_eq!((clock.now_unix_us(), clock.monotonic_ns()), (5_000, 0));
        clock.advance_ms(2);
        assert_eq!((clock.now_unix_ms(), clock.monotonic_ns()), (7, 2_000_000));
        clock.set_unix_ms(1);
        assert_eq!((clock.now_unix_ms(), clock.monotonic_ns()), (1, 2_000_000));
    }

    #[test]
    fn both_wall_readings_of_the_machine_agree() {
        let clock = SystemClock::new();
        let before_ms = clock.now_unix_us() / 1000;
        let now_ms = clock.now_unix_ms();
        let after_ms = clock.now_unix_us() / 1000;
        // The machine's clock may be set back meanwhile, by less than this.
        assert!(now_ms + 60_000 >= before_ms && now_ms <= after_ms + 60_000);
    }
}
