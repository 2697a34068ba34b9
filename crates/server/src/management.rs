//! The management port of this server: the data that it shows, and where its commands run (room
//! `console`).

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
#[cfg(feature = "tls")]
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use access::LogInError;
use base::metrics::Metric;
use base::spans::Span;
#[cfg(feature = "tls")]
use console::Unreached;
use console::{
    Admission, Console, Encrypting, Export, Field, Figures, Link, Section, Sessions, Settings,
    Target, Unready,
};
use engine::Shared;
use reactor::{Balancer, Endpoint, InProcessPeer, PeerInfo, in_process_pair};
use store::Handle;

use crate::config::{Config, MetricsAuth};
use crate::counters::Count;
use crate::identity;
use crate::node::{Managed, Node};
use crate::statistics::{self, Sample};

/// Capacity of each direction of a session's connection, in bytes.
const PIPE_BYTES: usize = 256 * 1024;

impl Managed for Console {
    fn change(&self, shared: &Shared, config: &Config) {
        if let Ok(settings) = settings(config) {
            let spans = &shared.observer.spans;
            spans.set_on(Target::parse(&settings.export.endpoint).is_ok());
            Console::change(self, settings);
        }
    }
}

/// Starts recording spans, if they are to be exported. The port opens only once workers serve, and
/// earlier spans count, too.
pub(crate) fn keep_spans(node: &Node) {
    let config = node.core.config.current();
    let is_sent = config.http.port != 0 && Target::parse(&export(&config).endpoint).is_ok();
    node.core.shared.observer.spans.set_on(is_sent);
}

/// Opens the port if it is configured.
///
/// # Errors
/// The port cannot be listened on.
pub(crate) fn open(node: &Arc<Node>, balancer: &Arc<Balancer>) -> io::Result<()> {
    let config = node.core.config.current();
    if config.http.port == 0 {
        return Ok(());
    }
    let view = View {
        node: Arc::clone(node),
        store: Mutex::new(node.core.store.handle()),
        turns: Mutex::default(),
    };
    let ways = Ways {
        node: Arc::clone(node),
        balancer: Arc::clone(balancer),
    };
    let settings = settings(&config)?;
    if !settings.export.endpoint.is_empty()
        && let Err(reason) = Target::parse(&settings.export.endpoint)
    {
        node.core
            .log
            .warning(format_args!("No metrics are sent: {reason}"));
    }
    let encrypting = Encrypting {
        incoming: match settings.is_encrypted {
            true => Some(encryption(node, &config)?),
            false => None,
        },
        outgoing: outgoing(),
    };
    let scheme = match settings.is_encrypted {
        true => "https",
        false => "http",
    };
    let console = Console::start(settings, Arc::new(view), Arc::new(ways), encrypting, || {})?;
    for address in console.addresses() {
        node.core
            .log
            .notice(format_args!("Management port: {scheme}://{address}/"));
    }
    *node.management() = Some(Box::new(console));
    Ok(())
}

/// Returns the configuration of the export. If the directive names no collector, OpenTelemetry's
/// environment variables apply.
fn export(config: &Config) -> Export {
    let http = &config.http;
    let variable = |name| std::env::var(name).unwrap_or_default();
    let name = match variable("OTEL_SERVICE_NAME") {
        name if name.is_empty() => "iolite".to_owned(),
        name => name,
    };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    let mut resource = vec![
        ("service.name".to_owned(), name),
        (
            "service.version".to_owned(),
            identity::IOLITE_VERSION.to_owned(),
        ),
        (
            "service.instance.id".to_owned(),
            format!("{host}:{}", config.port),
        ),
    ];
    let more = variable("OTEL_RESOURCE_ATTRIBUTES");
    let more = more.split(',').filter_map(|pair| pair.split_once('='));
    resource.extend(more.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())));
    Export {
        endpoint: match http.otlp_endpoint.is_empty() {
            true => variable("OTEL_EXPORTER_OTLP_ENDPOINT"),
            false => http.otlp_endpoint.clone(),
        },
        interval: Duration::from_secs(http.otlp_interval_s),
        headers_file: http.otlp_headers_file.clone(),
        authorities_file: http.otlp_authorities_file.clone().or_else(|| {
            let named = variable("OTEL_EXPORTER_OTLP_CERTIFICATE");
            (!named.is_empty()).then(|| named.into())
        }),
        resource,
    }
}

#[cfg(feature = "tls")]
fn encryption(node: &Node, config: &Config) -> io::Result<Arc<dyn console::Encryption>> {
    let rules = config.tls.rules.clone();
    let clock = Arc::clone(&node.core.clock);
    let page = crate::tls::PageTls::load(rules, clock).map_err(io::Error::other)?;
    Ok(Arc::new(page))
}

