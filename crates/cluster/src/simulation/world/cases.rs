//! Scenarios that random faults cause too seldom.

use super::{Beginning, Fault, Member, SHARD, STEP_MS, Summary};
use base::random::Prng;

use crate::directives;
use crate::entry::{Entry, ShardChange};
use crate::simulation::{ControlLogs as _, IdealLogs};
use crate::state::{DocumentKind, FEATURE_LEVEL, NodeId};

type World = super::World<IdealLogs>;

/// When each scenario ends.
const OVER_MS: u64 = 9_000;

/// Creates a world on an ideal control log.
fn world(seed: u64) -> World {
    world_of(Beginning::of(seed))
}

fn world_of(beginning: Beginning) -> World {
    let election_ms = beginning.times.election_ms_max;
    let logs = IdealLogs::new(beginning.ids.len(), election_ms, beginning.entries());
    World::new(beginning, logs)
}

/// Runs one seed.
pub(in crate::simulation) fn run(seed: u64) -> Result<Summary, Fault> {
    let mut world = world(seed);
    while world.go_on()? {}
    world.ended()
}

/// Steps through a scenario in which the primary replies by its lease alone. `act` is called before
/// each step with the time.
fn run_course(seed: u64, act: impl Fn(&mut World, u64)) -> Result<Summary, Fault> {
    let mut world = world(seed);
    world.is_quorum = false;
    steps(world, act)
}

fn steps(world: World, act: impl Fn(&mut World, u64)) -> Result<Summary, Fault> {
    steps_until(OVER_MS, world, act)
}

fn steps_until(
    over_ms: u64,
    mut world: World,
    act: impl Fn(&mut World, u64),
) -> Result<Summary, Fault> {
    while world.now_ms < over_ms {
        world.now_ms += STEP_MS;
        let now_ms = world.now_ms;
        act(&mut world, now_ms);
        world.step();
        if let Some(fault) = world.fault.take() {
            return Err(fault);
        }
    }
    Ok(world.summary)
}

/// A voter is restarted right after it acknowledged the leader, which is also the primary and is
/// cut off then. The other voter has long heard no node. Only the restarted voter tells the next
/// leader how long leases stand.
pub(in crate::simulation) fn run_restarted_voter(seed: u64) -> Result<Summary, Fault> {
    const CUT_OTHER_MS: u64 = 3_000;
    const RESTART_MS: u64 = 4_500;
    run_course(seed, |world, now_ms| match now_ms {
        CUT_OTHER_MS => world.cut_off(1),
        RESTART_MS => {
            world.restart(2);
            world.nodes[2].paused_until_ms = RESTART_MS + 100;
            world.heal_links();
            world.cut_off(0);
        }
        _ => {}
    })
}

/// The primary hands its office over and hears nothing from then on, not even a seal. Another
/// member is promoted at once, while the returned lease would still stand.
pub(in crate::simulation) fn run_hand_over(seed: u64) -> Result<Summary, Fault> {
    const ELECT_MS: u64 = 2_500;
    const HAND_OVER_MS: u64 = 6_000;
    run_course(seed, |world, now_ms| match now_ms {
        // The leader is not the primary.
        ELECT_MS => world.logs.elect(1),
        HAND_OVER_MS => {
            let to = world.nodes[1].id;
            for from in 1..world.nodes.len() {
                world.cut[from][0] = true;
            }
            let actions = world.nodes[0].member.hand_over(SHARD, to);
            world.act(0, actions);
        }
        _ => {}
    })
}

