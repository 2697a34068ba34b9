//! Keys of a running server, by SCAN. The server itself reports their memory.

use std::time::Duration;

use protocol::Value;

use super::tally::{Seen, Tally};
use crate::cli::keys::{scan_step, text_of, together};
use crate::endpoint::{Endpoint, Session};
use crate::error::BenchError;

/// How to walk through the keys.
pub(super) struct Walk<'o> {
    pub(super) pattern: Option<&'o str>,
    pub(super) count: u64,
    pub(super) pause: Duration,
}

/// Types, and the command that counts their elements.
const TYPES: [(&str, &str); 6] = [
    ("string", ""),
    ("list", "LLEN"),
    ("set", "SCARD"),
    ("zset", "ZCARD"),
    ("hash", "HLEN"),
    ("stream", "XLEN"),
];
const OTHER: &str = "other";

/// Encodings that are distinguished.
const ENCODINGS: [&str; 12] = [
    "int",
    "embstr",
    "raw",
    "listpack",
    "listpackex",
    "ziplist",
    "quicklist",
    "intset",
    "hashtable",
    "skiplist",
    "stream",
    "btree",
];

/// Counts the keys of a server. Returns what it was.
pub(super) fn read(
    endpoint: &Endpoint,
    walk: &Walk<'_>,
    tally: &mut Tally,
) -> Result<String, BenchError> {
    let mut session = endpoint.connect()?;
    for (database, _) in session.keyspace()? {
        session.demand("SELECT", &["SELECT", &database.to_string()])?;
        let mut cursor = b"0".to_vec();
        loop {
            let step = scan_step(&mut session, &cursor, walk.pattern, None, walk.count)?;
            look(&mut session, database, &step.keys, tally)?;
            cursor = step.cursor;
            if cursor == b"0" {
                break;
            }
            std::thread::sleep(walk.pause);
        }
    }
    Ok(format!("{}, a live server", endpoint.address))
}

fn look(
    session: &mut Session,
    database: u32,
    keys: &[Vec<u8>],
    tally: &mut Tally,
) -> Result<(), BenchError> {
    let requests: Vec<Vec<&[u8]>> = keys
        .iter()
        .flat_map(|key| {
            [
                vec![&b"TYPE"[..], key],
                vec![&b"MEMORY"[..], b"USAGE", key, b"SAMPLES", b"0"],
                vec![&b"PTTL"[..], key],
                vec![&b"OBJECT"[..], b"ENCODING", key],
            ]
        })
        .collect();
    let replies = together(session, &requests)?;
    let types: Vec<(&'static str, &'static str)> = replies
        .chunks_exact(4)
        .map(|of_key| {
            let name = text_of(&of_key[0]);
            let known = TYPES.iter().find(|(own, _)| own.as_bytes() == name);
            known.copied().unwrap_or((OTHER, ""))
        })
        .collect();
    let counts: Vec<Vec<&[u8]>> = keys
        .iter()
        .zip(&types)
        .filter(|(_, (_, command))| !command.is_empty())
        .map(|(key, (_, command))| vec![command.as_bytes(), key])
        .collect();
    let mut counts = together(session, &counts)?.into_iter();
    for ((key, of_key), (type_name, command)) in keys.iter().zip(replies.chunks_exact(4)).zip(types)
    {
        let elements = match command {
            "" => Some(Value::Integer(1)),
            _ => counts.next(),
        };
        // A key that was removed meanwhile is not counted.
        let Value::Integer(bytes) = of_key[1] else {
            continue;
        };
        let encoding = text_of(&of_key[3]);
        let encoding = ENCODINGS.iter().find(|own| own.as_bytes() == encoding);
        tally.add(&Seen {
            database,
            key,
            type_name,
            encoding: encoding.copied().unwrap_or(OTHER),
            bytes: bytes.max(0).unsigned_abs(),
            elements: number(elements.as_ref()).unwrap_or(0),
            ttl_ms: number(Some(&of_key[2])),
        });
    }
    Ok(())
}

/// Returns a number that is not negative.
fn number(reply: Option<&Value>) -> Option<u64> {
    match reply? {
        Value::Integer(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}
