//! The possible steps, and their effects on the state.

use cluster::member::{Action, Member};
use cluster::moves;
use cluster::{Applied, Entry, LogEnd, Times};
use stateright::{Model, Property};

use crate::state::{
    Ask, Budget, Effect, Leaving, Link, Message, NODES, Node, Remover, Reply, SHARDS, SLOT, State,
    TakingIn, View,
};

/// A mistake that is planted to verify that the properties detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    /// The slot is handed over before the remaining log was sent.
    RestNotSent,
    /// Writes that were admitted before writes wait are not awaited.
    WriterNotAwaited,
    /// Writes continue at the source while the move is proposed.
    WritesGoOn,
    /// Reads continue there.
    ReadsGoOn,
    /// The source serves the slot again if the group's answer does not come.
    AnswerNotAwaited,
    /// The source ends the wait before it knows the slot's owner.
    RoutesNotAwaited,
    /// The target serves the slot as soon as it has all of it.
    ServesBeforeEntry,
    /// The target answers the mark before its data is durable.
    DoneBeforeDurable,
    /// Effects that the copy contains are sent again from the log.
    GenerationNotLookedAt,
    /// The target keeps the remains of an earlier attempt.
    StagedIsKept,
    /// There is no check whether a database was flushed since the mark was sent.
    NoLookAtFlushes,
    /// A database is flushed at the source between that check and the proposal, or later.
    FlushWhileGiven,
    /// A database is flushed at the target while the slot may become its own.
    FlushWhileTaking,
    /// A target that does not know the outcome looks up the slot's owner while a move may still be
    /// applied.
    NoEndOfMoves,
    /// The removal of keys after a start does the same.
    CleansWithoutEnd,
    /// A restarted node decides by its own view of the slot owners what it removes.
    RemovesByRoutes,
    /// Keys are removed while the slot is taken in again.
    RemovesBesideStaging,
    /// A restarted node continues in its former office.
    OfficeAgain,
    /// A source begins that is not in office, or in office of an older term.
    BeginsOutOfOffice,
    /// The entry names the shards as they are at the time of the proposal.
    EndsOfProposal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Admit(usize),
    Execute(usize),
    Flush(usize),
    Commit(u8),
    LoseLease(usize),
    Promote(usize),
    Learn(usize),
    Grant(usize),
    Restart(usize),
    Break(usize),
    Begin(usize),
    HearTarget(usize),
    Cut(usize),
    Send(usize),
    Pause(usize),
    Mark(usize),
    MarkIsLate(usize),
    Look(usize),
    Propose(usize),
    HearGroup(usize),
    End(usize),
    GiveUp(usize),
    HearSource(usize),
    LinkEnds(usize),
    EndMoves(usize),
    Settle(usize),
    Served(usize),
    Clean(usize),
    Judge(usize),
    Remove(usize),
}

pub(crate) struct SlotMoves {
    pub(crate) mistake: Mistake,
    pub(crate) first: View,
    pub(crate) budget: Budget,
}

impl SlotMoves {
    pub(crate) fn new(mistake: Mistake, budget: Budget) -> Self {
        let first = View::first();
        Self {
            mistake,
            first,
            budget,
        }
    }

    pub(crate) fn is(&self, mistake: Mistake) -> bool {
        self.mistake == mistake
    }

    /// Returns the term in which a node states that it is in office.
    pub(crate) fn office(&self, state: &State, at: usize) -> u64 {
        match self.is(Mistake::BeginsOutOfOffice) {
            true => state.group.shard(at).0,
            false => state.nodes[at].office,
        }
    }

    fn serves(&self, state: &State, at: usize) -> bool {
        let node = &state.nodes[at];
        let is_handed = matches!(node.taking_in, Some(TakingIn::Handed { .. }));
        let is_early = self.is(Mistake::ServesBeforeEntry) && is_handed;
        node.office > 0 && node.has_lease && (node.view.owner() == Some(at) || is_early)
    }

    /// Whether the slot is being taken in or its keys are being removed: only one happens at a
    /// time.
    fn is_claimed(&self, node: &Node) -> bool {
        let removes = node
            .remover
            .is_some_and(|remover| remover != Remover::Wanted);
        let is_apart = self.is(Mistake::RemovesBesideStaging);
        node.taking_in.is_some() || removes && !is_apart
    }

    pub(crate) fn shows(&self, state: &State, at: usize) -> bool {
        self.serves(state, at) && state.nodes[at].leaving < Leaving::All
    }

