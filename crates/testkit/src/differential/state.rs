//! Everything a server holds: every key of every database, with type, value, deadline and encoding.

use std::io;

use protocol::Value;

use super::sequence::Answer;
use crate::client::Client;
use crate::transcript::show;

/// Default number of databases of a server.
pub(super) const DATABASES: usize = 16;
/// Maximum difference in milliseconds between the deadlines of the same key.
const TOLERANCE_MS: u64 = 20_000;

/// Returns all keys, as `[[database, [keys walked over], [key, type, value, time, encoding], ...],
/// ...]`.
///
/// # Errors
/// If the server does not answer, or does not answer as a server must.
pub fn read(client: &mut Client) -> io::Result<Value> {
    let mut databases = Vec::new();
    for database in 0..DATABASES {
        let name = database.to_string();
        let replies = client.pipeline(&[
            ["SELECT", name.as_str()].as_slice(),
            &["DBSIZE"],
            &["KEYS", "*"],
        ])?;
        let [_, size, Value::Array(keys)] = replies.as_slice() else {
            return Err(io::Error::other(format!(
                "the keys of a database: {replies:?}"
            )));
        };
        if keys.is_empty() && *size == Value::Integer(0) {
            continue;
        }
        let mut keys: Vec<Vec<u8>> = keys.iter().filter_map(text).collect();
        keys.sort();
        let mut parts = vec![Value::Bulk(name.into_bytes()), size.clone()];
        parts.push(Value::Array(
            walk(client)?.into_iter().map(Value::Bulk).collect(),
        ));
        parts.extend(read_keys(client, &keys)?);
        databases.push(Value::Array(parts));
    }
    Ok(Value::Array(databases))
}

fn text(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Bulk(text) => Some(text.clone()),
        _ => None,
    }
}

/// Returns all keys that SCAN returns in small steps, each once, sorted.
fn walk(client: &mut Client) -> io::Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    let mut cursor = b"0".to_vec();
    loop {
        let reply = client.command(&[b"SCAN".as_slice(), &cursor, b"COUNT", b"7"])?;
        let Value::Array(parts) = &reply else {
            return Err(io::Error::other(format!("SCAN: {}", show(&reply))));
        };
        let [Value::Bulk(next), Value::Array(found)] = parts.as_slice() else {
            return Err(io::Error::other(format!("SCAN: {}", show(&reply))));
        };
        keys.extend(found.iter().filter_map(text));
        cursor.clone_from(next);
        if cursor == b"0" {
            break;
        }
    }
    keys.sort();
    keys.dedup();
    Ok(keys)
}

fn read_keys(client: &mut Client, keys: &[Vec<u8>]) -> io::Result<Vec<Value>> {
    let kinds = ask_of_all(client, keys, |key| vec![b"TYPE", key])?;
    let values = ask_of_each(client, keys.iter().zip(&kinds), |(key, kind)| {
        value_request(kind, key)
    })?;
    let deadlines = ask_of_all(client, keys, |key| vec![b"PEXPIRETIME", key])?;
    let encodings = ask_of_all(client, keys, |key| vec![b"OBJECT", b"ENCODING", key])?;
    let described = keys.iter().enumerate().map(|(at, key)| {
        Value::Array(vec![
            Value::Bulk(key.clone()),
            kinds[at].clone(),
            in_order(&kinds[at], values[at].clone()),
            deadlines[at].clone(),
            compared_encoding(key, &kinds[at], encodings[at].clone()),
        ])
    });
    Ok(described.collect())
}

fn ask_of_all<'k>(
    client: &mut Client,
    keys: &'k [Vec<u8>],
    request: impl Fn(&'k [u8]) -> Vec<&'k [u8]>,
) -> io::Result<Vec<Value>> {
    ask_of_each(client, keys.iter(), |key| request(key))
}

fn ask_of_each<'k, T>(
    client: &mut Client,
    all: impl Iterator<Item = T>,
    request: impl Fn(T) -> Vec<&'k [u8]>,
) -> io::Result<Vec<Value>> {
    let requests: Vec<Vec<&[u8]>> = all.map(request).collect();
    let requests: Vec<&[&[u8]]> = requests.iter().map(Vec::as_slice).collect();
    client.pipeline(&requests)
}

