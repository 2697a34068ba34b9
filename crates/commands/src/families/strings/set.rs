//! Writes of whole strings.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{
    Arity, CommandSpec, Deprecation, Flags, Group, KeyAccess, KeySpec, LongValue, OnCondition,
};
use protocol::{Reply, Request};
use store::{Deadline, Entry, EventClass, Key, Owned, Record, next_etag};

use super::expiry::{Expiry, ExpiryForm};
use super::shared::{
    OVERWRITTEN_KEY, UPDATED_KEY, check_string, is_equal, state_set, state_set_with, tell_set,
    write_string,
};

pub(super) const SET: CommandSpec = CommandSpec {
    name: "SET",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::BRIEF),
    keys: &[KeySpec {
        notes: "RW and ACCESS due to the optional `GET` argument",
        ..KeySpec::one(
            1,
            KeyAccess::RW
                .with(KeyAccess::ACCESS)
                .with(KeyAccess::UPDATE)
                .with(KeyAccess::VARIABLE_FLAGS),
        )
    }],
    access_of: Some(access_of_set),
    sets_with: 3,
    on_condition: OnCondition::Stores,
    group: Group::String,
    history: &[
        ("2.6.12", "Added the `EX`, `PX`, `NX` and `XX` options."),
        ("6.0.0", "Added the `KEEPTTL` option."),
        ("6.2.0", "Added the `GET`, `EXAT` and `PXAT` option."),
        (
            "7.0.0",
            "Allowed the `NX` and `GET` options to be used together.",
        ),
        ("8.1.0", "Added the `IFEQ` option of Valkey."),
    ],
    summary: "Makes a key hold a string, whatever it held before.",
    syntax: "key value [NX | XX | IFEQ comparison-value] [GET] [EX seconds | PX milliseconds | \
             EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
    handler: set,
    series: Some(|series| series.each(set)),
    long_value: Some(LongValue {
        argument: 2,
        handler: set_arrived,
    }),
    ..CommandSpec::BLANK
};

pub(super) const SETNX: CommandSpec = CommandSpec {
    name: "SETNX",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: &[KeySpec::one(1, KeyAccess::OW.with(KeyAccess::INSERT))],
    group: Group::String,
    deprecated: Some(Deprecation {
        since: "2.6.12",
        replaced_by: "`SET` with the `NX` argument",
    }),
    summary: "Makes a key hold a string if there is no such key yet.",
    syntax: "key value",
    handler: setnx,
    long_value: Some(LongValue {
        argument: 2,
        handler: setnx,
    }),
    ..CommandSpec::BLANK
};

pub(super) const SETEX: CommandSpec = CommandSpec {
    name: "SETEX",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::BRIEF),
    keys: OVERWRITTEN_KEY,
    group: Group::String,
    since: "2.0.0",
    deprecated: Some(Deprecation {
        since: "2.6.12",
        replaced_by: "`SET` with the `EX` argument",
    }),
    summary: "Makes a key hold a string for a number of seconds.",
    syntax: "key seconds value",
    handler: setex,
    long_value: Some(LongValue {
        argument: 3,
        handler: setex,
    }),
    ..CommandSpec::BLANK
};

pub(super) const PSETEX: CommandSpec = CommandSpec {
    name: "PSETEX",
    since: "2.6.0",
    deprecated: Some(Deprecation {
        since: "2.6.12",
        replaced_by: "`SET` with the `PX` argument",
    }),
    summary: "Makes a key hold a string for a number of milliseconds.",
    syntax: "key milliseconds value",
    handler: psetex,
    long_value: Some(LongValue {
        argument: 3,
        handler: psetex,
    }),
    ..SETEX
};

pub(super) const GETSET: CommandSpec = CommandSpec {
    name: "GETSET",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: UPDATED_KEY,
    group: Group::String,
    deprecated: Some(Deprecation {
        since: "6.2.0",
        replaced_by: "`SET` with the `!GET` argument",
    }),
    summary: "Makes a key hold a string and gives the one it held before.",
    syntax: "key value",
    handler: getset,
    long_value: Some(LongValue {
        argument: 2,
        handler: getset,
    }),
    ..CommandSpec::BLANK
};

