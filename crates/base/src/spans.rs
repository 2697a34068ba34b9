//! Spans: what took how long, and when it began. The code that does something notes its span at the
//! end; the exporter takes spans and sends them to a collector.
//!
//! If no exporter takes spans, none are kept: noting one costs one load. The number of kept spans
//! has a bound. Spans beyond it are only counted, so that a collector that is down costs no more.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::Clock;

/// Maximum number of spans that wait to be taken.
pub const SPANS_MAX: usize = 1_024;
/// Maximum number of commands kept per second.
const COMMANDS_PER_SECOND_MAX: u32 = 100;

/// Something that has ended. Times are in microseconds since 1970 UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// What was done.
    pub name: String,
    /// When it began.
    pub begun_unix_us: u64,
    /// When it ended.
    pub ended_unix_us: u64,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// Further facts about it.
    pub attributes: Vec<(&'static str, String)>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Spans {
    is_on: AtomicBool,
    kept: Mutex<Kept>,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    spans: VecDeque<Span>,
    /// The second in which commands were noted last, and their number.
    commands: (u64, u32),
}

impl Spans {
    /// Sets whether an exporter takes spans. Drops the kept spans if none does.
    pub fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
        if !is_on {
            self.lock().spans.clear();
        }
    }

    /// Whether an exporter takes spans.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Notes something that began at `begun_unix_us` and ends now, with its result and further
    /// attributes.
    pub fn note(
        &self,
        name: &str,
        begun_unix_us: u64,
        clock: &dyn Clock,
        ended: Result<(), &dyn fmt::Display>,
        attributes: &[(&'static str, &dyn fmt::Display)],
    ) {
        self.add(|| Span {
            name: name.to_owned(),
            begun_unix_us,
            ended_unix_us: clock.now_unix_us(),
            failure: ended.err().map(ToString::to_string),
            attributes: attributes
                .iter()
                .map(|(name, value)| (*name, value.to_string()))
                .collect(),
        });
    }

    /// Notes something that has ended; `span` is called only if spans are kept.
    pub fn add(&self, span: impl FnOnce() -> Span) {
        if self.is_on() {
            self.keep(&mut self.lock(), span);
        }
    }

    /// Notes a command that took long and ended at that time. At most `COMMANDS_PER_SECOND_MAX`
    /// per second are kept.
    pub fn add_command(&self, ended_unix_us: u64, span: impl FnOnce() -> Span) {
        if !self.is_on() {
            return;
        }
        let mut kept = self.lock();
        let second = ended_unix_us / 1_000_000;
        if kept.commands.0 != second {
            kept.commands = (second, 0);
        }
        if kept.commands.1 < COMMANDS_PER_SECOND_MAX {
            kept.commands.1 += 1;
            self.keep(&mut kept, span);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn keep(&self, kept: &mut Kept, span: impl FnOnce() -> Span) {
        if kept.spans.len() < SPANS_MAX {
            kept.spans.push_back(span());
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the noted spans, oldest first.
    #[must_use]
    pub fn take(&self) -> Vec<Span> {
        self.lock().spans.drain(..).collect()
    }

    /// Returns the number of spans that were not kept.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(ended_unix_us: u64) -> Span {
        Span {
            name: "checkpoint".to_owned(),
            begun_unix_us: 1,
            ended_unix_us,
            failure: None,
            attributes: Vec::new(),
        }
    }

    #[test]
    fn what_nobody_takes_is_not_kept() {
        let spans = Spans::default();
        spans.add(|| unreachable!("nobody takes it"));
        spans.set_on(true);
        spans.add(|| span(5));
        spans.add(|| span(6));
        let taken = spans.take();
        assert_eq!(taken.iter().map(|it| it.ended_unix_us).sum::<u64>(), 11);
        spans.add(|| span(7));
        spans.set_on(false);
        assert_eq!((spans.take().len(), spans.dropped()), (0, 0));
    }

    #[test]
    fn there_is_a_bound() {
        let spans = Spans::default();
        spans.set_on(true);
        for _ in 0..SPANS_MAX + 3 {
            spans.add(|| span(5));
        }
        assert_eq!((spans.take().len(), spans.dropped()), (SPANS_MAX, 3));
    }

    #[test]
    fn a_second_has_so_many_commands() {
        let spans = Spans::default();
        spans.set_on(true);
        for at in [1_000_000, 1_999_999, 2_000_000] {
            for _ in 0..60 {
                spans.add_command(at, || span(at));
            }
        }
        assert_eq!((spans.take().len(), spans.dropped()), (160, 20));
    }
}
