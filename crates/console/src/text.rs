//! Metrics as text: Prometheus' format 0.0.4, and OpenMetrics 1.0.

use std::fmt::Write as _;

use base::metrics::{Metric, MetricKind, Series};

/// The text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// Returns the format for a client that sends this `Accept` header.
    #[must_use]
    pub fn of_accept(accept: &str) -> Self {
        let wants = |name: &str| {
            let mut best = None;
            for part in accept.split(',') {
                let mut words = part.split(';').map(str::trim);
                if words.next() != Some(name) {
                    continue;
                }
                let weight = words.find_map(|word| word.strip_prefix("q=")?.parse::<f32>().ok());
                best = Some(weight.unwrap_or(1.0).max(best.unwrap_or(0.0)));
            }
            best.unwrap_or(0.0)
        };
        let open = wants("application/openmetrics-text");
        if open > 0.0 && open >= wants("text/plain") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Returns the `Content-Type` header.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Writes metrics. If `names` is not empty, writes only the metrics with these names.
#[must_use]
pub fn write(metrics: &[Metric], format: Format, names: &[String]) -> String {
    let mut text = String::with_capacity(64 * 1024);
    for metric in metrics {
        if names.is_empty() || names.iter().any(|name| name == metric.name) {
            write_metric(&mut text, metric, format);
        }
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn write_metric(text: &mut String, metric: &Metric, format: Format) {
    let (name, kind) = (metric.name, metric.kind.name());
    // OpenMetrics names a counter without the suffix that its values have.
    let is_open_counter = format == Format::OpenMetrics && metric.kind == MetricKind::Counter;
    let (family, kind) = match name.strip_suffix("_total") {
        Some(family) if is_open_counter => (family, kind),
        // A metric without that suffix cannot be a counter in OpenMetrics.
        None if is_open_counter => (name, "unknown"),
        _ => (name, kind),
    };
    let _ = writeln!(text, "# HELP {family} {}", escaped(metric.help, false));
    let _ = writeln!(text, "# TYPE {family} {kind}");
    for series in &metric.series {
        write_series(text, name, series);
    }
}

fn write_series(text: &mut String, name: &str, series: &Series) {
    text.push_str(name);
    text.push_str(series.suffix);
    if !series.labels.is_empty() {
        text.push('{');
        for (number, (label, value)) in series.labels.iter().enumerate() {
            if number > 0 {
                text.push(',');
            }
            let _ = write!(text, "{label}=\"{}\"", escaped(value, true));
        }
        text.push('}');
    }
    let _ = writeln!(text, " {}", number(series.value));
}

fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        value.to_string()
    }
}

fn escaped(value: &str, quotes: bool) -> String {
    let mut shown = String::with_capacity(value.len());
    for letter in value.chars() {
        match letter {
            '\\' => shown.push_str("\\\\"),
            '\n' => shown.push_str("\\n"),
            '"' if quotes => shown.push_str("\\\""),
            other => shown.push(other),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Vec<Metric> {
        let mut of_commands = Metric::new("redis_commands_total", MetricKind::Counter, "Calls.");
        of_commands.add("", &[("cmd", "a\"b\\c\nd")], 3.0);
        let plain = Metric::new("redis_lazyfreed_objects", MetricKind::Counter, "Freed.");
        let mut of_times = Metric::new("x_usec", MetricKind::Histogram, "Times.");
        of_times.add("_bucket", &[("le", "+Inf")], 2.0);
        of_times.add("_sum", &[], 0.5);
        vec![of_commands, plain.with(1.0), of_times]
    }

    #[test]
    fn labels_are_escaped_and_names_filter() {
        let text = write(
            &metrics(),
            Format::Prometheus,
            &["redis_commands_total".to_owned()],
        );
        let expected = "# HELP redis_commands_total Calls.\n# TYPE redis_commands_total counter\n\
             redis_commands_total{cmd=\"a\\\"b\\\\c\\nd\"} 3\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn open_metrics_names_counters_without_their_end() {
        let text = write(&metrics(), Format::OpenMetrics, &[]);
        assert!(
            text.contains("# TYPE redis_commands counter\nredis_commands_total{"),
            "{text}"
        );
        assert!(
            text.contains("# TYPE redis_lazyfreed_objects unknown\n"),
            "{text}"
        );
        assert!(
            text.ends_with("x_usec_bucket{le=\"+Inf\"} 2\nx_usec_sum 0.5\n# EOF\n"),
            "{text}"
        );
    }

    #[test]
    fn who_prefers_open_metrics_is_given_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::of_accept(prometheus), Format::OpenMetrics);
        for other in [
            "",
            "*/*",
            "text/plain",
            "application/openmetrics-text;q=0.1,text/plain",
        ] {
            assert_eq!(Format::of_accept(other), Format::Prometheus, "{other}");
        }
    }
}
