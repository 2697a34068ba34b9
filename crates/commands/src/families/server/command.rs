//! COMMAND: shows clients the table of commands.

use base::glob::{self, Case};
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::key_places;
use engine::spec::{
    Arity, Begin, CommandSpec, Deprecation, Find, Flags, Group, KeyAccess, KeySpec, categories_of,
};
use engine::table::{Table, find_subcommand};
use protocol::{OwnedRequest, Reply, Request};

use super::docs;
use crate::help;

const MEMBER: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(2),
    flags: Flags::LOADING.with(Flags::STALE),
    group: Group::Server,
    categories: &["connection"],
    since: "2.8.13",
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "COMMAND",
    arity: Arity::AtLeast(1),
    summary: "Describes all commands.",
    complexity: "O(N) where N is the number of commands.",
    tips: &["nondeterministic_output_order"],
    handler: all,
    subcommands: &[
        CommandSpec {
            name: "COUNT",
            arity: Arity::Exactly(2),
            summary: "Gives the number of commands.",
            handler: |context, _args, reply| {
                reply.integer(i64::try_from(context.table.commands().len()).unwrap_or(i64::MAX));
                Ok(())
            },
            ..MEMBER
        },
        CommandSpec {
            name: "DOCS",
            since: "7.0.0",
            summary: "Documents commands: what they do, their cost and their arguments.",
            complexity: "O(N) where N is the number of commands to look up.",
            syntax: "[command-name [command-name ...]]",
            tips: &["nondeterministic_output_order"],
            handler: document,
            ..MEMBER
        },
        CommandSpec {
            name: "INFO",
            history: &[("7.0.0", "Describes all commands when none is named.")],
            summary: "Describes the named commands.",
            complexity: "O(N) where N is the number of commands to look up.",
            syntax: "[command-name [command-name ...]]",
            tips: &["nondeterministic_output_order"],
            handler: info,
            ..MEMBER
        },
        CommandSpec {
            name: "LIST",
            since: "7.0.0",
            summary: "Lists the names of commands.",
            complexity: "O(N) where N is the number of commands.",
            syntax: "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]",
            tips: &["nondeterministic_output_order"],
            handler: list,
            ..MEMBER
        },
        CommandSpec {
            name: "GETKEYS",
            arity: Arity::AtLeast(3),
            summary: "Picks the keys out of a full command.",
            complexity: "O(N) where N is the number of arguments.",
            syntax: "command [arg ...]",
            handler: |context, args, reply| get_keys(context.table, args, reply, false),
            ..MEMBER
        },
        CommandSpec {
            name: "GETKEYSANDFLAGS",
            arity: Arity::AtLeast(3),
            since: "7.0.0",
            summary: "Picks the keys out of a full command, with what happens to them.",
            complexity: "O(N) where N is the number of arguments.",
            syntax: "command [arg ...]",
            handler: |context, args, reply| get_keys(context.table, args, reply, true),
            ..MEMBER
        },
        CommandSpec {
            categories: &["connection"],
            ..CommandSpec::help(Group::Server, "5.0.0", |_, _, reply| {
                help::write(reply, "COMMAND", HELP)
            })
        },
    ],
    ..MEMBER
}];

const HELP: &[&str] = &[
    "(no subcommand)",
    "    Return details about all Redis commands.",
    "COUNT",
    "    Return the total number of commands in this Redis server.",
    "LIST",
    "    Return a list of all commands in this Redis server.",
    "INFO [<command-name> ...]",
    "    Return details about multiple Redis commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
    "DOCS [<command-name> ...]",
    "    Return documentation details about multiple Redis commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
    "GETKEYS <full-command>",
    "    Return the keys from a full Redis command.",
    "GETKEYSANDFLAGS <full-command>",
    "    Return the keys and the access flags from a full Redis command.",
];

fn all(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let commands = context.table.commands();
    reply.array(commands.len());
    for spec in commands {
        describe(reply, spec, None);
    }
    Ok(())
}

