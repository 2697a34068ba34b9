//! Tests of two nodes that keep data, and a witness that keeps the log (`witness-log yes`), at
//! quorum. Each of the three is lost, and the witness alone has writes of a lost primary.

use protocol::Value;

use crate::witness::wait_for_both;
use crate::{Node, has, wait_until, writes};

/// Starts the primary, its replica and the witness, whose copy of the log counts.
pub(crate) fn with_log_copy() -> [Node; 3] {
    let level = ["--durability", "quorum"];
    let first = Node::new(&[&["--cluster-group", "yes"][..], &level].concat());
    let second = Node::by_command("join", &first, &level);
    // A log of any size would trigger a checkpoint, which a node without data must not make.
    let log = ["--witness-log", "yes", "--auto-aof-rewrite-min-size", "1"];
    let witness = Node::by_command("witness", &first, &log);
    let nodes = [first, second, witness];
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("a copy of the log", &all, || {
        keeps_log(&nodes[0]) && log_begins(&nodes[2]) > 0
    });
    wait_until("written", &all, || writes(&nodes[0], "before"));
    wait_until("copied", &all, || {
        nodes[1].is_synced() && has(&nodes[1], "before")
    });
    wait_until("a copy of the log that counts at a seal", &all, || {
        is_certain(&nodes[2]) && nodes[0].field("control_log_copy").contains("state=online,")
    });
    nodes
}

/// Returns whether a node has recorded that it has everything that it acknowledged. A full sync
/// revokes that until the node has everything that is committed.
fn is_certain(node: &Node) -> bool {
    let seal = std::fs::read_to_string(node.directory.join("iolite-data/SEAL"));
    seal.is_ok_and(|seal| seal.contains("shard 0\n") && seal.contains("certain yes\n"))
}

/// Returns whether the group counts a copy of the log at a healthy witness.
fn keeps_log(node: &Node) -> bool {
    let rows = (0..3).map(|at| node.field(&format!("control_node{at}")));
    let is_there = |row: &String| row.contains("role=witness+log") && row.contains("health=ok");
    rows.filter(is_there).count() == 1
}

/// Waits until both copies of the data are present, and asserts that they have these keys.
fn wait_for_keys(nodes: &[Node; 3], keys: &[String]) {
    wait_for_both(nodes);
    for key in keys {
        assert!(has(&nodes[0], key) && has(&nodes[1], key), "{key}");
    }
}

/// Returns the sequence at which the log of a node begins, by its manifest.
fn log_begins(node: &Node) -> u64 {
    let path = node.directory.join("iolite-data/MANIFEST");
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let from = lines.find_map(|line| line.strip_prefix("log-from "));
    from.unwrap().parse().unwrap()
}

#[test]
fn the_loss_of_any_one_of_three_stops_no_write() {
    let mut nodes = with_log_copy();
    let mut kept = Vec::new();
    for lost in [2, 1, 0] {
        nodes[lost].kill();
        let left: Vec<&Node> = nodes.iter().filter(|node| node.is_running()).collect();
        let data: Vec<&Node> = nodes[..2].iter().filter(|node| node.is_running()).collect();
        let key = format!("without:{lost}");
        wait_until("written without it", &left, || {
            data.iter().any(|node| writes(node, &key))
        });
        kept.push(key);
        nodes[lost].start();
        wait_for_keys(&nodes, &kept);
        let all: Vec<&Node> = nodes.iter().collect();
        wait_until("the witness is back", &all, || keeps_log(&nodes[0]));
    }
}

/// The replica is down while writes are answered, and returns when the primary is gone. It gets the
/// missing writes from the witness.
#[test]
fn what_only_the_witness_has_beside_the_lost_primary_is_not_lost() {
    let mut nodes = with_log_copy();
    nodes[1].kill();
    let mut kept = Vec::new();
    for number in 0..50 {
        let key = format!("key:{number}");
        let left = [&nodes[0], &nodes[2]];
        wait_until("written", &left, || writes(&nodes[0], &key));
        kept.push(key);
    }
    nodes[0].kill();
    nodes[1].start();
    let left = [&nodes[1], &nodes[2]];
    wait_until("the replica is the primary", &left, || {
        writes(&nodes[1], "after")
    });
    for key in &kept {
        assert!(has(&nodes[1], key), "{key}\n{}", nodes[1].log());
    }
    assert!(
        nodes[1].log().contains("gets the rest of the log"),
        "{}",
        nodes[1].log()
    );
    // The former primary returns, and the witness keeps its log over a restart.
    nodes[2].kill();
    nodes[2].start();
    nodes[0].start();
    wait_for_keys(&nodes, &kept);
    nodes[1].kill();
    let left = [&nodes[0], &nodes[2]];
    wait_until("written once more", &left, || writes(&nodes[0], "last"));
}

