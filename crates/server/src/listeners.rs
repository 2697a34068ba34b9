//! Listeners for clients: the sockets that the configuration names, and their changes while the
//! server runs.
//!
//! A change of `port`, `tls-port` or `bind` first opens the new sockets. Only when all are open do
//! the workers switch to them, and sockets that are no longer needed close. Connections stay. An
//! address that stays keeps its socket, including the connections that wait there.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use reactor::{Balancer, Listener, Porter, TcpOptions, UnixOptions};

use crate::config::Config;

/// A socket that the server cannot listen on, and the reason.
#[derive(Debug)]
pub struct Fault {
    /// The socket, as the log names it.
    pub what: String,
    /// The error of the system.
    pub cause: io::Error,
}

/// The sockets that the workers accept from.
#[derive(Debug)]
pub struct Listeners {
    balancer: Arc<Balancer>,
    listeners: Mutex<Arc<[Listener]>>,
}

impl Listeners {
    /// Starts with the listeners that the loops of `balancer` began with.
    #[must_use]
    pub fn new(balancer: Arc<Balancer>, listeners: Arc<[Listener]>) -> Self {
        Self {
            balancer,
            listeners: Mutex::new(listeners),
        }
    }

    /// Listens at the TCP addresses that `config` names, and stops at others. `porter` receives
    /// connections that are to be encrypted.
    ///
    /// # Errors
    /// The first address that is not available; nothing has changed then.
    pub fn change(&self, config: &Config, porter: Option<&Arc<dyn Porter>>) -> Result<(), Fault> {
        let mut standing = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut listeners = open_all_tcp(config, &standing, porter)?;
        for listener in standing.iter() {
            if listener.tcp_address().is_none() {
                let what = "cannot keep the Unix socket";
                listeners.push(listener.share().map_err(because(what))?);
            }
        }
        *standing = listeners.into();
        self.balancer.listen(Arc::clone(&standing));
        Ok(())
    }
}

/// Opens the sockets that the configuration names.
///
/// # Errors
/// The first that cannot be opened, or that there is none.
pub fn open(config: &Config, porter: Option<&Arc<dyn Porter>>) -> Result<Vec<Listener>, Fault> {
    let mut listeners = open_all_tcp(config, &[], porter)?;
    if let Some(path) = &config.unix_socket {
        listeners.push(open_unix(config, path)?);
    }
    if let (Some(path), Some(porter)) = (&config.tls.unix_socket, porter) {
        listeners.push(open_unix(config, path)?.guarded_by(Arc::clone(porter)));
    }
    if listeners.is_empty() {
        let cause = io::Error::from(io::ErrorKind::AddrNotAvailable);
        return Err(because("configured to listen nowhere")(cause));
    }
    Ok(listeners)
}

fn open_unix(config: &Config, path: &Path) -> Result<Listener, Fault> {
    let options = UnixOptions {
        backlog: backlog(config),
        permission_bits: Some(config.unix_socket_mode).filter(|bits| *bits != 0),
    };
    let what = format!("cannot listen on '{}'", path.display());
    Listener::unix(path, options).map_err(because(what))
}

/// Listens at all TCP addresses, plain and encrypted ones.
fn open_all_tcp(
    config: &Config,
    standing: &[Listener],
    porter: Option<&Arc<dyn Porter>>,
) -> Result<Vec<Listener>, Fault> {
    let mut listeners = open_tcp(config, config.port, standing, false)?;
    listeners.extend(open_tcp(config, config.memcached.port, standing, false)?);
    listeners.extend(open_tcp(
        config,
        config.cluster.forward_port,
        standing,
        false,
    )?);
    if let Some(porter) = porter {
        for port in [config.tls.port, config.tls.memcached_port] {
            let encrypted = open_tcp(config, port, standing, true)?;
            let guarded = |one: Listener| one.guarded_by(Arc::clone(porter));
            listeners.extend(encrypted.into_iter().map(guarded));
        }
    }
    Ok(listeners)
}

/// Listens at a port of all addresses. Reuses sockets of `standing` with the same address and kind.
fn open_tcp(
    config: &Config,
    port: u16,
    standing: &[Listener],
    is_guarded: bool,
) -> Result<Vec<Listener>, Fault> {
    let mut listeners = Vec::new();
    if port == 0 {
        return Ok(listeners);
    }
    for bind in &config.bind {
        match listen_tcp((&bind.host, port), config, standing, is_guarded) {
            Ok(more) => listeners.extend(more),
            Err(error) if bind.optional && is_absent(&error) => {}
            Err(cause) => {
                let what = format!(
                    "Could not create server TCP listening socket {}:{}: bind",
                    bind.host, port
                );
                return Err(Fault { what, cause });
            }
        }
    }
    Ok(listeners)
}

fn listen_tcp(
    (host, port): (&str, u16),
    config: &Config,
    standing: &[Listener],
    is_guarded: bool,
) -> io::Result<Vec<Listener>> {
    let addresses: Vec<SocketAddr> = match host {
        "*" => vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)],
        "::*" => vec![SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)],
        host => (host, port).to_socket_addrs()?.collect(),
    };
    let options = TcpOptions {
        backlog: backlog(config),
    };
    let listen = |address| {
        let same =
            |one: &&Listener| one.tcp_address() == Some(address) && one.is_guarded() == is_guarded;
        match standing.iter().find(same) {
            Some(listener) => listener.share(),
            None if standing.is_empty() => Listener::tcp(address, options),
            None => Listener::tcp_beside(address, options, standing),
        }
    };
    addresses.into_iter().map(listen).collect()
}

/// Whether the error means that this machine does not have an optional address.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported
    ) || error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

fn backlog(config: &Config) -> i32 {
    i32::try_from(config.tcp_backlog).unwrap_or(i32::MAX)
}

fn because<S: Into<String>>(what: S) -> impl FnOnce(io::Error) -> Fault {
    move |cause| Fault {
        what: what.into(),
        cause,
    }
}
