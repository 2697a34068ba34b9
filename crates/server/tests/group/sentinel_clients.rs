//! Clients with Sentinel support, unmodified from their registries, follow when another node of a group is promoted.
//!
//! Each program has clients that write, one key after another. It says when it is ready, is told when the primary has been
//! lost, goes on writing with what the client does by itself about that, and reads back at last, from the primary and from
//! a replica, what was confirmed: at quorum none of it may be lost.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

use protocol::Value;
use testkit::process::free_port;

use crate::hand_over::three_at_quorum;
use crate::programs::{go_program, java_program, node_with, programs, python_with};
use crate::{Node, wait_until};

/// What clients show at the ports of nodes and at those for Sentinels' clients.
const PASSWORD: &str = "secret";

/// Runs a program while the first node, which is the primary, is lost; the password and the ports are in its environment.
#[allow(clippy::print_stdout, reason = "figures for who reads the run")]
fn while_lost(program: &mut Command, lose: impl FnOnce(&mut [Node; 3])) {
    let ports = [(); 3].map(|()| free_port().unwrap());
    let mut nodes = three_at_quorum(&ports);
    for node in &nodes {
        let set = node.run(&["CONFIG", "SET", "requirepass", PASSWORD]);
        assert_eq!(set, Value::Simple(b"OK".to_vec()));
    }
    program
        .env("PASSWORD", PASSWORD)
        .env("PORTS", ports.map(|port| port.to_string()).join(" "));
    let piped = program.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    // Maven sets colours before.
    while !line.ends_with("ready\n") {
        let count = output.read_line(&mut line).unwrap();
        assert!(count > 0, "{program:?}: {:?}, {line}", child.wait());
    }
    lose(&mut nodes);
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"lost\n").unwrap();
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    println!("{said}");
    let logs = nodes.iter().map(Node::log).collect::<String>();
    assert!(status.success(), "{program:?}: {status}\n{logs}");
}

/// The primary is killed, in one run, and hands its office over, in another: it is there then, as a replica.
fn follows(mut program: impl FnMut() -> Command) {
    while_lost(&mut program(), |nodes| nodes[0].kill());
    while_lost(&mut program(), hand_over);
}

fn hand_over(nodes: &mut [Node; 3]) {
    let mut client = nodes[0].client();
    client.command(&["AUTH", PASSWORD]).unwrap();
    client.command(&["FAILOVER"]).unwrap();
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("handed over", &all, || {
        nodes[0].log().contains("This node is the primary no more")
    });
}

#[test]
#[ignore = "needs Python and its packages: cargo xtask test clients"]
fn redis_py_follows() {
    let python = python_with(&["redis==8.1.0"]);
    follows(|| {
        let mut program = Command::new(&python);
        program.arg(programs().join("sentinel_failover.py"));
        program
    });
}

#[test]
#[ignore = "needs Node and its packages: cargo xtask test clients"]
fn ioredis_and_node_redis_follow() {
    let directory = node_with("sentinel", &["ioredis@6.0.0", "redis@6.3.1"]);
    follows(|| {
        let mut program = Command::new("node");
        program.arg(programs().join("sentinel_failover.mjs"));
        program.current_dir(&directory);
        program
    });
}

#[test]
#[ignore = "needs Go and its packages: cargo xtask test clients"]
fn go_redis_follows() {
    follows(|| go_program("./failover"));
}

#[test]
#[ignore = "needs Maven and its packages: cargo xtask test clients"]
fn jedis_and_lettuce_follow() {
    follows(|| java_program("Failover", ""));
}
