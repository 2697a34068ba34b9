//! Deadlines: EXPIRE and its forms, TTL and its forms, and the row of PERSIST ([`persist`]).
//!
//! Internally, a deadline is always an absolute time in milliseconds. Seconds and relative times
//! are converted once, with the overflow checks that clients see as an error.

use base::number::IntegerText;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec, OnCondition};
use protocol::Reply;
use store::{Effect, Entry, Event, EventClass, Key};

use super::persist;

const CHANGED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::UPDATE))];
const READ: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS))];

const SETTER: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.with(Flags::FAST),
    keys: CHANGED,
    group: Group::Generic,
    categories: &["keyspace"],
    ..CommandSpec::BLANK
};

const GETTER: CommandSpec = CommandSpec {
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.with(Flags::FAST),
    keys: READ,
    group: Group::Generic,
    categories: &["keyspace"],
    syntax: "key",
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "EXPIRE",
        needs_values: false,
        on_condition: OnCondition::ChangesDeadline,
        history: &[("7.0.0", "Added `NX`, `XX`, `GT` and `LT`.")],
        summary: "Makes a key stop existing some seconds from now.",
        syntax: "key seconds [NX | XX | GT | LT]",
        handler: |context, args, reply| {
            set_deadline(
                context,
                args,
                reply,
                Time {
                    name: "expire",
                    unit_ms: 1000,
                    relative: true,
                },
            )
        },
        ..SETTER
    },
    CommandSpec {
        name: "PEXPIRE",
        needs_values: false,
        on_condition: OnCondition::ChangesDeadline,
        history: &[("7.0.0", "Added `NX`, `XX`, `GT` and `LT`.")],
        since: "2.6.0",
        summary: "Makes a key stop existing some milliseconds from now.",
        syntax: "key milliseconds [NX | XX | GT | LT]",
        handler: |context, args, reply| {
            set_deadline(
                context,
                args,
                reply,
                Time {
                    name: "pexpire",
                    unit_ms: 1,
                    relative: true,
                },
            )
        },
        ..SETTER
    },
    CommandSpec {
        name: "EXPIREAT",
        needs_values: false,
        on_condition: OnCondition::ChangesDeadline,
        history: &[("7.0.0", "Added `NX`, `XX`, `GT` and `LT`.")],
        since: "1.2.0",
        summary: "Makes a key stop existing at a time given in seconds since 1970.",
        syntax: "key unix-time-seconds [NX | XX | GT | LT]",
        handler: |context, args, reply| {
            let time = Time {
                name: "expireat",
                unit_ms: 1000,
                relative: false,
            };
            set_deadline(context, args, reply, time)
        },
        ..SETTER
    },
    CommandSpec {
        name: "PEXPIREAT",
        needs_values: false,
        on_condition: OnCondition::ChangesDeadline,
        history: &[("7.0.0", "Added `NX`, `XX`, `GT` and `LT`.")],
        since: "2.6.0",
        summary: "Makes a key stop existing at a time given in milliseconds since 1970.",
        syntax: "key unix-time-milliseconds [NX | XX | GT | LT]",
        handler: |context, args, reply| {
            let time = Time {
                name: "pexpireat",
                unit_ms: 1,
                relative: false,
            };
            set_deadline(context, args, reply, time)
        },
        ..SETTER
    },
    CommandSpec {
        name: "TTL",
        needs_values: false,
        history: &[(
            "2.8.0",
            "Tells a missing key, -2, from one without a deadline.",
        )],
        tips: &["nondeterministic_output"],
        summary: "Says how many seconds a key still has; -1: for ever, -2: there is no such key.",
        handler: |context, args, reply| tell_deadline(context, args, reply, 1000, true),
        ..GETTER
    },
    CommandSpec {
        name: "PTTL",
        needs_values: false,
        history: &[(
            "2.8.0",
            "Tells a missing key, -2, from one without a deadline.",
        )],
        since: "2.6.0",
        tips: &["nondeterministic_output"],
        summary: "Says how many milliseconds a key still has; -1: for ever, -2: no such key.",
        handler: |context, args, reply| tell_deadline(context, args, reply, 1, true),
        ..GETTER
    },
    CommandSpec {
        name: "EXPIRETIME",
        needs_values: false,
        since: "7.0.0",
        summary: "Says when a key stops existing, in seconds since 1970; -1: never, -2: no such key.",
        handler: |context, args, reply| tell_deadline(context, args, reply, 1000, false),
        ..GETTER
    },
    CommandSpec {
        name: "PEXPIRETIME",
        needs_values: false,
        since: "7.0.0",
        summary: "Says when a key stops existing, in milliseconds since 1970; -1: never, -2: no such key.",
        handler: |context, args, reply| tell_deadline(context, args, reply, 1, false),
        ..GETTER
    },
    CommandSpec {
        name: "PERSIST",
        needs_values: false,
        on_condition: OnCondition::ChangesDeadline,
        arity: Arity::Exactly(2),
        flags: SETTER.flags.with(Flags::MORE_FROM_PRIMARY),
        since: "2.2.0",
        summary: "Takes a key's deadline away.",
        syntax: "key",
        handler: persist::persist,
        ..SETTER
    },
];

