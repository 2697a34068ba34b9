//! Connections of a worker: which clients are accepted, what is recorded of them, and what is
//! removed when they are gone.

use std::sync::Arc;

use access::User;
use engine::ClientRecord;
use reactor::{ConnectionId, Endpoint, PeerInfo};

use super::Worker;
use super::sessions::Connected;
use crate::tls;

pub(super) const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";

pub(super) const PROTECTED: &[u8] =
    b"-DENIED Iolite is running in protected mode because no password is set \
    for the default user. In this mode connections are only accepted from the loopback interface. \
    To connect from another host either set a password (directive requirepass, or CONFIG SET \
    requirepass from this host), or, if no stranger can reach the port, turn protected mode off \
    (directive protected-mode no, or CONFIG SET protected-mode no from this host).\r\n";

impl Worker {
    /// Returns the user that the peer's certificate names, if certificates name users.
    pub(super) fn certified_user(&self, peer: &PeerInfo) -> Option<Arc<User>> {
        let security = peer.security.as_ref()?;
        let names = tls::user_names(self.config.config(), security);
        let users = &self.node.core.shared.access.users;
        let mut known = names.iter().filter_map(|name| users.find(name.as_bytes()));
        known.find(|user| user.rules().is_on())
    }

    pub(super) fn record(&self, id: ConnectionId, peer: &PeerInfo) -> ClientRecord {
        let mut record = ClientRecord::new(
            self.node.sessions.clients.next_id(),
            address(&peer.peer),
            address(&peer.local),
            self.index,
            peer.fd,
            self.node.core.clock.now_unix_ms(),
        );
        record.place = id.index();
        record
    }

    /// Removes everything recorded of a connection that has left this worker.
    pub(super) fn forget(&mut self, id: ConnectionId) -> Option<Connected> {
        let mut connected = self.sessions.remove(id)?;
        self.buffers.forget(&mut connected);
        if let Some(end) = connected.wait_end {
            self.waits.remove(end);
        }
        if let Some(replies) = &mut self.held_replies {
            replies.forget(id, &mut connected.wrote, connected.disk_wait);
        }
        // The order matters: `close` ends what another thread begins for a client while it is still
        // known.
        self.node
            .sessions
            .clients
            .remove(connected.session.client.id);
        self.engine.close(&mut connected.session);
        self.deliveries.forget(&connected.session, id);
        if let Some(tracking) = connected.session.tracking.take() {
            self.node.unfollow(self.engine.store(), &tracking.follower);
        }
        self.forget_forwarding(id, Some(&connected));
        self.paused_count -= usize::from(connected.is_paused);
        Some(connected)
    }
}

/// Whether a peer connected to `port`.
pub(super) fn is_at_port(peer: &PeerInfo, port: u16) -> bool {
    matches!(&peer.local, Endpoint::Tcp(address) if address.port() == port)
}

/// Whether a peer is on this machine.
pub(super) fn is_local(peer: &PeerInfo) -> bool {
    match &peer.peer {
        Endpoint::Tcp(address) => address.ip().to_canonical().is_loopback(),
        Endpoint::Unix(_) | Endpoint::InProcess => true,
    }
}

/// Returns an address as CLIENT LIST shows it.
fn address(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Tcp(address) => address.to_string(),
        Endpoint::Unix(path) => format!("{}:0", path.display()),
        Endpoint::InProcess => ClientRecord::IN_PROCESS.to_owned(),
    }
}
