//! The keys of each hash slot, for tools that move small slots one after the other. One walk over
//! the keyspace makes the directory, and the log keeps it current until it has not been used for a
//! while.
//!
//! It names at least the keys that exist. Keys that it names may be gone: the caller looks them up.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use base::hash_slot;
use cluster::entry::SlotRange;
use durability::log::{Log, Pin};
use engine::Table;
use store::Handle;

use super::filter::{KeyFinder, Obstacle};
use crate::replication::stream::frames::Frames;

/// Maximum number of keys on the node: a directory of more keys would take too much memory.
pub(super) const KEYS_MAX: usize = 8_000_000;
/// Maximum number of names, including those of keys that are gone; beyond it, the directory is made
/// anew.
const NAMES_MAX: usize = 2 * KEYS_MAX;
/// Keys that are visited before other threads have their turn.
const STEP_KEYS: usize = 1_024;

/// A key with its database.
pub(super) type Named = (u16, Box<[u8]>);

/// See the module documentation.
pub(super) struct Directory {
    log: Arc<Log>,
    frames: Frames,
    finder: KeyFinder,
    keys: HashMap<u16, HashSet<Named>>,
    pin: Pin,
    /// Time of the last use, on the monotonic clock.
    used_ms: u64,
}

impl Directory {
    /// Makes a directory by one walk over the keyspace.
    pub(super) fn of(table: &'static Table, log: &Arc<Log>, handle: &mut Handle) -> Self {
        let from = log.tail_complete();
        let mut keys: HashMap<u16, HashSet<Named>> = HashMap::new();
        for database in 0..handle.store().databases() {
            let mut cursor = 0;
            loop {
                cursor = handle.scan(database, cursor, STEP_KEYS, |record| {
                    let slot = hash_slot::of(record.key());
                    keys.entry(slot)
                        .or_default()
                        .insert((database, record.key().into()));
                });
                if cursor == 0 {
                    break;
                }
                std::thread::yield_now();
            }
        }
        Self {
            log: Arc::clone(log),
            frames: Frames::new(log, from),
            finder: KeyFinder::new(table),
            keys,
            pin: log.pin("slots", from),
            used_ms: 0,
        }
    }

    /// Whether it belongs to this log, and the log still has everything from where the directory
    /// stopped.
    pub(super) fn is_of(&self, log: &Arc<Log>) -> bool {
        Arc::ptr_eq(&self.log, log) && !self.pin.is_broken()
    }

    /// Applies the log up to a sequence.
    ///
    /// # Errors
    /// That is not possible; the directory is useless from then on.
    pub(super) fn catch_up(&mut self, end: u64, now_ms: u64) -> Result<(), String> {
        self.used_ms = now_ms;
        while self.frames.next() < end {
            let (finder, keys) = (&mut self.finder, &mut self.keys);
            let mut obstacle = None;
            let read = self.frames.read(|frame| {
                for effect in frame.effects() {
                    let add = |key: &[u8]| {
                        let named = (effect.database, key.into());
                        keys.entry(hash_slot::of(key)).or_default().insert(named);
                    };
                    match finder.each_key(effect.parts, add) {
                        // The names stay; the caller finds that their keys are gone.
                        Ok(()) | Err(Obstacle::Flushed) => {}
                        Err(found) => obstacle = Some(found),
                    }
                }
                Ok(())
            });
            let is_more = read.map_err(|fault| fault.to_string())?;
            if let Some(obstacle) = obstacle {
                return Err(obstacle.text().to_owned());
            }
            if !is_more {
                std::thread::yield_now();
            }
        }
        self.pin.advance(self.frames.next());
        match self.keys.values().map(HashSet::len).sum::<usize>() {
            0..=NAMES_MAX => Ok(()),
            _ => Err("the directory of keys has become too large".to_owned()),
        }
    }

    /// Returns the keys of some hash slots.
    pub(super) fn keys(&self, ranges: &[SlotRange]) -> Vec<Named> {
        let slots = ranges.iter().flat_map(|(first, last)| *first..=*last);
        let keys = slots.filter_map(|slot| self.keys.get(&slot));
        keys.flatten().cloned().collect()
    }

    /// Removes hash slots that have moved away.
    pub(super) fn forget(&mut self, ranges: &[SlotRange]) {
        for slot in ranges.iter().flat_map(|(first, last)| *first..=*last) {
            self.keys.remove(&slot);
        }
    }

    /// Whether it was not used for more than `idle_ms`.
    pub(super) fn is_idle(&self, now_ms: u64, idle_ms: u64) -> bool {
        now_ms.saturating_sub(self.used_ms) > idle_ms
    }
}
