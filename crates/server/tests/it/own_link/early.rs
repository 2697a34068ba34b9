//! Tests of full syncs that are loaded while they are received: no client sees half of one,
//! whichever node dies midway.

use super::syncs::Relayed;
use super::*;

/// Number of the four megabytes' bytes that pass.
const PART_BYTES: u64 = 1_500_000;

/// Starts a primary with eight long keys in its checkpoint.
fn primary() -> Relayed {
    let relayed = Relayed::new(&["--rdbcompression", "no"]);
    relayed.primary.begin_term();
    let mut client = relayed.primary.client();
    for key in 0..8 {
        let value = format!("{key}abcdefg").repeat(65_536);
        let done = client.command(&["SET", &format!("long:{key}"), &value]);
        assert_eq!(done.unwrap(), Value::Simple(b"OK".to_vec()));
    }
    assert_eq!(run(&mut client, "SAVE"), Value::Simple(b"OK".to_vec()));
    relayed
}

fn persistence_field(node: &Node, name: &str) -> u64 {
    let info = run(&mut node.client(), "INFO persistence");
    let Value::Bulk(bytes) = info else {
        panic!("{info:?}")
    };
    let text = String::from_utf8(bytes).unwrap();
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap().parse().unwrap()
}

pub(super) fn wait_until(node: &Node, what: &str, is_so: impl Fn() -> bool) {
    let patience = Patience::of(Duration::from_secs(60));
    while !is_so() {
        assert!(patience.lasts(), "{what}\n{}", node.log());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Makes a replica follow, and stops the transfer midway.
fn follow_to_the_middle(relayed: &Relayed, replica: &Node) {
    relayed.links.hold_after(PART_BYTES);
    replica.follow_at(relayed.clients.port());
    wait_until(replica, "nothing is held", || relayed.links.holds());
}

fn wait_for_some_data(replica: &Node) {
    wait_until(replica, "nothing is loaded", || {
        persistence_field(replica, "loading_loaded_bytes") > 0
    });
}

fn is_loading(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with(b"LOADING"))
}

#[test]
fn of_a_full_sync_whose_primary_dies_nothing_is_seen_and_nothing_is_left() {
    let mut relayed = primary();
    let replica = Node::new(&[]);
    follow_to_the_middle(&relayed, &replica);
    wait_for_some_data(&replica);
    let mut client = replica.client();
    assert!(is_loading(&run(&mut client, "GET long:0")));
    assert!(is_loading(&run(&mut client, "EXISTS long:0 long:1 long:2")));
    relayed.primary.kill();
    relayed.links.cut();
    relayed.links.hold(false);
    wait_until(&replica, "it waits for a primary that is no more", || {
        persistence_field(&replica, "loading") == 0
    });
    assert_eq!(run(&mut client, "DBSIZE"), Value::Integer(0));
    assert_eq!(run(&mut client, "GET long:0"), Value::Null);

    // Another primary has other data, and afterwards the replica has only that data.
    let other = Node::new(&[]);
    fill(&mut other.client());
    replica.follow(&other);
    other.wait_for_replica(&replica);
    assert_eq!(run(&mut client, "EXISTS long:0"), Value::Integer(0));
    assert_eq!(other.compare(), (1, 0));
}

#[test]
fn a_primary_that_comes_back_gives_everything_to_who_had_half_of_it() {
    let mut relayed = primary();
    let replica = Node::new(&[]);
    follow_to_the_middle(&relayed, &replica);
    wait_for_some_data(&replica);
    relayed.primary.kill();
    relayed.links.cut();
    relayed.links.hold(false);
    relayed.primary.start(&[]);
    run(&mut relayed.primary.client(), "SET after-the-start 1");
    relayed.primary.wait_for_replica(&replica);
    assert_eq!(relayed.primary.compare(), (1, 0));
}

#[test]
fn a_replica_that_dies_in_a_full_sync_starts_with_nothing_of_it() {
    let relayed = primary();
    let mut replica = Node::new(&[]);
    follow_to_the_middle(&relayed, &replica);
    wait_for_some_data(&replica);
    replica.kill();
    replica.start(&[]);
    assert_eq!(run(&mut replica.client(), "DBSIZE"), Value::Integer(0));
    relayed.links.cut();
    relayed.links.hold(false);
    replica.follow_at(relayed.clients.port());
    relayed.primary.wait_for_replica(&replica);
    assert_eq!(relayed.primary.compare(), (1, 0));
    replica.kill();
    replica.start(&[]);
    assert_eq!(relayed.primary.digest(), replica.digest());
}

/// Returns the part file of the checkpoint in force, of a server that has one.
fn part_of(node: &Node) -> PathBuf {
    let kept = node.directory.join("iolite-data");
    let names = std::fs::read_dir(kept).unwrap();
    let mut paths = names.map(|entry| entry.unwrap().path().join("0000.part"));
    paths.find(|path| path.exists()).unwrap()
}

#[test]
fn a_damaged_part_shows_nothing_and_the_next_checkpoint_heals_it() {
    let relayed = primary();
    let part = part_of(&relayed.primary);
    let mut bytes = std::fs::read(&part).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    let replica = Node::new(&[]);
    replica.follow_at(relayed.clients.port());
    wait_until(&replica, "nothing failed", || {
        replica.log().contains("The full sync failed")
    });
    assert!(replica.log().contains("0000.part"), "{}", replica.log());
    // The full sync is retried: the replica either loads, or has nothing.
    for _ in 0..20 {
        let found = run(&mut replica.client(), "GET long:0");
        assert!(is_loading(&found) || found == Value::Null, "{found:?}");
    }
    let mut client = relayed.primary.client();
    assert_eq!(run(&mut client, "SAVE"), Value::Simple(b"OK".to_vec()));
    relayed.primary.wait_for_replica(&replica);
    assert_eq!(relayed.primary.compare(), (1, 0));
}

#[test]
fn who_has_data_serves_it_until_all_is_there_unless_told_otherwise() {
    for (how, serves) in [("disabled", true), ("flush-before-load", false)] {
        let relayed = primary();
        let replica = Node::new(&["--repl-diskless-load", how]);
        let mut client = replica.client();
        run(&mut client, "SET old 1");
        follow_to_the_middle(&relayed, &replica);
        if serves {
            assert_eq!(run(&mut client, "GET old"), Value::Bulk(b"1".to_vec()));
        } else {
            assert!(is_loading(&run(&mut client, "GET old")));
        }
        relayed.links.hold(false);
        relayed.primary.wait_for_replica(&replica);
        assert_eq!(run(&mut client, "EXISTS old"), Value::Integer(0));
        assert_eq!(relayed.primary.compare(), (1, 0));
    }
}

/// Regression test: the primary ended the link because it received nothing all the while.
#[test]
#[ignore = "takes half a minute"]
fn a_full_sync_may_take_longer_than_the_timeout() {
    let primary = Node::new(&["--repl-timeout", "5"]);
    let mut client = primary.client();
    run(&mut client, "DEBUG POPULATE 15000 key 4000");
    let replica = Node::new(&["--key-load-delay", "1000"]);
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    let log = primary.log();
    assert!(!log.contains("ended"), "{log}");
    assert_eq!(replica.log().matches("A full sync begins").count(), 1);
}
