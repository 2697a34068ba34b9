//! Ends of connections: no pending output is lost, and no end is reported twice.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use base::clock::{Clock, ManualClock};
use reactor::{Balancer, CloseReason, EventLoop, InProcessPeer, Options, in_process_pair};

use crate::lines::{Arena, Bounds, Lines, Shared};
use crate::rig::{Kind, Rig, eventually};

#[test]
fn close_after_flush_delivers_everything() {
    let rig = Rig::new();
    for kind in rig.kinds() {
        let mut client = rig.connect(kind);
        // The input after `quit` stays unread on the other side: a plain close would reset the
        // connection.
        client.send("big 4000000\nquit\n");
        client.send("unread\n".repeat(100));
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), 4_000_005, "over {kind:?}");
        assert!(received.ends_with(b"\nbye\n"));
    }
    let expected = rig.kinds().count();
    eventually("all closed", || rig.closed().len() == expected);
    assert!(
        rig.closed()
            .iter()
            .all(|&reason| reason == CloseReason::Requested)
    );
}

#[test]
fn half_closing_peer_gets_its_replies() {
    let rig = Rig::new();
    for kind in rig.kinds() {
        let mut client = rig.connect(kind);
        client.send("one\nbig 2000000\ntwo\n");
        client.shutdown_write();
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), 4 + 2_000_001 + 4, "over {kind:?}");
        assert!(received.ends_with(b"\ntwo\n"));
    }
    let expected = rig.kinds().count();
    eventually("all closed", || rig.closed().len() == expected);
    assert!(
        rig.closed()
            .iter()
            .all(|&reason| reason == CloseReason::PeerClosed)
    );
}

#[test]
fn close_now_closes_and_others_go_on() {
    let rig = Rig::new();
    for kind in rig.kinds() {
        let mut other = rig.connect(kind);
        let mut client = rig.connect(kind);
        client.send("drop\n");
        client.expect_end();
        other.send("still\n");
        other.expect("still\n");
    }
}

#[test]
fn departure_of_a_paused_peer_is_noticed() {
    let rig = Rig::new();
    for (count, kind) in rig.kinds().enumerate() {
        let mut client = rig.connect(kind);
        client.send("pause\n");
        client.expect("paused\n");
        drop(client);
        eventually("paused peer closed", || rig.closed().len() == count + 1);
    }
}

/// The line service uses the ids of all closed connections in every turn: to write, to resume and
/// to close. The connections that reuse their slots must not notice.
#[test]
fn stale_ids_touch_nobody() {
    let rig = Rig::new();
    for round in 0..20 {
        let line = format!("round {round}\n");
        let mut client = rig.connect(Kind::Tcp4);
        client.send(&line);
        client.expect(&line);
        client.send("quit\n");
        client.expect("bye\n");
        client.expect_end();
    }
    let services = rig.stop();
    assert_eq!(services[0].stale.len(), 20);
}

#[test]
fn stopping_closes_everyone() {
    let rig = Rig::new();
    let mut clients: Vec<_> = rig.kinds().map(|kind| rig.connect(kind)).collect();
    for client in &mut clients {
        client.send("x\n");
        client.expect("x\n");
    }
    let services = rig.stop();
    assert!(services[0].open.is_empty());
    for client in &mut clients {
        client.expect_end();
    }
}

/// Returns a loop without a thread, and a client of it that got its last reply and will not close.
fn lingering(clock: &Arc<ManualClock>) -> (EventLoop<Lines>, InProcessPeer) {
    let balancer = Balancer::new(1).unwrap();
    let service = Lines::new(&Arc::new(Shared::default()), Bounds::default(), 0);
    let options = Options {
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        linger: Duration::from_secs(2),
        ..Options::default()
    };
    let none = Arc::from([]);
    let mut event_loop =
        EventLoop::new(service, Arena::default(), &balancer, 0, &none, &options).unwrap();
    let (end, mut peer) = in_process_pair(64);
    balancer.connect(Box::new(end));
    peer.write_all(b"quit\n").unwrap();
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(
        event_loop.service_mut().stale.len(),
        1,
        "the service let it go"
    );
    assert_eq!(balancer.connections_count(0), 0);
    let mut buffer = [0; 16];
    assert_eq!(peer.read(&mut buffer).unwrap(), 4);
    assert_eq!(peer.read(&mut buffer).unwrap(), 0);
    (event_loop, peer)
}

#[test]
fn a_lingering_connection_drops_input_until_its_time_is_over() {
    let clock = Arc::new(ManualClock::at_unix_ms(0));
    let (mut event_loop, mut peer) = lingering(&clock);
    clock.advance_ms(1999);
    for _ in 0..10 {
        peer.write_all(&[b'y'; 64]).unwrap();
        event_loop.turn(Some(Duration::ZERO)).unwrap();
    }
    clock.advance_ms(1);
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    let error = peer.write(b"y").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert_eq!(
        event_loop.service_mut().order.len(),
        1,
        "only quit was served"
    );
}

#[test]
fn a_lingering_connection_ends_with_its_peer() {
    let clock = Arc::new(ManualClock::at_unix_ms(0));
    let (mut event_loop, peer) = lingering(&clock);
    drop(peer);
    event_loop.turn(Some(Duration::ZERO)).unwrap();
    assert_eq!(event_loop.service_mut().stale.len(), 1);
}

/// A session can be driven on one thread, turn by turn, without a socket.
#[test]
fn turns_without_a_thread() {
    let shared = Arc::new(Shared::default());
    let balancer = Balancer::new(1).unwrap();
    let service = Lines::new(&shared, Bounds::default(), 0);
    let mut event_loop = EventLoop::new(
        service,
        Arena::default(),
        &balancer,
        0,
        &Arc::from([]),
        &Options::default(),
    )
    .unwrap();
    let (end, mut peer) = in_process_pair(8);
    balancer.connect(Box::new(end));
    peer.write_all(b"12345\n").unwrap();
    let mut turn = || event_loop.turn(Some(Duration::ZERO)).unwrap();
    turn();
    let mut buffer = [0; 16];
    assert_eq!(peer.read(&mut buffer).unwrap(), 6);
    // Longer than the capacity of the pair: the rest waits until there is space.
    peer.write_all(b"big 10\n").unwrap();
    turn();
    assert_eq!(peer.read(&mut buffer).unwrap(), 8);
    turn();
    assert_eq!(peer.read(&mut buffer).unwrap(), 3);
    drop(peer);
    turn();
    assert_eq!(*shared.closed.lock().unwrap(), [CloseReason::PeerClosed]);
}
