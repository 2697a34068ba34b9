//! Tests of RESTORE's payloads: a payload that announces more than it contains takes no memory, and
//! dumps of the oracle are read here as there, and vice versa.

use protocol::Value;
use testkit::client::Client;
use testkit::process::ServerBuilder;

/// Maximum growth of the process while it refuses payloads.
const GROWTH_BYTES_MAX: u64 = 24 << 20;

/// The largest length in the format.
const LENGTH_MAX: &[u8] = b"\x81\xff\xff\xff\xff\xff\xff\xff\xff";
/// The length 2^32 - 1.
const LENGTH_32: &[u8] = b"\x80\xff\xff\xff\xff";
/// The length of a thousand million.
const LENGTH_30: &[u8] = b"\x80\x3b\x9a\xca\x00";

/// The codes of all types, and some that denote no type.
const CODES: std::ops::Range<u8> = 0..30;

fn restore(client: &mut Client, body: &[u8], version: u16) -> Value {
    let mut payload = body.to_vec();
    payload.extend_from_slice(&version.to_le_bytes());
    let sum = base::crc::crc64(0, &payload);
    payload.extend_from_slice(&sum.to_le_bytes());
    let request = [b"RESTORE".as_slice(), b"k", b"0", &payload, b"REPLACE"];
    client.command(&request).unwrap()
}

fn refuses(client: &mut Client, body: &[u8]) {
    for version in [10, 80] {
        let reply = restore(client, body, version);
        let expected = Value::Error(b"ERR Bad data format".to_vec());
        assert_eq!(reply, expected, "{:?}", &body[..body.len().min(40)]);
    }
}

#[test]
fn claims_take_no_memory() {
    let server = ServerBuilder::iolite()
        .args(&["--proto-max-bulk-len", "64mb"])
        .start()
        .unwrap();
    let mut client = server.client().unwrap();
    let before = server.rss_peak_bytes().unwrap();
    let padding = vec![b'x'; 1 << 12];
    for code in CODES {
        for length in [LENGTH_MAX, LENGTH_32, LENGTH_30] {
            // As a count or a length at the start, after a time, and as the length of an inner
            // text.
            refuses(&mut client, &[&[code], length].concat());
            refuses(&mut client, &[&[code], length, &padding].concat());
            refuses(
                &mut client,
                &[&[code], &[0; 8][..], length, &padding].concat(),
            );
            refuses(&mut client, &[&[code, 1], length, &padding].concat());
            // As a compressed text, by either of its lengths.
            let packed = [&[code, 0xc3], length, &[5][..], &padding];
            refuses(&mut client, &packed.concat());
            let packed = [&[code, 0xc3, 5], length, b"\x00a\xe0\xff\x00", &padding];
            refuses(&mut client, &packed.concat());
        }
    }
    // Repetitions of 264 bytes: 200 MB in 2.3 MB.
    let mut packed = b"\x00a".to_vec();
    let repeats: u32 = 760_000;
    (0..repeats).for_each(|_| packed.extend_from_slice(b"\xe0\xff\x00"));
    let [packed_len, len] = [u32::try_from(packed.len()).unwrap(), 1 + 264 * repeats];
    let lengths = [packed_len, len].map(|length| [&[0x80], &length.to_be_bytes()[..]].concat());
    let bomb = [&[0, 0xc3], &lengths[0][..], &lengths[1], &packed].concat();
    refuses(&mut client, &bomb);
    // The peak is updated less often than the current size.
    let grown = server.rss_peak_bytes().unwrap().saturating_sub(before);
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes");
    assert_eq!(client.command(&["EXISTS", "k"]).unwrap(), Value::Integer(0));
}

/// Returns zeros of both signs, as numbers and as texts, in the small and in the large encoding of
/// each type.
fn zeros() -> Vec<Vec<String>> {
    let long = "x".repeat(100);
    let lines = [
        "ZADD small -0 a 0 b -0.0 c 1.5 d",
        "ZADD down 1 a",
        "ZINCRBY down -1 a",
        "ZADD up -1 a",
        "ZINCRBY up 1 a",
        &format!("ZADD large -0.0 {long} -0 a 0 b"),
        "HSET fields f -0 g 0 h -0.0 i 00",
        "HINCRBYFLOAT sum f -0",
        &format!("HSET table f -0 g 0 long {long}"),
        "SADD members -0 0 00 -0.0",
        "RPUSH list -0 0 00 -0.0",
        "SET text -0",
        "XADD stream 1-1 f -0 g 0",
    ];
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    lines.map(words).to_vec()
}

fn key_of(line: &[String]) -> &str {
    &line[1]
}

/// Returns the zeros that each key shows.
fn shown(client: &mut Client) -> Vec<Value> {
    [
        &["ZMSCORE", "small", "a", "b", "c", "d"][..],
        &["ZMSCORE", "down", "a"],
        &["ZMSCORE", "up", "a"],
        &["ZMSCORE", "large", "a", "b", &"x".repeat(100)],
        &["HMGET", "fields", "f", "g", "h", "i"],
        &["HMGET", "sum", "f"],
        &["HMGET", "table", "f", "g"],
        &["SMISMEMBER", "members", "-0", "0", "00", "-0.0"],
        &["LRANGE", "list", "0", "-1"],
        &["GET", "text"],
        &["XRANGE", "stream", "-", "+"],
    ]
    .map(|request| client.command(request).unwrap())
    .to_vec()
}

fn payloads(client: &mut Client) -> Vec<Value> {
    let dump = |line: &Vec<String>| client.command(&["DUMP", key_of(line)]).unwrap();
    zeros().iter().map(dump).collect()
}

fn take(client: &mut Client, payloads: &[Value]) {
    client.command(&["FLUSHALL"]).unwrap();
    for (line, payload) in zeros().iter().zip(payloads) {
        let Value::Bulk(payload) = payload else {
            panic!("{payload:?}");
        };
        let key = key_of(line).as_bytes();
        let request = [b"RESTORE".as_slice(), key, b"0", payload, b"REPLACE"];
        let reply = client.command(&request).unwrap();
        assert_eq!(reply, Value::Simple(b"OK".to_vec()));
    }
}

#[test]
fn a_zero_keeps_its_sign_where_the_oracle_keeps_it() {
    let servers =
        [ServerBuilder::iolite(), ServerBuilder::oracle()].map(|one| one.start().unwrap());
    let [mut ours, mut oracle] = servers.each_ref().map(|one| one.client().unwrap());
    for line in zeros() {
        assert_eq!(
            ours.command(&line).unwrap(),
            oracle.command(&line).unwrap(),
            "{line:?}"
        );
    }
    let before = shown(&mut ours);
    assert_eq!(before, shown(&mut oracle));
    // A large sorted set keeps the sign and a small one does not, so the comparison below is
    // meaningful.
    let Value::Array(scores) = &before[3] else {
        panic!("{before:?}");
    };
    assert_eq!(scores[0], Value::Bulk(b"-0".to_vec()));
    let (ours_dumped, oracle_dumped) = (payloads(&mut ours), payloads(&mut oracle));
    for payloads in [&oracle_dumped, &ours_dumped] {
        take(&mut ours, payloads);
        take(&mut oracle, payloads);
        let now = shown(&mut ours);
        assert_eq!(now, shown(&mut oracle));
        assert_eq!(now, before);
    }
}
