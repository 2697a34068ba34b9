//! Tests of the users of a group: a change at any node applies to all nodes.

use protocol::Value;

use crate::{Node, three, wait_until, writes};

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

/// Returns the line of a user, if the node has it.
fn line_of(node: &Node, user: &str) -> Option<String> {
    let Value::Array(lines) = node.run(&["ACL", "LIST"]) else {
        panic!("ACL LIST gives lines")
    };
    let mut lines = lines.into_iter().filter_map(|line| match line {
        Value::Bulk(line) => String::from_utf8(line).ok(),
        _ => None,
    });
    let head = format!("user {user} ");
    lines.find(|line| line.starts_with(&head))
}

fn set_user(node: &Node, rules: &[&str]) -> Value {
    let words: Vec<&str> = ["ACL", "SETUSER"].iter().chain(rules).copied().collect();
    node.run(&words)
}

/// A user was removed while a node was down: no client sees any data there as that user, however
/// early it connects.
#[test]
fn a_node_that_is_back_serves_nobody_by_users_of_before() {
    let slow = ["--cluster-node-timeout", "10000"];
    let first = Node::new(&[&["--cluster-group", "yes"], &slow[..]].concat());
    let others = [Node::joining(&first, &slow), Node::joining(&first, &slow)];
    let [second, third] = others;
    let mut nodes = [first, second, third];
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("three", &all, || {
        nodes[0].field("control_voters") == "3" && nodes[1..].iter().all(Node::is_synced)
    });
    assert!(writes(&nodes[0], "key"));
    assert_eq!(
        set_user(&nodes[0], &["alice", "on", ">secret", "~*", "+@all"]),
        ok()
    );
    wait_for_user(&all, "alice");
    wait_until("copied", &all, || crate::has(&nodes[2], "key"));
    nodes[2].kill();
    let removed = nodes[0].run(&["ACL", "DELUSER", "alice"]);
    assert_eq!(removed, Value::Integer(1));
    // No node can inform it of that yet.
    for node in &nodes[..2] {
        node.signal("-STOP");
    }
    nodes[2].start();
    let mut alice = nodes[2].client();
    // The node may still know the user, or may not know its former users yet.
    let let_in = alice.command(&["AUTH", "alice", "secret"]).unwrap();
    let shown = alice.command(&["GET", "key"]);
    let is_refused = |told: &Value| matches!(told, Value::Error(_));
    assert!(shown.as_ref().is_ok_and(is_refused), "{shown:?}");
    for node in &nodes[..2] {
        node.signal("-CONT");
    }
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("served", &all, || crate::has(&nodes[2], "key"));
    assert_eq!(line_of(&nodes[2], "alice"), None);
    // The earlier connection is closed, or shows nothing to this user.
    let shown = alice.command(&["GET", "key"]);
    assert!(
        let_in != ok() || shown.as_ref().map_or(true, is_refused),
        "{shown:?}"
    );
}

/// No other node runs: after a while the node uses the users that it knew.
#[test]
fn a_node_that_is_back_alone_serves_by_what_it_knew() {
    let mut nodes = three();
    let all: Vec<&Node> = nodes.iter().collect();
    assert!(writes(&nodes[0], "key"));
    wait_until("copied", &all, || crate::has(&nodes[2], "key"));
    for node in &mut nodes {
        node.kill();
    }
    nodes[2].start();
    wait_until("served", &[&nodes[2]], || crate::has(&nodes[2], "key"));
    assert!(nodes[2].log().contains("No control leader said in time"));
}

fn wait_for_user(nodes: &[&Node], user: &str) {
    wait_until("a user on all nodes", nodes, || {
        let lines: Vec<Option<String>> = nodes.iter().map(|node| line_of(node, user)).collect();
        lines[0].is_some() && lines.iter().all(|line| *line == lines[0])
    });
}

