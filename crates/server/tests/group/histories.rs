//! Histories at level quorum, over failovers and moves of hash slots. For each key, one order of
//! all operations must explain what clients saw.
//!
//! Clients read and write few keys while nodes are killed, stopped, started, partitioned, hand
//! their office over, and move slots to each other. `testkit::linearizable` checks the requests and
//! replies. A request that was refused is not an operation. If a request ends in any other way
//! without a reply, it is unknown whether it was done.
//!
//! `HISTORIES` and `HISTORY_OPERATIONS` set number and length, `HISTORY_SEED` the seed. The soak is
//! `HISTORIES=100 HISTORY_OPERATIONS=10000 cargo test --release -p server --test group histories:: -- --nocapture --test-threads 1`.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::hash_slot;
use base::random::Prng;
use protocol::Value;
use testkit::client::Client;
use testkit::linearizable::{Answered, Asked, Fault, Operation, check};
use testkit::relay::Relay;

use crate::clusters::{LAST_SLOT, three_primaries_with, wait_for_agreement};
use crate::log_copy::with_log_copy;
use crate::reads::three_at_quorum;
use crate::{Node, joined, sets, wait_until};

const CLIENTS: u64 = 6;
const KEYS: u64 = 6;
/// Number of operations between two faults.
const OPERATIONS_PER_FAULT: u64 = 1_200;
/// Time that every second client waits for a reply before it tries another node, as clients do.
const SHORT_WAIT: Duration = Duration::from_millis(400);
const LONG_WAIT: Duration = Duration::from_secs(30);
/// Values larger than this are copied, not sent by name.
const LARGE_VALUE_BYTES: usize = 9 << 20;

/// The nodes that answer reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// The primary: replicas redirect readers to it, as they do in a cluster.
    SentOn,
    /// The primary: a replica's reply may be outdated, and counts as a refusal.
    AtPrimary,
    /// Any node, at level quorum.
    Anywhere,
    /// Any node of a cluster, at level quorum: a replica answers for the slots of its shard, and
    /// redirects readers of other slots.
    AtCopies,
}

impl Reads {
    fn at_replicas(self) -> bool {
        matches!(self, Self::Anywhere | Self::AtCopies)
    }

    /// Returns the commands that a connection sends first for reads of this kind.
    fn prelude(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::SentOn | Self::AtPrimary => &[],
            Self::Anywhere => &[&["CLIENT", "DURABILITY", "QUORUM"]],
            Self::AtCopies => &[&["CLIENT", "DURABILITY", "QUORUM"], &["READONLY"]],
        }
    }
}

/// The state that all clients of one history share.
struct Course<'n> {
    history: String,
    ports: &'n [u16],
    reads: Reads,
    /// A clock that orders all calls and replies.
    clock: AtomicU64,
    done: AtomicU64,
    wanted: u64,
    is_over: AtomicBool,
}

impl Course<'_> {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire) || self.done.load(Ordering::Acquire) >= self.wanted
    }

    fn key(&self, number: u64) -> String {
        format!("{{{number}}}:{}", self.history)
    }
}

/// One client, with what it observed of each key.
struct Recorder<'c> {
    course: &'c Course<'c>,
    random: Prng,
    wait: Duration,
    connections: Vec<Option<Client>>,
    /// The node that served each key last.
    at: Vec<usize>,
    seen: BTreeMap<u64, Vec<Operation>>,
    number: i64,
    unknown: u64,
}

/// The result of a request.
enum Ended {
    Answered(Answered),
    NotDone,
    Unknown,
}

impl<'c> Recorder<'c> {
    fn new(course: &'c Course<'c>, number: u64, seed: u64) -> Self {
        Self {
            course,
            random: Prng::seeded(seed * 100 + number),
            wait: if number.is_multiple_of(2) {
                LONG_WAIT
            } else {
                SHORT_WAIT
            },
            connections: course.ports.iter().map(|_| None).collect(),
            at: vec![0; usize::try_from(KEYS).unwrap()],
            seen: BTreeMap::new(),
            number: i64::try_from(number * 1_000_000).unwrap(),
            unknown: 0,
        }
    }

    fn run(mut self) -> (BTreeMap<u64, Vec<Operation>>, u64) {
        while !self.course.is_over() {
            self.act();
        }
        (self.seen, self.unknown)
    }

