//! Random faults, one seed per run: cuts in both directions or one, power cuts, slow links, disks
//! that are full or fail, a voter that is replaced by a new node.
//!
//! Acknowledged entries remain, all nodes have the same state at the same index, and no index
//! decreases; in the end the group works again.
//!
//! One seed: `CONSENSUS_SEED=7 cargo test -p consensus one_seed -- --nocapture`. The gate runs a
//! few, and 1,000 in an optimised build if the rooms under test changed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::random::Prng;
use durability::simulated::Fault;
use openraft::{AsyncRuntime as _, ChangeMembers, EmptyNode};
use openraft_rt_sim::SimRuntime;

use super::{SimulatedDisk, World, has, number_of, proposal, total_of, write};
use crate::Data;
use crate::planted::{Bug, plant};

/// Time between two writes.
const PAUSE: Duration = Duration::from_millis(10);
/// Number of write attempts while faults happen.
const WRITES: u64 = 250;
/// Names of entries written at leaders that are cut off begin here.
const UNHEARD: u64 = 1_000_000;
/// Time until the group must work again.
const CALM: Duration = Duration::from_secs(4);

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    acknowledged: u64,
    restarts: u64,
    cuts: u64,
    replaced: u64,
    disk_faults: u64,
    state: Vec<u8>,
}

/// The observed states, by index.
#[derive(Default)]
struct Seen {
    by_index: BTreeMap<u64, Vec<u8>>,
    newest: BTreeMap<u64, u64>,
}

impl Seen {
    /// Checks that nodes agree at each index, and that no index decreases, except to what the disk
    /// kept at a restart.
    fn look(&mut self, seed: u64, world: &World) {
        for (id, node) in &world.nodes {
            let state = node.published.get();
            let before = self.newest.insert(*id, state.index).unwrap_or(0);
            assert!(state.index >= before, "seed {seed}: node {id} went back");
            if state.index == before {
                continue;
            }
            let bytes = state.encode();
            let known = self
                .by_index
                .entry(state.index)
                .or_insert_with(|| bytes.clone());
            assert!(
                *known == bytes,
                "seed {seed}: two states at index {}",
                state.index
            );
        }
    }
}

struct Run {
    seed: u64,
    random: Prng,
    world: World,
    seen: Seen,
    outcome: Outcome,
    /// Id of the next replacement voter: ids are not reused.
    next_id: u64,
}

impl Run {
    fn ids(&self) -> Vec<u64> {
        self.world.nodes.keys().copied().collect()
    }

    fn some(&mut self) -> u64 {
        let ids = self.ids();
        ids[self.random.index(ids.len())]
    }

    async fn fault(&mut self) {
        let some = self.some();
        let leader = self.world.leader().unwrap_or(some);
        let whom = if self.random.below(2) == 0 {
            leader
        } else {
            some
        };
        match self.random.below(12) {
            0 | 1 => {
                self.outcome.cuts += 1;
                self.world.wires.lock().unwrap().cut.insert(whom);
            }
            2 => {
                self.outcome.cuts += 1;
                let other = self.some();
                let mut wires = self.world.wires.lock().unwrap();
                wires.one_way.insert((whom, other));
            }
            3..6 => self.heal(),
            6 | 7 => {
                self.outcome.restarts += 1;
                let seed = self.random.next_u64();
                self.world.restart(whom, seed).await;
                self.seen.newest.remove(&whom);
            }
            8 => {
                let delay_us_max = 1_000 + self.random.below(60_000);
                self.world.wires.lock().unwrap().delay_us_max = delay_us_max;
            }
            9 | 10 => {
                self.outcome.disk_faults += 1;
                let fault = Fault::ALL[self.random.index(Fault::ALL.len())];
                let disk = &self.world.nodes[&whom].disk;
                disk.fail(disk.operations()..u64::MAX, fault);
            }
            _ => self.replace(whom).await,
        }
    }

    fn heal(&self) {
        for node in self.world.nodes.values() {
            node.disk.heal();
        }
        let mut wires = self.world.wires.lock().unwrap();
        wires.cut.clear();
        wires.one_way.clear();
        wires.delay_us_max = 1_500;
    }

