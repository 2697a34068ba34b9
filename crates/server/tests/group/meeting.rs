//! Tests of nodes that meet each other at the same moment: they form one cluster, and each command
//! gets the reply OK.

use std::sync::Barrier;

use base::hash_slot;
use protocol::Value;

use super::clusters::{LAST_SLOT, wait_for_agreement};
use super::{Node, wait_until};

#[test]
fn two_that_meet_each_other_at_once_are_one_cluster() {
    for _ in 0..3 {
        let nodes = sharing_slots(2);
        meet_at_once(&nodes, &[(0, 1), (1, 0)]);
        assert_one(&nodes);
    }
}

/// Pairs form clusters of their own, which merge into one.
#[test]
fn nodes_that_meet_in_a_ring_at_once_are_one_cluster() {
    let nodes = sharing_slots(6);
    let ring: Vec<(usize, usize)> = (0..6).map(|at| (at, (at + 1) % 6)).collect();
    meet_at_once(&nodes, &ring);
    assert_one(&nodes);
}

#[test]
fn nodes_that_all_meet_each_other_at_once_are_one_cluster() {
    let nodes = sharing_slots(4);
    let all = (0..4).flat_map(|one| (0..4).map(move |other| (one, other)));
    let all: Vec<(usize, usize)> = all.filter(|(one, other)| one != other).collect();
    meet_at_once(&nodes, &all);
    assert_one(&nodes);
}

/// `CLUSTER MEET` between two nodes of two new clusters, whichever has the lower name.
#[test]
fn two_clusters_that_have_just_begun_become_one() {
    let nodes = sharing_slots(5);
    meet_at_once(&nodes, &[(0, 1), (2, 1)]);
    meet_at_once(&nodes, &[(3, 4)]);
    assert_eq!(nodes[0].owners().len(), 3);
    meet_at_once(&nodes, &[(2, 3)]);
    assert_one(&nodes);
}

/// The same happens if each primary gets its replica before the primaries meet.
#[test]
fn two_clusters_that_have_replicas_become_one_that_has_them() {
    let primaries = sharing_slots(3);
    let replicas: Vec<Node> = (0..3).map(|_| Node::by_itself()).collect();
    let all: Vec<&Node> = primaries.iter().chain(&replicas).collect();
    for (primary, replica) in primaries.iter().zip(&replicas) {
        assert_eq!(replica.meet(primary), "OK");
        assert_eq!(replica.text(&["CLUSTER", "REPLICATE", &primary.id()]), "OK");
        wait_until("a copy", &all, || replica.is_synced());
    }
    for primary in &primaries[1..] {
        assert_eq!(primaries[0].meet(primary), "OK");
    }
    assert_one_of(&primaries, &all);
    for (primary, replica) in primaries.iter().zip(&replicas) {
        let port = primary.port.to_string();
        wait_until("a copy again", &all, || {
            replica.is_synced()
                && replica.field("master_port") == port
                && replica.run(&["DBSIZE"]) == Value::Integer(1)
        });
    }
}

/// Returns the hash slots of node `at` of `count` nodes.
fn share(at: u16, count: u16) -> (u16, u16) {
    let each = (LAST_SLOT + 1) / count;
    let last = match at + 1 == count {
        true => LAST_SLOT,
        false => (at + 1) * each - 1,
    };
    (at * each, last)
}

/// Returns a key in one of these hash slots.
fn key_of((first, last): (u16, u16)) -> String {
    let mut keys = (0..).map(|number: u32| format!("key:{number}"));
    let is_there = |key: &String| (first..=last).contains(&hash_slot::of(key.as_bytes()));
    keys.find(is_there).unwrap()
}

/// Starts separate nodes that share all hash slots, each with a key of its own.
fn sharing_slots(count: u16) -> Vec<Node> {
    let nodes: Vec<Node> = (0..count).map(|_| Node::by_itself()).collect();
    for (at, node) in (0..).zip(&nodes) {
        let share = share(at, count);
        node.own(share.0, share.1);
        node.run(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
        let key = key_of(share);
        assert_eq!(node.text(&["SET", &key, &key]), "OK");
    }
    nodes
}

/// Lets all these pairs meet at once. Each command must return OK.
fn meet_at_once(nodes: &[Node], pairs: &[(usize, usize)]) {
    let start = Barrier::new(pairs.len());
    let meet = |(one, other): (usize, usize)| {
        start.wait();
        nodes[one].meet(&nodes[other])
    };
    let told: Vec<String> = std::thread::scope(|scope| {
        let meetings = pairs.iter().map(|&pair| scope.spawn(move || meet(pair)));
        let meetings: Vec<_> = meetings.collect();
        let told = meetings.into_iter().map(|one| one.join().unwrap());
        told.collect()
    });
    let logs: Vec<String> = nodes.iter().map(Node::log).collect();
    let logs = logs.join("\n======\n");
    assert!(told.iter().all(|told| told == "OK"), "{told:?}\n{logs}");
}

/// Asserts that all nodes form one cluster with all hash slots, and that all keys are where they
/// were.
fn assert_one(nodes: &[Node]) {
    let all: Vec<&Node> = nodes.iter().collect();
    assert_one_of(nodes, &all);
}

/// As [`assert_one`], if there are more nodes than the primaries.
fn assert_one_of(nodes: &[Node], all: &[&Node]) {
    wait_for_agreement(all, all.len());
    let count = u16::try_from(nodes.len()).unwrap();
    for (at, node) in (0..).zip(nodes) {
        let key = key_of(share(at, count));
        wait_until("its key is there", all, || node.text(&["GET", &key]) == key);
        assert!(node.is_primary());
    }
}
