//! Encrypted connections of a server: what their handshakes read, when it is read again, and who hears
//! of those that fail.
//!
//! Handshakes exist from when the first directive asks for encrypted connections. What they read is read
//! whole, before anything changes; a change that cannot be read leaves everything as it was.

use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use base::clock::Clock;
use reactor::workers::available_cores;
use reactor::{Balancer, Endpoint, Porter, Security};
use tls::{Attendant, Certificate, ClientAuth, Handshakes, Refused, Server, ServerOptions};

use crate::config::{ClientCertificate, Config, Tls, TlsRules, UserField};
use crate::node::Node;

pub use tls::SetupError;

/// Failed handshakes that are logged in a second; the others are counted.
const LOGGED_PER_SECOND_MAX: u64 = 10;
/// Cores for each thread of handshakes.
const CORES_PER_THREAD: usize = 4;
/// Threads of handshakes.
const THREADS_MAX: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub struct TlsSetup {
    handshakes: OnceLock<Arc<Handshakes>>,
    balancer: OnceLock<Weak<Balancer>>,
    node: Arc<OnceLock<Weak<Node>>>,
    files: Mutex<Files>,
}

/// What was read last.
#[derive(Debug, Default)]
struct Files {
    rules: Option<TlsRules>,
    /// Of the files that were read, or that were tried last.
    prints: Vec<Print>,
    looked_ns: u64,
}

/// What changes when a file is written or replaced: number, length, time.
type Print = (u64, u64, i64, i64);

/// Something that was read, and is not in force yet.
#[derive(Debug)]
pub struct Prepared {
    server: Server,
    rules: TlsRules,
    prints: Vec<Print>,
}

impl TlsSetup {
    /// Says whose these are, once.
    pub fn join(&self, node: &Arc<Node>) {
        let _already_set = self.node.set(Arc::downgrade(node));
    }

    /// Reads what `config` asks for, if encrypted connections come in anywhere.
    ///
    /// # Errors
    /// What cannot be used.
    pub fn prepare(
        &self,
        clock: &Arc<dyn Clock>,
        config: &Tls,
    ) -> Result<Option<Prepared>, SetupError> {
        if !config.is_on() {
            return Ok(None);
        }
        let rules = config.rules.clone();
        // Before the files are read: what is written meanwhile is seen as a change.
        let prints = prints(&rules);
        let server = Server::load(&options(&rules), clock)?;
        Ok(Some(Prepared {
            server,
            rules,
            prints,
        }))
    }

    /// Puts in force what was read, if anything was. Who receives those that come.
    ///
    /// # Errors
    /// When the process may have no more descriptors or threads.
    pub fn enforce(&self, prepared: Option<Prepared>) -> io::Result<Option<Arc<dyn Porter>>> {
        let Some(Prepared {
            server,
            rules,
            prints,
        }) = prepared
        else {
            return Ok(self.porter());
        };
        {
            let mut files = self.lock();
            files.rules = Some(rules);
            files.prints = prints;
        }
        if let Some(handshakes) = self.handshakes.get() {
            handshakes.change(server);
            return Ok(self.porter());
        }
        let observer = HandshakeObserver {
            node: Arc::clone(&self.node),
            logged: Logged::default(),
        };
        let threads = (available_cores() / CORES_PER_THREAD).clamp(1, THREADS_MAX);
        let node = observer.node().ok_or(io::ErrorKind::NotFound)?;
        let clock = Arc::clone(&node.core.clock);
        let handshakes = Handshakes::new(server, threads, clock, Box::new(observer))?;
        if let Some(balancer) = self.balancer.get().and_then(Weak::upgrade) {
            handshakes.start(&balancer)?;
        }
        // Directives change one after the other.
        let _already_set = self.handshakes.set(Arc::new(handshakes));
        Ok(self.porter())
    }

    /// Who receives connections that are to be encrypted.
    fn porter(&self) -> Option<Arc<dyn Porter>> {
        let handshakes = Arc::clone(self.handshakes.get()?);
        Some(handshakes)
    }

    /// Lets handshakes begin, whose connections go to the workers of `balancer`.
    ///
    /// # Errors
    /// When the process may have no more threads or descriptors.
    pub fn start(&self, balancer: &Arc<Balancer>) -> io::Result<()> {
        let _already_set = self.balancer.set(Arc::downgrade(balancer));
        let handshakes = self.handshakes.get();
        handshakes.map_or(Ok(()), |handshakes| handshakes.start(balancer))
    }

