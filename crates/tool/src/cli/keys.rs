//! Walking through the keys of a server, for all tools that do.

use protocol::{Value, encode_request};

pub(crate) use super::print::text_of;
use crate::endpoint::Session;
use crate::error::BenchError;

/// A step of SCAN.
pub(crate) struct Step {
    pub(crate) cursor: Vec<u8>,
    pub(crate) keys: Vec<Vec<u8>>,
}

/// The keys that SCAN finds from a cursor on.
pub(crate) fn scan_step(
    session: &mut Session,
    cursor: &[u8],
    pattern: Option<&str>,
    type_name: Option<&str>,
    count: u64,
) -> Result<Step, BenchError> {
    let count = count.to_string();
    let mut words: Vec<&[u8]> = vec![b"SCAN", cursor];
    if let Some(pattern) = pattern {
        words.extend([&b"MATCH"[..], pattern.as_bytes()]);
    }
    words.extend([&b"COUNT"[..], count.as_bytes()]);
    if let Some(name) = type_name {
        words.extend([&b"TYPE"[..], name.as_bytes()]);
    }
    match session.request(&words)? {
        Value::Array(mut parts) if parts.len() == 2 => {
            let keys = match parts.pop() {
                Some(Value::Array(keys)) => keys.iter().map(text_of).collect(),
                _ => Vec::new(),
            };
            let cursor = parts
                .pop()
                .map(|cursor| text_of(&cursor))
                .unwrap_or_default();
            Ok(Step { cursor, keys })
        }
        other => Err(refused("SCAN", &other)),
    }
}

/// A reply that is not what was asked for.
pub(crate) fn refused(request: &str, reply: &Value) -> BenchError {
    BenchError::Refused {
        request: request.to_owned(),
        reply: String::from_utf8_lossy(&text_of(reply)).into_owned(),
    }
}

/// Sends all requests at once; the replies in their order.
pub(crate) fn together(
    session: &mut Session,
    requests: &[Vec<&[u8]>],
) -> Result<Vec<Value>, BenchError> {
    let mut bytes = Vec::new();
    for words in requests {
        encode_request(&mut bytes, words);
    }
    session.send(&bytes)?;
    requests.iter().map(|_| session.reply()).collect()
}