    fn act(&mut self) {
        let key = self.random.below(KEYS);
        self.number += 1;
        let asked = match self.random.below(10) {
            0..4 => Asked::Get,
            4..6 => Asked::Set(self.number),
            6..8 => Asked::Increment,
            8 => Asked::SetIfAbsent(self.number),
            _ => Asked::Delete,
        };
        let place = usize::try_from(key).unwrap();
        while !self.course.is_over() {
            let at = match asked == Asked::Get && self.course.reads.at_replicas() {
                true => self.random.index(self.course.ports.len()),
                false => self.at[place],
            };
            let call = self.course.now();
            let ended = self.ask(at, &self.course.key(key), asked);
            let reply = match ended {
                Ended::Answered(answered) => Some((self.course.now(), answered)),
                Ended::NotDone => {
                    self.at[place] = (at + 1) % self.course.ports.len();
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                }
                Ended::Unknown => {
                    self.at[place] = (at + 1) % self.course.ports.len();
                    None
                }
            };
            self.course.done.fetch_add(1, Ordering::AcqRel);
            // A read without a reply contains no information.
            if reply.is_some() || asked != Asked::Get {
                self.unknown += u64::from(reply.is_none());
                let seen = self.seen.entry(key).or_default();
                seen.push(Operation { call, asked, reply });
            }
            return;
        }
    }

    fn ask(&mut self, at: usize, key: &str, asked: Asked) -> Ended {
        let connected = self.connections[at].take();
        let prelude = self.course.reads.prelude();
        let Some(mut client) =
            connected.or_else(|| connect(self.course.ports[at], self.wait, prelude))
        else {
            return Ended::NotDone;
        };
        let words: Vec<String> = match asked {
            Asked::Get => vec!["GET".to_owned(), key.to_owned()],
            Asked::Set(value) => vec!["SET".to_owned(), key.to_owned(), value.to_string()],
            Asked::Increment => vec!["INCR".to_owned(), key.to_owned()],
            Asked::SetIfAbsent(value) => {
                vec!["SETNX".to_owned(), key.to_owned(), value.to_string()]
            }
            Asked::Delete => vec!["DEL".to_owned(), key.to_owned()],
        };
        let answer = match asked == Asked::Get && self.course.reads == Reads::AtPrimary {
            true => read_at_primary(&mut client, key),
            false => client.command(&words),
        };
        let Ok(answer) = answer else {
            return Ended::Unknown;
        };
        self.connections[at] = Some(client);
        match answer {
            Value::Simple(_) => Ended::Answered(Answered::Done),
            Value::Integer(number) => Ended::Answered(Answered::Number(number)),
            Value::Null => Ended::Answered(Answered::Value(None)),
            Value::Bulk(text) => {
                let number = String::from_utf8(text).unwrap().parse().unwrap();
                Ended::Answered(Answered::Value(Some(number)))
            }
            Value::Error(text) => judge(&String::from_utf8_lossy(&text)),
            other => panic!("{words:?}: {other:?}"),
        }
    }
}

/// Connects to a node. Returns `None`, too, if one of the first commands is refused at the moment.
pub(crate) fn connect(port: u16, wait: Duration, prelude: &[&[&str]]) -> Option<Client> {
    let stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_read_timeout(Some(wait)).ok()?;
    let mut client = Client::over(Box::new(stream));
    let mut is_taken = |words: &&[&str]| {
        let told = client.command(words);
        told.is_ok_and(|told| told == Value::Simple(b"OK".to_vec()))
    };
    let are_taken = prelude.iter().all(&mut is_taken);
    are_taken.then_some(client)
}

/// Reads a key together with the role of the node: the reply of a replica counts as a refusal.
fn read_at_primary(client: &mut Client, key: &str) -> std::io::Result<Value> {
    let queued: [&[&str]; 3] = [&["MULTI"], &["ROLE"], &["GET", key]];
    client.pipeline(&queued)?;
    Ok(match client.command(&["EXEC"])? {
        Value::Array(mut replies) if replies.len() == 2 => {
            let value = replies.pop().unwrap();
            let is_primary = matches!(&replies[0], Value::Array(fields)
                if fields.first() == Some(&Value::Bulk(b"master".to_vec())));
            match is_primary {
                true => value,
                false => Value::Error(b"READONLY a replica".to_vec()),
            }
        }
        other => other,
    })
}

/// Classifies a request by its error.
fn judge(text: &str) -> Ended {
    match is_refusal(text) {
        true => Ended::NotDone,
        false => Ended::Unknown,
    }
}

