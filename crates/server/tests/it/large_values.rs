//! Tests of values of many pages: they are received and sent without copies, in bounded memory.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use protocol::Value;
use testkit::client::Client;
use testkit::process::{Server, ServerBuilder};
use testkit::transcript::show;

use crate::limits::eventually;

fn start(args: &[&str]) -> Server {
    ServerBuilder::iolite().args(args).start().unwrap()
}

fn ok(client: &mut Client, args: &[&[u8]]) {
    let reply = client.command(args).unwrap();
    assert_eq!(reply, Value::Simple("OK".into()), "{:?}", args.first());
}

/// Returns bytes that differ wherever pages or pieces could be mixed up.
fn pattern(count: usize, seed: usize) -> Vec<u8> {
    let bytes = (0..count).map(|at| (at.wrapping_mul(31) ^ (at >> 7) ^ seed).to_le_bytes()[0]);
    bytes.collect()
}

#[test]
fn values_around_every_border_come_back() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    for size in [
        16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 131_072, 1_000_003,
    ] {
        let value = pattern(size, size);
        ok(&mut client, &[b"SET", b"k", &value]);
        assert_eq!(
            client.command(&["GET", "k"]).unwrap(),
            Value::Bulk(value.clone())
        );
        let part = client.command(&["GETRANGE", "k", "7", "-9"]).unwrap();
        assert_eq!(part, Value::Bulk(value[7..size - 8].to_vec()));
        let both = client.command(&["MGET", "k", "none", "k"]).unwrap();
        let bulk = Value::Bulk(value);
        assert_eq!(both, Value::Array(vec![bulk.clone(), Value::Null, bulk]));
    }
}

/// A reply is the value at the time of its command, whatever is written later.
#[test]
fn a_reply_is_not_changed_by_later_writes() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    let value = pattern(3_000_000, 1);
    ok(&mut client, &[b"SET", b"k", &value]);
    let mut slow = UnixStream::connect(server.socket()).unwrap();
    slow.write_all(b"GET k\r\nSETRANGE k 2999990 changed\r\nAPPEND k more\r\nDEL k\r\n")
        .unwrap();
    let mut expected = b"$3000000\r\n".to_vec();
    let mut received = vec![0; expected.len()];
    slow.read_exact(&mut received).unwrap();
    // The reply has begun. The rest of the pipeline runs after it is taken; meanwhile other clients
    // write.
    client
        .command(&["SETRANGE", "k", "2500000", "other"])
        .unwrap();
    ok(&mut client, &[b"SET", b"other", &pattern(3_000_000, 2)]);
    expected.extend_from_slice(&value);
    expected.extend_from_slice(b"\r\n:3000000\r\n:3000004\r\n:1\r\n");
    let begun = received.len();
    received.resize(expected.len(), 0);
    slow.read_exact(&mut received[begun..]).unwrap();
    assert!(received == expected);
}

#[test]
fn replies_that_are_skipped_lend_nothing() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    ok(&mut client, &[b"SET", b"k", &pattern(100_000, 3)]);
    client
        .send_raw(b"CLIENT REPLY OFF\r\nGET k\r\nMGET k k\r\nCLIENT REPLY ON\r\n")
        .unwrap();
    assert_eq!(client.receive().unwrap(), Some(Value::Simple("OK".into())));
    assert_eq!(
        client.command(&["STRLEN", "k"]).unwrap(),
        Value::Integer(100_000)
    );
}

/// Size of a value that is a bulk upload: it is received separately from the rest of its request.
const LONG: usize = 300_001;

#[test]
fn options_hold_for_values_that_arrive_apart() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    let (one, two) = (pattern(LONG, 1), pattern(LONG + 70_000, 2));
    let bulk = |bytes: &Vec<u8>| Value::Bulk(bytes.clone());
    ok(&mut client, &[b"set", b"k", &one, b"NX", b"EX", b"1000"]);
    assert_eq!(
        client.command(&[&b"SET"[..], b"k", &*two, b"NX"]).unwrap(),
        Value::Null
    );
    assert_eq!(client.command(&["GET", "k"]).unwrap(), bulk(&one));
    let old = client
        .command(&[&b"SET"[..], b"k", &*two, b"GET", b"KEEPTTL"])
        .unwrap();
    assert_eq!(old, bulk(&one));
    assert_eq!(client.command(&["GET", "k"]).unwrap(), bulk(&two));
    let ttl = client.command(&["TTL", "k"]).unwrap();
    assert!(matches!(ttl, Value::Integer(900..=1000)), "{ttl:?}");
    ok(&mut client, &[b"SET", b"k", &one]);
    assert_eq!(client.command(&["TTL", "k"]).unwrap(), Value::Integer(-1));
    for wrong in [&b"NONSENSE"[..], b"EX"] {
        let reply = client.command(&[&b"SET"[..], b"k", &*two, wrong]).unwrap();
        assert_eq!(reply, Value::Error("ERR syntax error".into()));
    }
    assert_eq!(client.command(&["GET", "k"]).unwrap(), bulk(&one));
    // Arguments of other kinds and in other places are received with their requests.
    assert_eq!(client.command(&[&b"ECHO"[..], &*two]).unwrap(), bulk(&two));
    ok(&mut client, &[b"MSET", b"a", &one, b"b", &two]);
    assert_eq!(
        client.command(&["STRLEN", "b"]).unwrap(),
        Value::Integer(370_001)
    );
}

