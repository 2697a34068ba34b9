//! Groups of real Rafts in one thread under one seed, with disks that lose data: acknowledged
//! entries remain, and all nodes agree.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::random::Prng;
use cluster::state::DocumentKind;
use cluster::{Applied, ControlState, Entry, Proposal, RequestId, Times};
use durability::disk::Disk;
use durability::simulated::SimulatedDisk;
use openraft::{AsyncRuntime as _, EmptyNode, Raft};
use openraft_rt_sim::SimRuntime;

use crate::{
    Carrier, Data, DiskFault, DiskLog, Machine, Network, Outcome, Published, Unreached, leader_of,
    raft_config, serve,
};

openraft::declare_raft_types!(
    /// Raft on the simulated runtime.
    pub(crate) SimTypes:
        D = Data,
        R = Outcome,
        NodeId = u64,
        Node = EmptyNode,
        AsyncRuntime = SimRuntime,
);

type SimRaft = Raft<SimTypes, Machine>;

const DIRECTORY: &str = "/control";
const STEP: Duration = Duration::from_millis(10);

mod faults;
mod many_nodes;
mod schedules;
mod whole_group;

struct Wires {
    rafts: BTreeMap<u64, SimRaft>,
    /// Nodes without connection to any other.
    cut: BTreeSet<u64>,
    /// Pairs (from, to) between which nothing gets through in that direction.
    one_way: BTreeSet<(u64, u64)>,
    random: Prng,
    /// Bound of the random delay of a hop.
    delay_us_max: u64,
    /// For each node, the leader of its last request, by term and id.
    acknowledged: BTreeMap<u64, (u64, u64)>,
}

fn shared_wires(seed: u64) -> Arc<Mutex<Wires>> {
    Arc::new(Mutex::new(Wires {
        rafts: BTreeMap::new(),
        cut: BTreeSet::new(),
        one_way: BTreeSet::new(),
        random: Prng::seeded(seed),
        delay_us_max: 1_500,
        acknowledged: BTreeMap::new(),
    }))
}

/// The wires as one node sees them.
struct Wire {
    wires: Arc<Mutex<Wires>>,
    own: u64,
}

impl Wire {
    /// Returns a delay, and the peer if a request gets there, or an answer gets back.
    fn look(&self, to: u64, is_answer: bool) -> (Duration, Option<SimRaft>) {
        let mut wires = self.wires.lock().unwrap();
        let delay_us_max = wires.delay_us_max;
        let delay = Duration::from_micros(200 + wires.random.below(delay_us_max));
        let way = match is_answer {
            true => (to, self.own),
            false => (self.own, to),
        };
        let is_cut = wires.cut.contains(&self.own) || wires.cut.contains(&to);
        let is_cut = is_cut || wires.one_way.contains(&way);
        let peer = wires.rafts.get(&to).filter(|_| !is_cut).cloned();
        (delay, peer)
    }
}

impl Carrier for Wire {
    async fn ask(&self, to: u64, request: Vec<u8>, _: Duration) -> Result<Vec<u8>, Unreached> {
        let gone = || Unreached("cut".to_owned());
        let (delay, peer) = self.look(to, false);
        SimRuntime::sleep(delay).await;
        let peer = peer.ok_or_else(gone)?;
        if let Some(leader) = leader_of(&request) {
            let mut wires = self.wires.lock().unwrap();
            wires.acknowledged.insert(to, leader);
        }
        let answer = serve(&peer, &request).await;
        let (delay, peer) = self.look(to, true);
        SimRuntime::sleep(delay).await;
        peer.ok_or_else(gone)?;
        answer.map_err(Unreached)
    }
}

struct Node {
    disk: SimulatedDisk,
    published: Published,
    fault: DiskFault,
}

struct World {
    wires: Arc<Mutex<Wires>>,
    nodes: BTreeMap<u64, Node>,
}

