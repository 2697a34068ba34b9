//! Export of metrics and spans to an OpenTelemetry collector: OTLP over HTTP, in its JSON form.
//!
//! ```text
//!   every interval: metrics with a name of OpenTelemetry ──> document ──> POST endpoint/v1/metrics
//!                   spans that were noted since          ──> document ──> POST endpoint/v1/traces
//! ```
//!
//! All values of metrics are sums since the start of the server, or current values. So nothing
//! needs to be kept for a collector that is down: the next document contains what it missed, except
//! the points in between. Spans are kept up to a limit, and the spans beyond it are counted. No
//! OpenTelemetry library is needed.
//!
//! Nothing is sent to an encrypted endpoint, not even headers, unless an authority signed its
//! certificate. If that fails, the log names the certificate once. It reports again only after
//! another reason, or after a document was accepted.

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

/// Interval at which the settings are checked while nothing is sent.
const IDLE: Duration = Duration::from_secs(1);

/// The settings of the export to a collector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// The collector's address: `http://host:4318`, or `https://`; empty for no export.
    pub endpoint: String,
    /// Time between two documents.
    pub interval: Duration,
    /// A file of headers, one per line, such as `Authorization: Bearer …`.
    pub headers_file: Option<std::path::PathBuf>,
    /// The authorities that may sign the collector's certificate; the system's authorities if
    /// `None`.
    pub authorities_file: Option<std::path::PathBuf>,
    /// Attributes of the server: `service.name` and others.
    pub resource: Vec<(String, String)>,
}

/// Sends metrics and spans while the port is open, to the endpoint in the settings.
pub(crate) async fn export(shared: Shared) {
    let clock = SystemClock::new();
    // The port opens when the server starts, so sums count from then on.
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

/// The state between two sendings.
struct Exporter {
    shared: Shared,
    /// Spans that were not accepted yet.
    spans: Vec<Span>,
    /// The last failure written to the log.
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

    /// Sends the current metrics and the waiting spans.
    async fn turn(&mut self, target: &Target, export: &Export, from_to_unix_ns: [u64; 2]) {
        let body = metrics::document(&self.shared.all_metrics(), export, from_to_unix_ns);
        self.send(target, export, &body).await;
        if self.spans.is_empty() {
            // Spans that were not accepted are sent again. New spans meanwhile stay where they were
            // recorded.
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

    /// Sends a document. Returns whether it was accepted.
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

/// Returns the attributes of the server.
fn resource(export: &Export) -> Value {
    let all = export.resource.iter();
    let all: Vec<Value> = all.map(|(name, value)| attribute(name, value)).collect();
    json!({"attributes": all})
}

fn attribute(name: &str, value: &str) -> Value {
    json!({"key": name, "value": {"stringValue": value}})
}