/// Returns whether an error says that the request was not done.
pub(crate) fn is_refusal(text: &str) -> bool {
    let refusals = [
        "MOVED ",
        "READONLY ",
        "CLUSTERDOWN ",
        "MASTERDOWN ",
        "LOADING ",
        "NOREPLICAS Not enough replicas to commit",
    ];
    refusals.iter().any(|code| text.starts_with(code))
}

/// Returns the part of a key's history that no order explains.
fn fault_of(operations: &mut [Operation]) -> Option<Fault> {
    operations.sort_unstable_by_key(|operation| operation.call);
    check(operations).err()
}

pub(crate) fn number_of(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Records histories one after another while faults happen, and checks them.
#[allow(clippy::print_stdout, reason = "figures for who reads the run")]
fn run(
    nodes: &mut [Node],
    name: &str,
    reads: Reads,
    mut fault: impl FnMut(&mut [Node], &mut Prng),
) {
    let histories = number_of("HISTORIES", 1);
    let wanted = number_of("HISTORY_OPERATIONS", 3_000);
    let first = number_of("HISTORY_SEED", u64::from(std::process::id()));
    let ports: Vec<u16> = nodes.iter().map(|node| node.port).collect();
    let (mut all, mut all_unknown, mut all_faults) = (0_u64, 0_u64, 0_u64);
    for seed in first..first + histories {
        let course = Course {
            history: format!("{name}:{seed}"),
            ports: &ports,
            reads,
            clock: AtomicU64::new(0),
            done: AtomicU64::new(0),
            wanted,
            is_over: AtomicBool::new(false),
        };
        let mut random = Prng::seeded(seed);
        let mut faults = 0;
        let mut seen: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
        let mut unknown = 0;
        std::thread::scope(|scope| {
            let recorders: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let recorder = Recorder::new(&course, number, seed);
                    scope.spawn(move || recorder.run())
                })
                .collect();
            while !course.is_over() {
                let due = (faults + 1) * OPERATIONS_PER_FAULT;
                if course.done.load(Ordering::Acquire) < due {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
                fault(nodes, &mut random);
                faults += 1;
            }
            for recorder in recorders {
                let (keys, of_one) = recorder.join().unwrap();
                unknown += of_one;
                for (key, operations) in keys {
                    seen.entry(key).or_default().extend(operations);
                }
            }
        });
        let mut count = 0;
        for (key, operations) in &mut seen {
            count += operations.len() as u64;
            if let Some(fault) = fault_of(operations) {
                let path = std::env::temp_dir().join(format!("{name}-{seed}-{key}.txt"));
                std::fs::write(&path, format!("{operations:#?}")).unwrap();
                panic!(
                    "HISTORY_SEED={seed}, key {key}: {fault:?}; {}",
                    path.display()
                );
            }
        }
        println!(
            "{name} {seed}: {count} operations, {unknown} of unknown end, {faults} faults: ok"
        );
        (all, all_unknown, all_faults) = (all + count, all_unknown + unknown, all_faults + faults);
    }
    println!(
        "{name}: {histories} histories, {all} operations, {all_unknown} of unknown end, {all_faults} faults, 0 violations"
    );
}

/// Stops a process for a while: longer than its lease, or shorter.
fn stop_for_a_while(node: &Node, random: &mut Prng) {
    node.signal("-STOP");
    std::thread::sleep(Duration::from_millis(200 + random.below(2_800)));
    node.signal("-CONT");
}

#[test]
fn one_order_explains_what_clients_see_over_failovers() {
    over_failovers("failovers", Reads::AtPrimary, &[]);
}

/// Replicas answer reads, too, by the lease of their primary or confirmed by its members.
#[test]
fn one_order_explains_what_replicas_show_over_failovers() {
    over_failovers("replicas", Reads::Anywhere, &[]);
}

#[test]
fn one_order_explains_what_replicas_show_that_are_confirmed() {
    let confirm = ["--quorum-reads", "confirm"];
    over_failovers("confirmed", Reads::Anywhere, &confirm);
}

/// Returns whether one of three nodes is the primary and the others follow.
fn is_whole(nodes: &[Node]) -> bool {
    let primaries = nodes.iter().filter(|node| node.is_primary()).count();
    primaries == 1 && nodes.iter().filter(|node| node.is_synced()).count() == 2
}

/// Two of the three nodes keep data, and the third keeps only the log. It is killed and stopped as
/// often as the others.
#[test]
fn one_order_explains_what_clients_see_over_failovers_with_a_copy_of_the_log() {
    let nodes = with_log_copy();
    faults_at(nodes, "log-copy", Reads::AtPrimary);
}