/// The primary can no longer write its log. It leaves its office, and hears nothing from then on.
/// One of the other members has less of the log, because it was cut off before.
pub(in crate::simulation) fn run_failed_log(seed: u64) -> Result<Summary, Fault> {
    const ELECT_MS: u64 = 2_500;
    const CUT_MS: u64 = 4_000;
    const FAIL_MS: u64 = 5_000;
    let mut world = world(seed);
    while !world.is_quorum {
        let seed = world.random.below(u64::MAX);
        world = self::world(seed);
    }
    steps(world, |world, now_ms| match now_ms {
        // The leader is not the primary.
        ELECT_MS => world.logs.elect(1),
        CUT_MS => world.cut_off(world.nodes.len() - 1),
        FAIL_MS => {
            world.heal_links();
            for from in 1..world.nodes.len() {
                world.cut[from][0] = true;
            }
            world.nodes[0].is_faulty = true;
            let actions = world.nodes[0].member.resign(SHARD);
            world.act(0, actions);
        }
        _ => {}
    })
}

/// One of three copies is a log-only copy. The other data copy hears nothing from the primary for a
/// while. Meanwhile the primary commits with the log-only copy, and is lost.
pub(in crate::simulation) fn run_lost_primary(seed: u64) -> Result<Summary, Fault> {
    const ELECT_MS: u64 = 2_500;
    const CUT_MS: u64 = 4_000;
    const LOST_MS: u64 = 5_000;
    let mut beginning = Beginning::of(seed);
    beginning.is_quorum = true;
    beginning.ids.truncate(3);
    beginning.log_copy = beginning.ids.last().copied();
    steps(world_of(beginning), |world, now_ms| match now_ms {
        // The leader is not the primary.
        ELECT_MS => world.logs.elect(1),
        CUT_MS => world.cut[0][1] = true,
        LOST_MS => world.cut_off(0),
        _ => {}
    })
}

/// A log-only copy is being removed from a shard with three data copies. It has more than the two
/// that are left when the primary is lost, because they do not hear the primary for a while before.
pub(in crate::simulation) fn run_log_copy_that_goes(seed: u64) -> Result<Summary, Fault> {
    const ELECT_MS: u64 = 2_500;
    const REMOVE_MS: u64 = 4_000;
    const CUT_MS: u64 = 4_500;
    const LOST_MS: u64 = 5_000;
    let ids: Vec<NodeId> = (1..=4).map(|byte| NodeId([byte; 20])).collect();
    let log_copy = ids[2];
    let mut beginning = Beginning::of(seed);
    (beginning.is_quorum, beginning.log_copy, beginning.ids) = (true, Some(log_copy), ids);
    steps(world_of(beginning), |world, now_ms| match now_ms {
        // The leader is not the primary.
        ELECT_MS => world.logs.elect(1),
        REMOVE_MS => {
            let state = &world.nodes[1].view;
            let expected_epoch = state.shards.get(&SHARD).map_or(0, |shard| shard.epoch);
            let change = ShardChange::Remove { node: log_copy };
            let entry = Entry::Shard {
                shard: SHARD,
                expected_epoch,
                change,
            };
            let at_ms = world.logs.confirmed_ms(1);
            world.logs.propose(1, entry, at_ms);
        }
        CUT_MS => {
            world.cut[0][1] = true;
            world.cut[0][3] = true;
        }
        LOST_MS => world.cut_off(0),
        _ => {}
    })
}

/// A copy has joined the shard and has nothing of it yet. The other one refuses promotion, and the
/// primary is gone: no member is promoted.
pub(in crate::simulation) fn run_blank_copy(seed: u64) -> Result<Summary, Fault> {
    const CUT_MS: u64 = 4_000;
    run_course(seed, |world, now_ms| {
        if now_ms == CUT_MS {
            world.cut_off(0);
            for at in 1..world.nodes.len() {
                world.nodes[at].member.set_declines(at == 1);
                if at > 1 {
                    world.empty(at);
                }
            }
        }
    })
}

/// Random faults, with occasional changes of the node timeout for all nodes.
pub(in crate::simulation) fn run_changed_timeouts(seed: u64) -> Result<Summary, Fault> {
    const CHANGES_MS: u64 = 20_000;
    let mut world = world(seed);
    world.say_lease_times();
    let mut random = Prng::seeded(!seed);
    loop {
        if world.now_ms < CHANGES_MS && random.below(150) == 0 {
            let timeouts_ms = [500, 800, 1_500, 4_000];
            let chosen = usize::try_from(random.below(4)).unwrap_or(0);
            world.change_timeout(timeouts_ms[chosen]);
        }
        if !world.go_on()? {
            return world.ended();
        }
    }
}

