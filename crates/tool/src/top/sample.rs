//! A sample of a server: INFO's fields, with the time of the request.

use std::collections::BTreeMap;

use base::clock::Clock;

use crate::endpoint::Session;
use crate::error::BenchError;

/// A server's report.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// Time of the sample by this machine's clock; 0 for the start of the server.
    pub(super) at_ns: u64,
    pub(super) fields: BTreeMap<String, String>,
    pub(super) commands: BTreeMap<String, CommandStat>,
}

/// A server's counts for a command since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CommandStat {
    pub(super) calls: u64,
    pub(super) busy_us: u64,
    pub(super) failed: u64,
    /// Percentiles 50, 99 and 99.9 since the start, or `None` if they are not counted.
    pub(super) percentiles_us: Option<[f64; 3]>,
}

impl Sample {
    /// Takes a sample from a server.
    pub(super) fn take(session: &mut Session, clock: &dyn Clock) -> Result<Self, BenchError> {
        let mut text = session.info("default")?;
        text.push_str(&session.info("commandstats")?);
        text.push_str(&session.info("latencystats")?);
        let mut sample = Self::read(&text);
        sample.at_ns = clock.monotonic_ns();
        Ok(sample)
    }

    pub(super) fn read(text: &str) -> Self {
        let mut sample = Self::default();
        for (name, value) in text
            .lines()
            .filter_map(|line| line.trim_end().split_once(':'))
        {
            if let Some(command) = name.strip_prefix("cmdstat_") {
                let stat = sample.commands.entry(command.to_owned()).or_default();
                stat.calls = whole(value, "calls");
                stat.busy_us = whole(value, "usec");
                stat.failed = whole(value, "failed_calls") + whole(value, "rejected_calls");
            } else if let Some(command) = name.strip_prefix("latency_percentiles_usec_") {
                let of = |name| part(value, name).and_then(|text| text.parse().ok());
                let stat = sample.commands.entry(command.to_owned()).or_default();
                stat.percentiles_us = (|| Some([of("p50")?, of("p99")?, of("p99.9")?]))();
            } else {
                sample.fields.insert(name.to_owned(), value.to_owned());
            }
        }
        sample
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> f64 {
        self.text(name).trim_end_matches('%').parse().unwrap_or(0.0)
    }

    /// Returns the number of keys in all databases.
    pub(super) fn keys(&self) -> u64 {
        let databases = self.fields.iter().filter(|(name, _)| {
            name.strip_prefix("db")
                .is_some_and(|number| number.parse::<u32>().is_ok())
        });
        databases.map(|(_, value)| whole(value, "keys")).sum()
    }
}

/// Returns a part of `name=value,name=value`.
pub(super) fn part<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .find_map(|(own, value)| (own == name).then_some(value))
}

fn whole(text: &str, name: &str) -> u64 {
    part(text, name)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}
