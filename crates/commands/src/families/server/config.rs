//! CONFIG: reads and changes directives while the server runs.

use engine::args::Args;
use engine::context::{Context, Pace};
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::{Reply, Request};

use crate::help;

const MEMBER: CommandSpec = CommandSpec {
    arity: Arity::Exactly(2),
    flags: Flags::ADMIN
        .with(Flags::NOSCRIPT)
        .with(Flags::LOADING)
        .with(Flags::STALE),
    group: Group::Server,
    since: "2.0.0",
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "CONFIG",
    arity: Arity::AtLeast(2),
    group: Group::Server,
    since: "2.0.0",
    summary: "Reads and changes the configuration.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        CommandSpec {
            name: "GET",
            history: &[("7.0.0", "Takes several patterns.")],
            arity: Arity::AtLeast(3),
            summary: "Gives directives whose names match, with their values.",
            complexity: "O(N) where N is the number of directives.",
            syntax: "parameter [parameter ...]",
            handler: get,
            ..MEMBER
        },
        CommandSpec {
            name: "SET",
            secrets: Some(is_secret_value),
            history: &[("7.0.0", "Takes several directives.")],
            arity: Arity::AtLeast(4),
            summary: "Changes directives, all or none.",
            complexity: "O(N) where N is the number of directives given.",
            syntax: "parameter value [parameter value ...]",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            handler: set,
            ..MEMBER
        },
        CommandSpec {
            name: "REWRITE",
            since: "2.8.0",
            summary: "Writes the running configuration into its file.",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            handler: |context, _args, reply| {
                context.server.config_rewrite(false)?;
                reply.ok();
                Ok(())
            },
            ..MEMBER
        },
        CommandSpec {
            name: "RESETSTAT",
            summary: "Forgets what was counted.",
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            handler: |context, _args, reply| {
                context.server.reset_statistics();
                reply.ok();
                Ok(())
            },
            ..MEMBER
        },
        CommandSpec::help(Group::Server, "5.0.0", |_, _, reply| {
            help::write(reply, "CONFIG", HELP)
        }),
    ],
    ..CommandSpec::BLANK
}];

const HELP: &[&str] = &[
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "SET <directive> <value>",
    "    Set the configuration <directive> to <value>.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
    "REWRITE",
    "    Rewrite the configuration file.",
];

/// Directives whose values must not be shown.
const SECRET_DIRECTIVES: [&str; 7] = [
    "requirepass",
    "masterauth",
    "primaryauth",
    "masteruser",
    "primaryuser",
    "tls-key-file-pass",
    "tls-client-key-file-pass",
];

/// Whether an argument of CONFIG SET is the value of such a directive.
fn is_secret_value(request: &Request<'_>, at: usize) -> bool {
    if at < 3 || at.is_multiple_of(2) {
        return false;
    }
    let name = request.arg(at - 1).unwrap_or_default();
    let is_it = |secret: &&str| name.eq_ignore_ascii_case(secret.as_bytes());
    SECRET_DIRECTIVES.iter().any(is_it)
}

fn get(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let patterns: Vec<&[u8]> = args.collect();
    let slot = reply.begin_map();
    let mut count = 0;
    context.server.config_get(&patterns, &mut |name, value| {
        reply.bulk(name);
        reply.bulk(value);
        count += 1;
    });
    reply.end_map(slot, count);
    Ok(())
}

fn set(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    if args.remaining() % 2 == 1 {
        return Err(CommandError::Syntax);
    }
    let mut pairs = Vec::with_capacity(args.remaining() / 2);
    while args.remaining() > 0 {
        pairs.push((args.bytes()?, args.bytes()?));
    }
    let Pace { defers, .. } = context.pace;
    if defers {
        context.server.config_set(&pairs, false)?;
    } else if context.server.shares_directives(&pairs) {
        context.pace.admit_waiting()?;
        context.outside(|server| server.config_set(&pairs, true))?;
    } else if context.may_block {
        context.outside(|server| server.config_set(&pairs, true))?;
    } else {
        // One step of several can neither be offloaded nor leave the store, however long it takes.
        context.server.config_set(&pairs, true)?;
    }
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    #[test]
    fn directives_are_a_map() {
        let mut server = TestServer::resp3();
        assert!(matches!(server.run("CONFIG GET a b"), Value::Map(pairs) if pairs.len() == 2));
        server.run("CONFIG SET a 1 b 2");
        assert_eq!(server.port.asked, ["set 2 directives"]);
        assert_eq!(server.error("CONFIG SET a 1 b"), "ERR syntax error");
    }

    #[test]
    fn workers_leave_to_somebody_else_what_waits() {
        let mut server = TestServer::of_worker();
        let (_, next) = server.pipeline(&["CONFIG SET a 1", "CONFIG SET appendonly yes"]);
        assert_eq!(next, engine::Next::Aside);
        assert_eq!(server.port.asked, ["set 1 directives"]);
        // One step of several cannot be offloaded.
        let mut server = TestServer::of_worker();
        let lines = ["MULTI", "SET a 1", "CONFIG SET appendonly yes", "EXEC"];
        let (_, next) = server.pipeline(&lines);
        assert_eq!(next, engine::Next::Read);
        assert_eq!(server.port.asked, ["set 1 directives"]);
    }
}
