//! Deadlines of fields.

use base::number::IntegerText;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags};
use protocol::Reply;
use store::{Entry, EventClass};
use structures::Hash;

use super::fields::{self, Complaint};
use super::{READER, UPDATED_KEY, WRITER, change_existing, read, state_removed};

/// The latest deadline of a field, in milliseconds since 1970, as in Redis.
pub(super) const DEADLINE_MAX_UNIX_MS: i64 = (1 << 46) - 1;

/// Replies for a field.
const NO_SUCH_FIELD: i64 = -2;
const NO_DEADLINE: i64 = -1;
const NOT_CHANGED: i64 = 0;
pub(super) const CHANGED: i64 = 1;
pub(super) const REMOVED: i64 = 2;

const SETTER: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(6),
    since: "7.4.0",
    complexity: "O(N) where N is the number of fields.",
    ..WRITER
};

const GETTER: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(5),
    since: "7.4.0",
    complexity: "O(N) where N is the number of fields.",
    syntax: "key FIELDS numfields field [field ...]",
    ..READER
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "HEXPIRE",
        summary: "Makes fields stop existing some seconds from now.",
        syntax: "key seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        handler: |context, args, reply| set_deadlines(context, args, reply, SECONDS),
        ..SETTER
    },
    CommandSpec {
        name: "HPEXPIRE",
        summary: "Makes fields stop existing some milliseconds from now.",
        syntax: "key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        handler: |context, args, reply| set_deadlines(context, args, reply, MILLISECONDS),
        ..SETTER
    },
    CommandSpec {
        name: "HEXPIREAT",
        summary: "Makes fields stop existing at a time given in seconds since 1970.",
        syntax: "key unix-time-seconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        handler: |context, args, reply| set_deadlines(context, args, reply, UNIX_SECONDS),
        ..SETTER
    },
    CommandSpec {
        name: "HPEXPIREAT",
        summary: "Makes fields stop existing at a time given in milliseconds since 1970.",
        syntax: "key unix-time-milliseconds [NX | XX | GT | LT] FIELDS numfields field [field ...]",
        handler: |context, args, reply| set_deadlines(context, args, reply, UNIX_MILLISECONDS),
        ..SETTER
    },
    CommandSpec {
        name: "HTTL",
        summary: "Says how many seconds fields still have; -1: for ever, -2: not there.",
        handler: |context, args, reply| tell_deadlines(context, args, reply, SECONDS),
        ..GETTER
    },
    CommandSpec {
        name: "HPTTL",
        summary: "Says how many milliseconds fields still have; -1: for ever, -2: not there.",
        handler: |context, args, reply| tell_deadlines(context, args, reply, MILLISECONDS),
        ..GETTER
    },
    CommandSpec {
        name: "HEXPIRETIME",
        summary: "Says when fields stop existing, in seconds since 1970; -1: never, -2: not there.",
        handler: |context, args, reply| tell_deadlines(context, args, reply, UNIX_SECONDS),
        ..GETTER
    },
    CommandSpec {
        name: "HPEXPIRETIME",
        summary: "Says when fields stop existing, in milliseconds since 1970; -1: never, -2: not there.",
        handler: |context, args, reply| tell_deadlines(context, args, reply, UNIX_MILLISECONDS),
        ..GETTER
    },
    CommandSpec {
        name: "HPERSIST",
        arity: Arity::AtLeast(5),
        flags: Flags::WRITE.with(Flags::FAST),
        keys: UPDATED_KEY,
        since: "7.4.0",
        summary: "Takes the deadlines of fields away.",
        complexity: "O(N) where N is the number of fields.",
        syntax: "key FIELDS numfields field [field ...]",
        handler: hpersist,
        ..WRITER
    },
];

/// The form in which a command gives a time.
#[derive(Clone, Copy)]
struct Time {
    command: &'static str,
    unit_ms: i64,
    is_relative: bool,
}

const SECONDS: Time = Time {
    command: "hexpire",
    unit_ms: 1000,
    is_relative: true,
};
const MILLISECONDS: Time = Time {
    command: "hpexpire",
    unit_ms: 1,
    is_relative: true,
};
const UNIX_SECONDS: Time = Time {
    command: "hexpireat",
    unit_ms: 1000,
    is_relative: false,
};
const UNIX_MILLISECONDS: Time = Time {
    command: "hpexpireat",
    unit_ms: 1,
    is_relative: false,
};

