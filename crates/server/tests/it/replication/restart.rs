//! Tests that a primary's knowledge of its stream survives a restart, and that a stop lets replicas
//! catch up.

use protocol::Value;
use testkit::client::Client;
use testkit::process::{Server, ServerBuilder, TemporaryDirectory};

use super::redis_replica::play;
use super::{PEER, field, follow, iolite, must, port_of, redis, run, settle, until};

fn start(directory: &TemporaryDirectory, port: Option<&str>) -> Server {
    let dir = directory.to_str().unwrap();
    let args = [
        "--enable-debug-command",
        "yes",
        "--threads",
        "2",
        "--dir",
        dir,
        "--appendonly",
        "yes",
        "--auto-aof-rewrite-percentage",
        "0",
        "--repl-peer",
        *PEER,
    ];
    let builder = ServerBuilder::iolite();
    match port {
        None => builder.tcp().args(&args).start().unwrap(),
        Some(port) => builder.args(&args).args(&["--port", port]).start().unwrap(),
    }
}

fn number(client: &mut Client, name: &str) -> u64 {
    field(client, name).parse().unwrap()
}

/// The primary is killed or stopped, with checkpoints in between, and with writes that were not
/// acknowledged. No replica needs a full sync: neither redis-server nor the replica that was paused
/// all the while.
#[test]
fn replicas_go_on_after_their_primary_s_restart() {
    let directory = TemporaryDirectory::new("restart").unwrap();
    let mut server = start(&directory, None);
    let port = port_of(&server);
    let mut one = server.client().unwrap();
    play(&mut one, 700, 10);
    let replica = redis(&["--repl-timeout", "5"]);
    let mut two = replica.client().unwrap();
    follow(&mut two, &server);
    for round in 0..4 {
        play(&mut one, 710 + round, 5);
        settle(&mut one, &mut two);
        if round % 2 == 0 {
            must(&mut one, "BGREWRITEAOF");
            until("it is made", || {
                field(&mut one, "aof_rewrite_in_progress") == "0"
            });
        }
        play(&mut one, 720 + round, 5);
        settle(&mut one, &mut two);
        let id = field(&mut one, "master_replid");
        let end = number(&mut one, "master_repl_offset");
        if round == 1 {
            // An orderly stop.
            let _closed = one.command(&["SHUTDOWN"]);
        }
        drop((one, server));
        server = start(&directory, Some(&port));
        one = server.client().unwrap();
        assert_eq!(field(&mut one, "master_replid2"), id, "{}", server.log());
        assert!(number(&mut one, "second_repl_offset") > end);
        until("it is back", || field(&mut one, "connected_slaves") == "1");
        settle(&mut one, &mut two);
        assert_eq!(number(&mut one, "sync_full"), 0, "{}", server.log());
        assert_eq!(number(&mut one, "sync_partial_ok"), 1);
    }
}

/// A replica that was away for long gets the log on disk from its position on, over a restart.
#[test]
fn a_replica_that_was_away_is_sent_the_log_on_disk() {
    let directory = TemporaryDirectory::new("away").unwrap();
    let server = start(&directory, None);
    let port = port_of(&server);
    let mut one = server.client().unwrap();
    let replica = redis(&["--repl-timeout", "600"]);
    let mut two = replica.client().unwrap();
    follow(&mut two, &server);
    must(&mut one, "SET k v");
    settle(&mut one, &mut two);
    must(&mut two, "DEBUG SLEEP 0");
    replica.signal("-STOP");
    must(&mut one, "CLIENT KILL TYPE replica");
    // More than a backlog in memory would hold.
    let long = "x".repeat(1 << 20);
    for number in 0..80 {
        let key = format!("key:{}", number % 10);
        one.command(&["SET", &key, &long]).unwrap();
    }
    drop((one, server));
    let server = start(&directory, Some(&port));
    let mut one = server.client().unwrap();
    must(&mut one, "SET after 1");
    replica.signal("-CONT");
    until("it is back", || field(&mut one, "connected_slaves") == "1");
    settle(&mut one, &mut two);
    assert_eq!(number(&mut one, "sync_full"), 0, "{}", server.log());
}

