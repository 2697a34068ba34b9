//! The control group without I/O: its members, the primary of each shard, and how both change.
//!
//! ```text
//!   proposals ─► ControlLog (Raft, elsewhere) ─► entries in order ─► ControlState::apply ─► view on every node
//!
//!   leader of the group:  heartbeats ─► leases;  silence ─► seal(term + 1) ─► answers ─► promote
//!   every member:         heartbeats, lease, seal, office
//! ```
//!
//! Data is not in the control log: each shard ships its own log. The group decides which node may
//! write it, and in which term. [`leader`] and [`member`] are state machines: they take messages
//! and the time, and return actions. A server performs the actions, and a simulation performs them
//! under one seed.
//!
//! This room uses no socket, no thread, no file and no clock: time is an argument.
//!
//! Invariants
//!  1. The state is a function of the entries: equal index, equal state.
//!  2. An entry that expects another state than it finds changes nothing.
//!  3. Terms of a shard rise, and each has one primary.
//!  4. A lease is granted by a leader that has a quorum, to the primary of the present term, whose
//!     clock runs about as fast as the leader's. It ends at its holder before the leader counts it
//!     as over.
//!  5. No member is promoted before the members were sealed and leases of older terms are over.
//!  6. A member that answered a seal accepts nothing of older terms any more.

#![forbid(unsafe_code)]

pub mod bytes;
pub mod control_log;
pub mod directives;
pub mod drift;
pub mod entry;
mod known_leases;
pub mod leader;
pub mod leader_lease;
pub mod meeting;
pub mod member;
pub mod message;
pub mod moves;
pub mod planted;
pub mod state;
pub mod status;
pub mod times;
pub mod voters;

#[cfg(any(test, feature = "simulation"))]
pub mod simulation;

pub use control_log::{ControlLog, Membership, Unavailable};
pub use entry::{Entry, Proposal, RequestId};
pub use state::{Applied, ControlState, LogEnd, NodeId, NodeRecord, Shard, ShardId};
pub use times::Times;
