//! Causes faults one after the other, at random points of every state, between a primary, its
//! replicas, a replica of a replica, and a redis-server that follows, while clients write data of
//! every kind.
//!
//! ```text
//!   clients ──► primary ──┬─► relay ─► replica ──► relay ─► replica of the replica
//!                         ├─► relay ─► replica
//!                         └─► redis-server (PSYNC)
//! ```
//!
//! The checks run after each fault, or a few of them. All links come up again. All nodes hold the
//! same data. What a primary in office acknowledged is there. What a node lost to another node is
//! what it reported. A node that was empty or older took nothing away from any node.
//!
//! `REPLICATION_FAULTS` sets the number of faults, `REPLICATION_FAULTS_SEED` the seed. A failure
//! names its seed, which is run again by
//! `REPLICATION_FAULTS_SEED=n REPLICATION_FAULTS=20 cargo test -p server --test it random_faults::two_hundred -- --ignored`.
//! Each world has twenty faults, and uses the seed after that of the previous world.

mod load;
mod offices;
mod place;

use base::random::Prng;
use testkit::differential::{difference, full_state};

use super::*;
use crate::ledger::number_from;
use load::{Load, WRITERS, counters};
use place::Place;

const PLACES: usize = 4;
/// Number of faults in one world, after which another world begins.
const FAULTS_A_WORLD: u64 = 20;
/// Maximum time until everything is in the expected state.
const PATIENCE: Duration = Duration::from_secs(120);
/// Number of a node's log lines that a failure shows.
const LINES: usize = 150;
const OK: &[u8] = b"OK";

struct World {
    seed: u64,
    random: Prng,
    places: Vec<Place>,
    primary: usize,
    load: Load,
    redis: Option<Server>,
    /// The actions so far, for the report of a failure.
    done: Vec<String>,
}

impl World {
    fn new(seed: u64, is_quick: bool) -> Self {
        let mut random = Prng::seeded(seed);
        let mut args = vec!["--repl-timeout", "3", "--save", "", "--threads", "2"];
        // In one world out of two, the log does not reach back far.
        if random.below(2) == 0 {
            args.extend(["--repl-log-keep", "1", "--save", "1 20"]);
        }
        if random.below(4) == 0 {
            args.extend(["--repl-diskless-load", "flush-before-load"]);
        }
        let has_redis = random.below(3) == 0;
        let places = (0..PLACES).map(|_| Place::new(&args, !is_quick)).collect();
        let redis = has_redis.then(|| {
            let args = ["--enable-debug-command", "yes", "--save", ""];
            ServerBuilder::oracle().tcp().args(&args).start().unwrap()
        });
        let mut world = Self {
            seed,
            random,
            places,
            primary: 0,
            load: Load::new(seed),
            redis,
            done: Vec::new(),
        };
        for (replica, of) in [(1, 0), (2, 0), (3, 1)] {
            world.follow(replica, of);
            // Faults happen to links that are up. The first full sync is included in the faults.
            world.until("a first link is up", || {
                world.node(replica).field("master_link_status") == "up"
            });
        }
        world.load.turn_to(world.places[0].node.port, false);
        world.redis_follows();
        world
    }

    fn below(&mut self, bound: u64) -> usize {
        usize::try_from(self.random.below(bound)).unwrap()
    }

