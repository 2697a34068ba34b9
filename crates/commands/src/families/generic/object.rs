//! OBJECT: a value's encoding and use.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::settings::UseClock;
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;

use crate::help;

const INSPECTOR: CommandSpec = CommandSpec {
    arity: Arity::Exactly(3),
    flags: Flags::READONLY,
    keys: &[KeySpec::one(2, KeyAccess::RO)],
    group: Group::Generic,
    categories: &["keyspace"],
    since: "2.2.3",
    syntax: "key",
    tips: &["nondeterministic_output"],
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "OBJECT",
    arity: Arity::AtLeast(2),
    group: Group::Generic,
    since: "2.2.3",
    summary: "Tells how a value is kept.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        CommandSpec {
            name: "ENCODING",
            needs_values: false,
            summary: "Names the form in which a value is kept.",
            handler: encoding,
            ..INSPECTOR
        },
        CommandSpec {
            name: "FREQ",
            needs_values: false,
            since: "4.0.0",
            summary: "Gives the logarithmic counter of uses, under an LFU policy.",
            handler: frequency,
            ..INSPECTOR
        },
        CommandSpec {
            name: "IDLETIME",
            needs_values: false,
            summary: "Gives the seconds since the value was last used, unless under an LFU policy.",
            handler: idle_time,
            ..INSPECTOR
        },
        CommandSpec {
            name: "REFCOUNT",
            needs_values: false,
            summary: "Gives the number of references to a value, as clients of Redis know it.",
            handler: reference_count,
            ..INSPECTOR
        },
        CommandSpec {
            name: "TIER",
            needs_values: false,
            since: "0.1.0",
            summary: "Tells whether a value is in memory (hot) or on a device (ssd).",
            handler: tier,
            ..INSPECTOR
        },
        CommandSpec {
            categories: &["keyspace"],
            ..CommandSpec::help(Group::Generic, "6.2.0", |_, _, reply| {
                help::write(reply, "OBJECT", HELP)
            })
        },
    ],
    ..CommandSpec::BLANK
}];

const HELP: &[&str] = &[
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value",
    "    associated with a <key>.",
    "FREQ <key>",
    "    Return the access frequency index of the <key>. The returned integer is",
    "    proportional to the logarithm of the recent access frequency of the key.",
    "IDLETIME <key>",
    "    Return the idle time of the <key>, that is the approximated number of",
    "    seconds elapsed since the last access to the key.",
    "REFCOUNT <key>",
    "    Return the number of references of the value associated with the specified",
    "    <key>.",
];

fn tier(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    match context
        .store
        .inspect(&key, |record| record.map(store::Record::is_cold))
    {
        None => reply.null(),
        Some(true) => reply.bulk_str("ssd"),
        Some(false) => reply.bulk_str("hot"),
    }
    Ok(())
}

fn encoding(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    match context
        .store
        .inspect(&key, |record| record.map(store::Record::encoding))
    {
        None => reply.null(),
        Some(encoding) => reply.bulk_str(encoding.name()),
    }
    Ok(())
}

fn frequency(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    match context
        .store
        .inspect(&key, |record| record.map(store::Record::frequency))
    {
        None => reply.null(),
        Some(_) if context.shared.settings.use_clock() != UseClock::Frequency => {
            return Err(CommandError::fixed(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
                 Please note that when switching between policies at runtime LRU and LFU data will \
                 take some time to adjust.",
            ));
        }
        Some(frequency) => reply.integer(i64::from(frequency)),
    }
    Ok(())
}

fn idle_time(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    match context
        .store
        .inspect(&key, |record| record.map(store::Record::idle_seconds))
    {
        None => reply.null(),
        Some(_) if context.shared.settings.use_clock() == UseClock::Frequency => {
            return Err(CommandError::fixed(
                "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that \
                 when switching between policies at runtime LRU and LFU data will take some time \
                 to adjust.",
            ));
        }
        Some(seconds) => reply.integer(i64::try_from(seconds).unwrap_or(i64::MAX)),
    }
    Ok(())
}

/// Replies with the reference count. Values are never shared here, but clients of Redis expect
/// small numbers to be shared permanently.
fn reference_count(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    const SHARED_NUMBERS: std::ops::Range<i64> = 0..10_000;
    let key = context.key(args.bytes()?);
    match context
        .store
        .inspect(&key, |record| record.map(store::Record::integer))
    {
        None => reply.null(),
        Some(Some(number)) if SHARED_NUMBERS.contains(&number) => {
            reply.integer(i64::from(i32::MAX));
        }
        Some(_) => reply.integer(1),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use engine::settings::UseClock;
    use testkit::engine_server::TestServer;

    #[test]
    fn names_how_a_value_is_kept() {
        let mut server = TestServer::new();
        server.run("MSET n 12 s text");
        server.run("APPEND s more");
        assert_eq!(server.text("OBJECT ENCODING n"), "int");
        assert_eq!(server.text("OBJECT ENCODING s"), "raw");
        assert_eq!(server.integer("OBJECT REFCOUNT n"), i64::from(i32::MAX));
        assert_eq!(server.integer("OBJECT REFCOUNT s"), 1);
        assert_eq!(server.run("OBJECT ENCODING none"), Value::Null);
    }

    #[test]
    fn only_one_of_idle_time_and_frequency_is_kept() {
        let mut server = TestServer::new();
        server.run("SET k v");
        assert_eq!(server.integer("OBJECT IDLETIME k"), 0);
        assert!(
            server
                .error("OBJECT FREQ k")
                .starts_with("ERR An LFU maxmemory policy is not")
        );
        server.shared.settings.set_use_clock(UseClock::Frequency);
        assert!(
            server
                .error("OBJECT IDLETIME k")
                .starts_with("ERR An LFU maxmemory policy is")
        );
        assert_eq!(server.run("OBJECT FREQ none"), Value::Null);
    }
}