#[test]
fn older_forms_of_set_take_values_that_arrive_apart() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    let (one, two) = (pattern(LONG, 1), pattern(LONG + 70_000, 2));
    let bulk = |bytes: &Vec<u8>| Value::Bulk(bytes.clone());
    let mut run = |parts: &[&[u8]]| client.command(parts).unwrap();
    assert_eq!(run(&[b"SETNX", b"k", &one]), Value::Integer(1));
    assert_eq!(run(&[b"SETNX", b"k", &two]), Value::Integer(0));
    assert_eq!(run(&[b"GETSET", b"k", &two]), bulk(&one));
    assert_eq!(run(&[b"GET", b"k"]), bulk(&two));
    assert_eq!(
        run(&[b"SETEX", b"k", b"1000", &one]),
        Value::Simple("OK".into())
    );
    assert_eq!(run(&[b"GET", b"k"]), bulk(&one));
    let ttl = run(&[b"TTL", b"k"]);
    assert!(matches!(ttl, Value::Integer(900..=1000)), "{ttl:?}");
    assert_eq!(
        run(&[b"PSETEX", b"k", b"0", &two]),
        Value::Error("ERR invalid expire time in 'psetex' command".into())
    );
    assert_eq!(
        run(&[b"SETEX", b"k", &one, b"short"]),
        Value::Error("ERR value is not an integer or out of range".into())
    );
    assert_eq!(run(&[b"GET", b"k"]), bulk(&one));
    assert_eq!(run(&[b"RPUSH", b"list", b"1"]), Value::Integer(1));
    let Value::Error(refused) = run(&[b"GETSET", b"list", &two]) else {
        panic!("a list is no string");
    };
    assert!(refused.starts_with(b"WRONGTYPE"));
    assert_eq!(run(&[b"LLEN", b"list"]), Value::Integer(1));
}

#[test]
fn long_values_take_their_place_in_a_pipeline() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    let (one, two) = (pattern(LONG, 1), pattern(2 * LONG, 2));
    let requests: Vec<Vec<&[u8]>> = vec![
        vec![b"SET", b"small", b"1"],
        vec![b"SET", b"k", &one],
        vec![b"INCR", b"small"],
        vec![b"SET", b"k", &two],
        vec![b"GETRANGE", b"k", b"600000", b"-1"],
        vec![b"APPEND", b"k", &one],
        vec![b"INCR", b"small"],
    ];
    let replies = client.pipeline(&requests).unwrap();
    let end = client
        .command(&["GETRANGE", "k", "600001", "600003"])
        .unwrap();
    let last = [two[600_001], one[0], one[1]];
    assert_eq!(end, Value::Bulk(last.to_vec()));
    let ok = Value::Simple("OK".into());
    let expected = vec![
        ok.clone(),
        ok,
        Value::Integer(2),
        Value::Simple("OK".into()),
        Value::Bulk(two[600_000..].to_vec()),
        Value::Integer(900_003),
        Value::Integer(3),
    ];
    assert!(replies == expected);
}

/// The received part of a value belongs to the client, and is freed with the client.
#[test]
fn half_a_value_goes_with_its_sender() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    let info = |client: &mut Client, field: &str| -> u64 {
        let Value::Bulk(text) = client.command(&["INFO", "memory"]).unwrap() else {
            panic!("INFO gives text");
        };
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        line.unwrap().parse().unwrap()
    };
    let before = info(&mut client, "used_memory_dataset:");
    let mut sender = UnixStream::connect(server.socket()).unwrap();
    sender
        .write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000000\r\n")
        .unwrap();
    sender.write_all(&vec![b'v'; 40_000_000]).unwrap();
    eventually("it is counted as the client's", || {
        info(&mut client, "mem_clients_normal:") > 39_000_000
    });
    assert!(info(&mut client, "used_memory_dataset:") < before + 1_000_000);
    drop(sender);
    eventually("it is given back", || {
        info(&mut client, "mem_clients_normal:") < 1_000_000
    });
    eventually("also to the system", || {
        server.anonymous_bytes().unwrap() < 30_000_000
    });
    assert_eq!(client.command(&["EXISTS", "k"]).unwrap(), Value::Integer(0));
}

