//! Tests of nodes that stop in order or are drained: they hand over what they lead, so no node
//! waits for a timeout.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::process::{free_port, iolite_program};

use crate::{Node, has, three, wait_for_copies, wait_until, writes};

/// A client that behaves like one of Sentinels: it asks for the primary and writes. It starts over
/// if the connection ends, or if the node is a replica or is loading.
struct Writer<'w> {
    sentinels: &'w [u16],
    client: Option<Client>,
}

impl Writer<'_> {
    fn primary(&self) -> Option<Client> {
        self.sentinels.iter().find_map(|port| {
            let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
            let mut sentinel = Client::connect_tcp(at(*port)).ok()?;
            let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"];
            let Ok(Value::Array(parts)) = sentinel.command(&words) else {
                return None;
            };
            let Some(Value::Bulk(port)) = parts.get(1) else {
                return None;
            };
            let port = std::str::from_utf8(port).ok()?.parse().ok()?;
            Client::connect_tcp(at(port)).ok()
        })
    }

    /// Writes a key. Fails with an error for which such a client would not retry.
    fn write(&mut self, key: &str) -> Result<(), String> {
        loop {
            if self.client.is_none() {
                self.client = self.primary();
            }
            let told = self
                .client
                .as_mut()
                .map(|it| it.command(&["SET", key, "1"]));
            match told {
                Some(Ok(Value::Simple(_))) => return Ok(()),
                Some(Ok(Value::Error(text))) => {
                    let retried = [&b"READONLY"[..], b"LOADING"];
                    if !retried.iter().any(|word| text.starts_with(word)) {
                        return Err(String::from_utf8_lossy(&text).into_owned());
                    }
                }
                Some(Ok(other)) => return Err(format!("{other:?}")),
                Some(Err(_)) | None => {}
            }
            self.client = None;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Starts three nodes at quorum that answer clients of Sentinels at these ports. The first node is
/// the primary.
pub(crate) fn three_at_quorum(ports: &[u16]) -> [Node; 3] {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let args = |at: usize| ["--durability", "quorum", "--sentinel-port", &ports[at]];
    let first = Node::new(&[&["--cluster-group", "yes"], &args(0)[..]].concat());
    let second = Node::joining(&first, &args(1));
    let third = Node::joining(&first, &args(2));
    let nodes = [first, second, third];
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("a primary that writes", &all, || {
        let synced = nodes[1..].iter().all(Node::is_synced);
        synced && nodes[0].field("control_voters") == "3" && writes(&nodes[0], "begun")
    });
    wait_for_copies(&all);
    nodes
}

/// Writes keys until `is_over` is set, or until an error for which no such client retries.
fn write_until(ports: &[u16], written: &AtomicUsize, is_over: &AtomicBool) -> Result<(), String> {
    let mut writer = Writer {
        sentinels: ports,
        client: None,
    };
    while !is_over.load(Ordering::Relaxed) {
        let number = written.load(Ordering::Relaxed);
        writer.write(&format!("key:{number}"))?;
        written.store(number + 1, Ordering::Relaxed);
    }
    Ok(())
}

/// Waits until a writer has written ten keys since `before` to the running nodes, or has ended.
fn wait_for_writes(
    nodes: &[Node],
    before: usize,
    written: &AtomicUsize,
    writer: &ScopedJoinHandle<'_, Result<(), String>>,
) {
    let running: Vec<&Node> = nodes.iter().filter(|node| node.is_running()).collect();
    wait_until("written without it", &running, || {
        written.load(Ordering::Relaxed) > before + 10 || writer.is_finished()
    });
}

/// Asserts that the node has every written key.
fn has_all(node: &Node, written: &AtomicUsize) {
    for number in 0..written.load(Ordering::Relaxed) {
        let key = format!("key:{number}");
        assert!(has(node, &key), "{key}");
    }
}

/// Stops and starts the nodes one after the other during writes: there is no error and no loss.
#[test]
fn a_rolling_restart_at_quorum_loses_nothing() {
    let ports: Vec<u16> = (0..3).map(|_| free_port().unwrap()).collect();
    let mut nodes = three_at_quorum(&ports);
    let (is_over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&ports, &written, &is_over));
        for at in 0..nodes.len() {
            let before = written.load(Ordering::Relaxed);
            let _log = nodes[at].stop();
            wait_for_writes(&nodes, before, &written, &writer);
            nodes[at].start();
            let all: Vec<&Node> = nodes.iter().collect();
            wait_until("it is back", &all, || {
                let has_both =
                    |node: &Node| node.is_primary() && node.field("connected_slaves") == "2";
                let is_whole = nodes[at].is_synced() && nodes.iter().any(has_both);
                is_whole || writer.is_finished()
            });
        }
        is_over.store(true, Ordering::Relaxed);
        let logs: Vec<String> = nodes.iter().map(Node::log).collect();
        let outcome = writer.join().unwrap();
        assert_eq!(outcome, Ok(()), "{}", logs.join("\n======\n"));
    });
    let all: Vec<&Node> = nodes.iter().collect();
    let mut primary = None;
    wait_until("a primary", &all, || {
        let is_one = |node: &Node| node.is_primary() && writes(node, "after");
        primary = nodes.iter().find(|node| is_one(node));
        primary.is_some()
    });
    has_all(primary.unwrap(), &written);
}

