//! Nodes that restarted at new addresses find each other: all addresses of a group may be new after
//! a restart.
//!
//! ```text
//!   nobody is known to lead, or the group is not known to have this node where it is
//!     └─► every peer where it was last, and every seed: "I am here now" ◄──► "I am here, and these told me that they are there"
//! ```
//!
//! An address that a node announced since this server started overrides the control state, until
//! that has an equally new record of the node. An address does not identify a node: a link proves
//! the secret and names the node at its other end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::bytes::{Malformed, Reader, Writer};
use cluster::control_log::RaftId;
use cluster::{ControlState, NodeId, NodeRecord};

use super::control::Part;
use super::driver::Driver;
use super::files::{KnownPeer, NODES_MAX, Place, place_of};
use super::links::{Asked, Subject, spawn};

/// Time between two rounds.
const PAUSE_MS: u64 = 500;
/// Time that a seed has to answer.
const ASK_TIME: Duration = Duration::from_secs(2);

/// The address that a node announced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    raft_id: RaftId,
    start_count: u64,
    place: Place,
}

/// Nodes that announced their addresses since this server started.
#[derive(Debug, Default)]
pub(super) struct Places {
    told: Mutex<BTreeMap<NodeId, Told>>,
    /// Whether a round is in progress.
    is_asking: Arc<AtomicBool>,
}

impl Places {
    fn told(&self) -> MutexGuard<'_, BTreeMap<NodeId, Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces a peer's address from the control state by a newer announced one.
    pub(super) fn correct(&self, state: &ControlState, peer: &mut KnownPeer) {
        let mut told = self.told();
        let Some(known) = told.get(&peer.node) else {
            return;
        };
        let record = state.nodes.get(&peer.node).map(|node| &node.record);
        let is_newer = record.is_some_and(|record| record.start_count < known.start_count);
        match is_newer && known.raft_id == peer.raft_id {
            true => peer.place = known.place.clone(),
            false => drop(told.remove(&peer.node)),
        }
    }
}

fn encode(nodes: &BTreeMap<NodeId, Told>) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.count(nodes.len());
    for (node, told) in nodes {
        let writer = writer.raw(&node.0).u64(told.raft_id).u64(told.start_count);
        told.place.encode(writer);
    }
    writer.0
}

fn decode(bytes: &[u8]) -> Result<BTreeMap<NodeId, Told>, Malformed> {
    let mut reader = Reader(bytes);
    let count = reader.count()?;
    if count > NODES_MAX {
        return Err(Malformed::Length);
    }
    let mut nodes = BTreeMap::new();
    for _ in 0..count {
        let node = NodeId(reader.array()?);
        let (raft_id, start_count) = (reader.u64()?, reader.u64()?);
        let place = Place::decode(&mut reader)?;
        nodes.insert(
            node,
            Told {
                raft_id,
                start_count,
                place,
            },
        );
    }
    reader.end()?;
    Ok(nodes)
}

/// Whether a node is in this node's group, as far as the state shows, or `None` if the state has no
/// nodes.
fn is_member(state: &ControlState, node: NodeId, raft_id: RaftId) -> Option<bool> {
    if state.nodes.is_empty() {
        return None;
    }
    Some(match state.nodes.get(&node) {
        Some(known) => known.raft_id == raft_id,
        // Numbers in Raft are indexes of its log: this node has joined since, and may be the
        // leader.
        None => raft_id > state.index,
    })
}

/// Whether the group's record of a node is of its last start and has its address. The state known
/// here may be older.
fn has_place_of(state: &ControlState, node: NodeId, record: &NodeRecord) -> bool {
    let recorded = state.nodes.get(&node).map(|known| &known.record);
    recorded.is_some_and(|recorded| {
        recorded.start_count == record.start_count && place_of(recorded) == place_of(record)
    })
}

