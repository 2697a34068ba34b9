//! Changes of strings in place.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Deadline, EventClass};

use super::shared::{check_length, check_string};

pub(super) const APPEND: CommandSpec = CommandSpec {
    name: "APPEND",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::INSERT))],
    group: Group::String,
    since: "2.0.0",
    summary: "Adds bytes behind the string at a key, which is made if there is none.",
    complexity: "O(N) where N is the length of the added string.",
    syntax: "key value",
    handler: append,
    ..CommandSpec::BLANK
};

pub(super) const SETRANGE: CommandSpec = CommandSpec {
    name: "SETRANGE",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::UPDATE))],
    group: Group::String,
    since: "2.2.0",
    summary: "Overwrites the string at a key from an offset on, with zero bytes up to there.",
    complexity: "O(N) where N is the length of the value argument.",
    syntax: "key offset value",
    handler: setrange,
    ..CommandSpec::BLANK
};

fn append(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let tail = args.bytes()?;
    let settings = &context.shared.settings;
    let len = context.store.modify(&key, |entry| {
        let record = entry.record();
        check_string(record.as_ref())?;
        let Some(record) = record else {
            entry.set(tail, Deadline::Never)?;
            entry.effect(|effect| effect.command(&[b"APPEND", key.bytes(), tail]));
            entry.event(EventClass::STRING, "append");
            return Ok(tail.len());
        };
        check_length(record.len().checked_add(tail.len()), settings)?;
        // Appending nothing also counts as a change, as in Redis.
        let len = entry.append(tail)?;
        entry.effect(|effect| effect.command(&[b"APPEND", key.bytes(), tail]));
        entry.event(EventClass::STRING, "append");
        Ok::<_, CommandError>(len)
    })?;
    reply.integer(i64::try_from(len).unwrap_or(i64::MAX));
    Ok(())
}

fn setrange(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let offset_text = args.peek().unwrap_or_default();
    let offset = args.integer()?;
    let data = args.bytes()?;
    if offset < 0 {
        return Err(CommandError::fixed("ERR offset is out of range"));
    }
    let end = usize::try_from(offset)
        .ok()
        .and_then(|offset| offset.checked_add(data.len()));
    let settings = &context.shared.settings;
    let len = context.store.modify(&key, |entry| {
        let record = entry.record();
        check_string(record.as_ref())?;
        if data.is_empty() {
            return Ok(record.map_or(0, |record| record.len()));
        }
        check_length(end, settings)?;
        let start = end.unwrap_or_default() - data.len();
        let len = entry.write_at(start, data)?;
        entry.effect(|effect| effect.command(&[b"SETRANGE", key.bytes(), offset_text, data]));
        entry.event(EventClass::STRING, "setrange");
        Ok::<_, CommandError>(len)
    })?;
    reply.integer(i64::try_from(len).unwrap_or(i64::MAX));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use testkit::engine_server::TestServer;

    #[test]
    fn append_makes_and_lengthens() {
        let mut server = TestServer::new();
        assert_eq!(server.integer("APPEND k 12"), 2);
        assert_eq!(server.integer("APPEND k 34"), 4);
        assert_eq!(server.integer("APPEND k ''"), 4);
        assert_eq!(server.integer("APPEND new ''"), 0);
        assert_eq!(server.text("GET k"), "1234");
        assert_eq!(
            server.effects(),
            ["APPEND k 12", "APPEND k 34", "APPEND k ", "APPEND new "]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn append_of_nothing_counts() {
        let mut server = TestServer::new();
        server.run("SET k 5");
        server.run("APPEND k ''");
        server.run("APPEND k ''");
        assert_eq!(server.effects(), ["SET k 5", "APPEND k ", "APPEND k "]);
        server.assert_effects_replay();
    }

    #[test]
    fn setrange_overwrites_and_fills_with_zero_bytes() {
        let mut server = TestServer::new();
        server.run("SET k 'Hello World' EX 100");
        assert_eq!(server.integer("SETRANGE k 6 Redis"), 11);
        assert_eq!(server.text("GET k"), "Hello Redis");
        assert_eq!(server.integer("SETRANGE pad 2 x"), 3);
        assert_eq!(server.text("GET pad"), "\0\0x");
        assert_eq!(server.integer("SETRANGE none 5 ''"), 0);
        assert_eq!(server.integer("SETRANGE k 100 ''"), 11);
        assert_eq!(
            server.effects()[1..],
            ["SETRANGE k 6 Redis", "SETRANGE pad 2 x"]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn strings_end_at_the_limit() {
        let too_long = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
        let mut server = TestServer::new();
        server
            .shared
            .settings
            .bulk_bytes_max
            .store(10, Ordering::Relaxed);
        assert_eq!(server.integer("SETRANGE k 9 x"), 10);
        assert_eq!(server.error("SETRANGE k 10 x"), too_long);
        assert_eq!(server.error("APPEND k x"), too_long);
        assert_eq!(server.error("SETRANGE k 99999999 x"), too_long);
        assert_eq!(
            server.error("SETRANGE k -1 x"),
            "ERR offset is out of range"
        );
    }
}
