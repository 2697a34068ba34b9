//! The history of a log: which term wrote which part of it.
//!
//! ```text
//!   term 1          term 2                 term 3
//!   ├───────────────┼──────────────────────┼───────────►  sequence
//!   start 0         start 4,096            start 90,112     end of the log
//! ```
//!
//! A term is the period of one primary. It begins with a term frame, so a term is never empty, and
//! the starts strictly ascend. Its identity is random, which distinguishes two nodes that both
//! began "term 7".
//!
//! Invariant: the term frame names the term before it, so two logs that share a term share
//! everything below its start. A lineage may lose old terms at the front, never in the middle.

use std::fmt;

/// Maximum number of terms that a lineage keeps and a peer may send. The oldest are forgotten
/// first.
pub const TERMS_MAX: usize = 1024;

/// The identity of a term: 20 random bytes. Redis clients see it as `master_replid`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TermId(pub [u8; 20]);

impl fmt::Debug for TermId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for TermId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base::hex::text(&self.0))
    }
}

/// The period of one primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Number, which rises with each term of a history.
    pub number: u64,
    /// Identity, which distinguishes it from all other terms with this number.
    pub id: TermId,
    /// The sequence of its term frame.
    pub start: u64,
}

/// Why terms do not form a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineageFlaw {
    /// Numbers or starts do not ascend.
    Order,
    /// There are more than [`TERMS_MAX`].
    Length,
}

impl fmt::Display for LineageFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order => f.write_str("terms do not follow each other"),
            Self::Length => write!(f, "more than {TERMS_MAX} terms"),
        }
    }
}

impl std::error::Error for LineageFlaw {}

/// The terms of a log, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    terms: Vec<Term>,
}

impl Lineage {
    /// Creates the history with these terms, oldest first.
    ///
    /// # Errors
    /// If they do not follow each other, or are too many.
    pub fn new(terms: Vec<Term>) -> Result<Self, LineageFlaw> {
        if terms.len() > TERMS_MAX {
            return Err(LineageFlaw::Length);
        }
        let rises = |pair: &[Term]| follows(&pair[0], &pair[1]);
        if terms.windows(2).all(rises) {
            Ok(Self { terms })
        } else {
            Err(LineageFlaw::Order)
        }
    }

    /// Returns the terms, oldest first.
    #[must_use]
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Returns the current term.
    #[must_use]
    pub fn last(&self) -> Option<&Term> {
        self.terms.last()
    }

    /// Returns the number of the last term, or 0 if there is none.
    #[must_use]
    pub fn last_number(&self) -> u64 {
        self.last().map_or(0, |term| term.number)
    }

    /// Begins a term. Forgets the oldest term if there are [`TERMS_MAX`].
    ///
    /// # Errors
    /// [`LineageFlaw::Order`] if it does not follow the last one; nothing changes.
    pub fn begin(&mut self, term: Term) -> Result<(), LineageFlaw> {
        if !self.last().is_none_or(|last| follows(last, &term)) {
            return Err(LineageFlaw::Order);
        }
        if self.terms.len() == TERMS_MAX {
            self.terms.remove(0);
        }
        self.terms.push(term);
        Ok(())
    }

    /// Returns the term that wrote the frame at a sequence. O(log terms).
    #[must_use]
    pub fn term_at(&self, sequence: u64) -> Option<&Term> {
        let after = self.terms.partition_point(|term| term.start <= sequence);
        self.terms.get(after.checked_sub(1)?)
    }

    /// Forgets the terms that begin at or after `end`, where the log was truncated.
    pub fn truncate(&mut self, end: u64) {
        self.terms.retain(|term| term.start < end);
    }

    /// Returns the highest sequence up to which two logs are the same, or `None` if they have no
    /// term in common. O(terms).
    #[must_use]
    pub fn fork(&self, own_end: u64, other: &Self, other_end: u64) -> Option<u64> {
        let shared = |term: &Term| {
            other
                .terms
                .binary_search_by_key(&term.number, |it| it.number)
        };
        let (own_at, other_at) = self.terms.iter().enumerate().rev().find_map(|(at, term)| {
            let other_at = shared(term).ok()?;
            (other.terms[other_at] == *term).then_some((at, other_at))
        })?;
        let own = self.end_of(own_at, own_end);
        Some(own.min(other.end_of(other_at, other_end)))
    }

    /// Returns the end of the term at an index: the start of the next term, or the end of the log.
    fn end_of(&self, at: usize, log_end: u64) -> u64 {
        self.terms.get(at + 1).map_or(log_end, |next| next.start)
    }
}

