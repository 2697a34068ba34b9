//! MEMORY: where the memory is used.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::port::ServerMemory;
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::{Deferred, Reply};

use crate::help;
use engine::scripts::Scripts;

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
            name: "MALLOC-STATS",
            summary: "Shows what the allocator says of itself.",
            tips: &[
                "nondeterministic_output",
                "request_policy:all_shards",
                "response_policy:special",
            ],
            handler: allocator_statistics,
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
        CommandSpec::help(Group::Server, "4.0.0", |_, _, reply| {
            help::write(reply, "MEMORY", HELP)
        }),
    ],
    ..CommandSpec::BLANK
}];

const HELP: &[&str] = &[
    "DOCTOR",
    "    Return memory problems reports.",
    "MALLOC-STATS",
    "    Return internal statistics report from the memory allocator.",
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
        .inspect(&key, |record| record.map(store::Record::memory_bytes))
    {
        Some(bytes) => reply.integer(i64::try_from(bytes).unwrap_or(i64::MAX)),
        None => reply.null(),
    }
    Ok(())
}

fn stats(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let memory = context.server.memory();
    let databases = 0..context.store.store().databases();
    let sizes: Vec<(u16, u64)> = databases
        .map(|database| (database, context.store.len(database) as u64))
        .filter(|(_, keys_count)| *keys_count > 0)
        .collect();
    let keys_count = sizes.iter().map(|(_, keys_count)| keys_count).sum();
    let mut fields = Fields {
        slot: reply.begin_map(),
        count: 0,
        reply,
    };
    write_totals(&mut fields, &memory, &context.shared.scripts);
    for (database, _) in sizes {
        fields.name(&format!("db.{database}"));
        fields.reply.map(2);
        for part in ["main", "expires"] {
            fields.reply.bulk_str(&format!("overhead.hashtable.{part}"));
            fields.reply.integer(0);
        }
    }
    let index_bytes = context.store.statistics().memory.index_bytes;
    fields.bytes("overhead.db.hashtable.lut", index_bytes);
    fields.bytes("overhead.db.hashtable.rehashing", 0);
    write_shares(&mut fields, &memory, keys_count);
    let Fields { slot, count, reply } = fields;
    reply.end_map(slot, count);
    Ok(())
}

/// A map that is being written.
struct Fields<'f, 'r> {
    slot: Deferred,
    count: usize,
    reply: &'f mut Reply<'r>,
}

impl Fields<'_, '_> {
    fn name(&mut self, name: &str) {
        self.count += 1;
        self.reply.bulk_str(name);
    }

