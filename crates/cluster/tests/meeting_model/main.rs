//! A model of nodes that meet each other crosswise, searched state by state: in any order of
//! events, they end in one cluster.
//!
//! ```text
//!   order: a meets b ─► both are free: judged ─► one joins where the other is
//!                                             └► a founder is told that its cluster gives way ─► member after member ─► itself
//! ```
//!
//! The decisions are the room's own code, [`cluster::meeting::judge`]. The model adds what the
//! server does (`server`'s `meeting` and `merging`): a node meets one other node at a time, and a
//! joining node asks another node until that one is in a cluster, whichever it is then. Not
//! modelled: nodes that are lost on the way, which have to be met again.

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeSet;

use cluster::NodeId;
use cluster::meeting::{Meeting, Side, judge};
use stateright::{Checker as _, Model, Property};

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// The asker's cluster always gives way.
    AskersGivesWay,
    /// The founder is the first to leave.
    FounderFirst,
    /// A node that joins a cluster which already gives way is not notified.
    MembersOnce,
}

/// What a node is busy with: it meets no other node meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Busy {
    No,
    /// It joins the cluster of that node.
    Joins(usize),
    /// Its cluster gives way to that of this node; the set holds the members when that began.
    GivesWay(usize, BTreeSet<usize>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The founder of each node's cluster.
    clusters: Vec<Option<usize>>,
    busy: Vec<Busy>,
    /// The pairs of nodes that are ordered to meet.
    orders: BTreeSet<(usize, usize)>,
    /// Founders that are notified, each with the node whose cluster replaces theirs.
    told: BTreeSet<(usize, usize)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Meet(usize, usize),
    Hear(usize, usize),
    Leave(usize, usize),
    Join(usize),
}

struct Meetings {
    nodes: usize,
    orders: Vec<(usize, usize)>,
    mistake: Mistake,
}

impl Meetings {
    fn judge(&self, state: &State, asker: usize, contacted: usize) -> Meeting {
        let side = |node: usize| match state.clusters[node] {
            None => Side::ByItself,
            Some(founder) => {
                let is_there = state.clusters[founder] == Some(founder);
                Side::Of(is_there.then(|| name(founder)))
            }
        };
        let meeting = judge(side(asker), side(contacted));
        match meeting {
            Meeting::ContactedsGivesWay if self.mistake == Mistake::AskersGivesWay => {
                Meeting::AskersGivesWay
            }
            meeting => meeting,
        }
    }

    /// Whether all members that have to leave before the founder have left a cluster that gives
    /// way.
    fn is_left(&self, state: &State, founder: usize, told: &BTreeSet<usize>) -> bool {
        let mut members = (0..self.nodes).filter(|node| state.clusters[*node] == Some(founder));
        self.mistake == Mistake::FounderFirst
            || members.all(|node| {
                node == founder || self.mistake == Mistake::MembersOnce && !told.contains(&node)
            })
    }
}

fn name(node: usize) -> NodeId {
    NodeId([u8::try_from(node).unwrap_or(u8::MAX); 20])
}

fn founder_of(state: &State, node: usize) -> usize {
    state.clusters[node].unwrap_or(node)
}

