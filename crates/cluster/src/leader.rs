//! The control leader's part: when each node was heard, leases, and the steps from silence to a new
//! primary.
//!
//! ```text
//!              silence for a node timeout, a restart, a seal that is there already
//!   quiet ───────────────────────────────────────────────────────────────────────► (lease over?)
//!     ▲                                                                                 │ yes
//!     │ a term or epoch has passed                                                      ▼
//!     └────────────── promote proposed ◄──── enough answers ◄──── sealing: seal(term + 1) to all members
//! ```
//!
//! Every voter receives heartbeats, so that it knows the nodes when it is elected. Only the leader
//! answers, grants and seals, and only while a quorum has confirmed it within one election timeout.

use std::collections::{BTreeMap, BTreeSet};

use crate::drift::Drift;
use crate::entry::Entry;
use crate::known_leases::KnownLeases;
use crate::leader_lease::{Reign, latest_of_majority};
use crate::message::{CopyStatus, Fetch, Heartbeat, HeartbeatReply, Seal, SealAnswer};
use crate::planted::{Bug, is_on};
use crate::state::{ControlState, CopyKind, LEVEL_OF_LEASE_TIMES, NodeId, Shard, ShardId};
use crate::times::Times;

/// What the leader asks the server to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// To propose an entry for the control log.
    Propose(Entry),
    /// To send a seal to a member.
    Seal {
        /// The member.
        to: NodeId,
        /// The seal.
        seal: Seal,
    },
    /// To send a fetch to a member that lacks the tail of a log-only copy.
    Fetch {
        /// The member.
        to: NodeId,
        /// The fetch.
        fetch: Fetch,
    },
}

/// What the leader knows of a node.
#[derive(Clone, Debug)]
struct Heard {
    at_ms: u64,
    start_count: u64,
    index: u64,
    copies: Vec<CopyStatus>,
}

/// The sealing of a shard.
#[derive(Clone, Debug)]
struct Round {
    seal: Seal,
    began_ms: u64,
    asked_ms: u64,
    proposed_ms: Option<u64>,
    /// When a member was last asked to fetch the tail of a log-only copy.
    fetched_ms: Option<u64>,
    answers: BTreeMap<NodeId, SealAnswer>,
}

/// See the module. One for each voter.
#[derive(Debug)]
pub struct Leader {
    times: Times,
    /// A node that was never heard counts as heard at this time.
    started_ms: u64,
    /// Since when it leads.
    elected_ms: Option<u64>,
    /// How long leases count that other leaders granted.
    known: KnownLeases,
    /// The longest such lease according to the control state.
    stated_ms: u64,
    /// The times of earlier leaders, from their longest lease that was known at this leader's
    /// election.
    others_times: Times,
    /// The reign in which it leads, or led last.
    reign: Option<Reign>,
    heard: BTreeMap<NodeId, Heard>,
    /// When a node first appeared in the state: it cannot have been heard before.
    met: BTreeMap<NodeId, u64>,
    /// Until when a lease of a shard may stand, by this clock.
    granted: BTreeMap<ShardId, u64>,
    rounds: BTreeMap<ShardId, Round>,
    /// Where a primary's log ended when the primary knew of a change of its members: the change's
    /// epoch, and the sequence.
    changes: BTreeMap<ShardId, (u64, u64)>,
    /// When a change of a node's state was last proposed.
    marked: BTreeMap<NodeId, u64>,
    /// The voters, and since when this node knows them.
    voters: (BTreeSet<NodeId>, u64),
    /// The reign to which a voter last reported its acknowledgement of earlier leaders, and the
    /// latest possible time of that acknowledgement, by this clock.
    reports: BTreeMap<NodeId, (Reign, u64)>,
    /// How fast the clocks of other nodes run.
    drift: Drift,
    /// New judgements of clocks that were not taken yet.
    judged: Vec<(NodeId, i64)>,
}

