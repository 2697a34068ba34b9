//! Reading keys of one end as payloads, and writing them to the other.

use protocol::Value;

use super::end::{End, Request};
use super::link::Held;
use super::members::apart;
use crate::cli::keys::{refused, text_of};
use crate::error::BenchError;

/// The time to live of a missing key: it was removed after DUMP was answered.
const GONE: i64 = -2;

/// Number of digits of a digest.
const DIGEST_DIGITS: usize = 40;

/// The digest of a key's value from `DEBUG DIGEST-VALUE`, and the key's deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    pub(super) value: Vec<u8>,
    /// Milliseconds since 1970; 0 for none.
    pub(super) deadline_unix_ms: i64,
}

impl End {
    /// Reads the contents of keys; `None` for missing ones.
    pub(super) fn read(
        &mut self,
        database: u32,
        keys: &[Vec<u8>],
        now_unix_ms: u64,
    ) -> Result<Vec<Result<Option<Held>, String>>, BenchError> {
        let deadline = self.deadline_command();
        let twice: Vec<&[u8]> = keys.iter().flat_map(|key| [key.as_slice(); 2]).collect();
        let requests: Vec<Request<'_>> = keys
            .iter()
            .flat_map(|key| [vec![&b"DUMP"[..], key], vec![deadline, key]])
            .collect();
        let replies = self.ask(database, &twice, &requests)?;
        let tells_deadlines = self.tells_deadlines;
        let held = replies
            .chunks_exact(2)
            .map(|pair| held_of(&pair[0], &pair[1], tells_deadlines, now_unix_ms));
        let mut held: Vec<_> = held.collect();
        self.add_member_deadlines(database, keys, &mut held)?;
        Ok(held)
    }

    /// Reads digests of keys' values; `None` if they are missing or unavailable.
    pub(super) fn digests(
        &mut self,
        database: u32,
        keys: &[Vec<u8>],
        now_unix_ms: u64,
    ) -> Result<Vec<Option<Digest>>, BenchError> {
        let deadline = self.deadline_command();
        let twice: Vec<&[u8]> = keys.iter().flat_map(|key| [key.as_slice(); 2]).collect();
        let requests: Vec<Request<'_>> = keys
            .iter()
            .flat_map(|key| {
                [
                    vec![&b"DEBUG"[..], b"DIGEST-VALUE", key],
                    vec![deadline, key],
                ]
            })
            .collect();
        let replies = self.ask(database, &twice, &requests)?;
        let tells_deadlines = self.tells_deadlines;
        let digests = replies.chunks_exact(2).map(|pair| {
            let value = match &pair[0] {
                Value::Array(digests) => text_of(digests.first()?),
                _ => return None,
            };
            // The digest of a missing key: it may be removed, or at another node.
            let is_there = value.len() == DIGEST_DIGITS && value.iter().any(|digit| *digit != b'0');
            let deadline_unix_ms = match &pair[1] {
                Value::Integer(GONE) => return None,
                Value::Integer(time) => deadline_of(*time, tells_deadlines, now_unix_ms),
                _ => return None,
            };
            is_there.then_some(Digest {
                value,
                deadline_unix_ms,
            })
        });
        Ok(digests.collect())
    }

