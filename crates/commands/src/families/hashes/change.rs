//! Setting and removing fields.

use engine::args::{Args, Rest};
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Deprecation, Flags, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Entry, EventClass};
use structures::FieldDeadline;

use super::fields::{self, Complaint};
use super::read::write_value;
use super::{
    REMOVED_KEY, TAKEN_KEY, WRITER, change_existing, change_or_create, limits, state_removed,
};
use crate::structure::begins_batch;

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "HSET",
        element: Some(2),
        arity: Arity::AtLeast(4),
        history: &[("4.0.0", "Takes several fields with their values.")],
        summary: "Sets fields; says how many were not there before.",
        complexity: "O(N) where N is the number of fields being set.",
        syntax: "key field value [field value ...]",
        handler: |context, args, reply| {
            let added = hset(context, args, "hset")?;
            reply.count(added);
            Ok(())
        },
        ..WRITER
    },
    CommandSpec {
        name: "HMSET",
        element: Some(2),
        arity: Arity::AtLeast(4),
        deprecated: Some(Deprecation {
            since: "4.0.0",
            replaced_by: "`HSET` with multiple field-value pairs",
        }),
        summary: "Sets fields.",
        complexity: "O(N) where N is the number of fields being set.",
        syntax: "key field value [field value ...]",
        handler: |context, args, reply| {
            hset(context, args, "hmset")?;
            reply.ok();
            Ok(())
        },
        ..WRITER
    },
    CommandSpec {
        name: "HSETNX",
        element: Some(2),
        arity: Arity::Exactly(4),
        keys: &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::INSERT))],
        summary: "Sets a field unless it is there.",
        syntax: "key field value",
        handler: hsetnx,
        ..WRITER
    },
    CommandSpec {
        name: "HDEL",
        element: Some(2),
        arity: Arity::AtLeast(3),
        flags: Flags::WRITE.with(Flags::FAST),
        keys: REMOVED_KEY,
        history: &[("2.4.0", "Takes several fields.")],
        summary: "Removes fields, and with the last one the key; says how many were there.",
        complexity: "O(N) where N is the number of fields to be removed.",
        syntax: "key field [field ...]",
        handler: hdel,
        ..WRITER
    },
    CommandSpec {
        name: "HGETDEL",
        arity: Arity::AtLeast(5),
        flags: Flags::WRITE.with(Flags::FAST),
        keys: TAKEN_KEY,
        since: "8.0.0",
        summary: "Removes fields and gives their values.",
        complexity: "O(N) where N is the number of fields.",
        syntax: "key FIELDS numfields field [field ...]",
        handler: hgetdel,
        ..WRITER
    },
];

/// Sets the fields in the remaining arguments. Returns how many are new.
fn hset(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    command: &'static str,
) -> Result<usize, CommandError> {
    let key = context.key(args.bytes()?);
    let pairs = args.rest();
    if !pairs.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity(command.into()));
    }
    let (now, limits) = (context.now_unix_ms, limits(context));
    context.store.modify(&key, |entry| {
        let added = change_or_create(entry, now, |hash| {
            let (mut added, mut ahead) = (0, pairs.pairs().map(|(name, _)| name));
            for (index, (name, value)) in pairs.pairs().enumerate() {
                if begins_batch(index, pairs.len() / 2) {
                    hash.prefetch(ahead.by_ref());
                }
                let is_new = hash.set(name, value, FieldDeadline::Never, now, &limits)?;
                added += usize::from(is_new);
            }
            Ok(added)
        })?;
        state_set(entry, pairs);
        entry.event(EventClass::HASH, "hset");
        Ok(added)
    })
}

/// States that fields were set and have no deadline.
fn state_set(entry: &mut Entry<'_>, pairs: Rest<'_>) {
    let key = entry.key();
    entry.effect(|effect| {
        let mut parts: Vec<&[u8]> = vec![b"HSET", key.bytes()];
        parts.extend(pairs);
        effect.command(&parts);
    });
}

fn hsetnx(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let pair = args.rest();
    let (name, value) = (args.bytes()?, args.bytes()?);
    let (now, limits) = (context.now_unix_ms, limits(context));
    let is_set = context.store.modify(&key, |entry| {
        let is_set = change_or_create(entry, now, |hash| {
            if hash.get(name, now).is_some() {
                return Ok(false);
            }
            Ok(hash.set(name, value, FieldDeadline::Never, now, &limits)?)
        })?;
        if is_set {
            state_set(entry, pair);
            entry.event(EventClass::HASH, "hset");
        }
        Ok::<_, CommandError>(is_set)
    })?;
    reply.integer(i64::from(is_set));
    Ok(())
}

fn hdel(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let names = args.rest();
    let now = context.now_unix_ms;
    let removed = context.store.modify(&key, |entry| {
        let removed = change_existing(entry, now, |hash| {
            let (mut removed, mut ahead) = (0, names);
            for (index, name) in names.enumerate() {
                if begins_batch(index, names.len()) {
                    hash.prefetch(ahead.by_ref());
                }
                removed += usize::from(hash.remove(name));
            }
            Ok(removed)
        })?;
        let removed = removed.unwrap_or(0);
        if removed > 0 {
            state_removed(entry, names);
            entry.event_of_taking(EventClass::HASH, "hdel");
        }
        Ok::<_, CommandError>(removed)
    })?;
    reply.count(removed);
    Ok(())
}

fn hgetdel(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let names = fields::parse(args, 1, Complaint::Number)?;
    let now = context.now_unix_ms;
    context.store.modify(&key, |entry| {
        let removed = change_existing(entry, now, |hash| {
            reply.array(names.len());
            let mut removed = 0;
            for name in names {
                write_value(hash.get(name, now).as_ref(), reply);
                removed += usize::from(hash.remove(name));
            }
            Ok(removed)
        })?;
        match removed {
            None => {
                reply.array(names.len());
                names.for_each(|_| reply.null());
            }
            Some(0) => {}
            Some(_) => {
                state_removed(entry, names);
                entry.event_of_taking(EventClass::HASH, "hdel");
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn fields_are_set_and_removed() {
        let mut server = TestServer::new();
        assert_eq!(server.integer("HSET h a 1 b 2"), 2);
        assert_eq!(server.integer("HSET h a 3 c 4"), 1);
        assert_eq!(server.integer("HSETNX h a 9"), 0);
        assert_eq!(server.integer("HSETNX h d 5"), 1);
        assert_eq!(server.integer("HDEL h a none"), 1);
        assert_eq!(server.integer("HDEL none a"), 0);
        assert_eq!(server.integer("HLEN h"), 3);
        assert_eq!(
            server.effects(),
            [
                "HSET h a 1 b 2",
                "HSET h a 3 c 4",
                "HSET h d 5",
                "HDEL h a none"
            ]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn the_key_goes_with_its_last_field() {
        let mut server = TestServer::new();
        server.run("HSET h a 1 b 2");
        assert_eq!(server.integer("HDEL h a b"), 2);
        assert_eq!(server.integer("EXISTS h"), 0);
        server.run("HSET h a 1");
        server.run("HGETDEL h FIELDS 1 a");
        assert_eq!(server.integer("EXISTS h"), 0);
        server.assert_effects_replay();
    }

    #[test]
    fn a_field_without_a_value_is_refused_and_changes_nothing() {
        let mut server = TestServer::new();
        let text = "ERR wrong number of arguments for 'hset' command";
        assert_eq!(server.error("HSET h a 1 b"), text);
        assert_eq!(server.integer("EXISTS h"), 0);
    }
}