impl Leader {
    /// Creates a voter that does not lead.
    #[must_use]
    pub fn new(times: Times, now_ms: u64) -> Self {
        Self {
            times,
            started_ms: now_ms,
            known: KnownLeases::default(),
            stated_ms: 0,
            others_times: times,
            elected_ms: None,
            reign: None,
            heard: BTreeMap::new(),
            met: BTreeMap::new(),
            granted: BTreeMap::new(),
            rounds: BTreeMap::new(),
            changes: BTreeMap::new(),
            marked: BTreeMap::new(),
            voters: (BTreeSet::new(), now_ms),
            reports: BTreeMap::new(),
            drift: Drift::new(times.node_timeout_ms),
            judged: Vec::new(),
        }
    }

    /// Sets the voters. An earlier leader may have had its quorum from other voters until shortly
    /// before.
    pub fn set_voters(&mut self, voters: BTreeSet<NodeId>, now_ms: u64) {
        if self.voters.0 != voters {
            self.voters = (voters, now_ms);
        }
    }

    /// Notes how long a lease counts at another leader, according to that leader. What that leader
    /// granted counts so long, too, if this one leads next.
    pub fn note_lease_of_leader(&mut self, lease_ms: u64, now_ms: u64) {
        if !self.leads() {
            self.known.note(lease_ms, now_ms);
        }
    }

    /// Sets the longest lease that may stand according to the control state: voters that knew of
    /// longer ones may have been restarted.
    pub fn note_stated(&mut self, lease_ms: u64) {
        self.stated_ms = lease_ms;
    }

    /// Changes all times. A granted lease keeps the length with which it was granted.
    pub fn set_times(&mut self, times: Times, now_ms: u64) {
        let known_ms = std::mem::replace(&mut self.times, times).lease_ms;
        if known_ms > times.lease_ms {
            self.known.note_last(known_ms, now_ms);
        }
    }

    fn stated(&self) -> Option<u64> {
        let forgets = is_on(Bug::LongerLeaseForgotten) || is_on(Bug::ShorterLeaseOnly);
        (!forgets).then_some(self.stated_ms)
    }

