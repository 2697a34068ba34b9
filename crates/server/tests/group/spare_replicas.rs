//! Tests that a shard without replicas gets one from a shard that has enough.

use protocol::Value;

use super::clusters::{LAST_SLOT, wait_for_agreement};
use super::{Node, changes_ended, has, wait_until, writes};

/// Starts two primaries that share all slots, the first with two replicas and the second with one.
fn two_and_one(args: &[&str]) -> [Node; 5] {
    let args = [&["--cluster-enabled", "yes"], args].concat();
    let nodes = [(); 5].map(|()| Node::new(&args));
    nodes[0].own(0, 8_191);
    nodes[1].own(8_192, LAST_SLOT);
    for node in &nodes[1..] {
        assert_eq!(node.meet(&nodes[0]), "OK");
    }
    let all: Vec<&Node> = nodes.iter().collect();
    wait_for_agreement(&all, 5);
    for (replica, primary) in [(2, 0), (3, 0), (4, 1)] {
        let primary = nodes[primary].id();
        assert_eq!(
            nodes[replica].text(&["CLUSTER", "REPLICATE", &primary]),
            "OK"
        );
    }
    wait_until("all copies", &all, || {
        nodes[2..].iter().all(Node::is_synced)
    });
    nodes
}

fn replicas(of: &Node) -> usize {
    match of.run(&["CLUSTER", "REPLICAS", &of.id()]) {
        Value::Array(lines) => lines.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_last_replica_of_a_shard_is_replaced_and_keeps_its_data() {
    let [a, mut b, c, d, mut e] = two_and_one(&[]);
    // `a` is in slot 15,495, of the second shard.
    assert_eq!(b.text(&["SET", "a", "kept"]), "OK");
    // With a barrier of two, the shard with two replicas gives none away.
    assert_eq!(
        a.text(&["CONFIG", "SET", "cluster-migration-barrier", "2"]),
        "OK"
    );
    let knows = |node: &&Node| {
        let told = node.run(&["CONFIG", "GET", "cluster-migration-barrier"]);
        matches!(told, Value::Array(pair) if pair[1] == Value::Bulk(b"2".to_vec()))
    };
    let all = [&a, &b, &c, &d];
    wait_until("known everywhere", &all, || all.iter().all(knows));
    e.kill();
    wait_until("missed", &all, || {
        a.text(&["CLUSTER", "NODES"]).contains("fail")
    });
    // Longer than the group waits before such a move.
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert_eq!((replicas(&a), replicas(&b)), (2, 1));
    assert_eq!(
        a.text(&["CONFIG", "SET", "cluster-migration-barrier", "1"]),
        "OK"
    );
    wait_until("another replica", &all, || {
        let has_all = |node: &&Node| node.is_synced() && node.run(&["DBSIZE"]) == Value::Integer(1);
        replicas(&a) == 1 && replicas(&b) == 2 && [&c, &d].iter().any(has_all)
    });
    b.kill();
    let all = [&a, &c, &d];
    wait_until("its place taken", &all, || {
        let moved = [&c, &d].into_iter().find(|node| node.is_primary());
        moved.is_some_and(|node| node.text(&["GET", "a"]) == "kept")
    });
}

/// The shard had two copies, and both had to have each write. So no write was answered until the
/// spare replica was there. Writes answered before and after are on the lost replica and on the new
/// one, and the primary is not needed for them.
#[test]
fn where_writes_wait_for_a_majority_a_spare_replica_goes_over_and_nothing_is_lost() {
    let [a, mut b, c, d, mut e] = two_and_one(&["--durability", "quorum"]);
    let first = [&a, &c, &d];
    // Slots 3,300 and 15,495.
    wait_until("majorities", &[&a, &b, &c, &d, &e], || {
        changes_ended(&[&a, &b, &c, &d, &e]) > 1 && writes(&a, "b") && writes(&b, "a")
    });
    let knows = |node: &Node, count| node.run(&["DBSIZE"]) == Value::Integer(count);
    wait_until("the one that is lost then knows", &[&e], || knows(&e, 1));
    e.kill();
    wait_until("writes go on", &[&a, &b, &c, &d], || {
        writes(&b, "{a}1") && replicas(&b) == 2 && replicas(&a) == 1
    });
    // The first shard has another number of keys.
    wait_until("the first shard goes on", &first, || {
        ["{b}1", "{b}2", "c"].iter().all(|key| writes(&a, key))
    });
    wait_until("who went over knows", &first, || {
        [&c, &d].iter().any(|node| knows(node, 2))
    });
    b.kill();
    e.start();
    wait_until("its place taken, and all kept", &[&a, &c, &d, &e], || {
        let mut nodes = [&c, &d, &e].into_iter().filter(|node| node.is_primary());
        nodes.any(|node| writes(node, "{a}2") && has(node, "a") && has(node, "{a}1"))
    });
    assert!(has(&a, "b") && has(&a, "c"));
}

#[test]
fn where_writes_wait_for_a_majority_a_replica_goes_where_it_is_ordered_to() {
    let [a, mut b, c, d, e] = two_and_one(&["--durability", "quorum"]);
    // Slots 3,300 and 15,495.
    wait_until("majorities", &[&a, &b, &c, &d, &e], || {
        changes_ended(&[&a, &b, &c, &d, &e]) > 1 && writes(&a, "b") && writes(&b, "a")
    });
    let (first, second) = (a.id(), b.id());
    let replicate = |node: &Node, id: &str| node.text(&["CLUSTER", "REPLICATE", id]);
    assert_eq!(replicate(&c, &second), "OK");
    let knows = |node: &Node, count| node.run(&["DBSIZE"]) == Value::Integer(count);
    wait_until("it has what the other shard has", &[&a, &b, &c], || {
        let is_there = replicas(&b) == 2 && replicas(&a) == 1;
        is_there && writes(&b, "{a}1") && writes(&a, "{b}1") && c.is_synced() && knows(&c, 2)
    });
    b.kill();
    wait_until("its place taken, and all kept", &[&a, &c, &e], || {
        let mut nodes = [&c, &e].into_iter().filter(|node| node.is_primary());
        nodes.any(|node| writes(node, "{a}2") && has(node, "a") && has(node, "{a}1"))
    });
    // With one of three copies lost, the shard cannot give another one away.
    let replica = [&c, &e]
        .into_iter()
        .find(|node| !node.is_primary())
        .unwrap();
    wait_until("missed", &[&a, &c, &e], || {
        a.text(&["CLUSTER", "NODES"]).contains("fail")
    });
    let refused = replicate(replica, &first);
    assert!(
        refused.contains("would have no majority without it"),
        "{refused}"
    );
}

/// Starts a primary at quorum with all slots, a replica that is then lost, and another replica that
/// an operator adds.
fn one_added_for_one_lost() -> [Node; 3] {
    let args = ["--cluster-enabled", "yes", "--durability", "quorum"];
    let mut nodes = [(); 3].map(|()| Node::new(&args));
    nodes[0].own(0, LAST_SLOT);
    for node in &nodes[1..] {
        assert_eq!(node.meet(&nodes[0]), "OK");
    }
    let all: Vec<&Node> = nodes.iter().collect();
    wait_for_agreement(&all, 3);
    let primary = nodes[0].id();
    let replicate = ["CLUSTER", "REPLICATE", &primary];
    assert_eq!(nodes[1].text(&replicate), "OK");
    wait_until("a majority of two", &all, || {
        changes_ended(&all) > 0 && writes(&nodes[0], "a")
    });
    // Until an added replica knows that an entry is committed, it is not sure to have everything,
    // and does not count for a promotion.
    let knows = |node: &Node, count| node.run(&["DBSIZE"]) == Value::Integer(count);
    wait_until("the first one knows", &all, || knows(&nodes[1], 1));
    nodes[1].kill();
    assert_eq!(nodes[2].text(&replicate), "OK");
    let left = [&nodes[0], &nodes[2]];
    wait_until("a majority without the lost one", &left, || {
        writes(&nodes[0], "b")
    });
    wait_until("the added one knows", &left, || knows(&nodes[2], 2));
    nodes
}

#[test]
fn where_writes_wait_for_a_majority_one_is_added_to_two_of_which_one_is_lost() {
    let [a, _lost, c] = one_added_for_one_lost();
    // On a busy machine its lease may have ended meanwhile, and its link.
    wait_until("all kept", &[&a, &c], || {
        has(&a, "a") && has(&a, "b") && c.is_synced()
    });
}

#[test]
fn of_three_one_of_which_was_added_then_the_lost_one_and_the_added_one_keep_all() {
    let [mut a, mut b, c] = one_added_for_one_lost();
    a.kill();
    b.start();
    let all = [&b, &c];
    wait_until("its place taken, and all kept", &all, || {
        let mut primaries = all.into_iter().filter(|node| node.is_primary());
        primaries.any(|node| writes(node, "c") && has(node, "a") && has(node, "b"))
    });
}

/// Its copy of the former shard counts for nothing in the other shard, and its former primary has
/// that data.
#[test]
fn a_replica_is_ordered_to_a_primary_without_data_and_back() {
    let nodes = [(); 3].map(|()| Node::new(&["--cluster-enabled", "yes"]));
    let [a, b, c] = &nodes;
    a.own(0, 8_191);
    b.own(8_192, LAST_SLOT);
    for node in [b, c] {
        assert_eq!(node.meet(a), "OK");
    }
    let all = [a, b, c];
    wait_for_agreement(&all, 3);
    let follow = |primary: &Node, keys: i64| {
        assert_eq!(c.text(&["CLUSTER", "REPLICATE", &primary.id()]), "OK");
        let port = primary.port.to_string();
        wait_until("a copy", &all, || {
            let is_there = c.field("master_port") == port && c.is_synced();
            is_there && c.run(&["DBSIZE"]) == Value::Integer(keys)
        });
    };
    assert!(writes(a, "b"));
    follow(a, 1);
    follow(b, 0);
    // Slot 15,495.
    assert!(writes(b, "a"));
    wait_until("a write", &all, || c.run(&["DBSIZE"]) == Value::Integer(1));
    assert_eq!(b.text(&["FLUSHALL"]), "OK");
    follow(a, 1);
    follow(b, 0);
}
