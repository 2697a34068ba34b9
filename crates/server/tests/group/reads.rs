//! Tests of reads at level quorum: at a former primary that does not know that it was replaced, and
//! at replicas.

use protocol::Value;
use testkit::client::Client;

use crate::{Node, sets, three_with, wait_until};

const LEVEL: [&str; 2] = ["--durability", "quorum"];

/// Starts three nodes whose replies wait for a majority. The first is the primary.
pub(crate) fn three_at_quorum(more: &[&str]) -> [Node; 3] {
    let nodes = three_with(&[&LEVEL[..], more].concat());
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("written", &all, || sets(&nodes[0], "key", "0"));
    nodes
}

/// Opens a connection that reads at level quorum.
fn reader(node: &Node) -> Client {
    let mut client = node.client();
    let reply = client.command(&["CLIENT", "DURABILITY", "QUORUM"]).unwrap();
    assert_eq!(reply, Value::Simple(b"OK".to_vec()));
    client
}

fn value(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

/// The primary is paused while another node takes its place, and then believes that its lease is
/// still valid, as on a machine whose clocks were paused, too. By its lease alone it would return
/// outdated values.
#[test]
fn a_primary_whose_clock_stood_still_shows_nothing_old_where_reads_are_confirmed() {
    let nodes = three_at_quorum(&["--quorum-reads", "confirm"]);
    let mut before = nodes[0].client();
    assert_eq!(before.command(&["GET", "key"]).unwrap(), value("0"));
    let lease = nodes[0].run(&["DEBUG", "LEASE", "3600000"]);
    assert_eq!(lease, Value::Simple(b"OK".to_vec()));
    nodes[0].signal("-STOP");
    let others: Vec<&Node> = nodes[1..].iter().collect();
    wait_until("another primary", &others, || {
        others.iter().any(|node| sets(node, "key", "1"))
    });
    std::thread::scope(|scope| {
        // The request is received by the time the process continues.
        let read = scope.spawn(|| before.command(&["GET", "key"]));
        std::thread::sleep(std::time::Duration::from_millis(100));
        nodes[0].signal("-CONT");
        // The reply may be anything, even the end of the connection, but not the old value.
        let told = read.join().unwrap();
        assert!(
            !matches!(&told, Ok(told) if *told == value("0")),
            "{told:?}"
        );
    });
}

/// With two of three nodes gone, no member confirms: the primary answers no read, and reports why.
#[test]
fn a_read_that_nobody_confirms_is_refused() {
    let mut nodes = three_at_quorum(&["--quorum-reads", "confirm"]);
    let mut client = nodes[0].client();
    nodes[0].run(&["DEBUG", "LEASE", "3600000"]);
    nodes[1].kill();
    nodes[2].kill();
    let told = client.command(&["GET", "key"]).unwrap();
    let Value::Error(text) = told else {
        panic!("{told:?}");
    };
    assert!(
        text.starts_with(b"NOREPLICAS "),
        "{}",
        String::from_utf8_lossy(&text)
    );
    // Commands that show no data are answered. Reads are answered again when there are two nodes.
    assert_eq!(nodes[0].run(&["PING"]), Value::Simple(b"PONG".to_vec()));
    nodes[1].start();
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("read again", &all, || {
        let left = nodes[..2].iter();
        let mut read = left.map(|node| node.client().command(&["GET", "key"]));
        read.any(|told| told.is_ok_and(|told| told == value("0")))
    });
}

/// CONFIG SET at one node makes all nodes confirm reads. Reads are answered with either setting.
#[test]
fn whether_reads_are_confirmed_is_one_directive_of_the_group() {
    let nodes = three_at_quorum(&[]);
    let all: Vec<&Node> = nodes.iter().collect();
    for setting in ["confirm", "lease"] {
        let set = nodes[1].run(&["CONFIG", "SET", "quorum-reads", setting]);
        assert_eq!(set, Value::Simple(b"OK".to_vec()));
        wait_until("it is so everywhere", &all, || {
            all.iter().all(|node| {
                let told = node.run(&["CONFIG", "GET", "quorum-reads"]);
                told == Value::Array(vec![value("quorum-reads"), value(setting)])
            })
        });
        for number in 0..20 {
            let text = format!("{setting}:{number}");
            assert!(sets(&nodes[0], "key", &text));
            assert_eq!(nodes[0].run(&["GET", "key"]), value(&text));
        }
    }
    assert!(matches!(
        nodes[0].run(&["CONFIG", "SET", "quorum-reads", "hope"]),
        Value::Error(_)
    ));
}

/// A read at any replica sees everything that was acknowledged before the read began, by lease or
/// confirmed.
#[test]
fn a_replica_shows_all_that_was_acknowledged_before() {
    let nodes = three_at_quorum(&[]);
    let mut readers: Vec<Client> = nodes[1..].iter().map(reader).collect();
    let mut writer = nodes[0].client();
    for setting in ["lease", "confirm"] {
        let set = nodes[0].run(&["CONFIG", "SET", "quorum-reads", setting]);
        assert_eq!(set, Value::Simple(b"OK".to_vec()));
        for number in 0..150 {
            let text = format!("{setting}:{number}");
            let set = writer.command(&["SET", "key", &text]).unwrap();
            assert_eq!(set, Value::Simple(b"OK".to_vec()));
            for reader in &mut readers {
                assert_eq!(reader.command(&["GET", "key"]).unwrap(), value(&text));
            }
        }
    }
    // Several commands at once, and commands that are not reads.
    let reader = &mut readers[0];
    let several: [&[&str]; 5] = [
        &["GET", "key"],
        &["PING"],
        &["MULTI"],
        &["GET", "key"],
        &["EXEC"],
    ];
    let told = reader.pipeline(&several).unwrap();
    let newest = value("confirm:149");
    assert_eq!(
        (&told[0], &told[4]),
        (&newest, &Value::Array(vec![newest.clone()]))
    );
    let refused = reader.command(&["SET", "key", "x"]).unwrap();
    assert!(matches!(refused, Value::Error(text) if text.starts_with(b"READONLY ")));
}

/// Without a primary, a replica reports that in time to clients that read at quorum, and shows its
/// data to other clients.
#[test]
fn a_replica_without_a_primary_says_so() {
    let mut nodes = three_at_quorum(&["--replica-serve-stale-data", "yes"]);
    let mut at_quorum = reader(&nodes[1]);
    // From now on this replica has that write, too.
    assert_eq!(at_quorum.command(&["GET", "key"]).unwrap(), value("0"));
    nodes[0].kill();
    nodes[2].kill();
    let told = at_quorum.command(&["GET", "key"]).unwrap();
    let Value::Error(text) = told else {
        panic!("{told:?}");
    };
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.starts_with("MASTERDOWN The primary did not say in time"),
        "{text}"
    );
    assert_eq!(nodes[1].run(&["GET", "key"]), value("0"));
    nodes[2].start();
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("read at a primary or its replica", &all, || {
        let mut client = nodes[1].client();
        let level = client.command(&["CLIENT", "DURABILITY", "QUORUM"]);
        let told = level.and_then(|_| client.command(&["GET", "key"]));
        told.is_ok_and(|told| told == value("0"))
    });
}
