//! Tests with peers that misbehave, and of what remains of them afterwards.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use base::random::Prng;
use reactor::{Endpoint, Transport as _};

use super::*;
use crate::testing::{Files, clock, pair};

/// An attendant that records everything.
#[derive(Clone, Default)]
struct Ear(Arc<Mutex<Vec<String>>>);

impl Attendant for Ear {
    fn refused(&self, refused: &Refused<'_>) {
        lock(&self.0).push(refused.error.to_string());
    }
}

struct Rig {
    handshakes: Handshakes,
    ear: Ear,
    _balancer: Arc<Balancer>,
}

impl Rig {
    fn new(files: &Files) -> Self {
        let ear = Ear::default();
        let attendant = Box::new(ear.clone());
        let handshakes = Handshakes::new(files.server(), 1, clock(), attendant).unwrap();
        let balancer = Balancer::new(1).unwrap();
        handshakes.start(&balancer).unwrap();
        Self {
            handshakes,
            ear,
            _balancer: balancer,
        }
    }

    /// Accepts a peer that has sent nothing yet.
    fn accept(&self) -> UnixStream {
        let (near, far) = pair();
        let peer = PeerInfo {
            peer: Endpoint::InProcess,
            local: Endpoint::InProcess,
            fd: -1,
            listener: None,
            security: None,
        };
        self.handshakes.receive(near.into(), peer);
        far
    }

    /// Waits until no handshake is pending.
    fn settle(&self) -> Figures {
        for _ in 0..60_000 {
            let figures = self.handshakes.figures();
            if figures.pending == 0 {
                return figures;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("{:?}", self.handshakes.figures());
    }
}

/// Returns the first bytes that a client sends.
fn first_flight(files: &Files) -> Vec<u8> {
    let (near, mut far) = pair();
    let mut stream = files.client().connect(near.into(), "localhost").unwrap();
    assert_eq!(stream.handshake().unwrap(), Handshake::Reads);
    let mut flight = vec![0; 10_000];
    let count = far.read(&mut flight).unwrap();
    flight.truncate(count);
    flight
}

#[test]
fn handshakes_complete_and_are_counted() {
    let files = Files::new();
    let rig = Rig::new(&files);
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = files
            .client()
            .connect(rig.accept().into(), "localhost")
            .unwrap();
        while stream.handshake().unwrap() != Handshake::Done {
            std::thread::yield_now();
        }
        assert!(stream.send(b"PING").is_ok());
        streams.push(stream);
    }
    let figures = rig.settle();
    assert_eq!((figures.completed, figures.refused), (20, 0));
}

#[test]
fn beginnings_of_every_length_are_refused_once_their_peer_is_gone() {
    let files = Files::new();
    let rig = Rig::new(&files);
    let flight = first_flight(&files);
    for length in 0..flight.len() {
        rig.accept().write_all(&flight[..length]).unwrap();
    }
    let figures = rig.settle();
    assert_eq!(figures.refused, flight.len() as u64);
    assert!(
        lock(&rig.ear.0)
            .iter()
            .all(|why| why == "it left during the handshake")
    );
}

/// Changes a client's first bytes at random: no such peer may be let in, stay in memory, or end the
/// thread.
#[test]
fn changed_beginnings_do_no_harm() {
    let files = Files::new();
    let rig = Rig::new(&files);
    let flight = first_flight(&files);
    let mut prng = Prng::seeded(7);
    for _ in 0..3_000 {
        let mut bytes = flight.clone();
        for _ in 0..=prng.index(4) {
            let at = prng.index(bytes.len());
            match prng.below(4) {
                0 => bytes[at] = u8::try_from(prng.below(256)).unwrap(),
                1 => bytes[at] ^= 1 << prng.below(8),
                2 => bytes.truncate(at + 1),
                _ => bytes.insert(at, u8::try_from(prng.below(256)).unwrap()),
            }
        }
        if prng.below(8) == 0 {
            bytes.extend_from_slice(&flight);
        }
        // The server may close the connection before all bytes are sent.
        let _refused_early = rig.accept().write_all(&bytes);
    }
    let figures = rig.settle();
    assert_eq!((figures.completed, figures.refused), (0, 3_000));
}

#[test]
fn who_speaks_something_else_is_told() {
    let files = Files::new();
    let rig = Rig::new(&files);
    let mut peer = rig.accept();
    peer.write_all(b"PING\r\n").unwrap();
    peer.set_nonblocking(false).unwrap();
    let mut told = Vec::new();
    peer.read_to_end(&mut told).unwrap();
    assert_eq!(told, SPEAK_TLS);
    assert_eq!(*lock(&rig.ear.0), ["it does not speak TLS"]);
}

#[test]
fn a_stop_refuses_those_who_are_under_way() {
    let files = Files::new();
    let rig = Rig::new(&files);
    let silent: Vec<UnixStream> = (0..10).map(|_| rig.accept()).collect();
    rig.handshakes.stop();
    assert_eq!(rig.handshakes.figures().refused, 10);
    drop(silent);
}
