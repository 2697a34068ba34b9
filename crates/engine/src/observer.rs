//! What is observed about running commands: the slow and large ones, the keys they use, and the
//! clients that watch all commands. All workers share it. The logs are locked only to add an entry.
//!
//! A plain request costs nothing here: its batch is measured as a whole, and a batch that took less
//! time than [`Observer::alarm_ns`] contains no slow command. If limits are so low that a batch of
//! ordinary requests may reach them, requests are examined one by one
//! ([`Observer::looks_at_each`]).

mod audit;
mod big_keys;
mod browsers;
mod events;
mod hot_keys;
mod log;
mod monitors;
pub(crate) mod shown;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::spans::Spans;

pub use audit::{Audit, AuditFilter, AuditSink};
pub use big_keys::{BigKey, BigKeys};
pub use browsers::Browsers;
pub use events::{Event, Events, Sample, Series};
pub use hot_keys::{HotKey, HotKeyReport, HotKeys, REQUESTS_PER_SAMPLE};
pub use log::{Entry, Log, Shown};
pub use monitors::Monitors;

/// The subject of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Matter {
    /// A command that took long; values are microseconds.
    Slow,
    /// A long request; values are bytes.
    LargeRequest,
    /// A long reply; values are bytes.
    LargeReply,
}

impl Matter {
    /// All subjects, with their names in COMMANDLOG.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Slow, "slow"),
        (Self::LargeRequest, "large-request"),
        (Self::LargeReply, "large-reply"),
    ];
}

/// The measurements of a command that ran.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Its run time.
    pub ns: u64,
    /// Size of its request in bytes.
    pub request_bytes: usize,
    /// Size of its reply in bytes.
    pub reply_bytes: usize,
    /// Whether its row marks it as fast.
    pub is_fast: bool,
    /// Whether it is excluded from the logs.
    pub is_unlogged: bool,
    /// When it ended.
    pub now_unix_ms: u64,
}

/// The thresholds of the directives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Minimum value for each log; negative for never.
    pub least: [i64; 3],
    /// Maximum number of entries of each log.
    pub entries_max: [u64; 3],
    /// `latency-monitor-threshold`: events that took at least this many milliseconds are kept; 0
    /// for none.
    pub event_ms: u64,
    /// `latency-tracking`: whether every command's time goes into a histogram.
    pub tracks_latency: bool,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            least: [10_000, 1 << 20, 1 << 20],
            entries_max: [128; 3],
            event_ms: 0,
            tracks_latency: true,
        }
    }
}

/// Maximum time of a batch of short requests. If a batch takes longer, one request was slow, or the
/// machine was.
const BATCH_NS_MAX: u64 = 1_000_000;

/// Maximum size of a batch of requests that are each shorter than this.
const BATCH_BYTES_MAX: i64 = 512 * 1024;

/// See the module.
#[derive(Debug)]
pub struct Observer {
    least: [AtomicI64; 3],
    entries_max: [AtomicU64; 3],
    event_ms: AtomicU64,
    tracks_latency: AtomicBool,
    alarm_ns: AtomicU64,
    alarm_bytes: AtomicU64,
    is_low: AtomicBool,
    logs: [Mutex<Log>; 3],
    events: Mutex<Events>,
    /// The clients that see all commands.
    pub monitors: Monitors,
    /// The audit log: which user ran what.
    pub audit: Audit,
    /// The keys that are requested most.
    pub hot_keys: HotKeys,
    /// The keys that take most memory.
    pub big_keys: BigKeys,
    /// The clients that sent HTTP.
    pub browsers: Browsers,
    /// Spans of slow commands, for a collector.
    pub spans: Spans,
}

impl Default for Observer {
    fn default() -> Self {
        let observer = Self {
            least: Default::default(),
            entries_max: Default::default(),
            event_ms: AtomicU64::new(0),
            tracks_latency: AtomicBool::new(true),
            alarm_ns: AtomicU64::new(0),
            alarm_bytes: AtomicU64::new(0),
            is_low: AtomicBool::new(false),
            logs: Default::default(),
            events: Mutex::default(),
            monitors: Monitors::default(),
            audit: Audit::default(),
            hot_keys: HotKeys::default(),
            big_keys: BigKeys::default(),
            browsers: Browsers::default(),
            spans: Spans::default(),
        };
        observer.set_thresholds(&Thresholds::default());
        observer
    }
}

impl Observer {
    /// Sets the thresholds.
    pub fn set_thresholds(&self, thresholds: &Thresholds) {
        for (cell, least) in self.least.iter().zip(thresholds.least) {
            cell.store(least, Ordering::Relaxed);
        }
        for (cell, most) in self.entries_max.iter().zip(thresholds.entries_max) {
            cell.store(most, Ordering::Relaxed);
        }
        self.event_ms.store(thresholds.event_ms, Ordering::Relaxed);
        self.tracks_latency
            .store(thresholds.tracks_latency, Ordering::Relaxed);
        let [slow_us, request_bytes, reply_bytes] = thresholds
            .least
            .map(|least| u64::try_from(least).unwrap_or(u64::MAX));
        let event_ms = Some(thresholds.event_ms).filter(|ms| *ms > 0);
        let event_ns = event_ms.map_or(u64::MAX, |ms| ms.saturating_mul(1_000_000));
        let alarm_ns = slow_us.saturating_mul(1000).min(event_ns);
        let alarm_bytes = request_bytes.min(reply_bytes);
        self.alarm_ns.store(alarm_ns, Ordering::Relaxed);
        self.alarm_bytes.store(alarm_bytes, Ordering::Relaxed);
        let is_low = alarm_ns < BATCH_NS_MAX || alarm_bytes < BATCH_BYTES_MAX.unsigned_abs();
        self.is_low.store(is_low, Ordering::Relaxed);
    }

