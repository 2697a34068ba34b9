//! A segment: a file of entries that is written from front to back.
//!
//! ```text
//!   0         8         16        24     32  36        4096
//!   │"IOLTIER\n"│ version │ ordinal │ salt │sum│ zeroes  │ entry │ entry │ …
//! ```

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use base::sync::Mutex;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use durability::checksum;
use durability::disk::{BlockFile, Disk, DiskFile};

use crate::codecs::Codecs;
use crate::dictionary::Dictionary;
use crate::entry::{self, HEAD_BYTES, OwnedEntry, StoredEntry, Whereabouts};
use crate::fault::TierFault;
use crate::tier::lock;

/// Bytes before the first entry.
pub(crate) const SEGMENT_HEAD_BYTES: u64 = 4096;

const MAGIC: &[u8; 8] = b"IOLTIER\n";
const VERSION: u64 = 1;

/// Number of bytes that one read of a scan requests.
const SCAN_BYTES: usize = 256 << 10;

/// Identity of a segment's file, the same for every process that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentName {
    /// Number of the segment, which names the file.
    pub ordinal: u64,
    /// Random number that distinguishes it from another file that had this ordinal.
    pub salt: u64,
    /// Length of its valid content.
    pub bytes: u64,
}

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Its index in the table, set when it is added.
    pub(crate) slot: u32,
    pub(crate) ordinal: u64,
    pub(crate) path: PathBuf,
    salt: u64,
    pub(crate) file: Box<dyn DiskFile>,
    /// A second handle for reads that bypass the system's cache, set when all of the segment is on
    /// the device; `None` if it is not available.
    pub(crate) blocks: OnceLock<Option<BlockFile>>,
    /// End of the written bytes.
    pub(crate) end_bytes: AtomicU64,
    /// Bytes of entries that are named.
    pub(crate) live_bytes: AtomicU64,
    /// Whether no more entries are added.
    pub(crate) is_sealed: AtomicBool,
    /// Whether something in it could not be read, so that it is left unchanged.
    pub(crate) is_damaged: AtomicBool,
    /// End of the durable bytes.
    synced_bytes: AtomicU64,
    /// Whether a sync failed: it is unknown which part is durable, and no checkpoint may name it
    /// any more.
    pub(crate) is_untrusted: AtomicBool,
    /// Number of users that have places of entries in it which may be forgotten meanwhile.
    pub(crate) pins: AtomicU64,
    /// Whether a checkpoint names it that is in force or may come into force.
    pub(crate) is_named: AtomicBool,
    codecs: Arc<Codecs>,
    /// Shares in the dictionaries that its entries need, taken before the first such entry is
    /// written.
    dictionaries: Mutex<Vec<Arc<Dictionary>>>,
}

impl Segment {
    fn new(
        path: PathBuf,
        (ordinal, salt): (u64, u64),
        (file, end_bytes): (Box<dyn DiskFile>, u64),
        codecs: &Arc<Codecs>,
    ) -> Self {
        Self {
            slot: 0,
            ordinal,
            path,
            salt,
            file,
            blocks: OnceLock::new(),
            end_bytes: AtomicU64::new(end_bytes),
            live_bytes: AtomicU64::new(0),
            is_sealed: AtomicBool::new(false),
            is_damaged: AtomicBool::new(false),
            synced_bytes: AtomicU64::new(0),
            is_untrusted: AtomicBool::new(false),
            pins: AtomicU64::new(0),
            is_named: AtomicBool::new(false),
            codecs: Arc::clone(codecs),
            dictionaries: Mutex::default(),
        }
    }

    /// Creates a segment with its file.
    pub(crate) fn create(
        disk: &dyn Disk,
        path: PathBuf,
        (ordinal, salt): (u64, u64),
        codecs: &Arc<Codecs>,
    ) -> Result<Self, TierFault> {
        let made = disk.create(&path).and_then(|file| {
            file.write_at(&head(ordinal, salt), 0)?;
            Ok(file)
        });
        match made {
            Ok(file) => {
                let file = (file, SEGMENT_HEAD_BYTES);
                Ok(Self::new(path, (ordinal, salt), file, codecs))
            }
            Err(cause) => {
                // An incomplete file is useless. If it cannot be removed, the next start removes
                // it.
                let _left = disk.remove(&path);
                Err(TierFault::System { path, cause })
            }
        }
    }

