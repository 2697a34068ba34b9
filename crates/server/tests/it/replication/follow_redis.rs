//! Tests of following redis-server: all its data is here at the same offset, through link failures,
//! kills and changes of the office.

use protocol::Value;
use testkit::client::Client;
use testkit::process::{Server, TemporaryDirectory};

use super::redis_replica::play;
use super::{
    error, field, follow, has_functions, iolite, must, oracle, port_of, redis, run, settle, until,
};

fn pair(primary: &[&str], replica: &[&str]) -> (Server, Server, Client, Client) {
    let primary = redis(&[&["--repl-backlog-size", "64mb"], primary].concat());
    let replica = iolite(replica);
    let (one, two) = (primary.client().unwrap(), replica.client().unwrap());
    (primary, replica, one, two)
}

/// Writes data of every type, small and large, and data that is not in keys.
fn fill(client: &mut Client) {
    for (database, count) in [(0, 5), (3, 300), (9, 20)] {
        must(client, &format!("SELECT {database}"));
        for number in 0..count {
            for line in [
                format!("SET text:{number} value:{number}"),
                format!("SET number:{number} {number}"),
                format!("SET timed:{number} x PX {}", 100_000 + number),
                format!("RPUSH list a {number} b"),
                format!("SADD set member:{number}"),
                format!("SADD numbers {number}"),
                format!("ZADD sorted {number}.5 member:{number}"),
                format!("HSET hash field:{number} value:{number}"),
                format!("XADD stream {}-1 field {number}", number + 1),
                format!("PFADD sketch {number}"),
            ] {
                must(client, &line);
            }
        }
        must(client, "XGROUP CREATE stream readers 0");
        must(
            client,
            "XREADGROUP GROUP readers one COUNT 3 STREAMS stream >",
        );
    }
    let long = "x".repeat(300_000);
    client.command(&["SET", "long", &long]).unwrap();
    let library = "#!lua name=own\nredis.register_function{function_name='f', callback=function() return 1 end, flags={'no-writes'}}";
    if has_functions() {
        client.command(&["FUNCTION", "LOAD", library]).unwrap();
    }
    must(client, "SELECT 0");
}

/// Tests data of every type, a full sync while other clients write, and a stream of all commands.
fn goes_through_everything(primary: &[&str], replica: &[&str], seed: u64) {
    let (primary, replica, mut one, mut two) = pair(primary, replica);
    fill(&mut one);
    must(&mut two, "SET lost yes");
    std::thread::scope(|scope| {
        let mut other = primary.client().unwrap();
        scope.spawn(move || play(&mut other, seed, 20));
        follow(&mut two, &primary);
    });
    settle(&mut one, &mut two);
    if has_functions() {
        assert_eq!(must(&mut two, "FCALL_RO f 0"), Value::Integer(1));
    }
    assert_eq!(run(&mut two, "EXISTS lost"), Value::Integer(0));
    let refused = error(&mut two, "SET k v");
    assert!(refused.starts_with("READONLY"), "{refused}");
    play(&mut one, seed + 1, 40);
    settle(&mut one, &mut two);
    assert_eq!(field(&mut one, "sync_full"), "1", "{}", replica.log());
}

#[test]
fn everything_comes_from_a_primary_that_sends_a_file() {
    goes_through_everything(
        &["--repl-diskless-sync", "no"],
        &["--durability", "none"],
        11,
    );
}

#[test]
fn everything_comes_from_a_primary_without_a_disk() {
    let args = [
        "--repl-diskless-sync",
        "yes",
        "--repl-diskless-sync-delay",
        "0",
    ];
    goes_through_everything(&args, &["--appendonly", "yes"], 12);
}

