//! Two young clusters become one, if nodes of both met each other.
//!
//! ```text
//!   a of X meets b of Y ─► which one gives way? (cluster::meeting) ─► X's founder is told
//!   the founder: node after node of X ─► keeps its hash slots, leaves X, joins Y with them ─► at last itself
//! ```
//!
//! A node that changes over records durably that it owns its hash slots by itself, before X takes
//! them from its shard. Whatever happens then, it is either still in X and brings them there again,
//! or by itself with them, or in Y. So X keeps its majority until its last node leaves, and a node
//! that was not reached is still in X.
//!
//! Replicas go first, without slots. Each follows its primary again as soon as that has changed
//! over, too.
//!
//! Invariants
//!  1. The same one of two clusters gives way, whichever asks: two clusters never swap places.
//!  2. A founder leaves when no other node is in its cluster, and no node can join it any more.

mod messages;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::control_log::{ControlLog as _, RaftId};
use cluster::entry::SlotRange;
use cluster::meeting::{self, Meeting, Side};
use cluster::{Applied, ControlState, Entry, Membership, NodeId, ShardId};

use self::messages::{Order, Question, Verdict, decode_peers, encode_peers};
use super::control::Part;
use super::driver::Event;
use super::files::{KnownPeer, Place, place_of};
use super::forming::peers_of;
use super::holder::{SharedLog, TakesPart as _};
use super::links::{Asked, Subject, spawn};
use super::meeting::{APART, check_overlap};
use super::unique;
use crate::node::Node;
use crate::poll::poll;

/// Timeout of a question.
const ASK_TIME: Duration = Duration::from_secs(10);
/// Maximum time for a node to change over, ...
const MEMBER_TIME: Duration = Duration::from_secs(40);
/// ... to end a meeting or to leave, ...
const STEP_TIME: Duration = Duration::from_secs(15);
/// ... to get a decision of its cluster (counting the pauses alone), ...
const DECIDE_TIME: Duration = Duration::from_millis(200);
/// ... and for the whole merge.
const ALL_MS: u64 = 120_000;
/// Time between two checks.
const LOOK: Duration = Duration::from_millis(20);

impl Part {
    /// Begins to merge this node's cluster with another node's: one of them gives way. The merge
    /// continues after the call returns.
    ///
    /// # Errors
    /// Why neither gives way.
    pub(super) fn come_together(
        self: &Arc<Self>,
        node: &Arc<Node>,
        there: &Place,
    ) -> Result<(), String> {
        // If there is no leader at present, or the cluster is changing over already, the caller
        // tries again.
        let Some(state) = self.newest().filter(|state| meeting::is_told_apart(state)) else {
            return Ok(());
        };
        let Some(founder) = meeting::founder(&state) else {
            return Err(APART.to_owned());
        };
        let question = Question {
            founder,
            place: place_of(&self.record(node)),
            owned: state.slots.ranges().map(|(range, _)| range).collect(),
        };
        let told = self
            .links
            .ask_once(there, Subject::Merge, question.encode(), ASK_TIME)
            .map_err(|reason| match reason.starts_with("subject ") {
                // An older version does not merge clusters.
                true => APART.to_owned(),
                false => reason,
            })?;
        match Verdict::decode(&told).map_err(|what| what.to_string())? {
            Verdict::Later => Ok(()),
            Verdict::GiveWay(to) => self.tell_founder(node, &state, Order { founder, to }),
            Verdict::Refused(reason) => Err(reason),
        }
    }

    /// Returns the group's newest state, or `None` if that cannot be known at present.
    fn newest(&self) -> Option<Arc<ControlState>> {
        self.log()?.read_barrier().ok()
    }

    /// Answers a node of another cluster which of the two gives way. A separate thread does that,
    /// because it may take long.
    pub(super) fn hear_of_merge(self: &Arc<Self>, asked: Asked) {
        let part = Arc::clone(self);
        // Without a thread the question is dropped, which answers it.
        let _refused = spawn("merge", move || {
            let Asked { bytes, reply, .. } = asked;
            let (Some(node), Ok(question)) = (part.node.upgrade(), Question::decode(&bytes)) else {
                return reply.answer(Err("not a question of a cluster".to_owned()));
            };
            let verdict = part.judge_clusters(&node, &question);
            let verdict = verdict.unwrap_or_else(Verdict::Refused);
            reply.answer(Ok(verdict.encode()));
        });
    }

