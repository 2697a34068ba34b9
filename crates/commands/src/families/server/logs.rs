//! SLOWLOG and COMMANDLOG: slow commands, and large ones.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, subcommand_syntax};
use engine::observer::{Entry, Matter};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;

use crate::help;

const MEMBER: CommandSpec = CommandSpec {
    arity: Arity::Exactly(2),
    flags: Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE),
    group: Group::Server,
    since: "2.2.12",
    ..CommandSpec::BLANK
};

const OF_MATTER: CommandSpec = CommandSpec {
    arity: Arity::Exactly(3),
    since: "8.1.0",
    syntax: "<SLOW | LARGE-REQUEST | LARGE-REPLY>",
    ..MEMBER
};

const ALL_NODES: &[&str] = &["request_policy:all_nodes", "nondeterministic_output"];
const ALL_NODES_SUM: &[&str] = &[
    "request_policy:all_nodes",
    "response_policy:agg_sum",
    "nondeterministic_output",
];
const ALL_NODES_SUCCEED: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "SLOWLOG",
        arity: Arity::AtLeast(2),
        group: Group::Server,
        since: "2.2.12",
        summary: "Shows the commands that took long.",
        complexity: "Depends on subcommand.",
        subcommands: &[
            CommandSpec {
                name: "GET",
                history: &[("4.0.0", "Shows the client's address and name.")],
                arity: Arity::AtLeast(2),
                summary: "Gives the last slow commands, newest first.",
                complexity: "O(N) where N is the number of entries given.",
                syntax: "[count]",
                tips: ALL_NODES,
                handler: |context, args, reply| {
                    if args.remaining() > 1 {
                        return Err(subcommand_syntax(args.request()));
                    }
                    let count = match args.remaining() {
                        0 => DEFAULT_COUNT,
                        _ => count_of(args)?,
                    };
                    get(context, reply, Matter::Slow, count);
                    Ok(())
                },
                ..MEMBER
            },
            CommandSpec {
                name: "LEN",
                summary: "Counts the slow commands that are kept.",
                complexity: "O(1)",
                tips: ALL_NODES_SUM,
                handler: |context, _args, reply| {
                    len(context, reply, Matter::Slow);
                    Ok(())
                },
                ..MEMBER
            },
            CommandSpec {
                name: "RESET",
                summary: "Forgets the slow commands.",
                complexity: "O(N) where N is the number of entries.",
                tips: ALL_NODES_SUCCEED,
                handler: |context, _args, reply| {
                    context.shared.observer.log(Matter::Slow).clear();
                    reply.ok();
                    Ok(())
                },
                ..MEMBER
            },
            CommandSpec::help(Group::Server, "6.2.0", |_context, _args, reply| {
                help::write(reply, "SLOWLOG", SLOW_HELP)
            }),
        ],
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "COMMANDLOG",
        arity: Arity::AtLeast(2),
        group: Group::Server,
        since: "8.1.0",
        summary: "Shows the commands that took long or were large.",
        complexity: "Depends on subcommand.",
        subcommands: &[
            CommandSpec {
                name: "GET",
                arity: Arity::Exactly(4),
                summary: "Gives the last such commands, newest first.",
                complexity: "O(N) where N is the number of entries given.",
                syntax: "count <SLOW | LARGE-REQUEST | LARGE-REPLY>",
                tips: ALL_NODES,
                handler: |context, args, reply| {
                    let count = count_of(args)?;
                    get(context, reply, matter(args)?, count);
                    Ok(())
                },
                ..OF_MATTER
            },
            CommandSpec {
                name: "LEN",
                summary: "Counts such commands that are kept.",
                complexity: "O(1)",
                tips: ALL_NODES_SUM,
                handler: |context, args, reply| {
                    len(context, reply, matter(args)?);
                    Ok(())
                },
                ..OF_MATTER
            },
            CommandSpec {
                name: "RESET",
                summary: "Forgets such commands.",
                complexity: "O(N) where N is the number of entries.",
                tips: ALL_NODES_SUCCEED,
                handler: |context, args, reply| {
                    context.shared.observer.log(matter(args)?).clear();
                    reply.ok();
                    Ok(())
                },
                ..OF_MATTER
            },
            CommandSpec::help(Group::Server, "8.1.0", |_context, _args, reply| {
                help::write(reply, "COMMANDLOG", HELP)
            }),
        ],
        ..CommandSpec::BLANK
    },
];

