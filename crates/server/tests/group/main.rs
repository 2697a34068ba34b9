//! Tests of control groups of real processes: they form, fail over when the primary is killed, and
//! recover by themselves.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::io::ErrorKind;
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, TemporaryDirectory, free_port};

mod addresses;
mod announced;
mod bad_input;
#[cfg(feature = "tls")]
mod by_certificate;
#[cfg(feature = "tls")]
#[path = "../it/certificates.rs"]
mod certificates;
mod clusters;
mod failed_log;
mod failover;
mod faults;
mod forming;
mod full_disk;
mod hand_over;
mod histories;
mod kills;
mod log_copy;
mod meeting;
mod messages;
mod minority;
mod moves;
mod node_timeouts;
mod old_state;
mod page;
#[path = "../it/programs.rs"]
mod programs;
mod reads;
mod recovery;
mod redis_cli;
mod resets;
mod sentinel;
mod sentinel_clients;
mod shared;
mod shown;
mod six_nodes;
mod spare_replicas;
mod strangers;
mod users;
mod versions;
mod witness;

/// The secret that the nodes share.
const SECRET: &str = "a secret of the group";
/// Long enough that a busy machine causes no failure.
const WAIT: Duration = Duration::from_secs(90);
/// Maximum number of times that one request is retried because the node lost its office.
const TRIES_MAX: usize = 2;

/// A node whose files outlive its process.
pub(crate) struct Node {
    directory: TemporaryDirectory,
    port: u16,
    link_port: u16,
    /// The command that starts the node; empty if options start it.
    words: Vec<String>,
    args: Vec<String>,
    /// The drift of its clocks in parts per million, if the server is built with that feature.
    drift_ppm: Option<&'static str>,
    server: Option<Server>,
}

impl Node {
    pub(crate) fn new(args: &[&str]) -> Self {
        Self::started_by(&[], args)
    }

    /// Starts a node with `iolite cluster COMMAND`, as a member of the group of another node.
    pub(crate) fn by_command(command: &str, other: &Self, args: &[&str]) -> Self {
        let place = format!("127.0.0.1:{}@{}", other.port, other.link_port);
        Self::started_by(&["cluster", command, &place], args)
    }

    fn started_by(words: &[&str], args: &[&str]) -> Self {
        let mut node = Self::to_be_started(words, args);
        node.start();
        node
    }