impl World {
    async fn new(seed: u64, count: u64) -> Self {
        let wires = shared_wires(seed);
        let nodes = BTreeMap::new();
        let mut world = Self { wires, nodes };
        for id in 1..=count {
            world.start(id, SimulatedDisk::new(seed + id)).await;
        }
        let members: BTreeMap<u64, EmptyNode> = (1..=count).map(|id| (id, EmptyNode {})).collect();
        world.raft(1).initialize(members).await.unwrap();
        world
    }

    async fn start(&mut self, id: u64, disk: SimulatedDisk) {
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let directory = Path::new(DIRECTORY);
        let log = DiskLog::open(&shared, directory).unwrap();
        let published = Published::default();
        let fault = log.fault();
        let machine = Machine::new(&shared, directory, &published, &fault);
        let wire = Wire {
            wires: Arc::clone(&self.wires),
            own: id,
        };
        let mut config = raft_config(&Times::of(1_500)).unwrap();
        config.snapshot_policy = openraft::SnapshotPolicy::LogsSinceLast(40);
        config.max_in_snapshot_log_to_keep = 10;
        let network = Network(Arc::new(wire));
        let raft = SimRaft::new(id, Arc::new(config), network, log, machine);
        let raft = raft.await.unwrap();
        self.wires.lock().unwrap().rafts.insert(id, raft);
        let node = Node {
            disk,
            published,
            fault,
        };
        self.nodes.insert(id, node);
    }

    fn raft(&self, id: u64) -> SimRaft {
        self.wires.lock().unwrap().rafts[&id].clone()
    }

    fn leader(&self) -> Option<u64> {
        let wires = self.wires.lock().unwrap();
        let leads = |(id, raft): (&u64, &SimRaft)| {
            (raft.is_leader() && !wires.cut.contains(id)).then_some(*id)
        };
        wires.rafts.iter().find_map(leads)
    }

    fn leader_cut_off(&self) -> Option<SimRaft> {
        let wires = self.wires.lock().unwrap();
        let mut rafts = wires.rafts.iter();
        let found = rafts.find(|(id, raft)| raft.is_leader() && wires.cut.contains(id));
        found.map(|(_, raft)| raft.clone())
    }

    /// Cuts a node's power, and restarts it from what its disk kept.
    async fn restart(&mut self, id: u64, seed: u64) {
        let disk = self.nodes[&id].disk.crash(seed);
        self.restart_from(id, disk).await;
    }

    /// Ends a node, and restarts it from this disk.
    async fn restart_from(&mut self, id: u64, disk: SimulatedDisk) {
        let raft = self.wires.lock().unwrap().rafts.remove(&id).unwrap();
        self.nodes[&id].fault.give_up();
        raft.shutdown().await.unwrap();
        SimRuntime::sleep(Duration::from_millis(300)).await;
        self.start(id, disk).await;
    }

    fn states(&self) -> Vec<Arc<ControlState>> {
        self.nodes
            .values()
            .map(|node| node.published.get())
            .collect()
    }
}