    fn sleep(&mut self, below_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.random.below(below_ms)));
    }

    fn node(&self, at: usize) -> &Node {
        &self.places[at].node
    }

    fn primary(&self) -> &Node {
        self.node(self.primary)
    }

    fn replicas(&self) -> Vec<usize> {
        (0..PLACES).filter(|at| *at != self.primary).collect()
    }

    fn a_replica(&mut self) -> usize {
        let replicas = self.replicas();
        replicas[self.below(replicas.len() as u64)]
    }

    /// Returns a node that another node follows, so that its relays are in use.
    fn one_that_is_followed(&mut self) -> usize {
        let followed: Vec<usize> = self
            .places
            .iter()
            .filter_map(|place| place.follows)
            .collect();
        followed[self.below(followed.len() as u64)]
    }

    #[allow(clippy::print_stderr, reason = "for who watches the run")]
    fn note(&mut self, what: impl Into<String>) {
        let what = what.into();
        if std::env::var_os("FAULTS_TOLD").is_some() {
            eprintln!("seed {}: {what}", self.seed);
        }
        self.done.push(what);
    }

    /// Ends the test with everything that may explain the failure.
    fn fail(&self, what: &str) -> ! {
        let logs = self.places.iter().enumerate().map(|(at, place)| {
            let (port, relays) = (place.node.port, (place.clients.port(), place.links.port()));
            format!(
                "==== {at}: port {port}, link {}, relays {relays:?}, follows {:?}\n{}\n{}\n",
                place.node.link_port,
                place.follows,
                place.node.info(),
                place.tail(LINES)
            )
        });
        let logs: String = logs.collect();
        if std::env::var_os("FAULTS_WAIT").is_some() {
            // Leaves the processes running for inspection.
            std::thread::sleep(Duration::from_hours(1));
        }
        panic!(
            "seed {}: {what}\nprimary {}, faults:\n{}\n{logs}",
            self.seed,
            self.primary,
            self.done.join("\n")
        );
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let patience = Patience::of(PATIENCE);
        while !is_so() {
            if !patience.lasts() {
                self.fail(&format!("never: {what}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn follow(&mut self, replica: usize, of: usize) {
        self.places[replica].follows = Some(of);
        let port = self.places[of].clients.port();
        self.order(replica, &format!("REPLICAOF 127.0.0.1 {port}"));
    }

    /// Makes a node obey a command. A node that loads data does not obey, and neither does Redis.
    fn order(&self, at: usize, line: &str) {
        self.until(&format!("{at} obeys {line}"), || {
            let reply = run(&mut self.node(at).client(), line);
            let is_loading = matches!(&reply, Value::Error(text) if text.starts_with(b"LOADING"));
            let is_done = matches!(&reply, Value::Simple(text) if text.starts_with(OK));
            if !is_loading && !is_done {
                self.fail(&format!("{at}, {line}: {reply:?}"));
            }
            !is_loading
        });
    }

    fn redis_follows(&self) {
        if let Some(redis) = &self.redis {
            let port = self.primary().port.to_string();
            let done = redis
                .client()
                .unwrap()
                .command(&["REPLICAOF", "127.0.0.1", &port]);
            // The reply contains more text if the node follows already.
            assert!(matches!(done.unwrap(), Value::Simple(text) if text.starts_with(OK)));
        }
    }

    /// Starts a node in its role.
    fn start(&mut self, at: usize) {
        let follows = self.places[at]
            .follows
            .map(|of| self.places[of].clients.port());
        let node = &mut self.places[at].node;
        match follows {
            Some(port) => node.start(&["--replicaof", &format!("127.0.0.1 {port}")]),
            None => node.start(&[]),
        }
    }

    /// Causes one fault.
    fn fault(&mut self) {
        let at = self.below(PLACES as u64);
        match self.below(20) {
            0 | 1 => {
                self.note(format!("kill {at}"));
                self.places[at].kill();
                self.sleep(400);
                self.start(at);
            }
            2 => {
                let long = if self.below(5) == 0 { 4_500 } else { 600 };
                self.note(format!("stop {at}"));
                self.node(at).signal("-STOP");
                self.sleep(long);
                self.node(at).signal("-CONT");
            }
            3..=6 => self.bad_network(),
            7 => {
                self.note(format!("save at {at}"));
                let _busy = run(&mut self.node(at).client(), "BGREWRITEAOF");
            }
            8 | 9 => self.move_one(),
            10 | 11 => self.wipe_one(),
            12 => self.lapse(),
            13 | 14 => self.full_disk(at),
            15 => self.power_cut(at),
            16 => self.fail_over(),
            17 => self.kill_and_promote(),
            18 => self.depose(),
            _ => self.begin_empty(),
        }
    }

    /// Disturbs the network of the links for a while.
    fn bad_network(&mut self) {
        let at = self.one_that_is_followed();
        let (kind, bytes) = (self.below(6), self.random.below(400_000));
        let is_long = self.below(6) == 0;
        let (delay_ms, of_target) = (1 + self.random.below(30), self.below(2) == 0);
        let links = &self.places[at].links;
        let what = match kind {
            0 => {
                links.cut();
                "cut"
            }
            1 => {
                links.cut_after(bytes);
                "cut after bytes"
            }
            2 => {
                links.hold(true);
                "hold"
            }
            3 => {
                links.hold_way(of_target, true);
                "hold one way"
            }
            4 => {
                links.slow(u32::try_from(delay_ms).unwrap());
                "slow"
            }
            _ => {
                links.shut(true);
                "shut"
            }
        };
        self.note(format!(
            "{what} at {at}, of the target: {of_target}, long: {is_long}"
        ));
        self.sleep(if is_long { 4_500 } else { 700 });
        self.places[at].heal();
    }

    /// Returns whether `at` is `of`, or follows it directly or through other nodes.
    fn is_below(&self, at: usize, of: usize) -> bool {
        let mut next = Some(at);
        while let Some(here) = next {
            if here == of {
                return true;
            }
            next = self.places[here].follows;
        }
        false
    }

    fn move_one(&mut self) {
        let at = self.a_replica();
        let others = (0..PLACES).filter(|of| !self.is_below(*of, at));
        let others: Vec<usize> = others.collect();
        let of = others[self.below(others.len() as u64)];
        self.note(format!("{at} follows {of}"));
        self.follow(at, of);
    }

    /// A replica begins with nothing, and the link breaks during its full sync.
    fn wipe_one(&mut self) {
        let at = self.a_replica();
        let of = self.places[at].follows.unwrap();
        let (breaks, bytes) = (self.below(3), self.random.below(600_000));
        self.note(format!("wipe {at}, which follows {of}; {breaks} breaks"));
        self.places[at].kill();
        let _none = std::fs::remove_dir_all(self.places[at].kept());
        self.places[of].links.cut_after(bytes);
        self.start(at);
        for _ in 0..breaks {
            self.sleep(300);
            let bytes = self.random.below(600_000);
            match self.below(4) {
                0 => {
                    self.places[at].kill();
                    self.start(at);
                }
                1 => {
                    self.places[of].links.hold_after(bytes);
                    self.sleep(300);
                    self.places[of].links.hold(false);
                }
                _ => self.places[of].links.cut_after(bytes),
            }
        }
        self.sleep(300);
        self.places[of].heal();
    }

    /// The log of a followed node advances without its followers, as far as it is kept.
    fn lapse(&mut self) {
        let at = self.one_that_is_followed();
        self.note(format!("lapse at {at}"));
        self.places[at].links.shut(true);
        for round in 0..3 {
            let mut client = self.primary().client();
            crate::recovery::fill(&mut client, round * 300..(round + 1) * 300);
            let _busy = run(&mut client, "SAVE");
            let _busy = run(&mut self.node(at).client(), "SAVE");
        }
        self.places[at].heal();
    }

    fn full_disk(&mut self, at: usize) {
        if !self.places[at].has_device() {
            return;
        }
        let more = self.below(5);
        self.note(format!("full disk at {at}, and {more}"));
        self.places[at].fill();
        self.sleep(500);
        match more {
            0 => {
                self.places[at].kill();
                self.start(at);
            }
            1 => {
                let _fails = run(&mut self.node(at).client(), "BGREWRITEAOF");
            }
            2 if at != self.primary => {
                self.places[at].kill();
                let _none = std::fs::remove_dir_all(self.places[at].kept());
                // The node would not start without any space.
                self.places[at].free();
                self.start(at);
                self.sleep(100);
                self.places[at].fill();
            }
            3 => {
                // A replica requests a full sync from the node.
                if let Some(replica) = (0..PLACES).find(|one| self.places[*one].follows == Some(at))
                {
                    self.places[replica].kill();
                    let _none = std::fs::remove_dir_all(self.places[replica].kept());
                    self.start(replica);
                }
            }
            _ => {}
        }
        self.sleep(1_000);
        self.places[at].free();
    }

    /// A node loses what was not on its device.
    fn power_cut(&mut self, at: usize) {
        self.note(format!("power cut at {at}"));
        self.places[at].cut_power();
        if at == self.primary {
            self.load.turn_to(self.node(at).port, false);
        }
        self.sleep(200);
        self.start(at);
    }

    /// Waits until everything is in the expected state, with no writers.
    fn settle(&mut self) {
        for place in &self.places {
            place.heal();
        }
        self.load.end();
        for at in self.replicas() {
            let of = self.places[at].follows.unwrap();
            self.until(&format!("the link of {at} to {of} is up"), || {
                self.node(at).field("master_link_status") == "up"
            });
            self.until(&format!("{at} has what {} has", self.primary), || {
                self.primary().digest() == self.node(at).digest()
            });
            self.until(
                &format!("{at} has the functions that {} has", self.primary),
                || {
                    let [one, two] = [self.primary, at]
                        .map(|at| run(&mut self.node(at).client(), "FUNCTION LIST WITHCODE"));
                    one == two
                },
            );
        }
        self.check_acknowledged();
        self.verify();
        self.settle_redis();
    }

    fn check_acknowledged(&self) {
        let (has, acknowledged) = (counters(self.primary()), self.load.acknowledged());
        if (0..WRITERS).any(|writer| has[writer] < acknowledged[writer]) {
            self.fail(&format!(
                "{acknowledged:?} was acknowledged, {has:?} is there"
            ));
        }
    }

    /// Lets every node that has replicas compare itself with them.
    fn verify(&self) {
        let count = self.replicas().into_iter();
        let direct = count.filter(|at| self.places[*at].follows == Some(self.primary));
        let direct = direct.count();
        if direct == 0 {
            return;
        }
        let told = std::cell::RefCell::new(None);
        self.until("all replicas compare themselves", || {
            if !self.primary().has_all_online() {
                return false;
            }
            let begun = run(&mut self.primary().client(), "REPLICATION VERIFY");
            if begun != Value::Simple(OK.to_vec()) {
                return false;
            }
            while self.primary().field("iolite_verify_in_progress") != "0" {
                std::thread::sleep(Duration::from_millis(10));
            }
            let count = |name| self.primary().field(name).parse::<usize>().unwrap();
            let same = count("iolite_verify_same");
            let different = count("iolite_verify_different");
            *told.borrow_mut() = Some((same, different));
            different > 0 || same == direct
        });
        if told
            .into_inner()
            .is_some_and(|(_, different)| different > 0)
        {
            let named = run(&mut self.primary().client(), "REPLICATION DIFFERENCES");
            self.fail(&format!("they differ: {named:?}"));
        }
    }

    fn settle_redis(&self) {
        let Some(redis) = &self.redis else { return };
        let mut client = redis.client().unwrap();
        let last = std::cell::RefCell::new(None);
        let client = std::cell::RefCell::new(&mut client);
        let patience = Patience::of(PATIENCE);
        loop {
            let mut two = client.borrow_mut();
            let is_up = crate::replication::field(&mut two, "master_link_status") == "up";
            if is_up && run(&mut two, "DEBUG DIGEST") == self.primary().digest() {
                return;
            }
            if is_up {
                let mut one = self.primary().client();
                let (one, other) = (full_state(&mut one).unwrap(), full_state(&mut two).unwrap());
                let [one, other] = [one, other].map(without_encodings);
                let differ = difference(&one, &other);
                let is_same = differ.is_none();
                *last.borrow_mut() = differ;
                if is_same {
                    return;
                }
            }
            if !patience.lasts() {
                let differ = last.borrow();
                self.fail(&format!(
                    "redis-server has something else: {differ:?}\n{}",
                    redis.log()
                ));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Causes faults, and checks everything after one or a few of them.
    fn run(&mut self, faults: u64) {
        let mut left = faults;
        while left > 0 {
            self.load.begin();
            let together = (1 + self.random.below(3)).min(left);
            for _ in 0..together {
                self.sleep(400);
                self.fault();
            }
            left -= together;
            self.sleep(200);
            self.settle();
        }
    }
}

/// Removes encodings from a state. The encoding of a value depends on how the value was written:
/// redis-server makes all of them anew in a full sync.
fn without_encodings(state: Value) -> Value {
    let Value::Array(mut parts) = state else {
        return state;
    };
    // The parts are a key, its type, its value, its time and its encoding.
    if parts.len() == 5 && matches!(parts[1], Value::Simple(_)) {
        parts[4] = Value::Null;
        return Value::Array(parts);
    }
    Value::Array(parts.into_iter().map(without_encodings).collect())
}

fn worlds(first_seed: u64, faults: u64, is_quick: bool) {
    let mut left = faults;
    let mut seed = first_seed;
    while left > 0 {
        let some = left.min(FAULTS_A_WORLD);
        World::new(seed, is_quick).run(some);
        left -= some;
        seed += 1;
    }
}

#[test]
fn some_faults_leave_all_with_the_same() {
    worlds(number_from("REPLICATION_FAULTS_SEED", 5), 6, true);
}

#[test]
#[ignore = "takes minutes; some of it needs root and loop devices"]
#[allow(clippy::print_stdout, reason = "for who reads the run")]
fn two_hundred_faults_leave_all_with_the_same() {
    let seed = number_from("REPLICATION_FAULTS_SEED", 2026);
    let faults = number_from("REPLICATION_FAULTS", 200);
    println!(
        "{faults} faults, again: REPLICATION_FAULTS_SEED={seed} REPLICATION_FAULTS={faults} \
         cargo test -p server --test it random_faults::two_hundred -- --ignored"
    );
    worlds(seed, faults, false);
}
