//! HOTKEYS: the keys that are requested most, and those that take most memory, found by continuous
//! sampling.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;

use crate::help;

const MEMBER: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(2),
    flags: Flags::ADMIN.with(Flags::NOSCRIPT),
    group: Group::Server,
    since: "8.6.0",
    syntax: "[COUNT count]",
    complexity: "O(1)",
    tips: &["nondeterministic_output", "request_policy:all_nodes"],
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "HOTKEYS",
    arity: Arity::AtLeast(2),
    group: Group::Server,
    since: "8.6.0",
    summary: "Tells which keys are asked for most, and which take most memory.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        CommandSpec {
            name: "GET",
            summary: "Gives the keys that were asked for most in the last seconds.",
            handler: hot,
            ..MEMBER
        },
        CommandSpec {
            name: "BIG",
            summary: "Gives the keys that took most memory when they were looked at.",
            handler: big,
            ..MEMBER
        },
        CommandSpec {
            name: "RESET",
            arity: Arity::Exactly(2),
            summary: "Forgets what was found so far.",
            syntax: "",
            handler: |context, _args, reply| {
                context.shared.observer.hot_keys.reset();
                context.shared.observer.big_keys.reset();
                reply.ok();
                Ok(())
            },
            ..MEMBER
        },
        CommandSpec::help(Group::Server, "8.6.0", |_context, _args, reply| {
            help::write(reply, "HOTKEYS", HELP)
        }),
    ],
    ..CommandSpec::BLANK
}];

const HELP: &[&str] = &[
    "GET [COUNT <count>]",
    "    Return the keys that were asked for most in the last 10 to 20 seconds, as estimated from",
    "    samples: key, database, calls per second, and their part of all calls in hundredths.",
    "BIG [COUNT <count>]",
    "    Return the keys that took most memory when the server last went by them: key, database,",
    "    type, bytes.",
    "RESET",
    "    Forget what was found so far.",
];

const DEFAULT_COUNT: usize = 10;
const COUNT_MAX: i64 = 1000;

fn count_of(args: &mut Args<'_>) -> Result<usize, CommandError> {
    let mut count = DEFAULT_COUNT;
    if args.take_word("COUNT") {
        count = usize::try_from(args.bounded(1, COUNT_MAX)?).unwrap_or(DEFAULT_COUNT);
    }
    if args.remaining() > 0 {
        return Err(CommandError::Syntax);
    }
    Ok(count)
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn hot(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let count = count_of(args)?;
    let now_s = context.now_unix_ms / 1000;
    let found = context.shared.observer.hot_keys.report(now_s, count);
    reply.array(found.keys.len());
    for key in &found.keys {
        let (calls_per_second, percent) = found.rate_of(key);
        reply.array(4);
        reply.bulk(&key.key);
        reply.integer(i64::from(key.database));
        reply.integer(integer(calls_per_second));
        reply.double((percent * 100.0).round() / 100.0);
    }
    Ok(())
}

fn big(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let count = count_of(args)?;
    let found = context.shared.observer.big_keys.report(count);
    reply.array(found.len());
    for key in found {
        reply.array(4);
        reply.bulk(&key.key);
        reply.integer(i64::from(key.database));
        reply.bulk_str(key.kind.name());
        reply.count(key.bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    #[test]
    fn a_key_that_is_asked_for_again_and_again_is_hot() {
        let mut server = TestServer::new();
        for number in 0..4_000 {
            server.pipeline(&["GET hot", "GET hot", "GET hot", &format!("GET {number}")]);
            server.pipeline(&["LRANGE warm 0 1"]);
        }
        let Value::Array(keys) = server.run("HOTKEYS GET COUNT 2") else {
            panic!();
        };
        let names: Vec<Value> = keys
            .iter()
            .map(|key| match key {
                Value::Array(parts) => parts[0].clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(names[0], Value::Bulk(b"hot".to_vec()));
        assert_eq!(server.error("HOTKEYS GET COUNT 1 x"), "ERR syntax error");
        server.run("HOTKEYS RESET");
        assert_eq!(server.run("HOTKEYS GET"), Value::Array(vec![]));
    }
}
