//! Commands that read or set fields together with their deadlines.

use base::number::IntegerText;
use engine::args::{Args, Rest};
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags};
use protocol::Reply;
use store::{Entry, EventClass};
use structures::{FieldDeadline, Hash};

use super::fields::{self, Complaint};
use super::read::write_value;
use super::{TAKEN_KEY, WRITER, change_existing, change_or_create, limits, state_removed};
use crate::families::strings::expiry::{Expiry, ExpiryForm};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "HGETEX",
        arity: Arity::AtLeast(5),
        flags: Flags::WRITE.with(Flags::FAST),
        keys: TAKEN_KEY,
        since: "8.0.0",
        summary: "Gives the values of fields and sets or takes away their deadlines.",
        complexity: "O(N) where N is the number of fields.",
        syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] FIELDS numfields field [field ...]",
        handler: hgetex,
        ..WRITER
    },
    CommandSpec {
        name: "HSETEX",
        arity: Arity::AtLeast(6),
        since: "8.0.0",
        summary: "Sets fields together with their deadlines.",
        complexity: "O(N) where N is the number of fields.",
        syntax: "key [FNX | FXX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL] FIELDS numfields field value [field value ...]",
        handler: hsetex,
        ..WRITER
    },
];

/// The option about deadlines.
#[derive(Clone, Copy)]
enum Lifetime<'a> {
    /// Not given.
    Unsaid,
    /// PERSIST or KEEPTTL.
    Word,
    Until(Expiry<'a>),
}

impl<'a> Lifetime<'a> {
    /// Takes the next option if it is about deadlines. `word` is the option without a number.
    fn parse(&mut self, args: &mut Args<'a>, word: &str) -> Result<bool, CommandError> {
        let given = if args.take_word(word) {
            Self::Word
        } else {
            let forms = ["EX", "PX", "EXAT", "PXAT"].into_iter();
            let Some(form) = forms.into_iter().find(|form| args.take_word(form)) else {
                return Ok(false);
            };
            let form = ExpiryForm::from_word(form.as_bytes()).ok_or(CommandError::Syntax)?;
            Self::Until(Expiry::new(form, args.bytes()?))
        };
        if !matches!(self, Self::Unsaid) {
            return Err(CommandError::Syntax);
        }
        *self = given;
        Ok(true)
    }

    fn deadline_unix_ms(self, now: u64, command: &str) -> Result<Option<u64>, CommandError> {
        match self {
            Self::Until(expiry) => expiry.deadline_unix_ms(now, command).map(Some),
            Self::Unsaid | Self::Word => Ok(None),
        }
    }
}

fn hgetex(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let mut lifetime = Lifetime::Unsaid;
    while lifetime.parse(args, "PERSIST")? {}
    let names = fields::parse(args, 1, Complaint::Number)?;
    let now = context.now_unix_ms;
    let deadline = lifetime.deadline_unix_ms(now, "hgetex")?;
    context.store.modify(&key, |entry| {
        let changed = change_existing(entry, now, |hash| {
            reply.array(names.len());
            let mut changed = Vec::new();
            for name in names {
                write_value(hash.get(name, now).as_ref(), reply);
                if !matches!(lifetime, Lifetime::Unsaid) && set_lifetime(hash, name, deadline, now)?
                {
                    changed.push(name);
                }
            }
            Ok(changed)
        })?;
        match (changed, deadline) {
            (None, _) => {
                reply.array(names.len());
                names.for_each(|_| reply.null());
            }
            (Some(changed), _) if changed.is_empty() => {}
            (Some(changed), Some(deadline)) if deadline <= now => {
                state_removed(entry, changed.into_iter());
                entry.event_of_taking(EventClass::HASH, "hdel");
            }
            (Some(changed), deadline) => state_lifetime(entry, deadline, &changed),
        }
        Ok(())
    })
}

