//! Segments and blocks: the heads between frames, and the names of files.
//!
//! ```text
//!   segment head   "IOLITLOG" │ version u32 │ ordinal u32 │ salt u64 │ created_unix_ms u64 │ used u32 │ sum u32
//!   block head     "LBLK" │ sum u32 │ sequence u64 │ length u64 │ durable u64 │ chain u32 │ gap u32
//! ```
//!
//! The sum of a block head begins with the salt of its segment. The salt is random and leaves the
//! server in no other way, so no client can store a value that looks like a block.

use std::path::{Path, PathBuf};

use super::frame::{u32_at, u64_at};
use crate::checksum;

/// Version of the format that is written.
pub const VERSION: u32 = 4;
/// The oldest version that is read. Later ones added gaps (3) and controls (4), and nothing else
/// that a reader has to know.
pub(super) const OLDEST_VERSION: u32 = 2;
const MAGIC: &[u8; 8] = b"IOLITLOG";
const BLOCK_MAGIC: &[u8; 4] = b"LBLK";
pub(super) const SEGMENT_HEAD_BYTES: usize = 40;
pub(super) const BLOCK_HEAD_BYTES: usize = 40;
/// Page size of devices and of a ring's memory. Every gap is shorter.
pub(super) const PAGE_BYTES: usize = 4096;
const EXTENSION: &str = ".log";
const NAME_DIGITS: usize = 16;

/// The head at the start of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHead {
    /// Version of the format; [`VERSION`] in a written head.
    pub(super) version: u32,
    /// Number of segments made before. If a segment begins at a lower sequence than another and has
    /// a higher ordinal, it replaces the other one.
    pub(super) ordinal: u32,
    /// Random number that goes into the sums of the blocks.
    pub(super) salt: u64,
    pub(super) created_unix_ms: u64,
    /// Whether the file held other frames before: bytes behind its last block may be remains of
    /// them.
    pub(super) was_used: bool,
}

impl SegmentHead {
    pub(super) fn encode(&self) -> [u8; SEGMENT_HEAD_BYTES] {
        let mut bytes = [0; SEGMENT_HEAD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.ordinal.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.salt.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.created_unix_ms.to_le_bytes());
        bytes[32..36].copy_from_slice(&u32::from(self.was_used).to_le_bytes());
        let sum = checksum::crc32c(&bytes[..36]);
        bytes[36..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HeadFlaw> {
        if bytes.len() < SEGMENT_HEAD_BYTES || !bytes.starts_with(MAGIC) {
            return Err(HeadFlaw::Damaged);
        }
        if u32_at(bytes, 36) != checksum::crc32c(&bytes[..36]) {
            return Err(HeadFlaw::Damaged);
        }
        match u32_at(bytes, 8) {
            version @ OLDEST_VERSION..=VERSION => Ok(Self {
                version,
                ordinal: u32_at(bytes, 12),
                salt: u64_at(bytes, 16),
                created_unix_ms: u64_at(bytes, 24),
                was_used: u32_at(bytes, 32) & 1 != 0,
            }),
            version => Err(HeadFlaw::Version(version)),
        }
    }

    /// Returns the start value of the chain of the segment's blocks.
    pub(super) fn chain(&self) -> u32 {
        u32_at(&self.encode(), 36)
    }
}

/// Why a segment's head is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadFlaw {
    Damaged,
    /// The head is whole, but of another version of the format.
    Version(u32),
}

/// The head in front of frames that were written at once. A block without frames only states
/// `durable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHead {
    /// Sequence of the first frame.
    pub(super) sequence: u64,
    /// Length of the frames in bytes.
    pub(super) length: u64,
    /// Sequence below which everything had been made durable.
    pub(super) durable: u64,
    /// The sum of the previous block head, or of the segment's head.
    pub(super) chain: u32,
    /// Number of zero bytes between the head and the first frame.
    pub(super) gap: u32,
}

impl BlockHead {
    pub(super) fn encode(&self, salt: u64) -> [u8; BLOCK_HEAD_BYTES] {
        let mut bytes = [0; BLOCK_HEAD_BYTES];
        bytes[..4].copy_from_slice(BLOCK_MAGIC);
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.length.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.durable.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.chain.to_le_bytes());
        bytes[36..].copy_from_slice(&self.gap.to_le_bytes());
        let sum = sum_of(&bytes, salt);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Returns the head at the start of `bytes`, if there is one.
    pub(super) fn decode(bytes: &[u8], salt: u64) -> Option<Self> {
        let bytes = bytes.get(..BLOCK_HEAD_BYTES)?;
        let gap = u32_at(bytes, 36);
        let is_one = bytes.starts_with(BLOCK_MAGIC)
            && u32_at(bytes, 4) == sum_of(bytes, salt)
            && (gap as usize) < PAGE_BYTES
            && gap.is_multiple_of(8);
        is_one.then(|| Self {
            sequence: u64_at(bytes, 8),
            length: u64_at(bytes, 16),
            durable: u64_at(bytes, 24),
            chain: u32_at(bytes, 32),
            gap,
        })
    }

    /// Returns the chain value of the next block's head.
    pub(super) fn next_chain(&self, salt: u64) -> u32 {
        u32_at(&self.encode(salt), 4)
    }
}

fn sum_of(head: &[u8], salt: u64) -> u32 {
    let salted = checksum::crc32c(&salt.to_le_bytes());
    checksum::append(salted, &head[8..])
}

/// Returns the path of the segment whose first frame has sequence `first`.
pub(super) fn path_of(directory: &Path, first: u64) -> PathBuf {
    directory.join(format!("{first:0NAME_DIGITS$x}{EXTENSION}"))
}

/// Returns the first sequence of the segment with this file name, or `None` if it is no segment's
/// name.
pub(super) fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(EXTENSION)?;
    let is_ours = digits.len() == NAME_DIGITS
        && digits
            .bytes()
            .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    u64::from_str_radix(digits, 16).ok().filter(|_| is_ours)
}
