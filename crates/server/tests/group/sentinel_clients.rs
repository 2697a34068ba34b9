//! Tests of clients with Sentinel support, unmodified from their registries: they follow when
//! another node of a group is promoted.
//!
//! Each program has clients that write one key after another. It reports when it is ready, and is
//! notified when the primary has been lost. It continues to write with the client's own handling of
//! the loss. Finally it reads the confirmed writes from the primary and from a replica: at quorum
//! none of them may be lost.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use protocol::Value;
use testkit::process::free_port;

use crate::hand_over::three_at_quorum;
use crate::programs::{go_program, java_program, node_with, programs, python_with};
use crate::{Node, wait_until};

/// The password of clients at the ports of nodes and at the ports for Sentinels' clients.
const PASSWORD: &str = "secret";

/// The programs: redis-py; ioredis and node-redis; go-redis; Jedis and Lettuce.
fn all_programs() -> [Command; 4] {
    let mut python = Command::new(python_with(&["redis==8.1.0"]));
    python.arg(programs().join("sentinel_failover.py"));
    let mut node = Command::new("node");
    node.arg(programs().join("sentinel_failover.mjs"))
        .current_dir(node_with("sentinel", &["ioredis@6.0.0", "redis@6.3.1"]));
    [
        python,
        node,
        go_program("./failover"),
        java_program("Failover", ""),
    ]
}

/// A running program.
struct Running {
    name: String,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn new(mut program: Command, ports: &str) -> Self {
        program.env("PASSWORD", PASSWORD).env("PORTS", ports);
        let piped = program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let name = format!("{program:?}");
        Self {
            name,
            child,
            output,
        }
    }

    fn wait_until_ready(&mut self) {
        let mut line = String::new();
        // Maven prints colour codes before the word.
        while !line.ends_with("ready\n") {
            let count = self.output.read_line(&mut line).unwrap();
            let name = &self.name;
            assert!(count > 0, "{name}: {:?}, {line}", self.child.wait());
        }
    }

    /// Notifies the program that the primary was lost.
    fn tell(&mut self) {
        let mut input = self.child.stdin.take().unwrap();
        input.write_all(b"lost\n").unwrap();
    }

    /// Waits for its successful end, and returns its output.
    fn end(mut self, nodes: &[Node]) -> String {
        let mut said = String::new();
        self.output.read_to_string(&mut said).unwrap();
        let status = self.child.wait().unwrap();
        let logs = nodes.iter().map(Node::log).collect::<String>();
        assert!(status.success(), "{}: {status}\n{said}\n{logs}", self.name);
        said
    }
}

/// Runs the programs while the first node, the primary, is lost.
#[allow(clippy::print_stdout, reason = "figures for who reads the run")]
fn all_follow(lose: impl FnOnce(&mut [Node; 3])) {
    let commands = all_programs();
    let ports = [(); 3].map(|()| free_port().unwrap());
    let mut nodes = three_at_quorum(&ports);
    for node in &nodes {
        let set = node.run(&["CONFIG", "SET", "requirepass", PASSWORD]);
        assert_eq!(set, Value::Simple(b"OK".to_vec()));
    }
    let ports = ports.map(|port| port.to_string()).join(" ");
    let mut all = commands.map(|program| Running::new(program, &ports));
    all.iter_mut().for_each(Running::wait_until_ready);
    lose(&mut nodes);
    all.iter_mut().for_each(Running::tell);
    for program in all {
        println!("{}", program.end(&nodes));
    }
}

#[test]
#[ignore = "needs Python, Node, Go, Maven and packages: cargo xtask test clients"]
fn all_follow_when_the_primary_is_killed() {
    all_follow(|nodes| nodes[0].kill());
}

/// The former primary still runs, as a replica.
#[test]
#[ignore = "needs Python, Node, Go, Maven and packages: cargo xtask test clients"]
fn all_follow_when_the_primary_hands_over() {
    all_follow(|nodes| {
        let mut client = nodes[0].client();
        client.command(&["AUTH", PASSWORD]).unwrap();
        client.command(&["FAILOVER"]).unwrap();
        let all: Vec<&Node> = nodes.iter().collect();
        wait_until("handed over", &all, || {
            nodes[0].log().contains("This node is the primary no more")
        });
    });
}
