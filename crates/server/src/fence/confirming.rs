//! Rounds in which the members of a shard confirm that this node is still its primary
//! (`quorum-reads confirm`).
//!
//! ```text
//!   a reply waits ─► next() ─► begin: question to every other member ─► no later term is sealed there ─► note
//!                                                                             │ a majority of each set says so
//!                       those that wait go on ◄── over ◄── all before the round is committed ◄── confirmed
//! ```
//!
//! A member that has sealed no later term when it answers had sealed none when the round began. A
//! later primary is promoted only after enough members have sealed its term that every majority
//! includes one of them. So there was no later primary when the round began, and what this node
//! showed then was the newest data. No clock is involved.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cluster::{NodeId, Shard, ShardId};

use crate::rounds::Rounds;

/// A question to members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The shard.
    pub(crate) shard: ShardId,
    /// The term after which none may be sealed.
    pub(crate) term: u64,
    /// The round.
    pub(crate) round: u64,
    /// The members to ask.
    pub(crate) members: Vec<NodeId>,
}

/// Asks members; does not wait.
pub(crate) type Asker = Box<dyn Fn(Question) + Send + Sync>;

/// See the module.
#[derive(Default)]
pub(super) struct Confirming {
    rounds: Rounds,
    going: Mutex<Going>,
    asker: OnceLock<Asker>,
}

/// The round in progress, and the results of earlier ones.
#[derive(Default)]
struct Going {
    /// The office to confirm.
    term: u64,
    /// End of the log when the round began.
    tail: u64,
    began_ms: u64,
    asked_ms: u64,
    /// The last round in which each member has confirmed that office.
    members: BTreeMap<NodeId, u64>,
    /// The newest round that a majority has confirmed.
    confirmed: u64,
}

impl Going {
    fn count(&mut self, office: &Office<'_>, round: u64) {
        let others = self.members.iter().map(|(node, round)| (*node, *round));
        let all = others.chain([(office.own, u64::MAX)]).collect();
        let confirmed = office.shard.committed(&all).min(round);
        self.confirmed = self.confirmed.max(confirmed);
    }
}

/// The office to confirm, as it is now.
pub(super) struct Office<'s> {
    pub(super) own: NodeId,
    pub(super) id: ShardId,
    pub(super) shard: &'s Shard,
    pub(super) term: u64,
    pub(super) now_ms: u64,
}

impl Office<'_> {
    fn others(&self) -> Vec<NodeId> {
        let all = self.shard.everybody().into_iter();
        all.filter(|node| *node != self.own).collect()
    }
}

impl Confirming {
    /// Sets the function that asks members; once.
    #[cfg(feature = "cluster")]
    pub(super) fn set_asker(&self, asker: Asker) {
        let _already_set = self.asker.set(asker);
    }

    /// Returns the number of a round that begins after this call. The caller begins it, if none is
    /// in progress.
    pub(super) fn next(&self) -> u64 {
        self.rounds.next()
    }

    /// Begins a round, if one is awaited, and returns the question to ask. `tail` returns the end
    /// of the log.
    pub(super) fn begin(
        &self,
        office: &Office<'_>,
        tail: impl FnOnce() -> u64,
    ) -> Option<Question> {
        let mut going = self.lock();
        if going.term != office.term {
            going.members.clear();
            going.confirmed = 0;
            going.term = office.term;
            self.rounds.give_up();
        }
        let round = self.rounds.begin()?;
        // Read after the round began: waiters for a later round read the log later.
        going.tail = tail();
        (going.began_ms, going.asked_ms) = (office.now_ms, office.now_ms);
        going.count(office, round);
        Some(Question {
            shard: office.id,
            term: office.term,
            round,
            members: office.others(),
        })
    }

    /// Returns the question to repeat to members that have not answered for `after_ms`.
    pub(super) fn again(&self, office: &Office<'_>, after_ms: u64) -> Option<Question> {
        let mut going = self.lock();
        let round = self.rounds.current()?;
        let is_due = office.now_ms >= going.asked_ms.saturating_add(after_ms);
        if going.term != office.term || !is_due {
            return None;
        }
        going.asked_ms = office.now_ms;
        let has_answered = |node: &NodeId| going.members.get(node).is_some_and(|it| *it >= round);
        let mut members = office.others();
        members.retain(|node| !has_answered(node));
        Some(Question {
            shard: office.id,
            term: office.term,
            round,
            members,
        })
    }