#[test]
fn limits_hold_for_values_that_arrive_apart() {
    let server = start(&["--maxmemory", "20mb", "--proto-max-bulk-len", "30mb"]);
    let mut client = server.client().unwrap();
    let refused = client
        .command(&[&b"SET"[..], b"k", &*vec![b'v'; 25_000_000]])
        .unwrap();
    let Value::Error(text) = refused else {
        panic!("{refused:?}");
    };
    assert!(text.starts_with(b"OOM "), "{text:?}");
    ok(&mut client, &[b"SET", b"k", &pattern(1_000_000, 1)]);
    client
        .send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$31457281\r\n")
        .unwrap();
    let told = client.receive().unwrap().unwrap();
    assert_eq!(
        told,
        Value::Error("ERR Protocol error: invalid bulk length".into())
    );
    let mut other = server.client().unwrap();
    assert_eq!(
        other.command(&["STRLEN", "k"]).unwrap(),
        Value::Integer(1_000_000)
    );
    ok(
        &mut other,
        &[b"CONFIG", b"SET", b"client-query-buffer-limit", b"1mb"],
    );
    let sent = other.send(&[&b"SET"[..], b"k", &*vec![b'v'; 25_000_000]]);
    let ended = sent.is_err() || other.receive().map_or(true, |reply| reply.is_none());
    assert!(ended, "closed, not answered");
}

/// Returns the peak memory while a value is set and read: its size and little more.
fn peak_of(value_bytes: usize) -> (u64, u64) {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    let before = server.rss_peak_bytes().unwrap();
    let value = b"0123456789abcde".repeat(value_bytes / 15);
    ok(&mut client, &[b"SET", b"k", &value]);
    let set_peak = server.rss_peak_bytes().unwrap() - before;
    assert!(client.command(&["GET", "k"]).unwrap() == Value::Bulk(value));
    (set_peak, server.rss_peak_bytes().unwrap() - before)
}

#[test]
fn a_value_is_set_and_read_without_a_second_copy() {
    const VALUE: usize = 32 << 20;
    let (set_peak, peak) = peak_of(VALUE);
    let most = (VALUE as u64) * 115 / 100;
    assert!(set_peak <= most && peak <= most, "{set_peak} {peak}");
}

#[test]
#[ignore = "takes a gigabyte; cargo test -p server --release --test it -- --ignored second_copy"]
fn values_of_256_and_512_mib_are_set_and_read_without_a_second_copy() {
    for mib in [256_usize, 512] {
        let (set_peak, peak) = peak_of(mib << 20);
        let most = ((mib as u64) << 20) * 115 / 100;
        assert!(
            set_peak <= most && peak <= most,
            "{mib} MiB: {set_peak} {peak}"
        );
    }
}

/// A value that is received separately from its request is shown like others.
#[test]
fn a_value_that_comes_in_parts_is_shown() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    let mut monitor = server.client().unwrap();
    let value = [&b"begins so"[..], &[b'x'; 2 << 20]].concat();
    let head = format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n${}\r\n", value.len());
    let mut send = |is_monitored: bool| {
        client.send_raw(head.as_bytes()).unwrap();
        client.send_raw(&value[..value.len() / 2]).unwrap();
        // After a part of it has been received, the request can no longer be seen as a whole.
        eventually("half of it has come", || {
            let list = show(&monitor.command(&["CLIENT", "LIST"]).unwrap());
            let waiting = list.split(" qbuf=").skip(1);
            let mut waiting = waiting.map(|rest| rest.split(' ').next().unwrap().len());
            waiting.any(|digits| digits >= "1000000".len())
        });
        if is_monitored {
            assert_eq!(show(&monitor.command(&["MONITOR"]).unwrap()), "+OK");
        }
        client.send_raw(&value[value.len() / 2..]).unwrap();
        client.send_raw(b"\r\n").unwrap();
        assert_eq!(show(&client.receive().unwrap().unwrap()), "+OK");
    };
    send(false);
    send(true);
    let line = show(&monitor.receive().unwrap().unwrap());
    let shown = format!("\"SET\" \"key\" \"{}\"", String::from_utf8_lossy(&value));
    assert!(line.ends_with(&shown), "{}", &line[..100]);
    let log = client.command(&["COMMANDLOG", "GET", "-1", "large-request"]);
    let log = show(&log.unwrap());
    let shown = format!(
        "begins so{}... ({} more bytes)",
        "x".repeat(119),
        value.len() - 128
    );
    assert_eq!(log.matches(&shown).count(), 2, "{log}");
}
