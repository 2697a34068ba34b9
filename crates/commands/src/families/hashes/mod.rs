//! Hashes: fields with values at a key.
//!
//! ```text
//!   read      HGET HMGET HGETALL HKEYS HVALS HLEN HSTRLEN HEXISTS
//!   change    HSET HMSET HSETNX HDEL HGETDEL       number  HINCRBY HINCRBYFLOAT
//!   walk      HSCAN HRANDFIELD
//!   deadline  HEXPIRE HPEXPIRE HEXPIREAT HPEXPIREAT HTTL HPTTL HEXPIRETIME HPEXPIRETIME HPERSIST
//!   member    EXPIREMEMBER EXPIREMEMBERAT PEXPIREMEMBERAT
//!   expiring  HGETEX HSETEX
//! ```
//!
//! # Effects
//! `HSET key field value …` for fields that were set and have no deadline afterwards. `HSETEX key
//! PXAT ms | KEEPTTL FIELDS …` for fields that were set and have one. `HDEL key field …` for fields
//! that were removed or expired. `HPEXPIREAT key ms FIELDS …` and `HPERSIST key FIELDS …` if no
//! value changed. Additions state the result, not the summand.

use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Entry, EventClass, Key};
use structures::{Hash, HashLimits};

use crate::structure;

mod change;
mod deadline;
mod expiring;
mod fields;
mod member;
mod number;
mod read;
mod walk;

/// The rows of this family, by theme.
pub const COMMANDS: &[&[CommandSpec]] = &[
    read::COMMANDS,
    change::COMMANDS,
    number::COMMANDS,
    walk::COMMANDS,
    deadline::COMMANDS,
    member::COMMANDS,
    expiring::COMMANDS,
];

/// The key of a command that returns values of the hash.
const READ_KEY: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS))];
/// The key of a command that returns information about the hash, but no values.
const ASKED_KEY: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RO)];
/// The key of a command that sets fields.
const UPDATED_KEY: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::UPDATE))];
/// The key of a command that returns values of the hash and changes it.
const TAKEN_KEY: &[KeySpec] = &[KeySpec::one(
    1,
    KeyAccess::RW
        .with(KeyAccess::ACCESS)
        .with(KeyAccess::UPDATE),
)];
/// The key of a command that removes fields.
const REMOVED_KEY: &[KeySpec] = &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::DELETE))];

/// The base row of reading commands.
const READER: CommandSpec = CommandSpec {
    flags: Flags::READONLY.with(Flags::FAST),
    keys: READ_KEY,
    group: Group::Hash,
    since: "2.0.0",
    ..CommandSpec::BLANK
};

/// The base row of writing commands.
const WRITER: CommandSpec = CommandSpec {
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: UPDATED_KEY,
    group: Group::Hash,
    since: "2.0.0",
    ..CommandSpec::BLANK
};

/// The hash that readers see for an absent key.
const NO_HASH: &Hash = &Hash::new();

/// Shows the hash at a key to `visit`, which writes the reply. For an absent key it is empty.
fn read(
    context: &mut Context<'_>,
    key: &Key<'_>,
    reply: &mut Reply<'_>,
    mut visit: impl FnMut(&Hash, &mut Reply<'_>),
) -> CommandResult {
    structure::read(context, key, reply, |hash, reply| {
        visit(hash.unwrap_or(NO_HASH), reply);
    })
}

/// Runs `change` on the hash at a key, without its expired fields. Creates the hash if it does not
/// exist.
fn change_or_create<R>(
    entry: &mut Entry<'_>,
    now_unix_ms: u64,
    change: impl FnOnce(&mut Hash) -> Result<R, CommandError>,
) -> Result<R, CommandError> {
    expire_fields(entry, now_unix_ms)?;
    entry.change_or_create::<Hash, _>(change)?
}

/// Does the same as [`change_or_create`], but creates nothing: returns `None` for an absent key.
fn change_existing<R>(
    entry: &mut Entry<'_>,
    now_unix_ms: u64,
    change: impl FnOnce(&mut Hash) -> Result<R, CommandError>,
) -> Result<Option<R>, CommandError> {
    expire_fields(entry, now_unix_ms)?;
    entry.change::<Hash, _>(change)?.transpose()
}

/// Removes the expired fields, and the key with the last of them, and states it.
fn expire_fields(entry: &mut Entry<'_>, now_unix_ms: u64) -> CommandResult {
    let Some(record) = entry.record() else {
        return Ok(());
    };
    if !record.structure::<Hash>()?.has_due(now_unix_ms) {
        return Ok(());
    }
    let mut gone = Vec::new();
    entry.change::<Hash, _>(|hash| {
        hash.expire(now_unix_ms, usize::MAX, |field| {
            gone.push(field.name.as_bytes().to_vec());
        });
    })?;
    entry.note_expired_members(gone.len());
    state_removed(entry, gone.iter().map(Vec::as_slice));
    entry.event_of_taking(EventClass::HASH, "hexpired");
    Ok(())
}

/// States that fields were removed, if any were.
fn state_removed<'f>(entry: &mut Entry<'_>, fields: impl Iterator<Item = &'f [u8]>) {
    let key = entry.key();
    entry.effect(|effect| {
        let mut parts: Vec<&[u8]> = vec![b"HDEL", key.bytes()];
        for field in fields {
            parts.push(field);
        }
        if parts.len() > 2 {
            effect.command(&parts);
        }
    });
}

/// Returns the configured limits up to which a hash is one block.
fn limits(context: &Context<'_>) -> HashLimits {
    context.shared.settings.thresholds.hash_limits()
}