    /// Asks members. The caller must hold no lock, because a member that cannot be asked is
    /// reported at once.
    pub(super) fn ask(&self, question: Option<Question>) {
        if let (Some(asker), Some(question)) = (self.asker.get(), question)
            && !question.members.is_empty()
        {
            asker(question);
        }
    }

    /// Notes that a member has sealed no term later than `term`, as it said in a round. Returns
    /// whether a majority has now confirmed more.
    pub(super) fn note(&self, office: &Office<'_>, node: NodeId, term: u64, round: u64) -> bool {
        let mut going = self.lock();
        let current = self.rounds.current().unwrap_or(0);
        if term != going.term || term != office.term || round > current {
            return false;
        }
        let known = going.members.entry(node).or_insert(0);
        *known = round.max(*known);
        let before = going.confirmed;
        going.count(office, current);
        going.confirmed > before
    }

    /// The newest round that a majority has confirmed in this office.
    pub(super) fn confirmed(&self, term: u64) -> u64 {
        let going = self.lock();
        if going.term == term {
            going.confirmed
        } else {
            0
        }
    }

    /// Returns the newest round that is over, given how much of the log is committed.
    pub(super) fn over(&self, term: u64, committed: u64) -> u64 {
        let going = self.lock();
        if let Some(round) = self.rounds.current()
            && going.term == term
            && going.confirmed >= round
            && committed >= going.tail
        {
            self.rounds.end();
        }
        self.rounds.over()
    }

    /// Whether a round of this office has been in progress for longer than `time_ms`.
    pub(super) fn is_overdue(&self, term: u64, now_ms: u64, time_ms: u64) -> bool {
        if self.rounds.current().is_none() {
            return false;
        }
        let going = self.lock();
        going.term == term && now_ms >= going.began_ms.saturating_add(time_ms)
    }

