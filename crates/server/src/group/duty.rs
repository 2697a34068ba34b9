//! Carries out the control group's decisions on this node's log, role and replies.
//!
//! ```text
//!   group's thread ──► Duty ── orders ──► thread "duty": one after the other, each to its end ──► done
//!                       │
//!                       └── at once: the seal is raised, the office is over, the lease is set (see the fence)
//! ```
//!
//! Fencing takes effect before a call returns. Work that waits for the disk or for the following
//! thread is done by the thread, which also calls `done`.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::message::Seal;
use cluster::{LogEnd, NodeId, Shard, ShardId};
use replication::TermId;

use crate::fence::Fence;
use crate::node::Node;
use crate::replication::following::Primary;

/// Called when an order was carried out, or failed.
pub type Done = Box<dyn FnOnce(bool) + Send>;

/// Address of a primary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrimaryAddress {
    /// Host name or address.
    pub host: String,
    /// The port for clients.
    pub client_port: u16,
    /// The port for links.
    pub link_port: u16,
}

/// See the module.
pub struct Duty {
    node: Weak<Node>,
}

impl Duty {
    /// Puts this node under the control group, which knows it by `id`. Called when all kept data is
    /// loaded, before replication begins.
    ///
    /// # Errors
    /// Why the node may not be a member: its earlier promise cannot be read.
    pub fn begin(node: &Arc<Node>, id: NodeId) -> Result<Arc<Self>, String> {
        node.replication.begin_under_group(node, TermId(id.0))?;
        Ok(Arc::new(Self {
            node: Arc::downgrade(node),
        }))
    }

    /// The clock of leases, in milliseconds. It also runs while the machine sleeps.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.node
            .upgrade()
            .map_or(0, |node| node.core.clock.boottime_ms())
    }

    /// Sets the shard of this node, as the group decided.
    pub fn set_shard(&self, shard: ShardId) {
        self.fence(|fence| fence.set_shard(shard));
    }

    /// The shard that the log belongs to.
    #[must_use]
    pub fn shard_of_log(&self) -> Option<ShardId> {
        self.fence(Fence::shard_of_log)
    }

    /// Records durably that the present log belongs to this shard, because the node begins the
    /// shard.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn begin_shard(&self, shard: ShardId) -> Result<(), String> {
        let node = self.node.upgrade().ok_or("the server stops")?;
        node.replication.fence.set_shard(shard);
        node.replication.take_log_for(&node, Some(shard))
    }

    /// The end of the log, and the sequence up to which it is applied.
    #[must_use]
    pub fn log_end(&self) -> (LogEnd, u64) {
        let Some(node) = self.node.upgrade() else {
            return (LogEnd::default(), 0);
        };
        let (term, sequence, applied) = node.replication.log_end_on_disk(&node);
        (LogEnd { term, sequence }, applied)
    }

    /// The first sequence of the log.
    #[must_use]
    pub fn log_begins(&self) -> u64 {
        let node = self.node.upgrade();
        node.map_or(0, |node| node.replication.own.log_begins(&node))
    }

    /// The highest term that was sealed or followed. Nothing of lower terms is accepted.
    #[must_use]
    pub fn seal_term(&self) -> u64 {
        self.fence(Fence::seal)
    }

    /// The term in which this node is in office, or 0.
    #[must_use]
    pub fn office(&self) -> u64 {
        self.fence(Fence::office)
    }

    /// Whether frames of a primary of this term may be appended.
    #[must_use]
    pub fn accept(&self, term: u64) -> bool {
        self.fence(|fence| fence.accept(term))
    }

    /// Seals. At once, nothing of lower terms is accepted, an office of one has ended, and no
    /// primary is followed. `done` is called when the seal and the log are durable, with whether
    /// this node has all that it ever acknowledged. It is not called if the disk failed or a later
    /// order replaced this one.
    pub fn seal(&self, seal: Seal, done: Done) {
        if let Some(node) = self.node.upgrade() {
            node.replication.seal(&node, seal.term, done);
        }
    }

    /// Begins the office of a term. When `done` is called with true, the term's frame is durable
    /// and the rest of the log is applied; writes are allowed as soon as there is a lease. `done`
    /// is called with false if that failed or a later seal intervened.
    pub fn take_office(&self, term: u64, done: Done) {
        if let Some(node) = self.node.upgrade() {
            node.replication.take_office_of(&node, term, done);
        }
    }

    /// Follows the primary of a term, unless this node knows a later term.
    pub fn follow(&self, term: u64, primary: &PrimaryAddress) {
        if let Some(node) = self.node.upgrade() {
            let at = Primary {
                host: primary.host.clone(),
                port: primary.client_port,
            };
            node.replication
                .follow_in(&node, term, at, primary.link_port);
        }
    }

    /// Returns the sequence up to which a copy has the log, as the copy acknowledged in this
    /// office.
    #[must_use]
    pub fn copy_end(&self, copy: NodeId) -> Option<u64> {
        self.fence(|fence| fence.copy_end(copy))
    }

    /// Holds writes, and waits until a copy has all of this node's log.
    ///
    /// # Errors
    /// Why the copy does not have it. Writes are still held then.
    pub fn wait_for_copy(&self, copy: NodeId, time: Duration) -> Result<(), String> {
        let node = self.node.upgrade().ok_or("the server stops")?;
        node.replication.wait_for_copy(&node, copy, time)
    }

    /// Notes that this node is about to hand over its office: writes wait until the new primary is
    /// known.
    pub fn begin_hand_over(&self) {
        if let Some(node) = self.node.upgrade() {
            node.replication.begin_hand_over();
        }
    }

    /// Releases the writes that waited for another primary.
    pub fn end_hand_over(&self) {
        if let Some(node) = self.node.upgrade() {
            node.replication.end_hand_over(&node);
        }
    }

    /// Ends this node's office: from here on no write begins and no reply leaves, and waiting
    /// clients get an error.
    pub fn leave_office(&self) {
        if let Some(node) = self.node.upgrade() {
            node.replication.leave_office(&node);
        }
    }

    /// Sets the end of the lease, by [`Duty::now_ms`].
    pub fn set_lease_until_ms(&self, until_ms: u64) {
        if let Some(node) = self.node.upgrade() {
            node.replication.set_lease(&node, until_ms);
        }
    }

    /// Shortens the lease to `until_ms`, if it would end later.
    pub fn shorten_lease_to_ms(&self, until_ms: u64) {
        self.fence(|fence| fence.shorten_lease_to_ms(until_ms));
    }

    /// Sets the nodes with copies of the shard, and whether its writes wait for a majority of them.
    pub fn set_members(&self, shard: &Shard) {
        if let Some(node) = self.node.upgrade() {
            node.replication.set_members(&node, shard);
        }
    }

    fn fence<R: Default>(&self, act: impl FnOnce(&Fence) -> R) -> R {
        let node = self.node.upgrade();
        node.map_or_else(R::default, |node| act(&node.replication.fence))
    }
}

impl fmt::Debug for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Duty").finish_non_exhaustive()
    }
}
