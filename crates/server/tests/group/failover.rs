//! Tests in which the primary is killed: another node takes its place, and the former primary
//! follows when it returns.

use std::io::ErrorKind;
use std::time::Duration;

use protocol::Value;

use crate::reads::three_at_quorum;
use crate::{Node, has, joined_by_two, three, wait_until, writes};

/// Waits until one of these nodes takes writes, and returns it.
fn wait_for_primary(nodes: &[&Node], key: &str) -> usize {
    let mut found = None;
    wait_until("a primary that takes writes", nodes, || {
        found = nodes
            .iter()
            .position(|node| node.is_primary() && writes(node, key));
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn a_replica_takes_the_place_of_a_primary_that_was_killed() {
    let mut nodes = three();
    assert!(writes(&nodes[0], "before"));
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("copied", &all, || {
        has(&nodes[1], "before") && has(&nodes[2], "before")
    });
    nodes[0].kill();
    let rest = [&nodes[1], &nodes[2]];
    let primary = wait_for_primary(&rest, "after");
    assert!(has(rest[primary], "before"));
    let other = rest[1 - primary];
    wait_until("followed", &rest, || {
        other.is_synced() && has(other, "after")
    });
    // The former primary returns as a replica.
    nodes[0].start();
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("the old primary follows", &all, || {
        nodes[0].is_synced() && has(&nodes[0], "after")
    });
    assert!(!writes(&nodes[0], "never"));
}

#[test]
fn a_group_that_was_killed_whole_comes_back() {
    let mut nodes = three();
    assert!(writes(&nodes[0], "before"));
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("copied", &all, || {
        has(&nodes[1], "before") && has(&nodes[2], "before")
    });
    for node in &mut nodes {
        node.kill();
    }
    for node in &mut nodes {
        node.start();
    }
    let all: Vec<&Node> = nodes.iter().collect();
    let primary = wait_for_primary(&all, "after");
    assert!(has(all[primary], "before"));
    wait_until("copied", &all, || all.iter().all(|node| has(node, "after")));
}

#[test]
fn a_primary_hands_over_when_it_is_told_to() {
    let nodes = three();
    let [a, b, c] = &nodes;
    let all = [a, b, c];
    let port = c.port.to_string();
    let refused = a.run(&["FAILOVER", "TO", "127.0.0.1", "1", "FORCE", "TIMEOUT", "1"]);
    assert!(matches!(refused, Value::Error(_)), "{refused:?}");
    for number in 0..100 {
        assert!(writes(a, &format!("key:{number}")));
    }
    a.run(&["FAILOVER", "TO", "127.0.0.1", &port]);
    wait_until("handed over", &all, || {
        c.is_primary() && a.is_synced() && b.is_synced()
    });
    wait_until("written", &all, || writes(c, "after"));
    for number in 0..100 {
        assert!(has(c, &format!("key:{number}")), "{number}");
    }
    // If no node is named, the one with the most data takes over.
    c.run(&["FAILOVER"]);
    wait_until("handed over again", &all, || {
        c.is_synced() && (a.is_primary() || b.is_primary())
    });
}

/// Writes keys of its own until a write is refused. Returns the number of writes.
fn write_while_taken(mut client: testkit::client::Client, writer: usize) -> usize {
    let is_taken = |number: &usize| {
        let written = client.command(&["SET", &format!("key:{writer}:{number}"), "1"]);
        written.is_ok_and(|reply| reply == Value::Simple(b"OK".to_vec()))
    };
    (0..).take_while(is_taken).count()
}

/// State of an earlier hand-over must not end the wait of a later one: writes would continue, and
/// be lost with it.
#[test]
fn writes_wait_as_long_as_the_office_is_handed_over() {
    let nodes = three();
    let [a, b, c] = &nodes;
    let all = [a, b, c];
    let fail_over = |from: &Node, to: &Node| {
        from.run(&["FAILOVER", "TO", "127.0.0.1", &to.port.to_string()]);
    };
    for (from, to) in [(a, b), (b, a)] {
        fail_over(from, to);
        wait_until("handed over", &all, || to.is_primary() && from.is_synced());
        wait_until("written", &all, || writes(to, "key"));
    }
    // `b` stands still before the primary resumes the writes that no node took over, and continues
    // after it.
    std::thread::sleep(Duration::from_millis(2_000));
    b.signal("-STOP");
    assert!(writes(a, "not there yet"));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let client = a.client();
            std::thread::spawn(move || write_while_taken(client, writer))
        })
        .collect();
    fail_over(a, b);
    std::thread::sleep(Duration::from_millis(1_100));
    b.signal("-CONT");
    std::thread::sleep(Duration::from_millis(500));
    // If the hand-over failed, writes continue until the next hand-over.
    if a.is_primary() {
        fail_over(a, c);
    }
    let primary = wait_for_primary(&all, "after");
    for (writer, thread) in writers.into_iter().enumerate() {
        for number in 0..thread.join().unwrap() {
            let key = format!("key:{writer}:{number}");
            assert!(has(all[primary], &key), "{key}");
        }
    }
}

#[test]
fn a_primary_without_a_majority_takes_no_writes() {
    let mut nodes = three();
    nodes[1].kill();
    nodes[2].kill();
    let all = [&nodes[0]];
    wait_until("writes refused", &all, || !writes(&nodes[0], "alone"));
    // The primary keeps refusing writes.
    std::thread::sleep(Duration::from_secs(3));
    assert!(!writes(&nodes[0], "alone"));
    nodes[1].start();
    let both = [&nodes[0], &nodes[1]];
    let _primary = wait_for_primary(&both, "together");
}

/// The node was the primary, and another node may be by now.
#[test]
fn who_comes_back_alone_takes_no_write_from_the_first_moment_on() {
    let mut nodes = three();
    for node in &mut nodes {
        node.kill();
    }
    nodes[0].start();
    let mut client = nodes[0].client();
    for _ in 0..200 {
        let written = client.command(&["SET", "early", "1"]).unwrap();
        assert!(matches!(written, Value::Error(_)), "{written:?}");
        let read = client.command(&["GET", "early"]).unwrap();
        // At first the node shows nothing. Later it may show outdated data, as a replica without
        // its primary does (replica-serve-stale-data).
        let is_nothing = matches!(read, Value::Error(_) | Value::Null);
        assert!(is_nothing, "{read:?}");
    }
}

#[test]
fn two_copies_and_a_witness_survive_the_loss_of_the_primary() {
    let mut first = Node::first();
    let second = Node::joining(&first, &[]);
    let witness = Node::joining(&first, &["--witness"]);
    let all = [&first, &second, &witness];
    wait_until("three voters", &all, || {
        first.field("control_voters") == "3"
    });
    wait_until("a replica", &all, || second.is_synced());
    assert!(writes(&first, "before"));
    wait_until("copied", &[&first, &second], || has(&second, "before"));
    first.kill();
    let _primary = wait_for_primary(&[&second], "after");
    assert!(has(&second, "before"));
}

#[test]
fn what_a_majority_has_survives_the_loss_of_the_primary() {
    let mut nodes = three_at_quorum(&[]);
    let mut acknowledged = Vec::new();
    for number in 0..200 {
        let key = format!("key-{number}");
        if writes(&nodes[0], &key) {
            acknowledged.push(key);
        }
    }
    assert!(!acknowledged.is_empty());
    nodes[0].kill();
    let rest = [&nodes[1], &nodes[2]];
    let primary = wait_for_primary(&rest, "after");
    for key in &acknowledged {
        assert!(has(rest[primary], key), "{key} is lost");
    }
}

/// The primary's lease continues until another control leader is elected.
#[test]
fn the_loss_of_the_control_leader_stops_no_write() {
    let mut nodes = three_at_quorum(&[]);
    let all: Vec<&Node> = nodes.iter().collect();
    let mut leads = None;
    wait_until("led by another one than the primary", &all, || {
        let leader = nodes[0].field("control_leader");
        let known = (0..3).map(|at| nodes[0].field(&format!("control_node{at}")));
        let known = known.filter(|line| !leader.is_empty() && line.contains(&leader));
        let known = known.collect::<String>();
        let is_its = |node: &Node| known.contains(&format!(":{},", node.port));
        leads = nodes[1..].iter().position(is_its);
        leads.is_some()
    });
    let leads = leads.unwrap() + 1;
    let lost = nodes[0].field("control_leader");
    nodes[leads].kill();
    let mut writes_since = 0;
    let all = [&nodes[0]];
    wait_until("led again, and some more leases", &all, || {
        let key = format!("key-{writes_since}");
        assert!(
            writes(&nodes[0], &key),
            "{key} is refused\n{}",
            nodes[0].log()
        );
        writes_since += 1;
        let leader = nodes[0].field("control_leader");
        let is_led = !leader.is_empty() && leader != lost;
        is_led && writes_since > 150
    });
    assert!(nodes[0].is_primary());
}

#[test]
fn who_has_no_majority_tells_of_itself_nevertheless() {
    let nodes = three_at_quorum(&[]);
    let [first, others @ ..] = &nodes;
    others.iter().for_each(|node| node.signal("-STOP"));
    let read = || first.client().command(&["GET", "first"]);
    wait_until("no read", &[first], || {
        !matches!(read(), Ok(Value::Bulk(_)))
    });
    for _ in 0..20 {
        assert_eq!(first.run(&["PING"]), Value::Simple(b"PONG".to_vec()));
        assert_eq!(first.field("role"), "master");
    }
    others.iter().for_each(|node| node.signal("-CONT"));
    let all: Vec<&Node> = nodes.iter().collect();
    let _primary = wait_for_primary(&all, "second");
}

/// The renewal of a lease does not advance the log.
#[test]
fn what_was_asked_without_a_lease_is_answered_or_refused() {
    let nodes = three_at_quorum(&[]);
    let [first, others @ ..] = &nodes;
    others.iter().for_each(|node| node.signal("-STOP"));
    let read = || first.client().command(&["GET", "first"]);
    wait_until("no lease", &[first], || {
        !matches!(read(), Ok(Value::Bulk(_)))
    });
    std::thread::scope(|scope| {
        for number in 0..100 {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(10 * number));
                let answer = first.client().command(&["GET", "first"]);
                // The end of the connection counts as an answer, too.
                let kind = answer.err().map(|error| error.kind());
                assert_ne!(kind, Some(ErrorKind::WouldBlock), "client {number}");
            });
        }
        std::thread::sleep(Duration::from_millis(200));
        others.iter().for_each(|node| node.signal("-CONT"));
    });
}

/// The same happens while an operator restarts the nodes one by one with another timeout. The
/// primary's own lease would last long after another node has taken its place.
#[test]
fn a_lease_lasts_no_longer_than_the_leader_counts_it() {
    let first = Node::new(&["--cluster-group", "yes", "--cluster-node-timeout", "20000"]);
    let nodes = joined_by_two(first, &[]);
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("one of the others leads", &all, || {
        let log = nodes[0].log();
        log.contains("cluster-node-timeout is 1500 there and 20000 here")
    });
    let mut client = nodes[0].client();
    nodes[0].signal("-STOP");
    client.send(&["SET", "key", "stale"]).unwrap();
    wait_until("another primary", &all[1..], || {
        nodes[1..].iter().any(Node::is_primary)
    });
    nodes[0].signal("-CONT");
    let told = client.receive();
    let is_taken = matches!(&told, Ok(Some(Value::Simple(_))));
    assert!(!is_taken, "{told:?}");
}
