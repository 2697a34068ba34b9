//! Tests of function libraries and shared directives: a change at any node applies to all nodes.

use protocol::Value;
use testkit::client::{Client, Received};

use crate::{Node, three, three_with, wait_until, writes};

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn code(name: &str, answer: &str) -> String {
    format!(
        "#!lua name={name}\nredis.register_function{{function_name='{name}', callback=function() return '{answer}' end, flags={{'no-writes'}}}}"
    )
}

fn load(node: &Node, name: &str, answer: &str) -> Value {
    node.run(&["FUNCTION", "LOAD", "REPLACE", &code(name, answer)])
}

fn answers(node: &Node, name: &str) -> Option<String> {
    match node.run(&["FCALL_RO", name, "0"]) {
        Value::Bulk(answer) => Some(String::from_utf8(answer).unwrap()),
        _ => None,
    }
}

fn dump(node: &Node) -> Value {
    node.run(&["FUNCTION", "DUMP"])
}

/// Waits until all nodes have the same libraries, and a function returns this answer.
fn wait_for(nodes: &[&Node], name: &str, answer: Option<&str>) {
    wait_until("the same libraries on all nodes", nodes, || {
        let is_so = |node: &&Node| answers(node, name).as_deref() == answer;
        nodes.iter().all(is_so) && nodes.iter().all(|node| dump(node) == dump(nodes[0]))
    });
}

fn is_error(reply: &Value, text: &str) -> bool {
    matches!(reply, Value::Error(bytes) if String::from_utf8_lossy(bytes).contains(text))
}

