//! Which documents of the control log this node has taken. What they are is known to `documents` alone.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct TakenDocuments(Mutex<Taken>);

/// The documents of one control state.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// The index of that state.
    pub(crate) index: u64,
    /// Names of users, and their versions.
    pub(crate) users: BTreeMap<Vec<u8>, u64>,
}

impl TakenDocuments {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version of a user that this node has; 0 for none.
    pub(crate) fn version_of_user(&self, name: &[u8]) -> u64 {
        self.lock().users.get(name).copied().unwrap_or(0)
    }

    /// This node has left its group: what it has of it stays here, and is its own.
    #[cfg(feature = "cluster")]
    pub(crate) fn forget(&self) {
        *self.lock() = Taken::default();
    }
}