fn number_of(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Sums up the results of `seeds` seeds, from `CONSENSUS_FIRST_SEED` on. Half of them run on
/// another thread: the runtime of a seed stays in one thread.
fn total_of<S: Default + Send>(
    seeds: u64,
    run: impl Fn(u64) -> S + Sync,
    add: impl Fn(&mut S, S) + Sync,
) -> S {
    let first = number_of("CONSENSUS_FIRST_SEED", 0);
    let all = |seeds: std::ops::Range<u64>| {
        let mut total = S::default();
        seeds.for_each(|seed| add(&mut total, run(first.wrapping_add(seed))));
        total
    };
    std::thread::scope(|scope| {
        let half = scope.spawn(|| all(0..seeds / 2));
        let mut total = all(seeds / 2..seeds);
        add(&mut total, half.join().expect("a seed failed"));
        total
    })
}

fn proposal(number: u64) -> Proposal {
    let mut request = RequestId::default();
    request.0[..8].copy_from_slice(&number.to_le_bytes());
    let entry = Entry::Document {
        kind: DocumentKind::Config,
        name: number.to_le_bytes().to_vec(),
        expected_version: 0,
        body: Some(b"x".to_vec()),
    };
    Proposal { request, entry }
}

/// Whether the entry with this number was applied.
fn has(state: &ControlState, number: u64) -> bool {
    let key = (DocumentKind::Config, number.to_le_bytes().to_vec());
    state.documents.contains_key(&key)
}

/// Proposes at the leader. Returns whether it was acknowledged in time.
async fn write(world: &World, number: u64) -> bool {
    let Some(leader) = world.leader() else {
        return false;
    };
    let raft = world.raft(leader);
    let written = raft.client_write(Data(proposal(number).encode()));
    let written = SimRuntime::timeout(Duration::from_millis(500), written).await;
    matches!(written, Ok(Ok(response)) if response.data == Some(Applied::Done))
}

/// Runs one seed. Returns the acknowledged entries, the longest time without one, and the final
/// content of all nodes.
fn run(seed: u64) -> (Vec<u64>, Duration, Vec<u8>) {
    SimRuntime::with_seed(seed).block_on(async move {
        let mut world = World::new(seed, 3).await;
        let (mut acknowledged, mut pause, mut longest) =
            (Vec::new(), Duration::ZERO, Duration::ZERO);
        for number in 0..500 {
            match number {
                120 => {
                    let leader = world.leader();
                    world.wires.lock().unwrap().cut.extend(leader);
                }
                240 => world.wires.lock().unwrap().cut.clear(),
                320 => {
                    let leader = world.leader().unwrap_or(1);
                    world.restart(leader, seed).await;
                }
                _ => {}
            }
            let began = <SimRuntime as openraft::AsyncRuntime>::Instant::now_at();
            SimRuntime::sleep(STEP).await;
            let is_written = write(&world, number).await;
            pause += <SimRuntime as openraft::AsyncRuntime>::Instant::now_at() - began;
            if is_written {
                acknowledged.push(number);
                longest = longest.max(pause);
                pause = Duration::ZERO;
            }
        }
        SimRuntime::sleep(Duration::from_secs(5)).await;
        assert!(
            write(&world, 1_000).await,
            "seed {seed}: not well in the end"
        );
        SimRuntime::sleep(Duration::from_secs(2)).await;
        let states = world.states();
        for state in &states {
            assert_eq!(state.documents, states[0].documents, "seed {seed}");
        }
        for number in &acknowledged {
            assert!(has(&states[0], *number), "seed {seed}: {number} is lost");
        }
        (acknowledged, longest, states[0].encode())
    })
}

/// The runtime's clock, without its trait in every call.
trait Now: Sized {
    fn now_at() -> Self;
}

impl<T: openraft::Instant> Now for T {
    fn now_at() -> Self {
        T::now()
    }
}

#[test]
fn what_was_acknowledged_stays_and_all_agree() {
    for seed in 0..4 {
        let (acknowledged, longest, _) = run(seed);
        assert!(
            acknowledged.len() > 200,
            "seed {seed}: {}",
            acknowledged.len()
        );
        // In virtual time.
        assert!(longest < Duration::from_secs(4), "seed {seed}: {longest:?}");
        println!(
            "seed {seed}: {} acknowledged, longest pause {longest:?}",
            acknowledged.len()
        );
    }
}

#[test]
fn equal_seeds_have_equal_runs() {
    assert_eq!(run(3), run(3));
}

#[test]
fn bytes_of_a_stranger_change_nothing() {
    SimRuntime::with_seed(1).block_on(async {
        let world = World::new(1, 1).await;
        SimRuntime::sleep(Duration::from_secs(2)).await;
        let before = world.states();
        let mut random = Prng::seeded(9);
        for _ in 0..2_000 {
            let mut bytes = vec![0; random.index(80)];
            random.fill(&mut bytes);
            if let Some(kind) = bytes.first_mut() {
                *kind %= 6;
            }
            bytes.truncate(20);
            assert!(serve(&world.raft(1), &bytes).await.is_err());
        }
        assert_eq!(world.states(), before);
    });
}
