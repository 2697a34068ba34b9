//! Tests that a node of a cluster announces its properties, and that the cluster acts on them.

use std::time::Duration;

use super::clusters::{three_primaries, wait_for_agreement};
use super::{Node, changes_ended, wait_until};

/// Returns the line of node `of` in the `CLUSTER NODES` reply of `node`.
fn line_of(node: &Node, of: &str) -> String {
    let nodes = node.text(&["CLUSTER", "NODES"]);
    let line = nodes.lines().find(|line| line.starts_with(of));
    line.unwrap_or_default().to_owned()
}

/// Starts three primaries, and a replica of the first.
fn three_primaries_and_a_replica() -> ([Node; 3], Node) {
    let [a, b, c] = three_primaries();
    let d = Node::by_itself();
    assert_eq!(d.meet(&b), "OK");
    wait_for_agreement(&[&a, &b, &c, &d], 4);
    assert_eq!(d.text(&["CLUSTER", "REPLICATE", &a.id()]), "OK");
    let all = [&a, &b, &c, &d];
    wait_until("a replica that may be promoted", &all, || {
        d.is_synced() && changes_ended(&all) > 0
    });
    ([a, b, c], d)
}

fn wait_until_missed(others: &[&Node], id: &str) {
    wait_until("missed", others, || {
        others.iter().all(|node| line_of(node, id).contains("fail"))
    });
}

#[test]
fn what_a_node_is_told_to_announce_it_tells_at_once_and_others_soon() {
    let [a, b, c] = three_primaries();
    let all = [&a, &b, &c];
    let id = a.id();
    for (directive, value, shown) in [
        ("cluster-announce-port", "7", ":7@"),
        ("cluster-announce-hostname", "a.example", ",a.example "),
        ("cluster-announce-ip", "127.0.0.2", " 127.0.0.2:7@"),
    ] {
        assert_eq!(a.text(&["CONFIG", "SET", directive, value]), "OK");
        let own = line_of(&a, &id);
        assert!(own.contains(shown), "{own}");
        wait_until("told by all", &all, || {
            all.iter().all(|node| line_of(node, &id).contains(shown))
        });
    }
    let back = a.text(&["CONFIG", "SET", "cluster-announce-port", "0"]);
    assert_eq!(back, "OK");
    let shown = format!(":{}@", a.port);
    assert!(line_of(&a, &id).contains(&shown), "{}", line_of(&a, &id));
}

#[test]
fn a_replica_that_declines_is_not_promoted_but_by_order() {
    let ([mut a, b, c], d) = three_primaries_and_a_replica();
    let declines = |what| d.text(&["CONFIG", "SET", "cluster-replica-no-failover", what]);
    assert_eq!(declines("yes"), "OK");
    let (first, second) = (a.id(), d.id());
    let all = [&a, &b, &c, &d];
    wait_until("known to decline", &all, || {
        all.iter()
            .all(|node| line_of(node, &second).contains("slave,nofailover "))
    });
    a.kill();
    let others = [&b, &c, &d];
    wait_until_missed(&others, &first);
    // Any other replica would have been promoted by now.
    std::thread::sleep(Duration::from_secs(3));
    assert!(!d.is_primary());
    a.start();
    let all = [&a, &b, &c, &d];
    wait_for_agreement(&all, 4);
    wait_until("in office again", &all, || a.is_primary());
    wait_until("a synced replica", &all, || d.is_synced());
    assert_eq!(d.text(&["CLUSTER", "FAILOVER"]), "OK");
    wait_until("promoted by order", &all, || {
        d.is_primary() && line_of(&b, &second).contains("master")
    });
}

#[test]
fn a_replica_that_declines_no_more_is_promoted() {
    let ([mut a, b, c], d) = three_primaries_and_a_replica();
    let declines = |what| d.text(&["CONFIG", "SET", "cluster-replica-no-failover", what]);
    assert_eq!(declines("yes"), "OK");
    let first = a.id();
    let others = [&b, &c, &d];
    a.kill();
    wait_until_missed(&others, &first);
    assert_eq!(declines("no"), "OK");
    wait_until("promoted", &others, || d.is_primary());
}