impl Time {
    fn base_ms(self, now_unix_ms: u64) -> i64 {
        if self.is_relative {
            i64::try_from(now_unix_ms).unwrap_or(i64::MAX)
        } else {
            0
        }
    }

    /// Returns the absolute time in milliseconds that `amount` means.
    fn deadline_unix_ms(self, amount: i64, now_unix_ms: u64) -> Result<u64, CommandError> {
        if amount < 0 {
            return Err(CommandError::fixed("ERR invalid expire time, must be >= 0"));
        }
        let given_ms = amount.checked_mul(self.unit_ms);
        let deadline = given_ms.and_then(|ms| ms.checked_add(self.base_ms(now_unix_ms)));
        let deadline = deadline.filter(|deadline| *deadline <= DEADLINE_MAX_UNIX_MS);
        deadline
            .and_then(|deadline| u64::try_from(deadline).ok())
            .ok_or_else(|| {
                let text = format!("ERR invalid expire time in '{}' command", self.command);
                CommandError::Text(text.into())
            })
    }

    /// Returns the reply for a field with this deadline. Remaining time is rounded up, so that it
    /// is never zero for an existing field.
    fn tell(self, deadline_unix_ms: u64, now_unix_ms: u64) -> i64 {
        let deadline = i64::try_from(deadline_unix_ms).unwrap_or(i64::MAX);
        let left_ms = deadline - self.base_ms(now_unix_ms);
        if self.is_relative {
            (left_ms + self.unit_ms - 1) / self.unit_ms
        } else {
            left_ms / self.unit_ms
        }
    }
}

/// The condition on which a new deadline is set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Always,
    WithoutDeadline,
    WithDeadline,
    Later,
    Earlier,
}

impl Condition {
    fn parse(args: &mut Args<'_>) -> Self {
        let words = [
            ("NX", Self::WithoutDeadline),
            ("XX", Self::WithDeadline),
            ("GT", Self::Later),
            ("LT", Self::Earlier),
        ];
        let given = words.into_iter().find(|(word, _)| args.take_word(word));
        given.map_or(Self::Always, |(_, condition)| condition)
    }

    /// Whether the condition allows the change from `current` (`None`: no deadline) to `wanted`.
    fn allows(self, current: Option<u64>, wanted: u64) -> bool {
        match self {
            Self::Always => true,
            Self::WithoutDeadline => current.is_none(),
            Self::WithDeadline => current.is_some(),
            Self::Later => current.is_some_and(|current| wanted > current),
            Self::Earlier => current.is_none_or(|current| wanted < current),
        }
    }
}

fn set_deadlines(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    time: Time,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let now = context.now_unix_ms;
    let deadline = time.deadline_unix_ms(args.integer()?, now)?;
    let condition = Condition::parse(args);
    let names = fields::parse(args, 1, Complaint::Parameter)?;
    context.store.modify(&key, |entry| {
        let changed = change_existing(entry, now, |hash| {
            reply.array(names.len());
            let mut changed = Vec::new();
            for name in names {
                let outcome = set_deadline(hash, name, deadline, condition, now)?;
                if outcome == CHANGED || outcome == REMOVED {
                    changed.push(name);
                }
                reply.integer(outcome);
            }
            Ok(changed)
        })?;
        match changed {
            None => answer_none(names.len(), reply),
            Some(changed) if changed.is_empty() => {}
            Some(changed) if deadline <= now => {
                state_removed(entry, changed.into_iter());
                entry.event_of_taking(EventClass::HASH, "hdel");
            }
            Some(changed) => state_deadline(entry, deadline, &changed),
        }
        Ok(())
    })
}

/// Sets the deadline of one field. Returns the field's reply.
pub(super) fn set_deadline(
    hash: &mut Hash,
    name: &[u8],
    deadline: u64,
    condition: Condition,
    now: u64,
) -> Result<i64, CommandError> {
    let Some(field) = hash.get(name, now) else {
        return Ok(NO_SUCH_FIELD);
    };
    if !condition.allows(field.deadline_unix_ms, deadline) {
        return Ok(NOT_CHANGED);
    }
    if deadline <= now {
        hash.remove(name);
        return Ok(REMOVED);
    }
    hash.set_deadline(name, Some(deadline))?;
    Ok(CHANGED)
}

