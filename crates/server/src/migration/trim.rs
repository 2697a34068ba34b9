//! Removal of keys of slots that belong to another shard: slots that moved there, and slots whose
//! move to this node failed. Each removal is an ordinary effect, so that replicas and a restart
//! have it.

use std::sync::Arc;

use base::hash_slot;
use cluster::entry::SlotRange;
use persistence::log_in_use::{LogUser, TakenUp};
use store::Handle;

use super::SHARE;
use super::directory::Named;
use super::filter::Slots;
use super::staging::{NO_LOG, await_room, log_of};
use crate::node::Node;

/// Keys that are visited before other threads have their turn.
const STEP_KEYS: usize = 256;

/// Removes all keys of some slots. Returns their number. Notifies only the clients that track them.
///
/// # Errors
/// Why it was not done, or not completely.
pub(super) fn trim(node: &Arc<Node>, ranges: &[SlotRange]) -> Result<u64, String> {
    if ranges.is_empty() {
        return Ok(0);
    }
    let slots = Slots::new(ranges);
    let mut trimmer = Trimmer::new(node, ranges);
    let background = &node.work.background;
    let mut thread = background.enter();
    for database in 0..node.core.store.databases() {
        let mut cursor = 0;
        loop {
            let mut keys = Vec::new();
            cursor = trimmer.handle.scan(database, cursor, STEP_KEYS, |record| {
                if slots.has(record.key()) {
                    keys.push(record.key().to_vec());
                }
            });
            trimmer.remove(keys.iter().map(|name| (database, name.as_slice())))?;
            if cursor == 0 {
                break;
            }
            if thread.is_due() {
                background.set_share(SHARE);
                thread.pause();
            }
        }
    }
    Ok(trimmer.removed)
}

/// Removes keys of some slots that are known by name.
///
/// # Errors
/// Why it was not done, or not completely.
pub(super) fn trim_keys(
    node: &Arc<Node>,
    ranges: &[SlotRange],
    keys: &[Named],
) -> Result<u64, String> {
    let mut trimmer = Trimmer::new(node, ranges);
    for some in keys.chunks(STEP_KEYS) {
        trimmer.remove(some.iter().map(|(database, name)| (*database, &**name)))?;
    }
    Ok(trimmer.removed)
}

/// Removes keys of some slots, step by step.
struct Trimmer<'n> {
    node: &'n Arc<Node>,
    ranges: &'n [SlotRange],
    handle: Handle,
    log_user: LogUser,
    /// Number of keys that existed and were removed.
    removed: u64,
}

impl<'n> Trimmer<'n> {
    fn new(node: &'n Arc<Node>, ranges: &'n [SlotRange]) -> Self {
        let mut handle = node.core.store.handle();
        handle.set_ageless(true);
        let log_user = node.keeping.log_in_use.join();
        log_user.set_idle(true);
        Self {
            node,
            ranges,
            handle,
            log_user,
            removed: 0,
        }
    }

    /// Removes some keys, each in its database.
    fn remove<'k>(
        &mut self,
        keys: impl ExactSizeIterator<Item = (u16, &'k [u8])>,
    ) -> Result<(), String> {
        if keys.len() == 0 {
            return Ok(());
        }
        await_room(self.node)?;
        check(self.node, self.ranges)?;
        self.log_user.set_idle(false);
        let taken = self.log_user.take_up(&mut self.handle);
        let has_log = !matches!(taken, TakenUp::Nothing);
        if has_log {
            self.delete(keys);
        }
        self.log_user.set_idle(true);
        match has_log {
            true => self.write_out(),
            false => Err(NO_LOG.to_owned()),
        }
    }

    /// Passes the appended frames to the system. If replies wait for a majority, replies to all
    /// clients wait for these frames, and on a node without slots no other thread writes them out.
    fn write_out(&self) -> Result<(), String> {
        log_of(self.node)?.write_out(self.log_user.appended().end())?;
        if self.node.replication.fence.is_quorum() {
            self.node.wake_workers();
        }
        Ok(())
    }

    fn delete<'k>(&mut self, keys: impl Iterator<Item = (u16, &'k [u8])>) {
        self.handle.begin(self.node.core.clock.now_unix_ms());
        for (database, name) in keys {
            let key = self.handle.key(database, name);
            let was_there = self.handle.delete(&key, |entry| {
                entry.effect(|effect| effect.command(&[b"DEL", name]));
            });
            self.removed += u64::from(was_there);
        }
    }
}

impl Drop for Trimmer<'_> {
    fn drop(&mut self) {
        self.log_user.let_go(&mut self.handle);
        self.handle.tell_memory();
    }
}

/// Checks that the slots are still another shard's, and that this node is a primary that may write.
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

/// Returns the approximate number of keys in some slots.
pub(super) fn keys_in(node: &Node, ranges: &[SlotRange]) -> u64 {
    let slots = ranges.iter().flat_map(|(first, last)| *first..=*last);
    let known = slots.filter(|slot| *slot <= hash_slot::LAST);
    known
        .map(|slot| node.core.store.keys_in_hash_slot(slot))
        .sum()
}

/// Returns the memory of all records.
pub(super) fn used_bytes(handle: &Handle) -> u64 {
    let memory = handle.statistics().memory;
    memory.index_bytes + memory.slot_held_bytes + memory.long_value_bytes
}
