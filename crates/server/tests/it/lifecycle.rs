//! Tests of clients and servers that come and go: killing, pausing, stopping.

use std::net::SocketAddr;
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, free_port};
use testkit::transcript::show;

use crate::limits::eventually;

fn start(args: &[&str]) -> Server {
    ServerBuilder::iolite().args(args).start().unwrap()
}

fn ask(client: &mut Client, args: &[&str]) -> String {
    show(&client.command(args).unwrap())
}

fn id(client: &mut Client) -> String {
    ask(client, &["CLIENT", "ID"])
        .trim_start_matches(':')
        .to_owned()
}

#[test]
fn a_killed_client_is_closed_on_whichever_worker_it_is() {
    let server = start(&["--io-threads", "4"]);
    let mut operator = server.client().unwrap();
    for _ in 0..8 {
        let mut victim = server.client().unwrap();
        let victim_id = id(&mut victim);
        assert_eq!(
            ask(&mut operator, &["CLIENT", "KILL", "ID", &victim_id]),
            ":1"
        );
        assert_eq!(victim.receive().unwrap(), None);
        eventually("it is no longer listed", || {
            let listed = ask(&mut operator, &["CLIENT", "LIST"]);
            !listed.contains(&format!("id={victim_id} "))
        });
    }
    let own = id(&mut operator);
    assert_eq!(
        ask(&mut operator, &["CLIENT", "KILL", "ID", &own]),
        ":0",
        "SKIPME is yes"
    );
    let killed = ask(
        &mut operator,
        &["CLIENT", "KILL", "ID", &own, "SKIPME", "no"],
    );
    assert_eq!(killed, ":1", "answered before it is closed");
    assert_eq!(operator.receive().unwrap(), None);
}

#[test]
fn paused_writes_wait_and_reads_pass() {
    let server = start(&[]);
    let mut operator = server.client().unwrap();
    let mut writer = server.client().unwrap();
    assert_eq!(
        ask(&mut operator, &["CLIENT", "PAUSE", "600000", "WRITE"]),
        "+OK"
    );
    writer.send(&["SET", "key", "value"]).unwrap();
    let mut reader = server.client().unwrap();
    assert_eq!(ask(&mut reader, &["GET", "key"]), "(nil)");
    assert_eq!(ask(&mut operator, &["CLIENT", "UNPAUSE"]), "+OK");
    let answer = writer.receive().unwrap().map(|value| show(&value));
    assert_eq!(answer.as_deref(), Some("+OK"));
    assert_eq!(ask(&mut reader, &["GET", "key"]), "\"value\"");
}

#[test]
fn what_replicas_would_be_told_waits_with_writes() {
    let oracle = ServerBuilder::oracle().start().unwrap();
    for server in [start(&[]), oracle] {
        let mut operator = server.client().unwrap();
        let blocked = |operator: &mut Client, count: usize| {
            eventually("so many wait", || {
                ask(operator, &["INFO", "clients"]).contains(&format!("blocked_clients:{count}"))
            });
        };
        let pause = ["CLIENT", "PAUSE", "600000", "WRITE"];
        assert_eq!(ask(&mut operator, &pause), "+OK");
        let requests: [&[&str]; 3] = [
            &["PUBLISH", "channel", "message"],
            &["SPUBLISH", "channel", "message"],
            &["PFCOUNT", "sketch"],
        ];
        let mut held = Vec::new();
        for request in requests {
            let mut client = server.client().unwrap();
            client.send(request).unwrap();
            held.push(client);
            blocked(&mut operator, held.len());
        }
        assert_eq!(ask(&mut operator, &["PUBSUB", "NUMPAT"]), ":0");
        assert_eq!(ask(&mut operator, &["CLIENT", "UNPAUSE"]), "+OK");
        for mut client in held {
            assert_eq!(show(&client.receive().unwrap().unwrap()), ":0");
        }
    }
}

#[test]
fn who_waits_for_the_end_of_a_pause_counts_as_blocked() {
    let server = start(&[]);
    let mut operator = server.client().unwrap();
    let pause = ["CLIENT", "PAUSE", "600000", "WRITE"];
    assert_eq!(ask(&mut operator, &pause), "+OK");
    let mut writer = server.client().unwrap();
    writer.send(&["SET", "key", "value"]).unwrap();
    eventually("one client is blocked", || {
        ask(&mut operator, &["INFO", "clients"]).contains("blocked_clients:1")
            && ask(&mut operator, &["CLIENT", "LIST"]).contains(" flags=b")
    });
    let refused = ask(&mut operator, &["SET", "key"]);
    assert!(refused.contains("wrong number of arguments"), "{refused}");
    assert_eq!(ask(&mut operator, &["CLIENT", "UNPAUSE"]), "+OK");
    assert!(writer.receive().unwrap().is_some());
    eventually("nobody is blocked", || {
        ask(&mut operator, &["INFO", "clients"]).contains("blocked_clients:0")
            && !ask(&mut operator, &["CLIENT", "LIST"]).contains(" flags=b")
    });
}

