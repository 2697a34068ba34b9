//! What loading and writing data works in: the store, the commands' settings, time, and who is told.
//!
//! The server makes one and shares it; tests make one with [`Environment::new`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::clock::Clock;
use commands::Settings;
use store::Store;

use crate::key_delay::KeyDelay;
use crate::lines::Lines;
use crate::loading::Loading;

/// See the module.
pub struct Environment {
    /// The keyspace that is filled and written.
    pub store: Arc<Store>,
    /// What commands check; says to clients that data is being loaded.
    pub settings: Arc<Settings>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Where lines for the operator go.
    pub log: Arc<dyn Lines>,
    /// How far the loading of data is.
    pub loading: Loading,
    /// What a key takes that is loaded, for tests.
    pub load_delay: KeyDelay,
    /// How many threads load files of another server.
    pub threads: usize,
    /// The version of Redis that files are marked with.
    pub redis_version: &'static str,
    /// Bytes that the process holds outside of the store.
    pub other_bytes: AtomicU64,
}

impl Environment {
    /// One for this store, with nobody who reads lines, one thread and no version; for tests and tools to change.
    #[must_use]
    pub fn new(store: Arc<Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            settings: Arc::default(),
            clock,
            log: Arc::new(()),
            loading: Loading::default(),
            load_delay: KeyDelay::default(),
            threads: 1,
            redis_version: "",
            other_bytes: AtomicU64::new(0),
        }
    }

    /// Says that so many bytes of data are being loaded. Until that [is over](Environment::end_loading) clients
    /// get nothing that needs data.
    pub fn begin_loading(&self, total_bytes: u64) {
        self.loading.begin(total_bytes, self.clock.now_unix_ms());
        self.settings.refusals.set_loading(true);
        self.store.hold_removals(true);
    }

    /// Says that all data is loaded.
    pub fn end_loading(&self) {
        self.store.hold_removals(false);
        self.settings.refusals.set_loading(false);
        self.loading.end();
    }

    /// Bytes that the process holds.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.other_bytes.load(Ordering::Relaxed) + self.store.statistics().used_bytes
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}
