//! How a script behaved, so that it runs where it will be no trouble.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// So many quick runs in a row let a script with loops change data on a worker's thread.
const QUICK_RUNS_MIN: u32 = 2;

/// A run of at most so long is quick.
pub(super) const QUICK_NS_MAX: u64 = 1_000_000;

/// Without one of these words no code runs for ever.
const LOOPS: [&[u8]; 4] = [b"while", b"repeat", b"for", b"function"];

/// Commands that no lock set lets run, or that see less than all in one, as scripts write them.
const REACH_ALL: [&[u8]; 5] = [b"flushall", b"flushdb", b"swapdb", b"dbsize", b"randomkey"];

/// What is known of a script.
#[derive(Debug)]
pub struct History {
    has_loops: bool,
    quick_runs: AtomicU32,
    was_slow: AtomicBool,
    /// It came to keys behind its first change that it had not named, or to all.
    strays: AtomicBool,
}

impl History {
    /// Of a script that never ran.
    pub(crate) fn of(source: &[u8]) -> Self {
        let source = source.to_ascii_lowercase();
        let has = |word: &&[u8]| source.windows(word.len()).any(|part| part == *word);
        Self {
            has_loops: LOOPS.iter().any(has),
            quick_runs: AtomicU32::new(0),
            was_slow: AtomicBool::new(false),
            strays: AtomicBool::new(REACH_ALL.iter().any(has)),
        }
    }

    /// Whether it may change data where others wait for it to end.
    pub(crate) fn is_trusted(&self) -> bool {
        !self.was_slow() && (!self.has_loops || self.has_proved_quick())
    }

    fn has_proved_quick(&self) -> bool {
        self.quick_runs.load(Ordering::Relaxed) >= QUICK_RUNS_MIN
    }

    /// Whether a run took long.
    pub(crate) fn was_slow(&self) -> bool {
        self.was_slow.load(Ordering::Relaxed)
    }

    /// Whether it needs the whole store.
    pub(crate) fn strays(&self) -> bool {
        self.strays.load(Ordering::Relaxed)
    }

    /// Notes that it does.
    pub(crate) fn note_stray(&self) {
        self.strays.store(true, Ordering::Relaxed);
    }

    /// Notes how long a run took.
    pub(crate) fn note_run(&self, ns: u64) {
        if ns > QUICK_NS_MAX {
            self.was_slow.store(true, Ordering::Relaxed);
            self.quick_runs.store(0, Ordering::Relaxed);
        } else if !self.has_proved_quick() {
            let runs = self.quick_runs.fetch_add(1, Ordering::Relaxed) + 1;
            if runs >= QUICK_RUNS_MIN {
                // It was slow once, when others took its time.
                self.was_slow.store(false, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_take_long_proves_first_that_it_does_not() {
        let straight = History::of(b"return redis.call('set', KEYS[1], 1)");
        assert!(straight.is_trusted() && !straight.strays());
        let loops = History::of(b"FOR = 1; for i = 1, 2 do end");
        assert!(!loops.is_trusted());
        loops.note_run(10);
        loops.note_run(10);
        assert!(loops.is_trusted());
        loops.note_run(QUICK_NS_MAX + 1);
        assert!(!loops.is_trusted() && loops.was_slow());
        assert!(History::of(b"redis.call('FLUSHall')").strays());
    }
}
