//! A node's replication state. The module above has the operations, which work on whole nodes; the
//! node itself knows no more of replication than this.

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

/// The next order for the thread "follow". A later order replaces an earlier one.
pub(super) enum Order {
    /// Follow this primary until the next order.
    Follow(Arc<Following>),
    /// Become a primary.
    TakeOver,
    /// Append nothing any more, make the log durable, then call this.
    Seal(u64, Done),
    /// Become the primary of a shard (of a group, if there is one) in a term, then call this.
    Office(Option<ShardId>, u64, Done),
    /// Hand over the office.
    FailOver(Arc<Failover>),
    /// End.
    Stop,
}

/// Called when an order of the control group was carried out, or failed.
pub(crate) type Done = Box<dyn FnOnce(bool) + Send>;

/// What changes with the role.
#[derive(Default)]
pub(super) struct Standing {
    pub(super) following: Option<Arc<Following>>,
    pub(super) failover: Option<Arc<Failover>>,
    pub(super) order: Option<Order>,
    pub(super) has_thread: bool,
    /// All kept data is loaded and the history of the log is known, so orders are carried out.
    pub(super) has_begun: bool,
}

/// The new term of a node that has taken over.
#[derive(Clone, Copy, Debug)]
pub struct NewTerm {
    /// ID of the term.
    pub term: TermId,
    /// The name of the stream from now on.
    pub id: ReplicationId,
}

/// Called when a term begins, before writes are allowed: the owner of the log appends the term.
pub(super) type OnTerm = Box<dyn Fn(&Node, &NewTerm) + Send + Sync>;
/// Returns the offset of the stream, as clients see it.
pub(super) type OffsetOf = Box<dyn Fn(&Node) -> u64 + Send + Sync>;

/// A node's role, the primary that it follows, and its replicas. The module above has the
/// operations.
pub struct Replication {
    /// What a control group allows this node.
    pub fence: Arc<Fence>,
    /// Reads at level quorum, while this node is a replica.
    pub(crate) reads: ReplicaReads,
    pub(super) role: RoleWord,
    pub(super) standing: Mutex<Standing>,
    pub(super) ordered: Condvar,
    pub(super) history: Mutex<History>,
    /// The replicas of this node.
    pub replicas: Arc<Replicas>,
    /// Counters that INFO shows.
    pub counts: Counts,
    /// The stream for replicas that speak PSYNC.
    pub stream: Stream,
    pub(super) sources: Arc<Sources>,
    pub(super) on_term: OnceLock<OnTerm>,
    pub(super) offset_of: OnceLock<OffsetOf>,
    /// The own link.
    pub(crate) own: OwnLinks,
    pub(super) node: OnceLock<Weak<Node>>,
    /// The stop that waits for replicas, if there is one.
    pub(super) stop_wait: StopWait,
    /// This primary hands its office over to another copy: writes wait until that copy has it.
    pub(super) hands_over: AtomicBool,
    /// An office has just begun: writes wait for its first lease, and for the copies that they
    /// need.
    pub(super) begins_office: AtomicBool,
    /// This node is no longer the primary, and its clients have not been answered yet with the new
    /// one.
    pub(super) left_office: AtomicBool,
    /// The office ended with log entries that a majority may not have, and no primary's log has
    /// replaced them yet.
    pub(super) has_uncommitted: AtomicBool,
    /// This node has rejoined its group, and does not know yet what the group decided meanwhile
    /// (access rights, for example).
    pub(super) awaits_group: AtomicBool,
    /// Addresses at which other nodes were last found.
    pub(crate) host_names: HostNames,
    /// The node's data is removed when it takes over: other nodes have it, and this node has left
    /// their cluster.
    pub(super) is_emptied: AtomicBool,
}

/// Counters that INFO shows.
#[derive(Debug, Default)]
pub struct Counts {
    /// Full syncs of replicas.
    pub full_syncs: AtomicU64,
    /// Partial syncs of replicas.
    pub partial_syncs: AtomicU64,
    /// Requests for a partial sync from an offset that is no longer available.
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
