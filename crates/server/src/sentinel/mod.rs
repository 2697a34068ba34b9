//! The port for clients that ask Sentinels for the primary (`sentinel-port`). It is answered from
//! the view of the control group: no Sentinel runs anywhere, and clients need no change.
//!
//! ```text
//!   client ──► thread of its connection ── Session ──► Answers ◄── View ◄── the group's thread
//!                                            └── +switch-master, when the view names another primary
//! ```
//!
//! Few clients ask, and rarely: each connection has a thread, and there are at most
//! [`CONNECTIONS_MAX`].

mod answers;
mod session;

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::incoming::{await_connection, is_nobody};
use crate::node::Node;
use session::Session;

/// Maximum number of connections at a time.
const CONNECTIONS_MAX: usize = 256;
/// How often to check for another primary, and whether to stop.
const LOOK: Duration = Duration::from_millis(50);
/// Timeout of a write to a client that does not read.
const WRITE_TIME: Duration = Duration::from_secs(5);
const READ_BYTES: usize = 4 << 10;

/// Opens the port, if it is configured.
///
/// # Errors
/// The port cannot be listened on.
#[allow(
    clippy::disallowed_methods,
    reason = "the thread that accepts clients of Sentinels"
)]
pub(crate) fn open(node: &Arc<Node>) -> io::Result<()> {
    let config = node.core.config.current();
    let port = config.group.sentinel_port;
    if port == 0 {
        return Ok(());
    }
    if !node.replication.fence.is_grouped() && !config.group.is_witness {
        return Err(io::Error::other(
            "sentinel-port takes a control group (cluster-group or join): without one nobody knows who is the primary",
        ));
    }
    let is_near = config.protected_mode && config.password.is_none();
    let listeners = listen(port, is_near)?;
    node.core.log.notice(format_args!(
        "Clients of Sentinels are answered at port {port}, for {}",
        if is_near {
            "this machine (protected-mode)"
        } else {
            "everybody"
        }
    ));
    let weak = Arc::downgrade(node);
    let thread = std::thread::Builder::new().name("sentinel".into());
    thread.spawn(move || accept(&listeners, &weak, port))?;
    Ok(())
}

fn listen(port: u16, is_near: bool) -> io::Result<Vec<TcpListener>> {
    let addresses: [IpAddr; 2] = match is_near {
        true => [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        // One socket serves both.
        false => [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()],
    };
    let mut refused = None;
    let mut listeners = Vec::new();
    for address in addresses {
        match TcpListener::bind(SocketAddr::new(address, port)) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                listeners.push(listener);
            }
            Err(error) => refused = Some(error),
        }
    }
    match (listeners.is_empty(), refused) {
        (true, Some(error)) => Err(error),
        _ => Ok(listeners),
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "a thread for each client of Sentinels"
)]
fn accept(listeners: &[TcpListener], node: &Weak<Node>, port: u16) {
    let count = Arc::new(AtomicUsize::new(0));
    while node.upgrade().is_some_and(|node| !node.is_stopping()) {
        await_connection(listeners, LOOK);
        for listener in listeners {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if is_nobody(&error) => continue,
                Err(_) => {
                    // No descriptor is free; wait until one is.
                    std::thread::sleep(LOOK);
                    continue;
                }
            };
            if count.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                continue;
            }
            let counted = Counted::new(&count);
            let node = Weak::clone(node);
            let thread = std::thread::Builder::new().name("sentinel-client".into());
            // Without a thread the connection is closed, and the client asks another node.
            let _refused = thread.spawn(move || {
                let _counted = counted;
                // A client that is gone asks again.
                let _gone = serve(stream, &node, port);
            });
        }
    }
}

/// Counts a connection while it exists.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(mut stream: TcpStream, node: &Weak<Node>, port: u16) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(WRITE_TIME))?;
    let mut session = Session::new(port, stream.peer_addr()?.ip());
    let mut bytes = [0; READ_BYTES];
    loop {
        let Some(node) = node.upgrade().filter(|node| !node.is_stopping()) else {
            return Ok(());
        };
        let output = session.look(&node);
        stream.write_all(&output)?;
        let goes_on = match stream.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                let (output, goes_on) = session.receive(&node, &bytes[..count]);
                stream.write_all(&output)?;
                goes_on
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted
                ) =>
            {
                true
            }
            Err(error) => return Err(error),
        };
        if !goes_on {
            return Ok(());
        }
    }
}
