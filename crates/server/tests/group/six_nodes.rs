//! Tests of six nodes, three shards of two copies each. Nodes are lost, paused and partitioned, and
//! offices and hash slots move, all at once and under load.
//!
//! ```text
//!   writers ──► whoever serves the slot ──► replica of its shard         links of nodes go by relays
//!   watcher ──► every node: whose slots are, at which epoch
//! ```
//!
//! The checks run after each fault, when the cluster is complete. Each counter is what its writer
//! knows (at level os, what is missing was set aside). No key is there twice. Replicas hold what
//! primaries do. At no epoch did two nodes report different owners of a slot.
//!
//! `CLUSTER_FAULTS` sets the number of faults, `CLUSTER_FAULTS_SEED` the seed. A failure names its
//! seed, and `CLUSTER_FAULTS_SEED=n CLUSTER_FAULTS=20 cargo test -p server --test group six_nodes`
//! runs that world again.

mod ledger;
mod watcher;

use base::hash_slot;
use base::random::Prng;
use protocol::Value;
use testkit::relay::Relay;

use std::time::Duration;

use crate::clusters::{LAST_SLOT, wait_for_agreement};
use crate::histories::{mend, number_of};
use crate::kills::given_up;
use crate::{Node, wait_until};
use ledger::Load;
use watcher::Watcher;

const NODES: usize = 6;
/// Number of shards: the first nodes begin as their primaries.
const SHARDS: usize = 3;
/// Number of faults in one world, after which another world begins.
const FAULTS_A_WORLD: u64 = 20;
/// Maximum number of slots that move at once.
const SLOTS_MAX: u64 = 1_500;
/// Number of additional keys in every second world.
const BALLAST_KEYS: usize = 12_000;
/// Length of their values: so long that no more than a few hundred slots move while writes wait.
const BALLAST_BYTES: usize = 10_000;

