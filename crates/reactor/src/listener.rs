//! Sockets that accept connections: TCP over IPv4 and IPv6, and Unix sockets.

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

/// Options of a TCP listener.
#[derive(Clone, Copy, Debug)]
pub struct TcpOptions {
    /// Maximum number of connections that wait to be accepted. The kernel caps it at `somaxconn`.
    pub backlog: i32,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self { backlog: 511 }
    }
}

/// Options of a Unix socket listener.
#[derive(Clone, Copy, Debug)]
pub struct UnixOptions {
    /// Maximum number of connections that wait to be accepted. The kernel caps it at `somaxconn`.
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

/// Receives the peers of a listener that need a handshake before they become connections.
///
/// The service has already admitted these peers. The porter passes each accepted peer to
/// [`Balancer::enter`], and only then the connection is opened. The porter reports rejected peers
/// to its creator.
///
/// [`Balancer::enter`]: crate::Balancer::enter
pub trait Porter: Send + Sync + fmt::Debug {
    /// Takes a peer that was just accepted. Runs on the thread of a loop, so it must not block.
    fn receive(&self, socket: OwnedFd, peer: PeerInfo);
}

/// A listening socket, shared by the loops that accept from it.
///
/// A Unix socket's file is removed when its last listener is dropped.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    local: Endpoint,
    /// The file of a Unix socket.
    file: Option<Arc<SocketFile>>,
    porter: Option<Arc<dyn Porter>>,
}

impl Listener {
    /// Listens on a TCP address. With port 0 the system chooses the port. An IPv6 listener accepts
    /// IPv6 only, so that `0.0.0.0` and `::` can be used side by side.
    ///
    /// # Errors
    /// Those of `socket`, `bind` and `listen`, most often `AddrInUse`.
    pub fn tcp(address: SocketAddr, options: TcpOptions) -> io::Result<Self> {
        Self::tcp_with(address, options, false)
    }

    /// Does the same as [`Listener::tcp`] while `others` of this process still listen, one of which
    /// may use all addresses of the port. The kernel allows two such sockets of one user if both
    /// set `SO_REUSEPORT`. They have it only during this call.
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

    /// Returns another handle to the same socket. The socket listens until both are dropped.
    ///
    /// # Errors
    /// If the process may not open more descriptors.
    pub fn share(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.fd.try_clone()?,
            local: self.local.clone(),
            file: self.file.clone(),
            porter: self.porter.clone(),
        })
    }

    /// Passes all its peers to `porter` first.
    #[must_use]
    pub fn guarded_by(self, porter: Arc<dyn Porter>) -> Self {
        Self {
            porter: Some(porter),
            ..self
        }
    }

    /// Whether it passes its peers to a porter first.
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
        // Accepted sockets inherit this: one call per listener instead of one per connection.
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

    /// Listens on a Unix socket at `path`, replacing an existing socket there.
    ///
    /// # Errors
    /// Those of `socket`, `bind`, `chmod` and `listen`; `AlreadyExists` if `path` exists and is not
    /// a socket.
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
            // Before listen: no client can connect before the permissions are as requested.
            rustix::fs::chmod(path, Mode::from_bits_truncate(bits))?;
        }
        listen(&listener.fd, options.backlog)?;
        Ok(listener)
    }

    /// Returns the bound address, with the port that the system chose.
    #[must_use]
    pub fn local(&self) -> &Endpoint {
        &self.local
    }

    /// Returns the bound TCP address.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self.local {
            Endpoint::Tcp(address) => Some(address),
            _ => None,
        }
    }

    /// Accepts the next waiting connection. Returns it with the addresses of its two ends, peer
    /// first.
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

/// The file of a Unix socket. It is removed when no listener uses it any more.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may already have been removed.
        drop(std::fs::remove_file(&self.0));
    }
}

fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

/// Returns the peer's address. A peer that disconnected between the handshake and `accept` has no
/// address any more; the listener's address replaces it.
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
