//! Forwards messages of PUBLISH and SPUBLISH to the subscribers of a cluster's other nodes.
//!
//! ```text
//!   PUBLISH ─► subscribers here
//!          └─► Relay: a queue for each other node ─► links of its own ─► subscribers there
//! ```
//!
//! A message goes to all nodes, or for a shard channel to those of this node's shard, in the order
//! in which a client published. No thread waits: for a node that does not accept them a few MiB are
//! queued; further messages are dropped and counted, as for a client that does not read. The links
//! are separate from those of the control group, so any amount of published messages does not delay
//! heartbeats.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster::bytes::{Malformed, Reader, Writer};
use cluster::{ControlState, NodeId};
use engine::TopicKind;

use super::files::place_of;
use super::links::{Links, Subject};

/// Maximum number of bytes that wait for one node.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// See the module.
pub(super) struct Relay {
    pub(super) links: Arc<Links>,
    /// Number of bytes that wait for each node.
    waiting: Mutex<BTreeMap<NodeId, Arc<AtomicUsize>>>,
    dropped: AtomicU64,
}

impl Relay {
    pub(super) fn new(links: Arc<Links>) -> Self {
        Self {
            links,
            waiting: Mutex::default(),
            dropped: AtomicU64::new(0),
        }
    }

    /// Number of messages dropped since the server started, because their node did not accept the
    /// ones before.
    pub(super) fn dropped_count(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Sends a message to the other nodes that it is for.
    pub(super) fn send(
        &self,
        state: &ControlState,
        own: NodeId,
        kind: TopicKind,
        channel: &[u8],
        message: &[u8],
    ) {
        let shard = state
            .shard_of(own)
            .and_then(|shard| state.shards.get(&shard));
        let is_for = |id: &NodeId| match kind {
            TopicKind::ShardChannel => shard.is_some_and(|shard| shard.members.contains_key(id)),
            _ => true,
        };
        let bytes = encode(kind, channel, message);
        for (id, node) in &state.nodes {
            if *id == own || node.is_failed || !is_for(id) {
                continue;
            }
            self.links
                .set_place(*id, node.raft_id, &place_of(&node.record));
            self.send_to(*id, bytes.clone());
        }
    }

    fn send_to(&self, node: NodeId, bytes: Vec<u8>) {
        let waiting = {
            let mut all = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(node).or_default())
        };
        let length = bytes.len();
        if waiting.fetch_add(length, Ordering::Relaxed) + length > WAITING_BYTES_MAX {
            waiting.fetch_sub(length, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let done = Box::new(move |_| {
            waiting.fetch_sub(length, Ordering::Relaxed);
        });
        self.links.ask(node, Subject::Publish, bytes, done);
    }

    /// Asks a node for a token that admits a connection as a user.
    pub(super) fn ask_for_token(
        &self,
        state: &ControlState,
        to: NodeId,
        user: &[u8],
        time: Duration,
    ) -> Result<Vec<u8>, String> {
        let node = state.nodes.get(&to);
        let node = node.ok_or("the node is not of the cluster any more")?;
        self.links
            .set_place(to, node.raft_id, &place_of(&node.record));
        let (sender, receiver) = sync_channel(1);
        let done = Box::new(move |told| {
            // The waiting thread may have given up.
            let _late = sender.try_send(told);
        });
        self.links.ask(to, Subject::Forward, user.to_vec(), done);
        let told = receiver.recv_timeout(time);
        told.unwrap_or_else(|_| Err("there was no answer in time".to_owned()))
    }

    /// Ends its links.
    pub(super) fn stop(&self) {
        self.links.stop();
    }

    /// Ends the links to all nodes for which `is_there` is false.
    pub(super) fn retain(&self, is_there: impl Fn(&NodeId) -> bool) {
        let mut all = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|node, _| is_there(node));
        drop(all);
        self.links.retain(is_there);
    }
}

fn encode(kind: TopicKind, channel: &[u8], message: &[u8]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u8(u8::from(kind == TopicKind::ShardChannel));
    writer.string(channel).raw(message);
    writer.0
}

/// Decodes the kind, channel and text of a message that another node sent.
pub(super) fn decode(bytes: &[u8]) -> Result<(TopicKind, &[u8], &[u8]), Malformed> {
    let mut reader = Reader(bytes);
    let kind = match reader.bool()? {
        true => TopicKind::ShardChannel,
        false => TopicKind::Channel,
    };
    Ok((kind, reader.string()?, reader.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_from_its_bytes() {
        for kind in [TopicKind::Channel, TopicKind::ShardChannel] {
            let bytes = encode(kind, b"news", b"hello");
            assert_eq!(decode(&bytes), Ok((kind, &b"news"[..], &b"hello"[..])));
        }
        assert!(decode(&[]).is_err());
        assert!(decode(&[7]).is_err());
    }
}
