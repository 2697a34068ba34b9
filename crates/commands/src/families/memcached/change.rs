//! Stores, counters and deletions of items.

use base::number::{IntegerText, parse_u64};
use base::random::Prng;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Deadline, Entry, Record};

use super::item::{Marks, etag_behind, etag_kept, flags_of, has_cas, is_before, number_of};
use super::read::move_deadline;
use super::{Status, deadline_argument, delete, is_over, natural};
use crate::families::etags::state_etag;
use crate::families::strings::shared::{check_length, check_string, state_set, tell_set};

const NOT_A_NUMBER: CommandError =
    CommandError::fixed("ERR cannot increment or decrement non-numeric value");
/// Number of digits of the highest 64-bit number.
const DIGITS_MAX: usize = 20;

/// The base row of commands that change an item.
pub(super) const CHANGER: CommandSpec = CommandSpec {
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[KeySpec::one(
        1,
        KeyAccess::RW
            .with(KeyAccess::ACCESS)
            .with(KeyAccess::UPDATE),
    )],
    group: Group::String,
    since: "7.2.0",
    ..CommandSpec::BLANK
};

/// The rows.
pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "MCSET",
        arity: Arity::AtLeast(6),
        summary: "Stores an item of memcached.",
        syntax: "key value flags:integer unix-time-milliseconds \
                 <SET | ADD | REPLACE | APPEND | PREPEND> [CAS cas:integer [STALE]]",
        handler: set,
        ..CHANGER
    },
    CommandSpec {
        name: "MCINCR",
        arity: Arity::AtLeast(4),
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        summary: "Counts an item of memcached up or down.",
        syntax: "key <INCR | DECR> delta:integer [CAS cas:integer] \
                 [INIT value:integer unix-time-milliseconds] [PXAT unix-time-milliseconds]",
        handler: count,
        ..CHANGER
    },
    CommandSpec {
        name: "MCDEL",
        arity: Arity::AtLeast(2),
        flags: Flags::WRITE.with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyAccess::RM.with(KeyAccess::DELETE))],
        summary: "Deletes an item of memcached, or marks it as out of date.",
        syntax: "key [CAS cas:integer] [EMPTY] [STALE [PXAT unix-time-milliseconds]]",
        handler: remove,
        ..CHANGER
    },
];

/// The row of the command that empties the database later.
pub(super) const FLUSH: CommandSpec = CommandSpec {
    name: "MCFLUSH",
    arity: Arity::Exactly(2),
    flags: Flags::WRITE.with(Flags::FAST),
    keys: &[],
    group: Group::Server,
    categories: &["keyspace", "dangerous"],
    summary: "Has database 0 emptied later; 0 for not at all.",
    syntax: "unix-time-milliseconds",
    handler: flush_later,
    ..CHANGER
};

fn flush_later(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let unix_ms = natural(args)?;
    context.shared.delayed_flush.set(unix_ms);
    reply.ok();
    Ok(())
}

/// When an item is stored, and what happens to the existing value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
}

impl Mode {
    fn parse(args: &mut Args<'_>) -> Result<Self, CommandError> {
        let word = args.option_word().ok_or(CommandError::Syntax)?;
        Ok(match word.as_bytes() {
            b"SET" => Self::Set,
            b"ADD" => Self::Add,
            b"REPLACE" => Self::Replace,
            b"APPEND" => Self::Append,
            b"PREPEND" => Self::Prepend,
            _ => return Err(CommandError::Syntax),
        })
    }

    fn joins(self) -> bool {
        matches!(self, Self::Append | Self::Prepend)
    }
}

/// Returns why a change with this number is refused, or `None` if it is allowed.
fn refusal(record: Option<&Record<'_>>, cas: Option<u64>) -> Option<Status> {
    let cas = cas?;
    match record {
        None => Some(Status::NotFound),
        Some(record) => (!has_cas(record, cas)).then_some(Status::Exists),
    }
}

/// An item to be stored.
struct Item<'a> {
    value: &'a [u8],
    flags: u32,
    deadline: Deadline,
    mode: Mode,
    cas: Option<u64>,
    /// Whether a client that saw an earlier value may still store, with the item marked as stale.
    may_be_stale: bool,
}

