//! Questions between nodes of a shard that reads at level quorum wait for.
//!
//! ```text
//!   primary ── shard, term ──► members: is no later term sealed?            quorum-reads confirm (see the fence)
//!   replica ── shard ────────► primary: what is committed?                  reads at a replica (see `replica_reads`)
//! ```
//!
//! They use their own links, so neither heartbeats nor published messages delay them. No thread
//! waits: the group's thread repeats unanswered questions twice per heartbeat.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cluster::bytes::{Malformed, Reader, Writer};
use cluster::{NodeId, ShardId};
use persistence::tail::Majority as _;

use super::files::place_of;
use super::links::{Asked, Links, Reply, Subject};
use crate::fence::Question;
use crate::node::Node;
use crate::replica_reads::Readable;
use engine::hash_slots::LeavingStage;

/// Maximum number of replicas' questions that wait for a round of the members.
const WAITING_MAX: usize = 1_024;

/// See the module.
pub(super) struct Reads {
    links: Arc<Links>,
    node: Weak<Node>,
    /// Replicas' questions that members have yet to confirm.
    waiting: Mutex<Vec<Waiting>>,
}

/// A replica's question.
struct Waiting {
    /// The round that it waits for.
    round: u64,
    readable: Readable,
    reply: Reply,
}

impl Reads {
    /// Creates the questions of a node, and makes the node's reads use them.
    pub(super) fn of(node: &Arc<Node>) -> Arc<Self> {
        let reads = Arc::new(Self {
            links: Links::new(node, Box::new(drop)),
            node: Arc::downgrade(node),
            waiting: Mutex::default(),
        });
        let replication = &node.replication;
        let me = Arc::clone(&reads);
        let asker = move |question| me.ask_members(&question);
        replication.fence.set_asker(Box::new(asker));
        let me = Arc::clone(&reads);
        let asker = move |round| me.ask_primary(round);
        replication.reads.set_asker(Box::new(asker));
        reads
    }

    /// The links for the questions.
    pub(super) fn links(&self) -> &Links {
        &self.links
    }

    /// Asks the shard's members whether they know a later term.
    pub(super) fn ask_members(self: &Arc<Self>, question: &Question) {
        let Some(node) = self.node.upgrade() else {
            return;
        };
        let seen = node.group.get();
        let Question {
            shard, term, round, ..
        } = *question;
        for member in &question.members {
            let Some(known) = seen.state.nodes.get(member) else {
                continue;
            };
            self.links
                .set_place(*member, known.raft_id, &place_of(&known.record));
            let (me, member) = (Arc::clone(self), *member);
            let done = move |told: Result<Vec<u8>, String>| {
                if told.is_ok() {
                    me.note_confirmed(member, term, round);
                }
            };
            let bytes = encode_confirm(shard, term);
            self.links
                .ask(member, Subject::Confirm, bytes, Box::new(done));
        }
    }

    fn note_confirmed(&self, member: NodeId, term: u64, round: u64) {
        if let Some(node) = self.node.upgrade() {
            node.replication.note_confirmed(&node, member, term, round);
            self.answer_waiting(&node);
        }
    }

    /// Asks the primary of this node's shard what is committed, in a round of this replica.
    pub(super) fn ask_primary(self: &Arc<Self>, round: u64) {
        let Some(node) = self.node.upgrade() else {
            return;
        };
        let seen = node.group.get();
        let Some(id) = node.replication.fence.shard() else {
            return;
        };
        let primary = seen.state.shards.get(&id).map(|shard| shard.primary);
        let Some(primary) = primary.filter(|primary| *primary != seen.own) else {
            return;
        };
        let Some(known) = seen.state.nodes.get(&primary) else {
            return;
        };
        self.links
            .set_place(primary, known.raft_id, &place_of(&known.record));
        let me = Arc::clone(self);
        let done = move |told: Result<Vec<u8>, String>| {
            // Otherwise the question is repeated.
            if let Ok(Ok(readable)) = told.map(|bytes| decode_readable(&bytes))
                && let Some(node) = me.node.upgrade()
            {
                node.replication.note_readable(&node, round, readable);
            }
        };
        let bytes = encode_shard(id);
        self.links
            .ask(primary, Subject::ReadIndex, bytes, Box::new(done));
    }

    /// Answers a primary whether this node, as a member, knows no later term.
    pub(super) fn hear_of_round(node: &Node, asked: Asked) {
        let knows_no_later = decode_confirm(&asked.bytes)
            .is_ok_and(|(shard, term)| node.replication.fence.knows_no_later(shard, term));
        asked.reply.answer(match knows_no_later {
            true => Ok(Vec::new()),
            false => Err("a later term is sealed".to_owned()),
        });
    }

