//! A whole group in one thread under one seed: members, links, clocks, disks, clients, and what must hold.
//!
//! ```text
//!   world: time in steps ─► per node: Member + Leader + log + seal on disk ─► messages with delay, loss, cuts
//!          faults ─► cuts, restarts, pauses, clocks that drift, leaders that are deposed and do not know
//! ```
//!
//! The control log is whatever [`ControlLogs`] stands for: here an ideal one, which keeps the promises of Raft, with leaders
//! that are elected, deposed and mistaken about it; in the room `consensus` the real one, on its simulated runtime.
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

/// The control logs of all nodes of a world, which are known by their places from 0 on. All of them vote.
pub trait ControlLogs {
    /// Time passes: it is `now_ms`, and messages go where the links let them.
    fn step(&mut self, now_ms: u64, links: &Links);

    /// As which leader a node takes itself for the leader, with all applied that was committed before.
    fn reign(&self, at: usize) -> Option<Reign>;

    /// Whether a majority has confirmed it so within that time, and within one election.
    fn has_quorum(&self, at: usize, now_ms: u64, within_ms: u64) -> bool;

    /// The leader that a voter acknowledged in this step.
    fn acknowledged(&mut self, at: usize, now_ms: u64) -> Option<Reign>;

    /// The state as a node has it, where that is newer than `known`.
    fn learn(
        &mut self,
        at: usize,
        known: &ControlState,
        links: &Links,
        random: &mut Prng,
    ) -> Option<Arc<ControlState>>;

    /// A node proposes; what becomes of it is seen in the state.
    fn propose(&mut self, at: usize, entry: Entry, now_ms: u64);

    /// A node loses power, and is back at `until_ms` at the latest.
    fn restart(&mut self, at: usize, until_ms: u64);

    /// A change of leaders that nothing made necessary, where there is one to change.
    fn unsettle(&mut self, at: usize);
}
