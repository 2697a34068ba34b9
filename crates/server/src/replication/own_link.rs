//! The own link in a server: connects its two ends to the node, its log, its data and the commands
//! that show them.
//!
//! ```text
//!   REPLCONF iolite-link 1 ──► OwnLinks::offer ──► the listeners, a first term
//!   link ──► PrimaryLinks ──► replicas (INFO, WAIT)          log, checkpoint in force ◄── persistence
//!   REPLICAOF ──► follow ──► replica_link ──► AppliedLog ──► log, store
//! ```
//!
//! Both ends need a log on disk. A node without one neither offers the link nor uses it: it uses
//! PSYNC.
//!
//! `serving` is what a node does for its links for its whole life. `at_primary` with its
//! `observers` is the sending end. `at_replica` is the receiving end, while the node `follow`s.
//! `taking_office` turns a receiving node into a sending one.

mod at_primary;
mod at_replica;
mod both_ends;
mod follow;
mod log_on_disk;
mod observers;
mod serving;
mod taking_office;

pub(super) use follow::{can_follow, follow};
pub(super) use log_on_disk::{own_log, place_of};
pub(super) use taking_office::{apply_rest, begin_missing_log};
