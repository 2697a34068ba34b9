//! Waits of reads at level quorum at a replica.
//!
//! ```text
//!   worker: next() ─► question to the primary of the shard: what is committed? ─► its term, a sequence, a control index
//!                                                                                              │
//!   requests run ◄── over ◄── of that term or a later one, all of it applied, of that control state ◄┘
//! ```
//!
//! The primary answers as for a read of its own: its lease holds, or its members confirm it. So
//! everything that was answered at level quorum before the question began is below the sequence,
//! and a replica applies only what is committed. A hash slot that has moved since belongs to
//! another shard in the control state of that index.
//!
//! Only one question is pending at a time, for all waiting requests.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::rounds::Rounds;

/// The answer of a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readable {
    /// The term of its office.
    pub(crate) term: u64,
    /// The committed sequence.
    pub(crate) sequence: u64,
    /// The index of the primary's control state.
    pub(crate) index: u64,
}

/// State of this replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether it follows a primary, and has what the primary had when it attached.
    pub(crate) is_online: bool,
    /// The term that it follows.
    pub(crate) term: u64,
    /// The sequence that it knows to be committed.
    pub(crate) committed: u64,
    /// The sequence up to which its data is applied.
    pub(crate) applied: u64,
}

/// Sends the question of the round with that number to the primary. Never blocks.
pub(crate) type Asker = Box<dyn Fn(u64) + Send + Sync>;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct ReplicaReads {
    rounds: Rounds,
    state: Mutex<State>,
    asker: OnceLock<Asker>,
}

#[derive(Default)]
struct State {
    standing: Standing,
    /// The index of the control state that requests use.
    index: u64,
    /// The answer of the present round.
    answer: Option<Readable>,
    asked_ms: u64,
}

impl ReplicaReads {
    /// Sets the function that asks; called once.
    #[cfg(feature = "cluster")]
    pub(crate) fn set_asker(&self, asker: Asker) {
        let _already_set = self.asker.set(asker);
    }

    /// Returns the number of a round that begins after this call.
    pub(crate) fn next(&self, now_ms: u64) -> u64 {
        let number = self.rounds.next();
        self.begin(now_ms);
        number
    }

    /// Returns the number of the newest finished round.
    pub(crate) fn over(&self) -> u64 {
        self.rounds.over()
    }

    fn begin(&self, now_ms: u64) {
        let begun = {
            let mut state = self.lock();
            let begun = self.rounds.begin();
            if begun.is_some() {
                state.answer = None;
                state.asked_ms = now_ms;
            }
            begun
        };
        self.ask(begun);
    }

    /// Asks. Nothing may be locked, because a failure is reported at once from within this call.
    fn ask(&self, round: Option<u64>) {
        if let (Some(asker), Some(round)) = (self.asker.get(), round) {
            asker(round);
        }
    }

    /// Asks again if there was no answer for `after_ms`.
    #[cfg(feature = "cluster")]
    pub(crate) fn ask_again(&self, now_ms: u64, after_ms: u64) {
        let again = {
            let mut state = self.lock();
            let is_due = now_ms >= state.asked_ms.saturating_add(after_ms);
            let again = self.rounds.current();
            let again = again.filter(|_| state.answer.is_none() && is_due);
            if again.is_some() {
                state.asked_ms = now_ms;
            }
            again
        };
        self.ask(again);
    }

    /// Records the primary's answer in a round. Returns whether waiting requests can continue.
    #[cfg(feature = "cluster")]
    pub(crate) fn note_answer(&self, round: u64, answer: Readable, now_ms: u64) -> bool {
        self.change(now_ms, |state| {
            if self.rounds.current() == Some(round) {
                state.answer = Some(answer);
            }
        })
    }

    /// Records the present state of this replica. Returns whether waiting requests can continue.
    pub(crate) fn note_standing(&self, standing: Standing, now_ms: u64) -> bool {
        self.change(now_ms, |state| state.standing = standing)
    }