    /// Whether this voter leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.elected_ms.is_some()
    }

    /// Starts to lead the control log in that reign, or stops leading. Leases that it granted in
    /// another reign count as a predecessor's, and so do those that others granted in between, of
    /// which it may not have heard.
    pub fn set_leading(&mut self, reign: Option<Reign>, now_ms: u64) {
        let is_same = reign.is_none() || reign == self.reign;
        if reign.is_some() == self.leads() && is_same {
            return;
        }
        self.elected_ms = reign.map(|_| now_ms);
        let known_ms = self.known.longest_ms(now_ms).max(self.stated());
        let known_ms = known_ms.unwrap_or(0);
        self.others_times = Times::of(known_ms.max(self.times.lease_ms));
        self.reign = reign.or(self.reign);
        self.rounds.clear();
        self.changes.clear();
        self.granted.clear();
    }

    /// Notes a heartbeat. Returns the reply if this voter leads.
    pub fn on_heartbeat(
        &mut self,
        now_ms: u64,
        beat: &Heartbeat,
        state: &ControlState,
        has_quorum: bool,
    ) -> Option<HeartbeatReply> {
        let node = state.nodes.get(&beat.node)?;
        let newest = self
            .heard
            .get(&beat.node)
            .map_or(0, |heard| heard.start_count);
        // The node runs on an older copy of its files, or a restart overtook the heartbeat.
        if beat.start_count < newest.max(node.record.start_count) {
            return None;
        }
        let heard = Heard {
            at_ms: now_ms,
            start_count: beat.start_count,
            index: beat.index,
            copies: beat.copies.clone(),
        };
        self.heard.insert(beat.node, heard);
        self.note_report(now_ms, beat);
        self.note_clock(now_ms, beat);
        self.elected_ms?;
        let mut leases = Vec::new();
        if has_quorum || is_on(Bug::LeaseWithoutQuorum) {
            for copy in &beat.copies {
                if self.may_grant(copy, beat.node, state, now_ms) {
                    leases.push((copy.shard, copy.office));
                    self.note_granted(copy.shard, now_ms + self.times.granted_lease_ms());
                }
            }
        }
        Some(HeartbeatReply {
            number: beat.number,
            index: state.index,
            leases,
            drift_ppm: beat.sent_ms.map(|_| self.drift.ppm(beat.node)),
            lease_ms: (state.feature_level >= LEVEL_OF_LEASE_TIMES).then_some(self.times.lease_ms),
        })
    }

    /// A primary that has to be replaced gets no further lease; otherwise a round could never
    /// begin. A primary whose members were sealed by an earlier leader commits nothing any more.
    fn may_grant(
        &self,
        copy: &CopyStatus,
        node: NodeId,
        state: &ControlState,
        now_ms: u64,
    ) -> bool {
        state.shards.get(&copy.shard).is_some_and(|shard| {
            shard.primary == node
                && shard.term == copy.office
                && !self.drift.is_off(node)
                && !self.rounds.contains_key(&copy.shard)
                && !self.needs_primary(copy.shard, shard, now_ms)
        })
    }

    /// Judges a node's clock by the send times of its heartbeats. A node whose clock is off gets no
    /// further lease, and its present lease may last longer than was granted.
    fn note_clock(&mut self, now_ms: u64, beat: &Heartbeat) {
        let was_off = self.drift.is_off(beat.node);
        let known = self.drift.ppm(beat.node);
        let Some(sent_ms) = beat.sent_ms else { return };
        let found = self
            .drift
            .note(beat.node, beat.start_count, sent_ms, now_ms);
        let is_off = self.drift.is_off(beat.node);
        if found.is_some_and(|ppm| ppm != known) && (was_off || is_off) {
            self.judged.push((beat.node, self.drift.ppm(beat.node)));
        }
        if is_off && !was_off {
            let until_ms = now_ms + 2 * self.times.granted_lease_ms();
            for copy in beat.copies.iter().filter(|copy| copy.office > 0) {
                self.note_granted(copy.shard, until_ms);
            }
        }
    }

    /// A lease that was granted for longer stands: its holder may not have heard of a shorter one.
    fn note_granted(&mut self, shard: ShardId, until_ms: u64) {
        let known_ms = self.granted.entry(shard).or_insert(until_ms);
        *known_ms = match is_on(Bug::GrantShortened) {
            true => until_ms,
            false => until_ms.max(*known_ms),
        };
    }

    /// Takes the judgements of clocks since the last call: by how many parts per million each lags
    /// behind this one.
    pub fn take_judged(&mut self) -> Vec<(NodeId, i64)> {
        std::mem::take(&mut self.judged)
    }

    /// Notes that a member was sealed.
    pub fn on_answer(&mut self, answer: &SealAnswer) {
        if let Some(round) = self.rounds.get_mut(&answer.seal.shard)
            && round.seal == answer.seal
        {
            let mut answer = *answer;
            // It would get no lease.
            answer.declines |= self.drift.is_off(answer.node);
            round.answers.insert(answer.node, answer);
        }
    }

    /// Handles the passage of time or a change of the state.
    pub fn on_tick(&mut self, now_ms: u64, state: &ControlState, has_quorum: bool) -> Vec<Action> {
        let mut actions = Vec::new();
        for (id, node) in &state.nodes {
            let at_ms = if node.is_failed { 0 } else { now_ms };
            self.met.entry(*id).or_insert(at_ms);
        }
        let Some(elected_ms) = self.elected_ms.filter(|_| has_quorum) else {
            return actions;
        };
        self.mark_nodes(now_ms, state, &mut actions);
        for (id, shard) in &state.shards {
            let is_over = |round: &Round| {
                let is_old = round.seal.term <= shard.term || round.seal.epoch != shard.epoch;
                is_old || self.is_overtaken(round, shard)
            };
            if self.rounds.get(id).is_some_and(is_over) {
                self.rounds.remove(id);
            }
            let may_begin = is_on(Bug::PromoteWithinLease)
                || self.is_lease_over(*id, elected_ms, now_ms)
                || self.gave_lease_back(*id, shard);
            if !self.rounds.contains_key(id) && may_begin && self.needs_primary(*id, shard, now_ms)
            {
                let round = self.begin(*id, shard, now_ms);
                self.rounds.insert(*id, round);
            }
            let silent = shard.everybody().into_iter();
            let silent = silent
                .filter(|node| self.is_silent(*node, now_ms))
                .collect();
            if let Some(round) = self.rounds.get_mut(id) {
                drive(round, shard, &silent, &self.times, now_ms, &mut actions);
            }
        }
        actions
    }

    fn mark_nodes(&mut self, now_ms: u64, state: &ControlState, actions: &mut Vec<Action>) {
        for (id, node) in &state.nodes {
            let is_failed = self.is_silent(*id, now_ms);
            let marked_ms = self.marked.get(id).copied().unwrap_or(0);
            let is_due = now_ms.saturating_sub(marked_ms) >= self.times.answers_ms;
            if node.is_failed != is_failed && is_due {
                self.marked.insert(*id, now_ms);
                let node = *id;
                actions.push(Action::Propose(Entry::NodeState { node, is_failed }));
            }
        }
    }

    /// Returns for how long a node has not been heard.
    #[must_use]
    pub fn silence_ms(&self, node: NodeId, now_ms: u64) -> u64 {
        let heard_ms = self.heard.get(&node).map(|heard| heard.at_ms);
        let met_ms = || self.met.get(&node).copied().unwrap_or(self.started_ms);
        now_ms.saturating_sub(heard_ms.unwrap_or_else(met_ms))
    }

    /// Whether a change of a shard's members may end: according to the last heartbeats, a quorum of
    /// the old and of the new members has what the primary had when it knew of the change.
    pub fn is_settled(&mut self, id: ShardId, shard: &Shard) -> bool {
        let Some(wanted) = self.first_end(id, shard) else {
            return false;
        };
        let nodes = self.heard.keys();
        let ends = nodes.filter_map(|node| Some((*node, self.end_in_term(id, shard, node)?)));
        shard.committed(&ends.collect()) >= wanted
    }

    /// Whether each data copy is heard and has, in the present term, what the primary had when it
    /// knew of the present members. That includes all that was committed before, and so anything
    /// that a log-only copy's log has lost.
    pub fn all_follow(&mut self, id: ShardId, shard: &Shard, now_ms: u64) -> bool {
        let Some(wanted) = self.first_end(id, shard) else {
            return false;
        };
        let data = shard.members.iter();
        let mut data = data.filter(|(_, kind)| **kind == CopyKind::Data);
        data.all(|(node, _)| {
            let end = self.end_in_term(id, shard, node);
            !self.is_silent(*node, now_ms) && end.is_some_and(|end| end >= wanted)
        })
    }

    /// Returns where the log of a shard's primary ended when it first reported that it knows the
    /// present members.
    fn first_end(&mut self, id: ShardId, shard: &Shard) -> Option<u64> {
        if self.heard.get(&shard.primary)?.index < shard.epoch {
            return None;
        }
        let end = self.end_in_term(id, shard, &shard.primary)?;
        let known = self.changes.entry(id).or_insert((shard.epoch, end));
        if known.0 != shard.epoch {
            *known = (shard.epoch, end);
        }
        Some(known.1)
    }

    /// Returns the last reported end of a copy, if it has a frame of the present term.
    fn end_in_term(&self, id: ShardId, shard: &Shard, node: &NodeId) -> Option<u64> {
        let end = self.copy_of(id, node)?.end;
        (end.term == shard.term).then_some(end.sequence)
    }

    fn is_silent(&self, node: NodeId, now_ms: u64) -> bool {
        self.silence_ms(node, now_ms) >= self.times.node_timeout_ms
    }

    /// Notes when the voter acknowledged earlier leaders. All reports to one leader are true; the
    /// tightest one counts.
    fn note_report(&mut self, now_ms: u64, beat: &Heartbeat) {
        let Some(report) = beat.acknowledged else {
            return;
        };
        let latest_ms = report.latest_ms(now_ms);
        let known = self
            .reports
            .entry(beat.node)
            .or_insert((report.reign, latest_ms));
        if report.reign > known.0 {
            *known = (report.reign, latest_ms);
        } else if report.reign == known.0 {
            known.1 = known.1.min(latest_ms);
        }
    }

    /// Returns until when leases of earlier leaders may stand. Reports of enough voters bound the
    /// time; in any case it ends an election and a lease after this leader's election.
    fn predecessors_until_ms(&self, elected_ms: u64) -> u64 {
        let (voters, since_ms) = &self.voters;
        let reports = voters.iter().filter_map(|voter| self.reports.get(voter));
        let reports = reports.filter(|(reign, _)| Some(*reign) == self.reign);
        let reported_ms = reports.map(|(_, latest_ms)| *latest_ms).collect();
        let latest_ms = latest_of_majority(reported_ms, voters.len())
            .map_or(elected_ms, |latest_ms| latest_ms.max(*since_ms));
        latest_ms.min(elected_ms) + self.others_times.predecessor_ms()
    }

    /// Whether no node can hold a lease of the shard any more, neither from this leader nor from an
    /// earlier one.
    fn is_lease_over(&self, shard: ShardId, elected_ms: u64, now_ms: u64) -> bool {
        let own_ms = self.granted.get(&shard).copied().unwrap_or(0);
        let others_ms = self.predecessors_until_ms(elected_ms);
        now_ms >= own_ms && (now_ms >= others_ms || is_on(Bug::ForgetPredecessor))
    }

    /// Whether the primary has reported that it left the office of the present term. Then there is
    /// no wait for the end of its lease, whichever leader granted it. It never takes that office
    /// again.
    fn gave_lease_back(&self, id: ShardId, shard: &Shard) -> bool {
        self.copy_of(id, &shard.primary)
            .is_some_and(|copy| copy.left == shard.term)
    }

    /// Whether the primary is gone, was restarted, did not take office, or cannot continue because
    /// a member was sealed.
    fn needs_primary(&self, id: ShardId, shard: &Shard, now_ms: u64) -> bool {
        if !shard.members.contains_key(&shard.primary) || self.is_silent(shard.primary, now_ms) {
            return true;
        }
        if self.is_sealed_after(id, shard.term, shard.everybody()) {
            return true;
        }
        let knows = |heard: &Heard| heard.index >= shard.epoch;
        let is_out = |copy: &CopyStatus| copy.office != shard.term && copy.taking != shard.term;
        self.heard.get(&shard.primary).is_some_and(knows)
            && self.copy_of(id, &shard.primary).is_some_and(is_out)
    }

    /// Whether an earlier leader has sealed a member for a later term since the round began. That
    /// member never answers the round; if it is the only copy, the shard would be stuck for good. A
    /// round that has already proposed a promotion goes on.
    fn is_overtaken(&self, round: &Round, shard: &Shard) -> bool {
        let asked = shard.everybody().into_iter();
        let silent = asked.filter(|node| !round.answers.contains_key(node));
        round.proposed_ms.is_none()
            && self.is_sealed_after(round.seal.shard, round.seal.term, silent)
    }

    /// Whether one of these nodes has reported that its copy is sealed for a later term.
    fn is_sealed_after(
        &self,
        id: ShardId,
        term: u64,
        nodes: impl IntoIterator<Item = NodeId>,
    ) -> bool {
        let mut nodes = nodes.into_iter();
        nodes.any(|node| self.copy_of(id, &node).is_some_and(|copy| copy.seal > term))
    }

    /// Returns a node's last report of its copy of a shard.
    fn copy_of(&self, id: ShardId, node: &NodeId) -> Option<&CopyStatus> {
        let copies = &self.heard.get(node)?.copies;
        copies.iter().find(|copy| copy.shard == id)
    }

    fn begin(&self, id: ShardId, shard: &Shard, now_ms: u64) -> Round {
        let copies = self.heard.values().flat_map(|heard| &heard.copies);
        let seals = copies.filter(|copy| copy.shard == id).map(|copy| copy.seal);
        // An existing seal is from a round that had no result.
        let term = seals.max().unwrap_or(0).max(shard.term) + 1;
        let seal = Seal {
            shard: id,
            term,
            epoch: shard.epoch,
        };
        let answers = match is_on(Bug::PromoteWithoutSeal) {
            true => self.as_heard(seal),
            false => BTreeMap::new(),
        };
        Round {
            seal,
            began_ms: now_ms,
            asked_ms: 0,
            proposed_ms: None,
            fetched_ms: None,
            answers,
        }
    }

    /// Returns heartbeats as answers: the mistake of [`Bug::PromoteWithoutSeal`].
    fn as_heard(&self, seal: Seal) -> BTreeMap<NodeId, SealAnswer> {
        let answer = |(node, heard): (&NodeId, &Heard)| {
            let copy = heard.copies.iter().find(|copy| copy.shard == seal.shard)?;
            let answer = SealAnswer {
                node: *node,
                seal,
                end: copy.end,
                applied: copy.applied,
                is_certain: true,
                is_fresh: false,
                declines: false,
                is_blank: false,
                successor: None,
                begins: None,
            };
            Some((*node, answer))
        };
        self.heard.iter().filter_map(answer).collect()
    }
}

