//! Finding keys: SCAN KEYS RANDOMKEY DBSIZE.

use std::sync::Arc;

use base::glob::{self, Case};
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, Scatter};
use protocol::Reply;
use store::{Kind, Record, Store};

use crate::walk::{WalkOptions, WalkWords, parse_cursor, write_cursor};

const WALKER: CommandSpec = CommandSpec {
    flags: Flags::READONLY,
    group: Group::Generic,
    categories: &["keyspace"],
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "SCAN",
        scatter: Scatter::Cursor,
        history: &[("6.0.0", "Added `TYPE`.")],
        arity: Arity::AtLeast(2),
        since: "2.8.0",
        summary: "Walks the keys of the database a few at a time.",
        complexity: "O(1) a call, O(N) for the whole walk.",
        syntax: "cursor [MATCH pattern] [COUNT count] [TYPE type]",
        tips: &[
            "nondeterministic_output",
            "request_policy:special",
            "response_policy:special",
        ],
        handler: scan,
        ..WALKER
    },
    CommandSpec {
        name: "KEYS",
        arity: Arity::Exactly(2),
        categories: &["keyspace", "dangerous"],
        summary: "Lists all keys that match a pattern.",
        complexity: "O(N) where N is the number of keys of the database.",
        syntax: "pattern",
        tips: &["request_policy:all_shards", "nondeterministic_output_order"],
        scatter: Scatter::ElementsOfAll,
        handler: keys,
        ..WALKER
    },
    CommandSpec {
        name: "RANDOMKEY",
        arity: Arity::Exactly(1),
        summary: "Names some key of the database.",
        tips: &[
            "request_policy:all_shards",
            "response_policy:special",
            "nondeterministic_output",
        ],
        scatter: Scatter::AnyOfAll,
        handler: random_key,
        ..WALKER
    },
    CommandSpec {
        name: "DBSIZE",
        arity: Arity::Exactly(1),
        flags: Flags::READONLY.with(Flags::FAST),
        group: Group::Server,
        summary: "Says how many keys the database has.",
        tips: &["request_policy:all_shards", "response_policy:agg_sum"],
        scatter: Scatter::SumOfAll,
        handler: |context, _args, reply| {
            let database = context.session.database;
            let shown = context.store.store().shown_len(database);
            let count = shown.unwrap_or_else(|| context.store.len(database));
            reply.integer(i64::try_from(count).unwrap_or(i64::MAX));
            Ok(())
        },
        ..WALKER
    },
];

/// Number of keys visited in one step of KEYS.
const STEP_KEYS: usize = 1024;

/// Number of keys that RANDOMKEY draws until one is visible.
const RANDOM_TRIES: usize = 64;

/// Checks whether up to `records_max` records, or all there are, may be visited here.
fn admit(context: &mut Context<'_>, records_max: usize) -> CommandResult {
    if records_max <= STEP_KEYS {
        return Ok(());
    }
    let records = context.store.len(context.session.database);
    context.pace.admit(records.min(records_max))
}

/// Whether values may be of a type with this name. Modules of other servers have type names of nine
/// letters: no key here has such a type.
fn may_be_a_type(name: &[u8]) -> bool {
    let is_named = |kind: Kind| name.eq_ignore_ascii_case(kind.name().as_bytes());
    name.len() == MODULE_TYPE_NAME_LEN || Kind::ALL.into_iter().any(is_named)
}

const MODULE_TYPE_NAME_LEN: usize = 9;

fn scan(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let cursor = parse_cursor(args.bytes()?)?;
    let options = WalkOptions::parse(args, WalkWords::Type)?;
    if let Some(kind) = options.kind
        && !may_be_a_type(kind)
    {
        let told = [b"ERR unknown type name '", kind, b"'"].concat();
        return Err(CommandError::Bytes(told));
    }
    admit(context, options.count)?;
    let is_wanted = |record: &Record<'_>| {
        let kind = record.kind().name().as_bytes();
        options
            .kind
            .is_none_or(|wanted| kind.eq_ignore_ascii_case(wanted))
            && options.accepts(record.key())
    };
    let mut found = Vec::new();
    let store = Arc::clone(context.store.store());
    // The store walks positions whose low bits are zero in a small table. Clients see them
    // reversed, so that cursors are short for a small table.
    let next = context.store.scan(
        context.session.database,
        cursor.reverse_bits(),
        options.count,
        |record| {
            if is_wanted(record) && !store.hides(record.key()) {
                found.push(record.key().to_vec());
            }
        },
    );
    write_cursor(next.reverse_bits(), reply);
    reply.array(found.len());
    for key in &found {
        reply.bulk(key);
    }
    Ok(())
}

