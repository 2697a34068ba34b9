//! Tests of redis-server replicas, by PSYNC, of nodes that also have own links.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::*;
use crate::replication::settle;

fn redis() -> Server {
    let args = ["--enable-debug-command", "yes", "--save", ""];
    ServerBuilder::oracle().tcp().args(&args).start().unwrap()
}

/// Makes redis-server follow a node, and waits for the stream.
fn follow(redis: &Server, node: &Node) {
    let mut client = redis.client().unwrap();
    run(&mut client, &format!("REPLICAOF 127.0.0.1 {}", node.port));
    let patience = Patience::of(Duration::from_secs(120));
    while crate::replication::field(&mut client, "master_link_status") != "up" {
        assert!(patience.lasts(), "{}\n{}", redis.log(), node.log());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Writes one key after the other until `stop` is set.
fn write(node: &Node, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let (mut client, stop) = (node.client(), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut number = 0;
        while !stop.load(Ordering::Acquire) {
            let set = [
                b"SET".to_vec(),
                format!("while:{number}").into_bytes(),
                b"1".to_vec(),
            ];
            client.command(&set).unwrap();
            number += 1;
        }
    })
}

/// Regression test: the stream began at the log's end while the checkpoint was written, and not at
/// the cut.
#[test]
fn what_is_written_while_a_checkpoint_is_made_for_it_reaches_redis() {
    let primary = Node::new(&[]);
    let mut client = primary.client();
    crate::recovery::fill(&mut client, 0..10_000);
    let stop = Arc::new(AtomicBool::new(false));
    let writer = write(&primary, &stop);
    // Sending the checkpoint in force would not be less than making a new one.
    let long = "v".repeat(1 << 20);
    for _ in 0..17 {
        client.command(&["SET", "long", &long]).unwrap();
    }
    let redis = redis();
    follow(&redis, &primary);
    stop.store(true, Ordering::Release);
    writer.join().unwrap();
    settle(&mut client, &mut redis.client().unwrap());
}

/// A replica has frames in its log that it has not applied yet, and generations that are not its
/// own.
#[test]
fn what_is_written_while_a_replica_serves_it_reaches_redis() {
    let (primary, replica) = (Node::new(&[]), Node::new(&[]));
    let mut client = primary.client();
    crate::recovery::fill(&mut client, 0..10_000);
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    let stop = Arc::new(AtomicBool::new(false));
    let writers = [(); 2].map(|()| write(&primary, &stop));
    let long = "v".repeat(1 << 20);
    for _ in 0..17 {
        client.command(&["SET", "long", &long]).unwrap();
    }
    let redis = redis();
    follow(&redis, &replica);
    stop.store(true, Ordering::Release);
    for writer in writers {
        writer.join().unwrap();
    }
    primary.wait_for_replica(&replica);
    settle(&mut replica.client(), &mut redis.client().unwrap());
}

/// Regression test: a ping of its stream was at the position of the primary's next frame, and the
/// replica was refused from then on.
#[test]
fn a_replica_that_redis_follows_adds_nothing_to_its_log() {
    let primary = Node::new(&[]);
    let replica = Node::new(&["--repl-ping-replica-period", "1"]);
    fill(&mut primary.client());
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    let redis = redis();
    follow(&redis, &replica);
    let pings = Duration::from_secs(3);
    std::thread::sleep(pings);
    run(&mut primary.client(), "SET later 1");
    primary.wait_for_replica(&replica);
    settle(&mut replica.client(), &mut redis.client().unwrap());
    // The office changes, and the node sends pings of its own again.
    run(&mut replica.client(), "REPLICAOF NO ONE");
    replica.wait_for("role", "master");
    let before = replica.field("master_repl_offset");
    let patience = Patience::of(Duration::from_secs(60));
    while replica.field("master_repl_offset") == before {
        assert!(patience.lasts(), "{}", replica.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    settle(&mut replica.client(), &mut redis.client().unwrap());
}

/// Regression test: each primary counts its own generations, so writes of a successor were taken to
/// be in the earlier checkpoint.
#[test]
fn what_a_successor_wrote_reaches_redis_whatever_was_saved_before_it() {
    let (mut old, new) = (Node::new(&[]), Node::new(&[]));
    fill(&mut old.client());
    new.follow(&old);
    old.wait_for_replica(&new);
    for _ in 0..6 {
        let saved = run(&mut old.client(), "SAVE");
        assert_eq!(saved, Value::Simple(b"OK".to_vec()));
    }
    old.kill();
    run(&mut new.client(), "REPLICAOF NO ONE");
    new.wait_for("role", "master");
    run(&mut new.client(), "SET of-successor 1");
    old.start(&["--replicaof", &format!("127.0.0.1 {}", new.port)]);
    new.wait_for_replica(&old);
    let redis = redis();
    follow(&redis, &old);
    settle(&mut old.client(), &mut redis.client().unwrap());
}
