//! Tests of FAILOVER between nodes with logs: no acknowledged write is lost, and the former primary
//! follows without a transfer of its data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

/// Counts until it is stopped, whatever the server replies.
fn count(
    mut client: Client,
    stop: &Arc<AtomicBool>,
    counted: &Arc<AtomicU64>,
) -> std::thread::JoinHandle<()> {
    let (stop, counted) = (Arc::clone(stop), Arc::clone(counted));
    std::thread::spawn(move || {
        while !stop.load(Ordering::Acquire) {
            if let Ok(Value::Integer(count)) = client.command(&["INCR", "counter"]) {
                counted.store(count.try_into().unwrap(), Ordering::Release);
            }
        }
    })
}

#[test]
fn an_office_is_handed_over_while_clients_write_and_nothing_is_lost() {
    let few = [
        "--min-replicas-to-write",
        "1",
        "--min-replicas-max-lag",
        "1",
    ];
    let (one, other) = (Node::new(&few), Node::new(&few));
    one.wait_for("min_slaves_good_slaves", "0");
    other.follow(&one);
    one.wait_for("min_slaves_good_slaves", "1");
    // A replica that has nothing new to report still counts.
    std::thread::sleep(Duration::from_millis(2_500));
    let mut client = one.client();
    assert_eq!(
        run(&mut client, "SET idle 1"),
        Value::Simple(b"OK".to_vec())
    );
    one.wait_for_replica(&other);

    let (stop, counted) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let writer = count(one.client(), &stop, &counted);
    let patience = Patience::of(Duration::from_secs(60));
    while counted.load(Ordering::Acquire) < 20 {
        assert!(patience.lasts(), "{}", one.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    let (mut primary, mut replica) = (&one, &other);
    for _ in 0..2 {
        let done = run(&mut primary.client(), "FAILOVER TIMEOUT 30000");
        assert_eq!(done, Value::Simple(b"OK".to_vec()));
        replica.wait_for("role", "master");
        primary.wait_for("role", "slave");
        let seen = counted.load(Ordering::Acquire);
        let mut client = replica.client();
        let has = run(&mut client, "GET counter");
        let Value::Bulk(has) = has else {
            panic!("{has:?}");
        };
        let has: u64 = String::from_utf8(has).unwrap().parse().unwrap();
        assert!(has >= seen, "{seen} was acknowledged, and {has} is there");
        primary.wait_for("master_link_status", "up");
        (primary, replica) = (replica, primary);
        assert!(patience.lasts());
    }
    // The office is back at the node that the writer writes to.
    let before = counted.load(Ordering::Acquire);
    while counted.load(Ordering::Acquire) <= before {
        assert!(patience.lasts(), "{}", primary.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    stop.store(true, Ordering::Release);
    writer.join().unwrap();
    primary.wait_for_replica(replica);
    assert_eq!(primary.compare(), (1, 0));
    let log = primary.log();
    assert!(!log.contains("A full sync begins"), "{log}");
    let shown = primary.field("slave0");
    assert!(
        shown.contains(",link=own,") && shown.contains(",lag_ms=0"),
        "{shown}"
    );
}

#[test]
fn writes_wait_while_the_furthest_replica_lacks_too_much() {
    const BOUND_BYTES: usize = 65_536;
    const VALUE_BYTES: usize = 10_000;
    const WRITES: u64 = 200;
    let bound = BOUND_BYTES.to_string();
    let (one, other) = (Node::new(&["--repl-max-lag-bytes", &bound]), Node::new(&[]));
    // No bound applies while no replica is online.
    let mut client = one.client();
    let long = "v".repeat(2 * BOUND_BYTES);
    for _ in 0..2 {
        assert_eq!(
            client.command(&["SET", "before", &long]).unwrap(),
            Value::Simple(b"OK".to_vec())
        );
    }
    other.follow(&one);
    one.wait_for_replica(&other);
    other.signal("-STOP");
    let written = Arc::new(AtomicU64::new(0));
    let writer = {
        let (mut client, written) = (one.client(), Arc::clone(&written));
        std::thread::spawn(move || {
            let value = "v".repeat(VALUE_BYTES);
            for number in 0..WRITES {
                client
                    .command(&["SET", &format!("key-{number}"), &value])
                    .unwrap();
                written.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    // At most as many writes as the bound permits, or fewer on a busy machine. One write may pass
    // the bound.
    std::thread::sleep(Duration::from_millis(500));
    let most = u64::try_from(BOUND_BYTES / VALUE_BYTES + 1).unwrap();
    let done = written.load(Ordering::SeqCst);
    assert!(done <= most, "{done} writes were done");
    assert_eq!(run(&mut client, "EXISTS before"), Value::Integer(1));
    other.signal("-CONT");
    writer.join().unwrap();
    one.wait_for_replica(&other);
    // A replica that is gone delays no writes.
    drop(other);
    one.wait_for("connected_slaves", "0");
    for number in 0..20 {
        let key = format!("after-{number}");
        client.command(&["SET", &key, &long]).unwrap();
    }
}
