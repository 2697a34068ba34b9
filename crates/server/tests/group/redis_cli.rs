//! Tests of `redis-cli --cluster` with clusters of real processes: it creates them, checks them,
//! and moves slots.

use std::process::Command;

use base::hash_slot;
use protocol::Value;

use super::clusters::{LAST_SLOT, wait_for_agreement};
use super::{Node, wait_until};

#[test]
#[ignore = "needs redis-cli"]
fn redis_cli_makes_a_cluster_checks_it_and_takes_nodes_in_and_out() {
    let nodes: Vec<Node> = (0..6).map(|_| Node::by_itself()).collect();
    let address = |node: &Node| format!("127.0.0.1:{}@{}", node.port, node.link_port);
    let run = |words: &[&str]| {
        let output = Command::new("redis-cli")
            .arg("--cluster")
            .args(words)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{words:?}: {text}");
        text
    };
    let addresses: Vec<String> = nodes.iter().map(address).collect();
    let mut words = vec!["create"];
    words.extend(addresses.iter().map(String::as_str));
    words.extend(["--cluster-replicas", "1", "--cluster-yes"]);
    let created = run(&words);
    assert!(
        created.contains("[OK] All 16384 slots covered"),
        "{created}"
    );
    let all: Vec<&Node> = nodes.iter().collect();
    wait_for_agreement(&all, 6);
    let first = format!("127.0.0.1:{}", nodes[0].port);
    assert!(run(&["check", &first]).contains("[OK] All nodes agree"));
    let seventh = Node::by_itself();
    run(&["add-node", &address(&seventh), &first]);
    wait_until("seven", &all, || nodes[5].owners().len() == 7);
    run(&["del-node", &first, &seventh.id()]);
    wait_for_agreement(&all, 6);
}

/// Returns the output of `redis-cli --cluster`. All its questions are answered with yes.
fn run_redis_cli(words: &[&str]) -> String {
    let mut child = Command::new("redis-cli")
        .arg("--cluster")
        .args(words)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut answers = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut answers, b"yes\nyes\n").unwrap();
    drop(answers);
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[ignore = "needs redis-cli"]
fn redis_cli_fixes_calls_backs_up_and_imports() {
    let nodes: Vec<Node> = (0..3).map(|_| Node::by_itself()).collect();
    let addresses: Vec<String> = nodes
        .iter()
        .map(|node| format!("127.0.0.1:{}@{}", node.port, node.link_port))
        .collect();
    let mut words = vec!["create"];
    words.extend(addresses.iter().map(String::as_str));
    words.push("--cluster-yes");
    let covered = "[OK] All 16384 slots covered";
    let created = run_redis_cli(&words);
    assert!(created.contains(covered), "{created}");
    let all: Vec<&Node> = nodes.iter().collect();
    wait_for_agreement(&all, 3);
    let first = format!("127.0.0.1:{}", nodes[0].port);

    let called = run_redis_cli(&["call", &first, "ping"]);
    assert_eq!(called.matches("PONG").count(), 3, "{called}");

    // Slots without an owner get one.
    let given_up = nodes[0].text(&["CLUSTER", "DELSLOTS", "6000", "6001"]);
    assert_eq!(given_up, "OK");
    wait_until("two slots less", &all, || !nodes[0].is_ok());
    let fixed = run_redis_cli(&["fix", &first]);
    assert!(!fixed.contains("replied with error"), "{fixed}");
    wait_for_agreement(&all, 3);
    let checked = run_redis_cli(&["check", &first]);
    assert!(checked.contains(covered), "{checked}");

    // The keys of a server outside the cluster are imported.
    let outside = Node::new(&[]);
    for number in 0..50 {
        let key = format!("key:{number}");
        assert_eq!(outside.text(&["SET", &key, "v"]), "OK");
    }
    let from = format!("127.0.0.1:{}", outside.port);
    let imported = run_redis_cli(&["import", &first, "--cluster-from", &from, "--cluster-copy"]);
    let keys = || -> i64 {
        let count = |node: &Node| match node.run(&["DBSIZE"]) {
            Value::Integer(count) => count,
            other => panic!("{other:?}"),
        };
        nodes.iter().map(count).sum()
    };
    assert_eq!(keys(), 50, "{imported}");

    let directory = testkit::process::TemporaryDirectory::new("cluster-backup").unwrap();
    let backed_up = run_redis_cli(&["backup", &first, directory.to_str().unwrap()]);
    let files = std::fs::read_dir(&*directory).unwrap();
    // One file for each node, and one for the cluster.
    assert_eq!(files.count(), 4, "{backed_up}");
}

/// Returns the number of hash slots that a node says it has.
fn slots_count(node: &Node) -> u32 {
    let nodes = node.text(&["CLUSTER", "NODES"]);
    let line = nodes.lines().find(|line| line.contains("myself")).unwrap();
    let ranges = line.split(' ').skip(8);
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        1 + last.parse::<u32>().unwrap() - first.parse::<u32>().unwrap()
    };
    ranges.map(count).sum()
}

fn keys_count(node: &Node) -> i64 {
    match node.run(&["DBSIZE"]) {
        Value::Integer(count) => count,
        other => panic!("{other:?}"),
    }
}

