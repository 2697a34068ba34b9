//! How a group grows: a node asks any member to let it join, and the control leader proposes the
//! entry.
//!
//! ```text
//!   joiner ── join(node, record) ──► any node ── not the leader: "ask there" ──► leader
//!   joiner ◄── its number in Raft, the control state ◄── entry applied ◄────────── proposes
//! ```
//!
//! The joiner stores its number before it takes part, and repeats the request until it has one. The
//! leader gives the same node the same answer.

use cluster::bytes::{Malformed, Reader, Writer};
use cluster::control_log::RaftId;
use cluster::{Applied, ControlState, Entry, NodeId, NodeRecord, Proposal};

use super::driver::{Driver, Event, post};
use super::files::{KnownPeer, Place, place_of};
use super::links::Reply;
use super::unique;

/// The answer to a node that wants to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It has joined.
    Accepted {
        /// Its number in Raft.
        raft_id: RaftId,
        /// The group's control state.
        state: Box<ControlState>,
    },
    /// The node is to ask there.
    Elsewhere(Place),
    /// The node cannot join, for this reason.
    Refused(String),
}

impl Answer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Self::Accepted { raft_id, state } => {
                writer.u8(1).u64(*raft_id).raw(&state.encode());
            }
            Self::Elsewhere(place) => {
                place.encode(writer.u8(2));
            }
            Self::Refused(reason) => {
                writer.u8(3).string(reason.as_bytes());
            }
        }
        writer.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let answer = match reader.u8()? {
            1 => {
                let raft_id = reader.u64()?;
                let state = Box::new(ControlState::decode(reader.0)?);
                return Ok(Self::Accepted { raft_id, state });
            }
            2 => Self::Elsewhere(Place::decode(&mut reader)?),
            3 => Self::Refused(reader.text()?),
            kind => return Err(Malformed::Kind(kind)),
        };
        reader.end()?;
        Ok(answer)
    }
}

/// Returns all other nodes with their addresses.
pub(crate) fn peers_of(state: &ControlState, own: NodeId) -> Vec<KnownPeer> {
    let others = state.nodes.iter().filter(|(id, _)| **id != own);
    let peer = |(id, node): (&NodeId, &cluster::state::Node)| KnownPeer {
        node: *id,
        raft_id: node.raft_id,
        place: place_of(&node.record),
    };
    others.map(peer).collect()
}

impl Driver {
    /// Handles a node's request to join.
    pub(super) fn join(&self, from: NodeId, bytes: &[u8], reply: Reply) {
        let asked = match Proposal::decode(bytes) {
            Ok(Proposal {
                entry: Entry::Join { node, record },
                ..
            }) if node == from => Ok(record),
            Ok(_) => Err("not an entry by which that node joins".to_owned()),
            Err(what) => Err(what.to_string()),
        };
        let record = match asked {
            Ok(record) => record,
            Err(reason) => return reply.answer(Err(reason)),
        };
        if self.part.merging.gives_way() {
            let reason = "this node changes over to another cluster just now".to_owned();
            return reply.answer(Ok(Answer::Refused(reason).encode()));
        }
        if let Some(answer) = self.answer_at_once(from, &record) {
            return reply.answer(Ok(answer.encode()));
        }
        self.tell(&format!(
            "Node {from} at {}:{} wants to join",
            record.host, record.client_port
        ));
        let proposal = unique::proposal(Entry::Join { node: from, record });
        let events = self.events.clone();
        self.log.propose_later(&proposal, move |applied| {
            let outcome = applied.map_err(|error| error.to_string());
            post(&events, Event::Joined(from, outcome, reply));
        });
    }

    /// Returns the answer to a node if no entry is needed: where the leader is, that the node is a
    /// member already, or why it cannot join.
    fn answer_at_once(&self, from: NodeId, record: &NodeRecord) -> Option<Answer> {
        if !self.standing.is_ready {
            let leader = self.standing.leader.and_then(|id| self.state.node_of(id));
            let leader = leader.filter(|(id, _)| **id != self.own);
            return Some(match leader {
                Some((_, node)) => Answer::Elsewhere(place_of(&node.record)),
                None => Answer::Refused("there is no control leader just now".to_owned()),
            });
        }
        if self.state.nodes.is_empty() {
            return Some(Answer::Refused("the group is about to begin".to_owned()));
        }
        let (level, wanted) = (record.feature_level, self.state.feature_level);
        if level < wanted {
            return Some(Answer::Refused(format!(
                "it knows level {level} of the control log, and the group is at level {wanted}: it takes a newer version"
            )));
        }
        let known = self.state.nodes.get(&from)?;
        Some(match record.start_count >= known.record.start_count {
            true => self.accept(known.raft_id),
            false => Answer::Refused(
                "this node's files are an older copy of those of a node of the group: start it with an empty directory"
                    .to_owned(),
            ),
        })
    }

    fn accept(&self, raft_id: RaftId) -> Answer {
        Answer::Accepted {
            raft_id,
            state: Box::new((*self.state).clone()),
        }
    }

    /// Answers the node when its entry was applied, or failed.
    pub(super) fn answer_joined(
        &mut self,
        node: NodeId,
        outcome: Result<Applied, String>,
        reply: Reply,
    ) {
        use cluster::ControlLog as _;
        self.state = self.log.watch();
        let answer = match (outcome, self.state.nodes.get(&node)) {
            (Ok(_), Some(known)) => {
                self.tell(&format!(
                    "Node {node} has joined, as member {}",
                    known.raft_id
                ));
                self.accept(known.raft_id)
            }
            (Ok(applied), None) => Answer::Refused(format!(
                "the group does not take this node ({applied:?}): it may be of an older version"
            )),
            (Err(reason), _) => Answer::Refused(reason),
        };
        reply.answer(Ok(answer.encode()));
        self.take_state();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_as_they_were_given() {
        for answer in [
            Answer::Accepted {
                raft_id: 7,
                state: Box::default(),
            },
            Answer::Elsewhere(Place {
                host: "db1".to_owned(),
                port: 17_000,
            }),
            Answer::Refused("no".to_owned()),
        ] {
            let bytes = answer.encode();
            assert_eq!(Answer::decode(&bytes), Ok(answer));
            for end in 0..bytes.len() {
                assert!(Answer::decode(&bytes[..end]).is_err(), "{end}");
            }
        }
    }
}
