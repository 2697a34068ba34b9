//! Tests of groups whose nodes identify each other by certificates, without a secret.

use testkit::process::free_port;

use crate::certificates::Files;
use crate::{Node, has, joined, wait_until, writes};

/// Returns the arguments of a node that shows a certificate signed by `files`, as Redis' nodes do
/// with `tls-cluster`.
fn args(files: &Files) -> Vec<String> {
    let words = [
        ("--tls-cluster", "yes".to_owned()),
        ("--cluster-secret", String::new()),
        ("--tls-cert-file", files.text("server.crt")),
        ("--tls-key-file", files.text("server.key")),
        ("--tls-ca-cert-file", files.text("ca.crt")),
        ("--tls-port", free_port().unwrap().to_string()),
    ];
    let words = words.into_iter();
    words
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
}

fn joining(first: &Node, files: &Files) -> Node {
    let args = args(files);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Node::joining(first, &args)
}

fn first(files: &Files) -> Node {
    let mut words = args(files);
    words.extend(["--cluster-group".to_owned(), "yes".to_owned()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Node::new(&words)
}

#[test]
fn nodes_that_show_certificates_are_a_group_that_fails_over() {
    let files = Files::new();
    let first = first(&files);
    let [second, third] = [0; 2].map(|_| joining(&first, &files));
    let [mut first, second, third] = joined([first, second, third]);
    assert!(writes(&first, "key"));
    wait_until("copied", &[&first, &second, &third], || {
        has(&second, "key") && has(&third, "key")
    });
    assert!(
        second
            .log()
            .contains("The link to the primary is encrypted")
    );
    first.kill();
    let left = [&second, &third];
    wait_until("failed over", &left, || {
        left.iter().any(|node| writes(node, "after"))
    });
    first.start();
    wait_until("back", &[&first, &second, &third], || {
        first.is_synced() && has(&first, "after")
    });
}

#[test]
fn a_node_with_certificates_of_others_does_not_join() {
    let files = Files::new();
    let first = first(&files);
    let stranger = joining(&first, &Files::new());
    wait_until("refused", &[&first, &stranger], || {
        let logs = [first.log(), stranger.log()].concat();
        logs.contains("certificate")
    });
    wait_until("begun", &[&first, &stranger], || writes(&first, "key"));
    assert_eq!(first.field("control_nodes"), "1");
    assert!(!writes(&stranger, "key"));
}
