//! The control group in a server: its nodes, its primaries, and automatic changes of both.
//!
//! ```text
//!   links ◄──► other nodes            consensus (Raft) ──► control state ──► View ──► INFO, workers, whoever looks
//!     │                                   ▲                     │
//!     └──► thread "group": Member, Leader ┘ proposals           └──► Member ──► Duty: this node's log, role, replies
//! ```
//!
//! A node is in a group if its configuration (`cluster-group`, `join`) or its files say so. Other
//! nodes have none of the threads, and pay nothing. Without the feature `cluster` the binary
//! contains no consensus code.

#[cfg(feature = "cluster")]
mod acting;
#[cfg(feature = "cluster")]
mod asking;
#[cfg(feature = "cluster")]
mod catching_up;
#[cfg(feature = "cluster")]
pub(crate) mod control;
#[cfg(not(feature = "cluster"))]
#[path = "no_control.rs"]
pub(crate) mod control;
#[cfg(feature = "cluster")]
mod control_fault;
pub(crate) mod directives;
pub(crate) mod documents;
#[cfg(feature = "cluster")]
mod draining;
#[cfg(feature = "cluster")]
mod driver;
pub mod duty;
#[cfg(feature = "cluster")]
mod faulty_log;
#[cfg(feature = "cluster")]
mod fetching;
#[cfg(feature = "cluster")]
pub(crate) mod files;
#[cfg(feature = "cluster")]
mod forming;
#[cfg(feature = "cluster")]
mod giving_way;
#[cfg(feature = "cluster")]
mod handing_over;
pub mod holder;
#[cfg(feature = "cluster")]
mod known_timeout;
#[cfg(feature = "cluster")]
mod leading;
pub(crate) mod libraries;
#[cfg(feature = "cluster")]
mod link_table;
#[cfg(feature = "cluster")]
mod links;
#[cfg(feature = "cluster")]
mod links_shown;
#[cfg(feature = "cluster")]
mod log_copies;
#[cfg(feature = "cluster")]
mod meeting;
#[cfg(feature = "cluster")]
mod merging;
#[cfg(feature = "cluster")]
mod own_shard;
#[cfg(feature = "cluster")]
mod places;
#[cfg(feature = "cluster")]
mod reads;
#[cfg(feature = "cluster")]
mod reconcile;
pub(crate) mod record;
#[cfg(feature = "cluster")]
mod relay;
#[cfg(feature = "cluster")]
mod retirement;
#[cfg(feature = "cluster")]
mod spare_replicas;
pub(crate) mod taken;
#[cfg(feature = "cluster")]
mod taking_up;
#[cfg(feature = "cluster")]
mod timing;
pub(crate) mod unique;
pub mod view;