    fn judge_clusters(
        self: &Arc<Self>,
        node: &Arc<Node>,
        question: &Question,
    ) -> Result<Verdict, String> {
        let Some(state) = self.newest().filter(|state| meeting::is_told_apart(state)) else {
            return Ok(Verdict::Later);
        };
        let own = meeting::founder(&state);
        let owned: Vec<_> = state.slots.ranges().map(|(range, _)| range).collect();
        match meeting::judge(Side::Of(Some(question.founder)), Side::Of(own)) {
            Meeting::Known => Ok(Verdict::Later),
            Meeting::AskersGivesWay => {
                check_overlap(&question.owned, &owned)?;
                Ok(Verdict::GiveWay(place_of(&self.record(node))))
            }
            Meeting::ContactedsGivesWay => {
                check_overlap(&question.owned, &owned)?;
                let founder = own.ok_or(APART)?;
                let to = question.place.clone();
                self.tell_founder(node, &state, Order { founder, to })?;
                Ok(Verdict::Later)
            }
            _ => Err(APART.to_owned()),
        }
    }

    /// Notifies the founder of this node's cluster that the cluster has to give way.
    fn tell_founder(
        self: &Arc<Self>,
        node: &Arc<Node>,
        state: &ControlState,
        order: Order,
    ) -> Result<(), String> {
        let own = self.member();
        if own == Some(order.founder) {
            return self.begin_to_give_way(node, order.founder, order);
        }
        let founder = state.nodes.get(&order.founder).ok_or(APART)?;
        let place = place_of(&founder.record);
        let told = self
            .links
            .ask_once(&place, Subject::GiveWay, order.encode(), ASK_TIME);
        told.map(drop)
    }

    /// Handles the notice that this node's cluster gives way: from a member to the founder, or from
    /// the founder to this node.
    pub(super) fn hear_of_giving_way(self: &Arc<Self>, asked: Asked) {
        let part = Arc::clone(self);
        let _refused = spawn("merge", move || {
            let Asked {
                from, bytes, reply, ..
            } = asked;
            let (Some(node), Ok(order)) = (part.node.upgrade(), Order::decode(&bytes)) else {
                return reply.answer(Err("not an order of a cluster".to_owned()));
            };
            let own = node.cluster_mode.name_by_itself().0;
            let own = part.member().unwrap_or(own);
            reply.answer(if own == order.founder {
                let begun = part.begin_to_give_way(&node, from, order);
                begun.map(|()| Vec::new())
            } else if from == order.founder {
                part.change_over_when_free(&node, &order)
            } else {
                Err("a node that did not begin this cluster says that it gives way".to_owned())
            });
        });
    }

    /// Begins to have the cluster that this node founded give way, on a thread of its own. Only one
    /// such thread works at a time.
    fn begin_to_give_way(
        self: &Arc<Self>,
        node: &Arc<Node>,
        from: NodeId,
        order: Order,
    ) -> Result<(), String> {
        let Some(state) = self.newest() else {
            return Ok(());
        };
        if meeting::founder(&state) != Some(order.founder) || !state.nodes.contains_key(&from) {
            // The cluster has given way meanwhile.
            return Ok(());
        }
        if !self.merging.is_young(node) || !meeting::may_give_way(&state) {
            return Err(APART.to_owned());
        }
        let (part, node) = (Arc::clone(self), Arc::clone(node));
        let begun = spawn("merge", move || {
            // If the node is busy, it is notified again.
            if let Some(_one) = part.try_meet()
                && let Err(reason) = part.give_way(&node, &order)
            {
                node.core.log.warning(format_args!(
                    "Not all of this cluster could join that of {}:{}: {reason}",
                    order.to.host, order.to.port
                ));
            }
        });
        begun.map_err(|error| error.to_string())
    }