struct World {
    seed: u64,
    random: Prng,
    nodes: Vec<Node>,
    relays: Vec<Relay>,
    is_quorum: bool,
    /// Number of keys besides the counters.
    ballast: i64,
    /// The actions so far, for the report of a failure.
    done: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let is_quorum = seed.is_multiple_of(2);
        let level = if is_quorum { "quorum" } else { "os" };
        let args = ["--cluster-enabled", "yes", "--durability", level];
        let mut nodes: Vec<Node> = (0..NODES)
            .map(|_| Node::to_be_started(&[], &args))
            .collect();
        let relays: Vec<Relay> = nodes
            .iter()
            .map(|node| Relay::to(node.link_port).unwrap())
            .collect();
        for (node, relay) in nodes.iter_mut().zip(&relays) {
            let announced = [
                "--cluster-announce-bus-port".to_owned(),
                relay.port().to_string(),
            ];
            node.args.extend(announced);
            node.start();
        }
        let of_each = (LAST_SLOT + 1) / 3;
        for (at, node) in (0..).zip(&nodes[..SHARDS]) {
            let last = if at == 2 {
                LAST_SLOT
            } else {
                (at + 1) * of_each - 1
            };
            node.own(at * of_each, last);
        }
        for node in &nodes[1..] {
            assert_eq!(node.meet(&nodes[0]), "OK");
        }
        let all: Vec<&Node> = nodes.iter().collect();
        wait_for_agreement(&all, NODES);
        for at in SHARDS..NODES {
            let primary = nodes[at - SHARDS].id();
            assert_eq!(nodes[at].text(&["CLUSTER", "REPLICATE", &primary]), "OK");
        }
        let mut world = Self {
            seed,
            random: Prng::seeded(seed),
            nodes,
            relays,
            is_quorum,
            ballast: 0,
            done: Vec::new(),
        };
        world.settle();
        if world.random.below(2) == 0 {
            world.fill();
        }
        world
    }

    fn fill(&mut self) {
        let value = "v".repeat(BALLAST_BYTES);
        for (at, node) in self.nodes[..SHARDS].iter().enumerate() {
            let mut client = node.client();
            let keys = (0..BALLAST_KEYS).map(|number| format!("ballast:{number}"));
            let of_each = usize::from(LAST_SLOT + 1) / SHARDS;
            let is_here = |key: &String| {
                let slot = usize::from(hash_slot::of(key.as_bytes()));
                (slot / of_each).min(SHARDS - 1) == at
            };
            let keys: Vec<String> = keys.filter(is_here).collect();
            for some in keys.chunks(100) {
                let requests: Vec<[&str; 3]> =
                    some.iter().map(|key| ["SET", key, &value]).collect();
                let told = client.pipeline(&requests).unwrap();
                assert!(
                    told.iter()
                        .all(|told| *told == Value::Simple(b"OK".to_vec())),
                    "{told:?}"
                );
            }
            self.ballast += i64::try_from(keys.len()).unwrap();
        }
    }

    fn sleep(&mut self, below_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.random.below(below_ms)));
    }

    #[allow(clippy::print_stderr, reason = "for who watches the run")]
    fn note(&mut self, what: String) {
        if std::env::var_os("FAULTS_TOLD").is_some() {
            eprintln!("seed {}: {what}", self.seed);
        }
        self.done.push(what);
    }

    /// Ends the test with everything that may explain the failure.
    fn fail(&self, what: &str) -> ! {
        let logs = self.nodes.iter().map(|node| {
            let log = node.log();
            let from = log.len().saturating_sub(20_000);
            format!("==== {}\n{}\n", node.port, log.get(from..).unwrap_or(&log))
        });
        let logs: String = logs.collect();
        panic!(
            "seed {}: {what}\n{}\n{logs}",
            self.seed,
            self.done.join("\n")
        );
    }

    fn until(&self, what: &str, is_so: impl FnMut() -> bool) {
        let all: Vec<&Node> = self.nodes.iter().collect();
        let done = self.done.join("; ");
        wait_until(&format!("{what}; seed {}: {done}", self.seed), &all, is_so);
    }

    fn fault(&mut self) {
        if self.random.below(2) == 0 {
            self.move_slots();
        }
        let at = self.random.index(NODES);
        match self.random.below(12) {
            0..=2 => self.kill(&[at], 2_000),
            // The copies of one shard, unless a copy has moved to another shard.
            3 => self.kill(&[at, (at + SHARDS) % NODES], 1_000),
            4 | 5 => self.stand_still(at),
            6 | 7 => {
                self.note(format!("failover at {at}"));
                // A primary refuses the command.
                self.nodes[at].text(&["CLUSTER", "FAILOVER"]);
            }
            8 | 9 => self.part(at),
            _ => {
                for _ in 0..3 {
                    self.move_slots();
                }
                self.sleep(300);
            }
        }
    }

    fn kill(&mut self, which: &[usize], below_ms: u64) {
        self.note(format!("kill {which:?}"));
        for at in which {
            self.nodes[*at].kill();
        }
        self.sleep(below_ms);
        for at in which {
            self.nodes[*at].start();
        }
    }

    fn stand_still(&mut self, at: usize) {
        self.note(format!("stop {at}"));
        self.nodes[at].signal("-STOP");
        self.sleep(3_000);
        self.nodes[at].signal("-CONT");
    }

    /// Partitions a node: its incoming traffic is lost, with or without an end of the connections,
    /// or its replies are lost, or traffic is delayed.
    fn part(&mut self, at: usize) {
        let kind = self.random.below(4);
        self.note(format!("part {at}, way {kind}"));
        let delay_ms = 20 + u32::try_from(self.random.below(200)).unwrap();
        let relay = &self.relays[at];
        match kind {
            0 => relay.shut(true),
            1 => relay.hold(true),
            2 => relay.hold_way(true, true),
            _ => relay.slow(delay_ms),
        }
        self.sleep(3_000);
        mend(&self.relays);
    }

    /// Moves slots of one node to another, if the one has them and the other accepts them.
    fn move_slots(&mut self) {
        let first = self.random.below(u64::from(LAST_SLOT));
        let last = (first + self.random.below(SLOTS_MAX)).min(u64::from(LAST_SLOT));
        let to = self.random.index(NODES);
        let id = self.nodes[to].id();
        let (first, last) = (first.to_string(), last.to_string());
        let words = [
            "CLUSTER",
            "MIGRATESLOTS",
            "SLOTSRANGE",
            &first,
            &last,
            "NODE",
            &id,
        ];
        let begun = self.nodes.iter().position(|node| node.text(&words) == "OK");
        if let Some(from) = begun {
            self.note(format!("slots {first}-{last} from {from} to {to}"));
        }
    }

    /// Waits until all nodes agree, each has its place, and no slots are moving.
    fn settle(&self) {
        let all: Vec<&Node> = self.nodes.iter().collect();
        self.until("whole again", || {
            let is_in_place = |node: &&Node| node.is_primary() || node.is_synced();
            all.iter().all(|node| node.is_ok()) && all.iter().all(is_in_place)
        });
        self.until("moves over", || !all.iter().any(|node| moves_slots(node)));
        self.until("of one mind", || {
            let first = all[0].owners();
            first.len() == NODES && all.iter().all(|node| node.owners() == first)
        });
    }

    /// Compares the replies that clients got with the data, while no client writes.
    fn check(&self, load: &Load) {
        let _paused = load.pause();
        let all: Vec<&Node> = self.nodes.iter().collect();
        let primaries = || all.iter().filter(|node| node.is_primary());
        let lost = match load.compare(&all, self.is_quorum) {
            Ok(lost) => lost,
            Err(what) => self.fail(&what),
        };
        if !lost.is_empty() {
            let given_up: Vec<Vec<u8>> = all.iter().map(|node| given_up(node)).collect();
            for key in lost {
                let has = |bytes: &Vec<u8>| bytes.windows(key.len()).any(|it| it == key.as_bytes());
                if !given_up.iter().any(has) {
                    self.fail(&format!("{key} is lost, and nobody has set it aside"));
                }
            }
        }
        // Each counter exists once.
        let keys = load.counters_there(&all) + self.ballast;
        self.until("nothing is there twice", || {
            let sizes = primaries().map(|node| match node.run(&["DBSIZE"]) {
                Value::Integer(count) => count,
                other => panic!("{other:?}"),
            });
            let there: i64 = sizes.sum();
            there == keys || (!self.is_quorum && there < keys)
        });
        for node in primaries() {
            if node.field("connected_slaves") != "0" {
                self.compare_copies(node);
            }
        }
    }

    /// Lets a primary compare itself with its replicas.
    fn compare_copies(&self, primary: &Node) {
        let count = |name: &str| primary.field(name).parse::<u64>().unwrap_or_default();
        self.until("copies compared", || {
            // The primary refuses until it knows a replica that has everything.
            if primary.text(&["REPLICATION", "VERIFY"]) != "OK" {
                return false;
            }
            let is_over = || primary.field("iolite_verify_in_progress") == "0";
            self.until("the end of a comparison", is_over);
            count("iolite_verify_unknown") == 0 && count("iolite_verify_same") > 0
        });
        if count("iolite_verify_different") > 0 {
            let which = primary.run(&["REPLICATION", "DIFFERENCES"]);
            self.fail(&format!(
                "a replica of {} holds something else: {which:?}",
                primary.port
            ));
        }
    }
}