#[test]
fn a_function_that_is_loaded_anywhere_is_on_all_nodes() {
    let nodes = three();
    let all: Vec<&Node> = nodes.iter().collect();
    // Loaded at a replica, which replies when the library is there.
    assert_eq!(load(&nodes[1], "f", "one"), Value::Bulk(b"f".to_vec()));
    assert_eq!(answers(&nodes[1], "f").as_deref(), Some("one"));
    wait_for(&all, "f", Some("one"));
    // Loaded at the primary.
    assert_eq!(load(&nodes[0], "f", "two"), Value::Bulk(b"f".to_vec()));
    wait_for(&all, "f", Some("two"));
    let again = nodes[2].run(&["FUNCTION", "LOAD", &code("f", "three")]);
    assert!(is_error(&again, "already exists"), "{again:?}");
    let wrong = nodes[2].run(&["FUNCTION", "LOAD", "#!lua name=g\nnonsense("]);
    assert!(matches!(wrong, Value::Error(_)), "{wrong:?}");
    // Writes are still refused at a replica.
    assert!(is_error(&nodes[1].run(&["SET", "key", "1"]), "READONLY"));
    let Value::Bulk(payload) = dump(&nodes[0]) else {
        panic!("no payload")
    };
    assert_eq!(nodes[2].run(&["FUNCTION", "DELETE", "f"]), ok());
    wait_for(&all, "f", None);
    let mut client = nodes[1].client();
    let restored = client.command(&[&b"FUNCTION"[..], b"RESTORE", &payload, b"FLUSH"]);
    assert_eq!(restored.unwrap(), ok());
    wait_for(&all, "f", Some("two"));
    // Repeated: nothing changes, and nothing is duplicated.
    let restored = client.command(&[&b"FUNCTION"[..], b"RESTORE", &payload, b"REPLACE"]);
    assert_eq!(restored.unwrap(), ok());
    assert_eq!(nodes[2].run(&["FUNCTION", "FLUSH"]), ok());
    wait_for(&all, "f", None);
    assert_eq!(load(&nodes[1], "f", "last"), Value::Bulk(b"f".to_vec()));
    wait_for(&all, "f", Some("last"));
    // No earlier change is applied again, and the group decides nothing more.
    let index = nodes[0].field("control_index");
    for _ in 0..50 {
        assert!(
            all.iter()
                .all(|node| answers(node, "f").as_deref() == Some("last"))
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(nodes[0].field("control_index"), index);
}

/// Clients of a cluster send such commands to every primary, because in Redis each primary has its
/// own libraries.
#[test]
fn a_client_that_tells_every_node_is_told_by_each_that_it_is_done() {
    let nodes = three();
    let all = || nodes.iter();
    let load = |node: &Node, name: &str, answer: &str| {
        node.run(&["FUNCTION", "LOAD", &code(name, answer)])
    };
    let restored = |payload: &Value| {
        let Value::Bulk(payload) = payload else {
            panic!("{payload:?}");
        };
        all().for_each(|node| {
            let told = node
                .client()
                .command(&[&b"FUNCTION"[..], b"RESTORE", payload]);
            assert_eq!(told.unwrap(), ok());
        });
    };
    for round in 0..3 {
        for node in all() {
            assert_eq!(
                load(node, "one", "1"),
                Value::Bulk(b"one".to_vec()),
                "{round}"
            );
        }
        for node in all() {
            assert!(
                is_error(&load(node, "one", "1"), "already exists"),
                "{round}"
            );
            assert!(
                is_error(&load(node, "one", "2"), "already exists"),
                "{round}"
            );
        }
        let kept = dump(&nodes[0]);
        for node in all() {
            assert_eq!(node.run(&["FUNCTION", "DELETE", "one"]), ok(), "{round}");
        }
        for node in all() {
            let told = node.run(&["FUNCTION", "DELETE", "one"]);
            assert!(is_error(&told, "Library not found"), "{round}");
        }
        restored(&kept);
        for node in all() {
            assert_eq!(node.run(&["FUNCTION", "FLUSH"]), ok(), "{round}");
        }
    }
}

#[test]
fn libraries_loaded_at_several_nodes_at_a_time_are_all_kept() {
    let nodes = three();
    let all: Vec<&Node> = nodes.iter().collect();
    std::thread::scope(|scope| {
        for (at, node) in nodes.iter().enumerate() {
            scope.spawn(move || {
                for number in 0..4 {
                    let name = format!("f_{at}_{number}");
                    assert_eq!(load(node, &name, &name), Value::Bulk(name.into_bytes()));
                }
            });
        }
    });
    for at in 0..3 {
        for number in 0..4 {
            let name = format!("f_{at}_{number}");
            wait_for(&all, &name, Some(&name));
        }
    }
}

/// The libraries in the data log, in a full sync and in a file are older than those of the group.
#[test]
fn libraries_outlive_the_primary_a_newcomer_and_a_restart_of_all() {
    // The new node does not return together with the others.
    let mut nodes = three_with(&["--cluster-recovery-wait", "2000"]);
    assert_eq!(load(&nodes[0], "f", "old"), Value::Bulk(b"f".to_vec()));
    let users: Vec<&Node> = nodes.iter().collect();
    wait_for(&users, "f", Some("old"));
    nodes[0].kill();
    let left = [&nodes[1], &nodes[2]];
    wait_until("another primary", &left, || {
        let is_primary = |node: &&&Node| node.is_primary() && writes(node, "key");
        left.iter().find(is_primary).is_some()
    });
    // Loaded at either node while the first one is down.
    wait_until("loaded", &left, || {
        load(left[0], "f", "new") == Value::Bulk(b"f".to_vec())
    });
    wait_for(&left, "f", Some("new"));
    let newcomer = Node::joining(&nodes[1], &[]);
    wait_until("a replica", &[&nodes[1], &nodes[2], &newcomer], || {
        newcomer.is_synced()
    });
    assert_eq!(answers(&newcomer, "f").as_deref(), Some("new"));
    nodes[0].start();
    wait_until("it is back", &[&nodes[0], &nodes[1]], || {
        nodes[0].is_synced()
    });
    wait_for(
        &[&nodes[0], &nodes[1], &nodes[2], &newcomer],
        "f",
        Some("new"),
    );
    // The primary has written the library to the data log, too: a promoted node gets it from either
    // log.
    drop(newcomer);
    for node in &mut nodes {
        node.kill();
    }
    for node in &mut nodes {
        node.start();
    }
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("a primary", &all, || {
        all.iter().any(|node| writes(node, "after"))
    });
    wait_for(&all, "f", Some("new"));
}

#[test]
fn a_node_with_libraries_of_its_own_joins_when_it_is_told_to_drop_them() {
    let first = Node::first();
    wait_until("written", &[&first], || writes(&first, "key"));
    wait_until("loaded", &[&first], || {
        load(&first, "f", "group") == Value::Bulk(b"f".to_vec())
    });
    let mut second = Node::new(&["--durability", "os"]);
    assert_eq!(load(&second, "own", "own"), Value::Bulk(b"own".to_vec()));
    second.kill();
    let place = format!("127.0.0.1:{}@{}", first.port, first.link_port);
    second.args = ["--join", &place].map(str::to_owned).to_vec();
    second.start();
    wait_until("refused with a list", &[&first, &second], || {
        second
            .log()
            .contains("libraries of functions of its own, which would be lost (own)")
    });
    assert_eq!(first.field("control_nodes"), "1");
    second.kill();
    second.args.extend(["--adopt", "yes"].map(str::to_owned));
    second.start();
    wait_until("a replica", &[&first, &second], || second.is_synced());
    wait_for(&[&first, &second], "f", Some("group"));
    assert_eq!(answers(&second, "own"), None);
}

fn directive(node: &Node, name: &str) -> String {
    let Value::Array(pair) = node.run(&["CONFIG", "GET", name]) else {
        panic!("CONFIG GET gives pairs")
    };
    match &pair[..] {
        [_, Value::Bulk(value)] => String::from_utf8(value.clone()).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn wait_for_directive(nodes: &[&Node], name: &str, value: &str) {
    wait_until("set on all nodes", nodes, || {
        nodes.iter().all(|node| directive(node, name) == value)
    });
}

#[test]
fn a_shared_directive_is_set_on_all_nodes() {
    let mut nodes = three();
    let set = |node: &Node, pairs: &[&str]| {
        let words: Vec<&str> = ["CONFIG", "SET"].iter().chain(pairs).copied().collect();
        node.run(&words)
    };
    assert_eq!(
        set(
            &nodes[1],
            &["maxmemory-policy", "allkeys-lru", "timeout", "3600"]
        ),
        ok()
    );
    assert_eq!(directive(&nodes[1], "maxmemory-policy"), "allkeys-lru");
    let all: Vec<&Node> = nodes.iter().collect();
    wait_for_directive(&all, "maxmemory-policy", "allkeys-lru");
    wait_for_directive(&all, "timeout", "3600");
    // Set by an old alias, at another node.
    assert_eq!(set(&nodes[2], &["min-slaves-max-lag", "77"]), ok());
    wait_for_directive(&all, "min-replicas-max-lag", "77");
    // A directive that each node has for itself.
    assert_eq!(set(&nodes[0], &["maxmemory", "100mb"]), ok());
    let wrong = set(&nodes[0], &["maxmemory-policy", "nonsense"]);
    assert!(is_error(&wrong, "maxmemory-policy"), "{wrong:?}");
    assert_eq!(directive(&nodes[1], "maxmemory"), "0");
    assert_eq!(directive(&nodes[0], "timeout"), "3600");
    // The value survives the loss of the primary and a restart, and a new node gets it.
    nodes[0].kill();
    let left = [&nodes[1], &nodes[2]];
    wait_until("set after it", &left, || {
        set(left[0], &["notify-keyspace-events", "KEA"]) == ok()
    });
    let newcomer = Node::joining(&nodes[1], &[]);
    wait_until("a replica", &[&nodes[1], &nodes[2], &newcomer], || {
        newcomer.is_synced()
    });
    nodes[0].start();
    for (name, value) in [("timeout", "3600"), ("notify-keyspace-events", "AKE")] {
        wait_for_directive(&[&nodes[0], &nodes[1], &nodes[2], &newcomer], name, value);
    }
}

#[test]
fn shared_and_own_directives_are_set_together_or_not_at_all() {
    let mut nodes = three();
    let set = |node: &Node, pairs: &[&str]| {
        let words: Vec<&str> = ["CONFIG", "SET"].iter().chain(pairs).copied().collect();
        node.run(&words)
    };
    let mixed = ["maxmemory", "1gb", "timeout", "3600", "maxmemory-policy"];
    let mixed = [&mixed[..], &["allkeys-lru"]].concat();
    assert_eq!(set(&nodes[1], &mixed), ok());
    let all: Vec<&Node> = nodes.iter().collect();
    wait_for_directive(&all, "timeout", "3600");
    wait_for_directive(&all, "maxmemory-policy", "allkeys-lru");
    let memory = || all.iter().map(|node| directive(node, "maxmemory"));
    assert_eq!(memory().collect::<Vec<_>>(), ["0", "1073741824", "0"]);
    // A wrong value of either kind, and one that fails only when it is applied.
    let index = nodes[0].field("control_index");
    for wrong in [
        &["timeout", "1", "maxmemory", "much"][..],
        &["maxmemory", "1", "timeout", "soon"],
        &["timeout", "1", "threads", "3"],
    ] {
        let told = set(&nodes[0], wrong);
        assert!(matches!(told, Value::Error(_)), "{wrong:?}: {told:?}");
    }
    assert_eq!(nodes[0].field("control_index"), index);
    let taken = nodes[1].port.to_string();
    let told = set(
        &nodes[0],
        &["timeout", "1", "port", &taken, "maxmemory", "2gb"],
    );
    assert!(is_error(&told, "port"), "{told:?}");
    wait_for_directive(&all, "timeout", "3600");
    assert_eq!(directive(&nodes[0], "maxmemory"), "0");
    assert_eq!(directive(&nodes[0], "port"), nodes[0].port.to_string());
    // The group cannot accept the shared directive, so nothing is set.
    nodes[1].kill();
    nodes[2].kill();
    wait_until("no majority", &[&nodes[0]], || {
        let told = set(&nodes[0], &["maxmemory", "3gb", "timeout", "1"]);
        is_error(&told, "control group did not take the change")
    });
    assert_eq!(directive(&nodes[0], "maxmemory"), "0");
    assert_eq!(set(&nodes[0], &["maxmemory", "3gb"]), ok());
}

#[test]
fn functions_and_directives_may_stay_a_nodes_own() {
    let first = Node::new(&["--cluster-group", "yes", "--cluster-sync", "acl"]);
    let second = Node::joining(&first, &["--cluster-sync", "acl"]);
    let all = [&first, &second];
    wait_until("a replica", &all, || second.is_synced());
    assert!(is_error(&load(&second, "f", "one"), "READONLY"));
    assert_eq!(load(&first, "f", "one"), Value::Bulk(b"f".to_vec()));
    // Applied as data of the shard.
    wait_for(&all, "f", Some("one"));
    assert_eq!(first.run(&["CONFIG", "SET", "timeout", "99"]), ok());
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(directive(&second, "timeout"), "0");
}

/// A command that a control group without a majority decides later or never delays no other client.
#[test]
fn what_the_group_is_asked_without_a_majority_is_in_nobody_s_way() {
    let nodes = three();
    let [first, others @ ..] = &nodes;
    for other in others {
        other.signal("-STOP");
    }
    let address = format!("addr={},", first.address());
    let mut rows = (0..3).map(|at| first.field(&format!("control_node{at}")));
    let row = rows.find(|row| row.contains(&address)).unwrap();
    let id = &row["id=".len()..][..40];
    let asked: Vec<Client> = [
        &["CONFIG", "SET", "shutdown-timeout", "7"][..],
        &["REPLICATION", "DRAIN", id],
        &["ACL", "SETUSER", "somebody", "on"],
        &["ACL", "DELUSER", "nobody", "somebody"],
        &["FUNCTION", "LOAD", &code("late", "1")],
    ]
    .into_iter()
    .map(|words| {
        let mut client = first.client();
        client.send(words).unwrap();
        client
    })
    .collect();
    for words in [&["DEBUG", "SLEEP", "0"][..], &["SAVE"]] {
        let done = first.run(words);
        assert_eq!(done, Value::Simple(b"OK".to_vec()), "{words:?}");
    }
    for mut client in asked {
        assert!(matches!(client.arrived().unwrap(), Received::Nothing));
    }
    for other in others {
        other.signal("-CONT");
    }
}