/// Asks the members that have not answered, and proposes a promotion once enough have.
fn drive(
    round: &mut Round,
    shard: &Shard,
    silent: &BTreeSet<NodeId>,
    times: &Times,
    now_ms: u64,
    actions: &mut Vec<Action>,
) {
    if now_ms.saturating_sub(round.asked_ms) >= times.heartbeat_ms {
        round.asked_ms = now_ms;
        for to in shard.everybody() {
            if !round.answers.contains_key(&to) {
                let seal = round.seal;
                actions.push(Action::Seal { to, seal });
            }
        }
    }
    let is_due = |at_ms| now_ms.saturating_sub(at_ms) >= times.answers_ms;
    if !round.proposed_ms.is_none_or(is_due) || !is_enough(round, shard, silent, times, now_ms) {
        return;
    }
    match choose(round, shard) {
        Some(Choice::Promote(chosen)) => {
            round.proposed_ms = Some(now_ms);
            actions.push(Action::Propose(Entry::Promote {
                shard: round.seal.shard,
                expected_term: shard.term,
                expected_epoch: round.seal.epoch,
                term: round.seal.term,
                primary: chosen.node,
                end: chosen.end,
            }));
        }
        Some(Choice::Fetch { to, fetch }) => {
            // If one of the two is gone, other answers may suffice.
            for gone in [to, fetch.from].iter().filter(|one| silent.contains(*one)) {
                round.answers.remove(gone);
            }
            if round.fetched_ms.is_none_or(is_due) {
                round.fetched_ms = Some(now_ms);
                actions.push(Action::Fetch { to, fetch });
            }
        }
        None => {}
    }
}

