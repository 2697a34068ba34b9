//! Which keys take most memory, found out all the time by going through the keyspace a little at a
//! time, again and again. The largest ones of the last whole round are known, and those of the running
//! one so far.

use std::sync::{Mutex, MutexGuard, PoisonError};

use store::{DatabaseId, Handle, Kind};

/// Keys that are kept.
const KEYS_MAX: usize = 32;

/// A key that takes much memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BigKey {
    /// Its database.
    pub database: DatabaseId,
    /// The key.
    pub key: Box<[u8]>,
    /// What it holds.
    pub kind: Kind,
    /// What it took when it was looked at.
    pub bytes: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub struct BigKeys {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Of the last whole round, largest first.
    last: Vec<BigKey>,
    /// Of the running one, largest first.
    running: Vec<BigKey>,
    database: DatabaseId,
    cursor: u64,
}

impl BigKeys {
    /// Goes further by so many records, a fifth of a microsecond each. The store must be entered.
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

    /// The largest keys known, `count` at most, as they were when they were looked at.
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

    /// Forgets all and begins anew.
    pub fn reset(&self) {
        *self.lock() = State::default();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Goes on with the next database; whether a round is over.
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

/// Puts a key where it belongs by its size, unless it is there already.
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
