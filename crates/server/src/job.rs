//! A request that takes long, on its way to the thread for those, and its reply on the way back, in pieces.

use std::sync::Arc;

use base::mapped_bytes::MappedBytes;
use engine::{ClientRecord, Transaction, Watches};
use protocol::Resp;
use reactor::ConnectionId;
use store::DatabaseId;

/// A long reply leaves in pieces of so many bytes, each freed when it was sent: freeing all of it at
/// once would take a worker longer than it should be away from its clients. For the same reason they are not on
/// the heap (see [`base::mapped_bytes`]).
const PIECE_BYTES: usize = 256 * 1024;

/// Pieces that are shorter are copied once more instead.
const ATTACHED_BYTES_MIN: usize = 16 * 1024;

/// Bytes of the first and the last piece, at most.
const END_BYTES: usize = 64;

/// A request that takes long.
pub struct Job {
    /// The request as it came.
    pub request: Box<[u8]>,
    /// Who sent it.
    pub client: Arc<ClientRecord>,
    /// The database it is about.
    pub database: DatabaseId,
    /// The protocol of its reply.
    pub resp: Resp,
    /// What it ends, if it is EXEC.
    pub transaction: Option<Box<Transaction>>,
    /// What was watched for that.
    pub watches: Option<Box<Watches>>,
    /// Whether it came over loopback or a Unix socket.
    pub peer_is_local: bool,
    /// The server itself asks, and nothing is refused to it.
    pub is_of_server: bool,
    /// How many stops of the server had been given up when it came.
    pub aborted_stops: u64,
    /// Where the reply goes.
    pub connection: ConnectionId,
}

/// The reply of a job, in pieces.
pub type Answer = Vec<Piece>;

/// A part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A short one, to be copied.
    Short(Vec<u8>),
    /// A long one, sent from where it lies.
    Long(Arc<MappedBytes>),
}

impl Piece {
    /// A copy of `bytes`; a long one counts as short if the system has no pages for it.
    fn of(bytes: &[u8]) -> Self {
        let is_long = bytes.len() >= ATTACHED_BYTES_MIN;
        let mapped = is_long.then(|| MappedBytes::copy_of(bytes).ok()).flatten();
        mapped.map_or_else(
            || Self::Short(bytes.to_vec()),
            |mapped| Self::Long(Arc::new(mapped)),
        )
    }

    /// What it consists of.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Long(bytes) => bytes,
        }
    }
}

/// The first and the last piece are short, so that they are copied: the loop knows whom something
/// is for by the bytes around it.
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
