//! The whole group in one thread under one seed: members, leaders and the primary's log from the
//! room `cluster`, on real Rafts with disks that lose data.
//!
//! ```text
//!   cluster::simulation::World ─► members, leaders, links, faults, checks
//!            └─ RaftLogs ─► openraft on its simulated runtime ─► DiskLog, Machine ─► SimulatedDisk
//! ```
//!
//! Links that the world cuts are also cut for Raft, and a node that it restarts loses what its disk
//! had not synced. The promises are the world's: no committed frame is lost, only one primary
//! replies, and equal index means equal state.
//!
//! One seed: `CONSENSUS_SEED=7 cargo test -p consensus one_seed_of_a_whole_group -- --nocapture`;
//! more of them: `CONSENSUS_SEEDS=1000 cargo test -p consensus --release whole_group:: --
//! --nocapture`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::random::Prng;
use cluster::planted::{Bug, plant};
use cluster::simulation::{Beginning, ControlLogs, Fault, Links, STEP_MS, Summary, World};
use cluster::{ControlState, Entry, Proposal, RequestId, Times};
use durability::disk::Disk;
use durability::simulated::SimulatedDisk;
use openraft::{AsyncRuntime as _, EmptyNode};
use openraft_rt_sim::SimRuntime;

use super::{DIRECTORY, STEP, SimRaft, Wire, Wires, number_of, shared_wires, total_of};
use crate::network::propose;
use crate::standing::Standing;
use crate::{DiskFault, DiskLog, Machine, Network, Published, raft_config};

/// A leader, by term and Raft id.
type Reign = (u64, u64);

struct Node {
    disk: SimulatedDisk,
    published: Published,
}

/// The control logs of a world: the node at place *n* has Raft id *n* + 1.
struct RaftLogs {
    wires: Arc<Mutex<Wires>>,
    nodes: Vec<Node>,
    times: Times,
    now_ms: u64,
    requests: u64,
    random: Prng,
}

fn id_of(at: usize) -> u64 {
    at as u64 + 1
}

/// Starts a node with what its disk has.
async fn start(wires: Arc<Mutex<Wires>>, id: u64, disk: SimulatedDisk, published: Published) {
    let shared: Arc<dyn Disk> = Arc::new(disk);
    let directory = Path::new(DIRECTORY);
    let log = DiskLog::open(&shared, directory).unwrap();
    let machine = Machine::new(&shared, directory, &published, &log.fault());
    let mut config = raft_config(&Times::of(1_500)).unwrap();
    config.snapshot_policy = openraft::SnapshotPolicy::LogsSinceLast(20);
    config.max_in_snapshot_log_to_keep = 5;
    let wire = Wire {
        wires: Arc::clone(&wires),
        own: id,
    };
    let network = Network(Arc::new(wire));
    let raft = SimRaft::new(id, Arc::new(config), network, log, machine);
    let raft = raft.await.unwrap();
    wires.lock().unwrap().rafts.insert(id, raft);
}

impl RaftLogs {
    /// Creates logs that have the entries of a beginning.
    async fn new(seed: u64, beginning: &Beginning) -> Self {
        let mut logs = Self {
            wires: shared_wires(seed),
            nodes: Vec::new(),
            times: beginning.times,
            now_ms: 0,
            requests: 0,
            random: Prng::seeded(seed ^ 0x6c6f_6773),
        };
        for at in 0..beginning.ids.len() {
            let disk = SimulatedDisk::new(seed.wrapping_add(id_of(at)));
            let published = Published::default();
            let node = Node {
                disk: disk.clone(),
                published: published.clone(),
            };
            logs.nodes.push(node);
            start(Arc::clone(&logs.wires), id_of(at), disk, published).await;
        }
        let members: BTreeMap<u64, EmptyNode> = (0..beginning.ids.len())
            .map(|at| (id_of(at), EmptyNode {}))
            .collect();
        logs.raft(0).unwrap().initialize(members).await.unwrap();
        for mut entry in beginning.entries() {
            logs.expect_present(&mut entry);
            let bytes = logs.proposal(entry).encode();
            let mut is_written = false;
            while !is_written {
                SimRuntime::sleep(STEP).await;
                for at in 0..logs.nodes.len() {
                    let raft = logs.raft(at).filter(openraft::Raft::is_leader);
                    if let Some(raft) = raft {
                        is_written |= propose(&raft, bytes.clone()).await.is_ok();
                    }
                }
            }
        }
        let state = logs.newest();
        let members = state.shards.values().map(|shard| shard.members.len());
        assert_eq!(members.sum::<usize>(), beginning.ids.len(), "{state:?}");
        logs
    }

    /// Returns the newest state of all nodes.
    fn newest(&self) -> Arc<ControlState> {
        let states = self.nodes.iter().map(|node| node.published.get());
        states.max_by_key(|state| state.index).unwrap()
    }

    /// Makes an entry expect the shard's present epoch: Raft's own entries lie between those of the
    /// group.
    fn expect_present(&self, entry: &mut Entry) {
        if let Entry::Shard {
            shard,
            expected_epoch,
            ..
        } = entry
            && let Some(known) = self.newest().shards.get(shard)
        {
            *expected_epoch = known.epoch;
        }
    }

    /// Returns the node's Raft, or `None` while it is being restarted.
    fn raft(&self, at: usize) -> Option<SimRaft> {
        self.wires.lock().unwrap().rafts.get(&id_of(at)).cloned()
    }

