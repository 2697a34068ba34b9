//! The port of the own link: one thread accepts, and hands each connection to threads of its own.
//!
//! Without a secret or certificates the port is bound to the loopback addresses alone. Peers on
//! other machines need one of the two. Their links are encrypted, unless both ends ask for plain
//! text.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::primary_link::PrimaryLinks;
use super::session::conduit;
use crate::incoming::{await_connection, is_nobody};

/// How often the thread checks whether to stop.
const LOOK: Duration = Duration::from_millis(500);
/// How long the thread waits after an error of `accept`: no descriptors are free.
const PAUSE: Duration = Duration::from_millis(50);

/// The sockets that accept links.
pub(crate) struct Listeners {
    listeners: Vec<TcpListener>,
    /// The port of all of them.
    pub(crate) port: u16,
}

/// Which peers may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Processes of this machine.
    Loopback,
    /// Every peer that knows the secret.
    Everybody,
}

impl Listeners {
    /// Binds the port.
    ///
    /// # Errors
    /// Errors of the system. If there is no IPv6, IPv4 alone is enough.
    pub(crate) fn open(port: u16, reach: Reach) -> io::Result<Self> {
        let addresses: [IpAddr; 2] = match reach {
            Reach::Loopback => [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            // One socket serves both.
            Reach::Everybody => [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()],
        };
        let bound: Vec<io::Result<TcpListener>> = addresses
            .into_iter()
            .map(|address| TcpListener::bind(SocketAddr::new(address, port)))
            .collect();
        let (mut listeners, mut refused) = (Vec::new(), None);
        for one in bound {
            match one {
                Ok(listener) => {
                    listener.set_nonblocking(true)?;
                    listeners.push(listener);
                }
                Err(error) => refused = Some(error),
            }
        }
        match (listeners.is_empty(), refused) {
            (true, Some(error)) => Err(error),
            _ => Ok(Self { listeners, port }),
        }
    }

    /// Accepts links until `stop` is set.
    #[allow(
        clippy::disallowed_methods,
        reason = "the one thread that accepts links"
    )]
    pub(crate) fn serve(self, links: Arc<PrimaryLinks>, stop: Arc<AtomicBool>) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("link-listen".into());
        thread.spawn(move || {
            while !stop.load(Ordering::Acquire) {
                await_connection(&self.listeners, LOOK);
                if self.accept(&links).is_err() {
                    std::thread::sleep(PAUSE);
                }
            }
        })?;
        Ok(())
    }

    /// Accepts the waiting connections, one of each socket.
    fn accept(&self, links: &Arc<PrimaryLinks>) -> io::Result<()> {
        for listener in &self.listeners {
            let (stream, address) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if is_nobody(&error) => continue,
                Err(error) => return Err(error),
            };
            if !links.has_room() {
                continue;
            }
            let served = stream
                .set_nonblocking(false)
                .and_then(|()| conduit(stream))
                .and_then(|conduit| links.serve(conduit, shown(address)));
            // The connection is then closed, and the peer connects again.
            let _refused = served;
        }
        Ok(())
    }
}

/// Shows an IPv4 address as such, also if it was accepted by an IPv6 socket.
fn shown(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}
