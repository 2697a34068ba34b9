//! Tests of faults at random moments: processes are killed or paused, links break or hang, the
//! office changes. Afterwards all nodes hold the same data, and no write that a primary in office
//! acknowledged is missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread::JoinHandle;

use base::random::Prng;
use testkit::relay::Relay;

use super::*;

/// A node, and relays for the nodes that follow it.
struct Place {
    node: Node,
    clients: Relay,
    links: Relay,
}

impl Place {
    fn new() -> Self {
        let node = Node::new(&["--repl-timeout", "3", "--save", "1 20"]);
        let links = Relay::to(node.link_port).unwrap();
        let clients = Relay::rewriting(node.port, node.link_port, links.port()).unwrap();
        Self {
            node,
            clients,
            links,
        }
    }

    fn signal(&self, name: &str) {
        self.node.signal(name);
    }
}

/// A thread that writes to the primary all the while.
struct Writer {
    stop: Arc<AtomicBool>,
    /// The port of the primary.
    port: Arc<AtomicU16>,
    /// The highest acknowledged count.
    acknowledged: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    fn new(seed: u64, port: u16) -> Self {
        let mut writer = Self {
            stop: Arc::default(),
            port: Arc::new(AtomicU16::new(port)),
            acknowledged: Arc::default(),
            thread: None,
        };
        let (stop, port, acknowledged) = (
            Arc::clone(&writer.stop),
            Arc::clone(&writer.port),
            Arc::clone(&writer.acknowledged),
        );
        writer.thread = Some(std::thread::spawn(move || {
            let mut random = Prng::seeded(seed);
            let mut client: Option<(u16, Client)> = None;
            while !stop.load(Ordering::Acquire) {
                let now = port.load(Ordering::Acquire);
                let is_good = client.as_ref().is_some_and(|(of, _)| *of == now);
                if !is_good {
                    let address = std::net::SocketAddr::from(([127, 0, 0, 1], now));
                    client = Client::connect_tcp(address)
                        .ok()
                        .map(|client| (now, client));
                }
                let written = client
                    .as_mut()
                    .map(|(_, client)| write(client, &mut random));
                match written {
                    Some(Ok(count)) => {
                        // If the office has changed meanwhile, the new primary may have less.
                        if port.load(Ordering::Acquire) == now {
                            acknowledged.store(count, Ordering::Release);
                        }
                    }
                    _ => {
                        client = None;
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            }
        }));
        writer
    }

    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap();
        self.acknowledged.load(Ordering::Acquire)
    }
}

/// Makes a write of each kind, and returns the count.
fn write(client: &mut Client, random: &mut Prng) -> Result<u64, ()> {
    let key = random.below(200).to_string();
    let value = "x".repeat(usize::try_from(random.below(400)).unwrap());
    let line: Vec<&str> = match random.below(10) {
        0 => vec!["DEL", &key],
        1 => vec!["RPUSH", "list", &value],
        2 => vec!["LPOP", "list"],
        3 => vec!["HSET", "hash", &key, &value],
        4 => vec!["SADD", "set", &key],
        5 => vec!["ZADD", "sorted", &key, &key],
        6 => vec!["SET", &key, &value, "PX", "200"],
        7 => vec![
            "EVAL",
            "redis.call('SET', KEYS[1], ARGV[1]) redis.call('INCR', 'scripts')",
            "1",
            &key,
            &value,
        ],
        _ => vec!["SET", &key, &value],
    };
    client.command(&line).map_err(|_| ())?;
    match client.command(&["INCR", "counter"]).map_err(|_| ())? {
        Value::Integer(count) => u64::try_from(count).map_err(|_| ()),
        _ => Err(()),
    }
}

struct World {
    places: Vec<Place>,
    /// The index of the primary.
    primary: usize,
    random: Prng,
}

impl World {
    fn new(seed: u64) -> Self {
        let places: Vec<Place> = (0..3).map(|_| Place::new()).collect();
        let world = Self {
            places,
            primary: 0,
            random: Prng::seeded(seed),
        };
        for replica in world.replicas() {
            world.places[replica].node.follow_at(world.followed());
        }
        world
    }

    fn followed(&self) -> u16 {
        self.places[self.primary].clients.port()
    }