impl Model for Meetings {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            clusters: vec![None; self.nodes],
            busy: vec![Busy::No; self.nodes],
            orders: self.orders.iter().copied().collect(),
            told: BTreeSet::new(),
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        let is_free = |node: usize| state.busy[node] == Busy::No;
        for &(asker, contacted) in &state.orders {
            let told = |founder, to| state.told.contains(&(founder_of(state, founder), to));
            let is_under_way = match self.judge(state, asker, contacted) {
                Meeting::Apart => true,
                Meeting::AskersGivesWay => told(asker, contacted),
                Meeting::ContactedsGivesWay => told(contacted, asker),
                _ => false,
            };
            if is_free(asker) && is_free(contacted) && !is_under_way {
                steps.push(Step::Meet(asker, contacted));
            }
        }
        for &(founder, to) in &state.told {
            if is_free(founder) {
                steps.push(Step::Hear(founder, to));
            }
        }
        for (node, busy) in state.busy.iter().enumerate() {
            match busy {
                Busy::No => {}
                Busy::Joins(at) if state.clusters[*at].is_some() => steps.push(Step::Join(node)),
                Busy::Joins(_) => {}
                Busy::GivesWay(_, told) => {
                    let members = (0..self.nodes).filter(|one| state.clusters[*one] == Some(node));
                    let others = members.filter(|one| *one != node && is_free(*one));
                    steps.extend(others.map(|one| Step::Leave(node, one)));
                    if self.is_left(state, node, told) {
                        steps.push(Step::Leave(node, node));
                    }
                }
            }
        }
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        match step {
            Step::Meet(asker, contacted) => match self.judge(before, asker, contacted) {
                Meeting::Known => drop(state.orders.remove(&(asker, contacted))),
                Meeting::Begin => {
                    state.clusters[contacted] = Some(contacted);
                    state.busy[asker] = Busy::Joins(contacted);
                }
                Meeting::AskerJoins => state.busy[asker] = Busy::Joins(contacted),
                Meeting::ContactedJoins => state.busy[contacted] = Busy::Joins(asker),
                Meeting::AskersGivesWay => {
                    let _new = state.told.insert((founder_of(before, asker), contacted));
                }
                Meeting::ContactedsGivesWay => {
                    let _new = state.told.insert((founder_of(before, contacted), asker));
                }
                Meeting::Apart => return None,
            },
            Step::Hear(founder, to) => {
                state.told.remove(&(founder, to));
                // It may have given way to another one meanwhile.
                if before.clusters[founder] == Some(founder) {
                    let members = 0..self.nodes;
                    let members = members.filter(|one| before.clusters[*one] == Some(founder));
                    state.busy[founder] = Busy::GivesWay(to, members.collect());
                }
            }
            Step::Leave(founder, node) => {
                let Busy::GivesWay(to, _) = before.busy[founder] else {
                    return None;
                };
                state.clusters[node] = None;
                state.busy[node] = Busy::Joins(to);
            }
            Step::Join(node) => {
                let Busy::Joins(at) = before.busy[node] else {
                    return None;
                };
                state.clusters[node] = before.clusters[at];
                state.busy[node] = Busy::No;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE, |model: &Self, state: &State| {
                let mut steps = Vec::new();
                model.actions(state, &mut steps);
                let first = state.clusters[0];
                let is_one = first.is_some() && state.clusters.iter().all(|one| *one == first);
                !steps.is_empty() || is_one && state.orders.is_empty()
            }),
            Property::sometimes("they come to an end", |_, state: &State| {
                state.orders.is_empty()
            }),
        ]
    }
}

const ONE: &str = "where nothing is left to be done there is one cluster";

/// Orders each node to meet the next one, in this order.
fn ring(order: &[usize]) -> Vec<(usize, usize)> {
    let next = order.iter().cycle().skip(1);
    order.iter().copied().zip(next.copied()).collect()
}

fn everybody(nodes: usize) -> Vec<(usize, usize)> {
    let pairs = (0..nodes).flat_map(|one| (0..nodes).map(move |other| (one, other)));
    pairs.filter(|(one, other)| one != other).collect()
}

#[allow(clippy::print_stdout, reason = "for who reads the run")]
fn search(nodes: usize, orders: Vec<(usize, usize)>, mistake: Mistake) -> Option<&'static str> {
    let model = Meetings {
        nodes,
        orders,
        mistake,
    };
    let checker = model.checker().threads(2).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    if mistake == Mistake::None {
        checker.assert_properties();
    }
    common::broken(&checker)
}

#[test]
fn nodes_that_meet_crosswise_are_one_cluster_in_the_end() {
    for orders in [
        ring(&[0, 1, 2, 3]),
        ring(&[0, 2, 1, 3]),
        ring(&[0, 3, 1, 2]),
    ] {
        assert_eq!(search(4, orders, Mistake::None), None);
    }
    assert_eq!(search(3, everybody(3), Mistake::None), None);
    // Two clusters meet when both exist already.
    assert_eq!(search(4, vec![(2, 0), (3, 1), (3, 2)], Mistake::None), None);
}

/// `cargo test -p cluster --release --test meeting_model -- --ignored --nocapture`
#[test]
#[ignore = "a long search"]
fn more_nodes_that_meet_crosswise_are_one_cluster_in_the_end() {
    assert_eq!(search(5, ring(&[0, 3, 1, 4, 2]), Mistake::None), None);
    assert_eq!(search(4, everybody(4), Mistake::None), None);
}

#[test]
fn mistakes_are_found() {
    for mistake in [
        Mistake::AskersGivesWay,
        Mistake::FounderFirst,
        Mistake::MembersOnce,
    ] {
        let found =
            [ring(&[0, 1, 2, 3]), ring(&[0, 2, 1, 3])].map(|orders| search(4, orders, mistake));
        assert!(found.contains(&Some(ONE)), "{mistake:?}: {found:?}");
    }
}
