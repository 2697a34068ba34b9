//! Reads of items, and changes of their deadlines.

use base::number::IntegerText;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec, OnCondition};
use protocol::Reply;
use store::{Deadline, Entry, EventClass, Record};

use super::change::CHANGER;
use super::item::{Marks, cas_of, flags_of, number_of};
use super::{deadline_argument, delete, is_over};
use crate::families::strings::shared::{check_string, write_string};

/// The rows.
pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "MCGET",
        arity: Arity::AtLeast(2),
        flags: Flags::READONLY.with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS))],
        group: Group::String,
        since: "7.2.0",
        summary: "Gives a string as an item of memcached.",
        syntax: "key [CAS] [NOVALUE] [MARKS]",
        handler: get,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "MCGAT",
        on_condition: OnCondition::ChangesDeadline,
        arity: Arity::AtLeast(3),
        flags: Flags::WRITE.with(Flags::FAST),
        summary: "Gives a string as an item of memcached and says when it stops existing.",
        syntax: "key unix-time-milliseconds [CAS] [NOVALUE] [MARKS]",
        handler: get_and_touch,
        ..CHANGER
    },
];

/// The requested parts of an item.
#[derive(Clone, Copy, Default)]
pub(super) struct Wanted {
    pub(super) cas: bool,
    pub(super) hides_value: bool,
    pub(super) marks: bool,
}

impl Wanted {
    fn parse(args: &mut Args<'_>) -> Result<Self, CommandError> {
        let mut wanted = Self::default();
        while let Some(word) = args.option_word() {
            match word.as_bytes() {
                b"CAS" => wanted.cas = true,
                b"NOVALUE" => wanted.hides_value = true,
                b"MARKS" => wanted.marks = true,
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(wanted)
    }

    /// Writes `[flags, cas, deadline, length, value]`, followed by the marks if requested, or null
    /// for an absent key.
    fn write(
        self,
        record: Option<&Record<'_>>,
        deadline_unix_ms: Option<u64>,
        reply: &mut Reply<'_>,
    ) {
        self.write_won(record, deadline_unix_ms, 0, reply);
    }

    /// Does the same, with `won` added to the marks.
    pub(super) fn write_won(
        self,
        record: Option<&Record<'_>>,
        deadline_unix_ms: Option<u64>,
        won: i64,
        reply: &mut Reply<'_>,
    ) {
        let Some(record) = record else {
            return reply.null();
        };
        reply.array(if self.marks { 6 } else { 5 });
        reply.integer(i64::from(flags_of(record.etag())));
        let cas = if self.cas {
            cas_of(record)
        } else {
            number_of(record.etag())
        };
        reply.bulk(IntegerText::new_u64(cas).as_bytes());
        let deadline_unix_ms = deadline_unix_ms.unwrap_or_default();
        reply.integer(i64::try_from(deadline_unix_ms).unwrap_or(i64::MAX));
        reply.count(record.len());
        write_string(Some(record).filter(|_| !self.hides_value), reply);
        if self.marks {
            reply.integer(Marks::of(record.etag()).code() | won);
        }
    }
}

fn get(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let wanted = Wanted::parse(args)?;
    let mark = reply.mark();
    context.store.read(&key, |record| {
        reply.rollback(mark);
        check_string(record)?;
        let deadline_unix_ms = record.and_then(Record::deadline_unix_ms);
        wanted.write(record, deadline_unix_ms, reply);
        Ok(())
    })
}

fn get_and_touch(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let deadline = deadline_argument(args)?;
    let wanted = Wanted::parse(args)?;
    let now_unix_ms = context.now_unix_ms;
    context.store.modify(&key, |entry| {
        let record = entry.record();
        entry.note_look();
        check_string(record.as_ref())?;
        let deadline_unix_ms = match deadline {
            Deadline::At(unix_ms) => Some(unix_ms),
            Deadline::Keep | Deadline::Never => None,
        };
        let mark = reply.mark();
        wanted.write(record.as_ref(), deadline_unix_ms, reply);
        if record.is_none() {
            return Ok(());
        }
        let moved = move_deadline(entry, deadline, now_unix_ms);
        if moved.is_err() {
            reply.rollback(mark);
        }
        moved
    })
}

/// Sets an item's deadline, or deletes the item if that time has passed.
pub(super) fn move_deadline(
    entry: &mut Entry<'_>,
    deadline: Deadline,
    now_unix_ms: u64,
) -> CommandResult {
    let key = entry.key();
    let before = entry.record().and_then(|record| record.deadline_unix_ms());
    match deadline {
        _ if is_over(deadline, now_unix_ms) => delete(entry),
        Deadline::At(unix_ms) => {
            entry.set_deadline(Some(unix_ms))?;
            entry.effect(|effect| {
                let unix_ms = IntegerText::new_u64(unix_ms);
                effect.command(&[b"PEXPIREAT", key.bytes(), unix_ms.as_bytes()]);
            });
            entry.event(EventClass::GENERIC, "expire");
        }
        Deadline::Never if before.is_some() => {
            entry.set_deadline(None)?;
            entry.effect(|effect| effect.command(&[b"PERSIST", key.bytes()]));
            entry.event(EventClass::GENERIC, "persist");
        }
        Deadline::Never | Deadline::Keep => {}
    }
    Ok(())
}
