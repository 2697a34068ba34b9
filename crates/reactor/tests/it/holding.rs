//! Output that waits for a ticket: after its release it is sent in order, and no other connection
//! waits for it.

use std::io::Read;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use reactor::CloseReason;

use crate::lines::Bounds;
use crate::rig::{Client, Kind, Rig, eventually};

impl Rig {
    /// Makes all output from now on wait for a ticket; 0 for none.
    fn hold_all(&self, ticket: u64) {
        self.shared.ticket.store(ticket, Ordering::SeqCst);
    }

    /// Releases tickets from another thread.
    fn release(&self, up_to: u64) {
        self.shared.released.store(up_to, Ordering::SeqCst);
        let waker = self.balancer.waker(0);
        thread::spawn(move || waker.wake()).join().unwrap();
    }

    fn received_count(&self) -> usize {
        self.shared.received_count.load(Ordering::SeqCst)
    }

    /// Sends, and waits until output was about to be flushed.
    fn send_and_be_served(&self, client: &mut Client, bytes: impl AsRef<[u8]>) {
        let flushes_count = || self.shared.flushes_count.load(Ordering::SeqCst);
        let before = flushes_count();
        client.send(bytes);
        eventually("served", || flushes_count() > before);
    }
}

/// Expects that nothing can be read.
#[track_caller]
fn expect_nothing(client: &mut Client) {
    use crate::rig::Stream;
    let mut buffer = [0; 16];
    let moment = Some(Duration::from_millis(5));
    let read = match &mut client.stream {
        Stream::Tcp(stream) => {
            stream.set_read_timeout(moment).unwrap();
            let read = stream.read(&mut buffer);
            stream.set_read_timeout(Some(crate::rig::PATIENCE)).unwrap();
            read
        }
        Stream::Unix(stream) => {
            stream.set_read_timeout(moment).unwrap();
            let read = stream.read(&mut buffer);
            stream.set_read_timeout(Some(crate::rig::PATIENCE)).unwrap();
            read
        }
        Stream::InProcess(peer) => peer.read(&mut buffer),
    };
    let error = read.expect_err("something left early");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn replies_wait_for_their_tickets_and_keep_their_order() {
    let rig = Rig::new();
    for kind in rig.kinds() {
        rig.shared.released.store(0, Ordering::SeqCst);
        let mut client = rig.connect(kind);
        rig.hold_all(7);
        rig.send_and_be_served(&mut client, "one\nlend 5\n");
        rig.hold_all(9);
        rig.send_and_be_served(&mut client, "two\n");
        // It has no ticket itself, but waits behind the others.
        rig.hold_all(0);
        rig.send_and_be_served(&mut client, "three\n");
        expect_nothing(&mut client);
        rig.release(6);
        expect_nothing(&mut client);
        rig.release(8);
        client.expect("one\n>yyyyy\n");
        expect_nothing(&mut client);
        rig.release(9);
        client.expect("two\nthree\n");
        client.send("four\n");
        client.expect("four\n");
    }
}

#[test]
fn pushes_wait_behind_what_is_held() {
    let rig = Rig::new();
    let mut held = rig.connect(Kind::Tcp4);
    let mut other = rig.connect(Kind::Unix);
    held.send("here\n");
    held.expect("here\n");
    rig.send_and_be_served(&mut held, "hold 3\n");
    other.send("tell\nother\n");
    other.expect("other\n");
    expect_nothing(&mut held);
    rig.release(3);
    held.expect("hold 3\ntold\n");
}

#[test]
fn only_who_has_to_wait_waits() {
    let rig = Rig::new();
    for kind in rig.kinds() {
        rig.shared.released.store(0, Ordering::SeqCst);
        let mut held = rig.connect(kind);
        let mut other = rig.connect(kind);
        rig.send_and_be_served(&mut held, "hold 5\n");
        other.send("at once\n");
        other.expect("at once\n");
        expect_nothing(&mut held);
        rig.release(5);
        held.expect("hold 5\n");
    }
}

/// Far more than a socket accepts is released at once, and more is added behind it meanwhile.
#[test]
fn what_is_released_leaves_in_pieces() {
    let rig = Rig::new();
    for kind in rig.kinds() {
        rig.shared.released.store(0, Ordering::SeqCst);
        rig.hold_all(1);
        let mut client = rig.connect(kind);
        rig.send_and_be_served(&mut client, "lend 3000000\nmark\nbig 2000000\nend\n");
        rig.hold_all(0);
        expect_nothing(&mut client);
        rig.release(1);
        let mut expected = b">".to_vec();
        expected.resize(expected.len() + 3_000_000, b'y');
        expected.extend_from_slice(b"\nmark\n");
        expected.resize(expected.len() + 2_000_000, b'x');
        expected.extend_from_slice(b"\nend\n");
        let mut received = vec![0; expected.len()];
        client.read_exact(&mut received).unwrap();
        assert!(received == expected, "over {kind:?}");
        client.send("on\n");
        client.expect("on\n");
    }
}

/// A pipeline is still served while its first replies are held, but only within bounds.
#[test]
fn a_pipeline_is_served_on_within_bounds() {
    let rig = Rig::new();
    rig.hold_all(1);
    let mut client = rig.connect(Kind::Tcp4);
    for _ in 0..20 {
        rig.send_and_be_served(&mut client, "small\n");
    }
    rig.send_and_be_served(&mut client, "big 300000\n");
    let before = rig.received_count();
    client.send("later\n");
    // Other clients are served, this one is not.
    let mut other = rig.connect(Kind::Unix);
    rig.send_and_be_served(&mut other, "other\n");
    assert_eq!(rig.received_count(), before + 1);
    rig.hold_all(0);
    rig.release(1);
    other.expect("other\n");
    for _ in 0..20 {
        client.expect("small\n");
    }
    let mut big = vec![0; 300_001];
    client.read_exact(&mut big).unwrap();
    client.expect("later\n");
}

#[test]
fn held_output_counts_for_the_limit() {
    let bounds = Bounds {
        output_max: 10_000,
        ..Bounds::default()
    };
    let rig = Rig::with(1, bounds);
    rig.hold_all(1);
    for (count, kind) in rig.kinds().enumerate() {
        let mut client = rig.connect(kind);
        client.send("big 9000\n");
        client.send("big 2000\n");
        eventually("closed", || rig.closed().len() == count + 1);
        assert_eq!(rig.closed()[count], CloseReason::OutputLimit);
        rig.release(0);
    }
}

#[test]
fn what_is_held_goes_with_its_connection() {
    let rig = Rig::new();
    rig.hold_all(1);
    for (count, kind) in rig.kinds().enumerate() {
        let mut leaves = rig.connect(kind);
        let mut dropped = rig.connect(kind);
        rig.send_and_be_served(&mut leaves, "one\nlend 100000\n");
        rig.send_and_be_served(&mut dropped, "two\ndrop\n");
        dropped.expect_end();
        drop(leaves);
        // In process, no event reports that a peer with held output is gone.
        rig.release(1);
        eventually("both gone", || rig.closed().len() == 2 * (count + 1));
        rig.shared.released.store(0, Ordering::SeqCst);
    }
}

/// A close by the service, or of one side by the peer, follows the held output.
#[test]
fn an_end_waits_for_what_is_held() {
    let rig = Rig::new();
    for kind in rig.kinds() {
        rig.shared.released.store(0, Ordering::SeqCst);
        rig.hold_all(1);
        let mut closed = rig.connect(kind);
        let mut half = rig.connect(kind);
        rig.send_and_be_served(&mut closed, "one\nquit\n");
        rig.send_and_be_served(&mut half, "two\n");
        half.shutdown_write();
        expect_nothing(&mut closed);
        expect_nothing(&mut half);
        rig.release(1);
        closed.expect("one\nbye\n");
        half.expect("two\n");
        closed.expect_end();
        half.expect_end();
    }
    let expected = 2 * rig.kinds().count();
    eventually("all closed", || rig.closed().len() == expected);
}

#[test]
fn what_is_refused_is_one_line_and_the_end() {
    let rig = Rig::new();
    for kind in rig.kinds() {
        rig.shared.refuse_held.store(false, Ordering::SeqCst);
        rig.hold_all(0);
        let mut held = rig.connect(kind);
        let mut other = rig.connect(kind);
        held.send("free\n");
        held.expect("free\n");
        rig.send_and_be_served(&mut held, "hold 9\nlend 7\nmore\n");
        rig.shared.refuse_held.store(true, Ordering::SeqCst);
        rig.release(0);
        held.expect("no\n");
        held.expect_end();
        other.send("still\n");
        other.expect("still\n");
    }
}

#[test]
fn many_connections_are_released_together() {
    let rig = Rig::new();
    let mut clients: Vec<_> = (0..200)
        .map(|number| {
            rig.connect(if number % 2 == 0 {
                Kind::Tcp4
            } else {
                Kind::Unix
            })
        })
        .collect();
    for round in 1..=5_u64 {
        rig.hold_all(round);
        let before = rig.received_count();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(format!("{round} {number}\n"));
        }
        eventually("all served", || rig.received_count() == before + 200);
        expect_nothing(&mut clients[0]);
        rig.release(round);
        for (number, client) in clients.iter_mut().enumerate() {
            client.expect(format!("{round} {number}\n"));
        }
    }
}
