//! XINFO: information about a stream, its groups and their consumers.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult, subcommand_syntax};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use structures::stream::{Consumer, EntryId, Group as ConsumerGroup, Pending, Stream};

use super::shared::{no_group_at, whole, write_entries, write_entry, write_id};
use crate::help;
use crate::structure::{self, write_count};

const INSPECTOR: CommandSpec = CommandSpec {
    flags: Flags::READONLY,
    keys: &[KeySpec::one(2, KeyAccess::RO.with(KeyAccess::ACCESS))],
    group: Group::Stream,
    since: "5.0.0",
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "XINFO",
    arity: Arity::AtLeast(2),
    group: Group::Stream,
    since: "5.0.0",
    summary: "Tells what is known of a stream.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        CommandSpec {
            name: "CONSUMERS",
            arity: Arity::Exactly(4),
            history: &[("7.2.0", "Added `inactive`.")],
            summary: "Lists the consumers of a group.",
            syntax: "key groupname",
            tips: &["nondeterministic_output"],
            handler: consumers,
            ..INSPECTOR
        },
        CommandSpec {
            name: "GROUPS",
            arity: Arity::Exactly(3),
            history: &[("7.0.0", "Added `entries-read` and `lag`.")],
            summary: "Lists the groups of a stream.",
            syntax: "key",
            handler: groups,
            ..INSPECTOR
        },
        CommandSpec::help(Group::Stream, "5.0.0", |_, _, reply| {
            help::write(reply, "XINFO", HELP)
        }),
        CommandSpec {
            name: "STREAM",
            arity: Arity::AtLeast(3),
            history: &[
                ("6.0.0", "Added `FULL`."),
                (
                    "7.0.0",
                    "Added counters of entries and the ids they are about.",
                ),
                ("7.2.0", "Added `active-time`."),
            ],
            summary: "Tells about a stream, and with FULL all that is in it.",
            syntax: "key [FULL <[COUNT count]>]",
            handler: stream,
            ..INSPECTOR
        },
    ],
    ..CommandSpec::BLANK
}];

const HELP: &[&str] = &[
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
];

/// Default number of entries in the reply of FULL.
const TOLD_ENTRIES: usize = 10;

/// Shows a stream that must exist.
fn inspect(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    mut visit: impl FnMut(&Stream, &mut Reply<'_>) -> CommandResult,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    structure::read(context, &key, reply, |stream: Option<&Stream>, reply| {
        visit(stream.ok_or(CommandError::NoSuchKey)?, reply)
    })?
}

fn consumers(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let now_unix_ms = context.now_unix_ms;
    let (key, name) = (args.request().arg(2), args.request().arg(3));
    let (key, name) = (key.unwrap_or_default(), name.unwrap_or_default());
    let since = |unix_ms: u64| whole(now_unix_ms.saturating_sub(unix_ms));
    let pace = context.pace;
    inspect(context, args, reply, |stream, reply| {
        let group = stream.group(name).ok_or_else(|| no_group_at(key, name))?;
        pace.admit(group.consumers_count())?;
        reply.array(group.consumers_count());
        for (_, consumer) in group.consumers() {
            reply.map(4);
            reply.bulk_str("name");
            reply.bulk(consumer.name());
            reply.bulk_str("pending");
            write_count(reply, consumer.pending_count());
            reply.bulk_str("idle");
            reply.integer(since(consumer.seen_unix_ms()));
            reply.bulk_str("inactive");
            reply.integer(consumer.active_unix_ms().map_or(-1, since));
        }
        Ok(())
    })
}

fn groups(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let pace = context.pace;
    inspect(context, args, reply, |stream, reply| {
        pace.admit(stream.groups_count())?;
        reply.array(stream.groups_count());
        for (name, group) in stream.groups() {
            reply.map(6);
            reply.bulk_str("name");
            reply.bulk(name);
            reply.bulk_str("consumers");
            write_count(reply, group.consumers_count());
            reply.bulk_str("pending");
            write_count(reply, group.pending_count());
            write_position(stream, group, reply);
        }
        Ok(())
    })
}

/// Writes the position of a group: three fields.
fn write_position(stream: &Stream, group: &ConsumerGroup, reply: &mut Reply<'_>) {
    reply.bulk_str("last-delivered-id");
    write_id(reply, group.last_delivered());
    reply.bulk_str("entries-read");
    match group.entries_read() {
        Some(read) => reply.integer(whole(read)),
        None => reply.null(),
    }
    reply.bulk_str("lag");
    match group.lag(stream.log()) {
        Some(lag) => reply.integer(lag),
        None => reply.null(),
    }
}

fn stream(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    // The key is looked up before the options are parsed.
    let mut options = args.clone();
    options.next();
    let pace = context.pace;
    inspect(context, args, reply, |stream, reply| {
        let told = told_entries(&mut options.clone())?;
        reply.map(if told.is_some() { 9 } else { 10 });
        write_counters(stream, reply);
        let Some(count) = told else {
            write_ends(stream, reply);
            return Ok(());
        };
        pace.admit(told_in_full(stream, count))?;
        reply.bulk_str("entries");
        write_entries(reply, stream.log().iter().take(count));
        reply.bulk_str("groups");
        reply.array(stream.groups_count());
        for (name, group) in stream.groups() {
            write_group(stream, name, group, count, reply);
        }
        Ok(())
    })
}

