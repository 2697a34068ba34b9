//! Iteration over the keys of a server, for all tools that need it.

use protocol::{Value, encode_request};

pub(crate) use super::print::text_of;
use crate::endpoint::Session;
use crate::error::BenchError;

/// A step of SCAN.
pub(crate) struct Step {
    pub(crate) cursor: Vec<u8>,
    pub(crate) keys: Vec<Vec<u8>>,
}

/// Returns the keys that one SCAN call finds from a cursor on.
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

/// Returns the error for an unexpected reply.
pub(crate) fn refused(request: &str, reply: &Value) -> BenchError {
    BenchError::Refused {
        request: request.to_owned(),
        reply: String::from_utf8_lossy(&text_of(reply)).into_owned(),
    }
}

/// Maximum total length of requests that are sent before their replies are read, unless it is a
/// single one: more might fill both sockets, while the server waits for its replies to be read.
const AHEAD_BYTES_MAX: usize = 64 << 10;

/// Sends requests, many before the first reply. Returns the replies in their order.
pub(crate) fn together(
    session: &mut Session,
    requests: &[Vec<&[u8]>],
) -> Result<Vec<Value>, BenchError> {
    let mut replies = Vec::with_capacity(requests.len());
    let mut bytes = Vec::new();
    let mut request = Vec::new();
    for (at, words) in requests.iter().enumerate() {
        request.clear();
        encode_request(&mut request, words);
        if bytes.len() + request.len() > AHEAD_BYTES_MAX {
            exchange(session, &mut bytes, &mut replies, at)?;
        }
        bytes.extend_from_slice(&request);
    }
    exchange(session, &mut bytes, &mut replies, requests.len())?;
    Ok(replies)
}

/// Sends the buffered requests and reads until there are `wanted` replies.
fn exchange(
    session: &mut Session,
    bytes: &mut Vec<u8>,
    replies: &mut Vec<Value>,
    wanted: usize,
) -> Result<(), BenchError> {
    session.send(bytes)?;
    bytes.clear();
    while replies.len() < wanted {
        replies.push(session.reply()?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::endpoint::{Address, Endpoint};

    /// Like a server that reads no request until its replies were read, with replies that fill the
    /// sockets.
    #[test]
    fn replies_are_taken_before_the_sockets_are_full() {
        const REQUEST: &[u8] = b"*1\r\n$10000\r\n";
        const REQUESTS: usize = 2_000;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; REQUEST.len() + 10_000 + 2];
            let reply = [&b"$20000\r\n"[..], &[b'x'; 20_000], b"\r\n"].concat();
            for _ in 0..REQUESTS {
                stream.read_exact(&mut request).unwrap();
                stream.write_all(&reply).unwrap();
            }
        });
        let address = Address::Tcp("127.0.0.1".to_owned(), port);
        let mut session = Endpoint::new("server", address).connect().unwrap();
        let word = vec![b'w'; 10_000];
        let requests = vec![vec![word.as_slice()]; REQUESTS];
        let replies = together(&mut session, &requests).unwrap();
        server.join().unwrap();
        assert_eq!(replies.len(), REQUESTS);
        assert!(replies.iter().all(|reply| text_of(reply).len() == 20_000));
    }
}
