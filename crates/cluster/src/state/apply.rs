//! Application of one entry to the state.

use super::{
    Applied, ControlState, CopyKind, FEATURE_LEVEL, FIRST_RAFT_ID, LEVEL_OF_GROWING, Node, NodeId,
    NodeRecord, REQUESTS_MAX, Shard, ShardId, Versioned, roles,
};
use crate::entry::{Entry, Proposal, ShardChange, SlotRange};
use crate::planted::{Bug, is_on};

impl ControlState {
    /// Applies the entry at an index, with the same result on every node.
    pub fn apply(&mut self, index: u64, proposal: &Proposal) -> Applied {
        self.index = index;
        let known = |(request, _): &&(_, _)| *request == proposal.request;
        if let Some((_, applied)) = self.requests.iter().find(known) {
            return *applied;
        }
        let applied = if proposal.entry.is_within_limits() {
            self.change(index, &proposal.entry)
        } else {
            Applied::Refused
        };
        if self.requests.len() == REQUESTS_MAX {
            self.requests.pop_front();
        }
        self.requests.push_back((proposal.request, applied));
        applied
    }

    fn change(&mut self, index: u64, entry: &Entry) -> Applied {
        match entry {
            Entry::Join { node, record } => self.join(index, *node, record),
            Entry::Leave { node } => self.leave(index, *node),
            Entry::Node { node, record } => match self.nodes.get_mut(node) {
                Some(known) if known.record.start_count <= record.start_count => {
                    known.record = record.clone();
                    Applied::Done
                }
                _ => Applied::Refused,
            },
            Entry::NodeState { node, is_failed } => match self.nodes.get_mut(node) {
                Some(known) => {
                    known.is_failed = *is_failed;
                    Applied::Done
                }
                None => Applied::Refused,
            },
            Entry::Drain { node, drain } => match self.nodes.get_mut(node) {
                Some(known) => {
                    known.drain = *drain;
                    Applied::Done
                }
                None => Applied::Refused,
            },
            Entry::Shard {
                shard,
                expected_epoch,
                change,
            } => self.change_shard(index, *shard, *expected_epoch, change),
            Entry::Promote { .. } => self.promote(index, entry),
            Entry::Document { .. } | Entry::Secret { .. } => self.write(index, entry),
            Entry::FeatureLevel { level } => {
                let is_known = |node: &Node| node.record.feature_level >= *level;
                if *level > FEATURE_LEVEL || !self.nodes.values().all(is_known) {
                    return Applied::Refused;
                }
                self.feature_level = self.feature_level.max(*level);
                Applied::Done
            }
            Entry::Slots {
                ranges,
                expected,
                owner,
            } => self.give_slots(index, ranges, (*expected, *owner)),
            Entry::Move { ranges, from, to } => self.move_slots(index, ranges, *from, *to),
            Entry::EndMoves { shard } => match self.shards.get_mut(shard) {
                Some(shard) => {
                    shard.epoch = index;
                    Applied::Done
                }
                None => Applied::Refused,
            },
            Entry::Incarnation { incarnation } => {
                if *incarnation <= self.incarnation {
                    return Applied::Stale;
                }
                self.incarnation = *incarnation;
                Applied::Done
            }
        }
    }

    /// Writes a document or the secret, if it has the expected version.
    fn write(&mut self, index: u64, entry: &Entry) -> Applied {
        match entry {
            Entry::Document {
                kind,
                name,
                expected_version,
                body,
            } => {
                let key = (*kind, name.clone());
                let version = self.documents.get(&key).map_or(0, |known| known.version);
                if version != *expected_version {
                    return Applied::Stale;
                }
                match body {
                    Some(body) => {
                        let body = body.clone();
                        let version = index;
                        self.documents.insert(key, Versioned { version, body });
                    }
                    None => drop(self.documents.remove(&key)),
                }
                Applied::Done
            }
            Entry::Secret {
                expected_version,
                body,
            } => {
                if self.secret.version != *expected_version {
                    return Applied::Stale;
                }
                self.secret = Versioned {
                    version: index,
                    body: body.clone(),
                };
                Applied::Done
            }
            _ => Applied::Refused,
        }
    }

