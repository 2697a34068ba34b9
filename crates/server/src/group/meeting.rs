//! How nodes in cluster mode join and leave each other: CLUSTER MEET and CLUSTER RESET.
//!
//! ```text
//!   both by themselves         the node that is contacted begins a group, the other joins it
//!   one is in a group          the other joins it
//!   both are, not in the same  one of two that began a moment ago gives way (see `merging`); others are refused
//! ```
//!
//! So everything that `redis-cli --cluster create` does ends in one group, whether one node meets
//! all others or all others meet it. A joining node brings the hash slots that it owned by itself,
//! if no node owns them, and the keys in them. A meeting is over when the group owns them: a tool
//! that compares the nodes' views right after it must find that all agree.
//!
//! A node meets one other node at a time. If two nodes meet each other at once, each answers that
//! it is busy: the one with the lower name then waits to be asked, and the other asks again at
//! once. So the other joins the one with the lower name. [`cluster::meeting`] defines the outcome
//! of a meeting; `crates/cluster/tests/meeting_model` searches cases of nodes that meet each other
//! crosswise.

use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use cluster::bytes::{Malformed, Reader, Writer};
use cluster::entry::{SlotRange, are_ranges, decode_ranges, encode_ranges};
use cluster::meeting::{Side, founder, judge};
use cluster::state::{Drain, FIRST_RAFT_ID};
use cluster::{Applied, ControlState, Entry, NodeId};

use super::control::{Part, told_founder};
use super::driver::Event;
use super::files::{Place, place_of};
use super::forming::peers_of;
use super::holder::{Meeting, TakesPart as _};
use super::links::{Asked, Subject, spawn};
use super::record::{is_this_machine, local_address};
use super::unique;
use crate::node::Node;
use crate::poll::poll;

/// Timeout of the other node's answer, and of joining.
const MEET_TIME: Duration = Duration::from_secs(10);
/// Maximum time for repeated questions, and for results that come late because the two clusters may
/// merge meanwhile.
const SETTLE_TIME: Duration = Duration::from_secs(60);
/// Time between two checks of clusters that merge.
const MERGE_LOOK: Duration = Duration::from_millis(100);
/// The refusal if both nodes are in different clusters.
pub(super) const APART: &str = "both nodes belong to clusters already";
/// Time between two checks of progress.
const LOOK: Duration = Duration::from_millis(20);
/// How long a node waits to be asked by a busy node with a higher name, before it asks that node
/// again.
const YIELD_TIME: Duration = Duration::from_millis(400);
/// How long to wait until this node has left.
const LEAVE_TIME: Duration = Duration::from_secs(5);
/// How long other nodes may take to take over its office and its vote: many clients wait at most
/// five seconds for a reply.
const LEAVE_IN_ORDER_TIME: Duration = Duration::from_secs(3);

/// The question of a node that meets another one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Question {
    node: NodeId,
    /// Whether it is in a group.
    is_member: bool,
    /// The host at which it reached the other node.
    your_host: String,
    /// Its own address.
    place: Place,
    /// The hash slots with owners: those of its group, or its own if it is by itself.
    owned: Vec<SlotRange>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// Both are in the same group, or the same node.
    Known,
    /// The asker is to join this node's group.
    JoinMe,
    /// The answering node joins the asker's group.
    Joining(NodeId),
    /// The answering node is meeting another node, or cannot determine its group's decisions now.
    Busy(NodeId),
    /// The meeting is refused, for this reason.
    Refused(String),
}

impl Question {
    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.raw(&self.node.0).u8(u8::from(self.is_member));
        writer.string(self.your_host.as_bytes());
        self.place.encode(&mut writer);
        encode_ranges(&mut writer, &self.owned);
        writer.0
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let question = Self {
            node: NodeId(reader.array()?),
            is_member: reader.bool()?,
            your_host: reader.text()?,
            place: Place::decode(&mut reader)?,
            owned: decode_ranges(&mut reader)?,
        };
        reader.end()?;
        let is_sound = are_ranges(&question.owned);
        is_sound.then_some(question).ok_or(Malformed::Value)
    }
}

impl Answer {
    fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Self::Known => drop(writer.u8(1)),
            Self::JoinMe => drop(writer.u8(2)),
            Self::Joining(node) => drop(writer.u8(3).raw(&node.0)),
            Self::Busy(node) => drop(writer.u8(4).raw(&node.0)),
            Self::Refused(reason) => drop(writer.u8(5).string(reason.as_bytes())),
        }
        writer.0
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let answer = match reader.u8()? {
            1 => Self::Known,
            2 => Self::JoinMe,
            3 => Self::Joining(NodeId(reader.array()?)),
            4 => Self::Busy(NodeId(reader.array()?)),
            5 => Self::Refused(reader.text()?),
            kind => return Err(Malformed::Kind(kind)),
        };
        reader.end()?;
        Ok(answer)
    }
}

