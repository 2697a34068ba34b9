//! Tests of peers of other versions: what they announce, how they are classified, and what cannot
//! be sent to them.

use std::path::{Path, PathBuf};

use protocol::Value;
use testkit::process::{Server, ServerBuilder};

use super::redis_replica::play;
use super::stream::Reader;
use super::{PEER, field, follow, iolite, must, port_of, redis, run, settle, until};

/// Returns the start of the file that a replica announcing this version is given.
fn front_of_file(server: &Server, version: Option<&str>) -> String {
    let mut reader = Reader::connect(server);
    if let Some(version) = version {
        reader.say(&format!("REPLCONF version {version}"));
        assert_eq!(reader.line(), "+OK");
    }
    reader.say("PSYNC ? -1");
    assert!(reader.line().starts_with("+FULLRESYNC"));
    let head = reader.line();
    let count: usize = head.strip_prefix('$').unwrap().parse().unwrap();
    String::from_utf8_lossy(&reader.take(count)[..9]).into_owned()
}

#[test]
fn each_peer_is_given_a_file_that_it_reads() {
    for (peer, silent) in [
        ("redis-7", "REDIS0010"),
        ("redis-6.2", "REDIS0009"),
        ("redis-7.4", "REDIS0012"),
        ("valkey-9", "VALKEY080"),
    ] {
        let server = iolite(&["--durability", "none", "--repl-peer", peer]);
        let mut client = server.client().unwrap();
        must(&mut client, "SET k v");
        assert_eq!(front_of_file(&server, None), silent);
        assert_eq!(front_of_file(&server, Some("8.0.1")), "REDIS0011");
        assert_eq!(front_of_file(&server, Some("9.0.0")), "VALKEY080");
    }
}

/// Replicas of one family share one stream: a replica that announces a version is continued on it
/// as well.
#[test]
fn a_replica_that_says_its_version_is_continued() {
    let server = iolite(&["--durability", "none", "--repl-peer", "redis-7"]);
    let mut client = server.client().unwrap();
    let mut ids = Vec::new();
    for version in ["8.0.1", "7.2.7"] {
        let mut reader = Reader::connect(&server);
        reader.say(&format!("REPLCONF version {version}"));
        assert_eq!(reader.line(), "+OK");
        let (id, offset) = reader.full();
        drop(reader);
        must(&mut client, "SET k v");
        let mut reader = Reader::connect(&server);
        reader.say(&format!("REPLCONF version {version}"));
        assert_eq!(reader.line(), "+OK");
        reader.say(&format!("PSYNC {id} {}", offset + 1));
        assert_eq!(reader.line(), "+CONTINUE", "{}", server.log());
        ids.push(id);
    }
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids[0], field(&mut client, "master_replid"));
    // A replica of another family beside them gets a full sync, under an id with which no replica
    // returns.
    let mut stays = Reader::connect(&server);
    stays.full();
    let mut reader = Reader::connect(&server);
    reader.say("REPLCONF version 9.0.0");
    assert_eq!(reader.line(), "+OK");
    reader.say("PSYNC ? -1");
    assert!(!reader.line().contains(&ids[0]));
}

#[test]
fn what_a_peer_cannot_be_told_ends_its_link_or_is_left_out() {
    if ["redis-7.4", "redis-8", "valkey-9"].contains(&*PEER) {
        return eprintln!("skipped: {} has deadlines of fields", *PEER);
    }
    for (loss, is_served) in [("refuse", false), ("allow", true)] {
        let primary = iolite(&["--durability", "none", "--repl-peer-loss", loss]);
        let (mut one, replica) = (primary.client().unwrap(), redis(&[]));
        let mut two = replica.client().unwrap();
        follow(&mut two, &primary);
        must(&mut one, "HSET h a 1 b 2");
        settle(&mut one, &mut two);
        must(&mut one, "HPEXPIRE h 10000000 FIELDS 1 a");
        must(&mut one, "SET after 1");
        if is_served {
            until("it is told the rest", || {
                must(&mut two, "GET after") == must(&mut one, "GET after")
            });
            assert_eq!(field(&mut one, "sync_full"), "1");
        } else {
            until("an operator is told", || {
                let log = primary.log();
                log.contains("unsupported by ") && log.contains(": HPEXPIREAT")
            });
            assert_eq!(must(&mut two, "EXISTS after"), Value::Integer(0));
        }
    }
}

