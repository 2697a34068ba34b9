//! A model of the failover of one shard, searched state by state: seal, lease, term frame, promotion.
//!
//! ```text
//!   control group: grants leases ─► lease over ─► seal(term + 1) ─► answers of n - q + 1 ─► promote(highest)
//!   members:       write, replicate, ack, commit, reply; seal; take office with a term frame; restart
//! ```
//!
//! Three members and their control group, one leader of which may be deposed without knowing it.
//! There is no time in the model: a lease may end at any moment, and the leader counts it as over
//! only after its holder does, which the margin for clocks ensures. A frame is its term and its
//! content; frame 0 of a term is its term frame.
//!
//! A primary may return its office together with its lease. A member may have nothing of the shard
//! but the log of another shard. A member may be a log-only copy, which begins at a frame that all
//! others have: it counts for quorums, is never promoted, and hands its tail to the chosen member.
//!
//! Not modelled: stores, changes of members, syncs to disk (a log is durable as soon as it is
//! written). The small size runs in the gate; `cargo test -p cluster --test failover_model --
//! --ignored` searches further.

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeSet;

use stateright::{Checker as _, Model, Property};

const MEMBERS: usize = 3;
const QUORUM: usize = 2;
/// Number of members that answer a seal before a promotion: any such set meets every quorum.
const ANSWERS: usize = MEMBERS - QUORUM + 1;

/// A mistake that is planted to verify that the properties detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// Members are only asked for their ends: they and the primary continue, and the answers are
    /// old.
    PromotionWithoutSeal,
    /// A deposed leader continues granting after its own quorum lease.
    LeaseWithoutQuorum,
    /// A primary replies without a lease.
    ReplyWithoutLease,
    /// A new primary begins without a frame of its term, and commits existing frames by counting.
    NoTermFrame,
    /// A member is promoted before the primary's lease is over.
    PromotionWithinLease,
    /// One answer suffices for a promotion.
    OneAnswer,
    /// A restarted primary continues in its old term, with its lease.
    RestartWithoutPromotion,
    /// A primary that returns its office and its lease continues all the same.
    LeaseKept,
    /// A member's log of another shard counts for a promotion.
    BlankPromoted,
    /// The member with the most data is promoted, although a log-only copy has more.
    RestIgnored,
    /// A log-only copy forgets frames that another copy lacks, and hands on what is left.
    TrimmedTooFar,
}

type Frame = (u8, u8);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Member {
    log: Vec<Frame>,
    /// It accepts nothing of terms below this.
    seal: u8,
    /// The term in which it is primary; 0 for none.
    office: u8,
    has_lease: bool,
    /// Whether it has nothing of the shard: its log is another shard's.
    is_blank: bool,
    /// Frames before this position are forgotten, if it is a log-only copy.
    begins: u8,
    /// What it knows to be committed, as a primary.
    committed: u8,
    /// What the other members acknowledged to it.
    acked: [u8; MEMBERS],
}

impl Member {
    fn end(&self) -> u8 {
        u8::try_from(self.log.len()).unwrap_or(u8::MAX)
    }

    fn last_term(&self) -> u8 {
        self.log.last().map_or(0, |frame| frame.0)
    }
}

/// State of the former leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Deposed {
    Nobody,
    /// It does not know of its deposition yet, and its quorum lease stands. It knows this term.
    Leased(u8),
    /// It still does not know, and its quorum lease is over.
    Unleased(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    members: Vec<Member>,
    /// The control state: the term, its primary, and the end at its promotion.
    term: u8,
    primary: u8,
    promised: u8,
    /// Whether the leader assumes that its granted lease stands.
    grant_stands: bool,
    /// Whether the leader assumes that a lease of its predecessor stands.
    old_grant_stands: bool,
    deposed: Deposed,
    /// Whether the primary of this term reported that it left its office.
    gave_back: bool,
    /// The term of the present seal, and the answers as (last term, end).
    sealing: u8,
    answers: [Option<(u8, u8)>; MEMBERS],
    /// Acknowledgements in transit: from, to, term, end.
    acks: BTreeSet<(u8, u8, u8, u8)>,
    writes: u8,
    restarts: u8,
    /// What a client was shown as committed.
    answered: Vec<Frame>,
    answered_term: u8,
    answered_stale: bool,
    /// Whether a log-only copy has handed its tail on.
    has_handed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Write(usize),
    Replicate(usize, usize),
    Ack((u8, u8, u8, u8)),
    Reply(usize),
    Grant,
    GrantByDeposed,
    LeaseEnds(usize),
    GrantIsOver,
    OldGrantIsOver,
    LeaderChanges,
    QuorumLeaseEnds,
    BeginSeal,
    Seal(usize),
    Promote,
    TakeOffice(usize),
    Restart(usize),
    GiveBack(usize),
    /// A log-only copy forgets what all others have.
    Trim,
    /// It hands its tail to the chosen member.
    HandRest,
}

