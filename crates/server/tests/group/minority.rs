//! Tests that a node in a minority reports it, whichever node led the cluster.

use protocol::Value;

use super::clusters::three_primaries;
use super::{Node, wait_until};

/// Returns the leader, as a node knows it; empty for none.
fn leader(node: &Node) -> String {
    let info = node.text(&["CLUSTER", "INFO"]);
    let mut lines = info.lines();
    let leader = lines.find_map(|line| line.strip_prefix("control_leader:"));
    leader.unwrap().to_owned()
}

/// Raft still names the lost leader to a node that followed it, because no other leader was
/// elected.
#[test]
fn a_follower_whose_leader_is_lost_with_the_majority_says_that_the_cluster_is_down() {
    let mut nodes = three_primaries();
    let all: Vec<&Node> = nodes.iter().collect();
    let mut leads = None;
    wait_until("led", &all, || {
        leads = nodes.iter().position(|node| node.id() == leader(&nodes[0]));
        leads.is_some()
    });
    let leads = leads.unwrap();
    let (left, other) = ((leads + 1) % 3, (leads + 2) % 3);
    for lost in [leads, other] {
        nodes[lost].kill();
    }
    let node = &nodes[left];
    wait_until("told that it is down", &[node], || !node.is_ok());
    // One of its own hash slots.
    let key = ["{b}1", "foo{c}", "a"][left];
    wait_until("refused, a moment after it is told of", &[node], || {
        let told = node.run(&["GET", key]);
        told == Value::Error(b"CLUSTERDOWN The cluster is down".to_vec())
    });
    assert_eq!(leader(node), "");
    nodes[other].start();
    let both = [&nodes[left], &nodes[other]];
    wait_until("led again", &both, || !leader(&nodes[left]).is_empty());
}