impl Part {
    /// Returns this node's address and those that it knows: from the control state, which the
    /// asking node may not have, and announced ones if they are newer.
    fn known_places(&self, own: NodeId, raft_id: RaftId, record: &NodeRecord) -> Vec<u8> {
        let state = self.raft_log().map(|log| cluster::ControlLog::watch(&*log));
        let recorded = state.iter().flat_map(|state| &state.nodes);
        let mut nodes: BTreeMap<NodeId, Told> = recorded
            .filter(|(_, known)| !known.record.host.is_empty())
            .map(|(node, known)| {
                let told = Told {
                    raft_id: known.raft_id,
                    start_count: known.record.start_count,
                    place: place_of(&known.record),
                };
                (*node, told)
            })
            .collect();
        let told = self.places.told().clone();
        nodes.extend(told);
        let told = Told {
            raft_id,
            start_count: record.start_count,
            place: place_of(record),
        };
        nodes.insert(own, told);
        encode(&nodes)
    }

    /// Handles another node's announcement, and answers with this node's.
    pub(super) fn hear_of_places(&self, asked: Asked) {
        let Asked { bytes, reply, .. } = asked;
        let answer = self.node.upgrade().and_then(|node| {
            let (own, raft_id) = self.names()?;
            Some(self.known_places(own, raft_id, &self.record(&node)))
        });
        match (self.take_places(&bytes), answer) {
            (Ok(()), Some(answer)) => reply.answer(Ok(answer)),
            (Ok(()), None) => reply.answer(Err("this node is in no control group".to_owned())),
            (Err(what), _) => reply.answer(Err(what.to_string())),
        }
    }

    /// Takes the announced addresses of members of this node's group.
    fn take_places(&self, bytes: &[u8]) -> Result<(), Malformed> {
        let told = decode(bytes)?;
        let (Some(log), Some((own, _))) = (self.raft_log(), self.names()) else {
            return Ok(());
        };
        let state = cluster::ControlLog::watch(&*log);
        for (node, told) in told {
            let known = state.nodes.get(&node);
            let is_member = match is_member(&state, node, told.raft_id) {
                Some(is_member) => is_member,
                // Before the state is read, the peers of the last run count. A node that was killed
                // just after it had joined knows no peers.
                None => self.may_be_a_peer(node, told.raft_id),
            };
            let recorded = known.map_or(0, |known| known.record.start_count);
            if node == own || !is_member || told.start_count <= recorded {
                continue;
            }
            let mut all = self.places.told();
            let is_news = all
                .get(&node)
                .is_none_or(|before| before.start_count <= told.start_count && *before != told);
            if is_news {
                self.links.set_place(node, told.raft_id, &told.place);
                all.insert(node, told);
            }
        }
        Ok(())
    }
}

impl Driver {
    /// Announces this node's address to other nodes, and asks for theirs, while no leader is known
    /// or heard, or the group's record does not have this node's address. A leader that answers
    /// heartbeats does not show that it does: a node that was killed just after it had joined
    /// reaches the leader, whose log goes to the node's former address. After a start Raft names
    /// the last leader, which this node may not be able to reach, nor be reached by.
    pub(super) fn look_for_others(&mut self, now_ms: u64) {
        let is_elsewhere = !has_place_of(&self.state, self.own, &self.record);
        let is_over = |since_ms: u64| now_ms >= since_ms + self.times.election_ms_max;
        let is_lost = self.leaderless_ms.is_some_and(is_over)
            || is_over(self.heard_leader_ms) && !self.standing.is_leader;
        let is_due = now_ms >= self.asked_places_ms + PAUSE_MS;
        let asking = Arc::clone(&self.part.places.is_asking);
        if !(is_lost || is_elsewhere) || !is_due || asking.swap(true, Ordering::AcqRel) {
            return;
        }
        self.asked_places_ms = now_ms;
        let (part, node) = (Arc::clone(&self.part), self.node.upgrade());
        let (own, record) = (self.own, self.record.clone());
        let asks = spawn("places", {
            let asking = Arc::clone(&asking);
            move || {
                if let (Some(node), Some((_, raft_id))) = (node, part.names()) {
                    let bytes = part.known_places(own, raft_id, &record);
                    let seeds = node.core.config.current().group.seeds.clone();
                    part.ask_for_places(own, &bytes, &seeds);
                }
                asking.store(false, Ordering::Release);
            }
        });
        if asks.is_err() {
            asking.store(false, Ordering::Release);
        }
    }
}

