//! Logs as bytes, without what writes them for a server.

use std::path::Path;
use std::sync::Arc;

use crate::disk::Disk;
use crate::log::frame::Builder;
use crate::log::segment::{BlockHead, SegmentHead};
use crate::log::{LogError, Reader, Tail};
use crate::simulated::SimulatedDisk;

/// Where the files of a test are.
pub(super) const PATH: &str = "log";

/// A directory with the files of a log, in memory.
pub(super) struct Directory(SimulatedDisk);

impl Directory {
    pub(super) fn new() -> Self {
        let disk = SimulatedDisk::new(1);
        disk.create_directory(Path::new(PATH)).unwrap();
        Self(disk)
    }

    pub(super) fn put(&self, name: &str, bytes: &[u8]) {
        self.remove(name);
        let file = self.0.create(&Path::new(PATH).join(name)).unwrap();
        file.write_at(bytes, 0).unwrap();
    }

    pub(super) fn remove(&self, name: &str) {
        let _may_be_new = self.0.remove(&Path::new(PATH).join(name));
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
    pub(super) fn new(ordinal: u32, first: u64) -> Self {
        let head = SegmentHead {
            ordinal,
            salt: 0x0123_4567_89ab_cdef,
            created_unix_ms: 1_700_000_000_000,
            was_used: false,
        };
        Self {
            bytes: head.encode().to_vec(),
            head,
            chain: head.chain(),
            sequence: first,
        }
    }

    /// As [`Written::new`], in a file that held something else before.
    pub(super) fn in_used_file(ordinal: u32, first: u64) -> Self {
        let mut written = Self::new(ordinal, first);
        written.head.was_used = true;
        written.bytes = written.head.encode().to_vec();
        written.chain = written.head.chain();
        written
    }

    /// A block of frames: a command each, or several as a group.
    pub(super) fn block(&mut self, durable: u64, frames: &[&[&[&[u8]]]]) {
        let (mut bytes, mut builder) = (Vec::<u8>::new(), Builder::default());
        let mut sequence = self.sequence;
        for frame in frames {
            match frame {
                [parts] => builder.effect(3, 7, 1_700_000_000_123, parts),
                group => {
                    for (database, parts) in group.iter().enumerate() {
                        builder.add(u16::try_from(database).unwrap(), 8, parts);
                    }
                    builder.end_group(8, 1_700_000_000_456);
                }
            }
            bytes.extend(builder.words(sequence).as_flattened());
            sequence += builder.length();
            builder.clear();
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
pub(super) fn read(directory: &Directory, from: u64) -> (Vec<String>, Result<Tail, LogError>) {
    read_from(Arc::new(directory.0.clone()), Path::new(PATH), from)
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