/// The form in which a command gives a time.
#[derive(Clone, Copy)]
struct Time {
    name: &'static str,
    unit_ms: i64,
    relative: bool,
}

impl Time {
    /// Returns the absolute time in milliseconds that `amount` means; negative if before 1970.
    fn deadline_unix_ms(self, amount: i64, now_unix_ms: u64) -> Result<i64, CommandError> {
        let base = if self.relative {
            i64::try_from(now_unix_ms).unwrap_or(i64::MAX)
        } else {
            0
        };
        let deadline = amount
            .checked_mul(self.unit_ms)
            .and_then(|ms| ms.checked_add(base));
        deadline.ok_or_else(|| {
            CommandError::Text(format!("ERR invalid expire time in '{}' command", self.name).into())
        })
    }
}

/// The condition on which a new deadline is set.
#[derive(Clone, Copy, Default)]
struct Condition {
    without_deadline: bool,
    with_deadline: bool,
    later: bool,
    earlier: bool,
}

impl Condition {
    fn parse(args: &mut Args<'_>) -> Result<Self, CommandError> {
        let mut condition = Self::default();
        for word in args.by_ref() {
            match word.to_ascii_uppercase().as_slice() {
                b"NX" => condition.without_deadline = true,
                b"XX" => condition.with_deadline = true,
                b"GT" => condition.later = true,
                b"LT" => condition.earlier = true,
                _ => {
                    let mut text = b"ERR Unsupported option ".to_vec();
                    text.extend_from_slice(word);
                    return Err(CommandError::Bytes(text));
                }
            }
        }
        if condition.without_deadline
            && (condition.with_deadline || condition.later || condition.earlier)
        {
            return Err(CommandError::fixed(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if condition.later && condition.earlier {
            return Err(CommandError::fixed(
                "ERR GT and LT options at the same time are not compatible",
            ));
        }
        Ok(condition)
    }

    /// Whether the condition allows the change from `current` (`None`: no deadline) to `wanted`.
    fn allows(self, current: Option<u64>, wanted: i64) -> bool {
        let current = current.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        if (self.without_deadline && current.is_some()) || (self.with_deadline && current.is_none())
        {
            return false;
        }
        if self.later && current.is_none_or(|current| wanted <= current) {
            return false;
        }
        !(self.earlier && current.is_some_and(|current| wanted >= current))
    }
}

fn set_deadline(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    time: Time,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let amount = args.bytes()?;
    let condition = Condition::parse(args)?;
    let amount = base::number::parse_i64(amount).ok_or(CommandError::NotInteger)?;
    let deadline = time.deadline_unix_ms(amount, context.now_unix_ms)?;
    let now_unix_ms = context.now_unix_ms;
    let changed = context.store.modify(&key, |entry| {
        let Some(record) = entry.record() else {
            return Ok(false);
        };
        if !condition.allows(record.deadline_unix_ms(), deadline) {
            return Ok(false);
        }
        apply_deadline(entry, deadline, now_unix_ms)?;
        Ok::<_, CommandError>(true)
    })?;
    reply.integer(i64::from(changed));
    Ok(())
}

/// Sets the record's deadline, or deletes the record if that time has passed, and states the
/// effect.
///
/// # Errors
/// If memory is full.
pub(crate) fn apply_deadline(
    entry: &mut Entry<'_>,
    deadline_unix_ms: i64,
    now_unix_ms: u64,
) -> CommandResult {
    let key = entry.key();
    match u64::try_from(deadline_unix_ms) {
        Ok(deadline) if deadline > now_unix_ms => {
            entry.set_deadline(Some(deadline))?;
            entry.effect(|effect| state_deadline(effect, &key, deadline));
            entry.event(EventClass::GENERIC, "expire");
        }
        _ => {
            entry.remove();
            entry.effect(|effect| effect.command(&[b"DEL", key.bytes()]));
            entry.event(EventClass::GENERIC, Event::DELETED);
        }
    }
    Ok(())
}

fn state_deadline(effect: &mut Effect<'_>, key: &Key<'_>, deadline_unix_ms: u64) {
    let deadline = IntegerText::new_u64(deadline_unix_ms);
    effect.command(&[b"PEXPIREAT", key.bytes(), deadline.as_bytes()]);
}

fn tell_deadline(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    unit_ms: i64,
    relative: bool,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let found = context
        .store
        .peek(&key, |record| record.map(store::Record::deadline_unix_ms));
    let answer = match found {
        None => -2,
        Some(None) => -1,
        Some(Some(deadline)) => {
            let from = if relative { context.now_unix_ms } else { 0 };
            let ms = i64::try_from(deadline.saturating_sub(from)).unwrap_or(i64::MAX);
            if unit_ms == 1 {
                ms
            } else {
                ms.saturating_add(unit_ms / 2) / unit_ms
            }
        }
    };
    reply.integer(answer);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Condition;
    use testkit::engine_server::{START_UNIX_MS, TestServer};

    #[test]
    fn conditions_count_no_deadline_as_never() {
        let later = Condition {
            later: true,
            ..Condition::default()
        };
        let earlier = Condition {
            earlier: true,
            ..Condition::default()
        };
        assert!(!later.allows(None, i64::MAX));
        assert!(earlier.allows(None, i64::MAX));
        assert!(later.allows(Some(5), 6) && !later.allows(Some(5), 5));
        assert!(earlier.allows(Some(5), 4) && !earlier.allows(Some(5), 5));
    }

    #[test]
    fn every_form_sets_the_same_deadline() {
        let mut server = TestServer::new();
        let at_ms = START_UNIX_MS + 10_000;
        for line in [
            "EXPIRE k 10".to_owned(),
            "PEXPIRE k 10000".to_owned(),
            format!("EXPIREAT k {}", at_ms / 1000),
            format!("PEXPIREAT k {at_ms}"),
        ] {
            server.run("SET k v");
            assert_eq!(server.integer(&line), 1, "{line}");
            assert_eq!(
                server.integer("PEXPIRETIME k"),
                i64::try_from(at_ms).expect("small")
            );
            let effects = server.effects();
            assert_eq!(effects[1..], [format!("PEXPIREAT k {at_ms}")], "{line}");
        }
        assert_eq!(server.integer("PERSIST k"), 1);
        assert_eq!(server.integer("PERSIST k"), 0);
        server.assert_effects_replay();
    }

    #[test]
    fn what_is_left_is_rounded_to_the_second() {
        let mut server = TestServer::new();
        for (left_ms, shown_s) in [(1, 0), (499, 0), (500, 1), (1499, 1), (1500, 2)] {
            server.run(&format!("SET k v PX {left_ms}"));
            assert_eq!(server.integer("TTL k"), shown_s, "{left_ms}");
            assert_eq!(server.integer("PTTL k"), left_ms);
        }
        assert_eq!(server.integer("TTL none"), -2);
        server.run("SET k v");
        assert_eq!(server.integer("PTTL k"), -1);
    }

    #[test]
    fn a_deadline_that_has_come_deletes() {
        let mut server = TestServer::new();
        for line in [
            "EXPIRE k 0",
            "PEXPIRE k -1",
            "EXPIREAT k 1",
            "PEXPIREAT k -5",
        ] {
            server.run("SET k v");
            assert_eq!(server.integer(line), 1, "{line}");
            assert_eq!(server.integer("EXISTS k"), 0, "{line}");
            assert_eq!(server.effects(), ["SET k v", "DEL k"]);
        }
    }

    #[test]
    fn times_do_not_wrap() {
        let mut server = TestServer::new();
        server.run("SET k v");
        for line in [
            "EXPIRE k 9223372036854775807",
            "EXPIRE k -9223372036854775808",
        ] {
            assert_eq!(
                server.error(line),
                "ERR invalid expire time in 'expire' command"
            );
        }
        assert_eq!(
            server.error("PEXPIRE none 9223372036854775807"),
            "ERR invalid expire time in 'pexpire' command"
        );
        assert_eq!(server.integer("PEXPIREAT k 9223372036854775807"), 1);
        assert_eq!(server.integer("PEXPIRETIME k"), i64::MAX);
        server.assert_effects_replay();
    }
}