/// Finds a command by `name`, or a subcommand by `container|name`. Returns it with the container's
/// name.
fn lookup(table: &Table, name: &[u8]) -> Option<(&'static CommandSpec, Option<&'static str>)> {
    let mut words = name.splitn(2, |byte| *byte == b'|');
    let spec = table.find(words.next()?)?.spec;
    match words.next() {
        None => Some((spec, None)),
        Some(word) => find_subcommand(spec, word).map(|sub| (sub, Some(spec.name))),
    }
}

fn info(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    if args.remaining() == 0 {
        return all(context, args, reply);
    }
    reply.array(args.remaining());
    for name in args {
        match lookup(context.table, name) {
            Some((spec, container)) => describe(reply, spec, container),
            None => reply.null(),
        }
    }
    Ok(())
}

fn full_name(spec: &CommandSpec, container: Option<&str>) -> String {
    let name = spec.name.to_lowercase();
    container.map_or_else(
        || name.clone(),
        |outer| format!("{}|{name}", outer.to_lowercase()),
    )
}

fn describe(reply: &mut Reply<'_>, spec: &CommandSpec, container: Option<&str>) {
    let (first, last, step) = key_places::legacy_range(spec);
    reply.array(10);
    reply.bulk_str(&full_name(spec, container));
    reply.integer(spec.arity.number());
    let flags: Vec<&str> = spec.flags.names().collect();
    reply.set(flags.len());
    for flag in flags {
        reply.simple(flag);
    }
    reply.integer(first);
    reply.integer(last);
    reply.integer(step);
    let categories = categories_of(spec);
    reply.set(categories.len());
    for category in categories {
        reply.simple(&format!("@{category}"));
    }
    reply.set(spec.tips.len());
    for tip in spec.tips {
        reply.bulk_str(tip);
    }
    reply.set(spec.keys.len());
    for keys in spec.keys {
        describe_keys(reply, keys);
    }
    reply.set(spec.subcommands.len());
    for subcommand in spec.subcommands {
        describe(reply, subcommand, Some(spec.name));
    }
}

fn describe_keys(reply: &mut Reply<'_>, keys: &KeySpec) {
    reply.map(3 + usize::from(!keys.notes.is_empty()));
    if !keys.notes.is_empty() {
        reply.bulk(b"notes");
        reply.bulk_str(keys.notes);
    }
    reply.bulk(b"flags");
    write_access(reply, keys.access);
    reply.bulk(b"begin_search");
    reply.map(2);
    match keys.begin {
        Begin::Index(at) => {
            write_spec(reply, "index", &[("index", i64::from(at))]);
        }
        Begin::Keyword(word, from) => {
            reply.bulk(b"type");
            reply.bulk(b"keyword");
            reply.bulk(b"spec");
            reply.map(2);
            reply.bulk(b"keyword");
            reply.bulk_str(word);
            reply.bulk(b"startfrom");
            reply.integer(i64::from(from));
        }
        Begin::Unknown => write_spec(reply, "unknown", &[]),
    }
    reply.bulk(b"find_keys");
    reply.map(2);
    match keys.find {
        Find::Range { last, step, limit } => write_spec(
            reply,
            "range",
            &[
                ("lastkey", i64::from(last)),
                ("keystep", i64::from(step)),
                ("limit", i64::from(limit)),
            ],
        ),
        Find::Count { count, first, step } => write_spec(
            reply,
            "keynum",
            &[
                ("keynumidx", i64::from(count)),
                ("firstkey", i64::from(first)),
                ("keystep", i64::from(step)),
            ],
        ),
        Find::Unknown => write_spec(reply, "unknown", &[]),
    }
}

fn write_spec(reply: &mut Reply<'_>, kind: &str, fields: &[(&str, i64)]) {
    reply.bulk(b"type");
    reply.bulk_str(kind);
    reply.bulk(b"spec");
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk_str(name);
        reply.integer(*value);
    }
}

