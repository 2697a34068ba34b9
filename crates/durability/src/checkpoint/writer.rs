//! Writes one part.

use std::collections::BTreeMap;
use std::io;
use std::mem::take;
use std::path::Path;

use base::crc::crc64;
use base::record_head::{Lengths, RECORD_HEAD_BYTES_MAX, RecordHead};

use super::block::{
    BLOCK_HEAD_BYTES, BlockHead, FOOT_BYTES, Foot, HEAD_BYTES, PAYLOAD_BYTES_MAX, PartHead,
};
use super::manifest::PartEntry;
use crate::disk::{Disk, DiskFile};

/// Number of written bytes, not known to be durable, at which the writer waits for the device.
/// Otherwise the system accumulates dirty pages until it stops all writers to that device. Not
/// applied to files that bypass the cache.
const UNSYNCED_BYTES_MAX: u64 = 32 << 20;

/// Maximum length of a run of records.
pub const RUN_BYTES_MAX: usize = PAYLOAD_BYTES_MAX;

/// Minimum length of a run that becomes a block of its own, written from where it lies. A shorter
/// one is combined with others.
const RUN_IN_PLACE_BYTES_MIN: usize = 16 << 10;

/// Writes one part, a block at a time.
///
/// It holds at most one block, however long a record is. After an error it must not be used again:
/// the file is invalid.
#[derive(Debug)]
pub struct PartWriter {
    file: Box<dyn DiskFile>,
    head: PartHead,
    /// Payload of the current block.
    payload: Vec<u8>,
    /// Number of records that begin in the block.
    block_records: u16,
    /// Whether the block begins inside a record.
    continues: bool,
    blocks: u32,
    records: u64,
    databases: BTreeMap<u16, u64>,
    /// Database of the last records, and their number since it last changed.
    of_one: (u16, u64),
    digest: u64,
    written_bytes: u64,
    unsynced_bytes: u64,
}

impl PartWriter {
    /// Creates the file of a part. Its name is not durable yet, see [`Disk::sync_directory`].
    ///
    /// # Errors
    /// Those of the system.
    pub fn create(disk: &dyn Disk, path: &Path, head: PartHead) -> io::Result<Self> {
        let file = disk.create_stream(path)?;
        let bytes = head.encode();
        file.write_at(&bytes, 0)?;
        Ok(Self {
            file,
            head,
            payload: Vec::with_capacity(PAYLOAD_BYTES_MAX),
            block_records: 0,
            continues: false,
            blocks: 0,
            records: 0,
            databases: BTreeMap::new(),
            of_one: (0, 0),
            digest: crc64(0, &bytes),
            written_bytes: HEAD_BYTES as u64,
            unsynced_bytes: HEAD_BYTES as u64,
        })
    }

