//! Etags, as in Garnet: a number stored with a value that counts its changes. A client can make a
//! change conditional on the version it last saw.
//!
//! ```text
//!   read      GETWITHETAG GETIFNOTMATCH GETETAG
//!   change    SETWITHETAG SETIFMATCH SETIFGREATER DELIFGREATER SETETAG
//!   enclose   EXECWITHETAG EXECIFMATCH EXECIFNOTMATCH EXECIFGREATER (`enclosing`)
//! ```
//!
//! A value whose clients never requested an etag has none, and uses no memory for it. In
//! comparisons a missing etag is 0. A command that stores another value at a key (SET, MSET, BITOP,
//! RENAME, COPY …) clears the etag. A command that changes the existing value (APPEND, INCR, HSET
//! …, and SET with KEEPTTL) increments it. A command that changes only the deadline leaves it.
//!
//! # Effects
//! `SETIFGREATER key value etag NOGET [PXAT ms]` with the string's new etag, which is higher than
//! the previous one. `DEL` for deletions. `SETETAG key etag` after the effects of an enclosed
//! command.

mod enclosing;

use base::number::IntegerText;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Deadline, ETAG_MAX, Effect, Entry, Event, EventClass, Record, next_etag};

use super::strings::expiry::{Expiry, ExpiryForm};
use super::strings::shared::{check_string, tell_set, write_string};

const NOT_ETAG: CommandError =
    CommandError::fixed("ERR ETAG must be a numerical value greater than or equal to 0");
const LAST_ETAG: CommandError = CommandError::fixed("ERR ETAG cannot be raised any further");

/// The base row of commands that only read.
const READER: CommandSpec = CommandSpec {
    flags: Flags::READONLY.with(Flags::FAST),
    keys: &[KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS))],
    group: Group::String,
    since: "2.1.4",
    ..CommandSpec::BLANK
};

/// The base row of commands that set a value.
const SETTER: CommandSpec = CommandSpec {
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(
        1,
        KeyAccess::RW
            .with(KeyAccess::ACCESS)
            .with(KeyAccess::UPDATE),
    )],
    ..READER
};

/// The rows of this family.
pub const COMMANDS: &[&[CommandSpec]] = &[enclosing::COMMANDS, ALONE];

/// The rows of commands that do not enclose another one.
const ALONE: &[CommandSpec] = &[
    CommandSpec {
        name: "GETWITHETAG",
        arity: Arity::Exactly(2),
        summary: "Gives the etag of a string and the string (a command of Garnet).",
        syntax: "key",
        handler: get_with_etag,
        ..READER
    },
    CommandSpec {
        name: "GETIFNOTMATCH",
        arity: Arity::Exactly(3),
        summary: "Gives a string unless its etag is the given one (a command of Garnet).",
        syntax: "key etag:integer",
        handler: get_if_not_match,
        ..READER
    },
    CommandSpec {
        name: "SETWITHETAG",
        arity: Arity::AtLeast(3),
        summary: "Sets a string that has an etag, and gives the etag (a command of Garnet).",
        syntax: "key value [NX | XX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
                 PXAT unix-time-milliseconds | KEEPTTL]",
        handler: set_with_etag,
        ..SETTER
    },
    CommandSpec {
        name: "SETIFMATCH",
        arity: Arity::AtLeast(4),
        summary: "Sets a string if its etag is the given one (a command of Garnet).",
        syntax: "key value etag:integer [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
                 PXAT unix-time-milliseconds | KEEPTTL] [NOGET]",
        handler: |context, args, reply| set_if(context, args, reply, Comparison::Matches),
        ..SETTER
    },
    CommandSpec {
        name: "SETIFGREATER",
        arity: Arity::AtLeast(4),
        summary: "Sets a string and its etag if that is higher than before (a command of Garnet).",
        syntax: "key value etag:integer [EX seconds | PX milliseconds | EXAT unix-time-seconds | \
                 PXAT unix-time-milliseconds | KEEPTTL] [NOGET]",
        handler: |context, args, reply| set_if(context, args, reply, Comparison::IsGreater),
        ..SETTER
    },
    CommandSpec {
        name: "DELIFGREATER",
        arity: Arity::Exactly(3),
        flags: Flags::WRITE,
        keys: &[KeySpec::one(1, KeyAccess::RM.with(KeyAccess::DELETE))],
        summary: "Deletes a string if the given etag is higher than its own (a command of Garnet).",
        syntax: "key etag:integer",
        handler: del_if_greater,
        ..SETTER
    },
    CommandSpec {
        name: "GETETAG",
        arity: Arity::Exactly(2),
        group: Group::Generic,
        summary: "Gives the etag of a value of any kind (a command of Garnet).",
        syntax: "key",
        handler: get_etag,
        ..READER
    },
    CommandSpec {
        name: "SETETAG",
        arity: Arity::Exactly(3),
        keys: &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::UPDATE))],
        group: Group::Generic,
        summary: "Gives a value of any kind an etag, or takes it away with 0.",
        syntax: "key etag:integer",
        handler: set_etag,
        ..SETTER
    },
];

