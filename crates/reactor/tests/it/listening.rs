//! Changing the listeners while the loops run.

use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use reactor::{Balancer, EventLoop, Listener, Options, TcpOptions};

use crate::lines::{Arena, Bounds, Lines, Shared};

/// More peers than a loop accepts in one turn.
const PEERS: usize = 300;

fn listener() -> Listener {
    Listener::tcp((Ipv4Addr::LOCALHOST, 0).into(), TcpOptions::default()).unwrap()
}

#[test]
fn who_waits_at_a_listener_that_closes_is_accepted() {
    let shared = Arc::new(Shared::default());
    let balancer = Balancer::new(1).unwrap();
    let old: Arc<[Listener]> = Arc::new([listener()]);
    let service = Lines::new(&shared, Bounds::default(), 0);
    let options = Options::default();
    let output = Arena::default();
    let mut event_loop = EventLoop::new(service, output, &balancer, 0, &old, &options).unwrap();
    let address = old[0].tcp_address().unwrap();
    drop(old);

    let peers: Vec<_> = (0..PEERS).map(|_| TcpStream::connect(address)).collect();
    assert!(peers.iter().all(Result::is_ok));
    balancer.listen(Arc::new([listener()]));
    event_loop.turn(Some(Duration::ZERO)).unwrap();

    assert_eq!(shared.opened_count.load(Ordering::SeqCst), PEERS);
    assert!(TcpStream::connect(address).is_err(), "it is closed");
}
