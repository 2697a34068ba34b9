//! Connections spread over workers.

use std::collections::BTreeMap;

use crate::lines::Bounds;
use crate::rig::{Kind, Rig, eventually};

const WORKERS: usize = 4;

fn serving(rig: &Rig) -> BTreeMap<usize, usize> {
    rig.shared.served_by.lock().unwrap().clone()
}

#[test]
fn sixty_four_connections_on_four_workers() {
    let rig = Rig::with(WORKERS, Bounds::default());
    let mut clients: Vec<_> = (0..64).map(|_| rig.connect(Kind::Tcp4)).collect();
    for client in &mut clients {
        client.send("x\n");
        client.expect("x\n");
    }
    let counts = serving(&rig);
    assert_eq!(counts.values().sum::<usize>(), 64);
    assert!(counts.values().all(|&count| count <= 20), "{counts:?}");
    assert!((0..WORKERS).all(|worker| rig.balancer.connections_count(worker) <= 20));
}

#[test]
fn counts_follow_departures() {
    let rig = Rig::with(WORKERS, Bounds::default());
    let kinds = [Kind::Tcp4, Kind::Unix, Kind::InProcess];
    let clients: Vec<_> = (0..60).map(|n| rig.connect(kinds[n % 3])).collect();
    eventually("all opened", || rig.opened_count() == 60);
    drop(clients);
    let counts = || (0..WORKERS).map(|worker| rig.balancer.connections_count(worker));
    eventually("all left", || counts().sum::<usize>() == 0);
}
