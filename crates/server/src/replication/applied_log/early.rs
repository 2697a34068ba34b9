//! A full sync that is loaded while it is received, if that loses no data.
//!
//! ```text
//!   empty store ─► loading ─┬─► the manifest names what arrived ─► in force
//!                           └─► a fault, another full sync, nobody to go on with it ─► empty store
//! ```
//!
//! Clients are answered that data is being loaded from the first piece on, also while the link is
//! broken.

use std::path::Path;
use std::sync::atomic::Ordering;

use base::os_error::system_reason;
use durability::checkpoint::Manifest;
use persistence::arriving::Arriving;
use persistence::loader::LoadFault;
use replication::link::Full;

use super::{AppliedLog, check_databases, install_libraries};

/// How long clients are answered that data is being loaded after the link of an early full sync
/// broke.
const BROKEN_TIME_MS: u64 = 10_000;

/// A full sync that is loaded while it is received.
pub(super) struct Early {
    arriving: Arriving,
    /// Whether the store was broken before, or its data was dropped for this full sync. Otherwise
    /// it was empty.
    was_broken: bool,
    /// When the link of this full sync broke. `None` as soon as more is received.
    broken_ms: Option<u64>,
}

impl AppliedLog<'_> {
    /// Passes received data to the loader, if this full sync is loaded early.
    pub(super) fn load_early(
        &mut self,
        hand_on: impl FnOnce(&Arriving, &dyn Fn() -> bool) -> bool,
    ) -> Result<(), String> {
        let home = self.home;
        let Some(early) = self.sync.as_mut().and_then(|sync| sync.early.as_mut()) else {
            return Ok(());
        };
        early.broken_ms = None;
        if hand_on(&early.arriving, &|| !home.is_stopping()) {
            return Ok(());
        }
        if home.is_stopping() {
            return Err("the server stops".to_owned());
        }
        let fault = early.arriving.take_fault();
        Err(fault.map_or_else(|| LoadFault::Thread.to_string(), |fault| fault.to_string()))
    }

    /// Begins to load the full sync while it is received, if that loses no data: the store is
    /// empty, or an operator wants its data dropped before other data comes. Under a control group
    /// a member keeps its data until the new data is complete.
    pub(super) fn begin_early(
        &mut self,
        full: &Full,
        directory: &Path,
    ) -> Result<Option<Early>, String> {
        let had_data = self.has_keys();
        let was_broken = self.home.is_store_broken().load(Ordering::Acquire);
        if had_data && !self.home.drops_data_early() {
            return Ok(None);
        }
        let _suspended = self.home.suspend_checkpoints();
        self.home.set_loading(Some(full.bytes));
        self.empty_store();
        let env = self.home.env();
        let begun = Arriving::begin(env, directory, full.records, env.threads);
        let was_broken = was_broken || had_data;
        match begun {
            Ok(arriving) => Ok(Some(Early {
                arriving,
                was_broken,
                broken_ms: None,
            })),
            Err(error) => {
                self.set_broken(was_broken);
                self.home.set_loading(None);
                Err(system_reason(&error))
            }
        }
    }

    /// Drops what was loaded of a full sync that does not become complete.
    pub(super) fn give_up_early(&mut self, early: Early) {
        drop(early.arriving);
        self.empty_store();
        self.set_broken(early.was_broken);
        self.home.set_loading(None);
    }

    /// As [`AppliedLog::load`], for data that was received and loaded early.
    pub(super) fn finish_early(&mut self, early: Early, manifest: &Manifest) -> Result<(), String> {
        let env = self.home.env();
        let loaded = match check_databases(env, manifest) {
            Ok(()) => early.arriving.finish(manifest).map_err(|it| it.to_string()),
            Err(reason) => {
                // After this drop no loader changes the store.
                drop(early.arriving);
                Err(reason)
            }
        };
        let loaded = loaded.and_then(|()| install_libraries(env, manifest));
        loaded.inspect_err(|_| {
            self.empty_store();
            self.set_broken(early.was_broken);
        })
    }

    /// Forgets a full sync that is loaded early: its data cannot be passed to a loader twice, so
    /// the next full sync starts from the beginning.
    pub(super) fn forget_early_sync(&mut self) {
        if self.sync.as_ref().is_some_and(|sync| sync.early.is_some()) {
            self.forget_sync();
        }
    }

    /// Whether a full sync is loaded early into a store that was empty, and may go on.
    pub(super) fn was_empty_before(&self) -> bool {
        let early = self.sync.as_ref().and_then(|sync| sync.early.as_ref());
        early.is_some_and(|early| !early.was_broken)
    }

    /// Notes that the link broke. What clients are answered does not change.
    pub(super) fn note_break(&mut self) {
        let now_ms = self.home.env().clock.monotonic_ms();
        if let Some(early) = self.sync.as_mut().and_then(|sync| sync.early.as_mut()) {
            early.broken_ms.get_or_insert(now_ms);
        }
    }

    /// Forgets an early full sync whose link has been broken for [`BROKEN_TIME_MS`], so that
    /// clients do not wait for it forever.
    pub(super) fn forget_late_sync(&mut self) {
        let now_ms = self.home.env().clock.monotonic_ms();
        let early = self.sync.as_ref().and_then(|sync| sync.early.as_ref());
        let broken_ms = early.and_then(|early| early.broken_ms);
        if broken_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) >= BROKEN_TIME_MS) {
            self.forget_sync();
        }
    }
}
