//! Metrics as a document of OTLP.

use std::collections::BTreeMap;

use base::metrics::{Metric, MetricKind, Series};
use serde_json::{Value, json};

use super::{Export, attribute, resource};

/// The temporality of sums that count from the start: cumulative.
const CUMULATIVE: u32 = 2;

/// Returns the document for a collector.
pub(super) fn document(metrics: &[Metric], export: &Export, from_to_unix_ns: [u64; 2]) -> String {
    let [start, now] = from_to_unix_ns.map(|at| at.to_string());
    let times = Times { start, now };
    let metrics: Vec<Value> = metrics
        .iter()
        .filter_map(|metric| {
            let name = metric.otel.as_deref()?;
            Some(json!({
                "name": name,
                "description": metric.help,
                "unit": metric.unit,
                (shape(metric.kind)): data(metric, &times),
            }))
        })
        .collect();
    json!({"resourceMetrics": [{
        "resource": resource(export),
        "scopeMetrics": [{"scope": {"name": "iolite"}, "metrics": metrics}],
    }]})
    .to_string()
}

struct Times {
    start: String,
    now: String,
}

fn shape(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "sum",
        MetricKind::Gauge => "gauge",
        MetricKind::Summary => "summary",
        MetricKind::Histogram => "histogram",
    }
}

fn data(metric: &Metric, times: &Times) -> Value {
    let points: Vec<Value> = match metric.kind {
        MetricKind::Counter | MetricKind::Gauge => metric
            .series
            .iter()
            .map(|series| point(series, times))
            .collect(),
        MetricKind::Summary => together(&metric.series, "quantile")
            .into_values()
            .map(|group| summary(&group, times))
            .collect(),
        MetricKind::Histogram => together(&metric.series, "le")
            .into_values()
            .map(|group| histogram(&group, times))
            .collect(),
    };
    match metric.kind {
        MetricKind::Counter => json!({
            "aggregationTemporality": CUMULATIVE,
            "isMonotonic": true,
            "dataPoints": points,
        }),
        MetricKind::Histogram => {
            json!({"aggregationTemporality": CUMULATIVE, "dataPoints": points})
        }
        MetricKind::Gauge | MetricKind::Summary => json!({"dataPoints": points}),
    }
}

fn point(series: &Series, times: &Times) -> Value {
    json!({
        "attributes": attributes(series, ""),
        "startTimeUnixNano": times.start,
        "timeUnixNano": times.now,
        "asDouble": series.value,
    })
}

/// Returns the labels of a series except one.
fn attributes(series: &Series, but: &str) -> Vec<Value> {
    let labels = series.labels.iter().filter(|(name, _)| *name != but);
    labels.map(|(name, value)| attribute(name, value)).collect()
}

/// Groups the series that differ in one label alone.
fn together<'s>(series: &'s [Series], label: &str) -> BTreeMap<String, Vec<&'s Series>> {
    let mut groups: BTreeMap<String, Vec<&Series>> = BTreeMap::new();
    for one in series {
        let others = one.labels.iter().filter(|(name, _)| *name != label);
        let key: Vec<String> = others
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        groups.entry(key.join("\n")).or_default().push(one);
    }
    groups
}

fn label(series: &Series, name: &str) -> Option<f64> {
    let (_, text) = series.labels.iter().find(|(own, _)| *own == name)?;
    text.parse().ok()
}

fn of_suffix(group: &[&Series], suffix: &str) -> f64 {
    let found = group.iter().find(|series| series.suffix == suffix);
    found.map_or(0.0, |series| series.value)
}

/// Counts are texts in the JSON form, because JSON numbers cannot hold 64 bits.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are whole and not negative, and a cast saturates"
)]
fn whole(value: f64) -> String {
    (value as u64).to_string()
}

fn summary(group: &[&Series], times: &Times) -> Value {
    let quantiles: Vec<Value> = group
        .iter()
        .filter_map(|series| {
            let quantile = label(series, "quantile")?;
            Some(json!({"quantile": quantile, "value": series.value}))
        })
        .collect();
    json!({
        "attributes": group.first().map_or_else(Vec::new, |series| attributes(series, "quantile")),
        "startTimeUnixNano": times.start,
        "timeUnixNano": times.now,
        "count": whole(of_suffix(group, "_count")),
        "sum": of_suffix(group, "_sum"),
        "quantileValues": quantiles,
    })
}

