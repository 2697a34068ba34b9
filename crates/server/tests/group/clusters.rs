//! Tests of clusters of real processes: nodes meet, own hash slots, fail over, hand over, and
//! leave.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::hash_slot;
use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;

use super::{Node, WAIT, wait_until};

/// The highest hash slot.
pub(crate) const LAST_SLOT: u16 = 16_383;

impl Node {
    /// Starts a single node in cluster mode.
    pub(crate) fn by_itself() -> Self {
        Self::new(&["--cluster-enabled", "yes"])
    }

    pub(crate) fn text(&self, words: &[&str]) -> String {
        match self.run(words) {
            Value::Bulk(bytes) | Value::Simple(bytes) | Value::Error(bytes) => {
                String::from_utf8(bytes).unwrap()
            }
            other => panic!("{words:?} gives text: {other:?}"),
        }
    }

    pub(crate) fn id(&self) -> String {
        self.text(&["CLUSTER", "MYID"])
    }

    pub(crate) fn own(&self, first: u16, last: u16) {
        let (first, last) = (first.to_string(), last.to_string());
        assert_eq!(
            self.text(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]),
            "OK"
        );
    }

    pub(crate) fn meet(&self, other: &Self) -> String {
        let (port, link_port) = (other.port.to_string(), other.link_port.to_string());
        let meet = || self.text(&["CLUSTER", "MEET", "127.0.0.1", &port, &link_port]);
        let mut met = meet();
        let patience = Patience::of(WAIT);
        while met.ends_with("no answer in time") && patience.lasts() {
            // On a slow machine, forming a group takes longer than a client waits.
            met = meet();
        }
        assert!(
            !met.ends_with("may do so later"),
            "{met}\n{}\n======\n{}",
            self.log(),
            other.log()
        );
        met
    }

    /// Returns id and slots of each node, as this one knows them, in order.
    pub(crate) fn owners(&self) -> Vec<String> {
        let nodes = self.text(&["CLUSTER", "NODES"]);
        let mut owners: Vec<String> = nodes
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                let slots = words.get(8..).unwrap_or_default().join(" ");
                let role = if words[2].contains("master") {
                    "master"
                } else {
                    "slave"
                };
                format!("{} {role} {} {slots}", words[0], words[3])
            })
            .collect();
        owners.sort();
        owners
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.text(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
    }
}

/// Waits until all nodes agree and serve keys.
pub(crate) fn wait_for_agreement(nodes: &[&Node], count: usize) {
    wait_until("of one mind", nodes, || {
        let first = nodes[0].owners();
        first.len() == count
            && nodes
                .iter()
                .all(|node| node.owners() == first && node.is_ok())
    });
}

/// Starts three primaries that share all slots.
pub(crate) fn three_primaries() -> [Node; 3] {
    three_primaries_with(&[])
}

/// As [`three_primaries`], with additional server arguments.
pub(crate) fn three_primaries_with(more: &[&str]) -> [Node; 3] {
    let args: Vec<&str> = ["--cluster-enabled", "yes"]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    let nodes = [Node::new(&args), Node::new(&args), Node::new(&args)];
    nodes[0].own(0, 5_460);
    nodes[1].own(5_461, 10_922);
    nodes[2].own(10_923, LAST_SLOT);
    assert_eq!(nodes[1].meet(&nodes[0]), "OK");
    assert_eq!(nodes[0].meet(&nodes[2]), "OK");
    let [a, b, c] = &nodes;
    wait_for_agreement(&[a, b, c], 3);
    nodes
}

/// Returns the node's reply to a write of a key: OK, or the node that serves it.
fn set(node: &Node, key: &str, value: &str) -> String {
    node.text(&["SET", key, value])
}

/// Writes a key at the node that serves it. Returns whether the write was taken.
fn set_anywhere(nodes: &[&Node], key: &str, value: &str) -> bool {
    nodes.iter().any(|node| {
        let answer = node.client().command(&["SET", key, value]);
        answer.is_ok_and(|answer| answer == Value::Simple(b"OK".to_vec()))
    })
}