impl Part {
    /// Meets a node, and waits until both are in one group.
    pub(super) fn meet_at(self: &Arc<Self>, meeting: &Meeting) -> Result<(), String> {
        let node = self.node.upgrade().ok_or("the server stops")?;
        let Meeting { host, link_port } = meeting.clone();
        let there = Place {
            host,
            port: link_port,
        };
        if is_this_machine(&there.host) && there.port == self.record(&node).link_port {
            return Ok(());
        }
        let mut waited = Duration::ZERO;
        let claims = node.cluster_mode.claims();
        let mut wait = |pause: Duration| {
            std::thread::sleep(pause);
            waited += pause;
            (waited < SETTLE_TIME).then_some(()).ok_or(
                "the other node meets somebody else all the time, or cannot say what its cluster has decided",
            )
        };
        loop {
            match self.meet_once(&node, &there)? {
                Answer::Known => {
                    // What the other node has brought is then known here, too.
                    let _newest = self.log().map(|log| log.read_barrier());
                    return Ok(());
                }
                Answer::Refused(reason) if reason == APART => {
                    self.come_together(&node, &there)?;
                    wait(MERGE_LOOK)?;
                }
                Answer::Refused(reason) => return Err(reason),
                // When it is asked again, it answers once it has brought what it owns.
                Answer::Joining(other) => {
                    self.wait_for(SETTLE_TIME, "the other node has not joined", |state| {
                        state.nodes.contains_key(&other) && state.shard_of(other).is_some()
                    })?;
                }
                Answer::JoinMe => return self.wait_for_own_shard(&node, &claims),
                Answer::Busy(busy) => wait(pause_after_busy(self.own(&node), busy))?,
            }
        }
    }

    /// Waits until this node has a shard, and the shard owns the hash slots that the node owned by
    /// itself.
    fn wait_for_own_shard(&self, node: &Node, claims: &[SlotRange]) -> Result<(), String> {
        let own = self.own(node);
        self.wait_for(SETTLE_TIME, "this node has no shard yet", |state| {
            state.shard_of(own).is_some()
        })?;
        let slots = || claims.iter().flat_map(|(first, last)| *first..=*last);
        // The claims end as soon as the leader has applied them, which this node learns a moment
        // later.
        let brought = poll(SETTLE_TIME, LOOK, || {
            let state = self.log()?.watch();
            let shard = state.shard_of(own)?;
            let owners = || slots().map(|slot| (slot, state.slots.owner(slot)));
            let is_over =
                node.cluster_mode.claims().is_empty() && owners().all(|(_, owner)| owner.is_some());
            is_over.then(|| owners().find(|(_, owner)| *owner != Some(shard)))
        });
        match brought {
            None => Err("its hash slots are not brought yet, and may be so later".to_owned()),
            Some(Some((slot, _))) => {
                Err(format!("hash slot {slot} has got another owner meanwhile"))
            }
            Some(None) => Ok(()),
        }
    }

    /// Asks the other node, and joins it if it answers so.
    fn meet_once(self: &Arc<Self>, node: &Arc<Node>, there: &Place) -> Result<Answer, String> {
        let Some(_one) = self.try_meet() else {
            return Ok(Answer::Busy(self.own(node)));
        };
        if let Some(host) = local_address((there.host.as_str(), there.port)) {
            self.note_host(&host).map_err(|error| error.to_string())?;
        }
        let question = self.question(node, &there.host)?;
        let told = self
            .links
            .ask_once(there, Subject::Meet, question.encode(), MEET_TIME)?;
        let answer = Answer::decode(&told).map_err(|what| what.to_string())?;
        if answer == Answer::JoinMe {
            self.join_cluster(node, there)?;
        }
        Ok(answer)
    }

