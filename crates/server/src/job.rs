//! An offloaded request on its way to the thread that runs it, and its reply on the way back, in
//! pieces.

use std::sync::Arc;

use base::mapped_bytes::MappedBytes;
use engine::{ClientRecord, Transaction, Watches};
use protocol::Resp;
use reactor::ConnectionId;
use store::DatabaseId;

/// Length of the pieces of a long reply. Each piece is freed when it was sent: freeing the whole
/// reply at once would keep a worker from its clients for too long. For the same reason pieces are
/// not on the heap (see [`base::mapped_bytes`]).
const PIECE_BYTES: usize = 256 * 1024;

/// Length below which a piece is copied once more instead of being attached.
const ATTACHED_BYTES_MIN: usize = 16 * 1024;

/// Maximum length of the first and the last piece.
const END_BYTES: usize = 64;

/// An offloaded request.
pub struct Job {
    /// The request in encoded form.
    pub request: Box<[u8]>,
    /// The client that sent it.
    pub client: Arc<ClientRecord>,
    /// The database that it uses.
    pub database: DatabaseId,
    /// The protocol version of its reply.
    pub resp: Resp,
    /// The transaction that it ends, if it is EXEC.
    pub transaction: Option<Box<Transaction>>,
    /// The watched keys of that transaction.
    pub watches: Option<Box<Watches>>,
    /// Whether the client uses loopback or a Unix socket.
    pub peer_is_local: bool,
    /// Whether the server itself sent it; then nothing is refused.
    pub is_of_server: bool,
    /// Number of shutdowns that were aborted before the request was received.
    pub aborted_stops: u64,
    /// The connection that gets the reply.
    pub connection: ConnectionId,
}

/// The reply of a job, in pieces.
pub type Answer = Vec<Piece>;

/// A part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A short piece, which is copied.
    Short(Vec<u8>),
    /// A long piece, which is sent from where it lies.
    Long(Arc<MappedBytes>),
}

impl Piece {
    /// Copies `bytes` into a piece; a long one becomes `Short` if the system has no pages for it.
    fn of(bytes: &[u8]) -> Self {
        let is_long = bytes.len() >= ATTACHED_BYTES_MIN;
        let mapped = is_long.then(|| MappedBytes::copy_of(bytes).ok()).flatten();
        mapped.map_or_else(
            || Self::Short(bytes.to_vec()),
            |mapped| Self::Long(Arc::new(mapped)),
        )
    }

    /// Returns its bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Long(bytes) => bytes,
        }
    }
}

/// Splits a reply into pieces. The first and the last piece are short, so that they are copied: the
/// loop recognises the connection of attached pieces by the bytes around them.
pub fn in_pieces(bytes: &[u8]) -> Answer {
    let (first, rest) = bytes.split_at(bytes.len().min(END_BYTES));
    let (middle, last) = rest.split_at(rest.len().saturating_sub(END_BYTES));
    let pieces = [first].into_iter().chain(middle.chunks(PIECE_BYTES));
    pieces.chain([last]).map(Piece::of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_reply_and_its_ends_are_short() {
        for len in [0, 1, 64, 65, 128, 129, 1_000, 3 * PIECE_BYTES + 200] {
            let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(len).collect();
            let pieces = in_pieces(&bytes);
            let contents: Vec<&[u8]> = pieces.iter().map(Piece::as_slice).collect();
            assert_eq!(contents.concat(), bytes);
            assert!(contents.iter().all(|piece| piece.len() <= PIECE_BYTES));
            for end in [contents.first(), contents.last()] {
                assert!(end.is_some_and(|end| end.len() <= END_BYTES));
            }
        }
    }
}