fn set(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let item = Item {
        value: args.bytes()?,
        flags: u32::try_from(natural(args)?).map_err(|_| CommandError::NotInteger)?,
        deadline: deadline_argument(args)?,
        mode: Mode::parse(args)?,
        cas: args.take_word("CAS").then(|| natural(args)).transpose()?,
        may_be_stale: args.take_word("STALE"),
    };
    if args.remaining() > 0 {
        return Err(CommandError::Syntax);
    }
    let settings = &context.shared.settings;
    let (random, now_unix_ms) = (&mut *context.random, context.now_unix_ms);
    let (status, etag) = context.store.modify(&key, |entry| {
        if let Some(status) = item.refusal(entry)? {
            return Ok((status, 0));
        }
        if is_over(item.deadline, now_unix_ms) && !item.mode.joins() {
            delete(entry);
            return Ok((Status::Stored, 0));
        }
        if let (true, Some(record)) = (item.mode.joins(), entry.record()) {
            check_length(record.len().checked_add(item.value.len()), settings)?;
        }
        Ok::<_, CommandError>((Status::Stored, item.store(entry, random)?))
    })?;
    reply.array(2);
    status.write(reply);
    reply.integer(i64::try_from(etag).unwrap_or(i64::MAX));
    Ok(())
}

impl Item<'_> {
    /// Returns why the item is not stored, or `None` if it is.
    fn refusal(&self, entry: &Entry<'_>) -> Result<Option<Status>, CommandError> {
        let record = entry.record();
        if self.mode.joins() || self.cas.is_some() {
            check_string(record.as_ref())?;
        }
        let refused = refusal(record.as_ref(), self.cas).filter(|_| !self.is_late(entry));
        let is_there = record.is_some();
        Ok(refused.or(match self.mode {
            Mode::Add if is_there => Some(Status::NotStored),
            Mode::Replace | Mode::Append | Mode::Prepend if !is_there => Some(Status::NotStored),
            _ => None,
        }))
    }

    /// Whether the item is stored although another value was stored since its client read it.
    fn is_late(&self, entry: &Entry<'_>) -> bool {
        let etag = entry.record().map_or(0, |record| record.etag());
        let is_before = self.cas.is_some_and(|cas| is_before(cas, etag));
        self.may_be_stale && self.mode == Mode::Set && is_before
    }

    /// Stores the item and returns its number.
    fn store(&self, entry: &mut Entry<'_>, random: &mut Prng) -> Result<u64, CommandError> {
        let before = entry.record().map_or(0, |record| record.etag());
        if self.is_late(entry) {
            let marks = Marks {
                is_stale: true,
                ..Marks::of(before)
            };
            let etag = marks.on(etag_kept(before, self.flags));
            put(entry, self.value, Deadline::Keep, etag)?;
            return Ok(number_of(etag));
        }
        let there = entry.record().filter(|_| self.mode.joins());
        let Some(there) = there else {
            let etag = etag_behind(before, self.flags, random);
            put(entry, self.value, self.deadline, etag)?;
            return Ok(etag);
        };
        let there = there.to_vec();
        let whole = match self.mode {
            Mode::Prepend => [self.value, &there].concat(),
            _ => [&there, self.value].concat(),
        };
        let etag = etag_behind(before, flags_of(before), random);
        put(entry, &whole, Deadline::Keep, etag)?;
        Ok(etag)
    }
}

/// Stores a string with an etag at a key, and states it.
pub(super) fn put(
    entry: &mut Entry<'_>,
    value: &[u8],
    deadline: Deadline,
    etag: u64,
) -> CommandResult {
    entry.set_with_etag(value, deadline, etag)?;
    state_set(entry, value, deadline);
    state_etag(entry, etag);
    tell_set(entry, deadline);
    Ok(())
}

/// The arguments of MCINCR.
struct Count {
    goes_up: bool,
    delta: u64,
    cas: Option<u64>,
    /// Initial number and deadline of an item that is created if none exists.
    initial: Option<(u64, Deadline)>,
    deadline: Deadline,
}

impl Count {
    fn parse(args: &mut Args<'_>) -> Result<Self, CommandError> {
        let direction = args.option_word().ok_or(CommandError::Syntax)?;
        let mut count = Self {
            goes_up: match direction.as_bytes() {
                b"INCR" => true,
                b"DECR" => false,
                _ => return Err(CommandError::Syntax),
            },
            delta: natural(args)?,
            cas: None,
            initial: None,
            deadline: Deadline::Keep,
        };
        while let Some(word) = args.option_word() {
            match word.as_bytes() {
                b"CAS" => count.cas = Some(natural(args)?),
                b"INIT" => count.initial = Some((natural(args)?, deadline_argument(args)?)),
                b"PXAT" => count.deadline = deadline_argument(args)?,
                _ => return Err(CommandError::Syntax),
            }
        }
        Ok(count)
    }

    /// Returns the next number as memcached counts: upwards it wraps at 64 bits, downwards it stops
    /// at 0.
    fn behind(&self, number: u64) -> u64 {
        if self.goes_up {
            number.wrapping_add(self.delta)
        } else {
            number.saturating_sub(self.delta)
        }
    }
}