    fn standing(&self, at: usize) -> Standing {
        let raft = self.raft(at);
        raft.map_or_else(Standing::default, |raft| {
            Standing::of(&raft, self.times.election_ms_max, &DiskFault::default())
        })
    }

    fn proposal(&mut self, entry: Entry) -> Proposal {
        self.requests += 1;
        let mut request = RequestId::default();
        request.0[..8].copy_from_slice(&self.requests.to_le_bytes());
        Proposal { request, entry }
    }
}

impl ControlLogs for RaftLogs {
    fn step(&mut self, now_ms: u64, links: &Links) {
        self.now_ms = now_ms;
        let count = self.nodes.len();
        let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
        let cut = pairs.filter(|(from, to)| !links.carries(*from, *to));
        let cut = cut.map(|(from, to)| (id_of(from), id_of(to)));
        self.wires.lock().unwrap().one_way = cut.collect();
    }

    fn reign(&self, at: usize) -> Option<Reign> {
        let standing = self.standing(at);
        standing.is_ready.then_some((standing.term, id_of(at)))
    }

    fn has_quorum(&self, at: usize, _: u64, _: u64) -> bool {
        self.standing(at).has_quorum
    }

    fn acknowledged(&mut self, at: usize, _: u64) -> Option<Reign> {
        let heard = self.wires.lock().unwrap().acknowledged.remove(&id_of(at));
        let standing = self.standing(at);
        let own = standing.is_leader.then_some((standing.term, id_of(at)));
        own.or(heard)
    }

    fn learn(
        &mut self,
        at: usize,
        known: &ControlState,
        _: &Links,
        _: &mut Prng,
    ) -> Option<Arc<ControlState>> {
        let state = self.nodes[at].published.get();
        (state.index > known.index).then_some(state)
    }

    fn propose(&mut self, at: usize, entry: Entry, _: u64) {
        let bytes = self.proposal(entry).encode();
        if let Some(raft) = self.raft(at) {
            drop(SimRuntime::spawn(async move {
                // The state shows the result.
                let _done = propose(&raft, bytes).await;
            }));
        }
    }

    fn restart(&mut self, at: usize, until_ms: u64) {
        let id = id_of(at);
        // A node that is already being restarted loses nothing more.
        let Some(raft) = self.wires.lock().unwrap().rafts.remove(&id) else {
            return;
        };
        let disk = self.nodes[at].disk.crash(self.random.next_u64());
        let published = Published::default();
        self.nodes[at] = Node {
            disk: disk.clone(),
            published: published.clone(),
        };
        let down = Duration::from_millis(until_ms.saturating_sub(self.now_ms));
        let wires = Arc::clone(&self.wires);
        drop(SimRuntime::spawn(async move {
            raft.shutdown().await.unwrap();
            SimRuntime::sleep(down).await;
            start(wires, id, disk, published).await;
        }));
    }

    fn unsettle(&mut self, at: usize) {
        if let Some(raft) = self.raft(at) {
            drop(SimRuntime::spawn(async move {
                raft.trigger().elect(false).await.unwrap();
            }));
        }
    }
}

/// Runs one seed.
fn run(seed: u64) -> Result<Summary, Fault> {
    SimRuntime::with_seed(seed).block_on(async move {
        let beginning = Beginning::of(seed);
        let logs = RaftLogs::new(seed, &beginning).await;
        let mut world = World::new(beginning, logs);
        while world.go_on()? {
            SimRuntime::sleep(Duration::from_millis(STEP_MS)).await;
        }
        world.ended()
    })
}

#[test]
fn a_whole_group_keeps_its_promises_under_faults() {
    let seeds = number_of("CONSENSUS_SEEDS", 40);
    let ended = |seed| match run(seed) {
        Ok(summary) => summary,
        Err(fault) => panic!("CONSENSUS_SEED={seed}: {fault}"),
    };
    let total = total_of(seeds, ended, |total: &mut Summary, summary| {
        total.add(&summary);
    });
    println!("{seeds} seeds: {total:?}");
    assert!(total.replies > seeds * 50, "{total:?}");
    assert!(total.promotions > seeds / 2, "{total:?}");
}

#[test]
fn one_seed_of_a_whole_group() {
    let seed = number_of("CONSENSUS_SEED", 3);
    let ended = run(seed);
    println!("{ended:?}");
    assert!(ended.is_ok(), "{ended:?}");
    assert_eq!(ended, run(seed), "two runs of one seed differ");
}

/// Returns the first seed that detects a mistake, and the fault. A mere standstill says too little.
fn found(bug: Bug) -> Option<(u64, Fault)> {
    plant(Some(bug));
    let ended = (0..2_000).map(|seed| (seed, run(seed)));
    let found = ended
        .filter_map(|(seed, ended)| Some((seed, ended.err()?)))
        .find(|(_, fault)| !matches!(fault, Fault::NotWell { .. }));
    plant(None);
    found
}

#[test]
#[ignore = "takes minutes"]
fn planted_mistakes_are_found_in_a_whole_group() {
    for bug in [
        Bug::PromoteWithoutSeal,
        Bug::LeaseWithoutQuorum,
        Bug::PromoteWithinLease,
        Bug::OneAnswer,
    ] {
        let found = found(bug);
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} was not found");
    }
}
