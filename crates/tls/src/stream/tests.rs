//! Tests of both ends of a connection over a socket that takes few bytes at once.

use std::sync::Arc;

use base::random::Prng;
use rustls::server::UnbufferedServerConnection;

use super::*;
use crate::client::ClientStream;
use crate::testing::{Files, pair};

type ServerStream = Stream<UnbufferedServerConnection>;

fn connected(files: &Files) -> (ServerStream, ClientStream) {
    let (near, far) = pair();
    for socket in [&near, &far] {
        rustix::net::sockopt::set_socket_send_buffer_size(socket, 4096).unwrap();
    }
    let side = UnbufferedServerConnection::new(Arc::clone(&files.server().config)).unwrap();
    let mut server = Stream::new(near.into(), side);
    let mut client = files.client().connect(far.into(), "localhost").unwrap();
    loop {
        let (there, here) = (client.handshake().unwrap(), server.handshake().unwrap());
        if there == Handshake::Done && here == Handshake::Done {
            return (server, client);
        }
    }
}

/// Bytes on their way from one end to the other.
struct Flow {
    prng: Prng,
    sent: usize,
    received: usize,
}

/// Returns the byte at a position of the data.
fn byte_at(place: usize) -> u8 {
    u8::try_from(place % 251).unwrap()
}

impl Flow {
    fn new(seed: u64) -> Self {
        let prng = Prng::seeded(seed);
        let (sent, received) = (0, 0);
        Self {
            prng,
            sent,
            received,
        }
    }

    /// Offers some bytes, in several pieces.
    fn send(&mut self, from: &mut impl Transport) {
        let most = if self.prng.below(4) == 0 {
            200_000
        } else {
            100
        };
        let count = 1 + self.prng.index(most);
        let bytes: Vec<u8> = (self.sent..self.sent + count).map(byte_at).collect();
        let cut = self.prng.index(count);
        let pieces = [&bytes[..cut], &[], &bytes[cut..]].map(IoSlice::new);
        match from.send_pieces(&pieces) {
            Ok(taken) => self.sent += taken,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }

    /// Receives the available bytes into a buffer of random size.
    fn receive(&mut self, to: &mut impl Transport) {
        let most = if self.prng.below(2) == 0 { 50 } else { 70_000 };
        let mut buffer = vec![0; 1 + self.prng.index(most)];
        match to.recv(&mut buffer) {
            Ok(count) => {
                assert!(count > 0);
                for byte in &buffer[..count] {
                    assert_eq!(*byte, byte_at(self.received));
                    self.received += 1;
                }
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                assert!(!to.holds_input());
            }
        }
    }
}

#[test]
fn bytes_arrive_in_order_whatever_the_sizes() {
    let files = Files::new();
    let (mut server, mut client) = connected(&files);
    let (mut up, mut down) = (Flow::new(1), Flow::new(2));
    let mut choice = Prng::seeded(3);
    for _ in 0..6_000 {
        match choice.below(4) {
            0 => up.send(&mut client),
            1 => up.receive(&mut server),
            2 => down.send(&mut server),
            _ => down.receive(&mut client),
        }
    }
    // The last byte may be withheld. It is offered again, and what follows it arrives.
    for _ in 0..100_000 {
        if up.received >= up.sent && down.received >= down.sent {
            break;
        }
        up.receive(&mut server);
        down.receive(&mut client);
        if !client.unsent.is_empty() {
            up.send(&mut client);
        }
        if !server.unsent.is_empty() {
            down.send(&mut server);
        }
    }
    assert!(up.received > 100_000 && down.received > 100_000);
    assert!(up.received >= up.sent && down.received >= down.sent);
}

#[test]
fn an_idle_stream_owns_no_buffer() {
    let files = Files::new();
    let (mut server, mut client) = connected(&files);
    let mut buffer = [0; 100];
    // The bytes that the server sent after its handshake.
    assert_eq!(
        client.recv(&mut buffer).unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
    assert_eq!(client.send(b"PING").unwrap(), 4);
    assert_eq!(server.recv(&mut buffer).unwrap(), 4);
    assert_eq!(server.send(b"PONG!").unwrap(), 5);
    assert_eq!(client.recv(&mut buffer[..2]).unwrap(), 2);
    assert!(client.holds_input());
    assert_eq!(client.recv(&mut buffer).unwrap(), 3);
    assert_eq!((server.held_bytes(), client.held_bytes()), (0, 0));
    assert!(
        size_of::<ServerStream>() < 2048,
        "{}",
        size_of::<ServerStream>()
    );
}

#[test]
fn a_farewell_is_told_behind_what_came_before() {
    let files = Files::new();
    let (mut server, mut client) = connected(&files);
    let mut buffer = [0; 100];
    client.send(b"last").unwrap();
    client.say_farewell();
    assert_eq!(server.recv(&mut buffer).unwrap(), 4);
    assert!(server.holds_input(), "no event tells of the end");
    assert_eq!(server.recv(&mut buffer).unwrap(), 0);
    assert_eq!(
        server.send(b"answer").unwrap(),
        6,
        "the other direction goes on"
    );
    server.shutdown_send();
    let mut answer = Vec::new();
    loop {
        match client.recv(&mut buffer).unwrap() {
            0 => break,
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
    assert_eq!(answer, b"answer");
}

#[test]
fn what_was_changed_on_the_way_ends_the_connection() {
    let files = Files::new();
    let (mut server, client) = connected(&files);
    send(client.socket(), &[0x17, 3, 3, 0, 40]).unwrap();
    send(client.socket(), &[7; 40]).unwrap();
    let failed = server.recv(&mut [0; 100]).unwrap_err();
    assert_eq!(failed.kind(), io::ErrorKind::InvalidData);
    assert!(server.send(b"x").is_err());
}

#[test]
fn the_names_of_a_certificate_are_told() {
    let files = Files::new();
    let (server, client) = connected(&files);
    let security = server.security();
    assert_eq!(security.protocol, "TLSv1.3");
    assert_eq!(security.names.common_name.as_deref(), Some("client"));
    assert_eq!(security.names.uris, ["spiffe://test/client"]);
    assert_eq!(
        client.security().names.common_name.as_deref(),
        Some("server")
    );
    let own = files.server().certificate.unwrap();
    assert_eq!(own.ends_unix, 1_893_456_000);
    assert!(own.serial.len() > 10);
}