/// The servers' clocks run at other rates than the machine's, within the drift that a leader
/// allows. Run with `cargo test -p server --features planted`, and a `SERVER_BIN` of that build.
#[test]
#[ignore = "takes a server that is built with the feature planted"]
fn one_order_explains_what_clients_see_by_clocks_that_drift() {
    let (nodes, _relays) = three_behind_relays([Some("4000"), Some("-4000"), None]);
    faults_at(nodes, "drifting", Reads::Anywhere);
}

fn over_failovers(name: &str, reads: Reads, more: &[&str]) {
    faults_at(three_at_quorum(more), name, reads);
}

fn faults_at(mut nodes: [Node; 3], name: &str, reads: Reads) {
    run(&mut nodes, name, reads, |nodes, random| {
        let primary = nodes.iter().position(Node::is_primary).unwrap_or(0);
        let other = (primary + 1 + random.index(2)) % 3;
        match random.below(8) {
            0..3 => {
                nodes[primary].kill();
                std::thread::sleep(Duration::from_millis(random.below(3_000)));
                nodes[primary].start();
            }
            3 => {
                nodes[other].kill();
                std::thread::sleep(Duration::from_millis(random.below(500)));
                nodes[other].start();
            }
            4 | 5 => stop_for_a_while(&nodes[primary], random),
            6 => stop_for_a_while(&nodes[other], random),
            _ => {
                let port = nodes[other].port.to_string();
                // The node that keeps only the log cannot take the office.
                nodes[primary].run(&["FAILOVER", "TO", "127.0.0.1", &port]);
            }
        }
        let all: Vec<&Node> = nodes.iter().collect();
        wait_until("whole again", &all, || is_whole(nodes));
    });
}

