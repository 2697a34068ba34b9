//! Tests of clients without cluster support, which connect to any node of a cluster and see all of
//! its data there.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::hash_slot;
use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, TemporaryDirectory, free_port};

const PATIENCE: Duration = Duration::from_secs(120);
/// The slots of three nodes.
const RANGES: [(u16, u16); 3] = [(0, 5460), (5461, 10_922), (10_923, 16_383)];

struct Node {
    server: Option<Server>,
    directory: TemporaryDirectory,
    port: u16,
    link_port: u16,
    forward_port: u16,
}

impl Node {
    fn new(name: &str) -> Self {
        let mut node = Self {
            server: None,
            directory: TemporaryDirectory::new(name).unwrap(),
            port: free_port().unwrap(),
            link_port: free_port().unwrap(),
            forward_port: free_port().unwrap(),
        };
        node.start();
        node
    }

    fn start(&mut self) {
        let ports = [self.port, self.link_port, self.forward_port].map(|port| port.to_string());
        let dir = self.directory.to_str().unwrap().to_owned();
        let args = [
            "--cluster-enabled",
            "yes",
            "--port",
            &ports[0],
            "--cluster-port",
            &ports[1],
            "--forward-port",
            &ports[2],
            "--cluster-databases",
            "2",
            "--dir",
            &dir,
        ];
        let builder = ServerBuilder::iolite().args(&args);
        self.server = Some(builder.start().unwrap());
    }

    /// Pauses the process (`-STOP`), or continues it (`-CONT`).
    fn signal(&self, name: &str) {
        self.server.as_ref().unwrap().signal(name);
    }

    fn client(&self) -> Client {
        self.server.as_ref().unwrap().client().unwrap()
    }

    /// Connects a client to the port for clients that do not know clusters.
    fn plain(&self) -> Client {
        let address = SocketAddr::from(([127, 0, 0, 1], self.forward_port));
        Client::connect_tcp(address).unwrap()
    }

    fn text(&self, line: &str) -> String {
        text(&mut self.client(), line)
    }

    fn log(&self) -> String {
        self.server.as_ref().unwrap().log()
    }
}

fn ask(client: &mut Client, line: &str) -> Value {
    let words = protocol::split_line(line.as_bytes()).unwrap();
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    client.command(&words).unwrap()
}

fn text(client: &mut Client, line: &str) -> String {
    match ask(client, line) {
        Value::Error(text) | Value::Simple(text) | Value::Bulk(text) => {
            String::from_utf8_lossy(&text).into_owned()
        }
        Value::Integer(number) => number.to_string(),
        Value::Null | Value::NullArray => "null".to_owned(),
        other => format!("{other:?}"),
    }
}

fn list(client: &mut Client, line: &str) -> Vec<String> {
    match ask(client, line) {
        Value::Array(values) => values.into_iter().map(shown).collect(),
        other => panic!("{line}: {other:?}"),
    }
}

