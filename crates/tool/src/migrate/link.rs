//! Keys of one server as payloads, and into another.

use protocol::Value;
use rdb::{Limits, dump};

use crate::cli::keys::{text_of, together};
use crate::endpoint::{Endpoint, Session};
use crate::error::BenchError;

/// The longest text that is understood.
const STRING_BYTES_MAX: usize = 512 << 20;

/// What a key holds, as a payload, with its deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) payload: Vec<u8>,
    /// In milliseconds since 1970; 0 for none.
    pub(super) deadline_unix_ms: i64,
}

/// A connection, with what the server understands.
pub(super) struct Link {
    pub(super) session: Session,
    /// Whether it tells deadlines as times; else what is left of them.
    tells_deadlines: bool,
    database: u32,
}

/// Limits for values that are only read and written again.
pub(super) fn limits() -> Limits {
    Limits {
        string_bytes_max: STRING_BYTES_MAX,
        ..Limits::narrow(128)
    }
}

impl Link {
    pub(super) fn connect(endpoint: &Endpoint) -> Result<Self, BenchError> {
        let mut session = endpoint.connect()?;
        let answer = session.ask(&["PEXPIRETIME", "iolite:migrate:no-such-key"])?;
        Ok(Self {
            session,
            tells_deadlines: matches!(answer, Value::Integer(_)),
            database: endpoint.database,
        })
    }

    pub(super) fn select(&mut self, database: u32) -> Result<(), BenchError> {
        if self.database != database {
            self.session
                .demand("SELECT", &["SELECT", &database.to_string()])?;
            self.database = database;
        }
        Ok(())
    }

    /// What keys hold; nothing for those that are not there.
    pub(super) fn read(
        &mut self,
        keys: &[Vec<u8>],
        now_unix_ms: u64,
    ) -> Result<Vec<Result<Option<Held>, String>>, BenchError> {
        let deadline: &[u8] = match self.tells_deadlines {
            true => b"PEXPIRETIME",
            false => b"PTTL",
        };
        let requests: Vec<Vec<&[u8]>> = keys
            .iter()
            .flat_map(|key| [vec![&b"DUMP"[..], key], vec![deadline, key]])
            .collect();
        let replies = together(&mut self.session, &requests)?;
        let held = replies
            .chunks_exact(2)
            .map(|pair| match (&pair[0], &pair[1]) {
                // A key that went between the two has an event to come.
                (Value::Null | Value::NullArray, _) => Ok(None),
                (Value::Bulk(payload), Value::Integer(time)) => {
                    let deadline_unix_ms = match *time {
                        time if time < 0 => 0,
                        time if self.tells_deadlines => time,
                        left => left.saturating_add(i64::try_from(now_unix_ms).unwrap_or(i64::MAX)),
                    };
                    Ok(Some(Held {
                        payload: payload.clone(),
                        deadline_unix_ms,
                    }))
                }
                (Value::Error(text), _) | (_, Value::Error(text)) => {
                    Err(String::from_utf8_lossy(text).into_owned())
                }
                (other, _) => Err(format!("DUMP was answered with {other:?}")),
            });
        Ok(held.collect())
    }

    /// Writes what keys hold; which were refused, and why.
    pub(super) fn write(
        &mut self,
        keys: &[(&[u8], &Held)],
        now_unix_ms: u64,
    ) -> Result<Vec<Option<String>>, BenchError> {
        let times: Vec<String> = keys
            .iter()
            .map(
                |(_, held)| match (held.deadline_unix_ms, self.tells_deadlines) {
                    (0, _) => "0".to_owned(),
                    (at, true) => at.to_string(),
                    // Servers without PEXPIRETIME may lack ABSTTL.
                    (at, false) => {
                        let now = i64::try_from(now_unix_ms).unwrap_or(i64::MAX);
                        at.saturating_sub(now).max(1).to_string()
                    }
                },
            )
            .collect();
        let requests: Vec<Vec<&[u8]>> = keys
            .iter()
            .zip(&times)
            .map(|((key, held), time)| {
                let mut words: Vec<&[u8]> =
                    vec![b"RESTORE", key, time.as_bytes(), &held.payload, b"REPLACE"];
                if self.tells_deadlines {
                    words.push(b"ABSTTL");
                }
                words
            })
            .collect();
        let replies = together(&mut self.session, &requests)?;
        let refused = replies.iter().map(|reply| match reply {
            Value::Error(text) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        });
        Ok(refused.collect())
    }