fn keys(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let pattern = args.bytes()?;
    admit(context, usize::MAX)?;
    let all = pattern == b"*";
    let store = Arc::clone(context.store.store());
    let slot = reply.begin_array();
    let mut count = 0;
    let mut cursor = 0;
    loop {
        cursor = context
            .store
            .scan(context.session.database, cursor, STEP_KEYS, |record| {
                let is_wanted = all || glob::matches(pattern, record.key(), Case::Sensitive);
                if is_wanted && !store.hides(record.key()) {
                    reply.bulk(record.key());
                    count += 1;
                }
            });
        if cursor == 0 {
            break;
        }
    }
    reply.end_array(slot, count);
    Ok(())
}

fn random_key(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let database = context.session.database;
    let store = Arc::clone(context.store.store());
    let mut key = None;
    // Most of the keys here may belong to another node.
    for _ in 0..RANDOM_TRIES {
        let random = context.random.next_u64();
        key = context.store.random_key(database, random);
        if !key.as_ref().is_some_and(|key| store.hides(key)) {
            break;
        }
        key = None;
    }
    if key.is_none() {
        key = first_shown(context, &store)?;
    }
    match key {
        Some(key) => reply.bulk(&key),
        None => reply.null(),
    }
    Ok(())
}

/// Returns the first visible key of a walk, for a store with hidden keys.
#[cold]
fn first_shown(context: &mut Context<'_>, store: &Store) -> Result<Option<Vec<u8>>, CommandError> {
    let database = context.session.database;
    if store.hidden_len(database) == 0 {
        return Ok(None);
    }
    context.pace.admit(context.store.len(database))?;
    let (mut key, mut cursor) = (None, 0);
    loop {
        cursor = context.store.scan(database, cursor, STEP_KEYS, |record| {
            if key.is_none() && !store.hides(record.key()) {
                key = Some(record.key().to_vec());
            }
        });
        if cursor == 0 || key.is_some() {
            return Ok(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use protocol::Value;

    use engine::Next;
    use testkit::engine_server::TestServer;

    /// A million keys would delay a worker's other clients by a tenth of a second.
    #[test]
    fn a_worker_leaves_long_walks_aside() {
        let mut server = TestServer::of_worker();
        for (records, next) in [(100, Next::Read), (20_000, Next::Aside)] {
            for number in 0..records {
                server.run(&format!("SET key:{number} v"));
            }
            assert_eq!(server.pipeline(&["KEYS none*"]).1, next);
            assert_eq!(server.pipeline(&["SCAN 0 COUNT 100000"]).1, next);
            assert_eq!(server.pipeline(&["SCAN 0 COUNT 100"]).1, Next::Read);
        }
    }

    #[test]
    fn a_walk_meets_every_key_while_others_come() {
        let mut server = TestServer::new();
        let names: BTreeSet<String> = (0..2000).map(|number| format!("key:{number}")).collect();
        for name in &names {
            server.run(&format!("SET {name} v"));
        }
        let mut met = BTreeSet::new();
        let mut cursor = "0".to_owned();
        let mut more = 0;
        loop {
            let (next, keys) = step(&mut server, &format!("SCAN {cursor} MATCH key:* COUNT 7"));
            met.extend(keys);
            for _ in 0..20 {
                server.run(&format!("SET other:{more} v"));
                more += 1;
            }
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(met, names);
    }

    fn step(server: &mut TestServer, line: &str) -> (String, Vec<String>) {
        let text = |value: Value| match value {
            Value::Bulk(text) => String::from_utf8(text).expect("text"),
            other => panic!("expected a string, got {other:?}"),
        };
        match server.run(line) {
            Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
                Ok([next, Value::Array(keys)]) => {
                    (text(next), keys.into_iter().map(text).collect())
                }
                other => panic!("expected a cursor and keys, got {other:?}"),
            },
            other => panic!("expected an array, got {other:?}"),
        }
    }

    #[test]
    fn a_walk_may_be_narrowed() {
        let mut server = TestServer::new();
        server.run("MSET a1 1 a2 2 b1 3");
        assert_eq!(step(&mut server, "SCAN 0 COUNT 100 MATCH b*").1, ["b1"]);
        assert_eq!(step(&mut server, "SCAN 0 COUNT 100 TYPE String").1.len(), 3);
        assert!(step(&mut server, "SCAN 0 COUNT 100 TYPE list").1.is_empty());
        assert_eq!(
            server.run("KEYS b?"),
            Value::Array(vec![Value::Bulk(b"b1".to_vec())])
        );
        assert_eq!(server.integer("DBSIZE"), 3);
    }

    #[test]
    fn a_random_key_is_alive() {
        let mut server = TestServer::new();
        assert_eq!(server.run("RANDOMKEY"), Value::Null);
        server.run("SET gone v PX 5");
        server.run("SET here v");
        server.advance_ms(5);
        for _ in 0..20 {
            assert_eq!(server.text("RANDOMKEY"), "here");
        }
    }
}