    /// Returns the right to meet a node, or `None` if this node is meeting one already or is about
    /// to be by itself.
    pub(super) fn try_meet(&self) -> Option<MutexGuard<'_, ()>> {
        if self.is_ending() {
            return None;
        }
        match self.meeting.try_lock() {
            Ok(one) => Some(one),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// This node's name, in its group or by itself.
    fn own(&self, node: &Node) -> NodeId {
        let member = self.member();
        member.unwrap_or_else(|| node.cluster_mode.name_by_itself().0)
    }

    fn question(&self, node: &Node, your_host: &str) -> Result<Question, String> {
        let record = self.record(node);
        let is_member = self.member().is_some();
        let owned = match is_member {
            true => {
                let state = self.log().map(|log| log.watch()).unwrap_or_default();
                state.slots.ranges().map(|(range, _)| range).collect()
            }
            false => {
                let claims = node.cluster_mode.claims();
                check_keys(node, &claims)?;
                claims
            }
        };
        Ok(Question {
            node: self.own(node),
            is_member,
            your_host: your_host.to_owned(),
            place: place_of(&record),
            owned,
        })
    }

    /// Handles another node's meeting on a separate thread, because it may take long.
    pub(super) fn hear_of_meeting(self: &Arc<Self>, asked: Asked) {
        let part = Arc::clone(self);
        let spawned = spawn("meet", move || part.answer_meeting(asked));
        // Without a thread the question is dropped, which answers it.
        let _refused = spawned;
    }

    fn answer_meeting(self: &Arc<Self>, asked: Asked) {
        let Asked {
            from, bytes, reply, ..
        } = asked;
        let (Some(node), Ok(question)) = (self.node.upgrade(), Question::decode(&bytes)) else {
            return reply.answer(Err("not a meeting".to_owned()));
        };
        if question.node != from || !node.core.config.current().cluster.is_on {
            let reason = "this node is not in cluster mode".to_owned();
            return reply.answer(Ok(Answer::Refused(reason).encode()));
        }
        let Some(_one) = self.try_meet() else {
            return reply.answer(Ok(Answer::Busy(self.own(&node)).encode()));
        };
        let answer = self.judge(&node, &question);
        let answer = answer.unwrap_or_else(Answer::Refused);
        let joins = matches!(answer, Answer::Joining(_));
        reply.answer(Ok(answer.encode()));
        if joins && let Err(reason) = self.join_cluster(&node, &question.place) {
            node.core.log.warning(format_args!(
                "This node cannot join the cluster of {}:{}: {reason}",
                question.place.host, question.place.port
            ));
        }
    }

    /// Decides the outcome of a meeting.
    fn judge(self: &Arc<Self>, node: &Arc<Node>, question: &Question) -> Result<Answer, String> {
        if question.node == self.own(node) {
            return Ok(Answer::Known);
        }
        self.note_host(&question.your_host)
            .map_err(|error| error.to_string())?;
        // If there are two clusters, the asker's founder is asked for later.
        let asker = match question.is_member {
            true => Side::Of(None),
            false => Side::ByItself,
        };
        if self.member().is_some() {
            let (state, is_newest) = self.state_with(question.node);
            if state.nodes.contains_key(&question.node) {
                self.wait_for(MEET_TIME, "its hash slots are not brought yet", |_| {
                    node.cluster_mode.claims().is_empty()
                })?;
                return Ok(Answer::Known);
            }
            if question.is_member && !is_newest {
                // The asker may be in this node's group, which has just joined or has no leader for
                // a moment.
                return Ok(Answer::Busy(self.own(node)));
            }
            if judge(asker, Side::Of(founder(&state))) != cluster::meeting::Meeting::AskerJoins {
                return Err(APART.to_owned());
            }
            let owned: Vec<SlotRange> = state.slots.ranges().map(|(range, _)| range).collect();
            check_overlap(&question.owned, &owned)?;
            return Ok(Answer::JoinMe);
        }
        let claims = node.cluster_mode.claims();
        check_keys(node, &claims)?;
        check_overlap(&claims, &question.owned)?;
        if judge(asker, Side::ByItself) == cluster::meeting::Meeting::ContactedJoins {
            return Ok(Answer::Joining(self.own(node)));
        }
        self.begin_cluster(node)?;
        Ok(Answer::JoinMe)
    }

    /// Returns the group's state, the newest one if the known one lacks the node. Also returns
    /// whether it is the newest, or has the node. Two nodes that meet each other at once may be in
    /// one group, and one of them may learn that late.
    fn state_with(&self, node: NodeId) -> (Arc<ControlState>, bool) {
        let Some(log) = self.log() else {
            return (Arc::default(), false);
        };
        let known = log.watch();
        if known.nodes.contains_key(&node) {
            return (known, true);
        }
        let is_newest = log.read_barrier().is_ok();
        (log.watch(), is_newest)
    }

    /// Founds a group with this node, which was by itself.
    fn begin_cluster(self: &Arc<Self>, node: &Arc<Node>) -> Result<(), String> {
        let (id, start_count) = node.cluster_mode.name_by_itself();
        self.enter(node, |kept| {
            kept.id = id;
            kept.start_count = kept.start_count.max(start_count);
            kept.raft_id = Some(FIRST_RAFT_ID);
        })?;
        self.merging.note_founded(node);
        self.wait_for(MEET_TIME, "the group does not begin", |state| {
            state.shard_of(id).is_some() && node.cluster_mode.claims().is_empty()
        })
    }

    /// Joins another node's group; this node was by itself.
    pub(super) fn join_cluster(
        self: &Arc<Self>,
        node: &Arc<Node>,
        there: &Place,
    ) -> Result<(), String> {
        let (id, start_count) = node.cluster_mode.name_by_itself();
        let mut record = self.record(node);
        record.start_count = record.start_count.max(start_count);
        let mut refusal = String::new();
        let joined = poll(MEET_TIME, LOOK, || {
            match self.ask_to_join(id, &record, there) {
                Ok(joined) => Some(Some(joined)),
                Err(reason) => {
                    refusal = reason;
                    node.is_stopping().then_some(None)
                }
            }
        });
        let (raft_id, state) = joined.flatten().ok_or(refusal)?;
        self.enter(node, |kept| {
            kept.id = id;
            kept.start_count = record.start_count;
            kept.raft_id = Some(raft_id);
            kept.incarnation = state.incarnation;
            kept.founder = told_founder(&state);
            kept.peers = peers_of(&state, id);
        })?;
        node.core.log.notice(format_args!(
            "This node has joined the cluster, as member {raft_id}"
        ));
        Ok(())
    }

    /// Waits until the group's state satisfies `is_so`.
    fn wait_for(
        &self,
        time: Duration,
        what: &str,
        is_so: impl Fn(&ControlState) -> bool,
    ) -> Result<(), String> {
        let decided = poll(time, LOOK, || {
            let state = self.log()?.watch();
            is_so(&state).then_some(())
        });
        decided.ok_or_else(|| format!("{what}, and may do so later"))
    }

    /// Leaves the group. The node is by itself when this returns.
    pub(super) fn leave_cluster(&self) -> Result<(), String> {
        let _one = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(own), Some(log)) = (self.member(), self.log()) else {
            return self.wait_until_out();
        };
        drop(log);
        // If no leader decides, no node serves them.
        let _decided = self.give_slots_up(own);
        match self.leave_in_order(own) {
            Some(true) => return Ok(()),
            Some(false) => {
                let decided = self.decide_now(Entry::Leave { node: own });
                if decided == Some(Applied::Refused) {
                    return Err(
                        "the group needs this node: it owns hash slots, or is the primary of others, or a majority may need it"
                            .to_owned(),
                    );
                }
            }
            // The other nodes may be gone, and the operator wants this node out.
            None => {}
        }
        let _in_a_group = self.post(Event::Forget);
        self.wait_until_out()
    }

