//! Commands about transactions: MULTI DISCARD EXEC.
//!
//! What happens between MULTI and EXEC is the engine's business (`engine::transaction`): it queues
//! requests instead of running them. The handlers here begin and end that.

use protocol::Reply;

use crate::args::Args;
use crate::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::spec::{CommandSpec, Flags, Group};

const COMMON: Flags = Flags::NOSCRIPT
    .and(Flags::LOADING)
    .and(Flags::STALE)
    .and(Flags::FAST)
    .and(Flags::ALLOW_BUSY);

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
        since: "1.2.0",
        summary: "Begins a transaction: what comes next is queued until EXEC.",
        handler: multi,
        ..MEMBER
    },
    CommandSpec {
        name: "EXEC",
        flags: Flags::NOSCRIPT
            .and(Flags::LOADING)
            .and(Flags::STALE)
            .and(Flags::SKIP_SLOWLOG),
        since: "1.2.0",
        summary: "Runs what was queued since MULTI as one step.",
        complexity: "Depends on commands in the transaction",
        handler: |_context, _args, _reply| Err(CommandError::fixed("ERR EXEC without MULTI")),
        ..MEMBER
    },
    CommandSpec {
        name: "DISCARD",
        since: "2.0.0",
        summary: "Forgets what was queued since MULTI.",
        complexity: "O(N), when N is the number of queued commands",
        handler: discard,
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
    context.session.end_transaction();
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests;
