//! Tests of REPLICATION VERIFY: equal data is found to be equal, and differences are named.

use super::*;

#[test]
fn replicas_that_hold_the_same_are_told_from_those_that_do_not() {
    let (primary, good, bad) = (Node::new(&[]), Node::new(&[]), Node::new(&[]));
    assert!(matches!(
        run(&mut primary.client(), "REPLICATION VERIFY"),
        Value::Error(text) if text.starts_with(b"ERR there is no replica")
    ));
    let mut client = primary.client();
    fill(&mut client);
    run(&mut client, "XGROUP CREATE stream readers 0");
    run(
        &mut client,
        "XREADGROUP GROUP readers one COUNT 1 STREAMS stream >",
    );
    crate::recovery::fill(&mut client, 0..1_000);
    for replica in [&good, &bad] {
        replica.follow(&primary);
        primary.wait_for_replica(replica);
    }
    assert_eq!(primary.compare(), (2, 0));
    // Each replica compares at its own position while the log advances.
    for round in 0..5 {
        crate::recovery::fill(&mut client, round * 100..(round + 1) * 100);
        assert_eq!(primary.compare(), (2, 0));
    }
    let none = run(&mut client, "REPLICATION DIFFERENCES");
    assert_eq!(none, Value::Array(Vec::new()));

    // Only tests write to a replica.
    let planted = run(&mut bad.client(), "DEBUG POPULATE 3 planted");
    assert_eq!(planted, Value::Simple(b"OK".to_vec()));
    assert_eq!(primary.compare(), (1, 1));
    let Value::Array(named) = run(&mut client, "REPLICATION DIFFERENCES") else {
        panic!("no array");
    };
    let mut named: Vec<String> = named
        .into_iter()
        .map(|key| match key {
            Value::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    named.sort_unstable();
    let at = format!("127.0.0.1:{} 0 planted", bad.port);
    let expected: Vec<String> = (0..3).map(|key| format!("{at}:{key}")).collect();
    assert_eq!(named, expected);
    assert!(primary.log().contains("1 hold something else, 1 the same"));
}
