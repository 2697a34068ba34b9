//! A member's part: heartbeats, its lease, its seal, and how it takes office.
//!
//! ```text
//!   follows ── state names it, log ends as promised ──► taking ── term frame durable ──► in office
//!      ▲                                                                                   │
//!      └──────────── seal of a later term, or the state names another ─────────────────────┘
//! ```
//!
//! The performer of the actions keeps the order: a seal and the log below it are durable before
//! [`Member::on_sealed`], and a term frame before [`Member::on_office`].
//!
//! Invariant: a lease is counted from the time at which its heartbeat was sent.

use std::collections::{BTreeMap, VecDeque};

use crate::leader_lease::{Acknowledged, Reign};
use crate::message::{CopyStatus, Fetch, Heartbeat, HeartbeatReply, Seal, SealAnswer};
use crate::planted::{Bug, is_on};
use crate::state::{ControlState, Drain, LEVEL_OF_TIMES, LogEnd, NodeId, ShardId};
use crate::times::Times;

/// Maximum number of heartbeats that may be answered late.
const SENT_MAX: usize = 64;

/// What a member asks the server to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// To send a heartbeat to every voter.
    Heartbeat(Heartbeat),
    /// To make a seal durable, with the log as it is, and then call [`Member::on_sealed`]. Nothing
    /// of older terms is accepted any more.
    Seal(Seal),
    /// To send the answer to the leader.
    Answer(SealAnswer),
    /// To fetch the tail that another member's log has beyond this one's, and then call
    /// [`Member::on_fetched`].
    Fetch(Fetch),
    /// To write the frame of this term and make it durable, and then call [`Member::on_office`].
    TakeOffice {
        /// The shard.
        shard: ShardId,
        /// The term.
        term: u64,
    },
    /// To follow a primary.
    Follow {
        /// The shard.
        shard: ShardId,
        /// The term.
        term: u64,
        /// The primary.
        primary: NodeId,
    },
    /// To stop being primary while there is no other: no write and no reply.
    LeaveOffice {
        /// The shard.
        shard: ShardId,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Copy {
    seal: u64,
    office: u64,
    taking: u64,
    /// The newest term that was seen in the state.
    seen: u64,
    lease_until_ms: u64,
    end: LogEnd,
    applied: u64,
    /// The newest term since the start in which it followed a primary or was one.
    lived: u64,
    /// The seal that is being made durable.
    sealing: Option<Seal>,
    /// The newest term whose office it has left.
    left: u64,
    /// Whether nothing of the shard is here yet.
    is_blank: bool,
    /// Where the log begins, if this is a log-only copy.
    begins: Option<u64>,
}

/// See the module. One for each node.
#[derive(Debug)]
pub struct Member {
    id: NodeId,
    times: Times,
    start_count: u64,
    /// Whether it refuses promotion (`cluster-replica-no-failover`, or it is about to stop).
    declines: bool,
    /// Whether an operator has drained it.
    is_drained: bool,
    number: u64,
    sent: VecDeque<(u64, u64)>,
    beat_ms: Option<u64>,
    index: u64,
    copies: BTreeMap<ShardId, Copy>,
    /// The shard whose office it has left, and the member for which it did so.
    hands_over: Option<(ShardId, NodeId)>,
    acknowledged: Acknowledged,
    /// Whether all nodes know heartbeats with a time.
    tells_time: bool,
    /// The leader's judgement of this node's clock.
    drift_ppm: i64,
    /// How long a lease counts at the leader, as the leader states.
    granted_ms: Option<u64>,
}

impl Member {
    /// Creates a node that was just started.
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

    /// Notes that this node, as a voter, acknowledges a leader of the control log, or leads.
    pub fn note_acknowledged(&mut self, reign: Reign, now_ms: u64) {
        self.acknowledged.note(reign, now_ms);
    }

    /// Changes all times. A lease that would count longer than the new times allow ends earlier.
    pub fn set_times(&mut self, times: Times, now_ms: u64) {
        self.times = times;
        let until_ms = now_ms + times.held_lease_ms(None);
        for copy in self.copies.values_mut() {
            copy.lease_until_ms = copy.lease_until_ms.min(until_ms);
        }
    }

    /// Sets whether it refuses promotion.
    pub fn set_declines(&mut self, declines: bool) {
        self.declines = declines;
    }

    /// Adds a copy that was found at the start: the seal on its disk, and where its log ends.
    pub fn add_copy(&mut self, shard: ShardId, seal: u64, end: LogEnd, applied: u64) {
        let copy = Copy {
            seal: seal.max(end.term),
            end,
            applied,
            ..Copy::default()
        };
        self.copies.insert(shard, copy);
    }

    /// Notes that the log was extended or truncated.
    pub fn note_log(&mut self, shard: ShardId, end: LogEnd, applied: u64) {
        if let Some(copy) = self.copies.get_mut(&shard) {
            (copy.end, copy.applied) = (end, applied);
        }
    }

    /// Notes that this is a log-only copy, which begins there.
    pub fn note_begins(&mut self, shard: ShardId, begins: u64) {
        if let Some(copy) = self.copies.get_mut(&shard) {
            copy.begins = Some(begins);
        }
    }

    /// Whether frames of a primary of this term may be accepted. Called under the lock of the
    /// append.
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

    /// Whether a write may begin, and a reply be sent.
    #[must_use]
    pub fn holds_lease(&self, shard: ShardId, now_ms: u64) -> bool {
        let copy = self.copies.get(&shard);
        copy.is_some_and(|copy| copy.office > 0 && now_ms < copy.lease_until_ms)
    }

    /// Returns the term in which it is primary.
    #[must_use]
    pub fn office(&self, shard: ShardId) -> Option<u64> {
        let copy = self.copies.get(&shard)?;
        (copy.office > 0).then_some(copy.office)
    }

    /// Returns until when the lease stands, by this node's clock.
    #[must_use]
    pub fn lease_until_ms(&self, shard: ShardId) -> u64 {
        self.copies
            .get(&shard)
            .map_or(0, |copy| copy.lease_until_ms)
    }

    /// Handles the passage of time.
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

    /// Handles the leader's reply to a heartbeat.
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
            // An earlier leader may have counted longer, too.
            for copy in self.copies.values_mut() {
                copy.lease_until_ms = copy.lease_until_ms.min(sent_ms + held_ms);
            }
        }
    }

    /// Handles a seal by the leader.
    pub fn on_seal(&mut self, seal: Seal) -> Vec<Action> {
        let Some(copy) = self.copies.get_mut(&seal.shard) else {
            return Vec::new();
        };
        // An office of this very term began after the round of this seal.
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

    /// Notes that a seal and the log up to here are durable. `is_certain` means that the log has
    /// all that was ever acknowledged.
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

    /// Whether this seal is the last promise it made, and no promotion by it is known.
    #[must_use]
    pub fn is_sealed_for(&self, seal: Seal) -> bool {
        self.copies.get(&seal.shard).is_some_and(|copy| {
            let is_out = copy.office == 0 && copy.taking == 0;
            copy.seal == seal.term && copy.seen < seal.term && copy.sealing.is_none() && is_out
        })
    }

    /// Handles the leader's request to fetch another member's tail before this member may be
    /// promoted. Both are sealed for one round.
    pub fn on_fetch(&mut self, fetch: Fetch) -> Option<Action> {
        let copy = self.copies.get(&fetch.seal.shard)?;
        let lacks_rest = copy.end < fetch.end && !copy.is_blank;
        (lacks_rest && self.is_sealed_for(fetch.seal)).then_some(Action::Fetch(fetch))
    }

    /// Notes that the tail is here: answers the seal anew, unless a later one came between.
    pub fn on_fetched(&mut self, fetch: Fetch) -> Vec<Action> {
        match self.is_sealed_for(fetch.seal) {
            true => self.on_seal(fetch.seal),
            false => Vec::new(),
        }
    }

    /// Handles a change of the control state.
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
            // The only copy is the shard's content, even if it grew since its end was read.
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
            // Otherwise its log is not the promised one, or is of another shard: a restarted node
            // may know only an old state, in which it is the primary of a shard that it has left
            // since. Or its office ended with a restart: the leader sees that it is not in office.
        }
        actions
    }

    /// Forgets copies of shards of which this node is no longer a member, according to the state.
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

    /// Makes the local data a copy of that shard and of no other.
    pub fn begin_copy(&mut self, shard: ShardId, seal: u64, end: LogEnd, applied: u64) {
        self.copies.remove(&shard);
        self.add_copy(shard, seal, end, applied);
    }

    /// Notes that the shard's data, absent before, is now here.
    pub fn note_filled(&mut self, shard: ShardId) {
        if let Some(copy) = self.copies.get_mut(&shard) {
            copy.is_blank = false;
        }
    }

    /// Leaves office so that another member is promoted, and gives the lease back with that.
    pub fn hand_over(&mut self, shard: ShardId, to: NodeId) -> Vec<Action> {
        let actions = self.resign(shard);
        if !actions.is_empty() {
            self.hands_over = Some((shard, to));
        }
        actions
    }

    /// Leaves office because this primary cannot continue but others can, and gives the lease back
    /// with that.
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

    /// Gives up taking that office: the term frame could not be written, or a later seal came
    /// between.
    pub fn give_up_office(&mut self, shard: ShardId, term: u64) {
        if let Some(copy) = self.copies.get_mut(&shard)
            && copy.taking == term
        {
            leave(copy);
        }
    }

    /// Returns by how many parts per million this node's clock lags behind the leader's, as the
    /// leader states.
    #[must_use]
    pub fn drift_ppm(&self) -> i64 {
        self.drift_ppm
    }

    /// Whether a lease would count longer here than at the leader: its remaining time may become
    /// less then.
    #[must_use]
    pub fn counts_longer(&self) -> bool {
        self.granted_ms.is_some_and(|it| it < self.times.lease_ms)
    }

    /// Returns how long a lease counts at the leader, if the leader stated it.
    #[must_use]
    pub fn granted_ms(&self) -> Option<u64> {
        self.granted_ms
    }

    /// Makes the next tick send a heartbeat, even if the last one was sent just now.
    pub fn hurry(&mut self) {
        self.beat_ms = None;
    }

    /// Notes that the term frame is durable. Returns whether the member is in office now: a later
    /// seal may have come between.
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

/// Whether the office of this term may begin. No node takes the same office twice: a restarted node
/// knows an old state, and its earlier proposals may still be applied. If its log has the frame of
/// that term, it was in that office.
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

    /// Returns a state in which this node is the only copy of its shard, in that term.
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

    /// Its log is of the shard that it went to. Taking office in the shard that it left would put a
    /// term of that shard into the log.
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
        // Something was written since its end was read.
        member.add_copy(SHARD, 0, end(1, 60), 60);
        let taken = member.on_state(&alone(2));
        let office = Action::TakeOffice {
            shard: SHARD,
            term: 2,
        };
        assert_eq!(taken, [office]);
        member.note_log(SHARD, end(2, 61), 61);
        assert!(member.on_office(SHARD, 2));
        // It is restarted: the state that it finds is of the same term, and may be older than what
        // other nodes know.
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
