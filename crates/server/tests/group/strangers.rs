//! Clients without the secret send to the links' port of a live group what a member has sent,
//! unchanged or changed, and random bytes: nothing changes, and the group continues.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use base::random::Prng;

use super::{Node, three, wait_until, writes};

/// Number of connections; `STRANGERS` overrides it.
const CONNECTIONS: u64 = 400;
/// Maximum number of bytes that are kept of what a member sends.
const BYTES_MAX: usize = 16 << 10;

/// Returns the bytes that a joining node sends to a member, from the first one on.
fn sent_by_a_member(member: &Node) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let between = listener.local_addr().unwrap().port();
    let link_port = member.link_port;
    let recorder = thread::spawn(move || {
        let (mut from, _) = listener.accept().unwrap();
        let mut to = TcpStream::connect(("127.0.0.1", link_port)).unwrap();
        let (mut answers, mut back) = (to.try_clone().unwrap(), from.try_clone().unwrap());
        let answering = thread::spawn(move || std::io::copy(&mut answers, &mut back));
        let (mut sent, mut piece) = (Vec::new(), [0; 1024]);
        from.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        while let Ok(count @ 1..) = from.read(&mut piece) {
            sent.extend_from_slice(&piece[..count]);
            if sent.len() > BYTES_MAX || to.write_all(&piece[..count]).is_err() {
                break;
            }
        }
        let _ended = to.shutdown(Shutdown::Both);
        drop(from);
        let _done = answering.join();
        sent
    });
    let place = format!("127.0.0.1:{}@{between}", member.port);
    let joining = Node::new(&["--join", &place]);
    let sent = recorder.join().unwrap();
    drop(joining);
    sent
}

/// Returns the bytes unchanged, truncated, or with bytes changed or inserted; or random bytes.
fn changed(sent: &[u8], random: &mut Prng) -> Vec<u8> {
    let mut bytes = sent[..random.index(sent.len()) + 1].to_vec();
    match random.below(5) {
        0 => bytes = sent.to_vec(),
        1 => {}
        2 => {
            for _ in 0..=random.below(8) {
                let at = random.index(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        }
        3 => {
            let at = random.index(bytes.len());
            let again = bytes[..at].to_vec();
            bytes.splice(at..at, again);
        }
        _ => {
            bytes = vec![0; random.index(4_096) + 1];
            random.fill(&mut bytes);
        }
    }
    bytes
}

/// Returns the state of the group, which stays the same while no member changes anything.
fn group_of(node: &Node) -> Vec<String> {
    let names = ["control_nodes", "control_voters", "control_index", "role"];
    let nodes = (0..3).map(|at| node.field(&format!("control_node{at}")));
    names
        .map(|name| node.field(name))
        .into_iter()
        .chain(nodes)
        .collect()
}

#[test]
fn bytes_of_who_does_not_know_the_secret_change_nothing() {
    let nodes = three();
    let all: Vec<&Node> = nodes.iter().collect();
    let sent = sent_by_a_member(&nodes[0]);
    assert!(sent.len() > 32, "{}", sent.len());
    let has_settled = || {
        let before = group_of(&nodes[0]);
        thread::sleep(Duration::from_secs(2));
        before == group_of(&nodes[0]) && nodes[1..].iter().all(Node::is_synced)
    };
    wait_until("as it was", &all, has_settled);
    let before = all.iter().map(|node| group_of(node)).collect::<Vec<_>>();
    let mut random = Prng::seeded(u64::from(std::process::id()));
    let connections = std::env::var("STRANGERS").map_or(CONNECTIONS, |text| text.parse().unwrap());
    for number in 0..connections {
        let to = &nodes[random.index(3)];
        let mut stream = TcpStream::connect(("127.0.0.1", to.link_port)).unwrap();
        // The node may have closed the connection before everything was sent.
        let _sent = stream.write_all(&changed(&sent, &mut random));
        if number % 2 == 0 {
            let _ended = stream.shutdown(Shutdown::Write);
            let wait = Some(Duration::from_millis(20));
            stream.set_read_timeout(wait).unwrap();
            let _answered = stream.read(&mut [0; 4_096]);
        }
    }
    assert!(writes(&nodes[0], "key"), "{}", nodes[0].log());
    let after = all.iter().map(|node| group_of(node)).collect::<Vec<_>>();
    assert_eq!(after, before, "{}", nodes[0].log());
    for node in &nodes {
        assert!(!node.log().contains("panicked"), "{}", node.log());
    }
}