    pub(super) fn delete(&mut self, keys: &[&[u8]]) -> Result<u64, BenchError> {
        if keys.is_empty() {
            return Ok(0);
        }
        let words: Vec<&[u8]> = std::iter::once(&b"DEL"[..])
            .chain(keys.iter().copied())
            .collect();
        match self.session.request(&words)? {
            Value::Integer(count) => Ok(count.max(0).unsigned_abs()),
            other => Err(BenchError::Refused {
                request: "DEL".to_owned(),
                reply: String::from_utf8_lossy(&text_of(&other)).into_owned(),
            }),
        }
    }
}

/// A payload in the oldest version that loses nothing of its value.
pub(super) fn rewritten(payload: &[u8]) -> Result<Vec<u8>, String> {
    let value = dump::read(payload, &limits()).map_err(|refused| match refused {
        dump::Refused::Footer => "its payload is of a version that is not known".to_owned(),
        dump::Refused::Malformed(malformed) => malformed.to_string(),
    })?;
    let mut out = Vec::new();
    dump::write(&value, false, &mut out);
    Ok(out)
}

/// Whether two keys hold the same, whatever the form; an error when that cannot be told.
pub(super) fn is_same(one: &Held, other: &Held, tolerance_ms: i64) -> Result<bool, String> {
    let distance = one.deadline_unix_ms.abs_diff(other.deadline_unix_ms);
    let is_once = (one.deadline_unix_ms == 0) == (other.deadline_unix_ms == 0);
    if !is_once || distance > tolerance_ms.unsigned_abs() {
        return Ok(false);
    }
    if one.payload == other.payload {
        return Ok(true);
    }
    let read = |held: &Held| {
        let value = dump::read(&held.payload, &limits());
        value.map_err(|_| "its payload is not understood, so it is not compared".to_owned())
    };
    Ok(read(one)? == read(other)?)
}

#[cfg(test)]
mod tests {
    use rdb::Value as Kept;
    use structures::{FieldDeadline, Hash, Object};

    use super::*;

    fn held(value: &Kept, deadline_unix_ms: i64) -> Held {
        let mut payload = Vec::new();
        dump::write(value, false, &mut payload);
        Held {
            payload,
            deadline_unix_ms,
        }
    }

    fn hash(fields: &[(&str, &str)], entries: usize) -> Kept {
        let limits = Limits::narrow(entries).hash;
        let mut hash = Hash::new();
        for (name, value) in fields {
            hash.set(
                name.as_bytes(),
                value.as_bytes(),
                FieldDeadline::Never,
                0,
                &limits,
            )
            .unwrap();
        }
        Kept::Object(Object::Hash(hash))
    }

    #[test]
    fn values_are_compared_and_not_their_forms() {
        let small = held(&hash(&[("a", "1"), ("b", "2")], 128), 0);
        let large = held(&hash(&[("b", "2"), ("a", "1")], 0), 0);
        assert_ne!(small.payload, large.payload);
        assert_eq!(is_same(&small, &large, 0), Ok(true));
        let other = held(&hash(&[("a", "1"), ("b", "3")], 128), 0);
        assert_eq!(is_same(&small, &other, 0), Ok(false));
        let later = Held {
            deadline_unix_ms: 5_000,
            ..small.clone()
        };
        assert_eq!(is_same(&small, &later, 10_000), Ok(false));
        let near = Held {
            deadline_unix_ms: 5_400,
            ..small
        };
        assert_eq!(is_same(&later, &near, 500), Ok(true));
        assert_eq!(is_same(&later, &near, 100), Ok(false));
    }

    #[test]
    fn a_payload_is_written_anew() {
        let newer = b"\x1f\x01\x02\x01a\x02bb\xc0\x01\x01x\x0f\0\0\0\0\0\0\0\0\0";
        let rewritten = rewritten(newer).unwrap();
        let (version, _) = dump::verify(&rewritten).unwrap();
        assert_eq!(version, dump::VERSION);
        assert!(super::rewritten(b"nonsense").is_err());
    }
}