fn write_access(reply: &mut Reply<'_>, access: KeyAccess) {
    let names: Vec<&str> = access.names().collect();
    reply.set(names.len());
    for name in names {
        reply.simple(name);
    }
}

fn document(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let table = context.table;
    let wanted: Vec<_> = if args.remaining() == 0 {
        table.commands().iter().map(|spec| (*spec, None)).collect()
    } else {
        args.filter_map(|name| lookup(table, name)).collect()
    };
    reply.map(wanted.len());
    for (spec, container) in wanted {
        reply.bulk_str(&full_name(spec, container));
        write_docs(reply, spec);
    }
    Ok(())
}

fn write_docs(reply: &mut Reply<'_>, spec: &CommandSpec) {
    let arguments = docs::parse(spec.syntax);
    let slot = reply.begin_map();
    let mut fields = 4;
    for (name, value) in [
        ("summary", spec.summary),
        ("since", spec.since),
        ("group", spec.group.name()),
        ("complexity", spec.complexity),
    ] {
        reply.bulk_str(name);
        reply.bulk_str(value);
    }
    if !spec.history.is_empty() {
        fields += 1;
        write_history(reply, spec.history);
    }
    if let Some(deprecation) = spec.deprecated {
        fields += 3;
        write_deprecation(reply, deprecation);
    }
    if !arguments.is_empty() {
        fields += 1;
        reply.bulk(b"arguments");
        docs::write(reply, &arguments, &mut docs::KeyCursor::new(spec.keys));
    }
    if !spec.subcommands.is_empty() {
        fields += 1;
        reply.bulk(b"subcommands");
        reply.map(spec.subcommands.len());
        for subcommand in spec.subcommands {
            reply.bulk_str(&full_name(subcommand, Some(spec.name)));
            write_docs(reply, subcommand);
        }
    }
    reply.end_map(slot, fields);
}

fn write_history(reply: &mut Reply<'_>, history: &[(&str, &str)]) {
    reply.bulk(b"history");
    reply.set(history.len());
    for (version, change) in history {
        reply.array(2);
        reply.bulk_str(version);
        reply.bulk_str(change);
    }
}

fn write_deprecation(reply: &mut Reply<'_>, deprecation: Deprecation) {
    reply.bulk(b"doc_flags");
    reply.set(1);
    reply.simple("deprecated");
    for (name, value) in [
        ("deprecated_since", deprecation.since),
        ("replaced_by", deprecation.replaced_by),
    ] {
        reply.bulk_str(name);
        reply.bulk_str(value);
    }
}

/// Whether to list a command, given its full name and row.
type ListFilter = Box<dyn Fn(&str, &CommandSpec) -> bool>;

fn list(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let filter: ListFilter = match args.remaining() {
        0 => Box::new(|_, _| true),
        3 if args.take_word("FILTERBY") => {
            if args.take_word("MODULE") {
                Box::new(|_, _| false)
            } else if args.take_word("ACLCAT") {
                let category = args.bytes()?.to_ascii_lowercase();
                Box::new(move |_, spec| {
                    categories_of(spec)
                        .iter()
                        .any(|name| name.as_bytes() == category)
                })
            } else if args.take_word("PATTERN") {
                let pattern = args.bytes()?.to_ascii_lowercase();
                Box::new(move |name, _| glob::matches(&pattern, name.as_bytes(), Case::Sensitive))
            } else {
                return Err(CommandError::Syntax);
            }
        }
        _ => return Err(CommandError::Syntax),
    };
    let mut names = Vec::new();
    for spec in context.table.commands() {
        names.extend(Some(full_name(spec, None)).filter(|name| filter(name, spec)));
        let subcommands = spec.subcommands.iter();
        names.extend(subcommands.filter_map(|sub| {
            Some(full_name(sub, Some(spec.name))).filter(|name| filter(name, sub))
        }));
    }
    reply.array(names.len());
    for name in names {
        reply.bulk_str(&name);
    }
    Ok(())
}

