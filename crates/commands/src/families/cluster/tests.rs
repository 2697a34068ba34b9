//! Cluster mode without a server.

mod shown;

use std::sync::Arc;

use engine::cluster::{ClusterOrder, ClusterSeen, NodeSeen};
use engine::hash_slots::{Endpoint, Routes, UNSERVED};
use protocol::Value;
use testkit::engine_server::TestServer;

#[test]
fn there_is_no_cluster() {
    let mut server = TestServer::new();
    for line in [
        "CLUSTER INFO",
        "CLUSTER SLOTS",
        "CLUSTER ADDSLOTS 1",
        "CLUSTER KEYSLOT a",
        "CLUSTER HELP",
        "READONLY",
        "READWRITE",
        "ASKING",
    ] {
        let error = server.error(line);
        assert_eq!(
            error, "ERR This instance has cluster support disabled",
            "{line}"
        );
    }
}

/// A node with the slots up to 8,191; another node has the others except the last.
fn server() -> TestServer {
    let mut server = TestServer::new();
    let mut owners = vec![0; 8_192];
    owners.extend(vec![1; 8_191]);
    owners.push(UNSERVED);
    let endpoint = |host: &str, port| Endpoint {
        host: host.to_owned(),
        port,
        tls_port: 0,
        id: [0; 20],
    };
    server.shared.hash_slots.publish(Routes {
        endpoints: vec![endpoint("10.0.0.1", 7000), endpoint("10.0.0.2", 7001)],
        owners,
        ..Routes::default()
    });
    let node = |id: char, port, ranges| NodeSeen {
        id: id.to_string().repeat(40),
        shard_id: "5".repeat(40),
        ip: format!("10.0.0.{}", port - 6999),
        port,
        bus_port: port + 10_000,
        is_me: id == 'a',
        ranges,
        epoch: 7,
        ..NodeSeen::default()
    };
    server.port.cluster = Some(Arc::new(ClusterSeen {
        nodes: vec![
            node('a', 7000, vec![(0, 8_191)]),
            node('b', 7001, vec![(8_192, 16_382)]),
        ],
        epoch: 9,
        ..ClusterSeen::default()
    }));
    server
}

// foo is in slot 12,182, bar in 5,061, hello in 866.

#[test]
fn requests_about_keys_of_others_are_sent_there() {
    let mut server = server();
    assert_eq!(server.error("GET foo"), "MOVED 12182 10.0.0.2:7001");
    assert_eq!(server.error("SET foo 1"), "MOVED 12182 10.0.0.2:7001");
    server.run("SET bar 1");
    assert_eq!(server.run("GET bar"), Value::Bulk(b"1".to_vec()));
    let cross = "CROSSSLOT Keys in request don't hash to the same slot";
    assert_eq!(server.error("MGET bar hello"), cross);
    assert_eq!(server.error("MSET bar 1 hello 2"), cross);
    assert_eq!(server.integer("EXISTS bar {bar}2"), 1);
    assert_eq!(server.error("DEL foo"), "MOVED 12182 10.0.0.2:7001");
    assert_eq!(server.integer("DBSIZE"), 1);
}

#[test]
fn a_transaction_is_about_one_slot_that_is_here() {
    let mut server = server();
    server.run("MULTI");
    assert_eq!(server.error("SET foo 1"), "MOVED 12182 10.0.0.2:7001");
    assert_eq!(
        server.error("EXEC"),
        "EXECABORT Transaction discarded because of previous errors."
    );
    server.run("MULTI");
    server.run("SET bar 1");
    server.run("SET hello 1");
    assert_eq!(
        server.error("EXEC"),
        "CROSSSLOT Keys in request don't hash to the same slot"
    );
    assert_eq!(server.error("EXEC"), "ERR EXEC without MULTI");
    // The slot moves away while requests are queued.
    server.run("MULTI");
    server.run("SET bar 1");
    let mut routes = (*server.shared.hash_slots.routes()).clone();
    routes.owners[5_061] = 1;
    server.shared.hash_slots.publish(routes);
    assert_eq!(server.error("EXEC"), "MOVED 5061 10.0.0.2:7001");
    assert_eq!(server.integer("EXISTS hello"), 0);
}

