//! A primary whose log cannot be written leaves its office, if writes wait for a majority and the
//! other copies can go on: they have everything that was acknowledged.
//!
//! ```text
//!   a fault ── for a node timeout, enough copies are linked ─► the office is left, its lease given back ─► seal, promotion as ever
//!           └─ otherwise: this node stays, and refuses writes until its log can be written
//! ```
//!
//! A node that cannot write its log answers no seal either, so it is not promoted again until it
//! can. A single node stays in office, and so does a node without which its shard could commit
//! nothing: with two copies both are needed.

use std::collections::{BTreeMap, BTreeSet};

use cluster::state::{CopyKind, Drain};
use cluster::{ControlState, NodeId, Shard};

use super::driver::Driver;
use super::handing_over::HandingOver;

impl Driver {
    /// Leaves the office if the log cannot be written for long.
    pub(super) fn look_at_log(&mut self, now_ms: u64) {
        let node = self.node.upgrade();
        let fault = node.and_then(|node| node.keeping.log_in_use.fault());
        let Some(fault) = fault else {
            self.faulty_since_ms = None;
            return;
        };
        let since_ms = *self.faulty_since_ms.get_or_insert(now_ms);
        let in_office = self.shard.filter(|id| self.member.office(*id).is_some());
        let is_due = now_ms >= since_ms + self.times.node_timeout_ms;
        let (Some(id), true, HandingOver::No) = (in_office, is_due, self.handing_over) else {
            return;
        };
        let Some(shard) = self.own_shard() else {
            return;
        };
        let is_linked = |node: &NodeId| {
            let duty = self.duty.as_ref();
            duty.is_some_and(|duty| duty.copy_end(*node).is_some())
        };
        let mut others = shard.everybody();
        others.retain(|node| *node != self.own && is_linked(node));
        if !can_go_on(&self.state, shard, &others) {
            return;
        }
        self.warn(&format!(
            "The log of this primary cannot be written ({fault}), and other copies have all that was acknowledged: it leaves its office to one of them"
        ));
        // If no other node was promoted and this one is in office again, it does not leave again at
        // once.
        self.faulty_since_ms = Some(now_ms);
        let actions = self.member.resign(id);
        self.perform(actions);
    }
}

/// Whether these copies of a shard can go on without its primary. They must be a quorum, so that
/// one of them has everything committed and they can commit more, and one of them must be able to
/// lead.
fn can_go_on(state: &ControlState, shard: &Shard, others: &BTreeSet<NodeId>) -> bool {
    let may_lead = |node: &NodeId| {
        let known = state.nodes.get(node);
        let is_willing = known.is_some_and(|node| !node.is_failed && node.drain == Drain::No);
        is_willing && shard.members.get(node) == Some(&CopyKind::Data)
    };
    let ends: BTreeMap<NodeId, u64> = others.iter().map(|node| (*node, 1)).collect();
    shard.is_quorum && shard.committed(&ends) > 0 && others.iter().any(may_lead)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(bytes: &[u8]) -> BTreeSet<NodeId> {
        bytes.iter().map(|byte| NodeId([*byte; 20])).collect()
    }

    /// Whether these copies can go on, of a shard with so many copies, the last of which has the
    /// kind `last`.
    fn goes_on(copies: u8, last: CopyKind, others: &[u8]) -> bool {
        let mut state = ControlState::default();
        let mut shard = Shard {
            primary: NodeId([1; 20]),
            is_quorum: true,
            ..Shard::default()
        };
        for byte in 1..=copies {
            let id = NodeId([byte; 20]);
            let kind = if byte == copies { last } else { CopyKind::Data };
            state.nodes.insert(id, cluster::state::Node::default());
            shard.members.insert(id, kind);
        }
        can_go_on(&state, &shard, &nodes(others))
    }

    #[test]
    fn an_office_is_left_only_where_others_have_all_that_is_committed() {
        let data = CopyKind::Data;
        assert!(!goes_on(1, data, &[]), "alone");
        assert!(!goes_on(2, data, &[2]), "one of two commits nothing");
        assert!(goes_on(3, data, &[2, 3]));
        assert!(!goes_on(3, data, &[2]));
        assert!(goes_on(3, CopyKind::LogOnly, &[2, 3]));
        assert!(goes_on(5, data, &[2, 3, 4]));
        assert!(!goes_on(5, data, &[2, 3]));
    }
}
