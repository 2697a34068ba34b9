//! A model of writes that are atomic over two shards, with two phases and the decision in the first
//! shard's log.
//!
//! ```text
//!   coordinator ── prepare ─► first shard ── its frame is committed ─► prepare ─► second shard ── committed ─► decide at the first shard
//!   first shard:  Prepare │ Commit or Abort        the decision, and what is done here
//!   second shard: Prepare │ Commit or Abort        as the first shard decided, told by the coordinator or asked for
//! ```
//!
//! Both shards are quorum shards: a failover keeps the committed part of a log, and any part of the
//! rest. Each has one key, which a prepared transaction holds (an intent); other transactions wait
//! for it. A coordinator may be lost at any moment, and its messages may still be delivered at any
//! later one. A slot moves to another node as it stands. There is no time: a waiting node may lose
//! patience at any moment.
//!
//! The server has none of this:
//! `docs/decisions/2026-11-27-atomic-writes-over-nodes-are-a-model.md`.

#[path = "../common/mod.rs"]
mod common;

use stateright::{Checker as _, Model, Property};

const TRANSACTIONS: usize = 2;
const SHARDS: usize = 2;
const FIRST: usize = 0;
const SECOND: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// The coordinator treats an uncommitted prepare frame as committed.
    PreparedEarly,
    /// The second shard carries out an uncommitted decision of the first one.
    DecidedEarly,
    /// The second shard aborts by itself.
    AbortedAlone,
    /// The first shard accepts a decision although it has aborted.
    DecidedTwice,
    /// A failover forgets intents.
    IntentsForgotten,
    /// A slot moves while a transaction holds its key, without it.
    MovedWithoutIntents,
    /// The coordinator replies as soon as it has asked for the decision.
    AnsweredEarly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Frame {
    Prepare(usize),
    Commit(usize),
    Abort(usize),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Shard {
    log: Vec<Frame>,
    committed: usize,
    /// The transaction that holds the key.
    intent: Option<usize>,
}

impl Shard {
    fn has(&self, frame: Frame) -> bool {
        self.log.contains(&frame)
    }

    fn has_committed(&self, frame: Frame) -> bool {
        self.log[..self.committed].contains(&frame)
    }

    fn is_resolved(&self, transaction: usize) -> bool {
        self.has(Frame::Commit(transaction)) || self.has(Frame::Abort(transaction))
    }

    fn is_prepared(&self, transaction: usize) -> bool {
        self.has(Frame::Prepare(transaction)) && !self.is_resolved(transaction)
    }

    /// Commits or aborts: the key is free again.
    fn resolve(&mut self, frame: Frame, transaction: usize) {
        self.log.push(frame);
        if self.intent == Some(transaction) {
            self.intent = None;
        }
    }

    /// Gives the slot to another node: unresolved transactions stay behind.
    fn give_away(&mut self) {
        let resolved: Vec<bool> = (0..TRANSACTIONS)
            .map(|transaction| self.is_resolved(transaction))
            .collect();
        self.log.retain(|frame| match frame {
            Frame::Prepare(transaction) => resolved[*transaction],
            Frame::Commit(_) | Frame::Abort(_) => true,
        });
        (self.committed, self.intent) = (self.log.len(), None);
    }

    /// Prepared transactions hold their keys again.
    fn restore_intents(&mut self) {
        self.intent = (0..TRANSACTIONS).find(|transaction| self.is_prepared(*transaction));
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Coordinator {
    is_gone: bool,
    /// Prepares that are in transit, and those that were answered.
    on_the_way: [bool; SHARDS],
    answered: [bool; SHARDS],
    asks_for_decision: bool,
    has_asked: bool,
    /// Whether the client has its OK.
    is_done: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    shards: [Shard; SHARDS],
    coordinators: [Coordinator; TRANSACTIONS],
    failovers: u8,
    moves: u8,
    /// Whether a read after an OK did not see the write.
    is_stale: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Prepare(usize, usize),
    Hear(usize, usize),
    Ask(usize),
    Decide(usize),
    Answer(usize),
    GiveUp(usize),
    Follow(usize),
    AbortAlone(usize),
    Gone(usize),
    Replicate(usize),
    /// The new primary has this number of frames.
    Failover(usize, usize),
    Move,
    Read(usize),
}

struct TwoPhases {
    mistake: Mistake,
    failovers_max: u8,
    moves_max: u8,
}

impl TwoPhases {
    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    fn steps_of(&self, state: &State, transaction: usize, steps: &mut Vec<Step>) {
        let coordinator = &state.coordinators[transaction];
        let [first, second] = &state.shards;
        for at in 0..SHARDS {
            let shard = &state.shards[at];
            // A transaction that the shard has aborted finds its key free, and is refused.
            if coordinator.on_the_way[at] && shard.intent.is_none_or(|held| held == transaction) {
                steps.push(Step::Prepare(transaction, at));
            }
            let prepare = Frame::Prepare(transaction);
            let is_kept = shard.has_committed(prepare)
                || self.is(Mistake::PreparedEarly) && shard.has(prepare);
            if is_kept && !coordinator.answered[at] && !coordinator.is_gone {
                steps.push(Step::Hear(transaction, at));
            }
        }
        if !coordinator.is_gone {
            steps.push(Step::Gone(transaction));
            if coordinator.answered == [true; SHARDS] && !coordinator.has_asked {
                steps.push(Step::Ask(transaction));
            }
            let is_decided = first.has_committed(Frame::Commit(transaction));
            let is_early = self.is(Mistake::AnsweredEarly) && first.has(Frame::Commit(transaction));
            if !coordinator.is_done && (is_decided || is_early) {
                steps.push(Step::Answer(transaction));
            }
        }
        if coordinator.asks_for_decision {
            steps.push(Step::Decide(transaction));
        }
        // By itself, or asked by the second shard.
        if !first.is_resolved(transaction)
            && (first.is_prepared(transaction) || second.is_prepared(transaction))
        {
            steps.push(Step::GiveUp(transaction));
        }
        if second.is_prepared(transaction) {
            let decided = |frame| {
                first.has_committed(frame) || self.is(Mistake::DecidedEarly) && first.has(frame)
            };
            if decided(Frame::Commit(transaction)) || decided(Frame::Abort(transaction)) {
                steps.push(Step::Follow(transaction));
            }
            if self.is(Mistake::AbortedAlone) {
                steps.push(Step::AbortAlone(transaction));
            }
        }
    }

    /// Makes a step of a transaction.
    fn go_on(&self, state: &mut State, step: Step) {
        let State {
            shards,
            coordinators,
            ..
        } = state;
        match step {
            Step::Prepare(transaction, at) => {
                coordinators[transaction].on_the_way[at] = false;
                let shard = &mut shards[at];
                if !shard.is_resolved(transaction) && !shard.is_prepared(transaction) {
                    shard.intent = Some(transaction);
                    shard.log.push(Frame::Prepare(transaction));
                }
            }
            Step::Hear(transaction, at) => {
                let coordinator = &mut coordinators[transaction];
                coordinator.answered[at] = true;
                // One after the other, in the order of shards: there is no circular wait.
                coordinator.on_the_way[SECOND] |= at == FIRST;
            }
            Step::Ask(transaction) => {
                let coordinator = &mut coordinators[transaction];
                (coordinator.has_asked, coordinator.asks_for_decision) = (true, true);
            }
            Step::Decide(transaction) => {
                coordinators[transaction].asks_for_decision = false;
                let (first, commit) = (&mut shards[FIRST], Frame::Commit(transaction));
                let may_decide = first.is_prepared(transaction) || self.is(Mistake::DecidedTwice);
                if may_decide && !first.has(commit) {
                    first.resolve(commit, transaction);
                }
            }
            Step::Answer(transaction) => coordinators[transaction].is_done = true,
            Step::GiveUp(transaction) => {
                shards[FIRST].resolve(Frame::Abort(transaction), transaction);
            }
            Step::Follow(transaction) => {
                let commit = Frame::Commit(transaction);
                let frame = match shards[FIRST].has(commit) {
                    true => commit,
                    false => Frame::Abort(transaction),
                };
                shards[SECOND].resolve(frame, transaction);
            }
            Step::AbortAlone(transaction) => {
                shards[SECOND].resolve(Frame::Abort(transaction), transaction);
            }
            Step::Gone(transaction) => coordinators[transaction].is_gone = true,
            Step::Replicate(_) | Step::Failover(..) | Step::Move | Step::Read(_) => {}
        }
    }
}

impl Model for TwoPhases {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let mut coordinators: [Coordinator; TRANSACTIONS] = Default::default();
        for coordinator in &mut coordinators {
            coordinator.on_the_way[FIRST] = true;
        }
        vec![State {
            shards: Default::default(),
            coordinators,
            failovers: 0,
            moves: 0,
            is_stale: false,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for transaction in 0..TRANSACTIONS {
            self.steps_of(state, transaction, steps);
        }
        for (at, shard) in state.shards.iter().enumerate() {
            if shard.committed < shard.log.len() {
                steps.push(Step::Replicate(at));
            }
            if state.failovers < self.failovers_max {
                let kept = shard.committed..=shard.log.len();
                steps.extend(kept.map(|kept| Step::Failover(at, kept)));
            }
            if shard.intent.is_none() {
                steps.push(Step::Read(at));
            }
        }
        let second = &state.shards[SECOND];
        let is_free = second.intent.is_none() || self.is(Mistake::MovedWithoutIntents);
        if state.moves < self.moves_max && second.committed == second.log.len() && is_free {
            steps.push(Step::Move);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Replicate(at) => state.shards[at].committed = state.shards[at].log.len(),
            Step::Failover(at, kept) => {
                let shard = &mut state.shards[at];
                shard.log.truncate(kept);
                match self.is(Mistake::IntentsForgotten) {
                    true => shard.intent = None,
                    false => shard.restore_intents(),
                }
                state.failovers += 1;
            }
            Step::Move => {
                state.shards[SECOND].give_away();
                state.moves += 1;
            }
            Step::Read(at) => {
                let is_missing = |transaction: usize| {
                    state.coordinators[transaction].is_done
                        && !state.shards[at].has(Frame::Commit(transaction))
                };
                state.is_stale |= (0..TRANSACTIONS).any(is_missing);
            }
            step => self.go_on(&mut state, step),
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(WHOLE, |_, state: &State| {
                (0..TRANSACTIONS).all(|transaction| is_whole(state, transaction))
            }),
            Property::always(KEPT, |_, state: &State| {
                let commits = |transaction| {
                    let commit = Frame::Commit(transaction);
                    state.shards[FIRST].has_committed(commit)
                };
                let done = |transaction: &usize| state.coordinators[*transaction].is_done;
                (0..TRANSACTIONS).filter(done).all(commits)
            }),
            Property::always(ORDER, |_, state: &State| {
                let order = |shard: &Shard| -> Vec<Frame> {
                    let is_commit = |frame: &&Frame| matches!(frame, Frame::Commit(_));
                    shard.log.iter().filter(is_commit).copied().collect()
                };
                let [first, second] = [order(&state.shards[0]), order(&state.shards[1])];
                let both = |one: &[Frame], other: &[Frame]| -> Vec<Frame> {
                    let is_there = |frame: &&Frame| other.contains(*frame);
                    one.iter().filter(is_there).copied().collect()
                };
                both(&first, &second) == both(&second, &first)
            }),
            Property::always(FRESH, |_, state: &State| !state.is_stale),
            Property::sometimes("both are done", |_, state: &State| {
                let second = &state.shards[SECOND];
                (0..TRANSACTIONS).all(|transaction| second.has(Frame::Commit(transaction)))
            }),
            Property::sometimes(
                "one is given up after its coordinator is gone",
                |_, state: &State| {
                    state.coordinators[0].is_gone && state.shards[SECOND].has(Frame::Abort(0))
                },
            ),
            Property::sometimes(
                "one is done after its coordinator is gone",
                |_, state: &State| {
                    let coordinator = &state.coordinators[0];
                    let is_done = state.shards[SECOND].has(Frame::Commit(0));
                    coordinator.is_gone && !coordinator.is_done && is_done
                },
            ),
        ]
    }
}

const WHOLE: &str = "a transaction is done on both shards or on none";
const KEPT: &str = "what was answered is decided for good";
const ORDER: &str = "both shards have transactions in one order";
const FRESH: &str = "a read after the answer sees it";

/// Whether the second shard carried out only decided transactions, and has carried out each decided
/// one or is able to.
fn is_whole(state: &State, transaction: usize) -> bool {
    let [first, second] = &state.shards;
    let (commit, abort) = (Frame::Commit(transaction), Frame::Abort(transaction));
    let is_decided = first.has_committed(commit);
    let is_possible = second.has(commit) || second.has_committed(Frame::Prepare(transaction));
    let followed = !second.has(commit) || is_decided;
    followed && (!is_decided || is_possible && !second.has(abort) && !first.has(abort))
}

fn model(mistake: Mistake, failovers_max: u8, moves_max: u8) -> TwoPhases {
    TwoPhases {
        mistake,
        failovers_max,
        moves_max,
    }
}

#[test]
fn writes_over_two_shards_are_atomic_over_three_failovers() {
    let checker = model(Mistake::None, 3, 2).checker();
    let checker = checker.threads(2).spawn_bfs().join();
    checker.assert_properties();
    println!("{} states", checker.unique_state_count());
}

#[test]
fn mistakes_are_found() {
    for (mistake, moves, property) in [
        (Mistake::PreparedEarly, 0, WHOLE),
        (Mistake::DecidedEarly, 0, WHOLE),
        (Mistake::AbortedAlone, 0, WHOLE),
        (Mistake::DecidedTwice, 0, WHOLE),
        (Mistake::IntentsForgotten, 0, ORDER),
        (Mistake::MovedWithoutIntents, 1, WHOLE),
        (Mistake::AnsweredEarly, 0, KEPT),
    ] {
        let checker = model(mistake, 1, moves).checker();
        let checker = checker.threads(2).spawn_bfs().join();
        assert_eq!(common::broken(&checker), Some(property), "{mistake:?}");
    }
}
