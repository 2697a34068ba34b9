//! A model of a shard with an even number of copies, one of which is lost, that gets another copy
//! from a shard that can spare one. Both are quorum shards, and one entry of the control group
//! changes both.
//!
//! ```text
//!   needs {primary, lost}         ── take ──► {primary, lost, spare}
//!   gives {giver, other, spare}           ──► {giver, other}, old set {giver, other, spare} ── finish ──► {giver, other}
//!                                                └─ then the spare one forgets what it has of it, and follows the other primary
//! ```
//!
//! Directly afterwards the lost one may be removed: `{primary, spare}`, old set `{primary, lost,
//! spare}`.
//!
//! Meanwhile quorum shards work as usual: writes, copies, replies when each set has a quorum,
//! seals, promotions of the member with the most, offices that begin with a term frame, restarts.
//! Nodes are cut off and reconnected at any moment. An entry finds the epochs for which it was
//! proposed, or changes nothing. A copy answers a seal with its log in one step. There are no times
//! and leases in the model (`failover_model` has them): a primary replies when its log is
//! committed.

#[path = "../common/mod.rs"]
mod common;
mod shards;

use std::collections::BTreeSet;

use shards::{
    GIVER, GIVES, LOST, NEEDS, NODES, Node, OTHER, PRIMARY, SHARDS, SPARE, Shard, State, THIRD, end,
};
use stateright::{Checker as _, Model, Property};

type Set = BTreeSet<usize>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// An odd number of copies grows without an old set.
    OddSetGrown,
    /// A former primary counts new members as its own.
    OfficeKept,
    /// A member is removed without an old set.
    RemovedAtOnce,
    /// A change ends before a quorum has what the primary had.
    EndedTooSoon,
    /// A promotion is applied although the shard has changed since its members were sealed.
    AppliedUnchecked,
    /// The giving shard has only its new members at once, without an old set.
    GivenAtOnce,
    /// The spare copy forgets its data before that change has ended, and still answers seals of
    /// that shard.
    ForgotTooSoon,
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
    BeginSeal(usize),
    Seal(usize, usize),
    Promote(usize),
    TakeOffice(usize),
    Propose,
    Take,
    /// The lost copy leaves the shard that got a copy.
    Remove,
    Finish(usize),
    /// The spare copy is of its new shard from here on, and empty.
    Change,
}

struct Taking {
    mistake: Mistake,
    terms_max: [u8; SHARDS],
    writes_max: [u8; SHARDS],
    restarts_max: u8,
    /// The shard that needs a copy has one more: an odd number.
    is_odd: bool,
    /// A removal follows directly.
    has_next: bool,
    /// The nodes that may be cut off.
    unsteady: &'static [usize],
}

impl Taking {
    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    /// Whether what the primary had when it knew of the change is on a quorum of each set.
    fn is_settled(&self, state: &State, id: usize) -> bool {
        let shard = &state.shards[id];
        let at = shard.primary;
        let knows = state.is_in_office(id) && state.nodes[at].epoch >= shard.epoch;
        let has_all = shard.wanted.is_some_and(|wanted| {
            state.on_quorum(at, &shard.members, shard.old.as_ref()) >= wanted
        });
        knows && (has_all || self.is(Mistake::EndedTooSoon))
    }

    /// Whether the spare copy may change over: its old shard does without it.
    fn may_change(&self, state: &State) -> bool {
        let node = &state.nodes[SPARE];
        let known = &state.history[usize::from(node.epoch)];
        let (members, old) = &known[GIVES];
        let is_taken = known[NEEDS].0.contains(&SPARE);
        let is_counted = members.contains(&SPARE)
            || old.as_ref().is_some_and(|old| old.contains(&SPARE))
                && !self.is(Mistake::ForgotTooSoon);
        node.of == GIVES && is_taken && !is_counted
    }

    /// Returns where a node's log ends.
    fn told(state: &State, at: usize) -> (u8, u8) {
        let log = &state.nodes[at].log;
        (log.last().map_or(0, |frame| frame.0), end(log))
    }

