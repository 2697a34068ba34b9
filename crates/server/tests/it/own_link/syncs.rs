//! Tests of full syncs whose links break, and of what is kept of discarded data.

use testkit::relay::Relay;

use super::early::wait_until;
use super::*;

/// A primary with relays to its two ports. The clients' port announces the relay of links.
pub(super) struct Relayed {
    pub(super) primary: Node,
    pub(super) clients: Relay,
    pub(super) links: Relay,
}

impl Relayed {
    pub(super) fn new(args: &[&str]) -> Self {
        let primary = Node::new(args);
        let links = Relay::to(primary.link_port).unwrap();
        let clients = Relay::rewriting(primary.port, primary.link_port, links.port()).unwrap();
        Self {
            primary,
            clients,
            links,
        }
    }
}

#[test]
fn a_full_sync_goes_on_where_its_link_broke() {
    let relayed = Relayed::new(&["--rdbcompression", "no"]);
    relayed.primary.begin_term();
    let mut client = relayed.primary.client();
    for key in 0..8 {
        let value = format!("{key}abcdefg").repeat(65_536);
        let done = client.command(&["SET", &format!("long:{key}"), &value]);
        assert_eq!(done.unwrap(), Value::Simple(b"OK".to_vec()));
    }
    assert_eq!(run(&mut client, "SAVE"), Value::Simple(b"OK".to_vec()));
    let replica = Node::new(&[]);
    relayed.links.cut_after(1_500_000);
    replica.follow_at(relayed.clients.port());
    let patience = Patience::of(Duration::from_secs(60));
    while !replica.log().contains("The full sync goes on after") {
        assert!(patience.lasts(), "{}", replica.log());
        std::thread::sleep(Duration::from_millis(5));
        run(&mut client, "INCR meanwhile");
    }
    relayed.primary.wait_for_replica(&replica);
    // What the replica already had was not sent again.
    let bytes = relayed.links.passed();
    assert!(bytes < 5_500_000, "{bytes} bytes for 4 MiB");
    let log = relayed.primary.log();
    let given = log.matches("A replica is given checkpoint").count();
    // The other one was given to the first replica.
    assert_eq!(given, 2, "{log}");
}

/// Returns the first file of a node's log.
fn oldest(node: &Node) -> Option<String> {
    let files = std::fs::read_dir(node.directory.join("iolite-data/log")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".log")).min()
}

/// Writes and saves until the first file of a node's log is gone.
fn outgrow_log(node: &Node) {
    let mut client = node.client();
    let (before, patience) = (oldest(node), Patience::of(Duration::from_secs(60)));
    let mut round = 0;
    while oldest(node) == before {
        assert!(patience.lasts(), "{}", node.log());
        crate::recovery::fill(&mut client, round * 500..(round + 1) * 500);
        assert_eq!(run(&mut client, "SAVE"), Value::Simple(b"OK".to_vec()));
        round += 1;
    }
}

/// Regression test: the manifest of a full sync has all libraries of functions. From half a MiB of
/// these on it was too long for a message, and the replica began anew for ever.
#[test]
fn a_full_sync_has_libraries_of_more_than_a_message() {
    let (primary, mut replica) = (Node::new(&[]), Node::new(&[]));
    let mut client = primary.client();
    for library in ["first", "second"] {
        let source = format!(
            "#!lua name={library}\n-- {}\nredis.register_function('{library}', function() return 7 end)",
            "x".repeat(700 << 10)
        );
        let loaded = client.command(&["FUNCTION", "LOAD", &source]).unwrap();
        assert_eq!(loaded, Value::Bulk(library.into()));
    }
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    let knows = |replica: &Node| {
        let called = replica.client().command(&["FCALL_RO", "second", "0"]);
        format!("{:?}", called.unwrap())
    };
    assert!(knows(&replica).contains('7'));
    replica.come_back_as_replica_of(&primary);
    assert!(knows(&replica).contains('7'));
}

/// A deposed primary that keeps no log for replicas: what it discards is only in its checkpoint.
/// Regression test: this was not reported.
#[test]
fn what_a_full_sync_takes_away_that_no_log_has_is_told() {
    let (mut old, new) = two_primaries(&["--repl-log-keep", "1"], &[]);
    outgrow_log(&old);
    old.come_back_as_replica_of(&new);
    let log = old.log();
    assert!(
        log.contains("are not in the primary's history and are not kept"),
        "{log}"
    );
}