fn number_at(record: &Record<'_>) -> Result<u64, CommandError> {
    let mut text = [0; DIGITS_MAX];
    let text = text.get_mut(..record.len()).ok_or(NOT_A_NUMBER)?;
    record.copy_to(0, text);
    // Leading zeros are allowed as in memcached, which reads digits and requires no canonical form.
    let zeros = text.iter().take_while(|byte| **byte == b'0').count();
    let digits = match &text[zeros..] {
        [] if zeros > 0 => b"0",
        digits => digits,
    };
    parse_u64(digits).ok_or(NOT_A_NUMBER)
}

fn count(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let count = Count::parse(args)?;
    let (random, now_unix_ms) = (&mut *context.random, context.now_unix_ms);
    let (status, number, etag) = context.store.modify(&key, |entry| {
        let record = entry.record();
        check_string(record.as_ref())?;
        if record.is_none()
            && let (Some((number, deadline)), None) = (count.initial, count.cas)
        {
            let etag = etag_behind(0, 0, random);
            if !is_over(deadline, now_unix_ms) {
                put_number(entry, number, deadline, etag)?;
            }
            return Ok((Status::Stored, number, etag));
        }
        if let Some(status) = refusal(record.as_ref(), count.cas) {
            return Ok((status, 0, 0));
        }
        let Some(record) = record else {
            return Ok((Status::NotFound, 0, 0));
        };
        let number = count.behind(number_at(&record)?);
        let etag = etag_behind(record.etag(), flags_of(record.etag()), random);
        if is_over(count.deadline, now_unix_ms) {
            delete(entry);
        } else {
            put_number(entry, number, count.deadline, etag)?;
        }
        Ok::<_, CommandError>((Status::Stored, number, etag))
    })?;
    reply.array(3);
    status.write(reply);
    reply.bulk(IntegerText::new_u64(number).as_bytes());
    reply.integer(i64::try_from(etag).unwrap_or(i64::MAX));
    Ok(())
}

fn put_number(entry: &mut Entry<'_>, number: u64, deadline: Deadline, etag: u64) -> CommandResult {
    put(
        entry,
        IntegerText::new_u64(number).as_bytes(),
        deadline,
        etag,
    )
}

/// The arguments of MCDEL.
struct Removal {
    cas: Option<u64>,
    /// Whether the item stays, without its value and flags.
    empties: bool,
    /// Whether the item stays, marked as stale.
    marks_stale: bool,
    deadline: Deadline,
}

impl Removal {
    fn parse(args: &mut Args<'_>) -> Result<Self, CommandError> {
        let mut removal = Self {
            cas: None,
            empties: false,
            marks_stale: false,
            deadline: Deadline::Keep,
        };
        while let Some(word) = args.option_word() {
            match word.as_bytes() {
                b"CAS" => removal.cas = Some(natural(args)?),
                b"EMPTY" => removal.empties = true,
                b"STALE" => removal.marks_stale = true,
                b"PXAT" => removal.deadline = deadline_argument(args)?,
                _ => return Err(CommandError::Syntax),
            }
        }
        if removal.deadline != Deadline::Keep && !removal.marks_stale {
            return Err(CommandError::Syntax);
        }
        Ok(removal)
    }

    /// Keeps an item, emptied or marked as stale, instead of deleting it.
    fn mark(
        &self,
        entry: &mut Entry<'_>,
        random: &mut Prng,
        now_unix_ms: u64,
    ) -> Result<(), CommandError> {
        let record = entry.record();
        check_string(record.as_ref())?;
        let before = record.map_or(0, |record| record.etag());
        let flags = if self.empties { 0 } else { flags_of(before) };
        let marks = Marks {
            is_stale: self.marks_stale,
            is_sent: false,
        };
        let etag = marks.on(etag_behind(before, flags, random));
        if self.empties {
            put(entry, b"", Deadline::Keep, etag)?;
        } else {
            entry.set_etag(etag)?;
            state_etag(entry, etag);
        }
        move_deadline(entry, self.deadline, now_unix_ms)
    }
}

fn remove(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let removal = Removal::parse(args)?;
    let (random, now_unix_ms) = (&mut *context.random, context.now_unix_ms);
    let status = context.store.modify(&key, |entry| {
        let record = entry.record();
        if record.is_none() {
            return Ok(Status::NotFound);
        }
        if let Some(status) = refusal(record.as_ref(), removal.cas) {
            return Ok(status);
        }
        if removal.empties || removal.marks_stale {
            removal.mark(entry, random, now_unix_ms)?;
        } else {
            delete(entry);
        }
        Ok::<_, CommandError>(Status::Deleted)
    })?;
    status.write(reply);
    Ok(())
}
