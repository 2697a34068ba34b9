//! The history: some series, an hour by second and a day by minute, with the latencies of commands
//! in each frame.

use std::collections::VecDeque;

use base::metrics::Metric;
use serde_json::{Value as Json, json};

use crate::limits::{MINUTES_KEPT, SECONDS_KEPT};
use crate::ports::Section;

/// The way in which a series is computed from a value of INFO.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    /// The value itself.
    AsIs,
    /// The value's increase per second.
    Rate,
}

/// Name, value of INFO, computation.
const SERIES: &[(&str, &str, Made)] = &[
    ("ops", "total_commands_processed", Made::Rate),
    ("hits", "keyspace_hits", Made::Rate),
    ("misses", "keyspace_misses", Made::Rate),
    ("bytes_in", "total_net_input_bytes", Made::Rate),
    ("bytes_out", "total_net_output_bytes", Made::Rate),
    ("expired", "expired_keys", Made::Rate),
    ("evicted", "evicted_keys", Made::Rate),
    ("connections", "total_connections_received", Made::Rate),
    ("rejected", "rejected_connections", Made::Rate),
    ("errors", "total_error_replies", Made::Rate),
    ("denied_logins", "acl_access_denied_auth", Made::Rate),
    ("busy_us", "eventloop_duration_sum", Made::Rate),
    ("cpu_sys", "used_cpu_sys", Made::Rate),
    ("cpu_user", "used_cpu_user", Made::Rate),
    ("repl_in", "total_net_repl_input_bytes", Made::Rate),
    ("repl_out", "total_net_repl_output_bytes", Made::Rate),
    ("turns", "eventloop_cycles", Made::Rate),
    ("clients", "connected_clients", Made::AsIs),
    ("blocked", "blocked_clients", Made::AsIs),
    ("pubsub", "pubsub_clients", Made::AsIs),
    ("tracking", "tracking_clients", Made::AsIs),
    ("used_memory", "used_memory", Made::AsIs),
    ("rss", "used_memory_rss", Made::AsIs),
    ("dataset", "used_memory_dataset", Made::AsIs),
    ("clients_memory", "mem_clients_normal", Made::AsIs),
    ("log_memory", "mem_aof_buffer", Made::AsIs),
    ("maxmemory", "maxmemory", Made::AsIs),
    ("changes", "rdb_changes_since_last_save", Made::AsIs),
    ("log_held", "aof_buffer_length", Made::AsIs),
    ("log_size", "aof_current_size", Made::AsIs),
    ("checkpoint", "current_fork_perc", Made::AsIs),
    ("replicas", "connected_slaves", Made::AsIs),
    ("workers", "worker_threads", Made::AsIs),
    ("uptime", "uptime_in_seconds", Made::AsIs),
    ("keys", "keys", Made::AsIs),
];
/// Number of latency buckets: LATENCY HISTOGRAM's first to last, and one beyond.
const ROWS: usize = 27;

/// One second, or the mean of one minute.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    unix_s: u64,
    values: Vec<f32>,
    latency: [u32; ROWS],
}

/// All frames.
#[derive(Default)]
pub(crate) struct History {
    seconds: VecDeque<Frame>,
    minutes: VecDeque<Frame>,
    counted: Option<Counted>,
}

/// The counters at one moment.
struct Counted {
    values: Vec<f64>,
    latency: [f64; ROWS],
}

impl History {
    /// Takes the current values, one second after the previous ones, and returns the frame of that
    /// second.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "shown on a screen"
    )]
    pub(crate) fn take(
        &mut self,
        unix_s: u64,
        info: &[Section],
        metrics: &[Metric],
    ) -> Option<Json> {
        let now = Counted {
            values: read(info),
            latency: latency(metrics),
        };
        let before = self.counted.replace(now)?;
        let now = self.counted.as_ref()?;
        let made = SERIES.iter().zip(now.values.iter().zip(&before.values));
        let values = made.map(|((_, _, made), (now, before))| match made {
            Made::AsIs => *now as f32,
            Made::Rate => (now - before).max(0.0) as f32,
        });
        let mut rows = [0; ROWS];
        for (row, (now, before)) in rows.iter_mut().zip(now.latency.iter().zip(&before.latency)) {
            *row = (now - before).max(0.0) as u32;
        }
        let frame = Frame {
            unix_s,
            values: values.collect(),
            latency: rows,
        };
        let shown = frame.json();
        keep(&mut self.seconds, frame, SECONDS_KEPT);
        if unix_s.is_multiple_of(60) {
            self.take_minute(unix_s);
        }
        Some(shown)
    }

    #[allow(clippy::cast_precision_loss, reason = "shown on a screen")]
    fn take_minute(&mut self, unix_s: u64) {
        let last: Vec<&Frame> = self.seconds.iter().rev().take(60).collect();
        let count = last.len().max(1) as f32;
        let mut values = vec![0.0; SERIES.len()];
        let mut rows = [0_u32; ROWS];
        for frame in last {
            values
                .iter_mut()
                .zip(&frame.values)
                .for_each(|(sum, value)| *sum += value / count);
            rows.iter_mut()
                .zip(&frame.latency)
                .for_each(|(sum, row)| *sum = sum.saturating_add(*row));
        }
        let frame = Frame {
            unix_s,
            values,
            latency: rows,
        };
        keep(&mut self.minutes, frame, MINUTES_KEPT);
    }

    /// Returns the last frames, by second or by minute.
    pub(crate) fn last(&self, count: usize, by_minute: bool) -> Json {
        let frames = if by_minute {
            &self.minutes
        } else {
            &self.seconds
        };
        let skipped = frames.len().saturating_sub(count);
        let frames: Vec<Json> = frames.iter().skip(skipped).map(Frame::json).collect();
        let names: Vec<&str> = SERIES.iter().map(|(name, ..)| *name).collect();
        json!({"series": names, "step_s": if by_minute { 60 } else { 1 }, "frames": frames})
    }
}

