//! Deadlines of members in KeyDB, which stores them beside values. DUMP omits them, so each member
//! is asked for its own; RESTORE sets none, so they are set one by one. On other servers, fields of
//! hashes have them in the payload, and other members have none.

use base::clock::Clock as _;
use base::number::IntegerText;
use protocol::Value;
use rdb::member_deadlines::LATEST_UNIX_MS;
use rdb::{Value as Kept, dump};
use structures::Object;

use super::end::{End, Request};
use super::link::{Held, limits};
use crate::cli::keys::refused;
use crate::error::BenchError;

/// Number of members asked at once.
const ASKED_AT_ONCE: usize = 10_000;

/// A member of one of several keys.
type Member = (usize, Vec<u8>);
/// Fields with their deadlines.
type Deadlines = Vec<(Vec<u8>, u64)>;

impl End {
    /// Adds deadlines of members to keys that were read: to hashes as field deadlines, to others as
    /// a number.
    pub(super) fn add_member_deadlines(
        &mut self,
        database: u32,
        keys: &[Vec<u8>],
        held: &mut [Result<Option<Held>, String>],
    ) -> Result<(), BenchError> {
        if !self.tells_member_deadlines || !self.has_deadlines(database)? {
            return Ok(());
        }
        let (mut members, mut found) = (Vec::new(), Vec::new());
        for (at, held) in held.iter().enumerate() {
            let Ok(Some(held)) = held else { continue };
            let Some(object) = object_of(&held.payload) else {
                continue;
            };
            for member in members_of(&object) {
                members.push((at, member));
                if members.len() == ASKED_AT_ONCE {
                    self.ask_members(database, keys, &mut members, &mut found)?;
                }
            }
        }
        self.ask_members(database, keys, &mut members, &mut found)?;
        for own in found.chunk_by(|(one, _), (other, _)| one.0 == other.0) {
            let Some(((at, _), _)) = own.first() else {
                continue;
            };
            if let Ok(Some(held)) = &mut held[*at] {
                add(held, own);
            }
        }
        Ok(())
    }

    /// Whether any key of a database, or any member of one, has a deadline.
    fn has_deadlines(&mut self, database: u32) -> Result<bool, BenchError> {
        let told = self.of_all(|link| link.session.info("keyspace"))?;
        let of_database = format!("db{database}:");
        let lines = told.iter().flat_map(|info| info.lines());
        let mut own = lines.filter_map(|line| line.strip_prefix(&of_database));
        Ok(own.any(|fields| !fields.contains("expires=0,")))
    }

    /// Asks members for their deadlines, and collects those that have one.
    fn ask_members(
        &mut self,
        database: u32,
        keys: &[Vec<u8>],
        members: &mut Vec<Member>,
        found: &mut Vec<(Member, u64)>,
    ) -> Result<(), BenchError> {
        let names: Vec<&[u8]> = members.iter().map(|(at, _)| keys[*at].as_slice()).collect();
        let requests: Vec<Request<'_>> = members
            .iter()
            .map(|(at, member)| vec![&b"PTTL"[..], &keys[*at], member])
            .collect();
        // The remaining time is older than this, so the deadline is too early by at most the
        // reply's delay.
        let now_unix_ms = self.clock.now_unix_ms();
        let replies = self.ask(database, &names, &requests)?;
        for (member, reply) in members.drain(..).zip(replies) {
            match reply {
                Value::Integer(left_ms) => {
                    let left_ms = u64::try_from(left_ms).ok();
                    let at = left_ms.map(|left_ms| now_unix_ms.saturating_add(left_ms));
                    found.extend(at.map(|at| (member, at.min(LATEST_UNIX_MS))));
                }
                other => return Err(refused("PTTL", &other)),
            }
        }
        Ok(())
    }

    /// Sets deadlines of fields at a key that was written without them. Returns why that was
    /// refused, if it was.
    pub(super) fn set_member_deadlines(
        &mut self,
        database: u32,
        key: &[u8],
        deadlines: &Deadlines,
    ) -> Result<Option<String>, BenchError> {
        let times = deadlines.iter().map(|(_, at)| IntegerText::new_u64(*at));
        let times: Vec<IntegerText> = times.collect();
        let requests: Vec<Request<'_>> = deadlines
            .iter()
            .zip(&times)
            .map(|((name, _), time)| vec![&b"PEXPIREMEMBERAT"[..], key, name, time.as_bytes()])
            .collect();
        let replies = self.ask(database, &vec![key; requests.len()], &requests)?;
        Ok(replies.iter().find_map(|reply| match reply {
            Value::Error(text) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        }))
    }
}

