//! Tests of publish/subscribe with clients of several workers.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::process::{Server, ServerBuilder};
use testkit::transcript::show;

use crate::limits::eventually;

fn start(args: &[&str]) -> Server {
    let builder = ServerBuilder::iolite().args(&["--io-threads", "3"]);
    builder.args(args).start().unwrap()
}

fn ask(client: &mut Client, args: &[&str]) -> String {
    show(&client.command(args).unwrap())
}

fn next(client: &mut Client) -> String {
    show(&client.receive().unwrap().unwrap())
}

fn subscriber(server: &Server, args: &[&str]) -> Client {
    let mut client = server.client().unwrap();
    client.send(args).unwrap();
    for _ in &args[1..] {
        next(&mut client);
    }
    client
}

/// Returns the texts of a message.
fn words(value: Value) -> Vec<String> {
    let (Value::Push(items) | Value::Array(items)) = value else {
        panic!("{value:?} is no message");
    };
    let text = |item| match item {
        Value::Bulk(text) => String::from_utf8(text).unwrap(),
        other => show(&other),
    };
    items.into_iter().map(text).collect()
}

#[test]
fn every_subscriber_gets_every_message_in_order() {
    let server = start(&[]);
    let mut subscribers: Vec<Client> = (0..12)
        .map(|number| match number % 3 {
            0 => subscriber(&server, &["SUBSCRIBE", "a", "b"]),
            1 => subscriber(&server, &["SUBSCRIBE", "b"]),
            _ => subscriber(&server, &["PSUBSCRIBE", "*"]),
        })
        .collect();
    for client in subscribers.iter_mut().skip(6) {
        // A client in RESP3 gets the same from the same memory.
        assert_eq!(
            show(&client.command(&["PING"]).unwrap()),
            "[\"pong\", \"\"]"
        );
    }
    let mut publisher = server.client().unwrap();
    const ROUNDS: usize = 500;
    let requests: Vec<[String; 3]> = (0..ROUNDS)
        .map(|number| {
            let channel = if number % 3 == 0 { "a" } else { "b" };
            ["PUBLISH".into(), channel.into(), number.to_string()]
        })
        .collect();
    let replies = publisher.pipeline(&requests).unwrap();
    for (number, reply) in replies.iter().enumerate() {
        let expected = if number % 3 == 0 { 8 } else { 12 };
        assert_eq!(*reply, Value::Integer(expected), "message {number}");
    }
    for (index, client) in subscribers.iter_mut().enumerate() {
        for number in 0..ROUNDS {
            let is_a = number % 3 == 0;
            if index % 3 == 1 && is_a {
                continue;
            }
            let message = words(client.receive().unwrap().unwrap());
            assert_eq!(message.last().unwrap(), &number.to_string(), "{index}");
        }
    }
}

/// With publishers on several workers, the messages of each keep their order, and none is lost or
/// duplicated although topics overlap.
#[test]
fn messages_of_each_publisher_keep_their_order() {
    let server = start(&[]);
    let mut subscribers: Vec<Client> = (0..6)
        .map(|number| match number % 2 {
            0 => subscriber(&server, &["SUBSCRIBE", "x", "y"]),
            _ => subscriber(&server, &["SUBSCRIBE", "x"]),
        })
        .collect();
    const EACH: usize = 400;
    std::thread::scope(|scope| {
        for publisher in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client().unwrap();
                for number in 0..EACH {
                    let channel = if number % 2 == 0 { "x" } else { "y" };
                    let text = format!("{publisher} {number}");
                    client.command(&["PUBLISH", channel, &text]).unwrap();
                }
            });
        }
    });
    for (index, client) in subscribers.iter_mut().enumerate() {
        let expected = if index % 2 == 0 { EACH } else { EACH / 2 };
        let mut last = BTreeMap::new();
        for _ in 0..4 * expected {
            let message = words(client.receive().unwrap().unwrap()).pop().unwrap();
            let (publisher, number) = message.split_once(' ').unwrap();
            let number: i64 = number.parse().unwrap();
            let before = last.insert(publisher.to_owned(), number).unwrap_or(-1);
            assert!(before < number, "{message} after {before}");
        }
        assert_eq!(ask(client, &["PING"]), "[\"pong\", \"\"]", "nothing more");
    }
}

/// Messages published before a subscription are not received; those published before its end are,
/// whatever else the worker does.
#[test]
fn a_subscription_begins_and_ends_at_a_moment() {
    let server = start(&[]);
    let _crowd: Vec<Client> = (0..9)
        .map(|_| subscriber(&server, &["SUBSCRIBE", "c"]))
        .collect();
    let mut clients: Vec<Client> = (0..6).map(|_| server.client().unwrap()).collect();
    let mut publisher = server.client().unwrap();
    for round in 0..200 {
        let client = &mut clients[round % 6];
        ask(&mut publisher, &["PUBLISH", "c", "before"]);
        assert_eq!(
            ask(client, &["SUBSCRIBE", "c"]),
            "[\"subscribe\", \"c\", :1]"
        );
        ask(&mut publisher, &["PUBLISH", "c", "first"]);
        ask(&mut publisher, &["PUBLISH", "c", "second"]);
        client.send(&["UNSUBSCRIBE"]).unwrap();
        assert_eq!(next(client), "[\"message\", \"c\", \"first\"]");
        assert_eq!(next(client), "[\"message\", \"c\", \"second\"]");
        assert_eq!(next(client), "[\"unsubscribe\", \"c\", :0]");
        assert_eq!(ask(&mut publisher, &["PUBLISH", "c", "after"]), ":9");
        assert_eq!(ask(client, &["PING"]), "+PONG");
    }
}

