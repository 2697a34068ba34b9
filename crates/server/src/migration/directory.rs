//! The keys of each slot, for moves of small slots one after the other, as old tools order them: made by one walk, and kept up
//! by what the log says, until nobody has used it for a while.
//!
//! It names at least the keys that there are. What it names may be gone: who uses it looks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use base::hash_slot;
use cluster::entry::SlotRange;
use durability::log::{Log, Pin};
use engine::Table;
use store::Handle;

use super::filter::{KeyFinder, Obstacle};
use crate::replication::stream::frames::Frames;

/// With more keys on the node there is none: it would take too much memory.
pub(super) const KEYS_MAX: usize = 8_000_000;
/// With more names, many of keys that are gone, it is made anew.
const NAMES_MAX: usize = 2 * KEYS_MAX;
/// Keys that are looked at before others have their turn.
const STEP_KEYS: usize = 1_024;

/// A key with its database.
pub(super) type Named = (u16, Box<[u8]>);

/// See the module.
pub(super) struct Directory {
    log: Arc<Log>,
    frames: Frames,
    finder: KeyFinder,
    keys: HashMap<u16, HashSet<Named>>,
    pin: Pin,
    /// When it was used last, by the monotonic clock.
    used_ms: u64,
}

impl Directory {
    /// Walks the keyspace once.
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

    /// Whether it is of this log, and the log is there from where it stopped.
    pub(super) fn is_of(&self, log: &Arc<Log>) -> bool {
        Arc::ptr_eq(&self.log, log) && !self.pin.is_broken()
    }

    /// Learns what the log says up to a sequence.
    ///
    /// # Errors
    /// Where it cannot: it is of no use any more.
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
                        // What it names is gone, and looked for.
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

    /// The keys of some slots.
    pub(super) fn keys(&self, ranges: &[SlotRange]) -> Vec<Named> {
        let slots = ranges.iter().flat_map(|(first, last)| *first..=*last);
        let keys = slots.filter_map(|slot| self.keys.get(&slot));
        keys.flatten().cloned().collect()
    }

    /// Forgets slots that are gone.
    pub(super) fn forget(&mut self, ranges: &[SlotRange]) {
        for slot in ranges.iter().flat_map(|(first, last)| *first..=*last) {
            self.keys.remove(&slot);
        }
    }

    /// Whether it was not used for so long.
    pub(super) fn is_idle(&self, now_ms: u64, idle_ms: u64) -> bool {
        now_ms.saturating_sub(self.used_ms) > idle_ms
    }
}