/// Returns the maximum number of items in the reply of FULL with this count.
fn told_in_full(stream: &Stream, count: usize) -> usize {
    let groups = stream.groups().map(|(_, group)| {
        let (pending, consumers) = (group.pending_count(), group.consumers_count());
        1 + consumers + count.min(pending) + count.saturating_mul(consumers).min(pending)
    });
    groups.sum::<usize>() + count.min(stream.len())
}

/// Parses nothing, or FULL with a count: the number of items of each kind, unlimited for 0.
fn told_entries(options: &mut Args<'_>) -> Result<Option<usize>, CommandError> {
    let complaint = || subcommand_syntax(options.request());
    if !matches!(options.remaining(), 0 | 1 | 3) {
        return Err(complaint());
    }
    if options.remaining() == 0 {
        return Ok(None);
    }
    let request = options.request();
    if !options.take_word("FULL") || (options.remaining() > 0 && !options.take_word("COUNT")) {
        return Err(subcommand_syntax(request));
    }
    if options.remaining() == 0 {
        return Ok(Some(TOLD_ENTRIES));
    }
    Ok(Some(match usize::try_from(options.integer()?) {
        Ok(0) => usize::MAX,
        Ok(count) => count,
        Err(_) => TOLD_ENTRIES,
    }))
}

/// Writes seven fields.
fn write_counters(stream: &Stream, reply: &mut Reply<'_>) {
    let log = stream.log();
    let counters = log.counters();
    reply.bulk_str("length");
    write_count(reply, log.len());
    reply.bulk_str("radix-tree-keys");
    write_count(reply, log.blocks_count());
    reply.bulk_str("radix-tree-nodes");
    write_count(reply, log.blocks_count() + 1);
    reply.bulk_str("last-generated-id");
    write_id(reply, counters.last_id);
    reply.bulk_str("max-deleted-entry-id");
    write_id(reply, counters.max_deleted_id);
    reply.bulk_str("entries-added");
    reply.integer(whole(counters.entries_added));
    reply.bulk_str("recorded-first-entry-id");
    write_id(reply, log.first_id().unwrap_or_default());
}

/// Writes three fields.
fn write_ends(stream: &Stream, reply: &mut Reply<'_>) {
    let log = stream.log();
    reply.bulk_str("groups");
    write_count(reply, stream.groups_count());
    let ends = [
        ("first-entry", log.first_id()),
        ("last-entry", log.newest_id()),
    ];
    for (name, id) in ends {
        reply.bulk_str(name);
        match id.and_then(|id| log.get(id)) {
            Some(entry) => write_entry(reply, entry),
            None => reply.null(),
        }
    }
}

fn write_group(
    stream: &Stream,
    name: &[u8],
    group: &ConsumerGroup,
    count: usize,
    reply: &mut Reply<'_>,
) {
    reply.map(7);
    reply.bulk_str("name");
    reply.bulk(name);
    write_position(stream, group, reply);
    reply.bulk_str("pel-count");
    write_count(reply, group.pending_count());
    reply.bulk_str("pending");
    let pending = group.pending(EntryId::MIN, EntryId::MAX);
    reply.array(count.min(group.pending_count()));
    pending.take(count).for_each(|one| {
        reply.array(4);
        write_id(reply, one.id);
        reply.bulk(one.consumer.name());
        write_delivery(&one, reply);
    });
    reply.bulk_str("consumers");
    reply.array(group.consumers_count());
    for (number, consumer) in group.consumers() {
        write_consumer(consumer, reply);
        reply.bulk_str("pending");
        reply.array(count.min(consumer.pending_count()));
        let pending = group.pending_of(number, EntryId::MIN, EntryId::MAX);
        pending.take(count).for_each(|one| {
            reply.array(3);
            write_id(reply, one.id);
            write_delivery(&one, reply);
        });
    }
}

/// Begins a map of five fields; the caller writes the last one.
fn write_consumer(consumer: &Consumer, reply: &mut Reply<'_>) {
    reply.map(5);
    reply.bulk_str("name");
    reply.bulk(consumer.name());
    reply.bulk_str("seen-time");
    reply.integer(whole(consumer.seen_unix_ms()));
    reply.bulk_str("active-time");
    reply.integer(consumer.active_unix_ms().map_or(-1, whole));
    reply.bulk_str("pel-count");
    write_count(reply, consumer.pending_count());
}

/// Writes the time and the count of a delivery.
fn write_delivery(one: &Pending<'_>, reply: &mut Reply<'_>) {
    reply.integer(whole(one.delivered_unix_ms));
    reply.integer(whole(one.deliveries));
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn consumers_are_seen_and_active() {
        let mut server = TestServer::new();
        server.run("XGROUP CREATE s g $ MKSTREAM");
        server.run("XREADGROUP GROUP g alice STREAMS s >");
        server.advance_ms(30);
        let mut ask = |line: &str| testkit::transcript::show(&server.run(line));
        assert_eq!(
            ask("XINFO CONSUMERS s g"),
            "[[\"name\", \"alice\", \"pending\", :0, \"idle\", :30, \"inactive\", :-1]]"
        );
        ask("XADD s 1 a 1");
        ask("XREADGROUP GROUP g alice STREAMS s >");
        server.advance_ms(20);
        let mut ask = |line: &str| testkit::transcript::show(&server.run(line));
        ask("XREADGROUP GROUP g alice STREAMS s >");
        assert_eq!(
            ask("XINFO CONSUMERS s g"),
            "[[\"name\", \"alice\", \"pending\", :1, \"idle\", :0, \"inactive\", :20]]"
        );
    }
}
