//! Sockets that take connections: TCP over IPv4 and IPv6, and Unix sockets.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind,
    getsockname, listen, socket_with,
};

use crate::service::{Endpoint, PeerInfo};

/// How to listen on a TCP address.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptions {
    /// Connections that may wait to be accepted; the kernel caps it at `somaxconn`.
    pub backlog: i32,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self { backlog: 511 }
    }
}

/// How to listen on a Unix socket.
#[derive(Clone, Copy, Debug)]
pub struct UnixOptions {
    /// Connections that may wait to be accepted; the kernel caps it at `somaxconn`.
    pub backlog: i32,
    /// Permission bits of the socket's file; `None` leaves them to the umask.
    pub permission_bits: Option<u32>,
}

impl Default for UnixOptions {
    fn default() -> Self {
        Self {
            backlog: 511,
            permission_bits: None,
        }
    }
}

/// Receives the peers of a listener that have something to settle before they are connections.
///
/// It was asked whether they are admitted; who is let in is given to [`Balancer::enter`], and only
/// then opened. Whoever made the porter hears from it of those who are not.
///
/// [`Balancer::enter`]: crate::Balancer::enter
pub trait Porter: Send + Sync + fmt::Debug {
    /// Takes a peer that was just accepted, on the thread of a loop: never blocks.
    fn receive(&self, socket: OwnedFd, peer: PeerInfo);
}

/// A listening socket, shared by the loops that accept from it.
///
/// A Unix socket's file is removed when its last listener is dropped.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    local: Endpoint,
    /// Of a Unix socket.
    file: Option<Arc<SocketFile>>,
    porter: Option<Arc<dyn Porter>>,
}

impl Listener {
    /// Listens on a TCP address; port 0 lets the system choose. An IPv6 listener takes IPv6 only,
    /// so that `0.0.0.0` and `::` can stand side by side.
    ///
    /// # Errors
    /// Those of `socket`, `bind` and `listen`, `AddrInUse` foremost.
    pub fn tcp(address: SocketAddr, options: TcpOptions) -> io::Result<Self> {
        Self::tcp_with(address, options, false)
    }

    /// As [`Listener::tcp`] while `others` of this process still listen, of which one may take all
    /// addresses of the port: the kernel lets two such sockets of one user stand side by side that
    /// both say so. They say so only for as long as this call takes.
    ///
    /// # Errors
    /// As [`Listener::tcp`].
    pub fn tcp_beside(
        address: SocketAddr,
        options: TcpOptions,
        others: &[Self],
    ) -> io::Result<Self> {
        let on_port = |other: &&Self| {
            other
                .tcp_address()
                .is_some_and(|one| one.port() == address.port())
        };
        for other in others.iter().filter(on_port) {
            sockopt::set_socket_reuseport(&other.fd, true)?;
        }
        let opened = Self::tcp_with(address, options, true);
        for other in others.iter().filter(on_port) {
            sockopt::set_socket_reuseport(&other.fd, false)?;
        }
        let opened = opened?;
        sockopt::set_socket_reuseport(&opened.fd, false)?;
        Ok(opened)
    }

    /// The same socket once more: it listens until both are gone.
    ///
    /// # Errors
    /// When the process may open no more descriptors.
    pub fn share(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.fd.try_clone()?,
            local: self.local.clone(),
            file: self.file.clone(),
            porter: self.porter.clone(),
        })
    }

    /// Has all its peers go to `porter` first.
    #[must_use]
    pub fn guarded_by(self, porter: Arc<dyn Porter>) -> Self {
        Self {
            porter: Some(porter),
            ..self
        }
    }

    /// Whether its peers go to a porter first.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.porter.is_some()
    }

    pub(crate) fn porter(&self) -> Option<&dyn Porter> {
        self.porter.as_deref()
    }

    fn tcp_with(address: SocketAddr, options: TcpOptions, shares_port: bool) -> io::Result<Self> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let fd = socket(family)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&fd, true)?;
        }
        sockopt::set_socket_reuseaddr(&fd, true)?;
        if shares_port {
            sockopt::set_socket_reuseport(&fd, true)?;
        }
        // Accepted sockets inherit it: one call per listener instead of one per connection.
        sockopt::set_tcp_nodelay(&fd, true)?;
        bind(&fd, &address)?;
        listen(&fd, options.backlog)?;
        let local = SocketAddr::try_from(getsockname(&fd)?)?;
        Ok(Self {
            fd,
            local: Endpoint::Tcp(local),
            file: None,
            porter: None,
        })
    }

    /// Listens on a Unix socket at `path`, replacing a socket that lies there.
    ///
    /// # Errors
    /// Those of `socket`, `bind`, `chmod` and `listen`; `AlreadyExists` when something else than a
    /// socket lies at `path`.
    pub fn unix(path: &Path, options: UnixOptions) -> io::Result<Self> {
        remove_stale(path)?;
        let fd = socket(AddressFamily::UNIX)?;
        bind(&fd, &SocketAddrUnix::new(path)?)?;
        let listener = Self {
            fd,
            local: Endpoint::Unix(Arc::new(path.to_path_buf())),
            file: Some(Arc::new(SocketFile(path.to_path_buf()))),
            porter: None,
        };
        if let Some(bits) = options.permission_bits {
            // Before listen: nobody can connect before the bits are what was asked for.
            rustix::fs::chmod(path, Mode::from_bits_truncate(bits))?;
        }
        listen(&listener.fd, options.backlog)?;
        Ok(listener)
    }

    /// The address that it is bound to, with the port that the system chose.
    #[must_use]
    pub fn local(&self) -> &Endpoint {
        &self.local
    }

    /// The TCP address that it is bound to.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self.local {
            Endpoint::Tcp(address) => Some(address),
            _ => None,
        }
    }

    /// The next waiting connection with the addresses of its two ends, peer first.
    pub(crate) fn accept(&self) -> Result<(OwnedFd, Endpoint, Endpoint), Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (fd, address) = acceptfrom_with(&self.fd, flags)?;
        match &self.local {
            Endpoint::Tcp(bound) => {
                let peer = tcp_endpoint(address, *bound);
                let local = tcp_endpoint(getsockname(&fd).ok(), *bound);
                Ok((fd, peer, local))
            }
            other => Ok((fd, other.clone(), other.clone())),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The file of a Unix socket, removed when nobody listens any more.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody may have removed it already.
        drop(std::fs::remove_file(&self.0));
    }
}

fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

/// A peer that left between the handshake and `accept` has no address any more; the listener's
/// stands in for it.
fn tcp_endpoint(address: Option<SocketAddrAny>, otherwise: SocketAddr) -> Endpoint {
    let address = address.and_then(|address| SocketAddr::try_from(address).ok());
    Endpoint::Tcp(address.unwrap_or(otherwise))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