/// SIGTERM at the primary: the primary itself hands over at once.
#[test]
fn a_primary_that_is_stopped_hands_over_first() {
    let mut nodes = three();
    for number in 0..50 {
        assert!(writes(&nodes[0], &format!("key:{number}")));
    }
    let log = nodes[0].stop();
    assert!(log.contains("hands its office over"), "{log}");
    let left = [&nodes[1], &nodes[2]];
    wait_until("written", &left, || {
        left.iter().any(|node| writes(node, "after"))
    });
    // The process ended after another node had the office. That node was not promoted because of a
    // timeout.
    assert!(log.contains("This node is the primary no more"), "{log}");
    let primary = left.iter().find(|node| node.is_primary()).unwrap();
    for number in 0..50 {
        assert!(has(primary, &format!("key:{number}")), "{number}");
    }
}

#[test]
fn clients_of_a_primary_that_hands_over_have_to_connect_anew() {
    clients_connect_anew_after(|nodes| {
        let port = nodes[2].port.to_string();
        let told = nodes[0].run(&["FAILOVER", "TO", "127.0.0.1", &port]);
        assert_eq!(told, Value::Simple(b"OK".to_vec()));
    });
}

#[test]
fn clients_of_a_primary_that_stood_still_have_to_connect_anew() {
    clients_connect_anew_after(|nodes| {
        nodes[0].signal("-STOP");
        let left = [&nodes[1], &nodes[2]];
        wait_until("another primary", &left, || {
            left.iter().any(|node| node.is_primary())
        });
        nodes[0].signal("-CONT");
    });
}

/// Many clients ask for the primary only when they connect. So the former primary closes their
/// connections, as Sentinels do. Connections of other replicas stay open. `lose` makes the first of
/// three nodes a replica.
fn clients_connect_anew_after(lose: impl FnOnce(&[Node; 3])) {
    let nodes = three();
    let all: Vec<&Node> = nodes.iter().collect();
    let mut writer = nodes[0].client();
    let mut subscriber = nodes[0].client();
    subscriber.command(&["SUBSCRIBE", "channel"]).unwrap();
    let mut readers = [nodes[1].client(), nodes[2].client()];
    lose(&nodes);
    wait_until("handed over", &all, || {
        nodes[0].is_synced() && nodes[1..].iter().any(Node::is_primary)
    });
    for client in [&mut writer, &mut subscriber] {
        let told = client.command(&["PING"]);
        assert!(told.is_err(), "{told:?}");
    }
    for client in &mut readers {
        assert!(client.command(&["PING"]).is_ok());
    }
}

/// When a control leader is stopped in order, no election is pending afterwards.
#[test]
fn a_control_leader_that_is_stopped_has_another_one_lead() {
    let mut nodes = three();
    let all: Vec<&Node> = nodes.iter().collect();
    let leader_of = |node: &Node| node.field("control_leader");
    let own_id = |node: &Node| {
        let rows = (0..3).map(|at| node.field(&format!("control_node{at}")));
        let address = format!("addr={},", node.address());
        let row = rows.into_iter().find(|row| row.contains(&address)).unwrap();
        row[3..43].to_owned()
    };
    let mut leader = None;
    wait_until("another one than the primary leads", &all, || {
        leader = nodes[1..]
            .iter()
            .position(|node| own_id(node) == leader_of(node));
        leader.is_some()
    });
    let at = leader.unwrap() + 1;
    let id = own_id(&nodes[at]);
    let log = nodes[at].stop();
    assert!(log.contains("has node"), "{log}");
    // Between its vote and the first message of the elected leader, a node knows no leader.
    wait_until("another leader", &[&nodes[0]], || {
        !["", id.as_str()].contains(&leader_of(&nodes[0]).as_str())
    });
}