/// The leader that grants leases after the node timeout was lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::simulation) enum NextLeader {
    /// The one that granted the longer leases; it hears the primary for a while.
    Same,
    /// Another one.
    Other,
    /// One that was restarted since, and has not heard of the longer leases.
    Anew,
}

/// The node timeout was raised, and is lowered while the primary hears no node. The primary holds a
/// longer lease than all that are granted from then on.
pub(in crate::simulation) fn run_lowered_timeout(
    seed: u64,
    next: NextLeader,
) -> Result<Summary, Fault> {
    const RAISE_MS: u64 = 2_500;
    const DEAF_MS: u64 = 6_000;
    const LOWER_MS: u64 = 6_050;
    const RESTART_MS: u64 = 6_300;
    const CUT_MS: u64 = 6_500;
    let mut world = world(seed);
    world.is_quorum = false;
    world.say_lease_times();
    steps_until(15_000, world, |world, now_ms| match now_ms {
        RAISE_MS => {
            // The leader is not the primary.
            world.logs.elect(1);
            let entry = timeout_entry("4000", world, 1);
            world.logs.append(entry);
        }
        DEAF_MS => {
            for from in 1..world.nodes.len() {
                world.cut[from][0] = true;
            }
        }
        LOWER_MS => {
            let entry = timeout_entry("500", world, 1);
            world.logs.append(entry);
        }
        RESTART_MS if next == NextLeader::Anew => {
            world.restart(2);
            world.nodes[2].paused_until_ms = RESTART_MS + 100;
        }
        CUT_MS => {
            world.cut_off(0);
            if next != NextLeader::Same {
                world.logs.elect(2);
            }
        }
        _ => {}
    })
}

/// Returns the entry by which a node sets the node timeout of all nodes.
fn timeout_entry(timeout_ms: &str, world: &World, at: usize) -> Entry {
    let (expected_version, known) = directives::of_state(&world.nodes[at].view);
    let mut pairs = known.clone();
    pairs.insert(directives::NODE_TIMEOUT.into(), timeout_ms.into());
    directives::keep_timeout_before(&known, &mut pairs, world.times.node_timeout_ms);
    Entry::Document {
        kind: DocumentKind::Config,
        name: directives::NAME.to_vec(),
        expected_version,
        body: Some(directives::encode(&pairs)),
    }
}

impl World {
    /// Makes all nodes know all levels: leaders state how long a lease counts.
    fn say_lease_times(&mut self) {
        self.logs.append(Entry::FeatureLevel {
            level: FEATURE_LEVEL,
        });
    }

    /// Has the newest leader propose the timeout, if it knows the present directives.
    fn change_timeout(&mut self, timeout_ms: u64) {
        let places = 0..self.nodes.len();
        let leader = places.max_by_key(|at| self.logs.reign(*at)).unwrap_or(0);
        let entry = timeout_entry(&timeout_ms.to_string(), self, leader);
        self.logs.propose(leader, entry, self.now_ms);
    }

    fn cut_off(&mut self, at: usize) {
        for peer in (0..self.nodes.len()).filter(|peer| *peer != at) {
            self.cut[at][peer] = true;
            self.cut[peer][at] = true;
        }
    }

    /// Removes the node's data of the shard, as if it had just joined it.
    fn empty(&mut self, at: usize) {
        let (now_ms, times) = (self.clock_ms(at), self.times);
        let node = &mut self.nodes[at];
        node.log = std::sync::Arc::default();
        node.seal = 0;
        node.is_blank = true;
        node.member = Member::new(node.id, times, node.start_count, now_ms);
        let view = std::sync::Arc::clone(&node.view);
        let actions = node.member.on_state(&view);
        self.act(at, actions);
    }
}
