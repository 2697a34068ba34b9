//! Replication without I/O: the protocol of two nodes about one operation log, and the actions that
//! follow.
//!
//! ```text
//!   link messages ─┐                       ┌─► send a message, close the link
//!   ticks          ├─► Primary / Replica ──┤
//!   new log        ─┘                       └─► read, append or truncate the log, load a full sync
//! ```
//!
//! The replica keeps the primary's log byte for byte, at the same sequences. The [`lineage`] says
//! which primary wrote which part of it. [`attach`] decides from two lineages whether a replica
//! continues, rewinds, gets a full sync, or is refused. [`primary`] and [`replica`] are the two
//! ends of a link as state machines: they take events and return actions. [`link`] is the wire
//! format.
//!
//! Redis and Valkey nodes speak PSYNC instead. For replicas of that kind, [`transcode`] makes the
//! stream of commands from the log, [`offset_index`] finds an offset of the stream in the log, and
//! [`psync`] decides the answers. [`redis_follower`] is the replica's end of a link to a primary of
//! that kind.
//!
//! This room knows no socket, no thread, no file and no clock: time is an argument. The server
//! performs the actions; a simulation performs them under one seed.
//!
//! Invariants
//!  1. Two logs that have the same term at a sequence have the same bytes below it.
//!  2. A node with data never loses it to a primary whose last term is older, or that is empty or
//!     unrelated.
//!  3. A replica acknowledges a sequence only after its log reported it appended.
//!  4. A term frame is durable before an attach is answered in that term.
//!  5. The primary keeps one cursor and at most one piece in flight per replica, whatever the
//!     replica's lag.

#![forbid(unsafe_code)]

pub mod attach;
pub mod lineage;
pub mod link;
pub mod offset_index;
pub mod planted;
pub mod primary;
pub mod psync;
pub mod redis_follower;
pub mod replica;
pub mod transcode;

#[cfg(test)]
mod simulation;

pub use attach::{Attach, FullReason, PrimaryLog, Refusal, Verdict, judge};
pub use lineage::{Lineage, LineageFlaw, Term, TermId};
