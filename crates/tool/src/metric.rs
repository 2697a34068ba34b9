//! Compared figures of a run, and their comparison: the median of the ratios of runs that were
//! adjacent in time, which cancels other load on the machine.

use crate::record::Run;
use crate::units::{short_count, short_duration};

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Requests answered per second.
    Throughput,
    /// Processor time of the server per request.
    ServerCpu,
    /// Median latency.
    P50,
    /// 99th percentile of latencies.
    P99,
    /// 99.9th percentile of latencies.
    P999,
}

/// The comparison of a server with another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The median of the ratios of adjacent runs; above 1 is better.
    pub median: f64,
    /// The smallest of them.
    pub low: f64,
    /// The greatest of them.
    pub high: f64,
}

impl Metric {
    /// All metrics, in the order of tables.
    pub const ALL: [Self; 5] = [
        Self::Throughput,
        Self::ServerCpu,
        Self::P50,
        Self::P99,
        Self::P999,
    ];

    /// Returns the heading.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Throughput => "requests/s",
            Self::ServerCpu => "CPU/request",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
        }
    }

    /// Returns the figure of a run, durations in nanoseconds, or `None` if it was not measured.
    #[must_use]
    pub fn of(self, run: &Run) -> Option<f64> {
        let outcome = &run.outcome;
        let quantile = |share| Some(outcome.latency.quantile_ns(share) as f64);
        match self {
            Self::Throughput => Some(outcome.requests_per_second()),
            Self::ServerCpu => outcome.server_ns_per_request(),
            Self::P50 => quantile(0.5),
            Self::P99 => quantile(0.99),
            Self::P999 => quantile(0.999),
        }
    }

    /// Formats a figure for people.
    #[must_use]
    pub fn show(self, figure: f64) -> String {
        match self {
            Self::Throughput => short_count(figure),
            _ => short_duration(figure),
        }
    }

    /// Returns the median of the figure over `runs`.
    #[must_use]
    pub fn median<'a>(self, runs: impl Iterator<Item = &'a Run>) -> Option<f64> {
        median(runs.filter_map(|run| self.of(run)).collect())
    }

    /// Compares `server` with `base` over `runs` of one workload.
    #[must_use]
    pub fn ratio<'a>(
        self,
        runs: impl Iterator<Item = &'a Run> + Clone,
        server: &str,
        base: &str,
    ) -> Option<Ratio> {
        let in_round = |name: &str, round: u64| {
            let mut runs = runs.clone();
            let run = runs.find(|run| run.server == name && run.round == round)?;
            self.of(run).filter(|figure| *figure > 0.0)
        };
        let rounds = runs
            .clone()
            .filter(|run| run.server == server)
            .map(|run| run.round);
        let ratios: Vec<f64> = rounds
            .filter_map(|round| in_round(server, round).zip(in_round(base, round)))
            .map(|(this, base)| {
                if self == Self::Throughput {
                    this / base
                } else {
                    base / this
                }
            })
            .collect();
        Some(Ratio {
            low: ratios.iter().copied().reduce(f64::min)?,
            high: ratios.iter().copied().reduce(f64::max)?,
            median: median(ratios)?,
        })
    }
}

/// Returns the middle of the sorted figures, or the mean of the two middle ones; `None` without
/// figures.
#[must_use]
pub(crate) fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let upper = *figures.get(figures.len() / 2)?;
    let lower = *figures.get((figures.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Outcome, Used};

    fn run(server: &str, round: u64, cpu_ns: u64) -> Run {
        let used = Used {
            cpu_ns,
            ..Used::default()
        };
        Run {
            server: server.to_owned(),
            round,
            outcome: Outcome {
                requests: 100,
                wall_ns: 1_000_000_000,
                server: Some(used),
                ..Outcome::default()
            },
            ..Run::default()
        }
    }

    #[test]
    fn ratios_are_of_neighbours_not_of_medians() {
        let runs = [
            run("a", 0, 100),
            run("b", 0, 50),
            run("b", 1, 100),
            run("a", 1, 300),
            run("a", 2, 1_000),
            run("b", 2, 250),
        ];
        let ratio = Metric::ServerCpu.ratio(runs.iter(), "b", "a").unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (2.0, 3.0, 4.0));
        assert_eq!(Metric::ServerCpu.ratio(runs.iter(), "b", "c"), None);
        let throughput = Metric::Throughput.ratio(runs.iter(), "b", "a").unwrap();
        assert!((throughput.median - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_median_of_an_even_count_is_between() {
        assert_eq!(median(vec![4.0, 1.0, 2.0, 9.0]), Some(3.0));
        assert_eq!(median(Vec::new()), None);
    }
}
