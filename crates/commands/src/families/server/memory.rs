//! MEMORY: where the bytes are.

use protocol::Reply;

use crate::args::Args;
use crate::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::help;
use crate::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};

const MEMBER: CommandSpec = CommandSpec {
    arity: Arity::Exactly(2),
    group: Group::Server,
    since: "4.0.0",
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "MEMORY",
    arity: Arity::AtLeast(2),
    group: Group::Server,
    since: "4.0.0",
    summary: "Tells where the bytes are.",
    complexity: "Depends on subcommand.",
    subcommands: &[
        CommandSpec {
            name: "USAGE",
            arity: Arity::AtLeast(3),
            flags: Flags::READONLY,
            keys: &[KeySpec::one(2, KeyAccess::RO)],
            summary: "Gives the bytes that a key and its value cost.",
            complexity: "O(1) for strings.",
            syntax: "key [SAMPLES count]",
            handler: usage,
            ..MEMBER
        },
        CommandSpec {
            name: "STATS",
            summary: "Breaks the server's memory down.",
            tips: &[
                "nondeterministic_output",
                "request_policy:all_shards",
                "response_policy:special",
            ],
            handler: stats,
            ..MEMBER
        },
        CommandSpec {
            name: "DOCTOR",
            summary: "Says what is unusual about the server's memory.",
            tips: &[
                "nondeterministic_output",
                "request_policy:all_shards",
                "response_policy:special",
            ],
            handler: doctor,
            ..MEMBER
        },
        CommandSpec {
            name: "PURGE",
            summary: "Gives memory that is free inside back to the system.",
            complexity: "Depends on how much there is.",
            tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
            handler: |context, _args, reply| {
                context.server.purge_memory(context.store);
                reply.ok();
                Ok(())
            },
            ..MEMBER
        },
        CommandSpec {
            name: "HELP",
            flags: Flags::LOADING.and(Flags::STALE),
            summary: "Lists the subcommands.",
            handler: |_context, _args, reply| {
                help::write(reply, "MEMORY", HELP);
                Ok(())
            },
            ..MEMBER
        },
    ],
    ..CommandSpec::BLANK
}];

const HELP: &[&str] = &[
    "DOCTOR",
    "    Return memory problems reports.",
    "PURGE",
    "    Attempt to purge dirty pages for reclamation by the allocator.",
    "STATS",
    "    Return information about the memory usage of the server.",
    "USAGE <key> [SAMPLES <count>]",
    "    Return memory in bytes used by <key> and its value. Nested values are",
    "    sampled up to <count> times (default: 5, 0 means sample all).",
];

fn usage(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    while args.remaining() > 0 {
        if args.remaining() < 2 || !args.take_word("SAMPLES") {
            return Err(CommandError::Syntax);
        }
        if args.integer()? < 0 {
            return Err(CommandError::Syntax);
        }
    }
    match context
        .store
        .read(&key, |record| record.map(store::Record::memory_bytes))
    {
        Some(bytes) => reply.integer(i64::try_from(bytes).unwrap_or(i64::MAX)),
        None => reply.null(),
    }
    Ok(())
}

/// Bytes beyond which a fragmented or swollen server is worth a word.
const WORTH_A_WORD_BYTES: u64 = 5 << 20;

fn stats(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let (resident, peak) = context.server.resident_bytes();
    let used = context.store.statistics().used_bytes;
    let databases = context.store.store().databases();
    let keys: usize = (0..databases)
        .map(|database| context.store.len(database))
        .sum();
    let fields = [
        ("peak.allocated", peak),
        ("total.allocated", used),
        ("startup.allocated", 0),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", 0),
        ("cluster.links", 0),
        ("aof.buffer", 0),
        ("lua.caches", 0),
        ("functions.caches", 0),
        ("overhead.total", resident.saturating_sub(used)),
        ("keys.count", keys as u64),
        (
            "keys.bytes-per-key",
            used.checked_div(keys as u64).unwrap_or(0),
        ),
        ("dataset.bytes", used),
        ("allocator.allocated", used),
        ("allocator.active", resident),
        ("allocator.resident", resident),
        ("fragmentation.bytes", resident.saturating_sub(used)),
    ];
    write_fields(reply, &fields);
    Ok(())
}

fn write_fields(reply: &mut Reply<'_>, fields: &[(&str, u64)]) {
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk_str(name);
        reply.integer(i64::try_from(*value).unwrap_or(i64::MAX));
    }
}

fn doctor(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let (resident, peak) = context.server.resident_bytes();
    let used = context.store.statistics().used_bytes;
    let text = if used < WORTH_A_WORD_BYTES {
        "This instance holds too little data for its memory use to mean anything.\n".to_owned()
    } else if resident > used + used / 2 {
        format!(
            "The process holds {resident} bytes for {used} bytes of data. Much was deleted or \
             changed its size; MEMORY PURGE gives free memory back to the system.\n"
        )
    } else if peak > resident + resident / 2 {
        format!("The process once held {peak} bytes and holds {resident} now.\n")
    } else {
        "Nothing unusual.\n".to_owned()
    };
    reply.verbatim("txt", text.as_bytes());
    Ok(())
}