    fn answers(&self, state: &State, id: usize, at: usize) -> bool {
        let is_its = state.nodes[at].of == id
            || self.is(Mistake::ForgotTooSoon) && (id, at) == (GIVES, SPARE);
        is_its && state.everybody(id).contains(&at) && !state.cut.contains(&at)
    }

    fn change(&self, state: &mut State, step: Step) -> Option<()> {
        match step {
            Step::Propose => {
                let epochs = [state.shards[NEEDS].epoch, state.shards[GIVES].epoch];
                state.proposed = Some(epochs);
            }
            Step::Take => self.take(state)?,
            Step::Remove => {
                let needs = &mut state.shards[NEEDS];
                needs.old = (!self.is(Mistake::RemovedAtOnce)).then(|| needs.members.clone());
                needs.members.remove(&LOST);
                (needs.wanted, state.is_narrowed) = (None, true);
                state.changed(&[NEEDS]);
            }
            Step::Finish(id) => {
                state.shards[id].old = None;
                state.changed(&[id]);
            }
            Step::BeginSeal(id) => {
                let shard = &mut state.shards[id];
                shard.sealing = Some((shard.term + 1, shard.epoch));
                shard.answers = [None; NODES];
            }
            Step::Seal(id, at) => {
                let (term, _) = state.shards[id].sealing?;
                let told = Self::told(state, at);
                let node = &mut state.nodes[at];
                let answer = match node.of == id {
                    true => told,
                    false => (0, 0),
                };
                if node.of == id {
                    (node.seal, node.office) = (term, 0);
                }
                state.shards[id].answers[at] = Some(answer);
            }
            Step::Promote(id) => {
                let chosen = state.chosen(id, !self.is(Mistake::AppliedUnchecked))?;
                let shard = &mut state.shards[id];
                let ((term, _), (_, end)) = (shard.sealing?, shard.answers[chosen]?);
                (shard.term, shard.primary, shard.promised) = (term, chosen, end);
                (shard.sealing, shard.answers, shard.wanted) = (None, [None; NODES], None);
                state.changed(&[id]);
            }
            Step::TakeOffice(at) => {
                let term = state.shards[state.nodes[at].of].term;
                let epoch = state.index();
                let node = &mut state.nodes[at];
                (node.office, node.acked, node.epoch) = (term, [0; NODES], epoch);
                node.log.push((term, 0));
            }
            Step::Change => {
                let epoch = state.nodes[SPARE].epoch;
                state.nodes[SPARE] = Node {
                    of: NEEDS,
                    epoch,
                    ..Node::default()
                };
            }
            _ => return None,
        }
        Some(())
    }

    /// Applies the entry.
    fn take(&self, state: &mut State) -> Option<()> {
        let epochs = state.proposed.take()?;
        if epochs != [state.shards[NEEDS].epoch, state.shards[GIVES].epoch] {
            return Some(());
        }
        state.is_taken = true;
        let needs = &mut state.shards[NEEDS];
        let has_old = needs.members.len() % 2 == 1 && !self.is(Mistake::OddSetGrown);
        needs.old = has_old.then(|| needs.members.clone());
        needs.members.insert(SPARE);
        let gives = &mut state.shards[GIVES];
        gives.old = (!self.is(Mistake::GivenAtOnce)).then(|| gives.members.clone());
        gives.members.remove(&SPARE);
        for id in [NEEDS, GIVES] {
            state.shards[id].wanted = None;
        }
        state.changed(&[NEEDS, GIVES]);
        Some(())
    }

    fn steps_of_node(&self, state: &State, at: usize, steps: &mut Vec<Step>) {
        let node = &state.nodes[at];
        let shard = &state.shards[node.of];
        if node.office > 0 {
            if state.writes[node.of] < self.writes_max[node.of] {
                steps.push(Step::Write(at));
            }
            let (members, old) = &state.history[usize::from(node.epoch)][node.of];
            let known: Set = members
                .iter()
                .chain(old.iter().flatten())
                .copied()
                .collect();
            let others = known.into_iter().filter(|other| *other != at);
            let linked = others
                .filter(|other| state.is_linked(at, *other) && state.nodes[*other].of == node.of);
            steps.extend(linked.map(|other| Step::Copy(at, other)));
            if state.committed(at) >= end(&node.log) {
                steps.push(Step::Reply(at));
            }
            if state.restarts < self.restarts_max {
                steps.push(Step::Restart(at));
            }
        }
        // What the other nodes know makes no difference.
        let acts = node.office > 0 || at == SPARE;
        if acts && node.epoch < state.index() && !state.cut.contains(&at) {
            steps.push(Step::Learn(at));
        }
        let is_promoted =
            shard.primary == at && node.office < shard.term && node.seal <= shard.term;
        if is_promoted && Self::told(state, at).1 == shard.promised && shard.term > 1 {
            steps.push(Step::TakeOffice(at));
        }
    }

