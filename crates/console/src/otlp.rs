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
//!
//! An encrypted endpoint is sent nothing, headers neither, unless an authority signed its certificate. Where that fails the
//! log says so once, with the certificate, and not again until another reason, or a document that was taken.

mod metrics;
mod sending;
mod spans;

use base::clock::{Clock as _, SystemClock};
use base::spans::Span;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::ports::Unreached;
use crate::shared::{Exported, Shared};

pub use sending::Target;

/// The settings are looked at again so often while nothing is sent.
const IDLE: Duration = Duration::from_secs(1);

/// What is told of metrics to a collector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// Where the collector is: `http://host:4318`, or `https://`; empty for nowhere.
    pub endpoint: String,
    /// Between two documents.
    pub interval: Duration,
    /// A file of headers, a line each, as `Authorization: Bearer …`.
    pub headers_file: Option<std::path::PathBuf>,
    /// Who signs the collector's certificate; the system's authorities without.
    pub authorities_file: Option<std::path::PathBuf>,
    /// What the server is: `service.name` and the like.
    pub resource: Vec<(String, String)>,
}

/// Sends metrics and spans for as long as the port is open, where settings say so.
pub(crate) async fn export(shared: Shared) {
    let clock = SystemClock::new();
    // The port opens when the server starts: sums are since then.
    let started_unix_ns = clock.now_unix_us().saturating_mul(1000);
    let mut exporter = Exporter::new(shared);
    loop {
        let export = exporter.shared.settings().export.clone();
        let Ok(target) = Target::parse(&export.endpoint) else {
            exporter.spans.clear();
            sleep(IDLE).await;
            continue;
        };
        let now_unix_ns = clock.now_unix_us().saturating_mul(1000);
        exporter
            .turn(&target, &export, [started_unix_ns, now_unix_ns])
            .await;
        sleep(export.interval.max(IDLE)).await;
    }
}

/// What is between two sendings.
struct Exporter {
    shared: Shared,
    /// Spans that were not taken yet.
    spans: Vec<Span>,
    /// What the log was told last.
    told: Option<String>,
}

impl Exporter {
    fn new(shared: Shared) -> Self {
        Self {
            shared,
            spans: Vec::new(),
            told: None,
        }
    }

    /// Sends what there is.
    async fn turn(&mut self, target: &Target, export: &Export, from_to_unix_ns: [u64; 2]) {
        let body = metrics::document(&self.shared.all_metrics(), export, from_to_unix_ns);
        self.send(target, export, &body).await;
        if self.spans.is_empty() {
            // Those that were not taken are sent again, and others wait meanwhile where they were noted.
            self.spans = self.shared.figures.take_spans();
            self.shared.keep_spans(&self.spans);
        }
        if !self.spans.is_empty() {
            let body = spans::document(&self.spans, export);
            if self.send(&target.of_traces(), export, &body).await {
                self.spans.clear();
            }
        }
    }

    /// Sends a document; whether it was taken.
    async fn send(&mut self, target: &Target, export: &Export, body: &str) -> bool {
        let outgoing = self.shared.outgoing.as_deref();
        let sent = sending::send(target, export, body, outgoing).await;
        let exported = match &sent {
            Ok(()) => Exported::Taken,
            Err(Unreached::Untrusted(_)) => Exported::Untrusted,
            Err(Unreached::Failed(_)) => Exported::Failed,
        };
        self.shared.count_export(exported);
        match sent {
            Ok(()) => self.told = None,
            Err(Unreached::Untrusted(why)) if self.told.as_ref() != Some(&why) => {
                let text = format!("Nothing is sent to {}: {why}", export.endpoint);
                self.shared.figures.warn(&text);
                self.told = Some(why);
            }
            Err(_) => {}
        }
        matches!(exported, Exported::Taken)
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
