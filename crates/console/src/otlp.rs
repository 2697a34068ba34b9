//! Metrics and spans sent to a collector of OpenTelemetry: OTLP over HTTP, in its JSON form.
//!
//! ```text
//!   every interval: metrics with a name of OpenTelemetry ──> document ──> POST endpoint/v1/metrics
//!                   spans that were noted since          ──> document ──> POST endpoint/v1/traces
//! ```
//!
//! All values of metrics are sums since the start of the server, or values of now. So nothing waits for a collector that is
//! down: what it misses is in the next document, but for the points between. Spans wait, as many as there may be, and the others
//! are counted. No library of OpenTelemetry is needed for it.

mod spans;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use base::clock::{Clock as _, SystemClock};
use base::metrics::{Metric, MetricKind, Series};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Duration, sleep, timeout};

use crate::shared::Shared;

/// Where metrics go when the endpoint names no path.
const PATH: &str = "/v1/metrics";
/// Where spans go then.
const TRACES_PATH: &str = "/v1/traces";
/// How long a collector may take.
const SEND_TIME_MAX: Duration = Duration::from_secs(10);
/// So much of an answer is read: its first line counts.
const ANSWER_BYTES_MAX: usize = 1024;
/// A file of headers is no longer.
const HEADERS_BYTES_MAX: u64 = 64 << 10;
/// The settings are looked at again so often while nothing is sent.
const IDLE: Duration = Duration::from_secs(1);
/// Sums go on from the start: OTLP calls this cumulative.
const CUMULATIVE: u32 = 2;

/// What is told of metrics to a collector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// Where the collector is: `http://host:4318`; empty for nowhere.
    pub endpoint: String,
    /// Between two documents.
    pub interval: Duration,
    /// A file of headers, a line each, as `Authorization: Bearer …`.
    pub headers_file: Option<std::path::PathBuf>,
    /// What the server is: `service.name` and the like.
    pub resource: Vec<(String, String)>,
}

/// A collector's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    host: String,
    port: u16,
    path: String,
}

impl Target {
    /// Reads an endpoint.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(endpoint: &str) -> Result<Self, String> {
        let refuse = |why: &str| Err(format!("otlp-endpoint '{endpoint}': {why}"));
        let Some(rest) = endpoint.strip_prefix("http://") else {
            return refuse(
                "it begins with http://; a collector of this machine speaks TLS to others",
            );
        };
        let (place, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (host, port) = place.rsplit_once(':').unwrap_or((place, "4318"));
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let Ok(port) = port.parse() else {
            return refuse("its port is no number");
        };
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || !is_plain(host) || !is_plain(path) {
            return refuse("it names no host");
        }
        let path = match path {
            "" | "/" => PATH.to_owned(),
            path => path.to_owned(),
        };
        let host = host.to_owned();
        Ok(Self { host, port, path })
    }

    /// Where spans go: beside the metrics, or to the one path that an endpoint names.
    fn of_traces(&self) -> Self {
        let path = match self.path.strip_suffix(PATH) {
            Some(above) => format!("{above}{TRACES_PATH}"),
            None => self.path.clone(),
        };
        Self {
            path,
            ..self.clone()
        }
    }
}

/// Sends metrics and spans for as long as the port is open, where settings say so.
pub(crate) async fn export(shared: Shared) {
    let clock = SystemClock::new();
    // The port opens when the server starts: sums are since then.
    let started_unix_ns = clock.now_unix_us().saturating_mul(1000);
    let mut spans = Vec::new();
    loop {
        let export = shared.settings().export.clone();
        let Ok(target) = Target::parse(&export.endpoint) else {
            spans.clear();
            sleep(IDLE).await;
            continue;
        };
        let now_unix_ns = clock.now_unix_us().saturating_mul(1000);
        let body = document(
            &shared.all_metrics(),
            &export,
            [started_unix_ns, now_unix_ns],
        );
        let is_taken = send(&target, &export, &body).await;
        shared.count_export(is_taken);
        if spans.is_empty() {
            // Those that were not taken are sent again, and others wait meanwhile where they were noted.
            spans = shared.figures.take_spans();
        }
        if !spans.is_empty() {
            let body = spans::document(&spans, &export);
            let is_taken = send(&target.of_traces(), &export, &body).await;
            shared.count_export(is_taken);
            if is_taken {
                spans.clear();
            }
        }
        sleep(export.interval.max(IDLE)).await;
    }
}

