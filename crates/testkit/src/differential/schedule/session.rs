//! One session of a schedule: what it has sent, what is still to be answered, what it has heard.

use std::collections::VecDeque;
use std::io;

use protocol::Value;

use super::super::sequence::{Answer, Request};
use crate::client::{Client, Received};
use crate::target::Target;

/// A word that stands for the number of a session's connection is this and the session's index.
pub(super) const ID_OF: &str = "id-of-session-";

/// Confirmations of subscriptions are counted by nobody: a PING behind them is answered once they are
/// there.
const SUBSCRIBING: &[&[u8]] = &[
    b"SUBSCRIBE",
    b"UNSUBSCRIBE",
    b"PSUBSCRIBE",
    b"PUNSUBSCRIBE",
    b"SSUBSCRIBE",
    b"SUNSUBSCRIBE",
];
/// How messages begin in RESP2, beside the confirmations.
const MESSAGES: &[&[u8]] = &[b"MESSAGE", b"PMESSAGE", b"SMESSAGE"];

/// A connection that takes part.
pub(super) struct Session {
    client: Client,
    /// Number of the connection, as the server gave it.
    pub(super) id: i64,
    awaited: VecDeque<Awaited>,
}

/// What a request is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// One reply.
    Reply,
    /// Any number of confirmations, unless it is refused or queued.
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

    /// Sends requests at once; words that stand for sessions are replaced by `ids`.
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

    /// Moves what has arrived into `heard`; false when the connection has ended.
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
                    // A peer that closes with unread bytes resets.
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

    /// Whether requests wait behind one that is blocked.
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

/// Whether it answers no request.
pub(super) fn is_message(value: &Value) -> bool {
    match value {
        Value::Push(_) => true,
        Value::Array(parts) => matches!(parts.first(), Some(Value::Bulk(kind))
            if is_one_of(kind, SUBSCRIBING) || is_one_of(kind, MESSAGES)),
        _ => false,
    }
}

/// Whether it is one of these, in any case.
pub(super) fn is_one_of(word: &[u8], names: &[&[u8]]) -> bool {
    names.iter().any(|name| word.eq_ignore_ascii_case(name))
}