    /// Ends all handshakes.
    pub fn stop(&self) {
        if let Some(handshakes) = self.handshakes.get() {
            handshakes.stop();
        }
    }

    /// Reads the files again if they changed and it is time to look.
    fn look(&self, node: &Node) {
        let interval_s = node.core.config.current().tls.reload_interval_s;
        let now_ns = node.core.clock.monotonic_ns();
        let Some(rules) = self.changed(interval_s, now_ns) else {
            return;
        };
        match Server::load(&options(&rules), &node.core.clock) {
            Ok(server) => {
                let files = self.lock();
                // A directive may have changed meanwhile, which comes with files of its own.
                if files.rules.as_ref() == Some(&rules)
                    && let Some(handshakes) = self.handshakes.get()
                {
                    handshakes.change(server);
                    node.core.log.notice(format_args!(
                        "The files of TLS changed and were read again, for those who connect from now on"
                    ));
                }
            }
            Err(error) => node.core.log.warning(format_args!(
                "The files of TLS changed and cannot be used, so what was read before stays: {error}"
            )),
        }
    }

    /// The rules whose files are to be read again, if it is time to look and they changed.
    fn changed(&self, interval_s: u32, now_ns: u64) -> Option<TlsRules> {
        let mut files = self.lock();
        let waited_ns = now_ns.saturating_sub(files.looked_ns);
        if interval_s == 0 || waited_ns < u64::from(interval_s) * 1_000_000_000 {
            return None;
        }
        files.looked_ns = now_ns;
        let rules = files.rules.clone()?;
        let prints = prints(&rules);
        if prints == files.prints {
            return None;
        }
        files.prints = prints;
        Some(rules)
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The section of INFO.
    #[must_use]
    pub fn info(&self, now_unix_ms: u64) -> String {
        let handshakes = self.handshakes.get();
        let figures = handshakes.map(|it| it.figures()).unwrap_or_default();
        let server = handshakes.map(|it| it.server());
        let own = server.as_ref().and_then(|it| it.certificate.as_ref());
        let authority = server.as_ref().and_then(|it| it.authority.as_ref());
        let mut text = String::new();
        for (whose, certificate) in [("server", own), ("client", None), ("ca", authority)] {
            let (serial, left_s) = certificate.map_or(("none", 0), |it| left(it, now_unix_ms));
            let _ = write!(text, "tls_{whose}_cert_serial:{serial}\r\n");
            let _ = write!(text, "tls_{whose}_cert_expires_in_seconds:{left_s}\r\n");
        }
        for (name, count) in [
            ("completed", figures.completed),
            ("resumed", figures.resumed),
            ("failed", figures.refused),
            ("pending", figures.pending),
        ] {
            let _ = write!(text, "tls_handshakes_{name}:{count}\r\n");
        }
        text
    }
}

/// Serial and seconds left, 0 once it has ended.
fn left(certificate: &Certificate, now_unix_ms: u64) -> (&str, i64) {
    let now_unix = i64::try_from(now_unix_ms / 1000).unwrap_or(i64::MAX);
    let left_s = certificate.ends_unix.saturating_sub(now_unix).max(0);
    (&certificate.serial, left_s)
}

/// The users that a client's certificate may name, where certificates name users; the first that there is
/// counts.
#[must_use]
pub fn user_names<'a>(config: &Config, security: &'a Security) -> Vec<&'a str> {
    let names = &security.names;
    match config.tls.user_field {
        UserField::Off => Vec::new(),
        UserField::CommonName => names.common_name.as_deref().into_iter().collect(),
        UserField::Uri => names.uris.iter().map(String::as_str).collect(),
    }
}

/// Hears of failed handshakes, and of the time.
struct HandshakeObserver {
    node: Arc<OnceLock<Weak<Node>>>,
    logged: Logged,
}

impl HandshakeObserver {
    fn node(&self) -> Option<Arc<Node>> {
        self.node.get()?.upgrade()
    }
}

impl Attendant for HandshakeObserver {
    fn refused(&self, refused: &Refused<'_>) {
        let Some(node) = self.node() else {
            return;
        };
        node.sessions.clients.leave();
        if self.logged.may(node.uptime_ms()) {
            let who = match &refused.peer.peer {
                Endpoint::Tcp(address) => address.to_string(),
                Endpoint::Unix(path) => path.display().to_string(),
                Endpoint::InProcess => String::new(),
            };
            node.core.log.notice(format_args!(
                "Error accepting a client connection: {} (addr={who})",
                refused.error
            ));
        }
    }

    fn tick(&self) {
        if let Some(node) = self.node() {
            node.process.tls.look(&node);
        }
    }
}

