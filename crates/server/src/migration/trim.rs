//! Removes the keys of slots that are another node's: those that went there, and those that came in vain. Each removal is an
//! effect like any other, so replicas and a start have it.

use std::sync::Arc;
use std::time::Duration;

use base::hash_slot;
use cluster::entry::SlotRange;
use persistence::log_in_use::TakenUp;
use store::Handle;

use super::directory::Named;
use super::filter::Slots;
use crate::node::Node;

/// Keys that are looked at before others have their turn.
const STEP_KEYS: usize = 1_024;
/// How often it is looked whether the log has room.
const LOOK: Duration = Duration::from_millis(1);

/// Removes all keys of some slots; how many. Clients that track them are told, and nobody else.
///
/// # Errors
/// Why it was not done, or not to the end.
pub(super) fn trim(node: &Arc<Node>, ranges: &[SlotRange]) -> Result<u64, String> {
    let slots = Slots::new(ranges);
    let mut handle = node.core.store.handle();
    handle.set_ageless(true);
    let log_user = node.keeping.log_in_use.join();
    log_user.set_idle(true);
    let mut removed = 0;
    for database in 0..node.core.store.databases() {
        let mut cursor = 0;
        loop {
            let mut keys = Vec::new();
            cursor = handle.scan(database, cursor, STEP_KEYS, |record| {
                if slots.has(record.key()) {
                    keys.push(record.key().to_vec());
                }
            });
            if !keys.is_empty() {
                await_room(node)?;
                check(node, ranges)?;
                log_user.set_idle(false);
                let taken = log_user.take_up(&mut handle);
                let has_log = !matches!(taken, TakenUp::Nothing);
                if has_log {
                    removed += remove(node, &mut handle, database, keys.iter().map(Vec::as_slice));
                }
                log_user.set_idle(true);
                if !has_log {
                    return Err("this node has no log to write to".to_owned());
                }
            }
            if cursor == 0 {
                break;
            }
            std::thread::yield_now();
        }
    }
    log_user.let_go(&mut handle);
    handle.tell_memory();
    Ok(removed)
}

/// Removes keys that are known by name, of some slots.
///
/// # Errors
/// Why it was not done, or not to the end.
pub(super) fn trim_keys(
    node: &Arc<Node>,
    ranges: &[SlotRange],
    keys: &[Named],
) -> Result<u64, String> {
    let mut handle = node.core.store.handle();
    handle.set_ageless(true);
    let log_user = node.keeping.log_in_use.join();
    log_user.set_idle(true);
    let mut removed = 0;
    for some in keys.chunks(STEP_KEYS) {
        await_room(node)?;
        check(node, ranges)?;
        log_user.set_idle(false);
        let taken = log_user.take_up(&mut handle);
        let has_log = !matches!(taken, TakenUp::Nothing);
        for (database, name) in some.iter().filter(|_| has_log) {
            removed += remove(node, &mut handle, *database, [&**name]);
        }
        log_user.set_idle(true);
        if !has_log {
            return Err("this node has no log to write to".to_owned());
        }
    }
    log_user.let_go(&mut handle);
    handle.tell_memory();
    Ok(removed)
}

fn remove<'k>(
    node: &Node,
    handle: &mut Handle,
    database: u16,
    keys: impl IntoIterator<Item = &'k [u8]>,
) -> u64 {
    handle.begin(node.core.clock.now_unix_ms());
    let mut removed = 0;
    for name in keys {
        let key = handle.key(database, name);
        let was_there = handle.delete(&key, |entry| {
            entry.effect(|effect| effect.command(&[b"DEL", name]));
        });
        removed += u64::from(was_there);
    }
    removed
}

/// Whether the slots are still another node's, and this one is the primary that may write.
fn check(node: &Node, ranges: &[SlotRange]) -> Result<(), String> {
    let routes = node.core.shared.hash_slots.routes();
    if node.is_stopping() {
        return Err("the server stops".to_owned());
    }
    if routes.is_replica {
        return Err("this node is a replica now".to_owned());
    }
    let mut all = ranges.iter().flat_map(|(first, last)| *first..=*last);
    match all.find(|slot| routes.is_of_shard(*slot)) {
        Some(slot) => Err(format!("slot {slot} belongs to this node again")),
        None => Ok(()),
    }
}

fn await_room(node: &Node) -> Result<(), String> {
    let log = node.keeping.log_in_use.get();
    let log = log.ok_or_else(|| "this node has no log to write to".to_owned())?;
    while !log.has_room(node.core.clock.monotonic_ns()) {
        if node.is_stopping() {
            return Err("the server stops".to_owned());
        }
        log.request_sync(log.tail());
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// How many keys some slots have, about.
pub(super) fn keys_in(node: &Node, ranges: &[SlotRange]) -> u64 {
    let slots = ranges.iter().flat_map(|(first, last)| *first..=*last);
    let known = slots.filter(|slot| *slot <= hash_slot::LAST);
    known
        .map(|slot| node.core.store.keys_in_hash_slot(slot))
        .sum()
}

/// What all records take in memory.
pub(super) fn used_bytes(handle: &Handle) -> u64 {
    let memory = handle.statistics().memory;
    memory.index_bytes + memory.slot_held_bytes + memory.long_value_bytes
}
