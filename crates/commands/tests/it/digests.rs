//! DEBUG DIGEST and DIGEST-VALUE compared with Redis: the same data gives the same number.

use base::random::Prng;
use protocol::Value;
use testkit::process::ServerBuilder;

use crate::effect_server::TestServer;
use crate::oracle;

const ROUNDS: u64 = 40;
const REQUESTS: u64 = 60;
/// Number of elements of a large value, beyond the limits of compact encodings.
const MANY: u64 = 700;

const KEYS: &[&str] = &["a", "b", "c", "d", "e", "f", "g", "h"];

/// Scores that Redis 7.0, the oracle, writes as 7.2 does.
const SCORES: &[&str] = &["1", "-2", "0.5", "1.25", "inf", "-inf", "1000000", "0"];

/// Returns a random text: a number, a near number, binary, long.
fn text(random: &mut Prng) -> Vec<u8> {
    match random.below(6) {
        0 => random.below(300).to_string().into_bytes(),
        1 => b"-9223372036854775808".to_vec(),
        2 => b"007".to_vec(),
        3 => format!("text {}", random.below(20)).into_bytes(),
        4 => vec![0, 0xff, b'\n'],
        _ => vec![b'x'; usize::try_from(60 + random.below(40)).unwrap()],
    }
}

fn pick<'t>(random: &mut Prng, from: &[&'t str]) -> &'t str {
    from[usize::try_from(random.below(from.len() as u64)).unwrap()]
}

/// Returns a request that writes something, or selects another database.
fn request(random: &mut Prng, number: u64) -> Vec<Vec<u8>> {
    let key = pick(random, KEYS);
    let count = if random.below(12) == 0 { MANY } else { 3 };
    let mut words: Vec<Vec<u8>> = Vec::new();
    let (command, parts): (&str, u64) = match random.below(9) {
        0 => ("SET", 1),
        1 => ("RPUSH", count),
        2 => ("SADD", count),
        3 => ("HSET", count * 2),
        4 => ("ZADD", count),
        5 => ("XADD", 4),
        6 => ("PEXPIREAT", 0),
        7 => ("SELECT", 0),
        _ => ("DEL", 0),
    };
    words.push(command.into());
    if command == "SELECT" {
        words.push(random.below(4).to_string().into_bytes());
        return words;
    }
    // Most keys keep their type.
    let key = if random.below(8) == 0 {
        key.to_owned()
    } else {
        format!("{command}:{key}")
    };
    words.push(key.into_bytes());
    match command {
        "XADD" => words.push(format!("{number}-1").into_bytes()),
        "PEXPIREAT" => words.push(b"4102444800000".to_vec()),
        _ => (),
    }
    for part in 0..parts {
        if command == "ZADD" {
            words.push(pick(random, SCORES).into());
        }
        let mut text = text(random);
        if parts > 10 {
            text.extend_from_slice(part.to_string().as_bytes());
        }
        words.push(text);
    }
    words
}

#[test]
fn equal_data_has_the_sum_of_redis() {
    let oracle = ServerBuilder::oracle().args(&["--enable-debug-command", "yes"]);
    let Some(oracle) = oracle::or_none(oracle.start()) else {
        return;
    };
    let mut client = oracle.client().unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..ROUNDS {
        let (mut random, mut server) = (Prng::seeded(seed), TestServer::now());
        client.command(&["FLUSHALL"]).unwrap();
        client.command(&["SELECT", "0"]).unwrap();
        for number in 1..=REQUESTS {
            let request = request(&mut random, number);
            let (ours, theirs) = (server.run(&request), client.command(&request).unwrap());
            assert_eq!(ours, theirs, "round {seed}");
        }
        let mut of_values = vec!["DEBUG".to_owned(), "DIGEST-VALUE".to_owned()];
        for command in ["SET", "RPUSH", "SADD", "HSET", "ZADD", "XADD"] {
            of_values.extend(KEYS.iter().map(|key| format!("{command}:{key}")));
        }
        let theirs = client.command(&of_values).unwrap();
        assert_eq!(server.run(&of_values), theirs, "round {seed}");
        let theirs = client.command(&["DEBUG", "DIGEST"]).unwrap();
        assert_eq!(server.line("DEBUG DIGEST"), theirs, "round {seed}");
        // A transaction takes another code path.
        server.line("MULTI");
        server.line("DEBUG DIGEST");
        assert_eq!(server.line("EXEC"), Value::Array(vec![theirs.clone()]));
        let Value::Simple(sum) = theirs else {
            panic!("{theirs:?}");
        };
        seen.insert(sum);
    }
    assert_eq!(seen.len() as u64, ROUNDS);
}
