//! Tests of replication over the own link, between built servers: what a replica has, keeps, and
//! discards.

use std::path::PathBuf;
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, TemporaryDirectory, free_port};

use crate::recovery::run;

mod early;
mod failover;
mod faults;
mod messages;
mod random_faults;
mod redis_beside;
mod syncs;
mod verify;

/// A node whose data survives its process.
struct Node {
    directory: TemporaryDirectory,
    /// The directory of its data: `directory`, unless a test says otherwise.
    data: PathBuf,
    port: u16,
    /// The port of its own links.
    link_port: u16,
    args: Vec<String>,
    server: Option<Server>,
}

impl Node {
    fn new(args: &[&str]) -> Self {
        let mut node = Self::new_stopped(None, args);
        node.start(&[]);
        node
    }

    /// Returns a node that does not run yet, with its data in an existing directory or in one of
    /// its own.
    fn new_stopped(data: Option<PathBuf>, args: &[&str]) -> Self {
        let directory = TemporaryDirectory::new("own-link").unwrap();
        Self {
            data: data.unwrap_or_else(|| directory.to_path_buf()),
            directory,
            port: free_port().unwrap(),
            link_port: free_port().unwrap(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            server: None,
        }
    }

    fn start(&mut self, more: &[&str]) {
        let directory = self.data.join("");
        let port = self.port.to_string();
        let link_port = self.link_port.to_string();
        let builder = ServerBuilder::iolite().args(&[
            "--dir",
            directory.to_str().unwrap(),
            "--port",
            &port,
            "--repl-port",
            &link_port,
            "--durability",
            "os",
            "--log-segment-size",
            "64kb",
            "--enable-debug-command",
            "yes",
        ]);
        self.server = Some(builder.args(&self.args).args(more).start().unwrap());
    }

    /// Kills the process as a crash does.
    fn kill(&mut self) {
        self.server = None;
    }

    /// Sends the process a signal: `-STOP` pauses it, `-CONT` continues it.
    fn signal(&self, name: &str) {
        self.server.as_ref().unwrap().signal(name);
    }

    fn client(&self) -> Client {
        self.server.as_ref().unwrap().client().unwrap()
    }

    fn log(&self) -> String {
        self.server.as_ref().unwrap().log()
    }

    /// Returns the section `replication` of INFO.
    fn info(&self) -> String {
        let info = run(&mut self.client(), "INFO replication");
        let Value::Bulk(bytes) = info else {
            panic!("{info:?}")
        };
        String::from_utf8(bytes).unwrap()
    }

    fn field(&self, name: &str) -> String {
        let text = self.info();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_default().to_owned()
    }

    fn follow(&self, primary: &Self) {
        self.follow_at(primary.port);
    }

    fn follow_at(&self, port: u16) {
        let port = port.to_string();
        let done = self.client().command(&["REPLICAOF", "127.0.0.1", &port]);
        assert_eq!(done.unwrap(), Value::Simple(b"OK".to_vec()));
    }

    fn wait_for(&self, name: &str, value: &str) {
        let patience = Patience::of(Duration::from_secs(60));
        while self.field(name) != value {
            assert!(
                patience.lasts(),
                "{name} is {}\n{}",
                self.field(name),
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the number of bytes of the log's files.
    fn log_bytes(&self) -> u64 {
        let files = std::fs::read_dir(self.directory.join("iolite-data/log")).unwrap();
        let files = files.map(|file| file.unwrap());
        let is_segment = |file: &std::fs::DirEntry| file.path().extension() == Some("log".as_ref());
        let sizes = files
            .filter(is_segment)
            .map(|file| file.metadata().unwrap().len());
        sizes.sum()
    }

    fn digest(&self) -> Value {
        run(&mut self.client(), "DEBUG DIGEST")
    }

    /// Attaches a replica and removes it: then the log has a term, and later checkpoints are ones
    /// that replicas are given.
    fn begin_term(&self) {
        let first = Self::new(&[]);
        first.follow(self);
        self.wait_for_replica(&first);
    }

    /// Kills this node, starts it as a replica, and waits until it has what its primary has.
    fn come_back_as_replica_of(&mut self, primary: &Self) {
        self.kill();
        self.start(&["--replicaof", &format!("127.0.0.1 {}", primary.port)]);
        primary.wait_for_replica(self);
    }

    /// Waits until a replica has what this node has.
    fn wait_for_replica(&self, replica: &Self) {
        replica.wait_for("master_link_status", "up");
        let patience = Patience::of(Duration::from_secs(60));
        while self.digest() != replica.digest() {
            assert!(patience.lasts(), "they differ\n{}", replica.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Node {
    /// Returns whether every connected replica is online.
    fn has_all_online(&self) -> bool {
        let count: usize = self.field("connected_slaves").parse().unwrap();
        (0..count).all(|at| {
            self.field(&format!("slave{at}"))
                .contains("iolite_state=online")
        })
    }

    /// Compares this node with its replicas, all of which must answer. Returns how many hold the
    /// same data, and how many do not.
    fn compare(&self) -> (usize, usize) {
        let patience = Patience::of(Duration::from_secs(60));
        loop {
            // A replica that has everything may not be known to be online yet, and then it is not
            // asked.
            let begun = match self.has_all_online() {
                true => run(&mut self.client(), "REPLICATION VERIFY"),
                false => Value::Null,
            };
            if begun == Value::Simple(b"OK".to_vec()) {
                self.wait_for("iolite_verify_in_progress", "0");
                let count = |name| self.field(name).parse::<usize>().unwrap();
                if count("iolite_verify_unknown") == 0 {
                    return (
                        count("iolite_verify_same"),
                        count("iolite_verify_different"),
                    );
                }
            }
            assert!(patience.lasts(), "{begun:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

const ALL_TYPES: &[&str] = &[
    "SET string value",
    "SET due later EX 1000",
    "RPUSH list a b c",
    "HSET hash f v g w",
    "SADD set a b 1",
    "ZADD sorted 1 a 2.5 b",
    "XADD stream 1-1 f v",
    "PFADD counted a b c",
    "SETBIT bits 100 1",
];

fn fill(client: &mut Client) {
    for line in ALL_TYPES {
        assert!(!matches!(run(client, line), Value::Error(_)), "{line}");
    }
    run(client, "SELECT 3");
    run(client, "SET elsewhere 3");
    run(client, "SELECT 0");
}

#[test]
fn a_replica_has_all_that_was_there_and_all_that_comes() {
    let (primary, replica) = (Node::new(&[]), Node::new(&[]));
    let mut client = primary.client();
    fill(&mut client);
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    let shown = primary.field("slave0");
    assert!(shown.contains(",link=own,"), "{shown}");
    // Tools compare the same field at both nodes.
    let end = primary.field("master_repl_offset");
    assert_eq!(replica.field("master_repl_offset"), end);
    for line in [
        "MULTI",
        "SET one 1",
        "SELECT 2",
        "SET two 2",
        "EXEC",
        "FLUSHDB",
        "SELECT 0",
        "APPEND string s",
    ] {
        assert!(!matches!(run(&mut client, line), Value::Error(_)), "{line}");
    }
    assert_eq!(run(&mut client, "WAIT 1 10000"), Value::Integer(1));
    assert_eq!(primary.digest(), replica.digest());
    let refused = run(&mut replica.client(), "SET x 1");
    assert!(matches!(refused, Value::Error(text) if text.starts_with(b"READONLY")));
}

/// A write that is synced a second later is reported then, even if nothing else is written.
#[test]
fn a_replica_that_syncs_later_says_so() {
    let primary = Node::new(&[]);
    let replica = Node::new(&["--durability", "everysec"]);
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    let mut client = primary.client();
    for _ in 0..3 {
        run(&mut client, "INCR counter");
        let copies = run(&mut client, "WAITAOF 0 1 60000");
        let Value::Array(copies) = copies else {
            panic!("{copies:?}");
        };
        assert_eq!(copies[1], Value::Integer(1));
    }
}

#[test]
fn who_comes_back_goes_on_without_a_full_sync() {
    let (mut primary, mut replica) = (Node::new(&[]), Node::new(&[]));
    fill(&mut primary.client());
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    let follows = primary.port.to_string();
    for round in 0..3 {
        replica.kill();
        run(&mut primary.client(), &format!("SET while-away {round}"));
        replica.start(&["--replicaof", &format!("127.0.0.1 {follows}")]);
        primary.wait_for_replica(&replica);
        assert!(
            !replica.log().contains("A full sync begins"),
            "{}",
            replica.log()
        );
        primary.kill();
        primary.start(&[]);
        run(&mut primary.client(), &format!("SET after-start {round}"));
        primary.wait_for_replica(&replica);
        assert!(
            !replica.log().contains("A full sync begins"),
            "{}",
            replica.log()
        );
    }
}

/// Redis 7.0 would copy the primary's empty data.
#[test]
fn an_empty_primary_wipes_no_replica() {
    let (mut primary, replica) = (Node::new(&[]), Node::new(&[]));
    fill(&mut primary.client());
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    let before = replica.digest();
    primary.kill();
    std::fs::remove_dir_all(primary.directory.join("iolite-data")).unwrap();
    primary.start(&[]);
    replica.wait_for("iolite_state", "refused");
    assert_eq!(replica.digest(), before);
    assert!(
        replica
            .field("master_link_refused_reason")
            .contains("empty")
    );
}

/// Starts a primary, and a replica that takes over without asking it: both hold an office, and have
/// the same data so far.
fn two_primaries(old: &[&str], new: &[&str]) -> (Node, Node) {
    let (old, new) = (Node::new(old), Node::new(new));
    fill(&mut old.client());
    new.follow(&old);
    old.wait_for_replica(&new);
    run(&mut new.client(), "REPLICAOF NO ONE");
    new.wait_for("role", "master");
    (old, new)
}

#[test]
fn a_deposed_primary_keeps_what_its_successor_has_not() {
    let (mut old, new) = two_primaries(&[], &[]);
    // From now on, only the old primary has what is written to it.
    for key in 0..10 {
        run(&mut old.client(), &format!("SET lost:{key} 1"));
    }
    run(&mut new.client(), "SET kept 1");
    old.come_back_as_replica_of(&new);
    assert_eq!(run(&mut old.client(), "EXISTS lost:0"), Value::Integer(0));
    assert!(old.log().contains("10 writes of 10 keys"), "{}", old.log());
    assert!(old.directory.join("iolite-data/rewound-1").is_dir());
}

#[test]
fn a_replica_serves_replicas_of_its_own() {
    let (primary, middle, last) = (Node::new(&[]), Node::new(&[]), Node::new(&[]));
    fill(&mut primary.client());
    middle.follow(&primary);
    primary.wait_for_replica(&middle);
    last.follow(&middle);
    primary.wait_for_replica(&last);
    run(&mut primary.client(), "SET through both");
    primary.wait_for_replica(&last);
}

/// Regression test: a replica forgot this when the link ended, and continued from the end of its
/// log without what it could not apply.
#[test]
fn who_could_not_apply_something_asks_for_everything_however_often_it_comes_back() {
    let mut primary = Node::new(&[]);
    let replica = Node::new(&["--databases", "2"]);
    run(&mut primary.client(), "SET here 1");
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    let mut client = primary.client();
    run(&mut client, "SELECT 3");
    run(&mut client, "SET elsewhere 1");
    let asks = "A full sync is asked for";
    let patience = Patience::of(Duration::from_secs(60));
    while !replica.log().contains(asks) {
        assert!(patience.lasts(), "{}", replica.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    replica.wait_for("master_link_status", "down");
    // The replica follows again from the start, because the primary's links are at another port
    // then.
    primary.kill();
    primary.start(&[]);
    let mut client = primary.client();
    let patience = Patience::of(Duration::from_secs(60));
    while primary
        .log()
        .matches("A replica is given checkpoint")
        .count()
        < 2
    {
        assert!(patience.lasts(), "{}", primary.log());
        assert_ne!(replica.field("master_link_status"), "up");
        std::thread::sleep(Duration::from_millis(20));
    }
    run(&mut client, "SELECT 3");
    run(&mut client, "DEL elsewhere");
    run(&mut client, "SELECT 0");
    run(&mut client, "SET here 2");
    // The checkpoint in force, or the log after it, contains what the replica cannot hold.
    run(&mut client, "BGREWRITEAOF");
    primary.wait_for_replica(&replica);
}

/// The nodes use keys that each makes for itself. In a test there is no other machine, so
/// encryption is requested.
#[test]
fn links_are_encrypted_where_one_end_asks_for_it() {
    let secret = ["--cluster-secret", "one"];
    let primary = Node::new(&secret);
    let replica = Node::new(&[&secret[..], &["--repl-tls", "yes"]].concat());
    fill(&mut primary.client());
    crate::recovery::fill(&mut primary.client(), 0..2_000);
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    crate::recovery::fill(&mut primary.client(), 2_000..3_000);
    primary.wait_for_replica(&replica);
    let log = replica.log();
    assert!(
        log.contains("The link to the primary is encrypted"),
        "{log}"
    );
}

/// Without a secret, every node with a certificate of the authority is accepted.
#[test]
fn certificates_let_nodes_in_and_nobody_else() {
    let files = crate::certificates::Files::new();
    let (certificate, key, authority) = (
        files.text("server.crt"),
        files.text("server.key"),
        files.text("ca.crt"),
    );
    let by_certificate = [
        "--tls-replication",
        "yes",
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &authority,
    ];
    let tls_port = free_port().unwrap();
    let with_port = [&by_certificate[..], &["--tls-port", &tls_port.to_string()]];
    let primary = Node::new(&with_port.concat());
    fill(&mut primary.client());
    let replica = Node::new(&by_certificate);
    replica.follow_at(tls_port);
    primary.wait_for_replica(&replica);
    assert!(
        replica
            .log()
            .contains("The link to the primary is encrypted")
    );
    assert!(primary.field("slave0").contains(",link=own,"));
    let without = Node::new(&[]);
    without.follow(&primary);
    let patience = Patience::of(Duration::from_secs(60));
    while !without.log().contains("one end shows certificates") {
        assert!(patience.lasts(), "{}", without.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(run(&mut without.client(), "DBSIZE"), Value::Integer(0));
}

#[test]
fn who_does_not_know_the_secret_gets_nothing_and_keeps_what_he_has() {
    let primary = Node::new(&["--cluster-secret", "one"]);
    let replica = Node::new(&["--cluster-secret", "other"]);
    fill(&mut primary.client());
    run(&mut replica.client(), "SET own 1");
    replica.follow(&primary);
    let patience = Patience::of(Duration::from_secs(60));
    while !primary
        .log()
        .contains("was refused: the peer does not know the secret")
    {
        assert!(patience.lasts(), "{}", primary.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(
        run(&mut replica.client(), "GET own"),
        Value::Bulk(b"1".to_vec())
    );
    assert_eq!(run(&mut replica.client(), "DBSIZE"), Value::Integer(1));
    assert_ne!(primary.field("iolite_links_refused"), "0");
    assert_eq!(primary.field("connected_slaves"), "0");
}

#[test]
fn what_is_written_while_a_replica_is_given_everything_comes_too() {
    let (primary, mut replica) = (Node::new(&[]), Node::new(&[]));
    let mut client = primary.client();
    crate::recovery::fill(&mut client, 0..1_000);
    replica.follow(&primary);
    let patience = Patience::of(Duration::from_secs(60));
    let mut round = 0;
    while replica.field("master_link_status") != "up" {
        assert!(patience.lasts(), "{}", replica.log());
        run(&mut client, &format!("SET while:{round} 1"));
        run(&mut client, &format!("APPEND key:{} more", round % 1_000));
        run(&mut client, &format!("DEL key:{}", 999 - round % 1_000));
        round += 1;
    }
    primary.wait_for_replica(&replica);
    // The received data is on the replica's own disk.
    replica.kill();
    let of_primary = format!("127.0.0.1 {}", primary.port);
    replica.start(&["--replicaof", &of_primary]);
    primary.wait_for_replica(&replica);
    let log = replica.log();
    assert!(!log.contains("A full sync begins"), "{log}");
}

#[test]
fn who_comes_back_goes_on_as_long_as_the_log_is_kept_for_it_and_is_given_everything_later() {
    let (primary, mut replica) = (Node::new(&[]), Node::new(&[]));
    let mut client = primary.client();
    fill(&mut client);
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    let of_primary = format!("127.0.0.1 {}", primary.port);
    let ok = Value::Simple(b"OK".to_vec());
    replica.kill();
    crate::recovery::fill(&mut client, 0..500);
    assert_eq!(run(&mut client, "SAVE"), ok);
    replica.start(&["--replicaof", &of_primary]);
    primary.wait_for_replica(&replica);
    let log = replica.log();
    assert!(!log.contains("A full sync begins"), "{log}");

    replica.kill();
    assert_eq!(run(&mut client, "CONFIG SET repl-log-keep 1"), ok);
    crate::recovery::fill(&mut client, 500..1_000);
    run(&mut client, "DEL list");
    assert_eq!(run(&mut client, "SAVE"), ok);
    let patience = Patience::of(Duration::from_secs(60));
    loop {
        assert!(patience.lasts(), "{}", primary.log());
        replica.start(&["--replicaof", &of_primary]);
        primary.wait_for_replica(&replica);
        if replica.log().contains("A full sync begins") {
            break;
        }
        // The log was still long enough.
        replica.kill();
        crate::recovery::fill(&mut client, 0..500);
        assert_eq!(run(&mut client, "SAVE"), ok);
    }
    run(&mut client, "SET afterwards 1");
    primary.wait_for_replica(&replica);
}

#[test]
fn who_took_over_keeps_what_it_was_given_and_what_it_took() {
    let (mut old, mut new) = (Node::new(&[]), Node::new(&[]));
    fill(&mut old.client());
    new.follow(&old);
    old.wait_for_replica(&new);
    run(&mut old.client(), "SET last words");
    old.wait_for_replica(&new);
    old.kill();
    run(&mut new.client(), "REPLICAOF NO ONE");
    for reign in 0..3 {
        let mut client = new.client();
        assert_eq!(
            run(&mut client, &format!("SET reign:{reign} 1")),
            Value::Simple(b"OK".to_vec())
        );
        let before = new.digest();
        new.kill();
        new.start(&[]);
        assert_eq!(new.digest(), before);
    }
    // Its predecessor has less of the same history, and continues from there.
    let of_new = format!("127.0.0.1 {}", new.port);
    old.start(&["--replicaof", &of_new]);
    new.wait_for_replica(&old);
}

/// Regression test: the node continued in the term of its primary, whose own writes were then at
/// the same positions, and it answered no replica.
#[test]
fn who_takes_over_from_a_primary_that_it_never_met_begins_a_term() {
    let (mut old, mut new) = (Node::new(&[]), Node::new(&[]));
    fill(&mut old.client());
    new.follow(&old);
    old.wait_for_replica(&new);
    new.kill();
    run(&mut old.client(), "SET lost 1");
    old.kill();
    new.start(&["--replicaof", &format!("127.0.0.1 {}", old.port)]);
    run(&mut new.client(), "REPLICAOF NO ONE");
    new.wait_for("role", "master");
    let kept = run(&mut new.client(), "SET kept 1");
    assert_eq!(kept, Value::Simple(b"OK".to_vec()));
    assert!(new.log().contains("Term 2 of this log begins"));
    old.start(&["--replicaof", &format!("127.0.0.1 {}", new.port)]);
    new.wait_for_replica(&old);
    assert!(old.log().contains("1 writes of 1 keys"), "{}", old.log());
    assert_eq!(run(&mut old.client(), "EXISTS kept"), Value::Integer(1));
}

/// Regression test: each server counts its own generations, so writes of a successor that saved
/// less often were taken to be older than the earlier checkpoint.
#[test]
fn what_a_successor_wrote_counts_whatever_was_saved_before_it() {
    let (mut old, new) = (Node::new(&[]), Node::new(&[]));
    fill(&mut old.client());
    new.follow(&old);
    old.wait_for_replica(&new);
    for _ in 0..4 {
        assert_eq!(
            run(&mut old.client(), "SAVE"),
            Value::Simple(b"OK".to_vec())
        );
    }
    old.kill();
    run(&mut new.client(), "REPLICAOF NO ONE");
    new.wait_for("role", "master");
    run(&mut new.client(), "SET of-successor 1");
    let of_new = format!("127.0.0.1 {}", new.port);
    old.start(&["--replicaof", &of_new]);
    new.wait_for_replica(&old);
    let before = old.digest();
    assert_eq!(
        run(&mut old.client(), "EXISTS of-successor"),
        Value::Integer(1)
    );
    // Once more, after recovery from its disk.
    old.kill();
    old.start(&[]);
    assert_eq!(old.digest(), before);
}

#[test]
fn a_replica_saves_and_goes_on_from_that() {
    let primary = Node::new(&[]);
    let mut replica = Node::new(&[]);
    let mut client = primary.client();
    fill(&mut client);
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    let of_primary = format!("127.0.0.1 {}", primary.port);
    for round in 0..3 {
        crate::recovery::fill(&mut client, round * 300..(round + 1) * 300);
        run(&mut client, "APPEND string s");
        primary.wait_for_replica(&replica);
        let before = replica.log_bytes();
        assert_eq!(
            run(&mut replica.client(), "SAVE"),
            Value::Simple(b"OK".to_vec())
        );
        let patience = Patience::of(Duration::from_secs(60));
        while replica.log_bytes() >= before {
            assert!(patience.lasts(), "{before} bytes of log stay");
            std::thread::sleep(Duration::from_millis(20));
        }
        run(&mut client, "APPEND string t");
        replica.kill();
        run(&mut client, "INCR counter");
        replica.start(&["--replicaof", &of_primary]);
        primary.wait_for_replica(&replica);
        let log = replica.log();
        assert!(!log.contains("A full sync begins"), "{log}");
    }
    // Writes of its own after that count as well.
    run(&mut replica.client(), "REPLICAOF NO ONE");
    replica.wait_for("role", "master");
    run(&mut replica.client(), "APPEND string u");
    let before = replica.digest();
    replica.kill();
    replica.start(&[]);
    assert_eq!(replica.digest(), before);
}
