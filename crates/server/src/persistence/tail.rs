//! The end of the log, as those see it whose replies wait for it.
//!
//! Positions are bytes since the log was begun. What is below [`Tail::written`] is in the kernel and
//! outlives this process; what is below [`Tail::durable`] is on disk and outlives the machine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use store::EffectSink;

/// A log that is written to; any thread may ask.
pub trait Tail: Send + Sync {
    /// Behind what was appended last, by whichever thread.
    fn tail(&self) -> u64;

    /// Up to where it is in the kernel. Falls back when a file fails.
    fn written(&self) -> u64;

    /// Up to where it is on disk. Never falls. Whenever it rises, and when a fault begins or ends, the log
    /// calls [`Node::log_moved`](crate::node::Node::log_moved).
    fn durable(&self) -> u64;

    /// Whether all replies wait until what they show is on disk.
    fn holds_replies(&self) -> bool;

    /// Hands everything below `up_to` to the kernel.
    ///
    /// # Errors
    /// Why that is not possible at present.
    fn write_out(&self, up_to: u64) -> Result<(), String>;

    /// Asks that everything below `up_to` be on disk soon.
    fn request_sync(&self, up_to: u64);

    /// Why it cannot be written at present.
    fn fault(&self) -> Option<String>;

    /// Whether so little waits to be on disk that more may be written.
    fn has_room(&self) -> bool;

    /// What one thread's effects go to; it notes in `appended` where they end.
    fn sink(self: Arc<Self>, appended: &Appended) -> Box<dyn EffectSink>;
}

/// Behind what one thread appended last: written by its sink, read by itself.
#[derive(Clone, Debug, Default)]
pub struct Appended(Arc<AtomicU64>);

impl Appended {
    /// Notes where something ends that was appended.
    #[inline]
    pub fn note(&self, end: u64) {
        self.0.store(end, Ordering::Relaxed);
    }

    /// Behind what was appended last.
    #[inline]
    #[must_use]
    pub fn end(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The log in use, if there is one: workers look when they are told that it is another.
#[derive(Default)]
pub struct LogInUse {
    log: Mutex<Option<Arc<dyn Tail>>>,
    is_there: AtomicBool,
    version: AtomicU64,
}

impl LogInUse {
    /// The log, if there is one.
    #[must_use]
    pub fn get(&self) -> Option<Arc<dyn Tail>> {
        if !self.is_there.load(Ordering::Acquire) {
            return None;
        }
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How often it was changed.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Uses another log, or none.
    pub fn set(&self, log: Option<Arc<dyn Tail>>) {
        let mut place = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_there.store(log.is_some(), Ordering::Release);
        *place = log;
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}
