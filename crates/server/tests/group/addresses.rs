//! Tests of nodes that return at other addresses: a node is identified by its name, not by its
//! address.

use testkit::process::free_port;

use crate::{Node, has, three, wait_until, writes};

impl Node {
    /// Changes the ports that the node uses at its next start.
    fn move_elsewhere(&mut self) {
        self.port = free_port().unwrap();
        self.link_port = free_port().unwrap();
    }

    fn seed_at(&mut self, other: &Self) {
        let place = format!("127.0.0.1:{}@{}", other.port, other.link_port);
        self.args.extend(["--cluster-seeds".to_owned(), place]);
    }
}

/// Returns the addresses of all nodes, as a node knows them.
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

/// Writes a key until all nodes have it. On a slow machine, a failover may lose a write that was
/// acknowledged.
fn write_everywhere(nodes: &[Node; 3], key: &str) {
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("written and copied", &all, || {
        nodes.iter().any(|node| writes(node, key)) && nodes.iter().all(|node| has(node, key))
    });
}

/// Waits until the group takes writes and all nodes have the earlier write.
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
        // No node is at the address where they joined. One seed is enough, and the first node needs
        // none.
        node.args.clear();
        node.seed_at(first);
    }
    for node in &mut nodes {
        node.start();
    }
    wait_for_group(&nodes, "after");
    wait_for_addresses(&nodes);
    // The nodes have stored the new addresses: another restart needs no seed.
    for node in &mut nodes {
        node.kill();
        node.args.clear();
    }
    for node in &mut nodes {
        node.start();
    }
    wait_for_group(&nodes, "again");
}

/// The other nodes identify it by its name. No operator has to give them its address.
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
