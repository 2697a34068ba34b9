//! Tests that PUBLISH at a primary reaches subscribers at its replicas by the own link, and at the
//! replicas of those.

use super::*;

#[test]
fn messages_are_heard_at_replicas_and_change_nothing_at_a_start() {
    let mut primary = Node::new(&[]);
    let (replica, below) = (Node::new(&[]), Node::new(&[]));
    replica.follow(&primary);
    primary.wait_for_replica(&replica);
    below.follow(&replica);
    replica.wait_for_replica(&below);
    let mut client = primary.client();
    let mut listeners = [&replica, &below].map(|node| {
        let mut listener = node.client();
        listener.command(&["SUBSCRIBE", "news"]).unwrap();
        listener
    });
    // More than a listener's buffer takes at once, together with writes.
    let long = "x".repeat(50_000);
    for number in 0..100 {
        let message = format!("{number} {long}");
        let told = client.command(&["PUBLISH", "news", &message]).unwrap();
        assert_eq!(told, Value::Integer(0));
        client
            .command(&["SET", &format!("key:{number}"), "1"])
            .unwrap();
    }
    for listener in &mut listeners {
        for number in 0..100 {
            let Some(Value::Array(parts)) = listener.receive().unwrap() else {
                panic!("no push");
            };
            let expected = Value::Bulk(format!("{number} {long}").into_bytes());
            assert_eq!(parts[2], expected, "{number}");
        }
    }
    primary.wait_for_replica(&replica);
    replica.wait_for_replica(&below);
    let digest = primary.digest();
    primary.kill();
    primary.start(&[]);
    assert_eq!(primary.digest(), digest);
    primary.wait_for_replica(&replica);
}
