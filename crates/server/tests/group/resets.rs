//! Tests of CLUSTER RESET at primaries without keys and at replicas: each gives up its hash slots
//! and leaves, one after the other. Also tests commands to move hash slots at a node by itself.

use super::clusters::{LAST_SLOT, three_primaries, wait_for_agreement};
use super::{Node, wait_until};

/// Returns the number of nodes that a node knows, and the number of its own hash slots.
fn known(node: &Node) -> (usize, u64) {
    let owners = node.owners();
    let info = node.text(&["CLUSTER", "INFO"]);
    let line = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
    let assigned = line("cluster_slots_assigned:").unwrap_or_default();
    (owners.len(), assigned.trim().parse().unwrap())
}

#[test]
fn primaries_that_own_hash_slots_are_reset_and_make_a_cluster_again() {
    let nodes = three_primaries();
    let all: Vec<&Node> = nodes.iter().collect();
    let [a, b, c] = all[..] else { unreachable!() };
    for round in 0..2 {
        a.text(&["SET", "foo", "bar"]);
        for node in &all {
            // A node that has keys stays.
            if node.run(&["DBSIZE"]) != protocol::Value::Integer(0) {
                let refused = node.text(&["CLUSTER", "RESET", "HARD"]);
                assert!(refused.starts_with("ERR CLUSTER RESET can't"), "{refused}");
            }
            assert_eq!(node.text(&["FLUSHALL"]), "OK");
        }
        for node in &all {
            let before = node.id();
            assert_eq!(node.text(&["CLUSTER", "RESET", "HARD"]), "OK", "{round}");
            assert_ne!(node.id(), before);
            assert_eq!(known(node), (1, 0), "{}", node.log());
        }
        assert_eq!(b.meet(a), "OK");
        assert_eq!(c.meet(a), "OK");
        a.own(0, 5000);
        b.own(5001, 10_000);
        c.own(10_001, LAST_SLOT);
        wait_for_agreement(&all, 3);
    }
}

/// The same happens if scripts reset the nodes one by one, primaries first. A replica takes the
/// place of a primary, and the remaining nodes decide without it.
#[test]
fn all_nodes_of_a_cluster_with_replicas_are_reset_one_after_the_other() {
    let nodes = [(); 6].map(|()| Node::by_itself());
    let all: Vec<&Node> = nodes.iter().collect();
    for round in 0..3 {
        for (at, node) in (0..3).zip(&nodes) {
            node.own(
                at * 5_000,
                if at == 2 {
                    LAST_SLOT
                } else {
                    at * 5_000 + 4_999
                },
            );
        }
        for node in &nodes[1..] {
            assert_eq!(node.meet(&nodes[0]), "OK");
        }
        wait_for_agreement(&all, 6);
        for (replica, primary) in nodes[3..].iter().zip(&nodes) {
            let id = primary.id();
            assert_eq!(replica.text(&["CLUSTER", "REPLICATE", &id]), "OK");
        }
        wait_until("all copies", &all, || {
            nodes[3..].iter().all(Node::is_synced)
        });
        let mut order: Vec<usize> = (0..6).collect();
        if round == 1 {
            order.reverse();
        }
        for at in order {
            let node = all[at];
            assert_eq!(
                node.text(&["CLUSTER", "RESET", "HARD"]),
                "OK",
                "{round} {at}"
            );
            assert_eq!(known(node), (1, 0), "{}", node.log());
        }
    }
}

/// Neither node waits for the other.
#[test]
fn a_primary_and_its_replica_are_reset_at_the_same_moment() {
    let (a, b) = (Node::by_itself(), Node::by_itself());
    for round in 0..2 {
        a.own(0, LAST_SLOT);
        assert_eq!(b.meet(&a), "OK", "{round}");
        assert_eq!(b.text(&["CLUSTER", "REPLICATE", &a.id()]), "OK", "{round}");
        wait_until("a copy", &[&a, &b], || b.is_synced());
        std::thread::scope(|scope| {
            let resets =
                [&a, &b].map(|node| scope.spawn(|| node.text(&["CLUSTER", "RESET", "HARD"])));
            for told in resets {
                assert_eq!(told.join().unwrap(), "OK", "{round}");
            }
        });
        for node in [&a, &b] {
            assert_eq!(known(node), (1, 0), "{round}: {}", node.log());
        }
    }
}

/// The result does not depend on which of the two has the vote.
#[test]
fn the_one_other_node_is_forgotten_and_who_is_left_serves() {
    for is_first in [false, true] {
        let (a, b) = (Node::by_itself(), Node::by_itself());
        assert_eq!(a.meet(&b), "OK");
        let (stays, goes) = if is_first { (&a, &b) } else { (&b, &a) };
        stays.own(0, LAST_SLOT);
        assert_eq!(stays.text(&["CLUSTER", "FORGET", &goes.id()]), "OK");
        wait_until("it serves", &[&a, &b], || {
            known(stays) == (1, 16_384) && stays.text(&["SET", "key", "value"]) == "OK"
        });
        wait_until("the other is by itself", &[&a, &b], || {
            known(goes) == (1, 0)
        });
    }
}

/// The node leaves at the moment at which it takes the office of its own shard. It must not end up
/// with an office for which no leader grants a lease.
#[test]
fn a_node_that_is_reset_as_soon_as_it_has_joined_serves_by_itself() {
    let (a, b) = (Node::by_itself(), Node::by_itself());
    a.own(0, LAST_SLOT);
    for round in 0..20 {
        assert_eq!(b.meet(&a), "OK", "{round}");
        assert_eq!(b.text(&["CLUSTER", "RESET", "HARD"]), "OK", "{round}");
        wait_until("it takes writes", &[&a, &b], || {
            b.text(&["FLUSHALL"]) == "OK"
        });
        wait_until("the other knows", &[&a, &b], || a.owners().len() == 1);
    }
}

/// The node knows no node other than itself. Redis accepts this, too.
#[test]
fn a_node_by_itself_is_told_to_move_a_hash_slot_to_itself() {
    let node = Node::by_itself();
    node.own(0, 1);
    let id = node.id();
    assert_eq!(
        node.text(&["CLUSTER", "SETSLOT", "0", "MIGRATING", &id]),
        "OK"
    );
    assert_eq!(
        node.text(&["CLUSTER", "SETSLOT", "7", "IMPORTING", &id]),
        "OK"
    );
    assert_eq!(known(&node), (1, 2));
}

/// The same happens if a client makes each node of a cluster drop the slots that another node is to
/// have. A later command gets the reply that the slots have no owner.
#[test]
fn nodes_that_are_told_at_once_to_drop_hash_slots_do_so() {
    let nodes = three_primaries();
    let all: Vec<&Node> = nodes.iter().collect();
    for round in 0..5 {
        let start = std::sync::Barrier::new(nodes.len());
        let drop_them = |node: &Node| {
            start.wait();
            node.text(&["CLUSTER", "DELSLOTSRANGE", "0", "1000"])
        };
        let told: Vec<String> = std::thread::scope(|scope| {
            let orders = nodes.each_ref().map(|node| scope.spawn(|| drop_them(node)));
            orders.map(|one| one.join().unwrap()).into()
        });
        let is_fine = |told: &String| told == "OK" || told.ends_with("is already unassigned");
        assert!(told.iter().all(is_fine), "{round}: {told:?}");
        nodes[0].own(0, 1000);
        wait_for_agreement(&all, 3);
    }
}
