//! Logs as bytes, without what writes them for a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::{Disk, SystemDisk};
use crate::log::frame::Builder;
use crate::log::segment::{BlockHead, SegmentHead};
use crate::log::{LogError, Reader, Tail};

/// A directory of its own, removed at the end.
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("iolite-log-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn put(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.0.join(name), bytes).unwrap();
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

/// The bytes of a segment, block by block.
pub(super) struct Written {
    pub(super) bytes: Vec<u8>,
    head: SegmentHead,
    chain: u32,
    pub(super) sequence: u64,
}

impl Written {
    pub(super) fn new(first: u64) -> Self {
        let head = SegmentHead {
            salt: 0x0123_4567_89ab_cdef,
            created_unix_ms: 1_700_000_000_000,
        };
        Self {
            bytes: head.encode().to_vec(),
            head,
            chain: head.chain(),
            sequence: first,
        }
    }

    /// A block of frames: a command each, or several as a group.
    pub(super) fn block(&mut self, durable: u64, frames: &[&[&[&[u8]]]]) {
        let (mut bytes, mut builder) = (Vec::new(), Builder::default());
        let mut sequence = self.sequence;
        for frame in frames {
            match frame {
                [parts] => builder.effect(3, 7, 1_700_000_000_123, parts),
                group => {
                    builder.begin_group();
                    for (database, parts) in group.iter().enumerate() {
                        builder.add(u16::try_from(database).unwrap(), 8, parts);
                    }
                    builder.end_group(8, 1_700_000_000_456);
                }
            }
            bytes.extend(builder.words(sequence).flat_map(u64::to_le_bytes));
            sequence += builder.length();
        }
        let head = BlockHead {
            sequence: self.sequence,
            length: bytes.len() as u64,
            durable,
            chain: self.chain,
        };
        self.bytes.extend(head.encode(self.head.salt));
        self.bytes.extend(bytes);
        self.chain = head.next_chain(self.head.salt);
        self.sequence = sequence;
    }
}

/// What a reader gives: frames as text, and the end.
pub(super) fn read(directory: &Path, from: u64) -> (Vec<String>, Result<Tail, LogError>) {
    read_from(Arc::new(SystemDisk), directory, from)
}

pub(super) fn read_from(
    disk: Arc<dyn Disk>,
    directory: &Path,
    from: u64,
) -> (Vec<String>, Result<Tail, LogError>) {
    let mut frames = Vec::new();
    let mut reader = match Reader::open(disk, directory, from) {
        Ok(reader) => reader,
        Err(error) => return (frames, Err(error)),
    };
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                let effects = frame.effects().map(|effect| {
                    let text = String::from_utf8_lossy(effect.resp).replace("\r\n", " ");
                    format!("{}/{} {text}", effect.database, effect.generation)
                });
                let effects: Vec<String> = effects.collect();
                frames.push(format!("{} {}", frame.sequence, effects.join("; ")));
            }
            Ok(None) => return (frames, Ok(reader.tail().unwrap().clone())),
            Err(error) => return (frames, Err(error)),
        }
    }
}
