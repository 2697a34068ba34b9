//! Reading one part, block by block.

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

/// Reads one part from its beginning to its end, checking everything on the way.
///
/// What it gives is right as far as it goes; that the part is whole is known when
/// [`PartReader::next_block`] has said that there is no more. Memory: one block, or one record if that is
/// longer.
#[derive(Debug)]
pub struct PartReader {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    head: PartHead,
    /// How long it is, where that is known before its end.
    file_bytes: Option<u64>,
    /// Where the next block begins.
    offset: u64,
    blocks: u64,
    records: u64,
    digest: u64,
    buffer: Vec<u8>,
    /// A record that is longer than a block.
    long: Vec<u8>,
    /// The last block that was checked ends within one.
    is_within_long: bool,
    entry: Option<PartEntry>,
    /// What the manifest has to say of it, known at its end.
    found: Option<PartEntry>,
}

/// Some whole records of a part.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    payload: &'a [u8],
    records: u16,
}

/// Some whole records of a part that outlive their reader.
#[derive(Debug)]
pub struct OwnedBlock {
    /// Where the reader had read it to.
    bytes: Vec<u8>,
    payload: Range<usize>,
    records: u16,
}

impl OwnedBlock {
    /// The records.
    #[must_use]
    pub fn block(&self) -> Block<'_> {
        Block {
            payload: &self.bytes[self.payload.clone()],
            records: self.records,
        }
    }

    /// Its memory, for [`PartReader::take_block`].
    #[must_use]
    pub fn into_memory(self) -> Vec<u8> {
        self.bytes
    }
}

impl<'a> Block<'a> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.into()
    }

    /// Whether there are none, which never is so.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The records.
    pub fn records(&self) -> impl Iterator<Item = Record<'a>> + use<'a> {
        let mut fields = Fields(self.payload);
        (0..self.records).map_while(move |_| record::read(&mut fields))
    }

    /// Whether the payload is just as many records as there should be.
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
    /// When the system does not give it, or it is no part or a newer one.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Self, CheckpointFault> {
        let file = disk.open_stream(path);
        let file = file.map_err(CheckpointFault::system(path))?;
        let file_bytes = file.size().map_err(CheckpointFault::system(path))?;
        Self::begin(file, path, Some(file_bytes))
    }

    /// Reads the head of a part of which nobody knows yet how long it is: where more of it is to come, reading waits. Each
    /// read begins where the one before began, or after that.
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

    /// Says what the manifest says of it: the end is then held against that, too.
    ///
    /// # Errors
    /// When it has another length already.
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

    /// To what it belongs.
    #[must_use]
    pub fn head(&self) -> &PartHead {
        &self.head
    }

    /// What a manifest says of it, once [`PartReader::next_block`] has said that there is no more.
    #[must_use]
    pub fn found(&self) -> Option<&PartEntry> {
        self.found.as_ref()
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file that were read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// The next records; none when the part is at its end, and all of it was right.
    ///
    /// # Errors
    /// When the system does not give it, or it is not what was written.
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

    /// As [`PartReader::next_block`], without a copy: the next records are read to `memory`, whose contents do not matter.
    ///
    /// # Errors
    /// Those of [`PartReader::next_block`].
    pub fn take_block(&mut self, memory: Vec<u8>) -> Result<Option<OwnedBlock>, CheckpointFault> {
        let buffer_bytes = self.buffer.len();
        let Some(Block { payload, records }) = self.next_block()? else {
            return Ok(None);
        };
        let length = payload.len();
        // Of a record that goes over several blocks, the buffer has the last.
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

    /// Checks the next block without giving what is in it: of a record that goes over several, one after the other, so that none
    /// takes its length in memory. `false` when the part is at its end, and all of it was right. Not to be mixed with
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

    /// Puts a record together that goes over several blocks, of which the first was read.
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

    /// The head of the block that was read into the buffer, and where it ends there; none at the end of
    /// the part.
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

    /// Reads a block, or the end of the part and what is behind it; how many bytes there are in the buffer.
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

    /// Checks the end, of which up to `count` bytes are in the buffer; what the whole is.
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

    /// Reads all that is left; how many records of each database that were.
    ///
    /// # Errors
    /// When anything in it is wrong.
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
