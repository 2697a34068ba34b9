//! A primary's answer to a replica that attaches: continue, rewind, full sync, or refusal.
//!
//! The answer is a function of two histories, so both ends, tests and the simulation use the same
//! code. It prevents an empty or older primary from erasing a replica's data.

use std::fmt;

use crate::lineage::Lineage;
use crate::planted::{self, Bug};

/// What a replica reports about its own log when it attaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attach {
    /// The terms that wrote the log.
    pub lineage: Lineage,
    /// End of the log.
    pub end: u64,
    /// Sequence up to which the log is durable.
    pub durable: u64,
    /// Whether it holds data, even if its log does not show it.
    pub has_data: bool,
    /// Whether an operator allowed it to discard data that is unrelated to the primary's.
    pub may_discard: bool,
    /// Whether its log or its data proved to be damaged, so that it cannot continue from its end.
    pub is_damaged: bool,
}

/// The log of a primary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrimaryLog {
    /// The terms that wrote the log.
    pub lineage: Lineage,
    /// The oldest sequence that the primary can still send.
    pub oldest: u64,
    /// End of the log.
    pub end: u64,
    /// Whether the primary holds data.
    pub has_data: bool,
    /// Whether the log from sequence 0 on contains all data: no checkpoint holds more.
    pub is_whole: bool,
}

/// The primary's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The replica's log is a prefix of the primary's: the replica continues from here.
    Continue {
        /// The replica's end.
        from: u64,
    },
    /// The replica's log goes beyond what both share. The replica saves the rest in a file,
    /// truncates its log, and attaches again.
    Rewind {
        /// The sequence at which the logs fork.
        to: u64,
    },
    /// The replica gets a full sync.
    Full(FullReason),
    /// The replica keeps its data, and follows no primary.
    Refuse(Refusal),
}

/// Why a replica gets a full sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullReason {
    /// The replica has no data.
    Empty,
    /// The primary's log no longer reaches back to the replica's end.
    Lapped,
    /// Its data is unrelated, and an operator allowed it to discard the data.
    Discards,
    /// Its data is a prefix of the primary's, and damaged.
    Damaged,
}

/// Why a replica is refused. The numbers are those of the link's `refuse` message and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The primary is empty, the replica is not.
    PrimaryEmpty = 1,
    /// The primary's last term has a lower number than the replica's.
    PrimaryOlder = 2,
    /// Both are in the same term, and the primary has less of the log.
    PrimaryBehind = 3,
    /// The last terms of both have the same number but are different terms.
    SplitBrain = 4,
    /// The histories have nothing in common.
    Unrelated = 5,
}

impl Refusal {
    /// All refusals.
    pub const ALL: [Self; 5] = [
        Self::PrimaryEmpty,
        Self::PrimaryOlder,
        Self::PrimaryBehind,
        Self::SplitBrain,
        Self::Unrelated,
    ];

    /// Returns the refusal with this number.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|it| *it as u8 == number)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PrimaryEmpty => "the primary is empty and this replica has data",
            Self::PrimaryOlder => "the primary's last term is older than this replica's",
            Self::PrimaryBehind => "the primary has less of the same term than this replica",
            Self::SplitBrain => "primary and replica each began a term of the same number",
            Self::Unrelated => "the data of primary and replica have no history in common",
        })
    }
}

/// Returns a primary's answer to a replica.
///
/// If the replica may discard its data, every refusal becomes a full sync, except that of an empty
/// primary: an operator who wants an empty replica deletes the data on the replica.
#[must_use]
pub fn judge(primary: &PrimaryLog, replica: &Attach) -> Verdict {
    if !replica.has_data && replica.lineage.terms().is_empty() {
        // An empty log is a prefix of every log that contains everything from 0 on.
        return if replica.end == 0 && primary.oldest == 0 && primary.is_whole {
            Verdict::Continue { from: 0 }
        } else {
            Verdict::Full(FullReason::Empty)
        };
    }
    if planted::is_on(Bug::SkipLineage) {
        return Verdict::Full(FullReason::Discards);
    }
    let fork = |primary: &PrimaryLog| {
        let lineage = &primary.lineage;
        lineage.fork(primary.end, &replica.lineage, replica.end)
    };
    if !replica.has_data && fork(primary).is_none() {
        // The replica began terms of its own, and has no data to lose.
        return Verdict::Full(FullReason::Empty);
    }
    let verdict = compare(primary, replica);
    // A replica that continues loses nothing: the primary's log says how the primary became empty.
    // Neither does a replica without data.
    if replica.has_data && !primary.has_data && !matches!(verdict, Ok(Verdict::Continue { .. })) {
        return Verdict::Refuse(Refusal::PrimaryEmpty);
    }
    match verdict {
        Ok(verdict) => verdict,
        Err(_) if replica.may_discard => Verdict::Full(FullReason::Discards),
        Err(refusal) => Verdict::Refuse(refusal),
    }
}