struct Failover {
    mistake: Mistake,
    terms_max: u8,
    writes_max: u8,
    restarts_max: u8,
    /// Whether the last member has come from another shard.
    has_blank: bool,
    /// Whether the last member is a log-only copy.
    has_log_only: bool,
}

/// The member that comes from elsewhere, or is a log-only copy.
const LAST: usize = MEMBERS - 1;

impl Failover {
    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    /// Returns up to where a primary may count as committed: a frame of an older term only below
    /// one of its own.
    fn commit(&self, member: &Member, own: usize) -> u8 {
        let mut ends: Vec<u8> = member.acked.to_vec();
        ends[own] = member.end();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let end = ends[QUORUM - 1];
        let term_frame = member
            .log
            .iter()
            .position(|frame| *frame == (member.office, 0));
        match term_frame {
            Some(at) if usize::from(end) > at => end,
            None if self.is(Mistake::NoTermFrame) => end,
            _ => 0,
        }
    }

    fn seal_of(state: &State) -> u8 {
        state.term + 1
    }

    /// Whether no lease can stand any more, as far as the leader knows.
    fn is_free(&self, state: &State) -> bool {
        let is_free = !state.grant_stands && !state.old_grant_stands;
        is_free && !matches!(state.deposed, Deposed::Leased(_))
            || state.gave_back
            || self.is(Mistake::PromotionWithinLease)
    }

    fn may_seal(&self, state: &State) -> bool {
        state.sealing == 0 && Self::seal_of(state) <= self.terms_max && self.is_free(state)
    }

    /// Returns the member that the answers choose.
    fn chosen(&self, state: &State) -> Option<usize> {
        let needed = if self.is(Mistake::OneAnswer) {
            1
        } else {
            ANSWERS
        };
        let answered = state.answers.iter().flatten().count();
        if state.sealing == 0 || answered < needed {
            return None;
        }
        (0..MEMBERS)
            .filter(|at| state.answers[*at].is_some() && self.may_lead(&state.members[*at]))
            .filter(|at| !self.is_log_only(*at))
            .max_by_key(|at| (state.answers[*at], std::cmp::Reverse(*at)))
    }

    fn may_lead(&self, member: &Member) -> bool {
        !member.is_blank || self.is(Mistake::BlankPromoted)
    }

    fn is_log_only(&self, at: usize) -> bool {
        self.has_log_only && at == LAST
    }

    /// Returns the member to which the log-only copy has to hand its tail.
    fn lacks_rest(&self, state: &State) -> Option<usize> {
        let chosen = self.chosen(state).filter(|_| self.has_log_only)?;
        (state.answers[LAST] > state.answers[chosen]).then_some(chosen)
    }

    /// Returns the member that may be promoted: none while a log-only copy has more.
    fn promoted(&self, state: &State) -> Option<usize> {
        let is_ready = self.lacks_rest(state).is_none() || self.is(Mistake::RestIgnored);
        self.chosen(state).filter(|_| is_ready)
    }

    /// Returns the frames that the present primary knows to be on all data copies.
    fn floor(&self, state: &State) -> Option<u8> {
        let primary = state
            .members
            .iter()
            .position(|one| one.office > 0 && one.office == state.members[LAST].seal)?;
        if self.is(Mistake::TrimmedTooFar) {
            return Some(state.members[LAST].end());
        }
        let data = (0..LAST).filter(|at| *at != primary);
        let acked = data.map(|at| state.members[primary].acked[at]);
        acked
            .min()
            .map(|acked| acked.min(state.members[LAST].end()))
    }

