//! Tests of forming a group: one start, and two starts with `--join`.

use protocol::Value;

use crate::{Node, has, three, wait_until, writes};

#[test]
fn three_nodes_are_a_primary_and_two_replicas_that_vote() {
    let nodes = three();
    assert!(nodes[0].is_primary());
    assert!(writes(&nodes[0], "key"));
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("copied", &all, || {
        has(&nodes[1], "key") && has(&nodes[2], "key")
    });
    for node in &nodes {
        assert_eq!(node.field("control_fault_tolerance"), "1");
        assert_eq!(node.field("control_nodes"), "3");
    }
    // The primary and the leader should be different nodes, so that one loss does not take both.
    wait_until("led by another than the primary", &all, || {
        let leader = format!("id={},", nodes[0].field("control_leader"));
        let rows = (0..3).map(|at| nodes[0].field(&format!("control_node{at}")));
        let mut rows = rows.filter(|row| row.starts_with(&leader));
        rows.any(|row| row.contains("role=replica"))
    });
    assert!(writes(&nodes[0], "key"), "nobody noticed");
    let written = nodes[1].run(&["SET", "key", "2"]);
    assert!(
        matches!(&written, Value::Error(text) if text.starts_with(b"READONLY")),
        "{written:?}"
    );
}

#[test]
fn a_witness_votes_and_keeps_nothing() {
    let first = Node::first();
    let second = Node::joining(&first, &[]);
    let witness = Node::joining(&first, &["--witness"]);
    let all = [&first, &second, &witness];
    wait_until("three voters", &all, || {
        first.field("control_voters") == "3"
    });
    wait_until("a replica", &all, || second.is_synced());
    let rows: Vec<String> = (0..3)
        .map(|at| first.field(&format!("control_node{at}")))
        .collect();
    let witnesses = rows
        .iter()
        .filter(|row| row.contains("role=witness"))
        .count();
    assert_eq!(witnesses, 1, "{rows:?}");
    let written = witness.run(&["SET", "key", "1"]);
    assert!(matches!(written, Value::Error(_)), "{written:?}");
}

#[test]
fn a_node_with_another_secret_does_not_join() {
    let first = Node::first();
    let stranger = Node::joining(&first, &["--cluster-secret", "another"]);
    wait_until("refused", &[&first, &stranger], || {
        stranger.log().contains("does not know the secret")
    });
    // The joining node may be refused before the group has formed.
    wait_until("begun", &[&first, &stranger], || writes(&first, "key"));
    assert_eq!(first.field("control_nodes"), "1");
    assert!(!writes(&stranger, "key"));
}

#[test]
fn a_replica_leaves() {
    let nodes = three();
    let all: Vec<&Node> = nodes.iter().collect();
    let row = nodes[0].field("control_node2");
    let id = row
        .split(',')
        .next()
        .unwrap()
        .strip_prefix("id=")
        .unwrap()
        .to_owned();
    // The command is refused while the leader changes, but may still have taken effect.
    wait_until("told to leave", &all, || {
        let told = nodes[0].run(&["REPLICATION", "LEAVE", &id]);
        told == Value::Simple(b"OK".to_vec()) || nodes[0].field("control_nodes") == "2"
    });
    wait_until("two nodes", &all, || nodes[0].field("control_nodes") == "2");
    wait_until("no voter more than nodes", &all, || {
        nodes[0].field("control_voters") == "2"
    });
    assert!(writes(&nodes[0], "key"));
}

/// Links and the clients' port then accept connections of this machine alone.
#[test]
fn nodes_without_a_secret_are_announced_where_they_are_reached() {
    let none = ["--cluster-secret", ""];
    let first = Node::new(&["--cluster-group", "yes", "--cluster-secret", ""]);
    let second = Node::joining(&first, &none);
    wait_until("a replica", &[&first, &second], || second.is_synced());
    for number in 0..2 {
        let told = first.field(&format!("control_node{number}"));
        assert!(told.contains(",addr=127.0.0.1:"), "{told}");
    }
}