/// Sends a document; whether it was taken.
async fn send(target: &Target, export: &Export, body: &str) -> bool {
    let headers = match &export.headers_file {
        Some(path) => headers(path),
        None => Ok(String::new()),
    };
    let Ok(headers) = headers else { return false };
    let sent = timeout(SEND_TIME_MAX, post(target, &headers, body)).await;
    matches!(sent, Ok(Ok(())))
}

/// The lines of a file as headers.
fn headers(path: &Path) -> io::Result<String> {
    if std::fs::metadata(path)?.len() > HEADERS_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let text = std::fs::read_to_string(path)?;
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| line.contains(':'));
    Ok(lines.map(|line| format!("{line}\r\n")).collect())
}

async fn post(target: &Target, headers: &str, body: &str) -> io::Result<()> {
    let Target { host, port, path } = target;
    let mut stream = TcpStream::connect((host.as_str(), *port)).await?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{headers}\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut answer = [0; ANSWER_BYTES_MAX];
    let mut len = 0;
    while len < answer.len() && !answer[..len].contains(&b'\n') {
        match stream.read(&mut answer[len..]).await? {
            0 => break,
            count => len += count,
        }
    }
    let line = String::from_utf8_lossy(&answer[..len]);
    match line.split(' ').nth(1) {
        Some(status) if status.starts_with('2') => Ok(()),
        _ => Err(io::Error::other("the collector refused")),
    }
}

/// What a collector is sent.
fn document(metrics: &[Metric], export: &Export, from_to_unix_ns: [u64; 2]) -> String {
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

/// What the server is.
fn resource(export: &Export) -> Value {
    let all = export.resource.iter();
    let all: Vec<Value> = all.map(|(name, value)| attribute(name, value)).collect();
    json!({"attributes": all})
}

fn attribute(name: &str, value: &str) -> Value {
    json!({"key": name, "value": {"stringValue": value}})
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

/// The labels of a series but one.
fn attributes(series: &Series, but: &str) -> Vec<Value> {
    let labels = series.labels.iter().filter(|(name, _)| *name != but);
    labels.map(|(name, value)| attribute(name, value)).collect()
}

/// Series that differ in one label alone.
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

/// Counts are texts in the JSON form: numbers of 64 bits are no numbers there.
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
    // Each of ours counts all below it; theirs count between two limits, with one more above the last.
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
    use super::*;

    fn export() -> Export {
        Export {
            endpoint: "http://127.0.0.1:4318".to_owned(),
            interval: Duration::from_secs(60),
            headers_file: None,
            resource: vec![("service.name".to_owned(), "iolite".to_owned())],
        }
    }

    fn metric(name: &'static str, kind: MetricKind) -> Metric {
        let mut metric = Metric::new(name, kind, "help");
        metric.otel = Some(format!("redis.{name}"));
        metric
    }

    #[test]
    fn endpoints() {
        let target = |endpoint: &str| Target::parse(endpoint);
        let expected = Target {
            host: "collector".to_owned(),
            port: 4318,
            path: "/v1/metrics".to_owned(),
        };
        assert_eq!(target("http://collector"), Ok(expected.clone()));
        assert_eq!(target("http://collector:4318/"), Ok(expected));
        assert_eq!(
            target("http://[::1]:1/a").map(|it| (it.host, it.path)),
            Ok(("::1".into(), "/a".into()))
        );
        for wrong in ["", "https://a", "http://", "http://a:x", "http://a b"] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
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

    #[test]
    fn a_collector_is_sent_a_document() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let target = Target::parse(&format!("http://127.0.0.1:{port}/x")).unwrap();
            for (status, is_taken) in [("200 OK", true), ("503 No", false)] {
                let collector = async {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let mut text = vec![0; 4096];
                    let mut len = 0;
                    while !text[..len].ends_with(b"{\"a\":1}") {
                        len += stream.read(&mut text[len..]).await.unwrap();
                    }
                    stream
                        .write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes())
                        .await
                        .unwrap();
                    String::from_utf8_lossy(&text[..len]).into_owned()
                };
                let sending = tokio::spawn({
                    let target = target.clone();
                    async move { post(&target, "X-Key: a\r\n", "{\"a\":1}").await }
                });
                let text = collector.await;
                assert!(text.starts_with("POST /x HTTP/1.1\r\n"), "{text}");
                assert!(
                    text.contains("\r\nContent-Length: 7\r\nX-Key: a\r\n"),
                    "{text}"
                );
                assert_eq!(sending.await.unwrap().is_ok(), is_taken);
            }
        });
    }
}