#[test]
fn transactions_scripts_and_messages_come_whole() {
    let (primary, replica, mut one, mut two) = pair(&[], &["--durability", "none"]);
    follow(&mut two, &primary);
    let mut listener = replica.client().unwrap();
    must(&mut listener, "SUBSCRIBE news");
    for line in ["MULTI", "SELECT 4", "INCR a", "SELECT 0", "INCR a", "EXEC"] {
        must(&mut one, line);
    }
    let script = "for i = 1, 100 do redis.call('INCR', KEYS[1]) end";
    let ran = one.command(&["EVAL", script, "1", "counter"]).unwrap();
    assert_eq!(ran, Value::Null);
    must(&mut one, "SPOP none");
    must(&mut one, "SADD many a b c d e f");
    must(&mut one, "SPOP many 3");
    must(&mut one, "PUBLISH news hello");
    settle(&mut one, &mut two);
    assert_eq!(must(&mut two, "GET counter"), Value::Bulk(b"100".to_vec()));
    let pushed = listener.receive().unwrap().unwrap();
    let expected = ["message", "news", "hello"].map(|word| Value::Bulk(word.as_bytes().to_vec()));
    assert_eq!(pushed, Value::Array(expected.to_vec()));
    // Longer than a piece of the stream.
    must(&mut one, "MULTI");
    for number in 0..5_000 {
        must(&mut one, &format!("SET within:{number} {number}"));
    }
    must(&mut one, "EXEC");
    settle(&mut one, &mut two);
    let Value::Bulk(list) = must(&mut two, "CLIENT LIST") else {
        panic!("no list");
    };
    let list = String::from_utf8(list).unwrap();
    assert!(list.contains(" flags=M "), "{list}");
}

