//! Tests of cluster mode with a single node: Redis in cluster mode gives the same replies, and the
//! effects of commands persist over a restart.

use std::net::TcpListener;
use std::time::Duration;

use protocol::Value;
use testkit::client::{Client, Received};
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, free_port};

fn start(builder: ServerBuilder) -> Server {
    let port = free_port().unwrap().to_string();
    let args = ["--cluster-enabled", "yes", "--cluster-port", &port];
    builder.args(&args).tcp().start().unwrap()
}

fn words(line: &str) -> Vec<Vec<u8>> {
    let words = protocol::split_line(line.as_bytes()).unwrap();
    words.iter().map(|word| word.to_vec()).collect()
}

fn ask(client: &mut Client, line: &str) -> Value {
    client.command(&words(line)).unwrap()
}

/// Returns the text of a reply that consists of one text.
fn text(value: &Value) -> String {
    match value {
        Value::Error(text) | Value::Simple(text) | Value::Bulk(text) => {
            String::from_utf8_lossy(text).into_owned()
        }
        other => format!("{other:?}"),
    }
}

/// Returns a reply without the parts that differ from node to node and from run to run.
fn plain(value: &Value) -> String {
    let text = format!("{value:?}");
    let mut plain = String::new();
    let mut word = String::new();
    for letter in text.chars().chain([' ']) {
        if letter.is_ascii_alphanumeric() {
            word.push(letter);
            continue;
        }
        let is_id = word.len() == 40;
        plain.push_str(if is_id { "ID" } else { &word });
        plain.push(letter);
        word.clear();
    }
    plain
}

/// The commands sent to both servers in order. `a` is in slot 15,495, `b` in 3,300.
const LINES: &str = r#"
CLUSTER ADDSLOTS 16384
CLUSTER ADDSLOTS abc
CLUSTER ADDSLOTS 3
CLUSTER ADDSLOTS 4 4
CLUSTER DELSLOTS 9 9
CLUSTER ADDSLOTSRANGE 4 100 200
CLUSTER ADDSLOTSRANGE 100 4
CLUSTER LINKS
SET a 1
SET {a}b 2
MSET a 1 b 2
MGET a {a}b
CLUSTER KEYSLOT a
CLUSTER KEYSLOT {foo}bar
CLUSTER KEYSLOT foo{}bar
CLUSTER COUNTKEYSINSLOT 15495
CLUSTER COUNTKEYSINSLOT 99999
CLUSTER COUNTKEYSINSLOT x
CLUSTER GETKEYSINSLOT 15495 -1
CLUSTER GETKEYSINSLOT 15495 0
CLUSTER GETKEYSINSLOT 3300 10
SELECT 0
SWAPDB 0 1
COPY a {a}c
COPY a b
REPLICAOF 127.0.0.1 1
FAILOVER
READONLY
READWRITE
ASKING
CLUSTER REPLICATE abc
CLUSTER FORGET abc
CLUSTER REPLICAS abc
CLUSTER SLAVES abc
CLUSTER COUNT-FAILURE-REPORTS abc
CLUSTER FAILOVER
CLUSTER FAILOVER FORCE X
CLUSTER SETSLOT 1 NODE abc
CLUSTER SETSLOT 1 MIGRATING abc
CLUSTER SETSLOT 1 IMPORTING abc
CLUSTER SETSLOT 1 STABLE
CLUSTER SETSLOT 1 FOO
CLUSTER SETSLOT x STABLE
CLUSTER MEET
CLUSTER MEET x 1
CLUSTER MEET 127.0.0.1 x
CLUSTER MEET 127.0.0.1 1 x
CLUSTER MEET 127.0.0.1 99999
CLUSTER SAVECONFIG
CLUSTER SET-CONFIG-EPOCH -1
CLUSTER FLUSHSLOTS
CLUSTER RESET
CLUSTER FOO
EVAL "return redis.call('get',KEYS[1])" 1 a
EVAL "return redis.call('mget','a','{a}b')" 0
EVAL "redis.call('set','a',1) redis.call('set','b',1) return 1" 0
EVAL "return 1" 2 a b
EVAL "return 1" 1 a
SPUBLISH ch 1
RPUSH {a}l 1 2 3
SORT {a}l BY nosort
SORT {a}l BY w_*
SORT {a}l GET w_*
SORT {a}l STORE b
MULTI
SET a 1
SET b 1
EXEC
MULTI
SET a 1
MGET a b
EXEC
WATCH a b
WATCH a
UNWATCH
BLPOP a b 1
OBJECT ENCODING a
XREAD STREAMS a b 0 0
ZUNIONSTORE a 2 b c
PFCOUNT a b
PUBLISH a 1
MIGRATE 127.0.0.1 1 none{a} 0 100
COMMAND GETKEYS MIGRATE h 1 "" 0 1 KEYS a b
DEL a b
DEL a {a}b {a}c {a}l
DEL b
CLUSTER COUNTKEYSINSLOT 15495
FLUSHALL
CLUSTER COUNTKEYSINSLOT 3300
CLUSTER DELSLOTS 15495
GET a
CLUSTER FLUSHSLOTS
CLUSTER SLOTS
"#;