    fn steps_of_shard(&self, state: &State, id: usize, steps: &mut Vec<Step>) {
        let shard = &state.shards[id];
        let is_due = shard.sealing.is_none_or(|(_, epoch)| epoch != shard.epoch);
        if shard.term < self.terms_max[id] && is_due {
            steps.push(Step::BeginSeal(id));
        }
        if let Some((term, _)) = shard.sealing {
            let asked = (0..NODES).filter(|at| {
                let is_new = match state.nodes[*at].of == id {
                    true => state.nodes[*at].seal < term,
                    false => shard.answers[*at].is_none(),
                };
                is_new && self.answers(state, id, *at)
            });
            steps.extend(asked.map(|at| Step::Seal(id, at)));
        }
        if state
            .chosen(id, !self.is(Mistake::AppliedUnchecked))
            .is_some()
        {
            steps.push(Step::Promote(id));
        }
        if shard.old.is_some() && self.is_settled(state, id) {
            steps.push(Step::Finish(id));
        }
    }
}

impl Model for Taking {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let node = |of| Node {
            of,
            log: vec![(1, 0)],
            seal: 1,
            ..Node::default()
        };
        let mut nodes: Vec<Node> = [NEEDS, NEEDS, GIVES, GIVES, GIVES, NEEDS].map(node).into();
        for (primary, copies) in [(PRIMARY, vec![LOST, THIRD]), (GIVER, vec![SPARE, OTHER])] {
            nodes[primary].office = 1;
            for copy in copies {
                nodes[primary].acked[copy] = 1;
            }
        }
        let shard = |primary, members: &[usize]| Shard {
            term: 1,
            primary,
            members: members.iter().copied().collect(),
            ..Shard::default()
        };
        let mut state = State {
            nodes,
            shards: [
                match self.is_odd {
                    true => shard(PRIMARY, &[PRIMARY, LOST, THIRD]),
                    false => shard(PRIMARY, &[PRIMARY, LOST]),
                },
                shard(GIVER, &[GIVER, OTHER, SPARE]),
            ],
            ..State::default()
        };
        state.note();
        vec![state]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for at in 0..NODES {
            self.steps_of_node(state, at, steps);
        }
        for id in [NEEDS, GIVES] {
            self.steps_of_shard(state, id, steps);
        }
        steps.extend(self.unsteady.iter().map(|at| match state.cut.contains(at) {
            true => Step::Heal(*at),
            false => Step::Cut(*at),
        }));
        let needs = &state.shards[NEEDS];
        let is_spare = state.shards[GIVES].primary != SPARE;
        if !state.is_taken && state.proposed.is_none() && is_spare && state.is_in_office(NEEDS) {
            steps.push(Step::Propose);
        }
        if state.proposed.is_some() {
            steps.push(Step::Take);
        }
        let is_next = self.has_next && state.is_taken && !state.is_narrowed;
        if is_next && needs.old.is_none() && needs.primary != LOST {
            steps.push(Step::Remove);
        }
        if self.may_change(state) {
            steps.push(Step::Change);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Write(at) => {
                let of = state.nodes[at].of;
                state.writes[of] += 1;
                let frame = (state.nodes[at].office, state.writes[of]);
                state.nodes[at].log.push(frame);
            }
            Step::Copy(from, to) => state.copy(from, to)?,
            Step::Reply(at) => {
                let node = &state.nodes[at];
                let shard = &mut state.shards[node.of];
                shard.answered_term = shard.answered_term.max(node.office);
                if node.log.len() > shard.answered.len() {
                    shard.answered.clone_from(&node.log);
                }
            }
            Step::Learn(at) => state.learn(at, !self.is(Mistake::OfficeKept)),
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
                (0..SHARDS).all(|id| is_kept(state, id))
            }),
            Property::sometimes("both changes have ended", |_, state: &State| {
                state.is_taken && state.shards.iter().all(|shard| shard.old.is_none())
            }),
        ]
    }
}

