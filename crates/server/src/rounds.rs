//! Rounds of questions to other nodes, one at a time for all that wait for an answer.
//!
//! ```text
//!   next() = 8 ─┐  round 7 goes on                        round 8 goes on
//!   next() = 8 ─┴──────────────────► end(7), begin() = 8 ─────────────────► end(8): both may go on
//! ```
//!
//! A waiter gets the number of a round that begins after its call. Callers of [`Rounds::begin`] and
//! [`Rounds::end`] hold one lock. After [`Rounds::next`] one of them is called, so that no round is
//! forgotten.
//!
//! Invariant: numbers rise, and no round begins before the previous one has ended or was given up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    begun: AtomicU64,
    wanted: AtomicU64,
    over: AtomicU64,
    goes_on: AtomicBool,
}

impl Rounds {
    /// Returns the number of a round that begins after this call.
    pub(crate) fn next(&self) -> u64 {
        let number = self.begun.load(Ordering::SeqCst) + 1;
        self.wanted.fetch_max(number, Ordering::SeqCst);
        number
    }

    /// Begins the next round, if none is going on and something waits for it. Returns its number.
    pub(crate) fn begin(&self) -> Option<u64> {
        let begun = self.begun.load(Ordering::SeqCst);
        if self.goes_on.load(Ordering::SeqCst) || self.wanted.load(Ordering::SeqCst) <= begun {
            return None;
        }
        self.goes_on.store(true, Ordering::SeqCst);
        // From here on `next` no longer returns this number.
        self.begun.store(begun + 1, Ordering::SeqCst);
        Some(begun + 1)
    }

    /// Returns the number of the present round.
    pub(crate) fn current(&self) -> Option<u64> {
        let goes_on = self.goes_on.load(Ordering::SeqCst);
        goes_on.then(|| self.begun.load(Ordering::SeqCst))
    }

    /// Ends the present round: everything that waits for it, or for an earlier one, can continue.
    pub(crate) fn end(&self) {
        if let Some(number) = self.current() {
            self.over.store(number, Ordering::SeqCst);
            self.goes_on.store(false, Ordering::SeqCst);
        }
    }

    /// Gives the present round up: what waits for it then waits for the next one.
    pub(crate) fn give_up(&self) {
        self.goes_on.store(false, Ordering::SeqCst);
    }

    /// Returns the number of the newest finished round.
    pub(crate) fn over(&self) -> u64 {
        self.over.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_given_a_round_that_begins_later() {
        let rounds = Rounds::default();
        assert_eq!(rounds.begin(), None, "nobody waits");
        assert_eq!((rounds.next(), rounds.next()), (1, 1));
        assert_eq!(rounds.begin(), Some(1));
        assert_eq!(rounds.next(), 2, "the one that goes on began before");
        assert_eq!(rounds.begin(), None, "one at a time");
        rounds.end();
        assert_eq!((rounds.over(), rounds.begin()), (1, Some(2)));
        rounds.end();
        assert_eq!((rounds.over(), rounds.begin()), (2, None));
    }

    #[test]
    fn who_waited_for_a_round_that_was_given_up_goes_on_with_the_next() {
        let rounds = Rounds::default();
        let waited = rounds.next();
        assert_eq!(rounds.begin(), Some(waited));
        rounds.give_up();
        assert_eq!(rounds.begin(), None, "nobody has asked since");
        assert_eq!(rounds.next(), 2);
        assert_eq!(rounds.begin(), Some(2));
        rounds.end();
        assert!(rounds.over() >= waited);
    }
}
