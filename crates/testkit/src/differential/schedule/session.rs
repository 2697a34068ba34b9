//! One session of a schedule: what it has sent, which replies are outstanding, and what it has
//! received.

use std::collections::VecDeque;
use std::io;

use protocol::Value;

use super::super::sequence::{Answer, Request};
use crate::client::{Client, Received};
use crate::target::Target;

/// Prefix of a word that stands for the number of a session's connection. The session's index
/// follows.
pub(super) const ID_OF: &str = "id-of-session-";

/// Commands whose confirmations are not counted. A PING is sent after each; when it is answered,
/// all confirmations are there.
const SUBSCRIBING: &[&[u8]] = &[
    b"SUBSCRIBE",
    b"UNSUBSCRIBE",
    b"PSUBSCRIBE",
    b"PUNSUBSCRIBE",
    b"SSUBSCRIBE",
    b"SUNSUBSCRIBE",
];
/// How messages other than confirmations begin in RESP2.
const MESSAGES: &[&[u8]] = &[b"MESSAGE", b"PMESSAGE", b"SMESSAGE"];

/// A connection that takes part in a schedule.
pub(super) struct Session {
    client: Client,
    /// Number that the server gave to the connection.
    pub(super) id: i64,
    awaited: VecDeque<Awaited>,
}

/// The reply that a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// One reply.
    Reply,
    /// Any number of confirmations, unless the request is refused or queued.
    Confirmations,
}

impl Session {
    pub(super) fn open(target: &dyn Target, resp3: bool) -> io::Result<Self> {
        let mut client = target.connect()?;
        if resp3 {
            client.hello3()?;
        }
        let id = match client.command(&["CLIENT", "ID"])? {
            Value::Integer(id) => id,
            other => return Err(io::Error::other(format!("CLIENT ID: {other:?}"))),
        };
        Ok(Self {
            client,
            id,
            awaited: VecDeque::new(),
        })
    }

    /// Sends requests at once. Words that stand for sessions are replaced by `ids`.
    pub(super) fn send(&mut self, requests: &[Request], ids: &[i64]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for request in requests {
            let words: Vec<Vec<u8>> = request.iter().map(|word| with_id(word, ids)).collect();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            protocol::encode_request(&mut bytes, &words);
            if is_one_of(words[0], SUBSCRIBING) {
                protocol::encode_request(&mut bytes, &[b"PING", b"subscribed"]);
                self.awaited.push_back(Awaited::Confirmations);
            }
            self.awaited.push_back(Awaited::Reply);
        }
        self.client.send_raw(&bytes)
    }

    /// Moves the received values into `heard`. Returns `false` if the connection has ended.
    pub(super) fn listen(&mut self, heard: &mut Vec<Answer>) -> bool {
        loop {
            match self.client.arrived() {
                Ok(Received::Nothing) => return true,
                Ok(Received::Value(value)) => {
                    if !is_message(&value) {
                        self.answered(&value);
                    }
                    heard.push(Ok(value));
                }
                Ok(Received::End) => {
                    heard.push(Err("closed".to_owned()));
                    return false;
                }
                Err(error) => {
                    // If a peer closes with unread bytes, the connection is reset.
                    let is_end = error.kind() == io::ErrorKind::ConnectionReset;
                    let what = if is_end {
                        "closed".to_owned()
                    } else {
                        error.to_string()
                    };
                    heard.push(Err(what));
                    return false;
                }
            }
        }
    }

    /// Whether every request is answered.
    pub(super) fn is_answered(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Whether further requests wait after one that is blocked.
    pub(super) fn has_more_to_say(&self) -> bool {
        self.awaited.len() > 1
    }

    fn answered(&mut self, value: &Value) {
        let refused_or_queued = match value {
            Value::Error(_) => true,
            Value::Simple(text) => text == b"QUEUED",
            _ => false,
        };
        while let Some(awaited) = self.awaited.pop_front() {
            if awaited == Awaited::Reply || refused_or_queued {
                break;
            }
        }
    }
}

fn with_id(word: &[u8], ids: &[i64]) -> Vec<u8> {
    let index = std::str::from_utf8(word)
        .ok()
        .and_then(|word| word.strip_prefix(ID_OF)?.parse::<usize>().ok());
    match index.and_then(|index| ids.get(index)) {
        Some(id) => id.to_string().into_bytes(),
        None => word.to_vec(),
    }
}

/// Whether the value is a message, which answers no request.
pub(super) fn is_message(value: &Value) -> bool {
    match value {
        Value::Push(_) => true,
        Value::Array(parts) => matches!(parts.first(), Some(Value::Bulk(kind))
            if is_one_of(kind, SUBSCRIBING) || is_one_of(kind, MESSAGES)),
        _ => false,
    }
}

/// Whether the word is one of these names, ignoring case.
pub(super) fn is_one_of(word: &[u8], names: &[&[u8]]) -> bool {
    names.iter().any(|name| word.eq_ignore_ascii_case(name))
}
