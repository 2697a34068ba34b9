//! Nodes that have come back elsewhere find each other: all addresses of a group may be new after a restart.
//!
//! ```text
//!   nobody is known to lead, or the group is not known to have this node where it is
//!     └─► every peer where it was last, and every seed: "I am here now" ◄──► "I am here, and these told me that they are there"
//! ```
//!
//! What a node told of itself since this server was started counts more than what the control state says, until that has a record
//! of the node that is as new. No address says who somebody is: a link proves the secret and names the node at its other end.

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

/// Between two rounds.
const PAUSE_MS: u64 = 500;
/// How long a seed has to answer.
const ASK_TIME: Duration = Duration::from_secs(2);

/// Where a node is, by its own word.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    raft_id: RaftId,
    start_count: u64,
    place: Place,
}

/// Nodes that told where they are since this server was started.
#[derive(Debug, Default)]
pub(super) struct Places {
    told: Mutex<BTreeMap<NodeId, Told>>,
    /// A round goes on.
    is_asking: Arc<AtomicBool>,
}

impl Places {
    fn told(&self) -> MutexGuard<'_, BTreeMap<NodeId, Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a node is that the control state has there.
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

/// Whether a node is of this one's group, as far as the state tells; nothing where it has no nodes.
fn is_member(state: &ControlState, node: NodeId, raft_id: RaftId) -> Option<bool> {
    if state.nodes.is_empty() {
        return None;
    }
    Some(match state.nodes.get(&node) {
        Some(known) => known.raft_id == raft_id,
        // Numbers in Raft are indexes of its log: this one has joined since, and may lead.
        None => raft_id > state.index,
    })
}

/// Whether the group has a node where its record says, since its last start: what is known of the group may be older.
fn has_place_of(state: &ControlState, node: NodeId, record: &NodeRecord) -> bool {
    let recorded = state.nodes.get(&node).map(|known| &known.record);
    recorded.is_some_and(|recorded| {
        recorded.start_count == record.start_count && place_of(recorded) == place_of(record)
    })
}

impl Part {
    /// What this node says of itself and knows of others: by the control state, which who asks may not have, and by their own
    /// word, where that is newer.
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

    /// Another node says where it is, and asks the same.
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

    /// Looks for members of this node's group where others say that they are.
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
                // Before the state is read, the peers of the last run are known. Who was killed just after it had joined
                // knows nobody.
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
    /// Tells others where this node is, and asks where they are, as long as nobody is known to lead or heard that does, or the
    /// group is not known to have this node here. That the leader answers heartbeats does not show that: who was killed just
    /// after it had joined reaches the leader, whose log goes to where this node was. After a start Raft names who led at last, whom this node may not find, nor be found by.
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
    /// One round; waits.
    fn ask_for_places(&self, own: NodeId, bytes: &[u8], seeds: &[(String, u16)]) {
        for node in self.links.nodes() {
            if node != own {
                let part = self.weak();
                let done = move |told: Result<Vec<u8>, String>| {
                    if let (Some(part), Ok(bytes)) = (part.upgrade(), told) {
                        // Who says nonsense is not heard.
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

    /// A node that was killed before it heard of the last one to join is told of it by others.
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
        // It was there and has left, or its joining came to nothing.
        assert_eq!(is_member(&state, other, 9), Some(false));
    }

    /// A node that was killed before it had read the state of the group, or that has come back to where it was before its last
    /// place, tells where it is.
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