fn is_enough(
    round: &Round,
    shard: &Shard,
    silent: &BTreeSet<NodeId>,
    times: &Times,
    now_ms: u64,
) -> bool {
    let all = shard.everybody();
    let answers = &round.answers;
    if answers.is_empty() {
        return false;
    }
    if all.iter().all(|node| answers.contains_key(node)) {
        return true;
    }
    let is_due = now_ms.saturating_sub(round.began_ms) >= times.answers_ms;
    let is_awaited = |node: &NodeId| !answers.contains_key(node) && !silent.contains(node);
    if successor_of(round).as_ref().is_some_and(is_awaited) && !is_due {
        return false;
    }
    if shard.is_quorum {
        // A member that may have forgotten what it acknowledged does not count.
        let certain = answers.values().filter(|answer| answer.is_certain);
        let certain: BTreeSet<NodeId> = certain.map(|answer| answer.node).collect();
        return shard.suffices(&certain) || is_on(Bug::OneAnswer);
    }
    // After a restart of all members, the one with the most data may merely be slower to start. If
    // one member was running all along, there was no such restart: a copy that has just joined or
    // come back makes no other wait.
    let all_fresh = answers.values().all(|answer| answer.is_fresh);
    let has_come = |node: &NodeId| answers.contains_key(node) || silent.contains(node);
    if !all_fresh && all.iter().all(has_come) {
        return true;
    }
    let patience_ms = match all_fresh {
        true => times.recovery_ms,
        false => times.answers_ms,
    };
    now_ms.saturating_sub(round.began_ms) >= patience_ms
}

