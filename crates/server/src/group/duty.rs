//! What the decisions of the control group do to this node's log, role and replies.
//!
//! ```text
//!   group's thread ──► Duty ── orders ──► thread "duty": one after the other, each to its end ──► done
//!                       │
//!                       └── at once: the seal is raised, the office is over, the lease is set (see the fence)
//! ```
//!
//! What fences takes effect before a call returns; what waits for the disk or for the thread that follows is done by
//! the thread, and `done` is called there.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::message::Seal;
use cluster::{LogEnd, NodeId, Shard, ShardId};
use replication::TermId;

use crate::fence::Fence;
use crate::node::Node;
use crate::replication::following::Primary;

/// Called when an order is carried out.
pub type Done = Box<dyn FnOnce(bool) + Send>;

/// Where a primary is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrimaryAddress {
    /// The host, or its address.
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
    /// The control group decides from now on, and knows this node by that name. Called when all that is kept is loaded,
    /// before replication begins.
    ///
    /// # Errors
    /// Why the node may not be a member: what it promised before is not known.
    pub fn begin(node: &Arc<Node>, id: NodeId) -> Result<Arc<Self>, String> {
        node.replication.begin_under_group(node, TermId(id.0))?;
        Ok(Arc::new(Self {
            node: Arc::downgrade(node),
        }))
    }

    /// The clock of leases: milliseconds that also pass while the machine sleeps.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.node
            .upgrade()
            .map_or(0, |node| node.core.clock.boottime_ms())
    }

    /// The group has it that this node is of that shard.
    pub fn set_shard(&self, shard: ShardId) {
        self.fence(|fence| fence.set_shard(shard));
    }

    /// Of which shard the log is.
    #[must_use]
    pub fn shard_of_log(&self) -> Option<ShardId> {
        self.fence(Fence::shard_of_log)
    }

    /// Says for good that the log, as it is, is of this shard: the node begins it.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn begin_shard(&self, shard: ShardId) -> Result<(), String> {
        let node = self.node.upgrade().ok_or("the server stops")?;
        node.replication.fence.set_shard(shard);
        node.replication.take_log_for(&node, Some(shard))
    }

    /// Where the log ends, and up to where its data is.
    #[must_use]
    pub fn log_end(&self) -> (LogEnd, u64) {
        let Some(node) = self.node.upgrade() else {
            return (LogEnd::default(), 0);
        };
        let (term, sequence, applied) = node.replication.log_end_on_disk(&node);
        (LogEnd { term, sequence }, applied)
    }

    /// Where the log begins.
    #[must_use]
    pub fn log_begins(&self) -> u64 {
        let node = self.node.upgrade();
        node.map_or(0, |node| node.replication.own.log_begins(&node))
    }

    /// Nothing of lower terms is taken: the highest term that was sealed or followed.
    #[must_use]
    pub fn seal_term(&self) -> u64 {
        self.fence(Fence::seal)
    }

    /// The term in which this node is in office; 0 for none.
    #[must_use]
    pub fn office(&self) -> u64 {
        self.fence(Fence::office)
    }

    /// Whether frames of a primary of this term may be taken.
    #[must_use]
    pub fn accept(&self, term: u64) -> bool {
        self.fence(|fence| fence.accept(term))
    }

    /// Seals: at once nothing of lower terms is taken, an office of one is over and nobody is followed; the seal and the
    /// log are durable when `done` is told whether this node has all that it ever acknowledged. It is not told where the
    /// disk failed, or a later order took the place of this one.
    pub fn seal(&self, seal: Seal, done: Done) {
        if let Some(node) = self.node.upgrade() {
            node.replication.seal(&node, seal.term, done);
        }
    }

    /// Begins the office of a term: its frame is durable, the rest of the log is applied and writes are let in, as soon as
    /// there is a lease, when `done` is told that it is so. It is told false where that failed, or a later seal came
    /// between.
    pub fn take_office(&self, term: u64, done: Done) {
        if let Some(node) = self.node.upgrade() {
            node.replication.take_office_of(&node, term, done);
        }
    }

    /// Follows the primary of a term, unless a later term is known here.
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

    /// Up to where a copy has the log, as it said in this office.
    #[must_use]
    pub fn copy_end(&self, copy: NodeId) -> Option<u64> {
        self.fence(|fence| fence.copy_end(copy))
    }

    /// Has writes wait, until a copy has all that this node has.
    ///
    /// # Errors
    /// Why it has not; writes wait still.
    pub fn wait_for_copy(&self, copy: NodeId, time: Duration) -> Result<(), String> {
        let node = self.node.upgrade().ok_or("the server stops")?;
        node.replication.wait_for_copy(&node, copy, time)
    }

    /// The office is left next for that copy: writes wait until it is known who has it.
    pub fn begin_hand_over(&self) {
        if let Some(node) = self.node.upgrade() {
            node.replication.begin_hand_over();
        }
    }

    /// Writes wait no more for another primary.
    pub fn end_hand_over(&self) {
        if let Some(node) = self.node.upgrade() {
            node.replication.end_hand_over(&node);
        }
    }

    /// This node is the primary no more: no write begins and no reply leaves from here on, and clients that wait are told.
    pub fn leave_office(&self) {
        if let Some(node) = self.node.upgrade() {
            node.replication.leave_office(&node);
        }
    }

    /// Until when the lease stands, by [`Duty::now_ms`].
    pub fn set_lease_until_ms(&self, until_ms: u64) {
        if let Some(node) = self.node.upgrade() {
            node.replication.set_lease(&node, until_ms);
        }
    }

    /// The lease ends then, if it would end later.
    pub fn shorten_lease_to_ms(&self, until_ms: u64) {
        self.fence(|fence| fence.shorten_lease_to_ms(until_ms));
    }

    /// Who has copies of the shard, and whether its writes wait for a majority of them.
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