fn shown(value: Value) -> String {
    match value {
        Value::Bulk(text) | Value::Simple(text) | Value::Error(text) => {
            String::from_utf8(text).unwrap()
        }
        Value::Null => "null".to_owned(),
        Value::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// Starts three nodes, each with a third of the slots.
fn cluster() -> [Node; 3] {
    let nodes = ["forward-a", "forward-b", "forward-c"].map(Node::new);
    for (node, (first, last)) in nodes.iter().zip(RANGES) {
        let line = format!("CLUSTER ADDSLOTSRANGE {first} {last}");
        assert_eq!(node.text(&line), "OK");
    }
    for node in &nodes[1..] {
        let line = format!(
            "CLUSTER MEET 127.0.0.1 {} {}",
            nodes[0].port, nodes[0].link_port
        );
        assert_eq!(node.text(&line), "OK");
    }
    await_ok(&nodes);
    nodes
}

fn await_ok(nodes: &[Node]) {
    for node in nodes {
        let patience = Patience::of(PATIENCE);
        loop {
            let info = node.text("CLUSTER INFO");
            if info.contains("cluster_known_nodes:3") && info.contains("cluster_state:ok") {
                break;
            }
            assert!(patience.lasts(), "{info}\n{}", node.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns a key in a slot of a node.
fn key_of(node: usize, number: usize) -> String {
    let (first, last) = RANGES[node];
    (0..)
        .map(|more| format!("key:{number}:{more}"))
        .find(|key| (first..=last).contains(&hash_slot::of(key.as_bytes())))
        .unwrap()
}

#[test]
fn a_plain_client_finds_all_keys_at_any_node() {
    let nodes = cluster();
    let mut client = nodes[1].plain();
    // The cluster looks like one server.
    assert!(text(&mut client, "INFO cluster").contains("cluster_enabled:0"));
    assert_eq!(
        text(&mut client, "CLUSTER MYID"),
        "ERR This instance has cluster support disabled"
    );
    assert!(nodes[1].text("INFO cluster").contains("cluster_enabled:1"));
    // Replies come in the order of the requests, whichever node answers.
    let keys: Vec<String> = (0..300).map(|number| format!("key:{number}")).collect();
    let sets: Vec<Vec<&str>> = keys.iter().map(|key| vec!["SET", key, key]).collect();
    let replies = client.pipeline(&sets).unwrap();
    assert!(
        replies
            .iter()
            .all(|it| *it == Value::Simple(b"OK".to_vec())),
        "{replies:?}"
    );
    for node in &nodes {
        let mut client = node.plain();
        let gets: Vec<Vec<&str>> = keys
            .iter()
            .flat_map(|key| [vec!["GET", key], vec!["PING", key]])
            .collect();
        let replies = client.pipeline(&gets).unwrap();
        for (number, pair) in replies.chunks(2).enumerate() {
            let expected = Value::Bulk(keys[number].clone().into_bytes());
            assert!(pair.iter().all(|it| *it == expected), "{pair:?}");
        }
        assert_eq!(text(&mut client, "DBSIZE"), "300");
        let all: BTreeSet<String> = list(&mut client, "KEYS *").into_iter().collect();
        assert_eq!(all, keys.iter().cloned().collect());
        assert!(text(&mut client, "RANDOMKEY").starts_with("key:"));
        let mut seen = BTreeSet::new();
        let mut cursor = "0".to_owned();
        loop {
            let Value::Array(parts) = ask(&mut client, &format!("SCAN {cursor} COUNT 20")) else {
                panic!("SCAN");
            };
            let [Value::Bulk(next), Value::Array(found)] = &parts[..] else {
                panic!("{parts:?}");
            };
            seen.extend(found.iter().cloned().map(shown));
            cursor = String::from_utf8(next.clone()).unwrap();
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen, all);
    }
}

#[test]
fn requests_about_several_nodes_are_put_together() {
    let nodes = cluster();
    let mut client = nodes[0].plain();
    let [a, b, c] = [0, 1, 2].map(|node| key_of(node, 1));
    for key in [&a, &b, &c] {
        assert_eq!(text(&mut client, &format!("SET {key} {key}")), "OK");
    }
    let values = list(&mut client, &format!("MGET {c} none {a} {b} {c}"));
    assert_eq!(values, [&c, "null", &a, &b, &c]);
    assert_eq!(text(&mut client, &format!("EXISTS {a} {b} {c} none")), "3");
    assert_eq!(text(&mut client, &format!("TOUCH {a} {b}")), "2");
    // A write must stay in one slot, unless it is to be split.
    let crosses = "CROSSSLOT Keys in request don't hash to the same slot";
    for line in [format!("DEL {a} {b}"), format!("MSET {a} 1 {b} 2")] {
        assert_eq!(text(&mut client, &line), crosses, "{line}");
    }
    assert_eq!(nodes[0].text("CONFIG SET forward-multi split"), "OK");
    assert_eq!(text(&mut client, &format!("MSET {a} 1 {b} 2 {c} 3")), "OK");
    let values = list(&mut client, &format!("MGET {a} {b} {c}"));
    assert_eq!(values, ["1", "2", "3"]);
    assert_eq!(text(&mut client, &format!("DEL {a} {b} none")), "2");
    assert_eq!(text(&mut client, &format!("RENAME {a} {b}")), crosses);
    assert_eq!(text(&mut client, &format!("MSETNX {a} 1 {b} 2")), crosses);
    // A script is loaded at all nodes, and runs where its keys are.
    let digest = text(
        &mut client,
        "SCRIPT LOAD \"return redis.call('GET', KEYS[1])\"",
    );
    assert_eq!(text(&mut client, &format!("EVALSHA {digest} 1 {c}")), "3");
    assert_eq!(text(&mut client, "FLUSHALL"), "OK");
    for node in &nodes {
        assert_eq!(node.text("DBSIZE"), "0");
    }
}

#[test]
fn a_transaction_runs_at_the_node_of_its_keys() {
    let nodes = cluster();
    let mut client = nodes[0].plain();
    for (node, there) in nodes.iter().enumerate() {
        let key = key_of(node, 2);
        for line in ["MULTI", &format!("INCR {key}"), "PING"] {
            let reply = text(&mut client, line);
            assert!(reply == "OK" || reply == "QUEUED", "{line}: {reply}");
        }
        assert_eq!(list(&mut client, "EXEC"), ["1", "PONG"]);
        // A key is watched at the node that owns it.
        for is_changed in [false, true] {
            assert_eq!(text(&mut client, &format!("WATCH {key}")), "OK");
            if is_changed {
                assert_eq!(there.text(&format!("SET {key} 7")), "OK");
            }
            assert_eq!(text(&mut client, "MULTI"), "OK");
            assert_eq!(text(&mut client, &format!("INCR {key}")), "QUEUED");
            match is_changed {
                false => assert_eq!(list(&mut client, "EXEC"), ["2"]),
                true => assert_eq!(ask(&mut client, "EXEC"), Value::NullArray),
            }
        }
        assert_eq!(text(&mut client, &format!("WATCH {key}")), "OK");
        assert_eq!(there.text(&format!("SET {key} 8")), "OK");
        assert_eq!(text(&mut client, "UNWATCH"), "OK");
        assert_eq!(text(&mut client, "MULTI"), "OK");
        assert_eq!(text(&mut client, &format!("INCR {key}")), "QUEUED");
        assert_eq!(list(&mut client, "EXEC"), ["9"]);
    }
    let (a, b) = (key_of(0, 3), key_of(1, 3));
    for line in ["MULTI", &format!("INCR {a}"), &format!("INCR {b}")] {
        text(&mut client, line);
    }
    assert!(text(&mut client, "EXEC").starts_with("CROSSSLOT"));
    assert_eq!(text(&mut client, &format!("WATCH {b}")), "OK");
    for line in ["MULTI", &format!("INCR {a}")] {
        text(&mut client, line);
    }
    assert!(text(&mut client, "EXEC").starts_with("CROSSSLOT"));
    assert_eq!(text(&mut client, "EXEC"), "ERR EXEC without MULTI");
    assert_eq!(text(&mut client, &format!("GET {a}")), "null");
}

#[test]
fn who_waits_for_a_key_of_another_node_is_served() {
    let nodes = cluster();
    for node in 0..3 {
        let key = key_of(node, 4);
        let mut client = nodes[0].plain();
        // Requests after it wait, too.
        let requests = [
            vec!["BLPOP".to_owned(), key.clone(), "0".to_owned()],
            vec!["GET".to_owned(), "other".to_owned()],
        ];
        for request in &requests {
            client.send(request).unwrap();
        }
        let patience = Patience::of(PATIENCE);
        while !nodes[node]
            .text("INFO clients")
            .contains("blocked_clients:1")
        {
            assert!(patience.lasts());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(nodes[node].text(&format!("RPUSH {key} x")), "1");
        let popped = client.receive().unwrap();
        let expected = [key.as_bytes(), b"x"].map(|text| Value::Bulk(text.to_vec()));
        assert_eq!(popped, Some(Value::Array(expected.to_vec())));
        assert_eq!(client.receive().unwrap(), Some(Value::Null));
        assert_eq!(text(&mut client, &format!("BLPOP {key} 0.01")), "null");
    }
    // A client that disconnects no longer waits.
    let mut client = nodes[0].plain();
    client.send(&["BLPOP", &key_of(2, 5), "0"]).unwrap();
    let blocked = |count: usize| {
        let line = format!("blocked_clients:{count}");
        let patience = Patience::of(PATIENCE);
        while !nodes[2].text("INFO clients").contains(&line) {
            assert!(patience.lasts());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    blocked(1);
    drop(client);
    blocked(0);
}

#[test]
fn a_client_says_that_it_forwards_and_who_it_is() {
    let nodes = cluster();
    let [own, other] = [0, 1].map(|node| key_of(node, 6));
    let mut client = nodes[0].client();
    assert!(text(&mut client, &format!("GET {other}")).starts_with("MOVED"));
    assert_eq!(text(&mut client, "CLIENT FORWARD ON"), "OK");
    assert_eq!(text(&mut client, &format!("SET {other} v")), "OK");
    assert_eq!(
        text(&mut client, "CLIENT TRACKING ON"),
        "ERR CLIENT TRACKING and CLIENT FORWARD cannot be used by one connection"
    );
    assert_eq!(text(&mut client, "CLIENT FORWARD OFF"), "OK");
    assert!(text(&mut client, &format!("GET {other}")).starts_with("MOVED"));
    assert_eq!(
        text(&mut client, "CLIENT FORWARD AS 0123"),
        "WRONGPASS the token is not known"
    );
    // The user is forwarded, and so is the protocol version.
    let line = "ACL SETUSER ann on >pw +@all ~key:*";
    assert_eq!(nodes[0].text(line), "OK");
    let mut client = nodes[0].plain();
    client.hello3().unwrap();
    assert_eq!(text(&mut client, "AUTH ann pw"), "OK");
    assert!(text(&mut client, "GET other").starts_with("NOPERM"));
    assert_eq!(text(&mut client, &format!("GET {other}")), "v");
    assert!(matches!(
        ask(&mut client, &format!("HGETALL {other}:none")),
        Value::Map(_)
    ));
    let clients = nodes[1].text("CLIENT LIST");
    assert!(clients.contains("user=ann"), "{clients}");
    // Back to the user with all rights.
    assert_eq!(text(&mut client, &format!("GET {own}")), "null");
    assert!(text(&mut client, "AUTH ann wrong").starts_with("WRONGPASS"));
    // A skipped reply is not sent.
    client.send(&["CLIENT", "REPLY", "SKIP"]).unwrap();
    client.send(&["GET", &other]).unwrap();
    assert_eq!(text(&mut client, "PING"), "PONG");
}

#[test]
fn slots_move_and_nobody_who_forwards_hears_of_it() {
    let nodes = cluster();
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        let mut client = node.plain();
        let stop = Arc::clone(&stop);
        writers.push(std::thread::spawn(move || {
            let keys: Vec<String> = (0..16).map(|key| format!("w:{number}:{key}")).collect();
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                count += 1;
                // The same key twice: its requests stay in order.
                let requests: Vec<Vec<&str>> = keys
                    .iter()
                    .flat_map(|key| [vec!["INCR", key], vec!["INCR", key]])
                    .collect();
                let replies = client.pipeline(&requests).unwrap();
                for pair in replies.chunks(2) {
                    let expected = [2 * count - 1, 2 * count].map(Value::Integer);
                    assert_eq!(pair, expected);
                }
            }
            count
        }));
    }
    let id = nodes[1].text("CLUSTER MYID");
    let back = nodes[0].text("CLUSTER MYID");
    for (from, to) in [(0, &id), (1, &back), (0, &id)] {
        let line = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 5460 NODE {to}");
        let patience = Patience::of(PATIENCE);
        // The other node may not know yet that it owns the slots.
        while nodes[from].text(&line) != "OK" {
            assert!(patience.lasts(), "{}", nodes[from].log());
            std::thread::sleep(Duration::from_millis(5));
        }
        while nodes[from].text("CLUSTER SLOTS").is_empty()
            || nodes[from].text("CLUSTER INFO").is_empty()
            || !nodes[from]
                .text("CLUSTER NODES")
                .lines()
                .any(|line| line.starts_with(to.as_str()) && line.contains(" 0-"))
        {
            assert!(patience.lasts(), "{}", nodes[from].log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.join().unwrap() > 0);
    }
}

#[test]
fn clients_share_a_connection_for_what_is_quickly_done() {
    let nodes = cluster();
    let key = key_of(2, 7);
    let connections = |nodes: &[Node; 3]| {
        let told = nodes[2].text("CLIENT LIST TYPE normal");
        told.lines().count()
    };
    let before = connections(&nodes);
    let mut clients: Vec<Client> = (0..40).map(|_| nodes[0].plain()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(text(client, &format!("SET {key} {number}")), "OK");
        assert_eq!(text(client, &format!("GET {key}")), number.to_string());
    }
    let shared = connections(&nodes) - before;
    assert!((1..20).contains(&shared), "{shared}");
    // Each client is in its own database. One of them uses a connection of its own, in the order of
    // its requests.
    let mut other = nodes[0].plain();
    let words = [
        vec!["SET", &key, "zero"],
        vec!["SELECT", "1"],
        vec!["RPUSH", &key, "a", "b"],
        vec!["LRANGE", &key, "0", "-1"],
        vec!["DEL", &key],
        vec!["LRANGE", &key, "0", "-1"],
        vec!["SELECT", "0"],
        vec!["GET", &key],
    ];
    let replies = other.pipeline(&words).unwrap();
    let list = ["a", "b"].map(|it| Value::Bulk(it.as_bytes().to_vec()));
    assert_eq!(replies[3], Value::Array(list.to_vec()));
    assert_eq!(replies[4..6], [Value::Integer(1), Value::Array(vec![])]);
    assert_eq!(replies[7], Value::Bulk(b"zero".to_vec()));
    for client in &mut clients {
        assert_eq!(text(client, &format!("GET {key}")), "zero");
    }
}

#[test]
fn what_is_sent_late_is_about_the_database_of_its_time() {
    let mut nodes = cluster();
    let key = key_of(2, 7);
    let mut client = nodes[0].plain();
    assert_eq!(text(&mut client, &format!("SET {key} zero")), "OK");
    assert_eq!(nodes[0].text("CONFIG SET forward-timeout 60000"), "OK");
    nodes[2].server = None;
    let asked = std::thread::spawn(move || {
        client.pipeline(&[vec!["GET", &key], vec!["SELECT", "1"], vec!["GET", &key]])
    });
    std::thread::sleep(Duration::from_millis(100));
    nodes[2].start();
    let replies = asked.join().unwrap().unwrap();
    assert_eq!(replies[0], Value::Bulk(b"zero".to_vec()), "{replies:?}");
    assert_eq!(replies[2], Value::Null);
}

/// Shortens the timeout. Call this after forwarding has worked once, because the first reply is
/// slow on a busy machine.
fn shorten_forward_timeout(nodes: &[Node]) {
    for node in nodes {
        assert_eq!(node.text("CONFIG SET forward-timeout 300"), "OK");
    }
}

#[test]
fn a_node_that_is_lost_is_an_error_for_its_keys_and_no_others() {
    let mut nodes = cluster();
    let line = "CONFIG SET cluster-require-full-coverage no";
    assert_eq!(nodes[0].text(line), "OK");
    let mut client = nodes[0].plain();
    let [own, lost] = [0, 2].map(|node| key_of(node, 7));
    assert_eq!(text(&mut client, &format!("SET {lost} v")), "OK");
    assert_eq!(text(&mut client, &format!("SET {own} v")), "OK");
    shorten_forward_timeout(&nodes);
    nodes[2].server = None;
    assert!(text(&mut client, &format!("GET {lost}")).starts_with("CLUSTERDOWN"));
    assert_eq!(text(&mut client, &format!("GET {own}")), "v");
    nodes[2].start();
    let patience = Patience::of(PATIENCE);
    while text(&mut client, &format!("GET {lost}")) != "v" {
        assert!(patience.lasts(), "{}", nodes[2].log());
    }
}

#[test]
fn a_node_that_stands_still_is_an_error_in_time_and_its_write_is_done_once() {
    let nodes = cluster();
    let mut client = nodes[0].plain();
    let [own, slow] = [0, 2].map(|node| key_of(node, 7));
    assert_eq!(text(&mut client, &format!("INCR {slow}")), "1");
    shorten_forward_timeout(&nodes);
    nodes[2].signal("-STOP");
    let refused = text(&mut client, &format!("INCR {slow}"));
    nodes[2].signal("-CONT");
    assert!(
        refused.starts_with("CLUSTERDOWN") || refused.starts_with("ERR"),
        "{refused}"
    );
    assert_eq!(text(&mut client, &format!("SET {own} v")), "OK");
    // The command ran once or not at all: a command that may have run is never sent again.
    let patience = Patience::of(PATIENCE);
    let mut count = text(&mut client, &format!("GET {slow}"));
    while count != "1" && count != "2" {
        assert!(patience.lasts(), "{count}\n{}", nodes[2].log());
        count = text(&mut client, &format!("GET {slow}"));
    }
}