fn is_kept(state: &State, id: usize) -> bool {
    let shard = &state.shards[id];
    let own = state.nodes.iter().filter(|node| node.of == id);
    let newest = own.max_by_key(|node| node.office);
    newest.is_none_or(|node| {
        node.office < shard.answered_term
            || node.office == 0
            || node.log.starts_with(&shard.answered)
    })
}

const KEPT: &str = "nothing that was answered is lost";

/// Which shard has failovers and writes.
#[derive(Clone, Copy, Debug)]
enum Where {
    Needs,
    /// The same with one more write.
    Longer,
    /// The same, with a removal directly afterwards.
    Next,
    /// The same with an odd number of copies.
    Odd,
    Gives,
    Both,
}

fn model(mistake: Mistake, place: Where, terms: u8, restarts_max: u8) -> Taking {
    let (terms_max, writes_max, unsteady): (_, _, &[usize]) = match place {
        Where::Needs | Where::Next | Where::Odd => ([terms, 1], [1, 0], &[PRIMARY, LOST]),
        Where::Longer => ([terms, 1], [2, 0], &[PRIMARY, LOST]),
        Where::Gives => ([1, terms], [0, 1], &[GIVER]),
        Where::Both => ([terms, terms], [1, 1], &[PRIMARY, LOST, GIVER]),
    };
    Taking {
        mistake,
        terms_max,
        writes_max,
        restarts_max,
        is_odd: matches!(place, Where::Odd),
        has_next: matches!(place, Where::Next),
        unsteady,
    }
}

fn searched(mistake: Mistake, place: Where, terms: u8) -> Option<&'static str> {
    let checker = model(mistake, place, terms, 0).checker();
    let checker = checker.threads(2);
    let checker = checker.spawn_bfs().join();
    common::broken(&checker)
}

#[test]
fn a_copy_goes_over_to_a_shard_that_lost_one_and_nothing_is_lost() {
    for place in [Where::Needs, Where::Gives] {
        assert_eq!(searched(Mistake::None, place, 2), None, "{place:?}");
    }
}

/// `cargo test -p cluster --release --test replace_model -- --ignored --nocapture`
#[test]
#[ignore = "a long search"]
fn a_copy_goes_over_with_a_removal_after_it_and_to_an_odd_number() {
    for place in [Where::Longer, Where::Next, Where::Odd] {
        assert_eq!(searched(Mistake::None, place, 2), None, "{place:?}");
    }
}

#[test]
#[ignore = "a long search"]
fn a_copy_goes_over_while_both_shards_fail_over() {
    let checker = model(Mistake::None, Where::Both, 2, 1).checker();
    let checker = checker
        .threads(2)
        .target_state_count(STATES_MAX)
        .spawn_bfs()
        .join();
    assert_eq!(common::broken(&checker), None);
    println!("{} states", checker.unique_state_count());
}

/// Maximum number of states in the search over both shards, which has more.
const STATES_MAX: usize = 8_000_000;

fn assert_found(mistakes: &[(Mistake, Where)]) {
    for (mistake, place) in mistakes {
        assert_eq!(searched(*mistake, *place, 2), Some(KEPT), "{mistake:?}");
    }
}

#[test]
fn mistakes_are_found() {
    assert_found(&[
        (Mistake::OfficeKept, Where::Needs),
        (Mistake::EndedTooSoon, Where::Gives),
        (Mistake::GivenAtOnce, Where::Gives),
        (Mistake::ForgotTooSoon, Where::Gives),
    ]);
}

#[test]
#[ignore = "a long search"]
fn more_mistakes_are_found() {
    assert_found(&[
        (Mistake::OddSetGrown, Where::Odd),
        (Mistake::RemovedAtOnce, Where::Next),
        (Mistake::AppliedUnchecked, Where::Needs),
        (Mistake::EndedTooSoon, Where::Next),
    ]);
}