    /// Gives hash slots another owner, if all of them have the expected one. Both shards get a new
    /// epoch.
    fn give_slots(
        &mut self,
        index: u64,
        ranges: &[SlotRange],
        (expected, owner): (Option<ShardId>, Option<ShardId>),
    ) -> Applied {
        let is_known =
            |shard: &Option<ShardId>| shard.is_none_or(|shard| self.shards.contains_key(&shard));
        if ranges.is_empty() || ![expected, owner].iter().all(is_known) {
            return Applied::Refused;
        }
        if !ranges
            .iter()
            .all(|range| self.slots.are_of(*range, expected))
        {
            return Applied::Stale;
        }
        for range in ranges {
            self.slots.set(*range, owner);
        }
        for shard in [expected, owner].into_iter().flatten() {
            if let Some(shard) = self.shards.get_mut(&shard) {
                shard.epoch = index;
            }
        }
        Applied::Done
    }

    /// Moves hash slots from one shard to another, if both are unchanged.
    fn move_slots(
        &mut self,
        index: u64,
        ranges: &[SlotRange],
        from: (ShardId, u64),
        to: (ShardId, u64),
    ) -> Applied {
        let is_same = |(shard, epoch): (ShardId, u64)| {
            let known = self.shards.get(&shard);
            known.is_some_and(|shard| shard.epoch == epoch)
        };
        if from.0 == to.0 {
            return Applied::Refused;
        }
        if !is_same(from) || !is_same(to) {
            return Applied::Stale;
        }
        self.give_slots(index, ranges, (Some(from.0), Some(to.0)))
    }

    fn join(&mut self, index: u64, node: NodeId, record: &NodeRecord) -> Applied {
        let is_too_old = record.feature_level < self.feature_level;
        let has_data = record.roles & roles::DATA != 0;
        let is_cluster = record.roles & roles::CLUSTER != 0;
        let is_other_mode = has_data && self.is_cluster().is_some_and(|one| one != is_cluster);
        if self.nodes.contains_key(&node) || is_too_old || is_other_mode {
            return Applied::Refused;
        }
        // The founder of a group needs its id before there is an entry.
        let raft_id = match self.nodes.is_empty() {
            true => FIRST_RAFT_ID,
            false => index,
        };
        let joined = Node {
            raft_id,
            record: record.clone(),
            ..Node::default()
        };
        self.nodes.insert(node, joined);
        Applied::Done
    }

    /// Removes a node with its copies, and with the shard that it forms alone if that owns no
    /// slots. Refuses any other primary, and a member that a majority may need: that one is removed
    /// from its shard first, in two steps.
    fn leave(&mut self, index: u64, node: NodeId) -> Applied {
        if !self.nodes.contains_key(&node) {
            return Applied::Stale;
        }
        if let Some(own) = self.empty_shard_of(node) {
            self.shards.remove(&own);
            let _left = self.nodes.remove(&node);
            return Applied::Done;
        }
        let is_member = |shard: &&mut Shard| shard.everybody().contains(&node);
        let mut shards: Vec<&mut Shard> = self.shards.values_mut().filter(is_member).collect();
        let is_needed = |shard: &&mut Shard| {
            shard.primary == node || shard.is_quorum || shard.old_members.is_some()
        };
        if shards.iter().any(is_needed) {
            return Applied::Refused;
        }
        for shard in &mut shards {
            let _copy = shard.members.remove(&node);
            shard.epoch = index;
        }
        let _left = self.nodes.remove(&node);
        Applied::Done
    }

    fn change_shard(
        &mut self,
        index: u64,
        id: ShardId,
        expected_epoch: u64,
        change: &ShardChange,
    ) -> Applied {
        if let ShardChange::Create {
            primary,
            end,
            is_quorum,
        } = change
        {
            let has_one = self.shard_of(*primary).is_some();
            if self.shards.contains_key(&id) || has_one || !self.nodes.contains_key(primary) {
                return Applied::Refused;
            }
            let shard = Shard {
                term: end.term + 1,
                epoch: index,
                primary: *primary,
                promised: *end,
                members: [(*primary, CopyKind::Data)].into(),
                old_members: None,
                is_quorum: *is_quorum,
            };
            self.shards.insert(id, shard);
            return Applied::Done;
        }
        if let ShardChange::Add { node, .. } = change
            && !self.may_move(*node, id)
        {
            return Applied::Refused;
        }
        let grows_at_once = self.feature_level >= LEVEL_OF_GROWING;
        let Some(shard) = self.shards.get_mut(&id) else {
            return Applied::Refused;
        };
        if shard.epoch != expected_epoch {
            return Applied::Stale;
        }
        let changed = match change {
            ShardChange::Add { node, kind } => {
                let may_be_added = shard.may_be_added(*kind) && self.nodes.contains_key(node);
                may_be_added && add(shard, *node, *kind, grows_at_once)
            }
            ShardChange::Remove { node } => {
                let may_be_removed = *node != shard.primary && shard.may_be_removed(*node);
                may_be_removed && begin_change(shard, |members| members.remove(node).is_some())
            }
            ShardChange::Finish => shard.old_members.take().is_some(),
            ShardChange::SetQuorum { is_quorum } => {
                let is_new = shard.is_quorum != *is_quorum;
                shard.is_quorum = *is_quorum;
                is_new
            }
            ShardChange::Create { .. } => false,
        };
        if !changed {
            return Applied::Refused;
        }
        shard.epoch = index;
        if let ShardChange::Add { node, .. } = change {
            self.leave_others(index, *node, id);
        }
        Applied::Done
    }