#[test]
fn a_pause_of_all_holds_whatever_a_client_asks() {
    let server = start(&[]);
    let mut operator = server.client().unwrap();
    let most_of_it = Patience::of(Duration::from_millis(290));
    assert_eq!(ask(&mut operator, &["CLIENT", "PAUSE", "300"]), "+OK");
    assert_eq!(ask(&mut operator, &["CLIENT", "UNPAUSE"]), "+OK");
    assert!(!most_of_it.lasts(), "answered before the pause was over");
}

#[test]
fn a_pause_ends_by_itself_and_keeps_the_order_of_a_pipeline() {
    let server = start(&[]);
    let mut operator = server.client().unwrap();
    assert_eq!(ask(&mut operator, &["CLIENT", "PAUSE", "300"]), "+OK");
    let mut other = server.client().unwrap();
    let requests = [
        vec!["SET", "key", "1"],
        vec!["INCR", "key"],
        vec!["GET", "key"],
    ];
    let replies: Vec<String> = other
        .pipeline(&requests)
        .unwrap()
        .iter()
        .map(show)
        .collect();
    assert_eq!(replies, ["+OK", ":2", "\"2\""]);
}

#[test]
fn what_expires_during_a_pause_goes_when_it_is_over() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    // The lifetime doubles each time, until the pause begins before the key expires.
    for lifetime_ms in (0..12).map(|doublings| (20_u64 << doublings).to_string()) {
        let requests = [
            vec!["SET", "key", "value", "PX", &lifetime_ms],
            vec!["CLIENT", "PAUSE", "600000", "WRITE"],
        ];
        client.pipeline(&requests).unwrap();
        if ask(&mut client, &["DBSIZE"]) == ":1" {
            break;
        }
        assert_eq!(ask(&mut client, &["CLIENT", "UNPAUSE"]), "+OK");
        assert_eq!(ask(&mut client, &["CONFIG", "RESETSTAT"]), "+OK");
    }
    eventually("the key is not seen any more", || {
        ask(&mut client, &["GET", "key"]) == "(nil)"
    });
    assert_eq!(ask(&mut client, &["DBSIZE"]), ":1");
    assert!(ask(&mut client, &["INFO", "stats"]).contains("expired_keys:0"));
    assert_eq!(ask(&mut client, &["CLIENT", "UNPAUSE"]), "+OK");
    eventually("the key is gone", || {
        ask(&mut client, &["DBSIZE"]) == ":0"
            && ask(&mut client, &["INFO", "stats"]).contains("expired_keys:1")
    });
}

#[test]
fn shutdown_closes_clients_and_ends_the_process() {
    let mut server = start(&["--io-threads", "2"]);
    let mut bystander = server.client().unwrap();
    assert_eq!(ask(&mut bystander, &["PING"]), "+PONG");
    let mut operator = server.client().unwrap();
    operator.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    assert_eq!(operator.receive().unwrap(), None, "no reply, only the end");
    assert_eq!(bystander.receive().unwrap(), None);
    eventually("the process ends", || !server.is_running().unwrap());
}

#[test]
fn replies_before_shutdown_are_delivered() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    client.send(&["SET", "key", "value"]).unwrap();
    client.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    let first = client.receive().unwrap().map(|value| show(&value));
    assert_eq!(first.as_deref(), Some("+OK"));
    assert_eq!(client.receive().unwrap(), None);
}

/// Requests a value larger than any socket holds, then lets another client stop the server.
fn stop_while_a_reply_waits(server: &Server, bytes: usize) -> Client {
    let mut reader = server.client().unwrap();
    let value = "x".repeat(bytes);
    assert_eq!(ask(&mut reader, &["SET", "big", &value]), "+OK");
    reader.send(&["GET", "big"]).unwrap();
    let mut operator = server.client().unwrap();
    eventually("the reply waits", || {
        let text = ask(&mut operator, &["INFO", "clients"]);
        !text.contains("client_recent_max_output_buffer:0\\r")
    });
    operator.send(&["SHUTDOWN"]).unwrap();
    assert_eq!(operator.receive().unwrap(), None);
    reader
}

