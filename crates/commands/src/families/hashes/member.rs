//! Deadlines of members as KeyDB sets them: EXPIREMEMBER, EXPIREMEMBERAT, PEXPIREMEMBERAT. Here
//! they apply to fields of hashes; for members of sets and sorted sets they are refused
//! ([`NO_MEMBER_DEADLINES`]).

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult, NO_MEMBER_DEADLINES};
use engine::spec::{Arity, CommandSpec, Flags};
use protocol::Reply;
use store::EventClass;
use structures::Object;

use super::deadline::{
    CHANGED, Condition, DEADLINE_MAX_UNIX_MS, REMOVED, set_deadline, state_deadline,
};
use super::{UPDATED_KEY, WRITER, change_existing, state_removed};

const SECOND_MS: i64 = 1000;

const SETTER: CommandSpec = CommandSpec {
    arity: Arity::Exactly(4),
    flags: Flags::WRITE.with(Flags::FAST),
    keys: UPDATED_KEY,
    since: "5.1.0",
    complexity: "O(1)",
    ..WRITER
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "EXPIREMEMBER",
        arity: Arity::AtLeast(4),
        summary: "Makes a field stop existing some time from now (a command of KeyDB).",
        syntax: "key field delay:integer [unit]",
        handler: |context, args, reply| {
            let now = i64::try_from(context.now_unix_ms).unwrap_or(i64::MAX);
            expire_member(context, args, reply, SECOND_MS, now)
        },
        ..SETTER
    },
    CommandSpec {
        name: "EXPIREMEMBERAT",
        summary: "Makes a field stop existing at a time in seconds since 1970 (a command of KeyDB).",
        syntax: "key field unix-time-seconds",
        handler: |context, args, reply| expire_member(context, args, reply, SECOND_MS, 0),
        ..SETTER
    },
    CommandSpec {
        name: "PEXPIREMEMBERAT",
        summary: "Makes a field stop existing at a time in milliseconds since 1970 (a command of KeyDB).",
        syntax: "key field unix-time-milliseconds",
        handler: |context, args, reply| expire_member(context, args, reply, 1, 0),
        ..SETTER
    },
];

fn expire_member(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    unit_ms: i64,
    from_unix_ms: i64,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (name, amount) = (args.bytes()?, args.integer()?);
    let unit_ms = unit(args, unit_ms)?;
    let deadline = amount.saturating_mul(unit_ms).saturating_add(from_unix_ms);
    // KeyDB accepts any time: a time before 1970 has passed, and a time beyond the latest deadline
    // becomes the latest.
    let deadline = deadline.clamp(0, DEADLINE_MAX_UNIX_MS).unsigned_abs();
    let now = context.now_unix_ms;
    context.store.modify(&key, |entry| {
        let is_set = entry.record().is_some_and(|record| {
            let object = record.object();
            matches!(
                object.as_deref(),
                Some(Object::Set(_) | Object::SortedSet(_))
            )
        });
        if is_set {
            return Err(CommandError::fixed(NO_MEMBER_DEADLINES));
        }
        let outcome = change_existing(entry, now, |hash| {
            set_deadline(hash, name, deadline, Condition::Always, now)
        })?;
        match outcome {
            Some(CHANGED) => state_deadline(entry, deadline, &[name]),
            Some(REMOVED) => {
                state_removed(entry, std::iter::once(name));
                entry.event_of_taking(EventClass::HASH, "hdel");
            }
            _ => {}
        }
        reply.integer(i64::from(matches!(outcome, Some(CHANGED | REMOVED))));
        Ok(())
    })
}

/// Takes the unit, which may follow a delay.
fn unit(args: &mut Args<'_>, default_ms: i64) -> Result<i64, CommandError> {
    let unit_ms = match args.remaining() {
        0 => return Ok(default_ms),
        1 if args.take_word("S") => SECOND_MS,
        1 if args.take_word("MS") => 1,
        1 => return Err(CommandError::fixed("ERR Invalid unit arg")),
        _ => return Err(CommandError::fixed("ERR Invalid number of arguments")),
    };
    Ok(unit_ms)
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::{START_UNIX_MS, TestServer};

    #[test]
    fn fields_have_the_deadlines_that_keydb_would_give_them() {
        let mut server = TestServer::new();
        server.run("HSET h a 1 b 2 c 3 d 4 e 5");
        let late = START_UNIX_MS + 60_000;
        for (line, answer) in [
            ("EXPIREMEMBER h a 10", 1),
            ("EXPIREMEMBER h b 1500 ms", 1),
            ("EXPIREMEMBER h b 20 S", 1),
            ("EXPIREMEMBER h none 10", 0),
            ("EXPIREMEMBER none a 10", 0),
            (&format!("EXPIREMEMBERAT h c {}", late / 1000), 1),
            (&format!("PEXPIREMEMBERAT h c {late}"), 1),
            ("PEXPIREMEMBERAT h d 1", 1),
            ("EXPIREMEMBER h d 10", 0),
            ("EXPIREMEMBER h e 9223372036854775807", 1),
        ] {
            assert_eq!(server.integer(line), answer, "{line}");
        }
        assert_eq!(
            server.effects()[1..],
            [
                format!("HPEXPIREAT h {} FIELDS 1 a", START_UNIX_MS + 10_000),
                format!("HPEXPIREAT h {} FIELDS 1 b", START_UNIX_MS + 1_500),
                format!("HPEXPIREAT h {} FIELDS 1 b", START_UNIX_MS + 20_000),
                format!("HPEXPIREAT h {} FIELDS 1 c", late / 1000 * 1000),
                format!("HPEXPIREAT h {late} FIELDS 1 c"),
                "HDEL h d".to_owned(),
                "HPEXPIREAT h 70368744177663 FIELDS 1 e".to_owned(),
            ]
        );
        server.advance_ms(20_000);
        assert_eq!(server.integer("HLEN h"), 2);
        assert_eq!(server.integer("PEXPIREMEMBERAT h c -1"), 1);
        assert_eq!(server.integer("HLEN h"), 1);
        server.assert_effects_replay();
    }

    #[test]
    fn what_has_no_deadlines_of_members_refuses_them() {
        let mut server = TestServer::new();
        for line in ["SADD s a", "ZADD z 1 a", "SET k v", "HSET h a 1"] {
            server.run(line);
        }
        for (line, error) in [
            ("EXPIREMEMBER s a 10", super::NO_MEMBER_DEADLINES),
            ("EXPIREMEMBERAT z a 10", super::NO_MEMBER_DEADLINES),
            (
                "PEXPIREMEMBERAT k a 10",
                "WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("EXPIREMEMBER h a 10 days", "ERR Invalid unit arg"),
            ("EXPIREMEMBER h a 10 s s", "ERR Invalid number of arguments"),
            (
                "EXPIREMEMBER h a x",
                "ERR value is not an integer or out of range",
            ),
        ] {
            assert_eq!(server.error(line), error, "{line}");
        }
        assert_eq!(server.integer("SCARD s"), 1);
    }
}