    fn replicas(&self) -> Vec<usize> {
        (0..self.places.len())
            .filter(|at| *at != self.primary)
            .collect()
    }

    fn restart(&mut self, at: usize) {
        let follows = format!("127.0.0.1 {}", self.followed());
        self.places[at].node.kill();
        let args: &[&str] = if at == self.primary {
            &[]
        } else {
            &["--replicaof", &follows]
        };
        self.places[at].node.start(args);
    }

    /// Kills the primary. A replica takes its office, and what that replica has is then valid.
    fn change_office(&mut self, writer: &Writer) {
        let (old, replicas) = (self.primary, self.replicas());
        let new = replicas[usize::try_from(self.random.below(2)).unwrap()];
        self.places[old].node.kill();
        let mut client = self.places[new].node.client();
        assert_eq!(
            run(&mut client, "REPLICAOF NO ONE"),
            Value::Simple(b"OK".to_vec())
        );
        self.places[new].node.wait_for("role", "master");
        self.primary = new;
        writer
            .port
            .store(self.places[new].node.port, Ordering::Release);
        writer.acknowledged.store(0, Ordering::Release);
        let other = replicas.into_iter().find(|at| *at != new).unwrap();
        self.places[other].node.follow_at(self.followed());
        self.restart(old);
        // Both may have begun a term of the same number: an operator has to decide whose data
        // counts.
        let port = self.followed().to_string();
        let mut client = self.places[old].node.client();
        let done = client.command(&["REPLICAOF", "127.0.0.1", &port, "FORCE"]);
        assert_eq!(done.unwrap(), Value::Simple(b"OK".to_vec()));
    }

    /// Causes one fault. Returns its name.
    fn fault(&mut self, writer: &Writer) -> &'static str {
        let at = usize::try_from(self.random.below(3)).unwrap();
        let primary = self.primary;
        match self.random.below(8) {
            0 | 1 => {
                self.restart(at);
                "kill"
            }
            2 => {
                self.places[at].signal("-STOP");
                std::thread::sleep(Duration::from_millis(self.random.below(400)));
                self.places[at].signal("-CONT");
                "stop"
            }
            3 => {
                self.places[primary].links.cut();
                "cut"
            }
            4 => {
                let bytes = self.random.below(200_000);
                self.places[primary].links.cut_after(bytes);
                "cut after"
            }
            5 => {
                self.places[primary].links.hold(true);
                std::thread::sleep(Duration::from_millis(self.random.below(400)));
                self.places[primary].links.hold(false);
                "hold"
            }
            6 => {
                let _busy = run(&mut self.places[at].node.client(), "BGREWRITEAOF");
                "save"
            }
            _ => {
                self.change_office(writer);
                "office"
            }
        }
    }

    /// Causes some faults while clients write. Then all nodes must be the same.
    fn round(&mut self, seed: u64, faults: usize) {
        let writer = Writer::new(seed, self.places[self.primary].node.port);
        let mut done = Vec::new();
        for _ in 0..faults {
            std::thread::sleep(Duration::from_millis(self.random.below(300)));
            done.push(self.fault(&writer));
        }
        std::thread::sleep(Duration::from_millis(100));
        let acknowledged = writer.end();
        let primary = &self.places[self.primary].node;
        for replica in self.replicas() {
            primary.wait_for_replica(&self.places[replica].node);
        }
        assert_eq!(primary.compare(), (2, 0), "seed {seed}: {done:?}");
        let has = run(&mut primary.client(), "GET counter");
        let has = match has {
            Value::Bulk(has) => String::from_utf8(has).unwrap().parse().unwrap(),
            _ => 0_u64,
        };
        assert!(
            has >= acknowledged,
            "seed {seed}: {done:?}: {acknowledged} was acknowledged, {has} is there"
        );
    }
}

fn rounds(seeds: std::ops::Range<u64>, faults: usize) {
    let mut world = World::new(seeds.start);
    for seed in seeds {
        world.round(seed, faults);
    }
}

#[test]
fn all_hold_the_same_whatever_happened() {
    rounds(0..5, 3);
}

#[test]
#[ignore = "takes minutes"]
fn all_hold_the_same_whatever_happened_for_long() {
    rounds(100..140, 6);
}
