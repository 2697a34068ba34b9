//! Strings.

use protocol::Reply;
use store::{Deadline, Kind};

use crate::args::Args;
use crate::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};

/// The rows of this family.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "GET",
        arity: Arity::Exactly(2),
        flags: Flags::READONLY.and(Flags::FAST),
        keys: &[KeySpec::one(1, KeyAccess::RO.and(KeyAccess::ACCESS))],
        group: Group::String,
        summary: "Gives the string kept at a key.",
        syntax: "key",
        handler: get,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "SET",
        arity: Arity::AtLeast(3),
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::one(1, KeyAccess::OW.and(KeyAccess::UPDATE))],
        group: Group::String,
        summary: "Makes a key hold a string, whatever it held before.",
        syntax: "key value",
        handler: set,
        ..CommandSpec::BLANK
    },
];

fn get(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let mark = reply.mark();
    context.store.read(&key, |record| {
        reply.rollback(mark);
        match record {
            None => reply.null(),
            Some(record) if record.kind() != Kind::String => return Err(CommandError::WrongType),
            Some(record) => match record.integer() {
                Some(number) => reply.bulk_integer(number),
                None => reply.bulk_with(record.len(), |out| record.copy_to(0, out)),
            },
        }
        Ok(())
    })
}

fn set(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let value = args.bytes()?;
    context
        .store
        .upsert(&key, value, Deadline::Never, |effect| {
            effect.command(&[b"SET", key.bytes(), value]);
        })?;
    reply.ok();
    Ok(())
}
