//! The row of a request, and whether its client may run it, as far as row and client decide that.

use protocol::Request;

use crate::client_record::ClientRecord;
use crate::command_index::CommandIndex;
use crate::error::{CommandError, CommandResult, unknown_command, unknown_subcommand};
use crate::permission::judge;
use crate::session::Session;
use crate::spec::{CommandSpec, Flags};
use crate::table::{Found, Table};

/// Does the same as [`resolve`] for the command that a request names.
///
/// # Errors
/// If there is no such command or subcommand.
pub fn row_of(
    table: &Table,
    request: Request<'_>,
) -> Result<(CommandIndex, &'static CommandSpec, usize), CommandError> {
    let found = table.find(request.name());
    let found = found.ok_or_else(|| unknown_command(request))?;
    resolve(table, found, request)
}

/// Returns the row that runs (the subcommand's if there is one), and the index of its first
/// argument.
#[inline]
pub fn resolve(
    table: &Table,
    &Found { index, spec, .. }: &Found,
    request: Request<'_>,
) -> Result<(CommandIndex, &'static CommandSpec, usize), CommandError> {
    if spec.subcommands.is_empty() {
        return Ok((index, spec, 1));
    }
    let Some(word) = request.arg(1) else {
        return Ok((index, spec, 1));
    };
    match table.find_subcommand((index, spec), word) {
        Some((index, subcommand)) => Ok((index, subcommand, 2)),
        None => Err(unknown_subcommand(request)),
    }
}

/// Checks whether a command may run for a client, as far as its row and the client's state decide
/// that.
#[inline]
pub fn check(
    table: &'static Table,
    (index, spec): (CommandIndex, &'static CommandSpec),
    request: Request<'_>,
    session: &Session,
) -> CommandResult {
    if !spec.arity.accepts(request.len()) && !is_more_from_primary(spec, request, session) {
        let full_name = table.full_name(index).unwrap_or_default();
        return Err(CommandError::WrongArity(full_name.into()));
    }
    if !session.authenticated && !spec.flags.has(Flags::NO_AUTH) {
        return Err(CommandError::fixed("NOAUTH Authentication required."));
    }
    judge(table, session, (index, spec), request)?;
    if session.only_listens() && !is_for_listeners(spec) {
        let name = table.full_name(index).unwrap_or_default();
        return Err(CommandError::Text(
            format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context"
            )
            .into(),
        ));
    }
    if is_about_keys(spec) && session.client.has_flag(ClientRecord::MONITOR) {
        return Err(CommandError::fixed(
            "ERR Replica can't interact with the keyspace",
        ));
    }
    Ok(())
}

#[cold]
fn is_more_from_primary(spec: &CommandSpec, request: Request<'_>, session: &Session) -> bool {
    session.is_of_primary
        && spec.flags.has(Flags::MORE_FROM_PRIMARY)
        && spec.arity.accepts(request.len() - 1)
}

/// Whether a command reads or changes keys.
pub(crate) fn is_about_keys(spec: &CommandSpec) -> bool {
    spec.flags.has(Flags::WRITE) || spec.flags.has(Flags::READONLY)
}

/// Whether a client with RESP2 subscriptions may send the command.
fn is_for_listeners(spec: &CommandSpec) -> bool {
    let is_about_subscriptions = spec.flags.has(Flags::PUBSUB.with(Flags::NOSCRIPT));
    is_about_subscriptions || spec.flags.has(Flags::FOR_SUBSCRIBERS)
}
