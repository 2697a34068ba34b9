//! The end that gives the slot: the steps of `server`'s `migration::source`.

use std::collections::VecDeque;

use cluster::moves::{self, Outset};

use crate::state::{
    Ask, Effect, Leaving, Link, Message, NODES, Remover, Reply, SLOT, Source, Stage, State,
};
use crate::steps::{Mistake, SlotMoves, Step};

impl SlotMoves {
    pub(crate) fn give(&self, state: &mut State, step: Step) -> Option<()> {
        match step {
            Step::Begin(at) => self.begin(state, at),
            Step::GiveUp(at) => self.give_up(state, at),
            Step::HearTarget(at) => self.hear_target(state, at),
            Step::Cut(at) => self.cut(state, at),
            Step::Send(at) => send(state, at),
            Step::Pause(at) => self.pause(state, at),
            Step::Mark(at) => self.mark(state, at),
            Step::MarkIsLate(at) => mark_is_late(state, at),
            Step::Look(at) => self.look(state, at),
            Step::Propose(at) => self.propose(state, at),
            Step::HearGroup(at) => hear_group(state, at),
            Step::End(at) => self.end(state, at),
            _ => None,
        }
    }

    fn begin(&self, state: &mut State, at: usize) -> Option<()> {
        let node = &state.nodes[at];
        if node.source.is_some() || node.remover.is_some() || node.view.owner() != Some(at) {
            return None;
        }
        state.budget.attempts = state.budget.attempts.checked_sub(1)?;
        let nodes = (NODES[at], NODES[1 - at]);
        let office = self.office(state, at);
        let ends = match moves::begin(state.group.state(), nodes, office, SLOT).ok()? {
            Outset::Begin(ends) => ends,
            Outset::Done => {
                state.nodes[at].remover = Some(Remover::Wanted);
                return Some(());
            }
            Outset::NotInOffice => return None,
        };
        state.nodes[at].source = Some(Source {
            stage: Stage::Begun,
            ends,
            sent: 0,
            flushes: 0,
        });
        state.links[at] = Link {
            is_up: true,
            there: VecDeque::from([Message::Begin]),
            back: VecDeque::new(),
        };
        Some(())
    }

    /// Handles the end of the link, or the cancellation of the job.
    fn give_up(&self, state: &mut State, at: usize) -> Option<()> {
        let is_final = match state.nodes[at].source?.stage {
            Stage::Proposed(_) => !self.is(Mistake::AnswerNotAwaited),
            Stage::Moved => true,
            _ => false,
        };
        if is_final {
            return None;
        }
        if state.links[at].is_up {
            state.budget.breaks = state.budget.breaks.checked_sub(1)?;
        }
        give_up(state, at);
        Some(())
    }

    fn hear_target(&self, state: &mut State, at: usize) -> Option<()> {
        let reply = state.links[at].back.pop_front()?;
        let node = &mut state.nodes[at];
        let source = node.source.as_mut()?;
        source.stage = match (reply, source.stage) {
            // Waits for requests that looked at the slots before.
            (Reply::Ready, Stage::Begun) if node.admitted.is_none() => {
                node.log.clear();
                Stage::Copying
            }
            (Reply::Done, Stage::Marked) => {
                if !self.is(Mistake::ReadsGoOn) && !self.is(Mistake::WritesGoOn) {
                    node.leaving = Leaving::All;
                }
                Stage::Given
            }
            (Reply::Done, Stage::Late) => Stage::CatchingUp,
            _ => return None,
        };
        Some(())
    }

    fn cut(&self, state: &mut State, at: usize) -> Option<()> {
        let node = &mut state.nodes[at];
        let source = at_stage(&mut node.source, Stage::Copying)?;
        if !state.links[at].is_up {
            return None;
        }
        let copy = Message::Copy(node.data.clone());
        state.links[at].there.push_back(copy);
        source.stage = Stage::CatchingUp;
        if !self.is(Mistake::GenerationNotLookedAt) {
            source.sent = node.log.len();
        }
        Some(())
    }

    fn pause(&self, state: &mut State, at: usize) -> Option<()> {
        let node = &mut state.nodes[at];
        at_stage(&mut node.source, Stage::CatchingUp)?.stage = Stage::Pausing;
        if !self.is(Mistake::WritesGoOn) {
            node.leaving = Leaving::Writes;
        }
        Some(())
    }

