//! The fixed pieces of a part: its head, the heads of its blocks, and its foot.
//!
//! ```text
//!   head   magic 8 │ version 2 │ values 2 │ part 4 │ generation 8 │ created 8 │ lineage 20 │ 0 8 │ crc 4
//!   block  magic 4 │ crc 4 │ generation 8 │ part 4 │ number 4 │ bytes 4 │ records 2 │ flags 2 │ payload
//!   foot   magic 4 │ crc 4 │ generation 8 │ part 4 │ 0 4 │ blocks 8 │ records 8 │ length 8 │ digest 8
//! ```

use super::fault::Flaw;
use super::fields::{Fields, join};
use super::manifest::Lineage;
use crate::checksum::{append, crc32c};

/// The version of the format that is written.
pub const PART_VERSION: u16 = 1;

/// Maximum length of a block, including its head.
pub const BLOCK_BYTES_MAX: usize = 256 << 10;

pub(super) const HEAD_BYTES: usize = 64;
pub(super) const BLOCK_HEAD_BYTES: usize = 32;
pub(super) const FOOT_BYTES: usize = 56;

/// Maximum length of a block's payload.
pub(super) const PAYLOAD_BYTES_MAX: usize = BLOCK_BYTES_MAX - BLOCK_HEAD_BYTES;

const HEAD_MAGIC: [u8; 8] = *b"IOLPART\n";
const BLOCK_MAGIC: [u8; 4] = *b"BLCK";
const FOOT_MAGIC: [u8; 4] = *b"FOOT";

/// Bytes of a block or foot that its checksum does not cover: the magic number, and the checksum
/// itself.
const BEFORE_SUM: usize = 8;

/// The checkpoint and the number that a part belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartHead {
    /// Version of the formats of the values in it, which the caller knows.
    pub value_version: u16,
    /// Number of the part within the checkpoint, from 0 on.
    pub part: u32,
    /// The generation that began with the cut.
    pub generation: u64,
    /// When the checkpoint began, in milliseconds since 1970 UTC.
    pub created_unix_ms: u64,
    /// The lineage of the records.
    pub lineage: Lineage,
}

impl PartHead {
    pub(super) fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes: [u8; HEAD_BYTES] = join(&[
            &HEAD_MAGIC,
            &PART_VERSION.to_le_bytes(),
            &self.value_version.to_le_bytes(),
            &self.part.to_le_bytes(),
            &self.generation.to_le_bytes(),
            &self.created_unix_ms.to_le_bytes(),
            &self.lineage.0,
            &[0; 12],
        ]);
        let (fields, sum) = bytes.split_at_mut(HEAD_BYTES - 4);
        sum.copy_from_slice(&crc32c(fields).to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        Self::fields(bytes).unwrap_or(Err(Flaw::Short))
    }

    fn fields(bytes: &[u8]) -> Option<Result<Self, Flaw>> {
        let mut fields = Fields(bytes);
        let (magic, version) = (fields.array()?, fields.u16()?);
        if magic != HEAD_MAGIC {
            return Some(Err(Flaw::NoPart));
        }
        if version != PART_VERSION {
            return Some(Err(Flaw::Version(version)));
        }
        let head = Self {
            value_version: fields.u16()?,
            part: fields.u32()?,
            generation: fields.u64()?,
            created_unix_ms: fields.u64()?,
            lineage: Lineage(fields.array()?),
        };
        // Encoding determines the rest: zeroes, and the sum behind them.
        let is_right = bytes.get(..HEAD_BYTES)? == head.encode();
        Some(if is_right {
            Ok(head)
        } else {
            Err(Flaw::Checksum)
        })
    }
}

/// The head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHead {
    pub(super) generation: u64,
    pub(super) part: u32,
    /// Number of the block, from 0 on.
    pub(super) number: u32,
    pub(super) payload_bytes: u32,
    /// Number of records that begin in it.
    pub(super) records: u16,
    /// Whether it begins inside a record.
    pub(super) continues: bool,
    /// Whether it ends inside a record.
    pub(super) goes_on: bool,
}

impl BlockHead {
    const CONTINUES: u16 = 1;
    const GOES_ON: u16 = 2;

    fn flags(&self) -> u16 {
        let continues = u16::from(self.continues) * Self::CONTINUES;
        continues + u16::from(self.goes_on) * Self::GOES_ON
    }