/// A client that reads from replicas finds the primary by the reply, with scripts as with commands.
#[test]
fn scripts_that_write_are_sent_from_a_replica_to_its_primary() {
    let mut server = server();
    let mut routes = (*server.shared.hash_slots.routes()).clone();
    routes.is_replica = true;
    server.shared.hash_slots.publish(routes);
    server.shared.refusals.set_read_only(true);
    server.run("READONLY");
    let moved = "MOVED 5061 10.0.0.1:7000";
    assert_eq!(server.error("SET bar 1"), moved);
    let says = "#!lua\nreturn redis.call('SET', KEYS[1], 1)";
    assert_eq!(server.error(&format!("EVAL \"{says}\" 1 bar")), moved);
    let reads = "#!lua flags=no-writes\nreturn redis.call('EXISTS', KEYS[1])";
    assert_eq!(server.integer(&format!("EVAL \"{reads}\" 1 bar")), 0);
    // A script without flags is known to write only when it does so.
    let error = server.error("EVAL \"return redis.call('SET', KEYS[1], 1)\" 1 bar");
    assert!(error.starts_with("READONLY You can't write"), "{error}");
}

#[test]
fn scripts_are_about_one_slot_unless_they_say_otherwise() {
    let mut server = server();
    let error = server.error("EVAL \"return redis.call('GET', 'foo')\" 0");
    assert!(
        error.starts_with("ERR Script attempted to access a non local key in a cluster node"),
        "{error}"
    );
    assert_eq!(
        server.error("EVAL 'return 1' 1 foo"),
        "MOVED 12182 10.0.0.2:7001"
    );
    assert_eq!(server.integer("EVAL 'return 1' 0"), 1);
    // Without a flags line, as before scripts had any.
    let body = "redis.call('SET', 'bar', 1); redis.call('SET', 'hello', 2); return 1";
    assert_eq!(server.integer(&format!("EVAL \"{body}\" 0")), 1);
    let flagged = |flags: &str| format!("EVAL \"#!lua flags={flags}\\n{body}\" 0");
    assert_eq!(server.integer(&flagged("allow-cross-slot-keys")), 1);
    let error = server.error(&flagged("allow-oom"));
    assert!(
        error.starts_with("ERR Script attempted to access keys that do not hash to the same slot"),
        "{error}"
    );
    assert_eq!(
        server.error(&flagged("no-cluster")),
        "ERR Can not run script on cluster, 'no-cluster' flag is set."
    );
}

#[test]
fn the_cluster_is_shown_as_clients_read_it() {
    let mut server = server();
    let Value::Bulk(nodes) = server.run("CLUSTER NODES") else {
        panic!("no text");
    };
    let (a, b) = ("a".repeat(40), "b".repeat(40));
    assert_eq!(
        String::from_utf8(nodes).unwrap(),
        format!(
            "{a} 10.0.0.1:7000@17000 myself,master - 0 0 7 connected 0-8191\n\
             {b} 10.0.0.2:7001@17001 master - 0 0 7 connected 8192-16382\n"
        )
    );
    let Value::Array(slots) = server.run("CLUSTER SLOTS") else {
        panic!("no array");
    };
    let node = Value::Array(vec![
        Value::Bulk(b"10.0.0.2".to_vec()),
        Value::Integer(7001),
        Value::Bulk(b.into_bytes()),
        Value::Array(vec![]),
    ]);
    let second = [Value::Integer(8_192), Value::Integer(16_382), node];
    assert_eq!(
        (slots.len(), &slots[1]),
        (2, &Value::Array(second.to_vec()))
    );
    let Value::Bulk(info) = server.run("CLUSTER INFO") else {
        panic!("no text");
    };
    let info = String::from_utf8(info).unwrap();
    assert!(info.starts_with("cluster_state:fail\r\ncluster_slots_assigned:16383\r\n"));
}

#[test]
fn orders_are_checked_before_they_are_given() {
    let mut server = server();
    for (line, error) in [
        ("CLUSTER ADDSLOTS 16384", "ERR Invalid or out of range slot"),
        ("CLUSTER ADDSLOTS x", "ERR Invalid or out of range slot"),
        ("CLUSTER ADDSLOTS 1", "ERR Slot 1 is already busy"),
        (
            "CLUSTER ADDSLOTS 16383 16383",
            "ERR Slot 16383 specified multiple times",
        ),
        (
            "CLUSTER DELSLOTS 16383",
            "ERR Slot 16383 is already unassigned",
        ),
        (
            "CLUSTER ADDSLOTSRANGE 5 4",
            "ERR start slot number 5 is greater than end slot number 4",
        ),
        ("CLUSTER REPLICATE x", "ERR Unknown node x"),
        (
            "CLUSTER FAILOVER",
            "ERR You should send CLUSTER FAILOVER to a replica",
        ),
        (
            "CLUSTER MEET x 1",
            "ERR Invalid node address specified: x:1",
        ),
        ("CLUSTER COUNTKEYSINSLOT 16384", "ERR Invalid slot"),
        (
            "CLUSTER GETKEYSINSLOT 0 -1",
            "ERR Invalid slot or number of keys",
        ),
    ] {
        assert_eq!(server.error(line), error, "{line}");
    }
    assert_eq!(server.port.orders, []);
    server.run("CLUSTER ADDSLOTS 16383");
    let given = ClusterOrder::AddSlots(vec![(16_383, 16_383)]);
    assert_eq!(server.port.orders, [given]);
    server.run("MULTI");
    server.run("CLUSTER DELSLOTS 1");
    server.run("EXEC");
    let given = ClusterOrder::DelSlots(vec![(1, 1)]);
    assert_eq!(server.port.orders.last(), Some(&given));
}

