//! The serving thread: listeners, connections within limits, routes, and a sample of the figures
//! every second.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use base::clock::{Clock as _, SystemClock};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Duration, MissedTickBehavior, interval, timeout};

use crate::limits::{
    BODY_BYTES_MAX, CONNECTIONS_MAX, HEAD_BYTES_MAX, HEADERS_MAX, REQUEST_TIME_MAX,
};
use crate::ports::{Duplex, Encrypting, Encryption, Figures, Sessions};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::{api, files, guard, login, metrics_access, otlp, probes, rest, stream};

/// The management port, while it is open.
pub struct Console {
    shared: Shared,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
}

impl Console {
    /// Listens and serves on a thread of its own, which calls `begin` first.
    ///
    /// # Errors
    /// If an address cannot be listened on, or there are too many threads.
    #[allow(
        clippy::disallowed_methods,
        reason = "the thread of the management port is made here"
    )]
    pub fn start(
        settings: Settings,
        figures: Arc<dyn Figures>,
        sessions: Arc<dyn Sessions>,
        encrypting: Encrypting,
        begin: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let listeners: io::Result<Vec<TcpListener>> =
            settings.addresses.iter().map(listen).collect();
        let listeners = listeners?;
        let addresses: io::Result<Vec<SocketAddr>> =
            listeners.iter().map(TcpListener::local_addr).collect();
        let Encrypting { incoming, outgoing } = encrypting;
        let shared = Shared::new(settings, figures, sessions, outgoing);
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
                        tokio::spawn(accept(listener, own.clone(), incoming.clone()));
                    }
                    tokio::spawn(otlp::export(own.clone()));
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

    /// Returns the addresses of the listeners.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Applies other settings. The listeners' addresses stay.
    pub fn change(&self, settings: Settings) {
        self.shared.change(settings);
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread's result is not needed.
            let _ended = thread.join();
        }
    }
}

fn listen(address: &SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn accept(listener: TcpListener, shared: Shared, encryption: Option<Arc<dyn Encryption>>) {
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
                tokio::spawn(enter(
                    stream,
                    from,
                    routes.clone(),
                    encryption.clone(),
                    place,
                ));
            }
            // No descriptor is free: waits until another is closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Serves a connection, after its handshake if it is encrypted. The connection counts against the
/// limit until it ends.
async fn enter(
    stream: tokio::net::TcpStream,
    from: SocketAddr,
    routes: Router,
    encryption: Option<Arc<dyn Encryption>>,
    _place: OwnedSemaphorePermit,
) {
    let Some(encryption) = encryption else {
        return serve(stream, from, routes).await;
    };
    // A client whose handshake fails or takes too long is disconnected.
    let accepted = timeout(REQUEST_TIME_MAX, encryption.accept(stream)).await;
    if let Ok(Ok(stream)) = accepted {
        serve(stream, from, routes).await;
    }
}

async fn serve(stream: impl Duplex + 'static, from: SocketAddr, routes: Router) {
    let routes = routes.layer(axum::Extension(axum::extract::ConnectInfo(from)));
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    // A client that violates the protocol is disconnected. The error is not reported.
    let _ended = server
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
        .await;
}

/// Returns the response to a connection with these bytes, for tests and the fuzz target. No socket
/// is used and nothing waits. Of a response without an end, only the part that is available at once
/// is returned.
///
/// # Errors
/// If there is no runtime.
pub fn answer(
    input: &[u8],
    settings: Settings,
    figures: Arc<dyn Figures>,
    sessions: Arc<dyn Sessions>,
) -> io::Result<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let routes = routes(&Shared::new(settings, figures, sessions, None));
    let from = SocketAddr::from(([127, 0, 0, 1], 1));
    runtime.block_on(async move {
        let (mut own, other) = tokio::io::duplex(ANSWER_BYTES_MAX);
        let serving = tokio::spawn(serve(other, from, routes));
        own.write_all(input).await?;
        own.shutdown().await?;
        let mut out = vec![0; ANSWER_BYTES_MAX];
        let mut len = 0;
        while let Ok(Ok(count)) = timeout(ANSWER_TIME, own.read(&mut out[len..])).await
            && count > 0
        {
            len += count;
        }
        serving.abort();
        out.truncate(len);
        Ok(out)
    })
}

/// Maximum size of such a response.
const ANSWER_BYTES_MAX: usize = 2 << 20;
/// Time to wait for more of it.
const ANSWER_TIME: Duration = Duration::from_millis(20);

/// Counts a request, and ends it if it takes too long.
async fn within_time(shared: Shared, request: Request, next: Next) -> Response {
    shared.count_request();
    let time_max = REQUEST_TIME_MAX * 2;
    let served = timeout(time_max, next.run(request)).await;
    served.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
}

fn routes(shared: &Shared) -> Router {
    let console = Router::new()
        .route("/", get(files::index).post(rest::rest))
        .route("/pipeline", post(rest::rest))
        .route("/multi-exec", post(rest::rest))
        .route("/{file}", get(rest::file_or_command))
        .route("/login", post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/info.json", get(probes::info))
        .route("/events", get(stream::events))
        .route("/api/session", get(login::session))
        .route("/api/history", get(stream::history))
        .route("/api/log", get(stream::log))
        .route("/api/spans", get(stream::spans))
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
        .fallback(rest::by_path)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(shared.clone(), guard::check))
        .layer(timed)
        .with_state(shared.clone())
}

/// Samples the figures every second.
async fn look(shared: Shared) {
    let clock = SystemClock::new();
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        seconds.tick().await;
        shared.logins.end_old();
        if !shared.settings().has_console {
            continue;
        }
        let (info, metrics) = (shared.figures.info(&[]), shared.figures.metrics());
        let now_unix_s = clock.now_unix_ms() / 1000;
        let frame = shared.history().take(now_unix_s, &info, &metrics);
        if let Some(frame) = frame {
            // Fails if there are no receivers, which is not an error.
            let _receivers = shared.frames.send(frame.to_string().into());
        }
    }
}
