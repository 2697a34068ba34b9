//! Tests of redis-server as a replica: it has the primary's data, at the same offset.

use protocol::Value;
use testkit::client::Client;
use testkit::differential::rounds;
use testkit::process::Server;

use super::{NOT_OF_DATA, field, follow, has_functions, iolite, must, redis, run, settle, until};

/// Runs random requests of all commands except [`NOT_OF_DATA`]. The replies do not matter.
pub(super) fn play(client: &mut Client, seed: u64, count: u64) {
    for requests in rounds(seed, 0..count) {
        for request in requests {
            let name = String::from_utf8_lossy(&request[0]).to_ascii_uppercase();
            // Since 7.2 Redis truncates the index of LSET to 32 bits and changes another element of
            // a short list.
            let is_cut = name == "LSET" && request.get(2).is_some_and(|index| index.len() > 10);
            let is_newer = name == "FUNCTION" && !has_functions();
            if !NOT_OF_DATA.contains(&name.as_str()) && !is_cut && !is_newer {
                client.command(&request).unwrap();
            }
        }
        // A round may leave a transaction open.
        let _none = client.command(&["DISCARD"]).unwrap();
    }
}

fn pair(args: &[&str]) -> (Server, Server, Client, Client) {
    let (primary, replica) = (iolite(args), redis(&[]));
    let (one, two) = (primary.client().unwrap(), replica.client().unwrap());
    (primary, replica, one, two)
}

/// Tests data of every type, a full sync while other clients write, and a stream of all commands.
fn goes_through_everything(args: &[&str], seed: u64) {
    let (primary, _replica, mut one, mut two) = pair(args);
    super::super::rdb_files::fill(&mut one);
    must(&mut one, "FLUSHDB");
    play(&mut one, seed, 20);
    must(&mut two, "SET lost yes");
    std::thread::scope(|scope| {
        let mut other = primary.client().unwrap();
        scope.spawn(move || play(&mut other, seed + 1, 20));
        follow(&mut two, &primary);
    });
    settle(&mut one, &mut two);
    play(&mut one, seed + 2, 40);
    settle(&mut one, &mut two);
    assert_eq!(field(&mut one, "sync_full"), "1");
    assert_eq!(run(&mut two, "EXISTS lost"), Value::Integer(0));
}

#[test]
fn a_replica_of_a_server_that_keeps_nothing_has_everything() {
    goes_through_everything(&["--durability", "none"], 1);
}

#[test]
fn a_replica_of_a_server_with_a_log_has_everything() {
    goes_through_everything(&["--durability", "everysec"], 2);
}

#[test]
fn a_replica_that_was_cut_off_is_given_what_it_lacks() {
    let (primary, _replica, mut one, mut two) = pair(&["--durability", "none"]);
    follow(&mut two, &primary);
    for cut in 0..5 {
        play(&mut one, 100 + cut, 2);
        assert_eq!(
            must(&mut one, "CLIENT KILL TYPE replica"),
            Value::Integer(1)
        );
        play(&mut one, 200 + cut, 2);
        until("it is back", || field(&mut one, "connected_slaves") == "1");
        settle(&mut one, &mut two);
    }
    assert_eq!(field(&mut one, "sync_full"), "1");
    assert!(field(&mut one, "sync_partial_ok").parse::<u64>().unwrap() >= 5);
}

#[test]
fn wait_counts_a_replica_and_nobody_is_answered_before_it_has_all() {
    let (primary, replica, mut one, mut two) = pair(&["--durability", "none"]);
    assert_eq!(must(&mut one, "WAIT 0 0"), Value::Integer(0));
    follow(&mut two, &primary);
    must(&mut one, "SET k v");
    assert_eq!(must(&mut one, "WAIT 1 0"), Value::Integer(1));
    replica.signal("-STOP");
    must(&mut one, "SET k w");
    assert_eq!(must(&mut one, "WAIT 1 50"), Value::Integer(0));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut other = primary.client().unwrap();
            must(&mut other, "SET other x");
            must(&mut other, "WAIT 1 0")
        });
        until("it waits", || field(&mut one, "blocked_clients") == "1");
        replica.signal("-CONT");
        assert_eq!(waits.join().unwrap(), Value::Integer(1));
    });
    assert_eq!(must(&mut two, "GET other"), Value::Bulk(b"x".to_vec()));
    // A replica of a version that does not report its disk counts as not durable.
    let both = Value::Array(vec![Value::Integer(0), Value::Integer(0)]);
    assert_eq!(must(&mut one, "WAITAOF 0 1 20"), both);
    let refused = run(&mut one, "WAITAOF 1 0 0");
    assert!(matches!(refused, Value::Error(_)), "{refused:?}");
}

