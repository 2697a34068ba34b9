//! Who reads the log and sleeps at its tail is woken when there is more.
//!
//! ```text
//!   reader     arm ──► read to the tail ──► sleep ──► (woken) ──► arm ──► …
//!   appender   frames are complete ──► is anybody armed? ──► wake
//! ```
//!
//! An appender asks once for each time that it hands frames over, at the end of a worker's turn: one load while nobody is
//! armed, and a reader is woken once for each time that it armed itself. No frame is missed: the reader arms before it reads
//! and the appender asks after its frames are complete, with a full fence in between on both sides, so that the reader
//! sees the frames or the appender sees the reader.

use std::fmt;
use std::sync::Arc;

use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{CachePadded, Mutex, fence};

use super::{Log, lock};

/// Those who are to be woken.
#[derive(Default)]
pub(super) struct Wakers {
    is_armed: CachePadded<AtomicBool>,
    wakers: Mutex<Vec<Arc<Wake>>>,
}

type Wake = dyn Fn() + Send + Sync;

/// One who is woken when frames were appended, until this is dropped.
pub struct Waker {
    log: Arc<Log>,
    wake: Arc<Wake>,
}

impl Log {
    /// Calls `wake` once for each [`Waker::arm`], when frames that were appended since are complete. Whoever appends calls
    /// it, and may hold the log's locks: it is to do no more than to write to an event's descriptor, or to notify a
    /// thread. It may be called once more than needed.
    #[must_use]
    pub fn on_appended(self: &Arc<Self>, wake: impl Fn() + Send + Sync + 'static) -> Waker {
        let wake: Arc<Wake> = Arc::new(wake);
        lock(&self.wakers.wakers).push(Arc::clone(&wake));
        Waker {
            log: Arc::clone(self),
            wake,
        }
    }

    /// Everything below a sequence is complete: whoever is armed is woken.
    #[inline]
    pub(super) fn raise_written(&self, complete: u64) {
        self.written.fetch_max(complete, Ordering::AcqRel);
        // Either who has just synced, or has armed itself to read, sees that there is more, or is seen here.
        fence(Ordering::SeqCst);
        if self.wakers.is_armed.load(Ordering::Relaxed) {
            self.wakers.wake();
        }
    }
}

impl Wakers {
    #[cold]
    fn wake(&self) {
        if self.is_armed.swap(false, Ordering::AcqRel) {
            lock(&self.wakers).iter().for_each(|wake| wake());
        }
    }
}

impl Waker {
    /// Asks to be woken once. To be called before [`Cursor::read`](super::Cursor::read) is asked for what may not be there
    /// yet.
    pub fn arm(&self) {
        self.log.wakers.is_armed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        lock(&self.log.wakers.wakers).retain(|wake| !Arc::ptr_eq(wake, &self.wake));
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}