/// The log of the successor does not reach back to where the two histories part.
#[test]
fn what_a_full_sync_takes_away_is_kept_first() {
    let (mut old, new) = two_primaries(&[], &["--repl-log-keep", "1"]);
    for key in 0..7 {
        run(&mut old.client(), &format!("SET lost:{key} 1"));
    }
    outgrow_log(&new);
    old.come_back_as_replica_of(&new);
    assert!(old.log().contains("A full sync begins"), "{}", old.log());
    assert!(old.log().contains("7 writes of 7 keys"), "{}", old.log());
    let kept = old.directory.join("iolite-data/rewound-1");
    let checked = std::process::Command::new(testkit::process::iolite_program())
        .arg("check")
        .arg(&kept)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{text}");
}

/// The checkpoint of the deposed primary is from after the histories part. Regression test: the
/// node kept that twice, and reported it twice.
#[test]
fn what_is_given_up_is_told_once_where_no_checkpoint_is_from_before_it() {
    let (mut old, new) = two_primaries(&[], &[]);
    let mut client = old.client();
    for key in 0..7 {
        run(&mut client, &format!("SET lost:{key} 1"));
    }
    assert_eq!(run(&mut client, "SAVE"), Value::Simple(b"OK".to_vec()));
    old.come_back_as_replica_of(&new);
    let log = old.log();
    assert_eq!(log.matches("7 writes of 7 keys").count(), 1, "{log}");
    let kept = |number| old.directory.join(format!("iolite-data/rewound-{number}"));
    assert!(kept(1).is_dir() && !kept(2).exists());
}

/// Writes from before the first replica are in no term. Regression test: a replica that lost its
/// power or its link when it had only those writes was taken for a node with another history, and
/// refused.
#[test]
fn what_a_replica_is_given_is_of_a_term() {
    let (primary, replica) = (Node::new(&[]), Node::new(&[]));
    fill(&mut primary.client());
    let saved = run(&mut primary.client(), "SAVE");
    assert_eq!(saved, Value::Simple(b"OK".to_vec()));
    run(&mut primary.client(), "SET after 1");
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    let manifest = std::fs::read(replica.data.join("iolite-data/MANIFEST")).unwrap();
    let manifest = String::from_utf8(manifest).unwrap();
    assert!(manifest.contains("\nterm 1 "), "{manifest}");
}

/// Regression test: a checkpoint that was abandoned for a change of the office was taken for a
/// failed one, and writes were refused until the next checkpoint.
#[test]
fn who_takes_over_while_it_saves_takes_writes() {
    let (primary, replica) = (Node::new(&[]), Node::new(&["--save", "3600 1"]));
    crate::recovery::fill(&mut primary.client(), 0..20_000);
    let patience = Patience::of(Duration::from_secs(120));
    while !replica
        .log()
        .contains("Checkpoint failed: it was cancelled")
    {
        assert!(patience.lasts(), "{}", replica.log());
        replica.follow(&primary);
        primary.wait_for_replica(&replica);
        run(&mut replica.client(), "BGSAVE");
        run(&mut replica.client(), "REPLICAOF NO ONE");
        replica.wait_for("role", "master");
    }
    let set = run(&mut replica.client(), "SET taken 1");
    assert_eq!(set, Value::Simple(b"OK".to_vec()));
}