fn follows(before: &Term, after: &Term) -> bool {
    before.number < after.number && before.start < after.start
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn term(number: u64, id: u8, start: u64) -> Term {
        Term {
            number,
            id: TermId([id; 20]),
            start,
        }
    }

    fn lineage(terms: &[(u64, u8, u64)]) -> Lineage {
        let terms = terms
            .iter()
            .map(|&(number, id, start)| term(number, id, start));
        Lineage::new(terms.collect()).unwrap()
    }

    #[test]
    fn terms_that_do_not_rise_are_refused() {
        for (first, second) in [
            ((1, 1, 0), (1, 2, 8)),
            ((2, 1, 0), (1, 2, 8)),
            ((1, 1, 8), (2, 2, 8)),
        ] {
            let terms = [first, second].map(|(number, id, start)| term(number, id, start));
            assert_eq!(Lineage::new(terms.to_vec()), Err(LineageFlaw::Order));
        }
        let mut history = lineage(&[(3, 3, 16)]);
        let before = history.clone();
        assert_eq!(history.begin(term(3, 4, 24)), Err(LineageFlaw::Order));
        assert_eq!(history, before);
    }

    #[test]
    fn more_terms_than_are_kept_are_refused_from_peers_and_forgotten_at_home() {
        let count = TERMS_MAX as u64 + 1;
        let terms: Vec<Term> = (0..count).map(|at| term(at + 1, 1, at * 8)).collect();
        assert_eq!(Lineage::new(terms.clone()), Err(LineageFlaw::Length));
        let mut history = Lineage::default();
        for term in terms {
            history.begin(term).unwrap();
        }
        assert_eq!(history.terms().len(), TERMS_MAX);
        assert_eq!(history.terms()[0].number, 2);
        assert_eq!(history.last_number(), count);
    }

    #[test]
    fn a_frame_belongs_to_the_last_term_that_began_before_it() {
        let history = lineage(&[(1, 1, 0), (4, 2, 64)]);
        let number_at = |sequence| history.term_at(sequence).map(|term| term.number);
        assert_eq!(
            [0, 63, 64, 1_000].map(number_at),
            [Some(1), Some(1), Some(4), Some(4)]
        );
        assert_eq!(lineage(&[(1, 1, 8)]).term_at(0), None);
    }

    #[test]
    fn histories_fork_where_their_common_term_ends_first() {
        let one = lineage(&[(1, 1, 0), (2, 2, 100)]);
        // The same history, once longer and once shorter.
        assert_eq!(one.fork(500, &one, 300), Some(300));
        // The other log continued term 1 after this one began term 2.
        assert_eq!(one.fork(500, &lineage(&[(1, 1, 0)]), 160), Some(100));
        // Both began a term 2 of their own.
        assert_eq!(
            one.fork(500, &lineage(&[(1, 1, 0), (2, 9, 160)]), 700),
            Some(100)
        );
        // Nothing in common, though the numbers are the same.
        assert_eq!(
            one.fork(500, &lineage(&[(1, 7, 0), (2, 8, 100)]), 500),
            None
        );
        // The other has forgotten its oldest term.
        assert_eq!(
            one.fork(500, &lineage(&[(2, 2, 100), (3, 3, 400)]), 900),
            Some(400)
        );
        // An empty history shares nothing.
        assert_eq!(one.fork(500, &Lineage::default(), 0), None);
    }

    /// Generates histories that grow from one another: each begins terms of its own after a common
    /// part.
    fn forked() -> impl Strategy<Value = (Lineage, u64, Lineage, u64, u64)> {
        let branch = || prop::collection::vec((1..4_u64, 1..9_u64), 0..4);
        (
            prop::collection::vec((1..4_u64, 1..9_u64), 1..5),
            branch(),
            branch(),
        )
            .prop_map(|(common, left, right)| {
                let (mut number, mut end, mut terms) = (0, 0, Vec::new());
                for (step, length) in common {
                    number += step;
                    terms.push(term(number, 1, end));
                    end += length * 8;
                }
                let grow = |steps: Vec<(u64, u64)>, id: u8| {
                    let (mut terms, mut number, mut end) = (terms.clone(), number, end);
                    for (step, length) in steps {
                        number += step;
                        terms.push(term(number, id, end));
                        end += length * 8;
                    }
                    (Lineage::new(terms).unwrap(), end)
                };
                let ((left, left_end), (right, right_end)) = (grow(left, 2), grow(right, 3));
                (left, left_end, right, right_end, end)
            })
    }

    proptest! {
        #[test]
        fn a_fork_is_where_branches_left_each_other((left, left_end, right, right_end, common) in forked()) {
            prop_assert_eq!(left.fork(left_end, &right, right_end), Some(common));
            prop_assert_eq!(right.fork(right_end, &left, left_end), Some(common));
            let mut rewound = left;
            rewound.truncate(common);
            prop_assert_eq!(rewound.fork(common, &right, right_end), Some(common));
        }
    }
}
