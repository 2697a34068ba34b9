//! The end of the log, as those see it whose replies wait for it.
//!
//! Positions are bytes since the log was begun. What is below [`Tail::written`] is in the kernel and
//! outlives this process; what is below [`Tail::durable`] is on disk and outlives the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use store::EffectSink;

/// The position of everything that was written before a log was begun: it is durable as soon as the log
/// counts, whatever is in that.
pub const BEFORE_LOG: u64 = 1;

/// A log that is written to; any thread may ask.
pub trait Tail: Send + Sync {
    /// Behind what was appended last, by whichever thread.
    fn tail(&self) -> u64;

    /// Up to where it is in the kernel. Falls back when a file fails.
    fn written(&self) -> u64;

    /// Up to where it is on disk. Never falls. Whenever it rises, and when a fault begins or ends, the log
    /// says so to whoever began it.
    fn durable(&self) -> u64;

    /// Whether anything of it is kept: a log in memory is for replicas alone, and nothing waits for it.
    fn is_kept(&self) -> bool {
        true
    }

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

    /// Whether so little waits to be on disk that more may be written. `now_ns` is the monotonic time, of now
    /// or not long ago.
    fn has_room(&self, now_ns: u64) -> bool;

    /// What one thread's effects go to; it notes in `appended` where they end.
    fn sink(self: Arc<Self>, appended: &Appended) -> Box<dyn EffectSink>;
}

/// What a majority of the copies has of the log, where a control group decides who is the primary.
pub trait Majority: Send + Sync {
    /// The term in which this node is the primary; 0 for none.
    fn office(&self) -> u64;

    /// Whether all replies wait until what they show is on a majority.
    fn holds_replies(&self) -> bool;

    /// Up to where replies may leave now: what is committed in the present office while its lease stands, and nothing
    /// otherwise. Whenever it rises, whoever began the log is told.
    fn released(&self, log: &dyn Tail) -> u64;

    /// Whether replies cannot leave because the lease of the present office is over, or the members do not confirm it.
    fn is_lapsed(&self) -> bool;

    /// So long replies wait though nothing more is committed, in milliseconds.
    fn patience_ms(&self) -> u64 {
        u64::MAX
    }

    /// Whether the members have to confirm the present office, too, in a round that begins after what is answered was
    /// looked at (`quorum-reads confirm`).
    fn confirms(&self) -> bool {
        false
    }

    /// The number of a round of the members that begins after this call. Numbers never fall.
    fn next_round(&self, log: &dyn Tail) -> u64 {
        let _ = log;
        0
    }

    /// The newest round in which the members confirmed the present office, and before which nothing was appended that is not
    /// committed now; 0 without a lease. Whoever began the log is told when that may have changed.
    fn round_over(&self, log: &dyn Tail) -> u64 {
        let _ = log;
        0
    }
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
