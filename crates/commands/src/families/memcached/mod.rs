//! Items of memcached: strings with 32 bits of flags and a number for compare-and-swap. The
//! memcached port translates each request into one of these commands; any client may send them.
//!
//! ```text
//!   read      MCGET MCGAT
//!   change    MCSET MCINCR
//!   delete    MCDEL, which may leave the item, marked as out of date
//!   win       MCWIN: who may fetch an item anew that is out of date, about to end, or not there
//!   later     MCFLUSH: the node that is asked empties database 0 then, if it is a primary
//! ```
//!
//! The flags are in the upper half of the value's etag (`item`), so commands that keep an etag keep
//! the flags, and other commands see a plain string.
//!
//! # Effects
//! `SET key value [PXAT ms | KEEPTTL]` followed by `SETETAG key etag`; a new mark is stated by
//! `SETETAG` alone. `PEXPIREAT`, `PERSIST` and `DEL` if only the deadline changes or the key is
//! deleted.

mod change;
mod item;
mod read;
mod win;

use base::number::parse_u64;
use engine::args::Args;
use engine::error::CommandError;
use engine::spec::CommandSpec;
use protocol::Reply;
use store::{Deadline, Entry, Event, EventClass};

/// The rows of this family.
pub const COMMANDS: &[&[CommandSpec]] = &[
    read::COMMANDS,
    change::COMMANDS,
    win::COMMANDS,
    &[change::FLUSH],
];

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Stored,
    NotStored,
    Exists,
    NotFound,
    Deleted,
}

impl Status {
    fn write(self, reply: &mut Reply<'_>) {
        reply.simple(match self {
            Self::Stored => "STORED",
            Self::NotStored => "NOT_STORED",
            Self::Exists => "EXISTS",
            Self::NotFound => "NOT_FOUND",
            Self::Deleted => "DELETED",
        });
    }
}

/// Takes the next argument as a non-negative integer.
fn natural(args: &mut Args<'_>) -> Result<u64, CommandError> {
    parse_u64(args.bytes()?).ok_or(CommandError::NotInteger)
}

/// Takes the next argument as a deadline: milliseconds since 1970, 0 for none.
fn deadline_argument(args: &mut Args<'_>) -> Result<Deadline, CommandError> {
    Ok(match natural(args)? {
        0 => Deadline::Never,
        unix_ms if unix_ms > i64::MAX.cast_unsigned() => return Err(CommandError::NotInteger),
        unix_ms => Deadline::At(unix_ms),
    })
}

/// Whether that time has passed.
fn is_over(deadline: Deadline, now_unix_ms: u64) -> bool {
    matches!(deadline, Deadline::At(unix_ms) if unix_ms <= now_unix_ms)
}

/// Deletes the record, if there is one, and states it.
fn delete(entry: &mut Entry<'_>) {
    let key = entry.key();
    if entry.remove() {
        entry.effect(|effect| effect.command(&[b"DEL", key.bytes()]));
        entry.event(EventClass::GENERIC, Event::DELETED);
    }
}

#[cfg(test)]
mod tests;