fn keep(frames: &mut VecDeque<Frame>, frame: Frame, count: usize) {
    while frames.len() >= count {
        frames.pop_front();
    }
    frames.push_back(frame);
}

impl Frame {
    fn json(&self) -> Json {
        json!({"t": self.unix_s, "v": self.values, "l": self.latency})
    }
}

/// Returns the value of each series before the rate is computed.
fn read(info: &[Section]) -> Vec<f64> {
    let fields = || info.iter().flat_map(|section| &section.fields);
    let keys = || {
        let databases = info.iter().filter(|section| section.name == "Keyspace");
        let databases = databases.flat_map(|section| &section.fields);
        let counts = databases.filter_map(|field| {
            let first = field.text.split(',').next()?;
            first.strip_prefix("keys=")?.parse::<f64>().ok()
        });
        counts.sum::<f64>()
    };
    let value = |(name, wanted, _): &(&str, &str, Made)| {
        if *name == "keys" {
            return keys();
        }
        let found = fields().find(|field| field.name == *wanted);
        found.and_then(|field| field.number).unwrap_or(0.0)
    };
    SERIES.iter().map(value).collect()
}

/// Returns how many commands took at most each limit and more than the previous limit, over all
/// commands.
fn latency(metrics: &[Metric]) -> [f64; ROWS] {
    let mut rows = [0.0; ROWS];
    let all = metrics
        .iter()
        .find(|metric| metric.name == "redis_commands_latencies_usec");
    let Some(all) = all else { return rows };
    let (mut row, mut below) = (0, 0.0);
    for series in all
        .series
        .iter()
        .filter(|series| series.suffix == "_bucket")
    {
        if let Some(of) = rows.get_mut(row) {
            *of += (series.value - below).max(0.0);
        }
        below = series.value;
        row += 1;
        if series
            .labels
            .iter()
            .any(|(name, value)| *name == "le" && value == "+Inf")
        {
            (row, below) = (0, 0.0);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::Field;
    use base::metrics::MetricKind;

    fn info(commands: f64, clients: f64) -> Vec<Section> {
        let field = |name: &str, number| Field {
            name: name.to_owned(),
            text: String::new(),
            number: Some(number),
        };
        let fields = vec![
            field("total_commands_processed", commands),
            field("connected_clients", clients),
        ];
        vec![Section {
            name: "Stats",
            fields,
        }]
    }

    fn metrics(counts: &[f64]) -> Vec<Metric> {
        let mut all = Metric::new(
            "redis_commands_latencies_usec",
            MetricKind::Histogram,
            "Times.",
        );
        for command in ["get", "set"] {
            for (row, count) in counts.iter().enumerate() {
                let le = if row + 1 == counts.len() {
                    "+Inf".to_owned()
                } else {
                    row.to_string()
                };
                all.add("_bucket", &[("cmd", command), ("le", &le)], *count);
            }
        }
        vec![all]
    }

    #[test]
    fn a_frame_has_rates_and_the_latencies_of_its_second() {
        let mut history = History::default();
        assert!(
            history
                .take(100, &info(1000.0, 3.0), &metrics(&[1.0, 5.0]))
                .is_none()
        );
        let frame = history
            .take(101, &info(1500.0, 4.0), &metrics(&[2.0, 9.0]))
            .unwrap();
        assert_eq!(frame["v"][0], 500.0);
        assert_eq!(frame["v"][17], 4.0);
        assert_eq!(
            (frame["l"][0].as_u64(), frame["l"][1].as_u64()),
            (Some(2), Some(6))
        );
        // After CONFIG RESETSTAT a counter restarts.
        let frame = history
            .take(102, &info(10.0, 4.0), &metrics(&[0.0, 0.0]))
            .unwrap();
        assert_eq!(frame["v"][0], 0.0);
    }

    #[test]
    fn no_more_is_kept_than_an_hour_and_a_day() {
        let mut history = History::default();
        for second in 0..5000 {
            history.take(second, &info(0.0, 0.0), &[]);
        }
        assert_eq!(history.seconds.len(), SECONDS_KEPT);
        assert_eq!(history.minutes.len(), 83);
        assert_eq!(
            history.last(5, false)["frames"].as_array().unwrap().len(),
            5
        );
    }
}
