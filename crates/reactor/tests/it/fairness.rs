//! A connection with much to do leaves room for the others.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use reactor::{Balancer, EventLoop, InProcessPeer, Options, in_process_pair};

use crate::lines::{Arena, Bounds, Lines, Shared};

/// A loop that is driven turn by turn, with a service that yields after ten lines.
struct Driven {
    event_loop: EventLoop<Lines>,
    balancer: Arc<Balancer>,
}

impl Driven {
    fn new() -> Self {
        let bounds = Bounds {
            lines_max: 10,
            ..Bounds::default()
        };
        let balancer = Balancer::new(1).unwrap();
        let service = Lines::new(&Arc::new(Shared::default()), bounds, 0);
        let (none, options) = (Arc::from([]), Options::default());
        let event_loop =
            EventLoop::new(service, Arena::default(), &balancer, 0, &none, &options).unwrap();
        Self {
            event_loop,
            balancer,
        }
    }

    /// A client that sent `count` short lines.
    fn busy_client(&self, count: usize) -> InProcessPeer {
        let (end, mut peer) = in_process_pair(1 << 16);
        self.balancer.connect(Box::new(end));
        peer.write_all("b\n".repeat(count).as_bytes()).unwrap();
        peer
    }

    fn turn(&mut self) {
        self.event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
}

#[test]
fn a_newcomer_is_served_between_the_shares_of_a_busy_client() {
    let mut driven = Driven::new();
    let _busy = driven.busy_client(1000);
    for _ in 0..5 {
        driven.turn();
    }
    let mut quick = driven.busy_client(1);
    driven.turn();
    driven.turn();
    assert_eq!(quick.read(&mut [0; 8]).unwrap(), 2);
    assert!(driven.event_loop.service_mut().order.len() < 100);
}

#[test]
fn shares_alternate() {
    let mut driven = Driven::new();
    let _clients = [driven.busy_client(1000), driven.busy_client(1000)];
    for _ in 0..300 {
        driven.turn();
    }
    let order = &driven.event_loop.service_mut().order;
    assert_eq!(order.len(), 2000);
    let shares: Vec<_> = order.chunk_by(|a, b| a.0 == b.0).collect();
    let longest = shares.iter().map(|share| share.len()).max();
    assert!(longest <= Some(20), "more than two shares in a row");
}
