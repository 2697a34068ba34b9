//! Commands about transactions: MULTI EXEC DISCARD WATCH UNWATCH.
//!
//! Between MULTI and EXEC, the engine (`engine::transaction`) queues requests instead of running
//! them. The handlers here begin and end that.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, InTransaction, KeyAccess, KeySpec};
use protocol::Reply;

const COMMON: Flags = Flags::NOSCRIPT
    .with(Flags::LOADING)
    .with(Flags::STALE)
    .with(Flags::FAST)
    .with(Flags::ALLOW_BUSY);

const MEMBER: CommandSpec = CommandSpec {
    flags: COMMON,
    group: Group::Transactions,
    categories: &["transaction"],
    ..CommandSpec::BLANK
};

/// The rows of this family.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "MULTI",
        in_transaction: InTransaction::Begins,
        since: "1.2.0",
        summary: "Begins a transaction: what comes next is queued until EXEC.",
        handler: multi,
        ..MEMBER
    },
    CommandSpec {
        name: "EXEC",
        in_transaction: InTransaction::Runs,
        flags: Flags::NOSCRIPT
            .with(Flags::LOADING)
            .with(Flags::STALE)
            .with(Flags::SKIP_SLOWLOG),
        since: "1.2.0",
        summary: "Runs what was queued since MULTI as one step.",
        complexity: "Depends on commands in the transaction",
        handler: |_context, _args, _reply| Err(CommandError::fixed("ERR EXEC without MULTI")),
        ..MEMBER
    },
    CommandSpec {
        name: "DISCARD",
        in_transaction: InTransaction::AtOnce,
        since: "2.0.0",
        summary: "Forgets what was queued since MULTI.",
        complexity: "O(N), when N is the number of queued commands",
        handler: discard,
        ..MEMBER
    },
    CommandSpec {
        name: "WATCH",
        needs_values: false,
        in_transaction: InTransaction::Refuses,
        arity: Arity::AtLeast(2),
        keys: &[KeySpec::range(1, -1, 1, KeyAccess::RO)],
        since: "2.2.0",
        summary: "Has EXEC do nothing if one of these keys is changed until then.",
        complexity: "O(1) for every key.",
        syntax: "key [key ...]",
        handler: watch,
        ..MEMBER
    },
    CommandSpec {
        name: "UNWATCH",
        since: "2.2.0",
        summary: "Forgets all keys that were watched.",
        handler: |context, _args, reply| {
            context.session.unwatch(context.store);
            reply.ok();
            Ok(())
        },
        ..MEMBER
    },
];

fn multi(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    if context.session.transaction.is_some() {
        return Err(CommandError::fixed("ERR MULTI calls can not be nested"));
    }
    context.session.begin_transaction();
    reply.ok();
    Ok(())
}

fn discard(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    if context.session.transaction.is_none() {
        return Err(CommandError::fixed("ERR DISCARD without MULTI"));
    }
    context.end_transaction();
    reply.ok();
    Ok(())
}

fn watch(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    if context.session.transaction.is_some() {
        return Err(CommandError::fixed("ERR WATCH inside MULTI is not allowed"));
    }
    for name in args {
        let key = context.key(name);
        context.session.watch(context.store, &key);
    }
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests;