    /// Answers a replica what is committed, as its primary.
    pub(super) fn hear_of_read(&self, node: &Node, asked: Asked) {
        let reply = asked.reply;
        let readable = match decode_shard(&asked.bytes) {
            Ok(shard) => readable(node, shard),
            Err(what) => Err(what.to_string()),
        };
        let (readable, round) = match readable {
            Ok(readable) => readable,
            Err(reason) => return reply.answer(Err(reason)),
        };
        if round == 0 {
            return reply.answer(Ok(encode_readable(readable)));
        }
        let mut waiting = self.lock();
        if waiting.len() >= WAITING_MAX {
            drop(waiting);
            return reply.answer(Err("too many wait for an answer".to_owned()));
        }
        waiting.push(Waiting {
            round,
            readable,
            reply,
        });
        drop(waiting);
        // Members may have confirmed it meanwhile.
        self.answer_waiting(node);
    }

    /// Answers the questions that members have confirmed. Questions to a former office are dropped.
    pub(super) fn answer_waiting(&self, node: &Node) {
        let fence = &node.replication.fence;
        let mut waiting = self.lock();
        if waiting.is_empty() {
            return;
        }
        let (confirmed, term) = (fence.round_confirmed(), fence.office());
        let all = std::mem::take(&mut *waiting);
        let (ended, others): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|one| one.readable.term != term || one.round <= confirmed);
        *waiting = others;
        drop(waiting);
        for one in ended.into_iter().filter(|one| one.readable.term == term) {
            one.reply.answer(Ok(encode_readable(one.readable)));
        }
    }

    /// Ends its links.
    pub(super) fn stop(&self) {
        self.links.stop();
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what replicas may read of this primary, and the round of members that has to end first,
/// or 0 for none.
fn readable(node: &Node, shard: ShardId) -> Result<(Readable, u64), String> {
    let fence = &node.replication.fence;
    let log = node.keeping.log_in_use.get().ok_or("there is no log")?;
    let term = fence.office();
    if term == 0 || fence.shard() != Some(shard) {
        return Err("this node is not the primary".to_owned());
    }
    // The other shard may have served some of the slots already.
    if node.core.shared.hash_slots.routes().leaving.stage == LeavingStage::AllWait {
        return Err("hash slots are about to leave".to_owned());
    }
    let index = node.group.get().state.index;
    let sequence = fence.released(&*log);
    if sequence == 0 {
        return Err("it has no lease, or nothing of its term is committed yet".to_owned());
    }
    let round = match fence.confirms() {
        true => fence.next_round(&*log),
        false => 0,
    };
    let readable = Readable {
        term,
        sequence,
        index,
    };
    // The office may have ended between the reads above.
    match fence.office() == term {
        true => Ok((readable, round)),
        false => Err("this node is not the primary".to_owned()),
    }
}

fn encode_shard(shard: ShardId) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u32(shard.0);
    writer.0
}

fn decode_shard(bytes: &[u8]) -> Result<ShardId, Malformed> {
    let mut reader = Reader(bytes);
    let shard = ShardId(reader.u32()?);
    reader.end()?;
    Ok(shard)
}

fn encode_confirm(shard: ShardId, term: u64) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u32(shard.0).u64(term);
    writer.0
}

fn decode_confirm(bytes: &[u8]) -> Result<(ShardId, u64), Malformed> {
    let mut reader = Reader(bytes);
    let asked = (ShardId(reader.u32()?), reader.u64()?);
    reader.end()?;
    Ok(asked)
}

fn encode_readable(readable: Readable) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u64(readable.term).u64(readable.sequence);
    writer.u64(readable.index);
    writer.0
}

fn decode_readable(bytes: &[u8]) -> Result<Readable, Malformed> {
    let mut reader = Reader(bytes);
    let readable = Readable {
        term: reader.u64()?,
        sequence: reader.u64()?,
        index: reader.u64()?,
    };
    reader.end()?;
    Ok(readable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_come_back_from_their_bytes() {
        let readable = Readable {
            term: 3,
            sequence: u64::MAX,
            index: 9,
        };
        let bytes = encode_readable(readable);
        assert_eq!(decode_readable(&bytes), Ok(readable));
        assert!((0..bytes.len()).all(|end| decode_readable(&bytes[..end]).is_err()));
        let bytes = encode_confirm(ShardId(7), 8);
        assert_eq!(decode_confirm(&bytes), Ok((ShardId(7), 8)));
        assert!((0..bytes.len()).all(|end| decode_confirm(&bytes[..end]).is_err()));
        let bytes = encode_shard(ShardId(7));
        assert_eq!(decode_shard(&bytes), Ok(ShardId(7)));
        assert!((0..bytes.len()).all(|end| decode_shard(&bytes[..end]).is_err()));
    }
}