fn cluster_tool(node: &Node, words: &[&str]) -> (bool, String) {
    let port = node.port.to_string();
    let mut command = Command::new(iolite_program());
    command
        .arg("cluster")
        .args(words)
        .args(["-h", "127.0.0.1", "-p", &port]);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// When the tool returns, the primary leads nothing. Killing it then is not noticed by clients that
/// write.
#[test]
fn a_primary_that_leaves_for_a_restart_can_be_killed() {
    let ports: Vec<u16> = (0..3).map(|_| free_port().unwrap()).collect();
    let mut nodes = three_at_quorum(&ports);
    let (is_over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&ports, &written, &is_over));
        let (is_ok, told) = cluster_tool(&nodes[0], &["leave", "--for-restart"]);
        assert!(is_ok && told == "OK\n", "{told}");
        assert!(!nodes[0].is_primary());
        nodes[0].kill();
        wait_for_writes(&nodes, written.load(Ordering::Relaxed), &written, &writer);
        nodes[0].start();
        let all: Vec<&Node> = nodes.iter().collect();
        wait_until("it is back", &all, || nodes[0].is_synced());
        is_over.store(true, Ordering::Relaxed);
        let logs: Vec<String> = nodes.iter().map(Node::log).collect();
        let outcome = writer.join().unwrap();
        assert_eq!(outcome, Ok(()), "{}", logs.join("\n======\n"));
    });
    let primary = nodes.iter().find(|node| node.is_primary()).unwrap();
    has_all(primary, &written);
}

/// If the node does not restart at once, it remains a copy. It is one of the two copies that a
/// majority requires, so writes need it.
#[test]
fn who_leaves_for_a_restart_that_does_not_come_at_once_follows() {
    let quorum = ["--durability", "quorum"];
    let first = Node::new(&[&["--cluster-group", "yes"], &quorum[..]].concat());
    let second = Node::joining(&first, &quorum);
    let all = [&first, &second];
    wait_until("a primary that writes", &all, || {
        second.is_synced() && writes(&first, "one")
    });
    wait_for_copies(&all);
    let (is_ok, told) = cluster_tool(&first, &["leave", "--for-restart"]);
    assert!(is_ok && told == "OK\n", "{told}");
    wait_until("it follows", &all, || first.is_synced());
    wait_until("written", &all, || writes(&second, "two"));
    assert!(!first.is_primary());
}

#[test]
fn a_node_that_is_drained_leads_nothing_until_it_is_not() {
    let nodes = three();
    let all: Vec<&Node> = nodes.iter().collect();
    let (is_ok, told) = cluster_tool(&nodes[1], &["drain", &nodes[0].address()]);
    assert!(is_ok && told == "OK\n", "{told}");
    wait_until("handed over", &all, || {
        nodes[0].is_synced() && nodes[1..].iter().any(|node| writes(node, "one"))
    });
    let (is_ok, table) = cluster_tool(&nodes[0], &["status"]);
    assert!(is_ok && table.contains("DRAIN"), "{table}");
    let (_, json) = cluster_tool(&nodes[0], &["status", "--json"]);
    assert!(json.contains(r#""drain":"yes""#), "{json}");
    // With the other replica drained too, there is no node to hand over to.
    let primary = nodes.iter().position(Node::is_primary).unwrap();
    let other = 3 - primary;
    let (is_ok, told) = cluster_tool(&nodes[0], &["drain", &nodes[other].address()]);
    assert!(is_ok, "{told}");
    let (is_ok, told) = cluster_tool(&nodes[0], &["drain", "nobody"]);
    assert!(
        !is_ok && told.contains("no node of the group is nobody"),
        "{told}"
    );
    for at in [0, other] {
        // Operators may address nodes by machine names.
        let place = format!("localhost:{}", nodes[at].port);
        let (is_ok, told) = cluster_tool(&nodes[primary], &["undrain", &place]);
        assert!(is_ok, "{told}");
    }
    // A node that may be promoted again is promoted.
    let (is_ok, told) = cluster_tool(&nodes[0], &["drain", &nodes[primary].address()]);
    assert!(is_ok, "{told}");
    wait_until("handed over again", &all, || {
        nodes[primary].is_synced() && (0..3).any(|at| at != primary && writes(&nodes[at], "two"))
    });
}

/// A primary leaves a shard whose writes wait for a majority: the office moves first, then the copy
/// is removed.
#[test]
fn a_primary_leaves_at_quorum() {
    let quorum = ["--durability", "quorum"];
    let first = Node::new(&[&["--cluster-group", "yes"], &quorum[..]].concat());
    let others = [(); 3].map(|()| Node::joining(&first, &quorum));
    let all: Vec<&Node> = std::iter::once(&first).chain(&others).collect();
    wait_until("a primary that writes", &all, || {
        others.iter().all(Node::is_synced) && writes(&first, "one")
    });
    let (is_ok, told) = cluster_tool(&others[0], &["leave", &first.address()]);
    assert!(is_ok, "{told}");
    let left: Vec<&Node> = others.iter().collect();
    wait_until("three nodes", &all, || {
        others[0].field("control_nodes") == "3"
    });
    wait_until("written", &all, || {
        left.iter().any(|node| writes(node, "two"))
    });
    let primary = left.iter().find(|node| node.is_primary()).unwrap();
    assert!(has(primary, "one"));
    wait_until("all three vote", &left, || {
        others[0].field("control_voters") == "3"
    });
}
