//! Tests of changing `cluster-node-timeout` for all running nodes, up and down, under load, with
//! primaries that are killed.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use protocol::Value;

use crate::reads::three_at_quorum;
use crate::{Node, has, three_with, wait_until, writes};

const NAME: &str = "cluster-node-timeout";

fn set(node: &Node, value: &str) -> Value {
    node.run(&["CONFIG", "SET", NAME, value])
}

fn is_everywhere(nodes: &[&Node], value: &str) -> bool {
    let expected = [NAME, value].map(|word| Value::Bulk(word.into()));
    let mut nodes = nodes.iter();
    nodes.all(|node| node.run(&["CONFIG", "GET", NAME]) == Value::Array(expected.to_vec()))
}

fn primary_among(nodes: &[&Node], key: &str) -> usize {
    let mut found = None;
    wait_until("a primary", nodes, || {
        found = nodes.iter().position(|node| writes(node, key));
        found.is_some()
    });
    found.unwrap()
}

/// Writes at the primary while `act` runs. Returns the acknowledged keys.
fn while_it_writes(primary: &Node, name: &str, act: impl FnOnce()) -> Vec<String> {
    let (is_over, written) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = primary.client();
            for number in 0.. {
                let key = format!("{name}:{number}");
                let told = client.command(&["SET", &key, "1"]);
                // No change of the timeout makes the primary give up its office.
                assert_eq!(told.unwrap(), Value::Simple(b"OK".to_vec()));
                written.lock().unwrap().push(key);
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        act();
        std::thread::sleep(Duration::from_millis(300));
        is_over.store(true, Ordering::Relaxed);
    });
    written.into_inner().unwrap()
}

#[test]
fn the_node_timeout_changes_under_load_and_nothing_is_lost_by_a_kill_after_it() {
    let mut nodes = three_at_quorum(&[]);
    for (round, changes) in [&["5000"][..], &["4000", "600"], &["500", "1500"]]
        .into_iter()
        .enumerate()
    {
        let all: Vec<&Node> = nodes.iter().collect();
        let primary = primary_among(&all, "first");
        let keys = while_it_writes(all[primary], &round.to_string(), || {
            for (at, value) in changes.iter().enumerate() {
                let told = set(all[(primary + at + 1) % 3], value);
                assert_eq!(told, Value::Simple(b"OK".to_vec()));
                wait_until("set everywhere", &all, || is_everywhere(&all, value));
            }
        });
        assert!(keys.len() > 10, "{}", keys.len());
        nodes[primary].kill();
        let left = [&nodes[(primary + 1) % 3], &nodes[(primary + 2) % 3]];
        if changes == ["5000"] {
            // With the earlier timeout, the primary would be replaced by now.
            std::thread::sleep(Duration::from_millis(3_500));
            assert!(!left.iter().any(|node| node.is_primary()));
        }
        let next = left[primary_among(&left, "next")];
        assert_eq!(keys.iter().find(|key| !has(next, key)), None);
        nodes[primary].start();
        let all: Vec<&Node> = nodes.iter().collect();
        wait_until("it follows", &all, || nodes[primary].is_synced());
        // The value does not come from the node's configuration file.
        assert!(is_everywhere(&all, changes.last().unwrap()));
    }
    // Elections of the control log keep the timing that they started with.
    let told = set(&nodes[0], "499");
    assert!(
        matches!(&told, Value::Error(text) if String::from_utf8_lossy(text).contains("500 is the least")),
        "{told:?}"
    );
}

/// With a much longer timeout in the files, elections of the control log take too long for the
/// value that is set. Nodes lead all the same. One node is down while the value is set.
#[test]
fn nodes_that_were_started_with_a_longer_node_timeout_lead_by_the_least_that_they_can() {
    let mut nodes = three_at_quorum(&[]);
    nodes[2].kill();
    assert_eq!(set(&nodes[1], "600"), Value::Simple(b"OK".to_vec()));
    nodes[2].start();
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("set everywhere", &all, || is_everywhere(&all, "600"));
    for node in &mut nodes {
        node.kill();
        let longer = ["--cluster-node-timeout", "15000"];
        node.args.extend(longer.map(str::to_owned));
    }
    nodes.iter_mut().for_each(Node::start);
    let all: Vec<&Node> = nodes.iter().collect();
    let primary = primary_among(&all, "begun anew");
    wait_until("all follow", &all, || {
        all.iter().filter(|node| node.is_synced()).count() == 2
    });
    assert!(is_everywhere(&all, "600"));
    let said = "others are taken for gone after 5000";
    assert!(all.iter().all(|node| node.log().contains(said)));
    nodes[primary].kill();
    let left = [&nodes[(primary + 1) % 3], &nodes[(primary + 2) % 3]];
    let next = left[primary_among(&left, "next")];
    assert!(has(next, "begun anew"));
}

#[test]
fn a_node_timeout_is_not_changed_where_nodes_share_no_directives() {
    let nodes = three_with(&["--cluster-sync", "acl"]);
    let told = set(&nodes[1], "2000");
    assert!(
        matches!(&told, Value::Error(text) if String::from_utf8_lossy(text).contains("cluster-sync")),
        "{told:?}"
    );
    assert_eq!(
        set(&nodes[1], "1500"),
        Value::Simple(b"OK".to_vec()),
        "as it is"
    );
    let alone = Node::new(&[]);
    assert_eq!(set(&alone, "2000"), Value::Simple(b"OK".to_vec()));
    assert!(is_everywhere(&[&alone], "2000"));
}