#[test]
fn a_lone_node_answers_as_redis_does() {
    let servers = [ServerBuilder::oracle(), ServerBuilder::iolite()].map(start);
    let mut clients = servers.each_ref().map(|server| server.client().unwrap());
    for client in &mut clients {
        ask(client, "CLUSTER ADDSLOTSRANGE 0 16383");
        let patience = Patience::of(Duration::from_secs(60));
        // Redis needs a moment until it serves.
        while matches!(ask(client, "GET a"), Value::Error(_)) {
            assert!(patience.lasts());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    for line in LINES.lines().filter(|line| !line.is_empty()) {
        let [theirs, ours] = clients.each_mut().map(|client| plain(&ask(client, line)));
        assert_eq!(ours, theirs, "{line}");
    }
}

#[test]
fn slots_and_name_are_there_after_a_restart() {
    let mut server = start(ServerBuilder::iolite());
    let directory = testkit::process::temporary_directory("cluster").unwrap();
    let over = |directory: &std::path::Path| {
        let dir = directory.to_str().unwrap().to_owned();
        start(ServerBuilder::iolite().args(&["--dir", &dir]))
    };
    assert!(server.is_running().unwrap());
    let first = over(&directory);
    let mut client = first.client().unwrap();
    assert_eq!(
        ask(&mut client, "CLUSTER ADDSLOTSRANGE 0 9 11 16383"),
        Value::Simple("OK".into())
    );
    let id = ask(&mut client, "CLUSTER MYID");
    let down = Value::Error("CLUSTERDOWN The cluster is down".into());
    assert_eq!(ask(&mut client, "GET a"), down);
    drop(client);
    drop(first);
    let second = over(&directory);
    let mut client = second.client().unwrap();
    assert_eq!(ask(&mut client, "CLUSTER MYID"), id);
    assert_eq!(ask(&mut client, "GET a"), down);
    ask(&mut client, "CONFIG SET cluster-require-full-coverage no");
    assert_eq!(ask(&mut client, "SET a 1"), Value::Simple("OK".into()));
    ask(&mut client, "CONFIG SET cluster-require-full-coverage yes");
    assert_eq!(ask(&mut client, "GET a"), down);
    ask(&mut client, "CLUSTER ADDSLOTS 10");
    assert_eq!(ask(&mut client, "GET a"), Value::Bulk(b"1".to_vec()));
    drop(second);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Replicas follow by the log. Without a log, the replicas of this node would have no link.
#[test]
fn the_log_of_a_node_does_not_end() {
    let server = start(ServerBuilder::iolite());
    let mut client = server.client().unwrap();
    for line in [
        "CONFIG SET appendonly no",
        "CONFIG SET durability none",
        "CONFIG SET durability checkpoint",
    ] {
        let reply = text(&ask(&mut client, line));
        assert!(reply.contains("keeps a log on disk"), "{line}: {reply}");
    }
    let level = ask(&mut client, "CONFIG GET durability");
    let expected = ["durability", "os"].map(|word| Value::Bulk(word.into()));
    assert_eq!(level, Value::Array(expected.to_vec()));
}

#[test]
fn who_waits_for_a_key_hears_that_its_slot_is_gone() {
    let server = start(ServerBuilder::iolite());
    let mut client = server.client().unwrap();
    ask(&mut client, "CLUSTER ADDSLOTSRANGE 0 16383");
    ask(&mut client, "CONFIG SET cluster-require-full-coverage no");
    let mut waiting = server.client().unwrap();
    waiting.send(&words("BLPOP a 0")).unwrap();
    let patience = Patience::of(Duration::from_secs(60));
    while !text(&ask(&mut client, "INFO clients")).contains("blocked_clients:1") {
        assert!(patience.lasts());
    }
    ask(&mut client, "CLUSTER DELSLOTS 3300");
    ask(&mut client, "CLUSTER DELSLOTS 15495");
    let answer = waiting.receive().unwrap();
    assert_eq!(
        answer,
        Some(Value::Error("CLUSTERDOWN Hash slot not served".into()))
    );
}

#[test]
fn keys_go_to_redis_and_come_back() {
    let redis = ServerBuilder::oracle().tcp().start().unwrap();
    let ours = ServerBuilder::iolite().tcp().start().unwrap();
    let [mut there, mut here] = [&redis, &ours].map(|server| server.client().unwrap());
    for line in [
        "SET text hello",
        "SET number 7 PX 1000000",
        "RPUSH list a b c",
        "HSET hash f v g w",
        "ZADD sorted 1 a 2 b",
        "SADD set x y",
    ] {
        ask(&mut here, line);
    }
    let [port_there, port_here] = [&redis, &ours].map(|server| server.address().unwrap().port());
    let ok = Value::Simple("OK".into());
    let keys = "text number list hash sorted set";
    let line = format!("MIGRATE 127.0.0.1 {port_there} \"\" 0 5000 KEYS {keys} none");
    assert_eq!(ask(&mut here, &line), ok);
    assert_eq!(ask(&mut here, "DBSIZE"), Value::Integer(0));
    assert_eq!(ask(&mut there, "DBSIZE"), Value::Integer(6));
    assert_eq!(ask(&mut there, "HGET hash g"), Value::Bulk(b"w".to_vec()));
    ask(&mut here, "SET text taken");
    let line = format!("MIGRATE 127.0.0.1 {port_here} \"\" 0 5000 KEYS {keys}");
    let error = ask(&mut there, &line);
    assert!(text(&error).contains("BUSYKEY"), "{error:?}");
    assert_eq!(ask(&mut there, "DBSIZE"), Value::Integer(1));
    let line = format!("MIGRATE 127.0.0.1 {port_here} text 0 5000 COPY REPLACE");
    assert_eq!(ask(&mut there, &line), ok);
    assert_eq!(ask(&mut here, "GET text"), Value::Bulk(b"hello".to_vec()));
    assert!(matches!(
        ask(&mut here, "PTTL number"),
        Value::Integer(1..=1_000_000)
    ));
    let list = ["a", "b", "c"].map(|word| Value::Bulk(word.into()));
    assert_eq!(
        ask(&mut here, "LRANGE list 0 -1"),
        Value::Array(list.to_vec())
    );
    let dead = free_port().unwrap();
    for server in [&mut there, &mut here] {
        let error = ask(server, &format!("MIGRATE 127.0.0.1 {dead} text 0 500"));
        let words = "IOERR error or timeout writing to target instance";
        assert_eq!(text(&error), words);
    }
    assert_eq!(ask(&mut here, "EXISTS text"), Value::Integer(1));
}

/// The log is begun, and data is saved, while a node that is met does not respond.
#[test]
fn who_meets_a_node_that_hangs_is_in_nobody_s_way() {
    let server = start(ServerBuilder::iolite());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let mut meets = server.client().unwrap();
    let line = format!("CLUSTER MEET 127.0.0.1 {port} {port}");
    meets.send(&words(&line)).unwrap();
    let (_held, _) = silent.accept().unwrap();
    let mut other = server.client().unwrap();
    for line in ["CONFIG SET appendonly yes", "SAVE"] {
        assert_eq!(
            ask(&mut other, line),
            Value::Simple(b"OK".to_vec()),
            "{line}"
        );
    }
    assert!(matches!(meets.arrived().unwrap(), Received::Nothing));
    let answer = meets.receive().unwrap();
    assert!(matches!(answer, Some(Value::Error(_))), "{answer:?}");
}

/// A transaction of cluster commands gets one reply. A command that another node answered counts as
/// an error, too.
#[test]
fn orders_that_fail_are_told_in_their_transaction_and_counted() {
    let server = start(ServerBuilder::iolite());
    let mut client = server.client().unwrap();
    let dead = free_port().unwrap();
    let meet = format!("CLUSTER MEET 127.0.0.1 {dead} {dead}");
    for line in ["MULTI", "CLUSTER BUMPEPOCH", &meet] {
        assert!(matches!(ask(&mut client, line), Value::Simple(_)), "{line}");
    }
    let replies = ask(&mut client, "EXEC");
    let Value::Array(replies) = replies else {
        panic!("{replies:?}");
    };
    assert!(
        matches!(replies[..], [Value::Simple(_), Value::Error(_)]),
        "{replies:?}"
    );
    let before = errors_count(&mut client);
    assert!(matches!(ask(&mut client, &meet), Value::Error(_)));
    assert_eq!(errors_count(&mut client), before + 1);
}

fn errors_count(client: &mut Client) -> u64 {
    let info = text(&ask(client, "INFO stats"));
    let line = info
        .lines()
        .find(|line| line.starts_with("total_error_replies:"));
    line.unwrap()["total_error_replies:".len()..]
        .parse()
        .unwrap()
}