/// Returns the member for which the former primary has left its office, if it reported one.
fn successor_of(round: &Round) -> Option<NodeId> {
    round.answers.values().find_map(|answer| answer.successor)
}

/// The result of the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// This member becomes the next primary.
    Promote(SealAnswer),
    /// This member would become it, but lacks the tail of a log-only copy.
    Fetch { to: NodeId, fetch: Fetch },
}

/// Chooses by the answers. Returns `None` while the member with the longest log may not be promoted
/// and cannot hand its tail on.
fn choose(round: &Round, shard: &Shard) -> Option<Choice> {
    let best = *best(round, shard)?;
    let is_log_only = |node| shard.kind_of(node) == Some(CopyKind::LogOnly);
    let most = |answer: &&SealAnswer| (answer.end, is_log_only(answer.node));
    let most = round.answers.values().max_by_key(most)?;
    if best.end == most.end || !shard.is_quorum || is_on(Bug::RestIgnored) {
        return Some(Choice::Promote(best));
    }
    let begins = most.begins.filter(|_| is_log_only(most.node))?;
    let reaches = begins <= best.end.sequence;
    reaches.then_some(Choice::Fetch {
        to: best.node,
        fetch: Fetch {
            seal: round.seal,
            from: most.node,
            end: most.end,
        },
    })
}

