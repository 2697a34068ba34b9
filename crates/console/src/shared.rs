//! The state that all requests share: the ports, the settings, the logins and the history.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use base::metrics::{Metric, MetricKind};
use base::spans::Span;
use tokio::sync::{Semaphore, broadcast};

use crate::history::History;
use crate::limits::{SPANS_SHOWN, STREAMS_MAX};
use crate::login::Logins;
use crate::ports::{Figures, Outgoing, Sessions};
use crate::settings::Settings;

/// Maximum number of frames that a stream may lag behind.
const FRAMES_BEHIND_MAX: usize = 16;

/// The state that all requests share.
pub(crate) struct Inner {
    pub(crate) figures: Arc<dyn Figures>,
    pub(crate) sessions: Arc<dyn Sessions>,
    /// The encryption of connections to a collector, if it was built in.
    pub(crate) outgoing: Option<Arc<dyn Outgoing>>,
    pub(crate) logins: Logins,
    pub(crate) frames: broadcast::Sender<Arc<str>>,
    pub(crate) streams: Arc<Semaphore>,
    settings: RwLock<Arc<Settings>>,
    history: Mutex<History>,
    requests: AtomicU64,
    refusals: AtomicU64,
    exports: AtomicU64,
    failed_exports: AtomicU64,
    untrusted_exports: AtomicU64,
    spans: Mutex<VecDeque<Span>>,
}

/// The result of sending a document to a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exported {
    /// The collector accepted it.
    Taken,
    /// The collector did not accept it.
    Failed,
    /// The document was not sent: the collector's certificate is not trusted.
    Untrusted,
}

/// A reference to the shared state.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Inner>);

impl Deref for Shared {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Shared {
    pub(crate) fn new(
        settings: Settings,
        figures: Arc<dyn Figures>,
        sessions: Arc<dyn Sessions>,
        outgoing: Option<Arc<dyn Outgoing>>,
    ) -> Self {
        Self(Arc::new(Inner {
            figures,
            sessions,
            outgoing,
            logins: Logins::default(),
            frames: broadcast::channel(FRAMES_BEHIND_MAX).0,
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            settings: RwLock::new(Arc::new(settings)),
            history: Mutex::default(),
            requests: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            exports: AtomicU64::new(0),
            failed_exports: AtomicU64::new(0),
            untrusted_exports: AtomicU64::new(0),
            spans: Mutex::default(),
        }))
    }
}

impl Inner {
    pub(crate) fn change(&self, settings: Settings) {
        let place = self.settings.write();
        *place.unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        let settings = self.settings.read();
        Arc::clone(&settings.unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_refusal(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a document for a collector by its result.
    pub(crate) fn count_export(&self, exported: Exported) {
        self.exports.fetch_add(1, Ordering::Relaxed);
        if exported != Exported::Taken {
            self.failed_exports.fetch_add(1, Ordering::Relaxed);
        }
        if exported == Exported::Untrusted {
            self.untrusted_exports.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Also keeps the latest spans of the collector for the page.
    pub(crate) fn keep_spans(&self, spans: &[Span]) {
        let mut kept = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let last = &spans[spans.len().saturating_sub(SPANS_SHOWN)..];
        kept.extend(last.iter().cloned());
        let old = kept.len().saturating_sub(SPANS_SHOWN);
        kept.drain(..old);
    }

    /// Returns the latest spans, oldest first.
    pub(crate) fn kept_spans(&self) -> Vec<Span> {
        let kept = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().cloned().collect()
    }

    /// Returns the numbers of documents for a collector: all, those that failed, and those of the
    /// failed ones that were not sent.
    pub(crate) fn exports(&self) -> [u64; 3] {
        [&self.exports, &self.failed_exports, &self.untrusted_exports]
            .map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns the server's metrics, and those of the port itself.
    #[allow(clippy::cast_precision_loss, reason = "what metrics are made of")]
    pub(crate) fn all_metrics(&self) -> Vec<Metric> {
        let mut metrics = self.figures.metrics();
        let streams = STREAMS_MAX - self.streams.available_permits();
        let [sent, failed, untrusted] = self.exports().map(|count| count as f64);
        let own: [(&'static str, MetricKind, &'static str, f64); 8] = [
            (
                "iolite_console_requests_total",
                MetricKind::Counter,
                "Requests of the management port.",
                self.requests.load(Ordering::Relaxed) as f64,
            ),
            (
                "iolite_console_refusals_total",
                MetricKind::Counter,
                "Requests that no honest client sends.",
                self.refusals.load(Ordering::Relaxed) as f64,
            ),
            (
                "iolite_otlp_exports_total",
                MetricKind::Counter,
                "Documents for a collector of metrics.",
                sent,
            ),
            (
                "iolite_otlp_failures_total",
                MetricKind::Counter,
                "Documents that no collector took.",
                failed,
            ),
            (
                "iolite_otlp_untrusted_total",
                MetricKind::Counter,
                "Documents that were not sent, for the collector's certificate is not trusted.",
                untrusted,
            ),
            (
                "iolite_otlp_spans_dropped_total",
                MetricKind::Counter,
                "Spans that were not kept for a collector.",
                self.figures.dropped_spans() as f64,
            ),
            (
                "iolite_console_sessions",
                MetricKind::Gauge,
                "Users who are logged in at the management port.",
                self.logins.count() as f64,
            ),
            (
                "iolite_console_streams",
                MetricKind::Gauge,
                "Event streams of the management port.",
                streams as f64,
            ),
        ];
        for (name, kind, help, value) in own {
            metrics.push(Metric::new(name, kind, help).with(value));
        }
        metrics
    }
}
