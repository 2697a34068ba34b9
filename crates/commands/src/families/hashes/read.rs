//! Reading hashes.

use engine::args::Args;
use engine::context::Context;
use engine::error::CommandResult;
use engine::spec::{Arity, CommandSpec, Flags};
use protocol::Reply;
use structures::{Field, Hash};

use super::{ASKED_KEY, NO_HASH, READER, read};
use crate::structure::{self, begins_batch};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "HGET",
        element: Some(2),
        arity: Arity::Exactly(3),
        summary: "Gives the value of a field.",
        syntax: "key field",
        handler: hget,
        ..READER
    },
    CommandSpec {
        name: "HMGET",
        arity: Arity::AtLeast(3),
        summary: "Gives the values of several fields.",
        complexity: "O(N) where N is the number of fields being requested.",
        syntax: "key field [field ...]",
        handler: hmget,
        ..READER
    },
    CommandSpec {
        name: "HGETALL",
        summary: "Gives all fields with their values.",
        handler: |context, args, reply| all(context, args, reply, Parts::Both),
        ..WHOLE
    },
    CommandSpec {
        name: "HKEYS",
        summary: "Gives the names of all fields.",
        handler: |context, args, reply| all(context, args, reply, Parts::Names),
        ..WHOLE
    },
    CommandSpec {
        name: "HVALS",
        summary: "Gives the values of all fields.",
        handler: |context, args, reply| all(context, args, reply, Parts::Values),
        ..WHOLE
    },
    CommandSpec {
        name: "HLEN",
        needs_values: false,
        arity: Arity::Exactly(2),
        keys: ASKED_KEY,
        summary: "Says how many fields a hash has.",
        syntax: "key",
        handler: hlen,
        ..READER
    },
    CommandSpec {
        name: "HSTRLEN",
        element: Some(2),
        arity: Arity::Exactly(3),
        keys: ASKED_KEY,
        since: "3.2.0",
        summary: "Says how many bytes the value of a field has.",
        syntax: "key field",
        handler: hstrlen,
        ..READER
    },
    CommandSpec {
        name: "HEXISTS",
        element: Some(2),
        arity: Arity::Exactly(3),
        keys: ASKED_KEY,
        summary: "Says whether a field is there.",
        syntax: "key field",
        handler: hexists,
        ..READER
    },
];

/// The base row of commands that return everything.
const WHOLE: CommandSpec = CommandSpec {
    arity: Arity::Exactly(2),
    flags: Flags::READONLY,
    complexity: "O(N) where N is the size of the hash.",
    syntax: "key",
    tips: &["nondeterministic_output_order"],
    ..READER
};

/// Which parts of a field are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parts {
    Names,
    Values,
    Both,
}

/// Writes the value of a field, or null if it does not exist.
pub(super) fn write_value(field: Option<&Field<'_>>, reply: &mut Reply<'_>) {
    match field {
        Some(field) => reply.bulk(field.value.as_bytes()),
        None => reply.null(),
    }
}

fn hget(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let name = args.bytes()?;
    let now = context.now_unix_ms;
    read(context, &key, reply, |hash, reply| {
        write_value(hash.get(name, now).as_ref(), reply);
    })
}

fn hmget(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let now = context.now_unix_ms;
    let names = args.rest();
    read(context, &key, reply, |hash, reply| {
        reply.array(names.len());
        let mut ahead = names;
        for (index, name) in names.enumerate() {
            if begins_batch(index, names.len()) {
                hash.prefetch(ahead.by_ref());
            }
            write_value(hash.get(name, now).as_ref(), reply);
        }
    })
}

fn all(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    parts: Parts,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (now, pace) = (context.now_unix_ms, context.pace);
    structure::read(context, &key, reply, |hash, reply| {
        let hash = hash.unwrap_or(NO_HASH);
        pace.admit_steps(hash.len())?;
        let count = hash.len_at(now);
        match parts {
            Parts::Both => reply.map(count),
            Parts::Names | Parts::Values => reply.array(count),
        }
        for field in hash.iter(now) {
            if parts != Parts::Values {
                reply.bulk(field.name.as_bytes());
            }
            if parts != Parts::Names {
                reply.bulk(field.value.as_bytes());
            }
        }
        Ok(())
    })?
}

fn hlen(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let now = context.now_unix_ms;
    structure::count(context, &key, reply, |hash: &Hash| hash.len_at(now))
}

fn hstrlen(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let name = args.bytes()?;
    let now = context.now_unix_ms;
    read(context, &key, reply, |hash, reply| {
        let field = hash.get(name, now);
        reply.count(field.map_or(0, |field| field.value.as_bytes().len()));
    })
}

fn hexists(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let name = args.bytes()?;
    let now = context.now_unix_ms;
    read(context, &key, reply, |hash, reply| {
        reply.integer(i64::from(hash.get(name, now).is_some()));
    })
}
