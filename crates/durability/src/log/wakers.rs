//! Wakes readers that sleep at the tail of the log when there is more.
//!
//! ```text
//!   reader     arm ──► read to the tail ──► sleep ──► (woken) ──► arm ──► …
//!   appender   frames are complete ──► is anybody armed? ──► wake
//! ```
//!
//! An appender checks once whenever it hands frames over, at the end of a worker's turn: one load
//! while no reader is armed. A reader is woken once for each time that it armed itself. No frame is
//! missed: the reader arms before it reads, and the appender checks after its frames are complete,
//! with a full fence in between on both sides. So the reader sees the frames or the appender sees
//! the reader.

use std::fmt;
use std::sync::Arc;

use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{CachePadded, Mutex, fence};

use super::locks::lock;
use super::open_log::Log;

/// The readers to wake.
#[derive(Default)]
pub(super) struct Wakers {
    is_armed: CachePadded<AtomicBool>,
    wakers: Mutex<Vec<Arc<Wake>>>,
}

type Wake = dyn Fn() + Send + Sync;

/// A reader's registration, which lasts until this is dropped. It is woken when frames were
/// appended.
pub struct Waker {
    log: Arc<Log>,
    wake: Arc<Wake>,
}

impl Log {
    /// Registers `wake`, which is called once for each [`Waker::arm`], when frames appended since
    /// then are complete. The appending thread calls it and may hold the log's locks, so it must do
    /// no more than write to an event's descriptor or notify a thread. It may be called once more
    /// than needed.
    #[must_use]
    pub fn on_appended(self: &Arc<Self>, wake: impl Fn() + Send + Sync + 'static) -> Waker {
        let wake: Arc<Wake> = Arc::new(wake);
        lock(&self.wakers.wakers).push(Arc::clone(&wake));
        Waker {
            log: Arc::clone(self),
            wake,
        }
    }

    /// Declares everything below `complete` complete, and wakes armed readers.
    #[inline]
    pub(super) fn raise_written(&self, complete: u64) {
        self.written.fetch_max(complete, Ordering::AcqRel);
        // A thread that has just synced, or a reader that has armed itself, either sees the new
        // frames or is seen here.
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
    /// Asks to be woken once. Call it before [`Cursor::read`](super::Cursor::read) of frames that
    /// may not exist yet.
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
