//! A busy connection leaves time for the others.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::clock::Clock;
use reactor::{Balancer, EventLoop, InProcessPeer, Options, in_process_pair};

use crate::lines::{Arena, Bounds, Lines, Shared};

/// A loop that is driven turn by turn, with a service that yields after ten lines.
struct Driven {
    event_loop: EventLoop<Lines>,
    balancer: Arc<Balancer>,
}

/// A clock that advances by 200 microseconds at each reading.
#[derive(Debug, Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now_unix_us(&self) -> u64 {
        self.monotonic_ns() / 1_000
    }

    fn monotonic_ns(&self) -> u64 {
        self.0.fetch_add(200_000, Ordering::Relaxed)
    }
}

impl Driven {
    fn new() -> Self {
        let bounds = Bounds {
            lines_max: 10,
            ..Bounds::default()
        };
        Self::with(bounds, Options::default())
    }

    fn with(bounds: Bounds, options: Options) -> Self {
        let balancer = Balancer::new(1).unwrap();
        let service = Lines::new(&Arc::new(Shared::default()), bounds, 0);
        let none = Arc::from([]);
        let event_loop =
            EventLoop::new(service, Arena::default(), &balancer, 0, &none, &options).unwrap();
        Self {
            event_loop,
            balancer,
        }
    }

    /// Returns a client that sent `count` short lines.
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

/// Four long lines fill a buffer: too few lines for a share, but long enough for the time limit.
#[test]
fn buffers_of_a_busy_client_are_received_for_a_bounded_time() {
    let options = Options {
        clock: Arc::new(Ticking::default()),
        ..Options::default()
    };
    let mut driven = Driven::with(Bounds::default(), options);
    let line = [&[b'x'; 16 * 1024 - 1][..], b"\n"].concat();
    let (end, mut peer) = in_process_pair(1 << 20);
    driven.balancer.connect(Box::new(end));
    peer.write_all(&line.repeat(60)).unwrap();
    let mut served = 0;
    while served < 60 {
        driven.turn();
        let now = driven.event_loop.service_mut().order.len();
        assert!(now - served <= 16, "{} lines in one turn", now - served);
        served = now;
    }
}