    /// Opens the segment of an earlier process that `name` identifies. No entries are added to it.
    pub(crate) fn open(
        disk: &dyn Disk,
        path: PathBuf,
        name: SegmentName,
        (codecs, dictionaries): (&Arc<Codecs>, Vec<Arc<Dictionary>>),
    ) -> Result<Self, TierFault> {
        let system = |path: &PathBuf, cause| TierFault::System {
            path: path.clone(),
            cause,
        };
        let file = disk.open(&path).map_err(|cause| system(&path, cause))?;
        let mut found = vec![0; head(0, 0).len()];
        let read = file
            .read_at(&mut found, 0)
            .map_err(|cause| system(&path, cause))?;
        let size = file.size().map_err(|cause| system(&path, cause))?;
        let fault = |offset_bytes, what| TierFault::Damaged {
            ordinal: name.ordinal,
            offset_bytes,
            what,
        };
        if found[..read] != head(name.ordinal, name.salt) {
            return Err(fault(0, "it is another segment"));
        }
        if size < name.bytes || name.bytes < SEGMENT_HEAD_BYTES {
            return Err(fault(size, "it ends too soon"));
        }
        let mut segment = Self::new(path, (name.ordinal, name.salt), (file, name.bytes), codecs);
        segment.dictionaries = Mutex::new(dictionaries);
        segment.is_sealed.store(true, Ordering::Relaxed);
        segment.synced_bytes.store(name.bytes, Ordering::Relaxed);
        Ok(segment)
    }

    /// Makes everything written so far durable. Returns its end.
    pub(crate) fn make_durable(&self) -> Result<u64, TierFault> {
        let end = self.end_bytes.load(Ordering::Acquire);
        if self.is_untrusted.load(Ordering::Acquire) {
            return Err(self.system(io::Error::other("an earlier sync of it failed")));
        }
        if self.synced_bytes.load(Ordering::Acquire) < end {
            if let Err(cause) = self.file.sync() {
                self.is_untrusted.store(true, Ordering::Release);
                return Err(self.system(cause));
            }
            self.synced_bytes.fetch_max(end, Ordering::AcqRel);
        }
        Ok(end)
    }

    /// Returns its identity.
    pub(crate) fn name(&self) -> SegmentName {
        SegmentName {
            ordinal: self.ordinal,
            salt: self.salt,
            bytes: self.end_bytes.load(Ordering::Acquire),
        }
    }

    pub(crate) fn at(&self, offset_bytes: u64) -> Whereabouts {
        Whereabouts {
            salt: self.salt,
            ordinal: self.ordinal,
            offset_bytes,
        }
    }

    /// Takes a share in the dictionary of an entry that is about to be written.
    pub(crate) fn need(&self, dictionary: &Arc<Dictionary>) {
        let mut shares = lock(&self.dictionaries);
        if !shares.contains(dictionary) {
            shares.push(Arc::clone(dictionary));
        }
    }

    /// Returns the dictionaries that its entries need, by number.
    pub(crate) fn needed(&self) -> Vec<Arc<Dictionary>> {
        let mut shares = lock(&self.dictionaries).clone();
        shares.sort_by_key(|one| one.name.number);
        shares
    }

    fn dictionary(&self, number: u32) -> Option<Arc<Dictionary>> {
        let shares = lock(&self.dictionaries);
        let found = shares.iter().find(|one| one.name.number == number);
        found.map(Arc::clone)
    }

