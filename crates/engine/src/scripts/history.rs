//! How a script behaved before, which decides where it runs.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Number of consecutive quick runs after which a script with loops may change data on a worker's
/// thread.
const QUICK_RUNS_MIN: u32 = 2;

/// Maximum run time of a quick run.
pub(super) const QUICK_NS_MAX: u64 = 1_000_000;

/// Code without any of these words always ends.
const LOOPS: [&[u8]; 4] = [b"while", b"repeat", b"for", b"function"];

/// Commands that cannot run with any set of locks, or that need a view of all keys, as scripts
/// write them.
const REACH_ALL: [&[u8]; 5] = [b"flushall", b"flushdb", b"swapdb", b"dbsize", b"randomkey"];

/// What is known about a script's runs.
#[derive(Debug)]
pub struct History {
    has_loops: bool,
    quick_runs: AtomicU32,
    was_slow: AtomicBool,
    /// Whether it reached undeclared keys, or all keys, after its first change.
    strays: AtomicBool,
}

impl History {
    /// Returns the history of a script that never ran.
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

    /// Whether it may change data while other clients wait for it.
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

    /// Records that it needs the whole store.
    pub(crate) fn note_stray(&self) {
        self.strays.store(true, Ordering::Relaxed);
    }

    /// Records the time of a run.
    pub(crate) fn note_run(&self, ns: u64) {
        if ns > QUICK_NS_MAX {
            self.was_slow.store(true, Ordering::Relaxed);
            self.quick_runs.store(0, Ordering::Relaxed);
        } else if !self.has_proved_quick() {
            let runs = self.quick_runs.fetch_add(1, Ordering::Relaxed) + 1;
            if runs >= QUICK_RUNS_MIN {
                // It was slow once because other work took its time.
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
