//! The control state as people and INFO see it: rows of a table, and fields.

use std::fmt::Write as _;

use crate::control_log::Membership;
use crate::state::{ControlState, NodeId, roles};
use crate::voters::fault_tolerance;

/// One node, as a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Its name for good.
    pub node: NodeId,
    /// What people call it.
    pub name: String,
    /// Where clients find it.
    pub address: String,
    /// `primary`, `replica`, `witness` or `spare`.
    pub role: &'static str,
    /// Whether it votes.
    pub votes: bool,
    /// `ok` or `failed`.
    pub health: &'static str,
}

/// All nodes, in the order they joined.
#[must_use]
pub fn rows(state: &ControlState, membership: &Membership) -> Vec<NodeRow> {
    let mut nodes: Vec<_> = state.nodes.iter().collect();
    nodes.sort_by_key(|(_, node)| node.raft_id);
    let role = |id: &NodeId, bits: u8| {
        let is_member = |id: &NodeId| {
            state
                .shards
                .values()
                .any(|one| one.members.contains_key(id))
        };
        if state.shards.values().any(|shard| shard.primary == *id) {
            "primary"
        } else if bits & roles::WITNESS != 0 {
            "witness"
        } else if is_member(id) {
            "replica"
        } else {
            "spare"
        }
    };
    nodes
        .into_iter()
        .map(|(id, node)| NodeRow {
            node: *id,
            name: node.record.name.clone(),
            address: format!("{}:{}", node.record.host, node.record.client_port),
            role: role(id, node.record.roles),
            votes: membership.voters.contains(&node.raft_id),
            health: if node.is_failed { "failed" } else { "ok" },
        })
        .collect()
}

/// The rows as a table for people.
#[must_use]
pub fn table(rows: &[NodeRow]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _written = writeln!(
        text,
        "{:<40} {:<21} {:<8} {:<5} {:<6} NAME",
        "NODE", "ADDRESS", "ROLE", "VOTES", "HEALTH"
    );
    for row in rows {
        let votes = if row.votes { "yes" } else { "no" };
        let _written = writeln!(
            text,
            "{} {:<21} {:<8} {votes:<5} {:<6} {}",
            row.node, row.address, row.role, row.health, row.name
        );
    }
    text
}

/// What INFO says of the group.
#[must_use]
pub fn info(state: &ControlState, membership: &Membership) -> String {
    let voters = membership.voters.len();
    format!(
        "control_index:{}\r\ncontrol_nodes:{}\r\ncontrol_voters:{voters}\r\ncontrol_fault_tolerance:{}\r\n",
        state.index,
        state.nodes.len(),
        fault_tolerance(voters),
    )
}
