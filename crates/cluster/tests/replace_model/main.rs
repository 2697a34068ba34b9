//! A model of a shard of two copies that lost one: the control group puts a spare node in its place, by one entry.
//!
//! ```text
//!   members {primary, lost} ── replace: {primary, spare}, old set {primary} ── finish: what the primary had is on both ─► {primary, spare}
//! ```
//!
//! Beside that, what goes on in a shard at quorum: writes, copies, replies when each set has a quorum, seals, promotions of who has most, offices
//! that begin with a term frame, restarts. The lost node is cut off and may be back at any moment. An entry finds the epoch that it was proposed for, or
//! changes nothing. Time and leases are not in the model (`failover_model` has them): a primary replies when its log is committed.
//!
//! The server has no such entry yet: `docs/decisions/2026-11-27-no-spare-replica-at-quorum-yet.md` says what is missing.

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeSet;

use stateright::{Checker as _, Model, Property};

const NODES: usize = 3;
/// Who is the first primary, who is lost, who is spare.
const PRIMARY: usize = 0;
const LOST: usize = 1;
const SPARE: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// The spare one speaks for the shard at once, whatever it has.
    OldSetForgotten,
    /// The change ends before the spare one has what the primary had.
    EndedTooSoon,
    /// The entry is applied though the shard has changed since it was proposed.
    AppliedUnchecked,
}

type Frame = (u8, u8);
type Set = BTreeSet<usize>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Node {
    log: Vec<Frame>,
    seal: u8,
    office: u8,
    /// What the others have acknowledged to it in this office.
    acked: [u8; NODES],
    /// The members, as it knows them: the newest that it has applied.
    epoch: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    nodes: Vec<Node>,
    /// Which nodes talk to nobody.
    cut: Set,
    /// The control state.
    term: u8,
    epoch: u8,
    primary: usize,
    promised: u8,
    members: Set,
    old: Option<Set>,
    /// Members and old members at each epoch.
    history: Vec<(Set, Option<Set>)>,
    /// The epoch for which the replacement was proposed, and the primary that was to stay.
    proposed: Option<(u8, usize)>,
    is_replaced: bool,
    /// What the primary had when it knew of the change.
    wanted: Option<u8>,
    /// The term that is sealed for, at which epoch, and who answered.
    sealing: Option<(u8, u8)>,
    answers: [Option<(u8, u8)>; NODES],
    writes: u8,
    restarts: u8,
    answered: Vec<Frame>,
    answered_term: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Write(usize),
    Copy(usize, usize),
    Reply(usize),
    Learn(usize),
    Cut(usize),
    Heal(usize),
    Restart(usize),
    BeginSeal,
    Seal(usize),
    Promote,
    TakeOffice(usize),
    Propose,
    Replace,
    Finish,
}

struct Replacing {
    mistake: Mistake,
    terms_max: u8,
    writes_max: u8,
    restarts_max: u8,
}

fn end(log: &[Frame]) -> u8 {
    u8::try_from(log.len()).unwrap_or(u8::MAX)
}

fn quorum_of(set: &Set) -> usize {
    set.len() / 2 + 1
}

impl State {
    fn is_linked(&self, a: usize, b: usize) -> bool {
        !self.cut.contains(&a) && !self.cut.contains(&b)
    }

    /// Up to where a primary counts its log as committed, by the members that it knows.
    fn committed(&self, at: usize) -> u8 {
        let node = &self.nodes[at];
        let (members, old) = &self.history[usize::from(node.epoch)];
        let of_set = |set: &Set| {
            let of = |member: &usize| match *member == at {
                true => end(&node.log),
                false => node.acked[*member],
            };
            let mut ends: Vec<u8> = set.iter().map(of).collect();
            ends.sort_unstable_by(|a, b| b.cmp(a));
            ends.get(quorum_of(set) - 1).copied().unwrap_or(0)
        };
        let sets = std::iter::once(members).chain(old);
        let committed = sets.map(of_set).min().unwrap_or(0);
        let own = node.log.iter().position(|frame| *frame == (node.office, 0));
        match own {
            Some(own) if usize::from(committed) > own => committed,
            _ => 0,
        }
    }

    /// Whether enough have answered a seal.
    fn suffices(&self) -> bool {
        let of_set = |set: &Set| {
            let answered = set.iter().filter(|node| self.answers[**node].is_some());
            answered.count() > set.len() - quorum_of(set)
        };
        of_set(&self.members) && self.old.as_ref().is_none_or(of_set)
    }

    fn everybody(&self) -> Set {
        let old = self.old.iter().flatten();
        self.members.iter().chain(old).copied().collect()
    }

    fn chosen(&self) -> Option<usize> {
        let (_, epoch) = self.sealing?;
        if epoch != self.epoch || !self.suffices() {
            return None;
        }
        let candidates = self.members.iter().copied();
        candidates
            .filter(|node| self.answers[*node].is_some())
            .max_by_key(|node| (self.answers[*node], std::cmp::Reverse(*node)))
    }