/// The comparison of the client's etag with that of the string.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Matches,
    IsGreater,
}

/// The options after the value and, if given, the etag.
#[derive(Default)]
struct Options<'a> {
    /// Whether the key must be present (`true`) or absent (`false`).
    wants_present: Option<bool>,
    keeps_deadline: bool,
    expiry: Option<Expiry<'a>>,
    hides_value: bool,
}

impl<'a> Options<'a> {
    /// Parses the options. NX and XX are for commands that do not compare etags, NOGET for those
    /// that do.
    fn parse(args: &mut Args<'a>, compares: bool) -> Result<Self, CommandError> {
        let mut options = Self::default();
        while let Some(word) = args.option_word() {
            let has_time = options.keeps_deadline || options.expiry.is_some();
            match word.as_bytes() {
                b"NX" if !compares && options.wants_present != Some(true) => {
                    options.wants_present = Some(false);
                }
                b"XX" if !compares && options.wants_present != Some(false) => {
                    options.wants_present = Some(true);
                }
                b"NOGET" if compares => options.hides_value = true,
                b"KEEPTTL" if !has_time => options.keeps_deadline = true,
                word if !has_time => {
                    let form = ExpiryForm::from_word(word).ok_or(CommandError::Syntax)?;
                    options.expiry = Some(Expiry::new(form, args.bytes()?));
                }
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(options)
    }

    fn deadline(&self, now_unix_ms: u64, command: &str) -> Result<Deadline, CommandError> {
        Ok(match self.expiry {
            Some(expiry) => Deadline::At(expiry.deadline_unix_ms(now_unix_ms, command)?),
            None if self.keeps_deadline => Deadline::Keep,
            None => Deadline::Never,
        })
    }
}

/// Takes the next argument as an etag.
fn etag_argument(args: &mut Args<'_>) -> Result<u64, CommandError> {
    let number = args.integer().map_err(|_| NOT_ETAG)?;
    u64::try_from(number).map_err(|_| NOT_ETAG)
}

fn write_etag(reply: &mut Reply<'_>, etag: u64) {
    reply.integer(i64::try_from(etag).unwrap_or(i64::MAX));
}

/// Returns the etag that follows that of a string.
fn raised(etag: u64) -> Result<u64, CommandError> {
    if etag == ETAG_MAX {
        return Err(LAST_ETAG);
    }
    Ok(next_etag(etag))
}

fn get_with_etag(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let name = args.bytes()?;
    get(context, name, reply, |_| true)
}

fn get_if_not_match(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let name = args.bytes()?;
    let known = etag_argument(args)?;
    get(context, name, reply, |etag| etag != known)
}

/// Replies with the etag of a string, and with the string if `wants` says so.
fn get(
    context: &mut Context<'_>,
    name: &[u8],
    reply: &mut Reply<'_>,
    wants: impl Fn(u64) -> bool,
) -> CommandResult {
    let key = context.key(name);
    let mark = reply.mark();
    context.store.read(&key, |record| {
        reply.rollback(mark);
        check_string(record)?;
        match record {
            None => reply.null(),
            Some(record) => write_both(reply, record, wants(record.etag())),
        }
        Ok(())
    })
}

/// Writes the etag of a string, and the string or null.
fn write_both(reply: &mut Reply<'_>, record: &Record<'_>, shows_value: bool) {
    reply.array(2);
    write_etag(reply, record.etag());
    write_string(Some(record).filter(|_| shows_value), reply);
}

fn set_with_etag(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let value = args.bytes()?;
    let options = Options::parse(args, false)?;
    let deadline = options.deadline(context.now_unix_ms, "setwithetag")?;
    context.store.modify(&key, |entry| {
        let present = entry.is_present();
        if options
            .wants_present
            .is_some_and(|wanted| wanted != present)
        {
            reply.null();
            return Ok(());
        }
        let etag = raised(entry.record().map_or(0, |record| record.etag()))?;
        set(entry, value, deadline, etag)?;
        write_etag(reply, etag);
        Ok(())
    })
}

fn set_if(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    comparison: Comparison,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let value = args.bytes()?;
    let sent = etag_argument(args)?;
    let options = Options::parse(args, true)?;
    let name = match comparison {
        Comparison::Matches => "setifmatch",
        Comparison::IsGreater => "setifgreater",
    };
    let deadline = options.deadline(context.now_unix_ms, name)?;
    context.store.modify(&key, |entry| {
        let record = entry.record();
        check_string(record.as_ref())?;
        if let Some(record) = &record {
            let holds = match comparison {
                Comparison::Matches => sent == record.etag(),
                Comparison::IsGreater => sent > record.etag(),
            };
            if !holds {
                write_both(reply, record, !options.hides_value);
                return Ok(());
            }
        }
        let etag = match comparison {
            Comparison::Matches => raised(sent)?,
            Comparison::IsGreater => sent,
        };
        set(entry, value, deadline, etag)?;
        reply.array(2);
        write_etag(reply, etag);
        reply.null();
        Ok(())
    })
}

fn del_if_greater(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let sent = etag_argument(args)?;
    let deleted = context.store.modify(&key, |entry| {
        let record = entry.record();
        check_string(record.as_ref())?;
        let goes = record.is_some_and(|record| sent > record.etag());
        if goes {
            entry.remove();
            entry.effect(|effect| effect.command(&[b"DEL", key.bytes()]));
            entry.event(EventClass::GENERIC, Event::DELETED);
        }
        Ok::<_, CommandError>(goes)
    })?;
    reply.integer(i64::from(deleted));
    Ok(())
}

fn get_etag(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let etag = context
        .store
        .read(&key, |record| record.map_or(0, |record| record.etag()));
    write_etag(reply, etag);
    Ok(())
}

fn set_etag(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let etag = etag_argument(args)?;
    let is_set = context.store.modify(&key, |entry| note(entry, etag))?;
    reply.integer(i64::from(is_set));
    Ok(())
}

/// Sets the etag of a value of any type. Returns whether there is a value.
fn note(entry: &mut Entry<'_>, etag: u64) -> Result<bool, CommandError> {
    if !entry.is_present() {
        return Ok(false);
    }
    entry.set_etag(etag)?;
    state_etag(entry, etag);
    Ok(true)
}

/// States the new etag of a value.
pub(super) fn state_etag(entry: &mut Entry<'_>, etag: u64) {
    let key = entry.key();
    entry.effect(|effect| {
        let etag = IntegerText::new_u64(etag);
        effect.command(&[b"SETETAG", key.bytes(), etag.as_bytes()]);
    });
}

fn set(entry: &mut Entry<'_>, value: &[u8], deadline: Deadline, etag: u64) -> CommandResult {
    // The effect's command refuses to replace a value that is not a string.
    let is_in_the_way = entry.record().is_some_and(|record| !record.is_string());
    entry.set_with_etag(value, deadline, etag)?;
    let deadline_unix_ms = entry.record().and_then(|record| record.deadline_unix_ms());
    let key = entry.key();
    entry.effect(|effect| {
        if is_in_the_way {
            effect.command(&[b"DEL", key.bytes()]);
        }
        state(effect, key.bytes(), value, etag, deadline_unix_ms);
    });
    tell_set(entry, deadline);
    Ok(())
}

/// States that a key holds a string with an etag.
pub(super) fn state(
    effect: &mut Effect<'_>,
    key: &[u8],
    value: &[u8],
    etag: u64,
    deadline_unix_ms: Option<u64>,
) {
    let etag = IntegerText::new_u64(etag);
    let mut parts = vec![b"SETIFGREATER", key, value, etag.as_bytes(), b"NOGET"];
    let deadline = deadline_unix_ms.map(IntegerText::new_u64);
    if let Some(deadline) = &deadline {
        parts.extend([&b"PXAT"[..], deadline.as_bytes()]);
    }
    effect.command(&parts);
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn only_who_saw_the_last_value_changes_it() {
        let mut server = TestServer::new();
        assert_eq!(server.integer("SETWITHETAG k a"), 1);
        server.run("SETIFMATCH k b 1");
        server.run("SETIFMATCH k c 1");
        assert_eq!(server.text("GET k"), "b");
        server.run("SETIFGREATER k d 10 PX 500");
        server.run("SETIFGREATER k e 10 NOGET");
        assert_eq!(server.text("GET k"), "d");
        assert_eq!(server.integer("DELIFGREATER k 10"), 0);
        assert_eq!(server.integer("DELIFGREATER k 11"), 1);
        server.run("SETIFMATCH new v 0");
        server.assert_effects_replay();
    }

    #[test]
    fn changes_of_any_kind_are_counted_and_replayed() {
        let mut server = TestServer::new();
        for line in [
            "APPEND k 1",
            "INCR k",
            "SETRANGE k 1 12",
            "SETBIT k 3 0",
            "BITFIELD k SET u8 0 7 INCRBY u8 8 1 SET u8 100 1",
            "SET k 5 KEEPTTL",
            "INCRBYFLOAT k 1",
            "INCRBYFLOAT k 0",
            "INCRBYFLOAT k 0.5",
            "PEXPIRE k 10000",
            "INCRBYFLOAT k 0.5",
        ] {
            server.run("SETWITHETAG k 1");
            server.run("SETIFGREATER k 1 8");
            server.run(line);
            server.assert_effects_replay();
        }
        server.run("SETWITHETAG k 1");
        server.run("RENAME k l");
        server.run("SETWITHETAG k 1 EX 100");
        server.run("COPY k m");
        server.run("PERSIST k");
        server.run("APPEND k ''");
        server.run("APPEND k ''");
        server.assert_effects_replay();
    }

    #[test]
    fn what_is_no_etag_is_refused() {
        let mut server = TestServer::new();
        server.run("SETWITHETAG k v");
        for etag in ["-1", "x", "9223372036854775808"] {
            assert_eq!(
                server.error(&format!("SETIFMATCH k w {etag}")),
                "ERR ETAG must be a numerical value greater than or equal to 0"
            );
        }
        server.run("SETIFGREATER k v 9223372036854775807");
        assert_eq!(
            server.error("SETWITHETAG k w"),
            "ERR ETAG cannot be raised any further"
        );
        server.run("APPEND k x");
        server.run("INCRBYFLOAT n 2");
        server.assert_effects_replay();
    }
}
