//! The thread that serves: listeners, connections within limits, routes, and a look at the figures every second.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use base::metrics::{Metric, MetricKind};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};
use tokio::time::{Duration, MissedTickBehavior, interval, timeout};

use crate::history::History;
use crate::limits::{
    BODY_BYTES_MAX, CONNECTIONS_MAX, HEAD_BYTES_MAX, HEADERS_MAX, REQUEST_TIME_MAX, STREAMS_MAX,
};
use crate::login::{self, Logins};
use crate::ports::{Figures, Sessions};
use crate::settings::Settings;
use crate::{api, files, guard, metrics_access, probes, rest, stream};

/// Frames that who streams may be behind.
const FRAMES_BEHIND_MAX: usize = 16;

/// What all requests share.
pub(crate) struct Inner {
    pub(crate) figures: Arc<dyn Figures>,
    pub(crate) sessions: Arc<dyn Sessions>,
    pub(crate) logins: Logins,
    pub(crate) frames: broadcast::Sender<Arc<str>>,
    pub(crate) streams: Arc<Semaphore>,
    settings: RwLock<Arc<Settings>>,
    history: Mutex<History>,
    requests: AtomicU64,
    refusals: AtomicU64,
}

/// A way to it.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Inner>);

impl Deref for Shared {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Inner {
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

    /// The server's metrics, and those of the port itself.
    #[allow(clippy::cast_precision_loss, reason = "what metrics are made of")]
    pub(crate) fn all_metrics(&self) -> Vec<Metric> {
        let mut metrics = self.figures.metrics();
        let streams = STREAMS_MAX - self.streams.available_permits();
        let own: [(&'static str, MetricKind, &'static str, f64); 4] = [
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

/// The management port, while it is open.
pub struct Console {
    shared: Shared,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
}

impl Console {
    /// Listens and serves on a thread of its own, which `begin` is run on first.
    ///
    /// # Errors
    /// When an address cannot be listened on, or there are too many threads.
    #[allow(
        clippy::disallowed_methods,
        reason = "the thread of the management port is made here"
    )]
    pub fn start(
        settings: Settings,
        figures: Arc<dyn Figures>,
        sessions: Arc<dyn Sessions>,
        begin: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let listeners: io::Result<Vec<TcpListener>> =
            settings.addresses.iter().map(listen).collect();
        let listeners = listeners?;
        let addresses: io::Result<Vec<SocketAddr>> =
            listeners.iter().map(TcpListener::local_addr).collect();
        let shared = Shared(Arc::new(Inner {
            figures,
            sessions,
            logins: Logins::default(),
            frames: broadcast::channel(FRAMES_BEHIND_MAX).0,
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            settings: RwLock::new(Arc::new(settings)),
            history: Mutex::default(),
            requests: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
        }));
        let stop = Arc::new(Notify::new());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (own, until) = (shared.clone(), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("http".into())
            .spawn(move || {
                begin();
                runtime.block_on(async move {
                    for listener in listeners {
                        tokio::spawn(accept(listener, own.clone()));
                    }
                    tokio::spawn(look(own));
                    until.notified().await;
                });
            })?;
        Ok(Self {
            shared,
            stop,
            thread: Some(thread),
            addresses: addresses?,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Goes on by other settings; where it listens stays as it is.
    pub fn change(&self, settings: Settings) {
        let place = self.shared.settings.write();
        *place.unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // What it was doing is of no use to anybody now.
            let _ended = thread.join();
        }
    }
}

fn listen(address: &SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn accept(listener: TcpListener, shared: Shared) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let routes = routes(&shared);
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, from)) => {
                tokio::spawn(serve(stream, from, routes.clone(), place));
            }
            // No descriptor is free: somebody will give one back.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve(
    stream: tokio::net::TcpStream,
    from: SocketAddr,
    routes: Router,
    _place: OwnedSemaphorePermit,
) {
    let routes = routes.layer(axum::Extension(axum::extract::ConnectInfo(from)));
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    // Whoever breaks the rules of the protocol is closed; there is nobody to tell.
    let _ended = server
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
        .await;
}

/// Counts a request, and lets none take its time.
async fn within_time(shared: Shared, request: Request, next: Next) -> Response {
    shared.requests.fetch_add(1, Ordering::Relaxed);
    let time_max = REQUEST_TIME_MAX * 2;
    let served = timeout(time_max, next.run(request)).await;
    served.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
}

fn routes(shared: &Shared) -> Router {
    let console = Router::new()
        .route("/", get(files::index).post(rest::rest))
        .route("/pipeline", post(rest::rest))
        .route("/multi-exec", post(rest::rest))
        .route("/{file}", get(files::file))
        .route("/login", post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/info.json", get(probes::info))
        .route("/events", get(stream::events))
        .route("/api/session", get(login::session))
        .route("/api/history", get(stream::history))
        .route("/api/log", get(stream::log))
        .route("/api/command", post(api::command))
        .route("/api/pipeline", post(api::pipeline))
        .route("/api/keys", post(api::keys))
        .route("/api/value", post(api::value));
    let own = shared.clone();
    let timed = middleware::from_fn(move |request: Request, next: Next| {
        within_time(own.clone(), request, next)
    });
    Router::new()
        .route("/healthz", get(probes::health))
        .route("/readyz", get(probes::ready))
        .route("/metrics", get(metrics_access::metrics))
        .merge(console)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(shared.clone(), guard::check))
        .layer(timed)
        .with_state(shared.clone())
}

/// Looks at the figures every second.
async fn look(shared: Shared) {
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        seconds.tick().await;
        shared.logins.end_old();
        if !shared.settings().has_console {
            continue;
        }
        let (info, metrics) = (shared.figures.info(&[]), shared.figures.metrics());
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let frame = shared.history().take(now.as_secs(), &info, &metrics);
        if let Some(frame) = frame {
            // Nobody looks: that is no fault.
            let _receivers = shared.frames.send(frame.to_string().into());
        }
    }
}