const DEFAULT_COUNT: usize = 10;

const SLOW_HELP: &[&str] = &[
    "GET [<count>]",
    "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
    "    Entries are made of:",
    "    id, timestamp, time in microseconds, arguments array, client IP and port,",
    "    client name",
    "LEN",
    "    Return the length of the slowlog.",
    "RESET",
    "    Reset the slowlog.",
];

const HELP: &[&str] = &[
    "GET <count> <type>",
    "    Return top <count> entries of the specified <type> from the commandlog (-1 mean all).",
    "    Entries are made of:",
    "    id, timestamp,",
    "        time in microseconds for type of slow,",
    "        or size in bytes for type of large-request,",
    "        or size in bytes for type of large-reply",
    "    arguments array, client IP and port,",
    "    client name",
    "LEN <type>",
    "    Return the length of the specified type of commandlog.",
    "RESET <type>",
    "    Reset the specified type of commandlog.",
];

/// Parses the number of requested entries; -1 means all.
fn count_of(args: &mut Args<'_>) -> Result<usize, CommandError> {
    let count = base::number::parse_i64(args.bytes()?).filter(|count| *count >= -1);
    let count = count.ok_or(CommandError::fixed(
        "ERR count should be greater than or equal to -1",
    ))?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

fn matter(args: &mut Args<'_>) -> Result<Matter, CommandError> {
    let word = args.bytes()?;
    let mut matters = Matter::ALL.into_iter();
    let found = matters.find(|(_, name)| word.eq_ignore_ascii_case(name.as_bytes()));
    found.map(|(matter, _)| matter).ok_or(CommandError::fixed(
        "ERR type should be one of the following: slow, large-request, large-reply",
    ))
}

fn get(context: &Context<'_>, reply: &mut Reply<'_>, matter: Matter, count: usize) {
    let log = context.shared.observer.log(matter);
    let entries = log.newest(count);
    reply.array(entries.len());
    entries.for_each(|entry| write(reply, entry));
}

fn write(reply: &mut Reply<'_>, entry: &Entry) {
    let integer = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    reply.array(6);
    reply.integer(integer(entry.id));
    reply.integer(integer(entry.unix_s));
    reply.integer(integer(entry.value));
    reply.array(entry.shown.arguments.len());
    for argument in &entry.shown.arguments {
        reply.bulk(argument);
    }
    reply.bulk_str(&entry.shown.address);
    reply.bulk_str(&entry.shown.client_name);
}

fn len(context: &Context<'_>, reply: &mut Reply<'_>, matter: Matter) {
    reply.count(context.shared.observer.log(matter).len());
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use engine::engine::Share;
    use engine::observer::Thresholds;
    use testkit::engine_server::TestServer;

    fn entries(server: &mut TestServer, line: &str) -> Vec<(Value, Vec<Value>)> {
        let Value::Array(entries) = server.run(line) else {
            panic!("{line}");
        };
        let entry = |entry| {
            let Value::Array(parts) = entry else {
                panic!("{entry:?}");
            };
            let Value::Array(arguments) = parts[3].clone() else {
                panic!("{parts:?}");
            };
            (parts[2].clone(), arguments)
        };
        entries.into_iter().map(entry).collect()
    }

    fn words(line: &str) -> Vec<Value> {
        let words = line.split(' ');
        words
            .map(|word| Value::Bulk(word.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn what_took_long_is_in_the_log() {
        let mut server = TestServer::with_debug();
        server.pipeline(&["SET a 1", "DEBUG SLEEP 0.02", "GET a"]);
        let slow = entries(&mut server, "SLOWLOG GET");
        assert_eq!(slow, [(Value::Integer(20_000), words("DEBUG SLEEP 0.02"))]);
        assert_eq!(server.integer("COMMANDLOG LEN slow"), 1);
        server.run("SLOWLOG RESET");
        assert_eq!(server.integer("SLOWLOG LEN"), 0);
    }

    #[test]
    fn with_a_threshold_of_nothing_all_are_in_the_log() {
        let mut server = TestServer::new();
        let thresholds = |slow| Thresholds {
            least: [slow, -1, -1],
            ..Thresholds::default()
        };
        server.shared.observer.set_thresholds(&thresholds(0));
        server.pipeline(&["SET a 1", "GET a", "GET a", "GET", "AUTH me pw"]);
        let slow = entries(&mut server, "SLOWLOG GET -1");
        let asked: Vec<_> = slow.into_iter().map(|(_, arguments)| arguments).collect();
        let expected = ["AUTH (redacted) (redacted)", "GET a", "GET a", "SET a 1"];
        assert_eq!(asked, expected.map(words));
        server.shared.observer.set_thresholds(&thresholds(-1));
        server.run("SLOWLOG RESET");
        server.pipeline(&["SET a 1", "GET a"]);
        assert_eq!(server.integer("SLOWLOG LEN"), 0);
    }

    /// As in Redis: each call with its own time, before the script. A script without declared keys
    /// restarts when it reaches some, and its earlier calls are logged once.
    #[test]
    fn what_scripts_call_is_in_the_log_beside_them() {
        let mut server = TestServer::new();
        server.shared.observer.set_thresholds(&Thresholds {
            least: [0, -1, -1],
            ..Thresholds::default()
        });
        let body = "redis.call('GET','a') redis.call('GET','b') redis.call('SET','c',1)";
        let script =
            format!("{body} redis.pcall('LPUSH','c',1) redis.pcall('GET') redis.call('PING')");
        server.run(&format!("EVAL \"{script}\" 0"));
        let slow = entries(&mut server, "SLOWLOG GET -1");
        let asked: Vec<_> = slow.into_iter().map(|(_, arguments)| arguments).collect();
        let called = ["PING", "LPUSH c 1", "SET c 1", "GET b", "GET a"];
        assert_eq!(asked[1..], called.map(words));
        assert_eq!(asked[0][0], Value::Bulk(b"EVAL".to_vec()));
    }

    #[test]
    fn large_requests_and_replies_are_found_in_a_batch() {
        let mut server = TestServer::new();
        let long = "x".repeat(1 << 20);
        let set = format!("SET long {long}");
        let all = Share {
            requests_max: usize::MAX,
            reply_bytes_max: usize::MAX,
        };
        server.shares(&["SET a 1", &set, "GET a", "GET long"], all);
        let requests = entries(&mut server, "COMMANDLOG GET -1 large-request");
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0].1[..2], words("SET long"));
        let replies = entries(&mut server, "COMMANDLOG GET 5 LARGE-REPLY");
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].1, words("GET long"));
        assert!(matches!(replies[0].0, Value::Integer(bytes) if bytes > 1 << 20));
    }

    #[test]
    fn counts_and_types_are_checked() {
        let mut server = TestServer::new();
        let count = "ERR count should be greater than or equal to -1";
        assert_eq!(server.error("SLOWLOG GET -2"), count);
        let kind = "ERR type should be one of the following: slow, large-request, large-reply";
        assert_eq!(server.error("COMMANDLOG LEN quick"), kind);
        assert!(
            server
                .error("SLOWLOG GET 1 2")
                .contains("Try SLOWLOG HELP.")
        );
    }
}
