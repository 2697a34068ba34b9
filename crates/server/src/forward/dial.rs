//! Connections to other nodes: a thread connects, is admitted by a token, and passes the socket to
//! the worker that requested it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::NodeId;
use reactor::{ConnectionId, Endpoint, PeerInfo};

use super::{Newcomer, lock};
use crate::link::Message;
use crate::node::Node;

/// Maximum number of connections that are being made at a time.
const DIALS_MAX: usize = 64;
/// Timeout of a connection, and of each answer.
const STEP: Duration = Duration::from_secs(1);
/// Maximum length of an expected answer.
const ANSWER_BYTES_MAX: usize = 512;

/// A requested connection.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// The worker that requested it, ...
    pub(crate) worker: usize,
    /// ... and the client, if it is for one client alone.
    pub(crate) client: Option<ConnectionId>,
    pub(crate) serial: u64,
    /// The node.
    pub(crate) to: NodeId,
    /// The user who runs its requests.
    pub(crate) user: Vec<u8>,
}

/// Begins to make a connection, and does not wait. The worker is notified of success or failure.
pub(crate) fn begin(node: &Arc<Node>, wish: Wish) {
    let forward = &node.forward;
    if forward.dials.fetch_add(1, Ordering::AcqRel) >= DIALS_MAX {
        forward.dials.fetch_sub(1, Ordering::AcqRel);
        return tell(node, &wish, "too many connections are being made");
    }
    let own = Arc::clone(node);
    let kept = wish.clone();
    let spawned = spawn(move || {
        if let Err(reason) = dial(&own, &wish) {
            tell(&own, &wish, &reason);
        }
        own.forward.dials.fetch_sub(1, Ordering::AcqRel);
    });
    if spawned.is_err() {
        forward.dials.fetch_sub(1, Ordering::AcqRel);
        tell(node, &kept, "there is no thread");
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "it waits for another node, and ends then"
)]
fn spawn(run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("forward".into());
    thread.spawn(run).map(drop)
}

/// Notifies the worker that there is no connection.
fn tell(node: &Node, wish: &Wish, reason: &str) {
    if let Some(worker) = node.workers().get(wish.worker) {
        worker.post(Message::NotForwarded {
            client: wish.client,
            serial: wish.serial,
            reason: reason.into(),
        });
    }
}

fn dial(node: &Arc<Node>, wish: &Wish) -> Result<(), String> {
    let token = token(node, wish)?;
    let stream = connect(node, wish)?;
    let_in(stream.try_clone().map_err(text)?, &token)?;
    stream.set_nonblocking(true).map_err(text)?;
    let peer = PeerInfo {
        peer: Endpoint::Tcp(stream.peer_addr().map_err(text)?),
        local: Endpoint::Tcp(stream.local_addr().map_err(text)?),
        fd: stream.as_raw_fd(),
        listener: None,
        security: None,
    };
    let newcomer = Newcomer {
        client: wish.client,
        serial: wish.serial,
    };
    let balancer = node.forward.balancer.get().ok_or("the server starts")?;
    lock(&node.forward.newcomers).insert(peer.fd, newcomer);
    balancer.adopt(wish.worker, OwnedFd::from(stream), peer);
    Ok(())
}

fn token(node: &Arc<Node>, wish: &Wish) -> Result<String, String> {
    if wish.to.0 == node.replication.own.id().0 {
        let now_ms = node.core.clock.monotonic_ms();
        let token = node.forward.issue(&wish.user, now_ms);
        return Ok(base::hex::text(
            &token.ok_or("too many tokens are not used")?,
        ));
    }
    let part = node.control.part().ok_or("this node is by itself")?;
    let token = part.ask_for_token(wish.to, &wish.user, STEP)?;
    String::from_utf8(token).map_err(|_| "the node gave no token".to_owned())
}

fn connect(node: &Arc<Node>, wish: &Wish) -> Result<TcpStream, String> {
    let log = node.control.log().ok_or("this node is by itself")?;
    let state = log.watch();
    let record = state.nodes.get(&wish.to).map(|it| &it.record);
    let record = record.ok_or("the node is not of the cluster any more")?;
    if record.client_port == 0 {
        return Err("the node has no port without encryption".to_owned());
    }
    let names = &node.replication.host_names;
    let addresses = names.resolve(&record.host, record.client_port, &node.core.log);
    let mut failed = "the name of the node has no address".to_owned();
    for address in addresses.map_err(text)? {
        match TcpStream::connect_timeout(&address, STEP) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(text)?;
                return Ok(stream);
            }
            Err(error) => failed = error.to_string(),
        }
    }
    Err(failed)
}

/// Logs in with the token. Nothing else is sent before the answer.
fn let_in(mut stream: TcpStream, token: &str) -> Result<(), String> {
    stream.set_read_timeout(Some(STEP)).map_err(text)?;
    stream.set_write_timeout(Some(STEP)).map_err(text)?;
    let mut request = Vec::new();
    let words: [&[u8]; 4] = [b"CLIENT", b"FORWARD", b"AS", token.as_bytes()];
    protocol::encode_request(&mut request, &words);
    stream.write_all(&request).map_err(text)?;
    let mut answer = Vec::new();
    let mut piece = [0; ANSWER_BYTES_MAX];
    while !answer.ends_with(b"\r\n") {
        match stream.read(&mut piece).map_err(text)? {
            0 => return Err("the node ended the connection".to_owned()),
            count => answer.extend_from_slice(&piece[..count]),
        }
        if answer.len() >= ANSWER_BYTES_MAX {
            return Err("the node says too much".to_owned());
        }
    }
    match &answer[..] {
        b"+OK\r\n" => Ok(()),
        other => Err(String::from_utf8_lossy(other).trim().to_owned()),
    }
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}
