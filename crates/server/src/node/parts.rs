//! Parts that a node is given once it is there, and takes up at its start: what keeps the data, the tier, where clients
//! come in, what writes INFO.

use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};

use persistence::directory::DataDirectory;
use persistence::running::Persistence;
use store::Handle;

use super::{Describer, Managed, Node};
use crate::listeners::Listeners;
use crate::tier::{self, TierInUse};

impl Node {
    /// Says what keeps the data; once.
    pub fn set_persistence(&self, persistence: Persistence) {
        let _already_set = self.keeping.persistence.set(persistence);
    }

    /// What keeps the data.
    #[must_use]
    pub fn persistence(&self) -> Option<&Persistence> {
        self.keeping.persistence.get()
    }

    /// Takes the directory of the data, for as long as what is returned lives. What keeps data has it otherwise, from here on or
    /// already.
    ///
    /// # Errors
    /// When another server has it, and what the system says.
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

    /// Opens the tier that the configuration asks for, if it does; once, and before there are any keys.
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

    /// The tier, if there is one.
    pub(crate) fn tier(&self) -> Option<&Arc<TierInUse>> {
        self.keeping.tier.get()
    }

    /// Says where clients come in; once, before they do.
    pub(crate) fn set_listeners(&self, listeners: Listeners) {
        // Workers start once.
        let _already_set = self.process.listeners.set(listeners);
    }

    /// Says what writes INFO; once, before anybody asks.
    pub(crate) fn set_describer(&self, describer: Describer) {
        let _already_set = self.process.describer.set(describer);
    }

    /// The sections of INFO asked for.
    pub(crate) fn describe(&self, store: &mut Handle, sections: &[String]) -> String {
        let describer = self.process.describer.get();
        describer.map_or_else(String::new, |describe| describe(self, store, sections))
    }

    /// The management port, while it is open.
    pub(crate) fn management(&self) -> MutexGuard<'_, Option<Box<dyn Managed>>> {
        let management = self.process.management.lock();
        management.unwrap_or_else(PoisonError::into_inner)
    }
}
