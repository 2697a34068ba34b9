//! What a client may not do to the server or to others: each limit, and what hitting it answers.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder};
use testkit::transcript::show;

fn start(args: &[&str]) -> Server {
    ServerBuilder::iolite().args(args).start().unwrap()
}

fn ask(client: &mut Client, args: &[&str]) -> String {
    show(&client.command(args).unwrap())
}

/// Polls until `done`, for at most a minute.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Patience::of(Duration::from_secs(60));
    while !done() {
        assert!(patience.lasts(), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn one_client_too_many_is_told_and_closed() {
    let server = start(&["--maxclients", "2"]);
    let mut first = server.client().unwrap();
    eventually("whoever looked whether the server is ready is gone", || {
        ask(&mut first, &["INFO", "clients"]).contains("connected_clients:1\\r")
    });
    let mut second = server.client().unwrap();
    assert_eq!(ask(&mut second, &["PING"]), "+PONG");
    let mut third = server.client().unwrap();
    let told = third.receive().unwrap().unwrap();
    assert_eq!(show(&told), "-ERR max number of clients reached");
    assert_eq!(third.receive().unwrap(), None);
    assert_eq!(
        ask(&mut first, &["CONFIG", "SET", "maxclients", "3"]),
        "+OK"
    );
    let mut third = server.client().unwrap();
    assert_eq!(ask(&mut third, &["PING"]), "+PONG");
    assert!(ask(&mut first, &["INFO", "stats"]).contains("rejected_connections:1"));
}

#[test]
fn a_place_that_becomes_free_can_be_taken() {
    let server = start(&["--maxclients", "1"]);
    for _ in 0..3 {
        eventually("the place of the client before is free", || {
            let mut client = server.client().unwrap();
            matches!(client.command(&["PING"]), Ok(Value::Simple(_)))
        });
    }
}

#[test]
fn a_silent_client_is_closed_after_its_time() {
    let server = start(&["--timeout", "1"]);
    let mut silent = server.client().unwrap();
    assert_eq!(ask(&mut silent, &["PING"]), "+PONG");
    assert_eq!(silent.receive().unwrap(), None, "closed, not answered");
}

#[test]
fn a_client_that_does_not_read_is_closed_at_its_output_limit() {
    let server = start(&["--client-output-buffer-limit", "normal 256kb 0 0"]);
    let mut good = server.client().unwrap();
    let value = "x".repeat(1 << 20);
    assert_eq!(ask(&mut good, &["SET", "big", &value]), "+OK");
    let mut deaf = UnixStream::connect(server.socket()).unwrap();
    deaf.set_write_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // The write may fail half way: that is the server closing the connection.
    let _sent = deaf.write_all(&b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".repeat(64));
    eventually("the limit closes it", || {
        ask(&mut good, &["INFO", "stats"]).contains("client_output_buffer_limit_disconnections:1")
    });
    assert_eq!(ask(&mut good, &["STRLEN", "big"]), format!(":{}", 1 << 20));
}

#[test]
fn a_request_that_outgrows_the_query_buffer_closes_its_client() {
    let server = start(&["--client-query-buffer-limit", "1mb"]);
    let mut good = server.client().unwrap();
    let mut greedy = UnixStream::connect(server.socket()).unwrap();
    let mut request = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$8388608\r\n".to_vec();
    request.resize(request.len() + (8 << 20), b'x');
    let _sent = greedy.write_all(&request);
    eventually("the limit closes it", || {
        ask(&mut good, &["INFO", "stats"]).contains("client_query_buffer_limit_disconnections:1")
    });
    assert_eq!(ask(&mut good, &["EXISTS", "key"]), ":0");
}

#[test]
fn before_authentication_only_little_may_be_sent() {
    let server = start(&["--requirepass", "secret"]);
    let mut client = server.client().unwrap();
    assert_eq!(
        ask(&mut client, &["GET", "key"]),
        "-NOAUTH Authentication required."
    );
    assert_eq!(
        ask(&mut client, &["AUTH", "wrong"]),
        "-WRONGPASS invalid username-password pair or user is disabled."
    );
    client.send_raw(b"*11\r\n").unwrap();
    let told = client.receive().unwrap().unwrap();
    assert_eq!(
        show(&told),
        "-ERR Protocol error: unauthenticated multibulk length"
    );
    assert_eq!(client.receive().unwrap(), None);
    // What comes behind AUTH in the same packet has the ordinary limits.
    let mut client = server.client().unwrap();
    let value = "x".repeat(100_000);
    let requests = [
        vec!["AUTH", "secret"],
        vec!["SET", "key", &value],
        vec!["STRLEN", "key"],
    ];
    let replies: Vec<String> = client
        .pipeline(&requests)
        .unwrap()
        .iter()
        .map(show)
        .collect();
    assert_eq!(replies, ["+OK", "+OK", ":100000"]);
}

#[test]
fn the_unix_socket_has_the_permissions_asked_for() {
    let server = start(&["--unixsocketperm", "700"]);
    let mode = std::fs::metadata(server.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn full_memory_refuses_writes_and_keeps_reads_up() {
    let server = start(&["--maxmemory-policy", "noeviction"]);
    let mut client = server.client().unwrap();
    assert_eq!(ask(&mut client, &["SET", "kept", "value"]), "+OK");
    assert_eq!(
        ask(&mut client, &["CONFIG", "SET", "maxmemory", "1"]),
        "+OK"
    );
    let refusal = "-OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(ask(&mut client, &["SET", "more", "value"]), refusal);
    assert_eq!(ask(&mut client, &["GET", "kept"]), "\"value\"");
    assert_eq!(ask(&mut client, &["DEL", "kept"]), ":1");
    assert_eq!(
        ask(&mut client, &["CONFIG", "SET", "maxmemory", "0"]),
        "+OK"
    );
    assert_eq!(ask(&mut client, &["SET", "more", "value"]), "+OK");
}
