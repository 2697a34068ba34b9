//! Integers stored as strings.

use base::number::{self, IntegerText};
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;
use store::{Deadline, EventClass, Key, Record};

use super::shared::{UPDATED_KEY, check_string};

pub(super) const INCR: CommandSpec = CommandSpec {
    name: "INCR",
    arity: Arity::Exactly(2),
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: UPDATED_KEY,
    group: Group::String,
    summary: "Adds one to the number kept at a key.",
    syntax: "key",
    handler: incr,
    ..CommandSpec::BLANK
};

pub(super) const DECR: CommandSpec = CommandSpec {
    name: "DECR",
    summary: "Takes one from the number kept at a key.",
    handler: decr,
    ..INCR
};

pub(super) const INCRBY: CommandSpec = CommandSpec {
    name: "INCRBY",
    arity: Arity::Exactly(3),
    summary: "Adds a whole number to the number kept at a key.",
    syntax: "key increment",
    handler: incrby,
    ..INCR
};

pub(super) const DECRBY: CommandSpec = CommandSpec {
    name: "DECRBY",
    arity: Arity::Exactly(3),
    summary: "Takes a whole number from the number kept at a key.",
    syntax: "key decrement",
    handler: decrby,
    ..INCR
};

fn incr(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    add(context, &key, 1, reply)
}

fn decr(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    add(context, &key, -1, reply)
}

fn incrby(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let summand = args.integer()?;
    add(context, &key, summand, reply)
}

fn decrby(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let summand = args
        .integer()?
        .checked_neg()
        .ok_or(CommandError::fixed("ERR decrement would overflow"))?;
    add(context, &key, summand, reply)
}

/// Adds to the number at a key, which is 0 if absent, and replies with the sum.
fn add(
    context: &mut Context<'_>,
    key: &Key<'_>,
    summand: i64,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let sum = context.store.modify(key, |entry| {
        let number = entry.record().map_or(Ok(0), |record| number_at(&record))?;
        let sum = number.checked_add(summand).ok_or(CommandError::fixed(
            "ERR increment or decrement would overflow",
        ))?;
        entry.set_integer(sum, Deadline::Keep)?;
        entry.effect(|effect| {
            let sum = IntegerText::new(sum);
            effect.command(&[b"SET", key.bytes(), sum.as_bytes(), b"KEEPTTL"]);
        });
        entry.event(EventClass::STRING, "incrby");
        Ok::<_, CommandError>(sum)
    })?;
    reply.integer(sum);
    Ok(())
}

#[inline]
fn number_at(record: &Record<'_>) -> Result<i64, CommandError> {
    check_string(Some(record))?;
    record
        .integer()
        .or_else(|| spelled_number(record))
        .ok_or(CommandError::NotInteger)
}

/// Returns the number that a string represents, for a string that is not stored as a number.
#[cold]
fn spelled_number(record: &Record<'_>) -> Option<i64> {
    let mut text = [0; number::TEXT_BYTES_MAX];
    let text = text.get_mut(..record.len())?;
    record.copy_to(0, text);
    number::parse_i64(text)
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn numbers_go_up_and_down() {
        let mut server = TestServer::new();
        assert_eq!(server.integer("INCR k"), 1);
        assert_eq!(server.integer("INCRBY k 9"), 10);
        assert_eq!(server.integer("DECR k"), 9);
        assert_eq!(server.integer("DECRBY k 10"), -1);
        assert_eq!(server.text("GET k"), "-1");
        assert_eq!(
            server.effects(),
            [
                "SET k 1 KEEPTTL",
                "SET k 10 KEEPTTL",
                "SET k 9 KEEPTTL",
                "SET k -1 KEEPTTL"
            ]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn a_sum_keeps_the_deadline() {
        let mut server = TestServer::new();
        server.run("SET k 1 EX 100");
        server.run("INCR k");
        let deadline = server.dump()[0].3;
        assert!(deadline.is_some());
        server.assert_effects_replay();
    }

    #[test]
    fn digits_that_were_appended_count_as_a_number() {
        let mut server = TestServer::new();
        server.run("SET k 1");
        server.run("APPEND k 0");
        assert_eq!(server.integer("INCR k"), 11);
        server.assert_effects_replay();
    }

    #[test]
    fn what_is_no_number_or_leaves_64_bits_is_refused() {
        let mut server = TestServer::new();
        server.run("MSET text abc padded ' 1' long 123456789012345678901 max 9223372036854775807");
        let not_integer = "ERR value is not an integer or out of range";
        for line in [
            "INCR text",
            "INCR padded",
            "INCR long",
            "INCRBY k x",
            "INCRBY k 9223372036854775808",
        ] {
            assert_eq!(server.error(line), not_integer, "{line}");
        }
        let overflow = "ERR increment or decrement would overflow";
        assert_eq!(server.error("INCR max"), overflow);
        assert_eq!(server.error("DECRBY max -1"), overflow);
        assert_eq!(
            server.error("DECRBY max -9223372036854775808"),
            "ERR decrement would overflow"
        );
    }
}
