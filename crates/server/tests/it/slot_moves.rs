//! Tests of hash slots that move with their keys from one node of a cluster to another, while
//! clients read and write them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, TemporaryDirectory, free_port};

use crate::limits::eventually;

const PATIENCE: Duration = Duration::from_secs(120);

struct Node {
    server: Option<Server>,
    directory: TemporaryDirectory,
    port: u16,
    link_port: u16,
    args: &'static [&'static str],
}

impl Node {
    fn new(name: &str, args: &'static [&'static str]) -> Self {
        let mut node = Self {
            args,
            server: None,
            directory: TemporaryDirectory::new(name).unwrap(),
            port: free_port().unwrap(),
            link_port: free_port().unwrap(),
        };
        node.start();
        node
    }

    fn start(&mut self) {
        let (port, link_port) = (self.port.to_string(), self.link_port.to_string());
        let dir = self.directory.to_str().unwrap().to_owned();
        let args = [
            "--cluster-enabled",
            "yes",
            "--cluster-port",
            &link_port,
            "--port",
            &port,
            "--dir",
            &dir,
            // Long enough that a busy machine fails no move.
            "--cluster-migration-pause-max",
            "30000",
        ];
        let builder = ServerBuilder::iolite().args(&args).args(self.args);
        self.server = Some(builder.start().unwrap());
    }

    fn kill(&mut self) {
        self.server = None;
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    fn client(&self) -> Client {
        self.server.as_ref().unwrap().client().unwrap()
    }

    fn ask(&self, line: &str) -> Value {
        ask(&mut self.client(), line)
    }

    fn text(&self, line: &str) -> String {
        match self.ask(line) {
            Value::Error(text) | Value::Simple(text) | Value::Bulk(text) => {
                String::from_utf8_lossy(&text).into_owned()
            }
            other => format!("{other:?}"),
        }
    }

    fn number(&self, line: &str) -> i64 {
        match self.ask(line) {
            Value::Integer(number) => number,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn log(&self) -> String {
        self.server.as_ref().unwrap().log()
    }

    /// Starts a move of all slots of this node to another one, and waits for nothing.
    fn begin_to_give_all(&self, to: &Node) {
        let id = to.text("CLUSTER MYID");
        let line = format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 16383 NODE {id}");
        assert_eq!(self.text(&line), "OK");
    }

    /// As `begin_to_give_all`, and waits until the slots have moved.
    fn give_all(&self, to: &Node) {
        self.begin_to_give_all(to);
        self.await_end("success");
    }

    /// Waits until the last started move has ended.
    fn await_end(&self, state: &str) {
        let patience = Patience::of(PATIENCE);
        loop {
            let now = self.last_move("state");
            if now == state {
                return;
            }
            let is_over = ["success", "failed", "cancelled"].contains(&now.as_str());
            assert!(
                !is_over,
                "{now}: {}\n{}",
                self.last_move("message"),
                self.log()
            );
            assert!(patience.lasts(), "{now}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns a field of the last move that was started here.
    fn last_move(&self, field: &str) -> String {
        let Value::Array(moves) = self.ask("CLUSTER GETSLOTMIGRATIONS") else {
            panic!("no moves");
        };
        let mut fields = moves.into_iter().filter_map(|one| match one {
            Value::Array(fields) => Some(fields),
            _ => None,
        });
        let is_export = |fields: &Vec<Value>| fields.contains(&Value::Bulk(b"EXPORT".to_vec()));
        let last = fields.rfind(is_export).unwrap();
        let at = last
            .iter()
            .position(|value| *value == Value::Bulk(field.into()));
        match &last[at.unwrap() + 1] {
            Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
            other => format!("{other:?}"),
        }
    }

    /// Waits until clients see this many keys.
    fn await_records(&self, count: i64) {
        let patience = Patience::of(PATIENCE);
        loop {
            let keys = self.number("DBSIZE");
            if keys == count {
                return;
            }
            assert!(patience.lasts(), "{keys}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn ask(client: &mut Client, line: &str) -> Value {
    let words = protocol::split_line(line.as_bytes()).unwrap();
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    client.command(&words).unwrap()
}

/// Starts two nodes in one cluster. The first has all slots.
fn cluster() -> [Node; 2] {
    cluster_with(&[])
}

fn cluster_with(args: &'static [&'static str]) -> [Node; 2] {
    let nodes = [Node::new("slots-a", args), Node::new("slots-b", args)];
    let [a, b] = &nodes;
    assert_eq!(a.text("CLUSTER ADDSLOTSRANGE 0 16383"), "OK");
    let line = format!("CLUSTER MEET 127.0.0.1 {} {}", a.port, a.link_port);
    assert_eq!(b.text(&line), "OK");
    for node in &nodes {
        let patience = Patience::of(PATIENCE);
        while !node.text("CLUSTER INFO").contains("cluster_known_nodes:2")
            || !node.text("INFO replication").contains("role:master")
            || !node.text("CLUSTER INFO").contains("cluster_state:ok")
        {
            assert!(patience.lasts(), "{}", node.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    nodes
}

/// A client that follows redirections, and retries while two nodes redirect to each other.
struct Follower {
    clients: BTreeMap<u16, Client>,
    at: u16,
    ports: [u16; 2],
    moved: u64,
}

impl Follower {
    fn new(nodes: &[Node; 2]) -> Self {
        Self {
            clients: BTreeMap::new(),
            at: nodes[0].port,
            ports: nodes.each_ref().map(|node| node.port),
            moved: 0,
        }
    }

    /// Returns the reply, or `None` if a node went away during the request: then it is unknown
    /// whether the request was done.
    fn ask(&mut self, words: &[&[u8]], stop: &AtomicBool) -> Option<Value> {
        let mut is_unknown = false;
        loop {
            if is_unknown || stop.load(Ordering::Relaxed) {
                return None;
            }
            let address = SocketAddr::from(([127, 0, 0, 1], self.at));
            let client = match self.clients.entry(self.at) {
                std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => {
                    match Client::connect_tcp(address) {
                        Ok(client) => place.insert(client),
                        Err(_) => {
                            self.other();
                            continue;
                        }
                    }
                }
            };
            match client.command(words) {
                Ok(Value::Error(text)) => {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    if let Some(moved) = text.strip_prefix("MOVED ") {
                        let port = moved.rsplit_once(':').unwrap().1;
                        self.at = port.parse().unwrap();
                        self.moved += 1;
                    } else if text.starts_with("CLUSTERDOWN")
                        || text.starts_with("LOADING")
                        || text.starts_with("READONLY")
                        || text.starts_with("MASTERDOWN")
                    {
                        std::thread::sleep(Duration::from_millis(5));
                    } else {
                        panic!("{text}");
                    }
                }
                Ok(value) => return Some(value),
                Err(_) => {
                    self.clients.remove(&self.at);
                    self.other();
                    is_unknown = true;
                }
            }
        }
    }

    fn other(&mut self) {
        std::thread::sleep(Duration::from_millis(5));
        self.at = match self.at == self.ports[0] {
            true => self.ports[1],
            false => self.ports[0],
        };
    }
}

/// The knowledge of one writer: the minimum and the maximum that each of its keys may hold.
type Ledger = BTreeMap<String, (i64, i64)>;

struct Writers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<(Ledger, u64)>>,
}

/// Increments counters and appends to lists, one element per count.
fn write(nodes: &[Node; 2], writers: usize, keys: usize) -> Writers {
    let stop = Arc::<AtomicBool>::default();
    let threads = (0..writers).map(|writer| {
        let (stop, mut follower) = (Arc::clone(&stop), Follower::new(nodes));
        std::thread::spawn(move || {
            let mut ledger = Ledger::new();
            let mut at = 0_usize;
            while !stop.load(Ordering::Relaxed) {
                at += 1;
                let is_list = at.is_multiple_of(3);
                let kind = if is_list { "list" } else { "count" };
                let key = format!("{kind}:{writer}:{}", at % keys);
                let entry = ledger.entry(key.clone()).or_default();
                entry.1 += 1;
                let answer = if is_list {
                    let element = entry.1.to_string();
                    follower.ask(&[b"RPUSH", key.as_bytes(), element.as_bytes()], &stop)
                } else {
                    follower.ask(&[b"INCR", key.as_bytes()], &stop)
                };
                match answer {
                    Some(Value::Integer(now)) => {
                        assert!(
                            (entry.0 + 1..=entry.1).contains(&now),
                            "{key}: {now}, and it is {entry:?}"
                        );
                        *entry = (now, now);
                    }
                    None => {}
                    Some(other) => panic!("{key}: {other:?}"),
                }
            }
            (ledger, follower.moved)
        })
    });
    Writers {
        threads: threads.collect(),
        stop,
    }
}

impl Writers {
    fn end(self) -> (Ledger, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = (Ledger::new(), 0);
        for thread in self.threads {
            let (ledger, moved) = thread.join().unwrap();
            all.0.extend(ledger);
            all.1 += moved;
        }
        all
    }
}

/// Asserts that every key holds what was acknowledged.
fn check(nodes: &[Node; 2], ledger: &Ledger) {
    let go_on = AtomicBool::new(false);
    let mut follower = Follower::new(nodes);
    for (key, (least, most)) in ledger {
        let is_list = key.starts_with("list");
        let command: &[u8] = if is_list { b"LLEN" } else { b"GET" };
        let value = follower.ask(&[command, key.as_bytes()], &go_on).unwrap();
        let held = match value {
            Value::Integer(number) => number,
            Value::Bulk(text) => String::from_utf8_lossy(&text).parse().unwrap(),
            Value::Null => 0,
            other => panic!("{key}: {other:?}"),
        };
        assert!(
            (*least..=*most).contains(&held),
            "{key}: {held}, acknowledged {least}, sent {most}"
        );
    }
}

/// The commands that make values of every kind.
const FIXED: &[&str] = &[
    "SET text hello",
    "SET number 12345",
    "SET due x PX 10000000",
    "RPUSH fixed a b c 1 2 3",
    "SADD set x y z",
    "SADD ints 1 2 3",
    "ZADD sorted 1 a 2.5 b",
    "HSET hash f v g w",
    "HSET fields a 1 b 2",
    "HPEXPIRE fields 10000000 FIELDS 1 a",
    "XADD stream 1-1 f v",
    "XADD stream 2-1 f w",
    "XGROUP CREATE stream group 0",
    "XREADGROUP GROUP group me COUNT 1 STREAMS stream >",
    "PFADD hll a b c",
    "SETBIT bits 1000 1",
    "GEOADD geo 13.361389 38.115556 Palermo",
    "SETWITHETAG tagged v",
];

fn fill(node: &Node, keys: usize) {
    let mut client = node.client();
    for line in FIXED {
        let answer = ask(&mut client, line);
        assert!(!matches!(answer, Value::Error(_)), "{line}: {answer:?}");
    }
    let long = "l".repeat(300_000);
    ask(&mut client, &format!("SET long {long}"));
    for at in 0..20_000 / 100 {
        let fields: Vec<String> = (0..100)
            .map(|one| format!("f{} v{one}", at * 100 + one))
            .collect();
        ask(&mut client, &format!("HSET large {}", fields.join(" ")));
    }
    let requests: Vec<[String; 3]> = (0..keys)
        .map(|at| ["SET".into(), format!("filled:{at}"), format!("value-{at}")])
        .collect();
    for some in requests.chunks(1000) {
        client.pipeline(some).unwrap();
    }
}

/// Returns the names of all fixed keys.
fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = FIXED
        .iter()
        .filter(|line| !line.starts_with("XGROUP") && !line.starts_with("XREADGROUP"))
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    names.extend(["long", "large"]);
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns digests of the fixed keys, and the deadline of the one that has one.
fn digests(node: &Node) -> Vec<String> {
    let mut client = node.client();
    let mut all: Vec<String> = names()
        .iter()
        .map(|name| {
            format!(
                "{name} {:?}",
                ask(&mut client, &format!("DEBUG DIGEST-VALUE {name}"))
            )
        })
        .collect();
    for line in [
        "PEXPIRETIME due",
        "HPEXPIRETIME fields FIELDS 1 a",
        "XPENDING stream group",
        "GETWITHETAG tagged",
    ] {
        all.push(format!("{line} {:?}", ask(&mut client, line)));
    }
    all
}

#[test]
fn all_keys_of_every_type_move_under_writes_and_nothing_acknowledged_is_lost() {
    let nodes = cluster();
    let [a, b] = &nodes;
    fill(a, 20_000);
    let before = digests(a);
    let writers = write(&nodes, 3, 300);
    std::thread::sleep(Duration::from_millis(200));
    a.give_all(b);
    assert_eq!(digests(b), before);
    assert_eq!(a.number("DBSIZE"), 0);
    b.give_all(a);
    a.give_all(b);
    let (ledger, moved) = writers.end();
    assert!(moved > 0 && ledger.len() > 100);
    check(&nodes, &ledger);
    assert_eq!(digests(b), before);
    let fixed = i64::try_from(names().len() + 20_000 + ledger.len()).unwrap();
    assert_eq!((a.number("DBSIZE"), b.number("DBSIZE")), (0, fixed));
}

#[test]
fn what_moved_is_there_after_a_start_and_nothing_else() {
    let mut nodes = cluster();
    fill(&nodes[0], 2_000);
    let before = digests(&nodes[0]);
    nodes[0].give_all(&nodes[1]);
    for node in &mut nodes {
        node.kill();
        node.start();
    }
    let [a, b] = &nodes;
    let patience = Patience::of(PATIENCE);
    while b.text("GET text") != "hello" {
        assert!(patience.lasts(), "{}\n{}", b.text("GET text"), b.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(digests(b), before);
    assert_eq!(a.number("DBSIZE"), 0);
    assert!(a.text("GET text").starts_with("MOVED"));
}

#[test]
fn a_move_that_is_cancelled_leaves_everything_where_it_was() {
    let nodes = cluster();
    let [a, b] = &nodes;
    fill(a, 50_000);
    let writers = write(&nodes, 1, 100);
    for _ in 0..5 {
        a.begin_to_give_all(b);
        let cancelled = a.text("CLUSTER CANCELSLOTMIGRATIONS");
        assert_eq!(cancelled, "OK");
        a.await_end("cancelled");
        assert_eq!(b.number("DBSIZE"), 0);
    }
    assert!(a.text("CLUSTER CANCELSLOTMIGRATIONS").starts_with("ERR"));
    let (ledger, moved) = writers.end();
    assert_eq!(moved, 0);
    check(&nodes, &ledger);
    // The remains of the failed copy hinder nothing.
    a.give_all(b);
    check(&nodes, &ledger);
}

#[test]
fn a_target_that_is_killed_takes_nothing_with_it() {
    let mut nodes = cluster();
    fill(&nodes[0], 50_000);
    let writers = write(&nodes, 2, 100);
    nodes[0].begin_to_give_all(&nodes[1]);
    await_copying(&nodes[0]);
    nodes[1].kill();
    std::thread::sleep(Duration::from_millis(300));
    nodes[1].start();
    // The job continues by itself.
    nodes[0].await_end("success");
    let (ledger, _) = writers.end();
    check(&nodes, &ledger);
    assert_eq!(nodes[0].number("DBSIZE"), 0);
}

#[test]
fn a_source_that_is_killed_has_its_slots_or_the_target_has_them() {
    for ms in [0, 30, 100] {
        let mut nodes = cluster();
        fill(&nodes[0], 20_000);
        let before = digests(&nodes[0]);
        let writers = write(&nodes, 2, 100);
        nodes[0].begin_to_give_all(&nodes[1]);
        await_copying(&nodes[0]);
        std::thread::sleep(Duration::from_millis(ms));
        nodes[0].kill();
        nodes[0].start();
        std::thread::sleep(Duration::from_millis(500));
        let (ledger, _) = writers.end();
        check(&nodes, &ledger);
        let all = i64::try_from(names().len() + 20_000 + ledger.len()).unwrap();
        let owner = nodes
            .iter()
            .position(|node| !node.text("GET text").starts_with("MOVED"));
        let owner = owner.unwrap();
        assert_eq!(digests(&nodes[owner]), before);
        nodes[1 - owner].await_records(0);
        // A key that was never acknowledged may exist or not.
        let held = nodes[owner].number("DBSIZE");
        let unknown = ledger.values().filter(|(least, _)| *least == 0).count();
        let least = all - i64::try_from(unknown).unwrap();
        assert!(
            (least..=all).contains(&held),
            "{held} of {all}, {unknown} unknown"
        );
        // The slots can still move after that.
        nodes[owner].give_all(&nodes[1 - owner]);
        check(&nodes, &ledger);
    }
}

fn await_copying(node: &Node) {
    let patience = Patience::of(PATIENCE);
    while node.last_move("state") == "connecting" {
        assert!(patience.lasts(), "{}", node.log());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn all_moves_succeed_under_writes() {
    let moves = std::env::var("SLOT_MOVES").map_or(6, |text| text.parse().unwrap());
    let nodes = cluster();
    let writers = write(&nodes, 4, 1_000);
    for at in 0..moves {
        nodes[at % 2].give_all(&nodes[1 - at % 2]);
    }
    let (ledger, moved) = writers.end();
    assert!(moved >= moves as u64);
    check(&nodes, &ledger);
}

#[test]
fn what_is_not_this_nodes_is_not_shown() {
    let nodes = cluster();
    let [a, b] = &nodes;
    fill(a, 1_000);
    let id = b.text("CLUSTER MYID");
    // The slot of `text` stays.
    let slot = a.number("CLUSTER KEYSLOT text");
    let line = format!(
        "CLUSTER MIGRATESLOTS SLOTSRANGE 0 {} {} 16383 NODE {id}",
        slot - 1,
        slot + 1
    );
    assert_eq!(a.text(&line), "OK");
    a.await_end("success");
    assert_eq!(a.number("DBSIZE"), 1);
    assert_eq!(
        a.ask("KEYS *"),
        Value::Array(vec![Value::Bulk(b"text".to_vec())])
    );
    assert_eq!(a.text("RANDOMKEY"), "text");
    assert_eq!(a.number("CLUSTER COUNTKEYSINSLOT 0"), 0);
    assert!(a.text("GET text").starts_with("hello"));
    assert!(a.text("GET long").starts_with("MOVED"));
}

#[test]
fn the_old_way_to_move_a_slot_works() {
    let nodes = cluster();
    let [a, b] = &nodes;
    fill(a, 1_000);
    let slot = a.number("CLUSTER KEYSLOT large");
    let [id_a, id_b] = nodes.each_ref().map(|node| node.text("CLUSTER MYID"));
    assert_eq!(
        b.text(&format!("CLUSTER SETSLOT {slot} IMPORTING {id_a}")),
        "OK"
    );
    assert_eq!(
        a.text(&format!("CLUSTER SETSLOT {slot} MIGRATING {id_b}")),
        "OK"
    );
    assert_eq!(
        a.ask(&format!("CLUSTER GETKEYSINSLOT {slot} 10")),
        Value::Array(Vec::new())
    );
    for node in [b, a] {
        assert_eq!(
            node.text(&format!("CLUSTER SETSLOT {slot} NODE {id_b}")),
            "OK"
        );
    }
    assert_eq!(b.number("HLEN large"), 20_000);
    assert!(a.text("HLEN large").starts_with("MOVED"));
    assert_eq!(b.number("DBSIZE"), 1);
}

/// A client that migrates keys one by one finds nothing left to migrate, both before the move has
/// ended and after.
#[test]
fn keys_that_are_carried_over_as_their_slot_moves_are_there_already() {
    let nodes = cluster();
    let [a, b] = &nodes;
    fill(a, 1_000);
    let slot = a.number("CLUSTER KEYSLOT large");
    let [id_a, id_b] = nodes.each_ref().map(|node| node.text("CLUSTER MYID"));
    b.text(&format!("CLUSTER SETSLOT {slot} IMPORTING {id_a}"));
    a.text(&format!("CLUSTER SETSLOT {slot} MIGRATING {id_b}"));
    let port = b.port;
    for keys in ["large 0 5000", "\"\" 0 5000 REPLACE KEYS large {large}2"] {
        let migrate = format!("MIGRATE 127.0.0.1 {port} {keys}");
        assert_eq!(a.text(&migrate), "NOKEY");
    }
    assert_eq!(b.number("HLEN large"), 20_000);
    // Only at that node.
    let elsewhere = format!("MIGRATE 127.0.0.1 {} large 0 5000", a.port);
    assert!(a.text(&elsewhere).starts_with("MOVED"));
    for node in [b, a] {
        node.text(&format!("CLUSTER SETSLOT {slot} NODE {id_b}"));
    }
}

#[test]
fn the_target_may_ask_for_slots() {
    let nodes = cluster();
    let [a, b] = &nodes;
    fill(a, 1_000);
    let id = b.text("CLUSTER MIGRATION IMPORT 0 8191");
    assert_eq!(id.len(), 40, "{id}");
    let patience = Patience::of(PATIENCE);
    let completed = Value::Bulk(b"completed".to_vec());
    let is_completed = |moves: Value| match moves {
        Value::Array(moves) => {
            matches!(&moves[..], [Value::Array(one)] if one.contains(&completed))
        }
        _ => false,
    };
    while !is_completed(b.ask(&format!("CLUSTER MIGRATION STATUS ID {id}"))) {
        assert!(patience.lasts(), "{}", b.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    let sum = a.number("DBSIZE") + b.number("DBSIZE");
    assert_eq!(sum, i64::try_from(names().len() + 1_000).unwrap());
    assert!(b.number("DBSIZE") > 100);
    assert_eq!(b.number("CLUSTER MIGRATION CANCEL ALL"), 0);
    let error = b.text("CLUSTER MIGRATION IMPORT 0 0");
    assert!(error.starts_with("ERR this node has the slots"), "{error}");
    assert!(b.address() != a.address());
}

#[test]
fn a_move_that_was_asked_for_has_not_failed_while_it_is_tried_again() {
    let nodes = cluster();
    let [a, b] = &nodes;
    fill(a, 50_000);
    let id = b.text("CLUSTER MIGRATION IMPORT 0 16383");
    let line = format!("CLUSTER MIGRATION STATUS ID {id}");
    let has = |state: &str| match b.ask(&line) {
        Value::Array(moves) => {
            let state = Value::Bulk(state.into());
            matches!(&moves[..], [Value::Array(one)] if one.contains(&state))
        }
        _ => false,
    };
    let patience = Patience::of(PATIENCE);
    while !has("send-bulk-and-stream") && !has("completed") {
        assert!(patience.lasts(), "{}", b.log());
        std::thread::sleep(Duration::from_millis(2));
    }
    // The attempt fails, unless it has already ended.
    a.ask("FLUSHALL");
    while !has("completed") {
        assert!(!has("failed"), "{}", b.log());
        assert!(patience.lasts(), "{}", b.log());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn who_is_subscribed_to_a_channel_of_a_slot_that_moves_is_so_no_more() {
    let nodes = cluster();
    let [a, b] = &nodes;
    let text = |word: &str| Value::Bulk(word.into());
    let news = |kind: &str, count| {
        Some(Value::Array(vec![
            text(kind),
            text("news"),
            Value::Integer(count),
        ]))
    };
    let mut subscriber = a.client();
    subscriber.send(&["SSUBSCRIBE", "news"]).unwrap();
    assert_eq!(subscriber.receive().unwrap(), news("ssubscribe", 1));
    // A plain channel has no slot, so its subscription stays.
    let mut listener = a.client();
    listener.send(&["SUBSCRIBE", "news"]).unwrap();
    assert_eq!(listener.receive().unwrap(), news("subscribe", 1));
    assert_eq!(a.number("SPUBLISH news before"), 1);
    a.give_all(b);
    let before = ["smessage", "news", "before"].map(text);
    assert_eq!(
        subscriber.receive().unwrap(),
        Some(Value::Array(before.to_vec()))
    );
    assert_eq!(subscriber.receive().unwrap(), news("sunsubscribe", 0));
    // The client may send any command again.
    let reply = ask(&mut subscriber, "SSUBSCRIBE news");
    assert!(matches!(reply, Value::Error(text) if text.starts_with(b"MOVED ")));
    assert_eq!(b.number("PUBLISH news all"), 0);
    let all = ["message", "news", "all"].map(text);
    assert_eq!(
        listener.receive().unwrap(),
        Some(Value::Array(all.to_vec()))
    );
}

#[test]
fn who_waits_for_a_key_that_moves_is_told_where_it_is() {
    let nodes = cluster();
    let [a, b] = &nodes;
    let patience = Patience::of(PATIENCE);
    loop {
        let mut waiting = a.client();
        let words: [&[u8]; 3] = [b"BLPOP", b"nobody", b"0"];
        waiting.send(&words).unwrap();
        while !a.text("INFO clients").contains("blocked_clients:1") {
            assert!(patience.lasts());
            std::thread::sleep(Duration::from_millis(2));
        }
        a.give_all(b);
        let Some(Value::Error(text)) = waiting.receive().unwrap() else {
            panic!("no error");
        };
        let is_down = text.starts_with(b"CLUSTERDOWN");
        if !is_down {
            assert!(text.starts_with(b"MOVED"), "{}", text.escape_ascii());
            break;
        }
        // The machine was paused for longer than a lease lasts.
        assert!(patience.lasts());
        b.give_all(a);
    }
}

/// Arguments with which every value leaves memory as soon as it was used.
const ALL_COLD: &[&str] = &[
    "--tier-path",
    ".",
    "--tier-demote-at",
    "0",
    "--tier-min-value",
    "1",
];

#[test]
fn keys_whose_values_are_out_of_memory_move_under_writes_and_are_counted() {
    let mut nodes = cluster_with(ALL_COLD);
    fill(&nodes[0], 2_000);
    let before = digests(&nodes[0]);
    assert_eq!(nodes[0].text("OBJECT TIER long"), "ssd");
    let slot = nodes[0].number("CLUSTER KEYSLOT large");
    let count = format!("CLUSTER COUNTKEYSINSLOT {slot}");
    let in_slot = nodes[0].number(&count);
    assert!(in_slot > 0);
    let writers = write(&nodes, 2, 100);
    nodes[0].give_all(&nodes[1]);
    nodes[1].give_all(&nodes[0]);
    nodes[0].give_all(&nodes[1]);
    let (ledger, moved) = writers.end();
    assert!(moved > 0 && ledger.len() > 30);
    check(&nodes, &ledger);
    assert_eq!(digests(&nodes[1]), before);
    // The writers' reads demoted values here, too.
    assert!(!nodes[1].text("INFO tier").contains("tier_keys:0\r\n"));
    assert_eq!(nodes[1].number(&count), in_slot);
    assert_eq!(nodes[0].number(&count), 0);
    assert_eq!(nodes[0].number("DBSIZE"), 0);
    // In 2 of 168 runs, the count was 3 or 4 for less than half a second after the last key had
    // moved.
    eventually("nothing is counted in the tier", || {
        nodes[0].text("INFO tier").contains("tier_keys:0\r\n")
    });
    // The moved keys survive a restart.
    for node in &mut nodes {
        node.kill();
        node.start();
    }
    let patience = Patience::of(PATIENCE);
    while nodes[1].text("GET text") != "hello" {
        assert!(patience.lasts(), "{}", nodes[1].log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let all = i64::try_from(names().len() + 2_000 + ledger.len()).unwrap();
    assert_eq!(nodes[1].number("DBSIZE"), all);
    assert_eq!(digests(&nodes[1]), before);
}
