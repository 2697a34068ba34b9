//! Statistics of commands: INFO commandstats, errorstats and latencystats.

use engine::{CommandIndex, RowCounts};

use super::metrics::{Metric, MetricKind};
use super::row::described;
use super::row::{Family, Item};
use super::sample::Sample;

/// Maximum number of commands that metrics distinguish: no table is longer.
const COMMANDS_MAX: usize = 400;
/// Bounds of the histograms, as powers of two of nanoseconds: those of LATENCY HISTOGRAM.
const LIMIT_BITS: std::ops::RangeInclusive<u32> = 10..=35;

pub(super) const CALLS: &[Item] = &[Item::Family(Family {
    info: "cmdstat_<command>",
    help: "Calls, microseconds, refusals and failures of a command that was called.",
    lines: call_lines,
    described: &[
        described(
            "redis_commands_total",
            "counter",
            "cmd",
            "Calls of a command.",
        ),
        described(
            "redis_commands_duration_seconds_total",
            "counter",
            "cmd",
            "Time that a command took.",
        ),
        described(
            "redis_commands_rejected_calls_total",
            "counter",
            "cmd",
            "Calls that were refused before they ran.",
        ),
        described(
            "redis_commands_failed_calls_total",
            "counter",
            "cmd",
            "Calls that ran and answered an error.",
        ),
    ],
    metrics: call_metrics,
})];

pub(super) const ERRORS: &[Item] = &[Item::Family(Family {
    info: "errorstat_<word>",
    help: "Error replies that begin with a word.",
    lines: |sample, show| {
        for (code, count) in &sample.counts().errors {
            show(&format!("errorstat_{code}"), &format!("count={count}"));
        }
    },
    described: &[described(
        "redis_errors_total",
        "counter",
        "err",
        "Error replies that begin with a word.",
    )],
    metrics: error_metrics,
})];

pub(super) const LATENCIES: &[Item] = &[Item::Family(Family {
    info: "latency_percentiles_usec_<command>",
    help: "Percentiles of a command's time (latency-tracking-info-percentiles).",
    lines: latency_lines,
    described: &[
        described(
            "redis_latency_percentiles_usec",
            "summary",
            "cmd, quantile",
            "Percentiles of a command's time.",
        ),
        described(
            "redis_commands_latencies_usec",
            "histogram",
            "cmd, le",
            "How many calls of a command took up to so many microseconds.",
        ),
    ],
    metrics: latency_metrics,
})];

/// Returns every command that was called or refused, with its counts.
fn called<'a>(sample: &'a Sample<'_>) -> impl Iterator<Item = (CommandIndex, &'a RowCounts)> {
    let all = (0..).zip(&sample.counts().rows);
    all.filter(|(_, counts)| counts.calls + counts.rejected > 0)
}

#[allow(clippy::cast_precision_loss, reason = "shown with two digits")]
fn call_lines(sample: &Sample<'_>, show: &mut dyn FnMut(&str, &str)) {
    for (index, counters) in called(sample) {
        let name = sample.command(index);
        show(
            &format!("cmdstat_{name}"),
            &format!(
                "calls={},usec={},usec_per_call={:.2},rejected_calls={},failed_calls={}",
                counters.calls,
                counters.ns / 1000,
                microseconds(counters.ns) / counters.calls.max(1) as f64,
                counters.rejected,
                counters.failed
            ),
        );
    }
}

/// Reads a metric's value from a command's counts.
type Shown = fn(&RowCounts) -> f64;