/// Returns the row that would run.
fn row_of(table: &Table, request: &Request<'_>) -> Option<&'static CommandSpec> {
    let spec = table.find(request.name())?.spec;
    match request.arg(1) {
        Some(word) if !spec.subcommands.is_empty() => find_subcommand(spec, word),
        _ => Some(spec),
    }
}

fn get_keys(
    table: &Table,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    with_access: bool,
) -> CommandResult {
    let words: Vec<&[u8]> = args.collect();
    let owned = OwnedRequest::new(&words);
    let request = owned.request();
    let spec =
        row_of(table, &request).ok_or(CommandError::fixed("ERR Invalid command specified"))?;
    if spec.keys.is_empty() {
        return Err(CommandError::fixed("ERR The command has no key arguments"));
    }
    if !spec.arity.accepts(request.len()) {
        return Err(CommandError::fixed(
            "ERR Invalid number of arguments specified for command",
        ));
    }
    let found = key_places::of(table, spec, &request).ok_or(CommandError::fixed(
        "ERR Invalid arguments specified for command",
    ))?;
    reply.array(found.len());
    for (at, access) in found {
        if with_access {
            reply.array(2);
        }
        reply.bulk(request.arg(at).unwrap_or_default());
        if with_access {
            write_access(reply, access);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    fn texts(value: Value) -> Vec<String> {
        match value {
            Value::Array(values) => values
                .into_iter()
                .map(|value| match value {
                    Value::Bulk(text) => String::from_utf8(text).expect("text"),
                    other => panic!("expected a string, got {other:?}"),
                })
                .collect(),
            other => panic!("expected an array, got {other:?}"),
        }
    }

    #[test]
    fn all_commands_are_described_and_documented() {
        let mut server = TestServer::resp3();
        let count = server.integer("COMMAND COUNT");
        let same = |len: usize| i64::try_from(len) == Ok(count);
        assert!(matches!(server.run("COMMAND"), Value::Array(rows) if same(rows.len())));
        assert!(matches!(server.run("COMMAND INFO"), Value::Array(rows) if same(rows.len())));
        assert!(matches!(server.run("COMMAND DOCS"), Value::Map(rows) if same(rows.len())));
    }

    #[test]
    fn lists_are_filtered() {
        let mut server = TestServer::new();
        let all = texts(server.run("COMMAND LIST"));
        assert!(
            ["get", "client", "client|list"]
                .map(str::to_owned)
                .iter()
                .all(|name| all.contains(name))
        );
        let listed = texts(server.run("COMMAND LIST FILTERBY PATTERN object|f*"));
        assert_eq!(listed, ["object|freq"]);
        assert!(texts(server.run("COMMAND LIST FILTERBY MODULE any")).is_empty());
        let bitmaps = texts(server.run("COMMAND LIST FILTERBY ACLCAT bitmap"));
        assert!(bitmaps.contains(&"bitop".to_owned()) && !bitmaps.contains(&"get".to_owned()));
        assert_eq!(
            server.error("COMMAND LIST FILTERBY x y"),
            "ERR syntax error"
        );
    }

    #[test]
    fn keys_are_picked_out() {
        let mut server = TestServer::new();
        for (line, keys) in [
            ("MSET a 1 b 2", &["a", "b"][..]),
            ("BITOP AND d a b", &["d", "a", "b"]),
            ("OBJECT ENCODING k", &["k"]),
            ("RENAME a b", &["a", "b"]),
        ] {
            assert_eq!(texts(server.run(&format!("COMMAND GETKEYS {line}"))), keys);
        }
        for (line, error) in [
            ("nonsense", "ERR Invalid command specified"),
            ("OBJECT nonsense k", "ERR Invalid command specified"),
            ("PING", "ERR The command has no key arguments"),
            (
                "GET",
                "ERR Invalid number of arguments specified for command",
            ),
        ] {
            assert_eq!(server.error(&format!("COMMAND GETKEYS {line}")), error);
        }
    }
}
