//! Commands that read a string and delete it or change its deadline in the same step.

use base::number::IntegerText;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec, OnCondition};
use protocol::Reply;
use store::{Entry, Event, EventClass};

use super::expiry::{Expiry, ExpiryForm};
use super::shared::{UPDATED_KEY, check_string, is_equal, write_string};

pub(super) const GETDEL: CommandSpec = CommandSpec {
    name: "GETDEL",
    arity: Arity::Exactly(2),
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec::one(
        1,
        KeyAccess::RW
            .with(KeyAccess::ACCESS)
            .with(KeyAccess::DELETE),
    )],
    group: Group::String,
    since: "6.2.0",
    summary: "Gives the string kept at a key and deletes the key.",
    syntax: "key",
    handler: getdel,
    ..CommandSpec::BLANK
};

pub(super) const GETEX: CommandSpec = CommandSpec {
    name: "GETEX",
    on_condition: OnCondition::ChangesDeadline,
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[KeySpec {
        notes: "RW and UPDATE because it changes the TTL",
        ..UPDATED_KEY[0]
    }],
    group: Group::String,
    since: "6.2.0",
    summary: "Gives the string kept at a key and says when the key stops existing.",
    syntax: "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
             PXAT unix-time-milliseconds | PERSIST]",
    handler: getex,
    ..CommandSpec::BLANK
};

pub(super) const DELIFEQ: CommandSpec = CommandSpec {
    name: "DELIFEQ",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE,
    keys: &[KeySpec::one(
        1,
        KeyAccess::RM
            .with(KeyAccess::ACCESS)
            .with(KeyAccess::DELETE),
    )],
    group: Group::String,
    since: "9.0.0",
    summary: "Deletes a key if it holds the given string (a command of Valkey).",
    syntax: "key value",
    handler: delifeq,
    ..CommandSpec::BLANK
};

fn getdel(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    context.store.modify(&key, |entry| {
        let record = entry.record();
        entry.note_look();
        check_string(record.as_ref())?;
        write_string(record.as_ref(), reply);
        delete(entry);
        Ok(())
    })
}

/// Deletes the record, if there is one, and states it.
fn delete(entry: &mut Entry<'_>) {
    let key = entry.key();
    if entry.remove() {
        entry.effect(|effect| effect.command(&[b"DEL", key.bytes()]));
        entry.event(EventClass::GENERIC, Event::DELETED);
    }
}

/// What GETEX does to the deadline.
#[derive(Clone, Copy)]
enum Lifetime<'a> {
    Unchanged,
    Until(Expiry<'a>),
    Forever,
}

impl<'a> Lifetime<'a> {
    /// Parses the options. An option may be repeated, but not combined with another.
    fn parse(args: &mut Args<'a>) -> Result<Self, CommandError> {
        let mut lifetime = Self::Unchanged;
        while let Some(word) = args.option_word() {
            let word = word.as_bytes();
            lifetime = match (lifetime, ExpiryForm::from_word(word)) {
                (Self::Unchanged | Self::Forever, None) if word == b"PERSIST" => Self::Forever,
                (Self::Unchanged, Some(form)) => Self::Until(Expiry::new(form, args.bytes()?)),
                (Self::Until(given), Some(form)) if given.has_form(form) => {
                    Self::Until(Expiry::new(form, args.bytes()?))
                }
                _ => return Err(CommandError::Syntax),
            };
        }
        Ok(lifetime)
    }
}

fn getex(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let lifetime = Lifetime::parse(args)?;
    let now_unix_ms = context.now_unix_ms;
    context.store.modify(&key, |entry| {
        let record = entry.record();
        entry.note_look();
        check_string(record.as_ref())?;
        write_string(record.as_ref(), reply);
        if record.is_none() {
            // An absent key is answered before the time is checked, as in Redis.
            return Ok(());
        }
        match lifetime {
            Lifetime::Unchanged => Ok(()),
            Lifetime::Forever => persist(entry),
            Lifetime::Until(expiry) => expire(entry, expiry, now_unix_ms),
        }
    })
}

