//! The speed of a checkpoint while clients want the cores.
//!
//! It takes a small share of them. The share grows as writers fill memory with what is to be
//! written, with the log that a start would have to read, and with time.

use base::background::{BackgroundThread, FULL_SHARE, Scheduler};

use super::Checkpointer;

/// Share of each core, in thousandths, that a checkpoint takes without pressure.
const SHARE: u64 = 80;

/// From this part of the memory limit on, in thousandths, ...
const HELD: u64 = 200;
/// ... up to here the share grows to the whole: beyond it writers would be slowed down.
const HELD_MAX: u64 = 1_000;

/// Bytes by which the log may grow before the share grows, or the bytes of the last checkpoint if
/// those are more. At `LOG_TIMES` as many the share is the whole.
const LOG_BYTES: u64 = 1 << 30;
const LOG_TIMES: u64 = 3;

/// From this time after its cut on ...
const ELAPSED_NS: u64 = 20_000_000_000;
/// ... up to here the share grows to the whole, even on a machine whose cores are always busy.
const ELAPSED_NS_MAX: u64 = 60_000_000_000;

/// The pace of one checkpoint.
pub(super) struct Pace<'p> {
    checkpointer: &'p Checkpointer,
    began_ns: u64,
    log_sequence: Option<u64>,
    log_bytes: u64,
}

/// What makes a checkpoint urgent.
#[derive(Clone, Copy, Debug, Default)]
struct Pressure {
    /// Part of the memory limit that is held, in thousandths.
    held: u64,
    elapsed_ns: u64,
    /// Growth of the log relative to what is allowed, in thousandths.
    log: u64,
    /// Whether it was given up and others wait for its end, or only its end frees memory.
    is_urgent: bool,
}

impl Pressure {
    /// Returns the share of each core that may be taken: `least` without pressure.
    fn share(self, least: u64) -> u64 {
        if self.is_urgent {
            return FULL_SHARE;
        }
        let log_max = LOG_TIMES * FULL_SHARE;
        let urgency = between(self.held, HELD, HELD_MAX)
            .max(between(self.elapsed_ns, ELAPSED_NS, ELAPSED_NS_MAX))
            .max(between(self.log, FULL_SHARE, log_max));
        least + (FULL_SHARE - least) * urgency / FULL_SHARE
    }
}

/// Returns the position of `number` between `from` and `to`, in thousandths.
fn between(number: u64, from: u64, to: u64) -> u64 {
    let done = number.clamp(from, to) - from;
    done.saturating_mul(FULL_SHARE) / (to - from)
}

/// Returns the share of each core, in thousandths, that a copy of the store which is no checkpoint
/// may take: `least` without pressure, and more as writers fill the memory that may be held for it,
/// and with time.
#[must_use]
pub fn share_of_copy(least: u64, held_bytes: u64, limit_bytes: u64, elapsed_ns: u64) -> u64 {
    let pressure = Pressure {
        held: held_bytes.saturating_mul(FULL_SHARE) / limit_bytes.max(1),
        elapsed_ns,
        ..Pressure::default()
    };
    pressure.share(least)
}

impl Checkpointer {
    /// Returns the pace of a checkpoint whose cut was just made.
    pub(super) fn pace(&self, log_sequence: Option<u64>) -> Pace<'_> {
        Pace {
            checkpointer: self,
            began_ns: self.setup.clock.monotonic_ns(),
            log_sequence,
            log_bytes: self.state().figures.last_bytes.max(LOG_BYTES),
        }
    }
}

impl Pace<'_> {
    fn background(&self) -> &Scheduler {
        &self.checkpointer.setup.background
    }

    /// Registers the calling thread as working on the checkpoint.
    pub(super) fn enter(&self) -> BackgroundThread<'_> {
        self.background().enter()
    }

    /// Yields between two pieces of work.
    pub(super) fn pause(&self, thread: &mut BackgroundThread<'_>) {
        if thread.is_due() {
            self.background().set_share(self.pressure().share(SHARE));
            thread.pause();
        }
    }

    fn pressure(&self) -> Pressure {
        let checkpointer = self.checkpointer;
        let setup = &checkpointer.setup;
        let progress = setup.store.snapshot_progress();
        let held_bytes = progress.map_or(0, |progress| progress.held_bytes);
        let limit_bytes = checkpointer.snapshot_limits().soft_bytes;
        let log = self.log_sequence.zip(setup.surroundings.log_sequence());
        let log_bytes = log.map_or(0, |(began, now)| now.saturating_sub(began));
        Pressure {
            held: held_bytes.saturating_mul(FULL_SHARE) / limit_bytes.max(1),
            elapsed_ns: setup.clock.monotonic_ns().saturating_sub(self.began_ns),
            log: log_bytes.saturating_mul(FULL_SHARE) / self.log_bytes,
            is_urgent: progress
                .is_some_and(|progress| progress.is_given_up || progress.keeps_emptied),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(change: impl FnOnce(&mut Pressure)) -> u64 {
        let mut pressure = Pressure::default();
        change(&mut pressure);
        pressure.share(SHARE)
    }

    #[test]
    fn what_presses_raises_the_share_up_to_the_whole() {
        assert_eq!(share(|_| ()), SHARE);
        let second_ns = 1_000_000_000;
        let after = |seconds: u64| share(|pressure| pressure.elapsed_ns = seconds * second_ns);
        assert_eq!(
            (after(20), after(60), after(1_000)),
            (SHARE, FULL_SHARE, FULL_SHARE)
        );
        assert!(after(20) < after(30) && after(30) < after(50) && after(50) < FULL_SHARE);
        let held = |per_mille| share(|pressure| pressure.held = per_mille);
        assert_eq!(
            (held(HELD), held(1_000), held(4_000)),
            (SHARE, FULL_SHARE, FULL_SHARE)
        );
        assert!(held(300) > SHARE && held(300) < held(500));
        let log = |times: u64| share(|pressure| pressure.log = times * FULL_SHARE);
        assert_eq!((log(1), log(3), log(9)), (SHARE, FULL_SHARE, FULL_SHARE));
        assert!(log(2) > SHARE && log(2) < FULL_SHARE);
        assert_eq!(share(|pressure| pressure.is_urgent = true), FULL_SHARE);
    }
}
