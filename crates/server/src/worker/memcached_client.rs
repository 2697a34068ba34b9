//! State of a client of the memcached port: its requests that are being processed.

use memcached::{Front, Read};
use protocol::ReplyBuffer;
use reactor::{Endpoint, PeerInfo};

use crate::config::{Config, Memcached as Settings};
use crate::job::{Answer, Piece};

/// Reply to `version`: the protocol is that of memcached 1.6.
const VERSION: &str = concat!("1.6.0-iolite-", env!("CARGO_PKG_VERSION"));

/// A client of the memcached port.
pub(super) struct MemcachedClient {
    pub(super) front: Front,
    /// Input that was read and whose replies are still owed.
    pub(super) read: Read,
}

/// Whether a peer connected to one of the memcached ports.
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

    /// Converts replies to text and writes it. Returns false if they are not replies to its
    /// requests.
    pub(super) fn write(&mut self, replies: &ReplyBuffer, output: &mut ReplyBuffer) -> bool {
        let is_whole = replies.len() == replies.len_with_attachments();
        let written = if is_whole {
            self.front.answer(replies.as_slice(), output)
        } else {
            self.front.answer(&replies.to_vec(), output)
        };
        written.is_ok()
    }

    /// As [`write`](Self::write), for a reply that another thread made.
    pub(super) fn answer(&mut self, reply: &Answer, output: &mut ReplyBuffer) -> bool {
        let pieces: Vec<&[u8]> = reply.iter().map(Piece::as_slice).collect();
        self.front.answer(&pieces.concat(), output).is_ok()
    }
}
