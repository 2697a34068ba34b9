//! Tests of a node whose disk is full, with both its data log and its control log on that disk. The
//! other nodes continue without it, whatever its role was. It rejoins them when there is space.
//!
//! The tests need root, to mount a file system for each node.

use std::process::Command;

use protocol::Value;
use testkit::patience::Patience;
use testkit::process::iolite_program;

use crate::failed_log::Mounted;
use crate::{Node, WAIT, joined, wait_until, writes};

/// The role of the node whose disk is full.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Primary,
    Leader,
    Follower,
}

/// Starts three nodes at level quorum, each on a file system of its own. Returns `None` if that is
/// impossible here.
#[allow(clippy::print_stdout, reason = "for who reads the run")]
fn three_on_own_disks() -> Option<([Node; 3], [Mounted; 3])> {
    let level = ["--durability", "quorum"];
    let started = |args: &[&str]| {
        let mut node = Node::to_be_started(&[], &[args, &level].concat());
        let disk = Mounted::at(node.directory.join("iolite-data"))?;
        node.start();
        Ok::<_, String>((node, disk))
    };
    let (first, first_disk) = started(&["--cluster-group", "yes"])
        .map_err(|reason| println!("skipped: a full disk needs root ({reason})"))
        .ok()?;
    let place = format!("127.0.0.1:{}@{}", first.port, first.link_port);
    let (second, second_disk) = started(&["--join", &place]).unwrap();
    let (third, third_disk) = started(&["--join", &place]).unwrap();
    let nodes = joined([first, second, third]);
    let disks = [first_disk, second_disk, third_disk];
    Some((nodes, disks))
}

/// Returns the index of the node with this role.
fn place_of(whose: Whose, nodes: &[Node; 3]) -> Option<usize> {
    let primary = nodes.iter().position(Node::is_primary)?;
    let leader = nodes[primary].field("control_leader");
    let leader = nodes
        .iter()
        .position(|node| row_of(&nodes[primary], node).contains(&leader))?;
    match whose {
        Whose::Primary => Some(primary),
        Whose::Leader => Some(leader),
        Whose::Follower => (0..3).find(|at| ![primary, leader].contains(at)),
    }
}

/// Returns the row of node `of` at node `says`.
fn row_of(says: &Node, of: &Node) -> String {
    let address = format!("addr={},", of.address());
    let mut rows = (0..3).map(|at| says.field(&format!("control_node{at}")));
    rows.find(|row| row.contains(&address)).unwrap_or_default()
}

/// The keys that any node acknowledged.
#[derive(Default)]
struct Ledger(Vec<String>);

impl Ledger {
    /// Writes `count` more keys and retries each until it is acknowledged.
    fn write(&mut self, count: usize, nodes: &[&Node]) {
        for _ in 0..count {
            let key = format!("key:{}", self.0.len());
            wait_until("a key is taken", nodes, || {
                nodes
                    .iter()
                    .any(|node| node.is_primary() && writes(node, &key))
            });
            self.0.push(key);
        }
    }

    fn is_at(&self, node: &Node) -> bool {
        let mut words = vec!["EXISTS"];
        words.extend(self.0.iter().map(String::as_str));
        node.run(&words) == Value::Integer(i64::try_from(self.0.len()).unwrap())
    }
}

/// Lets the group decide entries until the node with the full disk fails to store one.
fn decide_until_refused(full: &Node, others: &[&Node; 2]) {
    let patience = Patience::of(WAIT);
    for number in 0.. {
        assert!(patience.lasts(), "{}", full.log());
        let _decided = others[number % 2].client().command(&[
            "ACL",
            "SETUSER",
            &format!("user:{number}"),
            &format!("~{}", "x".repeat(400)),
        ]);
        if full.field("control_log_status") == "err" {
            return;
        }
    }
}

fn status_of(node: &Node) -> String {
    let output = Command::new(iolite_program())
        .args(["cluster", "status", "-p", &node.port.to_string()])
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn check(whose: Whose) {
    let Some((nodes, disks)) = three_on_own_disks() else {
        return;
    };
    let all: Vec<&Node> = nodes.iter().collect();
    let mut ledger = Ledger::default();
    ledger.write(50, &all);
    let mut place = None;
    wait_until("all three parts", &all, || {
        place = place_of(whose, &nodes);
        place.is_some()
    });
    let place = place.unwrap();
    let full = &nodes[place];
    assert_eq!(full.field("control_log_status"), "ok");
    disks[place].fill();
    ledger.write(50, &all);
    let others = [&nodes[(place + 1) % 3], &nodes[(place + 2) % 3]];
    decide_until_refused(full, &others);
    let told = full.log();
    assert!(
        told.contains("iolite-data/control cannot be written (No space left on device"),
        "{told}"
    );
    assert!(
        full.field("control_log_error")
            .contains("No space left on device")
    );
    assert!(
        status_of(full).contains("No space left on device"),
        "{}",
        status_of(full)
    );
    wait_until("the others go on without it", &all, || {
        let is_failed = |node: &&Node| row_of(node, full).contains("health=failed");
        others.iter().all(is_failed) && others.iter().any(|node| node.is_primary())
    });
    ledger.write(100, &others);
    assert!(!writes(full, "never"));

    disks[place].empty();
    wait_until("it takes part again", &all, || {
        let is_heard = |node: &&Node| row_of(node, full).contains("health=ok");
        full.field("control_log_status") == "ok" && others.iter().all(is_heard)
    });
    assert!(
        full.log()
            .contains("iolite-data/control can be written again"),
        "{}",
        full.log()
    );
    ledger.write(50, &all);
    let digest = |node: &Node| node.run(&["DEBUG", "DIGEST"]);
    wait_until("all have the same", &all, || {
        let primaries = nodes.iter().filter(|node| node.is_primary()).count();
        let synced = nodes.iter().filter(|node| node.is_synced()).count();
        let is_same = |node: &&Node| ledger.is_at(node) && digest(node) == digest(&nodes[0]);
        primaries == 1 && synced == 2 && all.iter().all(is_same)
    });
    for node in &nodes {
        assert!(!node.log().contains("panicked"), "{}", node.log());
    }
}

#[test]
fn the_others_go_on_without_a_follower_whose_disk_is_full() {
    check(Whose::Follower);
}

#[test]
fn the_others_go_on_without_a_control_leader_whose_disk_is_full() {
    check(Whose::Leader);
}

#[test]
fn the_others_go_on_without_a_primary_whose_disk_is_full() {
    check(Whose::Primary);
}