#[allow(clippy::cast_precision_loss, reason = "what metrics are made of")]
fn call_metrics(sample: &Sample<'_>, metrics: &mut Vec<Metric>) {
    let shown: [(&str, &str, &str, Shown); 4] = [
        (
            "redis_commands_total",
            "redis.cmd.calls",
            "Calls of a command.",
            |of| of.calls as f64,
        ),
        (
            "redis_commands_duration_seconds_total",
            "iolite.cmd.duration",
            "Time that a command took.",
            |of| (of.ns / 1000) as f64 / 1e6,
        ),
        (
            "redis_commands_rejected_calls_total",
            "iolite.cmd.rejected",
            "Calls that were refused before they ran.",
            |of| of.rejected as f64,
        ),
        (
            "redis_commands_failed_calls_total",
            "iolite.cmd.failed",
            "Calls that ran and answered an error.",
            |of| of.failed as f64,
        ),
    ];
    for (name, otel, help, value) in shown {
        let mut metric = Metric::new(name, MetricKind::Counter, help);
        metric.otel = Some(otel.to_owned());
        for (index, counts) in called(sample).take(COMMANDS_MAX) {
            metric.add("", &[("cmd", &sample.command(index))], value(counts));
        }
        metrics.push(metric);
    }
}

#[allow(clippy::cast_precision_loss, reason = "what metrics are made of")]
fn error_metrics(sample: &Sample<'_>, metrics: &mut Vec<Metric>) {
    let help = "Error replies that begin with a word.";
    let mut metric = Metric::new("redis_errors_total", MetricKind::Counter, help);
    metric.otel = Some("iolite.errors".to_owned());
    for (code, count) in &sample.counts().errors {
        metric.add("", &[("err", code)], *count as f64);
    }
    metrics.push(metric);
}

fn latency_lines(sample: &Sample<'_>, show: &mut dyn FnMut(&str, &str)) {
    if sample.config.percentiles.is_empty() {
        return;
    }
    for (index, histogram) in sample.node.latencies().0 {
        let shown = sample.config.percentiles.iter().map(|percent| {
            let ns = histogram.percentile_ns(percent.parse().unwrap_or(0.0));
            format!("p{percent}={:.3}", microseconds(ns))
        });
        let shown: Vec<String> = shown.collect();
        let name = format!("latency_percentiles_usec_{}", sample.command(index));
        show(&name, &shown.join(","));
    }
}

#[allow(clippy::cast_precision_loss, reason = "what metrics are made of")]
fn latency_metrics(sample: &Sample<'_>, metrics: &mut Vec<Metric>) {
    let help = "Percentiles of a command's time.";
    let mut summary = Metric::new("redis_latency_percentiles_usec", MetricKind::Summary, help);
    let help = "How many calls of a command took up to so many microseconds.";
    let mut all = Metric::new("redis_commands_latencies_usec", MetricKind::Histogram, help);
    all.otel = Some("redis.cmd.latency".to_owned());
    all.unit = "us";
    for (index, histogram) in sample.node.latencies().0.iter().take(COMMANDS_MAX) {
        let name = sample.command(*index);
        let counts = sample.counts().rows.get(usize::from(*index));
        let sum_us = counts.map_or(0.0, |counts| (counts.ns / 1000) as f64);
        let calls = counts.map_or(0, |counts| counts.calls);
        for percent in &sample.config.percentiles {
            let ns = histogram.percentile_ns(percent.parse().unwrap_or(0.0));
            let labels = [("cmd", name.as_str()), ("quantile", percent.as_str())];
            summary.add("", &labels, microseconds(ns));
        }
        summary.add("_sum", &[("cmd", &name)], sum_us);
        summary.add("_count", &[("cmd", &name)], calls as f64);
        for bits in LIMIT_BITS {
            let limit_us = ((1_u64 << bits) + (1_u64 << (bits - 7)) - 1) / 1000;
            let labels = [("cmd", name.as_str()), ("le", &limit_us.to_string())];
            all.add("_bucket", &labels, histogram.shorter_than(bits) as f64);
        }
        let count = histogram.count() as f64;
        all.add("_bucket", &[("cmd", &name), ("le", "+Inf")], count);
        all.add("_sum", &[("cmd", &name)], sum_us);
        all.add("_count", &[("cmd", &name)], count);
    }
    metrics.extend([summary, all]);
}

#[allow(clippy::cast_precision_loss, reason = "shown with three digits")]
fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1000.0
}