    fn is_in_office(&self, at: usize) -> bool {
        self.nodes[at].office > 0 && self.nodes[at].office == self.term
    }

    fn changed(&mut self) {
        self.epoch += 1;
        self.history.push((self.members.clone(), self.old.clone()));
    }
}

impl Replacing {
    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    /// What the primary had when it knew of the change is on a quorum of each set.
    fn is_settled(&self, state: &State) -> bool {
        let at = state.primary;
        let knows = state.is_in_office(at) && state.nodes[at].epoch == state.epoch;
        let has_all = state.wanted.is_some_and(|wanted| {
            let others = state.members.iter().filter(|node| **node != at);
            others
                .into_iter()
                .all(|node| state.nodes[at].acked[*node] >= wanted)
        });
        knows && (has_all || self.is(Mistake::EndedTooSoon))
    }

    fn change(&self, state: &mut State, step: Step) -> Option<()> {
        match step {
            Step::Propose => state.proposed = Some((state.epoch, state.primary)),
            Step::Replace => {
                let (epoch, stays) = state.proposed.take()?;
                if epoch != state.epoch && !self.is(Mistake::AppliedUnchecked) {
                    return Some(());
                }
                state.is_replaced = true;
                state.members = [stays, SPARE].into();
                state.old = (!self.is(Mistake::OldSetForgotten)).then(|| [stays].into());
                state.wanted = None;
                state.changed();
            }
            Step::Finish => {
                state.old = None;
                state.changed();
            }
            Step::BeginSeal => {
                state.sealing = Some((state.term + 1, state.epoch));
                state.answers = [None; NODES];
            }
            Step::Seal(at) => {
                let (term, _) = state.sealing?;
                let node = &mut state.nodes[at];
                (node.seal, node.office) = (term, 0);
                state.answers[at] =
                    Some((node.log.last().map_or(0, |frame| frame.0), end(&node.log)));
            }
            Step::Promote => {
                let chosen = state.chosen()?;
                let ((term, _), (_, end)) = (state.sealing?, state.answers[chosen]?);
                (state.term, state.primary, state.promised) = (term, chosen, end);
                state.sealing = None;
                state.answers = [None; NODES];
                state.wanted = None;
                state.changed();
            }
            Step::TakeOffice(at) => {
                let (term, epoch) = (state.term, state.epoch);
                let node = &mut state.nodes[at];
                (node.office, node.acked, node.epoch) = (term, [0; NODES], epoch);
                node.log.push((term, 0));
            }
            _ => return None,
        }
        Some(())
    }
}