fn persist(entry: &mut Entry<'_>) -> CommandResult {
    let expires = entry
        .record()
        .is_some_and(|record| record.deadline_unix_ms().is_some());
    if expires {
        let key = entry.key();
        entry.set_deadline(None)?;
        entry.effect(|effect| effect.command(&[b"PERSIST", key.bytes()]));
        entry.event(EventClass::GENERIC, "persist");
    }
    Ok(())
}

fn expire(entry: &mut Entry<'_>, expiry: Expiry<'_>, now_unix_ms: u64) -> CommandResult {
    let deadline_unix_ms = expiry.deadline_unix_ms(now_unix_ms, "getex")?;
    if expiry.is_absolute() && deadline_unix_ms <= now_unix_ms {
        delete(entry);
        return Ok(());
    }
    let key = entry.key();
    entry.set_deadline(Some(deadline_unix_ms))?;
    entry.effect(|effect| {
        let deadline_unix_ms = IntegerText::new_u64(deadline_unix_ms);
        effect.command(&[b"PEXPIREAT", key.bytes(), deadline_unix_ms.as_bytes()]);
    });
    entry.event(EventClass::GENERIC, "expire");
    Ok(())
}

fn delifeq(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let wanted = args.bytes()?;
    let deleted = context.store.modify(&key, |entry| {
        let record = entry.record();
        check_string(record.as_ref())?;
        let equal = record.is_some_and(|record| is_equal(&record, wanted));
        if equal {
            delete(entry);
        }
        Ok::<_, CommandError>(equal)
    })?;
    reply.integer(deleted.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::{START_UNIX_MS, TestServer};

    #[test]
    fn getdel_takes_the_value_away() {
        let mut server = TestServer::new();
        server.run("SET k v");
        assert_eq!(server.text("GETDEL k"), "v");
        assert_eq!(server.run("GETDEL k"), Value::Null);
        assert_eq!(server.effects(), ["SET k v", "DEL k"]);
        server.assert_effects_replay();
    }

    #[test]
    fn getex_sets_and_clears_the_deadline() {
        let mut server = TestServer::new();
        server.run("SET k v");
        assert_eq!(server.text("GETEX k"), "v");
        assert_eq!(server.text("GETEX k PERSIST"), "v");
        assert_eq!(server.effects(), ["SET k v"]);
        assert_eq!(server.text("GETEX k EX 10"), "v");
        assert_eq!(
            server.effects(),
            [format!("PEXPIREAT k {}", START_UNIX_MS + 10_000)]
        );
        server.assert_effects_replay();
        assert_eq!(server.text("GETEX k PERSIST"), "v");
        assert_eq!(server.text("GETEX k PXAT 1"), "v");
        assert_eq!(server.effects(), ["PERSIST k", "DEL k"]);
        assert_eq!(server.run("GETEX k EX 0"), Value::Null);
        server.assert_effects_replay();
    }

    #[test]
    fn getex_checks_syntax_first_and_time_last() {
        let mut server = TestServer::new();
        server.run("SET k v");
        assert_eq!(server.error("GETEX none NX"), "ERR syntax error");
        assert_eq!(server.error("GETEX k PERSIST EX 1"), "ERR syntax error");
        assert_eq!(server.error("GETEX k EX 1 PX 1"), "ERR syntax error");
        assert_eq!(server.error("GETEX k EX"), "ERR syntax error");
        assert_eq!(
            server.error("GETEX k EX 0"),
            "ERR invalid expire time in 'getex' command"
        );
        assert_eq!(
            server.error("GETEX k PX x"),
            "ERR value is not an integer or out of range"
        );
    }

    #[test]
    fn delifeq_deletes_only_what_is_equal() {
        let mut server = TestServer::new();
        server.run("MSET text hello number 10");
        assert_eq!(server.integer("DELIFEQ text hell"), 0);
        assert_eq!(server.integer("DELIFEQ text jello"), 0);
        assert_eq!(server.integer("DELIFEQ text hello"), 1);
        assert_eq!(server.integer("DELIFEQ number 010"), 0);
        assert_eq!(server.integer("DELIFEQ number 10"), 1);
        assert_eq!(server.integer("DELIFEQ number 10"), 0);
        assert_eq!(server.effects()[2..], ["DEL text", "DEL number"]);
    }
}
