//! What is wrong with the files of a control log now: who writes them says so and tries again, who takes part looks.
//!
//! ```text
//!   DiskLog, Machine ── a write fails ─► said here ─► a pause ─► written anew, whole ─► said no more
//!                                          └─► Standing, and who asks this node: it takes no part
//! ```
//!
//! Raft ends for good at the first error of its storage. It is told of none: what it asked for takes until it is done, and nothing is
//! answered meanwhile, as of a node whose disk stands still.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use openraft::RaftTypeConfig;
use openraft::type_config::TypeConfigExt as _;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(250);

/// See the module. Copies are of the same files.
#[derive(Clone, Debug, Default)]
pub struct DiskFault(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Why votes and entries cannot be written: without them nobody takes part.
    journal: Mutex<Option<String>>,
    /// Why no snapshot can be written. The journal grows meanwhile.
    snapshot: Mutex<Option<String>>,
    /// The log ends: nothing is tried again.
    is_over: AtomicBool,
}

/// Which of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Votes and entries; and a snapshot in the place of entries.
    Journal,
    /// A snapshot of what is in the journal, too.
    Snapshot,
}

impl DiskFault {
    /// Why this node cannot take part, if so.
    #[must_use]
    pub fn journal(&self) -> Option<String> {
        lock(&self.0.journal).clone()
    }

    /// Why no snapshot can be written, if so.
    #[must_use]
    pub fn snapshot(&self) -> Option<String> {
        lock(&self.0.snapshot).clone()
    }

    /// The log ends: who tries again is told of the error.
    pub fn give_up(&self) {
        self.0.is_over.store(true, Ordering::Release);
    }

    /// Writes something, as often as it takes.
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
