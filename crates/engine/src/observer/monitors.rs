//! The clients that see every command that runs (MONITOR).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::client_record::ClientRecord;

/// The clients that see all commands.
#[derive(Debug, Default)]
pub struct Monitors {
    clients: Mutex<Vec<Arc<ClientRecord>>>,
    count: AtomicUsize,
}

impl Monitors {
    /// Adds a client. Does nothing if it is already a monitor.
    pub fn add(&self, client: &Arc<ClientRecord>) {
        if !client.has_flag(ClientRecord::MONITOR) {
            client.set_flag(ClientRecord::MONITOR, true);
            let mut clients = self.lock();
            clients.push(Arc::clone(client));
            self.count.store(clients.len(), Ordering::Relaxed);
        }
    }

    /// Removes a client, on its own thread. Does nothing if it is not a monitor.
    pub fn remove(&self, client: &ClientRecord) {
        if client.has_flag(ClientRecord::MONITOR) {
            client.set_flag(ClientRecord::MONITOR, false);
            let mut clients = self.lock();
            clients.retain(|other| other.id != client.id);
            self.count.store(clients.len(), Ordering::Relaxed);
        }
    }

    /// Whether there are no monitors.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Arc<ClientRecord>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