/// Returns the member with the most data. A log-only copy is never chosen. A former primary that
/// hands over is chosen only if no other member can be.
fn best<'r>(round: &'r Round, shard: &Shard) -> Option<&'r SealAnswer> {
    let has_data = |answer: &&SealAnswer| {
        let is_data = shard.members.get(&answer.node) == Some(&CopyKind::Data);
        is_data && (!answer.is_blank || is_on(Bug::BlankPromoted))
    };
    let is_willing = |answer: &&SealAnswer| has_data(answer) && !answer.declines;
    let is_former = |answer: &&SealAnswer| has_data(answer) && answer.node == shard.primary;
    let merit = |answer: &&SealAnswer| {
        let is_primary = answer.node == shard.primary;
        (
            answer.end,
            answer.applied,
            is_primary,
            std::cmp::Reverse(answer.node),
        )
    };
    let best = round.answers.values().filter(is_willing).max_by_key(merit);
    let successor = successor_of(round);
    let successor = round
        .answers
        .values()
        .filter(is_willing)
        .find(|answer| Some(answer.node) == successor);
    // Only if no other member has more.
    let successor = successor.filter(|one| best.is_some_and(|best| best.end == one.end));
    let best = successor.or(best);
    best.or_else(|| round.answers.values().find(is_former))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether enough of three copies, of which the primary is silent, have answered after this
    /// time.
    fn is_enough_of(are_fresh: [bool; 2], waited_ms: u64) -> bool {
        let node = |byte: u8| NodeId([byte; 20]);
        let shard = Shard {
            primary: node(1),
            members: (1..=3).map(|byte| (node(byte), CopyKind::Data)).collect(),
            ..Shard::default()
        };
        let seal = Seal {
            shard: ShardId(1),
            term: 2,
            epoch: 0,
        };
        let answer = |(at, is_fresh): (u8, bool)| SealAnswer {
            node: node(at),
            seal,
            end: crate::state::LogEnd::default(),
            applied: 0,
            is_certain: true,
            is_fresh,
            declines: false,
            is_blank: false,
            successor: None,
            begins: None,
        };
        let answers = (2..).zip(are_fresh).map(answer);
        let round = Round {
            seal,
            began_ms: 0,
            asked_ms: 0,
            proposed_ms: None,
            fetched_ms: None,
            answers: answers.map(|answer| (answer.node, answer)).collect(),
        };
        let silent = [node(1)].into();
        is_enough(&round, &shard, &silent, &Times::default(), waited_ms)
    }

    #[test]
    fn leases_of_a_leader_with_longer_ones_are_waited_for() {
        let shard = ShardId(1);
        let longest_ms = Times::of(15_000).predecessor_ms();
        let ends_at_ms = |told: &[u64]| {
            let mut leader = Leader::new(Times::of(1_500), 0);
            let told = told.iter();
            told.for_each(|ms| leader.note_lease_of_leader(*ms, 0));
            leader.set_leading(Some((1, 1)), 0);
            // What it states itself since then does not count.
            leader.note_lease_of_leader(1_500, 0);
            (0..=longest_ms).find(|now_ms| leader.is_lease_over(shard, 0, *now_ms))
        };
        let own_ms = Times::of(1_500).predecessor_ms();
        assert_eq!(ends_at_ms(&[]), Some(own_ms));
        assert_eq!(ends_at_ms(&[200]), Some(own_ms));
        assert_eq!(ends_at_ms(&[1_500, 15_000]), Some(longest_ms));
        // The longer leases of the earlier leader may stand.
        assert_eq!(ends_at_ms(&[15_000, 1_500]), Some(longest_ms));
    }

    /// The seal comes late from an earlier leader: it was on its way when the round began.
    #[test]
    fn a_round_gives_way_when_the_only_copy_is_sealed_for_a_later_term() {
        let (id, node) = (ShardId(1), NodeId([1; 20]));
        let shard = Shard {
            primary: node,
            members: [(node, CopyKind::Data)].into(),
            term: 1,
            is_quorum: true,
            ..Shard::default()
        };
        let mut leader = Leader::new(Times::default(), 0);
        let hear = |leader: &mut Leader, seal| {
            let copy = CopyStatus {
                shard: id,
                seal,
                ..CopyStatus::default()
            };
            let heard = Heard {
                at_ms: 0,
                start_count: 1,
                index: 0,
                copies: vec![copy],
            };
            leader.heard.insert(node, heard);
        };
        hear(&mut leader, 1);
        let round = leader.begin(id, &shard, 0);
        assert!(!leader.is_overtaken(&round, &shard));
        hear(&mut leader, 3);
        assert!(leader.is_overtaken(&round, &shard));
        assert_eq!(leader.begin(id, &shard, 0).seal.term, 4);
    }

    /// The first of copies 1 to 3 and a log-only copy is lost. Returns the choice with these ends
    /// of the others, the last of which is the log-only copy's.
    fn choice_of(ends: [u64; 3], is_removed: bool, declines: bool) -> Option<Choice> {
        let node = |byte: u8| NodeId([byte; 20]);
        let mut shard = Shard {
            primary: node(1),
            members: (1..=3).map(|byte| (node(byte), CopyKind::Data)).collect(),
            is_quorum: true,
            ..Shard::default()
        };
        let mut with_log = shard.members.clone();
        with_log.insert(node(4), CopyKind::LogOnly);
        match is_removed {
            true => shard.old_members = Some(with_log),
            false => shard.members = with_log,
        }
        let mut round = Leader::new(Times::default(), 0).begin(ShardId(1), &shard, 0);
        for (byte, sequence) in (2..).zip(ends) {
            let answer = SealAnswer {
                node: node(byte),
                seal: round.seal,
                end: crate::state::LogEnd { term: 1, sequence },
                applied: 0,
                is_certain: true,
                is_fresh: false,
                declines: declines && byte == 3,
                is_blank: false,
                successor: None,
                begins: (byte == 4).then_some(50),
            };
            round.answers.insert(answer.node, answer);
        }
        choose(&round, &shard)
    }

    #[test]
    fn what_a_copy_of_the_log_has_more_is_handed_on_first() {
        let gets_it = |choice, by: u8| match choice {
            Some(Choice::Fetch { to, fetch }) => {
                (to, fetch.from) == (NodeId([by; 20]), NodeId([4; 20]))
            }
            _ => false,
        };
        assert!(gets_it(choice_of([80, 60, 90], false, false), 2));
        let while_removed = choice_of([80, 60, 90], true, false);
        assert!(gets_it(while_removed, 2), "{while_removed:?}");
        let beside_one_that_declines = choice_of([80, 90, 90], false, true);
        assert!(gets_it(beside_one_that_declines, 2));
        // It lacks the frames in between.
        assert_eq!(choice_of([40, 30, 90], false, false), None);
        let promoted = choice_of([90, 60, 90], false, false);
        assert!(matches!(promoted, Some(Choice::Promote(one)) if one.node == NodeId([2; 20])));
    }

    #[test]
    fn nobody_waits_for_a_restart_of_all_where_one_copy_was_there_all_along() {
        let recovery_ms = Times::default().recovery_ms;
        assert!(is_enough_of([false, false], 0));
        assert!(is_enough_of([false, true], 0));
        assert!(!is_enough_of([true, true], recovery_ms - 1));
        assert!(is_enough_of([true, true], recovery_ms));
    }
}