pub(super) fn state_deadline(entry: &mut Entry<'_>, deadline: u64, names: &[&[u8]]) {
    let key = entry.key();
    entry.effect(|effect| {
        let deadline = IntegerText::new_u64(deadline);
        let count = IntegerText::new_u64(names.len() as u64);
        let mut parts = vec![
            b"HPEXPIREAT",
            key.bytes(),
            deadline.as_bytes(),
            b"FIELDS",
            count.as_bytes(),
        ];
        parts.extend(names);
        effect.command(&parts);
    });
    entry.event(EventClass::HASH, "hexpire");
}

fn tell_deadlines(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    time: Time,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let names = fields::parse(args, 1, Complaint::Number)?;
    let now = context.now_unix_ms;
    read(context, &key, reply, |hash, reply| {
        reply.array(names.len());
        for name in names {
            reply.integer(match hash.get(name, now) {
                None => NO_SUCH_FIELD,
                Some(field) => field
                    .deadline_unix_ms
                    .map_or(NO_DEADLINE, |deadline| time.tell(deadline, now)),
            });
        }
    })
}

fn hpersist(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let names = fields::parse(args, 1, Complaint::Number)?;
    let now = context.now_unix_ms;
    context.store.modify(&key, |entry| {
        let changed = change_existing(entry, now, |hash| {
            reply.array(names.len());
            let mut changed = Vec::new();
            for name in names {
                let outcome = persist(hash, name, now)?;
                if outcome == CHANGED {
                    changed.push(name);
                }
                reply.integer(outcome);
            }
            Ok(changed)
        })?;
        match changed {
            None => answer_none(names.len(), reply),
            Some(changed) => state_persisted(entry, &changed),
        }
        Ok(())
    })
}

/// Removes the deadline of one field. Returns the field's reply.
fn persist(hash: &mut Hash, name: &[u8], now: u64) -> Result<i64, CommandError> {
    let deadline = hash.get(name, now).map(|field| field.deadline_unix_ms);
    Ok(match deadline {
        None => NO_SUCH_FIELD,
        Some(None) => NO_DEADLINE,
        Some(Some(_)) => {
            hash.set_deadline(name, None)?;
            CHANGED
        }
    })
}

/// Writes the replies for the fields of an absent key.
fn answer_none(count: usize, reply: &mut Reply<'_>) {
    reply.array(count);
    for _ in 0..count {
        reply.integer(NO_SUCH_FIELD);
    }
}