    fn lock(&self) -> MutexGuard<'_, Going> {
        self.going.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, feature = "cluster"))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};

    use base::clock::{Clock, ManualClock};
    use cluster::state::CopyKind;
    use persistence::tail::{Appended, Majority as _, Tail};
    use store::EffectSink;

    use super::super::Fence;
    use super::*;

    /// A log that is completely written.
    struct Log(u64);

    impl Tail for Log {
        fn tail(&self) -> u64 {
            self.0
        }

        fn written(&self) -> u64 {
            self.0
        }

        fn durable(&self) -> u64 {
            self.0
        }

        fn holds_replies(&self) -> bool {
            false
        }

        fn write_out(&self, _: u64) -> Result<(), String> {
            Ok(())
        }

        fn request_sync(&self, _: u64) {}

        fn fault(&self) -> Option<String> {
            None
        }

        fn has_room(&self, _: u64) -> bool {
            true
        }

        fn sink(self: Arc<Self>, _: &Appended) -> Box<dyn EffectSink> {
            unreachable!("nothing is stated here")
        }
    }

    const SHARD: ShardId = ShardId(3);

    fn node(name: u8) -> NodeId {
        NodeId([name; 20])
    }

    /// Returns the fence of one of three members.
    fn member(name: u8) -> Fence {
        let fence = Fence::default();
        let clock = Arc::new(ManualClock::at_unix_ms(1)) as Arc<dyn Clock>;
        fence.set_grouped(node(name), clock);
        fence.set_shard(SHARD);
        let members = [1, 2, 3].map(|name| (node(name), CopyKind::Data)).into();
        fence.set_members(&Shard {
            members,
            is_quorum: true,
            ..Shard::default()
        });
        fence.set_confirms(true, 1_500);
        fence
    }

    /// In office in term 4, with 100 bytes of log committed. The clock stands still, so the lease
    /// never ends.
    fn primary() -> (Fence, Receiver<Question>) {
        let fence = member(1);
        let (asked, questions) = channel();
        fence.set_asker(Box::new(move |question| asked.send(question).unwrap()));
        assert!(fence.begin_office(fence.shard(), 4, 50));
        fence.set_lease_until_ms(u64::MAX);
        assert!(fence.note_copy(node(2), 4, Some(100)));
        (fence, questions)
    }

    /// Feeds the answers of these members. Returns whether a majority has confirmed.
    fn answer(fence: &Fence, question: &Question, members: &[&Fence]) -> bool {
        let Question {
            shard, term, round, ..
        } = *question;
        let asked = [2, 3].into_iter().zip(members);
        asked.fold(false, |confirmed, (name, member)| {
            let knows_no_later = member.knows_no_later(shard, term);
            (knows_no_later && fence.note_confirmed(node(name), term, round)) || confirmed
        })
    }

    #[test]
    fn one_round_is_for_all_that_wait_and_the_next_for_those_that_come_later() {
        let (fence, questions) = primary();
        let (log, second, third) = (Log(100), member(2), member(3));
        let first = fence.next_round(&log);
        let question = questions.try_recv().unwrap();
        assert_eq!((question.round, question.members.len()), (first, 2));
        let (later, latest) = (fence.next_round(&log), fence.next_round(&log));
        assert!(first < later && later == latest);
        assert!(questions.try_recv().is_err(), "one at a time");
        assert_eq!(fence.round_over(&log), 0);
        assert!(answer(&fence, &question, &[&second, &third]));
        assert_eq!(fence.round_over(&log), first);
        let question = questions.try_recv().unwrap();
        assert_eq!(question.round, later);
        assert!(answer(&fence, &question, &[&second]), "two of three");
        assert_eq!(fence.round_over(&log), later);
        assert!(questions.try_recv().is_err(), "nobody waits");
    }

    /// The clock stands still, so the lease never ends, although another primary was promoted long
    /// ago.
    #[test]
    fn a_primary_that_is_none_any_more_is_confirmed_by_nobody() {
        let (fence, questions) = primary();
        let (log, second, third) = (Log(100), member(2), member(3));
        for sealed in [&second, &third] {
            sealed.raise(5);
        }
        let round = fence.next_round(&log);
        assert!(fence.has_lease());
        let question = questions.try_recv().unwrap();
        assert!(!answer(&fence, &question, &[&second, &third]));
        assert!(fence.round_over(&log) < round);
    }

    #[test]
    fn what_was_confirmed_before_a_read_says_nothing_of_it() {
        let (fence, questions) = primary();
        let (log, second, third) = (Log(100), member(2), member(3));
        let round = fence.next_round(&log);
        let question = questions.try_recv().unwrap();
        assert!(answer(&fence, &question, &[&second, &third]));
        let later = fence.next_round(&log);
        second.raise(5);
        third.raise(5);
        // The answers of the first round are repeated.
        for name in [2, 3] {
            assert!(!fence.note_confirmed(node(name), 4, round));
        }
        let question = questions.try_recv().unwrap();
        assert!(!answer(&fence, &question, &[&second, &third]));
        assert!((round..later).contains(&fence.round_over(&log)));
    }

    #[test]
    fn a_round_is_over_when_what_was_before_it_is_committed() {
        let (fence, questions) = primary();
        let (second, third) = (member(2), member(3));
        let log = Log(160);
        let round = fence.next_round(&log);
        let question = questions.try_recv().unwrap();
        assert!(answer(&fence, &question, &[&second, &third]));
        assert_eq!(fence.round_over(&log), 0, "nobody has 60 bytes of it yet");
        assert_eq!(fence.round_confirmed(), round);
        assert!(fence.note_copy(node(3), 4, Some(160)));
        assert_eq!(fence.round_over(&log), round);
    }

    #[test]
    fn a_round_of_another_office_never_ends() {
        let (fence, questions) = primary();
        let (log, second, third) = (Log(100), member(2), member(3));
        fence.next_round(&log);
        let question = questions.try_recv().unwrap();
        assert!(fence.end_office());
        assert!(fence.begin_office(fence.shard(), 6, 50));
        assert!(!answer(&fence, &question, &[&second, &third]));
        fence.set_lease_until_ms(u64::MAX);
        assert!(fence.note_copy(node(2), 6, Some(100)));
        let round = fence.next_round(&log);
        let question = questions.try_recv().unwrap();
        assert_eq!((question.term, question.round), (6, round));
        assert!(answer(&fence, &question, &[&second, &third]));
        assert_eq!(fence.round_over(&log), round);
    }
}