    /// Handles requests, and flushes of databases.
    fn serve(&self, state: &mut State, step: Step) -> Option<()> {
        match step {
            Step::Admit(at) => {
                let takes = self.serves(state, at) && state.nodes[at].leaving == Leaving::Nothing;
                let node = &mut state.nodes[at];
                if !takes || node.admitted.is_some() {
                    return None;
                }
                state.budget.writes = state.budget.writes.checked_sub(1)?;
                node.admitted = Some(10 + state.budget.writes);
            }
            Step::Execute(at) => {
                let node = &mut state.nodes[at];
                let write = node.admitted.take()?;
                if !node.has_lease {
                    return Some(());
                }
                node.data.push(write);
                node.durable = node.data.len();
                if node.source.is_some() {
                    node.log.push(Effect::Push(write));
                }
                state.written_elsewhere |= state.group.owner() != Some(at);
                state.truth.push(write);
            }
            Step::Flush(at) => {
                let node = &mut state.nodes[at];
                let is_given = node.leaving == Leaving::All && !self.is(Mistake::FlushWhileGiven);
                let is_taking = node.is_taking && !self.is(Mistake::FlushWhileTaking);
                if is_given || is_taking || node.office == 0 || !node.has_lease {
                    return None;
                }
                state.budget.flushes = state.budget.flushes.checked_sub(1)?;
                node.flushes += 1;
                node.data.clear();
                node.durable = 0;
                if node.source.is_some() {
                    node.log.push(Effect::Flush);
                }
                if state.group.owner() == Some(at) {
                    state.truth.clear();
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Handles the group, offices and faults.
    fn govern(&self, state: &mut State, step: Step) -> Option<()> {
        match step {
            Step::Commit(request) => commit(state, request)?,
            Step::LoseLease(at) => {
                if !std::mem::take(&mut state.nodes[at].has_lease) {
                    return None;
                }
                state.budget.lost_leases = state.budget.lost_leases.checked_sub(1)?;
            }
            Step::Promote(at) => {
                if state.nodes[at].has_lease {
                    return None;
                }
                state.budget.promotions = state.budget.promotions.checked_sub(1)?;
                state.requests += 1;
                let (term, epoch) = state.group.shard(at);
                let entry = Entry::Promote {
                    shard: SHARDS[at],
                    expected_term: term,
                    expected_epoch: epoch,
                    term: term + 1,
                    primary: NODES[at],
                    end: LogEnd::default(),
                };
                state.group.apply(state.requests, entry);
            }
            Step::Learn(at) => self.learn(state, at)?,
            Step::Grant(at) => {
                let term = state.group.shard(at).0;
                let node = &mut state.nodes[at];
                if node.has_lease || node.office != term {
                    return None;
                }
                node.has_lease = true;
            }
            Step::Restart(at) => self.restart(state, at)?,
            Step::Break(at) => {
                if !state.links[at].is_up {
                    return None;
                }
                state.budget.breaks = state.budget.breaks.checked_sub(1)?;
                state.links[at] = Link::default();
            }
            _ => return None,
        }
        Some(())
    }

    fn restart(&self, state: &mut State, at: usize) -> Option<()> {
        state.budget.restarts = state.budget.restarts.checked_sub(1)?;
        state.nodes[at].restart(at, &self.first);
        if self.is(Mistake::OfficeAgain) {
            state.nodes[at].office = self.first.shard(at).0;
        }
        state.links = Default::default();
        let is_its = |asked: &Ask| match asked {
            Ask::Move(ends) => ends.from.0 == SHARDS[at],
            Ask::EndMoves(node) => *node == at,
        };
        state.asked.retain(|_, asked| {
            asked.is_waited_for &= !is_its(&asked.ask);
            asked.is_waited_for || asked.answer.is_none()
        });
        Some(())
    }

    /// Delivers the newest state to a node; the member's part decides whether that gives it an
    /// office.
    fn learn(&self, state: &mut State, at: usize) -> Option<()> {
        let node = &mut state.nodes[at];
        if node.view.index() == state.group.index() && node.office > 0 {
            return None;
        }
        node.view = state.group.clone();
        let mut member = Member::new(NODES[at], Times::default(), 1, 0);
        let end = LogEnd {
            term: node.log_term,
            sequence: 0,
        };
        member.add_copy(SHARDS[at], node.log_term, end, 0);
        let mut actions = member.on_state(node.view.state()).into_iter();
        let taken = actions.find_map(|action| match action {
            Action::TakeOffice { term, .. } => Some(term),
            _ => None,
        });
        if let Some(term) = taken {
            (node.office, node.log_term, node.has_lease) = (term, term, false);
        }
        Some(())
    }

    /// Handles the end that gets the slot.
    fn take(&self, state: &mut State, step: Step) -> Option<()> {
        match step {
            Step::HearSource(at) => self.hear_source(state, at)?,
            Step::LinkEnds(at) => {
                if state.links[1 - at].is_up {
                    return None;
                }
                match state.nodes[at].taking_in? {
                    TakingIn::Staging { .. } => self.undo(state, at),
                    TakingIn::Handed { .. } if self.is(Mistake::NoEndOfMoves) => {
                        let is_own = moves::is_own(state.group.state(), NODES[at], SLOT);
                        self.settled(state, at, is_own);
                    }
                    TakingIn::Handed { .. } => state.nodes[at].taking_in = Some(TakingIn::Unknown),
                    _ => return None,
                }
            }
            Step::EndMoves(at) => {
                if state.nodes[at].taking_in != Some(TakingIn::Unknown) {
                    return None;
                }
                let request = state.propose(Ask::EndMoves(at));
                state.nodes[at].taking_in = Some(TakingIn::Ending(request));
            }
            Step::Settle(at) => {
                let TakingIn::Ending(request) = state.nodes[at].taking_in? else {
                    return None;
                };
                state.answer(request)?;
                let is_own = moves::is_own(state.group.state(), NODES[at], SLOT);
                self.settled(state, at, is_own);
            }
            // It waits for a limited time until it serves the slot.
            Step::Served(at) => {
                if state.nodes[at].taking_in != Some(TakingIn::Told) {
                    return None;
                }
                self.settled(state, at, true);
            }
            _ => return None,
        }
        Some(())
    }

    fn hear_source(&self, state: &mut State, at: usize) -> Option<()> {
        let message = state.links[1 - at].there.pop_front()?;
        let node = &mut state.nodes[at];
        match message {
            Message::Begin => {
                let nodes = (NODES[1 - at], NODES[at]);
                let may = moves::may_take_in(state.group.state(), nodes, SLOT).is_ok();
                let has_some = !node.data.is_empty() && !self.is(Mistake::StagedIsKept);
                if !may || self.is_claimed(node) || has_some && node.view.owner() == Some(at) {
                    state.links[1 - at] = Link::default();
                    return Some(());
                }
                if has_some {
                    remove(state, at);
                }
                let flushes = state.nodes[at].flushes;
                state.nodes[at].taking_in = Some(TakingIn::Staging { flushes });
                state.links[1 - at].back.push_back(Reply::Ready);
            }
            Message::Copy(copy) => node.data.extend(copy),
            Message::Push(write) => node.data.push(write),
            Message::Mark => match node.taking_in? {
                TakingIn::Staging { flushes } | TakingIn::Handed { flushes }
                    if flushes != node.flushes =>
                {
                    state.links[1 - at] = Link::default();
                    self.undo(state, at);
                }
                TakingIn::Staging { flushes } | TakingIn::Handed { flushes } => {
                    node.is_taking = true;
                    if !self.is(Mistake::DoneBeforeDurable) {
                        node.durable = node.data.len();
                    }
                    node.taking_in = Some(TakingIn::Handed { flushes });
                    state.links[1 - at].back.push_back(Reply::Done);
                }
                _ => return None,
            },
            Message::Moved => node.taking_in = Some(TakingIn::Told),
        }
        Some(())
    }

    fn settled(&self, state: &mut State, at: usize, is_own: bool) {
        match is_own {
            true => {
                let node = &mut state.nodes[at];
                (node.taking_in, node.is_taking) = (None, false);
            }
            false => self.undo(state, at),
        }
    }

    /// Removes what was copied, unless this node owns the slot.
    fn undo(&self, state: &mut State, at: usize) {
        let node = &mut state.nodes[at];
        (node.taking_in, node.is_taking) = (None, false);
        if node.view.owner() != Some(at) {
            remove(state, at);
        }
    }

    /// Removes keys that belong to another node.
    fn clean(&self, state: &mut State, step: Step) -> Option<()> {
        let is_lost =
            |view: &View, at: usize| !moves::lost(view.state(), NODES[at], SLOT).is_empty();
        match step {
            Step::Clean(at) => {
                let node = &state.nodes[at];
                let is_idle =
                    node.source.is_none() && node.remover.is_none() && !self.is_claimed(node);
                if !is_idle || node.data.is_empty() || node.view.owner() == Some(at) {
                    return None;
                }
                state.budget.cleanings = state.budget.cleanings.checked_sub(1)?;
                let known = match self.mistake {
                    Mistake::RemovesByRoutes => Some(is_lost(&node.view, at)),
                    Mistake::CleansWithoutEnd => Some(is_lost(&state.group, at)),
                    _ => None,
                };
                state.nodes[at].remover = Some(match known {
                    Some(is_lost) => Remover::Looked { is_lost },
                    None => Remover::Ending(state.propose(Ask::EndMoves(at))),
                });
            }
            Step::Judge(at) => {
                match state.nodes[at].remover? {
                    Remover::Wanted
                        if !self.is_claimed(&state.nodes[at])
                            || self.is(Mistake::RemovesBesideStaging) => {}
                    Remover::Ending(request) => drop(state.answer(request)?),
                    _ => return None,
                }
                let is_lost = is_lost(&state.group, at);
                state.nodes[at].remover = Some(Remover::Looked { is_lost });
            }
            Step::Remove(at) => {
                let Remover::Looked { is_lost } = state.nodes[at].remover.take()? else {
                    return None;
                };
                if is_lost && state.nodes[at].view.owner() != Some(at) {
                    remove(state, at);
                }
            }
            _ => return None,
        }
        Some(())
    }
}

fn remove(state: &mut State, at: usize) {
    let node = &mut state.nodes[at];
    state.removed_own |= state.group.owner() == Some(at) && !node.data.is_empty();
    node.data.clear();
    node.durable = 0;
}

/// Commits a proposal, however old.
fn commit(state: &mut State, request: u8) -> Option<()> {
    let asked = state.asked.get_mut(&request)?;
    if asked.answer.is_some() {
        return None;
    }
    let entry = match asked.ask {
        Ask::Move(ends) => ends.entry(SLOT),
        Ask::EndMoves(at) => Entry::EndMoves { shard: SHARDS[at] },
    };
    asked.answer = Some(state.group.apply(request, entry) == Applied::Done);
    if !asked.is_waited_for {
        state.asked.remove(&request);
    }
    Some(())
}

impl Model for SlotMoves {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(&self.first, self.budget)]
    }

    /// All conceivable steps: an impossible one changes nothing.
    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        steps.extend(state.asked.keys().map(|request| Step::Commit(*request)));
        for at in 0..2 {
            steps.extend([
                Step::Admit(at),
                Step::Execute(at),
                Step::Flush(at),
                Step::LoseLease(at),
                Step::Promote(at),
                Step::Learn(at),
                Step::Grant(at),
                Step::Restart(at),
                Step::Break(at),
                Step::Begin(at),
                Step::HearTarget(at),
                Step::Cut(at),
                Step::Send(at),
                Step::Pause(at),
                Step::Mark(at),
                Step::MarkIsLate(at),
                Step::Look(at),
                Step::Propose(at),
                Step::HearGroup(at),
                Step::End(at),
                Step::GiveUp(at),
                Step::HearSource(at),
                Step::LinkEnds(at),
                Step::EndMoves(at),
                Step::Settle(at),
                Step::Served(at),
                Step::Clean(at),
                Step::Judge(at),
                Step::Remove(at),
            ]);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Admit(_) | Step::Execute(_) | Step::Flush(_) => self.serve(&mut state, step)?,
            Step::Commit(_)
            | Step::LoseLease(_)
            | Step::Promote(_)
            | Step::Learn(_)
            | Step::Grant(_)
            | Step::Restart(_)
            | Step::Break(_) => self.govern(&mut state, step)?,
            Step::HearSource(_)
            | Step::LinkEnds(_)
            | Step::EndMoves(_)
            | Step::Settle(_)
            | Step::Served(_) => self.take(&mut state, step)?,
            Step::Clean(_) | Step::Judge(_) | Step::Remove(_) => self.clean(&mut state, step)?,
            _ => self.give(&mut state, step)?,
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one node serves", |model: &Self, state: &State| {
                let is_owner = |at: usize| state.group.owner() == Some(at);
                (0..2).all(|at| !model.shows(state, at) || is_owner(at)) && !state.written_elsewhere
            }),
            Property::always(
                "what was acknowledged is there once",
                |model: &Self, state: &State| {
                    (0..2).all(|at| !model.shows(state, at) || state.nodes[at].data == state.truth)
                },
            ),
            Property::always("nobody removes its own", |_, state: &State| {
                !state.removed_own
            }),
            Property::sometimes("it moves, and is written", |model: &Self, state: &State| {
                model.shows(state, 1) && state.truth.len() > 1
            }),
        ]
    }
}