fn histogram(group: &[&Series], times: &Times) -> Value {
    let mut buckets: Vec<(f64, f64)> = group
        .iter()
        .filter(|series| series.suffix == "_bucket")
        .filter_map(|series| Some((label(series, "le")?, series.value)))
        .collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Our buckets count everything below their limit. OTLP's buckets count between two limits, with
    // one more above the last.
    let mut counts = Vec::new();
    let mut below = 0.0;
    for (_, value) in &buckets {
        counts.push(whole(value - below));
        below = *value;
    }
    let count = of_suffix(group, "_count");
    let bounds: Vec<f64> = buckets
        .iter()
        .map(|(limit, _)| *limit)
        .filter(|limit| limit.is_finite())
        .collect();
    if bounds.len() == buckets.len() {
        counts.push(whole(count - below));
    }
    json!({
        "attributes": group.first().map_or_else(Vec::new, |series| attributes(series, "le")),
        "startTimeUnixNano": times.start,
        "timeUnixNano": times.now,
        "count": whole(count),
        "sum": of_suffix(group, "_sum"),
        "explicitBounds": bounds,
        "bucketCounts": counts,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use std::time::Duration;

    use super::*;

    fn export() -> Export {
        Export {
            endpoint: "http://127.0.0.1:4318".to_owned(),
            interval: Duration::from_secs(60),
            headers_file: None,
            authorities_file: None,
            resource: vec![("service.name".to_owned(), "iolite".to_owned())],
        }
    }

    fn metric(name: &'static str, kind: MetricKind) -> Metric {
        let mut metric = Metric::new(name, kind, "help");
        metric.otel = Some(format!("redis.{name}"));
        metric
    }

    #[test]
    fn every_kind_has_its_shape() {
        let mut counter = metric("commands", MetricKind::Counter);
        counter.add("", &[("cmd", "get")], 7.0);
        let mut histogram = metric("latency", MetricKind::Histogram);
        for (limit, value) in [("1", 2.0), ("2", 5.0), ("+Inf", 6.0)] {
            histogram.add("_bucket", &[("cmd", "get"), ("le", limit)], value);
        }
        histogram.add("_sum", &[("cmd", "get")], 9.5);
        histogram.add("_count", &[("cmd", "get")], 6.0);
        let mut summary = metric("percentiles", MetricKind::Summary);
        summary.add("", &[("quantile", "0.5")], 3.0);
        summary.add("_count", &[], 4.0);
        let unnamed = Metric::new("other", MetricKind::Gauge, "help").with(1.0);
        let gauge = metric("memory", MetricKind::Gauge).with(1.5);
        let text = document(
            &[counter, histogram, summary, unnamed, gauge],
            &export(),
            [5, 8],
        );
        let all: Value = serde_json::from_str(&text).unwrap();
        let resource = &all["resourceMetrics"][0];
        let name = &resource["resource"]["attributes"][0];
        assert_eq!(name["value"]["stringValue"], "iolite");
        let metrics = resource["scopeMetrics"][0]["metrics"].as_array().unwrap();
        assert_eq!(metrics.len(), 4);
        let sum = &metrics[0]["sum"];
        assert_eq!(
            (
                sum["isMonotonic"].as_bool(),
                sum["aggregationTemporality"].as_u64()
            ),
            (Some(true), Some(2))
        );
        assert_eq!(sum["dataPoints"][0]["asDouble"], 7.0);
        assert_eq!(sum["dataPoints"][0]["startTimeUnixNano"], "5");
        assert_eq!(sum["dataPoints"][0]["attributes"][0]["key"], "cmd");
        let point = &metrics[1]["histogram"]["dataPoints"][0];
        assert_eq!(point["explicitBounds"], json!([1.0, 2.0]));
        assert_eq!(point["bucketCounts"], json!(["2", "3", "1"]));
        assert_eq!((&point["count"], &point["sum"]), (&json!("6"), &json!(9.5)));
        assert_eq!(point["attributes"].as_array().unwrap().len(), 1);
        let point = &metrics[2]["summary"]["dataPoints"][0];
        assert_eq!(
            point["quantileValues"],
            json!([{"quantile": 0.5, "value": 3.0}])
        );
        assert_eq!(metrics[3]["gauge"]["dataPoints"][0]["asDouble"], 1.5);
    }
}