impl Part {
    /// Does one round, and waits for the answers of seeds.
    fn ask_for_places(&self, own: NodeId, bytes: &[u8], seeds: &[(String, u16)]) {
        for node in self.links.nodes() {
            if node != own {
                let part = self.weak();
                let done = move |told: Result<Vec<u8>, String>| {
                    if let (Some(part), Ok(bytes)) = (part.upgrade(), told) {
                        // A malformed answer is ignored.
                        let _nonsense = part.take_places(&bytes);
                    }
                };
                self.links
                    .ask(node, Subject::Places, bytes.to_vec(), Box::new(done));
            }
        }
        for (host, port) in seeds {
            let (host, port) = (host.clone(), *port);
            let seed = Place { host, port };
            let told = self
                .links
                .ask_once(&seed, Subject::Places, bytes.to_vec(), ASK_TIME);
            if let Ok(bytes) = told {
                let _nonsense = self.take_places(&bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::state::Node;

    use super::*;

    /// A node that was killed before it learned of the last node to join gets that from other
    /// nodes.
    #[test]
    fn who_joined_after_the_state_that_is_known_is_looked_for() {
        let (one, other) = (NodeId([1; 20]), NodeId([2; 20]));
        let mut state = ControlState::default();
        assert_eq!(is_member(&state, one, 8), None);
        state.index = 10;
        let node = Node {
            raft_id: 8,
            ..Node::default()
        };
        state.nodes.insert(one, node);
        assert_eq!(is_member(&state, one, 8), Some(true));
        assert_eq!(is_member(&state, one, 9), Some(false));
        assert_eq!(is_member(&state, other, 12), Some(true));
        // It was there and has left, or it never joined.
        assert_eq!(is_member(&state, other, 9), Some(false));
    }

    /// A node announces its address if it was killed before it had read the group's state, or has
    /// come back to an earlier address.
    #[test]
    fn a_record_of_an_earlier_start_does_not_show_where_a_node_is() {
        let node = NodeId([1; 20]);
        let record = |start_count, link_port| NodeRecord {
            start_count,
            link_port,
            ..NodeRecord::default()
        };
        let mut state = ControlState::default();
        assert!(!has_place_of(&state, node, &record(2, 7)));
        let known = Node {
            record: record(1, 7),
            ..Node::default()
        };
        state.nodes.insert(node, known);
        assert!(has_place_of(&state, node, &record(1, 7)));
        assert!(!has_place_of(&state, node, &record(1, 8)));
        assert!(!has_place_of(&state, node, &record(2, 7)));
    }

    #[test]
    fn places_come_back_as_they_were_written() {
        let told = |port| Told {
            raft_id: 7,
            start_count: 3,
            place: Place {
                host: "db1.example".to_owned(),
                port,
            },
        };
        let nodes = BTreeMap::from([(NodeId([1; 20]), told(1)), (NodeId([2; 20]), told(65_535))]);
        let bytes = encode(&nodes);
        assert_eq!(decode(&bytes), Ok(nodes));
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn what_a_node_told_counts_until_the_state_has_it() {
        let (node, raft_id) = (NodeId([1; 20]), 7);
        let at = |port| Place {
            host: "db1".to_owned(),
            port,
        };
        let places = Places::default();
        let told = Told {
            raft_id,
            start_count: 3,
            place: at(2),
        };
        places.told().insert(node, told);
        let peer = |start_count: u64| {
            let mut state = ControlState::default();
            let record = NodeRecord {
                start_count,
                ..NodeRecord::default()
            };
            let known = Node {
                raft_id,
                record,
                ..Node::default()
            };
            state.nodes.insert(node, known);
            let mut peer = KnownPeer {
                node,
                raft_id,
                place: at(1),
            };
            places.correct(&state, &mut peer);
            peer.place.port
        };
        assert_eq!(peer(2), 2);
        assert_eq!(peer(3), 1);
        assert_eq!(peer(2), 1, "forgotten");
    }
}