/// Starts three nodes at quorum that reach each other through relays, with these clock rates.
fn three_behind_relays(drifts_ppm: [Option<&'static str>; 3]) -> ([Node; 3], [Relay; 3]) {
    let mut nodes = [(); 3].map(|()| Node::to_be_started(&[], &["--durability", "quorum"]));
    let relays = nodes
        .each_ref()
        .map(|node| Relay::to(node.link_port).unwrap());
    let first = format!("127.0.0.1:{}@{}", nodes[0].port, relays[0].port());
    for (at, node) in nodes.iter_mut().enumerate() {
        let announced = relays[at].port().to_string();
        let how = match at {
            0 => ["--cluster-group", "yes"],
            _ => ["--join", &first],
        };
        let more = ["--cluster-announce-bus-port", &announced];
        let args = [how, more].concat();
        node.args.extend(args.into_iter().map(str::to_owned));
        node.drift_ppm = drifts_ppm[at];
        node.start();
    }
    let nodes = joined(nodes);
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("written", &all, || sets(&nodes[0], "key", "0"));
    (nodes, relays)
}

/// Partitions a node: traffic to it, or to both other nodes, is lost in one direction or both, with
/// or without an end of the connections; or it is delayed.
fn part(relays: &[Relay; 3], random: &mut Prng) {
    let at = random.index(3);
    match random.below(6) {
        0 => relays[at].shut(true),
        1 => relays[at].hold(true),
        2 => relays[at].hold_way(true, true),
        3 => relays[at].hold_way(false, true),
        4 => {
            relays[(at + 1) % 3].hold(true);
            relays[(at + 2) % 3].shut(true);
        }
        _ => relays[at].slow(20 + u32::try_from(random.below(300)).unwrap()),
    }
}

pub(crate) fn mend(relays: &[Relay]) {
    for relay in relays {
        relay.shut(false);
        relay.hold(false);
        relay.hold_way(true, false);
        relay.hold_way(false, false);
        relay.slow(0);
    }
}

/// Held traffic is delivered late, from a node that was the primary at that time.
#[test]
fn one_order_explains_what_is_shown_over_partitions() {
    let (mut nodes, relays) = three_behind_relays([None; 3]);
    run(
        &mut nodes,
        "partitions",
        Reads::Anywhere,
        |nodes, random| {
            part(&relays, random);
            std::thread::sleep(Duration::from_millis(200 + random.below(3_800)));
            mend(&relays);
            let all: Vec<&Node> = nodes.iter().collect();
            wait_until("whole again", &all, || is_whole(nodes));
        },
    );
}

#[test]
fn one_order_explains_what_clients_see_over_moves_of_slots() {
    let mut nodes = three_primaries_with(&["--durability", "quorum"]);
    // Half of the slots have so much data that they are moved by a copy.
    for number in (0..KEYS).step_by(2) {
        let key = format!("{{{number}}}:large");
        let value = "x".repeat(LARGE_VALUE_BYTES);
        let all: Vec<&Node> = nodes.iter().collect();
        wait_until("written", &all, || {
            let mut nodes = nodes.iter();
            nodes.any(|node| node.run(&["SET", &key, &value]) == Value::Simple(b"OK".to_vec()))
        });
    }
    run(&mut nodes, "moves", Reads::SentOn, |nodes, random| {
        let moves = begin_moves(nodes, random);
        let at = random.index(3);
        match random.below(5) {
            0 => {
                nodes[at].kill();
                std::thread::sleep(Duration::from_millis(random.below(300)));
                nodes[at].start();
            }
            1 => stop_for_a_while(&nodes[at], random),
            _ => {}
        }
        let all: Vec<&Node> = nodes.iter().collect();
        wait_until("served", &all, || all.iter().all(|node| node.is_ok()));
        if moves == 0 {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

/// Replicas answer for the slots of their shards while slots move and shards change their
/// primaries.
#[test]
fn one_order_explains_what_replicas_show_over_moves_of_slots() {
    over_moves_with_replicas("moves-replicas", &[]);
}

#[test]
fn one_order_explains_what_replicas_show_that_are_confirmed_over_moves_of_slots() {
    over_moves_with_replicas("moves-confirmed", &["--quorum-reads", "confirm"]);
}

fn over_moves_with_replicas(name: &str, more: &[&str]) {
    let mut nodes = two_shards_of_two(more);
    run(&mut nodes, name, Reads::AtCopies, |nodes, random| {
        let moves = begin_moves(nodes, random);
        let at = random.index(nodes.len());
        match random.below(5) {
            0 => {
                nodes[at].kill();
                std::thread::sleep(Duration::from_millis(random.below(2_500)));
                nodes[at].start();
            }
            1 => stop_for_a_while(&nodes[at], random),
            2 => {
                // A replica takes the office of its shard. A primary refuses the command.
                nodes[at].run(&["CLUSTER", "FAILOVER"]);
            }
            _ => {}
        }
        let all: Vec<&Node> = nodes.iter().collect();
        wait_until("whole again", &all, || {
            let is_in_place = |node: &&Node| node.is_primary() || node.is_synced();
            all.iter().all(|node| node.is_ok()) && all.iter().all(is_in_place)
        });
        if moves == 0 {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

/// Starts four nodes at level quorum: two shards of two copies each, which share all slots.
fn two_shards_of_two(more: &[&str]) -> Vec<Node> {
    let level = ["--cluster-enabled", "yes", "--durability", "quorum"];
    let args = [&level[..], more].concat();
    let nodes: Vec<Node> = (0..4).map(|_| Node::new(&args)).collect();
    nodes[0].own(0, 8_191);
    nodes[1].own(8_192, LAST_SLOT);
    for node in &nodes[1..] {
        assert_eq!(node.meet(&nodes[0]), "OK");
    }
    let all: Vec<&Node> = nodes.iter().collect();
    wait_for_agreement(&all, 4);
    for at in [2, 3] {
        let primary = nodes[at - 2].id();
        assert_eq!(nodes[at].text(&["CLUSTER", "REPLICATE", &primary]), "OK");
    }
    wait_until("all copies", &all, || {
        nodes[2..].iter().all(Node::is_synced)
    });
    nodes
}

/// Starts moves of some keys' slots from their owners to another node. Returns the number of moves.
fn begin_moves(nodes: &[Node], random: &mut Prng) -> usize {
    let ids: Vec<String> = nodes.iter().map(Node::id).collect();
    let mut begun = 0;
    for number in 0..KEYS {
        if random.below(2) == 0 {
            continue;
        }
        let slot = hash_slot::of(number.to_string().as_bytes()).to_string();
        let to = &ids[random.index(nodes.len())];
        let move_it = [
            "CLUSTER",
            "MIGRATESLOTS",
            "SLOTSRANGE",
            &slot,
            &slot,
            "NODE",
            to,
        ];
        // Nodes that do not own the slot refuse.
        begun += nodes
            .iter()
            .filter(|node| node.text(&move_it) == "OK")
            .count();
    }
    begun
}