/// What a server has lost when it restarts must not be confused with what it writes afterwards.
#[test]
fn a_replica_that_has_more_than_its_primary_is_given_everything() {
    let directory = TemporaryDirectory::new("more").unwrap();
    let server = start(&directory, None);
    let port = port_of(&server);
    let mut one = server.client().unwrap();
    let replica = redis(&[]);
    let mut two = replica.client().unwrap();
    follow(&mut two, &server);
    must(&mut one, "SET before 1");
    settle(&mut one, &mut two);
    // The directory is restored from a copy.
    let copy = TemporaryDirectory::new("copy").unwrap();
    let from = format!("{}/.", directory.to_str().unwrap());
    let copied = std::process::Command::new("cp")
        .args(["-a", &from, copy.to_str().unwrap()])
        .status();
    assert!(copied.unwrap().success());
    must(&mut one, "SET lost 1");
    settle(&mut one, &mut two);
    drop((one, server));
    let server = start(&copy, Some(&port));
    let mut one = server.client().unwrap();
    must(&mut one, "SET other 1");
    until("it is back", || field(&mut one, "connected_slaves") == "1");
    settle(&mut one, &mut two);
    assert_eq!(run(&mut two, "EXISTS lost other before"), Value::Integer(2));
    assert_eq!(number(&mut one, "sync_full"), 1);
}

#[test]
fn the_checkpoint_in_force_is_sent_where_it_will_do() {
    let directory = TemporaryDirectory::new("in-force").unwrap();
    let server = start(&directory, None);
    let mut one = server.client().unwrap();
    play(&mut one, 730, 10);
    let replicas = [redis(&[]), redis(&[])];
    let mut two = replicas[0].client().unwrap();
    follow(&mut two, &server);
    must(&mut one, "BGREWRITEAOF");
    until("it is made", || {
        field(&mut one, "aof_rewrite_in_progress") == "0"
    });
    play(&mut one, 740, 10);
    let mut three = replicas[1].client().unwrap();
    follow(&mut three, &server);
    assert!(
        server.log().contains("The checkpoint in force"),
        "{}",
        server.log()
    );
    play(&mut one, 750, 5);
    for client in [&mut two, &mut three] {
        settle(&mut one, client);
    }
    let left = std::fs::read_dir(&directory).unwrap().flatten();
    let left: Vec<_> = left
        .map(|entry| entry.file_name().into_string().unwrap_or_default())
        .filter(|name| name.starts_with("sync-"))
        .collect();
    assert!(left.len() <= 2, "{left:?}");
}

/// Returns a replica that is paused when it lacks one write.
fn lagging_replica(server: &Server, one: &mut Client) -> (Server, Client) {
    let replica = redis(&[]);
    let mut two = replica.client().unwrap();
    follow(&mut two, server);
    must(one, "SET k 1");
    settle(one, &mut two);
    replica.signal("-STOP");
    must(one, "SET k 2");
    (replica, two)
}

#[test]
fn a_stop_waits_for_replicas() {
    let server = iolite(&["--durability", "none", "--shutdown-timeout", "600"]);
    let mut one = server.client().unwrap();
    let (replica, mut two) = lagging_replica(&server, &mut one);
    std::thread::scope(|scope| {
        let stops = || {
            let mut other = server.client().unwrap();
            scope.spawn(move || other.command(&["SHUTDOWN"]))
        };
        let first = stops();
        until("it waits", || {
            !field(&mut one, "shutdown_in_milliseconds").is_empty()
        });
        must(&mut one, "SHUTDOWN ABORT");
        let reply = first.join().unwrap().unwrap();
        assert_eq!(
            reply,
            Value::Error(b"ERR Errors trying to SHUTDOWN. Check logs.".to_vec())
        );
        must(&mut one, "SET k 3");
        let second = stops();
        until("it waits", || {
            !field(&mut one, "shutdown_in_milliseconds").is_empty()
        });
        replica.signal("-CONT");
        let _closed = second.join().unwrap();
    });
    until("the link is down", || {
        field(&mut two, "master_link_status") == "down"
    });
    assert_eq!(must(&mut two, "GET k"), Value::Bulk(b"3".to_vec()));
}

