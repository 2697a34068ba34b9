//! Logs as bytes, built without the server's writer.

use std::io;
use std::path::Path;
use std::sync::Arc;

use base::clock::ManualClock;

use crate::disk::Disk;
use crate::log::builder::Builder;
use crate::log::segment::{BlockHead, SegmentHead, VERSION};
use crate::log::{Control, Log, LogError, Options, Reader, Tail};
use crate::simulated::SimulatedDisk;

/// Directory of a test's files.
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

    pub(super) fn get(&self, name: &str) -> Vec<u8> {
        let file = self.0.open(&Path::new(PATH).join(name)).unwrap();
        let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// Opens it for writing from `start` on.
    pub(super) fn open_log(&self, start: u64) -> io::Result<Arc<Log>> {
        let (disk, clock) = (
            Arc::new(self.0.clone()),
            Arc::new(ManualClock::at_unix_ms(1)),
        );
        Log::open(disk, clock, Path::new(PATH), start, Options::default())
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
    /// Database of the frames of one command.
    pub(super) database: u16,
    /// Number of zeroes behind the heads of blocks.
    pub(super) gap: u32,
}

impl Written {
    pub(super) fn new(ordinal: u32, first: u64) -> Self {
        Self::of_version(VERSION, ordinal, first)
    }

    pub(super) fn of_version(version: u32, ordinal: u32, first: u64) -> Self {
        let head = SegmentHead {
            version,
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
            database: 3,
            gap: 0,
        }
    }

    /// Like [`Written::new`], in a file that held something else before.
    pub(super) fn in_used_file(ordinal: u32, first: u64) -> Self {
        let mut written = Self::new(ordinal, first);
        written.head.was_used = true;
        written.bytes = written.head.encode().to_vec();
        written.chain = written.head.chain();
        written
    }

    /// Adds a block of frames: a command each, or several as a group.
    pub(super) fn block(&mut self, durable: u64, frames: &[&[&[&[u8]]]]) {
        self.block_of(durable, &[], frames);
    }

    /// Like [`Written::block`], with frames of controls before the others; the last control is in
    /// front of the first group.
    pub(super) fn block_of(
        &mut self,
        durable: u64,
        controls: &[Control<'_>],
        frames: &[&[&[&[u8]]]],
    ) {
        let (mut bytes, mut builder) = (Vec::<u8>::new(), Builder::default());
        let mut sequence = self.sequence;
        let (in_front, alone) = controls.split_last().unzip();
        for control in alone.unwrap_or(&[]) {
            builder.set_time(1_700_000_000_789);
            builder.control(control);
            bytes.extend(builder.words(sequence).as_flattened());
            sequence += builder.length();
            builder.clear();
        }
        let mut in_front = in_front;
        for frame in frames {
            match frame {
                [parts] => {
                    builder.set_time(1_700_000_000_123);
                    builder.set_generation(7);
                    builder.effect(self.database, parts);
                }
                group => {
                    builder.set_time(1_700_000_000_456);
                    builder.set_generation(8);
                    for (database, parts) in group.iter().enumerate() {
                        builder.add(u16::try_from(database).unwrap(), parts);
                    }
                    if let Some(control) = in_front.take() {
                        builder.set_control(control);
                    }
                    builder.end_group();
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
            gap: self.gap,
        };
        self.bytes.extend(head.encode(self.head.salt));
        self.bytes.extend(vec![0; self.gap as usize]);
        self.bytes.extend(bytes);
        self.chain = head.next_chain(self.head.salt);
        self.sequence = sequence;
    }
}

/// Returns the result of a reader: frames as text, and the end.
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
                    let parts: Vec<_> = effect.parts.map(String::from_utf8_lossy).collect();
                    let head = format!("{}/{}", effect.database, effect.generation);
                    format!("{head} {}", parts.join(" "))
                });
                let control = frame.control().map(|control| format!("{control:?}"));
                let effects: Vec<String> = control.into_iter().chain(effects).collect();
                frames.push(format!("{} {}", frame.sequence, effects.join("; ")));
            }
            Ok(None) => return (frames, Ok(reader.tail().unwrap().clone())),
            Err(error) => return (frames, Err(error)),
        }
    }
}
