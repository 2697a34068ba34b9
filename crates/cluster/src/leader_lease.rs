//! When a voter last acknowledged a leader of the control log. It bounds how long grants of an
//! earlier leader may last.
//!
//! ```text
//!   leader of term 4:  grants leases while a majority acknowledged it within one election
//!   voter:             acknowledges term 4 ……… last time ──────── acknowledges term 5: "term 4 last, so long ago"
//!   leader of term 5:  of a majority of reports the latest + one election + a lease: nothing of term 4 stands after it
//! ```
//!
//! The majority that a grant needed and the majority of reports have a voter in common. That voter
//! acknowledged the former leader no earlier than an election timeout before that grant.
//!
//! Invariants
//!  1. A voter that acknowledged a leader acknowledges no earlier one any more, as Raft ensures: a
//!     report stays true.
//!  2. A restarted voter does not know what it acknowledged before. Its start counts as the time of
//!     its last acknowledgement.

use crate::planted::{Bug, is_on};

/// One leader of the control log: its term and its Raft id, because a term may have several. Later
/// ones are greater.
pub type Reign = (u64, u64);

/// What one voter knows of its own acknowledgements.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged {
    /// The newest leader that it acknowledged, or `None` since its start.
    reign: Option<Reign>,
    at_ms: u64,
    /// When it last acknowledged an earlier leader, or may have.
    before_ms: u64,
}

/// A voter's report to a leader of when it last acknowledged an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The newest leader that it acknowledged.
    pub reign: Reign,
    /// How long ago, by the voter's own clock, it last acknowledged an earlier leader or was
    /// started.
    pub ago_ms: u64,
}

impl Acknowledged {
    /// Creates the record of a voter that was just started.
    #[must_use]
    pub fn new(started_ms: u64) -> Self {
        let before_ms = match is_on(Bug::ForgetLeaderLease) {
            true => 0,
            false => started_ms,
        };
        Self {
            reign: None,
            at_ms: before_ms,
            before_ms,
        }
    }

    /// Notes that a leader is, or may be, acknowledged. A leader acknowledges itself.
    pub fn note(&mut self, reign: Reign, now_ms: u64) {
        match self.reign {
            Some(known) if reign == known => self.at_ms = self.at_ms.max(now_ms),
            Some(known) if reign < known => self.before_ms = self.before_ms.max(now_ms),
            _ => {
                self.before_ms = self.before_ms.max(self.at_ms);
                (self.reign, self.at_ms) = (Some(reign), now_ms);
            }
        }
    }

    /// Returns the report for the leader.
    #[must_use]
    pub fn report(&self, now_ms: u64) -> Option<Report> {
        self.reign.map(|reign| Report {
            reign,
            ago_ms: now_ms.saturating_sub(self.before_ms),
        })
    }
}

impl Report {
    /// Returns the time, by the receiver's clock, after which no earlier leader was acknowledged.
    /// The rates of the clocks may differ by 1 %.
    #[must_use]
    pub fn latest_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.ago_ms - self.ago_ms / 100)
    }
}

/// Returns the time after which no earlier leader was acknowledged by a majority of `voters`, from
/// the reports of a majority.
#[must_use]
pub fn latest_of_majority(mut reported_ms: Vec<u64>, voters: usize) -> Option<u64> {
    reported_ms.sort_unstable();
    // Any majority suffices: the one with the earliest times.
    reported_ms.get(voters / 2).copied().filter(|_| voters > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_of_the_leaders_before() {
        let mut known = Acknowledged::new(100);
        assert_eq!(known.report(150), None);
        known.note((4, 1), 200);
        // Acknowledgements before the start are unknown: the start counts as their time.
        let said = |known: &Acknowledged| known.report(1_000).map(|it| (it.reign, it.ago_ms));
        assert_eq!(said(&known), Some(((4, 1), 900)));
        known.note((4, 1), 300);
        known.note((4, 2), 400);
        assert_eq!(said(&known), Some(((4, 2), 700)), "two of one term");
        known.note((6, 1), 700);
        assert_eq!(said(&known), Some(((6, 1), 600)));
        // A deposed leader that does not know it yet.
        known.note((4, 2), 800);
        assert_eq!(said(&known), Some(((6, 1), 200)));
    }

    #[test]
    fn a_majority_of_voters_is_needed() {
        assert_eq!(latest_of_majority(vec![], 0), None);
        assert_eq!(latest_of_majority(vec![5], 1), Some(5));
        assert_eq!(latest_of_majority(vec![5], 2), None);
        assert_eq!(latest_of_majority(vec![9, 5], 2), Some(9));
        assert_eq!(latest_of_majority(vec![5], 3), None);
        assert_eq!(latest_of_majority(vec![9, 5], 3), Some(9));
        assert_eq!(latest_of_majority(vec![9, 5, 7], 3), Some(7));
        assert_eq!(latest_of_majority(vec![9, 5, 7, 1], 5), Some(7));
    }

    #[test]
    fn a_clock_that_runs_fast_does_not_shorten_it() {
        // The voter's clock ran 1 % fast: 1,010 of its milliseconds are 1,000 of ours.
        let (reign, ago_ms) = ((2, 1), 1_010);
        let report = Report { reign, ago_ms };
        assert!(report.latest_ms(5_000) >= 4_000);
    }
}
