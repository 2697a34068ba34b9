//! A connection to one server, and contents of keys as payloads.

use protocol::Value;
use rdb::{Limits, Value as Kept, dump};
use structures::{Field, Object};

use crate::endpoint::{Endpoint, Session, info_field};
use crate::error::BenchError;

/// Maximum length of a text that is decoded.
const STRING_BYTES_MAX: usize = 512 << 20;

/// The key of requests that test what a server understands.
pub(super) const NO_KEY: &str = "iolite:migrate:no-such-key";

/// The content of a key as a payload, with its deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) payload: Vec<u8>,
    /// Milliseconds since 1970; 0 for none.
    pub(super) deadline_unix_ms: i64,
    /// Number of members whose deadlines are not in the payload: those of a set or a sorted set.
    pub(super) without_deadline: u64,
}

/// A connection, with the server's capabilities.
pub(super) struct Link {
    pub(super) session: Session,
    /// Whether it reports deadlines as times, otherwise as remaining time.
    pub(super) tells_deadlines: bool,
    /// Whether it reports deadlines of members besides their values, as KeyDB does.
    pub(super) tells_member_deadlines: bool,
    /// The name of the answering process, which a restart changes; empty if the server has none.
    pub(super) process: String,
    database: u32,
}

/// Returns limits for values that are only read and written again.
pub(super) fn limits() -> Limits {
    Limits {
        string_bytes_max: STRING_BYTES_MAX,
        ..Limits::narrow(128)
    }
}

impl Link {
    pub(super) fn connect(endpoint: &Endpoint) -> Result<Self, BenchError> {
        let mut session = endpoint.connect()?;
        let tells_deadlines = is_known(&session.ask(&["PEXPIRETIME", NO_KEY])?);
        let tells_member_deadlines = is_known(&session.ask(&["PTTL", NO_KEY, "member"])?);
        let info = session.info("server")?;
        let process = info_field(&info, "run_id").unwrap_or_default().to_owned();
        Ok(Self {
            session,
            tells_deadlines,
            tells_member_deadlines,
            process,
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
}

/// Whether a server knows the request to which it replied `answer`.
pub(super) fn is_known(answer: &Value) -> bool {
    match answer {
        Value::Integer(_) => true,
        // The command is known: another node has the key's slot, or none has.
        Value::Error(text) => text.starts_with(b"MOVED") || text.starts_with(b"CLUSTERDOWN"),
        _ => false,
    }
}

/// How a payload is re-encoded for a target that refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anew {
    /// In the oldest version that loses nothing of its value.
    Whole,
    /// In the oldest version of all ([`dump::write_oldest`]).
    Oldest,
}

impl Anew {
    /// All, in the order in which they are tried.
    pub(super) const ALL: [Self; 2] = [Self::Whole, Self::Oldest];
}

/// Re-encodes a payload.
pub(super) fn rewritten(payload: &[u8], anew: Anew) -> Result<Vec<u8>, String> {
    let value = dump::read(payload, &limits()).map_err(|refused| match refused {
        dump::Refused::Footer => "its payload is of a version that is not known".to_owned(),
        dump::Refused::Malformed(malformed) => malformed.to_string(),
    })?;
    let mut out = Vec::new();
    match anew {
        Anew::Whole => dump::write(&value, false, &mut out),
        Anew::Oldest => dump::write_oldest(&value, &mut out),
    }
    Ok(out)
}

/// Whether two deadlines, 0 for none, are equal within the tolerance for rounding.
pub(super) fn is_about(one_unix_ms: i64, other_unix_ms: i64, tolerance_ms: i64) -> bool {
    let is_both = (one_unix_ms == 0) == (other_unix_ms == 0);
    is_both && one_unix_ms.abs_diff(other_unix_ms) <= tolerance_ms.unsigned_abs()
}

/// Whether two keys have equal contents in any encoding. Fails if that cannot be decided.
pub(super) fn is_same(one: &Held, other: &Held, tolerance_ms: i64) -> Result<bool, String> {
    if !is_about(one.deadline_unix_ms, other.deadline_unix_ms, tolerance_ms) {
        return Ok(false);
    }
    if one.payload == other.payload {
        return Ok(true);
    }
    let read = |held: &Held| {
        let value = dump::read(&held.payload, &limits());
        value.map_err(|_| "its payload is not understood, so it is not compared".to_owned())
    };
    Ok(is_same_value(&read(one)?, &read(other)?, tolerance_ms))
}

/// Whether two values are equal; deadlines of hash fields are compared like those of keys.
fn is_same_value(one: &Kept, other: &Kept, tolerance_ms: i64) -> bool {
    let (Kept::Object(Object::Hash(one)), Kept::Object(Object::Hash(other))) = (one, other) else {
        return one == other;
    };
    let deadline = |field: &Field<'_>| {
        let at = field.deadline_unix_ms.map(i64::try_from);
        at.map_or(0, |at| at.unwrap_or(i64::MAX))
    };
    one.len() == other.len()
        && one.iter(0).all(|field| {
            other.get(field.name.as_bytes(), 0).is_some_and(|twin| {
                twin.value.as_bytes() == field.value.as_bytes()
                    && is_about(deadline(&field), deadline(&twin), tolerance_ms)
            })
        })
}

#[cfg(test)]
mod tests {
    use structures::{FieldDeadline, Hash};

    use super::*;

    fn held(value: &Kept, deadline_unix_ms: i64) -> Held {
        let mut payload = Vec::new();
        dump::write(value, false, &mut payload);
        Held {
            payload,
            deadline_unix_ms,
            without_deadline: 0,
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
    fn deadlines_of_fields_are_compared_as_those_of_keys() {
        let with = |at: Option<u64>| {
            let Kept::Object(Object::Hash(mut hash)) = hash(&[("a", "1"), ("b", "2")], 128) else {
                unreachable!("a hash");
            };
            hash.set_deadline(b"a", at).unwrap();
            held(&Kept::Object(Object::Hash(hash)), 0)
        };
        let (one, near, never) = (with(Some(5_000)), with(Some(5_400)), with(None));
        assert_eq!(is_same(&one, &near, 500), Ok(true));
        assert_eq!(is_same(&one, &near, 100), Ok(false));
        assert_eq!(is_same(&one, &never, 10_000), Ok(false));
    }

    #[test]
    fn a_payload_is_written_anew() {
        let newer = b"\x1f\x01\x02\x01a\x02bb\xc0\x01\x01x\x0f\0\0\0\0\0\0\0\0\0";
        for (anew, expected) in Anew::ALL.into_iter().zip([dump::VERSION, rdb::VERSION_MIN]) {
            let rewritten = rewritten(newer, anew).unwrap();
            let (version, _) = dump::verify(&rewritten).unwrap();
            assert_eq!(version, expected);
            assert!(super::rewritten(b"nonsense", anew).is_err());
        }
    }
}
