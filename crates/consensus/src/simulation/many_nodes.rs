//! How long a change takes to reach all nodes of a large group: three voters, and the rest
//! learners.

use std::time::Duration;

use openraft::{AsyncRuntime as _, EmptyNode};
use openraft_rt_sim::SimRuntime;

use super::{Now as _, SimulatedDisk, World, write};

/// Returns the milliseconds of simulated time until all of `nodes` have each of some changes.
fn times(seed: u64, nodes: u64) -> Vec<u128> {
    SimRuntime::with_seed(seed).block_on(async move {
        let mut world = World::new(seed, 3).await;
        while world.leader().is_none() {
            SimRuntime::sleep(Duration::from_millis(50)).await;
        }
        let leader = world.raft(world.leader().unwrap());
        for id in 4..=nodes {
            world.start(id, SimulatedDisk::new(seed + id)).await;
            let joined = leader.add_learner(id, EmptyNode {}, false).await;
            joined.unwrap();
        }
        let mut times = Vec::new();
        for number in 0..3 {
            SimRuntime::sleep(Duration::from_millis(300)).await;
            let began = <SimRuntime as openraft::AsyncRuntime>::Instant::now_at();
            assert!(write(&world, number).await);
            let wanted = world.states().iter().map(|state| state.index).max();
            let knows = |world: &World| {
                let states = world.states();
                states.iter().all(|state| Some(state.index) >= wanted)
            };
            while !knows(&world) {
                SimRuntime::sleep(Duration::from_millis(1)).await;
            }
            let now = <SimRuntime as openraft::AsyncRuntime>::Instant::now_at();
            times.push((now - began).as_millis());
        }
        times
    })
}

/// In simulated time: a slow machine does not make it fail.
#[test]
fn a_change_is_known_to_200_nodes_within_200_ms() {
    let times = times(1, 200);
    println!("milliseconds until all 200 know a change: {times:?}");
    assert!(times.iter().all(|time| *time <= 200), "{times:?}");
}
