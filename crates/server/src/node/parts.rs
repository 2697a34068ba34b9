//! Parts that a node gets after it is made, at start: persistence, the tier, listeners, and the
//! writer of INFO.

use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};

use persistence::directory::DataDirectory;
use persistence::running::Persistence;
use store::Handle;

use super::{Describer, Managed, Node};
use crate::listeners::Listeners;
use crate::tier::{self, TierInUse};

impl Node {
    /// Sets the persistence; called once.
    pub fn set_persistence(&self, persistence: Persistence) {
        let _already_set = self.keeping.persistence.set(persistence);
    }

    /// Returns the persistence.
    #[must_use]
    pub fn persistence(&self) -> Option<&Persistence> {
        self.keeping.persistence.get()
    }

    /// Takes the data directory for the lifetime of the returned value. Returns `None` if the
    /// persistence owns the directory, either already or from this call on.
    ///
    /// # Errors
    /// Another server owns the directory, or an error of the system.
    pub(crate) fn take_directory(&self) -> io::Result<Option<DataDirectory>> {
        if self.persistence().is_some_and(Persistence::has_directory) {
            return Ok(None);
        }
        let taken = DataDirectory::take(&self.core.config.current().dir);
        let taken = taken.map_err(io::Error::other)?;
        let Some(persistence) = self.persistence() else {
            return Ok(Some(taken));
        };
        let kept = persistence.keep_directory(taken);
        kept.map(|()| None).map_err(io::Error::other)
    }

    /// Opens the tier if the configuration asks for one. Called once, before there are any keys.
    ///
    /// # Errors
    /// Those of [`TierInUse::open`].
    pub(crate) fn open_tier(self: &Arc<Self>) -> io::Result<()> {
        let config = self.core.config.current();
        let Some(wanted) = &config.tier else {
            return Ok(());
        };
        let around = tier::Around {
            store: Arc::clone(&self.core.store),
            shared: Arc::clone(&self.core.shared),
            log: Arc::clone(&self.core.log),
            clock: Arc::clone(&self.core.clock),
            requests: Arc::<Self>::clone(self),
        };
        let tier = TierInUse::open(&around, wanted, &config)?;
        let _already_set = self.core.env.tier.set(Arc::clone(tier.segments()));
        let _already_set = self.keeping.tier.set(tier);
        Ok(())
    }

    /// Returns the tier, or `None` without one.
    pub(crate) fn tier(&self) -> Option<&Arc<TierInUse>> {
        self.keeping.tier.get()
    }

    /// Sets the listeners; called once, before clients connect.
    pub(crate) fn set_listeners(&self, listeners: Listeners) {
        // Workers start once.
        let _already_set = self.process.listeners.set(listeners);
    }

    /// Sets the writer of INFO; called once, before any INFO.
    pub(crate) fn set_describer(&self, describer: Describer) {
        let _already_set = self.process.describer.set(describer);
    }

    /// Returns the requested sections of INFO.
    pub(crate) fn describe(&self, store: &mut Handle, sections: &[String]) -> String {
        let describer = self.process.describer.get();
        describer.map_or_else(String::new, |describe| describe(self, store, sections))
    }

    /// Returns the management port, while it is open.
    pub(crate) fn management(&self) -> MutexGuard<'_, Option<Box<dyn Managed>>> {
        let management = self.process.management.lock();
        management.unwrap_or_else(PoisonError::into_inner)
    }
}
