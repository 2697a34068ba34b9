//! A member's part: heartbeats, its lease, its seal, and how it comes into office.
//!
//! ```text
//!   follows ── state names it, log ends as promised ──► taking ── term frame durable ──► in office
//!      ▲                                                                                   │
//!      └──────────── seal of a later term, or the state names another ─────────────────────┘
//! ```
//!
//! Whoever performs the actions keeps the order: a seal and the log below it are durable before [`Member::on_sealed`], and
//! a term frame before [`Member::on_office`].
//!
//! Invariant: a lease is counted from when the heartbeat was sent that it was granted for.

use std::collections::{BTreeMap, VecDeque};

use crate::leader_lease::{Acknowledged, Reign};
use crate::message::{CopyStatus, Fetch, Heartbeat, HeartbeatReply, Seal, SealAnswer};
use crate::planted::{Bug, is_on};
use crate::state::{ControlState, Drain, LEVEL_OF_TIMES, LogEnd, NodeId, ShardId};
use crate::times::Times;

/// So many heartbeats may be answered late.
const SENT_MAX: usize = 64;

/// What a member asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A heartbeat to every voter.
    Heartbeat(Heartbeat),
    /// To make a seal durable, with the log as it is; then [`Member::on_sealed`]. Nothing of older terms is taken any more.
    Seal(Seal),
    /// The answer to the leader.
    Answer(SealAnswer),
    /// To get what another member's log has more than the own one; then [`Member::on_fetched`].
    Fetch(Fetch),
    /// To write the frame of this term and make it durable; then [`Member::on_office`].
    TakeOffice {
        /// Of which shard.
        shard: ShardId,
        /// Which term.
        term: u64,
    },
    /// To follow somebody.
    Follow {
        /// In which shard.
        shard: ShardId,
        /// In which term.
        term: u64,
        /// Whom.
        primary: NodeId,
    },
    /// It is primary no more, and nobody is just now: no write and no reply.
    LeaveOffice {
        /// Of which shard.
        shard: ShardId,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Copy {
    seal: u64,
    office: u64,
    taking: u64,
    /// The newest term that the state was seen to have.
    seen: u64,
    lease_until_ms: u64,
    end: LogEnd,
    applied: u64,
    /// The newest term in which it followed a primary, or was one, since it was started.
    lived: u64,
    /// The seal that is being made durable.
    sealing: Option<Seal>,
    /// The newest term whose office it has left.
    left: u64,
    /// Nothing of the shard is here yet.
    is_blank: bool,
    /// Where the log begins, of a copy of the log alone.
    begins: Option<u64>,
}

/// See the module. One for each node.
#[derive(Debug)]
pub struct Member {
    id: NodeId,
    times: Times,
    start_count: u64,
    /// Does not want to be promoted (`cluster-replica-no-failover`, or it is about to stop).
    declines: bool,
    /// An operator does not want it to be.
    is_drained: bool,
    number: u64,
    sent: VecDeque<(u64, u64)>,
    beat_ms: Option<u64>,
    index: u64,
    copies: BTreeMap<ShardId, Copy>,
    /// It has left the office of that shard so that this member takes it.
    hands_over: Option<(ShardId, NodeId)>,
    acknowledged: Acknowledged,
    /// All nodes know heartbeats with a time.
    tells_time: bool,
    /// What the leader says of this node's clock.
    drift_ppm: i64,
    /// For how long a lease counts at the leader, as that says.
    granted_ms: Option<u64>,
}

impl Member {
    /// A node that was just started.
    #[must_use]
    pub fn new(id: NodeId, times: Times, start_count: u64, now_ms: u64) -> Self {
        Self {
            id,
            times,
            start_count,
            declines: false,
            is_drained: false,
            number: 0,
            sent: VecDeque::new(),
            beat_ms: None,
            index: 0,
            copies: BTreeMap::new(),
            hands_over: None,
            acknowledged: Acknowledged::new(now_ms),
            tells_time: false,
            drift_ppm: 0,
            granted_ms: None,
        }
    }

    /// This node, as a voter, acknowledges a leader of the control log, or leads.
    pub fn note_acknowledged(&mut self, reign: Reign, now_ms: u64) {
        self.acknowledged.note(reign, now_ms);
    }

    /// All times are other ones from now on. A lease that would count longer than one by those ends earlier.
    pub fn set_times(&mut self, times: Times, now_ms: u64) {
        self.times = times;
        let until_ms = now_ms + times.held_lease_ms(None);
        for copy in self.copies.values_mut() {
            copy.lease_until_ms = copy.lease_until_ms.min(until_ms);
        }
    }

    /// Whether it does not want to be promoted.
    pub fn set_declines(&mut self, declines: bool) {
        self.declines = declines;
    }

    /// A copy that it has, as it was found at the start: the seal on its disk, and where its log ends.
    pub fn add_copy(&mut self, shard: ShardId, seal: u64, end: LogEnd, applied: u64) {
        let copy = Copy {
            seal: seal.max(end.term),
            end,
            applied,
            ..Copy::default()
        };
        self.copies.insert(shard, copy);
    }

    /// The log goes on, or was truncated.
    pub fn note_log(&mut self, shard: ShardId, end: LogEnd, applied: u64) {
        if let Some(copy) = self.copies.get_mut(&shard) {
            (copy.end, copy.applied) = (end, applied);
        }
    }

    /// This is a copy of the log alone, which begins there.
    pub fn note_begins(&mut self, shard: ShardId, begins: u64) {
        if let Some(copy) = self.copies.get_mut(&shard) {
            copy.begins = Some(begins);
        }
    }

    /// Whether frames of a primary of this term may be taken. Asked under the lock of the append.
    pub fn accept(&mut self, shard: ShardId, term: u64) -> bool {
        let Some(copy) = self.copies.get_mut(&shard) else {
            return false;
        };
        let is_sealed_out = copy.seal > term;
        if is_sealed_out {
            return false;
        }
        if copy.office < term {
            leave(copy);
        }
        copy.seal = term;
        copy.lived = copy.lived.max(term);
        true
    }

    /// Whether a write may begin, and a reply leave.
    #[must_use]
    pub fn holds_lease(&self, shard: ShardId, now_ms: u64) -> bool {
        let copy = self.copies.get(&shard);
        copy.is_some_and(|copy| copy.office > 0 && now_ms < copy.lease_until_ms)
    }

    /// The term in which it is primary.
    #[must_use]
    pub fn office(&self, shard: ShardId) -> Option<u64> {
        let copy = self.copies.get(&shard)?;
        (copy.office > 0).then_some(copy.office)
    }

    /// Until when the lease stands, by the clock of this node.
    #[must_use]
    pub fn lease_until_ms(&self, shard: ShardId) -> u64 {
        self.copies
            .get(&shard)
            .map_or(0, |copy| copy.lease_until_ms)
    }

    /// Time has passed.
    pub fn on_tick(&mut self, now_ms: u64) -> Vec<Action> {
        let is_due = |at_ms| now_ms.saturating_sub(at_ms) >= self.times.heartbeat_ms;
        if !self.beat_ms.is_none_or(is_due) {
            return Vec::new();
        }
        self.beat_ms = Some(now_ms);
        self.number += 1;
        if self.sent.len() == SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((self.number, now_ms));
        let copies = self.copies.iter().map(|(shard, copy)| CopyStatus {
            shard: *shard,
            seal: copy.seal,
            office: told_office(copy),
            taking: copy.taking,
            end: copy.end,
            applied: copy.applied,
            left: copy.left,
        });
        vec![Action::Heartbeat(Heartbeat {
            node: self.id,
            number: self.number,
            start_count: self.start_count,
            index: self.index,
            copies: copies.collect(),
            acknowledged: self.acknowledged.report(now_ms),
            sent_ms: self.tells_time.then_some(now_ms),
        })]
    }

    /// The leader has answered a heartbeat.
    pub fn on_reply(&mut self, now_ms: u64, reply: &HeartbeatReply) {
        let sent = self.sent.iter().find(|(number, _)| *number == reply.number);
        let Some((_, sent_ms)) = sent.copied() else {
            return;
        };
        self.drift_ppm = reply.drift_ppm.unwrap_or(0);
        self.granted_ms = reply.lease_ms;
        let held_ms = self.times.held_lease_ms(reply.lease_ms);
        for (shard, term) in &reply.leases {
            let Some(copy) = self.copies.get_mut(shard) else {
                continue;
            };
            if copy.office != *term || copy.seal > *term {
                continue;
            }
            let until_ms = match is_on(Bug::LeaseFromReceipt) {
                true => now_ms + self.times.granted_lease_ms(),
                false => sent_ms + held_ms,
            };
            copy.lease_until_ms = copy.lease_until_ms.max(until_ms);
        }
        if self.counts_longer() {
            // A leader before this one may have counted longer, too.
            for copy in self.copies.values_mut() {
                copy.lease_until_ms = copy.lease_until_ms.min(sent_ms + held_ms);
            }
        }
    }

    /// The leader seals the shard.
    pub fn on_seal(&mut self, seal: Seal) -> Vec<Action> {
        let Some(copy) = self.copies.get_mut(&seal.shard) else {
            return Vec::new();
        };
        // An office of this very term was begun after the round that this is of.
        if seal.term < copy.seal || seal.term <= copy.office || seal.term <= copy.taking {
            return Vec::new();
        }
        let was_in_office = copy.office > 0 || copy.taking > 0;
        copy.sealing = Some(seal);
        let mut actions = Vec::new();
        copy.seal = seal.term;
        leave(copy);
        if was_in_office {
            let shard = seal.shard;
            actions.push(Action::LeaveOffice { shard });
        }
        actions.push(Action::Seal(seal));
        actions
    }

    /// A seal is durable, and so is the log up to here. `is_certain` where it has all that it ever acknowledged.
    pub fn on_sealed(&mut self, seal: Seal, is_certain: bool) -> Option<Action> {
        let copy = self.copies.get_mut(&seal.shard)?;
        if copy.sealing != Some(seal) {
            return None;
        }
        copy.sealing = None;
        let handed_over = self.hands_over.filter(|(shard, _)| *shard == seal.shard);
        let successor = handed_over.map(|(_, successor)| successor);
        Some(Action::Answer(SealAnswer {
            node: self.id,
            seal,
            end: copy.end,
            applied: copy.applied,
            is_certain,
            is_fresh: copy.lived == 0,
            declines: self.declines || self.is_drained || successor.is_some(),
            is_blank: copy.is_blank,
            successor,
            begins: copy.begins,
        }))
    }

    /// Whether this very seal is the last thing that it has promised, and nobody is known to be promoted by it.
    #[must_use]
    pub fn is_sealed_for(&self, seal: Seal) -> bool {
        self.copies.get(&seal.shard).is_some_and(|copy| {
            let is_out = copy.office == 0 && copy.taking == 0;
            copy.seal == seal.term && copy.seen < seal.term && copy.sealing.is_none() && is_out
        })
    }

    /// The leader has this member get what another one has more, before it may be promoted. Both are sealed for one round.
    pub fn on_fetch(&mut self, fetch: Fetch) -> Option<Action> {
        let copy = self.copies.get(&fetch.seal.shard)?;
        let lacks_rest = copy.end < fetch.end && !copy.is_blank;
        (lacks_rest && self.is_sealed_for(fetch.seal)).then_some(Action::Fetch(fetch))
    }

    /// It has that: the seal is answered anew, unless a later one came between.
    pub fn on_fetched(&mut self, fetch: Fetch) -> Vec<Action> {
        match self.is_sealed_for(fetch.seal) {
            true => self.on_seal(fetch.seal),
            false => Vec::new(),
        }
    }

    /// The control state has changed.
    pub fn on_state(&mut self, state: &ControlState) -> Vec<Action> {
        self.index = state.index;
        self.tells_time = state.feature_level >= LEVEL_OF_TIMES;
        let own = state.nodes.get(&self.id);
        self.is_drained = own.is_some_and(|own| own.drain != Drain::No);
        let mut actions = self.drop_copies(state);
        for (id, shard) in &state.shards {
            if !shard.members.contains_key(&self.id) {
                continue;
            }
            let copy = self.copies.entry(*id).or_insert_with(|| Copy {
                is_blank: true,
                ..Copy::default()
            });
            if shard.term <= copy.seen {
                continue;
            }
            copy.seen = shard.term;
            self.hands_over = None;
            let (shard_id, term) = (*id, shard.term);
            // The only copy is what the shard has, whatever was written since it was looked at.
            let is_alone = shard.everybody().len() == 1;
            if shard.primary != self.id {
                if copy.office > 0 || copy.taking > 0 {
                    leave(copy);
                    actions.push(Action::LeaveOffice { shard: shard_id });
                }
                let primary = shard.primary;
                actions.push(Action::Follow {
                    shard: shard_id,
                    term,
                    primary,
                });
            } else if (!copy.is_blank || is_on(Bug::BlankPromoted))
                && (copy.end == shard.promised || is_alone)
                && copy.seal <= term
                && copy.office < term
                && may_begin(copy, term)
            {
                copy.seal = term;
                leave(copy);
                copy.taking = term;
                actions.push(Action::TakeOffice {
                    shard: shard_id,
                    term,
                });
            }
            // Otherwise its log is not what was promised, or of another shard: who was started anew may know an old state only, in
            // which it is the primary of the shard that it has left since. Or its office ended with a restart: the leader sees that
            // it is not in office.
        }
        actions
    }

    /// Forgets copies of shards that this node is in no more, once a state says so.
    fn drop_copies(&mut self, state: &ControlState) -> Vec<Action> {
        if !state.nodes.contains_key(&self.id) {
            return Vec::new();
        }
        let mut actions = Vec::new();
        self.copies.retain(|id, copy| {
            let shard = state.shards.get(id);
            let is_member = shard.is_some_and(|shard| shard.everybody().contains(&self.id));
            // A shard that is about to begin is in no state yet.
            let is_kept = is_member || copy.seen == 0;
            if !is_kept && (copy.office > 0 || copy.taking > 0) {
                actions.push(Action::LeaveOffice { shard: *id });
            }
            is_kept
        });
        actions
    }

    /// What is here is of that shard from now on, and of no other.
    pub fn begin_copy(&mut self, shard: ShardId, seal: u64, end: LogEnd, applied: u64) {
        self.copies.remove(&shard);
        self.add_copy(shard, seal, end, applied);
    }

    /// Nothing of the shard was here; from now on something is.
    pub fn note_filled(&mut self, shard: ShardId) {
        if let Some(copy) = self.copies.get_mut(&shard) {
            copy.is_blank = false;
        }
    }

    /// Another member is to be promoted in place of this one, which leaves its office: it gives its lease back with that.
    pub fn hand_over(&mut self, shard: ShardId, to: NodeId) -> Vec<Action> {
        let actions = self.resign(shard);
        if !actions.is_empty() {
            self.hands_over = Some((shard, to));
        }
        actions
    }

    /// This primary cannot go on, and others can: it leaves its office, and gives its lease back with that.
    pub fn resign(&mut self, shard: ShardId) -> Vec<Action> {
        let Some(copy) = self.copies.get_mut(&shard).filter(|copy| copy.office > 0) else {
            return Vec::new();
        };
        if is_on(Bug::LeaseKept) {
            copy.left = copy.office;
        } else {
            leave(copy);
        }
        self.hurry();
        vec![Action::LeaveOffice { shard }]
    }

    /// The term frame could not be written, or a later seal came between: it is not about to take that office any more.
    pub fn give_up_office(&mut self, shard: ShardId, term: u64) {
        if let Some(copy) = self.copies.get_mut(&shard)
            && copy.taking == term
        {
            leave(copy);
        }
    }

    /// By how many parts in a million this node's clock is behind the leader's, as that says.
    #[must_use]
    pub fn drift_ppm(&self) -> i64 {
        self.drift_ppm
    }

    /// Whether a lease would count longer here than at the leader: what is left of it may become less then.
    #[must_use]
    pub fn counts_longer(&self) -> bool {
        self.granted_ms.is_some_and(|it| it < self.times.lease_ms)
    }

    /// For how long a lease counts at the leader, where it said so.
    #[must_use]
    pub fn granted_ms(&self) -> Option<u64> {
        self.granted_ms
    }

    /// The next tick sends a heartbeat, however short ago the last one was.
    pub fn hurry(&mut self) {
        self.beat_ms = None;
    }

    /// The term frame is durable. Whether it is in office now: a later seal may have come between.
    pub fn on_office(&mut self, shard: ShardId, term: u64) -> bool {
        let Some(copy) = self.copies.get_mut(&shard) else {
            return false;
        };
        if copy.taking != term || copy.seal > term {
            return false;
        }
        copy.taking = 0;
        copy.office = term;
        copy.lived = copy.lived.max(term);
        true
    }
}

fn told_office(copy: &Copy) -> u64 {
    let is_told_left = is_on(Bug::LeaseKept) && copy.left == copy.office;
    if is_told_left { 0 } else { copy.office }
}

/// Nobody is in office twice in one term: who was started anew knows an old state, and what it proposed before may come still.
/// A log that has the frame of that term says that it was.
fn may_begin(copy: &Copy, term: u64) -> bool {
    copy.end.term < term || is_on(Bug::OfficeAgain)
}

fn leave(copy: &mut Copy) {
    copy.left = copy.left.max(copy.office);
    copy.office = 0;
    copy.taking = 0;
    copy.lease_until_ms = 0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{CopyKind, Shard};

    const OWN: NodeId = NodeId([1; 20]);
    const SHARD: ShardId = ShardId(4);

    /// A state in which this node is the only copy of its shard, in that term.
    fn alone(term: u64) -> ControlState {
        let mut state = ControlState::default();
        state.index = 10;
        state.nodes.insert(OWN, crate::state::Node::default());
        let shard = Shard {
            term,
            epoch: 10,
            primary: OWN,
            promised: LogEnd {
                term: term - 1,
                sequence: 50,
            },
            members: [(OWN, CopyKind::Data)].into(),
            old_members: None,
            is_quorum: false,
        };
        state.shards.insert(SHARD, shard);
        state
    }

    /// Its log is of the shard that it went to. An office in the one that it left would put a term of that one into it.
    #[test]
    fn who_knows_an_old_state_only_takes_no_office_over_the_log_of_another_shard() {
        let mut member = Member::new(OWN, Times::default(), 2, 0);
        let end = LogEnd {
            term: 1,
            sequence: 208,
        };
        member.add_copy(ShardId(9), 1, end, 208);
        assert_eq!(member.on_state(&alone(1)), []);
        assert_eq!(member.office(SHARD), None);
    }

    #[test]
    fn the_only_copy_is_in_office_once_in_a_term() {
        let mut member = Member::new(OWN, Times::default(), 1, 0);
        let end = |term, sequence| LogEnd { term, sequence };
        // Something was written since it was looked at where its log ends.
        member.add_copy(SHARD, 0, end(1, 60), 60);
        let taken = member.on_state(&alone(2));
        let office = Action::TakeOffice {
            shard: SHARD,
            term: 2,
        };
        assert_eq!(taken, [office]);
        member.note_log(SHARD, end(2, 61), 61);
        assert!(member.on_office(SHARD, 2));
        // It is started anew: the state that it finds is of the same term, and may be older than what others know.
        let mut member = Member::new(OWN, Times::default(), 2, 0);
        member.add_copy(SHARD, 2, end(2, 70), 70);
        assert_eq!(member.on_state(&alone(2)), []);
        assert_eq!(member.office(SHARD), None);
        let office = Action::TakeOffice {
            shard: SHARD,
            term: 3,
        };
        let mut next = alone(3);
        next.index = 11;
        assert_eq!(member.on_state(&next), [office]);
    }
}
