//! Nodes that come back elsewhere: their names are what counts, not their addresses.

use testkit::process::free_port;

use crate::{Node, has, three, wait_until, writes};

impl Node {
    /// It is at other ports when it is started again.
    fn move_elsewhere(&mut self) {
        self.port = free_port().unwrap();
        self.link_port = free_port().unwrap();
    }

    fn seed_at(&mut self, other: &Self) {
        let place = format!("127.0.0.1:{}@{}", other.port, other.link_port);
        self.args.extend(["--cluster-seeds".to_owned(), place]);
    }
}

/// Where nodes are, as a node knows it.
fn addresses(node: &Node) -> Vec<String> {
    let rows = (0..3).map(|at| node.field(&format!("control_node{at}")));
    let address = |row: String| {
        let found = row.split(',').find_map(|pair| pair.strip_prefix("addr="));
        found.unwrap_or_default().to_owned()
    };
    let mut addresses: Vec<String> = rows.map(address).collect();
    addresses.sort();
    addresses
}

fn wait_for_addresses(nodes: &[Node; 3]) {
    let all: Vec<&Node> = nodes.iter().collect();
    let mut expected: Vec<String> = nodes.iter().map(Node::address).collect();
    expected.sort();
    wait_until("known where it is", &all, || {
        nodes.iter().all(|node| addresses(node) == expected)
    });
}

/// A write that was taken may be lost where a slow machine has another node promoted: it is written until all have it.
fn write_everywhere(nodes: &[Node; 3], key: &str) {
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("written and copied", &all, || {
        nodes.iter().any(|node| writes(node, key)) && nodes.iter().all(|node| has(node, key))
    });
}

/// The group takes writes, and has what was written before.
fn wait_for_group(nodes: &[Node; 3], key: &str) {
    write_everywhere(nodes, key);
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("what was there before", &all, || {
        nodes.iter().all(|node| has(node, "before"))
    });
}

#[test]
fn a_group_whose_addresses_are_all_new_comes_back() {
    let mut nodes = three();
    write_everywhere(&nodes, "before");
    for node in &mut nodes {
        node.kill();
        node.move_elsewhere();
    }
    let [first, second, third] = &mut nodes;
    for node in [&mut *second, &mut *third] {
        // Where they joined nobody is any more. One seed is enough, and it needs none.
        node.args.clear();
        node.seed_at(first);
    }
    for node in &mut nodes {
        node.start();
    }
    wait_for_group(&nodes, "after");
    wait_for_addresses(&nodes);
    // What they were told is kept: another restart needs no seed.
    for node in &mut nodes {
        node.kill();
        node.args.clear();
    }
    for node in &mut nodes {
        node.start();
    }
    wait_for_group(&nodes, "again");
}

/// The others know it by its name; nobody has to be told.
#[test]
fn a_node_that_comes_back_elsewhere_is_found() {
    let mut nodes = three();
    write_everywhere(&nodes, "before");
    for at in [1, 0] {
        nodes[at].kill();
        nodes[at].move_elsewhere();
        nodes[at].start();
        wait_for_addresses(&nodes);
        wait_for_group(&nodes, &format!("after:{at}"));
    }
}
