//! The present fault of a control log's files. Writers report it here and try again; code that
//! depends on the log reads it.
//!
//! ```text
//!   DiskLog, Machine ── a write fails ─► said here ─► a pause ─► written anew, whole ─► said no more
//!                                          └─► Standing, and who asks this node: it takes no part
//! ```
//!
//! Raft ends permanently at the first error of its storage, so it never gets one: its operation
//! takes until it succeeds, and nothing is answered meanwhile, as on a node whose disk stands
//! still.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use openraft::RaftTypeConfig;
use openraft::type_config::TypeConfigExt as _;

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(250);

/// See the module. Clones refer to the same files.
#[derive(Clone, Debug, Default)]
pub struct DiskFault(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Why votes and entries cannot be written. The node does not take part meanwhile.
    journal: Mutex<Option<String>>,
    /// Why no snapshot can be written. The journal grows meanwhile.
    snapshot: Mutex<Option<String>>,
    /// Whether the log ends: failed writes are not tried again.
    is_over: AtomicBool,
}

/// The kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Votes and entries; and a snapshot that replaces entries.
    Journal,
    /// A snapshot of what is also in the journal.
    Snapshot,
}

impl DiskFault {
    /// Returns why this node cannot take part, if it cannot.
    #[must_use]
    pub fn journal(&self) -> Option<String> {
        lock(&self.0.journal).clone()
    }

    /// Returns why no snapshot can be written, if it cannot.
    #[must_use]
    pub fn snapshot(&self) -> Option<String> {
        lock(&self.0.snapshot).clone()
    }

    /// Ends the log: further attempts return their error.
    pub fn give_up(&self) {
        self.0.is_over.store(true, Ordering::Release);
    }

    /// Writes something, with as many attempts as needed.
    ///
    /// # Errors
    /// Those of the system, once the log ends.
    pub(crate) async fn until_written<C: RaftTypeConfig, R>(
        &self,
        written: Written,
        mut write: impl FnMut() -> io::Result<R> + Send,
    ) -> io::Result<R> {
        let fault = match written {
            Written::Journal => &self.0.journal,
            Written::Snapshot => &self.0.snapshot,
        };
        loop {
            match write() {
                Ok(done) => {
                    *lock(fault) = None;
                    return Ok(done);
                }
                Err(error) => {
                    *lock(fault) = Some(error.to_string());
                    if self.0.is_over.load(Ordering::Acquire) {
                        return Err(error);
                    }
                }
            }
            C::sleep(PAUSE).await;
        }
    }
}

fn lock(fault: &Mutex<Option<String>>) -> std::sync::MutexGuard<'_, Option<String>> {
    fault.lock().unwrap_or_else(PoisonError::into_inner)
}
