//! WAIT and WAITAOF: until replicas and disks have what was written. There is no replica, and nothing is
//! kept on disk, so who wants any waits in vain.

use protocol::Reply;

use crate::args::Args;
use crate::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::spec::{Arity, CommandSpec, Flags, Group};
use crate::waiting::{InVain, milliseconds};

const COMMON: CommandSpec = CommandSpec {
    flags: Flags::BLOCKING,
    group: Group::Generic,
    categories: &["connection"],
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "WAIT",
        arity: Arity::Exactly(3),
        since: "3.0.0",
        summary: "Waits until so many replicas have what the client wrote.",
        syntax: "numreplicas:integer timeout:integer",
        handler: wait,
        ..COMMON
    },
    CommandSpec {
        name: "WAITAOF",
        arity: Arity::Exactly(4),
        since: "7.2.0",
        summary: "Waits until what the client wrote is on the disks of this server and of replicas.",
        syntax: "numlocal:integer numreplicas:integer timeout:integer",
        handler: wait_for_disks,
        ..COMMON
    },
];

fn wait(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let replicas_count = args.integer()?;
    let timeout_ms = milliseconds(args.bytes()?, context.now_unix_ms)?;
    if replicas_count > 0 && context.may_block {
        return context.wait_in_vain(timeout_ms, InVain::NoReplica, args);
    }
    reply.integer(0);
    Ok(())
}

fn wait_for_disks(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let local_count = args.bounded(0, 1)?;
    let replicas_count = args.integer()?;
    if replicas_count < 0 {
        return Err(CommandError::fixed(
            "ERR value is out of range, must be positive",
        ));
    }
    let timeout_ms = milliseconds(args.bytes()?, context.now_unix_ms)?;
    if local_count > 0 {
        return Err(CommandError::fixed(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    if replicas_count > 0 && context.may_block {
        return context.wait_in_vain(timeout_ms, InVain::NotOnDisk, args);
    }
    reply.array(2);
    reply.integer(0);
    reply.integer(0);
    Ok(())
}