/// Returns the answer if both have data.
fn compare(primary: &PrimaryLog, replica: &Attach) -> Result<Verdict, Refusal> {
    let (ours, theirs) = (&primary.lineage, &replica.lineage);
    let fork = ours.fork(primary.end, theirs, replica.end);
    let (last, theirs_last) = (ours.last(), theirs.last());
    match ours.last_number().cmp(&theirs.last_number()) {
        std::cmp::Ordering::Less => return Err(Refusal::PrimaryOlder),
        std::cmp::Ordering::Equal if last.map(|it| it.id) != theirs_last.map(|it| it.id) => {
            return Err(if fork.is_some() {
                Refusal::SplitBrain
            } else {
                Refusal::Unrelated
            });
        }
        _ => {}
    }
    let fork = fork.ok_or(Refusal::Unrelated)?;
    if replica.end > fork && ours.last_number() == theirs.last_number() {
        return Err(Refusal::PrimaryBehind);
    }
    Ok(if replica.is_damaged {
        Verdict::Full(FullReason::Damaged)
    } else if fork < primary.oldest {
        Verdict::Full(FullReason::Lapped)
    } else if replica.end > fork {
        Verdict::Rewind { to: fork }
    } else {
        Verdict::Continue { from: fork }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;
    use crate::lineage::{Term, TermId};

    fn lineage(terms: &[(u64, u8, u64)]) -> Lineage {
        let terms = terms.iter().map(|&(number, id, start)| Term {
            number,
            id: TermId([id; 20]),
            start,
        });
        Lineage::new(terms.collect()).unwrap()
    }

    fn primary(terms: &[(u64, u8, u64)], oldest: u64, end: u64) -> PrimaryLog {
        PrimaryLog {
            lineage: lineage(terms),
            oldest,
            end,
            has_data: true,
            is_whole: oldest == 0,
        }
    }

    fn replica(terms: &[(u64, u8, u64)], end: u64) -> Attach {
        Attach {
            lineage: lineage(terms),
            end,
            durable: end,
            has_data: true,
            may_discard: false,
            is_damaged: false,
        }
    }

    #[test]
    fn a_replica_that_was_a_primary_of_nothing_is_given_everything() {
        let mut empty = replica(&[(3, 9, 0)], 64);
        empty.has_data = false;
        for has_data in [true, false] {
            let mut primary = primary(&[(1, 1, 0)], 0, 100);
            primary.has_data = has_data;
            assert_eq!(judge(&primary, &empty), Verdict::Full(FullReason::Empty));
        }
        // The log that the replica lost the data of is newer than the primary's.
        let mut emptied = replica(&[(1, 1, 0), (2, 2, 100)], 164);
        emptied.has_data = false;
        assert_eq!(
            judge(&primary(&[(1, 1, 0)], 0, 100), &emptied),
            Verdict::Refuse(Refusal::PrimaryOlder)
        );
    }

    #[test]
    fn a_replica_without_anything_begins_at_the_beginning_or_is_given_everything() {
        let empty = Attach::default();
        let whole = primary(&[(1, 1, 0)], 0, 400);
        assert_eq!(judge(&whole, &empty), Verdict::Continue { from: 0 });
        let cut = primary(&[(1, 1, 0)], 80, 400);
        assert_eq!(judge(&cut, &empty), Verdict::Full(FullReason::Empty));
        let without_log = PrimaryLog {
            has_data: true,
            ..PrimaryLog::default()
        };
        assert_eq!(
            judge(&without_log, &empty),
            Verdict::Full(FullReason::Empty)
        );
    }

    #[test]
    fn a_replica_with_a_beginning_of_the_log_goes_on_while_the_log_reaches_back() {
        let log = primary(&[(1, 1, 0), (2, 2, 100)], 96, 400);
        let at = |end| judge(&log, &replica(&[(1, 1, 0)], end));
        assert_eq!(at(96), Verdict::Continue { from: 96 });
        assert_eq!(at(100), Verdict::Continue { from: 100 });
        assert_eq!(at(88), Verdict::Full(FullReason::Lapped));
        let newest = replica(&[(1, 1, 0), (2, 2, 100)], 400);
        assert_eq!(judge(&log, &newest), Verdict::Continue { from: 400 });
    }

    #[test]
    fn a_replica_that_wrote_on_its_own_rewinds_to_the_fork_for_a_newer_term_only() {
        let newer = primary(&[(1, 1, 0), (3, 3, 100)], 0, 400);
        assert_eq!(
            judge(&newer, &replica(&[(1, 1, 0)], 160)),
            Verdict::Rewind { to: 100 }
        );
        let old_reign = replica(&[(1, 1, 0), (2, 2, 104)], 160);
        assert_eq!(judge(&newer, &old_reign), Verdict::Rewind { to: 100 });
        let older = primary(&[(1, 1, 0)], 0, 400);
        assert_eq!(
            judge(&older, &old_reign),
            Verdict::Refuse(Refusal::PrimaryOlder)
        );
    }

    #[test]
    fn a_fork_that_the_log_no_longer_reaches_needs_a_full_sync() {
        let newer = primary(&[(1, 1, 0), (3, 3, 100)], 200, 400);
        let verdict = judge(&newer, &replica(&[(1, 1, 0)], 160));
        assert_eq!(verdict, Verdict::Full(FullReason::Lapped));
    }

    #[test]
    fn newer_data_is_never_given_up_to_an_empty_older_or_unrelated_primary() {
        let mut held = replica(&[(2, 2, 0)], 160);
        let cases = [
            (PrimaryLog::default(), Refusal::PrimaryEmpty),
            (primary(&[(1, 1, 0)], 0, 9_000), Refusal::PrimaryOlder),
            (primary(&[(2, 2, 0)], 0, 80), Refusal::PrimaryBehind),
            (primary(&[(2, 9, 0)], 0, 9_000), Refusal::Unrelated),
            (primary(&[(5, 9, 0)], 0, 9_000), Refusal::Unrelated),
        ];
        for (log, refusal) in &cases {
            assert_eq!(judge(log, &held), Verdict::Refuse(*refusal));
        }
        let split = (
            primary(&[(1, 1, 0), (2, 9, 80)], 0, 400),
            replica(&[(1, 1, 0), (2, 2, 88)], 160),
        );
        assert_eq!(
            judge(&split.0, &split.1),
            Verdict::Refuse(Refusal::SplitBrain)
        );
        // An operator may discard the data, but not for an empty primary.
        held.may_discard = true;
        assert_eq!(
            judge(&cases[0].0, &held),
            Verdict::Refuse(Refusal::PrimaryEmpty)
        );
        for (log, _) in &cases[1..] {
            assert_eq!(judge(log, &held), Verdict::Full(FullReason::Discards));
        }
    }

    /// All keys were removed, or there never were any: the log contains that.
    #[test]
    fn a_primary_without_keys_is_followed_where_its_log_goes_on() {
        let held = replica(&[(1, 1, 0)], 160);
        let mut emptied = primary(&[(1, 1, 0), (2, 2, 160)], 0, 400);
        emptied.has_data = false;
        assert_eq!(judge(&emptied, &held), Verdict::Continue { from: 160 });
        let longer = replica(&[(1, 1, 0)], 240);
        let refused = Verdict::Refuse(Refusal::PrimaryEmpty);
        assert_eq!(judge(&emptied, &longer), refused);
        // A replica without data rewinds as usual, or discards as the operator allowed.
        let mut nothing = longer;
        nothing.has_data = false;
        assert_eq!(judge(&emptied, &nothing), Verdict::Rewind { to: 160 });
        let mut newer = replica(&[(1, 1, 0), (3, 3, 160)], 240);
        newer.has_data = false;
        let refused = Verdict::Refuse(Refusal::PrimaryOlder);
        assert_eq!(judge(&emptied, &newer), refused);
        newer.may_discard = true;
        assert_eq!(judge(&emptied, &newer), Verdict::Full(FullReason::Discards));
    }

    #[test]
    fn damaged_data_is_replaced_by_a_primary_that_has_more_of_the_same() {
        let mut damaged = replica(&[(2, 2, 0)], 160);
        damaged.is_damaged = true;
        let newer = primary(&[(2, 2, 0)], 0, 400);
        assert_eq!(judge(&newer, &damaged), Verdict::Full(FullReason::Damaged));
        let older = primary(&[(1, 1, 0)], 0, 400);
        assert_eq!(
            judge(&older, &damaged),
            Verdict::Refuse(Refusal::PrimaryOlder)
        );
    }

    #[test]
    fn refusals_keep_their_numbers() {
        for (at, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, at + 1);
            assert_eq!(Refusal::of(refusal as u8), Some(refusal));
        }
        assert_eq!(Refusal::of(0), None);
        assert_eq!(Refusal::of(6), None);
    }
}
