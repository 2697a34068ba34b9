//! The control state as INFO shows it: fields, and a row for each node.

use crate::control_log::Membership;
use crate::state::{ControlState, Drain, NodeId, roles};
use crate::voters::fault_tolerance;

/// One node, as a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Its permanent name.
    pub node: NodeId,
    /// Its name for people.
    pub name: String,
    /// Its address for clients.
    pub address: String,
    /// `primary`, `replica`, `witness`, `witness+log` (it keeps a copy of the log) or `spare`.
    pub role: &'static str,
    /// Whether it votes.
    pub votes: bool,
    /// `ok` or `failed`.
    pub health: &'static str,
    /// `no`, `yes` or `leaving`.
    pub drain: &'static str,
}

/// Returns all nodes, in the order in which they joined.
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
        } else if state.shards.values().any(|one| one.log_copy() == Some(*id)) {
            "witness+log"
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
            drain: match node.drain {
                Drain::No => "no",
                Drain::Drained => "yes",
                Drain::Leaving => "leaving",
            },
        })
        .collect()
}

/// Returns INFO's fields about the group, in order.
#[must_use]
pub fn fields(
    state: &ControlState,
    membership: &Membership,
    leader: Option<NodeId>,
    term: u64,
) -> Vec<(String, String)> {
    let rows = rows(state, membership);
    let voters = membership.voters.len();
    let mut fields = vec![
        (
            "control_leader".to_owned(),
            leader.map_or_else(String::new, |leader| leader.to_string()),
        ),
        ("control_term".to_owned(), term.to_string()),
        ("control_index".to_owned(), state.index.to_string()),
        ("control_nodes".to_owned(), rows.len().to_string()),
        ("control_voters".to_owned(), voters.to_string()),
        (
            "control_fault_tolerance".to_owned(),
            fault_tolerance(voters).to_string(),
        ),
        (
            "control_feature_level".to_owned(),
            state.feature_level.to_string(),
        ),
    ];
    for (number, row) in rows.iter().enumerate() {
        let votes = if row.votes { "yes" } else { "no" };
        let line = format!(
            "id={},addr={},role={},votes={votes},health={},drain={},name={}",
            row.node, row.address, row.role, row.health, row.drain, row.name
        );
        fields.push((format!("control_node{number}"), line));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Node, NodeRecord};

    #[test]
    fn info_has_a_line_for_each_node() {
        let mut state = ControlState::default();
        let record = NodeRecord {
            host: "db1".to_owned(),
            client_port: 6_379,
            roles: roles::WITNESS,
            ..NodeRecord::default()
        };
        let node = Node {
            raft_id: 1,
            is_failed: true,
            record,
            ..Node::default()
        };
        let id = NodeId([1; 20]);
        state.nodes.insert(id, node);
        let membership = Membership {
            voters: [1, 2, 3].into(),
            ..Membership::default()
        };
        let fields = fields(&state, &membership, Some(id), 7);
        let of = |name: &str| {
            let found = fields.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(of("control_term"), Some("7"));
        assert_eq!(of("control_fault_tolerance"), Some("1"));
        let line =
            format!("id={id},addr=db1:6379,role=witness,votes=yes,health=failed,drain=no,name=");
        assert_eq!(of("control_node0"), Some(line.as_str()));
    }
}
