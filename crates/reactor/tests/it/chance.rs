//! Random traffic over in-process pairs, driven turn by turn: whatever the sizes of reads, writes,
//! queues and shares, every client gets exactly the answers to its lines, in order.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use base::random::Prng;
use reactor::{Balancer, EventLoop, InProcessPeer, Options, in_process_pair};

use crate::lines::{Arena, Bounds, Lines, Shared};

/// A client with everything that it will send and has to receive.
struct Scripted {
    peer: InProcessPeer,
    unsent: Vec<u8>,
    expected: Vec<u8>,
    received: Vec<u8>,
}

impl Scripted {
    fn new(peer: InProcessPeer, random: &mut Prng) -> Self {
        let (mut unsent, mut expected) = (Vec::new(), Vec::new());
        for number in 0..below(random, 60) {
            let size = match below(random, 8) {
                0 => below(random, 200_000),
                1..=3 => below(random, 3_000),
                _ => below(random, 30),
            };
            match below(random, 3) {
                0 => {
                    let line = format!("line {number} {}\n", "l".repeat(size));
                    unsent.extend_from_slice(line.as_bytes());
                    expected.extend_from_slice(line.as_bytes());
                }
                1 => {
                    let header = format!("blob {size}\n");
                    unsent.extend_from_slice(header.as_bytes());
                    unsent.resize(unsent.len() + size, b'v');
                    expected.extend_from_slice(header.as_bytes());
                }
                _ => {
                    unsent.extend_from_slice(format!("big {size}\n").as_bytes());
                    expected.resize(expected.len() + size, b'x');
                    expected.push(b'\n');
                }
            }
        }
        Self {
            peer,
            unsent,
            expected,
            received: Vec::new(),
        }
    }

    fn step(&mut self, random: &mut Prng) {
        let count = below(random, self.unsent.len() + 1);
        if let Ok(count) = self.peer.write(&self.unsent[..count]) {
            self.unsent.drain(..count);
        }
        let mut buffer = vec![0; 1 + below(random, 50_000)];
        if let Ok(count) = self.peer.read(&mut buffer) {
            self.received.extend_from_slice(&buffer[..count]);
        }
    }

    fn is_done(&self) -> bool {
        self.unsent.is_empty() && self.received.len() >= self.expected.len()
    }
}

fn below(random: &mut Prng, bound: usize) -> usize {
    let bound = u64::try_from(bound).unwrap();
    usize::try_from(random.next_u64() % bound.max(1)).unwrap()
}

fn run(seed: u64) {
    let random = &mut Prng::seeded(seed);
    let bounds = Bounds {
        lines_max: 1 + below(random, 20),
        ..Bounds::default()
    };
    let balancer = Balancer::new(1).unwrap();
    let service = Lines::new(&Arc::new(Shared::default()), bounds, 0);
    let (none, options) = (Arc::from([]), Options::default());
    let mut event_loop =
        EventLoop::new(service, Arena::default(), &balancer, 0, &none, &options).unwrap();
    let mut clients: Vec<_> = (0..1 + below(random, 4))
        .map(|_| {
            let (end, peer) = in_process_pair(1 + below(random, 100_000));
            balancer.connect(Box::new(end));
            Scripted::new(peer, random)
        })
        .collect();
    let mut turns = 0;
    while !clients.iter().all(Scripted::is_done) {
        for client in &mut clients {
            client.step(random);
        }
        event_loop.turn(Some(Duration::ZERO)).unwrap();
        turns += 1;
        assert!(turns < 10_000_000, "seed {seed}: no end");
    }
    for client in &clients {
        assert!(client.received == client.expected, "seed {seed}");
    }
}

#[test]
fn random_traffic_is_answered_in_order() {
    for seed in 1..=60 {
        run(seed);
    }
}