impl Model for Replacing {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let log = vec![(1, 0)];
        let mut nodes: Vec<Node> = (0..NODES).map(|_| Node::default()).collect();
        for at in [PRIMARY, LOST] {
            nodes[at].log.clone_from(&log);
            nodes[at].seal = 1;
        }
        nodes[PRIMARY].office = 1;
        nodes[PRIMARY].acked[LOST] = 1;
        let members: Set = [PRIMARY, LOST].into();
        vec![State {
            nodes,
            cut: Set::new(),
            term: 1,
            epoch: 0,
            primary: PRIMARY,
            promised: 0,
            members: members.clone(),
            old: None,
            history: vec![(members, None)],
            proposed: None,
            is_replaced: false,
            wanted: None,
            sealing: None,
            answers: [None; NODES],
            writes: 0,
            restarts: 0,
            answered: Vec::new(),
            answered_term: 0,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for (at, node) in state.nodes.iter().enumerate() {
            if node.office > 0 {
                if state.writes < self.writes_max {
                    steps.push(Step::Write(at));
                }
                let (members, old) = &state.history[usize::from(node.epoch)];
                let known: Set = members
                    .iter()
                    .chain(old.iter().flatten())
                    .copied()
                    .collect();
                let others = known.into_iter().filter(|other| *other != at);
                let linked = others.filter(|other| state.is_linked(at, *other));
                steps.extend(linked.map(|other| Step::Copy(at, other)));
                if state.committed(at) >= end(&node.log) {
                    steps.push(Step::Reply(at));
                }
                if state.restarts < self.restarts_max {
                    steps.push(Step::Restart(at));
                }
            }
            if node.epoch < state.epoch && !state.cut.contains(&at) {
                steps.push(Step::Learn(at));
            }
            let is_to_be_sealed = state.sealing.is_some_and(|(term, _)| node.seal < term);
            if is_to_be_sealed && state.everybody().contains(&at) && !state.cut.contains(&at) {
                steps.push(Step::Seal(at));
            }
            let is_promoted =
                state.primary == at && node.office < state.term && node.seal <= state.term;
            if is_promoted && end(&node.log) == state.promised && state.term > 1 {
                steps.push(Step::TakeOffice(at));
            }
        }
        for at in [PRIMARY, LOST] {
            steps.push(match state.cut.contains(&at) {
                true => Step::Heal(at),
                false => Step::Cut(at),
            });
        }
        if state.term < self.terms_max
            && state.sealing.is_none_or(|(_, epoch)| epoch != state.epoch)
        {
            steps.push(Step::BeginSeal);
        }
        if state.chosen().is_some() {
            steps.push(Step::Promote);
        }
        let lost = state.members.iter().find(|node| **node != state.primary);
        let is_lost = lost.is_some_and(|lost| state.cut.contains(lost));
        let may_stay = state.is_in_office(state.primary);
        if !state.is_replaced && state.proposed.is_none() && is_lost && may_stay {
            steps.push(Step::Propose);
        }
        if state.proposed.is_some() {
            steps.push(Step::Replace);
        }
        if state.old.is_some() && self.is_settled(state) {
            steps.push(Step::Finish);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Write(at) => {
                state.writes += 1;
                let frame = (state.nodes[at].office, state.writes);
                state.nodes[at].log.push(frame);
            }
            Step::Copy(from, to) => copy(&mut state, from, to)?,
            Step::Reply(at) => {
                let node = &state.nodes[at];
                state.answered_term = state.answered_term.max(node.office);
                if node.log.len() > state.answered.len() {
                    state.answered.clone_from(&node.log);
                }
            }
            Step::Learn(at) => {
                state.nodes[at].epoch = state.epoch;
                if at == state.primary && state.old.is_some() && state.wanted.is_none() {
                    state.wanted = Some(end(&state.nodes[at].log));
                }
            }
            Step::Cut(at) => drop(state.cut.insert(at)),
            Step::Heal(at) => drop(state.cut.remove(&at)),
            Step::Restart(at) => {
                state.restarts += 1;
                state.nodes[at].office = 0;
            }
            step => self.change(&mut state, step)?,
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(KEPT, |_, state: &State| {
                let newest = state.nodes.iter().max_by_key(|node| node.office);
                newest.is_none_or(|node| {
                    node.office < state.answered_term
                        || node.office == 0
                        || node.log.starts_with(&state.answered)
                })
            }),
            Property::sometimes("the spare one counts", |_, state: &State| {
                state.is_replaced
                    && state.old.is_none()
                    && state.answered.iter().any(|frame| frame.1 > 0)
            }),
            Property::sometimes("it is the primary", |_, state: &State| {
                state.nodes[SPARE].office > 0
            }),
        ]
    }
}

const KEPT: &str = "nothing that was answered is lost";

/// The log goes on at another node by one frame, or is rewound to where both are the same, and that is acknowledged.
fn copy(state: &mut State, from: usize, to: usize) -> Option<()> {
    let (term, log) = (state.nodes[from].office, state.nodes[from].log.clone());
    let node = &mut state.nodes[to];
    if node.seal > term {
        return None;
    }
    node.seal = term;
    if node.office < term {
        node.office = 0;
    }
    let pairs = node.log.iter().zip(&log);
    let fork = pairs.take_while(|(own, theirs)| own == theirs).count();
    node.log.truncate(fork);
    node.log.extend(log.get(fork));
    let end = end(&node.log);
    let acked = &mut state.nodes[from].acked[to];
    *acked = (*acked).max(end);
    Some(())
}

fn model(mistake: Mistake, terms_max: u8, writes_max: u8, restarts_max: u8) -> Replacing {
    Replacing {
        mistake,
        terms_max,
        writes_max,
        restarts_max,
    }
}

#[test]
fn a_lost_copy_is_replaced_and_nothing_is_lost() {
    let checker = model(Mistake::None, 2, 1, 0).checker();
    let checker = checker.threads(2).spawn_bfs().join();
    checker.assert_properties();
    println!("{} states", checker.unique_state_count());
}

/// `cargo test -p cluster --release --test replace_model -- --ignored --nocapture`
#[test]
#[ignore = "a long search"]
fn a_lost_copy_is_replaced_over_two_failovers_and_a_restart() {
    let checker = model(Mistake::None, 3, 1, 1).checker();
    let checker = checker.threads(2).spawn_bfs().join();
    checker.assert_properties();
    println!("{} states", checker.unique_state_count());
}

#[test]
fn mistakes_are_found() {
    for (mistake, terms) in [
        (Mistake::OldSetForgotten, 2),
        (Mistake::EndedTooSoon, 2),
        (Mistake::AppliedUnchecked, 3),
    ] {
        let checker = model(mistake, terms, 1, 0).checker();
        let checker = checker.threads(2).spawn_bfs().join();
        assert_eq!(common::broken(&checker), Some(KEPT), "{mistake:?}");
    }
}
