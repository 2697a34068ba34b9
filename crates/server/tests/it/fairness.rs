//! Tests that a client with a hundred thousand commands does not starve other clients: shares are
//! counted in turns of a worker's loop that the test drives.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use base::clock::SystemClock;
use protocol::ReplyBuffer;
use reactor::{Balancer, EventLoop, InProcessPeer, Options, in_process_pair};
use server::config::{Origin, Settings, SharedConfig};
use server::link::WorkerLink;
use server::node::Node;
use server::worker::{Arena, Worker};
use store::Store;

/// Number of commands that the busy client sends at once.
const COMMANDS: usize = 100_000;
/// Maximum number of commands of one client in a turn: a share and a batch.
const SHARE_MAX: usize = 1024 + 16;

/// A worker without a thread.
struct Driven {
    event_loop: EventLoop<Worker>,
    balancer: Arc<Balancer>,
}

impl Driven {
    fn new() -> Self {
        let store = Store::new(&store::Options::default()).unwrap();
        let config = SharedConfig::new(Settings::default(), Origin::default());
        let node = Node::new(
            testkit::table(),
            store,
            Arc::new(config),
            Arc::new(SystemClock::new()),
        );
        let node = Arc::new(node);
        let balancer = Balancer::new(1).unwrap();
        node.set_workers(vec![WorkerLink::new(balancer.waker(0))]);
        let worker = Worker::new(Arc::clone(&node), 0);
        let (output, listeners) = (Arena::new(ReplyBuffer::new()), Arc::from([]));
        let options = Options::default();
        let event_loop =
            EventLoop::new(worker, output, &balancer, 0, &listeners, &options).unwrap();
        Self {
            event_loop,
            balancer,
        }
    }

    fn connect(&mut self) -> InProcessPeer {
        let (end, peer) = in_process_pair(8 << 20);
        self.balancer.connect(Box::new(end));
        self.turn();
        peer
    }

    fn turn(&mut self) {
        self.event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
}

/// Reads the available bytes of a client, and returns their number.
fn read(peer: &mut InProcessPeer) -> usize {
    let mut buffer = vec![0; 8 << 20];
    peer.read(&mut buffer).unwrap_or(0)
}

/// Runs turns until the busy client, whose replies have `reply_bytes` each, has all of them. In
/// each turn another client sends one request. Returns the maximum number of turns that the other
/// client waited, and the maximum number of replies that the busy client got in a turn.
fn serve_beside(request: &[u8], reply_bytes: usize) -> (usize, usize) {
    let mut driven = Driven::new();
    let (mut busy, mut quick) = (driven.connect(), driven.connect());
    quick.write_all(b"SET k 0123456789\r\n").unwrap();
    driven.turn();
    assert_eq!(read(&mut quick), 5);
    busy.write_all(&request.repeat(COMMANDS)).unwrap();
    let (mut served, mut served_max, mut waited, mut waited_max) = (0, 0, 0, 0);
    quick.write_all(b"GET k\r\n").unwrap();
    while served < COMMANDS {
        driven.turn();
        let share = read(&mut busy) / reply_bytes;
        served += share;
        served_max = served_max.max(share);
        waited += 1;
        if read(&mut quick) > 0 {
            waited_max = waited_max.max(waited);
            waited = 0;
            quick.write_all(b"GET k\r\n").unwrap();
        }
    }
    (waited_max, served_max)
}

#[test]
fn a_hundred_thousand_commands_of_one_client_keep_nobody_waiting() {
    for (request, reply_bytes) in [
        (&b"PING\r\n"[..], 7),
        (b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", 17),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$10\r\n0123456789\r\n", 5),
    ] {
        let (waited, share) = serve_beside(request, reply_bytes);
        assert_eq!(waited, 1, "turns until an answer");
        assert!(share <= SHARE_MAX, "{share} commands in a turn");
    }
}

/// The size of long replies bounds the share.
#[test]
fn long_replies_take_shares_by_their_bytes() {
    let mut driven = Driven::new();
    let (mut busy, mut quick) = (driven.connect(), driven.connect());
    busy.write_all(format!("SET k {}\r\n", "x".repeat(10_000)).as_bytes())
        .unwrap();
    driven.turn();
    assert_eq!(read(&mut busy), 5);
    busy.write_all(&b"GET k\r\n".repeat(1_000)).unwrap();
    quick.write_all(b"PING\r\n").unwrap();
    driven.turn();
    let share = read(&mut busy);
    assert!(
        share > 0 && share <= reactor::FLUSH_BYTES + 10_100,
        "{share} bytes in a turn"
    );
    assert_eq!(read(&mut quick), 7);
}