    /// Returns the shard of which a node is the only member, if the shard owns no hash slot.
    #[must_use]
    pub fn empty_shard_of(&self, node: NodeId) -> Option<ShardId> {
        let id = self.shard_of(node)?;
        let shard = self.shards.get(&id)?;
        let is_alone = shard.everybody().len() == 1;
        let is_of_cluster = self.is_cluster() == Some(true);
        (is_alone && is_of_cluster && self.slots.of(id).is_empty()).then_some(id)
    }

    /// Whether a node may have a copy of a shard in place of its present one: that one is empty, or
    /// is a replica that no shard needs.
    fn may_move(&self, node: NodeId, to: ShardId) -> bool {
        let Some(from) = self.shard_of(node).filter(|from| *from != to) else {
            return true;
        };
        let is_replica = self.shards.get(&from).is_some_and(|shard| {
            shard.primary != node && !shard.is_quorum && shard.old_members.is_none()
        });
        is_replica || self.empty_shard_of(node).is_some()
    }

    /// Makes this shard the only one of which a node has a copy.
    fn leave_others(&mut self, index: u64, node: NodeId, to: ShardId) {
        if let Some(empty) = self.shards.iter().find_map(|(id, shard)| {
            let is_its = *id != to && shard.primary == node && shard.members.len() == 1;
            is_its.then_some(*id)
        }) {
            self.shards.remove(&empty);
        }
        let others = self.shards.iter_mut().filter(|(id, _)| **id != to);
        for (_, shard) in others {
            if shard.members.remove(&node).is_some() {
                shard.epoch = index;
            }
        }
    }

    fn promote(&mut self, index: u64, entry: &Entry) -> Applied {
        let Entry::Promote {
            shard,
            expected_term,
            expected_epoch,
            term,
            primary,
            end,
        } = entry
        else {
            return Applied::Refused;
        };
        let Some(shard) = self.shards.get_mut(shard) else {
            return Applied::Refused;
        };
        let is_expected = shard.term == *expected_term && shard.epoch == *expected_epoch;
        if !is_expected && !is_on(Bug::ApplyUnchecked) {
            return Applied::Stale;
        }
        if *term <= shard.term && !is_on(Bug::ApplyUnchecked)
            || !shard.members.contains_key(primary)
        {
            return Applied::Refused;
        }
        shard.term = *term;
        shard.epoch = index;
        shard.primary = *primary;
        shard.promised = *end;
        Applied::Done
    }
}

/// Adds a copy. Returns whether the members have changed. For an even number that is all; otherwise
/// a change begins, if none is in progress.
///
/// A committed frame is on `n / 2 + 1` of an even number `n` of copies, and a seal of `n + 1`
/// copies has as many answers: one of them has the frame, so the old members need not agree, and
/// may be lost. With an odd number the frame may be exactly on the copies that did not answer.
fn add(shard: &mut Shard, node: NodeId, kind: CopyKind, grows_at_once: bool) -> bool {
    let is_at_once = grows_at_once && shard.is_quorum && shard.members.len().is_multiple_of(2);
    let has_begun = begin_change(shard, |members| members.insert(node, kind).is_none());
    if has_begun && is_at_once {
        shard.old_members = None;
    }
    has_begun
}

/// Begins a change of the members. Returns whether it is a change and none was in progress.
fn begin_change(
    shard: &mut Shard,
    change: impl FnOnce(&mut std::collections::BTreeMap<NodeId, CopyKind>) -> bool,
) -> bool {
    if shard.old_members.is_some() {
        return false;
    }
    let before = shard.members.clone();
    if !change(&mut shard.members) {
        return false;
    }
    shard.old_members = Some(before);
    true
}