    fn bytes(&mut self, name: &str, bytes: u64) {
        self.name(name);
        self.reply.integer(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Writes `part / whole`, or 0 if `whole` is 0.
    fn ratio(&mut self, name: &str, part: u64, whole: u64) {
        self.name(name);
        #[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
        let ratio = if whole == 0 {
            0.0
        } else {
            part as f64 / whole as f64
        };
        self.reply.double(ratio);
    }
}

fn write_totals(fields: &mut Fields<'_, '_>, memory: &ServerMemory, scripts: &Scripts) {
    fields.bytes("peak.allocated", memory.peak);
    fields.bytes("total.allocated", memory.used);
    fields.bytes("startup.allocated", memory.startup);
    fields.bytes("replication.backlog", 0);
    fields.bytes("clients.slaves", 0);
    fields.bytes("clients.normal", memory.clients);
    fields.bytes("cluster.links", 0);
    fields.bytes("aof.buffer", memory.log);
    let (_, scripts_bytes) = scripts.counts();
    fields.bytes("lua.caches", scripts.machine_bytes() + scripts_bytes as u64);
    fields.bytes("functions.caches", scripts.libraries_bytes());
}

fn write_shares(fields: &mut Fields<'_, '_>, memory: &ServerMemory, keys_count: u64) {
    let since_startup = memory.used.saturating_sub(memory.startup);
    let per_key = since_startup.checked_div(keys_count).unwrap_or(0);
    let dataset = memory.dataset();
    fields.bytes("overhead.total", memory.overhead);
    fields.bytes("db.dict.rehashing.count", 0);
    fields.bytes("keys.count", keys_count);
    fields.bytes("keys.bytes-per-key", per_key);
    fields.bytes("dataset.bytes", dataset);
    fields.ratio(
        "dataset.percentage",
        dataset.min(since_startup).saturating_mul(100),
        since_startup,
    );
    fields.ratio(
        "peak.percentage",
        memory.used.saturating_mul(100),
        memory.peak,
    );
    let of = memory.allocator;
    fields.bytes("allocator.allocated", of.allocated);
    fields.bytes("allocator.active", of.active);
    fields.bytes("allocator.resident", of.resident);
    fields.bytes("allocator.muzzy", of.muzzy);
    let resident = memory.resident_without_log();
    for (name, part, whole) in [
        ("allocator-fragmentation", of.active, of.allocated),
        ("allocator-rss", of.resident, of.active),
        ("rss-overhead", resident, of.resident),
    ] {
        fields.ratio(&format!("{name}.ratio"), part, whole);
        fields.bytes(&format!("{name}.bytes"), part.saturating_sub(whole));
    }
    fields.ratio("fragmentation", resident, memory.used);
    fields.bytes("fragmentation.bytes", resident.saturating_sub(memory.used));
}

/// Number of bytes from which a fragmented or bloated server is reported.
const WORTH_A_WORD_BYTES: u64 = 5 << 20;

fn doctor(context: &mut Context<'_>, _args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let memory = context.server.memory();
    let ServerMemory {
        used, peak, log, ..
    } = memory;
    let resident = memory.resident_without_log();
    let of_log = if log > 0 {
        format!(
            "The operation log has {log} bytes of memory besides, which do not grow with the data.\n"
        )
    } else {
        String::new()
    };
    let text = if used < WORTH_A_WORD_BYTES {
        "This instance holds too little data for its memory use to mean anything.\n".to_owned()
    } else if resident > used + used / 2 {
        format!(
            "The process holds {resident} bytes and uses {used} of them. Much was deleted or \
             changed its size; MEMORY PURGE gives free memory back to the system.\n"
        )
    } else if peak > used + used / 2 {
        format!("The server once used {peak} bytes and uses {used} now.\n")
    } else {
        "Nothing unusual.\n".to_owned()
    };
    reply.verbatim("txt", (text + &of_log).as_bytes());
    Ok(())
}

/// Replies with the allocator's statistics. The format is not meant for programs.
fn allocator_statistics(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let ServerMemory {
        resident,
        used,
        peak,
        overhead,
        clients,
        ..
    } = context.server.memory();
    let text = format!(
        "Records: slabs of our own; collections, the ends of large values and buffers: the allocator.\n\
         Allocated: {used}, at most so far: {peak}, resident: {resident}\n\
         Of these not data: {overhead}, for clients: {clients}\n{}",
        context.server.allocator_statistics()
    );
    reply.verbatim("txt", text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    #[test]
    fn usage_reads_its_option() {
        let mut server = TestServer::new();
        server.run("SET k v");
        assert!(server.integer("MEMORY USAGE k") > 0);
        assert!(server.integer("MEMORY USAGE k SAMPLES 0") > 0);
        assert_eq!(server.run("MEMORY USAGE none"), Value::Null);
        assert_eq!(
            server.error("MEMORY USAGE k SAMPLES -1"),
            "ERR syntax error"
        );
        assert_eq!(
            server.error("MEMORY USAGE none SAMPLES"),
            "ERR syntax error"
        );
    }

    #[test]
    fn stats_name_every_database_with_keys() {
        let mut server = TestServer::resp3();
        server.run("SELECT 3");
        server.run("SET k v");
        let Value::Map(pairs) = server.run("MEMORY STATS") else {
            panic!("expected a map");
        };
        let value = |name: &str| {
            let name = Value::Bulk(name.as_bytes().to_vec());
            pairs.iter().find(|pair| pair.0 == name).map(|pair| &pair.1)
        };
        assert_eq!(value("keys.count"), Some(&Value::Integer(1)));
        assert!(matches!(value("db.3"), Some(Value::Map(fields)) if fields.len() == 2));
        assert_eq!(value("db.0"), None);
        assert_eq!(value("peak.allocated"), Some(&Value::Integer(4_000_000)));
        assert!(matches!(value("peak.percentage"), Some(Value::Double(_))));
    }
}