/// Returns the request that reads a whole value.
fn value_request<'k>(kind: &Value, key: &'k [u8]) -> Vec<&'k [u8]> {
    match name_of(kind) {
        b"list" => vec![b"LRANGE", key, b"0", b"-1"],
        b"hash" => vec![b"HGETALL", key],
        b"set" => vec![b"SMEMBERS", key],
        b"zset" => vec![b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
        b"stream" => vec![b"XRANGE", key, b"-", b"+"],
        _ => vec![b"GET", key],
    }
}

fn name_of(kind: &Value) -> &[u8] {
    match kind {
        Value::Simple(name) | Value::Bulk(name) => name,
        _ => b"",
    }
}

/// Sorts a value whose order Redis leaves open.
fn in_order(kind: &Value, value: Value) -> Value {
    match (name_of(kind), value) {
        (b"set", Value::Array(mut members) | Value::Set(mut members)) => {
            members.sort_by_key(show);
            Value::Array(members)
        }
        (b"hash", Value::Array(items)) => {
            let mut pairs: Vec<Vec<Value>> = items.chunks(2).map(<[Value]>::to_vec).collect();
            pairs.sort_by_key(|pair| pair.iter().map(show).collect::<Vec<_>>());
            Value::Array(pairs.concat())
        }
        (b"hash", Value::Map(mut pairs)) => {
            pairs.sort_by_key(|(field, _)| show(field));
            Value::Map(pairs)
        }
        (b"zset", Value::Array(items)) => {
            Value::Array(items.into_iter().map(with_shortest_score).collect())
        }
        (_, value) => value,
    }
}

/// Replaces scores by their shortest text, which Redis returns since 7.2. The sign of a zero is not
/// compared, because it depends on the encoding that a set had when it was dumped.
fn with_shortest_score(value: Value) -> Value {
    let number = match &value {
        Value::Bulk(text) => base::float::parse(text),
        Value::Double(score) => Some(score.value),
        Value::Array(pair) => {
            return Value::Array(pair.iter().cloned().map(with_shortest_score).collect());
        }
        _ => None,
    };
    number.map_or(value, |number| {
        Value::Bulk(
            base::float::FloatText::shortest(number + 0.0)
                .as_bytes()
                .to_vec(),
        )
    })
}

/// Returns the encoding, as far as it must agree with Redis 7.0. Short lists and sets became
/// listpacks only in later versions. In Redis, a sorted set that SORT reads is a skiplist from then
/// on.
fn compared_encoding(key: &[u8], kind: &Value, encoding: Value) -> Value {
    match (name_of(kind), &encoding) {
        (b"zset", _) if key.starts_with(b"sort:") => Value::Null,
        (b"list", _) => Value::Null,
        (b"set", Value::Bulk(name)) if name != b"intset" => Value::Null,
        _ => encoding,
    }
}

/// Returns the first two parts that differ, as text.
pub(super) fn compare(one: Answer, two: Answer) -> Option<(String, String)> {
    let (one, two) = match (one, two) {
        (Ok(one), Ok(two)) => (one, two),
        (one, two) => {
            let in_words = |side: Answer| match side {
                Ok(_) => "(data)".to_owned(),
                Err(what) => format!("({what})"),
            };
            return Some((in_words(one), in_words(two)));
        }
    };
    difference(&one, &two)
}

/// Returns the first two parts of two states that differ, as text.
#[must_use]
pub fn difference(one: &Value, two: &Value) -> Option<(String, String)> {
    first_difference(one, two).map(|(one, two)| (show(one), show(two)))
}

/// Descends to the smallest differing part that still names its key.
fn first_difference<'v>(one: &'v Value, two: &'v Value) -> Option<(&'v Value, &'v Value)> {
    if agree(one, two) {
        return None;
    }
    if let (Value::Array(ones), Value::Array(twos)) = (one, two)
        && ones.len() == twos.len()
        && ones.iter().any(|item| matches!(item, Value::Array(_)))
    {
        let mut pairs = ones.iter().zip(twos);
        let differing = pairs.find(|(one, two)| !agree(one, two));
        return differing.and_then(|(one, two)| first_difference(one, two));
    }
    Some((one, two))
}

/// Whether two values are equal, with a tolerance for times, which are the only large numbers.
fn agree(one: &Value, two: &Value) -> bool {
    match (one, two) {
        (Value::Array(ones), Value::Array(twos)) => {
            ones.len() == twos.len() && ones.iter().zip(twos).all(|(one, two)| agree(one, two))
        }
        (Value::Integer(one), Value::Integer(two)) if *one > 1_000_000_000_000 => {
            one.abs_diff(*two) <= TOLERANCE_MS
        }
        _ => one == two,
    }
}
