//! SCRIPT: the scripts that the server knows.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::scripts::{self, RunKind};
use engine::spec::{Arity, CommandSpec, Flags, Group, Scatter};
use protocol::Reply;

use super::take_mode;
use crate::help;

const MEMBER: CommandSpec = CommandSpec {
    arity: Arity::Exactly(2),
    flags: Flags::NOSCRIPT,
    group: Group::Scripting,
    categories: &["scripting"],
    since: "2.6.0",
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "SCRIPT",
    arity: Arity::AtLeast(2),
    group: Group::Scripting,
    since: "2.6.0",
    summary: "Keeps scripts, and ends those that run.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        CommandSpec {
            name: "LOAD",
            arity: Arity::Exactly(3),
            flags: Flags::NOSCRIPT.with(Flags::STALE),
            summary: "Keeps a script, to be run by its SHA-1.",
            complexity: "O(N) with N being the length in bytes of the script body.",
            syntax: "script",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            scatter: Scatter::OwnOfAll,
            handler: load,
            ..MEMBER
        },
        CommandSpec {
            name: "EXISTS",
            arity: Arity::AtLeast(3),
            summary: "Tells which scripts are known.",
            complexity: "O(N) with N being the number of scripts to check (so checking a single \
                script is an O(1) operation).",
            syntax: "sha1 [sha1 ...]",
            tips: &[
                "request_policy:all_shards",
                "response_policy:agg_logical_and",
            ],
            handler: exists,
            ..MEMBER
        },
        CommandSpec {
            name: "FLUSH",
            arity: Arity::AtLeast(2),
            history: &[("6.2.0", "Added `ASYNC` and `SYNC`.")],
            summary: "Forgets all scripts.",
            complexity: "O(N) with N being the number of scripts in cache",
            syntax: "[ASYNC | SYNC]",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            scatter: Scatter::OwnOfAll,
            handler: flush,
            ..MEMBER
        },
        CommandSpec {
            name: "KILL",
            flags: Flags::NOSCRIPT.with(Flags::ALLOW_BUSY),
            summary: "Ends the script that runs, if it has changed nothing.",
            tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
            handler: |context, _args, reply| {
                context.shared.scripts.running.kill(RunKind::Script)?;
                reply.ok();
                Ok(())
            },
            ..MEMBER
        },
        CommandSpec {
            name: "DEBUG",
            arity: Arity::Exactly(3),
            since: "3.2.0",
            summary: "Steps through scripts; not to be had here.",
            syntax: "<YES | SYNC | NO>",
            handler: debug,
            ..MEMBER
        },
        CommandSpec {
            name: "SHOW",
            arity: Arity::Exactly(3),
            since: "8.0.0",
            summary: "Gives the source of a script.",
            syntax: "sha1",
            handler: show,
            ..MEMBER
        },
        CommandSpec {
            categories: &["scripting"],
            ..CommandSpec::help(Group::Scripting, "5.0.0", |_context, _args, reply| {
                help::write(reply, "SCRIPT", HELP)
            })
        },
    ],
    ..CommandSpec::BLANK
}];

const HELP: &[&str] = &[
    "DEBUG (YES|SYNC|NO)",
    "    Set the debug mode for subsequent scripts executed.",
    "EXISTS <sha1> [<sha1> ...]",
    "    Return information about the existence of the scripts in the script cache.",
    "FLUSH [ASYNC|SYNC]",
    "    Flush the Lua scripts cache. Very dangerous on replicas.",
    "    When called without the optional mode argument, the behavior is determined by the",
    "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
    "    * ASYNC: Asynchronously flush the scripts cache.",
    "    * SYNC: Synchronously flush the scripts cache.",
    "KILL",
    "    Kill the currently executing Lua script.",
    "LOAD <script>",
    "    Load a script into the scripts cache without executing it.",
];

fn load(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let source = args.bytes()?;
    let digest = scripts::digest_of(source);
    scripts::add(&context.shared.scripts, digest, source, true)?;
    reply.bulk(&digest);
    Ok(())
}

fn exists(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    reply.array(args.remaining());
    for name in args {
        let is_known = context.shared.scripts.named(name).is_some();
        reply.integer(i64::from(is_known));
    }
    Ok(())
}

fn flush(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    take_mode(args, "ERR SCRIPT FLUSH only support SYNC|ASYNC option")?;
    context.shared.scripts.flush();
    reply.ok();
    Ok(())
}

fn debug(_context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    if args.take_word("NO") {
        reply.ok();
        return Ok(());
    }
    if args.take_word("YES") || args.take_word("SYNC") {
        return Err(CommandError::fixed(
            "ERR Scripts cannot be stepped through on this server",
        ));
    }
    Err(CommandError::fixed("ERR Use SCRIPT DEBUG YES/SYNC/NO"))
}

fn show(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let known = context.shared.scripts.named(args.bytes()?);
    let script = known.ok_or(CommandError::fixed("NOSCRIPT No matching script."))?;
    reply.bulk(&script.source);
    Ok(())
}
