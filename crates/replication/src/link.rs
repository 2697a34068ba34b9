//! The link between two nodes: messages as bytes. `docs/formats/link.md` specifies the format.
//!
//! ```text
//!   0        4      5       6        8       12
//!   ├─ length ┼ kind ┼ flags ┼ stream ┼─ sum ─┼─ body … ─┤      little-endian; the sum is CRC-32C
//!   └ u32 ────┴ u8 ──┴ u8 ───┴ u16 ───┴ u32 ──┘
//! ```
//!
//! All bytes come from a peer. A decoder accepts any bytes, allocates at most as many as it got,
//! and reports what is wrong. A receiver may skip kinds below 128 that it does not know. An unknown
//! kind from 128 on ends the link.

mod control;
mod fields;
mod message;
#[cfg(test)]
mod tests;

use std::fmt;

use durability::checksum;

pub use control::{ASK, Answer, Ask, SLOTS, SlotsStep};
pub use message::{
    Ack, Block, Digest, DigestState, Frames, Full, Hello, MANIFEST_PART, Message,
    NODE_NAME_BYTES_MAX, Resume, Source, SyncEnd, WHOLE_PART,
};

/// The version of the link that this program speaks.
pub const VERSION: u16 = 1;
/// The oldest version of the link that this program speaks. The newer of two ends speaks the
/// version of the other.
pub const VERSION_MIN: u16 = 1;
/// Bytes of the header before each body.
pub const HEADER_BYTES: usize = 12;
/// Maximum length of a body.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Maximum length of a body before the peer has proved that it knows the secret.
pub const HELLO_BYTES_MAX: usize = 512;

/// Feature flag of a hello: everything after both hellos is to be encrypted.
pub const ENCRYPTS: u32 = 1;
/// Feature flag of a hello: encryption uses certificates that an authority signed.
pub const CERTIFIES: u32 = 2;
/// Feature flag of a replica's hello: it keeps the log only, and gets no checkpoint.
pub const LOG_ONLY: u32 = 4;

/// Number of header bytes that the sum covers.
const SUMMED_BYTES: usize = 8;
/// The first kind that a receiver must not skip.
const FIRST_NECESSARY: u8 = 128;

/// Why bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// The body is longer than allowed.
    TooLong {
        /// Length that the header states.
        bytes: u32,
        /// Maximum length.
        bytes_max: u32,
    },
    /// The sum is wrong.
    Sum,
    /// An unknown kind that a receiver must know.
    Kind(u8),
    /// The body is invalid for this kind.
    Body(u8),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes, bytes_max } => {
                write!(
                    f,
                    "a message of {bytes} bytes; at most {bytes_max} are taken"
                )
            }
            Self::Sum => f.write_str("the sum of a message is wrong"),
            Self::Kind(kind) => write!(f, "a message of unknown kind {kind}"),
            Self::Body(kind) => write!(f, "a message of kind {kind} is malformed"),
        }
    }
}

impl std::error::Error for LinkError {}

/// A header, checked against a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the body.
    pub length: usize,
    /// Kind of the body.
    pub kind: u8,
    /// Reserved: written as 0, any value is accepted.
    pub flags: u8,
    /// Number of the parallel stream of a full sync that it belongs to; 0 otherwise.
    pub stream: u16,
    sum: u32,
}

impl Header {
    /// Decodes the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`LinkError::TooLong`] if the body is too long: the caller must not allocate memory for it.
    pub fn decode(bytes: &[u8; HEADER_BYTES], body_bytes_max: usize) -> Result<Self, LinkError> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let bytes_max = u32::try_from(body_bytes_max.min(BODY_BYTES_MAX)).unwrap_or(u32::MAX);
        let length = word(0);
        if length > bytes_max {
            let bytes = length;
            return Err(LinkError::TooLong { bytes, bytes_max });
        }
        Ok(Self {
            length: usize::try_from(length).unwrap_or(usize::MAX),
            kind: bytes[4],
            flags: bytes[5],
            stream: u16::from_le_bytes([bytes[6], bytes[7]]),
            sum: word(8),
        })
    }

    fn summed(&self) -> [u8; SUMMED_BYTES] {
        let mut bytes = [0; SUMMED_BYTES];
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        (bytes[4], bytes[5]) = (self.kind, self.flags);
        bytes[6..].copy_from_slice(&self.stream.to_le_bytes());
        bytes
    }

    /// Decodes the message of this header and a body of its length. Returns `None` if it may be
    /// skipped.
    ///
    /// # Errors
    /// [`LinkError`]; the caller closes the link.
    pub fn message<'b>(&self, body: &'b [u8]) -> Result<Option<Message<'b>>, LinkError> {
        if body.len() != self.length || sum_of(&self.summed(), body) != self.sum {
            return Err(LinkError::Sum);
        }
        match Message::decode(self.kind, body) {
            Some(message) => message.map(Some),
            None if self.kind < FIRST_NECESSARY => Ok(None),
            None => Err(LinkError::Kind(self.kind)),
        }
    }
}

/// Appends a message to `out`.
///
/// # Panics
/// Never for messages whose payload is at most [`Message::payload_bytes_max`]; in tests otherwise.
pub fn encode(message: &Message<'_>, stream: u16, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    message.encode(out);
    let length = out.len() - start - HEADER_BYTES;
    debug_assert!(length <= BODY_BYTES_MAX, "a message of {length} bytes");
    let header = Header {
        length,
        kind: message.kind(),
        flags: 0,
        stream,
        sum: 0,
    };
    let summed = header.summed();
    let sum = sum_of(&summed, &out[start + HEADER_BYTES..]);
    out[start..start + SUMMED_BYTES].copy_from_slice(&summed);
    out[start + SUMMED_BYTES..start + HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

fn sum_of(head: &[u8], body: &[u8]) -> u32 {
    checksum::append(checksum::crc32c(head), body)
}