#[test]
fn writes_need_as_many_replicas_as_are_asked_for() {
    let (primary, replica, mut one, mut two) = pair(&["--min-replicas-to-write", "1"]);
    let refusal = "NOREPLICAS Not enough good replicas to write.";
    assert_eq!(super::error(&mut one, "SET k v"), refusal);
    must(&mut one, "GET k");
    follow(&mut two, &primary);
    until("it is good", || {
        field(&mut one, "min_slaves_good_slaves") == "1"
    });
    until("writes go on", || {
        !matches!(run(&mut one, "SET k v"), Value::Error(_))
    });
    drop(replica);
    until("writes are refused", || {
        matches!(run(&mut one, "SET k v"), Value::Error(_))
    });
    must(&mut one, "CONFIG SET min-replicas-to-write 0");
    must(&mut one, "SET k v");
}

#[test]
fn a_replica_of_a_replica_follows_on() {
    let (primary, replica, mut one, mut two) = pair(&["--durability", "none"]);
    follow(&mut two, &primary);
    let third = redis(&[]);
    let mut three = third.client().unwrap();
    follow(&mut three, &replica);
    play(&mut one, 300, 10);
    settle(&mut one, &mut two);
    settle(&mut one, &mut three);
}

#[test]
fn clients_are_told_of_their_server_s_replicas() {
    let (primary, replica, mut one, mut two) = pair(&["--durability", "none"]);
    follow(&mut two, &primary);
    let port = replica.address().unwrap().port();
    until("it is online", || {
        field(&mut one, "slave0").contains("state=online")
    });
    let line = field(&mut one, "slave0");
    let start = format!("ip=127.0.0.1,port={port},state=online,offset=");
    assert!(line.starts_with(&start), "{line}");
    let Value::Array(role) = must(&mut one, "ROLE") else {
        panic!("no ROLE");
    };
    assert_eq!(role[0], Value::Bulk(b"master".to_vec()));
    let Value::Array(replicas) = &role[2] else {
        panic!("{role:?}");
    };
    assert_eq!(replicas.len(), 1);
    let Value::Bulk(list) = must(&mut one, "CLIENT LIST TYPE replica") else {
        panic!("no list");
    };
    let list = String::from_utf8(list).unwrap();
    assert!(
        list.lines().count() == 1 && list.contains(" flags=S "),
        "{list}"
    );
}

/// While there is no replica and the log is off, nothing records what is written.
#[test]
fn a_replica_that_was_away_while_there_was_no_log_has_everything() {
    let (primary, _replica, mut one, mut two) = pair(&["--durability", "os"]);
    follow(&mut two, &primary);
    must(&mut one, "SET in-the-log 1");
    settle(&mut one, &mut two);
    must(&mut two, "REPLICAOF NO ONE");
    until("it is gone", || field(&mut one, "connected_slaves") == "0");
    must(&mut one, "CONFIG SET durability none");
    until("there is no log", || field(&mut one, "aof_enabled") == "0");
    must(&mut one, "SET in-no-log 1");
    must(&mut one, "CONFIG SET durability os");
    follow(&mut two, &primary);
    settle(&mut one, &mut two);
    for cut in 0..2 {
        must(&mut one, "CONFIG SET durability none");
        until("there is no log", || field(&mut one, "aof_enabled") == "0");
        must(&mut one, "CLIENT KILL TYPE replica");
        must(&mut one, &format!("SET while-away {cut}"));
        must(&mut one, "CONFIG SET durability os");
        until("it is back", || field(&mut one, "connected_slaves") == "1");
        settle(&mut one, &mut two);
    }
}