#[test]
fn own_messages_come_behind_the_reply_within_a_pipeline() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    client.hello3().unwrap();
    ask(&mut client, &["SUBSCRIBE", "me"]);
    client
        .send_raw(
            b"PUBLISH me 1\r\nPING\r\nMULTI\r\nPUBLISH me 2\r\nPING\r\nEXEC\r\nUNSUBSCRIBE me\r\n",
        )
        .unwrap();
    for expected in [
        ":1",
        ">[\"message\", \"me\", \"1\"]",
        "+PONG",
        "+OK",
        "+QUEUED",
        "+QUEUED",
        "[:1, +PONG]",
        ">[\"message\", \"me\", \"2\"]",
        ">[\"unsubscribe\", \"me\", :0]",
    ] {
        assert_eq!(next(&mut client), expected);
    }
}

#[test]
fn who_is_gone_is_counted_no_more() {
    let server = start(&[]);
    let mut other = server.client().unwrap();
    let gone = subscriber(&server, &["SUBSCRIBE", "a", "b"]);
    let mut reset = subscriber(&server, &["PSUBSCRIBE", "*"]);
    let mut killed = subscriber(&server, &["SSUBSCRIBE", "s"]);
    let list = ask(&mut other, &["CLIENT", "LIST", "TYPE", "pubsub"]);
    assert_eq!(list.matches(" flags=PU ").count(), 3, "{list}");
    assert!(list.contains(" sub=2 psub=0 ssub=0 "), "{list}");
    let info = ask(&mut other, &["INFO", "everything"]);
    for field in [
        "pubsub_clients:3\\r",
        "pubsub_channels:2\\r",
        "pubsub_patterns:1\\r",
        "pubsubshard_channels:1\\r",
    ] {
        assert!(info.contains(field), "{field}");
    }
    assert_eq!(ask(&mut reset, &["RESET"]), "+RESET");
    drop(gone);
    eventually("who closed is gone", || {
        let list = ask(&mut other, &["CLIENT", "LIST", "TYPE", "pubsub"]);
        list.matches(" flags=PU ").count() == 1
    });
    assert_eq!(ask(&mut other, &["CLIENT", "KILL", "TYPE", "pubsub"]), ":1");
    assert_eq!(killed.receive().unwrap(), None);
    eventually("all are counted out", || {
        ask(&mut other, &["PUBSUB", "NUMSUB", "a", "b"]) == "[\"a\", :0, \"b\", :0]"
            && ask(&mut other, &["PUBSUB", "SHARDCHANNELS"]) == "[]"
            && ask(&mut other, &["PUBSUB", "NUMPAT"]) == ":0"
            && ask(&mut other, &["INFO", "clients"]).contains("pubsub_clients:0\\r")
    });
}

/// The publisher waits for no subscriber: one that does not read is disconnected at the limit of
/// its class.
#[test]
fn a_slow_subscriber_is_closed_at_its_limit() {
    let server = start(&["--client-output-buffer-limit", "pubsub 1mb 0 0"]);
    let mut slow = subscriber(&server, &["SUBSCRIBE", "c"]);
    let mut good = subscriber(&server, &["SUBSCRIBE", "c"]);
    let mut publisher = server.client().unwrap();
    let message = "x".repeat(100_000);
    eventually("the slow one is closed", || {
        let receivers = ask(&mut publisher, &["PUBLISH", "c", &message]);
        words(good.receive().unwrap().unwrap());
        receivers == ":1"
    });
    let info = ask(&mut publisher, &["INFO", "stats"]);
    assert!(
        info.contains("client_output_buffer_limit_disconnections:1\\r"),
        "{info}"
    );
    // Before that, it received whole messages and a part of one.
    while let Ok(Some(value)) = slow.receive() {
        assert_eq!(words(value)[2].len(), message.len());
    }
}

#[test]
fn the_soft_limit_closes_after_its_time() {
    let server = start(&["--client-output-buffer-limit", "pubsub 0 100kb 1"]);
    let _slow = subscriber(&server, &["SUBSCRIBE", "c"]);
    let mut publisher = server.client().unwrap();
    let message = "x".repeat(1 << 20);
    for _ in 0..8 {
        ask(&mut publisher, &["PUBLISH", "c", &message]);
    }
    eventually("nobody listens", || {
        std::thread::sleep(Duration::from_millis(50));
        ask(&mut publisher, &["PUBSUB", "NUMSUB", "c"]) == "[\"c\", :0]"
    });
}

/// A publisher that is faster than the deliveries waits; nothing is lost.
#[test]
fn a_fast_publisher_waits_for_deliveries() {
    let server = start(&["--client-output-buffer-limit", "pubsub 0 0 0"]);
    const MESSAGES: usize = 3_000;
    let mut readers = Vec::new();
    for _ in 0..4 {
        let mut client = subscriber(&server, &["SUBSCRIBE", "c"]);
        readers.push(std::thread::spawn(move || {
            for number in 0..MESSAGES {
                let message = words(client.receive().unwrap().unwrap());
                let (count, _) = message[2].split_once(' ').unwrap();
                assert_eq!(count, number.to_string());
            }
        }));
    }
    let mut publisher = server.client().unwrap();
    let filler = "y".repeat(10_000);
    let requests: Vec<[String; 3]> = (0..MESSAGES)
        .map(|number| ["PUBLISH".into(), "c".into(), format!("{number} {filler}")])
        .collect();
    // So few requests that their replies fit in the socket: the server does not read from a client
    // that does not read.
    for requests in requests.chunks(100) {
        for reply in publisher.pipeline(requests).unwrap() {
            assert_eq!(reply, Value::Integer(4));
        }
    }
    for reader in readers {
        reader.join().unwrap();
    }
}
