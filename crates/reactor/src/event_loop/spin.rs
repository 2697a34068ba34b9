//! How long a loop looks for events before it blocks.
//!
//! Waking a blocked thread costs the peer microseconds in its send, and the request tens of them
//! until it is read. A loop that looks again for a moment saves both, and burns its core meanwhile.
//! So the time follows what would have helped: it doubles after a sleep that was shorter than the
//! longest spin, halves after one that was longer, and is nothing where sleeps are long. A worker
//! that falls idle spins for less than twice the longest spin, all in all; an idle one never.
//!
//! Off unless asked for ([`Options::spin`](super::Options::spin)): where other threads wait for the
//! core, spinning takes from them what it saves here. That the core is shared after all shows when
//! a spin lasts much longer than it may, because the thread was set aside meanwhile: then there is
//! none for a while.
//!
//! The rule is that of halt polling in virtual machine monitors.

use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;

/// The first spin after sleeps that were long.
const FIRST_NS: u64 = 10_000;
/// A spin that would be shorter is left out: less than waking a thread takes.
const LEAST_NS: u64 = 4_000;

/// How long there is no spin after one during which the thread was set aside.
const REST_NS: u64 = 200_000_000;

/// The state of one loop.
pub(super) struct Spin {
    clock: Arc<dyn Clock>,
    /// 0 when off.
    longest_ns: u64,
    /// How long the next one may last.
    budget_ns: u64,
    /// No spin before this time.
    rests_until_ns: u64,
}

/// One sleep, from its beginning.
#[derive(Clone, Copy)]
pub(super) struct Sleep {
    began_ns: u64,
}

impl Spin {
    /// Spins last at most `longest`, zero for never.
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

    /// A sleep begins.
    pub(super) fn begin(&self) -> Sleep {
        Sleep {
            began_ns: self.clock.monotonic_ns(),
        }
    }

    /// Whether to look for events once more before blocking, where `timeout` bounds the sleep.
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

    /// What is left of `timeout`.
    pub(super) fn left(&self, sleep: Sleep, timeout: Duration) -> Duration {
        timeout.saturating_sub(Duration::from_nanos(self.spent_ns(sleep)))
    }

    /// The sleep ended after the thread had blocked: sets the next spin by how long it took.
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

    /// A spin and its clock.
    fn spin() -> (Spin, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at_unix_ms(0));
        let shared: Arc<dyn Clock> = Arc::clone(&clock) as _;
        (Spin::new(&shared, LONGEST), clock)
    }

    /// Sleeps for some time, all of it blocked.
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

    /// What a worker that falls idle burns: halves of the longest spin, then nothing.
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
