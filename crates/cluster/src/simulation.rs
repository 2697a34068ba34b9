//! A whole group in one thread under one seed: members, links, clocks, disks, clients, and the
//! checked promises.
//!
//! ```text
//!   world: time in steps ─► per node: Member + Leader + log + seal on disk ─► messages with delay, loss, cuts
//!          faults ─► cuts, restarts, pauses, clocks that drift, leaders that are deposed and do not know
//! ```
//!
//! [`ControlLogs`] abstracts the control log. Here it is an ideal one that keeps Raft's promises,
//! with leaders that are elected, deposed and unaware of it. In the room `consensus` it is the real
//! one, on its simulated runtime.
//!
//! One seed: `CLUSTER_SEED=7 cargo test -p cluster one_seed -- --nocapture`.

#[cfg(test)]
mod ideal;
mod links;
#[cfg(test)]
mod tests;
mod world;

#[cfg(test)]
use ideal::IdealLogs;
pub use links::Links;
pub use world::{Beginning, Fault, STEP_MS, Summary, World};

use std::sync::Arc;

use base::random::Prng;

use crate::entry::Entry;
use crate::leader_lease::Reign;
use crate::state::ControlState;

/// The control logs of all nodes of a world. A node's place, from 0 on, identifies it. All nodes
/// vote.
pub trait ControlLogs {
    /// Advances the time to `now_ms`, and delivers messages where the links allow it.
    fn step(&mut self, now_ms: u64, links: &Links);

    /// Returns the reign in which a node considers itself the leader, with all applied that was
    /// committed before.
    fn reign(&self, at: usize) -> Option<Reign>;

    /// Whether a majority has confirmed the node as leader within that time, and within one
    /// election timeout.
    fn has_quorum(&self, at: usize, now_ms: u64, within_ms: u64) -> bool;

    /// Returns the leader that a voter acknowledged in this step.
    fn acknowledged(&mut self, at: usize, now_ms: u64) -> Option<Reign>;

    /// Returns a node's state, if it is newer than `known`.
    fn learn(
        &mut self,
        at: usize,
        known: &ControlState,
        links: &Links,
        random: &mut Prng,
    ) -> Option<Arc<ControlState>>;

    /// Proposes an entry at a node. The state shows the result.
    fn propose(&mut self, at: usize, entry: Entry, now_ms: u64);

    /// Cuts a node's power until `until_ms` at the latest.
    fn restart(&mut self, at: usize, until_ms: u64);

    /// Changes the leader without need, if there is one to change.
    fn unsettle(&mut self, at: usize);
}