/// Sets or removes a field's deadline. Returns whether that changed anything.
fn set_lifetime(
    hash: &mut Hash,
    name: &[u8],
    deadline: Option<u64>,
    now: u64,
) -> Result<bool, CommandError> {
    let Some(field) = hash.get(name, now) else {
        return Ok(false);
    };
    if field.deadline_unix_ms == deadline {
        return Ok(false);
    }
    if deadline.is_some_and(|deadline| deadline <= now) {
        return Ok(hash.remove(name));
    }
    Ok(hash.set_deadline(name, deadline)?)
}

fn state_lifetime(entry: &mut Entry<'_>, deadline: Option<u64>, names: &[&[u8]]) {
    let key = entry.key();
    entry.effect(|effect| {
        let deadline = deadline.map(IntegerText::new_u64);
        let count = IntegerText::new_u64(names.len() as u64);
        let mut parts: Vec<&[u8]> = match &deadline {
            Some(deadline) => vec![b"HPEXPIREAT", key.bytes(), deadline.as_bytes()],
            None => vec![b"HPERSIST", key.bytes()],
        };
        parts.extend([b"FIELDS", count.as_bytes()]);
        parts.extend(names);
        effect.command(&parts);
    });
    let name = match deadline {
        Some(_) => "hexpire",
        None => "hpersist",
    };
    entry.event(EventClass::HASH, name);
}

/// Which fields must be present or absent for any to be set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Any,
    None,
    All,
}

impl Presence {
    fn allows(self, hash: Option<&Hash>, pairs: Rest<'_>, now: u64) -> bool {
        let is_there = |name: &[u8]| hash.is_some_and(|hash| hash.get(name, now).is_some());
        match self {
            Self::Any => true,
            Self::None => pairs.pairs().all(|(name, _)| !is_there(name)),
            Self::All => pairs.pairs().all(|(name, _)| is_there(name)),
        }
    }
}

fn hsetex(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (mut presence, mut lifetime) = (Presence::Any, Lifetime::Unsaid);
    loop {
        let given = if args.take_word("FNX") {
            Presence::None
        } else if args.take_word("FXX") {
            Presence::All
        } else if lifetime.parse(args, "KEEPTTL")? {
            continue;
        } else {
            break;
        };
        if presence != Presence::Any {
            return Err(CommandError::Syntax);
        }
        presence = given;
    }
    let pairs = fields::parse(args, 2, Complaint::Number)?;
    let (now, limits) = (context.now_unix_ms, limits(context));
    let deadline = lifetime.deadline_unix_ms(now, "hsetex")?;
    let field_deadline = match (lifetime, deadline) {
        (Lifetime::Word, _) => FieldDeadline::Keep,
        (_, Some(deadline)) => FieldDeadline::At(deadline),
        (_, None) => FieldDeadline::Never,
    };
    let is_set = context.store.modify(&key, |entry| {
        let record = entry.record();
        let hash = record
            .as_ref()
            .map(|record| record.structure::<Hash>())
            .transpose()?;
        if !presence.allows(hash.as_deref(), pairs, now) {
            return Ok(false);
        }
        if deadline.is_some_and(|deadline| deadline <= now) {
            remove_all(entry, pairs, now)?;
            return Ok(true);
        }
        change_or_create(entry, now, |hash| {
            for (name, value) in pairs.pairs() {
                hash.set(name, value, field_deadline, now, &limits)?;
            }
            Ok(())
        })?;
        state_set(entry, field_deadline, pairs);
        entry.event(EventClass::HASH, "hset");
        if deadline.is_some() {
            entry.event(EventClass::HASH, "hexpire");
        }
        Ok::<_, CommandError>(true)
    })?;
    reply.integer(i64::from(is_set));
    Ok(())
}