/// SHUTDOWN ABORT cancels all pending stops: each is answered as in Redis, and the server
/// continues.
#[test]
fn a_stop_that_is_given_up_is_so_for_all_who_wait_for_it() {
    for server in [
        iolite(&["--durability", "none", "--shutdown-timeout", "600"]),
        redis(&["--shutdown-timeout", "600"]),
    ] {
        let mut one = server.client().unwrap();
        let (replica, _two) = lagging_replica(&server, &mut one);
        std::thread::scope(|scope| {
            let stops: Vec<_> = (0..2)
                .map(|_| {
                    let mut other = server.client().unwrap();
                    scope.spawn(move || other.command(&["SHUTDOWN"]))
                })
                .collect();
            until("both wait", || {
                let list = text(&must(&mut one, "CLIENT LIST"));
                list.matches("cmd=shutdown").count() == 2
            });
            until("it waits", || {
                !field(&mut one, "shutdown_in_milliseconds").is_empty()
            });
            until("each of them counts", || {
                field(&mut one, "blocked_clients") == "2"
            });
            must(&mut one, "SHUTDOWN ABORT");
            for stop in stops {
                let reply = stop.join().unwrap().unwrap();
                let expected = b"ERR Errors trying to SHUTDOWN. Check logs.".to_vec();
                assert_eq!(reply, Value::Error(expected));
            }
        });
        must(&mut one, "SET k 3");
        replica.signal("-CONT");
    }
}

/// Long commands of other clients continue while a stop waits, and a later SHUTDOWN waits for the
/// same stop.
#[test]
fn a_stop_that_waits_is_in_nobody_s_way() {
    let directory = TemporaryDirectory::new("waits").unwrap();
    let mut server = start(&directory, None);
    let mut one = server.client().unwrap();
    must(&mut one, "CONFIG SET shutdown-timeout 600");
    let (replica, mut two) = lagging_replica(&server, &mut one);
    let mut first = server.client().unwrap();
    first.send(&["SHUTDOWN"]).unwrap();
    until("it waits", || {
        !field(&mut one, "shutdown_in_milliseconds").is_empty()
    });
    must(&mut one, "SAVE");
    server.signal("-TERM");
    let mut second = server.client().unwrap();
    second.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    until("both wait", || field(&mut one, "blocked_clients") == "2");
    must(&mut one, "SHUTDOWN ABORT");
    for client in [&mut first, &mut second] {
        let reply = client.receive().unwrap();
        let expected = b"ERR Errors trying to SHUTDOWN. Check logs.".to_vec();
        assert_eq!(reply, Some(Value::Error(expected)));
    }
    assert_eq!(field(&mut one, "blocked_clients"), "0");
    assert_eq!(
        run(&mut one, "SHUTDOWN ABORT"),
        Value::Error(b"ERR No shutdown in progress.".to_vec())
    );
    must(&mut one, "SET k 3");
    first.send(&["SHUTDOWN"]).unwrap();
    until("it waits again", || {
        !field(&mut one, "shutdown_in_milliseconds").is_empty()
    });
    second.send(&["SHUTDOWN"]).unwrap();
    until("both wait", || field(&mut one, "blocked_clients") == "2");
    replica.signal("-CONT");
    until("it has stopped", || !server.is_running().unwrap());
    assert_eq!(must(&mut two, "GET k"), Value::Bulk(b"3".to_vec()));
}

/// The log reports for each incomplete replica how far it lags, as in Redis.
#[test]
fn a_stop_says_who_lags() {
    for mut server in [
        iolite(&["--durability", "none", "--shutdown-timeout", "1"]),
        redis(&["--shutdown-timeout", "1"]),
    ] {
        let mut one = server.client().unwrap();
        let (replica, _two) = lagging_replica(&server, &mut one);
        server.signal("-TERM");
        until("it has stopped", || !server.is_running().unwrap());
        let log = server.log();
        assert!(log.contains("Lagging replica 127.0.0.1:"), "{log}");
        assert!(log.contains("state=online."), "{log}");
        assert!(
            log.contains("0 of 1 replicas are in sync when shutting down."),
            "{log}"
        );
        replica.signal("-CONT");
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    }
}