/// The primary may have acknowledged more. So the replica serves no client while both the primary
/// and the witness are missing.
#[test]
fn a_copy_of_the_data_that_is_alone_takes_nothing() {
    let mut nodes = with_log_copy();
    nodes[0].kill();
    nodes[2].kill();
    let left = [&nodes[1]];
    wait_until("writes end", &left, || !writes(&nodes[1], "alone"));
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert!(!writes(&nodes[1], "alone"), "{}", nodes[1].log());
    nodes[2].start();
    let left = [&nodes[1], &nodes[2]];
    wait_until("two go on", &left, || writes(&nodes[1], "two"));
    nodes[0].start();
    wait_for_keys(&nodes, &["two".to_owned()]);
}

/// The witness is not a replica and has no data to show. Its log gets no longer than the other
/// nodes need.
#[test]
fn a_witness_with_a_log_serves_nobody_and_forgets_what_all_have() {
    let nodes = with_log_copy();
    let [primary, _, witness] = &nodes;
    assert_eq!(primary.field("connected_slaves"), "1");
    let told = witness.run(&["GET", "before"]);
    assert!(
        matches!(&told, Value::Error(text) if text.starts_with(b"MASTERDOWN")),
        "{told:?}"
    );
    let before = log_begins(witness);
    for number in 0..50 {
        assert!(writes(primary, &format!("key:{number}")));
    }
    primary.run(&["BGREWRITEAOF"]);
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("it begins later", &all, || log_begins(witness) > before);
    assert!(writes(primary, "after"));
}

/// Besides the primary, only the witness has what was acknowledged while the replica was down.
#[test]
fn a_witness_keeps_its_log_over_restarts() {
    let mut nodes = with_log_copy();
    nodes[1].kill();
    let left = [&nodes[0], &nodes[2]];
    for number in 0..50 {
        let key = format!("key:{number}");
        wait_until("written", &left, || writes(&nodes[0], &key));
    }
    let before = log_begins(&nodes[2]);
    for _ in 0..5 {
        nodes[2].kill();
        nodes[2].start();
        let left = [&nodes[0], &nodes[2]];
        wait_until("it follows", &left, || nodes[2].is_synced());
        assert_eq!(log_begins(&nodes[2]), before, "{}", nodes[2].log());
    }
}

/// Asserts that a node ends at its start and reports the reason.
fn is_refused(node: &mut Node, reason: &str) {
    let told = node.try_start().err().map(|error| error.to_string());
    // The node may answer before it ends.
    wait_until("refused", &[node], || {
        let is_told = told.as_ref().is_some_and(|told| told.contains(reason));
        is_told || node.log().contains(reason)
    });
}

/// A log that was never applied looks like the log of a server with little data.
#[test]
fn a_directory_with_a_log_alone_is_not_taken_for_one_with_data_or_the_other_way_round() {
    let mut nodes = with_log_copy();
    nodes[2].kill();
    nodes[2].words.clear();
    let before = std::mem::replace(
        &mut nodes[2].args,
        vec!["--durability".into(), "quorum".into()],
    );
    is_refused(&mut nodes[2], "has the log of a shard and none of its data");
    nodes[1].kill();
    nodes[1].words.clear();
    nodes[1].args = before;
    nodes[1].args.extend(["--witness".into(), "yes".into()]);
    is_refused(&mut nodes[1], "the directory is of a node with data");
}

#[test]
fn a_third_copy_of_the_data_takes_the_place_of_the_log() {
    let nodes = with_log_copy();
    let third = Node::joining(&nodes[0], &["--durability", "quorum"]);
    let all = [&nodes[0], &nodes[1], &nodes[2], &third];
    wait_until("no copy of the log", &all, || {
        let rows = (0..4).map(|at| nodes[0].field(&format!("control_node{at}")));
        let roles: Vec<String> = rows.collect();
        let count = |what: &str| roles.iter().filter(|row| row.contains(what)).count();
        count("role=replica") == 2 && count("role=witness,") == 1
    });
    wait_until("written", &all, || {
        writes(&nodes[0], "after") && third.is_synced() && has(&third, "after")
    });
}

#[test]
fn only_a_witness_keeps_the_log_alone() {
    let args = ["--cluster-group", "yes", "--witness-log", "yes"];
    let mut node = Node::to_be_started(&[], &args);
    is_refused(&mut node, "witness-log is for a witness");
}
