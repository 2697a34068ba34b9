//! Reads one part, block by block.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use base::crc::crc64;

use super::block::{
    BLOCK_BYTES_MAX, BLOCK_HEAD_BYTES, BlockHead, FOOT_BYTES, Foot, HEAD_BYTES, PartHead,
};
use super::fault::{CheckpointFault, Flaw};
use super::fields::Fields;
use super::manifest::PartEntry;
use super::record::{self, Record};
use crate::disk::{Disk, DiskFile};

/// Reads one part from its beginning to its end, and checks everything.
///
/// The returned records are valid; the part is known to be whole only once
/// [`PartReader::next_block`] has returned `None`. Memory: one block, or one record if that is
/// longer.
#[derive(Debug)]
pub struct PartReader {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    head: PartHead,
    /// Length of the file, if it is known before its end.
    file_bytes: Option<u64>,
    /// Offset of the next block.
    offset: u64,
    blocks: u64,
    records: u64,
    digest: u64,
    buffer: Vec<u8>,
    /// A record that is longer than a block.
    long: Vec<u8>,
    /// Whether the last checked block ends within a record that is longer than a block.
    is_within_long: bool,
    entry: Option<PartEntry>,
    /// The manifest entry that the part should have, known at its end.
    found: Option<PartEntry>,
}

/// Some whole records of a part.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    payload: &'a [u8],
    records: u16,
}

/// Some whole records of a part, which outlive their reader.
#[derive(Debug)]
pub struct OwnedBlock {
    /// The buffer into which the reader had read.
    bytes: Vec<u8>,
    payload: Range<usize>,
    records: u16,
}

impl OwnedBlock {
    /// Returns the records.
    #[must_use]
    pub fn block(&self) -> Block<'_> {
        Block {
            payload: &self.bytes[self.payload.clone()],
            records: self.records,
        }
    }

    /// Returns its memory, for [`PartReader::take_block`].
    #[must_use]
    pub fn into_memory(self) -> Vec<u8> {
        self.bytes
    }
}

impl<'a> Block<'a> {
    /// Returns the number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.into()
    }

    /// Whether there are no records, which is never so.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Returns the records.
    pub fn records(&self) -> impl Iterator<Item = Record<'a>> + use<'a> {
        let mut fields = Fields(self.payload);
        (0..self.records).map_while(move |_| record::read(&mut fields))
    }

    /// Whether the payload is exactly the stated number of records.
    fn is_whole(&self) -> bool {
        let mut fields = Fields(self.payload);
        let whole = (0..self.records).all(|_| record::read(&mut fields).is_some());
        whole && fields.0.is_empty() && self.records > 0
    }
}

