//! The state of the model: nodes with logs, and two shards as the control group sees them.

use std::collections::BTreeSet;

pub(crate) const NODES: usize = 6;
/// The primary of the shard that needs a copy, the member lost there, the member that changes over,
/// the primary of the giving shard, another member there, and one more member if the needing shard
/// has an odd number.
pub(crate) const PRIMARY: usize = 0;
pub(crate) const LOST: usize = 1;
pub(crate) const SPARE: usize = 2;
pub(crate) const GIVER: usize = 3;
pub(crate) const OTHER: usize = 4;
pub(crate) const THIRD: usize = 5;

pub(crate) const SHARDS: usize = 2;
pub(crate) const NEEDS: usize = 0;
pub(crate) const GIVES: usize = 1;

pub(crate) type Frame = (u8, u8);
type Set = BTreeSet<usize>;
type Sets = (Set, Option<Set>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    /// The shard of its log.
    pub(crate) of: usize,
    pub(crate) log: Vec<Frame>,
    pub(crate) seal: u8,
    pub(crate) office: u8,
    /// What the other nodes have acknowledged to it in this office.
    pub(crate) acked: [u8; NODES],
    /// The newest control state that it has applied.
    pub(crate) epoch: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Shard {
    pub(crate) term: u8,
    /// The last entry about the shard.
    pub(crate) epoch: u8,
    pub(crate) primary: usize,
    pub(crate) promised: u8,
    pub(crate) members: Set,
    pub(crate) old: Option<Set>,
    /// What the primary had when it knew of the change.
    pub(crate) wanted: Option<u8>,
    /// The term and epoch of the present seal, and the answers.
    pub(crate) sealing: Option<(u8, u8)>,
    pub(crate) answers: [Option<Frame>; NODES],
    pub(crate) answered: Vec<Frame>,
    pub(crate) answered_term: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) nodes: Vec<Node>,
    pub(crate) shards: [Shard; SHARDS],
    /// Nodes that reach no other node.
    pub(crate) cut: Set,
    /// Members and old members of both shards after each entry.
    pub(crate) history: Vec<[Sets; SHARDS]>,
    /// The epochs for which the entry was proposed.
    pub(crate) proposed: Option<[u8; SHARDS]>,
    pub(crate) is_taken: bool,
    pub(crate) is_narrowed: bool,
    pub(crate) writes: [u8; SHARDS],
    pub(crate) restarts: u8,
}

pub(crate) fn end(log: &[Frame]) -> u8 {
    u8::try_from(log.len()).unwrap_or(u8::MAX)
}

fn quorum_of(set: &Set) -> usize {
    set.len() / 2 + 1
}

impl State {
    pub(crate) fn is_linked(&self, a: usize, b: usize) -> bool {
        !self.cut.contains(&a) && !self.cut.contains(&b)
    }

    /// Returns the index of the newest entry.
    pub(crate) fn index(&self) -> u8 {
        u8::try_from(self.history.len() - 1).unwrap_or(u8::MAX)
    }

    /// Records the present members.
    pub(crate) fn note(&mut self) {
        let sets = |shard: &Shard| (shard.members.clone(), shard.old.clone());
        self.history
            .push([NEEDS, GIVES].map(|id| sets(&self.shards[id])));
    }

    /// Notes that an entry has changed these shards.
    pub(crate) fn changed(&mut self, ids: &[usize]) {
        self.note();
        let index = self.index();
        for id in ids {
            self.shards[*id].epoch = index;
        }
    }

    /// Returns up to where a quorum of each set has a primary's log, by their acknowledgements.
    pub(crate) fn on_quorum(&self, at: usize, members: &Set, old: Option<&Set>) -> u8 {
        let node = &self.nodes[at];
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
        sets.map(of_set).min().unwrap_or(0)
    }

    /// Returns up to where a primary counts its log as committed, by the members that it knows.
    pub(crate) fn committed(&self, at: usize) -> u8 {
        let node = &self.nodes[at];
        let (members, old) = &self.history[usize::from(node.epoch)][node.of];
        let committed = self.on_quorum(at, members, old.as_ref());
        let own = node.log.iter().position(|frame| *frame == (node.office, 0));
        match own {
            Some(own) if usize::from(committed) > own => committed,
            _ => 0,
        }
    }

    /// Whether enough members have answered a seal, by the membership at its epoch.
    fn suffices(&self, id: usize, epoch: u8) -> bool {
        let shard = &self.shards[id];
        let (members, old) = &self.history[usize::from(epoch)][id];
        let of_set = |set: &Set| {
            let answered = set.iter().filter(|node| shard.answers[**node].is_some());
            answered.count() > set.len() - quorum_of(set)
        };
        of_set(members) && old.as_ref().is_none_or(of_set)
    }

    pub(crate) fn everybody(&self, id: usize) -> Set {
        let shard = &self.shards[id];
        let old = shard.old.iter().flatten();
        shard.members.iter().chain(old).copied().collect()
    }

    /// Returns the member that has most, or `None` if a former member has more.
    pub(crate) fn chosen(&self, id: usize, is_checked: bool) -> Option<usize> {
        let shard = &self.shards[id];
        let (_, epoch) = shard.sealing?;
        let is_other = is_checked && epoch != shard.epoch;
        if is_other || !self.suffices(id, epoch) {
            return None;
        }
        let candidates = shard.members.iter().copied();
        let best = candidates
            .filter(|node| shard.answers[*node].is_some())
            .max_by_key(|node| (shard.answers[*node], std::cmp::Reverse(*node)))?;
        (shard.answers[best] == shard.answers.iter().max().copied()?).then_some(best)
    }

    /// Whether the primary of a shard is in office in the present term.
    pub(crate) fn is_in_office(&self, id: usize) -> bool {
        let shard = &self.shards[id];
        let node = &self.nodes[shard.primary];
        node.of == id && node.office > 0 && node.office == shard.term
    }

    /// Delivers the newest entry to a node. It learns members and term together: a former primary
    /// does not count the new members.
    pub(crate) fn learn(&mut self, at: usize, leaves_office: bool) {
        let index = self.index();
        let node = &mut self.nodes[at];
        node.epoch = index;
        if leaves_office && node.office < self.shards[node.of].term {
            node.office = 0;
        }
        let node = &self.nodes[at];
        let shard = &mut self.shards[node.of];
        if at == shard.primary && node.office > 0 && shard.old.is_some() && shard.wanted.is_none() {
            shard.wanted = Some(end(&node.log));
        }
    }

    /// Extends another node's log by one frame, or rewinds it to the common part, and acknowledges
    /// that.
    pub(crate) fn copy(&mut self, from: usize, to: usize) -> Option<()> {
        let (term, log) = (self.nodes[from].office, self.nodes[from].log.clone());
        let node = &mut self.nodes[to];
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
        let acked = &mut self.nodes[from].acked[to];
        *acked = (*acked).max(end);
        Some(())
    }
}
