//! Encrypted connections of a server: the files that handshakes use, when they are read again, and
//! reports of failed handshakes.
//!
//! Handshakes exist from the first directive that asks for encrypted connections. Files are read
//! completely before anything changes; a change whose files cannot be read leaves everything as it
//! was.

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

/// Maximum number of failed handshakes that are logged per second; further ones are only counted.
const LOGGED_PER_SECOND_MAX: u64 = 10;
/// Number of cores per handshake thread.
const CORES_PER_THREAD: usize = 4;
/// Maximum number of handshake threads.
const THREADS_MAX: usize = 8;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct TlsSetup {
    handshakes: OnceLock<Arc<Handshakes>>,
    balancer: OnceLock<Weak<Balancer>>,
    node: Arc<OnceLock<Weak<Node>>>,
    files: Mutex<Files>,
}

/// The files that were read last.
#[derive(Debug, Default)]
struct Files {
    rules: Option<TlsRules>,
    /// Fingerprints of the files that were read, or that the last attempt tried to read.
    prints: Vec<Print>,
    looked_ns: u64,
}

/// Fingerprint that changes when a file is written or replaced: inode number, length, time.
type Print = (u64, u64, i64, i64);

/// Settings that were read and are not in force yet.
#[derive(Debug)]
pub struct Prepared {
    server: Server,
    rules: TlsRules,
    prints: Vec<Print>,
}

impl TlsSetup {
    /// Sets the node; called once.
    pub fn join(&self, node: &Arc<Node>) {
        let _already_set = self.node.set(Arc::downgrade(node));
    }

    /// Reads the files that `config` names, if any listener accepts encrypted connections.
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
        // Taken before the files are read, so that a concurrent write counts as a change.
        let prints = prints(&rules);
        let server = Server::load(&options(&rules), clock)?;
        Ok(Some(Prepared {
            server,
            rules,
            prints,
        }))
    }

    /// Puts the prepared settings into force, if there are any. Returns the receiver of encrypted
    /// connections.
    ///
    /// # Errors
    /// The process may have no more descriptors or threads.
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

    /// Returns the receiver of encrypted connections.
    fn porter(&self) -> Option<Arc<dyn Porter>> {
        let handshakes = Arc::clone(self.handshakes.get()?);
        Some(handshakes)
    }

    /// Starts the handshake threads, whose connections go to the workers of `balancer`.
    ///
    /// # Errors
    /// The process may have no more threads or descriptors.
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

    /// Reads the files again if a check is due and they changed.
    fn look(&self, node: &Node) {
        let interval_s = node.core.config.current().tls.reload_interval_s;
        let now_ns = node.core.clock.monotonic_ns();
        let Some(rules) = self.changed(interval_s, now_ns) else {
            return;
        };
        match Server::load(&options(&rules), &node.core.clock) {
            Ok(server) => {
                let files = self.lock();
                // A directive may have changed meanwhile, which has files of its own.
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

    /// Returns the rules whose files must be read again, if a check is due and they changed.
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

    /// Returns the section of INFO.
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

/// Returns the serial number and the remaining seconds, 0 after the end.
fn left(certificate: &Certificate, now_unix_ms: u64) -> (&str, i64) {
    let now_unix = i64::try_from(now_unix_ms / 1000).unwrap_or(i64::MAX);
    let left_s = certificate.ends_unix.saturating_sub(now_unix).max(0);
    (&certificate.serial, left_s)
}

/// Returns the users that a client's certificate may name, if certificates name users. The first
/// that exists counts.
#[must_use]
pub fn user_names<'a>(config: &Config, security: &'a Security) -> Vec<&'a str> {
    let names = &security.names;
    match config.tls.user_field {
        UserField::Off => Vec::new(),
        UserField::CommonName => names.common_name.as_deref().into_iter().collect(),
        UserField::Uri => names.uris.iter().map(String::as_str).collect(),
    }
}

/// Observer of failed handshakes and of the time.
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

/// Number of failures that were logged in the present second.
#[derive(Debug, Default)]
struct Logged {
    second: AtomicU64,
    count: AtomicU64,
}

impl Logged {
    /// Whether one more failure may be logged.
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

/// TLS of the management port: the server's certificate, without a request for a client
/// certificate, because users of the port have passwords and tokens.
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

    /// Returns the settings that were read last. Reads the files again if they changed and are
    /// readable.
    pub(crate) fn server(&self) -> Arc<Server> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let prints = prints(&self.rules);
        if prints != read.0 {
            // Unreadable files are tried once; the former settings stay in force.
            read.0 = prints;
            if let Ok(server) = Server::load(&options(&self.rules), &self.clock) {
                read.1 = Arc::new(server);
            }
        }
        Arc::clone(&read.1)
    }
}

/// Authorities that sign certificates of collectors, as read last.
#[cfg(feature = "http")]
#[derive(Default)]
pub(crate) struct CollectorTls(Mutex<Option<(std::path::PathBuf, Print, tls::Outgoing)>>);

#[cfg(feature = "http")]
impl CollectorTls {
    /// Returns the authorities in this file, or the system's. Reads the file again if it changed.
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

/// Returns the fingerprint of a file.
fn print(path: &Path) -> Print {
    let metadata = std::fs::metadata(path).ok();
    metadata.map_or((0, 0, 0, 0), |it| {
        (it.ino(), it.len(), it.mtime(), it.mtime_nsec())
    })
}

/// Returns the fingerprints of the files that `rules` name, and of those in their directory.
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
