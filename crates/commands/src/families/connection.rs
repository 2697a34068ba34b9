//! Commands about the connection itself.

use protocol::Reply;

use crate::args::Args;
use crate::context::Context;
use crate::error::CommandResult;
use crate::spec::{Arity, CommandSpec, Flags, Group};

/// The rows of this family.
pub const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "PING",
    arity: Arity::AtLeast(1),
    flags: Flags::FAST,
    group: Group::Connection,
    summary: "Answers PONG, or the message it was given.",
    syntax: "[message]",
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    handler: ping,
    ..CommandSpec::BLANK
}];

fn ping(_context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    match args.next() {
        Some(message) => reply.bulk(message),
        None => reply.simple("PONG"),
    }
    Ok(())
}
