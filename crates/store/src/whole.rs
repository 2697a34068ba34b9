//! Operations on whole databases: emptying and swapping them.
//!
//! Both happen while one thread has the store for itself. Emptying detaches the index, and the
//! records are freed in the background: no thread can find them any more, and their slots stay
//! readable memory until they are used again.

use std::sync::Arc;

use crate::detached::Detached;
use crate::indexed::Indexed;
use crate::key::DatabaseId;
use crate::shared::Shared;
use crate::tally::Delta;

impl Indexed {
    /// Empties a database. Returns how many records it had. The caller has the store for itself.
    pub(crate) fn flush(&mut self, database: DatabaseId) -> usize {
        debug_assert!(self.is_alone());
        let count = self.len(database);
        let listened = self.shared.listeners.keys_of(database);
        let were_present = self.present(database, &listened);
        let Some(index) = self.shared.databases.detach(database) else {
            return 0;
        };
        self.seen.refresh(&self.shared.databases);
        self.shared.tallies.for_each_delta(database, Delta::forget);
        self.shared.tallies.forget_slots(database);
        let detached = Detached {
            slab: Arc::clone(&self.shared.slab),
            ledger: Arc::clone(&self.shared.ledger),
            index,
            count,
        };
        if let Some(detached) = self.shared.snapshots.keep(detached) {
            detached.free_behind(&self.shared.lazy);
        }
        self.tell_flushed(database, &listened, &were_present);
        count
    }

    /// Swaps two databases. The caller has the store for itself.
    pub(crate) fn swap(&mut self, one: DatabaseId, other: DatabaseId) {
        debug_assert!(self.is_alone());
        let listened = [one, other].map(|database| {
            let keys = self.shared.listeners.keys_of(database);
            let were_present = self.present(database, &keys);
            (database, keys, were_present)
        });
        for database in [one, other] {
            if let Some(index) = self.seen.get(database) {
                let tell = |delta: &Delta| index.counts.tell(delta);
                self.shared.tallies.for_each_delta(database, tell);
            } else {
                // The remaining counts are from an index that is gone.
                self.shared.tallies.for_each_delta(database, Delta::forget);
            }
        }
        self.shared.databases.swap(one, other);
        self.seen.refresh(&self.shared.databases);
        for (database, keys, were_present) in listened {
            self.tell_flushed(database, &keys, &were_present);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for database in 0..self.databases.count() {
            if let Some(index) = self.databases.detach(database) {
                drop(Detached {
                    slab: Arc::clone(&self.slab),
                    ledger: Arc::clone(&self.ledger),
                    index,
                    count: 0,
                });
            }
        }
    }
}
