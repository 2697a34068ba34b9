//! Values of many pages: in and out without copies, and the memory that takes.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use protocol::Value;
use testkit::client::Client;
use testkit::process::{Server, ServerBuilder};

fn start(args: &[&str]) -> Server {
    ServerBuilder::iolite().args(args).start().unwrap()
}

fn ok(client: &mut Client, args: &[&[u8]]) {
    let reply = client.command(args).unwrap();
    assert_eq!(reply, Value::Simple("OK".into()), "{:?}", args.first());
}

/// Bytes that differ at every place where pages or pieces could be mixed up.
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

/// A reply is the value as it was when its command ran, whatever came later.
#[test]
fn a_reply_is_not_changed_by_later_writes() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    let value = pattern(3_000_000, 1);
    ok(&mut client, &[b"SET", b"k", &value]);
    let mut slow = UnixStream::connect(server.socket()).unwrap();
    slow.write_all(b"GET k\r\nSETRANGE k 2999990 changed\r\nAPPEND k more\r\nDEL k\r\n")
        .unwrap();
    // The rest of the pipeline runs once the reply was taken; meanwhile others write.
    client
        .command(&["SETRANGE", "k", "2500000", "other"])
        .unwrap();
    ok(&mut client, &[b"SET", b"other", &pattern(3_000_000, 2)]);
    let mut expected = b"$3000000\r\n".to_vec();
    expected.extend_from_slice(&value);
    expected.extend_from_slice(b"\r\n:3000000\r\n:3000004\r\n:1\r\n");
    let mut received = vec![0; expected.len()];
    slow.read_exact(&mut received).unwrap();
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
