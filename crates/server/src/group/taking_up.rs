//! Applies a new control state: the peers, this node's shard and the primary that it follows. Then
//! shows the state to the rest of the process.

use std::sync::Arc;

use cluster::control_log::RaftId;
use cluster::{ControlLog as _, Entry, NodeId, Shard, ShardId};

use super::driver::{Driver, Event, post};
use super::duty::PrimaryAddress;
use super::files::KnownPeer;
use super::view::Seen;
use super::{directives, documents, forming, libraries, unique};

/// The values that a published view was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Published {
    index: u64,
    leader: Option<RaftId>,
    control_term: u64,
    voters: usize,
    drift_ppm: i64,
    takes_part: bool,
}

impl Driver {
    /// Applies a new control state.
    pub(super) fn take_state(&mut self) {
        let state = Arc::clone(&self.state);
        let mut peers = forming::peers_of(&state, self.own);
        for peer in &mut peers {
            self.part.places.correct(&state, peer);
        }
        for KnownPeer {
            node,
            raft_id,
            place,
        } in &peers
        {
            self.links.set_place(*node, *raft_id, place);
        }
        if !state.nodes.is_empty() {
            self.links.retain(|node| state.nodes.contains_key(node));
        }
        // After a start the state may still be empty: the stored peers are what leads to the other
        // nodes.
        if !state.nodes.is_empty()
            && let Err(error) = self.part.keep_peers(peers)
        {
            self.warn(&format!(
                "Where the other nodes of the control group are cannot be kept: {error}"
            ));
        }
        if let Err(error) = self.part.note_founder(&state) {
            self.warn(&format!(
                "Who began the control group cannot be kept: {error}"
            ));
        }
        let shard = state.shard_of(self.own).filter(|_| self.duty.is_some());
        let is_confirmed = self.confirm_shard(shard);
        if let Some(id) = shard.filter(|_| is_confirmed) {
            self.take_shard(id);
        }
        if let Some(node) = self.node.upgrade() {
            // Access rights come first, before any client is served.
            documents::take(&node, &state);
            libraries::take(&node, &state);
            directives::take(&node, &state);
        }
        let is_primary = self
            .own_shard()
            .is_some_and(|shard| shard.primary == self.own);
        if !is_primary {
            // Before the role changes: waiting clients are then redirected.
            self.publish_seen();
        }
        if is_confirmed {
            let actions = self.member.on_state(&state);
            self.perform(actions);
        }
        if is_primary {
            // After the role changed: no client is sent to a primary that does not know yet that it
            // is to take over.
            self.publish_seen();
        }
        self.follow_again();
        self.record_own();
    }

    /// Notes that this node is in that shard.
    fn take_shard(&mut self, id: ShardId) {
        let Some(duty) = &self.duty else { return };
        if self.shard != Some(id) {
            self.followed = None;
            self.shard = Some(id);
        }
        duty.set_shard(id);
        if let Some(shard) = self.state.shards.get(&id) {
            self.was_replica = shard.primary != self.own;
            duty.set_members(shard);
        }
    }

    /// The shard of this node in the group's state.
    pub(super) fn own_shard(&self) -> Option<&Shard> {
        self.state.shards.get(&self.shard?)
    }

    /// Follows the primary at its new address, if that has changed.
    fn follow_again(&mut self) {
        let Some((term, known)) = &self.followed else {
            return;
        };
        let shard = self.own_shard();
        let Some(shard) = shard.filter(|shard| shard.term == *term && shard.primary != self.own)
        else {
            return;
        };
        let address = self.address_of(shard.primary);
        if address.as_ref().is_some_and(|address| address != known) {
            self.follow(shard.term, shard.primary);
        }
    }

    pub(super) fn address_of(&self, node: NodeId) -> Option<PrimaryAddress> {
        let record = &self.state.nodes.get(&node)?.record;
        Some(PrimaryAddress {
            host: record.host.clone(),
            client_port: record.client_port,
            link_port: record.link_port,
        })
    }

    /// Follows a primary, unless this node is about to stop (see [`super::retirement`]).
    pub(super) fn follow(&mut self, term: u64, primary: NodeId) {
        if !self.retirement.follows() {
            return;
        }
        let (Some(duty), Some(address)) = (&self.duty, self.address_of(primary)) else {
            return;
        };
        duty.follow(term, &address);
        self.tell(&format!(
            "This node follows {primary} at {}:{}, the primary of term {term}",
            address.host, address.client_port
        ));
        self.followed = Some((term, address));
    }

    /// Proposes this node's present record, if the group has another one.
    pub(super) fn record_own(&mut self) {
        let known = self.state.nodes.get(&self.own);
        let is_known = known.is_none_or(|known| known.record == self.record);
        if is_known || self.records_own {
            return;
        }
        self.records_own = true;
        let entry = Entry::Node {
            node: self.own,
            record: self.record.clone(),
        };
        let events = self.events.clone();
        let proposal = unique::proposal(entry);
        self.log
            .propose_anywhere(&proposal, move |_| post(&events, Event::Recorded));
    }

    /// Publishes this node's view, if it has changed.
    pub(super) fn publish(&mut self, now_ms: u64) {
        if let Some(node) = self.node.upgrade() {
            let node_timeout_ms = self.times.node_timeout_ms;
            let is_over = |since_ms| now_ms >= since_ms + node_timeout_ms;
            self.is_cut_off = self.leaderless_ms.is_some_and(is_over);
            node.cluster_mode.note_cut_off(&node, self.is_cut_off);
        }
        self.tell_leader();
        if self.published != Some(self.to_publish()) {
            self.publish_seen();
        }
    }

    /// The values whose change makes a new view worth publishing.
    fn to_publish(&self) -> Published {
        Published {
            index: self.state.index,
            leader: self.leader(),
            control_term: self.standing.term,
            voters: self.log.membership().voters.len(),
            drift_ppm: self.member.drift_ppm(),
            takes_part: self.standing.takes_part(),
        }
    }

    /// Logs a line if there is another leader, or none.
    fn tell_leader(&mut self) {
        let leader = self.leader();
        let Some(before) = self.told_leader.replace(leader) else {
            return;
        };
        if before == leader {
            return;
        }
        let known = leader.and_then(|leader| self.state.node_of(leader));
        let term = self.standing.term;
        self.tell(&match known {
            Some((leader, _)) => {
                format!("The control leader is {leader}, in term {term} of the control log")
            }
            None => "There is no control leader".to_owned(),
        });
    }

    fn publish_seen(&mut self) {
        let Some(node) = self.node.upgrade() else {
            return;
        };
        self.published = Some(self.to_publish());
        let leader = self.leader();
        let leader = leader.and_then(|leader| self.state.node_of(leader));
        node.group.publish(Seen {
            own: self.own,
            state: Arc::clone(&self.state),
            membership: self.log.membership(),
            leader: leader.map(|(id, _)| *id),
            control_term: self.standing.term,
            drift_ppm: self.member.drift_ppm(),
            fault: self.control_fault(),
        });
        self.routes_changed();
        node.replication.note_routes(&node, self.state.index);
    }
}
