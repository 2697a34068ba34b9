//! Tests the steps of `docs/migration.md`: a system moves from redis-server to Iolite and back
//! while clients write, and every acknowledged write is there at the end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use protocol::Value;
use testkit::client::Client;
use testkit::process::{Server, TemporaryDirectory};

use super::{field, follow, iolite, must, port_of, redis, run, settle, until};

/// Counts like an application that knows both servers: it goes to the other server if this one
/// replies that it takes no writes.
fn write_until(stop: &AtomicBool, acknowledged: &AtomicU64, servers: [&Server; 2]) {
    let mut clients = servers.map(|server| server.client().unwrap());
    let mut at = 0;
    while !stop.load(Ordering::SeqCst) {
        match run(&mut clients[at], "INCR count") {
            Value::Integer(_) => {
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            Value::Error(_) => at = 1 - at,
            other => panic!("{other:?}"),
        }
    }
}

/// Makes one server hand over to the other, and follow it.
fn hand_over(from: &mut Client, to: &mut Client, to_port: &str) {
    must(
        from,
        &format!("FAILOVER TO 127.0.0.1 {to_port} TIMEOUT 60000"),
    );
    until("the office is handed over", || {
        field(from, "role") == "slave" && field(to, "role") == "master"
    });
    until("the link is up", || {
        field(from, "master_link_status") == "up"
    });
}

fn number(client: &mut Client, name: &str) -> u64 {
    field(client, name).parse().unwrap()
}

#[test]
fn a_live_system_moves_in_and_out_without_a_stop() {
    let directory = TemporaryDirectory::new("migration").unwrap();
    let old = redis(&["--repl-backlog-size", "64mb"]);
    let new = iolite(&["--appendonly", "yes", "--dir", directory.to_str().unwrap()]);
    let (mut one, mut two) = (old.client().unwrap(), new.client().unwrap());
    super::redis_replica::play(&mut one, 800, 10);
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let moved = |least: u64| {
        let before = acknowledged.load(Ordering::SeqCst);
        until("writes go on", || {
            acknowledged.load(Ordering::SeqCst) >= before + least
        });
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&stop, &acknowledged, [&old, &new]));
        // The move to Iolite.
        moved(100);
        follow(&mut two, &old);
        moved(100);
        until("it is close behind", || {
            field(&mut two, "slave_repl_offset") == field(&mut one, "master_repl_offset")
        });
        hand_over(&mut one, &mut two, &port_of(&new));
        moved(100);
        // The move back, without a transfer of data.
        hand_over(&mut two, &mut one, &port_of(&old));
        moved(100);
        stop.store(true, Ordering::SeqCst);
        writer.join().unwrap();
    });
    settle(&mut one, &mut two);
    let count = acknowledged.load(Ordering::SeqCst).to_string();
    for client in [&mut one, &mut two] {
        assert_eq!(
            must(client, "GET count"),
            Value::Bulk(count.clone().into_bytes())
        );
    }
    assert_eq!(number(&mut one, "sync_full"), 1, "that of the beginning");
    assert_eq!(number(&mut two, "sync_full"), 0);
}
