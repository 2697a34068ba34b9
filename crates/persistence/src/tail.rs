//! The end of the log, as seen by the replies that wait for it.
//!
//! Positions are bytes since the log was begun. Everything below [`Tail::written`] is in the kernel
//! and survives this process; everything below [`Tail::durable`] is on disk and survives a power
//! cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use store::EffectSink;

/// The position of everything written before a log was begun: it is durable as soon as the log
/// counts, whatever the log contains.
pub const BEFORE_LOG: u64 = 1;

/// A log that is being written; any thread may query it.
pub trait Tail: Send + Sync {
    /// Returns the end of the last append, by any thread.
    fn tail(&self) -> u64;

    /// Returns up to where it is in the kernel. Falls back when a file fails.
    fn written(&self) -> u64;

    /// Returns up to where it is on disk. Never falls. When it rises, and when a fault begins or
    /// ends, the log notifies the code that began it.
    fn durable(&self) -> u64;

    /// Whether any of it is kept: a log in memory is only for replicas, and nothing waits for it.
    fn is_kept(&self) -> bool {
        true
    }

    /// Whether all replies wait until what they show is on disk.
    fn holds_replies(&self) -> bool;

    /// Passes everything below `up_to` to the kernel.
    ///
    /// # Errors
    /// Why that is impossible at present.
    fn write_out(&self, up_to: u64) -> Result<(), String>;

    /// Requests that everything below `up_to` be on disk soon.
    fn request_sync(&self, up_to: u64);

    /// Returns why it cannot be written at present, if so.
    fn fault(&self) -> Option<String>;

    /// Whether so little waits for the disk that more may be written. `now_ns` is the monotonic
    /// time, of now or not long ago.
    fn has_room(&self, now_ns: u64) -> bool;

    /// Returns a sink for one thread's effects, which notes in `appended` where they end.
    fn sink(self: Arc<Self>, appended: &Appended) -> Box<dyn EffectSink>;
}

/// What a majority of the copies has of the log, if a control group decides who is the primary.
pub trait Majority: Send + Sync {
    /// Returns the term in which this node is the primary; 0 for none.
    fn office(&self) -> u64;

    /// Whether all replies wait until what they show is on a majority.
    fn holds_replies(&self) -> bool;

    /// Returns up to where replies may leave now: what is committed in the present office while its
    /// lease is valid, and 0 otherwise. When it rises, the code that began the log is notified.
    fn released(&self, log: &dyn Tail) -> u64;

    /// Whether replies cannot leave because the lease of the present office is over, or the members do not confirm it.
    fn is_lapsed(&self) -> bool;

    /// Returns how long replies wait without progress of what is committed, in milliseconds.
    fn patience_ms(&self) -> u64 {
        u64::MAX
    }

    /// Whether the members must also confirm the present office, in a round that begins after the
    /// data of the reply was read (`quorum-reads confirm`).
    fn confirms(&self) -> bool {
        false
    }

    /// Returns the number of a round of the members that begins after this call. Numbers never
    /// fall.
    fn next_round(&self, log: &dyn Tail) -> u64 {
        let _ = log;
        0
    }

    /// Returns the newest round in which the members confirmed the present office, and before which
    /// everything appended is committed now; 0 without a lease. When that may have changed, the
    /// code that began the log is notified.
    fn round_over(&self, log: &dyn Tail) -> u64 {
        let _ = log;
        0
    }
}

/// End of the last append of one thread: written by its sink, read by the thread itself.
#[derive(Clone, Debug, Default)]
pub struct Appended(Arc<AtomicU64>);

impl Appended {
    /// Notes the end of an append.
    #[inline]
    pub fn note(&self, end: u64) {
        self.0.store(end, Ordering::Relaxed);
    }

    /// Returns the end of the last append.
    #[inline]
    #[must_use]
    pub fn end(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