#[test]
fn a_slow_reader_gets_its_reply_before_the_end() {
    for threads in ["1", "4"] {
        let server = start(&["--io-threads", threads]);
        let mut reader = stop_while_a_reply_waits(&server, 4 << 20);
        let Some(Value::Bulk(value)) = reader.receive().unwrap() else {
            panic!("the whole reply");
        };
        assert_eq!(value.len(), 4 << 20);
        assert_eq!(reader.receive().unwrap(), None);
    }
}

#[test]
fn who_does_not_read_does_not_keep_the_server_up() {
    let mut server = start(&["--io-threads", "2"]);
    let _deaf = stop_while_a_reply_waits(&server, 4 << 20);
    eventually("the process ends", || !server.is_running().unwrap());
}

#[test]
fn quit_answers_and_closes_without_running_what_follows() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    client.send(&["QUIT"]).unwrap();
    client.send(&["SET", "late", "1"]).unwrap();
    assert_eq!(
        client
            .receive()
            .unwrap()
            .map(|value| show(&value))
            .as_deref(),
        Some("+OK")
    );
    assert!(matches!(client.receive(), Ok(None) | Err(_)), "closed");
    let mut other = server.client().unwrap();
    assert_eq!(ask(&mut other, &["EXISTS", "late"]), ":0");
}

const HERE: [u8; 4] = [127, 0, 0, 1];

fn start_with_port() -> (Server, u16) {
    let server = ServerBuilder::iolite().tcp().args(&["--io-threads", "2"]);
    let server = server.start().unwrap();
    let port = server.address().unwrap().port();
    (server, port)
}

/// Returns the identity of the server at the other end of a connection.
fn run_id(client: &mut Client) -> Option<String> {
    let Ok(Value::Bulk(text)) = client.command(&["INFO", "server"]) else {
        return None;
    };
    let text = String::from_utf8(text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("run_id:"));
    line.map(str::to_owned)
}

/// Returns whether this server answers there: another process may take a port at once after the
/// server left it.
fn answers_at(server: &Server, host: [u8; 4], port: u16) -> bool {
    let own = run_id(&mut Client::connect_unix(&server.socket()).unwrap());
    let there = Client::connect_tcp(SocketAddr::from((host, port)));
    own.is_some() && there.is_ok_and(|mut client| run_id(&mut client) == own)
}

#[test]
fn the_server_moves_to_another_port_and_keeps_its_clients() {
    let (server, old) = start_with_port();
    let mut client = server.client().unwrap();
    let move_to =
        |client: &mut Client, port: u16| ask(client, &["CONFIG", "SET", "port", &port.to_string()]);
    // Another process may take the port between the search and the move.
    let mut told = String::new();
    let new = (0..20).map(|_| free_port().unwrap()).find(|port| {
        told = move_to(&mut client, *port);
        told == "+OK"
    });
    let new = new.unwrap_or_else(|| panic!("{told}"));
    assert!(answers_at(&server, HERE, new));
    eventually("nobody listens at the old port", || {
        !answers_at(&server, HERE, old)
    });
    assert_eq!(ask(&mut client, &["PING"]), "+PONG", "the client stays");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = move_to(&mut client, taken.local_addr().unwrap().port());
    assert_eq!(
        refused,
        "-ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this \
         port. Check server logs."
    );
    assert!(answers_at(&server, HERE, new), "as it was before");
    let port = ask(&mut client, &["CONFIG", "GET", "port"]);
    assert!(port.contains(&new.to_string()), "{port}");
}

#[test]
fn addresses_change_at_one_port_also_where_one_covers_the_others() {
    let (server, port) = start_with_port();
    let mut client = server.client().unwrap();
    let mut bind = |addresses: &str| ask(&mut client, &["CONFIG", "SET", "bind", addresses]);
    for (addresses, other_answers) in [
        ("127.0.0.1 127.0.0.2", true),
        ("127.0.0.1", false),
        ("0.0.0.0", true),
        ("127.0.0.1", false),
    ] {
        assert_eq!(bind(addresses), "+OK", "{addresses}");
        // A client that connects at the moment when the socket with this address closes is refused.
        eventually("the address answers", || answers_at(&server, HERE, port));
        eventually("the other address answers or not", || {
            answers_at(&server, [127, 0, 0, 2], port) == other_answers
        });
    }
    assert!(
        std::net::TcpListener::bind(("127.0.0.1", port)).is_err(),
        "nobody else can take the port"
    );
    assert_eq!(
        bind("192.0.2.1"),
        "-ERR CONFIG SET failed (possibly related to argument 'bind') - Failed to bind to \
         specified addresses."
    );
    assert!(answers_at(&server, HERE, port));
}