/// Removes the fields that would be set with a deadline in the past.
fn remove_all(entry: &mut Entry<'_>, pairs: Rest<'_>, now: u64) -> CommandResult {
    let remove = |hash: &mut Hash| {
        let names = pairs.pairs().map(|(name, _)| name);
        Ok(names.filter(|name| hash.remove(name)).collect::<Vec<_>>())
    };
    let removed = change_existing(entry, now, remove)?.unwrap_or_default();
    let is_change = !removed.is_empty();
    state_removed(entry, removed.into_iter());
    if is_change {
        entry.event_of_taking(EventClass::HASH, "hdel");
    }
    Ok(())
}

fn state_set(entry: &mut Entry<'_>, deadline: FieldDeadline, pairs: Rest<'_>) {
    let key = entry.key();
    entry.effect(|effect| {
        let text = match deadline {
            FieldDeadline::At(deadline) => Some(IntegerText::new_u64(deadline)),
            FieldDeadline::Keep | FieldDeadline::Never => None,
        };
        let count = IntegerText::new_u64(pairs.len() as u64 / 2);
        let mut parts: Vec<&[u8]> = vec![b"HSETEX", key.bytes()];
        match (&text, deadline) {
            (Some(text), _) => parts.extend([b"PXAT", text.as_bytes()]),
            (None, FieldDeadline::Keep) => parts.push(b"KEEPTTL"),
            (None, _) => {}
        }
        parts.extend([b"FIELDS", count.as_bytes()]);
        parts.extend(pairs);
        effect.command(&parts);
    });
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::{START_UNIX_MS, TestServer};

    #[test]
    fn fields_are_set_with_their_deadline() {
        let mut server = TestServer::new();
        assert_eq!(server.integer("HSETEX h PX 500 FIELDS 2 a 1 b 2"), 1);
        assert_eq!(server.integer("HSETEX h FNX FIELDS 1 a 9"), 0);
        assert_eq!(server.integer("HSETEX h FXX KEEPTTL FIELDS 1 a 3"), 1);
        assert_eq!(server.integer("HSETEX h FXX FIELDS 2 a 9 none 9"), 0);
        assert_eq!(server.integer("HSETEX h FIELDS 1 b 4"), 1);
        server.assert_effects_replay();
        let at = START_UNIX_MS + 500;
        assert_eq!(
            server.effects(),
            [
                format!("HSETEX h PXAT {at} FIELDS 2 a 1 b 2"),
                "HSETEX h KEEPTTL FIELDS 1 a 3".to_owned(),
                "HSETEX h FIELDS 1 b 4".to_owned(),
            ]
        );
        server.advance_ms(500);
        assert_eq!(server.integer("HEXISTS h a"), 0);
        assert_eq!(server.text("HGET h b"), "4");
    }

    #[test]
    fn a_deadline_in_the_past_removes() {
        let mut server = TestServer::new();
        server.run("HSET h a 1 b 2");
        assert_eq!(server.integer("HSETEX h PXAT 1 FIELDS 1 a 3"), 1);
        server.run("HGETEX h PXAT 1 FIELDS 1 b");
        assert_eq!(server.integer("EXISTS h"), 0);
        assert_eq!(server.effects()[1..], ["HDEL h a", "HDEL h b"]);
    }

    #[test]
    fn a_read_may_change_deadlines() {
        let mut server = TestServer::new();
        server.run("HSET h a 1 b 2");
        server.run("HGETEX h EX 10 FIELDS 2 a none");
        server.run("HGETEX h FIELDS 1 a");
        server.run("HGETEX h PERSIST FIELDS 2 a b");
        let at = START_UNIX_MS + 10_000;
        assert_eq!(
            server.effects()[1..],
            [
                format!("HPEXPIREAT h {at} FIELDS 1 a"),
                "HPERSIST h FIELDS 1 a".to_owned()
            ]
        );
        assert_eq!(
            server.error("HGETEX h EX 1 PX 1 FIELDS 1 a"),
            "ERR syntax error"
        );
        server.assert_effects_replay();
    }
}
