//! The keys of hash slots: KEYSLOT COUNTKEYSINSLOT GETKEYSINSLOT.

use base::hash_slot::{self, HASH_SLOTS};
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::slot_moves::MoveOrder;
use protocol::Reply;

use super::admit;

/// Number of keys visited in one step of a walk.
const STEP_KEYS: usize = 1024;

pub(super) fn slot_of(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    admit(context)?;
    reply.integer(hash_slot::of(args.bytes()?).into());
    Ok(())
}

pub(super) fn count_in_slot(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    admit(context)?;
    let number = args.integer()?;
    let slot = u16::try_from(number).ok();
    let slot = slot.filter(|slot| usize::from(*slot) < HASH_SLOTS);
    let slot = slot.ok_or(CommandError::fixed("ERR Invalid slot"))?;
    reply.integer(count(context, slot));
    Ok(())
}

/// Returns the number of keys of a slot, or 0 if another node owns it.
pub(super) fn count(context: &Context<'_>, slot: u16) -> i64 {
    if is_of_another(context, slot) {
        return 0;
    }
    let count = context.store.store().keys_in_hash_slot(slot);
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn is_of_another(context: &Context<'_>, slot: u16) -> bool {
    let routes = context.shared.hash_slots.routes();
    routes.owner(slot).is_some_and(|owner| owner != routes.own)
}

pub(super) fn in_slot(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    const INVALID: CommandError = CommandError::fixed("ERR Invalid slot or number of keys");
    admit(context)?;
    let (number, most) = (args.integer()?, args.integer()?);
    let slot = u16::try_from(number).ok();
    let slot = slot.filter(|slot| usize::from(*slot) < HASH_SLOTS);
    let (slot, most) = (
        slot.ok_or(INVALID)?,
        usize::try_from(most).map_err(|_| INVALID)?,
    );
    // A client that is about to move the keys away must find that they are gone.
    if context.may_block && context.server.is_leaving(slot) {
        context.pace.admit_waiting()?;
        context.outside(|server| server.move_slots(&MoveOrder::AwaitLeaving(slot)))?;
    }
    let there = usize::try_from(count(context, slot)).unwrap_or(0);
    let keys = find(context, slot, most.min(there))?;
    reply.array(keys.len());
    for key in &keys {
        reply.bulk(key);
    }
    Ok(())
}

/// Returns at most `most` keys of a slot. Walks the whole keyspace for them.
fn find(context: &mut Context<'_>, slot: u16, most: usize) -> Result<Vec<Vec<u8>>, CommandError> {
    let mut keys = Vec::new();
    if most == 0 {
        return Ok(keys);
    }
    let database = context.session.database;
    context.pace.admit(context.store.len(database))?;
    let mut cursor = 0;
    loop {
        cursor = context.store.scan(database, cursor, STEP_KEYS, |record| {
            if keys.len() < most && hash_slot::of(record.key()) == slot {
                keys.push(record.key().to_vec());
            }
        });
        if cursor == 0 || keys.len() >= most {
            break;
        }
    }
    // A walk may visit a key twice.
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}
