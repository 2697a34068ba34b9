//! Bad input and faults of a group, row by row.
//!
//! | What | Test |
//! |---|---|
//! | a peer without the secret | `forming::a_node_with_another_secret_does_not_join` |
//! | a peer of another incarnation; a recovery while the old majority lives | `recovery::a_group_goes_on_with_one_node_and_refuses_those_of_before` |
//! | a cloned or older volume | `an_older_copy_of_a_node_changes_nothing` |
//! | an entry of an unknown kind | `cluster`: `a_newer_version_and_an_unknown_kind_are_said_by_name` |
//! | no control majority; a node that voters do not reach | `failover::a_primary_without_a_majority_takes_no_writes` |
//! | the disk of a primary's log fails | `failed_log` |
//! | the disk of the control log is full, or fails | `full_disk`; `consensus`: its tests of the journal |
//! | the control log is damaged | `a_damaged_control_log_is_refused_with_its_place` |
//! | clocks | `cluster`: `a_lease_ends_at_its_holder_first`, and the simulation's drift |
//! | nodes that meet crosswise, themselves, or nobody | `meeting`, `clusters::who_cannot_be_of_one_cluster_is_told_why` |
//! | addresses that are not theirs any more | `addresses` |

use std::fs;
use std::path::Path;

use protocol::Value;
use testkit::process::TemporaryDirectory;

use crate::{Node, has, three, wait_until, writes};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// A copy of a node's files from two starts ago, started elsewhere: the group does not accept it as
/// the node.
#[test]
fn an_older_copy_of_a_node_changes_nothing() {
    let mut nodes = three();
    assert!(writes(&nodes[0], "before"));
    nodes[2].kill();
    let directory = TemporaryDirectory::new("clone").unwrap();
    copy(&nodes[2].directory.join(""), &directory.join(""));
    for _ in 0..2 {
        nodes[2].start();
        let all: Vec<&Node> = nodes.iter().collect();
        wait_until("it is back", &all, || nodes[2].is_synced());
        nodes[2].kill();
    }
    nodes[2].start();
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("it is back", &all, || nodes[2].is_synced());
    let mut clone = Node {
        directory,
        ..Node::to_be_started(&[], &[])
    };
    clone.start();
    for number in 0..20 {
        let written = nodes[0]
            .client()
            .command(&["SET", &format!("key:{number}"), "1"]);
        let is_written = written
            .as_ref()
            .is_ok_and(|reply| *reply == Value::Simple(b"OK".to_vec()));
        let logs = || [&nodes[0], &nodes[1], &nodes[2], &clone].map(|node| node.log());
        assert!(is_written, "{written:?}\n{}", logs().join("\n======\n"));
        assert!(!writes(&clone, "never"));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let clone_address = format!("addr={},", clone.address());
    for node in &nodes {
        assert_eq!(node.field("control_nodes"), "3");
        let rows = (0..3).map(|at| node.field(&format!("control_node{at}")));
        assert!(rows.into_iter().all(|row| !row.contains(&clone_address)));
    }
    wait_until("copied", &all, || {
        nodes.iter().all(|node| has(node, "key:19"))
    });
}

/// The node reports the position, and joins as a new node when its files are gone.
#[test]
fn a_damaged_control_log_is_refused_with_its_place() {
    let mut nodes = three();
    assert!(writes(&nodes[0], "before"));
    nodes[2].kill();
    let journal = nodes[2].directory.join("iolite-data/control/journal");
    let mut bytes = fs::read(&journal).unwrap();
    // Inside the first record, with whole records after it.
    bytes[40] ^= 1;
    fs::write(&journal, bytes).unwrap();
    // The node may be refused before it answers at all, or a moment later.
    let refused = nodes[2].try_start().err().map(|error| error.to_string());
    wait_until("refused with the place", &[&nodes[2]], || {
        let told = refused.clone().unwrap_or_else(|| nodes[2].log());
        told.contains("control/journal is damaged at offset")
    });
    nodes[2].kill();
    fs::remove_dir_all(nodes[2].directory.join("iolite-data")).unwrap();
    nodes[2].start();
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("another node", &all, || {
        nodes[2].is_synced() && has(&nodes[2], "before")
    });
    assert_eq!(nodes[0].field("control_nodes"), "4");
}