#[cfg(not(feature = "tls"))]
fn encryption(_node: &Node, _config: &Config) -> io::Result<Arc<dyn console::Encryption>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(feature = "tls")]
#[allow(
    clippy::unnecessary_wraps,
    reason = "without the feature there is none"
)]
fn outgoing() -> Option<Arc<dyn console::Outgoing>> {
    Some(Arc::new(crate::tls::CollectorTls::default()))
}

#[cfg(not(feature = "tls"))]
fn outgoing() -> Option<Arc<dyn console::Outgoing>> {
    None
}

#[cfg(feature = "tls")]
impl console::Outgoing for crate::tls::CollectorTls {
    fn connect(
        &self,
        stream: console::TcpStream,
        host: &str,
        authorities: Option<&Path>,
    ) -> console::Reached {
        let outgoing = self.outgoing(authorities);
        let host = host.to_owned();
        Box::pin(async move {
            let outgoing = outgoing.map_err(|error| Unreached::Untrusted(error.to_string()))?;
            match outgoing.connect(stream, &host).await {
                Ok(stream) => Ok(Box::new(stream) as Box<dyn console::Duplex>),
                Err(tls::OutgoingError::Untrusted(why)) => {
                    Err(Unreached::Untrusted(why.to_string()))
                }
                Err(tls::OutgoingError::Failed(error)) => Err(Unreached::Failed(error)),
            }
        })
    }
}

#[cfg(feature = "tls")]
impl console::Encryption for crate::tls::PageTls {
    fn accept(&self, stream: console::TcpStream) -> console::Encrypted {
        let accept = self.server().accept(stream);
        Box::pin(async move {
            let stream = accept.await?;
            Ok(Box::new(stream) as Box<dyn console::Duplex>)
        })
    }
}

/// Closes the port.
pub(crate) fn close(node: &Node) {
    let open = node.management().take();
    drop(open);
}

fn settings(config: &Config) -> io::Result<Settings> {
    let http = &config.http;
    let mut addresses = Vec::new();
    for word in &http.bind {
        let (is_optional, host) = match word.strip_prefix('-') {
            Some(host) => (true, host),
            None => (false, word.as_str()),
        };
        match addresses_of(host, http.port) {
            // An optional address that does not exist is skipped.
            Ok(found) => addresses.extend(
                found
                    .into_iter()
                    .filter(|one| !is_optional || can_bind(one)),
            ),
            Err(_) if is_optional => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Settings {
        addresses,
        metrics_auth: match http.metrics_auth {
            MetricsAuth::Auto => console::MetricsAuth::Auto,
            MetricsAuth::No => console::MetricsAuth::No,
            MetricsAuth::Yes => console::MetricsAuth::Yes,
        },
        metrics_token_file: http.metrics_token_file.clone(),
        allowed_hosts: http.allowed_hosts.clone(),
        has_console: http.has_console,
        is_encrypted: http.is_encrypted,
        has_commands: http.has_commands,
        session_ttl: Duration::from_secs(http.session_ttl_s),
        export: export(config),
        protected_mode: config.protected_mode,
    })
}

fn addresses_of(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let any: Option<IpAddr> = match host {
        "*" => Some([0, 0, 0, 0].into()),
        "::*" => Some([0_u16; 8].into()),
        _ => None,
    };
    match any {
        Some(address) => Ok(vec![SocketAddr::new(address, port)]),
        None => Ok((host, port).to_socket_addrs()?.take(1).collect()),
    }
}

fn can_bind(address: &SocketAddr) -> bool {
    std::net::TcpListener::bind(SocketAddr::new(address.ip(), 0)).is_ok()
}

/// The data that the server shows.
struct View {
    node: Arc<Node>,
    /// The management thread's own store handle.
    store: Mutex<Handle>,
    /// Turns of the workers at the last check.
    turns: Mutex<Vec<u64>>,
}

impl View {
    fn store(&self) -> MutexGuard<'_, Handle> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turns_now(&self) -> Vec<u64> {
        let workers = self.node.workers().iter();
        workers
            .map(|one| one.counters.cell(Count::Turns).get())
            .collect()
    }
}

impl Figures for View {
    fn metrics(&self) -> Vec<Metric> {
        let mut store = self.store();
        statistics::all_metrics(&Sample::take(&self.node, &mut store))
    }

    fn info(&self, asked: &[String]) -> Vec<Section> {
        let mut store = self.store();
        let sample = Sample::take(&self.node, &mut store);
        let sections = statistics::asked_sections(asked).map(|section| {
            let mut fields = Vec::new();
            section.lines(&sample, &mut |name, text| {
                fields.push(Field {
                    name: name.to_owned(),
                    text: text.to_owned(),
                    number: section.number(name, text),
                });
            });
            Section {
                name: section.name,
                fields,
            }
        });
        sections.collect()
    }