    fn deadline_command(&self) -> &'static [u8] {
        match self.tells_deadlines {
            true => b"PEXPIRETIME",
            false => b"PTTL",
        }
    }

    /// Writes contents of keys. Returns which were refused, and why.
    pub(super) fn write(
        &mut self,
        database: u32,
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
        let is_apart = self.tells_member_deadlines;
        let apart: Vec<_> = keys
            .iter()
            .map(|(_, held)| is_apart.then(|| apart(&held.payload)).flatten())
            .collect();
        let requests: Vec<Request<'_>> = keys
            .iter()
            .zip(&times)
            .zip(&apart)
            .map(|(((key, held), time), apart)| {
                let payload = apart.as_ref().map_or(&held.payload, |(payload, _)| payload);
                let mut words: Vec<&[u8]> =
                    vec![b"RESTORE", key, time.as_bytes(), payload, b"REPLACE"];
                if self.tells_deadlines {
                    words.push(b"ABSTTL");
                }
                words
            })
            .collect();
        let names: Vec<&[u8]> = keys.iter().map(|(key, _)| *key).collect();
        let replies = self.ask(database, &names, &requests)?;
        let refused = replies.iter().map(|reply| match reply {
            Value::Error(text) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        });
        let mut refused: Vec<Option<String>> = refused.collect();
        for (at, apart) in apart.iter().enumerate() {
            if let (Some((_, deadlines)), None) = (apart, &refused[at]) {
                refused[at] = self.set_member_deadlines(database, names[at], deadlines)?;
            }
        }
        Ok(refused)
    }

    /// Deletes keys. Returns how many existed.
    pub(super) fn delete(&mut self, database: u32, keys: &[&[u8]]) -> Result<u64, BenchError> {
        let requests: Vec<Request<'_>> = keys.iter().map(|key| vec![&b"DEL"[..], key]).collect();
        let replies = self.ask(database, keys, &requests)?;
        let mut count = 0;
        for reply in &replies {
            count += number(reply, "DEL")?;
        }
        Ok(count)
    }

    /// Returns which keys exist.
    pub(super) fn have(&mut self, database: u32, keys: &[&[u8]]) -> Result<Vec<bool>, BenchError> {
        let requests: Vec<Request<'_>> = keys.iter().map(|key| vec![&b"EXISTS"[..], key]).collect();
        let replies = self.ask(database, keys, &requests)?;
        replies
            .iter()
            .map(|reply| Ok(number(reply, "EXISTS")? > 0))
            .collect()
    }
}

fn number(reply: &Value, command: &str) -> Result<u64, BenchError> {
    match reply {
        Value::Integer(count) => Ok((*count).max(0).unsigned_abs()),
        other => Err(refused(command, other)),
    }
}

/// Converts a server's report of a deadline to milliseconds since 1970, 0 for none.
fn deadline_of(time: i64, tells_deadlines: bool, now_unix_ms: u64) -> i64 {
    match time {
        time if time < 0 => 0,
        time if tells_deadlines => time,
        left => left.saturating_add(i64::try_from(now_unix_ms).unwrap_or(i64::MAX)),
    }
}

/// Combines the replies to DUMP and to the request for the deadline.
fn held_of(
    payload: &Value,
    time: &Value,
    tells_deadlines: bool,
    now_unix_ms: u64,
) -> Result<Option<Held>, String> {
    match (payload, time) {
        // If a key was removed between the two, its event is still to come.
        (Value::Null | Value::NullArray, _) | (_, Value::Integer(GONE)) => Ok(None),
        (Value::Bulk(payload), Value::Integer(time)) => Ok(Some(Held {
            payload: payload.clone(),
            deadline_unix_ms: deadline_of(*time, tells_deadlines, now_unix_ms),
            without_deadline: 0,
        })),
        (Value::Error(text), _) | (_, Value::Error(text)) => {
            Err(String::from_utf8_lossy(text).into_owned())
        }
        (other, _) => Err(format!("DUMP was answered with {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_went_between_two_answers_is_gone() {
        let payload = Value::Bulk(b"payload".to_vec());
        let held = |time| held_of(&payload, &Value::Integer(time), false, 1_000);
        assert_eq!(held(-2), Ok(None));
        assert_eq!(held(-1).unwrap().unwrap().deadline_unix_ms, 0);
        assert_eq!(held(500).unwrap().unwrap().deadline_unix_ms, 1_500);
        assert_eq!(
            held_of(&Value::Null, &Value::Integer(-1), true, 0),
            Ok(None)
        );
        let error = Value::Error(b"ERR no".to_vec());
        assert_eq!(
            held_of(&error, &Value::Integer(-1), true, 0),
            Err("ERR no".to_owned())
        );
    }
}
