//! What a node knows of its part in replication. What is done with it stands in the module above, which works on
//! whole nodes; the node itself knows no more of replication than this.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};

use base::random::Prng;
use cluster::ShardId;
use replication::TermId;

use super::failover::Failover;
use super::following::Following;
use super::history::{History, ReplicationId};
use super::own_links::OwnLinks;
use super::replicas::Replicas;
use super::role::RoleWord;
use super::stop_wait::StopWait;
use super::stream::Stream;
use super::sync_source::Sources;
use crate::fence::Fence;
use crate::host_names::HostNames;
use crate::node::Node;
use crate::replica_reads::ReplicaReads;

/// What the thread "follow" is to do next. A later order takes the place of an earlier one.
pub(super) enum Order {
    /// To follow this primary until the next order.
    Follow(Arc<Following>),
    /// To become a primary.
    TakeOver,
    /// To append nothing any more, and to make durable what there is; then this is told.
    Seal(u64, Done),
    /// To become the primary of a shard, where there is a group, in a term; then this is told.
    Office(Option<ShardId>, u64, Done),
    /// To hand the office over.
    FailOver(Arc<Failover>),
    /// To end.
    Stop,
}

/// Called when an order of the control group is carried out.
pub(crate) type Done = Box<dyn FnOnce(bool) + Send>;

/// What changes with the role.
#[derive(Default)]
pub(super) struct Standing {
    pub(super) following: Option<Arc<Following>>,
    pub(super) failover: Option<Arc<Failover>>,
    pub(super) order: Option<Order>,
    pub(super) has_thread: bool,
    /// All that is kept is loaded, and the history of the log is known: orders are carried out.
    pub(super) has_begun: bool,
}

/// A new term of a node that has taken over.
#[derive(Clone, Copy, Debug)]
pub struct NewTerm {
    /// Which term it is.
    pub term: TermId,
    /// The name of the stream from now on.
    pub id: ReplicationId,
}

/// Called when a term begins, before a write is let in: whoever keeps the log says so there.
pub(super) type OnTerm = Box<dyn Fn(&Node, &NewTerm) + Send + Sync>;
/// Where the stream is, as clients see it.
pub(super) type OffsetOf = Box<dyn Fn(&Node) -> u64 + Send + Sync>;

/// What a node knows of its part, of whom it follows and of who follows it. Its operations are those of the module
/// above.
pub struct Replication {
    /// What a control group allows.
    pub fence: Arc<Fence>,
    /// Reads at level quorum, as long as this node is a replica.
    pub(crate) reads: ReplicaReads,
    pub(super) role: RoleWord,
    pub(super) standing: Mutex<Standing>,
    pub(super) ordered: Condvar,
    pub(super) history: Mutex<History>,
    /// The replicas of this node.
    pub replicas: Arc<Replicas>,
    /// What INFO counts.
    pub counts: Counts,
    /// The stream for replicas that speak PSYNC.
    pub stream: Stream,
    pub(super) sources: Arc<Sources>,
    pub(super) on_term: OnceLock<OnTerm>,
    pub(super) offset_of: OnceLock<OffsetOf>,
    /// The own link.
    pub(crate) own: OwnLinks,
    pub(super) node: OnceLock<Weak<Node>>,
    /// The stop that waits for replicas, if one does.
    pub(super) stop_wait: StopWait,
    /// This primary has left its office for another copy: writes wait until that has it.
    pub(super) hands_over: AtomicBool,
    /// An office has just begun: writes wait for its first lease, and for the copies that they need.
    pub(super) begins_office: AtomicBool,
    /// This node is the primary no more, and its clients have not been told yet who is.
    pub(super) left_office: AtomicBool,
    /// The office was left with what a majority may not have, and no primary's log has taken its place yet.
    pub(super) has_uncommitted: AtomicBool,
    /// This node is back in its group, and does not know yet what that has decided meanwhile: who may do what, say.
    pub(super) awaits_group: AtomicBool,
    /// Where other nodes were found last.
    pub(crate) host_names: HostNames,
    /// What this node has goes when it takes over: others have it, and it is none of them any more.
    pub(super) is_emptied: AtomicBool,
}

/// What INFO counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Replicas that were given everything.
    pub full_syncs: AtomicU64,
    /// Replicas that were given what they lacked.
    pub partial_syncs: AtomicU64,
    /// Replicas that asked for what is there no more.
    pub refused_partial_syncs: AtomicU64,
    /// Bytes read from primaries.
    pub input_bytes: AtomicU64,
    /// Bytes sent to replicas.
    pub output_bytes: AtomicU64,
}

impl Default for Replication {
    fn default() -> Self {
        Self {
            fence: Arc::default(),
            reads: ReplicaReads::default(),
            host_names: HostNames::default(),
            role: RoleWord::new(),
            standing: Mutex::default(),
            ordered: Condvar::new(),
            history: Mutex::new(History::new(&mut Prng::from_os())),
            replicas: Arc::default(),
            counts: Counts::default(),
            stream: Stream::default(),
            sources: Arc::default(),
            on_term: OnceLock::new(),
            offset_of: OnceLock::new(),
            own: OwnLinks::default(),
            node: OnceLock::new(),
            stop_wait: StopWait::default(),
            hands_over: AtomicBool::new(false),
            begins_office: AtomicBool::new(false),
            left_office: AtomicBool::new(false),
            has_uncommitted: AtomicBool::new(false),
            awaits_group: AtomicBool::new(false),
            is_emptied: AtomicBool::new(false),
        }
    }
}