    fn nudge(&self) {
        *self.turns.lock().unwrap_or_else(PoisonError::into_inner) = self.turns_now();
        for worker in self.node.workers() {
            worker.wake();
        }
    }

    fn stuck(&self) -> Vec<usize> {
        let before = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = self.turns_now();
        let pairs = turns.iter().zip(before.iter()).enumerate();
        let stuck = pairs.filter(|(_, (now, before))| now == before);
        stuck.map(|(worker, _)| worker).collect()
    }

    fn ready(&self) -> Result<(), Unready> {
        let refusals = &self.node.core.shared.refusals;
        let is_not = |word, reason: String| Err(Unready { word, reason });
        if self.node.is_stopping() {
            return is_not("ERR", "the server stops".to_owned());
        }
        if refusals.is_loading() {
            let percent = self.node.core.env.loading.progress().percent();
            return is_not("LOADING", format!("data is being loaded, {percent:.0} %"));
        }
        if refusals.is_log_faulty() {
            return is_not("MISCONF", "the log cannot be written".to_owned());
        }
        if refusals.is_stale() {
            return is_not("MASTERDOWN", "the link to the primary is down".to_owned());
        }
        Ok(())
    }

    fn log_lines(&self, after: u64) -> Vec<(u64, String)> {
        self.node.core.log.recent(after)
    }

    fn warn(&self, text: &str) {
        self.node.core.log.warning(format_args!("{text}"));
    }

    fn take_spans(&self) -> Vec<Span> {
        self.node.core.shared.observer.spans.take()
    }

    fn dropped_spans(&self) -> u64 {
        self.node.core.shared.observer.spans.dropped()
    }
}

/// Connections on which commands run.
struct Ways {
    node: Arc<Node>,
    balancer: Arc<Balancer>,
}

struct Way(InProcessPeer);

impl Link for Way {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }
}

impl Sessions for Ways {
    fn open(
        &self,
        from: SocketAddr,
        notify: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<Box<dyn Link>> {
        let clients_max = self.node.core.config.current().clients_max;
        if !self.node.sessions.clients.admit(clients_max) {
            return Err(io::Error::other("max number of clients reached"));
        }
        let (end, mut peer) = in_process_pair(PIPE_BYTES);
        peer.notify(notify);
        // The address is that of the HTTP client, because login limits and the audit log name it.
        let info = PeerInfo {
            peer: Endpoint::Tcp(from),
            local: Endpoint::InProcess,
            fd: -1,
            listener: None,
            security: None,
        };
        self.balancer.enter(Box::new(end), info);
        Ok(Box::new(Way(peer)))
    }

    fn may(&self, user: &[u8], password: &[u8], command: &str, from: SocketAddr) -> Admission {
        let shared = &self.node.core.shared;
        let (address, now_unix_ms) = (from.ip().to_string(), self.node.core.clock.now_unix_ms());
        match shared.access.log_in(user, password, &address, now_unix_ms) {
            Ok(user) if self.allows(user.name(), command) => Admission::Admitted,
            Ok(_) | Err(LogInError::Wrong) => Admission::Refused,
            Err(LogInError::TooOften) => Admission::TooOften,
        }
    }

    fn allows(&self, user: &[u8], command: &str) -> bool {
        let user = self.node.core.shared.access.users.find(user);
        let request = OneCommand(&self.node, command);
        user.is_some_and(|user| user.rules().check(&request).is_ok())
    }

    fn is_open(&self) -> bool {
        self.node.is_open()
    }

    fn mark(&self, user: &[u8]) -> Option<u64> {
        let user = self.node.core.shared.access.users.find(user)?;
        let mut hasher = DefaultHasher::new();
        user.line().hash(&mut hasher);
        Some(hasher.finish())
    }
}

/// A request without keys, for a check whether it may run.
struct OneCommand<'a>(&'a Node, &'a str);

impl access::Request for OneCommand<'_> {
    fn command(&self) -> access::CommandId {
        let catalog = self.0.core.env.table.catalog();
        catalog.find(self.1.as_bytes()).unwrap_or_default()
    }

    fn is_free(&self) -> bool {
        false
    }

    fn argument(&self, at: usize) -> Option<&[u8]> {
        (at == 0).then_some(self.1.as_bytes())
    }

    fn keys(&self) -> Vec<(usize, access::KeyUse)> {
        Vec::new()
    }

    fn channels(&self) -> Vec<(usize, access::ChannelUse)> {
        Vec::new()
    }
}