#[inline(always)]
fn set(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let value = args.bytes()?;
    if args.remaining() > 0 {
        // A separate copy, so that a SET without options needs none.
        return set_with_options(context, &mut args.clone(), reply);
    }
    context
        .store
        .upsert(&key, value, Deadline::Never, |entry| {
            entry.effect(|effect| effect.command(&[b"SET", key.bytes(), value]));
            entry.event(EventClass::STRING, "set");
        })?;
    reply.ok();
    Ok(())
}

/// SET reads the key only if an option says so.
fn access_of_set(request: &Request<'_>) -> KeyAccess {
    let mut options = request.iter().skip(3);
    if options.any(|word| word.eq_ignore_ascii_case(b"GET")) {
        KeyAccess::RW
            .with(KeyAccess::ACCESS)
            .with(KeyAccess::UPDATE)
    } else {
        KeyAccess::OW.with(KeyAccess::UPDATE)
    }
}

/// Executes a SET with options; `args` is after key and value.
#[cold]
fn set_with_options(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let options = SetOptions::parse(args)?;
    let request = args.request();
    let (Some(name), Some(value)) = (request.arg(1), request.arg(2)) else {
        return Err(CommandError::Syntax);
    };
    let key = context.key(name);
    set_if_wanted(context, &key, &options, reply, |entry, deadline| {
        NewValue::Bytes(value).write(entry, deadline)
    })
}

/// Executes a SET of a value that was received separately.
#[cold]
fn set_arrived(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    if context.session.arrival.is_none() {
        return set(context, args, reply);
    }
    let key = context.key(args.bytes()?);
    let value = NewValue::take(context, args)?;
    let options = SetOptions::parse(args)?;
    set_if_wanted(context, &key, &options, reply, |entry, deadline| {
        value.write(entry, deadline)
    })
}

/// The new value of a key.
enum NewValue<'a> {
    Bytes(&'a [u8]),
    /// A value that was received separately, into its final pages.
    Arrived(Owned),
}

impl<'a> NewValue<'a> {
    /// Takes the next argument, or the value that was received in its place.
    fn take(context: &mut Context<'_>, args: &mut Args<'a>) -> Result<Self, CommandError> {
        let bytes = args.bytes()?;
        let Some(arrival) = context.session.arrival.take() else {
            return Ok(Self::Bytes(bytes));
        };
        let value = arrival.into_value().finish(None);
        value.map(Self::Arrived).ok_or(CommandError::Syntax)
    }

    /// Stores the value at the key, and states that.
    fn write(self, entry: &mut Entry<'_>, deadline: Deadline) -> CommandResult {
        match self {
            Self::Bytes(value) => {
                entry.set(value, deadline)?;
                state_set(entry, value, deadline);
            }
            Self::Arrived(value) => put_arrived(entry, value, deadline)?,
        }
        tell_set(entry, deadline);
        Ok(())
    }
}

#[cold]
fn put_arrived(entry: &mut Entry<'_>, value: Owned, deadline: Deadline) -> CommandResult {
    let kept = entry.record().filter(|_| deadline == Deadline::Keep);
    let etag = kept.as_ref().map_or(0, Record::etag);
    let deadline_unix_ms = match deadline {
        Deadline::Never => None,
        Deadline::At(unix_ms) => Some(unix_ms),
        Deadline::Keep => kept.and_then(|record| record.deadline_unix_ms()),
    };
    // Shares the pages. Nearly always nothing consumes effects, and the copy is dropped unused.
    let stated = value.clone();
    entry.put(value.with_deadline(deadline_unix_ms))?;
    if etag != 0 {
        entry.set_etag(next_etag(etag))?;
    }
    state_set_with(entry, || stated.to_vec(), deadline);
    Ok(())
}