#[test]
fn a_link_that_is_cut_goes_on_where_it_was() {
    let (primary, _replica, mut one, mut two) = pair(&[], &["--durability", "none"]);
    follow(&mut two, &primary);
    for cut in 0..5 {
        // In another database than the first.
        must(&mut one, "SELECT 5");
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
    let parts: u64 = field(&mut one, "sync_partial_ok").parse().unwrap();
    assert!(parts >= 5, "{parts}");
}

#[test]
fn a_server_that_was_killed_asks_for_the_next_byte() {
    let directory = TemporaryDirectory::new("killed").unwrap();
    let dir = directory.to_str().unwrap();
    let primary = redis(&[]);
    let mut one = primary.client().unwrap();
    fill(&mut one);
    let port = port_of(&primary);
    let args = [
        "--dir",
        dir,
        "--appendonly",
        "yes",
        "--replicaof",
        "127.0.0.1",
        &port,
    ];
    for round in 0..4 {
        let replica = iolite(&args);
        let mut two = replica.client().unwrap();
        until("the link is up", || {
            field(&mut two, "master_link_status") == "up"
        });
        settle(&mut one, &mut two);
        if round == 0 {
            // The loaded data is on disk. Then the log records its origin.
            until("it is saved", || {
                field(&mut two, "rdb_bgsave_in_progress") == "0"
                    && field(&mut two, "rdb_last_save_time") != "0"
            });
        }
        std::thread::scope(|scope| {
            let mut other = primary.client().unwrap();
            scope.spawn(move || {
                for number in 0..3_000 {
                    must(&mut other, &format!("INCR counter:{}", number % 7));
                    must(&mut other, "APPEND trace x");
                }
            });
            until(
                "some of it is there",
                || matches!(run(&mut two, "STRLEN trace"), Value::Integer(len) if len >= 300 + 3_000 * round),
            );
            // Killed with kill -9 at any moment.
            drop(replica);
        });
    }
    let replica = iolite(&args);
    let mut two = replica.client().unwrap();
    settle(&mut one, &mut two);
    assert_eq!(must(&mut two, "STRLEN trace"), Value::Integer(12_000));
    assert_eq!(field(&mut one, "sync_full"), "1");
}

#[test]
fn the_former_primary_follows_without_its_data_being_sent() {
    let (primary, replica, mut one, mut two) = pair(&[], &["--durability", "none"]);
    fill(&mut one);
    follow(&mut two, &primary);
    must(&mut one, "SELECT 3");
    must(&mut one, "SET before 1");
    settle(&mut one, &mut two);
    let (id, end) = (
        field(&mut one, "master_replid"),
        field(&mut one, "master_repl_offset"),
    );
    must(&mut two, "REPLICAOF NO ONE");
    until("it takes writes", || {
        !matches!(run(&mut two, "SET after 2"), Value::Error(_))
    });
    assert_eq!(field(&mut two, "master_replid2"), id);
    let next = end.parse::<u64>().unwrap() + 1;
    assert_eq!(field(&mut two, "second_repl_offset"), next.to_string());
    follow(&mut one, &replica);
    settle(&mut two, &mut one);
    assert_eq!(field(&mut two, "sync_full"), "0");
    assert_eq!(field(&mut two, "sync_partial_ok"), "1");
    play(&mut two, 400, 10);
    settle(&mut two, &mut one);
}

#[test]
fn a_failover_moves_production_over_and_back() {
    let (primary, replica, mut one, mut two) = pair(&[], &["--appendonly", "yes"]);
    fill(&mut one);
    follow(&mut two, &primary);
    settle(&mut one, &mut two);
    let port = port_of(&replica);
    must(
        &mut one,
        &format!("FAILOVER TO 127.0.0.1 {port} TIMEOUT 60000"),
    );
    until("the office is handed over", || {
        field(&mut one, "role") == "slave" && field(&mut two, "role") == "master"
    });
    until("the link is up", || {
        field(&mut one, "master_link_status") == "up"
    });
    play(&mut two, 500, 10);
    settle(&mut two, &mut one);
    assert_eq!(field(&mut two, "sync_full"), "0");
    // The office moves back.
    let port = port_of(&primary);
    must(
        &mut two,
        &format!("FAILOVER TO 127.0.0.1 {port} TIMEOUT 60000"),
    );
    until("the office is handed back", || {
        field(&mut one, "role") == "master" && field(&mut two, "role") == "slave"
    });
    until("the link is up", || {
        field(&mut two, "master_link_status") == "up"
    });
    play(&mut one, 600, 10);
    settle(&mut one, &mut two);
    assert_eq!(field(&mut one, "sync_full"), "1");
}

#[test]
fn a_primary_that_came_back_empty_takes_nothing_away() {
    let (primary, _replica, mut one, mut two) = pair(&[], &["--durability", "none"]);
    fill(&mut one);
    follow(&mut two, &primary);
    settle(&mut one, &mut two);
    let keys = must(&mut two, "DBSIZE");
    let port = port_of(&primary);
    drop((one, primary));
    let empty = oracle(&["--port", &port]).start().unwrap();
    let mut one = empty.client().unwrap();
    until("it is refused", || {
        !field(&mut two, "master_link_refused_reason").is_empty()
    });
    assert_eq!(must(&mut two, "DBSIZE"), keys);
    must(&mut two, "CONFIG SET replica-accept-older-primary yes");
    until("it is accepted", || {
        field(&mut two, "master_link_status") == "up"
    });
    settle(&mut one, &mut two);
    assert_eq!(must(&mut two, "DBSIZE"), Value::Integer(0));
}

#[test]
fn a_password_is_said_and_a_wrong_one_told() {
    let primary = redis(&["--requirepass", "secret"]);
    let replica = iolite(&["--durability", "none", "--masterauth", "wrong"]);
    let (mut one, mut two) = (primary.client().unwrap(), replica.client().unwrap());
    must(&mut one, "AUTH secret");
    must(&mut one, "SET k v");
    must(
        &mut two,
        &format!("REPLICAOF 127.0.0.1 {}", port_of(&primary)),
    );
    until("it is told", || replica.log().contains("refused AUTH"));
    must(&mut two, "CONFIG SET masterauth secret");
    until("the link is up", || {
        field(&mut two, "master_link_status") == "up"
    });
    settle(&mut one, &mut two);
}