#[test]
fn moves_are_ordered_as_valkey_and_redis_have_it() {
    let mut server = server();
    let [a, b] = ["a", "b"].map(|id| id.repeat(40));
    for (line, error) in [
        (
            "CLUSTER MIGRATESLOTS SLOTSRANGE 1 NODE x y z".to_owned(),
            "ERR ",
        ),
        (
            format!("CLUSTER MIGRATESLOTS SLOTSRANGE 5 1 NODE {b} x"),
            "ERR start slot number 5",
        ),
        (
            format!("CLUSTER MIGRATESLOTS SLOTSRANGE 1 5 3 3 NODE {b}"),
            "ERR Slot 3 specified",
        ),
        (
            format!("CLUSTER MIGRATESLOTS SLOTSRANGE 1 5 NODE {a}"),
            "ERR Target node",
        ),
        (
            "CLUSTER MIGRATESLOTS SLOTSRANGE 1 5 NODE none".to_owned(),
            "ERR Unknown node name: none",
        ),
        (
            format!("CLUSTER MIGRATESLOTS SLOTSRANGE 8000 8200 NODE {b}"),
            "ERR Slots are not served",
        ),
        (
            format!("CLUSTER MIGRATESLOTS SLOTS 1 5 NODE {b}"),
            "ERR syntax error",
        ),
        ("CLUSTER MIGRATION IMPORT 1".to_owned(), "ERR syntax error"),
        (
            "CLUSTER MIGRATION IMPORT x 1".to_owned(),
            "ERR syntax error",
        ),
        (
            "CLUSTER MIGRATION IMPORT 1 16384".to_owned(),
            "ERR Invalid or out of range slot",
        ),
        ("CLUSTER MIGRATION STATUS ID".to_owned(), "ERR "),
        ("CLUSTER MIGRATION NONE x".to_owned(), "ERR syntax error"),
    ] {
        let answer = server.error(&line);
        assert!(answer.starts_with(error), "{line}: {answer}");
    }
    assert_eq!(
        server.run("CLUSTER GETSLOTMIGRATIONS"),
        Value::Array(Vec::new())
    );
    assert_eq!(
        server.run("CLUSTER MIGRATION STATUS"),
        Value::Array(Vec::new())
    );
}

#[test]
fn keys_of_another_nodes_slots_are_not_shown() {
    let mut server = server();
    server.run("SET bar 1");
    server.run("SET hello 1");
    let mut routes = (*server.shared.hash_slots.routes()).clone();
    routes.owners[5_061] = 1;
    server.shared.hash_slots.publish(routes);
    server
        .another_handle()
        .store()
        .hide_hash_slots(&[(5_061, 5_061)]);
    assert_eq!(
        server.run("KEYS *"),
        Value::Array(vec![Value::Bulk(b"hello".to_vec())])
    );
    for _ in 0..20 {
        assert_eq!(server.run("RANDOMKEY"), Value::Bulk(b"hello".to_vec()));
    }
    let Value::Array(scanned) = server.run("SCAN 0 COUNT 100") else {
        panic!("no array");
    };
    assert_eq!(
        scanned[1],
        Value::Array(vec![Value::Bulk(b"hello".to_vec())])
    );
    assert_eq!(
        server.run("CLUSTER GETKEYSINSLOT 5061 10"),
        Value::Array(Vec::new())
    );
    server.another_handle().store().hide_hash_slots(&[]);
    assert_eq!(
        server.run("SCAN 0 COUNT 100 MATCH bar"),
        Value::Array(vec![
            Value::Bulk(b"0".to_vec()),
            Value::Array(vec![Value::Bulk(b"bar".to_vec())]),
        ])
    );
}
