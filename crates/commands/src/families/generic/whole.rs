//! Whole databases: SELECT SWAPDB FLUSHDB FLUSHALL.

use base::number::IntegerText;
use protocol::Reply;
use store::DatabaseId;

use crate::args::Args;
use crate::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::spec::{Arity, CommandSpec, Flags, Group};

const FLUSH: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(1),
    flags: Flags::WRITE,
    group: Group::Server,
    categories: &["keyspace", "dangerous"],
    complexity: "O(1); the memory is given back behind.",
    syntax: "[ASYNC | SYNC]",
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "FLUSHDB",
        summary: "Deletes all keys of the database.",
        handler: |context, args, reply| {
            check_flush_mode(args)?;
            let database = context.session.database;
            flush(context, Some(database), b"FLUSHDB", reply)
        },
        ..FLUSH
    },
    CommandSpec {
        name: "FLUSHALL",
        summary: "Deletes all keys of all databases.",
        handler: |context, args, reply| {
            check_flush_mode(args)?;
            flush(context, None, b"FLUSHALL", reply)
        },
        ..FLUSH
    },
    CommandSpec {
        name: "SWAPDB",
        arity: Arity::Exactly(3),
        flags: Flags::WRITE.and(Flags::FAST),
        group: Group::Server,
        categories: &["keyspace", "dangerous"],
        since: "4.0.0",
        summary: "Exchanges the keys of two databases.",
        complexity: "O(1)",
        syntax: "index1 index2",
        handler: swap,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "SELECT",
        arity: Arity::Exactly(2),
        flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
        group: Group::Connection,
        categories: &["connection"],
        summary: "Chooses the database that the connection works on.",
        syntax: "index",
        handler: select,
        ..CommandSpec::BLANK
    },
];

/// Both ways of flushing are the same here: the keys are gone at once, the memory follows.
fn check_flush_mode(args: &mut Args<'_>) -> CommandResult {
    if args.remaining() > 0 && !args.take_word("ASYNC") && !args.take_word("SYNC") {
        return Err(CommandError::Syntax);
    }
    if args.remaining() > 0 {
        Err(CommandError::Syntax)
    } else {
        Ok(())
    }
}

fn flush(
    context: &mut Context<'_>,
    database: Option<DatabaseId>,
    command: &[u8],
    reply: &mut Reply<'_>,
) -> CommandResult {
    let stated_in = context.session.database;
    context.store.exclusive(|store| {
        if store.flush(database) > 0 {
            store.effect(stated_in, |effect| effect.command(&[command]));
        }
    });
    reply.ok();
    Ok(())
}

fn swap(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let mut index = |error: &'static str| {
        let number = args
            .integer()
            .ok()
            .and_then(|number| i32::try_from(number).ok());
        number
            .map(i64::from)
            .ok_or_else(|| CommandError::fixed(error))
    };
    let one = index("ERR invalid first DB index")?;
    let other = index("ERR invalid second DB index")?;
    let (one, other) = (context.database(one)?, context.database(other)?);
    let stated_in = context.session.database;
    context.store.exclusive(|store| {
        if one == other || store.len(one) + store.len(other) == 0 {
            return;
        }
        store.swap(one, other);
        store.effect(stated_in, |effect| {
            let (one, other) = (
                IntegerText::new_u64(u64::from(one)),
                IntegerText::new_u64(u64::from(other)),
            );
            effect.command(&[b"SWAPDB", one.as_bytes(), other.as_bytes()]);
        });
    });
    reply.ok();
    Ok(())
}

fn select(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let database = context.database(i64::from(args.integer32()?))?;
    context.session.select(database);
    reply.ok();
    Ok(())
}