    /// Records the index of the control state that requests use from now on. Returns whether
    /// waiting requests can continue.
    #[cfg(feature = "cluster")]
    pub(crate) fn note_index(&self, index: u64, now_ms: u64) -> bool {
        self.change(now_ms, |state| state.index = index)
    }

    /// Records that this node follows no primary any more. The pending question is asked again.
    pub(crate) fn end_following(&self) {
        let mut state = self.lock();
        state.standing = Standing::default();
        state.answer = None;
    }

    fn change(&self, now_ms: u64, change: impl FnOnce(&mut State)) -> bool {
        let is_over = {
            let mut state = self.lock();
            change(&mut state);
            let is_over = self.rounds.current().is_some() && state.is_readable();
            if is_over {
                self.rounds.end();
            }
            is_over
        };
        if is_over {
            self.begin(now_ms);
        }
        is_over
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether this replica has everything that the answer names, and nothing uncommitted.
    fn is_readable(&self) -> bool {
        let (Some(answer), standing) = (self.answer, self.standing) else {
            return false;
        };
        standing.is_online
            // The log of a later primary contains everything that was committed in earlier terms.
            && standing.term >= answer.term
            && standing.applied >= answer.sequence
            // A full sync may have brought data that is not committed yet.
            && standing.applied <= standing.committed
            && self.index >= answer.index
    }
}

#[cfg(all(test, feature = "cluster"))]
mod tests {
    use super::*;

    fn standing(term: u64, applied: u64) -> Standing {
        Standing {
            is_online: true,
            term,
            committed: applied,
            applied,
        }
    }

    const ANSWER: Readable = Readable {
        term: 4,
        sequence: 100,
        index: 7,
    };

    /// Returns a replica that follows in term 4, with a pending question.
    fn asked() -> (ReplicaReads, u64) {
        let reads = ReplicaReads::default();
        reads.note_index(7, 0);
        let round = reads.next(0);
        (reads, round)
    }

    #[test]
    fn a_read_waits_until_what_the_primary_named_is_applied() {
        let (reads, round) = asked();
        assert!(!reads.note_standing(standing(4, 100), 0), "no answer yet");
        let later = reads.next(0);
        assert!(reads.note_answer(round, ANSWER, 0));
        assert!(
            (round..later).contains(&reads.over()),
            "{later} is another round"
        );
        assert!(!reads.note_answer(round, ANSWER, 0), "an answer of before");
        let further = Readable {
            sequence: 120,
            ..ANSWER
        };
        assert!(!reads.note_answer(later, further, 0));
        assert!(!reads.note_standing(standing(4, 119), 0));
        assert!(reads.note_standing(standing(4, 120), 0));
        assert_eq!(reads.over(), later);
    }

    #[test]
    fn what_is_not_committed_or_of_another_history_is_not_read() {
        let (reads, round) = asked();
        assert!(!reads.note_answer(round, ANSWER, 0));
        assert!(
            !reads.note_standing(standing(3, 500), 0),
            "of an older term"
        );
        let offline = Standing {
            is_online: false,
            ..standing(4, 500)
        };
        assert!(!reads.note_standing(offline, 0));
        let uncommitted = Standing {
            applied: 140,
            ..standing(4, 130)
        };
        assert!(!reads.note_standing(uncommitted, 0));
        assert!(
            reads.note_standing(standing(5, 140), 0),
            "a later primary has it too"
        );
    }

    #[test]
    fn a_slot_that_has_moved_is_known_to_have_before_it_is_read() {
        let (reads, round) = asked();
        reads.note_standing(standing(4, 100), 0);
        assert!(!reads.note_answer(round, Readable { index: 9, ..ANSWER }, 0));
        assert!(!reads.note_index(8, 0));
        assert!(reads.note_index(9, 0));
    }

    #[test]
    fn who_follows_nobody_any_more_asks_anew() {
        let (reads, round) = asked();
        assert!(!reads.note_answer(round, ANSWER, 0));
        reads.end_following();
        assert!(!reads.note_standing(standing(4, 100), 0));
        assert!(reads.note_answer(round, ANSWER, 0));
    }
}
