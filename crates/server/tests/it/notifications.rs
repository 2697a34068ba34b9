//! Tests of keyspace notifications as clients see them.

use protocol::Value;
use testkit::client::Client;
use testkit::process::{Server, ServerBuilder};
use testkit::transcript::show;

fn start(args: &[&str]) -> Server {
    let builder = ServerBuilder::iolite().args(&["--io-threads", "3"]);
    builder.args(args).start().unwrap()
}

/// Returns a client that is subscribed to all messages.
fn listener(server: &Server) -> Client {
    let mut client = server.client().unwrap();
    let reply = client.command(&["PSUBSCRIBE", "__key*"]).unwrap();
    assert_eq!(show(&reply), "[\"psubscribe\", \"__key*\", :1]");
    client
}

/// Returns the next message: `channel text`.
fn next(client: &mut Client) -> String {
    let (Value::Array(parts) | Value::Push(parts)) = client.receive().unwrap().unwrap() else {
        panic!("a message");
    };
    let [_, _, Value::Bulk(channel), Value::Bulk(text)] = &parts[..] else {
        panic!("{parts:?}");
    };
    let [channel, text] = [channel, text].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{channel} {text}")
}

fn ask(client: &mut Client, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    show(&client.command(&words).unwrap())
}

#[test]
fn events_come_by_key_and_by_name() {
    let server = start(&["--notify-keyspace-events", "KEA"]);
    let mut listener = listener(&server);
    let mut client = server.client().unwrap();
    for line in ["SET k v EX 100", "SELECT 3", "RPUSH l a", "LPOP l"] {
        ask(&mut client, line);
    }
    for expected in [
        "__keyspace@0__:k set",
        "__keyevent@0__:set k",
        "__keyspace@0__:k expire",
        "__keyevent@0__:expire k",
        "__keyspace@3__:l rpush",
        "__keyevent@3__:rpush l",
        "__keyspace@3__:l lpop",
        "__keyevent@3__:lpop l",
        "__keyspace@3__:l del",
        "__keyevent@3__:del l",
    ] {
        assert_eq!(next(&mut listener), expected);
    }
}

#[test]
fn a_change_of_what_is_wanted_holds_at_once() {
    let server = start(&[]);
    let mut listener = listener(&server);
    let mut client = server.client().unwrap();
    ask(&mut client, "SET unheard 1");
    for (flags, shown) in [("lK", "lK"), ("EA", "AE")] {
        ask(
            &mut client,
            &format!("CONFIG SET notify-keyspace-events {flags}"),
        );
        let value = ask(&mut client, "CONFIG GET notify-keyspace-events");
        assert_eq!(value, format!("[\"notify-keyspace-events\", \"{shown}\"]"));
        ask(&mut client, "SET k 1");
        ask(&mut client, "RPUSH l 1");
    }
    for expected in [
        "__keyspace@0__:l rpush",
        "__keyevent@0__:set k",
        "__keyevent@0__:rpush l",
    ] {
        assert_eq!(next(&mut listener), expected);
    }
    let refused = ask(&mut client, "CONFIG SET notify-keyspace-events KQ");
    assert!(refused.contains("Use 'Ag$lshzxeKEtmdn'."), "{refused}");
}

#[test]
fn who_hears_of_own_changes_gets_the_reply_first() {
    let server = start(&["--notify-keyspace-events", "KA"]);
    let mut client = server.client().unwrap();
    client.hello3().unwrap();
    client.command(&["PSUBSCRIBE", "__key*"]).unwrap();
    client.send(&["SET", "k", "v"]).unwrap();
    assert_eq!(
        client.receive().unwrap().unwrap(),
        Value::Simple(b"OK".to_vec())
    );
    assert_eq!(next(&mut client), "__keyspace@0__:k set");
}

/// No client accesses the keys: the clock alone removes them.
#[test]
fn what_expires_is_told_without_being_asked_for() {
    let server = start(&["--notify-keyspace-events", "Exh"]);
    let mut listener = listener(&server);
    let mut client = server.client().unwrap();
    for line in ["SET k v PX 20", "HSET h f v", "HPEXPIRE h 60 FIELDS 1 f"] {
        ask(&mut client, line);
    }
    let mut heard: Vec<String> = (0..4).map(|_| next(&mut listener)).collect();
    heard.sort();
    let expected = [
        "__keyevent@0__:expired k",
        "__keyevent@0__:hexpire h",
        "__keyevent@0__:hexpired h",
        "__keyevent@0__:hset h",
    ];
    assert_eq!(heard, expected);
}

#[test]
fn what_is_evicted_is_told() {
    let server = start(&["--notify-keyspace-events", "Ee"]);
    let mut listener = listener(&server);
    let mut client = server.client().unwrap();
    ask(&mut client, "CONFIG SET maxmemory-policy allkeys-random");
    let value = "x".repeat(100_000);
    for number in 0..100 {
        let key = format!("k{number}");
        client.command(&["SET", &key, &value]).unwrap();
    }
    ask(&mut client, "CONFIG SET maxmemory 1mb");
    client.command(&["SET", "more", &value]).unwrap();
    let heard = next(&mut listener);
    assert!(heard.starts_with("__keyevent@0__:evicted k"), "{heard}");
}

/// Several workers change one key: its events have the order of its changes.
#[test]
fn events_of_a_key_keep_the_order_of_its_changes() {
    let server = start(&["--notify-keyspace-events", "K$gn"]);
    let mut listener = listener(&server);
    const EACH: usize = 2_000;
    std::thread::scope(|scope| {
        for writer in 0..6 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client().unwrap();
                let requests: Vec<&[&str]> = (0..EACH)
                    .map(|number| match (number + writer) % 3 {
                        0 => &["DEL", "k"][..],
                        _ => &["SET", "k", "v"][..],
                    })
                    .collect();
                for some in requests.chunks(50) {
                    client.pipeline::<_, &str>(some).unwrap();
                }
            });
        }
    });
    ask(&mut server.client().unwrap(), "SET end 1");
    let (mut is_there, mut count) = (false, 0);
    loop {
        let heard = next(&mut listener);
        let Some(event) = heard.strip_prefix("__keyspace@0__:k ") else {
            break;
        };
        assert_eq!(event != "new", is_there, "{event} as event {count}");
        is_there = event != "del";
        count += 1;
    }
    assert!(count >= 4 * EACH, "{count} events");
}

#[test]
fn a_key_expires_when_its_time_comes_and_not_with_the_next_upkeep() {
    // Upkeep runs once a second: events that waited for it would be half a second late on average,
    // and up to a whole second.
    let server = start(&["--notify-keyspace-events", "Ex", "--hz", "1"]);
    let mut listener = listener(&server);
    let mut client = server.client().unwrap();
    let unix_ms = |client: &mut Client| -> u64 {
        let time = ask(client, "TIME");
        let words: Vec<u64> = time
            .split('"')
            .filter_map(|word| word.parse().ok())
            .collect();
        words[0] * 1_000 + words[1] / 1_000
    };
    let mut late = 0;
    for number in 0..12 {
        let left_ms = 40 + 7 * number;
        let set_ms = unix_ms(&mut client);
        assert_eq!(ask(&mut client, &format!("SET key v PX {left_ms}")), "+OK");
        assert_eq!(next(&mut listener), "__keyevent@0__:expired key");
        late += u64::from(unix_ms(&mut client) - set_ms > left_ms + 250);
    }
    assert!(late < 6, "{late} of 12 events came more than 250 ms late");
}