    /// Extends the log of the chosen member by the tail of the log-only copy.
    fn hand_rest(&self, state: &mut State) -> Option<()> {
        let chosen = self.lacks_rest(state)?;
        let last = &state.members[LAST];
        let is_sealed = |member: &Member| member.seal == state.sealing;
        let (rest, begins) = (last.log.clone(), usize::from(last.begins));
        if !is_sealed(last) || !is_sealed(&state.members[chosen]) {
            return None;
        }
        let log = &mut state.members[chosen].log;
        let pairs = log.iter().zip(&rest);
        let fork = pairs.take_while(|(own, theirs)| own == theirs).count();
        if begins > fork && !self.is(Mistake::TrimmedTooFar) {
            return None;
        }
        log.truncate(fork);
        log.extend(&rest[fork.max(begins)..]);
        let member = &state.members[chosen];
        state.answers[chosen] = Some((member.last_term(), member.end()));
        state.has_handed = true;
        Some(())
    }

    /// Makes a step of a failover.
    fn fail_over(&self, state: &mut State, step: Step) -> Option<()> {
        match step {
            Step::BeginSeal => state.sealing = Self::seal_of(state),
            Step::Seal(at) => {
                let may_lead = self.may_lead(&state.members[at]);
                let member = &mut state.members[at];
                state.answers[at] = Some(match may_lead {
                    true => (member.last_term(), member.end()),
                    false => (0, 0),
                });
                if !self.is(Mistake::PromotionWithoutSeal) {
                    member.seal = state.sealing;
                    member.office = 0;
                    member.has_lease = false;
                }
            }
            Step::Promote => {
                let chosen = self.promoted(state)?;
                let (_, end) = state.answers[chosen]?;
                state.term = state.sealing;
                state.primary = u8::try_from(chosen).ok()?;
                state.promised = end;
                state.sealing = 0;
                state.gave_back = false;
                state.answers = [None; MEMBERS];
                state.members[chosen].seal = state.term;
            }
            Step::TakeOffice(at) => {
                let term = state.term;
                let member = &mut state.members[at];
                member.office = term;
                member.acked = [0; MEMBERS];
                member.has_lease = false;
                if !self.is(Mistake::NoTermFrame) {
                    member.log.push((term, 0));
                }
            }
            Step::Restart(at) => {
                state.restarts += 1;
                let member = &mut state.members[at];
                if self.is(Mistake::RestartWithoutPromotion) {
                    // It found its term frame, and assumes that the other logs are as they were.
                    member.acked = [member.end(); MEMBERS];
                } else {
                    member.office = 0;
                    member.has_lease = false;
                }
            }
            Step::GiveBack(at) => {
                state.gave_back = true;
                if !self.is(Mistake::LeaseKept) {
                    let member = &mut state.members[at];
                    (member.office, member.has_lease) = (0, false);
                }
            }
            Step::Trim => state.members[LAST].begins = self.floor(state)?,
            Step::HandRest => self.hand_rest(state)?,
            _ => return None,
        }
        Some(())
    }
}

impl Model for Failover {
    type State = State;
    type Action = Step;