    /// Leaves as soon as no node needs this one: another node has its office and its vote. Returns
    /// whether it has left; it stays if that takes too long. Returns `None` if no leader decides.
    fn leave_in_order(&self, own: NodeId) -> Option<bool> {
        if self.log()?.watch().nodes.len() < 2 {
            return Some(false);
        }
        let order = |drain| self.decide_now(Entry::Drain { node: own, drain });
        if order(Drain::Leaving)? != Applied::Done {
            return Some(false);
        }
        let left = poll(LEAVE_IN_ORDER_TIME, LOOK, || match self.is_out() {
            true => Some(Some(true)),
            // Its replica may leave, too, instead of taking them over. The leader is not asked
            // again if it did not answer, because that takes long.
            false => match self.give_slots_up(own) {
                Some(()) => None,
                None => Some(None),
            },
        });
        left.unwrap_or_else(|| {
            let _stays = order(Drain::No);
            Some(false)
        })
    }

    /// Makes a primary without replicas give up its hash slots. Returns `None` if no leader
    /// decides.
    fn give_slots_up(&self, own: NodeId) -> Option<()> {
        let given_up = self.log().and_then(|log| slots_given_up(&log.watch(), own));
        match given_up {
            Some(given_up) => self.decide_now(given_up).map(drop),
            None => Some(()),
        }
    }

    /// Proposes an entry, and returns its outcome, or `None` if no leader decides.
    fn decide_now(&self, entry: Entry) -> Option<Applied> {
        self.log()?.propose(&unique::proposal(entry)).ok()
    }