#[test]
fn a_user_that_is_changed_anywhere_is_so_on_all_nodes() {
    let nodes = three();
    let all: Vec<&Node> = nodes.iter().collect();
    let rules = ["alice", "on", ">secret", "~a:*", "+@read", "+auth"];
    assert_eq!(set_user(&nodes[1], &rules), ok());
    // The reply is sent when the change applies at that node.
    let line = line_of(&nodes[1], "alice").unwrap();
    assert!(line.contains("~a:*") && !line.contains("secret"), "{line}");
    wait_for_user(&all, "alice");
    for node in &nodes {
        let mut client = node.client();
        assert_eq!(client.command(&["AUTH", "alice", "secret"]).unwrap(), ok());
        let denied = client.command(&["SET", "a:1", "1"]).unwrap();
        assert!(matches!(&denied, Value::Error(text) if text.starts_with(b"NOPERM")));
    }
    let mut before = nodes[0].client();
    assert_eq!(before.command(&["AUTH", "alice", "secret"]).unwrap(), ok());
    let wrong = set_user(&nodes[2], &["alice", "+nonsense"]);
    assert!(
        matches!(&wrong, Value::Error(text) if text.starts_with(b"ERR Error in ACL SETUSER")),
        "{wrong:?}"
    );
    assert_eq!(
        nodes[2].run(&["ACL", "DELUSER", "alice", "nobody"]),
        Value::Integer(1)
    );
    wait_until("gone", &all, || {
        nodes.iter().all(|node| line_of(node, "alice").is_none())
    });
    assert!(
        before.command(&["PING"]).is_err(),
        "its connections are closed"
    );
}

#[test]
fn changes_at_several_nodes_at_a_time_are_all_made() {
    let nodes = three();
    let all: Vec<&Node> = nodes.iter().collect();
    std::thread::scope(|scope| {
        for (at, node) in nodes.iter().enumerate() {
            scope.spawn(move || {
                for number in 0..5 {
                    let pattern = format!("~{at}:{number}");
                    assert_eq!(set_user(node, &["bob", &pattern]), ok());
                }
            });
        }
    });
    wait_for_user(&all, "bob");
    let line = line_of(&nodes[0], "bob").unwrap();
    for at in 0..3 {
        for number in 0..5 {
            let pattern = format!("~{at}:{number}");
            assert!(line.contains(&pattern), "{pattern} in {line}");
        }
    }
}

#[test]
fn users_outlive_the_primary_and_a_newcomer_has_them() {
    let mut nodes = three();
    assert_eq!(
        set_user(&nodes[0], &["carol", "on", "nopass", "+@all", "~*"]),
        ok()
    );
    let users: Vec<&Node> = nodes.iter().collect();
    wait_for_user(&users, "carol");
    nodes[0].kill();
    let left = [&nodes[1], &nodes[2]];
    wait_until("another primary", &left, || {
        left.iter()
            .any(|node| node.is_primary() && writes(node, "key"))
    });
    wait_until("changed after it", &left, || {
        set_user(left[0], &["carol", "-debug"]) == ok()
    });
    let newcomer = Node::joining(&nodes[1], &[]);
    wait_until("a replica", &[&nodes[1], &nodes[2], &newcomer], || {
        newcomer.is_synced()
    });
    assert_eq!(line_of(&newcomer, "carol"), line_of(&nodes[1], "carol"));
    nodes[0].start();
    wait_for_user(&[&nodes[1], &nodes[0], &nodes[2], &newcomer], "carol");
}

#[test]
fn users_of_a_node_may_stay_its_own() {
    let first = Node::new(&["--cluster-group", "yes", "--cluster-sync", "none"]);
    let second = Node::joining(&first, &["--cluster-sync", "none"]);
    wait_until("a replica", &[&first, &second], || second.is_synced());
    assert_eq!(set_user(&first, &["dave", "on"]), ok());
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(line_of(&second, "dave").is_none());
}