    fn mark(&self, state: &mut State, at: usize) -> Option<()> {
        let (node, link) = (&mut state.nodes[at], &mut state.links[at]);
        let source = at_stage(&mut node.source, Stage::Pausing)?;
        let is_awaited = node.admitted.is_some() && !self.is(Mistake::WriterNotAwaited);
        if is_awaited || !link.is_up {
            return None;
        }
        let rest = node.log.get(source.sent..)?;
        if rest.contains(&Effect::Flush) {
            give_up(state, at);
            return Some(());
        }
        let pushed = rest.iter().filter_map(|effect| match effect {
            Effect::Push(write) => Some(Message::Push(*write)),
            Effect::Flush => None,
        });
        if !self.is(Mistake::RestNotSent) {
            link.there.extend(pushed);
        }
        link.there.push_back(Message::Mark);
        source.sent = node.log.len();
        source.flushes = node.flushes;
        source.stage = Stage::Marked;
        Some(())
    }

    fn look(&self, state: &mut State, at: usize) -> Option<()> {
        let node = &mut state.nodes[at];
        let source = at_stage(&mut node.source, Stage::Given)?;
        if node.flushes != source.flushes && !self.is(Mistake::NoLookAtFlushes) {
            give_up(state, at);
            return Some(());
        }
        source.stage = Stage::Looked;
        Some(())
    }

    fn propose(&self, state: &mut State, at: usize) -> Option<()> {
        let mut ends = at_stage(&mut state.nodes[at].source, Stage::Looked)?.ends;
        if self.is(Mistake::EndsOfProposal) {
            let nodes = (NODES[at], NODES[1 - at]);
            let term = state.group.shard(at).0;
            let outset = moves::begin(state.group.state(), nodes, term, SLOT).ok()?;
            let Outset::Begin(newest) = outset else {
                return None;
            };
            ends = newest;
        }
        let stage = Stage::Proposed(state.propose(Ask::Move(ends)));
        state.nodes[at].source.as_mut()?.stage = stage;
        Some(())
    }

    fn end(&self, state: &mut State, at: usize) -> Option<()> {
        let node = &mut state.nodes[at];
        at_stage(&mut node.source, Stage::Moved)?;
        if node.view.owner() == Some(at) && !self.is(Mistake::RoutesNotAwaited) {
            return None;
        }
        node.leaving = Leaving::Nothing;
        node.log.clear();
        node.source = None;
        node.remover = Some(Remover::Wanted);
        Some(())
    }
}

fn at_stage(source: &mut Option<Source>, stage: Stage) -> Option<&mut Source> {
    source.as_mut().filter(|source| source.stage == stage)
}

fn send(state: &mut State, at: usize) -> Option<()> {
    let (node, link) = (&mut state.nodes[at], &mut state.links[at]);
    let source = at_stage(&mut node.source, Stage::CatchingUp)?;
    if !link.is_up {
        return None;
    }
    match node.log.get(source.sent)? {
        Effect::Push(write) => {
            link.there.push_back(Message::Push(*write));
            source.sent += 1;
        }
        Effect::Flush => give_up(state, at),
    }
    Some(())
}

/// Handles an answer to the mark that takes too long: writes continue until it comes.
fn mark_is_late(state: &mut State, at: usize) -> Option<()> {
    let node = &mut state.nodes[at];
    let source = at_stage(&mut node.source, Stage::Marked)?;
    state.budget.late_marks = state.budget.late_marks.checked_sub(1)?;
    source.stage = Stage::Late;
    node.leaving = Leaving::Nothing;
    Some(())
}

fn hear_group(state: &mut State, at: usize) -> Option<()> {
    let Stage::Proposed(request) = state.nodes[at].source?.stage else {
        return None;
    };
    if !state.answer(request)? {
        give_up(state, at);
        return Some(());
    }
    if state.links[at].is_up {
        state.links[at].there.push_back(Message::Moved);
    }
    state.nodes[at].source.as_mut()?.stage = Stage::Moved;
    Some(())
}

/// Ends a source's attempt: all waiting requests continue.
fn give_up(state: &mut State, at: usize) {
    let node = &mut state.nodes[at];
    node.leaving = Leaving::Nothing;
    node.log.clear();
    if let Some(Source {
        stage: Stage::Proposed(request),
        ..
    }) = node.source.take()
        && let Some(asked) = state.asked.get_mut(&request)
    {
        asked.is_waited_for = false;
    }
    state.links[at] = Link::default();
}
