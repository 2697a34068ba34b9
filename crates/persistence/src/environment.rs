//! The environment in which data is loaded and written: the store, what engines share, time, and
//! the receiver of messages.
//!
//! The server makes one and shares it; tests make one with [`Environment::new`].

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base::clock::Clock;
use engine::{Shared, Table};
use store::Store;
use tier::Tier;

use crate::followed::FollowedStream;
use crate::key_delay::KeyDelay;
use crate::lines::Lines;
use crate::loading::Loading;

/// See the module.
pub struct Environment {
    /// The keyspace that is loaded and written.
    pub store: Arc<Store>,
    /// The commands that are replayed.
    pub table: &'static Table,
    /// State that commands check; it also makes clients get an error while data is being loaded.
    pub shared: Arc<Shared>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The receiver of messages to the operator.
    pub log: Arc<dyn Lines>,
    /// Progress of loading.
    pub loading: Loading,
    /// Delay for each loaded key, for tests.
    pub load_delay: KeyDelay,
    /// Number of threads that load files of another server.
    pub threads: usize,
    /// Redis version that is written into files.
    pub redis_version: &'static str,
    /// Bytes that the process holds outside of the store.
    pub other_bytes: AtomicU64,
    /// The stream of a Redis primary from which the data comes.
    pub followed: FollowedStream,
    /// The tier with the values that are not in memory, if there is one.
    pub tier: OnceLock<Arc<Tier>>,
    /// Right to change whether the store holds removals; see [`Environment::hold_removals_after`].
    pub removal_turn: RemovalTurn,
}

/// Taken by one thread at a time, see [`Environment::hold_removals_after`].
#[derive(Debug, Default)]
pub struct RemovalTurn(Mutex<()>);

impl Environment {
    /// Returns an environment for this store without a receiver of messages, with one thread and no
    /// version; for tests and tools to change.
    #[must_use]
    pub fn new(table: &'static Table, store: Arc<Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            table,
            shared: Arc::default(),
            clock,
            log: Arc::new(()),
            loading: Loading::default(),
            load_delay: KeyDelay::default(),
            threads: 1,
            redis_version: "",
            other_bytes: AtomicU64::new(0),
            followed: FollowedStream::default(),
            tier: OnceLock::new(),
            removal_turn: RemovalTurn::default(),
        }
    }

    /// Begins the loading of `total_bytes` of data. Until [its end](Environment::end_loading)
    /// clients get nothing that needs data.
    pub fn begin_loading(&self, total_bytes: u64) {
        self.loading.begin(total_bytes, self.clock.now_unix_ms());
        self.hold_removals_after(|| self.shared.refusals.set_loading(true));
    }

    /// Ends the loading: all data is loaded.
    pub fn end_loading(&self) {
        self.hold_removals_after(|| self.shared.refusals.set_loading(false));
        self.loading.end();
    }

    /// Makes a change of whether data is loaded, clients are paused or the role changes; then has
    /// the store hold removals exactly while one of these is so. Every such change is made through
    /// this function, one at a time: otherwise a thread that saw no pause could let removals
    /// continue after the OK of another thread's CLIENT PAUSE.
    pub fn hold_removals_after<T>(&self, change: impl FnOnce() -> T) -> T {
        let turn = self.removal_turn.0.lock();
        let _turn = turn.unwrap_or_else(PoisonError::into_inner);
        let changed = change();
        let gate = &self.shared.gate;
        let is_paused = gate.paused_until_unix_ms() > 0 || gate.changes_role();
        let is_loading = self.shared.refusals.is_loading();
        self.store.hold_removals(is_paused || is_loading);
        changed
    }

    /// Returns the bytes that the process holds.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.other_bytes.load(Ordering::Relaxed) + self.store.statistics().used_bytes
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use base::clock::ManualClock;

    use super::*;

    #[test]
    fn removals_are_held_while_data_is_loaded_or_clients_are_paused() {
        let store = Store::new(&store::Options::default()).unwrap();
        let clock = Arc::new(ManualClock::at_unix_ms(1_000));
        let env = Environment::new(testkit::table(), store, clock);
        let holds = || env.store.holds_removals();
        let pause = || env.shared.gate.pause(5_000, true, 1_000);
        env.begin_loading(0);
        assert!(holds());
        env.hold_removals_after(pause);
        env.end_loading();
        assert!(holds(), "clients are paused");
        env.begin_loading(0);
        env.hold_removals_after(|| env.shared.gate.unpause());
        assert!(holds(), "data is loaded");
        env.end_loading();
        assert!(!holds());
    }
}
