//! Clients with Sentinel support, unmodified from their registries, follow a failover of a group.
//!
//! Each program has clients that write, one key after another. It says when it is ready, is told when the primary has been
//! killed, goes on writing with what the client does by itself about that, and reads back at last, from the primary and
//! from a replica, what was confirmed.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

use testkit::process::free_port;

use crate::programs::{go_program, java_program, node_with, programs, python_with};
use crate::{Node, joined};

/// What is confirmed is at a majority: none of it may be lost.
const LEVEL: [&str; 2] = ["--durability", "quorum"];
/// What clients show at the ports of nodes and at those for Sentinels' clients. No port is open to other machines.
const PASSWORD: &str = "secret";

fn node_args<'a>(head: &[&'a str], sentinel_port: &'a str) -> Vec<&'a str> {
    [head, &LEVEL, &["--sentinel-port", sentinel_port]].concat()
}

/// Three nodes, the first of which is the primary, and their ports for Sentinels' clients.
fn group() -> ([Node; 3], [String; 3]) {
    let ports = [(); 3].map(|()| free_port().unwrap().to_string());
    let first = Node::new(&node_args(&["--cluster-group", "yes"], &ports[0]));
    let second = Node::joining(&first, &node_args(&[], &ports[1]));
    let third = Node::joining(&first, &node_args(&[], &ports[2]));
    let nodes = joined([first, second, third]);
    for node in &nodes {
        let set = node.run(&["CONFIG", "SET", "requirepass", PASSWORD]);
        assert_eq!(set, protocol::Value::Simple(b"OK".to_vec()));
    }
    (nodes, ports)
}

/// Runs a program over a failover, with the password and the ports in its environment.
#[allow(clippy::print_stdout, reason = "figures for who reads the run")]
fn over_a_failover(program: &mut Command) {
    let (mut nodes, ports) = group();
    program
        .env("PASSWORD", PASSWORD)
        .env("PORTS", ports.join(" "));
    let piped = program.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    // Maven sets colours before.
    while !line.ends_with("ready\n") {
        let count = output.read_line(&mut line).unwrap();
        assert!(count > 0, "{program:?}: {:?}, {line}", child.wait());
    }
    nodes[0].kill();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"killed\n").unwrap();
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    println!("{said}");
    let logs = nodes[1..].iter().map(Node::log).collect::<String>();
    assert!(status.success(), "{program:?}: {status}\n{logs}");
}

#[test]
#[ignore = "needs Python and its packages: cargo xtask test clients"]
fn redis_py_follows() {
    let mut program = Command::new(python_with(&["redis==8.1.0"]));
    over_a_failover(program.arg(programs().join("sentinel_failover.py")));
}

#[test]
#[ignore = "needs Node and its packages: cargo xtask test clients"]
fn ioredis_and_node_redis_follow() {
    let directory = node_with("sentinel", &["ioredis@6.0.0", "redis@6.3.1"]);
    let mut program = Command::new("node");
    program.arg(programs().join("sentinel_failover.mjs"));
    over_a_failover(program.current_dir(&directory));
}

#[test]
#[ignore = "needs Go and its packages: cargo xtask test clients"]
fn go_redis_follows() {
    over_a_failover(&mut go_program("./failover"));
}

#[test]
#[ignore = "needs Maven and its packages: cargo xtask test clients"]
fn jedis_and_lettuce_follow() {
    over_a_failover(&mut java_program("Failover", ""));
}
