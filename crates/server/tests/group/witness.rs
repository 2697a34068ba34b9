//! Tests of two nodes that keep data, and a witness: each of them is lost, and each pair, at the
//! levels `os` and `quorum`. The second node and the witness are started as operators do:
//! `iolite cluster join`, `iolite cluster witness`.

use std::sync::atomic::{AtomicU64, Ordering};

use protocol::Value;

use crate::{Node, has, wait_until, writes};

/// Starts the primary, its replica and a witness. All three vote, and both copies have a key.
fn with_witness(more: &[&str]) -> [Node; 3] {
    let first = Node::new(&[&["--cluster-group", "yes"], more].concat());
    let second = Node::by_command("join", &first, more);
    let witness = Node::by_command("witness", &first, &[]);
    let nodes = [first, second, witness];
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("three voters", &all, || {
        nodes[0].field("control_voters") == "3" && nodes[1].is_synced()
    });
    wait_until("written", &all, || writes(&nodes[0], "before"));
    let rows: Vec<String> = (0..3)
        .map(|at| nodes[0].field(&format!("control_node{at}")))
        .collect();
    for role in ["role=primary", "role=replica", "role=witness"] {
        let is_there = |row: &String| row.contains(role) && row.contains("votes=yes");
        assert!(rows.iter().any(is_there), "{rows:?}");
    }
    wait_until("copied", &all, || has(&nodes[1], "before"));
    wait_for_both(&nodes);
    nodes
}

/// Asserts that the node takes no write for longer than a failover and a lease take.
fn takes_no_write(node: &Node) {
    wait_until("writes end", &[node], || !writes(node, "alone"));
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert!(!writes(node, "alone"), "{}", node.log());
}

/// Waits until both copies are there, with a primary that takes writes and has everything written
/// before, and a replica that has a new write. A replica that has just started and got no write yet
/// would wait 30 s for the other nodes if these were lost.
pub(crate) fn wait_for_both(nodes: &[Node; 3]) {
    static WAITS: AtomicU64 = AtomicU64::new(0);
    let after = format!("after:{}", WAITS.fetch_add(1, Ordering::Relaxed));
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("a primary and its replica", &all, || {
        let [first, second, _] = nodes;
        let is_whole = |primary: &Node, replica: &Node| {
            writes(primary, &after) && replica.is_synced() && has(replica, &after)
        };
        is_whole(first, second) || is_whole(second, first)
    });
    assert!(has(&nodes[0], "before") && has(&nodes[1], "before"));
}

#[test]
fn the_loss_of_the_primary_the_replica_or_the_witness_stops_nobody() {
    let mut nodes = with_witness(&[]);
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

#[test]
fn a_copy_that_is_alone_waits_for_the_witness() {
    is_alone_until_one_is_back([(1, 2), (0, 2)]);
}

#[test]
fn a_copy_that_is_alone_waits_for_the_other_one() {
    is_alone_until_one_is_back([(1, 0), (0, 1)]);
}

/// The remaining node is no majority: it takes no write. The first of the other nodes to return
/// restores the majority.
fn is_alone_until_one_is_back(rounds: [(usize, usize); 2]) {
    let mut nodes = with_witness(&[]);
    for (alone, back) in rounds {
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

/// Both copies are lost, and return in either order: no write is missing.
#[test]
fn both_copies_come_back_in_either_order() {
    let mut nodes = with_witness(&[]);
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

/// At quorum both copies must have a write. Without one of them no write is taken, and no
/// acknowledged write is missing afterwards, whichever copy is lost. The witness holds nothing from
/// which a majority of the copies could be formed.
#[test]
fn at_quorum_a_lost_copy_stops_writes_and_loses_none() {
    let mut nodes = with_witness(&["--durability", "quorum"]);
    let mut kept = Vec::new();
    for lost in [2, 1, 0] {
        nodes[lost].kill();
        let left: Vec<&Node> = nodes.iter().filter(|node| node.is_running()).collect();
        let data: Vec<&Node> = nodes[..2].iter().filter(|node| node.is_running()).collect();
        let key = format!("without:{lost}");
        if lost == 2 {
            wait_until("written without the witness", &left, || {
                data.iter().any(|node| writes(node, &key))
            });
            kept.push(key);
        } else if lost == 1 {
            takes_no_write(data[0]);
        }
        nodes[lost].start();
        wait_for_both(&nodes);
        for key in &kept {
            assert!(has(&nodes[0], key) && has(&nodes[1], key), "{key}");
        }
    }
}

/// The copy's link is still open, and so is the lease, which the witness grants: nothing else ends
/// the wait.
#[test]
fn a_write_that_waits_for_copies_that_stand_still_is_given_up() {
    let nodes = with_witness(&["--durability", "quorum"]);
    let [primary, copy, witness] = &nodes;
    let all = [primary, copy, witness];
    wait_until("two copies that count", &all, || {
        let mut logs = all.iter().map(|node| node.log());
        logs.any(|log| log.contains("ends a change of who has a copy"))
    });
    copy.signal("-STOP");
    let told = primary.client().command(&["SET", "key", "1"]);
    copy.signal("-CONT");
    let Ok(Value::Error(text)) = told else {
        panic!("{told:?}\n{}", primary.log());
    };
    assert!(text.starts_with(b"NOREPLICAS "), "{text:?}");
    wait_for_both(&nodes);
}

/// Each pair is lost at quorum: no node takes a write until two copies are there again.
#[test]
fn at_quorum_a_node_that_is_alone_takes_nothing() {
    let mut nodes = with_witness(&["--durability", "quorum"]);
    for (alone, lost) in [(2, [0, 1]), (1, [0, 2]), (0, [1, 2])] {
        for at in lost {
            nodes[at].kill();
        }
        match alone {
            2 => assert!(!writes(&nodes[2], "alone"), "a witness has no data"),
            alone => takes_no_write(&nodes[alone]),
        }
        for at in lost {
            nodes[at].start();
        }
        wait_for_both(&nodes);
    }
}
