//! Sets: unordered members at a key.
//!
//! ```text
//!   read     SMEMBERS SISMEMBER SMISMEMBER SCARD SSCAN SRANDMEMBER
//!   change   SADD SREM SPOP SMOVE
//!   algebra  SINTER SINTERCARD SUNION SDIFF, and the STORE forms
//! ```
//!
//! # Effects
//! `SADD key member …` and `SREM key member …` with the members that the command named or chose.
//! `DEL key` before an `SADD` for the result of a STORE form.

use engine::context::Context;
use engine::spec::{CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::Entry;
use structures::{Set, SetLimits};

mod algebra;
mod change;
mod members;
mod read;

/// The rows of this family, by theme.
pub const COMMANDS: &[&[CommandSpec]] = &[read::COMMANDS, change::COMMANDS, algebra::COMMANDS];

/// The key of a command that returns members of the set.
const READ_KEY: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS))];
/// The key of a command that returns information about the set.
const ASKED_KEY: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RO)];

/// The base row of reading commands.
const READER: CommandSpec = CommandSpec {
    flags: Flags::READONLY.with(Flags::FAST),
    keys: READ_KEY,
    group: Group::Set,
    ..CommandSpec::BLANK
};

/// Returns the configured limits up to which a set has a compact encoding.
fn limits(context: &Context<'_>) -> SetLimits {
    context.shared.settings.thresholds.set_limits()
}

/// Writes all members.
fn write_members(set: &Set, reply: &mut Reply<'_>) {
    if let Some(ints) = set.ints() {
        return write_numbers(ints.iter(), reply);
    }
    reply.set(set.len());
    for member in set.iter() {
        reply.bulk(member.as_bytes());
    }
}

/// Writes members that are integers.
fn write_numbers(numbers: impl ExactSizeIterator<Item = i64>, reply: &mut Reply<'_>) {
    reply.set(numbers.len());
    numbers.for_each(|number| reply.bulk_integer(number));
}

/// States a command about members of the key.
fn state<'m>(entry: &mut Entry<'_>, name: &[u8], members: impl Iterator<Item = &'m [u8]>) {
    let key = entry.key();
    entry.effect(|effect| {
        let mut parts: Vec<&[u8]> = vec![name, key.bytes()];
        for member in members {
            parts.push(member);
        }
        effect.command(&parts);
    });
}