/// Starts three primaries, the first with some more slots than its share, and writes keys to all of
/// them: four per tag.
fn three_of_unlike_size(keys: usize) -> [Node; 3] {
    let nodes = [(); 3].map(|()| Node::by_itself());
    let ends = [0, 5_661, 10_923, LAST_SLOT + 1];
    for (node, ends) in nodes.iter().zip(ends.windows(2)) {
        node.own(ends[0], ends[1] - 1);
    }
    assert_eq!(nodes[1].meet(&nodes[0]), "OK");
    assert_eq!(nodes[2].meet(&nodes[0]), "OK");
    let all: Vec<&Node> = nodes.iter().collect();
    wait_for_agreement(&all, 3);
    let mut clients = nodes.each_ref().map(Node::client);
    for number in 0..keys {
        let key = key_of(number);
        let slot = hash_slot::of(key.as_bytes());
        let owner = ends[1..].iter().position(|end| slot < *end).unwrap();
        let written = clients[owner].command(&["SET", &key, &number.to_string()]);
        assert_eq!(written.unwrap(), Value::Simple(b"OK".to_vec()), "{key}");
    }
    nodes
}

fn key_of(number: usize) -> String {
    format!("key:{{{}}}:{number}", number / 4)
}

/// Asserts that every key is at one node, with its value.
fn assert_all_there(nodes: &[&Node], keys: usize) {
    let total: i64 = nodes.iter().map(|node| keys_count(node)).sum();
    assert_eq!(total, i64::try_from(keys).unwrap());
    let mut clients: Vec<_> = nodes.iter().map(|node| node.client()).collect();
    for number in 0..keys {
        let key = key_of(number);
        let value = Value::Bulk(number.to_string().into_bytes());
        let mut answers = clients
            .iter_mut()
            .map(|one| one.command(&["GET", &key]).unwrap());
        assert!(answers.any(|answer| answer == value), "{key}");
    }
}

/// Asserts that the output reports no error.
fn assert_no_error(printed: &str) {
    for word in ["ERR", "rror:", "failed"] {
        assert!(!printed.contains(word), "{word} in:\n{printed}");
    }
}

#[test]
#[ignore = "needs redis-cli"]
fn redis_cli_rebalances_and_reshards_with_data_and_takes_a_new_node_in() {
    const KEYS: usize = 2_000;
    let nodes = three_of_unlike_size(KEYS);
    let [a, b, c] = &nodes;
    let first = a.address();
    let rebalanced = run_redis_cli(&["rebalance", &first]);
    assert_no_error(&rebalanced);
    wait_for_agreement(&[a, b, c], 3);
    let sizes = || nodes.each_ref().map(slots_count);
    assert!(
        sizes().iter().all(|size| (5_400..=5_520).contains(size)),
        "{:?}\n{rebalanced}",
        sizes()
    );
    assert_all_there(&[a, b, c], KEYS);

    let before = sizes();
    let (from, to) = (a.id(), b.id());
    let mut words = vec![
        "reshard",
        &first,
        "--cluster-from",
        &from,
        "--cluster-to",
        &to,
    ];
    words.extend([
        "--cluster-slots",
        "100",
        "--cluster-yes",
        "--cluster-pipeline",
        "50",
    ]);
    let resharded = run_redis_cli(&words);
    assert_no_error(&resharded);
    wait_for_agreement(&[a, b, c], 3);
    assert_eq!(sizes(), [before[0] - 100, before[1] + 100, before[2]]);
    assert_all_there(&[a, b, c], KEYS);

    // Slots move from all nodes to an empty node, which is a replica of another node until then.
    let d = Node::by_itself();
    let place = format!("127.0.0.1:{}@{}", d.port, d.link_port);
    assert_no_error(&run_redis_cli(&["add-node", &place, &first]));
    wait_for_agreement(&[a, b, c, &d], 4);
    let to = d.id();
    let mut words = vec![
        "reshard",
        &first,
        "--cluster-from",
        "all",
        "--cluster-to",
        &to,
    ];
    words.extend(["--cluster-slots", "90", "--cluster-yes"]);
    assert_no_error(&run_redis_cli(&words));
    wait_for_agreement(&[a, b, c, &d], 4);
    // The node takes its share from each of the others, rounded.
    let taken = slots_count(&d);
    assert!((88..=91).contains(&taken), "{taken}");
    assert_all_there(&[a, b, c, &d], KEYS);
    let checked = run_redis_cli(&["check", &first]);
    assert!(
        checked.contains("[OK] All 16384 slots covered"),
        "{checked}"
    );
    assert!(
        checked.contains(&format!("[OK] {KEYS} keys in 4 masters")),
        "{checked}"
    );
}

#[test]
#[ignore = "needs redis-cli"]
fn redis_cli_imports_with_copy_and_replace() {
    const KEYS: usize = 200;
    let nodes = three_of_unlike_size(KEYS);
    let all: Vec<&Node> = nodes.iter().collect();
    let first = nodes[0].address();
    let outside = Node::new(&[]);
    let from = outside.address();
    // Half of the keys are already in the cluster, with other values.
    for number in KEYS / 2..KEYS + KEYS / 2 {
        assert_eq!(
            outside.text(&["SET", &key_of(number), &number.to_string()]),
            "OK"
        );
    }
    for number in KEYS / 2..KEYS {
        let key = key_of(number);
        let written = all
            .iter()
            .any(|node| node.text(&["SET", &key, "older"]) == "OK");
        assert!(written, "{key}");
    }
    let import = |more: &[&str]| {
        let mut words = vec!["import", &first, "--cluster-from", &from];
        words.extend(more);
        run_redis_cli(&words)
    };
    let refused = import(&["--cluster-copy"]);
    assert!(refused.contains("BUSYKEY"), "{refused}");
    let imported = import(&["--cluster-copy", "--cluster-replace"]);
    assert_no_error(&imported);
    assert_all_there(&all, KEYS + KEYS / 2);
    assert_eq!(keys_count(&outside), i64::try_from(KEYS).unwrap(), "copied");
    // Without the option to copy, the keys are gone from the source.
    let moved = import(&["--cluster-replace"]);
    assert_no_error(&moved);
    assert_all_there(&all, KEYS + KEYS / 2);
    assert_eq!(keys_count(&outside), 0, "{moved}");
}