#[test]
fn nodes_that_meet_are_one_cluster_with_the_slots_and_keys_that_each_had() {
    let nodes = [Node::by_itself(), Node::by_itself()];
    nodes[0].own(0, 8_191);
    nodes[1].own(8_192, LAST_SLOT);
    // Half of the slots have no owner. A node by itself then serves nothing, unless it is
    // configured to.
    for node in &nodes {
        node.run(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let keys = ["a", "b", "c", "d", "e", "f"];
    let owner = |key: &str| &nodes[usize::from(hash_slot::of(key.as_bytes()) >= 8_192)];
    for key in keys {
        assert_eq!(set(owner(key), key, "before"), "OK");
    }
    assert_eq!(nodes[0].meet(&nodes[1]), "OK");
    assert_eq!(nodes[0].meet(&nodes[1]), "OK", "met again");
    assert_eq!(nodes[0].meet(&nodes[0]), "OK", "met itself");
    let [a, b] = &nodes;
    wait_for_agreement(&[a, b], 2);
    for key in keys {
        let slot = hash_slot::of(key.as_bytes());
        let (here, there) = match slot >= 8_192 {
            true => (b, a),
            false => (a, b),
        };
        wait_until("serving", &[a, b], || here.text(&["GET", key]) == "before");
        let moved = format!("MOVED {slot} 127.0.0.1:{}", here.port);
        assert_eq!(there.text(&["GET", key]), moved);
    }
}

#[test]
fn a_replica_takes_the_place_of_a_killed_primary_of_its_shard() {
    let [a, mut b, c] = three_primaries();
    let d = Node::by_itself();
    assert_eq!(d.meet(&a), "OK");
    wait_for_agreement(&[&a, &b, &c, &d], 4);
    assert_eq!(d.text(&["CLUSTER", "REPLICATE", &b.id()]), "OK");
    wait_until("a synced replica", &[&b, &d], || d.is_synced());
    let key = "{b}1";
    assert_eq!(hash_slot::of(key.as_bytes()), 3_300, "of the first node");
    let key = "foo{c}";
    assert_eq!(hash_slot::of(key.as_bytes()), 7_365, "of the second one");
    assert_eq!(set(&b, key, "kept"), "OK");
    wait_until("copied", &[&b, &d], || {
        d.client().command(&["READONLY"]).is_ok() && d.run(&["DBSIZE"]) == Value::Integer(1)
    });
    b.kill();
    wait_until("another primary", &[&a, &c, &d], || {
        set_anywhere(&[&a, &c, &d], "bar{c}", "after")
    });
    assert_eq!(d.text(&["GET", key]), "kept");
    b.start();
    wait_until("a replica again", &[&b, &d], || b.is_synced());
    wait_for_agreement(&[&a, &b, &c, &d], 4);
    wait_until("all copied", &[&b, &d], || {
        b.run(&["DBSIZE"]) == Value::Integer(2)
    });
    assert_eq!(
        a.text(&["GET", key]),
        format!("MOVED 7365 127.0.0.1:{}", d.port)
    );
}

#[test]
fn an_office_is_handed_over_under_load_and_nothing_is_lost() {
    // With this timeout, a busy machine does not let a lease expire, which clients would notice.
    let args = ["--cluster-enabled", "yes", "--cluster-node-timeout", "5000"];
    let nodes = [Node::new(&args), Node::new(&args), Node::new(&args)];
    let [a, b, c] = &nodes;
    a.own(0, LAST_SLOT);
    assert_eq!(b.meet(a), "OK");
    assert_eq!(c.meet(a), "OK");
    wait_for_agreement(&[a, b, c], 3);
    assert_eq!(b.text(&["CLUSTER", "REPLICATE", &a.id()]), "OK");
    wait_until("a synced replica", &[a, b], || b.is_synced());
    let is_over = Arc::new(AtomicBool::new(false));
    let mut clients = [a.client(), b.client()];
    let over = Arc::clone(&is_over);
    let writer = std::thread::spawn(move || {
        let (mut acknowledged, mut failed) = (0, Vec::new());
        while !over.load(Ordering::Acquire) {
            for client in &mut clients {
                match client.command(&["INCR", "counter"]) {
                    Ok(Value::Integer(_)) => acknowledged += 1,
                    Ok(Value::Error(text)) if text.starts_with(b"MOVED") => {}
                    other => failed.push(other),
                }
            }
        }
        (acknowledged, failed)
    });
    for _ in 0..3 {
        for (replica, primary) in [(b, a), (a, b)] {
            assert_eq!(replica.text(&["CLUSTER", "FAILOVER"]), "OK");
            wait_until("followed", &[a, b], || {
                primary.is_synced() && replica.is_primary()
            });
        }
    }
    is_over.store(true, Ordering::Release);
    let (acknowledged, failed) = writer.join().unwrap();
    assert!(acknowledged > 0);
    assert!(
        failed.is_empty(),
        "clients are told more than where to go: {} times, at first {:?}\n{}\n{}",
        failed.len(),
        failed[0],
        a.log(),
        b.log()
    );
    let counted = a.text(&["GET", "counter"]);
    assert_eq!(
        counted,
        acknowledged.to_string(),
        "{}\n{}",
        a.log(),
        b.log()
    );
}

#[test]
fn what_is_published_at_one_node_reaches_subscribers_at_all() {
    let [a, b, c] = three_primaries();
    let d = Node::by_itself();
    assert_eq!(d.meet(&a), "OK");
    wait_for_agreement(&[&a, &b, &c, &d], 4);
    assert_eq!(d.text(&["CLUSTER", "REPLICATE", &a.id()]), "OK");
    wait_until("a synced replica", &[&a, &d], || d.is_synced());
    let channel = "{b}1";
    let subscribe = |node: &Node, word: &str, name: &str| {
        let mut client = node.client();
        let told = client.command(&[word, name]).unwrap();
        assert!(matches!(told, Value::Array(_)), "{told:?}");
        client
    };
    let mut all: Vec<_> = [&a, &b, &c, &d]
        .into_iter()
        .flat_map(|node| {
            [
                subscribe(node, "SUBSCRIBE", channel),
                subscribe(node, "PSUBSCRIBE", "*"),
            ]
        })
        .collect();
    let mut of_shard = [
        subscribe(&a, "SSUBSCRIBE", channel),
        subscribe(&d, "SSUBSCRIBE", channel),
    ];
    for number in 0..100 {
        let message = format!("to all {number}");
        b.run(&["PUBLISH", channel, &message]);
        let message = format!("to the shard {number}");
        assert_eq!(a.run(&["SPUBLISH", channel, &message]), Value::Integer(1));
    }
    let text = |value: Value| match value {
        Value::Array(parts) => match parts.last() {
            Some(Value::Bulk(bytes)) => String::from_utf8(bytes.clone()).unwrap(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    for client in &mut all {
        for number in 0..100 {
            assert_eq!(
                text(client.receive().unwrap().unwrap()),
                format!("to all {number}")
            );
        }
    }
    for client in &mut of_shard {
        for number in 0..100 {
            assert_eq!(
                text(client.receive().unwrap().unwrap()),
                format!("to the shard {number}")
            );
        }
    }
}

#[test]
fn nodes_leave_a_cluster_and_are_by_themselves() {
    let [a, b, c] = three_primaries();
    let d = Node::by_itself();
    assert_eq!(d.meet(&b), "OK");
    wait_for_agreement(&[&a, &b, &c, &d], 4);
    assert_eq!(d.text(&["CLUSTER", "REPLICATE", &a.id()]), "OK");
    wait_until("a synced replica", &[&a, &d], || d.is_synced());
    assert_eq!(set(&a, "{b}1", "x"), "OK");
    wait_until("copied", &[&a, &d], || {
        d.run(&["DBSIZE"]) == Value::Integer(1)
    });
    let refused = b.text(&["CLUSTER", "FORGET", &a.id()]);
    assert!(
        refused.starts_with("ERR the cluster needs that node"),
        "{refused}"
    );
    assert!(a.text(&["CLUSTER", "RESET"]).starts_with("ERR"));
    for node in [&a, &b, &c] {
        assert_eq!(
            node.text(&["CLUSTER", "FORGET", &d.id()]),
            "OK",
            "told thrice"
        );
    }
    wait_until("by itself", &[&d], || d.owners().len() == 1);
    // The node leaves its former cluster before it has its own again. In between it replies that it
    // has no part in a cluster yet.
    let mut told = String::new();
    wait_until("of its own cluster", &[&d], || {
        told = d.text(&["CLUSTER", "RESET", "SOFT"]);
        !told.ends_with("take part in its cluster yet")
    });
    assert_eq!(told, "OK");
    wait_until("empty", &[&d], || d.run(&["DBSIZE"]) == Value::Integer(0));
    wait_for_agreement(&[&a, &b, &c], 3);
    // The node may return.
    assert_eq!(d.meet(&c), "OK");
    wait_for_agreement(&[&a, &b, &c, &d], 4);
    assert_eq!(d.text(&["CLUSTER", "RESET", "HARD"]), "OK");
    wait_for_agreement(&[&a, &b, &c], 3);
}

#[test]
fn who_cannot_be_of_one_cluster_is_told_why() {
    let (a, mut b) = (Node::by_itself(), Node::by_itself());
    a.own(0, 100);
    b.own(100, 200);
    let refused = a.meet(&b);
    assert_eq!(refused, "ERR hash slot 100 is owned in both");
    let stranger = Node::new(&["--cluster-enabled", "yes", "--cluster-secret", "another"]);
    assert!(stranger.meet(&a).starts_with("ERR"));
    assert_eq!(a.text(&["CLUSTER", "DELSLOTS", "100"]), "OK");
    assert_eq!(a.meet(&b), "OK");
    let (c, mut d) = (Node::by_itself(), Node::by_itself());
    assert_eq!(c.meet(&d), "OK");
    // Nodes that have just formed clusters would merge them. A restarted node did not just form
    // one.
    for founder in [&mut b, &mut d] {
        founder.kill();
        founder.start();
    }
    let mut refused = String::new();
    wait_until("asked", &[&a, &b, &c, &d], || {
        refused = c.meet(&a);
        !refused.contains("meets somebody else all the time")
    });
    assert_eq!(refused, "ERR both nodes belong to clusters already");
    assert_eq!((a.owners().len(), c.owners().len()), (2, 2));
}

#[test]
fn a_cluster_that_was_killed_whole_comes_back() {
    let mut nodes = three_primaries();
    assert_eq!(set(&nodes[0], "{b}1", "kept"), "OK");
    for node in &mut nodes {
        node.kill();
    }
    for node in &mut nodes {
        node.start();
    }
    let [a, b, c] = &nodes;
    wait_for_agreement(&[a, b, c], 3);
    wait_until("served", &[a, b, c], || a.text(&["GET", "{b}1"]) == "kept");
}

#[test]
fn one_command_makes_a_cluster_of_nodes_that_are_by_themselves() {
    let nodes: Vec<Node> = (0..4).map(|_| Node::by_itself()).collect();
    let create = |nodes: &[Node]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iolite"));
        command.args(["cluster", "create", "--replicas", "1"]);
        command.args(
            nodes
                .iter()
                .map(|node| format!("127.0.0.1:{}@{}", node.port, node.link_port)),
        );
        let output = command.output().unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (is_done, told) = create(&nodes);
    assert!(is_done, "{told}");
    assert!(
        told.contains("primary of 0-8191") && told.contains("replica of"),
        "{told}"
    );
    let all: Vec<&Node> = nodes.iter().collect();
    wait_for_agreement(&all, 4);
    wait_until("copies", &all, || nodes[2..].iter().all(Node::is_synced));
    let (is_done, told) = create(&nodes);
    assert!(!is_done && told.contains("of a cluster already"), "{told}");
}

/// Writes keys of its own until `is_over` is set, asking one node after the other. Returns the
/// acknowledged writes.
fn write_until(
    is_over: &AtomicBool,
    ports: &[std::net::SocketAddr],
    writer: usize,
) -> Vec<(String, String)> {
    let mut acknowledged = Vec::new();
    let mut clients: Vec<Option<Client>> = ports.iter().map(|_| None).collect();
    for number in 0.. {
        let (key, value) = (format!("key:{writer}:{}", number % 200), number.to_string());
        let mut is_written = false;
        while !is_written && !is_over.load(Ordering::Acquire) {
            is_written = (0..ports.len()).any(|at| {
                let client = clients[at]
                    .take()
                    .or_else(|| Client::connect_tcp(ports[at]).ok());
                let Some(mut client) = client else {
                    return false;
                };
                let answer = client.command(&["SET", &key, &value]);
                // A broken connection is opened again.
                clients[at] = answer.is_ok().then_some(client);
                answer.is_ok_and(|answer| answer == Value::Simple(b"OK".to_vec()))
            });
        }
        if is_over.load(Ordering::Acquire) && !is_written {
            break;
        }
        acknowledged.push((key, value));
    }
    acknowledged
}

/// Starts six nodes at level quorum: two shards of three copies each, which share all slots.
fn two_shards_of_three() -> Vec<Node> {
    let args = ["--cluster-enabled", "yes", "--durability", "quorum"];
    let nodes: Vec<Node> = (0..6).map(|_| Node::new(&args)).collect();
    nodes[0].own(0, 8_191);
    nodes[1].own(8_192, LAST_SLOT);
    for node in &nodes[1..] {
        assert_eq!(node.meet(&nodes[0]), "OK");
    }
    let all: Vec<&Node> = nodes.iter().collect();
    wait_for_agreement(&all, 6);
    for (at, node) in nodes.iter().enumerate().skip(2) {
        let primary = nodes[at % 2].id();
        assert_eq!(node.text(&["CLUSTER", "REPLICATE", &primary]), "OK");
    }
    wait_until("all copies", &all, || {
        nodes[2..].iter().all(Node::is_synced)
    });
    nodes
}

/// Asserts that each key has its last acknowledged value or a later one.
fn assert_kept(nodes: &[&Node], acknowledged: Vec<(String, String)>) {
    let newest: std::collections::BTreeMap<_, _> = acknowledged.into_iter().collect();
    assert!(!newest.is_empty());
    for (key, value) in newest {
        let mut kept: Option<u64> = None;
        wait_until("read", nodes, || {
            let mut nodes = nodes.iter();
            kept = nodes.find_map(|node| node.text(&["GET", &key]).parse().ok());
            kept.is_some()
        });
        // The last write may have been done without an acknowledgement.
        let kept = kept.unwrap();
        let is_kept = kept >= value.parse().unwrap();
        assert!(is_kept, "{key}: {kept} in place of {value}");
    }
}

/// `GROUP_KILLS` sets the number of kills; the default is three.
#[test]
fn what_a_majority_of_a_shard_has_outlives_whoever_is_killed() {
    let kills: u64 = std::env::var("GROUP_KILLS").map_or(3, |text| text.parse().unwrap());
    let mut nodes = two_shards_of_three();
    let ports: Vec<std::net::SocketAddr> = nodes
        .iter()
        .map(|node| ([127, 0, 0, 1], node.port).into())
        .collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let (over, ports) = (Arc::clone(&is_over), ports.clone());
            std::thread::spawn(move || write_until(&over, &ports, writer))
        })
        .collect();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64 ^ u64::from(std::process::id());
    for _ in 0..kills {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let at = usize::try_from((random >> 33) % 6).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(500));
        nodes[at].kill();
        let alive: Vec<&Node> = nodes.iter().filter(|node| node.is_running()).collect();
        wait_until("served without it", &alive, || {
            alive.iter().all(|node| node.is_ok())
        });
        nodes[at].start();
        let all: Vec<&Node> = nodes.iter().collect();
        wait_until("all back", &all, || {
            nodes
                .iter()
                .all(|node| node.is_primary() || node.is_synced())
        });
    }
    is_over.store(true, Ordering::Release);
    let all: Vec<&Node> = nodes.iter().collect();
    wait_for_agreement(&all, 6);
    for writer in writers {
        assert_kept(&all, writer.join().unwrap());
    }
}
