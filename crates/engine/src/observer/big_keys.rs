//! The keys that take most memory, found by continuous passes over the keyspace in small steps. The
//! largest keys of the last complete pass are known, and those of the current one so far.

use std::sync::{Mutex, MutexGuard, PoisonError};

use store::{DatabaseId, Handle, Kind};

/// Number of keys that are kept.
const KEYS_MAX: usize = 32;

/// A key that takes much memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BigKey {
    /// Its database.
    pub database: DatabaseId,
    /// The key.
    pub key: Box<[u8]>,
    /// The type of its value.
    pub kind: Kind,
    /// Its size when it was visited.
    pub bytes: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub struct BigKeys {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Keys of the last complete pass, largest first.
    last: Vec<BigKey>,
    /// Keys of the current pass, largest first.
    running: Vec<BigKey>,
    database: DatabaseId,
    cursor: u64,
}

impl BigKeys {
    /// Advances by this many records, at a fifth of a microsecond each. The caller has entered the
    /// store.
    pub fn step(&self, store: &mut Handle, records: usize) {
        let mut state = self.lock();
        let databases = store.store().databases();
        while state.cursor == 0 && store.len(state.database) == 0 {
            if state.next_database(databases) {
                return;
            }
        }
        let (database, cursor) = (state.database, state.cursor);
        let running = &mut state.running;
        let next = store.survey(database, cursor, records, |record| {
            let bytes = record.memory_bytes();
            let is_large = running.len() < KEYS_MAX
                || running
                    .last()
                    .is_some_and(|smallest| bytes > smallest.bytes);
            if is_large {
                let big = BigKey {
                    database,
                    key: record.key().into(),
                    kind: record.kind(),
                    bytes,
                };
                insert(running, big);
            }
        });
        state.cursor = next;
        if next == 0 {
            state.next_database(databases);
        }
    }

    /// Returns the largest keys known, at most `count`, with their sizes when they were visited.
    #[must_use]
    pub fn report(&self, count: usize) -> Vec<BigKey> {
        let state = self.lock();
        let mut keys = state.running.clone();
        state
            .last
            .iter()
            .cloned()
            .for_each(|big| insert(&mut keys, big));
        keys.truncate(count);
        keys
    }

    /// Forgets all keys and begins again.
    pub fn reset(&self) {
        *self.lock() = State::default();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Moves to the next database. Returns whether a pass is complete.
    fn next_database(&mut self, databases: DatabaseId) -> bool {
        self.database += 1;
        let is_over = self.database >= databases;
        if is_over {
            self.database = 0;
            self.last = std::mem::take(&mut self.running);
        }
        is_over
    }
}

/// Inserts a key at its position by size, unless it is there already.
fn insert(keys: &mut Vec<BigKey>, big: BigKey) {
    let is_it = |other: &BigKey| other.database == big.database && other.key == big.key;
    if keys.iter().any(is_it) {
        return;
    }
    let at = keys.partition_point(|other| other.bytes >= big.bytes);
    keys.insert(at, big);
    keys.truncate(KEYS_MAX);
}

#[cfg(test)]
mod tests {
    use store::{Options, Store};

    use super::*;

    #[test]
    fn an_empty_keyspace_ends_every_round() {
        let mut store = Store::new(&Options::default()).expect("memory").handle();
        let big_keys = BigKeys::default();
        (0..3).for_each(|_| big_keys.step(&mut store, 512));
        assert!(big_keys.report(10).is_empty());
    }
}