/// Checks the key as `options` say, has `write` set it if they allow that, and replies.
fn set_if_wanted(
    context: &mut Context<'_>,
    key: &Key<'_>,
    options: &SetOptions<'_>,
    reply: &mut Reply<'_>,
    write: impl FnOnce(&mut Entry<'_>, Deadline) -> CommandResult,
) -> CommandResult {
    let deadline = options.deadline(context.now_unix_ms)?;
    context.store.modify(key, |entry| {
        let record = entry.record();
        if options.get {
            entry.note_look();
            check_string(record.as_ref())?;
            write_string(record.as_ref(), reply);
        }
        let wanted = options.condition.holds(record.as_ref())?;
        if wanted {
            write(entry, deadline)?;
        }
        match (options.get, wanted) {
            (true, _) => {}
            (false, true) => reply.ok(),
            (false, false) => reply.null(),
        }
        Ok(())
    })
}

/// The options after key and value.
#[derive(Default)]
struct SetOptions<'a> {
    condition: Condition<'a>,
    get: bool,
    keep_ttl: bool,
    expiry: Option<Expiry<'a>>,
}

/// The condition on which SET sets.
#[derive(Clone, Copy, Default)]
enum Condition<'a> {
    #[default]
    Always,
    IfAbsent,
    IfPresent,
    IfEqual(&'a [u8]),
}

impl<'a> SetOptions<'a> {
    /// Parses the options. An option may be repeated, but not combined with a contradicting one.
    fn parse(args: &mut Args<'a>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        while let Some(word) = args.option_word() {
            match (word.as_bytes(), options.condition) {
                (b"NX", Condition::Always | Condition::IfAbsent) => {
                    options.condition = Condition::IfAbsent;
                }
                (b"XX", Condition::Always | Condition::IfPresent) => {
                    options.condition = Condition::IfPresent;
                }
                (b"IFEQ", Condition::Always) => {
                    options.condition = Condition::IfEqual(args.bytes()?);
                }
                (b"GET", _) => options.get = true,
                (b"KEEPTTL", _) if options.expiry.is_none() => options.keep_ttl = true,
                (word, _) => options.take_expiry(word, args)?,
            }
        }
        Ok(options)
    }

    fn take_expiry(&mut self, word: &[u8], args: &mut Args<'a>) -> Result<(), CommandError> {
        let form = ExpiryForm::from_word(word).ok_or(CommandError::Syntax)?;
        let free = self.expiry.is_none_or(|given| given.has_form(form));
        if self.keep_ttl || !free {
            return Err(CommandError::Syntax);
        }
        self.expiry = Some(Expiry::new(form, args.bytes()?));
        Ok(())
    }

    fn deadline(&self, now_unix_ms: u64) -> Result<Deadline, CommandError> {
        Ok(match self.expiry {
            Some(expiry) => Deadline::At(expiry.deadline_unix_ms(now_unix_ms, "set")?),
            None if self.keep_ttl => Deadline::Keep,
            None => Deadline::Never,
        })
    }
}

impl Condition<'_> {
    fn holds(self, record: Option<&Record<'_>>) -> Result<bool, CommandError> {
        Ok(match (self, record) {
            (Self::Always, _) => true,
            (Self::IfAbsent, record) => record.is_none(),
            (Self::IfPresent, record) => record.is_some(),
            (Self::IfEqual(_), None) => false,
            (Self::IfEqual(text), Some(record)) => {
                check_string(Some(record))?;
                is_equal(record, text)
            }
        })
    }
}

fn setnx(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let value = NewValue::take(context, args)?;
    let was_absent = context.store.modify(&key, |entry| {
        let absent = !entry.is_present();
        if absent {
            value.write(entry, Deadline::Never)?;
        }
        Ok::<_, CommandError>(absent)
    })?;
    reply.integer(was_absent.into());
    Ok(())
}

fn setex(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    set_for(context, args, reply, ExpiryForm::Seconds, "setex")
}

fn psetex(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    set_for(context, args, reply, ExpiryForm::Milliseconds, "psetex")
}

