//! Tests of migrations into clusters and out of them, killed at any point, while clients write to
//! the source: at the end, the target has exactly the data that the source serves.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use base::hash_slot;
use base::random::Prng;
use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{
    Server, ServerBuilder, TemporaryDirectory, free_port, iolite_program, oracle_program,
};

use crate::limits::eventually;
use crate::tools::tool;

/// A server that clients write to, or the nodes of a cluster.
struct Fleet(Vec<Server>);

const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

impl Fleet {
    /// Starts a single server.
    fn alone(builder: ServerBuilder) -> Self {
        Self(vec![builder.args(&DEBUG).tcp().start().unwrap()])
    }

    /// Starts nodes that share all hash slots.
    fn cluster(builder: fn() -> ServerBuilder, count: usize) -> Self {
        let start = |link_port: &u16| {
            let link_port = link_port.to_string();
            let args = ["--cluster-enabled", "yes", "--cluster-port", &link_port];
            let builder = builder().args(&args).args(&DEBUG);
            builder.tcp().start().unwrap()
        };
        let link_ports: Vec<u16> = (0..count).map(|_| free_port().unwrap()).collect();
        let fleet = Self(link_ports.iter().map(start).collect());
        let share = 16_384 / count;
        for (at, server) in fleet.0.iter().enumerate() {
            let last = if at + 1 == count {
                16_384
            } else {
                (at + 1) * share
            };
            let (first, last) = ((at * share).to_string(), (last - 1).to_string());
            let owned = text(server, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            assert_eq!(owned, "OK");
        }
        let (port, link_port) = (fleet.port(0).to_string(), link_ports[0].to_string());
        for server in &fleet.0[1..] {
            let met = ["CLUSTER", "MEET", "127.0.0.1", &port, &link_port];
            assert_eq!(text(server, &met), "OK");
        }
        eventually("all slots are served by all", || fleet.is_whole());
        fleet
    }

    fn is_whole(&self) -> bool {
        let owners = |server: &Server| {
            let Value::Array(ranges) = ask(server, &["CLUSTER", "SLOTS"]) else {
                return 0;
            };
            ranges.len()
        };
        self.0.iter().all(|server| {
            let info = text(server, &["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && owners(server) == self.0.len()
        })
    }

    fn port(&self, at: usize) -> u16 {
        self.0[at].address().unwrap().port()
    }

    fn place(&self) -> String {
        format!("127.0.0.1:{}", self.port(0))
    }

    /// Returns one digest of the data of all servers. Each key counts once, wherever it is. The
    /// digest of each server includes the numbers of databases that have keys, which cancel out
    /// unless the number of servers is odd.
    fn digest(&self) -> Vec<u8> {
        let mut sum = vec![0; 20];
        for server in &self.0 {
            let digest = text(server, &["DEBUG", "DIGEST"]);
            for (at, byte) in sum.iter_mut().enumerate() {
                *byte ^= u8::from_str_radix(&digest[2 * at..2 * at + 2], 16).unwrap();
            }
        }
        sum
    }

    fn keys(&self) -> i64 {
        let keys = |server: &Server| match ask(server, &["DBSIZE"]) {
            Value::Integer(keys) => keys,
            other => panic!("{other:?}"),
        };
        self.0.iter().map(keys).sum()
    }

    /// Writes until it is stopped. Stopping returns the number of requests.
    fn written_to(&self, seed: u64, keys: u64) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let ports: Vec<u16> = (0..self.0.len()).map(|at| self.port(at)).collect();
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let mut random = Prng::seeded(seed);
                let mut links = Links::new(ports);
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    let words = request(&mut random, keys);
                    links.ask(&words);
                    count += 1;
                    // Slower than the copying on a busy machine.
                    if count % 20 == 0 {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                count
            }
        });
        Writer { stop, thread }
    }
}

struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Writer {
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Returns a write of any kind to one of a few keys, so that keys come and go.
fn request(random: &mut Prng, keys: u64) -> Vec<String> {
    let key = random.below(keys);
    let number = random.below(1_000_000);
    let line = match random.below(8) {
        0..=2 => format!("SET key:{key} {number}"),
        3 | 4 => format!("DEL key:{key}"),
        5 => format!("HSET hash:{} f{} {number}", key % 50, number % 7),
        6 => format!("SET key:{key} {number} PX {}", 1 + number % 3_000),
        _ => format!("SADD set:{} {}", key % 50, number % 100),
    };
    line.split(' ').map(str::to_owned).collect()
}

/// Connections to the nodes of a cluster. Each key goes to the node that reports to have it.
struct Links {
    ports: Vec<u16>,
    clients: BTreeMap<u16, Client>,
    /// The reported owner of each slot.
    told: BTreeMap<u16, u16>,
}

impl Links {
    fn new(ports: Vec<u16>) -> Self {
        Self {
            ports,
            clients: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    fn ask(&mut self, words: &[String]) {
        let slot = hash_slot::of(words[1].as_bytes());
        let share = usize::from(slot) * self.ports.len() / 16_384;
        let patience = Patience::of(Duration::from_secs(120));
        loop {
            let port = *self.told.get(&slot).unwrap_or(&self.ports[share]);
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let client = self.clients.entry(port);
            let client = client.or_insert_with(|| Client::connect_tcp(address).unwrap());
            let Value::Error(error) = client.command(words).unwrap() else {
                return;
            };
            let error = String::from_utf8_lossy(&error).into_owned();
            match error.strip_prefix("MOVED ") {
                Some(moved) => {
                    let port = moved.rsplit_once(':').unwrap().1.parse();
                    self.told.insert(slot, port.unwrap());
                }
                None => assert!(error.starts_with("CLUSTERDOWN"), "{error}"),
            }
            assert!(patience.lasts(), "{error}");
        }
    }
}

fn ask(server: &Server, words: &[&str]) -> Value {
    server.client().unwrap().command(words).unwrap()
}

fn text(server: &Server, words: &[&str]) -> String {
    match ask(server, words) {
        Value::Bulk(text) | Value::Simple(text) | Value::Error(text) => {
            String::from_utf8_lossy(&text).into_owned()
        }
        other => panic!("{words:?}: {other:?}"),
    }
}

fn migrate(source: &Fleet, target: &Fleet, words: &[&str]) -> serde_json::Value {
    let (from, to) = (source.place(), target.place());
    let mut all = vec!["migrate", &from, &to, "--json", "-q"];
    all.extend(words);
    let output = tool(&all);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Writes keys that exist before anything else happens.
fn fill(fleet: &Fleet, keys: u64) {
    let ports = (0..fleet.0.len()).map(|at| fleet.port(at)).collect();
    let mut links = Links::new(ports);
    for key in 0..keys {
        links.ask(&["SET".into(), format!("key:{key}"), format!("value {key}")]);
    }
}

fn is_oracle_there() -> bool {
    Command::new(oracle_program())
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok()
}

#[test]
fn a_redis_cluster_goes_into_a_cluster_while_it_is_written_to() {
    if !is_oracle_there() {
        return;
    }
    let source = Fleet::cluster(ServerBuilder::oracle, 3);
    let target = Fleet::cluster(ServerBuilder::iolite, 3);
    fill(&source, 3_000);
    let writer = source.written_to(1, 3_000);
    let told = migrate(&source, &target, &["--follow-for", "2", "--count", "50"]);
    assert!(writer.end() > 100);
    // Writes after the end of the migration.
    let state = TemporaryDirectory::new("migrate-cluster").unwrap();
    let state = state.join("state");
    let state = state.to_str().unwrap();
    let words = ["--replace", "--follow", "--repair", "--state", state];
    let again = migrate(&source, &target, &words);
    assert_eq!(again["failed"], 0, "{told} {again}");
    eventually("both are the same", || source.digest() == target.digest());
    assert!(
        target
            .0
            .iter()
            .all(|server| ask(server, &["DBSIZE"]) != Value::Integer(0))
    );
    let events = ["CONFIG", "GET", "notify-keyspace-events"];
    for server in &source.0 {
        let Value::Array(pair) = ask(server, &events) else {
            panic!("no pair");
        };
        assert_eq!(pair[1], Value::Bulk(Vec::new()));
    }
}

#[test]
fn a_cluster_goes_into_one_server_and_is_compared_by_digests() {
    let source = Fleet::cluster(ServerBuilder::iolite, 3);
    let target = Fleet::alone(ServerBuilder::iolite());
    fill(&source, 2_000);
    let told = migrate(
        &source,
        &target,
        &["--rate", "20000", "--compare", "--digest"],
    );
    assert_eq!(
        (&told["copied"], &told["differing"]),
        (&2_000.into(), &0.into()),
        "{told}"
    );
    assert_eq!(source.digest(), target.digest());
    // Changed, missing and added keys of all nodes are found.
    let alone = &target.0[0];
    text(alone, &["SET", "key:1", "other"]);
    text(alone, &["SET", "key:2", "value 2", "PXAT", "4000000000000"]);
    ask(alone, &["DEL", "key:3", "key:4"]);
    text(alone, &["SET", "added", "x"]);
    let told = migrate(
        &source,
        &target,
        &["--compare-only", "--digest", "--repair"],
    );
    assert_eq!(
        (&told["differing"], &told["repaired"]),
        (&5.into(), &5.into()),
        "{told}"
    );
    assert_eq!(source.digest(), target.digest());
    // Now back: into a cluster that has keys, only if this is allowed.
    let (from, to) = (target.place(), source.place());
    let refused = tool(&["migrate", &from, &to, "-q"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    text(alone, &["SET", "key:1", "back"]);
    let told = migrate(&target, &source, &["--replace"]);
    assert_eq!(told["copied"], 2_000, "{told}");
    assert_eq!(source.digest(), target.digest());
}

/// Keys are found even if their slots move from a node that was not scanned to one that was.
#[test]
fn slots_that_move_while_they_are_copied_lose_no_key() {
    let source = Fleet::cluster(ServerBuilder::iolite, 3);
    let target = Fleet::alone(ServerBuilder::iolite());
    fill(&source, 1_500);
    let ids = [0, 1].map(|at| text(&source.0[at], &["CLUSTER", "MYID"]));
    let writer = source.written_to(2, 1_500);
    let (from, to) = (source.place(), target.place());
    let words = ["--follow-for", "3", "--rate", "3000", "--count", "20", "-q"];
    let migration = Command::new(iolite_program())
        .args(["migrate", &from, &to, "--json"])
        .args(words)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("something is copied", || target.keys() > 100);
    for (at, slots) in [(0, ["0", "4000"]), (1, ["8192", "10000"])] {
        let to = &ids[1 - at];
        let words = [
            "CLUSTER",
            "MIGRATESLOTS",
            "SLOTSRANGE",
            slots[0],
            slots[1],
            "NODE",
            to,
        ];
        assert_eq!(text(&source.0[at], &words), "OK");
    }
    let output = migration.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_ne!(told["checked"], 0, "{told}");
    writer.end();
    let told = migrate(&source, &target, &["--replace", "--follow", "--repair"]);
    assert_eq!(told["failed"], 0, "{told}");
    eventually("both are the same", || source.digest() == target.digest());
}

/// No event reports the flush.
#[test]
fn a_source_that_is_emptied_while_it_is_followed_empties_the_target() {
    let (source, target) = (
        Fleet::alone(ServerBuilder::iolite()),
        Fleet::alone(ServerBuilder::iolite()),
    );
    fill(&source, 1_000);
    let (from, to) = (source.place(), target.place());
    let mut migration = Command::new(iolite_program())
        .args(["migrate", &from, &to, "--follow-for", "3", "-q"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("all is copied", || target.keys() == 1_000);
    text(&source.0[0], &["FLUSHALL"]);
    text(&source.0[0], &["SET", "after", "x"]);
    assert!(migration.wait().unwrap().success());
    assert_eq!(target.keys(), 1);
    assert_eq!(source.digest(), target.digest());
}

/// `MIGRATION_KILLS` sets the number of kills, `MIGRATION_SEED` their moments.
#[test]
fn a_migration_that_is_killed_at_any_point_goes_on_and_ends_with_what_the_source_has() {
    let number = |name: &str, default: u64| {
        let given = std::env::var(name).ok().and_then(|text| text.parse().ok());
        given.unwrap_or(default)
    };
    let mut random = Prng::seeded(number("MIGRATION_SEED", 2026));
    let source = Fleet::cluster(ServerBuilder::iolite, 3);
    let target = Fleet::alone(ServerBuilder::iolite());
    fill(&source, 3_000);
    let directory = TemporaryDirectory::new("migrate-kills").unwrap();
    let state = directory.join("state");
    let state = state.to_str().unwrap();
    let writer = source.written_to(3, 3_000);
    let (from, to) = (source.place(), target.place());
    for _ in 0..number("MIGRATION_KILLS", 8) {
        let mut migration = Command::new(iolite_program())
            .args(["migrate", &from, &to, "--state", state, "-q"])
            .args(["--follow-for", "60", "--count", "50", "--rate", "30000"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(5 + random.below(500)));
        // A kill hits the migration at any point. If asked to stop, it would write no more.
        migration.kill().unwrap();
        migration.wait().unwrap();
        if random.below(4) == 0 {
            for server in &source.0 {
                text(server, &["FLUSHALL"]);
            }
        }
    }
    writer.end();
    fill(&source, 300);
    let told = migrate(&source, &target, &["--state", state, "--follow"]);
    assert_eq!(told["failed"], 0, "{told}");
    eventually("both are the same", || source.digest() == target.digest());
    let events = ask(&source.0[0], &["CONFIG", "GET", "notify-keyspace-events"]);
    assert!(format!("{events:?}").contains("Bulk([])"), "{events:?}");
}

/// The target is named as people name machines, and has a password that the servers do not know of
/// each other.
#[test]
fn a_target_that_is_named_by_its_host_takes_over() {
    let secret = ["--requirepass", "secret"];
    let start = || ServerBuilder::iolite().args(&secret).tcp().start().unwrap();
    let place = |server: &Server| {
        let port = server.address().unwrap().port();
        format!("redis://:secret@localhost:{port}")
    };
    let (source, target) = (start(), start());
    let (from, to) = (place(&source), place(&target));
    let filled = tool(&["cli", "-u", &from, "SET", "key", "value"]);
    assert!(filled.status.success(), "{filled:?}");
    let done = tool(&["migrate", &from, &to, "--replicate", "--hand-over", "-q"]);
    assert!(done.status.success(), "{done:?}");
    let told = |place: &str, words: &[&str]| {
        let mut all = vec!["cli", "-u", place];
        all.extend(words);
        String::from_utf8(tool(&all).stdout).unwrap()
    };
    assert_eq!(told(&to, &["SET", "key", "newer"]), "OK\n");
    eventually("the source follows", || {
        told(&from, &["GET", "key"]) == "newer\n"
    });
}

/// If the source cannot reach the target, writers must not wait forever.
#[test]
fn a_source_that_cannot_reach_the_target_goes_on() {
    let nowhere = free_port().unwrap().to_string();
    let announced = ["--replica-announce-port", &nowhere];
    let source = ServerBuilder::oracle().tcp().start().unwrap();
    let target = ServerBuilder::iolite()
        .args(&announced)
        .tcp()
        .start()
        .unwrap();
    let place = |server: &Server| format!("127.0.0.1:{}", server.address().unwrap().port());
    let words = [&place(&source), &place(&target)];
    let done = tool(&[
        "migrate",
        words[0],
        words[1],
        "--replicate",
        "--hand-over",
        "-q",
    ]);
    assert!(!done.status.success(), "{done:?}");
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("the source goes on"), "{said}");
    let replication = text(&source, &["INFO", "replication"]);
    assert!(replication.contains("role:master"), "{replication}");
    assert!(
        replication.contains("master_failover_state:no-failover"),
        "{replication}"
    );
    assert_eq!(text(&source, &["SET", "key", "value"]), "OK");
}
