//! Tests of nodes of two versions in one group. A node limited to level 1 of the control log stands
//! for the older version.

use protocol::Value;

use crate::{Node, has, wait_for_copies, wait_until, writes};

const OLD: [&str; 2] = ["--cluster-feature-level", "1"];

/// Restarts the node with the newer version, or with the older one.
fn restart(node: &mut Node, is_old: bool) {
    let _log = node.stop();
    node.args.retain(|word| !OLD.contains(&word.as_str()));
    if is_old {
        node.args.extend(OLD.map(str::to_owned));
    }
    node.start();
}

fn is_whole(nodes: &[Node]) -> bool {
    let primaries = nodes.iter().filter(|node| node.is_primary()).count();
    primaries == 1 && nodes.iter().filter(|node| node.is_synced()).count() == nodes.len() - 1
}

fn wait_for_whole(nodes: &[Node]) {
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("whole", &all, || is_whole(nodes));
}

fn primary_of(nodes: &[Node]) -> usize {
    nodes.iter().position(Node::is_primary).unwrap()
}

/// Writes a key at the node that takes it, and waits until all nodes have it.
fn write_everywhere(nodes: &[Node], key: &str) {
    let all: Vec<&Node> = nodes.iter().filter(|node| node.is_running()).collect();
    wait_until("written", &all, || all.iter().any(|node| writes(node, key)));
    wait_until("copied", &all, || all.iter().all(|node| has(node, key)));
}

/// Runs a command whose control entry is of level 2. Returns its reply.
fn drain(nodes: &[Node], order: &str) -> Value {
    let row = nodes[0].field("control_node1");
    let id = row.split(',').next().unwrap();
    let id = id.strip_prefix("id=").unwrap();
    nodes[0].run(&["REPLICATION", order, id])
}

/// Returns the highest level that this version knows.
fn newest() -> String {
    cluster::state::FEATURE_LEVEL.to_string()
}

fn wait_for_level(nodes: &[Node], level: &str) {
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("at that level", &all, || {
        all.iter()
            .all(|node| node.field("control_feature_level") == level)
    });
}

/// Starts two nodes of the older version and one of the newer version.
fn mixed() -> [Node; 3] {
    let first = Node::new(&[&["--cluster-group", "yes"], &OLD[..]].concat());
    let second = Node::joining(&first, &OLD);
    let third = Node::joining(&first, &[]);
    let nodes = [first, second, third];
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("three voters and two replicas", &all, || {
        nodes[0].field("control_voters") == "3" && nodes[1..].iter().all(Node::is_synced)
    });
    wait_for_copies(&all);
    nodes
}

#[test]
fn a_group_of_two_versions_fails_over_and_is_upgraded_node_by_node() {
    let mut nodes = mixed();
    wait_for_level(&nodes, "1");
    write_everywhere(&nodes, "before");
    let refused = drain(&nodes, "DRAIN");
    let is_told = |told: &Value| matches!(told, Value::Error(text) if String::from_utf8_lossy(text).contains("does not know entries of level 2 yet"));
    assert!(is_told(&refused), "{refused:?}");
    // The primary is lost twice: a node of either version may take over.
    for _ in 0..2 {
        let primary = primary_of(&nodes);
        nodes[primary].kill();
        let rest: Vec<&Node> = nodes.iter().filter(|node| node.is_running()).collect();
        wait_until("another primary", &rest, || {
            rest.iter()
                .any(|node| node.is_primary() && writes(node, "lost"))
        });
        nodes[primary].start();
        wait_for_whole(&nodes);
        write_everywhere(&nodes, "after a failover");
    }
    wait_for_level(&nodes, "1");
    for at in 0..2 {
        restart(&mut nodes[at], false);
        wait_for_whole(&nodes);
        write_everywhere(&nodes, &format!("after restart {at}"));
    }
    wait_for_level(&nodes, &newest());
    let all: Vec<&Node> = nodes.iter().collect();
    let ok = Value::Simple(b"OK".to_vec());
    wait_until("what is new is taken", &all, || {
        drain(&nodes, "DRAIN") == ok
    });
    wait_until("and undone", &all, || drain(&nodes, "UNDRAIN") == ok);
    for key in ["before", "after a failover", "after restart 0"] {
        wait_until("all is there", &all, || {
            all.iter().all(|node| has(node, key))
        });
    }
}

#[test]
fn a_node_below_the_level_of_its_group_is_refused_with_the_reason() {
    let first = Node::first();
    let second = Node::joining(&first, &[]);
    let mut nodes = vec![first, second];
    wait_for_whole(&nodes);
    wait_for_level(&nodes, &newest());
    let stranger = Node::joining(&nodes[0], &OLD);
    let why = format!(
        "it knows level 1 of the control log, and the group is at level {}: it takes a newer version",
        newest()
    );
    wait_until("refused", &[&stranger, &nodes[0]], || {
        stranger.log().contains(&why)
    });
    assert_eq!(nodes[0].field("control_nodes"), "2");
    // A member that is downgraded takes no part, and takes part again after an upgrade.
    write_everywhere(&nodes, "before");
    restart(&mut nodes[1], true);
    let why = "it takes no part until it is started by a version that knows that";
    wait_until("it stands aside", &[&nodes[1]], || {
        nodes[1].log().contains(why)
    });
    assert!(!writes(&nodes[1], "never"));
    wait_until("the other goes on", &[&nodes[0]], || {
        writes(&nodes[0], "meanwhile")
    });
    restart(&mut nodes[1], false);
    wait_for_whole(&nodes);
    write_everywhere(&nodes, "after");
    assert!(has(&nodes[1], "meanwhile"));
}