/// How many failures were logged in which second.
#[derive(Debug, Default)]
struct Logged {
    second: AtomicU64,
    count: AtomicU64,
}

impl Logged {
    /// Whether one more is logged.
    fn may(&self, now_ms: u64) -> bool {
        let second = now_ms / 1000;
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.count.store(0, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed) < LOGGED_PER_SECOND_MAX
    }
}

pub(crate) fn options(rules: &TlsRules) -> ServerOptions {
    ServerOptions {
        certificate_file: rules.certificate_file.clone(),
        key_file: rules.key_file.clone(),
        key_password: rules.key_password.clone(),
        authorities_file: rules.authorities_file.clone(),
        authorities_directory: rules.authorities_directory.clone(),
        client_auth: match rules.client_certificate {
            ClientCertificate::No => ClientAuth::No,
            ClientCertificate::Optional => ClientAuth::Optional,
            ClientCertificate::Required => ClientAuth::Required,
        },
        protocols: rules.protocols.clone(),
        ciphers: rules.ciphers.clone(),
        cipher_suites: rules.cipher_suites.clone(),
        prefers_own_order: rules.prefers_own_order,
        caches_sessions: rules.caches_sessions,
        sessions_max: usize::try_from(rules.sessions_max).unwrap_or(usize::MAX),
        sessions_lifetime_s: rules.sessions_lifetime_s.into(),
    }
}

/// What encrypts the management port: the server's certificate, without a question for one of the client, since those who
/// use the port have passwords and tokens.
#[cfg(feature = "http")]
pub(crate) struct PageTls {
    rules: TlsRules,
    clock: Arc<dyn Clock>,
    read: Mutex<(Vec<Print>, Arc<Server>)>,
}

#[cfg(feature = "http")]
impl PageTls {
    /// Reads the files.
    ///
    /// # Errors
    /// What cannot be used.
    pub(crate) fn load(mut rules: TlsRules, clock: Arc<dyn Clock>) -> Result<Self, SetupError> {
        rules.client_certificate = ClientCertificate::No;
        let prints = prints(&rules);
        let server = Server::load(&options(&rules), &clock)?;
        Ok(Self {
            rules,
            clock,
            read: Mutex::new((prints, Arc::new(server))),
        })
    }

    /// What was read last: again, if the files changed and can be read.
    pub(crate) fn server(&self) -> Arc<Server> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let prints = prints(&self.rules);
        if prints != read.0 {
            // What cannot be read is tried once; what was read before stays in force.
            read.0 = prints;
            if let Ok(server) = Server::load(&options(&self.rules), &self.clock) {
                read.1 = Arc::new(server);
            }
        }
        Arc::clone(&read.1)
    }
}

/// Who signs certificates of collectors, as it was read last.
#[cfg(feature = "http")]
#[derive(Default)]
pub(crate) struct CollectorTls(Mutex<Option<(std::path::PathBuf, Print, tls::Outgoing)>>);

#[cfg(feature = "http")]
impl CollectorTls {
    /// The authorities in this file, or the system's: read again where they changed.
    ///
    /// # Errors
    /// What cannot be used.
    pub(crate) fn outgoing(&self, authorities: Option<&Path>) -> Result<tls::Outgoing, SetupError> {
        let mut read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = tls::Outgoing::place(authorities);
        let print = print(place);
        if let Some((last_place, last_print, outgoing)) = &*read
            && (last_place.as_path(), last_print) == (place, &print)
        {
            return Ok(outgoing.clone());
        }
        let outgoing = tls::Outgoing::load(authorities)?;
        *read = Some((place.to_path_buf(), print, outgoing.clone()));
        Ok(outgoing)
    }
}

/// What a file looks like.
fn print(path: &Path) -> Print {
    let metadata = std::fs::metadata(path).ok();
    metadata.map_or((0, 0, 0, 0), |it| {
        (it.ino(), it.len(), it.mtime(), it.mtime_nsec())
    })
}

/// What the files look like that `rules` name, and those in their directory.
fn prints(rules: &TlsRules) -> Vec<Print> {
    let files = [
        &rules.certificate_file,
        &rules.key_file,
        &rules.authorities_file,
        &rules.authorities_directory,
    ];
    let mut prints: Vec<Print> = files
        .into_iter()
        .flatten()
        .map(|path| print(path))
        .collect();
    if let Some(directory) = &rules.authorities_directory {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let start = prints.len();
        prints.extend(entries.map(|entry| print(&entry.path())));
        prints[start..].sort_unstable();
    }
    prints
}