    /// Whether requests must be examined one by one.
    #[inline]
    #[must_use]
    pub fn looks_at_each(&self) -> bool {
        self.is_low.load(Ordering::Relaxed) || !self.monitors.is_empty() || self.audit.is_on()
    }

    /// Returns the maximum number of bytes of an argument that may be shown.
    pub(crate) fn argument_bytes_shown(&self) -> usize {
        if self.monitors.is_empty() {
            log::ARGUMENT_BYTES_MAX
        } else {
            usize::MAX
        }
    }

    /// Returns the time below which a batch contains nothing to report.
    #[inline]
    #[must_use]
    pub fn alarm_ns(&self) -> u64 {
        self.alarm_ns.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes below which a batch contains nothing to report.
    #[inline]
    #[must_use]
    pub fn alarm_bytes(&self) -> u64 {
        self.alarm_bytes.load(Ordering::Relaxed)
    }

    /// Whether every command's time goes into a histogram.
    #[inline]
    #[must_use]
    pub fn tracks_latency(&self) -> bool {
        self.tracks_latency.load(Ordering::Relaxed)
    }

    /// Returns `latency-monitor-threshold` in milliseconds, or 0 if events are not kept.
    #[must_use]
    pub fn event_ms(&self) -> u64 {
        self.event_ms.load(Ordering::Relaxed)
    }

    /// Logs a command that ran if it exceeds a threshold. `shown` describes its request and its
    /// client, and is called only if needed.
    #[cold]
    pub fn notice(&self, measured: &Measured, shown: impl Fn() -> Shown) {
        let us = measured.ns / 1000;
        let event_ms = self.event_ms();
        if event_ms > 0 && us / 1000 >= event_ms {
            let event = if measured.is_fast {
                Event::FastCommand
            } else {
                Event::Command
            };
            self.events()
                .add(event, measured.now_unix_ms / 1000, us / 1000);
        }
        if measured.is_unlogged {
            return;
        }
        let bytes = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        for (matter, value) in [
            (Matter::Slow, us),
            (Matter::LargeRequest, bytes(measured.request_bytes)),
            (Matter::LargeReply, bytes(measured.reply_bytes)),
        ] {
            let least = self.least[matter as usize].load(Ordering::Relaxed);
            if u64::try_from(least).is_ok_and(|least| value >= least) {
                if matter == Matter::Slow {
                    let ended_unix_us = measured.now_unix_ms * 1000;
                    self.spans
                        .add_command(ended_unix_us, || shown().span(ended_unix_us, us));
                }
                let entries_max = self.entries_max[matter as usize].load(Ordering::Relaxed);
                let seconds = measured.now_unix_ms / 1000;
                self.log(matter).add(seconds, value, shown(), entries_max);
            }
        }
    }

    /// Returns the log of a subject, locked.
    pub fn log(&self, matter: Matter) -> MutexGuard<'_, Log> {
        let log = &self.logs[matter as usize];
        log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the latency monitor's events, locked.
    pub fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(ns: u64) -> Measured {
        Measured {
            ns,
            request_bytes: 10,
            reply_bytes: 2_000_000,
            is_fast: true,
            is_unlogged: false,
            now_unix_ms: 5_000,
        }
    }

    #[test]
    fn every_matter_has_a_log_and_a_threshold() {
        let observer = Observer::default();
        observer.notice(&measured(9_999_999), Shown::default);
        observer.notice(&measured(10_000_000), Shown::default);
        let len = |matter| observer.log(matter).len();
        let lens = Matter::ALL.map(|(matter, _)| len(matter));
        assert_eq!(lens, [1, 0, 2]);
        assert!(observer.events().latest().is_empty());
        observer.set_thresholds(&Thresholds {
            least: [-1; 3],
            event_ms: 5,
            ..Thresholds::default()
        });
        observer.notice(&measured(10_000_000), Shown::default);
        assert_eq!(Matter::ALL.map(|(matter, _)| len(matter)), lens);
        assert_eq!(observer.events().latest().len(), 1);
    }

    #[test]
    fn low_thresholds_make_it_look_at_each() {
        let observer = Observer::default();
        assert!(!observer.looks_at_each());
        for least in [[0, -1, -1], [500, -1, -1], [-1, 100, -1], [-1, -1, 100]] {
            observer.set_thresholds(&Thresholds {
                least,
                ..Thresholds::default()
            });
            assert!(observer.looks_at_each(), "{least:?}");
        }
        observer.set_thresholds(&Thresholds {
            least: [-1; 3],
            ..Thresholds::default()
        });
        assert!(!observer.looks_at_each());
        assert_eq!(observer.alarm_ns(), u64::MAX);
    }
}