/// Returns the path of a program, if it is installed.
fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|file| Path::is_file(file))
}

/// Valkey follows, takes the office, and hands it back.
#[test]
fn valkey_follows_and_is_followed() {
    let Some(program) = installed("valkey-server") else {
        return eprintln!("skipped: there is no valkey-server on the PATH");
    };
    let args = ["--enable-debug-command", "yes", "--save", ""];
    let valkey = ServerBuilder::new("valkey", program);
    let valkey = valkey.tcp().args(&args).start().unwrap();
    let server = iolite(&["--appendonly", "yes"]);
    let (mut one, mut two) = (server.client().unwrap(), valkey.client().unwrap());
    play(&mut one, 900, 10);
    follow(&mut two, &server);
    play(&mut one, 910, 10);
    settle(&mut one, &mut two);
    let port = port_of(&valkey);
    must(
        &mut one,
        &format!("FAILOVER TO 127.0.0.1 {port} TIMEOUT 60000"),
    );
    until("the link is up", || {
        field(&mut one, "role") == "slave" && field(&mut one, "master_link_status") == "up"
    });
    play(&mut two, 920, 10);
    settle(&mut two, &mut one);
    let port = port_of(&server);
    must(
        &mut two,
        &format!("FAILOVER TO 127.0.0.1 {port} TIMEOUT 60000"),
    );
    until("the link is up", || {
        field(&mut two, "role") == "slave" && field(&mut two, "master_link_status") == "up"
    });
    play(&mut one, 930, 10);
    settle(&mut one, &mut two);
    assert_eq!(field(&mut one, "sync_full"), "1");
    assert_eq!(field(&mut two, "sync_full"), "0");
}

/// Two iolite servers that keep no log follow each other by PSYNC, and hand the office over and
/// back.
#[test]
fn the_office_changes_hands_without_logs() {
    let servers = [(); 2].map(|()| iolite(&["--durability", "none"]));
    let [mut one, mut two] = [&servers[0], &servers[1]].map(|server| server.client().unwrap());
    must(&mut one, "HSET h a 1");
    follow(&mut two, &servers[0]);
    must(&mut one, "HPEXPIRE h 10000000 FIELDS 1 a");
    settle(&mut one, &mut two);
    let hand_over = |from: &mut _, to: &mut _, server: &Server| {
        must(from, &format!("FAILOVER TO 127.0.0.1 {}", port_of(server)));
        until("the link is up", || {
            field(from, "role") == "slave" && field(from, "master_link_status") == "up"
        });
        assert_eq!(field(from, "master_failover_state"), "no-failover");
        must(to, "HSETEX h PX 1000000 FIELDS 1 b 2");
        settle(to, from);
    };
    hand_over(&mut one, &mut two, &servers[1]);
    hand_over(&mut two, &mut one, &servers[0]);
    assert_eq!(field(&mut one, "sync_full"), "1");
    assert_eq!(field(&mut two, "sync_full"), "0");
}

/// A replica that is not known to have everything takes over by force: then there is one primary,
/// with that replica's data.
#[test]
fn a_forced_failover_has_one_primary() {
    for replica in [redis(&[]), iolite(&["--durability", "none"])] {
        let primary = iolite(&["--durability", "none"]);
        let [mut one, mut two] = [&primary, &replica].map(|server| server.client().unwrap());
        must(&mut one, "SET kept yes");
        follow(&mut two, &primary);
        settle(&mut one, &mut two);
        replica.signal("-STOP");
        must(&mut one, "SET lost yes");
        let target = port_of(&replica);
        must(
            &mut one,
            &format!("FAILOVER TO 127.0.0.1 {target} FORCE TIMEOUT 100"),
        );
        until("time is up", || {
            field(&mut one, "master_failover_state") == "failover-in-progress"
        });
        replica.signal("-CONT");
        until("the office is handed over", || {
            field(&mut one, "master_failover_state") == "no-failover"
        });
        let roles = [&mut one, &mut two].map(|client| field(client, "role"));
        assert_eq!(roles, ["slave", "master"]);
        until("the link is up", || {
            field(&mut one, "master_link_status") == "up"
        });
        // The replica may have read data in transit before it was asked.
        settle(&mut two, &mut one);
        assert_eq!(run(&mut one, "EXISTS kept"), Value::Integer(1));
    }
}