/// Returns whether slots of a node are moving.
fn moves_slots(node: &Node) -> bool {
    let Value::Array(moves) = node.run(&["CLUSTER", "GETSLOTMIGRATIONS"]) else {
        return false;
    };
    let is_over = |one: &Value| {
        let Value::Array(fields) = one else {
            panic!("{one:?}");
        };
        let over = ["success", "failed", "cancelled"].map(|text| Value::Bulk(text.into()));
        fields.iter().any(|field| over.contains(field))
    };
    !moves.iter().all(is_over)
}

#[test]
#[allow(clippy::print_stdout, reason = "figures for who reads the run")]
fn six_nodes_lose_nothing_and_keep_one_owner_of_each_slot_whatever_happens() {
    let wanted = number_of("CLUSTER_FAULTS", 3);
    let first = number_of("CLUSTER_FAULTS_SEED", u64::from(std::process::id()));
    let (mut faults, mut seed) = (0, first);
    while faults < wanted {
        let mut world = World::new(seed);
        let ports: Vec<u16> = world.nodes.iter().map(|node| node.port).collect();
        let load = Load::begin(&ports, seed);
        let watcher = Watcher::begin(&ports);
        world.settle();
        let here = FAULTS_A_WORLD.min(wanted - faults);
        for _ in 0..here {
            world.fault();
            world.settle();
            world.check(&load);
        }
        let told = load.end();
        let epochs = match watcher.end() {
            Ok(epochs) => epochs,
            Err(what) => world.fail(&what),
        };
        println!("seed {seed}, {here} faults: {told}, {epochs} epochs: ok");
        faults += here;
        seed += 1;
    }
}