    /// The first primary is in office, and its term frame is on all members.
    fn init_states(&self) -> Vec<State> {
        let member = Member {
            log: vec![(1, 0)],
            seal: 1,
            ..Member::default()
        };
        let mut members = vec![member; MEMBERS];
        members[0].office = 1;
        members[0].acked = [1; MEMBERS];
        if self.has_blank {
            // Its log is from a shard of a later term, and is longer.
            members[0].acked[MEMBERS - 1] = 0;
            members[MEMBERS - 1] = Member {
                log: vec![(9, 0), (9, 1)],
                is_blank: true,
                ..Member::default()
            };
        }
        vec![State {
            members,
            term: 1,
            primary: 0,
            promised: 0,
            grant_stands: false,
            old_grant_stands: false,
            deposed: Deposed::Nobody,
            gave_back: false,
            sealing: 0,
            answers: [None; MEMBERS],
            acks: BTreeSet::new(),
            writes: 0,
            restarts: 0,
            answered: Vec::new(),
            answered_term: 0,
            answered_stale: false,
            has_handed: false,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for (at, member) in state.members.iter().enumerate() {
            if member.office > 0 {
                if member.has_lease && state.writes < self.writes_max {
                    steps.push(Step::Write(at));
                }
                let others = (0..MEMBERS).filter(|other| *other != at);
                steps.extend(others.map(|other| Step::Replicate(at, other)));
                let can_answer = self.commit(member, at) >= member.end();
                if can_answer && (member.has_lease || self.is(Mistake::ReplyWithoutLease)) {
                    steps.push(Step::Reply(at));
                }
            }
            if member.has_lease {
                steps.push(Step::LeaseEnds(at));
            }
            if state.sealing > 0 && state.answers[at].is_none() {
                steps.push(Step::Seal(at));
            }
            let is_chosen = usize::from(state.primary) == at && member.office < state.term;
            if is_chosen && member.seal == state.term && member.end() == state.promised {
                steps.push(Step::TakeOffice(at));
            }
            if member.office > 0 && member.office == state.term && !state.gave_back {
                steps.push(Step::GiveBack(at));
            }
            if member.office > 0 && state.restarts < self.restarts_max {
                steps.push(Step::Restart(at));
            }
        }
        steps.extend(state.acks.iter().map(|ack| Step::Ack(*ack)));
        let holder = &state.members[usize::from(state.primary)];
        let may_grant = state.sealing == 0 || self.is(Mistake::PromotionWithoutSeal);
        if may_grant && holder.office == state.term {
            steps.push(Step::Grant);
        }
        let is_over = state.members.iter().all(|member| !member.has_lease);
        if state.grant_stands && is_over {
            steps.push(Step::GrantIsOver);
        }
        match state.deposed {
            Deposed::Nobody => steps.push(Step::LeaderChanges),
            Deposed::Leased(_) => {
                steps.push(Step::GrantByDeposed);
                steps.push(Step::QuorumLeaseEnds);
            }
            Deposed::Unleased(_) => {
                if self.is(Mistake::LeaseWithoutQuorum) {
                    steps.push(Step::GrantByDeposed);
                }
                if state.old_grant_stands && is_over {
                    steps.push(Step::OldGrantIsOver);
                }
            }
        }
        if self.may_seal(state) {
            steps.push(Step::BeginSeal);
        }
        if self.promoted(state).is_some() && self.is_free(state) {
            steps.push(Step::Promote);
        }
        if self.lacks_rest(state).is_some() {
            steps.push(Step::HandRest);
        }
        let begins = state.members[LAST].begins;
        if self.has_log_only && self.floor(state).is_some_and(|floor| floor > begins) {
            steps.push(Step::Trim);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Write(at) => {
                state.writes += 1;
                let (term, value) = (state.members[at].office, state.writes);
                state.members[at].log.push((term, value));
            }
            Step::Replicate(from, to) => replicate(&mut state, from, to)?,
            Step::Ack(ack) => {
                state.acks.remove(&ack);
                let (from, to, term, end) = ack;
                let primary = &mut state.members[usize::from(to)];
                if primary.office != term {
                    return Some(state);
                }
                let acked = &mut primary.acked[usize::from(from)];
                *acked = (*acked).max(end);
            }
            Step::Reply(at) => {
                let term = state.members[at].office;
                state.answered_stale |= term < state.answered_term;
                state.answered_term = state.answered_term.max(term);
                let log = state.members[at].log.clone();
                if log.len() > state.answered.len() {
                    state.answered = log;
                }
            }
            Step::Grant => {
                state.members[usize::from(state.primary)].has_lease = true;
                state.grant_stands = true;
            }
            Step::GrantByDeposed => {
                let (Deposed::Leased(term) | Deposed::Unleased(term)) = state.deposed else {
                    return None;
                };
                let holder = state.members.iter().position(|one| one.office == term)?;
                state.members[holder].has_lease = true;
                // The new leader knows of the grants that its predecessor may make, and of no
                // others.
                state.old_grant_stands |= matches!(state.deposed, Deposed::Leased(_));
            }
            Step::LeaseEnds(at) => state.members[at].has_lease = false,
            Step::GrantIsOver => state.grant_stands = false,
            Step::OldGrantIsOver => state.old_grant_stands = false,
            Step::LeaderChanges => {
                state.deposed = Deposed::Leased(state.term);
                state.old_grant_stands = state.grant_stands;
                state.grant_stands = false;
                state.sealing = 0;
                state.answers = [None; MEMBERS];
            }
            Step::QuorumLeaseEnds => {
                let Deposed::Leased(term) = state.deposed else {
                    return None;
                };
                state.deposed = Deposed::Unleased(term);
            }
            _ => self.fail_over(&mut state, step)?,
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing committed is lost", |_, state: &State| {
                nothing_is_lost(state)
            }),
            Property::always("at most one primary answers", |_, state: &State| {
                !state.answered_stale
            }),
            Property::always("equal frames", |_, state: &State| frames_are_equal(state)),
            Property::sometimes("a second primary answers", |_, state: &State| {
                state.answered_term > 1
            }),
            Property::sometimes(
                "a rest is handed on and answered for",
                |model: &Self, state: &State| {
                    let needs_rest = model.has_log_only && model.writes_max > 0;
                    !needs_rest || state.has_handed && state.answered_term > 1
                },
            ),
        ]
    }
}

