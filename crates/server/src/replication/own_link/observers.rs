//! Observers of replicas on the primary's side: they feed what clients are shown of a replica, and
//! what counts for a majority.

use std::sync::{Mutex, Weak};

use replication::TermId;
use replication::link::{self, Digest};
use replication::primary::Stage;

use super::super::primary_link::Observer;
use super::super::replicas::{Ack, Attached, ReplicaState};
use super::both_ends::lock;
use super::log_on_disk::own_log;
use crate::node::Node;

/// An observer that ignores everything.
pub(super) struct Nobody;

impl Observer for Nobody {
    fn stage(&self, _: Stage) {}

    fn acked(&self, _: &link::Ack) {}

    fn sent(&self, _: u64) {}

    fn digest(&self, _: &Digest<'_>) {}

    fn took_over(&self, _: u64) {}

    fn name(&self) -> &str {
        ""
    }
}

/// Counts a log-only copy. It is not shown to clients, because it serves them no data.
pub(super) struct LogCopy {
    pub(super) node: Weak<Node>,
    pub(super) peer: TermId,
    pub(super) name: String,
}

impl Observer for LogCopy {
    fn stage(&self, _: Stage) {}

    fn acked(&self, ack: &link::Ack) {
        if let Some(node) = Weak::upgrade(&self.node) {
            note_acked(&node, self.peer, &self.name, ack);
        }
    }

    fn sent(&self, _: u64) {}

    fn digest(&self, _: &Digest<'_>) {}

    fn took_over(&self, _: u64) {}

    fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for LogCopy {
    fn drop(&mut self) {
        if let Some(node) = Weak::upgrade(&self.node) {
            node.replication.note_copy(&node, self.peer, 0, None);
        }
    }
}

/// Notes how far a copy has the log: the log is kept from there on, and the copy counts for a
/// majority.
fn note_acked(node: &Node, peer: TermId, name: &str, ack: &link::Ack) {
    let replication = &node.replication;
    if let Some(log) = own_log(node) {
        replication.own.pins.note(name, &log, ack.durable);
    }
    let end = match replication.fence.wants_disk() {
        true => ack.durable,
        false => ack.appended,
    };
    replication.note_copy(node, peer, ack.term, Some(end));
}

/// Publishes a replica's progress.
pub(super) struct Watcher {
    pub(super) node: Weak<Node>,
    pub(super) peer: TermId,
    /// The address at which the replica serves its clients.
    pub(super) name: String,
    pub(super) attached: Mutex<Attached>,
}

impl Observer for Watcher {
    fn stage(&self, stage: Stage) {
        lock(&self.attached).set_state(match stage {
            Stage::Handshake => ReplicaState::Handshake,
            Stage::Waiting => ReplicaState::Waiting,
            Stage::Sending { .. } | Stage::Finishing { .. } => ReplicaState::Sending,
            Stage::Streaming => ReplicaState::Online,
            Stage::Recovery => ReplicaState::Recovery,
        });
    }

    fn acked(&self, ack: &link::Ack) {
        let node = Weak::upgrade(&self.node);
        if let Some(node) = &node {
            note_acked(node, self.peer, &self.name, ack);
        }
        let now_ms = node.map_or(0, |node| node.core.clock.now_unix_ms());
        let lag_ms = ack.lag_ms.into();
        let ack = Ack {
            applied: ack.applied,
            durable: ack.durable,
            offset: ack.applied,
        };
        let attached = lock(&self.attached);
        attached.note_behind(lag_ms);
        attached.ack(ack, now_ms);
    }

    fn sent(&self, sequence: u64) {
        lock(&self.attached).note_sent(sequence);
    }

    fn digest(&self, digest: &Digest<'_>) {
        if let Some(node) = Weak::upgrade(&self.node) {
            let verifier = &node.replication.own.verifier;
            verifier.answer(&self.name, digest.number, digest.state, digest.bytes);
        }
    }

    fn took_over(&self, sequence: u64) {
        let node = Weak::upgrade(&self.node);
        if let Some(failover) = node.and_then(|node| node.replication.failover()) {
            failover.note_answer(sequence);
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(node) = Weak::upgrade(&self.node) {
            let replication = &node.replication;
            replication.note_copy(&node, self.peer, 0, None);
        }
    }
}
