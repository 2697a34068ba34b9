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
    /// The libraries of functions.
    pub(crate) libraries: TakenWhole,
    /// The shared directives.
    pub(crate) directives: TakenWhole,
}

/// A document that has all of its kind.
#[derive(Debug, Default)]
pub(crate) struct TakenWhole {
    /// The index of the newest control state that was looked at.
    pub(crate) index: u64,
    /// Its version; 0 for none.
    pub(crate) version: u64,
    /// Why it does not hold here.
    pub(crate) fault: Option<String>,
}

impl TakenWhole {
    /// Whether a state may have another version than this one: whoever looked earlier may come later.
    pub(crate) fn is_news(&mut self, index: u64, version: u64) -> bool {
        if index <= self.index {
            return false;
        }
        self.index = index;
        std::mem::replace(&mut self.version, version) != version
    }
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