/// Extends a member's log by one frame of the primary's, or rewinds it to their common part.
fn replicate(state: &mut State, from: usize, to: usize) -> Option<()> {
    let (term, log) = (state.members[from].office, state.members[from].log.clone());
    let member = &mut state.members[to];
    if member.seal > term {
        return None;
    }
    if member.seal < term {
        member.seal = term;
        member.office = 0;
        member.has_lease = false;
    }
    if std::mem::take(&mut member.is_blank) {
        member.log.clear();
    }
    let pairs = member.log.iter().zip(&log);
    let fork = pairs.take_while(|(own, theirs)| own == theirs).count();
    member.log.truncate(fork);
    member.log.extend(log.get(fork));
    let end = member.end();
    let (from, to) = (u8::try_from(from).ok()?, u8::try_from(to).ok()?);
    if state.members[usize::from(from)].acked[usize::from(to)] < end {
        state.acks.insert((to, from, term, end));
    }
    Some(())
}

/// Whether the primary in office in the newest term has all that was ever shown to a client.
fn nothing_is_lost(state: &State) -> bool {
    let newest = state.members.iter().max_by_key(|member| member.office);
    newest.is_none_or(|primary| {
        primary.office == 0
            || primary.office < state.answered_term
            || primary.log.starts_with(&state.answered)
            || state.answered.starts_with(&primary.log) && primary.office < state.term
    })
}

/// Whether logs with the same term at a position are equal up to there.
fn frames_are_equal(state: &State) -> bool {
    let all = &state.members;
    (0..MEMBERS).all(|a| {
        (0..a).all(|b| {
            let (a, b) = (&all[a].log, &all[b].log);
            let same = a.iter().zip(b).rposition(|(a, b)| a.0 == b.0);
            same.is_none_or(|at| a[..=at] == b[..=at])
        })
    })
}

fn model(mistake: Mistake, terms_max: u8, writes_max: u8, restarts_max: u8) -> Failover {
    Failover {
        mistake,
        terms_max,
        writes_max,
        restarts_max,
        has_blank: false,
        has_log_only: false,
    }
}

/// Returns the same model with a log-only member.
fn with_log_only(model: Failover) -> Failover {
    Failover {
        has_log_only: true,
        ..model
    }
}

/// Returns the same model with a member that has nothing of the shard yet.
fn with_blank(model: Failover) -> Failover {
    Failover {
        has_blank: true,
        ..model
    }
}

/// Returns the property that a planted mistake breaks.
fn broken(model: Failover) -> Option<&'static str> {
    let checker = model.checker().spawn_bfs().join();
    common::broken(&checker)
}

#[test]
fn a_failover_loses_nothing_and_has_one_primary() {
    let checker = model(Mistake::None, 2, 1, 1).checker().spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.unique_state_count() > 1_000);
    println!("{} states", checker.unique_state_count());
    for model in [
        with_blank(model(Mistake::None, 2, 1, 0)),
        with_log_only(model(Mistake::None, 2, 1, 0)),
    ] {
        let checker = model.checker().spawn_bfs().join();
        checker.assert_properties();
        println!("{} states", checker.unique_state_count());
    }
}

/// `cargo test -p cluster --release --test failover_model -- --ignored --nocapture`
#[test]
#[ignore = "a long search"]
fn two_failovers_and_two_writes_lose_nothing() {
    for model in [
        model(Mistake::None, 3, 2, 1),
        with_log_only(model(Mistake::None, 3, 2, 1)),
    ] {
        let checker = model
            .checker()
            .target_state_count(20_000_000)
            .spawn_bfs()
            .join();
        checker.assert_properties();
        println!("{} states", checker.unique_state_count());
    }
}