    /// Makes the nodes change over one after the other, and this one last.
    fn give_way(self: &Arc<Self>, node: &Arc<Node>, order: &Order) -> Result<(), String> {
        node.core.log.notice(format_args!(
            "The cluster that this node began gives way to that of {}:{}, which nodes of both have met",
            order.to.host, order.to.port
        ));
        let until_ms = node.core.clock.monotonic_ms() + ALL_MS;
        let (mut places, mut gone) = (BTreeMap::new(), BTreeSet::new());
        let mut told = "they did not come to it".to_owned();
        while !node.is_stopping() && node.core.clock.monotonic_ms() < until_ms {
            let Some((own, log)) = self.member().zip(self.raft_log()) else {
                return Ok(());
            };
            let state = log.watch();
            places.extend(
                peers_of(&state, own)
                    .into_iter()
                    .map(|peer| (peer.node, peer.place)),
            );
            let others = places.iter().filter(|(other, _)| !gone.contains(*other));
            let next = others.min_by_key(|(other, _)| meeting::followed(&state, **other).is_none());
            let Some((other, place)) = next else {
                match self.is_last(own, &gone) {
                    true => return self.change_over(node, order).map(drop),
                    false => continue,
                }
            };
            if !is_settled(&state, &log.membership(), &gone) {
                // First the remaining nodes must have a majority by themselves.
                std::thread::sleep(LOOK);
                continue;
            }
            let asked = self
                .links
                .ask_once(place, Subject::GiveWay, order.encode(), MEMBER_TIME);
            let other = *other;
            match asked.and_then(|told| decode_peers(&told).map_err(|what| what.to_string())) {
                Ok(peers) => {
                    let peers = peers.into_iter().filter(|peer| peer.node != own);
                    places.extend(peers.map(|peer| (peer.node, peer.place)));
                    gone.insert(other);
                }
                Err(reason) => {
                    told = format!("{other}: {reason}");
                    std::thread::sleep(5 * LOOK);
                }
            }
        }
        Err(told)
    }

    /// Whether this founder is the only node left in its cluster, and no node can join it any more.
    fn is_last(&self, own: NodeId, gone: &BTreeSet<NodeId>) -> bool {
        self.merging.set_gives_way(true);
        let Some(log) = self.raft_log() else {
            return true;
        };
        let state = log.watch();
        let record = state.nodes.get(&own).map(|known| known.record.clone());
        // Without a majority no node can join. With one, a node that joined before this entry is in
        // the state afterwards.
        if let Some(record) = record
            && is_settled(&state, &log.membership(), gone)
        {
            let _applied = log.propose(&unique::proposal(Entry::Node { node: own, record }));
        }
        let state = log.watch();
        let is_last = state
            .nodes
            .keys()
            .all(|node| *node == own || gone.contains(node));
        if !is_last {
            self.merging.set_gives_way(false);
        }
        is_last
    }

    /// Changes over as soon as this node meets no other node. Returns the other nodes of the
    /// cluster that it leaves.
    fn change_over_when_free(
        self: &Arc<Self>,
        node: &Arc<Node>,
        order: &Order,
    ) -> Result<Vec<u8>, String> {
        let one = poll(STEP_TIME, LOOK, || self.try_meet());
        let _one = one.ok_or("this node meets another one")?;
        self.change_over(node, order)
            .map(|peers| encode_peers(&peers))
    }

    /// Leaves the cluster that gives way, and joins the other one with this node's hash slots. The
    /// node must not meet another node meanwhile.
    fn change_over(
        self: &Arc<Self>,
        node: &Arc<Node>,
        order: &Order,
    ) -> Result<Vec<KnownPeer>, String> {
        let (mut peers, mut followed) = (Vec::new(), None);
        if let Some((own, log)) = self.member().zip(self.log()) {
            let is_last = own == order.founder;
            let state = match is_last {
                true => log.watch(),
                false => log.read_barrier().map_err(|error| error.to_string())?,
            };
            if meeting::founder(&state) != Some(order.founder) {
                return Ok(peers);
            }
            if !meeting::may_give_way(&state) {
                return Err(APART.to_owned());
            }
            followed = meeting::followed(&state, own);
            self.merging.set_gives_way(true);
            let left = match followed {
                Some(_) => self
                    .give_up(&log, own, None)
                    .and_then(|()| self.be_out(own, log)),
                None => self.leave_with_slots(node, own, log, is_last),
            };
            self.merging.set_gives_way(false);
            peers = left?;
        }
        self.join_cluster(node, &order.to)?;
        if let Some(primary) = followed {
            let (part, node) = (Arc::clone(self), Arc::clone(node));
            let begun = spawn("merge", move || part.follow_again(&node, primary));
            begun.map_err(|error| error.to_string())?;
        }
        Ok(peers)
    }

