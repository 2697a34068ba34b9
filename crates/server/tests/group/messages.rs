//! Tests of PUBLISH in a group that is not a cluster: messages published at the primary reach
//! subscribers at its replicas.

use protocol::Value;

use crate::three;

#[test]
fn what_the_primary_publishes_is_heard_at_its_replicas() {
    let nodes = three();
    let mut listeners = [&nodes[1], &nodes[2]].map(|node| {
        let mut listener = node.client();
        listener.command(&["SUBSCRIBE", "news"]).unwrap();
        listener
    });
    let mut client = nodes[0].client();
    for number in 0..10 {
        let told = client.command(&["PUBLISH", "news", &number.to_string()]);
        assert_eq!(told.unwrap(), Value::Integer(0));
    }
    for listener in &mut listeners {
        for number in 0..10 {
            let Some(Value::Array(parts)) = listener.receive().unwrap() else {
                panic!("no push");
            };
            assert_eq!(parts[2], Value::Bulk(number.to_string().into_bytes()));
        }
    }
}