    /// Encodes the head of `payload`, whose length the head states.
    pub(super) fn encode(&self, payload: &[u8]) -> [u8; BLOCK_HEAD_BYTES] {
        debug_assert_eq!(self.payload_bytes as usize, payload.len());
        let fields: [u8; BLOCK_HEAD_BYTES - BEFORE_SUM] = join(&[
            &self.generation.to_le_bytes(),
            &self.part.to_le_bytes(),
            &self.number.to_le_bytes(),
            &self.payload_bytes.to_le_bytes(),
            &self.records.to_le_bytes(),
            &self.flags().to_le_bytes(),
        ]);
        let sum = append(crc32c(&fields), payload);
        join(&[&BLOCK_MAGIC, &sum.to_le_bytes(), &fields])
    }

    /// Returns the stated length of the block that begins with `bytes`, including its head, or
    /// `None` if none begins there. Limited to what can be trusted before the sum is checked.
    pub(super) fn block_bytes(bytes: &[u8]) -> Option<usize> {
        let (head, ..) = Self::fields(bytes).filter(|_| bytes.starts_with(&BLOCK_MAGIC))?;
        Some((BLOCK_HEAD_BYTES + head.payload_bytes as usize).min(BLOCK_BYTES_MAX))
    }

    /// Returns the head at the front of `bytes` and its payload, which must be there, or `None` if
    /// something else begins there.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<(Self, &[u8])>, Flaw> {
        if !bytes.starts_with(&BLOCK_MAGIC) {
            return Ok(None);
        }
        let (head, flags, sum, mut rest) = Self::fields(bytes).ok_or(Flaw::Short)?;
        let is_too_long = head.payload_bytes as usize > PAYLOAD_BYTES_MAX;
        if is_too_long || flags != head.flags() {
            return Err(Flaw::Shape);
        }
        let payload = rest.take(head.payload_bytes.into()).ok_or(Flaw::Short)?;
        let summed = append(crc32c(&bytes[BEFORE_SUM..BLOCK_HEAD_BYTES]), payload);
        if sum == summed {
            Ok(Some((head, payload)))
        } else {
            Err(Flaw::Checksum)
        }
    }

    fn fields(bytes: &[u8]) -> Option<(Self, u16, u32, Fields<'_>)> {
        let mut fields = Fields(bytes);
        let (_magic, sum) = (fields.u32()?, fields.u32()?);
        let (generation, part, number) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let (payload_bytes, records, flags) = (fields.u32()?, fields.u16()?, fields.u16()?);
        let head = Self {
            generation,
            part,
            number,
            payload_bytes,
            records,
            continues: flags & Self::CONTINUES != 0,
            goes_on: flags & Self::GOES_ON != 0,
        };
        Some((head, flags, sum, fields))
    }
}

/// The foot of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foot {
    pub(super) generation: u64,
    pub(super) part: u32,
    pub(super) blocks: u64,
    pub(super) records: u64,
    /// Length of the whole file in bytes.
    pub(super) length: u64,
    /// CRC-64 of the head and of the heads of all blocks.
    pub(super) digest: u64,
}

impl Foot {
    pub(super) fn encode(&self) -> [u8; FOOT_BYTES] {
        let fields: [u8; FOOT_BYTES - BEFORE_SUM] = join(&[
            &self.generation.to_le_bytes(),
            &self.part.to_le_bytes(),
            &[0; 4],
            &self.blocks.to_le_bytes(),
            &self.records.to_le_bytes(),
            &self.length.to_le_bytes(),
            &self.digest.to_le_bytes(),
        ]);
        join(&[&FOOT_MAGIC, &crc32c(&fields).to_le_bytes(), &fields])
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        if !bytes.starts_with(&FOOT_MAGIC) {
            return Err(Flaw::NoBlock);
        }
        let foot = Self::fields(bytes).ok_or(Flaw::Short)?;
        if bytes.starts_with(&foot.encode()) {
            Ok(foot)
        } else {
            Err(Flaw::Checksum)
        }
    }

    fn fields(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes.get(BEFORE_SUM..FOOT_BYTES)?);
        let (generation, part, _zero) = (fields.u64()?, fields.u32()?, fields.u32()?);
        Some(Self {
            generation,
            part,
            blocks: fields.u64()?,
            records: fields.u64()?,
            length: fields.u64()?,
            digest: fields.u64()?,
        })
    }
}
