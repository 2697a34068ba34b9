//! The end of the log, as those see it whose replies wait for it.
//!
//! Positions are bytes since the log was begun. What is below [`Tail::written`] is in the kernel and
//! outlives this process; what is below [`Tail::durable`] is on disk and outlives the machine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// Why there is none where one is wanted.
    missing: Mutex<Option<String>>,
    version: AtomicU64,
    takers: Mutex<Vec<Arc<Taker>>>,
}

/// One thread that changes the store, as far as it concerns which log it states effects to.
#[derive(Debug, Default)]
pub struct Taker {
    /// The log that was taken up last.
    version: AtomicU64,
    /// It changes nothing before it has looked for another log.
    is_idle: AtomicBool,
}

impl Taker {
    /// Which log was taken up last.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Notes that effects go to this log from now on.
    pub fn take_up(&self, version: u64) {
        self.version.store(version, Ordering::SeqCst);
    }

    /// Says that the thread changes nothing before it has looked for another log. It has to take that back
    /// before it looks.
    pub fn set_idle(&self, on: bool) {
        self.is_idle.store(on, Ordering::SeqCst);
    }
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

    /// Why nothing can be kept in the log, or in none, if that is so.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.get()
            .map_or_else(|| self.missing().clone(), |log| log.fault())
    }

    /// Says why there is no log though one is wanted, or that none is wanted, until another is used or none.
    pub fn set_missing(&self, reason: Option<&str>) {
        *self.missing() = reason.map(str::to_owned);
    }

    fn missing(&self) -> MutexGuard<'_, Option<String>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often it was changed.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// A new taker, which has taken up no log.
    #[must_use]
    pub fn join(&self) -> Arc<Taker> {
        let taker = Arc::<Taker>::default();
        self.takers().push(Arc::clone(&taker));
        taker
    }

    /// Whether everybody who changes the store states effects to the log that is in use.
    #[must_use]
    pub fn is_taken_up(&self) -> bool {
        let version = self.version();
        self.takers().iter().all(|taker| {
            // In this order: who is idle looks after it has said that it is no more.
            taker.is_idle.load(Ordering::SeqCst) || taker.version.load(Ordering::SeqCst) == version
        })
    }

    fn takers(&self) -> MutexGuard<'_, Vec<Arc<Taker>>> {
        self.takers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses another log, or none.
    pub fn set(&self, log: Option<Arc<dyn Tail>>) {
        self.set_missing(None);
        let mut place = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_there.store(log.is_some(), Ordering::Release);
        *place = log;
        self.version.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_taken_up_when_nobody_states_effects_elsewhere() {
        let in_use = LogInUse::default();
        let (busy, idle) = (in_use.join(), in_use.join());
        idle.set_idle(true);
        assert!(in_use.is_taken_up());
        in_use.set(None);
        assert!(!in_use.is_taken_up());
        busy.take_up(in_use.version());
        assert!(
            in_use.is_taken_up(),
            "who is idle looks before it changes anything"
        );
        idle.set_idle(false);
        assert!(!in_use.is_taken_up());
        idle.take_up(in_use.version());
        assert!(in_use.is_taken_up());
    }
}