fn state_persisted(entry: &mut Entry<'_>, names: &[&[u8]]) {
    if names.is_empty() {
        return;
    }
    let key = entry.key();
    entry.effect(|effect| {
        let count = IntegerText::new_u64(names.len() as u64);
        let mut parts = vec![b"HPERSIST", key.bytes(), b"FIELDS", count.as_bytes()];
        parts.extend(names);
        effect.command(&parts);
    });
    entry.event(EventClass::HASH, "hpersist");
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::{START_UNIX_MS, TestServer};

    fn numbers(server: &mut TestServer, line: &str) -> Vec<i64> {
        let Value::Array(elements) = server.run(line) else {
            panic!("{line}: expected an array");
        };
        let number = |element| match element {
            Value::Integer(number) => number,
            other => panic!("{line}: expected a number, got {other:?}"),
        };
        elements.into_iter().map(number).collect()
    }

    #[test]
    fn fields_go_at_their_time_and_not_before() {
        let mut server = TestServer::new();
        server.run("HSET h a 1 b 2 c 3");
        assert_eq!(
            numbers(&mut server, "HEXPIRE h 10 FIELDS 2 a none"),
            [1, -2]
        );
        assert_eq!(numbers(&mut server, "HPEXPIRE h 500 FIELDS 1 b"), [1]);
        assert_eq!(numbers(&mut server, "HTTL h FIELDS 3 a b c"), [10, 1, -1]);
        assert_eq!(numbers(&mut server, "HPTTL h FIELDS 2 b none"), [500, -2]);
        server.advance_ms(499);
        assert_eq!(server.integer("HLEN h"), 3);
        server.advance_ms(1);
        assert_eq!(server.integer("HLEN h"), 2);
        assert_eq!(server.integer("HSETNX h b again"), 1);
        assert_eq!(numbers(&mut server, "HTTL h FIELDS 1 b"), [-1]);
        server.advance_ms(9_500);
        assert_eq!(server.integer("HSTRLEN h a"), 0);
        assert_eq!(server.integer("HDEL h a"), 0);
        let at = START_UNIX_MS;
        assert_eq!(
            server.effects()[1..],
            [
                format!("HPEXPIREAT h {} FIELDS 1 a", at + 10_000),
                format!("HPEXPIREAT h {} FIELDS 1 b", at + 500),
                "HDEL h b".to_owned(),
                "HSET h b again".to_owned(),
                "HDEL h a".to_owned(),
            ]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn conditions_compare_with_the_deadline_that_is_there() {
        let mut server = TestServer::new();
        server.run("HSET h a 1 b 2");
        for (line, answer) in [
            ("HEXPIRE h 10 XX FIELDS 1 a", 0),
            ("HEXPIRE h 10 GT FIELDS 1 a", 0),
            ("HEXPIRE h 10 LT FIELDS 1 a", 1),
            ("HEXPIRE h 20 NX FIELDS 1 a", 0),
            ("HEXPIRE h 20 LT FIELDS 1 a", 0),
            ("HEXPIRE h 20 GT FIELDS 1 a", 1),
            ("HEXPIRE h 5 XX FIELDS 1 a", 1),
            ("HPERSIST h FIELDS 1 a", 1),
            ("HPERSIST h FIELDS 1 a", -1),
            ("HPERSIST h FIELDS 1 none", -2),
            ("HEXPIREAT h 1 FIELDS 1 a", 2),
            ("HEXPIRE h 0 FIELDS 1 b", 2),
            ("HEXPIRE h 0 FIELDS 1 b", -2),
        ] {
            assert_eq!(numbers(&mut server, line), [answer], "{line}");
        }
        assert_eq!(server.integer("EXISTS h"), 0);
        server.assert_effects_replay();
    }

    /// A quarter of 2^48 milliseconds since 1970, as in Redis 7.4.
    #[test]
    fn deadlines_end_where_those_of_redis_do() {
        let mut server = TestServer::new();
        server.run("HSET h a 1");
        let left_ms = 70_368_744_177_663 - START_UNIX_MS;
        for (command, most) in [
            ("HPEXPIREAT", 70_368_744_177_663),
            ("HEXPIREAT", 70_368_744_177),
            ("HPEXPIRE", left_ms),
            ("HEXPIRE", left_ms / 1000),
        ] {
            let line = |number: u64| format!("{command} h {number} FIELDS 1 a");
            assert_eq!(numbers(&mut server, &line(most)), [1], "{command}");
            let name = command.to_lowercase();
            let error = format!("ERR invalid expire time in '{name}' command");
            for number in [most + 1, i64::MAX.unsigned_abs()] {
                assert_eq!(server.error(&line(number)), error);
            }
        }
        assert_eq!(
            server.error("HPEXPIREAT h 9223372036854775808 FIELDS 1 a"),
            "ERR value is not an integer or out of range"
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut server = TestServer::new();
        server.run("HSET h a 1");
        for (line, error) in [
            (
                "HEXPIRE h -1 FIELDS 1 a",
                "ERR invalid expire time, must be >= 0",
            ),
            (
                "HPEXPIRE h 70368744177664 FIELDS 1 a",
                "ERR invalid expire time in 'hpexpire' command",
            ),
            (
                "HEXPIRE h 1 a b c",
                "ERR Mandatory argument FIELDS is missing or not at the right position",
            ),
            (
                "HEXPIRE h 1 FIELDS 0 a",
                "ERR Parameter `numFields` should be greater than 0",
            ),
            (
                "HTTL h FIELDS x a",
                "ERR Number of fields must be a positive integer",
            ),
            (
                "HTTL h FIELDS 2 a",
                "ERR The `numfields` parameter must match the number of arguments",
            ),
        ] {
            assert_eq!(server.error(line), error, "{line}");
        }
    }
}
