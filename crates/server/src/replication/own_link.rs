//! The own link in a server: where its two ends meet the node, its log, its data and who shows all that.
//!
//! ```text
//!   REPLCONF iolite-link 1 ──► OwnLinks::offer ──► the listeners, a first term
//!   link ──► PrimaryLinks ──► replicas (INFO, WAIT)          log, checkpoint in force ◄── persistence
//!   REPLICAOF ──► follow ──► replica_link ──► AppliedLog ──► log, store
//! ```
//!
//! It takes a log on disk at both ends. A node without one neither offers the link nor uses it: PSYNC serves there.
//!
//! `serving` is what a node does for its links as long as it runs; `at_primary` with its `observers` is the end that gives,
//! `at_replica` the end that takes, for as long as it `follow`s. `taking_office` leads from the second to the first.

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