    /// Returns a node that is not running, but has its directory.
    pub(crate) fn to_be_started(words: &[&str], args: &[&str]) -> Self {
        Self {
            directory: TemporaryDirectory::new("group").unwrap(),
            port: free_port().unwrap(),
            link_port: free_port().unwrap(),
            words: words.iter().map(|&word| word.to_owned()).collect(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            drift_ppm: None,
            server: None,
        }
    }

    /// Starts the first node of a group.
    pub(crate) fn first() -> Self {
        Self::new(&["--cluster-group", "yes"])
    }

    /// Starts another node of the group of `other`.
    pub(crate) fn joining(other: &Self, more: &[&str]) -> Self {
        let place = format!("127.0.0.1:{}@{}", other.port, other.link_port);
        let mut args = vec!["--join", &place];
        args.extend(more);
        Self::new(&args)
    }

    pub(crate) fn start(&mut self) {
        self.try_start().unwrap();
    }

    /// Starts the node. The error contains its log.
    pub(crate) fn try_start(&mut self) -> std::io::Result<()> {
        let directory = self.directory.join("");
        let (port, link_port) = (self.port.to_string(), self.link_port.to_string());
        let mut builder = ServerBuilder::iolite().words(&self.words);
        if let Some(ppm) = self.drift_ppm {
            builder = builder.variable("PLANTED_CLOCK_PPM", ppm);
        }
        let builder = builder.args(&[
            "--dir",
            directory.to_str().unwrap(),
            "--port",
            &port,
            "--repl-port",
            &link_port,
            "--cluster-secret",
            SECRET,
            "--threads",
            "1",
            "--enable-debug-command",
            "yes",
        ]);
        self.server = Some(builder.args(&self.args).start()?);
        Ok(())
    }

    /// Kills the process as kill -9 does.
    pub(crate) fn kill(&mut self) {
        self.server = None;
    }

    /// Shuts the server down (SIGTERM), waits for its end, and returns its log.
    pub(crate) fn stop(&mut self) -> String {
        self.signal("-TERM");
        let mut server = self.server.take().unwrap();
        let patience = Patience::of(WAIT);
        while server.is_running().unwrap() {
            assert!(patience.lasts(), "it does not stop\n{}", server.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        server.log()
    }

    /// Returns the address of its clients' port, as the group names it.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Sends the process a signal: `-STOP` pauses it, `-CONT` continues it.
    pub(crate) fn signal(&self, name: &str) {
        self.server.as_ref().unwrap().signal(name);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.server.is_some()
    }

    pub(crate) fn client(&self) -> Client {
        self.server.as_ref().unwrap().client().unwrap()
    }

    /// Returns the reply to a request. If the connection ends first because the node lost its
    /// office, the request is sent again.
    pub(crate) fn run(&self, words: &[&str]) -> Value {
        let mut tries = 0;
        loop {
            match self.client().command(words) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof && tries < TRIES_MAX => {
                    tries += 1;
                }
                told => return told.unwrap(),
            }
        }
    }

    pub(crate) fn log(&self) -> String {
        self.server.as_ref().map_or_else(String::new, Server::log)
    }

    pub(crate) fn field(&self, name: &str) -> String {
        let info = self.run(&["INFO", "replication"]);
        let Value::Bulk(bytes) = info else {
            panic!("INFO was answered {info:?}");
        };
        let text = String::from_utf8(bytes).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_default().to_owned()
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.field("role") == "master"
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.field("role") == "slave" && self.field("master_link_status") == "up"
    }
}

/// Waits until a condition is true.
pub(crate) fn wait_until(what: &str, nodes: &[&Node], mut is_so: impl FnMut() -> bool) {
    let patience = Patience::of(WAIT);
    while !is_so() {
        if !patience.lasts() {
            let logs: Vec<String> = nodes.iter().map(|node| node.log()).collect();
            panic!("not {what}\n{}", logs.join("\n======\n"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Writes a key. Returns whether the write was taken.
pub(crate) fn writes(node: &Node, key: &str) -> bool {
    sets(node, key, "1")
}

/// As [`writes`], with a value.
pub(crate) fn sets(node: &Node, key: &str, value: &str) -> bool {
    let written = node.client().command(&["SET", key, value]);
    written.is_ok_and(|reply| reply == Value::Simple(b"OK".to_vec()))
}

pub(crate) fn has(node: &Node, key: &str) -> bool {
    node.run(&["EXISTS", key]) == Value::Integer(1)
}

fn count_in_logs(nodes: &[&Node], what: &str) -> usize {
    let logs = nodes.iter().map(|node| node.log());
    logs.map(|log| log.matches(what).count()).sum()
}

/// Returns how many changes of the set of data copies have ended.
pub(crate) fn changes_ended(nodes: &[&Node]) -> usize {
    count_in_logs(nodes, "ends a change of who has a copy")
}

/// Waits until the group counts a copy of the data at each of these nodes, of which the first began
/// alone. Before that, a write at quorum may need a copy that is about to be lost. The current
/// leader logs it.
pub(crate) fn wait_for_copies(nodes: &[&Node]) {
    wait_until("a copy each", nodes, || {
        // A copy that follows an even number is counted at once; one that follows an odd number is
        // counted when that change has ended.
        count_in_logs(nodes, "gives node ") + 1 >= nodes.len()
            && changes_ended(nodes) >= nodes.len() / 2
    });
}

/// Starts three nodes, the first of which is the primary. The others have its data.
pub(crate) fn three() -> [Node; 3] {
    three_with(&[])
}

/// As [`three`], with additional server arguments.
pub(crate) fn three_with(more: &[&str]) -> [Node; 3] {
    joined_by_two(
        Node::new(&[&["--cluster-group", "yes"], more].concat()),
        more,
    )
}

/// As [`three_with`], with a first node that has already formed a group.
pub(crate) fn joined_by_two(first: Node, more: &[&str]) -> [Node; 3] {
    let [second, third] = [Node::joining(&first, more), Node::joining(&first, more)];
    joined([first, second, third])
}

/// Waits until three nodes that were started as one group are complete.
pub(crate) fn joined(nodes: [Node; 3]) -> [Node; 3] {
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("three voters", &all, || {
        nodes[0].field("control_voters") == "3"
    });
    wait_until("two replicas", &all, || {
        nodes[1..].iter().all(Node::is_synced)
    });
    wait_for_copies(&all);
    nodes
}
