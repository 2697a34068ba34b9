//! What a server holds in the end: every key of every database, with type, value, time and encoding.

use std::io;

use protocol::Value;

use super::sequence::Answer;
use crate::client::Client;
use crate::transcript::show;

/// Databases a server has unless told otherwise.
const DATABASES: usize = 16;
/// Milliseconds by which times of the same key may be apart.
const TOLERANCE_MS: u64 = 20_000;
/// What is asked about a key.
const QUESTIONS: usize = 4;

/// All keys: `[[database, [keys walked over], [key, type, value, time, encoding], ...], ...]`.
pub(super) fn read(client: &mut Client) -> io::Result<Value> {
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

/// All keys that SCAN gives in small steps, each once, in order.
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
    let questions: Vec<[&[u8]; 3]> = keys
        .iter()
        .flat_map(|key| {
            [
                [b"TYPE".as_slice(), key, b""],
                [b"GET", key, b""],
                [b"PEXPIRETIME", key, b""],
                [b"OBJECT", b"ENCODING", key],
            ]
        })
        .collect();
    let requests: Vec<&[&[u8]]> = questions
        .iter()
        .map(|words| match words[0] {
            b"OBJECT" => &words[..],
            _ => &words[..2],
        })
        .collect();
    let answers = client.pipeline(&requests)?;
    let described = keys
        .iter()
        .zip(answers.chunks_exact(QUESTIONS))
        .map(|(key, answers)| {
            let key = [Value::Bulk(key.clone())];
            Value::Array(key.iter().chain(answers).cloned().collect())
        });
    Ok(described.collect())
}

/// The first two parts that differ, in words.
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
    first_difference(&one, &two).map(|(one, two)| (show(one), show(two)))
}

/// Descends to the smallest part that still says which key it is about.
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

/// Equal, with a tolerance for times: the only large numbers.
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
