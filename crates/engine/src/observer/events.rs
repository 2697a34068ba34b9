//! The latency monitor (LATENCY): when something took longer than `latency-monitor-threshold`, by
//! kind of event. A ring keeps the last [`SAMPLES_MAX`] seconds in which it happened, each with its
//! maximum.

use std::collections::VecDeque;

/// Number of seconds of an event that are kept.
const SAMPLES_MAX: usize = 160;

/// A kind of event that took long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Event {
    /// A command that is not marked as fast.
    Command,
    /// A command that is marked as fast.
    FastCommand,
}

impl Event {
    const ALL: [(Self, &'static str); 2] = [
        (Self::Command, "command"),
        (Self::FastCommand, "fast-command"),
    ];

    /// Returns its name in LATENCY.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// The maximum of one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The second, since 1970 UTC.
    pub unix_s: u64,
    /// The longest time in that second.
    pub ms: u64,
}

/// The samples of one kind of event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Oldest first.
    pub samples: VecDeque<Sample>,
    /// The maximum since the last reset.
    pub worst_ms: u64,
}

/// All kinds of events.
#[derive(Debug, Default)]
pub struct Events([Series; Event::ALL.len()]);

impl Events {
    /// Adds an event that happened now.
    pub fn add(&mut self, event: Event, unix_s: u64, ms: u64) {
        let series = &mut self.0[event as usize];
        series.worst_ms = series.worst_ms.max(ms);
        if let Some(last) = series.samples.back_mut()
            && last.unix_s == unix_s
        {
            last.ms = last.ms.max(ms);
            return;
        }
        if series.samples.len() == SAMPLES_MAX {
            series.samples.pop_front();
        }
        series.samples.push_back(Sample { unix_s, ms });
    }

    /// Returns the events that happened, each with its name and last sample.
    #[must_use]
    pub fn latest(&self) -> Vec<(&'static str, Sample, &Series)> {
        let named = Event::ALL.iter().zip(&self.0);
        let latest = named.filter_map(|((_, name), series)| {
            let last = series.samples.back()?;
            Some((*name, *last, series))
        });
        latest.collect()
    }

    /// Returns the samples of the event with this name, or `None` if it never happened.
    #[must_use]
    pub fn named(&self, name: &[u8]) -> Option<(&'static str, &Series)> {
        let found = self.latest().into_iter();
        let mut found = found.filter(|(known, ..)| known.as_bytes() == name);
        found.next().map(|(name, _, series)| (name, series))
    }

    /// Forgets the events with these names, or all events if no names are given. Returns how many
    /// were known.
    pub fn reset(&mut self, names: &[&[u8]]) -> usize {
        let mut count = 0;
        for ((_, name), series) in Event::ALL.iter().zip(&mut self.0) {
            let is_meant = names.is_empty() || names.contains(&name.as_bytes());
            if is_meant && !series.samples.is_empty() {
                *series = Series::default();
                count += 1;
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_keeps_its_worst() {
        let mut events = Events::default();
        for (unix_s, ms) in [(1, 5), (1, 9), (1, 7), (2, 6)] {
            events.add(Event::Command, unix_s, ms);
        }
        let (name, series) = events.named(b"command").unwrap();
        assert_eq!((name, series.worst_ms), ("command", 9));
        let samples: Vec<_> = series.samples.iter().map(|it| (it.unix_s, it.ms)).collect();
        assert_eq!(samples, [(1, 9), (2, 6)]);
        assert!(events.named(b"fast-command").is_none());
        assert_eq!(events.reset(&[b"fast-command"]), 0);
        assert_eq!(events.reset(&[]), 1);
        assert!(events.latest().is_empty());
    }

    #[test]
    fn the_oldest_seconds_are_forgotten() {
        let mut events = Events::default();
        for unix_s in 0..1000 {
            events.add(Event::FastCommand, unix_s, 1);
        }
        let (_, series) = events.named(b"fast-command").unwrap();
        assert_eq!(series.samples.len(), SAMPLES_MAX);
        assert_eq!(series.samples[0].unix_s, 1000 - SAMPLES_MAX as u64);
    }
}
