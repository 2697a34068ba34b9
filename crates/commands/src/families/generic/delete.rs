//! Existence and deletion of keys: DEL UNLINK EXISTS TOUCH TYPE.

use engine::args::Args;
use engine::context::Context;
use engine::error::CommandResult;
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec, OnCondition, Scatter};
use protocol::Reply;
use store::{Event, EventClass, Key, Kind};

const ALL_REMOVED: &[KeySpec] = &[KeySpec::range(
    1,
    -1,
    1,
    KeyAccess::RM.with(KeyAccess::DELETE),
)];
const ALL_LOOKED_AT: &[KeySpec] = &[KeySpec::range(1, -1, 1, KeyAccess::RO)];
const SUMMED: &[&str] = &["request_policy:multi_shard", "response_policy:agg_sum"];

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "DEL",
        scatter: Scatter::Sum,
        needs_values: false,
        on_condition: OnCondition::Deletes,
        arity: Arity::AtLeast(2),
        flags: Flags::WRITE.with(Flags::BRIEF),
        keys: ALL_REMOVED,
        group: Group::Generic,
        categories: &["keyspace"],
        summary: "Deletes keys, and says how many there were.",
        complexity: "O(N) where N is the number of keys.",
        syntax: "key [key ...]",
        tips: SUMMED,
        handler: delete,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "UNLINK",
        scatter: Scatter::Sum,
        needs_values: false,
        on_condition: OnCondition::Deletes,
        arity: Arity::AtLeast(2),
        flags: Flags::WRITE.with(Flags::FAST),
        keys: ALL_REMOVED,
        group: Group::Generic,
        categories: &["keyspace"],
        since: "4.0.0",
        summary: "Deletes keys; large values are freed behind the scenes, as they are by DEL here.",
        complexity: "O(N) where N is the number of keys.",
        syntax: "key [key ...]",
        tips: SUMMED,
        handler: delete,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "EXISTS",
        scatter: Scatter::Sum,
        needs_values: false,
        history: &[("3.0.3", "Takes several keys.")],
        arity: Arity::AtLeast(2),
        flags: Flags::READONLY.with(Flags::FAST),
        keys: ALL_LOOKED_AT,
        group: Group::Generic,
        categories: &["keyspace"],
        summary: "Says how many of the named keys exist; one named twice counts twice.",
        complexity: "O(N) where N is the number of keys.",
        syntax: "key [key ...]",
        tips: SUMMED,
        handler: exists,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "TOUCH",
        scatter: Scatter::Sum,
        needs_values: false,
        arity: Arity::AtLeast(2),
        flags: Flags::READONLY.with(Flags::FAST),
        keys: ALL_LOOKED_AT,
        group: Group::Generic,
        categories: &["keyspace"],
        since: "3.2.1",
        summary: "Marks keys as used now, and says how many exist.",
        complexity: "O(N) where N is the number of keys.",
        syntax: "key [key ...]",
        tips: SUMMED,
        handler: touch,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "TYPE",
        needs_values: false,
        arity: Arity::Exactly(2),
        flags: Flags::READONLY.with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyAccess::RO)],
        group: Group::Generic,
        categories: &["keyspace"],
        summary: "Names the type of the value kept at a key.",
        syntax: "key",
        handler: kind,
        ..CommandSpec::BLANK
    },
];

fn delete(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    reply.integer(count_keys(context, args, |context, key| {
        context.store.delete(key, |entry| {
            entry.effect(|effect| effect.command(&[b"DEL", key.bytes()]));
            entry.event(EventClass::GENERIC, Event::DELETED);
        })
    }));
    Ok(())
}

fn exists(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    reply.integer(count_keys(context, args, |context, key| {
        context.store.peek(key, |record| record.is_some())
    }));
    Ok(())
}

fn touch(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    reply.integer(count_keys(context, args, |context, key| {
        context.store.modify(key, |entry| {
            entry.note_look();
            entry.touch();
            entry.is_present()
        })
    }));
    Ok(())
}

/// Runs `visit` for every key left in `args`, all atomically. Returns how many times it returned
/// true.
fn count_keys(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    visit: impl Fn(&mut Context<'_>, &Key<'_>) -> bool,
) -> i64 {
    if args.remaining() == 1 {
        return args.next().map_or(0, |bytes| {
            let key = context.key(bytes);
            i64::from(visit(context, &key))
        });
    }
    let keys = context.keys(args);
    context.locked(&keys, |context| {
        let visited = keys.iter().enumerate().map(|(at, key)| {
            keys.look_ahead(context.store, at);
            i64::from(visit(context, key))
        });
        visited.sum()
    })
}

fn kind(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let kind = context
        .store
        .peek(&key, |record| record.map(store::Record::kind));
    reply.simple(kind.map_or("none", Kind::name));
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    #[test]
    fn a_key_named_twice_is_deleted_once_and_found_twice() {
        let mut server = TestServer::new();
        server.run("MSET a 1 b 2");
        assert_eq!(server.integer("EXISTS a b a none"), 3);
        assert_eq!(server.integer("TOUCH a a none"), 2);
        assert_eq!(server.integer("DEL a a none"), 1);
        assert_eq!(server.integer("UNLINK a b b"), 1);
        assert_eq!(server.effects()[2..], ["DEL a", "DEL b"]);
    }

    #[test]
    fn expired_keys_are_absent() {
        let mut server = TestServer::new();
        server.run("SET a 1 PX 5");
        server.run("SET b 1 PX 5");
        server.advance_ms(5);
        assert_eq!(server.integer("EXISTS a"), 0);
        assert_eq!(server.run("TYPE a"), Value::Simple(b"none".to_vec()));
        assert_eq!(server.integer("DEL a"), 0);
        assert_eq!(server.integer("TOUCH b"), 0);
        server.assert_effects_replay();
    }
}