/// Adds deadlines to a hash, or their number to other values.
fn add(held: &mut Held, deadlines: &[(Member, u64)]) {
    let Some(mut object) = object_of(&held.payload) else {
        return;
    };
    let Object::Hash(hash) = &mut object else {
        held.without_deadline = deadlines.len() as u64;
        return;
    };
    for ((_, name), at) in deadlines {
        // A hash can hold the deadlines of its fields.
        let _set = hash.set_deadline(name, Some(*at));
    }
    held.payload.clear();
    dump::write(&Kept::Object(object), false, &mut held.payload);
}

/// Splits a hash with field deadlines into a payload without them, and the deadlines. `None` for
/// any other value.
pub(super) fn apart(payload: &[u8]) -> Option<(Vec<u8>, Deadlines)> {
    payload
        .first()
        .filter(|code| rdb::has_field_deadlines(**code))?;
    let Object::Hash(mut hash) = object_of(payload)? else {
        return None;
    };
    let deadlines: Deadlines = hash
        .iter(0)
        .filter_map(|field| Some((field.name.as_bytes().to_vec(), field.deadline_unix_ms?)))
        .collect();
    for (name, _) in &deadlines {
        hash.set_deadline(name, None).ok()?;
    }
    let mut out = Vec::new();
    dump::write_oldest(&Kept::Object(Object::Hash(hash)), &mut out);
    Some((out, deadlines))
}

fn object_of(payload: &[u8]) -> Option<Object> {
    if payload.first() == Some(&rdb::value::STRING) {
        return None;
    }
    match dump::read(payload, &limits()) {
        Ok(Kept::Object(object)) => Some(object),
        // The target may refuse a value that cannot be decoded.
        Ok(Kept::String(_)) | Err(_) => None,
    }
}

/// Returns the members that may have a deadline in KeyDB.
fn members_of(object: &Object) -> Box<dyn Iterator<Item = Vec<u8>> + '_> {
    match object {
        Object::Hash(hash) => Box::new(hash.iter(0).map(|field| field.name.as_bytes().to_vec())),
        Object::Set(set) => Box::new(set.iter().map(|member| member.as_bytes().to_vec())),
        Object::SortedSet(set) => Box::new(set.iter().map(|one| one.member.as_bytes().to_vec())),
        Object::List(_) | Object::Stream(_) => Box::new(std::iter::empty()),
    }
}

#[cfg(test)]
mod tests {
    use structures::{FieldDeadline, Hash, Set};

    use super::*;

    fn payload(object: Object) -> Vec<u8> {
        let mut payload = Vec::new();
        dump::write(&Kept::Object(object), false, &mut payload);
        payload
    }

    fn hash(deadline: FieldDeadline) -> Object {
        let mut hash = Hash::new();
        let limits = limits().hash;
        hash.set(b"a", b"1", deadline, 0, &limits).unwrap();
        hash.set(b"b", b"2", FieldDeadline::Never, 0, &limits)
            .unwrap();
        Object::Hash(hash)
    }

    fn held(object: Object) -> Held {
        Held {
            payload: payload(object),
            deadline_unix_ms: 0,
            without_deadline: 0,
        }
    }

    #[test]
    fn a_hash_has_the_deadlines_in_its_payload_and_a_set_a_number() {
        let mut own = held(hash(FieldDeadline::Never));
        let told = [((0, b"a".to_vec()), 1_500), ((0, b"gone".to_vec()), 1_600)];
        add(&mut own, &told);
        let expected = [hash(FieldDeadline::At(1_500))];
        assert_eq!(object_of(&own.payload).as_ref(), expected.first());
        assert_eq!(own.without_deadline, 0);
        let mut set = Set::new();
        set.insert(b"a", &limits().set).unwrap();
        let mut own = held(Object::Set(set));
        let before = own.payload.clone();
        add(&mut own, &told);
        assert_eq!((own.without_deadline, own.payload), (2, before));
    }

    #[test]
    fn deadlines_come_apart_from_a_payload() {
        let (without, deadlines) = apart(&payload(hash(FieldDeadline::At(1_500)))).unwrap();
        assert_eq!(deadlines, [(b"a".to_vec(), 1_500)]);
        assert_eq!(object_of(&without), Some(hash(FieldDeadline::Never)));
        assert_eq!(dump::verify(&without).unwrap().0, rdb::VERSION_MIN);
        assert!(apart(&payload(hash(FieldDeadline::Never))).is_none());
        assert!(apart(b"").is_none());
    }
}
