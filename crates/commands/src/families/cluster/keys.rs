//! The keys of hash slots: KEYSLOT COUNTKEYSINSLOT GETKEYSINSLOT SLOT-STATS.

use base::hash_slot::{self, HASH_SLOTS};
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::slot_moves::MoveOrder;
use protocol::Reply;

use super::{admit, slot_arg};

/// Keys visited by one step of a walk.
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

/// How many keys of a slot there are; none where it is another node's.
fn count(context: &Context<'_>, slot: u16) -> i64 {
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
    // Who is about to carry the keys away is to find that they are gone.
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

/// Keys of a slot, at most so many: the whole keyspace is walked for them.
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
    // A walk may come by a key twice.
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

pub(super) fn slot_stats(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    admit(context)?;
    let routes = context.shared.hash_slots.routes();
    let mine = |slot: &u16| routes.is_of_shard(*slot);
    let slots: Vec<(u16, i64)> = if args.take_word("SLOTSRANGE") {
        let (first, last) = (slot_arg(args)?, slot_arg(args)?);
        if args.remaining() > 0 {
            return Err(CommandError::Syntax);
        }
        if first > last {
            return Err(CommandError::Text(
                format!("ERR Start slot number {first} is greater than end slot number {last}")
                    .into(),
            ));
        }
        let slots = (first..=last).filter(mine);
        slots.map(|slot| (slot, count(context, slot))).collect()
    } else if args.take_word("ORDERBY") {
        if !args.take_word("KEY-COUNT") {
            return Err(CommandError::fixed(
                "ERR Unrecognized sort metric for ORDERBY.",
            ));
        }
        let (mut most, mut rises) = (HASH_SLOTS, false);
        while args.remaining() > 0 {
            if args.take_word("LIMIT") {
                let told = args.bounded(1, i64::try_from(HASH_SLOTS).unwrap_or(i64::MAX));
                let told = told.map_err(|_| {
                    CommandError::fixed(
                        "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
                    )
                })?;
                most = usize::try_from(told).unwrap_or(HASH_SLOTS);
            } else if args.take_word("ASC") {
                rises = true;
            } else if args.take_word("DESC") {
                rises = false;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        let slots = (0..=hash_slot::LAST).filter(mine);
        let mut slots: Vec<_> = slots.map(|slot| (slot, count(context, slot))).collect();
        slots.sort_by_key(|(slot, count)| (if rises { *count } else { -count }, *slot));
        slots.truncate(most);
        slots
    } else {
        return Err(CommandError::Syntax);
    };
    reply.array(slots.len());
    for (slot, count) in slots {
        reply.array(2);
        reply.integer(slot.into());
        reply.map(1);
        reply.bulk(b"key-count");
        reply.integer(count);
    }
    Ok(())
}
