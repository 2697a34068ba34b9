//! A client of the memcached port: what of its requests is on the way.

use memcached::{Front, Read};
use protocol::ReplyBuffer;
use reactor::{Endpoint, PeerInfo};

use crate::config::{Config, Memcached as Settings};
use crate::job::{Answer, Piece};

/// What `version` answers: the protocol is that of memcached 1.6.
const VERSION: &str = concat!("1.6.0-iolite-", env!("CARGO_PKG_VERSION"));

/// A client of the memcached port.
pub(super) struct MemcachedClient {
    pub(super) front: Front,
    /// What was read of the input and is still owed.
    pub(super) read: Read,
}

/// Whether a peer came by one of the memcached ports.
pub(super) fn came_by(peer: &PeerInfo, config: &Config) -> bool {
    let ports = [config.memcached.port, config.tls.memcached_port];
    matches!(&peer.local, Endpoint::Tcp(address) if address.port() != 0 && ports.contains(&address.port()))
}

impl MemcachedClient {
    pub(super) fn new(settings: &Settings) -> Box<Self> {
        Box::new(Self {
            front: Front::new(settings.item_bytes_max, VERSION),
            read: Read::default(),
        })
    }

    /// Writes the texts that replies become; whether they are those of its requests.
    pub(super) fn write(&mut self, replies: &ReplyBuffer, output: &mut ReplyBuffer) -> bool {
        let is_whole = replies.len() == replies.len_with_attachments();
        let written = if is_whole {
            self.front.answer(replies.as_slice(), output)
        } else {
            self.front.answer(&replies.to_vec(), output)
        };
        written.is_ok()
    }

    /// As [`write`](Self::write), of a reply that was made elsewhere.
    pub(super) fn answer(&mut self, reply: &Answer, output: &mut ReplyBuffer) -> bool {
        let pieces: Vec<&[u8]> = reply.iter().map(Piece::as_slice).collect();
        self.front.answer(&pieces.concat(), output).is_ok()
    }
}
