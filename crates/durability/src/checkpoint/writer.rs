//! Writing one part.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use base::crc::crc64;

use super::block::{
    BLOCK_BYTES_MAX, BLOCK_HEAD_BYTES, BlockHead, FOOT_BYTES, Foot, HEAD_BYTES, PAYLOAD_BYTES_MAX,
    PartHead,
};
use super::manifest::PartEntry;
use super::record::{RECORD_HEAD_BYTES_MAX, RecordHead};
use crate::disk::{Disk, DiskFile};

/// From so many bytes on that were written and are not known to be durable, the device is waited for.
/// Otherwise the system hoards what is written until it stops everybody who writes to that device. Not
/// where it has nothing to hoard.
const UNSYNCED_BYTES_MAX: u64 = 32 << 20;

/// Writes one part, a block at a time.
///
/// It holds one block and no more, however long a record is. After an error nothing more can be done
/// with it: the file is rubbish.
#[derive(Debug)]
pub struct PartWriter {
    file: Box<dyn DiskFile>,
    head: PartHead,
    /// Room for the head of a block, and its payload as far as it goes.
    block: Vec<u8>,
    /// Records that begin in the block.
    block_records: u16,
    /// The block begins inside a record.
    continues: bool,
    blocks: u32,
    records: u64,
    databases: BTreeMap<u16, u64>,
    /// The database that records came from last, and how many since it is that one.
    run: (u16, u64),
    digest: u64,
    written_bytes: u64,
    unsynced_bytes: u64,
}

impl PartWriter {
    /// Makes the file of a part. Its name is not durable yet, see [`Disk::sync_directory`].
    ///
    /// # Errors
    /// Those of the system.
    pub fn create(disk: &dyn Disk, path: &Path, head: PartHead) -> io::Result<Self> {
        let file = disk.create_stream(path)?;
        let bytes = head.encode();
        file.write_at(&bytes, 0)?;
        let mut block = Vec::with_capacity(BLOCK_BYTES_MAX);
        block.resize(BLOCK_HEAD_BYTES, 0);
        Ok(Self {
            file,
            head,
            block,
            block_records: 0,
            continues: false,
            blocks: 0,
            records: 0,
            databases: BTreeMap::new(),
            run: (0, 0),
            digest: crc64(0, &bytes),
            written_bytes: HEAD_BYTES as u64,
            unsynced_bytes: HEAD_BYTES as u64,
        })
    }

    /// Adds a record whose body has `body_bytes` in all, which come in pieces.
    ///
    /// # Errors
    /// Those of the system; [`io::ErrorKind::InvalidInput`] when the pieces are shorter or longer in all,
    /// or the key is longer than 2³² bytes.
    pub fn record<'b>(
        &mut self,
        head: &RecordHead,
        key: &[u8],
        body_bytes: u64,
        body: impl IntoIterator<Item = &'b [u8]>,
    ) -> io::Result<()> {
        let key_bytes = u32::try_from(key.len()).map_err(|_| invalid("a key is too long"))?;
        let mut front = [0; RECORD_HEAD_BYTES_MAX];
        let front_bytes = head.encode(key_bytes, body_bytes, &mut front);
        let front = &front[..front_bytes];
        let record_bytes = body_bytes.saturating_add((front_bytes + key.len()) as u64);
        if record_bytes > (BLOCK_BYTES_MAX - self.block.len()) as u64 {
            self.end_block(false)?;
        }
        let start = self.position();
        self.block_records += 1;
        if record_bytes <= PAYLOAD_BYTES_MAX as u64 {
            self.block.extend_from_slice(front);
            self.block.extend_from_slice(key);
            body.into_iter()
                .for_each(|piece| self.block.extend_from_slice(piece));
        } else {
            self.spread(front)?;
            self.spread(key)?;
            for piece in body {
                self.spread(piece)?;
            }
        }
        if self.position() != start + record_bytes || self.block.len() > BLOCK_BYTES_MAX {
            return Err(invalid("a body is not as long as was said"));
        }
        if self.continues {
            self.end_block(false)?;
        }
        self.records += 1;
        self.count(head.database);
        Ok(())
    }

    /// Counts a record; most come from the same database as the one before.
    fn count(&mut self, database: u16) {
        if self.run.0 != database {
            self.end_run();
            self.run.0 = database;
        }
        self.run.1 += 1;
    }

    fn end_run(&mut self) {
        let (database, records) = std::mem::take(&mut self.run);
        if records > 0 {
            *self.databases.entry(database).or_default() += records;
        }
    }

    /// Bytes of payload until here.
    fn position(&self) -> u64 {
        let block_heads = (u64::from(self.blocks) + 1) * BLOCK_HEAD_BYTES as u64;
        self.written_bytes + self.block.len() as u64 - HEAD_BYTES as u64 - block_heads
    }

    /// Adds bytes of a record that does not fit into one block.
    fn spread(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            // Only now that there is more of the record is it known that the block is not its last.
            if self.block.len() == BLOCK_BYTES_MAX {
                self.end_block(true)?;
                self.continues = true;
            }
            let room = BLOCK_BYTES_MAX - self.block.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Writes the block, if there is anything in it.
    fn end_block(&mut self, goes_on: bool) -> io::Result<()> {
        let payload = self.block.len() - BLOCK_HEAD_BYTES;
        if payload > 0 {
            let head = BlockHead {
                generation: self.head.generation,
                part: self.head.part,
                number: self.blocks,
                payload_bytes: u32::try_from(payload).map_err(|_| invalid("a long block"))?,
                records: self.block_records,
                continues: self.continues,
                goes_on,
            };
            head.write(&mut self.block);
            self.digest = crc64(self.digest, &self.block[..BLOCK_HEAD_BYTES]);
            self.file.write_at(&self.block, self.written_bytes)?;
            self.blocks = self
                .blocks
                .checked_add(1)
                .ok_or_else(|| invalid("a long part"))?;
            self.note_written(self.block.len())?;
        }
        self.block.truncate(BLOCK_HEAD_BYTES);
        (self.block_records, self.continues) = (0, false);
        Ok(())
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

    /// Bytes of the file until here, and those that are to be written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.written_bytes + (self.block.len() - BLOCK_HEAD_BYTES) as u64
    }

    /// Writes the end and makes all of the file durable; what the manifest says of it under `name`, and how
    /// many records of each database are in it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn finish(mut self, name: &str) -> io::Result<(PartEntry, BTreeMap<u16, u64>)> {
        self.end_block(false)?;
        self.end_run();
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