    /// Waits until this node is in no group. Its role may change later, because that needs the end
    /// of the request that waits here.
    fn wait_until_out(&self) -> Result<(), String> {
        let out = poll(LEAVE_TIME, LOOK, || self.is_out().then_some(()));
        out.ok_or_else(|| "this node has not left yet".to_owned())
    }

    /// Asks the primary of this node's shard to hand its office over to this node.
    pub(super) fn ask_for_office(&self, primary: NodeId) -> Result<(), String> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let done = Box::new(move |told| {
            // The waiting thread may have given up.
            let _late = sender.send(told);
        });
        self.links.ask(primary, Subject::HandOver, Vec::new(), done);
        let told = receiver.recv_timeout(MEET_TIME);
        told.unwrap_or_else(|_| Err("the primary does not answer".to_owned()))
            .map(drop)
    }
}

/// Returns the entry by which a primary gives up its hash slots, if it has some and no replicas.
fn slots_given_up(state: &ControlState, own: NodeId) -> Option<Entry> {
    let id = state.shard_of(own)?;
    let shard = state.shards.get(&id)?;
    let ranges = state.slots.of(id);
    let is_alone = shard.primary == own && shard.everybody().len() == 1;
    (is_alone && !ranges.is_empty()).then_some(Entry::Slots {
        ranges,
        expected: Some(id),
        owner: None,
    })
}

/// Returns the pause before a busy node is asked again.
fn pause_after_busy(own: NodeId, busy: NodeId) -> Duration {
    if own < busy { YIELD_TIME } else { LOOK }
}

/// Fails if this node has keys in hash slots that it does not own.
fn check_keys(node: &Node, claims: &[SlotRange]) -> Result<(), String> {
    let store = &node.core.store;
    let mut handle = store.handle();
    let all: usize = (0..store.databases())
        .map(|database| handle.len(database))
        .sum();
    let slots = claims.iter().flat_map(|(first, last)| *first..=*last);
    let owned: u64 = slots.map(|slot| store.keys_in_hash_slot(slot)).sum();
    match u64::try_from(all).is_ok_and(|all| all <= owned) {
        true => Ok(()),
        false => Err("this node has keys in hash slots that it does not own".to_owned()),
    }
}

/// Fails if one of the claimed slots has an owner.
pub(super) fn check_overlap(claims: &[SlotRange], owned: &[SlotRange]) -> Result<(), String> {
    let mut slots = claims.iter().flat_map(|(first, last)| *first..=*last);
    let is_taken = |slot: &u16| {
        owned
            .iter()
            .any(|(first, last)| (first..=last).contains(&slot))
    };
    match slots.find(is_taken) {
        Some(slot) => Err(format!("hash slot {slot} is owned in both")),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_comes_back_from_its_bytes() {
        let question = Question {
            node: NodeId([7; 20]),
            is_member: true,
            your_host: "10.0.0.2".to_owned(),
            place: Place {
                host: "10.0.0.1".to_owned(),
                port: 17_000,
            },
            owned: vec![(0, 100), (200, 16_383)],
        };
        let bytes = question.encode();
        assert_eq!(Question::decode(&bytes), Ok(question));
        for end in 0..bytes.len() {
            assert!(Question::decode(&bytes[..end]).is_err(), "{end}");
        }
        for answer in [
            Answer::Known,
            Answer::JoinMe,
            Answer::Joining(NodeId([3; 20])),
            Answer::Busy(NodeId([4; 20])),
            Answer::Refused("no".to_owned()),
        ] {
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
        assert!(Answer::decode(&[9]).is_err());
    }

    /// With equal pauses, two nodes that asked each other at once would do so again.
    #[test]
    fn of_two_that_meet_each_other_the_lower_one_waits_to_be_asked() {
        let (lower, higher) = (NodeId([7; 20]), NodeId([8; 20]));
        let waits = pause_after_busy(lower, higher);
        assert!(waits >= 10 * pause_after_busy(higher, lower));
        // Its own meeting with another node ends soon.
        assert_eq!(pause_after_busy(lower, lower), LOOK);
    }

    #[test]
    fn slots_that_are_owned_are_refused() {
        assert!(check_overlap(&[(0, 10)], &[(11, 20)]).is_ok());
        let refused = check_overlap(&[(0, 10), (30, 40)], &[(11, 20), (40, 50)]);
        assert_eq!(refused.unwrap_err(), "hash slot 40 is owned in both");
    }
}
