//! Memory stays bounded, whatever peers do.

use std::sync::atomic::Ordering;

use reactor::CloseReason;

use crate::lines::Bounds;
use crate::rig::{Kind, Rig, eventually};

/// A thousand clients request much and read nothing. Each costs at most its limit; then it is
/// closed. A well-behaved client is served all the time.
#[test]
fn never_reading_clients_cost_at_most_their_limit() {
    const CLIENTS: usize = 1000;
    const OUTPUT_MAX: usize = 16 * 1024;
    let bounds = Bounds {
        output_max: OUTPUT_MAX,
        ..Bounds::default()
    };
    let rig = Rig::with(1, bounds);
    let mut good = rig.connect(Kind::InProcess);
    let mut hostile = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = rig.connect(Kind::InProcess);
        // Eight KB more than the capacity of the pair stay pending: within the limit.
        client.send("big 24576\n");
        client.send("unread\n".repeat(50));
        hostile.push(client);
        good.send("good\n");
        good.expect("good\n");
    }
    assert_eq!(rig.closed().len(), 0);
    let peak = rig.shared.buffers_peak.load(Ordering::SeqCst);
    assert!(peak <= CLIENTS * OUTPUT_MAX, "{peak} bytes");
    let mut greedy = rig.connect(Kind::InProcess);
    greedy.send("big 100000\n");
    eventually("greedy client closed", || {
        rig.closed() == [CloseReason::OutputLimit]
    });
    good.send("good\n");
    good.expect("good\n");
}

/// Attached output counts like copied output.
#[test]
fn lent_bytes_count_against_the_limit() {
    let bounds = Bounds {
        output_max: 1 << 20,
        ..Bounds::default()
    };
    let rig = Rig::with(1, bounds);
    let mut greedy = rig.connect(Kind::InProcess);
    greedy.send("lend 2000000\n");
    eventually("greedy client closed", || {
        rig.closed() == [CloseReason::OutputLimit]
    });
}

/// The service counts the bytes that it receives into its own memory, and can refuse them. Nothing
/// of them is kept if the peer disconnects half way.
#[test]
fn bytes_received_apart_can_be_refused_and_given_up() {
    let bounds = Bounds {
        input_max: 100_000,
        ..Bounds::default()
    };
    let rig = Rig::with(1, bounds);
    let mut client = rig.connect(Kind::Tcp4);
    client.send("keep 500000\n");
    client.send(vec![b'v'; 50_000]);
    drop(client);
    eventually("closed", || rig.closed().len() == 1);
    let mut greedy = rig.connect(Kind::InProcess);
    greedy.send("keep 500000\n");
    let _refused = std::io::Write::write_all(&mut greedy, &[b'v'; 200_000]);
    eventually("closed", || rig.closed().len() == 2);
    assert_eq!(rig.closed()[1], CloseReason::InputLimit);
    for service in rig.stop() {
        assert!(service.apart.is_empty());
    }
}

/// While its output waits, the loop does not read from a client: its requests stay on its side.
#[test]
fn no_reading_while_output_waits() {
    let rig = Rig::new();
    let mut client = rig.connect(Kind::InProcess);
    client.send("big 100000\n");
    eventually("output waits", || {
        // Waiting output is counted in the following turn.
        rig.wake_all();
        rig.shared.buffers_peak.load(Ordering::SeqCst) > 50_000
    });
    let served = rig.shared.received_count.load(Ordering::SeqCst);
    client.send("later\n");
    let mut other = rig.connect(Kind::InProcess);
    other.send("x\n");
    other.expect("x\n");
    assert_eq!(rig.shared.received_count.load(Ordering::SeqCst), served + 1);
    client.expect(format!("{}\nlater\n", "x".repeat(100_000)));
}

/// A claimed length costs nothing: buffers grow with the received bytes.
#[test]
fn claimed_length_allocates_nothing() {
    let rig = Rig::new();
    let mut clients = Vec::new();
    for _ in 0..100 {
        let mut client = rig.connect(Kind::Tcp4);
        client.send("blob 500000000\nabc");
        clients.push(client);
    }
    eventually("all arrived", || {
        rig.shared.received_count.load(Ordering::SeqCst) >= 100
    });
    let mut other = rig.connect(Kind::Tcp4);
    other.send("x\n");
    other.expect("x\n");
    let peak = rig.shared.buffers_peak.load(Ordering::SeqCst);
    assert!(peak <= 100 * 128, "{peak} bytes");
    // Enough to be received into the connections' own buffers: still at most twice the received
    // bytes.
    for client in &mut clients {
        client.send(vec![b'v'; 100_000]);
    }
    eventually("buffers grew", || {
        rig.shared.buffers_peak.load(Ordering::SeqCst) >= 100 * 100_000
    });
    let peak = rig.shared.buffers_peak.load(Ordering::SeqCst);
    assert!(peak <= 100 * 2 * 100_100, "{peak} bytes");
}

#[test]
fn input_limit_closes() {
    let bounds = Bounds {
        input_max: 1000,
        ..Bounds::default()
    };
    let rig = Rig::with(1, bounds);
    let mut client = rig.connect(Kind::Tcp4);
    client.send("y".repeat(900));
    client.send("\n");
    client.expect("y".repeat(900));
    client.expect("\n");
    client.send("y".repeat(1001));
    eventually("closed", || rig.closed() == [CloseReason::InputLimit]);
}

/// Idle connections own no buffers, even after they had large input and output.
#[test]
fn idle_connections_own_nothing() {
    let rig = Rig::new();
    for kind in rig.kinds() {
        let mut client = rig.connect(kind);
        client.send("blob 1000000\n");
        client.send(vec![b'v'; 1_000_000]);
        client.expect("blob 1000000\n");
        client.send("big 3000000\n");
        client.expect("x".repeat(3_000_000));
        client.expect("\n");
        rig.shared.buffers_peak.store(0, Ordering::SeqCst);
        client.send("a\n");
        client.expect("a\n");
        assert_eq!(rig.shared.buffers_peak.load(Ordering::SeqCst), 0);
    }
}
