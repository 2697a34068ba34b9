//! Tests of what nodes of a cluster report about themselves and each other, in the formats that
//! clients read.

use std::collections::BTreeMap;

use protocol::Value;

use super::clusters::{LAST_SLOT, three_primaries, wait_for_agreement};
use super::{Node, wait_until};

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("no text: {other:?}"),
    }
}

fn integer(value: &Value) -> i64 {
    match value {
        Value::Integer(number) => *number,
        other => panic!("no integer: {other:?}"),
    }
}

fn unix_ms(node: &Node) -> i64 {
    match node.run(&["TIME"]) {
        Value::Array(parts) => text(&parts[0]).parse::<i64>().unwrap() * 1_000,
        other => panic!("{other:?}"),
    }
}

/// Returns the links of a node, each as its fields. In RESP3 they are read as clients of RESP3 do.
fn links(node: &Node, is_resp3: bool) -> Vec<BTreeMap<String, Value>> {
    let mut client = node.client();
    if is_resp3 {
        client.hello3().unwrap();
    }
    let Value::Array(links) = client.command(&["CLUSTER", "LINKS"]).unwrap() else {
        panic!("no array");
    };
    let fields = |link: Value| match (link, is_resp3) {
        (Value::Map(pairs), true) => pairs,
        (Value::Array(words), false) => {
            let pairs = words.chunks(2);
            pairs
                .map(|pair| (pair[0].clone(), pair[1].clone()))
                .collect()
        }
        (other, _) => panic!("{other:?}"),
    };
    let links = links.into_iter().map(fields);
    links
        .map(|pairs| {
            let names: Vec<String> = pairs.iter().map(|(name, _)| text(name)).collect();
            let expected =
                "direction node create-time events send-buffer-allocated send-buffer-used";
            assert_eq!(names.join(" "), expected);
            pairs
                .into_iter()
                .map(|(name, value)| (text(&name), value))
                .collect()
        })
        .collect()
}

/// Returns the words of the line about another node.
fn line(node: &Node, of: &str) -> Vec<String> {
    let nodes = node.text(&["CLUSTER", "NODES"]);
    let line = nodes.lines().find(|line| line.starts_with(of)).unwrap();
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn who_has_met_has_brought_its_hash_slots() {
    // If nodes agree at that moment that slots have no owner, the cluster counts as incomplete.
    for _ in 0..3 {
        let nodes = [Node::by_itself(), Node::by_itself(), Node::by_itself()];
        let [a, b, c] = &nodes;
        a.own(0, 5_460);
        b.own(5_461, 10_922);
        c.own(10_923, LAST_SLOT);
        let slots = |at: &Node, of: &Node| line(at, &of.id())[8..].join(" ");
        assert_eq!(b.meet(a), "OK");
        assert_eq!(
            (slots(b, a), slots(b, b)),
            ("0-5460".into(), "5461-10922".into())
        );
        assert_eq!(a.meet(c), "OK");
        assert_eq!(slots(a, c), "10923-16383");
        wait_for_agreement(&[a, b, c], 3);
    }
}

#[test]
fn links_are_listed_and_say_when_others_were_heard() {
    let [a, b, mut c] = three_primaries();
    let (ids, c_id) = ([a.id(), b.id()], c.id());
    let all_linked = |node: &Node, others: &[&str]| {
        let links = links(node, false);
        others.iter().all(|other| {
            ["to", "from"].iter().all(|direction| {
                let is_it = |link: &BTreeMap<String, Value>| {
                    text(&link["node"]) == **other && text(&link["direction"]) == **direction
                };
                links.iter().any(is_it)
            })
        })
    };
    wait_until("three voters that are linked", &[&a, &b, &c], || {
        all_linked(&a, &[&ids[1], &c_id]) && all_linked(&b, &[&ids[0], &c_id])
    });
    for is_resp3 in [false, true] {
        for link in links(&a, is_resp3) {
            assert!(["r", "rw"].contains(&&*text(&link["events"])), "{link:?}");
            let age_ms = unix_ms(&a) - integer(&link["create-time"]);
            assert!((-1_000..600_000).contains(&age_ms), "{link:?}");
            let [allocated, used] =
                ["send-buffer-allocated", "send-buffer-used"].map(|name| integer(&link[name]));
            assert!(0 <= used && used <= allocated, "{link:?}");
        }
    }
    wait_until("heard", &[&a, &b, &c], || {
        let pong: i64 = line(&a, &c_id)[5].parse().unwrap();
        pong > 0 && line(&a, &c_id)[7] == "connected"
    });
    let mine = line(&a, &ids[0]);
    assert_eq!((&*mine[4], &*mine[5], &*mine[7]), ("0", "0", "connected"));
    let pong: i64 = line(&a, &c_id)[5].parse().unwrap();
    assert!((unix_ms(&a) - pong).abs() < 600_000, "{pong}");
    c.kill();
    wait_until("missed", &[&a, &b], || {
        let line = line(&a, &c_id);
        let (ping, pong): (i64, i64) = (line[4].parse().unwrap(), line[5].parse().unwrap());
        let is_down = line[2].contains("fail") && line[7] == "disconnected";
        is_down && ping > 0 && pong > 0
    });
    wait_until("gone from the list", &[&a, &b], || {
        links(&a, false)
            .iter()
            .all(|link| text(&link["node"]) != c_id)
    });
    c.start();
    wait_until("heard again", &[&a, &b, &c], || {
        let line = line(&a, &c_id);
        !line[2].contains("fail") && line[7] == "connected" && all_linked(&a, &[&c_id])
    });
}

#[test]
fn keys_of_slots_are_counted_where_they_are() {
    let [a, b, c] = three_primaries();
    // Slot 3,300 belongs to the first node, 7,365 to the second.
    for number in 0..3 {
        assert_eq!(a.text(&["SET", &format!("{{b}}{number}"), "v"]), "OK");
    }
    assert_eq!(b.text(&["SET", "foo{c}", "v"]), "OK");
    let count = |node: &Node, slot: &str| node.run(&["CLUSTER", "COUNTKEYSINSLOT", slot]);
    wait_until("counted", &[&a, &b, &c], || {
        count(&a, "3300") == Value::Integer(3) && count(&b, "7365") == Value::Integer(1)
    });
    assert_eq!(count(&c, "3300"), Value::Integer(0));
    let keys = a.run(&["CLUSTER", "GETKEYSINSLOT", "3300", "2"]);
    assert!(matches!(keys, Value::Array(keys) if keys.len() == 2));
    let stats = |node: &Node, words: &[&str]| {
        let words = [&["CLUSTER", "SLOT-STATS"], words].concat();
        let Value::Array(slots) = node.run(&words) else {
            panic!("no array");
        };
        let slots = slots.into_iter().map(|slot| match slot {
            Value::Array(parts) => match &parts[1] {
                Value::Array(pair) => (integer(&parts[0]), integer(&pair[1])),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        });
        slots.collect::<Vec<_>>()
    };
    assert_eq!(
        stats(&a, &["SLOTSRANGE", "3299", "3300"]),
        [(3_299, 0), (3_300, 3)]
    );
    // This node does not report slots of other nodes.
    assert_eq!(stats(&a, &["SLOTSRANGE", "5460", "5462"]), [(5_460, 0)]);
    assert_eq!(
        stats(&b, &["ORDERBY", "KEY-COUNT", "LIMIT", "1"]),
        [(7_365, 1)]
    );
}
