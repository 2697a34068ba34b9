//! The documents of the control log that this node has applied. Only `documents` knows their
//! content.

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
    /// Users by name, with their versions.
    pub(crate) users: BTreeMap<Vec<u8>, u64>,
    /// The libraries of functions.
    pub(crate) libraries: TakenWhole,
    /// The shared directives.
    pub(crate) directives: TakenWhole,
}

/// State of a document that contains everything of its kind.
#[derive(Debug, Default)]
pub(crate) struct TakenWhole {
    /// Index of the newest control state that was checked.
    pub(crate) index: u64,
    /// Version of the document; 0 for none.
    pub(crate) version: u64,
    /// Why it does not apply here.
    pub(crate) fault: Option<String>,
}

impl TakenWhole {
    /// Whether a state is newer and has another version. Threads may come here in another order
    /// than they read the state.
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

    /// The version of a user that this node has applied; 0 for none.
    pub(crate) fn version_of_user(&self, name: &[u8]) -> u64 {
        self.lock().users.get(name).copied().unwrap_or(0)
    }

    /// Forgets everything, because this node has left its group: what it has applied stays as its
    /// own.
    #[cfg(feature = "cluster")]
    pub(crate) fn forget(&self) {
        *self.lock() = Taken::default();
    }
}