impl PartReader {
    /// Opens a part and reads its head.
    ///
    /// # Errors
    /// If the system reports an error, or the file is no part or one of a newer version.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Self, CheckpointFault> {
        let file = disk.open_stream(path);
        let file = file.map_err(CheckpointFault::system(path))?;
        let file_bytes = file.size().map_err(CheckpointFault::system(path))?;
        Self::begin(file, path, Some(file_bytes))
    }

    /// Reads the head of a part of yet unknown length: if more of it is to come, reads wait. Each
    /// read begins at the start of the previous one, or after it.
    ///
    /// # Errors
    /// As [`PartReader::open`].
    pub fn of_stream(file: Box<dyn DiskFile>, path: &Path) -> Result<Self, CheckpointFault> {
        Self::begin(file, path, None)
    }

    fn begin(
        file: Box<dyn DiskFile>,
        path: &Path,
        file_bytes: Option<u64>,
    ) -> Result<Self, CheckpointFault> {
        let mut bytes = [0; HEAD_BYTES];
        let count = file.read_at(&mut bytes, 0);
        let count = count.map_err(CheckpointFault::system(path))?;
        let head = PartHead::decode(&bytes[..count]).map_err(|flaw| CheckpointFault::Damaged {
            path: path.to_owned(),
            offset: 0,
            flaw,
        })?;
        let buffer_bytes = file_bytes.unwrap_or(u64::MAX);
        let buffer_bytes = usize::try_from(buffer_bytes).unwrap_or(usize::MAX);
        let buffer_bytes = buffer_bytes.min(BLOCK_BYTES_MAX);
        Ok(Self {
            file,
            path: path.to_owned(),
            head,
            file_bytes,
            offset: HEAD_BYTES as u64,
            blocks: 0,
            records: 0,
            digest: crc64(0, &bytes),
            buffer: vec![0; buffer_bytes],
            long: Vec::new(),
            is_within_long: false,
            entry: None,
            found: None,
        })
    }

    /// Sets the manifest's entry of the part: the end is then checked against it, too.
    ///
    /// # Errors
    /// If the file already has another length.
    pub fn expect(mut self, entry: &PartEntry) -> Result<Self, CheckpointFault> {
        let file_bytes = self.file_bytes.unwrap_or(entry.bytes);
        let flaw = match file_bytes.cmp(&entry.bytes) {
            std::cmp::Ordering::Less => Flaw::Short,
            std::cmp::Ordering::Greater => Flaw::Long,
            std::cmp::Ordering::Equal => {
                self.entry = Some(entry.clone());
                return Ok(self);
            }
        };
        Err(self.damaged(file_bytes.min(entry.bytes), flaw))
    }

    /// Returns the head of the part.
    #[must_use]
    pub fn head(&self) -> &PartHead {
        &self.head
    }

    /// Returns the part's manifest entry, once [`PartReader::next_block`] has returned `None`.
    #[must_use]
    pub fn found(&self) -> Option<&PartEntry> {
        self.found.as_ref()
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bytes of the file that were read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// Returns the next records, or `None` at the end of the part, if all of it was valid.
    ///
    /// # Errors
    /// If the system reports an error, or the part differs from what was written.
    pub fn next_block(&mut self) -> Result<Option<Block<'_>>, CheckpointFault> {
        let Some((head, end)) = self.read_block()? else {
            return Ok(None);
        };
        self.long.clear();
        if !head.continues && !head.goes_on {
            let payload = &self.buffer[BLOCK_HEAD_BYTES..end];
            return whole(payload, head.records)
                .map(Some)
                .ok_or_else(|| self.misshapen());
        }
        self.read_long(head, end)?;
        whole(&self.long, 1)
            .map(Some)
            .ok_or_else(|| self.misshapen())
    }

    /// Like [`PartReader::next_block`], without a copy: reads the following block into `memory`,
    /// whose content does not matter.
    ///
    /// # Errors
    /// Those of [`PartReader::next_block`].
    pub fn take_block(&mut self, memory: Vec<u8>) -> Result<Option<OwnedBlock>, CheckpointFault> {
        let buffer_bytes = self.buffer.len();
        let Some(Block { payload, records }) = self.next_block()? else {
            return Ok(None);
        };
        let length = payload.len();
        // Of a record that spans several blocks, the buffer has the last one.
        let is_long = !self.long.is_empty();
        let from = if is_long { 0 } else { BLOCK_HEAD_BYTES };
        let bytes = if is_long {
            std::mem::take(&mut self.long)
        } else {
            let mut memory = memory;
            memory.resize(buffer_bytes, 0);
            std::mem::replace(&mut self.buffer, memory)
        };
        let payload = from..from + length;
        Ok(Some(OwnedBlock {
            bytes,
            payload,
            records,
        }))
    }

    /// Checks the next block without returning its records. A record that spans several blocks is
    /// checked block by block, so that it does not take its length in memory. Returns `false` at
    /// the end of the part, if all of it was valid. Not to be mixed with
    /// [`PartReader::next_block`].
    ///
    /// # Errors
    /// Those of [`PartReader::next_block`].
    pub fn check_block(&mut self) -> Result<bool, CheckpointFault> {
        let was_within = self.is_within_long;
        let Some((head, end)) = self.read_block()? else {
            return if was_within {
                Err(self.misshapen())
            } else {
                Ok(false)
            };
        };
        self.is_within_long = head.goes_on;
        let is_right = if head.continues || head.goes_on {
            head.continues == was_within && head.records == u16::from(!was_within)
        } else {
            !was_within && whole(&self.buffer[BLOCK_HEAD_BYTES..end], head.records).is_some()
        };
        is_right.then_some(true).ok_or_else(|| self.misshapen())
    }

    /// Joins a record that spans several blocks, the first of which was read.
    fn read_long(&mut self, first: BlockHead, end: usize) -> Result<(), CheckpointFault> {
        if first.continues || first.records != 1 {
            return Err(self.misshapen());
        }
        self.long.clear();
        self.long
            .extend_from_slice(&self.buffer[BLOCK_HEAD_BYTES..end]);
        loop {
            let Some((head, end)) = self.read_block()? else {
                return Err(self.misshapen());
            };
            if !head.continues || head.records != 0 {
                return Err(self.misshapen());
            }
            self.long
                .extend_from_slice(&self.buffer[BLOCK_HEAD_BYTES..end]);
            if !head.goes_on {
                return Ok(());
            }
        }
    }

    /// Reads a block into the buffer; returns its head and where it ends there, or `None` at the
    /// end of the part.
    fn read_block(&mut self) -> Result<Option<(BlockHead, usize)>, CheckpointFault> {
        let count = self.read_block_bytes();
        let count = count.map_err(CheckpointFault::system(&self.path))?;
        let bytes = &self.buffer[..count];
        let read = BlockHead::read(bytes).map_err(|flaw| self.damaged(self.offset, flaw))?;
        let Some((head, payload)) = read else {
            self.found = Some(self.read_foot(count)?);
            return Ok(None);
        };
        let end = BLOCK_HEAD_BYTES + payload.len();
        if (head.generation, head.part) != (self.head.generation, self.head.part) {
            return Err(self.damaged(self.offset, Flaw::Foreign));
        }
        if u64::from(head.number) != self.blocks {
            return Err(self.damaged(self.offset, Flaw::Order));
        }
        self.digest = crc64(self.digest, &self.buffer[..BLOCK_HEAD_BYTES]);
        self.blocks += 1;
        self.records += u64::from(head.records);
        self.offset += end as u64;
        Ok(Some((head, end)))
    }

    /// Reads a block, or the foot of the part and what is behind it. Returns the number of bytes in
    /// the buffer.
    fn read_block_bytes(&mut self) -> io::Result<usize> {
        let front = self.buffer.len().min(FOOT_BYTES + 1);
        let count = self.file.read_at(&mut self.buffer[..front], self.offset)?;
        let block_bytes = BlockHead::block_bytes(&self.buffer[..count]);
        let end = block_bytes.unwrap_or(0).min(self.buffer.len());
        match self.buffer.get_mut(count..end) {
            Some(rest) => Ok(count + self.file.read_at(rest, self.offset + count as u64)?),
            None => Ok(count),
        }
    }

    /// Checks the foot, of which up to `count` bytes are in the buffer; returns the entry of the
    /// whole part.
    fn read_foot(&self, count: usize) -> Result<PartEntry, CheckpointFault> {
        let bytes = &self.buffer[..count];
        let flaw = |flaw| self.damaged(self.offset, flaw);
        if bytes.len() < FOOT_BYTES {
            return Err(flaw(Flaw::Short));
        }
        let foot = Foot::decode(bytes).map_err(flaw)?;
        let length = self.offset + FOOT_BYTES as u64;
        if bytes.len() > FOOT_BYTES || self.file_bytes.is_some_and(|known| known != length) {
            return Err(self.damaged(length, Flaw::Long));
        }
        if (foot.generation, foot.part) != (self.head.generation, self.head.part) {
            return Err(flaw(Flaw::Foreign));
        }
        let counted = (self.blocks, self.records, length, self.digest);
        if (foot.blocks, foot.records, foot.length, foot.digest) != counted {
            return Err(flaw(Flaw::Counts));
        }
        let digest = crc64(self.digest, &bytes[..FOOT_BYTES]);
        let found = (length, self.records, digest);
        let named = |entry: &PartEntry| (entry.bytes, entry.records, entry.digest);
        if self
            .entry
            .as_ref()
            .is_some_and(|entry| named(entry) != found)
        {
            return Err(flaw(Flaw::Digest));
        }
        let name = self.path.file_name().unwrap_or_default();
        Ok(PartEntry {
            name: name.to_string_lossy().into_owned(),
            bytes: length,
            records: self.records,
            digest,
        })
    }

    /// Reads the rest of the part; returns the number of records of each database.
    ///
    /// # Errors
    /// If any of it is invalid.
    pub fn count(&mut self) -> Result<BTreeMap<u16, u64>, CheckpointFault> {
        let mut databases = BTreeMap::new();
        while let Some(block) = self.next_block()? {
            for record in block.records() {
                *databases.entry(record.head.database).or_default() += 1;
            }
        }
        Ok(databases)
    }

    fn misshapen(&self) -> CheckpointFault {
        self.damaged(self.offset, Flaw::Shape)
    }

    pub(super) fn damaged(&self, offset: u64, flaw: Flaw) -> CheckpointFault {
        CheckpointFault::Damaged {
            path: self.path.clone(),
            offset,
            flaw,
        }
    }
}

fn whole(payload: &[u8], records: u16) -> Option<Block<'_>> {
    let block = Block { payload, records };
    block.is_whole().then_some(block)
}