    /// Writes entries after the last.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), TierFault> {
        let end = self.end_bytes.load(Ordering::Relaxed);
        self.file
            .write_at(bytes, end)
            .map_err(|cause| self.system(cause))?;
        let end = end + bytes.len() as u64;
        self.end_bytes.store(end, Ordering::Release);
        Ok(())
    }

    /// Reads the entry of a key. Reads again if the bytes are damaged.
    pub(crate) fn read(
        &self,
        offset_bytes: u64,
        bytes: usize,
        key: &[u8],
    ) -> Result<OwnedEntry, TierFault> {
        let first = self.read_once(offset_bytes, bytes, key);
        match first {
            Err(fault) if fault.is_damage() => self.read_once(offset_bytes, bytes, key),
            other => other,
        }
    }

    fn read_once(
        &self,
        offset_bytes: u64,
        bytes: usize,
        key: &[u8],
    ) -> Result<OwnedEntry, TierFault> {
        let mut buffer = vec![0; bytes];
        let read = self
            .file
            .read_at(&mut buffer, offset_bytes)
            .map_err(|cause| self.system(cause))?;
        self.entry_in(&buffer[..read], offset_bytes, key)
    }

    /// Decodes the entry of a key from bytes that were read at its offset.
    pub(crate) fn entry_in(
        &self,
        bytes: &[u8],
        offset_bytes: u64,
        key: &[u8],
    ) -> Result<OwnedEntry, TierFault> {
        let entry = entry::decode(bytes, self.at(offset_bytes), |one| self.dictionary(one))
            .map_err(|what| self.damaged(offset_bytes, what))?;
        if entry.head.key != key {
            return Err(self.damaged(offset_bytes, "it is another key's"));
        }
        let body = entry.body(&self.codecs);
        let body = body.map_err(|what| self.damaged(offset_bytes, what))?;
        Ok(OwnedEntry {
            kind: entry.head.kind,
            keyspace: entry.head.keyspace,
            body: body.into_owned(),
        })
    }

    /// Visits all entries in order, with their offsets and lengths in bytes, until `visit` returns
    /// an error.
    pub(crate) fn scan(
        &self,
        mut visit: impl FnMut(u64, usize, StoredEntry<'_>) -> Result<(), TierFault>,
    ) -> Result<(), TierFault> {
        let end = self.end_bytes.load(Ordering::Acquire);
        let mut offset = SEGMENT_HEAD_BYTES;
        let mut wanted = SCAN_BYTES;
        while offset < end {
            let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
            let asked = wanted.min(left);
            let mut buffer = vec![0; asked];
            let read = self
                .file
                .read_at(&mut buffer, offset)
                .map_err(|cause| self.system(cause))?;
            buffer.truncate(read);
            let mut done = 0;
            while let Some(bytes) = whole_entry(&buffer[done..]) {
                let at = offset + done as u64;
                let entry = &buffer[done..done + bytes];
                let entry = entry::decode(entry, self.at(at), |one| self.dictionary(one))
                    .map_err(|what| self.damaged(at, what))?;
                visit(at, bytes, entry)?;
                done += bytes;
            }
            if done == 0 {
                // If the requested bytes are missing, the file was truncated, and reading again
                // does not help.
                let needed = entry::lengths(&buffer)
                    .and_then(|(key, body)| entry::padded_bytes(key, body))
                    .filter(|needed| *needed > asked && *needed <= left);
                wanted = needed.ok_or_else(|| self.damaged(offset, "it ends too soon"))?;
            } else {
                wanted = SCAN_BYTES;
            }
            offset += done as u64;
        }
        Ok(())
    }

    pub(crate) fn damaged(&self, offset_bytes: u64, what: &'static str) -> TierFault {
        TierFault::Damaged {
            ordinal: self.ordinal,
            offset_bytes,
            what,
        }
    }

    fn system(&self, cause: io::Error) -> TierFault {
        TierFault::System {
            path: self.path.clone(),
            cause,
        }
    }
}

/// Returns the length of the entry at the start of `bytes`, or `None` if it is incomplete.
fn whole_entry(bytes: &[u8]) -> Option<usize> {
    if bytes.len() < HEAD_BYTES {
        return None;
    }
    let (key, body) = entry::lengths(bytes)?;
    entry::padded_bytes(key, body).filter(|padded| *padded <= bytes.len())
}

fn head(ordinal: u64, salt: u64) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    for word in [VERSION, ordinal, salt] {
        head.extend_from_slice(&word.to_le_bytes());
    }
    let sum = checksum::crc32c(&head);
    head.extend_from_slice(&sum.to_le_bytes());
    head.resize(usize::try_from(SEGMENT_HEAD_BYTES).unwrap_or(4096), 0);
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_these_bytes() {
        let head = head(9, 0x0102_0304_0506_0708);
        let text: String = head[..36]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        // The golden vector of docs/formats/tier.md.
        assert_eq!(
            text,
            concat!(
                "494f4c544945520a",
                "0100000000000000",
                "0900000000000000",
                "0807060504030201",
                "7632690b"
            )
        );
        assert_eq!(head.len(), 4096);
        assert!(head[36..].iter().all(|byte| *byte == 0));
    }
}
