//! Tests of deadlines of hash fields that a KeyDB keeps beside its values, as `iolite migrate`
//! reads them. The source is a Redis behind a proxy that answers what KeyDB answers and Redis does
//! not.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::clock::{Clock as _, SystemClock};
use protocol::Value;
use testkit::process::{Server, ServerBuilder, oracle_program};

use crate::tools::tool;

/// The remaining time of the one field that has a deadline.
const LEFT_MS: u64 = 1_000_000;

/// What the proxy does besides passing on requests and replies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing.
    Redis,
    /// It answers `PTTL key member`.
    KeyDb,
    /// As `KeyDb`, and INFO counts the deadline of a member, as KeyDB does.
    KeyDbThatCounts,
}

/// A proxy with its port, and the number of queries for the deadline of an existing member.
struct Proxy {
    port: u16,
    asked: Arc<AtomicUsize>,
}

impl Proxy {
    /// Starts a proxy, which serves until the test ends.
    fn before(source: &Server, kind: Kind) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = source.address().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, source) = (client.unwrap(), TcpStream::connect(address).unwrap());
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || {
                    // Ends when a client closes its connection.
                    let _ended = serve(client, source, kind, &counter);
                });
            }
        });
        Self { port, asked }
    }
}

/// Answers the requests of one connection, one after the other.
fn serve(
    mut client: TcpStream,
    mut source: TcpStream,
    kind: Kind,
    asked: &AtomicUsize,
) -> io::Result<()> {
    let mut requests = BufReader::new(client.try_clone()?);
    let mut replies = BufReader::new(source.try_clone()?);
    loop {
        let (request, words) = value(&mut requests)?;
        let is = |at: usize, word: &[u8]| {
            let found = words.get(at);
            found.is_some_and(|found| found.eq_ignore_ascii_case(word))
        };
        if kind != Kind::Redis && is(0, b"PTTL") && words.len() == 3 {
            let left = match (words[1].as_slice(), words[2].as_slice()) {
                (b"hash", member) => {
                    asked.fetch_add(1, Ordering::Relaxed);
                    match member {
                        b"timed" => format!(":{LEFT_MS}\r\n"),
                        _ => ":-1\r\n".to_owned(),
                    }
                }
                _ => ":-2\r\n".to_owned(),
            };
            client.write_all(left.as_bytes())?;
            continue;
        }
        source.write_all(&request)?;
        let (mut reply, _) = value(&mut replies)?;
        if kind == Kind::KeyDbThatCounts && is(0, b"INFO") {
            let none = b"expires=0,";
            let at = reply.windows(none.len()).position(|part| part == none);
            if let Some(at) = at {
                reply[at..at + none.len()].copy_from_slice(b"expires=1,");
            }
        }
        client.write_all(&reply)?;
    }
}

/// Reads one request or reply. Returns its bytes, and the texts in it.
fn value(from: &mut impl BufRead) -> io::Result<(Vec<u8>, Vec<Vec<u8>>)> {
    let (mut bytes, mut texts, mut left) = (Vec::new(), Vec::new(), 1_u64);
    while left > 0 {
        left -= 1;
        let mut line = Vec::new();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let digits = String::from_utf8_lossy(&line[1..]);
        let count: u64 = digits.trim_end().parse().unwrap_or(0);
        bytes.extend_from_slice(&line);
        match line[0] {
            b'*' | b'~' | b'>' => left += count,
            b'%' => left += 2 * count,
            b'$' | b'=' if !line.starts_with(b"$-") => {
                let mut text = Vec::new();
                from.take(count + 2).read_to_end(&mut text)?;
                bytes.extend_from_slice(&text);
                text.truncate(text.len().saturating_sub(2));
                texts.push(text);
            }
            _ => {}
        }
    }
    Ok((bytes, texts))
}

fn ask(server: &Server, words: &[&str]) -> Value {
    server.client().unwrap().command(words).unwrap()
}

/// Migrates a source of this kind. Returns the deadlines of the two fields at the target, and the
/// number of queries for them.
fn migrated(source: &Server, kind: Kind) -> ([i64; 2], usize) {
    let proxy = Proxy::before(source, kind);
    let target = ServerBuilder::iolite().tcp().start().unwrap();
    let from = format!("127.0.0.1:{}", proxy.port);
    let to = target.address().unwrap().to_string();
    let output = tool(&["migrate", &from, &to, "--json", "-q"]);
    assert!(output.status.success(), "{output:?}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["copied"], 2, "{told}");
    for (field, expected) in [("timed", "1"), ("plain", "2")] {
        let found = ask(&target, &["HGET", "hash", field]);
        assert_eq!(found, Value::Bulk(expected.into()), "{field}");
    }
    let words = ["HPEXPIRETIME", "hash", "FIELDS", "2", "timed", "plain"];
    let Value::Array(times) = ask(&target, &words) else {
        panic!("no times");
    };
    let [Value::Integer(timed), Value::Integer(plain)] = times[..] else {
        panic!("{times:?}");
    };
    ([timed, plain], proxy.asked.load(Ordering::Relaxed))
}

/// A field has its deadline at the target if the source reports it. If INFO counts no deadline,
/// fields are not queried.
#[test]
fn deadlines_of_fields_at_a_keydb_are_migrated() {
    let oracle = Command::new(oracle_program())
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if oracle.is_err() {
        return;
    }
    let source = ServerBuilder::oracle().tcp().start().unwrap();
    ask(&source, &["HSET", "hash", "timed", "1", "plain", "2"]);
    ask(&source, &["SET", "string", "x"]);
    for kind in [Kind::Redis, Kind::KeyDb] {
        assert_eq!(migrated(&source, kind), ([-1, -1], 0));
    }
    let clock = SystemClock::new();
    let now_ms = || i64::try_from(clock.now_unix_ms() + LEFT_MS).unwrap();
    let earliest = now_ms();
    let ([timed, plain], asked) = migrated(&source, Kind::KeyDbThatCounts);
    assert!((earliest..=now_ms()).contains(&timed), "{timed} {earliest}");
    assert_eq!((plain, asked), (-1, 2));
}