    /// Adds a record whose body has `body_bytes` in all and comes in pieces.
    ///
    /// # Errors
    /// Those of the system; [`io::ErrorKind::InvalidInput`] if the pieces are shorter or longer in
    /// all, or the key is longer than 2³² bytes.
    pub fn record<'b>(
        &mut self,
        head: &RecordHead,
        key: &[u8],
        body_bytes: u64,
        body: impl IntoIterator<Item = &'b [u8]>,
    ) -> io::Result<()> {
        let key_bytes = u32::try_from(key.len()).map_err(|_| invalid("a key is too long"))?;
        let lengths = Lengths {
            key_bytes,
            body_bytes,
        };
        let front_bytes = head.encoded_bytes(body_bytes);
        let record_bytes = body_bytes.saturating_add((front_bytes + key.len()) as u64);
        if record_bytes > (PAYLOAD_BYTES_MAX - self.payload.len()) as u64 {
            self.end_block(false)?;
        }
        let start = self.position();
        self.block_records += 1;
        if record_bytes <= PAYLOAD_BYTES_MAX as u64 {
            head.append_to(lengths, &mut self.payload);
            self.payload.extend_from_slice(key);
            body.into_iter()
                .for_each(|piece| self.payload.extend_from_slice(piece));
        } else {
            let mut front = Vec::with_capacity(RECORD_HEAD_BYTES_MAX);
            head.append_to(lengths, &mut front);
            self.spread(&front)?;
            self.spread(key)?;
            for piece in body {
                self.spread(piece)?;
            }
        }
        if self.position() != start + record_bytes || self.payload.len() > PAYLOAD_BYTES_MAX {
            return Err(invalid("a body is not as long as was said"));
        }
        if self.continues {
            self.end_block(false)?;
        }
        self.count(head.database, 1);
        Ok(())
    }

    /// Adds `records` encoded records of one database: heads, keys and bodies, one behind the
    /// other. The caller guarantees that they are valid. A reader refuses the part if their number
    /// is wrong; only the manifest's counts reveal a wrong database.
    ///
    /// # Errors
    /// Those of the system; [`io::ErrorKind::InvalidInput`] if there are none, more than 65,535, or
    /// more than [`RUN_BYTES_MAX`] bytes.
    pub fn run(&mut self, database: u16, records: usize, run: &[u8]) -> io::Result<()> {
        let count = u16::try_from(records).ok().filter(|count| *count > 0);
        let count = count.ok_or_else(|| invalid("a run of too many records, or of none"))?;
        if run.len() > RUN_BYTES_MAX {
            return Err(invalid("a run is too long"));
        }
        let together = self.block_records.checked_add(count);
        let together = together.filter(|_| run.len() <= PAYLOAD_BYTES_MAX - self.payload.len());
        match together {
            Some(together) if run.len() < RUN_IN_PLACE_BYTES_MIN => {
                self.payload.extend_from_slice(run);
                self.block_records = together;
            }
            _ => {
                self.end_block(false)?;
                self.write_block(count, false, run)?;
            }
        }
        self.count(database, records as u64);
        Ok(())
    }

    /// Counts records; most come from the same database as the previous ones.
    fn count(&mut self, database: u16, records: u64) {
        if self.of_one.0 != database {
            self.end_database();
            self.of_one.0 = database;
        }
        self.of_one.1 += records;
        self.records += records;
    }

    fn end_database(&mut self) {
        let (database, records) = take(&mut self.of_one);
        if records > 0 {
            *self.databases.entry(database).or_default() += records;
        }
    }

    /// Returns the bytes of payload so far.
    fn position(&self) -> u64 {
        let block_heads = u64::from(self.blocks) * BLOCK_HEAD_BYTES as u64;
        self.bytes() - HEAD_BYTES as u64 - block_heads
    }

    /// Adds bytes of a record that does not fit into one block.
    fn spread(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            // Only now, with more of the record, is it known that this block is not its last.
            if self.payload.len() == PAYLOAD_BYTES_MAX {
                self.end_block(true)?;
                self.continues = true;
            }
            let room = PAYLOAD_BYTES_MAX - self.payload.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.payload.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Writes the current block, unless it is empty.
    fn end_block(&mut self, goes_on: bool) -> io::Result<()> {
        if !self.payload.is_empty() {
            let mut payload = take(&mut self.payload);
            let written = self.write_block(self.block_records, goes_on, &payload);
            payload.clear();
            self.payload = payload;
            written?;
        }
        (self.block_records, self.continues) = (0, false);
        Ok(())
    }

    /// Writes a block with this payload, in which `records` begin.
    fn write_block(&mut self, records: u16, goes_on: bool, payload: &[u8]) -> io::Result<()> {
        let head = BlockHead {
            generation: self.head.generation,
            part: self.head.part,
            number: self.blocks,
            payload_bytes: u32::try_from(payload.len()).map_err(|_| invalid("a long block"))?,
            records,
            continues: self.continues,
            goes_on,
        };
        let head = head.encode(payload);
        self.digest = crc64(self.digest, &head);
        self.file.write_at(&head, self.written_bytes)?;
        let behind = self.written_bytes + BLOCK_HEAD_BYTES as u64;
        self.file.write_at(payload, behind)?;
        let blocks = self.blocks.checked_add(1);
        self.blocks = blocks.ok_or_else(|| invalid("a long part"))?;
        self.note_written(BLOCK_HEAD_BYTES + payload.len())
    }

    fn note_written(&mut self, bytes: usize) -> io::Result<()> {
        self.written_bytes += bytes as u64;
        self.unsynced_bytes += bytes as u64;
        if self.unsynced_bytes >= UNSYNCED_BYTES_MAX && !self.file.is_past_cache() {
            self.file.sync()?;
            self.unsynced_bytes = 0;
        }
        Ok(())
    }

    /// Returns the bytes of the file so far, including those still to be written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.written_bytes + self.payload.len() as u64
    }

    /// Writes the foot and makes the whole file durable. Returns its manifest entry under `name`,
    /// and the number of records of each database.
    ///
    /// # Errors
    /// Those of the system.
    pub fn finish(mut self, name: &str) -> io::Result<(PartEntry, BTreeMap<u16, u64>)> {
        self.end_block(false)?;
        self.end_database();
        let length = self.written_bytes + FOOT_BYTES as u64;
        let foot = Foot {
            generation: self.head.generation,
            part: self.head.part,
            blocks: self.blocks.into(),
            records: self.records,
            length,
            digest: self.digest,
        };
        let bytes = foot.encode();
        self.file.write_at(&bytes, self.written_bytes)?;
        self.file.sync()?;
        let entry = PartEntry {
            name: name.to_owned(),
            bytes: length,
            records: self.records,
            digest: crc64(self.digest, &bytes),
        };
        Ok((entry, self.databases))
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
