//! How long a loop polls for events before it blocks.
//!
//! Waking a blocked thread costs the peer microseconds in its send, and delays the request by tens
//! of them. A loop that polls for a moment saves both, but uses its core meanwhile. So the time
//! adapts to what would have helped: it doubles after a sleep that was shorter than the longest
//! spin, halves after one that was longer, and becomes zero if sleeps are long. A worker that
//! becomes idle spins for less than twice the longest spin in total; an idle one never spins.
//!
//! Off by default ([`Options::spin`](super::Options::spin)): if other threads wait for the core,
//! spinning takes from them what it saves here. A spin that lasts much longer than allowed shows
//! that the core is shared after all, because the thread was descheduled meanwhile. Then there is
//! no spin for a while.
//!
//! The rule is that of halt polling in virtual machine monitors.

use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;

/// Length of the first spin after long sleeps.
const FIRST_NS: u64 = 10_000;
/// Minimum length of a spin: a shorter one takes less time than waking a thread.
const LEAST_NS: u64 = 4_000;

/// How long there is no spin after one during which the thread was descheduled.
const REST_NS: u64 = 200_000_000;

/// The spin state of one loop.
pub(super) struct Spin {
    clock: Arc<dyn Clock>,
    /// Maximum length of a spin; 0 if spinning is off.
    longest_ns: u64,
    /// Maximum length of the next spin.
    budget_ns: u64,
    /// No spin before this time.
    rests_until_ns: u64,
}

/// A sleep, identified by its beginning.
#[derive(Clone, Copy)]
pub(super) struct Sleep {
    began_ns: u64,
}

impl Spin {
    /// Creates a state whose spins last at most `longest`; zero for never.
    pub(super) fn new(clock: &Arc<dyn Clock>, longest: Duration) -> Self {
        Self {
            clock: Arc::clone(clock),
            longest_ns: u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX),
            budget_ns: 0,
            rests_until_ns: 0,
        }
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.longest_ns > 0
    }

    /// Begins a sleep.
    pub(super) fn begin(&self) -> Sleep {
        Sleep {
            began_ns: self.clock.monotonic_ns(),
        }
    }

    /// Whether to poll for events again before blocking. `timeout` bounds the sleep.
    pub(super) fn goes_on(&mut self, sleep: Sleep, timeout: Duration) -> bool {
        if self.budget_ns == 0 {
            return false;
        }
        let spent_ns = self.spent_ns(sleep);
        if spent_ns > self.longest_ns.saturating_mul(2) {
            self.budget_ns = 0;
            self.rests_until_ns = sleep.began_ns.saturating_add(REST_NS);
        }
        spent_ns < self.budget_ns && u128::from(spent_ns) < timeout.as_nanos()
    }

    /// Returns the rest of `timeout`.
    pub(super) fn left(&self, sleep: Sleep, timeout: Duration) -> Duration {
        timeout.saturating_sub(Duration::from_nanos(self.spent_ns(sleep)))
    }

    /// Ends a sleep in which the thread blocked. Sets the next spin by the length of the sleep.
    pub(super) fn blocked(&mut self, sleep: Sleep) {
        self.budget_ns = if sleep.began_ns < self.rests_until_ns {
            0
        } else if self.spent_ns(sleep) <= self.longest_ns {
            (self.budget_ns * 2).clamp(FIRST_NS.min(self.longest_ns), self.longest_ns)
        } else {
            match self.budget_ns / 2 {
                shorter if shorter < LEAST_NS => 0,
                shorter => shorter,
            }
        };
    }

    fn spent_ns(&self, sleep: Sleep) -> u64 {
        self.clock.monotonic_ns().saturating_sub(sleep.began_ns)
    }
}

#[cfg(test)]
mod tests {
    use base::clock::ManualClock;

    use super::*;

    const LONGEST: Duration = Duration::from_micros(50);
    const FOREVER: Duration = Duration::from_secs(1);

    /// Returns a spin and its clock.
    fn spin() -> (Spin, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at_unix_ms(0));
        let shared: Arc<dyn Clock> = Arc::clone(&clock) as _;
        (Spin::new(&shared, LONGEST), clock)
    }

    /// Sleeps for some time, blocked throughout.
    fn block(spin: &mut Spin, clock: &ManualClock, us: u64) {
        let sleep = spin.begin();
        clock.advance_us(us);
        spin.blocked(sleep);
    }

    #[test]
    fn short_sleeps_make_it_spin_up_to_its_limit() {
        let (mut spin, clock) = spin();
        assert!(!spin.goes_on(spin.begin(), FOREVER));
        for longer in [10_000, 20_000, 40_000, 50_000, 50_000] {
            block(&mut spin, &clock, 30);
            assert_eq!(spin.budget_ns, longer);
        }
        let sleep = spin.begin();
        clock.advance_us(49);
        assert!(spin.goes_on(sleep, FOREVER));
        assert!(
            !spin.goes_on(sleep, Duration::from_micros(40)),
            "its timer is due"
        );
        clock.advance_us(1);
        assert!(!spin.goes_on(sleep, FOREVER));
        assert_eq!(
            spin.left(sleep, Duration::from_micros(60)),
            Duration::from_micros(10)
        );
    }

    /// The cost of a worker that becomes idle: halves of the longest spin, then nothing.
    #[test]
    fn long_sleeps_make_it_stop() {
        let (mut spin, clock) = spin();
        (0..4).for_each(|_| block(&mut spin, &clock, 1));
        let mut burnt_ns = 0;
        for _ in 0..100 {
            burnt_ns += spin.budget_ns;
            block(&mut spin, &clock, 100_000);
        }
        assert_eq!(spin.budget_ns, 0);
        assert!(burnt_ns < 100_000, "{burnt_ns} ns");
    }

    #[test]
    fn a_thread_that_was_set_aside_gives_up_for_a_while() {
        let (mut spin, clock) = spin();
        block(&mut spin, &clock, 30);
        let sleep = spin.begin();
        assert!(spin.goes_on(sleep, FOREVER));
        clock.advance_us(3_000);
        assert!(!spin.goes_on(sleep, FOREVER));
        spin.blocked(sleep);
        for _ in 0..100 {
            block(&mut spin, &clock, 30);
            assert_eq!(spin.budget_ns, 0);
        }
        clock.advance_ms(200);
        block(&mut spin, &clock, 30);
        assert_eq!(spin.budget_ns, 10_000);
    }

    #[test]
    fn peers_that_come_too_seldom_are_not_waited_for() {
        let (mut spin, clock) = spin();
        for _ in 0..100 {
            block(&mut spin, &clock, 51);
            assert_eq!(spin.budget_ns, 0);
        }
    }
}
