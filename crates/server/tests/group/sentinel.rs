//! Tests of the replies to clients of Sentinels, over a failover.

use std::net::SocketAddr;

use protocol::Value;
use testkit::client::Client;
use testkit::process::free_port;

use crate::{Node, wait_until};

/// Returns the port of the primary according to the node at this port.
fn primary_port(port: u16) -> Option<u16> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut client = Client::connect_tcp(address).ok()?;
    let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"];
    let Ok(Value::Array(parts)) = client.command(&words) else {
        return None;
    };
    match parts.get(1) {
        Some(Value::Bulk(port)) => std::str::from_utf8(port).ok()?.parse().ok(),
        _ => None,
    }
}

#[test]
fn clients_of_sentinels_find_the_next_primary() {
    let ports: Vec<String> = (0..3).map(|_| free_port().unwrap().to_string()).collect();
    let first = Node::new(&["--cluster-group", "yes", "--sentinel-port", &ports[0]]);
    let second = Node::joining(&first, &["--sentinel-port", &ports[1]]);
    let third = Node::joining(&first, &["--sentinel-port", &ports[2]]);
    let ports: Vec<u16> = ports.iter().map(|port| port.parse().unwrap()).collect();
    let mut nodes = [first, second, third];
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("three voters", &all, || {
        nodes[0].field("control_voters") == "3" && nodes[1..].iter().all(Node::is_synced)
    });
    let first_port = nodes[0].port;
    for port in &ports {
        wait_until("the primary is known", &all, || {
            primary_port(*port) == Some(first_port)
        });
    }
    let address = SocketAddr::from(([127, 0, 0, 1], ports[1]));
    let mut subscriber = Client::connect_tcp(address).unwrap();
    subscriber
        .command(&["SUBSCRIBE", "+switch-master"])
        .unwrap();
    nodes[0].kill();
    let rest = [&nodes[1], &nodes[2]];
    wait_until("another primary is named", &rest, || {
        primary_port(ports[1]).is_some_and(|port| port != first_port)
    });
    let told = subscriber.receive().unwrap().unwrap();
    let Value::Array(parts) = &told else {
        panic!("{told:?}")
    };
    let Some(Value::Bulk(text)) = parts.last() else {
        panic!("{told:?}")
    };
    let text = String::from_utf8_lossy(text);
    let next = primary_port(ports[1]).unwrap();
    assert!(
        text.starts_with("mymaster ") && text.ends_with(&format!(" {next}")),
        "{text}"
    );
}

/// Connects to a port for clients of Sentinels.
fn client_at(port: &str) -> Client {
    let address = SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
    Client::connect_tcp(address).unwrap()
}

fn is_error(reply: &Value, beginning: &str) -> bool {
    matches!(reply, Value::Error(text) if text.starts_with(beginning.as_bytes()))
}

#[test]
fn clients_of_sentinels_log_in_as_users_of_the_node() {
    let port = free_port().unwrap().to_string();
    let args = ["--cluster-group", "yes", "--sentinel-port", &port];
    let node = Node::new(&args);
    let ok = Value::Simple(b"OK".to_vec());
    let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"];
    wait_until("the primary is known", &[&node], || {
        primary_port(port.parse().unwrap()) == Some(node.port)
    });
    // From now on the default user has a password, and there is another user.
    let mut admin = node.client();
    for rules in [
        &["ACL", "SETUSER", "ann", "on", ">hers", "+ping"][..],
        &["ACL", "SETUSER", "default", ">secret"],
    ] {
        wait_until("in the control log", &[&node], || {
            admin.command(rules).unwrap() == ok
        });
    }
    let mut client = client_at(&port);
    let is_refused = |reply: Value| is_error(&reply, "NOAUTH");
    wait_until("known at this port", &[&node], || {
        is_refused(client.command(&question).unwrap())
    });
    for wrong in [
        &["AUTH", "nobody", "secret"][..],
        &["AUTH", "ann", "secret"],
        &["AUTH", "hers"],
        &["HELLO", "3", "AUTH", "nobody", "secret"],
    ] {
        let reply = client.command(wrong).unwrap();
        assert!(is_error(&reply, "WRONGPASS"), "{wrong:?}: {reply:?}");
    }
    assert!(is_refused(client.command(&question).unwrap()));
    for right in [
        &["AUTH", "secret"][..],
        &["AUTH", "default", "secret"],
        &["AUTH", "ann", "hers"],
    ] {
        let mut client = client_at(&port);
        assert_eq!(client.command(right).unwrap(), ok, "{right:?}");
        let reply = client.command(&question).unwrap();
        assert!(matches!(reply, Value::Array(_)), "{reply:?}");
    }
    let reply = client
        .command(&["HELLO", "3", "AUTH", "ann", "hers"])
        .unwrap();
    assert!(matches!(reply, Value::Map(_)), "{reply:?}");
}