fn set_for(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    form: ExpiryForm,
    command: &str,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let expiry = Expiry::new(form, args.bytes()?);
    let value = NewValue::take(context, args)?;
    let deadline = Deadline::At(expiry.deadline_unix_ms(context.now_unix_ms, command)?);
    context
        .store
        .modify(&key, |entry| value.write(entry, deadline))?;
    reply.ok();
    Ok(())
}

fn getset(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let value = NewValue::take(context, args)?;
    context.store.modify(&key, |entry| {
        let record = entry.record();
        entry.note_look();
        check_string(record.as_ref())?;
        write_string(record.as_ref(), reply);
        value.write(entry, Deadline::Never)
    })
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::{START_UNIX_MS, TestServer};

    fn ok() -> Value {
        Value::Simple(b"OK".to_vec())
    }

    #[test]
    fn conditions_decide_whether_set_sets() {
        let mut server = TestServer::new();
        assert_eq!(server.run("SET k v XX"), Value::Null);
        assert_eq!(server.run("SET k v NX"), ok());
        assert_eq!(server.run("SET k w NX"), Value::Null);
        assert_eq!(server.run("SET k w XX"), ok());
        assert_eq!(server.run("SET k x IFEQ v"), Value::Null);
        assert_eq!(server.run("SET k x ifeq w"), ok());
        assert_eq!(server.run("SET none x IFEQ ''"), Value::Null);
        assert_eq!(server.text("GET k"), "x");
        assert_eq!(server.effects(), ["SET k v", "SET k w", "SET k x"]);
    }

    #[test]
    fn get_answers_with_the_old_value_whatever_the_condition_says() {
        let mut server = TestServer::new();
        assert_eq!(server.run("SET k 1 NX GET"), Value::Null);
        assert_eq!(server.text("SET k 2 NX GET"), "1");
        assert_eq!(server.text("SET k 2 IFEQ 3 GET"), "1");
        assert_eq!(server.text("SET k 2 IFEQ 1 GET"), "1");
        assert_eq!(server.text("GETSET k 3"), "2");
        assert_eq!(server.text("GET k"), "3");
    }

    #[test]
    fn deadlines_are_stated_as_points_in_time() {
        let mut server = TestServer::new();
        server.run("SET k v EX 10");
        server.run("SET k v KEEPTTL");
        server.run("SETEX k 1 v");
        server.run("PSETEX k 5 v");
        server.run("SET k v PXAT 1800000000000");
        assert_eq!(
            server.effects(),
            [
                format!("SET k v PXAT {}", START_UNIX_MS + 10_000),
                "SET k v KEEPTTL".to_owned(),
                format!("SET k v PXAT {}", START_UNIX_MS + 1000),
                format!("SET k v PXAT {}", START_UNIX_MS + 5),
                "SET k v PXAT 1800000000000".to_owned(),
            ]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn a_deadline_in_the_past_leaves_nothing_to_read() {
        let mut server = TestServer::new();
        assert_eq!(server.run("SET k v EXAT 1"), ok());
        assert_eq!(server.run("GET k"), Value::Null);
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let mut server = TestServer::new();
        for options in [
            "NX XX",
            "XX NX",
            "NX IFEQ a",
            "IFEQ a XX",
            "IFEQ",
            "EX 1 PX 1",
            "EX 1 KEEPTTL",
            "KEEPTTL PXAT 1",
            "EX",
            "PERSIST",
            "foo",
            "averylongoptionword",
        ] {
            assert_eq!(
                server.error(&format!("SET k v {options}")),
                "ERR syntax error",
                "{options}"
            );
        }
        assert_eq!(server.run("SET k v EX 1 EX 2 NX NX GET GET"), Value::Null);
        assert_eq!(
            server.error("SET k v EX 0"),
            "ERR invalid expire time in 'set' command"
        );
        assert_eq!(
            server.error("SETEX k -1 v"),
            "ERR invalid expire time in 'setex' command"
        );
    }

    #[test]
    fn setnx_sets_only_once() {
        let mut server = TestServer::new();
        assert_eq!(server.integer("SETNX k 1"), 1);
        assert_eq!(server.integer("SETNX k 2"), 0);
        assert_eq!(server.effects(), ["SET k 1"]);
    }
}
