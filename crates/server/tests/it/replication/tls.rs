//! Tests of encrypted links to and from Redis, with certificates at both ends.

use testkit::process::free_port;

use super::redis_replica::play;
use super::{field, iolite, must, redis, settle, until};
use crate::certificates::Files;

/// Returns the arguments of both servers: certificates, and links that show them.
fn args(files: &Files, tls_port: u16) -> Vec<String> {
    let words = [
        ("--tls-replication", "yes".to_owned()),
        ("--tls-auth-clients", "yes".to_owned()),
        ("--tls-cert-file", files.text("server.crt")),
        ("--tls-key-file", files.text("server.key")),
        ("--tls-ca-cert-file", files.text("ca.crt")),
        ("--tls-port", tls_port.to_string()),
    ];
    let pairs = words.into_iter();
    pairs
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
}

fn strs(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// Either server may be the primary, and hand over to the other.
#[test]
fn redis_and_we_follow_each_other_by_certificates() {
    let files = Files::new();
    let ports = [free_port().unwrap(), free_port().unwrap()];
    let [ours, theirs] = ports.map(|port| args(&files, port));
    let (own, other) = (iolite(&strs(&ours)), redis(&strs(&theirs)));
    let (mut own, mut other) = (own.client().unwrap(), other.client().unwrap());
    play(&mut other, 7, 20);
    must(&mut own, &format!("REPLICAOF 127.0.0.1 {}", ports[1]));
    until("it follows Redis", || {
        field(&mut own, "master_link_status") == "up"
    });
    play(&mut other, 8, 20);
    settle(&mut other, &mut own);
    // Redis hands over to the port that the replica announced.
    let port = ports[0];
    must(&mut other, &format!("FAILOVER TO 127.0.0.1 {port}"));
    until("Redis follows", || {
        field(&mut own, "role") == "master" && field(&mut other, "master_link_status") == "up"
    });
    play(&mut own, 9, 20);
    settle(&mut own, &mut other);
    assert_eq!(field(&mut own, "sync_full"), "0", "it was continued");
}

/// Plain text is not a handshake.
#[test]
fn a_port_without_encryption_is_none_to_follow() {
    let files = Files::new();
    let own = args(&files, free_port().unwrap());
    let own = [&strs(&own)[..], &["--repl-timeout", "2"]].concat();
    let (own, other) = (iolite(&own), redis(&[]));
    let mut client = own.client().unwrap();
    must(&mut client, "SET own 1");
    let port = other.address().unwrap().port();
    must(&mut client, &format!("REPLICAOF 127.0.0.1 {port}"));
    until("it says why", || {
        own.log()
            .contains("REPLICAOF names a port for encrypted connections")
    });
    assert_eq!(field(&mut client, "master_link_status"), "down");
}