    /// Becomes a replica of its former primary again, once that has changed over, too.
    fn follow_again(&self, node: &Node, primary: NodeId) {
        let follows = || {
            let (own, log) = self.member().zip(self.log())?;
            let state = log.watch();
            if meeting::followed(&state, own) == Some(primary) {
                return Some(());
            }
            let to = state.shard_of(primary)?;
            let entry = Entry::add_data_copy(to, state.shards.get(&to)?, own);
            // The next check shows whether that had an effect.
            let _applied = log.propose(&unique::proposal(entry));
            None
        };
        if poll(Duration::from_millis(ALL_MS), LOOK, follows).is_none() {
            node.core.log.warning(format_args!(
                "This node does not follow {primary} any more, which has not come to the other cluster"
            ));
        }
    }

    /// Leaves the cluster. The node is then by itself with the hash slots that it owned.
    fn leave_with_slots(
        &self,
        node: &Arc<Node>,
        own: NodeId,
        log: SharedLog,
        is_last: bool,
    ) -> Result<Vec<KnownPeer>, String> {
        let state = log.watch();
        let shard = state.shard_of(own);
        let copies = shard.and_then(|id| state.shards.get(&id));
        if copies.is_some_and(|copies| copies.everybody().len() > 1) {
            return Err("its replicas go first".to_owned());
        }
        let ranges = shard.map(|shard| state.slots.of(shard)).unwrap_or_default();
        let brought = node.cluster_mode.bring(node, &ranges);
        brought.map_err(|error| format!("its hash slots cannot be kept: {error}"))?;
        // After the last node no node is left that would have to know.
        let given_up = match is_last {
            true => Ok(()),
            false => self.give_up(&log, own, shard.map(|shard| (shard, ranges))),
        };
        if let Err(reason) = given_up {
            // The node brings the recorded slots to the cluster that it is still in.
            node.cluster_mode.end_to_bring();
            return Err(reason);
        }
        self.be_out(own, log)
    }

    /// Makes this node be by itself after it has left. Returns the other nodes of the cluster.
    fn be_out(&self, own: NodeId, log: SharedLog) -> Result<Vec<KnownPeer>, String> {
        let peers = peers_of(&log.watch(), own);
        drop(log);
        let _in_a_group = self.post(Event::Forget);
        let out = poll(STEP_TIME, LOOK, || self.is_out().then_some(()));
        out.ok_or("this node has not left yet")?;
        Ok(peers)
    }

    /// Tells the cluster that this node leaves, and that its shard gives up its hash slots.
    fn give_up(
        &self,
        log: &SharedLog,
        own: NodeId,
        owned: Option<(ShardId, Vec<SlotRange>)>,
    ) -> Result<(), String> {
        if let Some((shard, ranges)) = owned.filter(|(_, ranges)| !ranges.is_empty()) {
            let slots = Entry::Slots {
                ranges,
                expected: Some(shard),
                owner: None,
            };
            if self.decide(log, slots)? != Applied::Done {
                return Err("its hash slots have changed meanwhile".to_owned());
            }
        }
        match self.decide(log, Entry::Leave { node: own })? {
            Applied::Done | Applied::Stale => Ok(()),
            Applied::Refused => Err("its cluster needs this node".to_owned()),
        }
    }

    /// Proposes an entry, and repeats that while its outcome is unknown. A node that is no longer a
    /// member does not learn the outcome; that counts as done.
    fn decide(&self, log: &SharedLog, entry: Entry) -> Result<Applied, String> {
        let proposal = unique::proposal(entry);
        let mut told = String::new();
        let decided = poll(DECIDE_TIME, LOOK, || match log.propose(&proposal) {
            Ok(applied) => Some(applied),
            Err(_) if self.member().is_none() => Some(Applied::Done),
            Err(error) => {
                told = error.to_string();
                None
            }
        });
        decided.ok_or(told)
    }
}

/// Whether the remaining nodes of a cluster decide by themselves: no node that has left has a vote.
fn is_settled(state: &ControlState, members: &Membership, gone: &BTreeSet<NodeId>) -> bool {
    let is_there = |voter: &RaftId| {
        let known = state.node_of(*voter);
        known.is_some_and(|(node, _)| !gone.contains(node))
    };
    !members.is_changing && members.voters.iter().all(is_there)
}