#[test]
fn every_planted_mistake_is_found() {
    let lost = "nothing committed is lost";
    let two = "at most one primary answers";
    for (mistake, terms, writes, restarts, expected) in [
        (Mistake::PromotionWithoutSeal, 2, 1, 0, &[lost][..]),
        (Mistake::LeaseWithoutQuorum, 2, 0, 0, &[two]),
        (Mistake::ReplyWithoutLease, 2, 0, 0, &[two]),
        (Mistake::PromotionWithinLease, 2, 0, 0, &[two]),
        (Mistake::OneAnswer, 2, 1, 0, &[lost]),
        (Mistake::RestartWithoutPromotion, 2, 1, 1, &[lost, two]),
        (Mistake::LeaseKept, 2, 0, 0, &[two]),
        (Mistake::BlankPromoted, 2, 1, 0, &[lost]),
        (Mistake::RestIgnored, 2, 1, 0, &[lost]),
    ] {
        let model = model(mistake, terms, writes, restarts);
        let found = broken(match mistake {
            Mistake::BlankPromoted => with_blank(model),
            Mistake::RestIgnored => with_log_only(model),
            _ => model,
        });
        assert!(
            found.is_some_and(|found| expected.contains(&found)),
            "{mistake:?}: {found:?}"
        );
    }
}

/// The shortest path to this one takes four terms: the test walks it as far as possible.
#[test]
fn a_term_frame_left_out_is_found() {
    let path = [
        Step::Grant,
        Step::Write(0),
        Step::LeaseEnds(0),
        Step::GrantIsOver,
        Step::LeaderChanges,
        Step::QuorumLeaseEnds,
        // Term 2: member 1, which does not have the write.
        Step::BeginSeal,
        Step::Seal(1),
        Step::Seal(2),
        Step::Promote,
        Step::TakeOffice(1),
        Step::Grant,
        Step::Write(1),
        Step::LeaseEnds(1),
        Step::GrantIsOver,
        // Term 3: member 0, because it has more than member 2.
        Step::BeginSeal,
        Step::Seal(0),
        Step::Seal(2),
        Step::Promote,
        Step::TakeOffice(0),
        Step::Replicate(0, 2),
        Step::Ack((2, 0, 3, 2)),
        Step::Grant,
        Step::Reply(0),
        Step::LeaseEnds(0),
        Step::GrantIsOver,
        // Term 4: member 1, whose last term is higher.
        Step::BeginSeal,
        Step::Seal(1),
        Step::Seal(2),
        Step::Promote,
        Step::TakeOffice(1),
    ];
    assert!(
        !walk(&model(Mistake::NoTermFrame, 4, 2, 0), &path),
        "the mistake shows nothing"
    );
    let holds = walk(&model(Mistake::None, 4, 2, 0), &path);
    assert!(holds, "the model itself is broken");
}

/// The log-only copy has both writes and forgets the first, which the chosen member lacks.
#[test]
fn a_log_that_is_trimmed_too_far_is_found() {
    let path = [
        Step::Grant,
        Step::Write(0),
        Step::Replicate(0, LAST),
        Step::Trim,
        Step::Write(0),
        Step::Replicate(0, LAST),
        Step::LeaseEnds(0),
        Step::GrantIsOver,
        Step::LeaderChanges,
        Step::QuorumLeaseEnds,
        Step::BeginSeal,
        Step::Seal(1),
        Step::Seal(LAST),
        Step::HandRest,
    ];
    let walk = |mistake| walk(&with_log_only(model(mistake, 2, 2, 0)), &path);
    assert!(!walk(Mistake::TrimmedTooFar), "the mistake shows nothing");
    assert!(walk(Mistake::None), "the model itself is broken");
}

/// Walks the path as far as its steps are possible. Returns whether all properties held.
fn walk(model: &Failover, path: &[Step]) -> bool {
    let mut state = model.init_states().remove(0);
    for step in path {
        let mut steps = Vec::new();
        model.actions(&state, &mut steps);
        if !steps.contains(step) {
            continue;
        }
        if let Some(next) = model.next_state(&state, *step) {
            state = next;
        }
        if !(nothing_is_lost(&state) && frames_are_equal(&state)) || state.answered_stale {
            return false;
        }
    }
    true
}
