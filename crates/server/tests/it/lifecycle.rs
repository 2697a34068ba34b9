//! Clients and servers that come and go: killing, pausing, stopping.

use testkit::client::Client;
use testkit::process::{Server, ServerBuilder};
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