/// A start removes keys that have expired meanwhile, and serves clients. Regression test: these
/// writes came before the new term, in the previous term, where a replica that has more of that
/// term has other frames. The node could not be rewound then.
#[test]
fn nothing_stands_between_the_log_that_a_start_finds_and_its_term() {
    let mut primary = Node::new(&[]);
    primary.begin_term();
    for term in 2..6 {
        let mut client = primary.client();
        let keys = |key: usize| ["SET".to_owned(), format!("soon:{key}"), "1".to_owned()];
        let px = ["PX".to_owned(), "1000".to_owned()];
        let requests: Vec<Vec<String>> = (0..2_000)
            .map(|key| [&keys(key)[..], &px[..]].concat())
            .collect();
        client.pipeline(&requests).unwrap();
        primary.kill();
        std::thread::sleep(Duration::from_millis(1_100));
        primary.start(&[]);
        let patience = Patience::of(Duration::from_secs(60));
        while !primary.log().contains("of this log begins") {
            assert!(patience.lasts(), "{}", primary.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        let log = primary.log();
        let found = log.split("Log applied up to sequence ").nth(1).unwrap();
        let found = found.split(':').next().unwrap();
        let saved = run(&mut primary.client(), "SAVE");
        assert_eq!(saved, Value::Simple(b"OK".to_vec()));
        let manifest = std::fs::read(primary.data.join("iolite-data/MANIFEST")).unwrap();
        let manifest = String::from_utf8(manifest).unwrap();
        let begins = manifest.lines().find(|line| {
            line.starts_with(&format!("term {term} ")) && line.ends_with(&format!(" {found}"))
        });
        assert!(begins.is_some(), "{found}\n{manifest}");
    }
}

/// What was written meanwhile is in no log, and the replica's end also exists in the new log.
#[test]
fn what_was_written_without_a_log_reaches_a_replica_all_the_same() {
    let (primary, mut replica) = (Node::new(&[]), Node::new(&[]));
    let mut client = primary.client();
    fill(&mut client);
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    replica.kill();
    let ok = Value::Simple(b"OK".to_vec());
    assert_eq!(run(&mut client, "CONFIG SET durability none"), ok);
    wait_for_no_log(&primary);
    run(&mut client, "SET in-no-log 1");
    assert_eq!(run(&mut client, "CONFIG SET durability os"), ok);
    let of_primary = format!("127.0.0.1 {}", primary.port);
    replica.start(&["--replicaof", &of_primary]);
    primary.wait_for_replica(&replica);
    run(&mut client, "SET in-the-new-log 1");
    primary.wait_for_replica(&replica);

    // The same holds for a replica that stays connected.
    assert_eq!(run(&mut client, "CONFIG SET durability none"), ok);
    wait_for_no_log(&primary);
    run(&mut client, "SET while-it-stays 1");
    assert_eq!(run(&mut client, "CONFIG SET durability os"), ok);
    run(&mut client, "SET in-the-third-log 1");
    primary.wait_for_replica(&replica);
}

fn wait_for_no_log(node: &Node) {
    let patience = Patience::of(Duration::from_secs(60));
    loop {
        let info = run(&mut node.client(), "INFO persistence");
        let Value::Bulk(bytes) = info else {
            panic!("{info:?}")
        };
        if String::from_utf8_lossy(&bytes).contains("aof_enabled:0") {
            return;
        }
        assert!(patience.lasts(), "{}", node.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_replica_is_given_the_values_that_a_checkpoint_only_names() {
    let tier = ["--tier-path", ".", "--maxmemory", "100mb"];
    let primary = Node::new(&tier);
    let mut client = primary.client();
    let value = |number: u32| format!("{number:05}").repeat(300);
    for number in 0..500 {
        let key = format!("key:{number}");
        client.command(&["SET", &key, &value(number)]).unwrap();
        if number % 3 > 0 {
            let went = client.command(&["DEBUG", "DEMOTE", &key]).unwrap();
            assert_eq!(went, Value::Integer(1));
        }
    }
    run(&mut client, "SAVE");
    for replica in [Node::new(&tier), Node::new(&[])] {
        replica.follow(&primary);
        primary.wait_for_replica(&replica);
        let mut other = replica.client();
        for number in 0..500 {
            let found = other.command(&["GET", &format!("key:{number}")]).unwrap();
            assert_eq!(found, Value::Bulk(value(number).into_bytes()), "{number}");
        }
    }
    // The sent checkpoint contained all values. The next checkpoint names segments again.
    run(&mut client, "SAVE");
    let manifest = std::fs::read(primary.directory.join("iolite-data/MANIFEST")).unwrap();
    let manifest = String::from_utf8(manifest).unwrap();
    assert!(manifest.contains("\nsegment "), "{manifest}");
}

#[test]
fn a_full_sync_has_the_values_that_are_out_of_memory() {
    let cold = ["--tier-path", ".", "--tier-demote-at", "0"];
    let cold = [&cold[..], &["--tier-min-value", "1"]].concat();
    let primary = Node::new(&cold);
    let mut client = primary.client();
    fill(&mut client);
    for key in 0..500 {
        let value = format!("{key}").repeat(100);
        let done = client.command(&["SET", &format!("cold:{key}"), &value]);
        assert_eq!(done.unwrap(), Value::Simple(b"OK".to_vec()));
    }
    let tier = run(&mut client, "OBJECT TIER cold:1");
    assert_eq!(tier, Value::Bulk(b"ssd".to_vec()));
    // One replica keeps all values in memory, and one has the primary's settings.
    for args in [&[][..], &cold] {
        let mut replica = Node::new(args);
        replica.follow(&primary);
        primary.wait_for_replica(&replica);
        run(&mut client, "APPEND cold:1 more");
        assert_eq!(run(&mut client, "WAIT 1 60000"), Value::Integer(1));
        assert_eq!(primary.digest(), replica.digest());
        if !args.is_empty() {
            // A write from the link concerns a value that is cold here.
            let gone = run(&mut replica.client(), "DEBUG DEMOTE cold:1 cold:2");
            assert_eq!(gone, Value::Integer(2));
            run(&mut client, "APPEND cold:1 yet more");
            assert_eq!(run(&mut client, "WAIT 1 60000"), Value::Integer(1));
            assert_eq!(primary.digest(), replica.digest());
        }
        replica.kill();
        replica.start(&[]);
        assert_eq!(primary.digest(), replica.digest());
        replica.kill();
    }
}

/// The last step of a full sync fails, as on a full disk. The old log is not discarded, and a node
/// that then takes over has what is on disk, and a log to continue with.
#[test]
fn a_full_sync_that_cannot_be_put_in_force_leaves_a_node_that_can_take_over() {
    let primary = Node::new(&[]);
    run(&mut primary.client(), "SET theirs 1");
    let mut replica = Node::new(&[]);
    // The decision that the new checkpoint counts cannot be written.
    let decision = replica.directory.join("iolite-data/MANIFEST.sync");
    std::fs::create_dir(&decision).unwrap();
    replica.follow(&primary);
    wait_until(&replica, "it does not fail", || {
        replica.log().contains("The full sync failed")
    });
    assert_eq!(
        run(&mut replica.client(), "REPLICAOF NO ONE"),
        Value::Simple(b"OK".to_vec())
    );
    replica.wait_for("role", "master");
    let mut client = replica.client();
    // The received data is in no node's history, and is removed.
    wait_until(&replica, "it stays", || {
        run(&mut replica.client(), "GET theirs") == Value::Null
    });
    assert_eq!(
        run(&mut client, "SET own 1"),
        Value::Simple(b"OK".to_vec()),
        "{}",
        replica.log()
    );
    std::fs::remove_dir(&decision).unwrap();
    replica.kill();
    replica.start(&[]);
    assert_eq!(
        run(&mut replica.client(), "GET own"),
        Value::Bulk(b"1".to_vec())
    );
    let below = Node::new(&[]);
    below.follow(&replica);
    replica.wait_for_replica(&below);
}

/// The last step of a full sync was decided, and could not be done. It is done when there is space
/// again, with or without the primary.
#[test]
fn a_full_sync_that_was_decided_is_finished_when_that_can_be_done() {
    let mut primary = Node::new(&[]);
    run(&mut primary.client(), "SET theirs 1");
    let mut replica = Node::new(&[]);
    // The manifest cannot be replaced, but the decision to replace it can be written.
    let blocked = replica.directory.join("iolite-data/MANIFEST.new");
    std::fs::create_dir(&blocked).unwrap();
    replica.follow(&primary);
    wait_until(&replica, "it does not fail", || {
        replica.log().contains("The full sync failed")
    });
    primary.kill();
    std::fs::remove_dir(&blocked).unwrap();
    assert_eq!(
        run(&mut replica.client(), "REPLICAOF NO ONE"),
        Value::Simple(b"OK".to_vec())
    );
    wait_until(&replica, "it takes no write", || {
        run(&mut replica.client(), "SET own 1") == Value::Simple(b"OK".to_vec())
    });
    for is_again in [false, true] {
        for key in ["theirs", "own"] {
            let value = run(&mut replica.client(), &format!("GET {key}"));
            assert_eq!(value, Value::Bulk(b"1".to_vec()), "{}", replica.log());
        }
        if !is_again {
            replica.kill();
            replica.start(&[]);
        }
    }
    primary.come_back_as_replica_of(&replica);
}

/// A link breaks while the primary writes long values, and the replica takes over. Its data is what
/// its log says, including frames that it could no longer acknowledge.
#[test]
fn who_takes_over_has_all_that_its_log_has() {
    for round in 0..5 {
        let relayed = Relayed::new(&[]);
        let mut replica = Node::new(&[]);
        replica.follow_at(relayed.clients.port());
        replica.wait_for("master_link_status", "up");
        let mut client = relayed.primary.client();
        relayed.links.cut_after(1_000_000 + round * 50_000);
        for number in 0..40 {
            let (key, value) = (format!("key:{}", number % 3), number.to_string());
            let done = client.command(&["SET", &key, &value.repeat(50_000)]);
            assert_eq!(done.unwrap(), Value::Simple(b"OK".to_vec()));
        }
        assert_eq!(
            run(&mut replica.client(), "REPLICAOF NO ONE"),
            Value::Simple(b"OK".to_vec())
        );
        replica.wait_for("role", "master");
        run(&mut replica.client(), "SET own 1");
        let digest = replica.digest();
        replica.kill();
        replica.start(&[]);
        assert_eq!(replica.digest(), digest, "round {round}: {}", replica.log());
    }
}
