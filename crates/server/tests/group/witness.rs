//! Two nodes that keep data, and a witness: each one lost, and each pair.

use crate::{Node, has, wait_until, writes};

/// The primary, its replica and a witness; all three vote, and both copies have a key.
fn with_witness() -> [Node; 3] {
    let first = Node::first();
    let second = Node::joining(&first, &[]);
    let witness = Node::joining(&first, &["--witness"]);
    let nodes = [first, second, witness];
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("three voters", &all, || {
        nodes[0].field("control_voters") == "3" && nodes[1].is_synced()
    });
    assert!(writes(&nodes[0], "before"));
    wait_until("copied", &all, || has(&nodes[1], "before"));
    nodes
}

/// Nobody takes a write for longer than a failover and a lease take.
fn takes_no_write(node: &Node) {
    wait_until("writes end", &[node], || !writes(node, "alone"));
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert!(!writes(node, "alone"), "{}", node.log());
}

/// Both copies are there, with a primary that takes writes and all that was written before.
fn wait_for_both(nodes: &[Node; 3]) {
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("a primary and its replica", &all, || {
        let [first, second, _] = nodes;
        let is_whole = |primary: &Node, replica: &Node| {
            writes(primary, "after") && replica.is_synced() && has(replica, "after")
        };
        is_whole(first, second) || is_whole(second, first)
    });
    assert!(has(&nodes[0], "before") && has(&nodes[1], "before"));
}

#[test]
fn the_loss_of_the_primary_the_replica_or_the_witness_stops_nobody() {
    let mut nodes = with_witness();
    for lost in [2, 1, 0] {
        nodes[lost].kill();
        let left: Vec<&Node> = nodes.iter().filter(|node| node.is_running()).collect();
        let data: Vec<&Node> = nodes[..2].iter().filter(|node| node.is_running()).collect();
        let key = format!("without:{lost}");
        wait_until("written without it", &left, || {
            data.iter().any(|node| writes(node, &key))
        });
        nodes[lost].start();
        wait_for_both(&nodes);
        assert!(has(&nodes[0], &key) && has(&nodes[1], &key), "{key}");
    }
}

/// Whoever is left is no majority: it takes no write, and the first of the others to come back makes it one.
#[test]
fn a_copy_that_is_alone_waits_for_one_of_the_others() {
    let mut nodes = with_witness();
    for (alone, back) in [(1, 2), (0, 2), (1, 0), (0, 1)] {
        let lost: Vec<usize> = (0..3).filter(|at| *at != alone).collect();
        for at in &lost {
            nodes[*at].kill();
        }
        takes_no_write(&nodes[alone]);
        nodes[back].start();
        let key = format!("{alone} with {back}");
        let left: Vec<&Node> = nodes.iter().filter(|node| node.is_running()).collect();
        wait_until("two go on", &left, || {
            let mut data = nodes[..2].iter().filter(|node| node.is_running());
            data.any(|node| writes(node, &key))
        });
        for at in lost {
            if at != back {
                nodes[at].start();
            }
        }
        wait_for_both(&nodes);
        assert!(has(&nodes[0], &key) && has(&nodes[1], &key), "{key}");
    }
}

/// Both copies are lost, and come back in either order: nothing of what was written is missing.
#[test]
fn both_copies_come_back_in_either_order() {
    let mut nodes = with_witness();
    for order in [[0, 1], [1, 0]] {
        for at in order {
            nodes[at].kill();
        }
        for at in order {
            nodes[at].start();
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
        wait_for_both(&nodes);
    }
}