    /// Replaces a voter that is lost for good by a node with another id and an empty disk.
    async fn replace(&mut self, gone: u64) {
        let Some(leader) = self.world.leader().filter(|leader| *leader != gone) else {
            return;
        };
        let raft = self.world.raft(leader);
        let id = self.next_id;
        self.next_id += 1;
        let disk = SimulatedDisk::new(self.seed.wrapping_add(id));
        self.world.start(id, disk).await;
        let within = Duration::from_millis(600);
        let joined = SimRuntime::timeout(within, raft.add_learner(id, EmptyNode {}, true)).await;
        if !matches!(joined, Ok(Ok(_))) {
            return;
        }
        let voters: BTreeSet<u64> = raft.voter_ids().collect();
        let voters = voters.into_iter().filter(|voter| *voter != gone);
        let voters: BTreeSet<u64> = voters.chain([id]).collect();
        let change = ChangeMembers::ReplaceAllVoters(voters);
        let changed = SimRuntime::timeout(within, raft.change_membership(change, false)).await;
        self.outcome.replaced += u64::from(matches!(changed, Ok(Ok(_))));
    }

    /// Writes to a leader that is cut off. None of these entries may remain once another node
    /// leads.
    async fn write_where_nobody_hears(&self, number: u64) {
        if let Some(raft) = self.world.leader_cut_off() {
            let entry = Data(proposal(UNHEARD + number).encode());
            let written = SimRuntime::timeout(Duration::from_millis(2), raft.client_write(entry));
            let _unheard = written.await;
        }
    }

    async fn write(&mut self, number: u64, acknowledged: &mut Vec<u64>) {
        SimRuntime::sleep(PAUSE).await;
        self.write_where_nobody_hears(number).await;
        if write(&self.world, number).await {
            acknowledged.push(number);
        }
        self.seen.look(self.seed, &self.world);
    }
}

/// Runs one seed.
fn run(seed: u64) -> Outcome {
    SimRuntime::with_seed(seed).block_on(async move {
        let mut random = Prng::seeded(seed);
        let count = if random.below(3) == 0 { 5 } else { 3 };
        let mut run = Run {
            seed,
            random,
            world: World::new(seed, count).await,
            seen: Seen::default(),
            outcome: Outcome::default(),
            next_id: 100,
        };
        let mut acknowledged = Vec::new();
        for number in 0..WRITES {
            if run.random.below(25) == 0 {
                run.fault().await;
            }
            run.write(number, &mut acknowledged).await;
        }
        run.heal();
        SimRuntime::sleep(CALM).await;
        for number in WRITES..WRITES + 20 {
            run.write(number, &mut acknowledged).await;
        }
        let calm = acknowledged.iter().filter(|number| **number >= WRITES);
        assert!(calm.count() >= 10, "seed {seed}: not well in the end");
        SimRuntime::sleep(Duration::from_secs(1)).await;
        run.seen.look(seed, &run.world);
        check_kept(&run, &acknowledged);
        run.outcome.acknowledged = acknowledged.len() as u64;
        run.outcome.state = run.world.states()[0].encode();
        run.outcome
    })
}

/// Checks that every voter has the acknowledged entries.
fn check_kept(run: &Run, acknowledged: &[u64]) {
    let seed = run.seed;
    let leader = run.world.leader().unwrap();
    for voter in run.world.raft(leader).voter_ids() {
        let state = run.world.nodes[&voter].published.get();
        for number in acknowledged {
            let is_kept = has(&state, *number);
            assert!(is_kept, "seed {seed}: {number} is not at {voter}");
        }
    }
}

#[test]
fn a_group_keeps_what_it_acknowledged_under_random_faults() {
    let seeds = number_of("CONSENSUS_SEEDS", 40);
    let total = total_of(seeds, run, |total: &mut Outcome, outcome| {
        total.acknowledged += outcome.acknowledged;
        total.restarts += outcome.restarts;
        total.cuts += outcome.cuts;
        total.replaced += outcome.replaced;
        total.disk_faults += outcome.disk_faults;
    });
    println!("{seeds} seeds: {total:?}");
    assert!(total.acknowledged > seeds * 50, "{total:?}");
}

#[test]
fn planted_mistakes_are_found() {
    for bug in [Bug::NotSynced, Bug::AppliedBeforeCommit] {
        plant(Some(bug));
        let found = (0..40).find(|seed| std::panic::catch_unwind(|| run(*seed)).is_err());
        plant(None);
        println!("{bug:?}: seed {found:?}");
        assert!(found.is_some(), "{bug:?} was not found");
    }
}

#[test]
fn one_seed() {
    let seed = number_of("CONSENSUS_SEED", 3);
    assert_eq!(run(seed), run(seed), "two runs of one seed differ");
}
