//! Each subcommand that shows the cluster, in the format that clients read, in RESP2 and RESP3.

use std::sync::Arc;

use engine::cluster::{ClusterSeen, EndpointKind, LinkSeen, NodeSeen};
use protocol::Value;
use testkit::engine_server::TestServer;

/// Returns a reply as one line: arrays in brackets, maps in braces.
fn shown(value: &Value) -> String {
    let list = |values: &[Value]| values.iter().map(shown).collect::<Vec<_>>().join(" ");
    match value {
        Value::Simple(text) | Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Verbatim { text, .. } => String::from_utf8_lossy(text).into_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Null => "nil".to_owned(),
        Value::Array(values) => format!("[{}]", list(values)),
        Value::Map(pairs) => {
            let pairs = pairs.iter();
            let pairs = pairs.map(|(name, value)| format!("{}:{}", shown(name), shown(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(" "))
        }
        other => format!("{other:?}"),
    }
}

fn id(letter: char) -> String {
    letter.to_string().repeat(40)
}

/// `a`, the asked node, is the primary of 0 to 99 and 200; `b` is its replica; `c` is a lost
/// primary.
fn seen() -> ClusterSeen {
    let a = NodeSeen {
        id: id('a'),
        shard_id: id('1'),
        ip: "10.0.0.1".to_owned(),
        hostname: "a.example".to_owned(),
        zone: "east".to_owned(),
        port: 7000,
        tls_port: 7100,
        bus_port: 17_000,
        is_me: true,
        ranges: vec![(0, 99), (200, 200)],
        epoch: 7,
        replication_offset: 1_234,
        ..NodeSeen::default()
    };
    let b = NodeSeen {
        id: id('b'),
        shard_id: id('1'),
        ip: "10.0.0.2".to_owned(),
        port: 7001,
        bus_port: 17_001,
        primary: Some(id('a')),
        epoch: 7,
        ping_unix_ms: 5_000,
        pong_unix_ms: 4_000,
        is_lost: true,
        ..NodeSeen::default()
    };
    let c = NodeSeen {
        id: id('c'),
        shard_id: id('2'),
        ip: "10.0.0.3".to_owned(),
        tls_port: 7102,
        bus_port: 17_002,
        ranges: vec![(101, 150)],
        epoch: 9,
        pong_unix_ms: 6_000,
        is_failed: true,
        ..NodeSeen::default()
    };
    let link = |node: char, is_to, waiting_bytes| LinkSeen {
        node: id(node),
        is_to,
        created_unix_ms: 1_700_000_000_000,
        waiting_bytes,
    };
    ClusterSeen {
        nodes: vec![a, b, c],
        epoch: 12,
        links: vec![link('b', true, 0), link('b', false, 30)],
        messages: (5, 6),
        leader: id('b'),
        control_term: 3,
        fault_tolerance: 1,
        ..ClusterSeen::default()
    }
}

fn server(mut of: TestServer, endpoint: EndpointKind) -> TestServer {
    of.shared.hash_slots.publish(engine::hash_slots::Routes {
        endpoints: vec![engine::hash_slots::Endpoint::default()],
        owners: vec![0; 16_384],
        ..engine::hash_slots::Routes::default()
    });
    of.port.cluster = Some(Arc::new(ClusterSeen { endpoint, ..seen() }));
    of
}

fn both() -> [TestServer; 2] {
    [TestServer::new(), TestServer::resp3()].map(|of| server(of, EndpointKind::Ip))
}

#[test]
fn nodes_are_lines_with_the_times_and_the_state_of_the_way_to_them() {
    let (a, b, c) = (id('a'), id('b'), id('c'));
    for mut server in both() {
        assert_eq!(
            shown(&server.run("CLUSTER NODES")),
            format!(
                "{a} 10.0.0.1:7000@17000,a.example myself,master - 0 0 7 connected 0-99 200\n\
                 {b} 10.0.0.2:7001@17001 slave {a} 5000 4000 7 disconnected\n\
                 {c} 10.0.0.3:7102@17002 master,fail - 0 6000 9 disconnected 101-150\n"
            )
        );
        let replica = format!("[{b} 10.0.0.2:7001@17001 slave {a} 5000 4000 7 disconnected]");
        for word in ["REPLICAS", "SLAVES"] {
            assert_eq!(shown(&server.run(&format!("CLUSTER {word} {a}"))), replica);
            assert_eq!(shown(&server.run(&format!("CLUSTER {word} {c}"))), "[]");
            assert_eq!(
                server.error(&format!("CLUSTER {word} {b}")),
                "ERR The specified node is not a master"
            );
        }
    }
}

#[test]
fn links_are_maps_or_pairs_in_the_order_of_redis() {
    let b = id('b');
    let [mut resp2, mut resp3] = both();
    let field = |name: &str, value: &str, is_map| match is_map {
        true => format!("{name}:{value}"),
        false => format!("{name} {value}"),
    };
    let link = |direction: &str, events: &str, bytes: &str, is_map| {
        let fields = [
            ("direction", direction),
            ("node", &b),
            ("create-time", "1700000000000"),
            ("events", events),
            ("send-buffer-allocated", bytes),
            ("send-buffer-used", bytes),
        ];
        fields
            .map(|(name, value)| field(name, value, is_map))
            .join(" ")
    };
    let [to, from] = [("to", "r", "0"), ("from", "rw", "30")];
    assert_eq!(
        shown(&resp2.run("CLUSTER LINKS")),
        format!(
            "[[{}] [{}]]",
            link(to.0, to.1, to.2, false),
            link(from.0, from.1, from.2, false)
        )
    );
    assert_eq!(
        shown(&resp3.run("CLUSTER LINKS")),
        format!(
            "[{{{}}} {{{}}}]",
            link(to.0, to.1, to.2, true),
            link(from.0, from.1, from.2, true)
        )
    );
}

#[test]
fn slots_name_nodes_by_what_the_cluster_prefers() {
    let (a, b, c) = (id('a'), id('b'), id('c'));
    let resp3 = |endpoint| {
        let mut server = server(TestServer::resp3(), endpoint);
        shown(&server.run("CLUSTER SLOTS"))
    };
    let zone = "availability-zone:east";
    assert_eq!(
        resp3(EndpointKind::Ip),
        format!(
            "[[0 99 [10.0.0.1 7000 {a} {{hostname:a.example {zone}}}] [10.0.0.2 7001 {b} {{}}]] \
             [101 150 [10.0.0.3 7102 {c} {{}}]] \
             [200 200 [10.0.0.1 7000 {a} {{hostname:a.example {zone}}}] [10.0.0.2 7001 {b} {{}}]]]"
        )
    );
    let by_name = resp3(EndpointKind::Hostname);
    let first = format!(
        "[[0 99 [a.example 7000 {a} {{ip:10.0.0.1 {zone}}}] [? 7001 {b} {{ip:10.0.0.2}}]] "
    );
    assert!(by_name.starts_with(&first), "{by_name}");
    let by_none = resp3(EndpointKind::Unknown);
    let first = format!("[[0 99 [nil 7000 {a} {{ip:10.0.0.1 hostname:a.example {zone}}}] ");
    assert!(by_none.starts_with(&first), "{by_none}");
    // RESP2 has no maps.
    let [mut resp2, _] = both();
    let first = format!(
        "[[0 99 [10.0.0.1 7000 {a} [hostname a.example availability-zone east]] \
         [10.0.0.2 7001 {b} []]] "
    );
    let told = shown(&resp2.run("CLUSTER SLOTS"));
    assert!(told.starts_with(&first), "{told}");
}

/// Each node lists itself first in its own view; clients compare the answers of nodes.
#[test]
fn replicas_come_in_the_same_order_from_every_node() {
    let replica = |letter| NodeSeen {
        id: id(letter),
        primary: Some(id('a')),
        ..NodeSeen::default()
    };
    let [d, e] = ['d', 'e'].map(replica);
    let ask = |nodes: &[NodeSeen], line: &str| {
        let mut server = server(TestServer::new(), EndpointKind::Ip);
        let nodes = [&seen().nodes, nodes].concat();
        server.port.cluster = Some(Arc::new(ClusterSeen { nodes, ..seen() }));
        shown(&server.run(line))
    };
    for line in ["CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER REPLICAS ID"] {
        let line = line.replace("ID", &id('a'));
        let (one, two) = ([d.clone(), e.clone()], [e.clone(), d.clone()]);
        assert_eq!(ask(&one, &line), ask(&two, &line), "{line}");
    }
}

#[test]
fn shards_have_their_slots_and_nodes() {
    let (a, b, c) = (id('a'), id('b'), id('c'));
    let [mut resp2, mut resp3] = both();
    assert_eq!(
        shown(&resp3.run("CLUSTER SHARDS")),
        format!(
            "[{{slots:[0 99 200 200] nodes:[\
             {{id:{a} port:7000 tls-port:7100 ip:10.0.0.1 endpoint:10.0.0.1 hostname:a.example \
             availability-zone:east role:master replication-offset:1234 health:online}} \
             {{id:{b} port:7001 ip:10.0.0.2 endpoint:10.0.0.2 role:replica replication-offset:0 \
             health:online}}]}} \
             {{slots:[101 150] nodes:[\
             {{id:{c} tls-port:7102 ip:10.0.0.3 endpoint:10.0.0.3 role:master \
             replication-offset:0 health:fail}}]}}]"
        )
    );
    let told = shown(&resp2.run("CLUSTER SHARDS"));
    let first = format!("[[slots [0 99 200 200] nodes [[id {a} port 7000 tls-port 7100 ip ");
    assert!(told.starts_with(&first), "{told}");
    let mut by_name = server(TestServer::resp3(), EndpointKind::Hostname);
    let told = shown(&by_name.run("CLUSTER SHARDS"));
    let first = format!("id:{a} port:7000 tls-port:7100 ip:10.0.0.1 endpoint:a.example hostname");
    assert!(told.contains(&first), "{told}");
}

#[test]
fn info_has_the_fields_of_redis_and_of_the_control_group() {
    for mut server in both() {
        let told = shown(&server.run("CLUSTER INFO"));
        let b = id('b');
        let lines = [
            "cluster_state:fail",
            "cluster_slots_assigned:151",
            "cluster_slots_ok:101",
            "cluster_slots_pfail:0",
            "cluster_slots_fail:50",
            "cluster_known_nodes:3",
            "cluster_size:2",
            "cluster_current_epoch:12",
            "cluster_my_epoch:7",
            "cluster_stats_messages_sent:5",
            "cluster_stats_messages_received:6",
            "total_cluster_links_buffer_limit_exceeded:0",
            &format!("control_leader:{b}"),
            "control_term:3",
            "control_fault_tolerance:1",
            "published_messages_dropped:0",
        ];
        assert_eq!(told.trim_end().split("\r\n").collect::<Vec<_>>(), lines);
    }
}

#[test]
fn a_node_says_who_it_is_and_counts_reports_about_others() {
    for mut server in both() {
        assert_eq!(shown(&server.run("CLUSTER MYID")), id('a'));
        assert_eq!(shown(&server.run("CLUSTER MYSHARDID")), id('1'));
        let line = format!("CLUSTER COUNT-FAILURE-REPORTS {}", id('c'));
        assert_eq!(server.integer(&line), 0);
        assert_eq!(
            server.error("CLUSTER COUNT-FAILURE-REPORTS x"),
            "ERR Unknown node x"
        );
    }
}

// foo is in slot 12,182, bar in 5,061.

#[test]
fn keys_and_counts_of_slots_have_their_form() {
    let [mut resp2, mut resp3] = both();
    for server in [&mut resp2, &mut resp3] {
        assert_eq!(server.integer("CLUSTER COUNTKEYSINSLOT 1"), 0);
        assert!(server.texts("CLUSTER GETKEYSINSLOT 12182 10").is_empty());
        assert_eq!(server.integer("CLUSTER KEYSLOT {foo}1"), 12_182);
    }
    // A store counts the keys of slots only if the server enables it: see the tests of processes.
    let told = [
        (
            "SLOTSRANGE 5061 5062",
            "[[5061 {key-count:0}] [5062 {key-count:0}]]",
        ),
        (
            "ORDERBY KEY-COUNT LIMIT 2",
            "[[0 {key-count:0}] [1 {key-count:0}]]",
        ),
        ("ORDERBY KEY-COUNT DESC LIMIT 1", "[[0 {key-count:0}]]"),
        ("ORDERBY KEY-COUNT LIMIT 1 ASC", "[[0 {key-count:0}]]"),
    ];
    for (words, stats) in told {
        let line = format!("CLUSTER SLOT-STATS {words}");
        assert_eq!(shown(&resp3.run(&line)), stats, "{words}");
        let pairs = stats
            .replace("{key-count:", "[key-count ")
            .replace('}', "]");
        assert_eq!(shown(&resp2.run(&line)), pairs, "{words}");
    }
    for (words, error) in [
        (
            "SLOTSRANGE 5 4",
            "ERR Start slot number 5 is greater than end slot number 4",
        ),
        ("SLOTSRANGE 0 16384", "ERR Invalid or out of range slot"),
        ("SLOTSRANGE 0 1 2", "ERR syntax error"),
        (
            "ORDERBY CPU-USEC",
            "ERR Unrecognized sort metric for ORDERBY.",
        ),
        (
            "ORDERBY KEY-COUNT LIMIT 0",
            "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
        ),
        (
            "ORDERBY KEY-COUNT ASC LIMIT 1 DESC",
            "ERR Multiple filters of the same type are disallowed.",
        ),
        ("NONSENSE OF-ALL-KINDS", "ERR syntax error"),
        (
            "NONSENSE",
            "ERR wrong number of arguments for 'cluster|slot-stats' command",
        ),
    ] {
        assert_eq!(resp2.error(&format!("CLUSTER SLOT-STATS {words}")), error);
    }
}
